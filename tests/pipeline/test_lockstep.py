"""The vectorised reader equals the scalar reference, for any bytes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pipeline.inputs import Inputs
from pipeline.reading import ReadResult, read_split
from pipeline.rows import Record as Row
from pipeline.schema import rows_of, table_of
from pipeline.splits import Plan, plan
from protocol.batch import HEADER_BYTES, Compression
from protocol.batch_record import varint
from tests.pipeline import segments
from tests.pipeline.segments import commit, random_batches, reference, sealed, write_segment

pytestmark = pytest.mark.once  # tests numpy code


def read(folder: Path, **options: object) -> tuple[list[Row], Plan, ReadResult]:
    planned = plan(Inputs((str(folder),), **options), {})  # type: ignore[arg-type]
    rows: list[Row] = []
    reading = ReadResult()
    for split in planned.splits:
        for batch in read_split(split, reading):
            batch.validate(full=True)
            rows.extend(rows_of(Row, batch))
    return rows, planned, reading


@pytest.mark.parametrize("log", ["__consumer_offsets-3", "__coordinator_notes-3"])
@pytest.mark.parametrize("seed", range(6))
def test_random_records_of_every_version_are_read_as_the_reference_reads_them(tmp_path: Path, seed: int, log: str) -> None:
    folder = tmp_path / log
    write_segment(folder, random_batches(seed, 150))
    rows, planned, _ = read(folder)
    assert rows == reference(folder, "notes" if "notes" in log else "offsets")
    assert len(rows) == planned.records == planned.segments[0].records


@pytest.mark.parametrize("codec", list(Compression))
def test_every_codec_is_read(tmp_path: Path, codec: Compression) -> None:
    folder = tmp_path / "__consumer_offsets-0"
    write_segment(folder, random_batches(1, 40, compression=codec))
    rows, planned, _ = read(folder)
    assert rows == reference(folder)
    assert planned.segments[0].codecs == codec.name.lower()


def test_notes_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "__coordinator_notes-0"
    write_segment(folder, [segments.batch_of(0, segments.note("g"), segments.note(""), (b"\0\1g", b"")), segments.batch_of(3, (None, b"x"), (b"\xff\xff", None))])
    rows, _, _ = read(folder)
    assert rows == reference(folder, "notes")
    assert [(row.kind, row.group) for row in rows] == [("note", "g"), ("note", ""), ("other", None), ("unreadable", None), ("unreadable", None)]


@pytest.mark.parametrize("version", range(5))
def test_values_of_each_version_are_decoded(tmp_path: Path, version: int) -> None:
    folder = tmp_path / "__consumer_offsets-0"
    write_segment(folder, segments.batch_of(0, commit("g", "t", 7, 42, 1_000, version, "note"), (commit("g", "t", 7, 0, 0)[0], None)))
    (row, tombstone), _, _ = read(folder)
    assert (row.kind, row.group, row.topic, row.topic_partition, row.committed, row.metadata) == ("offset", "g", "t", 7, 42, "note")
    assert (row.commit_ms, row.value_version) == (1_000, version)
    assert row.commit_leader_epoch == (5 if version >= 3 else None)
    assert row.expire_ms == (1_001 if version == 1 else None)
    assert tombstone[9:21] == ("offset", 1, -1, "g", "t", 7, None, None, None, None, None, True)


def mutated(batch: bytes, rng: random.Random) -> bytes:
    """The batch with random changes under a valid checksum: defects that show only when its records are read."""
    changed = bytearray(batch)
    for _ in range(rng.choice([1, 1, 2, 5])):
        at = rng.randrange(HEADER_BYTES, len(changed))
        changed[at] = rng.choice([rng.randrange(256), changed[at] ^ (1 << rng.randrange(8)), 0, 255, 128])
    if rng.random() < 0.3:
        changed[57:61] = rng.choice([0, 1, 5, 1_000, 1 << 30]).to_bytes(4, "big")
    if rng.random() < 0.2:
        changed[23:27] = rng.randrange(int.from_bytes(changed[23:27], "big") + 1).to_bytes(4, "big")
    return sealed(changed)


@pytest.mark.parametrize("seed", range(12))
def test_malformed_records_are_read_or_refused_like_the_reference(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    folder = tmp_path / "__consumer_offsets-0"
    batches = random_batches(seed, 120, 6, Compression.NONE if seed % 3 else None)
    write_segment(folder, [mutated(batch, rng) if rng.random() < 0.7 else batch for batch in batches])
    rows, planned, reading = read(folder)
    assert rows == reference(folder)
    lost = sum(1 for hole in reading.holes)
    assert lost + len({row.batch_base for row in rows}) >= planned.segments[0].batches - 30  # up to 30 batches have no record by their header


def one_record(delta_ms: bytes = b"\0", delta: bytes = b"\0", key: bytes = b"", value: bytes = b"\1", more: bytes = b"\0") -> bytes:
    inside = b"\0" + delta_ms + delta + key + value + more
    return varint(len(inside)) + inside


def padded_varint(value: int, size: int) -> bytes:
    """A zigzag varint of `size` bytes, even if fewer would do."""
    raw = value << 1 if value >= 0 else (-value << 1) - 1
    return bytes([raw >> (7 * at) & 127 | 128 for at in range(size - 1)]) + bytes([raw >> (7 * (size - 1)) & 127])


@pytest.mark.parametrize("together", [1, 40])
@pytest.mark.parametrize("size", range(1, 12))
def test_varints_of_every_size(tmp_path: Path, size: int, together: int) -> None:
    folder = tmp_path / "__consumer_offsets-0"
    key, value = commit("g", "t", 1, 2, 3)
    assert key is not None
    assert value is not None
    template = segments.batch_of(0, (key, value))
    batches = []
    for field_number in range(4):
        for number in range(together):
            fields = [padded_varint(5, size) if field_number == 0 else b"\0", padded_varint(0, size) if field_number == 1 else b"\0"]
            fields += [(padded_varint(len(key), size) if field_number == 2 else varint(len(key))) + key]
            fields += [(padded_varint(len(value), size) if field_number == 3 else varint(len(value))) + value]
            body = one_record(*fields)
            batch = bytearray(template[:HEADER_BYTES] + body)
            batch[:8] = (field_number * together + number).to_bytes(8, "big")
            batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
            batches.append(sealed(batch))
    write_segment(folder, batches)
    rows, _, reading = read(folder)
    assert rows == reference(folder)
    assert len(rows) + len(reading.holes) == 4 * together
    assert bool(reading.holes) == (size > 5)


@pytest.mark.parametrize("together", [1, 40])
def test_missing_headers_make_a_batch_unreadable(tmp_path: Path, together: int) -> None:
    folder = tmp_path / "__consumer_offsets-0"
    batches = [segments.batch_of(at, commit("g", "t", 1, 2, 3)) for at in range(together)]
    write_segment(folder, [segments.mutated(batch, len(batch) - 1, 2) for batch in batches])
    rows, _, reading = read(folder)
    assert rows == reference(folder) == []
    assert len(reading.holes) == together


def test_batches_without_records_end_a_range_of_coverage(tmp_path: Path) -> None:
    folder = tmp_path / "__consumer_offsets-0"
    full = segments.batch_of(10, commit("g", "t", 1, 2, 3))
    empty = bytearray(full[:HEADER_BYTES])
    empty[8:12] = (HEADER_BYTES - 12).to_bytes(4, "big")
    empty[57:61] = bytes(4)
    write_segment(folder, [segments.batch_of(0, commit("g", "t", 1, 1, 1)), sealed(empty), segments.batch_of(11, commit("g", "t", 1, 3, 4))])
    rows, planned, _ = read(folder)
    assert [row.offset for row in rows] == [0, 11]
    assert planned.segments[0].missing_offsets == 10


def test_invalid_utf8_in_names_is_marked_as_in_the_reference(tmp_path: Path) -> None:
    folder = tmp_path / "__consumer_offsets-0"
    key, value = commit("gro\0p", "t", 1, 2, 3)
    assert key is not None
    write_segment(folder, segments.batch_of(0, (key.replace(b"gro", b"g\xff\xc3"), value), commit("ok", "t", 1, 2, 3)))
    rows, _, _ = read(folder)
    assert rows == reference(folder)
    assert rows[0].group == "g\ufffd\ufffd\0p"


def test_a_table_of_rows_has_the_schema_of_the_vectorised_one(tmp_path: Path) -> None:
    folder = tmp_path / "__consumer_offsets-0"
    write_segment(folder, random_batches(3, 5))
    planned = plan(Inputs((str(folder),)), {})
    (batch,) = read_split(planned.splits[0])
    assert batch.schema == table_of("records", []).schema
