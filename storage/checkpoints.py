"""Kafka's checkpoint files: one offset for each partition, as text."""

from __future__ import annotations

from storage.disk import Disk

RECOVERY_POINTS = "recovery-point-offset-checkpoint"  # records before it are flushed
LOG_STARTS = "log-start-offset-checkpoint"  # records before it are deleted
CLEANER_POINTS = "cleaner-offset-checkpoint"  # records before it are compacted
HIGH_WATERMARKS = "replication-offset-checkpoint"  # records before it are committed

TopicPartition = tuple[str, int]


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """Read a checkpoint; empty if the file is missing or unreadable, so that the logs open without it."""
    try:
        lines = disk.read_text(path).split("\n")
        offsets = {}
        for line in lines[2 : 2 + int(lines[1])]:
            topic, partition, offset = line.rsplit(" ", 2)
            offsets[topic, int(partition)] = int(offset)
        return offsets
    except (OSError, ValueError, IndexError):
        return {}


def read_offset(disk: Disk, path: str, log: TopicPartition) -> int:
    """The offset of one log; 0 if the file is missing, or has no valid offset of the log. Raises OSError if the file cannot be read."""
    if not disk.exists(path):
        return 0
    _, _, after = disk.read_text(path).partition(f"\n{log[0]} {log[1]} ")
    digits = after.partition("\n")[0]
    return int(digits) if digits.isascii() and digits.isdigit() else 0


def write_offsets(disk: Disk, path: str, offsets: dict[TopicPartition, int]) -> None:
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    disk.replace_text(path, "\n".join(["0", str(len(lines)), *lines, ""]))
