"""Decodes one record of a coordinator log: the reference for `lockstep` and `record_columns`, which must return the same rows.

No record is dropped or raises an error: an unreadable one becomes a row of its own kind, with its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from history.newer import CONSUMER, KIND_OF_KEY, SHARE, STREAMS, newer_group
from pipeline.inputs import LogId
from pipeline.rows import Record
from protocol import batch as batches
from protocol.batch import CONTROL, DECOMPRESSED_BYTES_MAX, TRANSACTIONAL, BatchHeader
from protocol.errors import ProtocolError
from protocol.messages.consumer_offsets import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from protocol.messages.coordinator_notes import NoteKey
from protocol.records import read_note, read_offsets_key, read_record

OFFSET: Final = "offset"
GROUP: Final = "group"
NOTE: Final = "note"
CONTROL_KIND: Final = "control"
OTHER: Final = "other"
UNREADABLE: Final = "unreadable"
KINDS: Final = (OFFSET, GROUP, NOTE, CONTROL_KIND, CONSUMER, SHARE, STREAMS, OTHER, UNREADABLE)

NO_VERSION: Final = -1


class BatchLocation(NamedTuple):
    """The log, segment and position of a batch."""

    id: LogId
    segment: str
    position: int


class DecodedRecord(NamedTuple):
    """The columns that are decoded from a record's key and value."""

    kind: str
    key_version: int = NO_VERSION
    value_version: int = NO_VERSION
    group: str | None = None
    topic: str | None = None
    topic_partition: int | None = None
    committed: int | None = None
    commit_leader_epoch: int | None = None
    commit_ms: int | None = None
    expire_ms: int | None = None
    metadata: str | None = None


def rows_of_batch(data: bytes, at: int, header: BatchHeader, location: BatchLocation, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """The rows of one batch. Raises CorruptBatch before the first row or not at all."""
    control = bool(header.attributes & CONTROL)
    for record in batches.records(data, at, bytes_max):
        decoded_record = decoded(CONTROL_KIND if control else location.id.log, record.key, record.value)
        position_columns: tuple[Any, ...] = (record.offset, record.timestamp, header.base_offset, header.leader_epoch, header.producer_id)
        transactional = bool(header.attributes & TRANSACTIONAL)
        raw: tuple[Any, ...] = (None, None) if decoded_record.kind == OFFSET else (record.key, record.value)
        yield Record._make((*location.id, *position_columns, transactional, *decoded_record, record.value is None, *raw, location.segment, location.position))


def decoded(log: str, key: bytes | None, value: bytes | None) -> DecodedRecord:
    """Decode key and value. `log`: offsets, notes, or control for the transaction markers in either."""
    versions = _version(key), _version(value)
    if log == CONTROL_KIND:
        return DecodedRecord(CONTROL_KIND, *versions)
    if key is None:
        return DecodedRecord(UNREADABLE, *versions)
    try:
        return (_of_notes if log == "notes" else _of_offsets)(key, value, versions)
    except ProtocolError:
        return DecodedRecord(UNREADABLE, *versions)


def _of_offsets(key: bytes, value: bytes | None, versions: tuple[int, int]) -> DecodedRecord:
    decoded_key = read_offsets_key(key)
    if isinstance(decoded_key, OffsetCommitKey):
        return _of_commit(decoded_key, value, versions)
    if versions[0] in KIND_OF_KEY:
        return DecodedRecord(KIND_OF_KEY[versions[0]], *versions, newer_group(key))
    if not isinstance(decoded_key, GroupMetadataKey):
        return DecodedRecord(OTHER, *versions)
    if value is not None and versions[1] > GroupMetadataValue.VERSIONS[1]:
        return DecodedRecord(OTHER, *versions, decoded_key.group)
    if value is not None and not is_group(value):
        return DecodedRecord(UNREADABLE, *versions, decoded_key.group)
    return DecodedRecord(GROUP, *versions, decoded_key.group)


def _of_commit(decoded_key: OffsetCommitKey, value: bytes | None, versions: tuple[int, int]) -> DecodedRecord:
    decoded_record = DecodedRecord(OFFSET, *versions, decoded_key.group, decoded_key.topic, decoded_key.partition)
    if value is None:
        return decoded_record
    if versions[1] > OffsetCommitValue.VERSIONS[1]:
        return decoded_record._replace(kind=OTHER)
    try:
        stored = read_record(OffsetCommitValue, value)
    except ProtocolError:
        return decoded_record._replace(kind=UNREADABLE)
    return decoded_record._replace(
        committed=stored.offset,
        commit_leader_epoch=_none_if_unset(stored.leader_epoch),
        commit_ms=stored.commit_timestamp,
        expire_ms=_none_if_unset(stored.expire_timestamp),
        metadata=stored.metadata,
    )


def _of_notes(key: bytes, value: bytes | None, versions: tuple[int, int]) -> DecodedRecord:
    if versions[0] > NoteKey.VERSIONS[1]:
        return DecodedRecord(OTHER, *versions)
    group = read_record(NoteKey, key).group
    if value is not None and not is_note(value):
        return DecodedRecord(UNREADABLE, *versions, group)
    return DecodedRecord(NOTE, *versions, group)


def is_group(value: bytes) -> bool:
    try:
        read_record(GroupMetadataValue, value)
    except ProtocolError:
        return False
    return True


def is_note(value: bytes) -> bool:
    """Whether the value is a note, also one of a newer kind or version, which `events.py` skips."""
    try:
        read_note(value)
    except ProtocolError:
        return False
    return True


def is_commit(value: bytes) -> bool:
    try:
        read_record(OffsetCommitValue, value)
    except ProtocolError:
        return False
    return True


def _version(data: bytes | None) -> int:
    return int.from_bytes(data[:2], "big", signed=True) if data is not None and len(data) >= 2 else NO_VERSION


def _none_if_unset(number: int) -> int | None:
    return None if number == -1 else number
