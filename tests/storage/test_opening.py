"""Opening and repairing segments, in folders built by hand."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from simulator.disk import Content, NothingSurvives, SimDisk
from storage import DamagedLog, Handles
from storage.opening import PROBE_BYTES, Repair, Truncation, open_deferred, open_segments, probe_path, remove_leftovers
from storage.segment import segment_name
from tests.storage.logs import CrashAt, overwrite, read
from tests.storage.segments import batch_at

PATH = "/data/orders-0"


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    disk.make_folder(PATH)
    return disk


def lay_out(disk: SimDisk, segments: dict[int, list[bytes]]) -> None:
    for base, batches in segments.items():
        overwrite(disk, f"{PATH}/{segment_name(base)}.log", b"".join(batches))


def data(*offsets: int) -> list[bytes]:
    return [batch_at(offset).data for offset in offsets]


def log_bytes(disk: SimDisk, base: int = 0) -> bytes:
    return read(disk, f"{PATH}/{segment_name(base)}.log")


@pytest.mark.parametrize("records_there", [0, 1, 2, 3])
@pytest.mark.parametrize("flushed", [0, 1])
@pytest.mark.parametrize("deferred", [False, True])
def test_a_repair_restores_lost_batches_from_the_turn_files(disk: SimDisk, records_there: int, flushed: int, deferred: bool) -> None:
    flushed = min(flushed, records_there)
    if records_there:
        lay_out(disk, {0: data(*range(records_there))})
    repair = Repair(disk, PATH, flushed, 3, False, deferred=deferred, batch_copies=lambda: data(0, 1, 2))
    repair.run()
    assert log_bytes(disk) == b"".join(data(0, 1, 2))
    assert [(segment.base, segment.next_offset) for segment in repair.segments] == [(0, 3)]
    assert repair.truncation == Truncation()
    assert disk.opened == 0
    disk.crash()
    assert log_bytes(disk) == b"".join(data(0, 1, 2))


@pytest.mark.parametrize("twice", [[], [1, 2], [0], [0, 2]])
def test_a_repair_that_misses_acknowledged_batches_reports_it(disk: SimDisk, twice: list[int]) -> None:
    with pytest.raises(DamagedLog, match="before offset 3"):
        Repair(disk, PATH, 0, 3, False, batch_copies=lambda: data(*twice)).run()
    assert disk.opened == 0
    if 0 not in twice:
        assert disk.list(PATH) == []


def test_a_repair_of_an_empty_log_creates_no_files(disk: SimDisk) -> None:
    for path in (PATH, "/data/none-0"):
        repair = Repair(disk, path, 0, 0, True, batch_copies=lambda: data(0))
        repair.run()
        assert (repair.segments, repair.truncation) == ([], Truncation())
    assert disk.list(PATH) == []
    assert disk.list("/data") == ["orders-0"]


def test_a_repair_probes_for_room_and_for_working_writes(disk: SimDisk) -> None:
    disk.fail_syncs = 1
    with pytest.raises(OSError, match="Input/output"):
        Repair(disk, "/data/none-0", 0, 0, False).run()
    assert disk.list("/data") == ["orders-0"]
    overwrite(disk, probe_path("/data/none-0"), bytes(PROBE_BYTES))  # from an interrupted repair
    disk.room = PROBE_BYTES - 1
    with pytest.raises(OSError, match="No space"):
        Repair(disk, "/data/none-0", 0, 0, False).run()
    disk.room = PROBE_BYTES
    Repair(disk, "/data/none-0", 0, 0, False).run()


def test_a_repair_appends_the_batches_that_the_last_segment_lost(disk: SimDisk) -> None:
    lay_out(disk, {0: data(0, 1), 2: data(2)})
    Repair(disk, PATH, 2, 5, False, batch_copies=lambda: data(0, 1, 2, 3, 4)).run()
    assert (log_bytes(disk), log_bytes(disk, 2)) == (b"".join(data(0, 1)), b"".join(data(2, 3, 4)))


@pytest.mark.parametrize("deferred", [False, True])
def test_everything_is_durable_after_a_repair(deferred: bool) -> None:
    disk = SimDisk(NothingSurvives())
    disk.make_folder(PATH)
    segments = {0: data(0, 1), 2: data(2, 3), 4: data(4)} if deferred else {0: data(0, 1, 2, 3, 4)}
    for base, batches in segments.items():
        disk.open(f"{PATH}/{segment_name(base)}.log", create=True).write(0, b"".join(batches))
    repair = Repair(disk, PATH, 0, 5, False, deferred=deferred)
    repair.run()
    assert not any(segment.unsynced for segment in repair.segments)
    disk.crash()
    assert b"".join(log_bytes(disk, base) for base in segments) == b"".join(data(0, 1, 2, 3, 4))


@pytest.mark.parametrize("deferred", [False, True])
def test_a_half_written_file_of_an_earlier_repair_is_ignored(disk: SimDisk, deferred: bool) -> None:
    lay_out(disk, {0: data(0, 1, 2)})
    for base in (0, 1):
        overwrite(disk, f"{PATH}/{segment_name(base)}.log.rewriting", b"".join(data(7, 8, 9, 10)))
    Repair(disk, PATH, 0 if deferred else 1, 3, True, deferred=deferred).run()
    assert b"".join(log_bytes(disk, base) for base in ((0,) if deferred else (0, 1))) == b"".join(data(0, 1, 2))


def test_old_segments_are_removed_only_after_the_new_name_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """On this disk writes are durable at once, but names only when their folder is synced."""

    def arrive(self: Content, random: object) -> None:
        self.sync()

    monkeypatch.setattr(Content, "crash", arrive)
    for step in range(30):
        disk = SimDisk(NothingSurvives())
        disk.make_folder(PATH)
        lay_out(disk, {0: data(0, 1, 2)})
        with CrashAt(disk, step) as crash:
            Repair(disk, PATH, 1, 3, True).run()
        if not crash.happened:
            assert step > 8
            break
        disk.crash()
        segments, _ = open_segments(Handles(disk), PATH, 1, False)
        assert segments[-1].next_offset == 3, step


def torn(offset: int) -> bytes:
    """A batch with a block that was never written."""
    sound = batch_at(offset, padding=3_000).data
    return sound[:700] + bytes(1_500) + sound[2_200:]


def test_after_a_crash_the_last_segment_is_verified_and_no_other(disk: SimDisk) -> None:
    lay_out(disk, {0: [*data(0), torn(1)], 2: [*data(2), torn(3)]})
    with pytest.raises(DamagedLog, match="checksum"):
        open_segments(Handles(disk), PATH, 4, False)  # offset 4 is flushed, so the torn batch 3 is damage
    segments, truncation = open_segments(Handles(disk), PATH, 3, False)
    assert [(segment.base, segment.next_offset) for segment in segments] == [(0, 2), (2, 3)]
    assert (truncation.path, truncation.position, truncation.kept) == (f"{PATH}/{segment_name(2)}.log", len(b"".join(data(2))), "")
    assert log_bytes(disk, 2) == b"".join(data(2))


def test_the_remainder_of_a_rewritten_batch_is_cut(disk: SimDisk) -> None:
    half = batch_at(1).data[:-5]
    lay_out(disk, {0: [*data(0), half], 1: data(1)})
    with pytest.raises(DamagedLog, match="cut short"):
        open_segments(Handles(disk), PATH, 0, True)
    segments, _ = open_segments(Handles(disk), PATH, 0, False)
    assert [(segment.base, segment.next_offset) for segment in segments] == [(0, 1), (1, 2)]
    assert log_bytes(disk) == b"".join(data(0))
    disk.remove(f"{PATH}/{segment_name(1)}.log")
    lay_out(disk, {0: [*data(0), half], 5: data(5)})  # the batches between are missing
    with pytest.raises(DamagedLog, match="cut short"):
        open_segments(Handles(disk), PATH, 0, False)


@pytest.mark.parametrize("next_offsets", [[], [2]], ids=["the last batch", "a batch in the middle"])
def test_a_rotten_header_that_reaches_into_the_next_segment_is_damage(disk: SimDisk, next_offsets: list[int]) -> None:
    """No repair has copied the batch to the next segment, so to cut it here would lose it."""
    rotten = bytearray(batch_at(1).data)
    rotten[26] ^= 4  # its last offset is 5 instead of 1
    lay_out(disk, {0: [*data(0), bytes(rotten), *data(*next_offsets)], 3: data(3, 4, 5, 6)})
    before = log_bytes(disk)
    with pytest.raises(DamagedLog, match="checksum"):
        open_segments(Handles(disk), PATH, 0, False)
    assert log_bytes(disk) == before


def test_any_segment_that_reaches_into_the_next_is_damage(disk: SimDisk) -> None:
    lay_out(disk, {0: data(0), 1: data(1, 2, 3), 2: data(2)})
    with pytest.raises(DamagedLog, match="offsets overlap") as caught:
        open_deferred(Handles(disk), PATH, 0, False)
    assert caught.value.path == f"{PATH}/{segment_name(1)}.log"


def test_batches_cut_while_opening_do_not_return_after_a_crash() -> None:
    disk = SimDisk(NothingSurvives())
    disk.make_folder(PATH)
    lay_out(disk, {0: [*data(0), torn(1)], 2: data(2), 3: data(3)})
    segments, truncation = open_deferred(Handles(disk), PATH, 0, False)
    assert [(segment.base, segment.next_offset) for segment in segments] == [(0, 1)]
    assert truncation.cut_bytes == len(torn(1)) + len(b"".join(data(2, 3)))
    disk.crash()
    assert log_bytes(disk) == b"".join(data(0))
    assert [name for name in disk.list(PATH) if name.endswith(".log")] == [f"{segment_name(0)}.log"]


def test_opening_removes_probe_files_and_half_written_files(disk: SimDisk) -> None:
    leftovers = [probe_path(PATH), f"{PATH}/{segment_name(0)}.log.rewriting"]
    lay_out(disk, {0: data(0)})
    for path in leftovers:
        overwrite(disk, path, b"?")
    remove_leftovers(disk, PATH)
    assert not any(disk.exists(path) for path in leftovers)
    assert log_bytes(disk) == b"".join(data(0))


@pytest.mark.parametrize(("rewrite", "flushed", "changed"), [(False, 1, False), (True, 1, True), (True, 2, False), (True, 0, True)])
def test_a_repair_rewrites_acknowledged_batches_that_are_not_flushed(disk: SimDisk, rewrite: bool, flushed: int, changed: bool) -> None:
    lay_out(disk, {0: data(0, 1, 2)})
    disk.changes.clear()
    repair = Repair(disk, PATH, flushed, 2, rewrite)
    repair.run()
    assert any(path.endswith(".rewriting") for path in disk.changes) is changed
    apart = changed and flushed > 0
    assert [segment.base for segment in repair.segments] == ([0, 1] if apart else [0])
    assert log_bytes(disk) == b"".join(data(0) if apart else data(0, 1))
    assert [read(disk, f"{repair.truncation.kept}/{name}") for name in disk.list(repair.truncation.kept)] == data(2)
    disk.crash()
    segments, truncation = open_segments(Handles(disk), PATH, 2, False)
    assert (segments[-1].next_offset, truncation.cut_bytes) == (2, 0)


def test_with_deferred_flushing_each_unflushed_segment_is_rewritten(disk: SimDisk) -> None:
    for flushed, anew in ((0, [0, 2, 4]), (2, [2, 4]), (3, [2, 4]), (4, [4]), (5, [])):
        lay_out(disk, {0: data(0, 1), 2: data(2, 3), 4: data(4)})
        disk.changes.clear()
        Repair(disk, PATH, flushed, 5, True, deferred=True).run()
        assert sorted({int(path[len(PATH) + 1 :][:20]) for path in disk.changes if path.endswith(".rewriting")}) == anew
        assert b"".join(log_bytes(disk, base) for base in (0, 2, 4)) == b"".join(data(0, 1, 2, 3, 4))


@pytest.mark.parametrize("clean", [False, True])
def test_the_later_of_two_overlapping_last_segments_counts(disk: SimDisk, clean: bool) -> None:
    lay_out(disk, {0: data(0, 1, 2), 1: data(1, 2)})
    if clean:
        with pytest.raises(DamagedLog, match="offsets overlap"):
            open_segments(Handles(disk), PATH, 0, clean)
        return
    segments, _ = open_segments(Handles(disk), PATH, 0, clean)
    assert [(segment.base, segment.next_offset) for segment in segments] == [(0, 1), (1, 3)]
    assert log_bytes(disk) == b"".join(data(0))
    for torn in ({0: data(0, 1, 2), 1: data(1)}, {0: data(0, 1, 2), 1: data(1, 2), 3: data(3)}):
        for name in disk.list(PATH):
            disk.remove(f"{PATH}/{name}")
        lay_out(disk, torn)
        with pytest.raises(DamagedLog, match="offsets overlap"):
            open_segments(Handles(disk), PATH, 0, clean)
        with pytest.raises(DamagedLog, match="offsets overlap"):
            open_deferred(Handles(disk), PATH, 0, clean)


@pytest.mark.parametrize("deferred", [False, True])
def test_a_rewritten_segment_is_verified_before_it_is_used(disk: SimDisk, deferred: bool) -> None:
    disk.corrupts = ".rewriting"
    lay_out(disk, {0: data(0, 1, 2)})
    with pytest.raises(DamagedLog, match="checksum"):
        Repair(disk, PATH, 0, 3, True, deferred=deferred).run()


@pytest.mark.parametrize("deferred", [False, True])
def test_a_deferred_repair_cuts_damage_past_the_flushed_offset(disk: SimDisk, deferred: bool) -> None:
    damaged = bytearray(batch_at(1).data)
    damaged[-2] ^= 1
    lay_out(disk, {0: [*data(0), bytes(damaged)]})
    repair = Repair(disk, PATH, 1, 1, False, deferred=deferred)
    if not deferred:
        with pytest.raises(DamagedLog, match="does not look like an interrupted write"):
            repair.run()
        assert log_bytes(disk) == data(0)[0] + damaged
        return
    repair.run()
    assert (log_bytes(disk), repair.truncation.cut_bytes) == (data(0)[0], len(damaged))
    assert [read(disk, f"{repair.truncation.kept}/{name}") for name in disk.list(repair.truncation.kept)] == [bytes(damaged)]


@pytest.mark.parametrize("power", [False, True])
def test_a_crash_during_truncation_leaves_no_hole(power: bool) -> None:
    for step in range(50):
        disk = SimDisk(Random(step))
        disk.make_folder(PATH)
        lay_out(disk, {0: [*data(0), torn(1)], 2: data(2), 3: data(3), 4: data(4)})
        with CrashAt(disk, step) as crash:
            open_deferred(Handles(disk), PATH, 0, False)
        if not crash.happened:
            assert step > 8
            return
        if power:
            disk.crash()
        segments, _ = open_deferred(Handles(disk), PATH, 0, False)
        assert [(segment.base, segment.next_offset) for segment in segments] == [(0, 1)], step
    raise AssertionError("a fault was planted in the last step too: raise the number of steps")


@pytest.mark.parametrize("opened", [open_segments, open_deferred])
def test_after_an_orderly_stop_no_end_is_torn(disk: SimDisk, opened: Callable[..., object]) -> None:
    lay_out(disk, {0: [*data(0), torn(1)[:-9]]})
    with pytest.raises(DamagedLog, match="cut short"):
        opened(Handles(disk), PATH, 0, True)
    opened(Handles(disk), PATH, 0, False)
    assert log_bytes(disk) == b"".join(data(0))


def test_a_repair_of_a_complete_log_copies_nothing_from_the_turn_files(disk: SimDisk) -> None:
    lay_out(disk, {0: data(0, 1, 2)})
    repair = Repair(disk, PATH, 3, 3, False, batch_copies=lambda: data(1, 2, 3, 4))
    repair.run()
    assert (log_bytes(disk), repair.truncation) == (b"".join(data(0, 1, 2)), Truncation())
    assert disk.list("/data") == ["orders-0"]


@pytest.mark.parametrize("cut_damage", [False, True])
def test_damage_at_the_end_of_a_log_without_guarantees_is_cut_and_copied(disk: SimDisk, cut_damage: bool) -> None:
    damaged = bytearray(batch_at(1).data)
    damaged[-2] ^= 1
    lay_out(disk, {0: [*data(0), bytes(damaged)]})
    if not cut_damage:
        with pytest.raises(DamagedLog, match="does not look like an interrupted write"):
            open_segments(Handles(disk), PATH, 1, False)
        return
    segments, truncation = open_segments(Handles(disk), PATH, 1, False, cut_damage=True)
    assert (segments[-1].next_offset, log_bytes(disk)) == (1, data(0)[0])
    assert [read(disk, f"{truncation.kept}/{name}") for name in disk.list(truncation.kept)] == [bytes(damaged)]
