"""End offset samples from the broker's notes of kind 8: every few seconds one for each topic whose end offsets changed.

Thousands of notes are decoded at once. Unusual ones ("irregular": long lengths, unknown fields) are decoded one by one with the message's own
code, which is the reference.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.batches import Bytes, Ints
from pipeline.columns import MISSING, Flags, by_key_and_time, dictionary_column, expanded, optional, pair, ranks
from pipeline.gathering import number, texts
from pipeline.rows import EndOffset
from pipeline.schema import in_order, joined, schema_of, table_of
from protocol.errors import ProtocolError
from protocol.messages.coordinator_notes import EndOffsets
from protocol.messages.kinds import NoteKind
from protocol.records import NOTE_VERSION, read_note

NOTES: Final = "notes"
TIME_AT: Final = 3  # after version and kind
BODY_AT: Final = (40, 56)  # after the header, by version
PARTITION_BYTES: Final = 21  # number, log start, end, no tagged fields
LONG_BYTES: Final = 8
LOOKAHEAD: Final = 64


class NoteFields(NamedTuple):
    """For each note its fields or their positions, and whether it is irregular."""

    is_ends: Flags
    irregular: Flags
    at_ms: Ints
    topic_at: Ints
    topic_size: Ints
    partitions_at: Ints
    partitions: Ints  # number of partitions; 0 for an irregular note
    unchanged_ms: Ints  # MISSING: not in the note


def walk_ends(data: Bytes, at: Ints, size: Ints) -> NoteFields:
    """Decode notes. Up to LOOKAHEAD bytes after the end of `data` may be read. Values shorter than 3 bytes are not notes."""
    is_ends = size >= TIME_AT
    is_ends[is_ends] = data[at[is_ends] + 2] == NoteKind.END_OFFSETS
    end = at + size
    version = number(data, at, 2)
    irregular = (version < 0) | (version > NOTE_VERSION) | (size < BODY_AT[1] + 4) | ~is_ends
    body_at = np.where(irregular, 0, at + np.where(version == 0, *BODY_AT))
    topic_size, topic_at = _short(data, body_at)
    irregular |= (topic_size < 0) | (topic_at + topic_size >= end)
    count, partitions_at = _short(data, np.where(irregular, 0, topic_at + topic_size))
    tags_at = partitions_at + np.maximum(count, 0) * PARTITION_BYTES
    irregular |= (count < 0) | (tags_at >= end)
    tags_at = np.where(irregular, 0, tags_at)
    tagged = data[tags_at] == 1
    has_unchanged = tagged & (data[tags_at + 1] == 0) & (data[tags_at + 2] == LONG_BYTES) & (tags_at + 3 + LONG_BYTES <= end)
    irregular |= (data[tags_at] > 1) | (tagged & ~has_unchanged)
    unchanged = np.full(len(at), MISSING)
    with_unchanged = np.flatnonzero(has_unchanged & ~irregular)
    unchanged[with_unchanged] = number(data, tags_at[with_unchanged] + 3, 8)
    unchanged[unchanged < 0] = MISSING
    counts = np.where(irregular, 0, count)
    note, place = expanded(counts)
    irregular_partitions = data[partitions_at[note] + (place + 1) * PARTITION_BYTES - 1] != 0  # tagged fields of a partition
    irregular[note[irregular_partitions]] = True
    at_ms = number(data, np.where(irregular, 0, at + TIME_AT), 8)
    return NoteFields(is_ends, irregular, at_ms, topic_at, topic_size, partitions_at, np.where(irregular, 0, counts), unchanged)


def _short(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """A compact length of one or two bytes, decoded, and the position after it. The length is negative if it is null or has more bytes."""
    first, second = data[at].astype(np.int64), data[at + 1].astype(np.int64)
    two = first > 127
    length = np.where(two, (first & 127) | second << 7, first) - 1
    return np.where(two & (second > 127), -1, length), at + 1 + two


def from_notes(events: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Split bronze rows of notes into end offset samples and all other rows."""
    values = events["value_raw"].combine_chunks()
    if not len(values):
        return schema_of("end_offsets").empty_table(), events
    cuts = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    raw = bytes(values.buffers()[2] or b"") + bytes(LOOKAHEAD)
    walked = walk_ends(np.frombuffer(raw, np.uint8), cuts[:-1], np.diff(cuts))
    other_notes = walked.partitions == 0
    rows: list[EndOffset] = []
    for index in np.flatnonzero(walked.is_ends & walked.irregular).tolist():
        samples_of_note = _read(events["cluster"][index].as_py(), values[index].as_py())
        rows += samples_of_note
        other_notes[index] = not samples_of_note
    samples = _samples(events["cluster"], raw, walked)
    if rows:
        samples = in_order("end_offsets", joined("end_offsets", [samples.cast(schema_of("end_offsets")), table_of("end_offsets", rows)]))
    return samples, events.filter(pa.array(other_notes))


def _samples(clusters: pa.ChunkedArray, raw: bytes, walked: NoteFields) -> pa.Table:
    """The samples of all notes that are not irregular, in table order."""
    notes = np.flatnonzero(walked.partitions)
    (cluster,), cluster_names = ranks(clusters)
    (topic,), topic_names = ranks(pa.chunked_array([texts(raw, walked.topic_at[notes], walked.topic_size[notes])]))
    note, place = expanded(walked.partitions[notes])
    data = np.frombuffer(raw, np.uint8)
    at = walked.partitions_at[notes][note] + place * PARTITION_BYTES
    partition, at_ms = number(data, at, 4), walked.at_ms[notes][note]
    order = by_key_and_time(pair(topic[note], partition), at_ms)
    note, at = note[order], at[order]
    columns = {
        "cluster": dictionary_column(cluster[notes][note], cluster_names.to_pylist()),
        "topic": dictionary_column(topic[note], topic_names.to_pylist()),
        "topic_partition": pa.array(partition[order]),
        "at_ms": pa.array(at_ms[order]),
        "end_offset": pa.array(number(data, at + 12, 8)),
        "log_start": pa.array(number(data, at + 4, 8)),
        "origin": dictionary_column(np.zeros(len(at), np.int64), [NOTES]),
        "unchanged_ms": optional(walked.unchanged_ms[notes][note]),
    }
    schema = schema_of("end_offsets")
    return pa.table([columns[name] for name in schema.names], names=schema.names)


def _read(cluster: str, value: bytes) -> list[EndOffset]:
    """Decode one note with the reference decoder."""
    try:
        header, body = read_note(value)
    except ProtocolError:
        return []
    if not isinstance(body, EndOffsets):
        return []
    unchanged = None if body.unchanged_ms < 0 else body.unchanged_ms
    return [EndOffset(cluster, body.topic, partition.partition, header.ts, partition.end, partition.log_start, NOTES, unchanged) for partition in body.partitions]
