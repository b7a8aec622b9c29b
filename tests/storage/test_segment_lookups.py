"""Lookups of an offset in a segment: by remembered positions, by the index, by reading."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate

import pytest

from protocol.batch import Record, build, read_header, rewrite, stamp_whole
from simulator.disk import SimDisk
from storage import DamagedLog
from storage.extents import extent_of
from storage.segment import LARGE_READ_BYTES, POSITIONS_MAX, Segment
from tests.storage.logs import overwrite
from tests.storage.segments import BASE, BATCHES, NEXT, Batch, batch_at, checked_segment

pytestmark = pytest.mark.once  # no dependence on the Python version


def emptied(base: int, last: int) -> Batch:
    """A batch whose records a compaction removed: only its header."""
    return Batch(base, last, rewrite(read_header(batch_at(base, last - base + 1).data, 0), []))


def by_extent(segment: Segment, offset: int, bytes_max: int, end: int) -> bytes:
    extent = extent_of(segment, offset, bytes_max, end, False, True)
    return b"" if extent is None else extent.read(1 << 30)


both_ways = pytest.mark.parametrize("look", [Segment.read, by_extent])
Look = Callable[[Segment, int, int, int], bytes]


def test_a_read_past_the_last_batch_returns_nothing(disk: SimDisk) -> None:
    segment = checked_segment(disk, BATCHES)
    disk.unreadable = segment.log_path
    assert (segment.read(NEXT, 100, NEXT), segment.read(BASE, 100, BASE)) == (b"", b"")
    assert segment.position_from(NEXT) == segment.position_from(NEXT + 5) == segment.size


def test_damage_found_by_a_lookup_is_reported_with_its_position(disk: SimDisk) -> None:
    """The fifth batch is looked up, and it or the fourth is damaged."""
    sizes = [len(batch.data) for batch in BATCHES]
    before, fourth, last = b"".join(batch.data for batch in BATCHES[:3]), BATCHES[3].data, BATCHES[4].data
    for data, reason in (
        (fourth[:16] + b"\1" + fourth[17:] + last, "magic 1"),
        (fourth[:8] + (48).to_bytes(4, "big") + fourth[12:] + last, "a batch's length field says 60 bytes, fewer than a header"),
        (fourth[:8] + (49).to_bytes(4, "big") + fourth[12:] + last, "magic"),  # a possible size, which leads into the middle of a batch
        (fourth[:8] + b"\xff" * 4 + fourth[12:] + last, "a batch's length field says 11 bytes, fewer than a header"),
        (fourth[:8] + (1 << 20).to_bytes(4, "big") + fourth[12:] + last, "cut short"),
        (fourth[:8] + (sizes[3] + sizes[4] - 12 - 10).to_bytes(4, "big") + fourth[12:] + last, "cut short"),  # ten bytes are left
        (fourth + bytes(8) + last[8:], "no batch reaches offset 120, and 121 is the next"),
    ):
        segment = checked_segment(disk, BATCHES)
        overwrite(disk, segment.log_path, before + data)
        with pytest.raises(DamagedLog, match=reason) as caught:
            segment.read(120, 1 << 20, NEXT)
        assert caught.value.position == len(before) or reason in ("magic", "cut short") or "reaches" in reason


@both_ways
def test_reading_on_at_a_position_without_a_batch_is_damage(disk: SimDisk, look: Look) -> None:
    first, second, *_ = (batch.data for batch in BATCHES)
    log_bytes = b"".join(batch.data for batch in BATCHES)
    for limit in (1, 1 << 20):
        segment = checked_segment(disk, BATCHES)
        assert look(segment, BASE, 1, NEXT) == first
        overwrite(disk, segment.log_path, first + bytes(16) + b"\1" + log_bytes[len(first) + 17 :])
        if limit == 1 or look is Segment.read:  # an extent up to the end needs no check
            with pytest.raises(DamagedLog, match=r"magic 1|no batch begins there") as caught:
                look(segment, 103, limit, NEXT)
            assert caught.value.position == len(first)
    segment = checked_segment(disk, BATCHES)
    assert look(segment, BASE, 1, NEXT) == first
    overwrite(disk, segment.log_path, first + second[:8] + (1 << 20).to_bytes(4, "big") + log_bytes[len(first) + 12 :])
    with pytest.raises(DamagedLog, match=r"cut short|no batch begins there"):
        look(segment, 103, 1, NEXT)


@both_ways
def test_batches_emptied_by_compaction_are_found_and_read(disk: SimDisk, look: Look) -> None:
    batches = [emptied(100, 102), batch_at(103), emptied(104, 109), batch_at(110), emptied(111, 120)]
    segment = checked_segment(disk, batches)
    for offset in range(100, 121):
        number = next(number for number, batch in enumerate(batches) if batch.last >= offset)
        fresh = checked_segment(disk, batches)
        tail = b"".join(batch.data for batch in batches[number:])
        assert fresh.position_from(offset) == segment.size - len(tail)
        assert look(fresh, offset, len(tail), NEXT) == tail
        assert look(fresh, offset, 1, NEXT) == batches[number].data
    assert look(checked_segment(disk, batches), 103, len(batches[1].data) + 61, NEXT) == batches[1].data + batches[2].data


@both_ways
def test_reading_on_needs_no_lookup(disk: SimDisk, look: Look) -> None:
    batches = [batch_at(BASE, padding=200_000), *[batch_at(BASE + 1 + number, padding=900) for number in range(400)]]
    places = dict(zip(accumulate([len(batch.data) for batch in batches]), [batch.base + 1 for batch in batches], strict=True))
    segment = checked_segment(disk, batches)
    for limit in (1, 1, 5_000, 2 * LARGE_READ_BYTES, 1 << 20):
        for end in (BASE + 301, BASE + 401):
            at, offset = 0, BASE
            while offset < end:
                disk.unreadable = ""
                at += len(look(segment, offset, limit, end))
                offset = places[at]
                disk.unreadable = segment.log_path
                assert segment.position_from(offset) == at
            disk.unreadable = ""


def test_the_newest_reader_positions_are_remembered(disk: SimDisk) -> None:
    batches = [batch_at(BASE + number, padding=100) for number in range(2 * POSITIONS_MAX)]
    segment = checked_segment(disk, batches)
    for batch in [*batches[:-1], batches[-2]]:  # the last read repeats an offset, so it adds no position
        assert segment.read(batch.base, 1, BASE + len(batches)) == batch.data
    assert len(segment.positions) == POSITIONS_MAX
    disk.unreadable = segment.log_path
    for number in range(POSITIONS_MAX, 2 * POSITIONS_MAX):
        assert segment.position_from(BASE + number) == sum(len(batch.data) for batch in batches[:number])


@both_ways
def test_a_reader_at_the_end_reads_batches_appended_since(disk: SimDisk, look: Look) -> None:
    more = [batch_at(NEXT + number) for number in range(3)]
    for end in (*range(BASE + 3, NEXT), NEXT, NEXT + 1, NEXT + 2):
        segment = checked_segment(disk, BATCHES)
        look(segment, BASE, 1 << 20, end)
        for batch in more:
            segment.append(batch.data, batch.base, batch.last, 1_000, 2)
        for batch in [*BATCHES, *more]:
            assert look(segment, batch.base, 1, NEXT + 3) == batch.data, end


@both_ways
def test_a_batch_larger_than_a_chunk_is_read_whole(disk: SimDisk, look: Look) -> None:
    batches = [batch_at(100, padding=5_000), batch_at(101, padding=3 * LARGE_READ_BYTES), batch_at(102, padding=3 * LARGE_READ_BYTES), batch_at(103)]
    for batch in batches[1:3]:
        for limit in (1, 70, LARGE_READ_BYTES, LARGE_READ_BYTES + 1, 2 * LARGE_READ_BYTES):
            assert look(checked_segment(disk, batches), batch.base, limit, 104) == batch.data


@both_ways
def test_bytes_that_look_like_a_batch_inside_a_record_are_not_a_batch(disk: SimDisk, look: Look) -> None:
    inner = batch_at(777, padding=60).data
    batches = [batch_at(BASE + number, padding=900) for number in range(200)]
    holding = bytearray(build([Record(0, 1_000, b"k", bytes(5_000) + inner + bytes(900))]))
    stamp_whole(holding, BASE + 100, 0)
    batches[100] = Batch(BASE + 100, BASE + 100, bytes(holding))
    segment = checked_segment(disk, batches)
    log_bytes = b"".join(batch.data for batch in batches)
    entry = bisect_right(segment.index.positions, log_bytes.index(inner)) - 1
    segment.index.positions[entry] = log_bytes.index(inner)
    ends = set(accumulate([len(batch.data) for batch in batches]))
    for limit in range(LARGE_READ_BYTES, log_bytes.index(inner) + LARGE_READ_BYTES, 1_000):
        assert len(look(segment, BASE, limit, BASE + 200)) in ends


def test_a_useless_index_is_abandoned_after_a_few_reads(disk: SimDisk) -> None:
    batches = [batch_at(BASE + number, padding=4_100) for number in range(700)]
    segment = checked_segment(disk, batches)
    segment.index.positions = array("i", [position + 1 for position in segment.index.positions])
    disk.reads.clear()
    assert segment.search_position(BASE + 650) == 0
    assert len(disk.reads) < 8
