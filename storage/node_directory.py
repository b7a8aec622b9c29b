"""A data directory that several nodes share, for one of these nodes.

The logs are in the directory itself, as with a single broker. The files of one process (checkpoints, `turns.N`, clean-shutdown marker,
clock) are in `nodes/<id>/`. Such files of a single broker that used the directory before are moved to `nodes/single/` once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from storage.checkpoints import TopicPartition
from storage.directory import (
    CLEAN_SHUTDOWN_FILE,
    FORMAT,
    FORMAT_FILE,
    FORMER_SHARED_FORMAT,
    LOCK_FILE,
    META_FILE,
    RESTORE_META,
    SHARED_FORMAT,
    DataDirectory,
    check_identity,
    claim_directory,
    former_shared_format,
    parse_properties,
)
from storage.disk import Disk, Lock, SharedDisk
from storage.errors import DirectoryForeign, DirectoryLocked, DirectoryUnusable
from storage.node_merge import (
    COMPLETE,
    MERGED,
    NODES_FOLDER,
    SINGLE,
    finish_merge,
    move_files_of_single_broker,
    node_folder,
    remove_files,
)
from storage.owners import OwnerTable

__all__ = ["NODES_FOLDER", "SINGLE", "NodeDirectory", "node_folder"]


class NodeDirectory(DataDirectory):
    """The folder of one node; `root` is the data directory with the logs."""

    def __init__(self, disk: Disk, path: str, lock: Lock, meta: dict[str, str], clean: bool, is_new: bool, root: str) -> None:
        super().__init__(disk, path, lock, meta, clean, is_new)
        self.root = root

    @staticmethod
    def open_node(disk: SharedDisk, root: str, node_id: int, cluster_id: str, holder: str, new_id: Callable[[], str]) -> NodeDirectory:
        """Prepare the data directory for several nodes, and lock this node's folder.

        Raises DirectoryUnusable, DirectoryForeign, and DirectoryLocked. While another node prepares the directory, retry after DirectoryLocked.
        """
        try:
            disk.make_folder(root)
            lock = disk.lock(f"{root}/{LOCK_FILE}", holder)
            if isinstance(lock, str):
                raise DirectoryLocked(f"data directory {root} is in use by {lock or 'another process'}")
            try:
                cluster_id = _prepare(disk, root, cluster_id, new_id)
                return NodeDirectory._open_folder(disk, root, node_id, cluster_id, holder, new_id)
            finally:
                lock.release()
        except OSError as error:
            raise DirectoryUnusable(f"data directory {root}: {error.strerror or error}") from error

    @staticmethod
    def _open_folder(disk: Disk, root: str, node_id: int, cluster_id: str, holder: str, new_id: Callable[[], str]) -> NodeDirectory:
        path = node_folder(root, node_id)
        disk.make_folder(path)
        lock = disk.lock(f"{path}/{LOCK_FILE}", holder)
        if isinstance(lock, str):
            raise DirectoryLocked(f"node {node_id} of data directory {root} is already running: {lock or 'another process'}")
        try:
            check_identity(disk, path, node_id, cluster_id)
            is_new = not disk.exists(f"{path}/{META_FILE}")
            meta = claim_directory(disk, path, node_id, cluster_id, new_id)
            return NodeDirectory(disk, path, lock, meta, disk.exists(f"{path}/{CLEAN_SHUTDOWN_FILE}"), is_new, root)
        except BaseException:
            lock.release()
            raise

    def log_folder(self, name: str, partition: int) -> str:
        return f"{self.root}/{name}-{partition}"

    def adopt(self, logs: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Prepare this node's checkpoints for logs that it takes over, given the logs' recovery points and start offsets.

        A stale entry, from when this node owned an earlier log of this name, is removed: it may belong to another topic.
        """
        points, starts, cleaned = self.recovery_points, self.log_starts, self.cleaner_points
        stale = {log for log, (point, start) in logs.items() if points.get(log, 0) > point or starts.get(log, 0) > start or log in cleaned}
        if stale:
            self.forget(stale)
        self.checkpoint_starts({log: start for log, (_, start) in logs.items() if start})


def _prepare(disk: SharedDisk, root: str, cluster_id: str, new_id: Callable[[], str]) -> str:
    """Convert the data directory to one of several nodes, if it is not one yet; return the cluster id."""
    format_file, meta_file = f"{root}/{FORMAT_FILE}", f"{root}/{META_FILE}"
    text = disk.read_text(format_file).strip() if disk.exists(format_file) else "0"
    if not (text.isascii() and text.isdigit()) or int(text) > SHARED_FORMAT:
        raise DirectoryForeign(
            f"data directory {root} has format {text or 'nothing'} and this version reads up to {SHARED_FORMAT}; start the version that wrote it"
        )
    if int(text) == FORMER_SHARED_FORMAT:
        raise DirectoryForeign(former_shared_format(root))
    meta = parse_properties(disk.read_text(meta_file)) if disk.exists(meta_file) else {}
    stored = meta.get("cluster.id", "")
    if meta and not stored:
        raise DirectoryForeign(f"{meta_file} is damaged: it has no readable cluster.id; {RESTORE_META}")
    if stored and cluster_id and stored != cluster_id:
        raise DirectoryForeign(
            f"{meta_file} belongs to cluster {stored}, not {cluster_id}: leave cluster.id out or use another directory"
        )
    cluster_id = stored or cluster_id or new_id()
    merged = node_folder(root, MERGED)
    if int(text) == SHARED_FORMAT and disk.exists(f"{merged}/{COMPLETE}"):  # an interrupted conversion to a single broker
        finish_merge(disk, root)
        text = str(FORMAT)
    if int(text) < SHARED_FORMAT:
        _share(disk, root)
    move_files_of_single_broker(disk, root)
    if not meta:  # meta.properties of a former single broker stays; a new one is written last
        meta = {"node.id": "0", "directory.id": new_id(), "version": "1", "cluster.id": cluster_id}
        disk.replace_text(meta_file, "".join(f"{name}={value}\n" for name, value in meta.items()))
    return cluster_id


def _share(disk: SharedDisk, root: str) -> None:
    """Create the table of owners. Its entries say that a single broker wrote every log."""
    for folder in (node_folder(root, SINGLE), node_folder(root, MERGED)):
        if disk.exists(folder):
            remove_files(disk, folder)
    disk.make_folder(f"{root}/{NODES_FOLDER}")
    table = OwnerTable(disk, root)
    table.forget_writers()
    table.close()
    disk.sync_folder(root)
    disk.replace_text(f"{root}/{FORMAT_FILE}", f"{SHARED_FORMAT}\n")
