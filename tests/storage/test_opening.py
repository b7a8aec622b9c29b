"""Opening and repairing segments, in folders built by hand."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from storage import DamagedLog, Handles
from storage.opening import PROBE_BYTES, Recovery, Repair, open_deferred, open_segments, probe_path, remove_leftovers
from storage.segment import segment_name
from tests.storage.faulty_disk import Content, Crashed, FaultyDisk, FaultyFile, NothingSurvives
from tests.storage.logs import overwrite, read
from tests.storage.segments import batch_at

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
    return [batch_at(offset).data for offset in offsets]


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
    repair = Repair(disk, PATH, flushed, 3, False, deferred=deferred, batch_copies=lambda: data(0, 1, 2))
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
        Repair(disk, PATH, 0, 3, False, batch_copies=lambda: data(*twice)).run()
    assert disk.opened == 0
    if 0 not in twice:
        assert disk.list(PATH) == []


def test_a_repair_of_a_log_that_has_nothing_yet_makes_nothing(disk: FaultyDisk) -> None:
    for path in (PATH, "/data/none-0"):
        repair = Repair(disk, path, 0, 0, True, batch_copies=lambda: data(0))
        repair.run()
        assert (repair.segments, repair.recovery) == ([], Recovery())
    assert disk.list(PATH) == []
    assert disk.list("/data") == ["orders-0"]


def test_a_repair_tries_whether_there_is_room_and_whether_writing_works(disk: FaultyDisk) -> None:
    disk.fail_syncs = 1
    with pytest.raises(OSError, match="Input/output"):
        Repair(disk, "/data/none-0", 0, 0, False).run()
    assert disk.list("/data") == ["orders-0"]
    overwrite(disk, probe_path("/data/none-0"), bytes(PROBE_BYTES))  # of one that was interrupted
    disk.room = PROBE_BYTES - 1
    with pytest.raises(OSError, match="No space"):
        Repair(disk, "/data/none-0", 0, 0, False).run()
    disk.room = PROBE_BYTES
    Repair(disk, "/data/none-0", 0, 0, False).run()


def test_a_repair_appends_what_the_last_segment_lost(disk: FaultyDisk) -> None:
    laid(disk, {0: data(0, 1), 2: data(2)})
    Repair(disk, PATH, 2, 5, False, batch_copies=lambda: data(0, 1, 2, 3, 4)).run()
    assert (held(disk), held(disk, 2)) == (b"".join(data(0, 1)), b"".join(data(2, 3, 4)))


@pytest.mark.parametrize("deferred", [False, True])
def test_a_repair_leaves_everything_safe(deferred: bool) -> None:
    disk = FaultyDisk(NothingSurvives())
    disk.make_folder(PATH)
    segments = {0: data(0, 1), 2: data(2, 3), 4: data(4)} if deferred else {0: data(0, 1, 2, 3, 4)}
    for base, batches in segments.items():
        disk.open(f"{PATH}/{segment_name(base)}.log", create=True).write(0, b"".join(batches))
    repair = Repair(disk, PATH, 0, 5, False, deferred=deferred)
    repair.run()
    assert not any(segment.unsynced for segment in repair.segments)
    disk.crash()
    assert b"".join(held(disk, base) for base in segments) == b"".join(data(0, 1, 2, 3, 4))


@pytest.mark.parametrize("deferred", [False, True])
def test_what_an_attempt_before_left_half_written_does_not_count(disk: FaultyDisk, deferred: bool) -> None:
    laid(disk, {0: data(0, 1, 2)})
    for base in (0, 1):
        overwrite(disk, f"{PATH}/{segment_name(base)}.log.rewriting", b"".join(data(7, 8, 9, 10)))
    Repair(disk, PATH, 0 if deferred else 1, 3, True, deferred=deferred).run()
    assert b"".join(held(disk, base) for base in ((0,) if deferred else (0, 1))) == b"".join(data(0, 1, 2))


def test_the_old_bytes_go_only_when_the_name_of_the_new_ones_is_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is written arrives at once, and names do when their folder is synced."""

    def arrive(self: Content, random: object) -> None:
        self.sync()

    monkeypatch.setattr(Content, "crash", arrive)
    for step in range(30):
        disk = FaultyDisk(NothingSurvives())
        disk.make_folder(PATH)
        laid(disk, {0: data(0, 1, 2)})
        disk.crash_at = step
        try:
            Repair(disk, PATH, 1, 3, True).run()
        except Crashed:
            disk.crash()
            segments, _ = open_segments(Handles(disk), PATH, 1, False)
            assert segments[-1].next_offset == 3, step
        else:
            assert step > 8
            break


def torn(offset: int) -> bytes:
    """A batch of which a block was never written."""
    whole = batch_at(offset, padding=3_000).data
    return whole[:700] + bytes(1_500) + whole[2_200:]


def test_after_a_crash_the_last_segment_is_verified_and_no_other(disk: FaultyDisk) -> None:
    laid(disk, {0: [*data(0), torn(1)], 2: [*data(2), torn(3)]})
    with pytest.raises(DamagedLog, match="checksum"):
        open_segments(Handles(disk), PATH, 4, False)  # so much was flushed
    segments, recovery = open_segments(Handles(disk), PATH, 3, False)
    assert [(segment.base, segment.next_offset) for segment in segments] == [(0, 2), (2, 3)]
    assert (recovery.path, recovery.position, recovery.kept) == (f"{PATH}/{segment_name(2)}.log", len(b"".join(data(2))), "")
    assert held(disk, 2) == b"".join(data(2))


def test_the_rest_of_a_batch_that_a_repair_wrote_anew_is_cut(disk: FaultyDisk) -> None:
    half = batch_at(1).data[:-5]
    laid(disk, {0: [*data(0), half], 1: data(1)})
    with pytest.raises(DamagedLog, match="cut short"):
        open_segments(Handles(disk), PATH, 0, True)
    segments, _ = open_segments(Handles(disk), PATH, 0, False)
    assert [(segment.base, segment.next_offset) for segment in segments] == [(0, 1), (1, 2)]
    assert held(disk) == b"".join(data(0))
    disk.remove(f"{PATH}/{segment_name(1)}.log")
    laid(disk, {0: [*data(0), half], 5: data(5)})  # what is between is missing
    with pytest.raises(DamagedLog, match="cut short"):
        open_segments(Handles(disk), PATH, 0, False)


def test_any_segment_that_reaches_into_the_next_is_damage(disk: FaultyDisk) -> None:
    laid(disk, {0: data(0), 1: data(1, 2, 3), 2: data(2)})
    with pytest.raises(DamagedLog, match="reaches into") as caught:
        open_deferred(Handles(disk), PATH, 0, False)
    assert caught.value.path == f"{PATH}/{segment_name(1)}.log"


def test_what_an_opening_cut_off_does_not_come_back() -> None:
    disk = FaultyDisk(NothingSurvives())
    disk.make_folder(PATH)
    laid(disk, {0: [*data(0), torn(1)], 2: data(2), 3: data(3)})
    segments, recovery = open_deferred(Handles(disk), PATH, 0, False)
    assert [(segment.base, segment.next_offset) for segment in segments] == [(0, 1)]
    assert recovery.cut_bytes == len(torn(1)) + len(b"".join(data(2, 3)))
    disk.crash()
    assert held(disk) == b"".join(data(0))
    assert [name for name in disk.list(PATH) if name.endswith(".log")] == [f"{segment_name(0)}.log"]


def test_a_probe_and_what_was_written_halfway_are_removed_by_an_opening(disk: FaultyDisk) -> None:
    left = [probe_path(PATH), f"{PATH}/{segment_name(0)}.log.rewriting"]
    laid(disk, {0: data(0)})
    for path in left:
        overwrite(disk, path, b"?")
    remove_leftovers(disk, PATH)
    assert not any(disk.exists(path) for path in left)
    assert held(disk) == b"".join(data(0))


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


class Forgetful(FaultyDisk):
    """Whatever is written anew comes out with another last byte."""

    def open(self, path: str, create: bool = False) -> FaultyFile:
        file = super().open(path, create)
        if path.endswith(".rewriting"):
            write = file.write
            file.write = lambda at, data: write(at, bytes(data[:-1]) + bytes([data[-1] ^ 1]))  # type: ignore[method-assign]
        return file


@pytest.mark.parametrize("deferred", [False, True])
def test_what_a_repair_has_written_anew_is_read_before_it_is_believed(deferred: bool) -> None:
    disk = Forgetful()
    disk.make_folder(PATH)
    laid(disk, {0: data(0, 1, 2)})
    with pytest.raises(DamagedLog, match="checksum"):
        Repair(disk, PATH, 0, 3, True, deferred=deferred).run()


@pytest.mark.parametrize("deferred", [False, True])
def test_damage_behind_what_was_flushed_is_cut_by_a_repair_where_flushing_is_deferred(disk: FaultyDisk, deferred: bool) -> None:
    damaged = bytearray(batch_at(1).data)
    damaged[-2] ^= 1
    laid(disk, {0: [*data(0), bytes(damaged)]})
    repair = Repair(disk, PATH, 1, 1, False, deferred=deferred)
    if not deferred:
        with pytest.raises(DamagedLog, match="not what an interrupted write leaves"):
            repair.run()
        assert held(disk) == data(0)[0] + damaged
        return
    repair.run()
    assert (held(disk), repair.recovery.cut_bytes) == (data(0)[0], len(damaged))
    assert [read(disk, f"{repair.recovery.kept}/{name}") for name in disk.list(repair.recovery.kept)] == [bytes(damaged)]


@pytest.mark.parametrize("power", [False, True])
def test_an_opening_that_ends_while_it_cuts_leaves_no_hole(power: bool) -> None:
    for step in range(50):
        disk = FaultyDisk(Random(step))
        disk.make_folder(PATH)
        laid(disk, {0: [*data(0), torn(1)], 2: data(2), 3: data(3), 4: data(4)})
        disk.crash_at = step
        try:
            open_deferred(Handles(disk), PATH, 0, False)
        except Crashed:
            if power:
                disk.crash()
            disk.crash_at = -1
            segments, _ = open_deferred(Handles(disk), PATH, 0, False)
            assert [(segment.base, segment.next_offset) for segment in segments] == [(0, 1)], step
        else:
            assert step > 8
            return
    raise AssertionError("it never ended")


@pytest.mark.parametrize("opened", [open_segments, open_deferred])
def test_after_an_orderly_stop_no_end_is_torn(disk: FaultyDisk, opened: Callable[..., object]) -> None:
    laid(disk, {0: [*data(0), torn(1)[:-9]]})
    with pytest.raises(DamagedLog, match="cut short"):
        opened(Handles(disk), PATH, 0, True)
    opened(Handles(disk), PATH, 0, False)
    assert held(disk) == b"".join(data(0))


def test_a_repair_of_a_log_that_lacks_nothing_takes_nothing_of_what_was_written_twice(disk: FaultyDisk) -> None:
    laid(disk, {0: data(0, 1, 2)})
    repair = Repair(disk, PATH, 3, 3, False, batch_copies=lambda: data(1, 2, 3, 4))
    repair.run()
    assert (held(disk), repair.recovery) == (b"".join(data(0, 1, 2)), Recovery())
    assert disk.list("/data") == ["orders-0"]


@pytest.mark.parametrize("cut_damage", [False, True])
def test_damage_at_the_end_of_a_log_that_is_not_worth_more_is_cut_and_kept(disk: FaultyDisk, cut_damage: bool) -> None:
    damaged = bytearray(batch_at(1).data)
    damaged[-2] ^= 1
    laid(disk, {0: [*data(0), bytes(damaged)]})
    if not cut_damage:
        with pytest.raises(DamagedLog, match="not what an interrupted write leaves"):
            open_segments(Handles(disk), PATH, 1, False)
        return
    segments, recovery = open_segments(Handles(disk), PATH, 1, False, cut_damage=True)
    assert (segments[-1].next_offset, held(disk)) == (1, data(0)[0])
    assert [read(disk, f"{recovery.kept}/{name}") for name in disk.list(recovery.kept)] == [bytes(damaged)]
