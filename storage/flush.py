"""One flush of a log: what is to be synced, and the names under which it is found."""

from __future__ import annotations

from typing import Final

from storage.disk import Disk, File
from storage.segment import Segment

METADATA: Final = "partition.metadata"  # Kafka's: which topic the folder belongs to
TOPIC_ID_CHARACTERS: Final = 22  # 16 bytes in base64


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
    if is_new and topic_id and read_topic_id(disk, folder) in ("", topic_id):
        _put_topic_id(disk, folder, topic_id, safe=True)  # the first one was written without a sync
    disk.sync_folder(folder)
    if is_new:
        disk.sync_folder(folder.rpartition("/")[0])


def write_topic_id(disk: Disk, folder: str, topic_id: str, safe: bool = True) -> None:
    """Where Kafka keeps it, unless there is one."""
    if topic_id and not read_topic_id(disk, folder):
        _put_topic_id(disk, folder, topic_id, safe)


def read_topic_id(disk: Disk, folder: str) -> str:
    """Which topic the folder says it belongs to; "" where it does not say, or a power failure has torn what it said."""
    path = f"{folder}/{METADATA}"
    if not disk.exists(path):
        return ""
    lines = dict(line.split(": ", 1) for line in disk.read_text(path).splitlines() if ": " in line)
    found = lines.get("topic_id", "").strip()
    return found if len(found) == TOPIC_ID_CHARACTERS else ""


def _put_topic_id(disk: Disk, folder: str, topic_id: str, safe: bool) -> None:
    disk.replace_text(f"{folder}/{METADATA}", f"version: 0\ntopic_id: {topic_id}", safe)
