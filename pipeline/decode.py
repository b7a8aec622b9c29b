"""Decode one record of a coordinator log: the reference for `lockstep` and `record_columns`, which must give the same rows.

No record is dropped and none raises: an unreadable record becomes a row of a separate kind, with its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

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
KINDS: Final = (OFFSET, GROUP, NOTE, CONTROL_KIND, OTHER, UNREADABLE)

NO_VERSION: Final = -1


class Place(NamedTuple):
    """The place of a batch: its log, segment and position."""

    id: LogId
    segment: str
    position: int


class DecodedRecord(NamedTuple):
    """The columns decoded from a record's key and value."""

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


def rows_of_batch(data: bytes, at: int, header: BatchHeader, place: Place, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """The rows of one batch. Raises CorruptBatch before the first row or not at all."""
    control = bool(header.attributes & CONTROL)
    for record in batches.records(data, at, bytes_max):
        said = decoded(CONTROL_KIND if control else place.id.log, record.key, record.value)
        where: tuple[Any, ...] = (record.offset, record.timestamp, header.base_offset, header.leader_epoch, header.producer_id)
        transactional = bool(header.attributes & TRANSACTIONAL)
        raw: tuple[Any, ...] = (None, None) if said.kind == OFFSET else (record.key, record.value)
        yield Record._make((*place.id, *where, transactional, *said, record.value is None, *raw, place.segment, place.position))


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
    about = read_offsets_key(key)
    if isinstance(about, OffsetCommitKey):
        return _of_commit(about, value, versions)
    if not isinstance(about, GroupMetadataKey):
        return DecodedRecord(OTHER, *versions)
    if value is not None and versions[1] > GroupMetadataValue.VERSIONS[1]:
        return DecodedRecord(OTHER, *versions, about.group)
    if value is not None and not is_group(value):
        return DecodedRecord(UNREADABLE, *versions, about.group)
    return DecodedRecord(GROUP, *versions, about.group)


def _of_commit(about: OffsetCommitKey, value: bytes | None, versions: tuple[int, int]) -> DecodedRecord:
    said = DecodedRecord(OFFSET, *versions, about.group, about.topic, about.partition)
    if value is None:
        return said
    if versions[1] > OffsetCommitValue.VERSIONS[1]:
        return said._replace(kind=OTHER)
    try:
        stored = read_record(OffsetCommitValue, value)
    except ProtocolError:
        return said._replace(kind=UNREADABLE)
    return said._replace(
        committed=stored.offset,
        commit_leader_epoch=_known(stored.leader_epoch),
        commit_ms=stored.commit_timestamp,
        expire_ms=_known(stored.expire_timestamp),
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
    """True also for newer kinds and versions, which the fold handles."""
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


def _known(number: int) -> int | None:
    return None if number == -1 else number
