"""Cleaned segments replace the old ones through any failure: of the power, the process or the disk."""

from __future__ import annotations

import pytest

from simulator.disk import Crashed, NothingSurvives, SimDisk, data_disk
from storage import AppendFailed, DamagedLog, Handles, Log
from storage.swap import promote, remove_deleted, remove_unfinished
from tests.storage.conftest import DataFolder
from tests.storage.logs import (
    FOLDER,
    CrashAt,
    append_flushed,
    clean,
    clean_and_promote,
    compaction,
    fail_flush,
    headers,
    keyed_batch,
    names,
    overwrite,
    read,
    records_by_offset,
    recover,
    reopen,
    run_flush,
    scan,
    stop,
    values_by_key,
)
from tests.storage.small_segments import COUNT, KEYS, SEGMENT_BYTES, filled, left_over

pytestmark = pytest.mark.once  # no dependence on the Python version


@pytest.mark.parametrize("segment_bytes", [SEGMENT_BYTES, 1_000, 1 << 20])
@pytest.mark.parametrize("power", [True, False])
def test_a_crash_at_any_step_of_a_cleaning_leaves_the_same_records(segment_bytes: int, power: bool) -> None:
    expected = values_by_key(filled(data_disk()))
    old = records_by_offset(filled(data_disk()))
    outcomes = set()
    for step in range(1_000):
        disk = data_disk(step)
        log = filled(disk)
        with CrashAt(disk, step) as crash:
            for _ in range(2):  # the second cleaning removes expired tombstones
                clean(disk, log, segment_bytes=segment_bytes, delete_retention_ms=0)
        if power:
            disk.crash()
        reopened, truncation = reopen(disk, "/data", recovery_point=COUNT, segment_bytes=SEGMENT_BYTES)
        outcomes.add(len(records_by_offset(reopened)))
        assert values_by_key(reopened) == expected
        assert old.items() >= records_by_offset(reopened).items()
        assert (reopened.next_offset, reopened.start_offset, truncation.cut_bytes) == (COUNT, 0, 0)
        assert left_over(disk) == []
        reopened.append(keyed_batch(("new", "1")), reopened.epoch)
        stop(reopened)
        for clean_stop in (True, False):
            assert values_by_key(reopen(disk, "/data", clean=clean_stop)[0]) == expected | {"new": "1"}
        if not crash.happened:
            assert step > 40
            assert len(outcomes) >= 3  # old, cleaned, cleaned twice
            return
    raise AssertionError("a fault was planted in the last step too: raise the number of steps")


def test_a_swap_interrupted_while_opening_is_finished_by_the_next_opening() -> None:
    for first in range(1, 200):
        disk = data_disk(first)
        log = filled(disk, 20)
        job, promoted = clean_and_promote(disk, log, segment_bytes=1_000)
        assert len(promoted) > 1
        disk.changes_until_crash = first
        try:
            log.exchange(job.cleaned, promoted)
            break
        except Crashed:
            disk.crash()
        for second in range(200):
            disk.changes_until_crash = second
            try:
                reopen(disk, "/data", recovery_point=COUNT)
                break
            except Crashed:
                disk.crash()
        disk.changes_until_crash = -1
        assert values_by_key(reopen(disk, "/data")[0]) == values_by_key(filled(data_disk(), 20))
        assert left_over(disk) == []
    assert first > 10


@pytest.mark.parametrize("step", range(40))
def test_a_repair_finishes_a_swap_that_failed_halfway(disk: SimDisk, step: int) -> None:
    log = filled(disk)
    job, promoted = clean_and_promote(disk, log, segment_bytes=1_000)
    reader = log.facts()
    facts_read = next(reader)
    before, steps_left = disk.begin_change, step

    def refuse(path: str) -> None:
        nonlocal steps_left
        steps_left -= 1
        if steps_left < 0:
            disk.read_only = True
        before(path)

    disk.begin_change = refuse  # type: ignore[method-assign]
    try:
        log.exchange(job.cleaned, promoted)
        assert step > 3
        assert not disk.read_only
        return
    except AppendFailed:
        assert not log.usable
    finally:
        disk.begin_change = before  # type: ignore[method-assign]
        disk.read_only = False
    with pytest.raises(AppendFailed):
        log.append(keyed_batch(("new", "1")), log.epoch)
    assert log.half_exchanged
    recover(log, keep_unflushed=True)
    assert not log.half_exchanged
    assert left_over(disk) == []
    append_flushed(log, keyed_batch(("new", "1")), log.epoch)
    expected = values_by_key(filled(data_disk()))
    assert values_by_key(log) == values_by_key(reopen(disk, "/data")[0]) == expected | {"new": "1"}
    for more in reader:
        facts_read += more
    assert {key.decode(): value and value.decode() for key, value in facts_read if value is not None} == expected | {
        key.decode(): value.decode() for key, value in facts_read if value is not None
    }


@pytest.mark.parametrize("step", range(20))
def test_a_repair_never_confuses_a_new_segment_with_an_old_one_of_its_size(disk: SimDisk, step: int) -> None:
    """Of two segments with a batch each, the second remains, under the name of the first."""
    batch = keyed_batch(("a", "1"))
    log, _ = reopen(disk, "/data", segment_bytes=len(batch))
    for _ in range(3):
        append_flushed(log, batch)
    job, (promoted,) = clean_and_promote(disk, log)
    assert (promoted.base, promoted.size) == (0, len(batch))
    disk.changes_until_refusal = step
    try:
        log.exchange(job.cleaned, [promoted])
    except AppendFailed:
        disk.changes_until_refusal = -1
        recover(log, keep_unflushed=True)
        assert [header.base_offset for header in headers(log)] == [1, 2]
        assert log.segment_count == 2


def test_an_aborted_cleaning_leaves_no_files(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path, segment_bytes=SEGMENT_BYTES)
    for number in range(COUNT):
        append_flushed(log, keyed_batch((f"k{number % KEYS}", f"v{number}")))
    before = values_by_key(log)
    job = compaction(data_folder.disk, log, segment_bytes=1_000)
    assert list(job.steps())
    names_before = {name for name in data_folder.disk.list(log.folder) if name.endswith("log")}
    promote(data_folder.disk, log.folder, job.cleaned, "0")
    remove_unfinished(data_folder.disk, log.folder)
    assert {name for name in data_folder.disk.list(log.folder) if "log" in name} == names_before
    assert values_by_key(log) == values_by_key(reopen(data_folder.disk, data_folder.path)[0]) == before
    clean(data_folder.disk, log, segment_bytes=1_000)
    assert not [name for name in data_folder.disk.list(log.folder) if name.endswith((".deleted", ".swap", ".cleaned"))]


@pytest.mark.parametrize("given_up", [False, True])
def test_promoting_or_reverting_a_segment_survives_a_power_failure(given_up: bool) -> None:
    disk = data_disk(NothingSurvives())
    log = filled(disk)
    _, promoted = clean_and_promote(disk, log, segment_bytes=1_000)
    logs = [segment.log_path for segment in promoted]
    if given_up:
        changes = len(disk.changes)
        remove_unfinished(disk, log.folder)
        assert sorted(disk.changes[changes : changes + len(logs)]) == sorted(logs)  # the file that makes a segment valid is removed first
    disk.crash()
    assert [disk.exists(path) for path in logs] == [not given_up] * len(logs)


def test_a_promoted_part_is_ignored_if_an_earlier_part_is_not_promoted(disk: SimDisk) -> None:
    log = filled(disk, 20)
    before = [segment.base for segment in log.closed_segments]
    _, (first, *_, last) = clean_and_promote(disk, log, segment_bytes=1_000)
    disk.rename(first.log_path, f"{first.path}.log.1.cleaned")
    overwrite(disk, f"{last.path}.log.2.cleaned", b"")
    reopened, _ = reopen(disk, "/data")
    assert [segment.base for segment in reopened.closed_segments] == before
    assert left_over(disk) == []


def test_an_empty_segment_promoted_by_kafka_replaces_no_existing_segment(disk: SimDisk) -> None:
    log = filled(disk)
    expected, before = records_by_offset(log), [segment.base for segment in log.closed_segments]
    overwrite(disk, f"/data/{FOLDER}/{before[1]:020}.log.swap", b"")
    reopened, _ = reopen(disk, "/data")
    assert (records_by_offset(reopened), [segment.base for segment in reopened.closed_segments]) == (expected, before)
    assert left_over(disk) == []


@pytest.mark.parametrize(("end", "reason"), [(b"", "cut short"), (b"???", "checksum")])
def test_a_promoted_segment_that_is_damaged_keeps_the_log_closed(disk: SimDisk, end: bytes, reason: str) -> None:
    log = filled(disk)
    _, (promoted,) = clean_and_promote(disk, log)
    path = promoted.log_path
    assert path.endswith(".log.swap")
    overwrite(disk, path, read(disk, path)[:-3] + end)
    with pytest.raises(DamagedLog, match=reason) as caught:
        reopen(disk, "/data")
    assert caught.value.path == path


def test_a_segment_that_differs_from_the_cleaners_report_is_not_promoted(disk: SimDisk) -> None:
    log = filled(disk)
    job = compaction(disk, log)
    assert list(job.steps())
    (new,) = job.cleaned
    with pytest.raises(DamagedLog, match="ends before offset"):
        promote(disk, log.folder, [new._replace(next_offset=new.next_offset + 1)], "0")
    with pytest.raises(OSError, match="No such file"):
        promote(disk, log.folder, [new._replace(base=1)], "0")
    remove_unfinished(disk, log.folder)
    assert values_by_key(log) == values_by_key(filled(data_disk()))


def test_a_swap_interrupted_in_kafka_is_finished_as_kafka_does() -> None:
    """The segment that Kafka was splitting counts until all its parts are promoted."""
    for parts_left in (0, 1):
        disk = data_disk()
        log = filled(disk, 20)
        expected, closed = values_by_key(log), len(log.closed_segments)
        job = compaction(disk, log, segment_bytes=1_000)
        assert list(job.steps())
        promote(disk, log.folder, job.cleaned[1:], "0")
        if not parts_left:
            remove_unfinished_cleaned(disk)
        reopened, _ = reopen(disk, "/data")
        assert (len(reopened.closed_segments) == closed) == bool(parts_left)
        assert values_by_key(reopened) == expected
        assert left_over(disk) == []


def remove_unfinished_cleaned(disk: SimDisk) -> None:
    for name in left_over(disk):
        if name.endswith(".cleaned"):
            disk.remove(f"/data/{FOLDER}/{name}")


# Rolling early


def test_a_log_rolls_early_if_the_roll_need_not_wait(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path)
    assert log.roll(0)  # an empty segment need not be closed
    log.append(keyed_batch(("a", "1")), 0)
    assert not log.roll(0)
    flush = log.start_flush()
    assert not log.roll(1 << 20)
    run_flush(log, flush)
    assert log.roll(0)
    assert log.roll(0)
    assert ([segment.base for segment in log.closed_segments], log.active_base) == ([0], 1)
    log.append(keyed_batch(("a", "2")), 0)
    assert not log.roll(10)
    assert log.roll(1_000)
    assert (log.flushed_offset, len(log.closed_segments)) == (2, 2)
    for clean_stop in (False, True):
        reopened, _ = reopen(data_folder.disk, data_folder.path, clean=clean_stop)
        assert ([segment.base for segment in reopened.closed_segments], reopened.active_base, reopened.next_offset) == ([0, 1], 2, 2)
        assert names(reopened) == ["a", "a"]


@pytest.mark.parametrize("seed", range(12))
def test_data_flushed_after_an_early_roll_survives(seed: int) -> None:
    disk = data_disk(seed)
    log, _ = reopen(disk, "/data")
    for number in range(4):
        append_flushed(log, keyed_batch((f"a{number}", "1")))
        assert log.roll(0)
    append_flushed(log, keyed_batch(("last", "1")))
    log.append(keyed_batch(("lost", "1")), 0)
    disk.crash()
    assert names(reopen(disk, "/data", recovery_point=5)[0])[:5] == ["a0", "a1", "a2", "a3", "last"]


@pytest.mark.parametrize("seed", range(12))
def test_an_early_roll_that_a_crash_undoes_loses_nothing(seed: int) -> None:
    disk = data_disk(seed)
    log, _ = reopen(disk, "/data")
    append_flushed(log, keyed_batch(("a", "1")))
    assert log.roll(0)
    disk.crash()
    log, _ = reopen(disk, "/data", recovery_point=1)
    assert (names(log), log.next_offset) == (["a"], 1)


def test_a_roll_that_the_disk_refuses_leaves_the_log_unchanged(disk: SimDisk) -> None:
    log, _ = reopen(disk, "/data")
    append_flushed(log, keyed_batch(("a", "1")))
    disk.read_only = True
    log._handles.close()
    with pytest.raises(AppendFailed):
        log.roll(0)
    disk.read_only = False
    assert log.usable
    append_flushed(log, keyed_batch(("b", "1")))
    assert names(reopen(disk, "/data")[0]) == ["a", "b"]


# Dropping old segments


def test_closed_segments_with_only_older_records_are_dropped(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path)
    for day in range(5):
        log.append(keyed_batch((f"d{day}", "1"), timestamp=1_000 * day + 500), 0)
        append_flushed(log, keyed_batch((f"d{day}", "2"), timestamp=1_000 * day))
        assert log.roll(0)
    assert log.drop_old(500, 0, 0) == []
    reader = log.facts()
    facts_read = next(reader)
    bases = log.drop_old(1_501, 0, 0)
    assert bases == [0, 2]
    assert (names(log), log.start_offset) == (["d2", "d2", "d3", "d3", "d4", "d4"], 4)
    for more in reader:
        facts_read += more
    assert len(facts_read) == 10
    reopened, _ = reopen(data_folder.disk, data_folder.path)  # before the set-aside files are removed
    assert (names(reopened), reopened.start_offset) == (names(log), 4)
    assert log.drop_old(1 << 60, 0, 0) == [4, 6, 8]
    remove_deleted(data_folder.disk, log.folder, [4, 6, 8])
    assert (names(log), log.start_offset, log.next_offset) == ([], 10, 10)
    log.append(keyed_batch(("new", "1")), 0)
    log.close()
    assert names(reopen(data_folder.disk, data_folder.path)[0]) == ["new"]
    assert [name for name in data_folder.disk.list(log.folder) if name.endswith("deleted")] == []


@pytest.mark.parametrize("power", [True, False])
def test_a_crash_while_dropping_leaves_the_end_of_the_log(power: bool) -> None:
    for step in range(100):
        disk = data_disk(step)
        log = filled(disk)
        append_flushed(log, keyed_batch(("end", "1"), timestamp=9_000))
        assert log.roll(0)
        names_written = names(log)
        log.close()
        with CrashAt(disk, step) as crash:
            remove_deleted(disk, log.folder, log.drop_old(6_000, 0, 0))
        if power:
            disk.crash()
        reopened, _ = Log.open(Handles(disk), log.folder, SEGMENT_BYTES, COUNT, False)
        names_read = names(reopened)
        assert names_read
        assert names_read == names_written[-len(names_read) :]
        assert reopened.start_offset == COUNT + 1 - len(names_read)
        if not crash.happened:
            assert len(names_read) < len(names_written)
            return
    raise AssertionError("a fault was planted in the last step too: raise the number of steps")


def test_replaced_segments_are_removed_after_the_new_name_is_synced(disk: SimDisk) -> None:
    log = filled(disk)
    _, (new,) = clean_and_promote(disk, log)
    log.close()
    disk.changes.clear()
    reopen(disk, "/data")
    removed = min(number for number, path in enumerate(disk.changes) if path.endswith(".deleted") and path in disk.changes[:number])
    assert log.folder in disk.changes[disk.changes.index(f"{new.path}.log") : removed]


def test_readers_of_unrepaired_segments_read_on_after_a_swap(disk: SimDisk) -> None:
    log = filled(disk)
    reader = scan(log)
    facts_read = next(reader)
    expected = b"".join(scan(log))
    log.append(keyed_batch(("more", "1")), log.epoch)
    fail_flush(disk, log)
    recover(log, keep_unflushed=True)
    while bases := log.drop_first():
        remove_deleted(disk, log.folder, bases)
    assert log.segment_count == 1
    for more in reader:
        facts_read += more
    assert facts_read == expected


def test_no_index_file_remains_without_its_segment() -> None:
    """A later segment of this name would use the index file."""
    for step in range(20):
        disk = data_disk()
        log = filled(disk)
        log.close()
        with CrashAt(disk, step):
            remove_deleted(disk, log.folder, log.drop_first())
        entries = disk.list(log.folder)
        bases = {name[:20] for name in entries if name.endswith(".log")}
        assert {name[:20] for name in entries if name.endswith("index")} <= bases


def test_a_promoted_part_between_unpromoted_parts_is_ignored(disk: SimDisk) -> None:
    log = filled(disk, 20)
    expected = b"".join(scan(log))
    job = compaction(disk, log, segment_bytes=400)
    assert list(job.steps())
    assert len(job.cleaned) > 2
    promote(disk, log.folder, job.cleaned[1:2], "0")
    reopened, _ = reopen(disk, "/data")
    assert b"".join(scan(reopened)) == expected
    assert left_over(disk) == []


def test_an_opening_does_not_touch_files_with_similar_names(disk: SimDisk) -> None:
    log = filled(disk)
    expected = records_by_offset(log)
    strange = [f"{'x' * 20}.log.cleaned", "notes.swap", f"{chr(0x661) * 20}.log.deleted"]
    for name in strange:
        overwrite(disk, f"{log.folder}/{name}", b"?")
    reopened, _ = reopen(disk, "/data")
    assert records_by_offset(reopened) == expected
    assert sorted(left_over(disk)) == sorted(strange)


def test_no_old_index_file_remains_with_a_new_segment() -> None:
    for step in range(30):
        disk = data_disk()
        log = filled(disk)
        _, (new,) = clean_and_promote(disk, log)
        log.close()
        disk.rename(f"{new.path}.log", f"{new.path}.log.deleted")
        for ending in (".index", ".timeindex"):
            overwrite(disk, f"{new.path}{ending}", b"of the old segment")
        with CrashAt(disk, step) as crash:
            reopened, _ = reopen(disk, "/data")
        if not crash.happened:
            assert not disk.exists(f"{new.path}.index")
            assert values_by_key(reopened) == values_by_key(filled(data_disk()))
            reopened.close()
            assert disk.opened == 0
            assert step > 3
            return
        index_endings = [ending for ending in (".index", ".timeindex") if disk.exists(new.path + ending)]
        assert not disk.exists(f"{new.path}.log") or not index_endings, step
    raise AssertionError("a fault was planted in the last step too: raise the number of steps")
