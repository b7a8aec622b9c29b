"""Segment files for tests: random coordinator records of every version, and the reading of a folder by the scalar reference."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import google_crc32c

from cli.logs.files import Batch, open_for_reading, scan, segments_of
from pipeline.decode import BatchLocation, rows_of_batch
from pipeline.inputs import LogId
from pipeline.rows import Record as Row
from protocol.batch import CRC_FROM, Compression, CorruptBatch, Record, TimestampType, build
from protocol.messages.consumer_offsets import GroupMetadataKey, GroupMetadataValue, MemberMetadata, OffsetCommitKey, OffsetCommitValue
from protocol.messages.coordinator_notes import CoordinatorChange, NoteHeader, NoteKey
from protocol.records import with_version, write_note
from storage.segment import segment_name

EPOCH_MS = 1_700_000_000_000
Pair = tuple[bytes | None, bytes | None]


def commit(group: str, topic: str, partition: int, offset: int, at_ms: int, version: int = 3, metadata: str = "") -> Pair:
    value = OffsetCommitValue(offset, 5 if version >= 3 else -1, metadata, at_ms, at_ms + 1 if version == 1 else -1, b"i" * 16 if version >= 4 else bytes(16))
    return with_version(OffsetCommitKey(group, topic, partition), 1), with_version(value, version)


def group_record(group: str, generation: int, members: Sequence[str] = (), version: int = 3) -> Pair:
    inside = [MemberMetadata(name, name if version >= 3 else None, "client", "/host", 60_000 if version else -1, 10_000, b"sub", b"got") for name in members]
    value = GroupMetadataValue("consumer", generation, "range", members[0] if members else None, EPOCH_MS if version >= 2 else -1, inside)
    return with_version(GroupMetadataKey(group), 2), with_version(value, version)


def note(group: str, seq: int = 0) -> Pair:
    return with_version(NoteKey(group), 0), write_note(NoteHeader(9, EPOCH_MS, seq), CoordinatorChange())


def random_pair(rng: random.Random, at_ms: int) -> Pair:
    group, topic = f"group-{rng.randrange(30)}" * rng.choice([1, 1, 1, 20]), rng.choice(["t", "orders", "größe", "x" * 200])
    kind = rng.random()
    if kind < 0.7:
        key, value = commit(group, topic, rng.randrange(40), rng.randrange(1 << 40), at_ms, rng.randrange(5), rng.choice(["", "", "meta", "m" * 300]))
    elif kind < 0.8:
        key, value = group_record(group, rng.randrange(100), ["a", "b"][: rng.randrange(3)], rng.randrange(5))
    elif kind < 0.85:
        key, value = with_version(GroupMetadataKey(group), 2)[:-1] + rng.choice([b"", b"zz"]), rng.randbytes(rng.randrange(40))
    elif kind < 0.9:
        key, value = rng.randbytes(rng.randrange(20)), rng.randbytes(rng.randrange(30))
    elif kind < 0.95:
        key, value = bytes([0, rng.randrange(3, 12)]) + rng.randbytes(rng.randrange(20)), rng.randbytes(rng.randrange(30))
    else:
        key, value = commit(group, topic, 0, 0, at_ms)
        assert value is not None
        at = rng.randrange(len(value))
        value = value[:at] + rng.randbytes(1) + value[at + 1 :] if rng.random() < 0.5 else value[:at]
    if rng.random() < 0.1:
        return (None if rng.random() < 0.2 else key), None
    return key, value


def random_batch(rng: random.Random, base: int, count: int, compression: Compression | None = None) -> bytes:
    at_ms = EPOCH_MS + base * 10
    offset = base
    records = []
    for _ in range(count):
        headers = [(b"name", rng.choice([None, b"", b"value"]))] if rng.random() < 0.002 else []
        records.append(Record(offset, at_ms + rng.choice([0, 0, 1, -5, 100, 70_000, 10**9]), *random_pair(rng, at_ms), headers))
        offset += rng.choice([1, 1, 1, 1, 1, 1, 1, 2, 100])
    return build(
        records,
        base_offset=base,
        leader_epoch=rng.randrange(3),
        compression=rng.choice([Compression.NONE] * 3 + list(Compression)) if compression is None else compression,
        timestamp_type=rng.choice([TimestampType.CREATE_TIME, TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME]),
    )


def next_offset(batch: bytes) -> int:
    return int.from_bytes(batch[:8], "big") + int.from_bytes(batch[23:27], "big") + 1


def random_batches(seed: int, count: int, most: int = 20, compression: Compression | None = None) -> list[bytes]:
    rng = random.Random(seed)
    batches: list[bytes] = []
    base = 0
    for _ in range(count):
        batches.append(random_batch(rng, base, rng.choice([1, 2, rng.randrange(1, most + 1)]), compression))
        base = next_offset(batches[-1]) + rng.choice([0, 0, 0, 0, 1, 500])
    return batches


def batch_of(base: int, *pairs: Pair, transactional: bool = False, control: bool = False, producer: int = -1, at_ms: int = EPOCH_MS) -> bytes:
    records = [Record(base + number, at_ms, *pair) for number, pair in enumerate(pairs)]
    return build(records, base_offset=base, leader_epoch=0, transactional=transactional, control=control, producer_id=producer)


def marker(base: int, producer: int, commits: bool, at_ms: int = EPOCH_MS) -> bytes:
    return batch_of(base, (bytes([0, 0, 0, commits]), bytes(6)), transactional=True, control=True, producer=producer, at_ms=at_ms)


def sealed(batch: bytearray) -> bytes:
    """The batch with a valid checksum."""
    batch[17:21] = google_crc32c.value(bytes(batch[CRC_FROM:])).to_bytes(4, "big")
    return bytes(batch)


def mutated(batch: bytes, at: int, byte: int) -> bytes:
    """Change one byte, under a valid checksum."""
    changed = bytearray(batch)
    changed[at] = byte
    return sealed(changed)


def write_segment(folder: Path, batches: Sequence[bytes] | bytes, base: int | None = None) -> Path:
    data = batches if isinstance(batches, bytes) else b"".join(batches)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{segment_name(int.from_bytes(data[:8], 'big') if base is None else base)}.log"
    path.write_bytes(data)
    return path


def rows_of_spark(frame: Any) -> list[Row]:
    """The rows of a Spark query, in the order of the logs."""
    rows = [Row._make(bytes(value) if isinstance(value, bytearray) else value for value in row) for row in frame.collect()]
    return sorted(rows, key=lambda row: (row.log, row.partition, row.offset))


def reference(folder: Path, log: str = "offsets", cluster: str = "unknown") -> list[Row]:
    """The rows of a folder, read batch by batch with the scanner of `tenure log` and the scalar decoder: the expected result."""
    return list(_reference(folder, LogId(cluster, log, int(folder.name.rsplit("-", 1)[1]))))


def _reference(folder: Path, id: LogId) -> Iterator[Row]:
    for segment in segments_of(str(folder)):
        file = open_for_reading(segment.path)
        for batch in scan(file, segment.base):
            if isinstance(batch, Batch):
                location = BatchLocation(id, f"{folder.name}/{Path(segment.path).name}", batch.position)
                try:
                    yield from list(rows_of_batch(batch.data, batch.at, batch.header, location))
                except CorruptBatch:
                    continue
        file.close()
