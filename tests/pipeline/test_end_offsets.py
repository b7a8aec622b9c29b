"""The decoder of many notes of end offsets at once (records of __coordinator_notes) gives the rows of the decoder of single notes."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from pipeline.decode import is_note
from pipeline.end_offsets import LOOKAHEAD, from_notes, walk_ends
from pipeline.rows import EndOffset
from pipeline.schema import in_order, schema_of, table_of
from protocol.errors import ProtocolError
from protocol.messages.coordinator_notes import EndOffsets, NoteHeader, PartitionEnds
from protocol.messages.kinds import NoteKind
from protocol.records import read_note, write_note

pytestmark = pytest.mark.once  # no dependence on the Python version


def note(draw: random.Random) -> bytes:
    """A note of end offsets of one topic, or of another kind."""
    kind = draw.choice([NoteKind.END_OFFSETS] * 5 + [NoteKind.COORDINATOR, 99])
    header = NoteHeader(kind, draw.randrange(1 << 42), 5, 1, 2, 3, 7, 0, *draw.choice([(-1, -1), (4, 9)]))
    topic = draw.choice(["t", "ü" * 40, "x" * 126, "x" * 127, "x" * 200, ""])
    count = draw.choice([0, 1, 3, 17, 126, 127, 300])
    ends = [PartitionEnds(number, draw.randrange(9), draw.randrange(1 << 50)) for number in range(count)]
    return write_note(header, EndOffsets(topic, ends, draw.choice([-1, 0, 1 << 41])))


def damaged(draw: random.Random, value: bytes) -> bytes:
    match draw.randrange(8):
        case 0:
            return value[: draw.randrange(len(value))]
        case 1:
            at = draw.randrange(len(value))
            return value[:at] + bytes([draw.randrange(256)]) + value[at + 1 :]
        case 2:
            return value + draw.randbytes(3)
        case 3:
            return value[:-1] + b"\x01\x05\x02ab"  # a field that is not known
        case _:
            return value


def reference(values: list[bytes]) -> tuple[list[EndOffset], list[bool]]:
    rows, incomplete = [], []
    for value in values:
        try:
            header, body = read_note(value)
        except ProtocolError:
            header, body = NoteHeader(), b""
        ends = body if isinstance(body, EndOffsets) else EndOffsets()
        incomplete.append(not ends.partitions)
        held = None if ends.unchanged_ms < 0 else ends.unchanged_ms
        rows += [EndOffset("c", ends.topic, partition.partition, header.ts, partition.end, partition.log_start, "notes", held) for partition in ends.partitions]
    return rows, incomplete


@pytest.mark.parametrize("seed", range(20))
def test_samples_are_those_of_the_reference(seed: int) -> None:
    draw = random.Random(seed)
    values = [damaged(draw, note(draw)) for _ in range(60)]
    rows, incomplete = reference(values)
    events = pa.table({"cluster": ["c"] * len(values), "value_raw": pa.array([*values], pa.binary())})
    samples, incomplete_events = from_notes(events)
    key = schema_of("end_offsets").names
    assert sorted(map(repr, samples.select(key).to_pylist())) == sorted(map(repr, table_of("end_offsets", rows).to_pylist()))
    assert incomplete_events["value_raw"].to_pylist() == [value for value, is_incomplete in zip(values, incomplete, strict=True) if is_incomplete]
    assert in_order("end_offsets", samples)["at_ms"].equals(samples["at_ms"])


@pytest.mark.parametrize("seed", range(20))
def test_notes_accepted_by_the_vectorised_reader_can_be_decoded(seed: int) -> None:
    draw = random.Random(seed)
    values = [damaged(draw, note(draw)) for _ in range(60)]
    sizes = np.array([len(value) for value in values])
    data = np.frombuffer(b"".join(values) + bytes(LOOKAHEAD), np.uint8)
    walked = walk_ends(data, np.cumsum(sizes) - sizes, sizes)
    assert all(odd or is_note(value) for odd, value in zip(walked.irregular, values, strict=True))
    assert not walked.irregular.all()


def test_no_notes_give_no_samples() -> None:
    none = pa.table({"cluster": pa.array([], pa.string()), "value_raw": pa.array([], pa.binary())})
    assert [len(table) for table in from_notes(none)] == [0, 0]
