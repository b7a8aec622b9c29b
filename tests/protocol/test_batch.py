"""Record batches: built, stamped, validated and read; against Kafka's own producers, its dump tool and two other readers.

`golden_batches.json` holds log segments as Kafka 4.3.1 wrote them for its Java producer, kafka-python 3.0.12 and librdkafka
2.16.0: the four records below, or one of 70,000 bytes.
"""

from __future__ import annotations

import json
import tracemalloc
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.records.readers import read_batch

from protocol.batch import (
    HEADER,
    HEADER_BYTES,
    Compression,
    CorruptBatch,
    Record,
    TimestampType,
    batch_end,
    build,
    build_facts,
    facts_of,
    iterate_headers,
    read_header,
    records,
    stamp,
    validate,
)
from protocol.batch_times import record_times
from protocol.errors import EncodeError
from tests.oracle import run_java
from tests.support.batch_bytes import sealed

with warnings.catch_warnings():  # kafka-python reads its schemas with a deprecated function
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import MemoryRecords

T = 1_700_000_000_000
TEXT = b"abcdefghij" * 8
TRACE = ((b"trace", b"0af7"), ("größe".encode(), None), (b"trace", b""))
FOUR = [
    Record(0, T, b"key-0", b"value-0-" + TEXT),
    Record(1, T + 1_500, None, b"value-1-" + TEXT),
    Record(2, T - 70_000, b"key-2", None),
    Record(3, T + 4_500, b"key-3", b"value-3-" + TEXT, TRACE),
]
LARGE = [Record(0, T, b"key-0", b"tenure " * 10_000)]
GOLDEN = json.loads((Path(__file__).parent / "golden_batches.json").read_text())
CODECS = list(Compression)
FIELDS = (
    *("base_offset", "length", "leader_epoch", "magic", "crc", "attributes", "last_offset_delta"),
    *("base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "record_count"),
)

int64 = st.integers(-(1 << 62), (1 << 62) - 1)
maybe_bytes = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.binary(max_size=70), maybe_bytes), max_size=3)


@st.composite
def batches(draw: st.DrawFn) -> tuple[int, list[Record]]:
    base = draw(st.integers(0, (1 << 62)))
    deltas = sorted(draw(st.sets(st.integers(0, (1 << 31) - 1) | st.integers(0, 70), min_size=1, max_size=8)))
    return base, [Record(base + delta, draw(int64), draw(maybe_bytes), draw(maybe_bytes), draw(headers)) for delta in deltas]


def changed(batch: bytes, **fields: int) -> bytes:
    """The batch with other header fields and the right checksum."""
    values = dict(zip(FIELDS, HEADER.unpack_from(batch), strict=True)) | fields
    return sealed(HEADER.pack(*values.values()) + batch[HEADER_BYTES:])


def with_body(body: bytes, count: int = 1, compression: Compression = Compression.NONE) -> bytes:
    """A batch with this body, which may be invalid."""
    header_and_body = changed(build(FOUR), length=HEADER_BYTES - 12 + len(body), record_count=count, attributes=compression)
    return sealed(header_and_body[:HEADER_BYTES] + body)


# Round trips.


@given(batches(), st.sampled_from(CODECS), st.booleans(), st.booleans())
def test_a_built_batch_is_read_back(made: tuple[int, list[Record]], codec: Compression, control: bool, transactional: bool) -> None:
    base, given_records = made
    batch = build(given_records, base_offset=base, compression=codec, control=control, transactional=transactional)
    header = validate(batch, 0, len(batch))
    assert records(batch, 0) == given_records
    assert (header.size, header.base_offset, header.last_offset) == (len(batch), base, given_records[-1].offset)
    assert (header.compression, header.is_control, header.is_transactional) == (codec, control, transactional)
    assert header.max_timestamp == max(record.timestamp for record in given_records)
    assert header.record_count == len(given_records)


@given(st.lists(st.tuples(st.binary(max_size=3000), maybe_bytes), min_size=1, max_size=200), st.integers(0, 1 << 60))
def test_facts_are_built_as_records_are(facts: list[tuple[bytes, bytes | None]], timestamp: int) -> None:
    batch = build_facts(facts, timestamp)
    assert batch == build([Record(n, timestamp, key, value) for n, (key, value) in enumerate(facts)])
    assert list(facts_of(batch)) == facts


def test_many_facts_are_read_back() -> None:
    facts = [(b"key-%d" % n, b"v" * n if n % 3 else None) for n in range(9_000)]
    assert list(facts_of(build_facts(facts, T))) == facts


def test_every_field_of_the_header_is_where_kafka_has_it() -> None:
    batch = build(FOUR, base_offset=0, leader_epoch=7, producer_id=11, producer_epoch=12, base_sequence=13, transactional=True)
    header = read_header(b"..." + batch, 3)
    fields = {name: getattr(header, name) for name in ("size", *FIELDS) if name not in ("crc", "length")}
    assert fields == {
        "base_offset": 0,
        "size": len(batch),
        "leader_epoch": 7,
        "magic": 2,
        "attributes": 0x10,
        "last_offset_delta": 3,
        "base_timestamp": T,
        "max_timestamp": T + 4_500,
        "producer_id": 11,
        "producer_epoch": 12,
        "base_sequence": 13,
        "record_count": 4,
    }
    assert (header.last_offset, header.next_offset) == (3, 4)


def test_with_log_append_time_every_record_has_the_newest_timestamp() -> None:
    batch = build(FOUR, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert validate(batch, 0, len(batch)).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert {record.timestamp for record in records(batch, 0)} == {T + 4_500}


def test_stamping_changes_offsets_and_epoch_and_leaves_the_checksum_right() -> None:
    batch = bytearray(b"...." + build(FOUR))
    before = bytes(batch)
    stamp(batch, 4, 1 << 40, 9)
    header = validate(bytes(batch), 4, len(batch))
    assert (header.base_offset, header.leader_epoch, header.last_offset) == (1 << 40, 9, (1 << 40) + 3)
    assert (bytes(batch[:4]), bytes(batch[12:16]), bytes(batch[20:])) == (before[:4], before[12:16], before[20:])
    assert [record.offset for record in records(bytes(batch), 4)] == [(1 << 40) + n for n in range(4)]


def test_consecutive_batches_are_iterated() -> None:
    built = [build_facts([(b"k", b"v" * n)] * n, T) for n in (1, 2, 3)]
    data = b"".join(built)
    assert [header.record_count for header in iterate_headers(data, 0, len(data))] == [1, 2, 3]
    assert [header.record_count for header in iterate_headers(data, len(built[0]), len(data) - len(built[2]))] == [2]
    assert batch_end(data, 0) == len(built[0])
    assert len(list(facts_of(data))) == 6
    with pytest.raises(CorruptBatch, match="cut short"):
        list(iterate_headers(data, 0, len(data) - 1))


def test_control_batches_have_no_facts() -> None:
    marker = build([Record(0, T, b"\0\0\0\1", b"\0\0\0\0\0\0")], control=True, transactional=True)
    assert list(facts_of(marker + build_facts([(b"k", None)], T))) == [(b"k", None)]


def test_facts_are_read_from_compressed_batches_and_a_missing_key_is_empty() -> None:
    data = b"".join(build(FOUR, compression=codec) for codec in CODECS)
    assert list(facts_of(data)) == [(record.key or b"", record.value) for record in FOUR] * len(CODECS)


def test_a_batch_that_the_cleaner_emptied_is_sound() -> None:
    empty = with_body(b"", count=0)
    assert (validate(empty, 0, len(empty)).next_offset, records(empty, 0), list(facts_of(empty))) == (4, [], [])


def test_values_too_large_for_their_field_raise_encode_error() -> None:
    for record in (Record(0, 1 << 63, b"", b""), Record(1 << 31, T, b"", b"")):
        with pytest.raises(EncodeError):
            build([record])


# Corrupt bytes.


def test_every_flipped_bit_that_the_checksum_covers_is_found() -> None:
    for batch in (build(FOUR), build(FOUR, compression=Compression.ZSTD)):
        for bit in range(8 * len(batch)):
            at = bit // 8
            if at < 8 or 12 <= at < 16:  # base offset and epoch, which a log stamps
                continue
            flipped = bytearray(batch)
            flipped[at] ^= 1 << bit % 8
            with pytest.raises(CorruptBatch):
                validate(bytes(flipped), 0, len(flipped))


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_cut_anywhere_is_refused(codec: Compression) -> None:
    batch = build(FOUR, compression=codec)
    for cut in range(len(batch)):
        with pytest.raises(CorruptBatch):
            validate(batch[:cut], 0, cut)
        with pytest.raises(CorruptBatch, match=r"a batch( header)? is cut short"):
            records(batch[:cut], 0)
        with pytest.raises(CorruptBatch):
            list(facts_of(batch + batch[: cut or 1]))


@pytest.mark.parametrize("codec", CODECS)
def test_records_cut_anywhere_inside_a_sound_batch_are_refused(codec: Compression) -> None:
    body = build(FOUR, compression=codec)[HEADER_BYTES:]
    for cut in range(len(body)):
        batch = with_body(body[:cut], 4, codec)
        validate(batch, 0, len(batch))
        with pytest.raises(CorruptBatch):
            records(batch, 0)
        with pytest.raises(CorruptBatch):
            list(facts_of(batch))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"magic": 1}, "magic 1"),
        ({"length": 48}, "says 60 bytes"),
        ({"length": -1}, "says 11 bytes"),
        ({"length": 1 << 30}, "cut short"),
        ({"record_count": -1}, "-1 records"),
        ({"record_count": 5}, "5 records for 4 offsets"),
        ({"last_offset_delta": -1, "record_count": 0}, "0 records for 0 offsets"),
        ({"attributes": 5}, "unknown compression 5"),
        ({"base_offset": -1}, "base offset"),
        ({"base_offset": (1 << 63) - 4}, "base offset"),
    ],
)
def test_an_impossible_header_is_refused_with_a_reason(fields: dict[str, int], reason: str) -> None:
    batch = changed(build(FOUR), **fields)
    with pytest.raises(CorruptBatch, match=reason):
        validate(batch, 0, len(batch))


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ("10 00 00 00 01 01 00 00 00", "as long as"),  # a length of 8 for 6 bytes
        ("0e 00 00 00 01 01 00", "7 bytes with 6 left"),
        ("01 00 00 00 01 01 00", "-1 bytes"),
        ("ff ff ff ff 0f 00 00", "bytes with"),
        ("ff ff ff ff ff ff 0f", "too long"),
        ("0c 00 00 08 01 01 00", "offset delta 4"),
        ("0c 00 00 01 01 01 00", "offset delta -1"),
        ("0c 00 00 00 7e 01 00", "a field of 63 bytes"),
        ("0c 00 00 00 01 7e 00", "a field of 63 bytes"),
        ("0c 00 00 00 01 01 7e", "63 headers"),
        ("0c 00 00 00 01 01 01", "-1 headers"),
        ("10 00 00 00 01 01 02 01 01", "without a name"),
        ("0c 00 00 00 01 01 00 00", "1 bytes after"),
    ],
)
def test_an_impossible_record_is_refused_with_a_reason(record: str, reason: str) -> None:
    with pytest.raises(CorruptBatch, match=reason):
        records(with_body(bytes.fromhex(record)), 0)


def test_a_time_that_overflows_is_read_as_in_java() -> None:
    batch = with_body(bytes.fromhex("1e 00 fe ff ff ff ff ff ff ff ff 01 00 01 01 00"))
    base = read_header(batch, 0).base_timestamp
    assert base > 0
    (record,) = records(batch, 0)
    assert record.timestamp == base + (1 << 63) - 1 - (1 << 64)
    assert list(record_times(batch, 0)) == [(record.timestamp, record.offset)]


@pytest.mark.parametrize("record", ["0d 00 00 00 01 01 00", "0e 00 00 00 01 01 00", "0a 00 00 00 01 01 00", "0c 00 00 00 7e 01 00"])
def test_a_fact_that_does_not_fit_its_record_is_refused(record: str) -> None:
    with pytest.raises(CorruptBatch, match="a record"):
        list(facts_of(with_body(bytes.fromhex(record))))
    with pytest.raises(CorruptBatch, match="a record"):
        list(facts_of(with_body(bytes.fromhex(record) * 2, count=2)))


def test_offsets_that_do_not_grow_are_refused() -> None:
    same = bytes.fromhex("0c 00 00 02 01 01 00") * 2
    with pytest.raises(CorruptBatch, match="delta 1 after 1"):
        records(with_body(same, count=2), 0)


def test_a_count_of_records_that_the_bytes_cannot_hold_costs_nothing() -> None:
    batch = changed(build(FOUR), record_count=(1 << 31) - 1, last_offset_delta=(1 << 31) - 1)
    with pytest.raises(CorruptBatch, match="bytes of records"):
        records(batch, 0)


@given(st.binary(max_size=60), st.integers(0, 9), st.sampled_from(CODECS))
def test_noise_for_records_gives_records_or_corrupt_batch(noise: bytes, count: int, codec: Compression) -> None:
    batch = with_body(noise, count, codec)
    for read in (lambda: records(batch, 0, 1 << 20), lambda: list(facts_of(batch, 1 << 20))):
        with suppress(CorruptBatch):
            read()


@given(st.binary(max_size=200))
def test_noise_for_a_batch_is_refused(noise: bytes) -> None:
    for read in (lambda: validate(noise, 0, len(noise)), lambda: records(noise, 0)):
        with pytest.raises(CorruptBatch):
            read()


@given(st.sampled_from(CODECS), st.data())
def test_changed_bytes_of_records_give_records_or_corrupt_batch(codec: Compression, data: st.DataObject) -> None:
    body = bytearray(build(FOUR, compression=codec)[HEADER_BYTES:])
    for at in data.draw(st.lists(st.integers(0, len(body) - 1), min_size=1, max_size=3)):
        body[at] = data.draw(st.integers(0, 255))
    batch = with_body(bytes(body), 4, codec)
    for read in (lambda: records(batch, 0, 1 << 20), lambda: list(facts_of(batch, 1 << 20))):
        with suppress(CorruptBatch):
            read()


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_decompression_bomb_is_refused_with_little_memory(codec: Compression) -> None:
    bomb = build([Record(0, T, None, bytes(30_000_000))], compression=codec)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch, match="more than 1000000 bytes"):
            records(bomb, 0, 1_000_000)
        assert tracemalloc.get_traced_memory()[1] < 2_500_000 + 2 * len(bomb)
    finally:
        tracemalloc.stop()


# Other implementations.


def contents(decoded: list[Record]) -> list[Any]:
    return [(record.offset, record.key, record.value, record.headers) for record in decoded]


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: f"{golden['client']}-{golden['codec']}-{golden['records']}")
def test_batches_stored_by_kafka_are_read(golden: dict[str, str]) -> None:
    log = bytes.fromhex(golden["log"])
    decoded: list[Record] = []
    at = 0
    for header in iterate_headers(log, 0, len(log)):
        assert validate(log, at, len(log)).crc == header.crc
        if not header.is_control:
            assert header.compression.name.lower() == golden["codec"]
            decoded += records(log, at)
        at += header.size
    expected = FOUR if golden["records"] == "four" else LARGE
    if golden["client"] == "kafka-python":  # cannot send a header with a null value, so its last record lacks that header
        expected = [*FOUR[:3], Record(3, T + 4_500, b"key-3", FOUR[3].value, [TRACE[0], TRACE[2]])]
    assert decoded == expected


@pytest.mark.parametrize("golden", [golden for golden in GOLDEN if golden["codec"] == "none"], ids=lambda golden: golden["client"])
def test_uncompressed_batches_of_kafka_are_rebuilt_byte_for_byte(golden: dict[str, str]) -> None:
    log = bytes.fromhex(golden["log"])
    built = b""
    for header in iterate_headers(log, 0, len(log)):
        built += build(
            records(log, len(built)),
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
        )
    assert built == log


def test_kio_reads_our_batches() -> None:
    batch, size = read_batch(build(FOUR, leader_epoch=3, producer_id=5, producer_epoch=6, base_sequence=7), 0)
    assert contents(FOUR) == [
        (record.offset, record.key, record.value, tuple((header.key, header.value) for header in record.headers))
        for record in batch.records
    ]
    assert (batch.partition_leader_epoch, batch.producer_id, batch.producer_epoch, batch.base_sequence) == (3, 5, 6, 7)
    assert size == batch.batch_length + 12


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_kafka_python_reads_our_batches(codec: Compression) -> None:
    data = build(FOUR, compression=codec) + build_facts([(b"k", None), (b"", b"v")], T)
    memory = MemoryRecords(data)
    decoded: list[Any] = []
    base = 0
    while memory.has_next():
        batch = memory.next_batch()
        assert batch is not None
        assert batch.validate_crc()
        decoded += [(r.timestamp, r.key, r.value, tuple((name.encode(), value) for name, value in r.headers)) for r in batch]
        base += 1
    expected_records = [*FOUR, Record(0, T, b"k", None), Record(1, T, b"", b"v")]
    assert decoded == [(r.timestamp, r.key, r.value, r.headers) for r in expected_records]
    assert base == 2


@pytest.mark.kafka
def test_kafkas_dump_tool_reads_our_batches(tmp_path: Path) -> None:
    """Every codec, with records larger than one of its blocks, in one segment."""
    segment = bytearray()
    offset = 0
    for codec in CODECS:
        batch_records = [Record(offset + n, T + n, b"key-%d" % n, (b"%d," % n) * 20_000, TRACE) for n in range(3)]
        segment += build(batch_records, base_offset=offset, leader_epoch=4, compression=codec)
        offset += len(batch_records)
    at = len(segment)
    segment += build_facts([(b"last", b"fact")], T)
    stamp(segment, at, offset, 4)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(segment)
    dump = run_java("org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--print-data-log", "--files", path)
    heads = [line.split() for line in dump.splitlines() if line.startswith("baseOffset:")]
    assert [line[line.index("compresscodec:") + 1] for line in heads] == ["none", "gzip", "snappy", "lz4", "zstd", "none"]
    assert all(line[line.index("isvalid:") + 1] == "true" for line in heads)
    lines = [line for line in dump.splitlines() if line.startswith("| offset:")]
    assert [int(line.split()[2]) for line in lines] == list(range(offset + 1))
    for line, n in zip(lines[:-1], [0, 1, 2] * len(CODECS), strict=True):
        assert line.endswith(f"payload: {f'{n},' * 20_000}")
        assert f"key: key-{n} " in line
    assert "key: last payload: fact" in lines[-1]
    assert "invalid" not in dump.lower().replace("isvalid", "")
