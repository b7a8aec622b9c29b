"""One flush of a log: syncs files, their names in the folder, and the topic id file."""

from __future__ import annotations

import contextlib
import re
from operator import eq
from typing import Final

from storage.disk import Disk, File
from storage.segment import Segment

# Beginning of the name of an empty file that marks a log from a failed flush until its repair. The flushed offset follows (not in
# files of earlier versions): it is in the name since syncing the folder saves names even when file data cannot be written.
FAILED: Final = "flush.failed"
METADATA: Final = "partition.metadata"  # Kafka's file with the topic id of the folder
_TOPIC_ID: Final = re.compile("[A-Za-z0-9_-]{22}")  # 16 bytes in base64
_SAME_CHARS_MIN: Final = 11  # two ids with at least so many equal characters count as one id and a damaged copy of it


class Flush:
    """A flush in progress: `run` may be called in any thread, everything else only in the owner's thread."""

    __slots__ = ("disk", "files", "flushed_before", "folder_to_sync", "is_new", "log_folder", "offset", "segments", "sizes", "topic_id")

    def __init__(
        self, offset: int, flushed_before: int, disk: Disk, log_folder: str, sync_folder: bool, is_new: bool, topic_id: str
    ) -> None:
        self.offset = offset  # everything before it is durable when `run` returns
        self.flushed_before = flushed_before  # everything before it is durable already
        self.segments: list[Segment] = []
        self.files: list[File] = []  # of the segments, pinned
        self.sizes: list[int] = []  # of the segments when the flush began
        self.disk = disk
        self.log_folder = log_folder
        self.folder_to_sync = log_folder if sync_folder else ""  # "": the names of the log's files are durable already
        self.is_new = is_new  # the folder was created since the last flush
        self.topic_id = topic_id

    def run(self) -> None:
        try:
            for file in self.files:
                file.sync()
            if self.folder_to_sync:
                sync_names(self.disk, self.folder_to_sync, self.is_new, self.topic_id)
        except OSError:
            mark_flush_failed(self.disk, self.log_folder, self.flushed_before)
            raise


def mark_flush_failed(disk: Disk, folder: str, flushed_offset: int) -> None:
    """Write a marker file, so that the next process repairs the log if this one ends before the repair.

    Without the marker, the next process could read the unflushed records from the page cache and sync them without an error, although
    they never reach the disk. After a power failure the unflushed part may have holes, with sound batches after them.
    """
    with contextlib.suppress(OSError):  # reads may fail too on a failing disk, so this block only writes
        disk.open(f"{folder}/{FAILED}.{flushed_offset}", create=True).close()
        disk.sync_folder(folder)


def failed_flushes(disk: Disk, folder: str) -> list[str]:
    """The marker files of failed flushes that were not repaired."""
    return [name for name in disk.list(folder) if name.startswith(FAILED)]


def flushed_before_failure(disk: Disk, folder: str) -> int:
    """The flushed offset at the first failed flush that was not repaired; -1 if no flush failed or the offset is unknown."""
    offsets = [name.removeprefix(f"{FAILED}.") for name in failed_flushes(disk, folder)]
    return min([int(digits) if digits.isascii() and digits.isdigit() else -1 for digits in offsets], default=-1)


def sync_names(disk: Disk, folder: str, is_new: bool, topic_id: str) -> None:
    """Sync the folder. If it is new, also sync its parent folder and its topic id, which was written without a sync."""
    if is_new and topic_id and not belongs_to_other_topic(disk, folder, topic_id):
        _put_topic_id(disk, folder, topic_id, durable=True)
    disk.sync_folder(folder)
    if is_new:
        disk.sync_folder(folder.rpartition("/")[0])


def write_topic_id(disk: Disk, folder: str, topic_id: str, durable: bool = True) -> None:
    """Write Kafka's partition.metadata, unless it names another topic."""
    if read_topic_id(disk, folder) != topic_id and not belongs_to_other_topic(disk, folder, topic_id):
        _put_topic_id(disk, folder, topic_id, durable)


def read_topic_id(disk: Disk, folder: str) -> str:
    """The topic id in partition.metadata; "" if it is missing, torn or damaged."""
    path = f"{folder}/{METADATA}"
    if not disk.exists(path):
        return ""
    lines = dict(line.split(": ", 1) for line in disk.read_text(path).splitlines() if ": " in line)
    topic_id = lines.get("topic_id", "").strip()
    return topic_id if _TOPIC_ID.fullmatch(topic_id) else ""


def belongs_to_other_topic(disk: Disk, folder: str, topic_id: str) -> bool:
    """Whether the folder has another topic's id. An id similar to `topic_id` counts as a damaged copy of it, so that the log is not lost."""
    stored = read_topic_id(disk, folder)
    return bool(stored) and sum(map(eq, stored, topic_id)) < _SAME_CHARS_MIN


def _put_topic_id(disk: Disk, folder: str, topic_id: str, durable: bool) -> None:
    disk.replace_text(f"{folder}/{METADATA}", f"version: 0\ntopic_id: {topic_id}", durable)
