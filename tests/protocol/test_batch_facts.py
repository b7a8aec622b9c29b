"""The fast fact reader agrees with the general one, in results and refusals."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.batch import CorruptBatch, Fact, Record, build, build_facts, facts_of, iterate_headers, stamp, validate
from protocol.batch_facts import FactReader
from protocol.batch_record import read_keys
from protocol.compression import Compression
from tests.depth import DEPTH
from tests.support.batch_bytes import sealed, stamped

pytestmark = pytest.mark.once  # no dependence on the Python version

END = 1 << 40
STEP = 100  # the distance of the base offsets of batches


def read(data: bytes, verify: bool = True, end_offset: int = END) -> list[Fact]:
    reader = FactReader(-1, end_offset, END, verify)
    facts = reader.read(data)
    assert reader.used == len(data) or reader.ended
    return facts


SIZES = st.one_of(st.integers(0, 6), st.sampled_from([50, 56, 57, 58, 62, 63, 64, 65, 127, 128, 129, 300, 8190, 8200, 20_000]))
FACTS = st.tuples(SIZES.map(lambda size: b"k" * size), st.one_of(st.none(), SIZES.map(lambda size: b"v" * size)))


@settings(max_examples=16 * DEPTH)
@given(st.lists(st.tuples(st.lists(FACTS, min_size=1, max_size=3), st.sampled_from(list(Compression))), max_size=6), st.booleans())
def test_the_fast_reader_returns_the_facts_of_the_general_reader(contents: list[tuple[list[Fact], Compression]], verify: bool) -> None:
    batches = []
    for number, (facts, codec) in enumerate(contents):
        if codec and len(facts) > 1:
            batches.append(build([Record(n, 7 * n, key, value) for n, (key, value) in enumerate(facts)], compression=codec))
        else:
            batches.append(build_facts(facts, 1_000 + number))
    data = stamped(batches, STEP)
    assert read(data, verify) == list(facts_of(data)) == [fact for facts, _ in contents for fact in facts]


ODD = {
    "no key": build([Record(0, 1, None, b"v")]),
    "headers": build([Record(0, 1, b"k", b"v", [(b"h", b"1")])]),
    "neither": build([Record(0, 1, None, None)]),
    "later in its batch": build([Record(5, 1, b"k", b"v")]),
    "control": build([Record(0, 1, b"\0\0\0\1", b"\0\0\0\0\0\0")], control=True, transactional=True),
    "transactional": build([Record(0, 1, b"k", b"v")], transactional=True, producer_id=7, producer_epoch=0, base_sequence=0),
}


@pytest.mark.parametrize("name", ODD)
def test_unusual_batches_are_read_by_the_fast_reader(name: str) -> None:
    data = stamped([build_facts([(b"a", b"1")], 5), ODD[name], build_facts([(b"b", None)], 5)], STEP)
    assert read(data) == list(facts_of(data))
    assert len(read(data)) == (2 if name == "control" else 3)


@pytest.mark.parametrize("fact", [(b"key", b"value"), (b"k" * 70, b"v" * 28), (b"key", None), (b"", b"")])
def test_every_flipped_bit_is_refused_or_changes_nothing(fact: Fact) -> None:
    first = build_facts([(b"first", b"1")], 5)
    data = stamped([first, build_facts([fact], 1_000), build_facts([(b"last", b"2")], 5)], STEP)
    begin, last_begin = len(first), len(data) - len(build_facts([(b"last", b"2")], 5))
    for bit in range(8 * begin, 8 * last_begin):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        reader = FactReader(-1, END, 300, True)
        facts: list[Fact] = []
        try:
            facts = reader.read(bytes(flipped))
        except CorruptBatch:
            assert reader.used in (begin, last_begin)  # a changed offset is noticed at the next batch
            continue
        at = bit // 8 - begin
        if reader.used == len(data):
            assert facts == read(data)
            assert at < 8 or 12 <= at < 16  # not covered by the checksum: the epoch, and an offset that is still in order
        else:
            assert reader.used == begin
            assert 8 <= at < 12  # the length now points past the end, so the batch looks incomplete


@pytest.mark.parametrize("fact", [(b"key", b"value"), (b"k" * 70, b"v" * 28), (b"k", b"v" * 200)])
def test_malformed_records_under_a_valid_checksum_are_not_read_past_the_batch(fact: Fact) -> None:
    """The fast reader returns or refuses the same as the general one."""
    batch = build_facts([fact], 1_000)
    last = build_facts([(b"last", b"2")], 5)
    for at in range(61, len(batch)):
        for byte in (0, 1, 2, 63, 64, 127, 128, 129, 255, batch[at] ^ 1, batch[at] ^ 2):
            data = stamped([sealed(batch[:at] + bytes([byte]) + batch[at + 1 :]), last], STEP)
            validate(data, 0, len(data))
            results: list[list[Fact] | None] = []
            for read_facts in (read, lambda data: list(facts_of(data))):
                try:
                    results.append(read_facts(data))
                except CorruptBatch:
                    results.append(None)
            assert results[0] == results[1]


def test_reading_in_pieces_consumes_whole_batches_and_reports_the_bytes_used() -> None:
    batches = [build_facts([(b"k%d" % n, b"v" * n)], n) for n in range(40)]
    data = stamped(batches, STEP)
    for size in (250, 1000, 5000):
        reader = FactReader(-1, END, END, True)
        at, facts = 0, []
        while at < len(data):
            facts += reader.read(data[at : at + size])
            assert reader.used
            at += reader.used
        assert facts == list(facts_of(data))
        assert reader.last_offset == 3900
    assert FactReader(-1, END, END, True).read(data[:69]) == []


@pytest.mark.parametrize("records", [1, 2])
def test_reading_stops_before_the_requested_end_offset(records: int) -> None:
    data = stamped([build_facts([(b"k%d" % n, b"v")] * records, n) for n in range(5)], STEP)
    last = records - 1
    for end in range(500):
        reader = FactReader(-1, end, END, True)
        keys = {key for key, _ in reader.read(data)}
        complete = sum(100 * n + last < end for n in range(5))
        assert len(keys) == complete
        assert reader.ended == (complete < 5)


@pytest.mark.parametrize("records", [1, 2])
def test_offsets_that_do_not_grow_or_exceed_the_known_end_are_refused(records: int) -> None:
    facts = build_facts([(b"k", b"v")] * records, 1)
    second_batch = bytearray(stamped([facts, facts], STEP))
    stamp(second_batch, len(facts), 0, 3)
    with pytest.raises(CorruptBatch, match="offset 0 between"):
        FactReader(-1, END, END, False).read(bytes(second_batch))
    for end in (50, END):
        with pytest.raises(CorruptBatch, match="offset 100 between"):
            FactReader(-1, end, 100, False).read(stamped([facts, facts], STEP))
    assert [header.base_offset for header in iterate_headers(stamped([facts, facts], STEP), 0, 2 * len(facts))] == [0, 100]


KEYED = st.tuples(st.one_of(st.none(), SIZES.map(lambda size: b"k" * size)), st.one_of(st.none(), SIZES.map(lambda size: b"v" * size)))


@settings(max_examples=13 * DEPTH)
@given(st.lists(st.tuples(KEYED, st.integers(1, 9_000), st.integers(-9_000, 9_000)), min_size=1, max_size=70))
def test_read_keys_agrees_with_the_records(contents: list[tuple[tuple[bytes | None, bytes | None], int, int]]) -> None:
    records, offset = [], -1
    for (key, value), gap, time in contents:
        offset += gap
        records.append(Record(offset, 10_000 + time, key, value))
    batch = build(records)
    assert read_keys(batch, 61, len(batch), len(records)) == [(record.offset, record.key, record.value is None) for record in records]
    with pytest.raises((CorruptBatch, IndexError)):
        read_keys(batch[:-1], 61, len(batch) - 1, len(records))
