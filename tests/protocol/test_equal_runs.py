"""Runs of batches and records with equal layouts are read together, and no difference among them is missed."""

from __future__ import annotations

from random import Random

import google_crc32c
import pytest

from protocol.batch import (
    COMPRESSION_MASK,
    CONTROL,
    HEADER_BYTES,
    CorruptBatch,
    Fact,
    Record,
    build,
    build_facts,
    facts_of,
    iterate_headers,
    stamp,
    validate,
)
from protocol.batch_facts import FactReader
from protocol.batch_record import VARINT_SHIFT_MAX, longer_varint
from protocol.equal_runs import RUN_MIN, count_equal
from protocol.fact_layouts import RUN_MAX, FactLayouts
from tests.support.batch_bytes import stamped

pytestmark = pytest.mark.once  # no dependence on the Python version

END = 1 << 40
STEP = 200  # the distance of the base offsets of batches


def with_checksum(data: bytearray, begin: int, end: int) -> None:
    data[begin + 17 : begin + 21] = google_crc32c.value(bytes(data[begin + 21 : end])).to_bytes(4, "big")


def read_by_facts_of(data: bytes, verify: bool) -> tuple[list[Fact], int]:
    """The facts of all batches, and -1; or no facts, and the position of the first corrupt batch."""
    facts: list[Fact] = []
    last, at = -1, 0
    try:
        for header in iterate_headers(data, 0, len(data)):
            if verify:
                validate(data, at, len(data))
            if header.base_offset <= last or header.last_offset >= END:
                return [], at
            if header.attributes & (CONTROL | COMPRESSION_MASK):
                facts += facts_of(data[at : at + header.size])
            else:
                facts += read_singly(data, at + HEADER_BYTES, at + header.size, header.record_count)
            last = header.last_offset
            at += header.size
    except (CorruptBatch, IndexError):
        return [], at
    return facts, -1


def read_singly(data: bytes, at: int, end: int, count: int) -> list[Fact]:
    """Read each record with a new reader, which has no layouts."""
    facts: list[Fact] = []
    for _ in range(count):
        FactLayouts().read(data, at, end, 1, facts)
        size, begin = data[at], at + 1
        if size > 127:
            size, begin = longer_varint(data, begin, size, VARINT_SHIFT_MAX)
        at = begin + (size >> 1)
    return facts


def read(data: bytes, verify: bool) -> tuple[list[Fact], int]:
    reader = FactReader(-1, END, END, verify)
    try:
        facts = reader.read(data)
    except CorruptBatch:
        return [], reader.used
    return (facts, -1) if reader.used == len(data) else ([], reader.used)


def test_count_equal_stops_at_the_first_difference() -> None:
    for count in range(RUN_MIN, 12):
        for changed in range(1, count + 1):
            pieces = [bytearray(b"same%c" % number) for number in range(count)]
            if changed < count:
                pieces[changed][2] ^= 1
            data = b"begin" + b"".join(pieces) + b"same"
            run = count_equal(data, 5, 5, count, (3, 2, 0, 1))
            assert run == changed if changed >= RUN_MIN else run < RUN_MIN


@pytest.mark.parametrize("fact", [(b"key", b"value"), (b"k" * 70, b"v" * 28), (b"", b"")], ids=["small", "larger", "empty"])
@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("changed", [2, 11, 23])
def test_a_changed_byte_is_found_in_any_batch_of_a_run(fact: Fact, verify: bool, changed: int) -> None:
    batch = build_facts([fact], 1_000)
    size = len(batch)
    intact = bytearray(stamped([batch] * 24 + [build_facts([(b"last", b"2")], 5)], STEP))
    random = Random(changed)
    for at in range(size):
        data = intact[:]
        data[changed * size + at] ^= 1 << random.randrange(8)
        assert read(bytes(data), verify) == read_by_facts_of(bytes(data), verify)
        with_checksum(data, changed * size, changed * size + size)
        assert read(bytes(data), verify) == read_by_facts_of(bytes(data), verify)


ALIKE: list[Fact] = [(b"key%03d" % number, b"value") for number in range(600)]
ERASED: list[Fact] = [(b"key%03d" % number, None) for number in range(600)]
ODD: dict[str, Fact] = {
    "as long": (b"key01", b"value0"),
    "a tombstone": (b"key0100000", None),
    "longer": (b"key0100", b"value"),
    "none": (b"key", b"value"),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("verify", [True, False])
def test_a_batch_unlike_its_neighbours_is_read_correctly(name: str, verify: bool) -> None:
    for place in (0, 1, 2, 7, 40, RUN_MAX, RUN_MAX + 1, 599):
        for facts_around in (ALIKE, ERASED):
            facts = [*facts_around[:place], ODD[name], *facts_around[place + 1 :]]
            assert read(stamped([build_facts([fact], 1_000) for fact in facts], STEP), verify) == (facts, -1)


def test_offsets_that_do_not_grow_and_the_end_are_found_in_a_run() -> None:
    batch = build_facts([(b"key", b"value")], 1_000)
    size = len(batch)
    for changed in range(1, 24):
        data = bytearray(stamped([batch] * 24, STEP))
        stamp(data, changed * size, 200 * (changed - 1), 3)
        for verify in (True, False):
            with pytest.raises(CorruptBatch, match=f"offset {200 * (changed - 1)} between {200 * (changed - 1)} and"):
                FactReader(-1, END, END, verify).read(bytes(data))
            reader = FactReader(-1, 200 * changed, END, verify)
            assert len(reader.read(stamped([batch] * 24, STEP))) == changed
            assert reader.ended
            assert reader.used == changed * size


UNLIKE = (
    Record(0, 1_000, b"another key", b"value"),
    Record(0, 1_000, b"key 00", b"another value"),
    Record(0, 1_000, b"key 00", None),
    Record(0, 1_000, None, b"value0"),
    Record(0, 1_000, b"key 00", b"value0", ((b"h", None),)),
    Record(0, 1_000, b"key 00", b"v", ((b"h", b"x\0"),)),  # same size and same last bytes as the other records
    Record(0, 5_000, b"key 00", b"value0"),
    Record(0, 1_001, b"key 0", b"value00"),
)


@pytest.mark.parametrize("unlike", range(len(UNLIKE)))
@pytest.mark.parametrize("place", [0, 1, 2, 5, 30, 63, 64, 70, 149])
@pytest.mark.parametrize("spread_ms", [1, 3])
def test_a_record_unlike_its_neighbours_is_read_correctly(unlike: int, place: int, spread_ms: int) -> None:
    records = [Record(number, 1_000 + number % spread_ms, b"key %02d" % (number % 100), b"value%d" % (number % 10)) for number in range(150)]
    records[place] = Record(place, UNLIKE[unlike].timestamp, UNLIKE[unlike].key, UNLIKE[unlike].value, UNLIKE[unlike].headers)
    expected = [(record.key or b"", record.value) for record in records] * 3
    assert read(stamped([build(records)] * 3, STEP), True) == (expected, -1)


@pytest.mark.parametrize("place", [0, 3, 9, 70, 79])
def test_a_changed_byte_is_found_in_any_record_of_a_run(place: int) -> None:
    """With a valid checksum, a changed record gives the same result or refusal as reading each record alone."""
    batch = build_facts([(b"key %02d" % number, b"value") for number in range(80)], 1_000)
    size = 18  # bytes of each of the first 64 records; later ones have one more
    begin = 61 + place * size + max(place - 64, 0)
    for at in range(begin, begin + size + 1):
        for flip in (1, 2, 128):
            data = bytearray(stamped([batch] * 2, STEP))
            data[len(batch) + at] ^= flip
            with_checksum(data, len(batch), 2 * len(batch))
            assert read(bytes(data), True) == read_by_facts_of(bytes(data), True)
