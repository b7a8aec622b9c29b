"""Under which epoch each stretch of a log was written, in Kafka's leader-epoch-checkpoint."""

from __future__ import annotations

from typing import Final

from storage.disk import Disk

EPOCHS: Final = "leader-epoch-checkpoint"

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
