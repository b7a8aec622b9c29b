"""Produce, record batches and InitProducerId with every field at its extremes: the requests. produce.py sends them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import cramjam

from protocol.compression import Compression, compress
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.recorded.extremes import LONGEST, MANY
from tests.support.produce_batches import (
    HOUR_MS,
    INT16,
    INT32,
    INT64,
    LIMITS,
    NAMES,
    THEN,
    batch,
    batch_of_size,
    batch_of_three,
    blob,
    old_message,
    plain_batch,
    producer_batch,
    record,
    varint,
)

INTERNAL: Final = "__consumer_offsets"

# Topics by kind, with their settings; a case names the kind of its topic.
KINDS: Final[dict[str, dict[str, str]]] = {
    "plain": {},
    "compact": {"cleanup.policy": "compact"},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "old-refused": {"message.timestamp.before.max.ms": "10000", "message.timestamp.after.max.ms": "10000"},
    "small": {"max.message.bytes": "1000"},
    "wide": {"max.message.bytes": "5000000", "segment.bytes": "1048576"},
    "two-in-sync": {"min.insync.replicas": "2"},
    "gzip": {"compression.type": "gzip"},
    "snappy": {"compression.type": "snappy"},
    "lz4": {"compression.type": "lz4"},
    "zstd": {"compression.type": "zstd"},
    "uncompressed": {"compression.type": "uncompressed"},
    "gzip-append-time": {"compression.type": "gzip", "message.timestamp.type": "LogAppendTime"},
    "gzip-small": {"compression.type": "uncompressed", "max.message.bytes": "1000"},
    "gzip-compact": {"compression.type": "gzip", "cleanup.policy": "compact"},
}


Body = Callable[[str, int, int], bytes]  # topic, partition, now -> the request's body


class Case(NamedTuple):
    name: str
    kind: str
    version: int
    requests: tuple[Body, ...]  # sent one after the other; each reply is compared
    key: int = ProduceRequest.API_KEY


def produce(
    records: bytes | Callable[[int], bytes] | None,
    acks: int = -1,
    timeout_ms: int = 1500,
    transactional_id: str | None = None,
    version: int = 9,
    end: int | None = None,
    trailing: bytes = b"",
) -> Body:
    def body(topic: str, partition: int, now: int) -> bytes:
        data = records(now) if callable(records) else records
        request = ProduceRequest(transactional_id, acks, timeout_ms, [TopicProduceData(topic, [PartitionProduceData(partition, data)])])
        return request.encode(version)[:end] + trailing

    return body


def to_topics(make: Callable[[str, int], list[TopicProduceData]]) -> Body:
    return lambda topic, partition, now: ProduceRequest(None, -1, 1500, make(topic, partition)).encode(9)


def case(name: str, records: bytes | Callable[[int], bytes] | None, kind: str = "plain", version: int = 9, **more: Any) -> Case:
    return Case(name, kind, version, (produce(records, version=version, **more),))


def case_of_requests(name: str, *batches: bytes, kind: str = "plain") -> Case:
    return Case(name, kind, 9, tuple(produce(batch_fields) for batch_fields in batches))


def families() -> dict[str, Callable[[], Iterator[Case]]]:
    sources = (of_requests, of_topics, of_headers, of_sizes, of_records, of_codecs, of_compact_topics, of_timestamps, of_settings)
    return {source.__name__: source for source in (*sources, of_producers, of_producer_ids, of_unknown_attributes)}


def every_case() -> Iterator[Case]:
    for family in families().values():
        yield from family()


def of_requests() -> Iterator[Case]:
    for version in range(3, 13):
        yield case(f"v{version}", plain_batch(), version=version)
        yield case(f"v{version}, a batch of another magic", plain_batch(magic=1), version=version)
        yield case(f"v{version}, a record without a key in a compacted topic", batch(record(key=None)), "compact", version)
        yield case(f"v{version}, no such codec", plain_batch(attributes=5), version=version)
        yield case(f"v{version}, zstd", batch(record(), codec=4), version=version)
    for version in (0, 1, 2):
        yield Case(f"v{version}", "plain", version, (produce(plain_batch(), version=3),))
    for acks in (0, 1, 2, -2, *INT16):
        yield case(f"acks {acks}", plain_batch(), acks=acks)
    yield case("acks 0 and a checksum that is wrong", plain_batch(crc=1), acks=0)
    yield case("acks 2 and a checksum that is wrong", plain_batch(crc=1), acks=2)
    yield case("acks 2 and another magic", plain_batch(magic=1), acks=2)
    yield Case("acks 2 and no such topic", "plain", 9, (lambda topic, partition, now: produce(plain_batch(), acks=2)("nothing", 0, now),))
    for timeout in (0, -1, *INT32):
        yield case(f"timeout {timeout}", plain_batch(), timeout_ms=timeout)
    for id in ("", "t", "t" * LONGEST):
        yield case(f"transactional id of {len(id)} characters", plain_batch(), transactional_id=id)
        yield case(f"transactional id of {len(id)} characters, v3", plain_batch(), transactional_id=id, version=3)
    for version in (3, 8, 9, 12):
        yield Case(f"v{version} cut short", "plain", version, (produce(plain_batch(), version=version, end=-80),))
        yield Case(f"v{version} with bytes behind it", "plain", version, (produce(plain_batch(), version=version, trailing=b"\0\1\2"),))
        yield Case(f"v{version} empty", "plain", version, (lambda t, p, now: b"",))
    none = produce(None)
    yield Case("no topics: null", "plain", 9, (lambda t, p, now: none(t, p, now)[:7] + b"\0\0",))


def of_topics() -> Iterator[Case]:
    def named(name: str) -> Body:
        return to_topics(lambda t, p: [TopicProduceData(name, [PartitionProduceData(0, plain_batch())])])

    def in_partition(index: int) -> Body:
        return to_topics(lambda t, p: [TopicProduceData(t, [PartitionProduceData(index, plain_batch())])])

    for title, name in {
        "unknown": "nothing", "empty": "", "of the greatest length": "n" * LONGEST, "of snowmen": "\N{SNOWMAN}" * 10_922,
        "not allowed": "a b/c", "control characters": "\0\n\x7f", "internal": INTERNAL, "of 249 characters": "n" * 249,
    }.items():  # fmt: skip
        yield Case(f"topic: {title}", "plain", 9, (named(name),))
    for index in (-1, 1_000_000, *INT32):
        yield Case(f"partition {index}", "plain", 9, (in_partition(index),))

    def topics(name: str, make: Callable[[str, int], list[TopicProduceData]]) -> Case:
        return Case(name, "plain", 9, (to_topics(make),))

    def part(p: int, **fields: int) -> PartitionProduceData:
        return PartitionProduceData(p, plain_batch(**fields))

    yield topics("no topics", lambda t, p: [])
    yield topics("a topic without partitions", lambda t, p: [TopicProduceData(t, [])])
    yield topics("an unknown topic without partitions", lambda t, p: [TopicProduceData("nothing", [])])
    yield topics(
        "an unknown topic beside an existing topic", lambda t, p: [TopicProduceData("nothing", [part(0)]), TopicProduceData(t, [part(p)])]
    )
    yield topics("a missing partition beside an existing partition", lambda t, p: [TopicProduceData(t, [part(INT32[1]), part(p)])])
    yield topics("a partition twice", lambda t, p: [TopicProduceData(t, [part(p), PartitionProduceData(p, batch_of_three())])])
    yield topics("a partition twice, the first wrong", lambda t, p: [TopicProduceData(t, [part(p, crc=1), part(p)])])
    yield topics("a partition twice, the first of another magic", lambda t, p: [TopicProduceData(t, [part(p, magic=1), part(p)])])
    yield topics("a partition twice, the second of another magic", lambda t, p: [TopicProduceData(t, [part(p), part(p, magic=1)])])
    yield topics("a topic twice", lambda t, p: [TopicProduceData(t, [part(p)]), TopicProduceData(t, [PartitionProduceData(p, batch_of_three())])])
    yield topics(
        "an unknown topic twice", lambda t, p: [TopicProduceData("nothing", [part(0)]), TopicProduceData("nothing", [part(0), part(1)])]
    )
    yield topics("a wrong checksum beside a good batch", lambda t, p: [TopicProduceData(t, [part(p), part(INT32[1], crc=1)])])
    yield topics("a wrong size beside a good batch", lambda t, p: [TopicProduceData(t, [part(p), part(INT32[1], length=1)])])
    yield topics("null records beside a good batch", lambda t, p: [TopicProduceData(t, [part(p), PartitionProduceData(INT32[1], None)])])
    yield topics("a transactional batch beside a good one", lambda t, p: [TopicProduceData(t, [part(p), part(INT32[1], attributes=16)])])
    yield topics(f"{MANY} missing partitions", lambda t, p: [TopicProduceData(t, [part(INT32[1] - number) for number in range(MANY)])])
    yield topics(f"{MANY} times the same partition", lambda t, p: [TopicProduceData(t, [part(p) for _ in range(MANY)])])
    yield topics(f"{MANY} unknown topics", lambda t, p: [TopicProduceData(f"nothing-{number}", [part(0)]) for number in range(MANY)])


def of_headers() -> Iterator[Case]:
    for name in NAMES:
        values = {0, 1, -1, *LIMITS[name]}
        if name in ("base_timestamp", "max_timestamp"):
            values |= {-2, THEN - 1, THEN + 1, THEN * 2}
        if name == "length":
            values |= {13, 14, 37, 38, 48, 49, 60}
        if name == "magic":
            values |= {3, 4}
        for value in sorted(values):
            if LIMITS[name][0] <= value <= LIMITS[name][1]:
                yield case(f"{name} {value}", plain_batch(**{name: value}))
    for bit in range(16):
        value = 1 << bit if bit < 15 else INT16[0]
        yield case(f"attributes {value:#x}", plain_batch(attributes=value))
    for codec in (5, 6, 7):
        yield case(f"codec {codec}", plain_batch(attributes=codec))
    for counted in (0, 1, 2, 3, 4):
        for delta in (-1, 0, 1, 2, 3):
            yield case(f"three records, counted {counted}, the last at {delta}", batch_of_three(record_count=counted, last_offset_delta=delta))
    for counted in (-1, 0, 1, INT32[1]):
        for delta in (-1, 0, 1, INT32[1] - 1, INT32[1]):
            yield case(f"no records, counted {counted}, the last at {delta}", batch(record_count=counted, last_offset_delta=delta))
    yield case("control and transactional", plain_batch(attributes=0x30))
    yield case("control and compressed", batch(record(), codec=1, attributes=0x21))
    yield case("of a producer without a sequence", plain_batch(producer_id=7, producer_epoch=0))
    yield case("of a producer without an epoch", plain_batch(producer_id=7, base_sequence=0))
    yield case("of a producer with neither", plain_batch(producer_id=7))
    yield case("of a producer, transactional", producer_batch(0, attributes=16))
    yield case("of a producer, transactional, v12", producer_batch(0, attributes=16), version=12)
    yield case("of a producer, transactional, with an id", producer_batch(0, attributes=16), transactional_id="t")
    yield case("of no producer, with an epoch and a sequence", plain_batch(producer_epoch=3, base_sequence=4))
    yield case("of producer 0", producer_batch(0, id=0))
    yield case("of the last producer", producer_batch(0, id=INT64[1]))
    yield case("of producer -2", producer_batch(0, id=-2))


def of_sizes() -> Iterator[Case]:
    plain = plain_batch()
    for size in (0, 1, 8, 11, 12, 13, 16, 17, 18, 20, 21, 22, 23, 26, 43, 60, 61, 62, len(plain) - 1):
        yield case(f"{size} bytes of a batch", plain[:size])
    for more in (1, 11, 12, 16, 17, 26, 60, 61):
        yield case(f"{more} zeros behind the batch", plain + bytes(more))
        yield case(f"{more} bytes of another batch behind the batch", plain + plain[:more])
        yield case(
            f"a batch that is {more} bytes longer than its records", batch(raw=record() + bytes(more), record_count=1, last_offset_delta=0)
        )
    yield case("two batches", plain + plain)
    yield case("two batches, the second of another magic", plain + plain_batch(magic=1))
    yield case("three batches", plain * 3)
    yield case("null", None)
    yield case("null, v3", None, version=3)
    yield case("null, v12", None, version=12)
    yield case("no bytes, v3", b"", version=3)
    yield case("zeros", bytes(100))
    yield case("ones", b"\xff" * 100)
    yield case("a record of magic 0", old_message(0))
    yield case("a record of magic 1", old_message(1))
    yield case("a record of magic 1, v3", old_message(1), version=3)
    yield case("a batch length that is one byte too small", plain_batch(longer=-1))
    yield case("a batch length that is one byte too large", plain_batch(longer=1))
    yield case("a batch length that is one byte too large, and a byte", plain_batch(longer=1) + b"\0")
    yield case("a batch of a header alone", batch(record_count=1, last_offset_delta=0))


def of_records() -> Iterator[Case]:
    def raw(name: str, body: bytes, count: int = 1, kind: str = "plain", **fields: int) -> Iterator[Case]:
        counted = {"record_count": count, "last_offset_delta": count - 1} | fields
        yield case(f"record: {name}", batch(raw=body, **counted), kind)
        yield case(f"record: {name}, zstd", batch(raw=compress(body, 4), attributes=4, **counted), kind)

    yield from raw("a null key", record(key=None))
    yield from raw("a null value", record(value=None))
    yield from raw("a null key and a null value", record(key=None, value=None))
    yield from raw("an empty key and value", record(key=b"", value=b""))
    yield from raw("attributes 1", record(attributes=1))
    yield from raw("attributes 255", record(attributes=255))
    for size in (-1, 0, 1, 5, 6, 1 << 20, *INT32):
        yield from raw(f"of length {size}", varint(size) + record()[1:])
    for longer in (-1, 1):
        yield from raw(f"a length that is wrong by {longer}", record(longer=longer))
        yield from raw(f"a length that is wrong by {longer}, with two behind it", record(longer=longer) + record(1) + record(2), 3)
    yield from raw("bytes behind its fields", record(trailing=b"\0\0"))
    yield from raw("a length of six bytes", b"\x80\x80\x80\x80\x80\x01")
    yield from raw("a length in more bytes than it needs", b"\x9c\x80\0" + record()[1:])
    yield from raw("a length that does not end", b"\xff")
    yield from raw("a timestamp delta that does not end", b"\x20\0" + b"\xff" * 15)
    yield from raw("an offset delta of six bytes", b"\x20\0\0" + b"\xff" * 14)
    for size in (-2, 4, 100, *INT32):
        key = b"\0\0\0" + varint(size) + b"key" + blob(b"value") + b"\0"
        value = b"\0\0\0" + blob(b"key") + varint(size) + b"value" + b"\0"
        yield from raw(f"a key of length {size}", varint(len(key)) + key)
        yield from raw(f"a value of length {size}", varint(len(value)) + value)
    for count in (-1, 1, 2, 100, *INT32):
        yield from raw(f"{count} headers announced", record(headers=varint(count)))
    yield from raw("a header", record(headers=varint(1) + blob(b"name") + blob(b"value")))
    yield from raw("a header without a name", record(headers=varint(1) + blob(None) + blob(b"value")))
    yield from raw("a header without a value", record(headers=varint(1) + blob(b"name") + blob(None)))
    yield from raw("a header with a name of length -2", record(headers=varint(1) + varint(-2) + blob(b"value")))
    yield from raw("a header with a name that is not UTF-8", record(headers=varint(1) + blob(b"\xff\xfe") + blob(b"value")))
    yield from raw("a header that is longer than the record", record(headers=varint(1) + varint(50) + b"name"))
    yield from raw("1000 headers", record(headers=varint(1000) + (blob(b"n") + blob(b"v")) * 1000))
    for delta in (1, -1, 5, *INT32):
        yield from raw(f"an offset delta of {delta}", record(delta))
    yield from raw("offset deltas 0, 0, 0", record(0) * 3, 3)
    yield from raw("offset deltas 2, 1, 0", record(2) + record(1) + record(0), 3)
    yield from raw("offset deltas 0, 2, 5", record(0) + record(2) + record(5), 3)
    yield from raw("offset deltas 0, 2, 5, as wide as that", record(0) + record(2) + record(5), 3, last_offset_delta=5)
    yield from raw("two records and a count of one", record(0) + record(1))
    yield from raw("one record and a count of two", record(0), 2)
    for delta in (1, -1, -THEN - 1, -THEN, -THEN - 2, THEN, *INT64):
        yield from raw(f"a timestamp delta of {delta}", record(timestamp=delta))
    many = b"".join(record(number, timestamp=number % 7) for number in range(MANY))
    yield from raw(f"{MANY} of them", many, MANY, max_timestamp=THEN + 6)
    long = b"".join(record(number, value=bytes(number % 300), timestamp=-number) for number in range(1000))
    yield from raw("a thousand of growing size", long, 1000)


def of_codecs() -> Iterator[Case]:
    for codec in (1, 2, 3, 4):
        name = Compression(codec).name.lower()
        compressed = compress(record(0) + record(1), codec)
        fields = {"attributes": codec, "record_count": 2, "last_offset_delta": 1}
        yield case(name, batch(record(0), record(1), codec=codec))
        yield case(f"{name}: no bytes", batch(raw=b"", **fields))
        yield case(f"{name}: something else", batch(raw=b"this is not compressed at all", **fields))
        yield case(f"{name}: not compressed", batch(raw=record(0) + record(1), **fields))
        yield case(f"{name}: cut short by one", batch(raw=compressed[:-1], **fields))
        yield case(f"{name}: cut in half", batch(raw=compressed[: len(compressed) // 2], **fields))
        yield case(f"{name}: a byte behind it", batch(raw=compressed + b"\0", **fields))
        yield case(f"{name}: twice", batch(raw=compressed + compressed, **fields))
        yield case(f"{name}: the wrong attributes", batch(raw=compressed, **fields | {"attributes": codec % 4 + 1}))
        yield case(f"{name}: a byte changed", batch(raw=compressed[:-9] + bytes([compressed[-9] ^ 1]) + compressed[-8:], **fields))
        yield case(f"{name}: nothing inside", batch(raw=compress(b"", codec), **fields))
        yield case(f"{name}: three counted", batch(record(0), record(1), codec=codec, record_count=3, last_offset_delta=2))
        yield case(f"{name}: one counted", batch(record(0), record(1), codec=codec, record_count=1, last_offset_delta=0))
        yield case(f"{name}: no record counted", batch(record(0), record(1), codec=codec, record_count=0, last_offset_delta=-1))
        yield case(f"{name}: the wrong newest timestamp", batch(record(0), record(1), codec=codec, max_timestamp=THEN + 9))
        yield case(f"{name}: 100 KB of zeros", batch(record(0, value=bytes(100_000)), codec=codec))
    body = record(0)
    yield case(
        "snappy: one raw block", batch(raw=bytes(cramjam.snappy.compress_raw(body)), attributes=2, record_count=1, last_offset_delta=0)
    )
    yield case(
        "snappy: in the standard framing", batch(raw=bytes(cramjam.snappy.compress(body)), attributes=2, record_count=1, last_offset_delta=0)
    )
    yield case(
        "lz4: with a checksum of its content",
        batch(raw=bytes(cramjam.lz4.compress(body)), attributes=3, record_count=1, last_offset_delta=0),
    )


def of_compact_topics() -> Iterator[Case]:
    for kind in ("compact", "gzip-compact"):
        yield case(f"{kind}: a key", plain_batch(), kind)
        yield case(f"{kind}: an empty key", batch(record(key=b"")), kind)
        yield case(f"{kind}: no key", batch(record(key=None)), kind)
        yield case(f"{kind}: no key and no value", batch(record(key=None, value=None)), kind)
        yield case(f"{kind}: a tombstone", batch(record(value=None)), kind)
        yield case(f"{kind}: no key in the middle", batch(record(), record(1, key=None), record(2)), kind)
        yield case(f"{kind}: no key in two of three", batch(record(key=None), record(1), record(2, key=None)), kind)
        yield case(f"{kind}: no key in a hundred", batch(*[record(number, key=None) for number in range(100)]), kind)
        yield case(f"{kind}: no key, gzip", batch(record(), record(1, key=None), codec=1), kind)
        yield case(f"{kind}: no key and too late", lambda now: batch(record(key=None), base_timestamp=now + 2 * HOUR_MS), kind)
        late = [lambda now: batch(record(key=None), record(1, timestamp=2 * HOUR_MS), base_timestamp=now, max_timestamp=now + 2 * HOUR_MS)]
        yield case(f"{kind}: one without a key, one too late", late[0], kind)
        yield case(f"{kind}: key of length -2", batch(raw=b"\x1a\0\0\0\3key\x0avalue\0", record_count=1, last_offset_delta=0), kind)


def of_timestamps() -> Iterator[Case]:
    def at(offset: int, *deltas: int, **fields: int) -> Callable[[int], bytes]:
        parts = [record(number, timestamp=delta) for number, delta in enumerate((0, *deltas))]
        return lambda now: batch(*parts, base_timestamp=now + offset, max_timestamp=now + offset + max(0, *deltas, 0), **fields)

    for kind in ("plain", "append-time", "old-refused", "gzip", "gzip-append-time"):
        yield case(f"{kind}: now", at(0), kind)
        yield case(f"{kind}: two hours ahead", at(2 * HOUR_MS), kind)
        yield case(f"{kind}: the second two hours ahead", at(0, 2 * HOUR_MS, 3), kind)
        yield case(f"{kind}: two of three two hours ahead", at(0, 2 * HOUR_MS, 2 * HOUR_MS), kind)
        yield case(f"{kind}: a hundred two hours ahead", at(2 * HOUR_MS, *range(1, 100)), kind)
        yield case(f"{kind}: two hours ago", at(-2 * HOUR_MS), kind)
        yield case(f"{kind}: long ago", batch(record()), kind)
        yield case(f"{kind}: no timestamp", batch(record(), base_timestamp=-1, max_timestamp=-1), kind)
        yield case(
            f"{kind}: no timestamp in the second", lambda now: batch(record(), record(1, timestamp=-now - 1), base_timestamp=now), kind
        )
        yield case(f"{kind}: of append time", at(0, attributes=8), kind)
        yield case(f"{kind}: of append time, no timestamp", batch(record(), base_timestamp=-1, max_timestamp=-1, attributes=8), kind)
        yield case(f"{kind}: of append time, two hours ahead", at(2 * HOUR_MS, attributes=8), kind)
        yield case(
            f"{kind}: of append time, newest two hours ahead",
            lambda now: batch(record(), attributes=8, base_timestamp=now, max_timestamp=now + 2 * HOUR_MS),
            kind,
        )
        yield case(
            f"{kind}: a max timestamp ahead", lambda now: batch(record(), base_timestamp=now, max_timestamp=now + 2 * HOUR_MS), kind
        )
        yield case(f"{kind}: no max timestamp", lambda now: batch(record(), base_timestamp=now, max_timestamp=-1), kind)
        yield case(
            f"{kind}: an older max timestamp",
            lambda now: batch(record(), record(1, timestamp=60), base_timestamp=now - 100_000, max_timestamp=now - 100_000),
            kind,
        )
        yield case(f"{kind}: a delete horizon", at(0, attributes=0x40), kind)
        yield case(
            f"{kind}: the second without a key, of append time",
            lambda now: batch(record(), record(1, key=None, value=None), attributes=8, base_timestamp=-1, max_timestamp=-1),
            kind,
        )
    for value in (*INT64, -2, 0, 1, INT64[1] - 1):
        for kind in ("plain", "append-time", "gzip"):
            yield case(f"{kind}: all timestamps {value}", batch(record(), base_timestamp=value, max_timestamp=value), kind)


def of_settings() -> Iterator[Case]:
    for kind in ("gzip", "snappy", "lz4", "zstd", "uncompressed", "gzip-append-time"):
        for codec in (0, 1, 2, 3, 4):
            name = Compression(codec).name.lower()
            yield case(
                f"{kind} of {name}",
                batch(record(0), record(1, timestamp=8), record(2, key=None, value=None), codec=codec, max_timestamp=THEN + 8),
                kind,
            )
        yield case(f"{kind}: newest timestamp wrong", batch(record(0), max_timestamp=THEN + 9), kind)
        yield case(f"{kind}: records at offsets 0, 0, 5", batch(record(0), record(0), record(5)), kind)
        yield case(f"{kind}: checksum wrong", plain_batch(crc=1), kind)
        yield case(f"{kind}: of a producer", producer_batch(3, 2), kind)
        yield case(f"{kind}: headers", batch(record(headers=varint(1) + blob(b"name") + blob(None))), kind)
        yield case(f"{kind}: attributes of a record", batch(record(attributes=7)), kind)
        yield case(
            f"{kind}: a value longer than the record", batch(raw=b"\x20\0\0\0\6key\x7evalue\0", record_count=1, last_offset_delta=0), kind
        )
    for size in (999, 1000, 1001, 1500):
        yield case(f"{size} bytes where 1000 are allowed", batch_of_size(size), "small")
        yield case(f"{size} bytes where 1000 are allowed, a wrong checksum", batch_of_size(size, crc=1), "small")
    yield case("2000 bytes in fewer than 1000", batch(record(value=bytes(2000)), codec=1), "small")
    yield case("2000 bytes in fewer than 1000, to be unpacked", batch(record(value=bytes(2000)), codec=1), "gzip-small")
    yield case("more than 1000 bytes that are not of a batch", b"\0" * 2000, "small")
    yield case("more than 1000 bytes, and a base offset", batch(record(value=bytes(2000)), base_offset=1), "small")
    yield case("larger than a segment", batch(record(value=bytes(2_000_000))), "wide")
    yield case("larger than a segment in fewer bytes", batch(record(value=bytes(2_000_000)), codec=1), "wide")
    yield case("1048588 bytes", batch_of_size(1_048_588))
    yield case("1048589 bytes", batch_of_size(1_048_589))
    for acks in (0, 1, -1):
        yield case(f"two replicas wanted, acks {acks}", plain_batch(), "two-in-sync", acks=acks)


def of_producers() -> Iterator[Case]:
    first = producer_batch(0)
    yield case_of_requests("producer: three in order", first, producer_batch(1), producer_batch(2))
    yield case_of_requests("producer: the same again", first, first)
    yield case_of_requests("producer: the same again, another timestamp", first, producer_batch(0, base_timestamp=THEN + 5))
    yield case_of_requests("producer: the same again, an older one", first, producer_batch(1), first)
    yield case_of_requests("producer: the fifth again", *[producer_batch(number) for number in range(5)], first)
    yield case_of_requests("producer: the sixth again", *[producer_batch(number) for number in range(6)], first)
    yield case_of_requests("producer: a part of the batch again", producer_batch(0, 3), producer_batch(1))
    yield case_of_requests("producer: the batch again with more records", producer_batch(0, 2), producer_batch(0, 3))
    yield case_of_requests("producer: one missing", first, producer_batch(2))
    yield case_of_requests("producer: the first is not 0", producer_batch(5))
    yield case_of_requests("producer: the first is the last", producer_batch(INT32[1]), producer_batch(0))
    yield case_of_requests("producer: around the end", producer_batch(INT32[1] - 1, 3), producer_batch(1))
    yield case_of_requests("producer: around the end again", producer_batch(INT32[1] - 1, 3), producer_batch(INT32[1] - 1, 3))
    yield case_of_requests("producer: a gap at the end of the sequence", producer_batch(INT32[1] - 1), producer_batch(0))
    yield case_of_requests("producer: a newer epoch from 0", first, producer_batch(0, epoch=1), producer_batch(1, epoch=1))
    yield case_of_requests("producer: a newer epoch from 1", first, producer_batch(1, epoch=1))
    yield case_of_requests("producer: an older epoch", producer_batch(0, epoch=2), producer_batch(1, epoch=1))
    yield case_of_requests("producer: an older epoch, the same sequence", producer_batch(0, epoch=2), producer_batch(0, epoch=1))
    yield case_of_requests("producer: the last epoch", producer_batch(0, epoch=INT16[1]), producer_batch(1, epoch=INT16[1]))
    yield case_of_requests("producer: after a refusal", first, producer_batch(1, crc=1), producer_batch(1))
    yield case_of_requests("producer: the same again, its checksum wrong", first, producer_batch(0, crc=1))
    yield case_of_requests("producer: two producers", first, producer_batch(0, id=8), producer_batch(1), producer_batch(1, id=8))
    yield case_of_requests("producer: the same again where the broker sets the time", first, first, kind="append-time")
    yield case_of_requests("producer: the same again where the broker compresses", producer_batch(0, 2), producer_batch(0, 2), kind="gzip")
    yield case_of_requests("producer: a batch without a producer between", first, plain_batch(), producer_batch(1))
    for epoch in (-1, -2, INT16[0]):
        yield case_of_requests(f"producer: epoch {epoch}", producer_batch(0, epoch=epoch))
        yield case_of_requests(f"producer: epoch {epoch} after 0", first, producer_batch(1, epoch=epoch))


def of_producer_ids() -> Iterator[Case]:
    def asked(name: str, version: int, *arguments: Any, cut: int | None = None) -> Case:
        body = InitProducerIdRequest(*arguments).encode(version)[:cut]
        return Case(f"producer id v{version}: {name}", "plain", version, (lambda t, p, now: body,), InitProducerIdRequest.API_KEY)

    for version in range(6):
        yield asked("plain", version, None, 60_000)
        yield asked("an empty transactional id", version, "", 60_000)
        yield asked("a transactional id", version, "t", 60_000)
        for timeout in (0, -1, *INT32):
            yield asked(f"timeout {timeout}", version, None, timeout)
        yield asked("cut short", version, None, 60_000, cut=-1)
    yield asked("of the greatest length", 5, "t" * LONGEST, 60_000)
    for version in (3, 5):
        for id in (0, 5, -1, -2, *INT64):
            for epoch in (0, 3, -1, -2, *INT16):
                yield asked(f"of {id} at {epoch}", version, None, 60_000, id, epoch)
    yield asked("of 5 at 3 with a transactional id", 5, "t", 60_000, 5, 3)
    yield asked("of 5 at -1 with a transactional id", 5, "t", 60_000, 5, -1)


def of_unknown_attributes() -> Iterator[Case]:
    def at(attributes: int, later: int) -> Callable[[int], bytes]:
        return lambda now: batch(record(), codec=attributes & 7, attributes=attributes, base_timestamp=now, max_timestamp=now + later)

    for kind in ("plain", "append-time", "gzip", "uncompressed"):
        for attributes in (0x140, 0x141):
            for title, later in {"right": 0, "wrong": 10_000}.items():
                yield case(f"{kind}: attributes {attributes:#x}, the newest timestamp is {title}", at(attributes, later), kind)
