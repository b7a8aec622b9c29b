"""Segments made sound by an opening or a repair: folders laid out by hand."""

from __future__ import annotations

import pytest

from storage import DamagedLog, Handles
from storage.opening import Recovery, Repair, open_deferred, open_segments
from storage.segment import segment_name
from tests.storage.faulty_disk import FaultyDisk
from tests.storage.logs import overwrite, read
from tests.storage.test_segment import one

PATH = "/data/orders-0"


@pytest.fixture
def disk() -> FaultyDisk:
    disk = FaultyDisk()
    disk.make_folder(PATH)
    return disk


def laid(disk: FaultyDisk, segments: dict[int, list[bytes]]) -> None:
    for base, batches in segments.items():
        overwrite(disk, f"{PATH}/{segment_name(base)}.log", b"".join(batches))


def data(*offsets: int) -> list[bytes]:
    return [one(offset).data for offset in offsets]


def held(disk: FaultyDisk, base: int = 0) -> bytes:
    return read(disk, f"{PATH}/{segment_name(base)}.log")


@pytest.mark.parametrize("there", [0, 1, 2, 3])
@pytest.mark.parametrize("flushed", [0, 1])
@pytest.mark.parametrize("deferred", [False, True])
def test_a_repair_takes_what_the_disk_lost_from_the_batches_that_were_written_twice(
    disk: FaultyDisk, there: int, flushed: int, deferred: bool
) -> None:
    flushed = min(flushed, there)
    if there:
        laid(disk, {0: data(*range(there))})
    repair = Repair(disk, PATH, flushed, 3, False, deferred=deferred, written_twice=lambda: data(0, 1, 2))
    repair.run()
    assert held(disk) == b"".join(data(0, 1, 2))
    assert [(segment.base, segment.next_offset) for segment in repair.segments] == [(0, 3)]
    assert repair.recovery == Recovery()
    assert disk.opened == 0
    disk.crash()
    assert held(disk) == b"".join(data(0, 1, 2))


@pytest.mark.parametrize("twice", [[], [1, 2], [0], [0, 2]])
def test_a_repair_that_finds_less_than_was_told_says_so(disk: FaultyDisk, twice: list[int]) -> None:
    with pytest.raises(DamagedLog, match="before offset 3"):
        Repair(disk, PATH, 0, 3, False, written_twice=lambda: data(*twice)).run()
    assert disk.opened == 0


def test_a_repair_of_a_log_that_has_nothing_yet_makes_nothing(disk: FaultyDisk) -> None:
    for path in (PATH, "/data/none-0"):
        repair = Repair(disk, path, 0, 0, True, written_twice=lambda: data(0))
        repair.run()
        assert (repair.segments, repair.recovery) == ([], Recovery())
    assert disk.list(PATH) == []
    assert disk.list("/data") == ["orders-0"]


@pytest.mark.parametrize(("rewrite", "flushed", "changed"), [(False, 1, False), (True, 1, True), (True, 2, False), (True, 0, True)])
def test_a_repair_writes_anew_what_was_told_and_is_not_flushed(disk: FaultyDisk, rewrite: bool, flushed: int, changed: bool) -> None:
    laid(disk, {0: data(0, 1, 2)})
    disk.changes.clear()
    repair = Repair(disk, PATH, flushed, 2, rewrite)
    repair.run()
    assert any(path.endswith(".rewriting") for path in disk.changes) is changed
    apart = changed and flushed > 0
    assert [segment.base for segment in repair.segments] == ([0, 1] if apart else [0])
    assert held(disk) == b"".join(data(0) if apart else data(0, 1))
    assert [read(disk, f"{repair.recovery.kept}/{name}") for name in disk.list(repair.recovery.kept)] == data(2)
    disk.crash()
    segments, recovery = open_segments(Handles(disk), PATH, 2, False)
    assert (segments[-1].next_offset, recovery.cut_bytes) == (2, 0)


def test_where_flushing_is_deferred_each_segment_that_is_not_flushed_is_written_anew(disk: FaultyDisk) -> None:
    for flushed, anew in ((0, [0, 2, 4]), (2, [2, 4]), (3, [2, 4]), (4, [4]), (5, [])):
        laid(disk, {0: data(0, 1), 2: data(2, 3), 4: data(4)})
        disk.changes.clear()
        Repair(disk, PATH, flushed, 5, True, deferred=True).run()
        assert sorted({int(path[len(PATH) + 1 :][:20]) for path in disk.changes if path.endswith(".rewriting")}) == anew
        assert b"".join(held(disk, base) for base in (0, 2, 4)) == b"".join(data(0, 1, 2, 3, 4))


@pytest.mark.parametrize("clean", [False, True])
def test_the_later_of_two_segments_counts_where_both_have_the_end(disk: FaultyDisk, clean: bool) -> None:
    laid(disk, {0: data(0, 1, 2), 1: data(1, 2)})
    if clean:
        with pytest.raises(DamagedLog, match="reaches into"):
            open_segments(Handles(disk), PATH, 0, clean)
        return
    segments, _ = open_segments(Handles(disk), PATH, 0, clean)
    assert [(segment.base, segment.next_offset) for segment in segments] == [(0, 1), (1, 3)]
    assert held(disk) == b"".join(data(0))
    for torn in ({0: data(0, 1, 2), 1: data(1)}, {0: data(0, 1, 2), 1: data(1, 2), 3: data(3)}):
        for name in disk.list(PATH):
            disk.remove(f"{PATH}/{name}")
        laid(disk, torn)
        with pytest.raises(DamagedLog, match="reaches into"):
            open_segments(Handles(disk), PATH, 0, clean)
        with pytest.raises(DamagedLog, match="reaches into"):
            open_deferred(Handles(disk), PATH, 0, clean)
