"""Looks for a time: what they leave unread, what they meet on their way, and that each gives one answer in steps."""

from __future__ import annotations

import pytest

from protocol.batch import HEADER_BYTES, Record, build, read_header, rewrite
from storage import DamagedLog, Found, Log
from storage.times import STEP_RECORDS
from tests.storage.faulty_disk import FaultyDisk
from tests.storage.logs import batch, found, overwrite, read, reopen


def filled(disk: FaultyDisk, times: list[int], per_segment: int = 1 << 20) -> Log:
    """Batches of one record and one size; as many in a segment as is said."""
    log, _ = reopen(disk, "/data", segment_bytes=per_segment * len(batch("b", timestamp=times[0])))
    for timestamp in times:
        log.append(batch("b", timestamp=timestamp), 0)
    log.flush()
    return log


@pytest.mark.parametrize("latest", [False, True])
@pytest.mark.parametrize(
    ("at", "put", "reason"),
    [
        (16, b"\1", "magic 1"),
        (8, (48).to_bytes(4, "big"), "a batch of 60 bytes"),
        (8, b"\xff\xff\xff\xff", "a batch of 11 bytes"),
        (8, (1 << 20).to_bytes(4, "big"), "a batch is cut short"),
    ],
)
def test_damage_on_the_way_is_named_by_its_place(disk: FaultyDisk, at: int, put: bytes, reason: str, latest: bool) -> None:
    log = filled(disk, [9_000, *[1_000 + number for number in range(9)]])
    log.delete_before(1)
    segment = log._segments[0]
    data = read(disk, segment.log_path)
    begin = 5 * len(data) // 10
    overwrite(disk, segment.log_path, data[: begin + at] + put + data[begin + at + len(put) :])
    with pytest.raises(DamagedLog, match=reason) as caught:
        found(log.latest_record() if latest else log.find_time(1_008))
    assert caught.value.position == begin


@pytest.mark.parametrize("latest", [False, True])
def test_a_header_that_is_cut_short_is_damage(disk: FaultyDisk, latest: bool) -> None:
    log = filled(disk, [9_000, *[1_000 + number for number in range(9)]])
    log.delete_before(1)
    segment = log._segments[0]
    data = read(disk, segment.log_path)
    size = len(data) // 10
    begin = 8 * size  # the last but one leads to ten bytes before the end
    overwrite(disk, segment.log_path, data[: begin + 8] + (2 * size - 12 - 10).to_bytes(4, "big") + data[begin + 12 :])
    with pytest.raises(DamagedLog, match="a batch header is cut short"):
        found(log.latest_record() if latest else log.find_time(5_000))


def test_records_that_cannot_be_read_are_damage(disk: FaultyDisk) -> None:
    log = filled(disk, [9_000, 1_000, 2_000, 1_500])
    log.delete_before(1)
    segment = log._segments[0]
    data = read(disk, segment.log_path)
    size = len(data) // 4
    overwrite(disk, segment.log_path, data[: 2 * size + 61] + b"\xff" * (size - 61) + data[3 * size :])
    for looking in (log.latest_record(), log.find_time(2_000)):
        with pytest.raises(DamagedLog) as caught:
            found(looking)
        assert caught.value.position == 2 * size


def test_segments_that_are_not_late_enough_are_not_read(disk: FaultyDisk) -> None:
    log = filled(disk, [1_000, 1_001, 5_000, 5_001, 2_000, 2_001, 5_001, 5_001], per_segment=2)
    assert log.segments == 4
    first, second, third, last = (segment.log_path for segment in log._segments)
    for path in (first, third, last):
        disk.unreadable = path
        assert found(log.find_time(3_000)) == Found(5_000, 2, 0)
    for path in (third, last):  # nor where an earlier one has a record as late
        disk.unreadable = path
        assert found(log.latest_record()) == Found(5_001, 3, 0)
    disk.unreadable = second
    with pytest.raises(OSError, match="Input/output"):
        found(log.latest_record())


@pytest.mark.parametrize("start", [0, 1])
def test_a_look_has_one_answer_and_ends_with_it(disk: FaultyDisk, start: int) -> None:
    log = filled(disk, [7_000, 1_000, 5_000, 2_000, 6_000, 6_000, 3_000], per_segment=2)
    log.delete_before(start)
    assert [one for one in log.find_time(4_500) if one is not None] == [Found(5_000, 2, 0) if start else Found(7_000, 0, 0)]
    assert [one for one in log.latest_record() if one is not None] == [Found(6_000, 4, 0) if start else Found(7_000, 0, 0)]
    assert [one for one in log.find_time(7_001) if one is not None] == []


def test_the_newest_of_what_is_left_is_found_where_the_newest_of_all_was_deleted(disk: FaultyDisk) -> None:
    """In the segment that had it, or in a later one; among records at the start and before it."""
    log = filled(disk, [9_000, 4_000, 4_001, 4_001, 4_000, 4_001], per_segment=4)
    for start, expected in ((1, 2), (2, 2), (3, 3), (4, 5), (5, 5)):
        log.delete_before(start)
        assert found(log.latest_record()) == Found(4_001, expected, 0)
    log.delete_before(6)
    assert found(log.latest_record()) is None


@pytest.mark.parametrize("latest", [False, True])
def test_a_batch_of_many_records_takes_a_few_steps(disk: FaultyDisk, latest: bool) -> None:
    log, _ = reopen(disk, "/data")
    count = 5 * STEP_RECORDS
    log.append(build([Record(n, 9_000 if n == 0 else n % 100, None, b"") for n in range(count)]), 0)
    log.delete_before(1)
    steps = list(log.latest_record() if latest else log.find_time(99))
    answers = [one for one in steps if one is not None]
    assert answers == [Found(99, 99, 0)]
    if latest:  # which has to look at all of them
        assert 11 <= len(steps) <= 20  # for the newest that the index knows, and then for the newest that is left


def test_a_time_that_the_index_has_of_another_batch_leads_past_none(disk: FaultyDisk) -> None:
    log, _ = reopen(disk, "/data")
    for number in range(60):
        log.append(batch("b", timestamp=1_000 + number, padding=1_500), 0)
    index = log._segments[0].index
    for entry in range(2, len(index.times) - 1):
        named = index.time_offsets[entry]
        index.time_offsets[entry] = named + 2
        assert found(log.find_time(1_000 + named + 1)) == Found(1_001 + named, named + 1, 0)
        index.time_offsets[entry] = named


@pytest.mark.parametrize(("last", "expected"), [(6_000, Found(6_000, 5, 0)), (4_500, Found(5_000, 1, 0))])
def test_a_segment_whose_index_promises_too_much_does_not_hide_the_newest_record(disk: FaultyDisk, last: int, expected: Found) -> None:
    log = filled(disk, [1_000, 5_000, 2_000, 3_000, 4_000, last], per_segment=2)
    for segment in log._segments[1:]:
        segment.max_timestamp = 9_000  # of a batch that an older version has emptied
    assert found(log.latest_record()) == expected


def test_a_batch_that_is_a_header_alone_has_no_record_to_be_found(disk: FaultyDisk) -> None:
    """A compaction leaves such a one of a producer."""
    log = filled(disk, [5_000])
    path = log._segments[0].log_path
    log.close()
    overwrite(disk, path, rewrite(read_header(read(disk, path), 0), []))
    log, _ = reopen(disk, "/data")
    assert (log.next_offset, log.size) == (1, HEADER_BYTES)
    assert (found(log.latest_record()), found(log.find_time(-1))) == (None, None)
