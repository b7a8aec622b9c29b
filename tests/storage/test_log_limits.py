"""A log at its limits: segment sizes, recovery points, and the segments a flush covers."""

from __future__ import annotations

import pytest

from simulator.disk import SimDisk, data_disk
from storage import AppendFailed, Handles, Log
from storage import log as module
from storage.epochs import read_epochs, write_epochs
from storage.index import RELATIVE_OFFSET_MAX
from storage.log import SEGMENT_BYTES_MAX
from tests.storage.logs import (
    FOLDER,
    append_all,
    append_flushed,
    bases,
    batch,
    fail_flush,
    headers,
    names,
    newest_timestamp,
    overwrite,
    read,
    recover,
    reopen,
    run_flush,
    scan,
    stop,
)
from tests.storage.turns import stamped_batch
from tests.support.batch_bytes import holed

PATH = f"/data/{FOLDER}"
TOPIC_ID = "iRZ7lAlfQrWo7gLtEdup9A"


def opened(disk: SimDisk, segment_bytes: int = 1 << 20, point: int = 0, clean: bool = False, **options: object) -> Log:
    return Log.open(Handles(disk), PATH, segment_bytes, point, clean, **options)[0]  # type: ignore[arg-type]


# Where a segment ends.


def test_no_segment_exceeds_the_positions_of_its_index(disk: SimDisk) -> None:
    assert SEGMENT_BYTES_MAX == 2_147_483_647
    assert opened(disk, segment_bytes=1 << 40).segment_bytes == 2_147_483_647
    assert opened(disk, segment_bytes=1_000).segment_bytes == 1_000


@pytest.mark.parametrize(("spare", "expected"), [(0, [0]), (-1, [0, 1])])
def test_a_segment_is_filled_to_the_byte(disk: SimDisk, spare: int, expected: list[int]) -> None:
    log = opened(disk, segment_bytes=2 * len(batch("a")) + spare)
    log.append(batch("a"), 0)
    log.append(batch("b"), 0)
    assert bases(log) == expected


@pytest.mark.parametrize(("last", "expected"), [(RELATIVE_OFFSET_MAX, [10]), (RELATIVE_OFFSET_MAX + 1, [10, 11])])
def test_a_segment_accepts_offsets_up_to_the_largest_relative_offset(disk: SimDisk, last: int, expected: list[int]) -> None:
    log = opened(disk)
    log.append(holed(batch("a"), 9), 0)
    assert log.roll(1 << 20)
    log.append(batch("b"), 0)
    log.append(holed(batch("c"), last - 1), 0)
    assert bases(log)[1:] == expected
    assert log.next_offset == 10 + last + 1


def test_an_empty_segment_accepts_a_batch_of_any_size(disk: SimDisk) -> None:
    log = opened(disk, segment_bytes=300)
    log.append(batch("a"), 0)
    assert log.roll(1 << 20)
    log.append(batch("b", padding=1_000), 0)
    assert bases(log) == [0, 1]
    assert names(log) == ["a.0", "b.0"]


@pytest.mark.parametrize(("first", "later_time", "rolls"), [(0, 500, False), (0, 501, True), (1, 502, True), (7, 507, False), (-1, 5_000, False)])
def test_a_batch_later_than_the_first_by_more_than_segment_ms_begins_a_segment(
    disk: SimDisk, first: int, later_time: int, rolls: bool
) -> None:
    log = opened(disk)
    log.segment_ms = 500
    log.append(batch("a", timestamp=first), 0)
    log.append(batch("b", timestamp=later_time), 0)
    assert bases(log) == ([0, 1] if rolls else [0])


@pytest.mark.plain
def test_a_full_segment_refuses_appends_while_its_flush_runs(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEGMENT_BYTES_MAX", 2 * len(batch("a")))
    log = opened(disk, segment_bytes=len(batch("a")))
    log.append(batch("a"), 0)
    flush = log.start_flush()
    log.append(batch("b"), 0)  # no roll during a flush
    with pytest.raises(AppendFailed, match="flush does not end"):
        log.append(batch("c"), 0)
    assert (log.usable, bases(log), log.next_offset) == (True, [0], 2)
    run_flush(log, flush)
    assert log.append(batch("c"), 0) == 2
    assert bases(log) == [0, 2]


def test_segment_ms_counts_from_when_the_segment_was_first_seen(disk: SimDisk) -> None:
    log = opened(disk)
    assert not log.roll_if_old(0, 0)
    log.append(batch("a"), 0)
    assert log.roll(1 << 20)
    assert not log.roll_if_old(1_000_000, 1_000)  # the segment is empty
    append_flushed(log, batch("b"))
    log = opened(disk, point=2)
    assert bases(log) == [0, 1]
    assert not log.roll_if_old(1_000_000, 1_000)
    assert not log.roll_if_old(1_001_000, 1_000)
    assert bases(log) == [0, 1]
    assert log.roll_if_old(1_001_001, 1_000)
    assert bases(log) == [0, 1, 2]
    log.append(batch("c"), log.epoch)
    assert not log.roll_if_old(9_000_000, 1_000)


@pytest.mark.parametrize(("more", "rolls"), [(0, True), (-1, False)])
def test_an_early_roll_waits_above_the_limit_of_unflushed_bytes(disk: SimDisk, more: int, rolls: bool) -> None:
    log = opened(disk)
    log.append(batch("a", padding=5_000), 0)
    assert log.roll(1 << 20)
    append_flushed(log, batch("a", padding=500))
    log = opened(disk, point=2)  # everything is flushed
    log.append(batch("b"), log.epoch)
    assert log.roll(len(batch("b")) + more) == rolls
    assert log.roll(1 << 20)
    for flushed, name in (("", "c"), ("first", "d")):  # in the new segment: first with nothing flushed, then with a part
        if flushed:
            append_flushed(log, batch(flushed), log.epoch)
        log.append(batch(name), log.epoch)
        assert log.roll(len(batch(name)) + more) == rolls
        assert log.roll(1 << 20)


def test_a_segment_flushed_by_a_roll_is_not_flushed_again(disk: SimDisk) -> None:
    log = opened(disk, segment_bytes=len(batch("a")))
    log.append(batch("a"), 0)
    log.append(batch("b"), 0)
    assert log.flushed_offset == 1
    flush = log.start_flush()
    assert [segment.base for segment in flush.segments] == [1]
    run_flush(log, flush)
    for name in "cd":
        changes = len(disk.changes)
        append_flushed(log, batch(name))
        assert "/data" not in disk.changes[changes:]  # the folder's own name has been durable since the first sync
        assert disk.opened == 1  # only the active segment is open


def test_the_name_of_a_new_folder_is_synced_once(disk: SimDisk) -> None:
    log = opened(disk)
    changes = len(disk.changes)
    log.append(batch("a"), 0)
    assert log.roll(1 << 20)
    assert disk.changes[changes:].count("/data") == 1
    append_flushed(log, batch("b"))
    disk.fail_folder_syncs = 1
    assert log.roll(1 << 20)  # the next flush makes the name of the new segment durable
    disk.fail_folder_syncs = 0
    append_flushed(log, batch("c"))
    assert disk.changes[changes:].count("/data") == 1


def test_a_log_rolls_when_a_file_system_sync_made_it_durable(disk: SimDisk) -> None:
    log = opened(disk)
    log.append(batch("a"), 0)
    assert not log.roll(0)
    log.mark_flushed(1)
    assert log.flushed_offset == 1
    assert log.roll(0)


def test_a_deferred_log_never_waits_for_a_sync(disk: SimDisk) -> None:
    log = opened(disk, segment_bytes=len(batch("a")), deferred=True, topic_id=TOPIC_ID)
    disk.fail_folder_syncs = disk.fail_syncs = 1
    append_all(log, "ab")
    assert read(disk, f"{PATH}/partition.metadata").endswith(TOPIC_ID.encode())
    assert log.roll(0)
    assert (disk.fail_folder_syncs, disk.fail_syncs) == (1, 1)
    disk.fail_folder_syncs = disk.fail_syncs = 0
    flush = log.start_flush()
    log.append(batch("c"), 0)
    assert log.roll(0)  # during a flush too
    run_flush(log, flush)
    assert bases(log) == [0, 1, 2, 3]


# State accepted at the opening.


def test_a_start_offset_applies_before_the_first_file_exists(disk: SimDisk) -> None:
    log = opened(disk, deferred=True, start_offset=5)
    assert log.start_offset == 5


def test_a_log_opens_for_reading_on_a_full_disk(disk: SimDisk) -> None:
    log = opened(disk)
    log.append(batch("a"), 0)
    stop(log)
    disk.room = 0
    log = opened(disk, clean=True, topic_id="iRZ7lAlfQrWo7gLtEdup9A")
    assert names(log) == ["a.0"]


def test_after_an_orderly_stop_the_recovery_point_is_ignored(disk: SimDisk) -> None:
    log = opened(disk, deferred=True)
    log.append(batch("a"), 0)
    stop(log)
    log = opened(disk, point=0, clean=True, deferred=True)
    assert log.flushed_offset == 1
    syncs = disk.syncs
    assert log.flush() == 1
    assert disk.syncs == syncs


@pytest.mark.parametrize(("point", "synced"), [(0, [0, 1, 2]), (1, [1, 2]), (2, [2]), (3, [2])])
def test_after_a_kill_the_next_flush_covers_what_follows_the_recovery_point(disk: SimDisk, point: int, synced: list[int]) -> None:
    """The last segment is flushed even if it ends before the recovery point."""
    log = opened(disk, segment_bytes=100, deferred=True)
    append_all(log, "abc")
    log = opened(disk, segment_bytes=100, point=point, deferred=True)
    assert bases(log) == [0, 1, 2]
    assert log.flushed_offset == point
    flush = log.start_flush()
    assert [segment.base for segment in flush.segments] == synced
    assert flush.folder_to_sync
    run_flush(log, flush)
    assert log.flushed_offset == 3


def test_epochs_that_a_checkpoint_lacks_are_found_in_the_segments(disk: SimDisk) -> None:
    log = opened(disk)
    for name in "abc":
        log.append(batch(name), log.epoch)
        log.append(batch(name), log.epoch)
        log.claim()
    log.flush()
    for epochs in ([], [(0, 0)], [(0, 0), (1, 2)]):
        write_epochs(disk, PATH, epochs)
        log = opened(disk)
        assert log._epochs[-1] == (2, 4)
        assert log.epoch == 3


def test_an_epoch_may_be_larger_than_any_offset(disk: SimDisk) -> None:
    log = opened(disk)
    for _ in range(9):
        log.claim()
    append_flushed(log, batch("a"), 9)
    log = opened(disk)
    assert (log._epochs, log.epoch) == ([(9, 0)], 10)
    assert read_epochs(disk, PATH) == [(9, 0)]


# Restored batches.


def test_a_batch_is_restored_only_at_the_end_of_the_log(disk: SimDisk) -> None:
    log = opened(disk)
    assert not log.restore(stamped_batch("b", 1))
    assert log.next_offset == 0
    assert log.restore(stamped_batch("a", 0))
    assert not log.restore(stamped_batch("a", 0))
    assert log.restore(stamped_batch("b", 1))
    assert names(log) == ["a.0", "b.0"]


def test_a_restored_batch_raises_the_epoch(disk: SimDisk) -> None:
    log = opened(disk)
    for offset, epoch in enumerate((3, 3, 5, 4, 9)):
        assert log.restore(stamped_batch("x", offset, epoch=epoch))
    assert log._epochs == [(3, 0), (5, 2), (9, 4)]
    assert log.epoch == 10
    assert [header.leader_epoch for header in headers(log)] == [3, 3, 5, 4, 9]


@pytest.mark.parametrize("epoch", [0, 1])
def test_the_first_restored_batch_sets_the_epoch(disk: SimDisk, epoch: int) -> None:
    log = opened(disk)
    assert log.restore(stamped_batch("x", 0, epoch=epoch))
    assert (log.epoch_at(0), log.epoch) == (epoch, epoch + 1)


# Dropping old segments.


def test_deleted_segments_do_not_count_toward_retention_bytes(disk: SimDisk) -> None:
    size = len(batch("a"))
    log = opened(disk, segment_bytes=size)
    append_all(log, "abcdef")
    log.flush()
    log.delete_before(2)  # where a segment begins
    assert log.apply_retention(0, 0, -1, 4 * size) == [0, 1]
    assert log.apply_retention(1_000, 0, 0, -1) == []
    assert log.apply_retention(1_001, 0, 0, -1) == [2, 3, 4, 5]


def test_during_a_flush_the_last_segment_stays_although_it_is_too_old(disk: SimDisk) -> None:
    log = opened(disk, segment_bytes=len(batch("a")))
    append_all(log, "abc")
    flush = log.start_flush()
    assert log.apply_retention(1 << 40, 0, 0, -1) == [0, 1]
    assert (bases(log), names(log)) == ([2], ["c.0"])
    run_flush(log, flush)
    assert log.apply_retention(1 << 40, 0, 0, -1) == [2]


# Closing.


def test_closing_writes_only_missing_index_files_and_snapshots(disk: SimDisk) -> None:
    log = opened(disk)
    append_flushed(log, batch("a"))
    log.close(indexes=False)
    assert not disk.exists(f"{PATH}/{0:020d}.timeindex")
    log.close()
    assert read(disk, f"{PATH}/{0:020d}.timeindex")
    changes = len(disk.changes)
    log.close()
    assert len(disk.changes) == changes


def test_a_retired_log_refuses_appends_and_its_readers_read_on(disk: SimDisk) -> None:
    for retired in (True, False):
        log = opened(disk, segment_bytes=len(batch("a")))
        append_all(log, "abc")
        expected = b"".join(scan(log))
        reader = scan(log)
        if retired:
            log.retire()
            disk.rename(PATH, f"{PATH}.{'0' * 32}-stray")
        else:
            log.set_folder_aside("0" * 32)
        assert not log.usable
        assert b"".join(reader) == expected
        assert disk.opened == 0


# Failures.


def test_a_log_whose_first_segment_creation_failed_accepts_the_next_batch(disk: SimDisk) -> None:
    log = opened(disk)
    disk.changes_until_refusal = 0
    with pytest.raises(AppendFailed):
        log.append(batch("a"), 0)
    disk.changes_until_refusal = -1
    assert log.usable
    assert log.append(batch("a"), 0) == 0
    assert names(log) == ["a.0"]


def test_a_log_waits_for_a_repair_when_its_file_cannot_be_read_after_a_failure(disk: SimDisk) -> None:
    log = opened(disk)
    append_flushed(log, batch("a"))
    log._handles.close()
    disk.read_only = True
    with pytest.raises(AppendFailed):
        log.append(batch("b"), 0)
    assert not log.usable
    disk.read_only = False
    recover(log, keep_unflushed=True)
    assert log.append(batch("b"), 0) == 1


def test_a_flush_that_finds_no_file_leaves_none_open(disk: SimDisk) -> None:
    log = opened(disk, segment_bytes=len(batch("a")), deferred=True)
    append_all(log, "ab")
    log._handles.close()
    second = f"{PATH}/{1:020d}.log"
    disk.rename(second, f"{second}.away")
    with pytest.raises(AppendFailed):
        log.start_flush()
    assert (log.usable, log.busy) == (False, False)
    disk.rename(f"{second}.away", second)
    recover(log, keep_unflushed=True)
    assert names(log) == ["a.0", "b.0"]
    log.close()
    assert disk.opened == 0


# Repairing.


def test_a_log_under_repair_refuses_appends(disk: SimDisk) -> None:
    log = opened(disk)
    append_flushed(log, batch("a"))
    repair = log.start_repair(log.next_offset)
    with pytest.raises(AppendFailed, match="waits to be repaired"):
        log.append(batch("b"), 0)
    with pytest.raises(AppendFailed, match="waits to be repaired"):
        log.start_flush()
    assert not log.roll(1 << 20)
    repair.run()
    log.finish_repair(repair)
    assert log.append(batch("b"), 0) == 1


def test_a_repair_clears_every_trace_of_the_failure(disk: SimDisk) -> None:
    log = opened(disk)
    log.append(batch("a"), 0)
    fail_flush(disk, log)
    assert not log.usable
    recover(log, keep_unflushed=True)
    assert (log.usable, log.flushed_offset, names(log)) == (True, 1, ["a.0"])
    assert log.start_flush().files == []  # everything is on the disk
    log._flushing = False
    disk.room = 0
    with pytest.raises(AppendFailed, match="is full"):
        log.append(batch("b"), 0)
    assert log.usable  # a full disk alone needs no repair
    disk.room = None
    assert log.append(batch("b"), 0) == 1


@pytest.mark.parametrize("deferred", [False, True])
def test_after_a_repair_everything_counts_as_flushed(disk: SimDisk, deferred: bool) -> None:
    log = opened(disk, deferred=deferred)
    for name in "abc":
        log.append(batch(name, padding=500), 0)
        assert log.roll(1 << 20)
    log.append(batch("d", padding=500), 0)
    fail_flush(disk, log)
    recover(log, keep_unflushed=True)
    log.append(batch("e"), 0)
    assert [segment.base for segment in log.start_flush().segments] == [3]
    log._flushing = False
    assert log.roll(len(batch("e")))


def test_an_empty_segment_gets_no_index_when_the_log_is_closed(disk: SimDisk) -> None:
    log = opened(disk)
    log.append(batch("a"), 0)
    assert log.roll(1 << 20)
    log.close()
    assert [name for name in disk.list(PATH) if name.startswith(f"{1:020d}")] == [f"{1:020d}.log"]


def test_an_empty_log_has_no_newest_timestamp(disk: SimDisk) -> None:
    log = opened(disk)
    assert newest_timestamp(log) == -1
    log.append(batch("a", timestamp=0), 0)
    assert newest_timestamp(log) == 0


def test_a_failed_folder_rename_leaves_the_log_usable(disk: SimDisk) -> None:
    log = opened(disk)
    log.append(batch("a"), 0)
    disk.changes_until_refusal = 0
    with pytest.raises(OSError, match="error"):
        log.set_folder_aside("0" * 32)
    disk.changes_until_refusal = -1
    assert log.usable
    assert log.append(batch("b"), 0) == 1


def test_the_flushed_offset_never_exceeds_the_end_of_the_log(disk: SimDisk) -> None:
    """The disk lost whole batches at the end, so the recovery point in the checkpoint is past the end of the log."""
    log = opened(disk, deferred=True)
    append_all(log, "abc")
    path = f"{PATH}/{0:020d}.log"
    overwrite(disk, path, read(disk, path)[: len(batch("a"))])
    log = opened(disk, point=3, deferred=True)
    assert (log.flushed_offset, log.next_offset) == (1, 1)


def test_an_empty_last_segment_stays_when_all_segments_are_too_old(disk: SimDisk) -> None:
    log = opened(disk)
    log.append(batch("a"), 0)
    assert log.roll(1 << 20)
    assert log.apply_retention(1 << 40, 0, 0, -1) == [0]
    assert (bases(log), log.start_offset, log.next_offset) == ([1], 1, 1)


def test_the_age_of_a_segment_starts_with_its_first_batch(disk: SimDisk) -> None:
    log = opened(disk)
    log.segment_ms = 500
    log.append(batch("a", timestamp=1_000), 0)
    assert log.roll(1 << 20)
    assert log.apply_retention(1_000, 0, 1 << 30, -1) == []
    log.append(batch("b", timestamp=2_000), 0)
    log.append(batch("c", timestamp=2_501), 0)
    assert bases(log) == [0, 1, 2]


@pytest.mark.parametrize("padding", [0, 200])  # the next batch fits into the active segment, or needs the segment that could not be created
@pytest.mark.parametrize("early", [False, True])
def test_a_failed_segment_creation_leaves_the_log_usable(early: bool, padding: int) -> None:
    for step in range(20):
        disk = data_disk()
        log, _ = reopen(disk, "/data", segment_bytes=300)
        append_all(log, 3)
        log.flush()
        disk.changes_until_refusal = step
        try:
            if early:
                log.roll(0)
            else:
                log.append(batch("large", padding=200), log.epoch)
        except AppendFailed:
            disk.changes_until_refusal = -1
        else:
            assert step > 2
            return
        assert log.usable
        append_flushed(log, batch("next", padding=padding), log.epoch)
        for clean in (False, True):
            log, _ = reopen(disk, "/data", clean=clean)
            assert names(log) == ["b0.0", "b1.0", "b2.0", "next.0"]
    raise AssertionError("a fault was planted in the last step too: raise the number of steps")
