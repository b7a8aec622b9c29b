"""One flush of a log: what is to be synced, and the names under which it is found."""

from __future__ import annotations

from typing import Final

from storage.disk import Disk, File
from storage.segment import Segment

METADATA: Final = "partition.metadata"  # Kafka's: which topic the folder belongs to


class Flush:
    """A flush under way: `run` may be called in any thread, everything else belongs to the log's owner."""

    __slots__ = ("disk", "files", "folder", "is_new", "offset", "segments", "sizes", "topic_id")

    def __init__(self, offset: int, disk: Disk, folder: str, is_new: bool, topic_id: str) -> None:
        self.offset = offset  # everything before it is durable when `run` returns
        self.segments: list[Segment] = []
        self.files: list[File] = []  # theirs, pinned
        self.sizes: list[int] = []  # how much of them it is about
        self.disk = disk
        self.folder = folder  # whose names are to be made safe too, or ""
        self.is_new = is_new  # the folder itself was made since the last flush
        self.topic_id = topic_id

    def run(self) -> None:
        for file in self.files:
            file.sync()
        if self.folder:
            sync_names(self.disk, self.folder, self.is_new, self.topic_id)


def sync_names(disk: Disk, folder: str, is_new: bool, topic_id: str) -> None:
    """What is in the folder, and where it was made itself, is there after a crash."""
    if is_new:
        write_topic_id(disk, folder, topic_id)
    disk.sync_folder(folder)
    if is_new:
        disk.sync_folder(folder.rpartition("/")[0])


def write_topic_id(disk: Disk, folder: str, topic_id: str, safe: bool = True) -> None:
    """Where Kafka keeps it, unless there is one."""
    path = f"{folder}/{METADATA}"
    if topic_id and not disk.exists(path):
        disk.replace_text(path, f"version: 0\ntopic_id: {topic_id}", safe)
