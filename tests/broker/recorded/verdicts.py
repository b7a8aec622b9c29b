"""Batches as no producer writes them, and the verdicts of Kafka's LogValidator and ProducerStateManager: accepted, or refused with which error.

`python -m tests.broker.recorded.verdicts` records Kafka's verdicts on some batches of every kind in verdicts.json, with the batches
themselves: what a codec writes may change with its version.
"""

from __future__ import annotations

import json
import zlib
from base64 import b85decode, b85encode
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from struct import pack
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from broker.topics.batch_checks import BatchRefused, prepare
from broker.topics.settings import LogSettings, log_settings
from protocol.batch import ATTRIBUTES_AT, COMPRESSION_MASK, HEADER_BYTES, read_header, records, rewrite, validate
from protocol.batch_record import CorruptBatch, read_record
from protocol.batch_times import record_times
from protocol.compression import SNAPPY_HEADER, Compression, decompress
from storage import Producers
from tests.oracle import run_java
from tests.support.produce_batches import INT16, INT32, INT64, THEN, batch, producer_batch, record
from tests.support.random_containers import RANDOM, SKIPPABLE, damaged, snappy_block, zstd_frame

VERDICTS: Final = Path(__file__).with_name("verdicts.json")
LOG_VERDICTS: Final = Path(__file__).with_name("LogVerdicts.java")
KINDS: Final = ("plain", "append-time", "limited", "unlimited", "compact", "uncompressed", "gzip", "snappy", "lz4", "zstd", "gzip+append-time")
CODECS: Final = list(RANDOM)
UNREADABLE: Final = "unreadable"
RECORDED: Final = 120  # cases of each family


class Case(NamedTuple):
    """A batch for a topic of this kind; or all batches of one producer, of kind "producer". Times are as at `now`."""

    kind: str
    now: int
    batches: tuple[bytes, ...]

    def __str__(self) -> str:
        return " ".join([self.kind, str(self.now), *[data.hex() for data in self.batches]])


# Cases.


def random_body(random: Random) -> tuple[bytes, int]:
    """The bytes of some records, and their number."""
    shape = random.randrange(10)
    count = 40 if shape == 0 else 1 if shape == 1 else random.randrange(2, 5)
    parts = []
    for number in range(count):
        key = None if random.random() < 0.1 else b"key"
        value = b"value %d " % number * (900 if shape == 2 else 250 if shape == 3 else 1)
        header = b"\2\x02h\x02v" if shape == 4 else b"\0"
        parts.append(record(number, key, value, random.randrange(10), headers=header))
    return b"".join(parts), count


def random_container(random: Random) -> Case:
    body, count = random_body(random)
    if random.random() < 0.06:
        body = damaged(body, random)
    if random.random() < 0.06:
        count += random.choice((-1, 1))
    codec = random.choice(CODECS)
    raw = RANDOM[codec](body, random)
    if random.random() < 0.4:
        raw = damaged(raw, random)
    kind = random.choice(KINDS) if random.random() < 0.3 else "plain"
    return Case(kind, THEN, (batch(codec=codec, raw=raw, record_count=count, last_offset_delta=count - 1),))


TIMES: Final = (0, 1, -1, -2, 5, THEN, -THEN, THEN - 10_000, THEN - 10_001, THEN + 10_000, THEN + 3_600_000, THEN + 3_600_001, *INT64)
DELTAS: Final = (0, 0, 0, 1, -1, 5, INT64[0], INT64[1], INT64[0] + 1, INT64[1] - 1, THEN, -THEN, 1 << 62, -(1 << 62), 10_000, 10_001)
CLOSE: Final = (INT64[0] + THEN, INT64[0] + THEN - 1, INT64[0] + THEN + 1, INT64[1] - THEN)


def random_time(random: Random) -> int:
    return random.choice(TIMES) if random.random() < 0.8 else random.choice(CLOSE)


def random_times(random: Random) -> Case:
    """Timestamps at their limits, in batches and records."""
    parts = [record(number, timestamp=random.choice(DELTAS)) for number in range(random.randrange(1, 4))]
    attributes = random.choice((0, 0, 8, 8, 0x48, 0x40, 0x100, 0x108, 0x180))
    fields = {"base_timestamp": random_time(random), "max_timestamp": random_time(random)}
    codec = random.choice((0, 0, 0, *CODECS))
    return Case(random.choice(KINDS), THEN, (batch(*parts, codec=codec, attributes=attributes | codec, **fields),))


LIMITS: Final[dict[str, tuple[int, ...]]] = {
    "attributes": (0, 1, 5, 6, 7, 8, 16, 32, 64, 128, 256, 0x7F00, 0x108, 0x120, *INT16),
    "last_offset_delta": (0, 1, 2, 3, -1, *INT32),
    "base_timestamp": TIMES,
    "max_timestamp": TIMES,
    "producer_id": (-1, 0, 7, -2, *INT64),
    "producer_epoch": (-1, 0, -2, *INT16),
    "base_sequence": (-1, 0, 1, -2, *INT32),
    "record_count": (0, 1, 2, 3, -1, *INT32),
    "leader_epoch": (-1, 0, *INT32),
}


def random_header(random: Random) -> Case:
    """A batch whose header has fields at their limits."""
    count = random.randrange(1, 4)
    names = random.sample(sorted(LIMITS), random.choice((1, 1, 2, 3)))
    fields = {name: random.choice(LIMITS[name]) for name in names}
    codec = random.choice((0, 0, *CODECS))
    if "attributes" in fields and not fields["attributes"] & 16:  # no batches of transactions
        fields["attributes"] = fields["attributes"] & ~COMPRESSION_MASK | codec if random.random() < 0.8 else fields["attributes"]
    fields["attributes"] = fields.get("attributes", codec) & ~16
    parts = [record(number, timestamp=random.choice((0, 0, 1, -1))) for number in range(count)]
    return Case(random.choice(KINDS), THEN, (batch(*parts, codec=codec, **fields),))


def random_records(random: Random) -> Case:
    """Records with damage, in a sound container."""
    body, count = random_body(random)
    for _ in range(random.choice((1, 1, 2))):
        body = damaged(body[:400] if random.random() < 0.5 else body, random)
    codec = random.choice((0, *CODECS))
    data = batch(body, codec=codec, record_count=count, last_offset_delta=count - 1)
    return Case(random.choice(KINDS) if random.random() < 0.3 else "plain", THEN, (data,))


def random_producer(random: Random) -> Case:
    """One producer's batches: in order, repeated, with gaps, in old and new epochs."""
    epochs = random.choice(((-1,), (0,), (-1, 0), (0, 1), (-2, -1, 0, 1), INT16))
    sequence = random.choice((0, 0, 5, INT32[1], INT32[1] - 1))
    epoch = random.choice(epochs)
    batches: list[bytes] = []
    for _ in range(random.randrange(1, 12)):
        count = random.choice((1, 1, 2, 3))
        step = random.random()
        if batches and step < 0.2:
            batches.append(random.choice(batches))
            continue
        if step < 0.3:
            sequence = random.choice((0, 1, 5, INT32[1]))
        elif step < 0.4:
            epoch = random.choice(epochs)
        elif step < 0.5:
            epoch, sequence = random.choice(epochs), 0
        batches.append(producer_batch(sequence, count, epoch))
        sequence = (sequence + count) % (INT32[1] + 1)
    return Case("producer", 0, tuple(batches))


def of_container(raw: bytes, codec: int, count: int = 2) -> Case:
    return Case("plain", THEN, (batch(codec=codec, raw=raw, record_count=count, last_offset_delta=count - 1),))


def corner_cases() -> Iterator[Case]:
    """What chance meets too seldom."""
    body = record(0) + record(1)
    whole = record(0) + record(1, value=bytes(2_048 - len(record(0)) - len(record(1, value=bytes(2_000))) + 2_000))
    assert len(whole) == 2_048
    false_header = b"\x82SNAPPX\0\0\0\0\1\0\0\0\1"
    for place in (0, 5, len(body)):
        raw = SNAPPY_HEADER + snappy_block(body[:place]) + false_header + snappy_block(body[place:])
        yield of_container(raw, Compression.SNAPPY)
    for extra in (b"", snappy_block(b"more")):
        yield of_container(SNAPPY_HEADER + snappy_block(whole) + false_header + extra, Compression.SNAPPY)
    frame = zstd_frame(body)
    rest = zstd_frame(body[10:], checksum=True, blocks=3)
    for single in (True, False):
        for cut in (1, 4, 5, 10):
            yield of_container(zstd_frame(body[:10]) + zstd_frame(body[10:], True, single, 3)[:-cut], Compression.ZSTD)
    yield of_container(zstd_frame(body[:10]) + rest[: 9 + 3 + len(body)], Compression.ZSTD)
    more = zstd_frame(body[10:] + b"more", blocks=2)
    for end in range(len(more) - 12, len(more)):
        yield of_container(zstd_frame(body[:10]) + more[:end], Compression.ZSTD)
    # All records in the first of two blocks, of which the second has no byte.
    split = 9 + 3 + len(body)
    for end in (split, split + 1, split + 3, split + 4):
        yield of_container(SKIPPABLE + zstd_frame(body + bytes(len(body) - 2), blocks=2)[:end], Compression.ZSTD)
        yield of_container(zstd_frame(b"") + zstd_frame(body + bytes(len(body) - 2), blocks=2)[:end], Compression.ZSTD)
    yield of_container(frame + zstd_frame(bytes(5))[:9] + b"\x30\x20\x09", Compression.ZSTD)
    yield of_container(frame + zstd_frame(bytes(5))[:9] + b"\x06\0\0", Compression.ZSTD)
    for size in (100, 200_000):
        yield of_container(frame + SKIPPABLE[:4] + pack("<I", 300_000) + bytes(size), Compression.ZSTD)
        yield of_container(zstd_frame(body[:10]) + zstd_frame(body[10:] + bytes(size), blocks=3)[:-1], Compression.ZSTD)
    for id, epoch, sequence in ((7, -1, 0), (7, 0, 0), (-2, 0, -1), (-2, -1, 0), (-2, 0, 0), (-1, -1, -1), (-1, -1, 5)):
        for kind in ("plain", "gzip"):
            yield Case(kind, THEN, (batch(record(), producer_id=id, producer_epoch=epoch, base_sequence=sequence),))


FAMILIES: Final[dict[str, Callable[[Random], Case]]] = {
    "containers": random_container,
    "times": random_times,
    "headers": random_header,
    "records": random_records,
    "producers": random_producer,
}


def random_cases(family: str, count: int, seed: object) -> Iterator[Case]:
    random = Random(f"{family} {seed}")
    for _ in range(count):
        yield FAMILIES[family](random)


# Verdicts, in the words of LogVerdicts.java.


def kafka_verdicts(cases: list[Case]) -> list[str]:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "cases.txt"
        file.write_text("".join(f"{case}\n" for case in cases))
        return run_java(LOG_VERDICTS, file, timeout=600).splitlines()


def settings_of(kind: str) -> LogSettings:
    parts = kind.split("+")
    values = {"max.message.bytes": "1000000000", "segment.bytes": "1000000000", "message.timestamp.after.max.ms": "3600000"}
    for part in parts:
        if part in ("uncompressed", "gzip", "snappy", "lz4", "zstd"):
            values["compression.type"] = part
    if "append-time" in parts:
        values["message.timestamp.type"] = "LogAppendTime"
    if "compact" in parts:
        values["cleanup.policy"] = "compact"
    if "limited" in parts:
        values |= {"message.timestamp.before.max.ms": "10000", "message.timestamp.after.max.ms": "10000"}
    if "unlimited" in parts:
        values["message.timestamp.after.max.ms"] = str(INT64[1])
    return log_settings(values, {})


def our_verdict(case: Case) -> str:
    if case.kind == "producer":
        return producer_verdicts(case.batches)
    (data,) = case.batches
    try:
        stored, _ = prepare(data, 0, len(data), settings_of(case.kind), case.now, "topic-0")
    except BatchRefused as refusal:
        return str(int(refusal.error))
    stored_bytes = bytes(stored)
    header = validate(stored_bytes, 0, len(stored_bytes))
    # What is stored can be searched by time and compacted.
    stored_records = records(stored_bytes, 0)
    times = [(item.timestamp, item.offset) for item in stored_records]
    assert list(record_times(stored_bytes, 0)) == times, case
    compacted = records(rewrite(header, stored_records, THEN), 0)
    assert [(item.timestamp, item.offset) for item in compacted] == times, case
    return f"0 {header.attributes} {header.base_timestamp} {header.max_timestamp} {read(stored_bytes)}"


def read(stored: bytes) -> int:
    """The hash of LogVerdicts.java."""
    hash = 0
    for item in records(stored, 0):
        sizes = [-1 if field is None else len(field) for field in (item.key, item.value)]
        for number in (item.offset, item.timestamp, *sizes, *[len(name.decode(errors="replace")) for name, _ in item.headers]):
            hash = (hash * 31 + number - INT64[0]) % (1 << 64) + INT64[0]
    return hash


def producer_verdicts(batches: tuple[bytes, ...]) -> str:
    producers = Producers()
    offset = 0
    verdicts = []
    for data in batches:
        header = read_header(data, 0)
        verdict = producers.check(header)
        if verdict.error:
            verdicts.append(f"E{int(verdict.error)}")
        elif verdict.offset >= 0:
            verdicts.append(str(verdict.offset))
        else:
            producers.note(header, offset)
            verdicts.append(str(offset))
            offset += header.record_count
    return " ".join(verdicts)


def difference(case: Case, kafka: str) -> str:
    """An unintended difference between our verdict and Kafka's; "" if there is none."""
    ours = our_verdict(case)
    if ours == kafka or (kafka.startswith("0 ") and ours == "87" and is_refused_on_purpose(case, kafka)):
        return ""
    if "87" in (ours, kafka) and not {ours, kafka} - {"-1", "87", "32"} and case.batches[0][ATTRIBUTES_AT + 1] & COMPRESSION_MASK:
        return ""  # both refuse: damage, of which the reads of Java's decoders decide what is met first
    return f"{case}: {ours}, where Kafka has {kafka}"


def is_refused_on_purpose(case: Case, kafka: str) -> bool:
    """Whether no consumer can read the records, or their offsets are not 0, 1, 2, ..."""
    if kafka.endswith(UNREADABLE):
        return True
    (data,) = case.batches
    header = read_header(data, 0)
    codec = header.attributes & COMPRESSION_MASK
    body = decompress(data[HEADER_BYTES:], codec, 1 << 24)
    at = 0
    deltas = []
    try:
        for _ in range(header.record_count):
            item, at = read_record(body, at, len(body), 0, 0)
            deltas.append(item.offset)
    except CorruptBatch:
        return codec == Compression.LZ4  # an empty block within a large record, over which Java reads by chance
    return deltas != list(range(header.record_count))


def recorded() -> Iterator[tuple[Case, str]]:
    for kind, now, batches, kafka in json.loads(VERDICTS.read_text()):
        yield Case(kind, now, tuple(zlib.decompress(b85decode(data)) for data in batches)), kafka


def main() -> None:
    cases = [*corner_cases(), *[case for family in FAMILIES for case in random_cases(family, RECORDED, "recorded")]]
    rows = [
        [case.kind, case.now, [b85encode(zlib.compress(data, 9)).decode() for data in case.batches], kafka]
        for case, kafka in zip(cases, kafka_verdicts(cases), strict=True)
    ]
    VERDICTS.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()
