"""The data directory: owner, format version, lock, checkpoints, and the clean-shutdown marker."""

from __future__ import annotations

from collections.abc import Callable, Collection

from storage.checkpoints import CLEANER_POINTS, LOG_STARTS, RECOVERY_POINTS, TopicPartition, read_offsets, write_offsets
from storage.disk import Disk, Lock
from storage.errors import DirectoryForeign, DirectoryLocked, DirectoryUnusable
from storage.segment import segment_bases, segment_name

FORMAT = 1  # incremented when older versions cannot read what this one writes
SHARED_FORMAT = 3  # while several nodes use the directory: a single broker converts it first (node_merge.py)
FORMER_SHARED_FORMAT = 2  # of several nodes, with a table of owners that does not name topics
FORMAT_FILE = "tenure.format"
UNFINISHED = "unfinished-export"  # content of FORMAT_FILE during an export
META_FILE = "meta.properties"
OWNERS_FILE = "log-owners"  # the table of owners, if several nodes use or used the directory
LOCK_FILE = ".lock"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
CLOCK_FILE = "tenure.clock"
CLOCK_DIGITS = 19
UNKNOWN = -1
RESTORE_META = "restore it from a backup, or write version=1, the node.id and the cluster.id that clients know into it"


class DataDirectory:
    """An opened data directory, locked until `close`."""

    def __init__(self, disk: Disk, path: str, lock: Lock, meta: dict[str, str], clean: bool, is_new: bool) -> None:
        self.path = path
        self.node_id = int(meta["node.id"])
        self.cluster_id = meta["cluster.id"]
        self.directory_id = meta["directory.id"]
        self.is_new = is_new
        self.clean = clean  # after a clean stop no log needs to be checked
        self.recovery_points = read_offsets(disk, f"{path}/{RECOVERY_POINTS}")
        self.cleaner_points = read_offsets(disk, f"{path}/{CLEANER_POINTS}")
        self.log_starts = read_offsets(disk, f"{path}/{LOG_STARTS}")
        self._disk = disk
        self._lock = lock

    @staticmethod
    def open(disk: Disk, path: str, node_id: int, cluster_id: str, holder: str, new_id: Callable[[], str]) -> DataDirectory:
        """Lock the directory, and create it if missing; `cluster_id` "" accepts any.

        `holder` describes this process to another that finds the directory locked. Raises DirectoryUnusable, DirectoryLocked,
        and DirectoryForeign, which leaves the directory untouched.
        """
        try:
            check_identity(disk, path, node_id, cluster_id)
            disk.make_folder(path)
            lock = disk.lock(f"{path}/{LOCK_FILE}", holder)
        except OSError as error:
            raise DirectoryUnusable(f"data directory {path}: {error.strerror or error}") from error
        if isinstance(lock, str):
            raise DirectoryLocked(f"data directory {path} is in use by {lock or 'another process'}")
        try:
            check_identity(disk, path, node_id, cluster_id)  # again: the previous holder may have changed it
            is_new = not disk.exists(f"{path}/{META_FILE}")
            meta = claim_directory(disk, path, node_id, cluster_id, new_id)
            return DataDirectory(disk, path, lock, meta, disk.exists(f"{path}/{CLEAN_SHUTDOWN_FILE}"), is_new)
        except OSError as error:
            lock.release()
            raise DirectoryUnusable(f"data directory {path}: {error.strerror or error}") from error
        except BaseException:
            lock.release()
            raise

    def remove_clean_marker(self) -> None:
        """Remove the clean-shutdown marker: from now on a crash leaves logs that need checking."""
        try:
            if self.clean:
                self._disk.remove(f"{self.path}/{CLEAN_SHUTDOWN_FILE}")
                self._disk.sync_folder(self.path)
        except OSError as error:
            self.close()
            raise DirectoryUnusable(f"data directory {self.path}: {error.strerror or error}") from error

    def log_folder(self, name: str, partition: int) -> str:
        return f"{self.path}/{name}-{partition}"

    # Checkpoints: each method blocks for the disk, and only one call of each may run at a time. Entries of logs that the broker
    # does not open, for example in a data directory of Kafka, are kept.

    def checkpoint(self, recovery_points: dict[TopicPartition, int]) -> None:
        """Save the flushed offsets: after a crash, damage before them is never treated as a torn end."""
        self.recovery_points = self._save(RECOVERY_POINTS, self.recovery_points, self.recovery_points | recovery_points)

    def checkpoint_cleaned(self, points: dict[TopicPartition, int]) -> None:
        self.cleaner_points = self._save(CLEANER_POINTS, self.cleaner_points, self.cleaner_points | points)

    def checkpoint_starts(self, offsets: dict[TopicPartition, int]) -> None:
        """Save log start offsets. They never decrease: deleted records must not be read again."""
        known = self.log_starts
        self.log_starts = self._save(LOG_STARTS, known, known | {log: max(offset, known.get(log, 0)) for log, offset in offsets.items()})

    def forget(self, logs: Collection[TopicPartition]) -> None:
        """Remove deleted logs from the checkpoints: new logs may get the same names."""
        self.recovery_points = self._save(RECOVERY_POINTS, self.recovery_points, _without(self.recovery_points, logs))
        self.cleaner_points = self._save(CLEANER_POINTS, self.cleaner_points, _without(self.cleaner_points, logs))
        self.log_starts = self._save(LOG_STARTS, self.log_starts, _without(self.log_starts, logs))

    def _save(self, name: str, old: dict[TopicPartition, int], new: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        if new != old:
            write_offsets(self._disk, f"{self.path}/{name}", new)
        return new

    def last_use(self) -> int:
        """The time saved by `note_use`, in milliseconds since 1970; UNKNOWN if it cannot be read."""
        try:
            text = self._disk.read_text(f"{self.path}/{CLOCK_FILE}").strip()
        except (OSError, ValueError):
            return UNKNOWN
        return int(text) if text.isascii() and text.isdigit() and len(text) < CLOCK_DIGITS else UNKNOWN

    def note_use(self, now: int) -> None:
        """Save the time of this use, for the next start to compare with its clock; call it only with a time that can be trusted.

        Raises OSError. Not synced: after a crash the file may have any content.
        """
        self._disk.replace_text(f"{self.path}/{CLOCK_FILE}", f"{now}\n", durable=False)

    def mark_clean(self) -> None:
        """Write Kafka's clean-shutdown marker, after every log was flushed and closed."""
        self._disk.replace_text(f"{self.path}/{CLEAN_SHUTDOWN_FILE}", '{"version":0,"brokerEpoch":-1}')

    def close(self) -> None:
        self._lock.release()


def _without(offsets: dict[TopicPartition, int], logs: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    return {log: offset for log, offset in offsets.items() if log not in logs}


def check_location(disk: Disk, path: str) -> None:
    """Raise DirectoryForeign if the folder is that of a log, or would be a new data directory inside another one. Writes nothing."""
    folder = parent = disk.real_path(path)
    if _has_segments(disk, folder):
        raise DirectoryForeign(
            f"data directory {path} is the folder of a log, with segments such as {segment_name(0)}.log: name the data directory that contains it"
        )
    if _is_data_directory(disk, folder):
        return
    while parent:
        parent = parent.rpartition("/")[0]
        if _is_data_directory(disk, parent):
            raise DirectoryForeign(f"data directory {path} lies inside the data directory {parent or '/'}: name that one, or a folder outside of it")


def _has_segments(disk: Disk, path: str) -> bool:
    try:
        return disk.exists(path) and bool(segment_bases(disk, path))
    except OSError:  # missing, or cannot be listed: the opening of the directory reports that
        return False


def _is_data_directory(disk: Disk, path: str) -> bool:
    """Whether a broker, Tenure's or Kafka's, has used the folder as its data directory."""
    if disk.exists(f"{path}/{FORMAT_FILE}"):
        return True
    try:
        return disk.exists(f"{path}/{META_FILE}") and "cluster.id" in parse_properties(disk.read_text(f"{path}/{META_FILE}"))
    except (OSError, ValueError):
        return False


def check_identity(disk: Disk, path: str, node_id: int, cluster_id: str) -> None:
    """Raise DirectoryForeign if the directory belongs to another node or cluster, or cannot be used as it is.

    Its format may be newer, that of several nodes or of an unfinished export, or its meta.properties may be damaged.
    """
    if disk.exists(f"{path}/{FORMAT_FILE}"):  # missing in a new directory, and in a directory of Kafka
        _check_format(path, disk.read_text(f"{path}/{FORMAT_FILE}").strip())
    if disk.exists(f"{path}/{META_FILE}"):
        _check_meta(f"{path}/{META_FILE}", parse_properties(disk.read_text(f"{path}/{META_FILE}")), node_id, cluster_id)


def _check_format(path: str, text: str) -> None:
    if text == UNFINISHED:
        raise DirectoryForeign(f"data directory {path} is an export that has not finished; repeat the command that made it (tenure store export)")
    if not (text.isascii() and text.isdigit()) or int(text) > SHARED_FORMAT:
        raise DirectoryForeign(
            f"data directory {path} has format {text or 'nothing'} and this version reads up to {SHARED_FORMAT}; start the version that wrote it"
        )
    if int(text) == FORMER_SHARED_FORMAT:
        raise DirectoryForeign(former_shared_format(path))
    if int(text) == SHARED_FORMAT:
        raise DirectoryForeign(
            f"data directory {path} has format {text}, that of several nodes, which a single broker converts only with its folder nodes; restore the folder"
        )


def former_shared_format(path: str) -> str:
    return (
        f"data directory {path} has format {FORMER_SHARED_FORMAT}, that of several nodes of an earlier version: start that version once"
        " without --nodes, which converts the directory, and then this one"
    )


def claim_directory(disk: Disk, path: str, node_id: int, cluster_id: str, new_id: Callable[[], str]) -> dict[str, str]:
    file = f"{path}/{META_FILE}"
    if disk.exists(file):
        meta = parse_properties(disk.read_text(file))
    else:
        meta = {"node.id": str(node_id), "directory.id": new_id(), "version": "1", "cluster.id": cluster_id or new_id()}
        disk.replace_text(file, "".join(f"{name}={value}\n" for name, value in meta.items()))
    if not disk.exists(f"{path}/{FORMAT_FILE}"):
        disk.replace_text(f"{path}/{FORMAT_FILE}", f"{FORMAT}\n")
    meta.setdefault("node.id", meta.get("broker.id", ""))
    meta.setdefault("directory.id", "")
    return meta


def _check_meta(file: str, meta: dict[str, str], node_id: int, cluster_id: str) -> None:
    if meta.get("version") not in ("0", "1") or not meta.get("cluster.id"):
        raise DirectoryForeign(f"{file} is damaged: it has no readable version and cluster.id; {RESTORE_META}")
    stored_node = meta.get("node.id", meta.get("broker.id", ""))
    if not (stored_node.isascii() and stored_node.isdigit()):
        raise DirectoryForeign(f"{file} is damaged: it has no readable node.id; {RESTORE_META}")
    if int(stored_node) != node_id:
        raise DirectoryForeign(
            f"{file} belongs to node {stored_node}, not {node_id}: set node.id={stored_node} or use another directory"
        )
    if cluster_id and meta["cluster.id"] != cluster_id:
        raise DirectoryForeign(
            f"{file} belongs to cluster {meta['cluster.id']}, not {cluster_id}: leave cluster.id out or use another directory"
        )


def parse_properties(text: str) -> dict[str, str]:
    """Parse the subset of Java's properties format that these files use."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line and not line.lstrip().startswith(("#", "!")))
    return {name.strip(): value.strip() for name, value in pairs}
