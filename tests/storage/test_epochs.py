"""Leader epochs of a log: truncation at either end, and lookups by offset and by epoch."""

from __future__ import annotations

import pytest

from simulator.disk import SimDisk
from storage.epochs import epoch_at, epoch_end, from_offset, read_epochs, with_epoch, write_epochs

EPOCHS = [(2, 0), (14, 5), (17, 9)]


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (0, EPOCHS),
        (1, [(2, 1), (14, 5), (17, 9)]),
        (4, [(2, 4), (14, 5), (17, 9)]),
        (5, [(14, 5), (17, 9)]),
        (6, [(14, 6), (17, 9)]),
        (9, [(17, 9)]),
        (20, [(17, 20)]),
    ],
)
def test_epochs_before_an_offset_are_dropped(offset: int, expected: list[tuple[int, int]]) -> None:
    assert from_offset(EPOCHS, offset) == expected
    assert from_offset(EPOCHS[1:], 3) == EPOCHS[1:]
    assert from_offset([], offset) == []


def test_an_epoch_replaces_epochs_with_the_same_or_a_later_start() -> None:
    assert with_epoch([], 3, 0) == [(3, 0)]
    assert with_epoch(EPOCHS, 18, 20) == [*EPOCHS, (18, 20)]
    assert with_epoch(EPOCHS, 18, 9) == [(2, 0), (14, 5), (18, 9)]
    assert with_epoch(EPOCHS, 18, 6) == [(2, 0), (14, 5), (18, 6)]
    assert with_epoch(EPOCHS, 18, 5) == [(2, 0), (18, 5)]


def test_each_offset_has_the_epoch_that_began_last() -> None:
    assert [epoch_at(EPOCHS, offset) for offset in (0, 4, 5, 8, 9, 100)] == [2, 2, 14, 14, 17, 17]
    assert epoch_at(EPOCHS[1:], 4) == epoch_at([], 0) == -1


def test_an_epoch_ends_where_the_next_one_begins() -> None:
    assert [epoch_end(EPOCHS, epoch) for epoch in (0, 1, 2, 3, 13, 14, 16)] == [(0, 0), (1, 0), (2, 5), (2, 5), (2, 5), (14, 9), (14, 9)]
    assert [epoch_end(EPOCHS, epoch) for epoch in (17, 18)] == [(-1, -1)] * 2
    assert epoch_end([], 0) == (-1, -1)


def test_an_epoch_checkpoint_is_read_up_to_its_count() -> None:
    disk = SimDisk()
    write_epochs(disk, "", EPOCHS)
    assert disk.read_text("/leader-epoch-checkpoint") == "0\n3\n2 0\n14 5\n17 9\n"
    assert read_epochs(disk, "") == EPOCHS
    disk.replace_text("/leader-epoch-checkpoint", "0\n2\n2 0\n14 5\n17 9\n")
    assert read_epochs(disk, "") == EPOCHS[:2]
