"""Reads and appends of one segment at their boundaries, compared with its list of batches."""

from __future__ import annotations

from itertools import accumulate

import pytest

from protocol.batch import CorruptBatch, facts_of
from simulator.disk import SimDisk
from storage import DamagedLog
from storage.segment import CHUNK_BYTES, FACT_BYTES, LARGE_READ_BYTES, POSITIONS_MAX, segment_bases, segment_name
from tests.storage.logs import overwrite, read
from tests.storage.segments import BASE, BATCHES, NEXT, PATH, batch_at, checked_segment, state_of

pytestmark = pytest.mark.once  # no dependence on the Python version


def test_segments_are_files_of_twenty_digits_in_order(disk: SimDisk) -> None:
    for name in (segment_name(7), segment_name(12), segment_name(0)):
        overwrite(disk, f"{PATH}/{name}.log", b"")
    strange = ("7", "x" * 20, "\N{ARABIC-INDIC DIGIT ONE}" * 20, "0" * 21)
    for name in (*[f"{name}.log" for name in strange], f"{segment_name(9)}.txt", f"{segment_name(9)}.log.swap"):
        overwrite(disk, f"{PATH}/{name}", b"")
    assert segment_bases(disk, PATH) == [0, 7, 12]


def test_a_read_returns_at_least_one_and_as_many_whole_batches_as_fit(disk: SimDisk) -> None:
    segment = checked_segment(disk, BATCHES)
    sizes = [len(batch.data) for batch in BATCHES]
    limits = sorted({0, 1, 60, 61, 62} | {sum(sizes[a:b]) + more for a in range(5) for b in range(a + 1, 6) for more in (-1, 0, 1)})
    for offset in range(BASE, NEXT + 2):
        first = next((n for n, batch in enumerate(BATCHES) if batch.last >= offset), len(BATCHES))
        for end in range(BASE, NEXT + 2):
            stop = len(BATCHES) if end >= NEXT else next(n for n, batch in enumerate(BATCHES) if batch.last >= end)
            for limit in limits:
                count = min(stop - first, 1)
                while first + count < stop and sum(sizes[first : first + count + 1]) <= limit:
                    count += 1
                expected = b"".join(batch.data for batch in BATCHES[first : first + max(count, 0)])
                assert segment.read(offset, limit, end) == expected
    assert len(segment.positions) <= POSITIONS_MAX


@pytest.mark.parametrize("limit", [LARGE_READ_BYTES - 1, LARGE_READ_BYTES, LARGE_READ_BYTES + 1, 3 * LARGE_READ_BYTES])
def test_a_large_read_is_at_most_an_index_interval_short_of_its_limit(disk: SimDisk, limit: int) -> None:
    batches = [batch_at(BASE + n, padding=900 + n % 7) for n in range(400)]
    segment = checked_segment(disk, batches)
    log_bytes = b"".join(batch.data for batch in batches)
    ends = [sum(len(batch.data) for batch in batches[:n]) for n in range(len(batches) + 1)]
    offset = BASE
    at = 0
    while at < len(log_bytes):
        data = segment.read(offset, limit, BASE + 400)
        assert data == log_bytes[at : at + len(data)]
        at += len(data)
        assert at in ends
        offset = BASE + ends.index(at)
        assert len(data) <= limit
        assert len(data) > limit - 6_000 or at == len(log_bytes)


@pytest.mark.parametrize("verified", [True, False])
def test_chunks_have_the_batches_between_two_offsets(disk: SimDisk, verified: bool) -> None:
    for offset in range(BASE, NEXT + 1):
        for end in range(BASE, NEXT + 2):
            segment = checked_segment(disk, BATCHES, verified)
            expected = b"".join(batch.data for batch in BATCHES if offset <= batch.last < end)
            pieces = list(segment.chunks(offset, end))
            assert b"".join(pieces) == expected
            assert all(pieces)
            assert segment.verified is (verified or (offset <= 102 and end >= NEXT))


def test_facts_are_those_of_batches_that_end_before_an_offset(disk: SimDisk) -> None:
    for end in range(BASE, NEXT + 2):
        segment = checked_segment(disk, BATCHES, False)
        expected = [fact for batch in BATCHES if batch.last < end for fact in facts_of(batch.data)]
        assert [fact for batch_facts in segment.facts(end) for fact in batch_facts] == expected
        assert segment.verified is (end >= NEXT)


@pytest.mark.parametrize("number", range(5))
def test_damage_is_reported_with_its_position_after_all_batches_before_it(disk: SimDisk, number: int) -> None:
    before = b"".join(batch.data for batch in BATCHES[:number])
    for changes, reason in (({-1: 0x01}, "checksum"), ({7: 0x40}, "offset"), ({9: 0x01}, "cut short"), ({16: 0x01}, "magic 3")):
        segment = checked_segment(disk, BATCHES, False)
        data = bytearray(b"".join(batch.data for batch in BATCHES))
        for at, bit in changes.items():
            data[len(before) + at % len(BATCHES[number].data)] ^= bit
        overwrite(disk, segment.log_path, bytes(data))
        pieces: list[bytes] = []
        with pytest.raises(DamagedLog, match=reason) as caught:
            pieces.extend(segment.chunks(BASE, NEXT))
        assert (b"".join(pieces), caught.value.position) == (before, len(before))
        assert all(pieces)
        with pytest.raises(DamagedLog, match=reason) as caught:
            list(segment.facts(NEXT))
        assert caught.value.position == len(before)
        assert not segment.verified
        if number:  # a read that ends before the damage
            assert b"".join(segment.chunks(BASE, BATCHES[number - 1].last)) == b"".join(batch.data for batch in BATCHES[: number - 1])


@pytest.mark.parametrize("verified", [True, False])
@pytest.mark.parametrize("number", range(5))
def test_an_out_of_order_offset_is_damage(disk: SimDisk, number: int, verified: bool) -> None:
    before = b"".join(batch.data for batch in BATCHES[:number])
    length = BATCHES[number].last - BATCHES[number].base
    for wrong in (BATCHES[number - 1].last if number else BASE - 1, NEXT - length):
        batches = [*BATCHES[:number], BATCHES[number]._replace(data=wrong.to_bytes(8, "big") + BATCHES[number].data[8:]), *BATCHES[number + 1 :]]
        segment = checked_segment(disk, BATCHES, verified)
        overwrite(disk, segment.log_path, b"".join(batch.data for batch in batches))
        for reading in (segment.chunks(BASE, NEXT), segment.facts(NEXT)):
            with pytest.raises(DamagedLog, match=f"offset {wrong} between") as caught:
                list(reading)
            assert caught.value.position == len(before)


def test_reading_on_in_a_shortened_file_reports_damage(disk: SimDisk) -> None:
    batches = [batch_at(BASE + number, padding=1_000) for number in range(3 * CHUNK_BYTES // 1_000)]
    begins = set(accumulate([len(batch.data) for batch in batches]))
    segment = checked_segment(disk, batches)
    disk.open(segment.log_path).truncate(segment.size - 1)
    for reading, read_at_once in ((segment.chunks(BASE, BASE + len(batches)), CHUNK_BYTES), (segment.facts(BASE + len(batches)), FACT_BYTES)):
        with pytest.raises(DamagedLog, match="the file is shorter than it was") as caught:
            list(reading)
        assert caught.value.position in begins
        assert segment.size - read_at_once <= caught.value.position < segment.size


@pytest.mark.parametrize("chunk_bytes", [61, 62, 70, 100, 200, 1 << 20])
def test_batches_do_not_depend_on_the_chunk_size(disk: SimDisk, chunk_bytes: int) -> None:
    segment = checked_segment(disk, BATCHES)
    batches = [chunk[at : at + header.size] for header, chunk, at in segment.batches(0, segment.size, True, chunk_bytes)]
    assert batches == [batch.data for batch in BATCHES]
    first = len(BATCHES[0].data)
    batches = [chunk[at : at + header.size] for header, chunk, at in segment.batches(first, segment.size - len(BATCHES[-1].data), False, chunk_bytes)]
    assert batches == [batch.data for batch in BATCHES[1:-1]]
    for missing in (1, 30):
        with pytest.raises(CorruptBatch, match="cut short"):
            list(segment.batches(0, segment.size - missing, True, chunk_bytes))
    with pytest.raises(CorruptBatch, match="shorter than it was"):
        list(segment.batches(0, segment.size + 100, True, chunk_bytes))


@pytest.mark.parametrize("fault", ["write", "room"])
def test_a_failed_append_changes_neither_file_nor_state(disk: SimDisk, fault: str) -> None:
    segment = checked_segment(disk, BATCHES)
    before, file = state_of(segment), read(disk, segment.log_path)
    if fault == "write":
        disk.fail_writes = 1
    else:
        disk.room = 20
    more = batch_at(NEXT)
    with pytest.raises(OSError, match=r"error|space"):
        segment.append(more.data, more.base, more.last, 9_000, 7)
    assert (state_of(segment), read(disk, segment.log_path), segment.epoch) == (before, file, 2)
    assert segment.unsynced
    disk.room = None
    segment.append(more.data, more.base, more.last, 9_000, 7)
    assert state_of(segment) == (len(file) + len(more.data), NEXT + 1, 9_000, NEXT)
    assert (segment.epoch, segment.epoch_start) == (7, NEXT)


def test_facts_are_read_in_chunks_again_after_a_large_batch(disk: SimDisk) -> None:
    batches = [batch_at(BASE, padding=3 * FACT_BYTES), *[batch_at(BASE + 1 + number, padding=1_000) for number in range(600)]]
    pieces = list(checked_segment(disk, batches).facts(BASE + 601))
    assert [fact for batch_facts in pieces for fact in batch_facts] == [fact for batch in batches for fact in facts_of(batch.data)]
    assert max(len(batch_facts) for batch_facts in pieces) <= FACT_BYTES // 1_000


def test_a_segment_file_is_kept_until_its_last_reader_is_gone(disk: SimDisk) -> None:
    segment = checked_segment(disk, BATCHES)
    segment.keep_for_readers()
    assert segment.kept_file is None  # nothing is kept without a reader
    segment.pin()
    segment.pin()
    segment.keep_for_readers()
    disk.remove(segment.log_path)
    segment.handles.forget(segment.log_path)
    segment.keep_for_readers()  # again, after a failed rename
    for _ in range(2):
        assert segment.read(103, 1, NEXT) == BATCHES[1].data
        segment.unpin()
    assert segment.kept_file is None
    segment.handles.close()
    assert disk.opened == 0
    with pytest.raises(OSError, match="No such file"):
        segment.read(115, 1 << 20, NEXT)


def test_a_batch_header_is_found_at_a_batch_boundary(disk: SimDisk) -> None:
    segment = checked_segment(disk, BATCHES)
    at = len(BATCHES[0].data)
    header = segment.header_at(at)
    assert header is not None
    assert header.base_offset == 103
    assert segment.header_at(at + 1) is None
    assert segment.header_at(segment.size) is None
    assert segment.header_at(segment.size - 60) is None
    overwrite(disk, segment.log_path, read(disk, segment.log_path) + batch_at(NEXT).data)
    assert segment.header_at(segment.size) is None  # bytes past the known size do not count
