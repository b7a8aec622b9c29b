"""Under which epoch each stretch of a log was written, in Kafka's leader-epoch-checkpoint."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from storage.disk import Disk

EPOCHS: Final = "leader-epoch-checkpoint"
UNKNOWN: Final = -1

Epochs = list[tuple[int, int]]  # (epoch, the first offset written under it), both growing


def read_epochs(disk: Disk, folder: str) -> Epochs:
    """Empty for a file that is not there or cannot be understood: epochs tell apart what came when, no data."""
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
    # Not worth the wait for the disk: each batch has its epoch, and an opening believes the batches.
    disk.replace_text(f"{folder}/{EPOCHS}", "\n".join(["0", str(len(lines)), *lines, ""]), safe=False)


def with_epoch(epochs: Epochs, epoch: int, offset: int) -> Epochs:
    """`epoch` begins at `offset`; under those that would begin there or later nothing is left."""
    return [*(known for known in epochs if known[1] < offset), (epoch, offset)]


def from_offset(epochs: Epochs, offset: int) -> Epochs:
    """What is before `offset` is gone; the epoch that it lies in begins there."""
    before = [epoch for epoch, start in epochs if start <= offset]
    behind = [known for known in epochs if known[1] > offset]
    return [(before[-1], offset), *behind] if before else behind


def epoch_at(epochs: Epochs, offset: int) -> int:
    found = bisect_right(epochs, offset, key=_start_of)
    return epochs[found - 1][0] if found else UNKNOWN


def epoch_end(epochs: Epochs, epoch: int) -> tuple[int, int]:
    """The newest epoch that is not above `epoch`, and where the next one begins: as Kafka answers who asks where `epoch` ended.

    Below all that are known it is `epoch` itself, which ended where the first one began; (-1, -1) for a newer one than these,
    or the newest, which has not ended.
    """
    found = bisect_right(epochs, epoch, key=_epoch_of)
    if found == len(epochs):
        return UNKNOWN, UNKNOWN
    return (epochs[found - 1][0] if found else epoch), epochs[found][1]


def _start_of(known: tuple[int, int]) -> int:
    return known[1]


def _epoch_of(known: tuple[int, int]) -> int:
    return known[0]
