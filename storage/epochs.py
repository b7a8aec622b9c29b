"""The leader epochs of a log and their start offsets, in Kafka's leader-epoch-checkpoint."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from storage.disk import Disk

EPOCHS: Final = "leader-epoch-checkpoint"
UNKNOWN: Final = -1

Epochs = list[tuple[int, int]]  # (epoch, its start offset), both ascending


def read_epochs(disk: Disk, folder: str) -> Epochs:
    """Read the checkpoint; empty if it is missing or malformed, since each batch has its epoch too. Raises OSError."""
    path = f"{folder}/{EPOCHS}"
    if not disk.exists(path):
        return []
    try:
        lines = disk.read_text(path).split("\n")
        pairs = [line.split() for line in lines[2 : 2 + int(lines[1])]]
        return [(int(epoch), int(start)) for epoch, start in pairs]
    except (ValueError, IndexError):
        return []


def write_epochs(disk: Disk, folder: str, epochs: Epochs) -> None:
    lines = [f"{epoch} {start}" for epoch, start in epochs]
    # Not synced: each batch has its epoch, and an opening trusts the batches.
    disk.replace_text(f"{folder}/{EPOCHS}", "\n".join(["0", str(len(lines)), *lines, ""]), durable=False)


def with_epoch(epochs: Epochs, epoch: int, offset: int) -> Epochs:
    """Add `epoch`, which begins at `offset`; drop epochs that begin there or later."""
    return [*(known for known in epochs if known[1] < offset), (epoch, offset)]


def from_offset(epochs: Epochs, offset: int) -> Epochs:
    """The epochs of a log whose new start is `offset`."""
    earlier = [epoch for epoch, start in epochs if start <= offset]
    later = [known for known in epochs if known[1] > offset]
    return [(earlier[-1], offset), *later] if earlier else later


def epoch_at(epochs: Epochs, offset: int) -> int:
    number = bisect_right(epochs, offset, key=_start_of)
    return epochs[number - 1][0] if number else UNKNOWN


def epoch_end(epochs: Epochs, epoch: int) -> tuple[int, int]:
    """The newest known epoch not above `epoch`, and its end offset, as in Kafka's OffsetForLeaderEpoch.

    An epoch before the first known one ends where the first known one begins. (-1, -1) for the newest known epoch and
    for a later one: only the caller knows the end of the log.
    """
    number = bisect_right(epochs, epoch, key=_epoch_of)
    if number == len(epochs):
        return UNKNOWN, UNKNOWN
    return (epochs[number - 1][0] if number else epoch), epochs[number][1]


def _start_of(known: tuple[int, int]) -> int:
    return known[1]


def _epoch_of(known: tuple[int, int]) -> int:
    return known[0]
