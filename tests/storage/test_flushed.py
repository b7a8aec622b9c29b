"""The flushed offset: flushes, appends during a flush, and failed flushes."""

from __future__ import annotations

from functools import partial

import pytest

from simulator.disk import NothingSurvives, SimDisk, data_disk
from storage import AppendFailed, Handles, Log
from tests.storage.conftest import DataFolder
from tests.storage.logs import FOLDER, append_all, append_flushed, batch, fail_flush, names, recover, reopen, run_flush


def opened(disk: SimDisk | None = None, deferred: bool = False) -> Log:
    """A log with a segment for each batch."""
    return Log.open(Handles(disk or data_disk()), f"/data/{FOLDER}", len(batch("a")), 0, False, deferred=deferred)[0]


def test_a_flush_covers_the_appends_before_its_begin(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path)
    log.append(batch("a"), 0)
    flush = log.start_flush()
    log.append(batch("b"), 0)
    run_flush(log, flush)
    assert (log.flushed_offset, log.next_offset) == (1, 2)
    assert log.flush() == 2


@pytest.mark.parametrize("deferred", [False, True])
def test_appends_during_a_flush_become_durable_with_the_next_flush(deferred: bool) -> None:
    disk = data_disk(NothingSurvives())
    path = f"/data/{FOLDER}"
    log, _ = Log.open(Handles(disk), path, 1 << 20, 0, False, deferred=deferred)
    log.append(batch("a"), 0)
    flush = log.start_flush()
    flush.run()
    log.append(batch("b"), 0)  # past the range of the flush
    log.finish_flush(flush, None)
    assert log.flush() == 2
    disk.crash()
    log, truncation = Log.open(Handles(disk), path, 1 << 20, 2, False, deferred=deferred)
    assert (names(log), log.next_offset, truncation.cut_bytes) == (["a.0", "b.0"], 2, 0)


@pytest.mark.parametrize("syncs_file_system", [False, True])
def test_a_segment_begun_during_a_flush_survives_a_crash_after_the_next_flush(syncs_file_system: bool) -> None:
    """`syncs_file_system`: the running flush is a sync of the whole file system."""
    disk = data_disk(NothingSurvives())
    path = f"/data/{FOLDER}"
    log, _ = Log.open(Handles(disk), path, len(batch("a")), 0, False, deferred=True)
    log.append(batch("a"), 0)
    if syncs_file_system:
        log.flush()
        log.append(batch("b"), 0)
        log.mark_flushed(1)
    else:
        flush = log.start_flush()
        flush.run()
        log.append(batch("b"), 0)
        log.finish_flush(flush, None)
    assert (log.segment_count, log.flushed_offset, log.flush()) == (2, 1, 2)
    disk.crash()
    log, truncation = Log.open(Handles(disk), path, 1 << 20, 2, False, deferred=True)
    assert (names(log), log.next_offset, truncation.cut_bytes) == (["a.0", "b.0"], 2, 0)


@pytest.mark.parametrize(("end", "synced", "names_too"), [(1, [0, 2], True), (2, [2], True), (3, [2], False), (4, [], False)])
def test_a_flush_skips_segments_that_a_file_system_sync_covered(disk: SimDisk, end: int, synced: list[int], names_too: bool) -> None:
    log, _ = Log.open(Handles(disk), f"/data/{FOLDER}", 2 * len(batch("a")), 0, False, deferred=True)
    append_all(log, "abcd")
    log.mark_flushed(end)
    log.mark_flushed(1)
    assert log.flushed_offset == end
    flush = log.start_flush()
    assert ([segment.base for segment in flush.segments], bool(flush.folder_to_sync)) == (synced, names_too)


def test_a_flush_without_new_appends_syncs_nothing(disk: SimDisk) -> None:
    log, _ = Log.open(Handles(disk), f"/data/{FOLDER}", 1 << 20, 0, False)
    append_flushed(log, batch("a"))
    changes = len(disk.changes)
    assert log.flush() == 1
    assert len(disk.changes) == changes


def test_a_log_does_not_roll_during_a_flush(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path, segment_bytes=200)
    log.append(batch("a", padding=150), 0)
    flush = log.start_flush()
    log.append(batch("b", padding=150), 0)
    assert not data_folder.disk.exists(f"{data_folder.path}/{FOLDER}/{1:020d}.log")
    run_flush(log, flush)
    log.append(batch("c", padding=150), 0)
    assert (log.flushed_offset, names(log)) == (2, ["a.0", "b.0", "c.0"])
    assert data_folder.disk.exists(f"{data_folder.path}/{FOLDER}/{2:020d}.log")


def test_a_log_is_busy_during_a_flush_and_other_work_in_its_folder() -> None:
    log = opened()
    assert not log.busy
    log.append(batch("a"), 0)
    flush = log.start_flush()
    assert log.busy
    run_flush(log, flush)
    assert not log.busy
    log.folder_users += 1
    assert log.busy


def test_a_flush_of_the_closed_segments_leaves_out_the_last_one() -> None:
    log = opened(deferred=True)
    append_all(log, "abc")
    flush = log.start_flush(closed=True)
    assert ([segment.base for segment in flush.segments], flush.offset) == ([0, 1], 2)
    run_flush(log, flush)
    assert log.flushed_offset == 2
    assert [segment.base for segment in log.start_flush().segments] == [2]


@pytest.mark.parametrize("deferred", [False, True])
def test_a_failed_flush_is_not_repeated(disk: SimDisk, deferred: bool) -> None:
    """The system may have dropped the pages: their bytes must be written again."""
    log = opened(disk, deferred=deferred)
    log.append(batch("a"), 0)
    fail_flush(disk, log)
    assert (log.usable, log.busy, log.flushed_offset) == (False, False, 0)
    syncs = disk.syncs
    for attempt in (log.flush, log.start_flush, lambda: log.append(batch("b"), log.epoch)):
        with pytest.raises(AppendFailed, match="repaired"):
            attempt()
    assert (disk.syncs, log.flushed_offset) == (syncs, 0)
    disk.changes.clear()
    recover(log, keep_unflushed=True)
    assert any(path.endswith(".rewriting") for path in disk.changes)
    assert (log.usable, log.flushed_offset, names(log)) == (True, 1, ["a.0"])


@pytest.mark.parametrize("early", [False, True])
def test_a_failed_sync_of_a_roll_is_a_failed_flush(disk: SimDisk, early: bool) -> None:
    log = opened(disk)
    log.append(batch("a"), 0)
    disk.fail_syncs = 1
    rolls = partial(log.roll, 1 << 20) if early else partial(log.append, batch("b"), 0)
    with pytest.raises(AppendFailed):
        rolls()
    assert not log.usable
    with pytest.raises(AppendFailed, match="repaired"):
        log.append(batch("b"), 0)
    disk.changes.clear()
    recover(log, keep_unflushed=True)
    assert any(path.endswith(".rewriting") for path in disk.changes)


def test_a_repaired_log_is_rewritten_once_at_most(disk: SimDisk) -> None:
    log = opened(disk)
    log.append(batch("a"), 0)
    fail_flush(disk, log)
    recover(log, keep_unflushed=True)
    log.append(batch("b"), 0)
    disk.changes.clear()
    recover(log, keep_unflushed=True)  # a repair without a failed flush since the last one
    assert not any(path.endswith(".rewriting") for path in disk.changes)
    assert names(log) == ["a.0", "b.0"]


def test_an_older_flush_result_does_not_lower_the_flushed_offset() -> None:
    log = opened(deferred=True)
    log.append(batch("a"), 0)
    flush = log.start_flush()
    flush.run()
    log.append(batch("b"), 0)
    log.mark_flushed(2)
    log.finish_flush(flush, None)
    assert log.flushed_offset == 2
    log.mark_flushed(1)
    assert log.flushed_offset == 2


def test_data_of_a_killed_process_is_durable_after_the_next_process_flushes() -> None:
    """The flush also syncs the name of the log's folder, which may exist only in memory."""
    disk = data_disk(NothingSurvives())
    opened(disk, deferred=True).append(batch("a"), 0)
    log = opened(disk, deferred=True)
    assert (names(log), log.flush()) == (["a.0"], 1)
    disk.crash()
    assert names(opened(disk, deferred=True)) == ["a.0"]
