"""Several segments as one log: where reads begin, and the files that a compaction must not change."""

from __future__ import annotations

import pytest

from simulator.disk import SimDisk
from storage import Handles, Log
from storage.extents import Extent
from storage.swap import remove_deleted
from tests.storage.conftest import DataFolder
from tests.storage.logs import FOLDER, append_flushed, batch, clean, headers, names, overwrite, read, reopen, result_of

PATH = f"/data/{FOLDER}"
ONE = len(batch("b0"))


def filled(disk: SimDisk, count: int = 6, open_max: int = 512) -> Log:
    """Segments of one batch with one record, each a second later than the previous."""
    log, _ = Log.open(Handles(disk, open_max), PATH, ONE, 0, False)
    for number in range(count):
        append_flushed(log, batch(f"b{number}", timestamp=1_000 * number))
    assert log.segment_count == count
    return log


def path(base: int) -> str:
    return f"{PATH}/{base:020d}.log"


def contents(extent: Extent | None) -> bytes:
    return extent.read(1 << 20) if extent is not None else b""


def test_reading_an_empty_log_returns_nothing(disk: SimDisk) -> None:
    log, _ = reopen(disk, "/data")
    assert (log.read(0, 100), log.extent(0, 100), result_of(log.find_time(0)), list(log.facts())) == (b"", None, None, [])
    assert (log.drop_old(1 << 40, 0, 0), log.drop_first(), log.apply_retention(1 << 40, 0, 0, 0)) == ([], [], [])


def test_reads_stop_before_their_end_offset(disk: SimDisk) -> None:
    log = filled(disk)
    for offset in range(8):
        for end in range(8):
            data = log.read(offset, 1 << 20, end)
            assert (data == b"") is (offset >= min(end, 6)), (offset, end)
            assert contents(log.extent(offset, 1 << 20, end)) == data


def test_a_read_before_the_first_segment_begins_at_its_start(disk: SimDisk) -> None:
    log = filled(disk)
    log.delete_before(2)
    remove_deleted(disk, PATH, log.apply_retention(0, 0, -1, -1))
    for offset in (0, 1, 2):
        assert contents(log.extent(offset, ONE)) == log.read(offset, ONE) != b""
        assert [header.base_offset for header in headers(log, offset)] == [2, 3, 4, 5]
    assert names(log)[0] == "b2.0"


def test_a_scan_reads_only_the_needed_segments(disk: SimDisk) -> None:
    log = filled(disk)
    log.close()
    log, _ = reopen(disk, "/data")
    for base in range(6):
        disk.unreadable = path(base)
        assert names(log, base + 1) == [f"b{number}.0" for number in range(base + 1, 6)]
        assert names(log, 0, base) == [f"b{number}.0" for number in range(base)]
        assert len([fact for batch_facts in log.facts(base) for fact in batch_facts]) == base


def test_an_empty_segment_left_by_kafka_is_skipped(disk: SimDisk) -> None:
    filled(disk).close()
    overwrite(disk, path(2), b"")
    overwrite(disk, path(3), b"")
    log, _ = reopen(disk, "/data", clean=True)
    for offset in (2, 3, 4):
        assert contents(log.extent(offset, ONE)) == log.read(offset, ONE) == log.read(4, ONE) != b""
        assert log.first_timestamp_since(offset) == 4_000
    assert log.first_timestamp_since(5) == 5_000
    assert log.first_timestamp_since(6) == -1


def test_a_compacted_offset_reads_from_the_next_batch(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path, segment_bytes=3 * ONE)
    for key in ("a", "a", "a", "b", "b", "b", "c"):
        append_flushed(log, batch(key))
    clean(data_folder.disk, log)
    expected = {header.base_offset: header.last_offset for header in headers(log)}
    for offset in range(7):
        data = log.read(offset, 1)
        base = next(base for base, last in expected.items() if last >= offset)
        assert data
        assert int.from_bytes(data[:8], "big") == base
        assert contents(log.extent(offset, 1)) == data


def test_no_segment_is_deleted_during_a_compaction(disk: SimDisk) -> None:
    log = filled(disk)
    log.folder_users = 1  # another compaction is running too
    log.begin_compaction()
    assert (log.drop_old(1 << 40, 0, 0), log.drop_first(), log.apply_retention(1 << 40, 0, 0, 0)) == ([], [], [])
    assert (log.segment_count, log.folder_users, log.busy) == (6, 2, True)
    log.end_compaction()
    assert (log.folder_users, log.busy) == (1, True)
    assert log.drop_first() == [0]
    assert log.drop_old(1 << 40, 0, 0) == [1, 2, 3, 4]
    assert log.drop_first() == []
    log.folder_users = 0
    assert not log.busy


def test_a_held_extent_of_a_dropped_segment_stays_readable(disk: SimDisk) -> None:
    log = filled(disk, open_max=1)
    extents = [log.extent(offset, 1) for offset in range(3)]
    expected = [log.read(offset, 1) for offset in range(3)]
    for extent in extents:
        assert extent is not None
        extent.pin()
    assert log.drop_old(2_001, 0, 0) == [0, 1, 2]
    remove_deleted(disk, PATH, [0, 1, 2])
    assert names(log) == ["b3.0", "b4.0", "b5.0"]
    assert [contents(extent) for extent in extents] == expected
    for extent in extents:
        assert extent is not None
        extent.unpin()
    log.close()
    assert disk.opened == 0


@pytest.mark.parametrize("open_max", [1, 2])
def test_cleaned_segments_are_read_with_the_files_that_a_log_may_have_open(disk: SimDisk, open_max: int) -> None:
    log = filled(disk, 12, open_max)
    clean(disk, log, segment_bytes=3 * ONE)
    assert log.segment_count == 5
    assert names(log) == [f"b{number}.0" for number in range(12)]
    for offset in range(12):
        assert log.read(offset, 1)
    assert disk.opened <= open_max
    log.close()
    assert disk.opened == 0


def test_a_read_in_an_offset_gap_between_segments_begins_after_it(disk: SimDisk) -> None:
    """A compaction may have removed the end of a segment."""
    log = filled(disk, 4)
    log.close()
    disk.remove(path(1))
    log, _ = reopen(disk, "/data", recovery_point=4)
    for offset in (1, 2):
        assert log.read(offset, 1)[:8] == (2).to_bytes(8, "big")
        assert contents(log.extent(offset, 1))[:8] == (2).to_bytes(8, "big")


def test_a_closed_segment_without_batches_is_as_old_as_its_file(disk: SimDisk) -> None:
    log = filled(disk, 3)
    log.close()
    overwrite(disk, path(0), b"")
    log, _ = reopen(disk, "/data", recovery_point=3)
    disk.time = 5_000
    assert log.closed_before(4_999) == ([], 0)
    assert [segment.base for segment in log.closed_before(5_000)[0]] == [0, 1]


def test_a_first_batch_that_is_damaged_has_no_timestamp(disk: SimDisk) -> None:
    log = filled(disk, 2)
    data = bytearray(read(disk, path(0)))
    data[16] = 1
    overwrite(disk, path(0), bytes(data))
    assert log.first_timestamp_since(0) == -1


def test_dirty_bytes_are_counted_in_whole_segments(disk: SimDisk) -> None:
    log = filled(disk, 4)
    assert [log.bytes_since(offset) // ONE for offset in range(6)] == [4, 3, 2, 1, 0, 0]
