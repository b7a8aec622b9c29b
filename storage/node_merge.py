"""Convert a data directory of several nodes to one of a single broker.

For each log, checkpoint entries and unflushed batches are collected from the folder of its last writer into `nodes/merged`, and moved
to the data directory when they are complete. After a crash at any step, the start of a single broker completes the conversion; so does
the start of a node, if `nodes/merged` is complete.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from storage.checkpoints import CLEANER_POINTS, LOG_STARTS, RECOVERY_POINTS, TopicPartition, read_offsets, write_offsets
from storage.directory import CLEAN_SHUTDOWN_FILE, CLOCK_FILE, FORMAT, FORMAT_FILE, LOCK_FILE, META_FILE, SHARED_FORMAT, parse_properties
from storage.disk import Disk, Lock, SharedDisk
from storage.errors import DirectoryLocked, DirectoryUnusable
from storage.owners import NO_SLOT, SINGLE_BROKER, OwnerTable
from storage.store import LogId
from storage.turn_format import AppendedBatch
from storage.turn_log import LeftoverTurns, TurnLog, is_turn_log

NODES_FOLDER = "nodes"
SINGLE = "single"
MERGED = "merged"
COMPLETE = "complete"  # a file that marks `nodes/merged` as complete; it contains the id of the single broker
NOTES = "__coordinator_notes"  # a notes log has the owner of the offsets log of its partition
OFFSETS = "__consumer_offsets"


def node_folder(root: str, node: int | str) -> str:
    return f"{root}/{NODES_FOLDER}/{node}"


def is_shared(disk: Disk, root: str) -> bool:
    """Whether this is a data directory of several nodes."""
    file = f"{root}/{FORMAT_FILE}"
    return disk.exists(f"{root}/{NODES_FOLDER}") and disk.exists(file) and disk.read_text(file).strip() == str(SHARED_FORMAT)


def merge_nodes(disk: SharedDisk, root: str, node_id: int, holder: str) -> None:
    """Convert the directory for the single broker `node_id`. Raises DirectoryLocked while a node runs, DirectoryUnusable and OSError."""
    locks: list[Lock] = []
    try:
        for path in (root, *(node_folder(root, name) for name in _node_names(disk, root))):
            lock = disk.lock(f"{path}/{LOCK_FILE}", holder)
            if isinstance(lock, str):
                raise DirectoryLocked(f"data directory {root} is in use by several nodes: {path} by {lock or 'another process'}")
            locks.append(lock)
        if is_shared(disk, root):
            if not disk.exists(f"{node_folder(root, MERGED)}/{COMPLETE}"):
                move_files_of_single_broker(disk, root)
                _collect(disk, root, node_id)
            finish_merge(disk, root)
    finally:
        for lock in locks:
            lock.release()


def move_files_of_single_broker(disk: Disk, root: str) -> None:
    """Move the process files of a single broker to `nodes/single`; after a crash the next start of either kind moves the remaining ones."""
    # The clean-shutdown marker is moved last, since it holds only together with all other files.
    names = [*filter(is_turn_log, disk.list(root)), RECOVERY_POINTS, LOG_STARTS, CLEANER_POINTS, CLOCK_FILE, CLEAN_SHUTDOWN_FILE]
    names = [name for name in names if disk.exists(f"{root}/{name}")]
    if names:
        folder = node_folder(root, SINGLE)
        disk.make_folder(folder)
        for name in names:
            disk.rename(f"{root}/{name}", f"{folder}/{name}")
        disk.sync_folder(folder)
        disk.sync_folder(root)


def finish_merge(disk: Disk, root: str) -> None:
    """Move the files of `nodes/merged` to the data directory."""
    merged = node_folder(root, MERGED)
    node_id = disk.read_text(f"{merged}/{COMPLETE}").strip()
    for name in disk.list(merged):
        if name != COMPLETE:
            disk.rename(f"{merged}/{name}", f"{root}/{name}")
    disk.sync_folder(root)
    disk.sync_folder(merged)
    meta_file = f"{root}/{META_FILE}"
    meta = parse_properties(disk.read_text(meta_file)) if disk.exists(meta_file) else {}
    if meta and not disk.exists(node_folder(root, SINGLE)):  # no single broker used the directory before
        disk.replace_text(meta_file, "".join(f"{name}={value}\n" for name, value in (meta | {"node.id": node_id}).items()))
    disk.replace_text(f"{root}/{FORMAT_FILE}", f"{FORMAT}\n")
    disk.remove(f"{merged}/{COMPLETE}")


def _collect(disk: SharedDisk, root: str, node_id: int) -> None:
    merged = node_folder(root, MERGED)
    disk.make_folder(merged)
    remove_files(disk, merged)
    table = OwnerTable(disk, root)
    try:
        points: dict[TopicPartition, int] = {}
        starts: dict[TopicPartition, int] = {}
        turns: list[AppendedBatch] = []
        last_use = ""
        writer_of = partial(last_writer, disk, root, table)
        for name in writer_names(disk, root):
            folder = node_folder(root, name)
            points |= _offsets_of(disk, root, name, writer_of, RECOVERY_POINTS)
            starts |= _offsets_of(disk, root, name, writer_of, LOG_STARTS)
            turns += _unflushed_batches(disk, folder, name, writer_of)
            if disk.exists(f"{folder}/{CLOCK_FILE}"):
                last_use = max(last_use, disk.read_text(f"{folder}/{CLOCK_FILE}").strip(), key=lambda text: (len(text), text))
    finally:
        table.close()
    write_offsets(disk, f"{merged}/{RECOVERY_POINTS}", points)
    write_offsets(disk, f"{merged}/{LOG_STARTS}", starts)
    if last_use:
        disk.replace_text(f"{merged}/{CLOCK_FILE}", f"{last_use}\n")
    if turns:
        log = TurnLog(disk, merged, 1)
        log.write(turns)
        log.close()
    disk.replace_text(f"{merged}/{COMPLETE}", f"{node_id}\n")


def log_starts(disk: Disk, root: str, table: OwnerTable) -> dict[TopicPartition, int]:
    """The start offset of each log in the checkpoints of its last writer."""
    starts: dict[TopicPartition, int] = {}
    for name in writer_names(disk, root):
        starts |= _offsets_of(disk, root, name, partial(last_writer, disk, root, table), LOG_STARTS)
    return starts


def writer_names(disk: Disk, root: str) -> list[str]:
    return [*_node_names(disk, root), *([SINGLE] if disk.exists(node_folder(root, SINGLE)) else [])]


def _offsets_of(disk: Disk, root: str, name: str, writer_of: Callable[[LogId], str], file: str) -> dict[TopicPartition, int]:
    offsets = read_offsets(disk, f"{node_folder(root, name)}/{file}")
    return {log: offset for log, offset in offsets.items() if writer_of(LogId(*log)) == name}


def _unflushed_batches(disk: Disk, folder: str, name: str, writer_of: Callable[[LogId], str]) -> list[AppendedBatch]:
    """The batches in a node's `turns.N` that logs may lack. Raises DirectoryUnusable if any of them cannot be read."""
    leftover = LeftoverTurns(disk, folder)
    if leftover.damage:
        path = leftover.damage[0][0]
        raise DirectoryUnusable(f"{path} is damaged: start the nodes again, which know which logs may lack batches, or move the file away")
    entries: list[AppendedBatch] = []
    for log in leftover.names:
        topic, _, partition = log.rpartition("-")
        if partition.isdigit() and writer_of(LogId(topic, int(partition))) == name:
            entries += leftover.entries_of(log)
    return entries


def last_writer(disk: Disk, root: str, table: OwnerTable, id: LogId) -> str:
    """The folder name of the log's last writer; "" if the log has none."""
    if id.name == NOTES:
        id = LogId(OFFSETS, id.partition)
    slot = table.read(id)
    if slot.writer != SINGLE_BROKER:
        return str(abs(slot.writer) - 1)  # for NO_WRITER, a number that no node has
    if slot == NO_SLOT and not disk.exists(f"{root}/{id.name}-{id.partition}"):
        return ""  # nodes have deleted its topic, and another log has its slot
    return SINGLE


def _node_names(disk: Disk, root: str) -> list[str]:
    folder = f"{root}/{NODES_FOLDER}"
    names = disk.list(folder) if disk.exists(folder) else []
    return [name for name in names if name.isascii() and name.isdigit()]


def remove_files(disk: Disk, folder: str) -> None:
    for name in disk.list(folder):
        disk.remove(f"{folder}/{name}")
    disk.sync_folder(folder)
