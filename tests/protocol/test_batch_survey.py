"""A survey of records agrees with reading them singly, for every layout."""

from __future__ import annotations

import random
from typing import Any

import pytest

from protocol.batch import HEADER_BYTES, CorruptBatch, Record, build, read_header, records
from protocol.batch_survey import TooManyRecords, survey
from tests.protocol.nasty_batches import LAYOUTS, body
from tests.support.produce_batches import batch as batch_of

pytestmark = pytest.mark.once

NOW = 1_700_000_000_000
WIDTHS = (63, 64, 65, 66, 8191, 8192, 8193, 65_560)  # record counts around those at which offset deltas need another byte


def surveyed(batch: bytes) -> tuple[int, int, bool]:
    result = survey(batch, HEADER_BYTES, len(batch), read_header(batch, 0).record_count)
    return result.oldest, result.newest, result.keyed


def read(batch: bytes) -> tuple[int, int, bool]:
    """The expected result of `survey`, by reading every record."""
    decoded = records(batch, 0)
    if [record.offset for record in decoded] != list(range(len(decoded))):
        raise CorruptBatch("out of order")
    deltas = [record.timestamp - read_header(batch, 0).base_timestamp for record in decoded]
    return min(deltas), max(deltas), all(record.key is not None for record in decoded)


def outcome(of: object, batch: bytes) -> tuple[int, int, bool] | None:
    try:
        return of(batch)  # type: ignore[operator, no-any-return]
    except CorruptBatch:
        return None


@pytest.mark.parametrize("count", WIDTHS)
def test_as_many_records_of_one_size_as_change_the_width_of_an_offset(count: int) -> None:
    batch = build([Record(number, NOW + number % 3, b"key", b"value") for number in range(count)])
    assert surveyed(batch) == (0, 2, True)


@pytest.mark.parametrize("spread", [1, 63, 64, 8_000, 9_000, 3_000_000, 1 << 40, (1 << 62) - 1])
def test_timestamps_of_every_width_forward_and_back(spread: int) -> None:
    moments = [0, *[spread if number % 2 else spread - 1 for number in range(40)], *[-spread for _ in range(40)], 0]
    batch = build([Record(number, NOW + moment, None, b"v" * 20) for number, moment in enumerate(moments)])
    assert surveyed(batch) == (-spread, max(spread, 0), False)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 100, 8_191, 8_192, 70_000])
def test_the_survey_reads_lengths_of_several_bytes(size: int) -> None:
    batch = build([Record(number, NOW, bytes(size), bytes(size // 2)) for number in range(20)])
    assert surveyed(batch) == (0, 0, True)


def test_a_record_without_a_key_among_records_of_its_size_is_found() -> None:
    parts = [Record(number, NOW, b"", b"12345") for number in range(100)]
    parts[70] = Record(70, NOW, None, b"12345")
    assert surveyed(build(parts)) == (0, 0, False)


@pytest.mark.parametrize("at", range(1, 100, 7))
def test_a_record_of_the_same_size_with_headers_ends_a_run(at: int) -> None:
    parts = [Record(number, NOW, b"key", b"12345678") for number in range(100)]
    parts[at] = Record(at, NOW, b"key", b"12345", [(b"h", None)])
    assert surveyed(build(parts)) == (0, 0, True)


def test_every_byte_of_a_run_counts() -> None:
    """Whatever value a byte of a run has, the survey and the reader of single records agree."""
    batch = build([Record(number, NOW + number * 100, b"key", b"value") for number in range(100)])
    begin = HEADER_BYTES + 60 * 17
    refused = 0
    for at in range(begin, begin + 17):
        was = batch[at]
        for value in {was ^ 1, was ^ 2, was ^ 64, was ^ 128, (was + 2) % 256, (was - 2) % 256, 0, 1, 127, 255}:
            damaged = batch[:at] + bytes([value]) + batch[at + 1 :]
            expected = outcome(read, damaged)
            assert outcome(surveyed, damaged) == expected, (at - begin, value)
            refused += expected is None
    assert refused > 40


def test_records_of_any_layout_with_bytes_changed_at_random() -> None:
    random_of = random.Random(20)
    refused = 0
    for _ in range(400):
        count = random_of.choice([1, 2, 17, 40, 100, 300])
        spread = random_of.choice([0, 1, 5, 9_000])
        sizes = random_of.choice([(5, 5), (90, 90), (0, 200)])
        keyless = random_of.choice([0.0, 0.01])
        parts = [
            Record(
                number,
                NOW + (random_of.randint(-spread, spread) if number else 0),
                None if random_of.random() < keyless else b"key",
                bytes(random_of.randint(*sizes)),
                [(b"n", b"v")] if random_of.random() < 0.01 else [],
            )
            for number in range(count)
        ]
        batch = bytearray(build(parts))
        for _ in range(random_of.choice([0, 0, 1, 2])):
            batch[random_of.randrange(HEADER_BYTES, len(batch))] = random_of.randrange(256)
        expected = outcome(read, bytes(batch))
        assert outcome(surveyed, bytes(batch)) == expected
        refused += expected is None
    assert 20 < refused < 200


def test_trailing_bytes_are_found_after_a_record_with_an_overlong_offset() -> None:
    """The overlong offset shifts that record's fields; the next records have the same length, but end one byte too early."""
    unlike = bytes([9 << 1, 0, 0, 20 << 1 | 128, 0, 2 << 1, *b"ab", 0, 0])
    tail = [bytes([9 << 1, 0, 0, number << 1, 0, 2 << 1, *b"ab", 0, 0]) for number in range(21, 40)]
    before = [bytes([8 << 1, 0, 0, number << 1, 0, 2 << 1, *b"ab", 0]) for number in range(20)]
    for parts, is_uniform in (([*before, unlike], True), ([*before, unlike, *tail], False)):
        body = b"".join(parts)
        try:
            survey(body, 0, len(body), len(parts))
        except CorruptBatch:
            assert not is_uniform
        else:
            assert is_uniform


def test_a_wrong_record_count_is_refused() -> None:
    batch = build([Record(number, NOW, b"key", b"value") for number in range(50)])
    for count in (0, 1, 49, 51, 1 << 30):
        with pytest.raises(CorruptBatch):
            survey(batch, HEADER_BYTES, len(batch), count)


class Counted(bytes):
    """Bytes that count the reads of single bytes and slices."""

    def __new__(cls, data: bytes) -> Counted:
        view = super().__new__(cls, data)
        view.single = view.sliced = 0
        return view

    single: int
    sliced: int

    def __getitem__(self, place: Any) -> Any:
        piece = super().__getitem__(place)
        if isinstance(place, slice):
            self.sliced += len(piece)
        else:
            self.single += 1
        return piece


RECORD_READ_BYTES = 12  # the bytes read for one small record with a header and a three-byte offset


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_bytes_read_grow_linearly_for_alternating_records(layout: str) -> None:
    count = 20_000
    data = Counted(body(LAYOUTS[layout], count))
    result = survey(data, 0, len(data), count)
    assert (result.oldest, result.newest) == (0, 0)
    assert data.single < RECORD_READ_BYTES * count
    assert data.sliced < 4 * len(data)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_survey_is_limited_in_steps(layout: str) -> None:
    count = 20_000
    data = Counted(body(LAYOUTS[layout], count))
    for steps in (0, 1, 100):
        data.single = data.sliced = 0
        with pytest.raises(TooManyRecords):
            survey(data, 0, len(data), count, steps)
        assert data.single < RECORD_READ_BYTES * (steps + 1)
        assert data.sliced < 64 * RECORD_READ_BYTES * (steps + 1)
    survey(data, 0, len(data), count, 4 * count)


def test_equal_records_need_few_steps() -> None:
    data = body(LAYOUTS["tiny"], 20_000)
    survey(data, 0, len(data), 20_000, 1_000)


def test_a_run_ends_with_its_steps() -> None:
    """Timestamps of two bytes cost a step for each four records, which one run of all records must not overlook."""
    count = 100_000
    batch = build([Record(n, NOW + (0 if n == 0 else 1_000), None, b"") for n in range(count)])
    data = Counted(batch[HEADER_BYTES:])
    survey(data, 0, len(data), count, count)
    whole, data.sliced = data.sliced, 0
    with pytest.raises(TooManyRecords):
        survey(data, 0, len(data), count, 3_000)
    assert data.sliced < whole / 4


def test_the_headers_of_one_record_are_steps_too() -> None:
    batch = build([Record(0, NOW, None, None, [(b"", None)] * 1_000)])
    survey(batch, HEADER_BYTES, len(batch), 1, 1_001)
    with pytest.raises(TooManyRecords):
        survey(batch, HEADER_BYTES, len(batch), 1, 1_000)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("count", [65, 8_300])
def test_a_damaged_byte_or_a_wrong_count_is_found_in_every_layout(layout: str, count: int) -> None:
    data = body(LAYOUTS[layout], count)
    survey(data, 0, len(data), count)
    random_of = random.Random(count)
    wrong = [(data, count - 1), (data, count + 1), (data[:-1], count), (data + b"\0", count)]
    for _ in range(3):
        at = random_of.randrange(len(data) - 400, len(data))
        damaged = bytearray(data)
        damaged[at] ^= 0x80
        wrong.append((bytes(damaged), count))
    for spoiled, counted in wrong:
        batch = batch_of(raw=spoiled, base_timestamp=NOW, record_count=counted, last_offset_delta=counted - 1)
        assert outcome(surveyed, batch) == outcome(read, batch)


def test_offset_deltas_of_four_bytes_are_read() -> None:
    count = (1 << 20) + 20_000
    data = body(LAYOUTS["tiny"], count)
    survey(data, 0, len(data), count, 40_000)
    damaged = bytearray(data)
    damaged[-7] ^= 2  # the offset of a record near the end
    with pytest.raises(CorruptBatch):
        survey(bytes(damaged), 0, len(damaged), count)
