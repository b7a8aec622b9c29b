"""Records that begin with an int16 version: keys and values of internal topics, and consumer metadata in group messages.

Bytes after the known fields are ignored, as in Kafka: a newer writer may have added fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar, cast

from protocol.errors import ProtocolError
from protocol.message import Message
from protocol.messages.consumer_offsets import GroupMetadataKey, OffsetCommitKey
from protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from protocol.messages.coordinator_notes import NoteHeader
from protocol.messages.fixed import pack_h, unpack_h
from protocol.messages.kinds import NOTES, RecordKind
from protocol.wire import UNREADABLE

M = TypeVar("M", bound=Message)

NOTE_VERSION: Final = 1  # of a note and its header; bodies have their own version
NOTE_BODY_VERSION: Final = 0


def with_version(message: Message, version: int) -> bytes:
    return pack_h(version) + message.encode(version)


def in_newest_version(message: Message) -> bytes:
    """A key or value of ours."""
    return with_version(message, type(message).VERSIONS[1])


def version_of(data: bytes) -> int:
    try:
        (version,) = unpack_h(data, 0)
    except UNREADABLE as error:
        raise ProtocolError("too short for a version") from error
    return version


def read_record(cls: type[M], data: bytes) -> M:
    """A key or value of the given class, in any version."""
    version = version_of(data)
    if not cls.VERSIONS[0] <= version <= cls.VERSIONS[1]:
        raise ProtocolError(f"{cls.__name__} has no version {version}")
    message, _ = cls.decode(data, 2, version)
    return cast(M, message)


def read_offsets_key(data: bytes) -> OffsetCommitKey | GroupMetadataKey | None:
    """A key of __consumer_offsets; None for unknown kinds of records (version 3 and above)."""
    version = version_of(data)
    if version in (0, 1):
        return OffsetCommitKey.decode(data, 2, version)[0]
    if version == 2:
        return GroupMetadataKey.decode(data, 2, version)[0]
    if version < 0:
        raise ProtocolError(f"a key of version {version}")
    return None


def kind_of(kinds: Mapping[int, RecordKind], key: bytes) -> RecordKind | None:
    """The kind of a record by its key; None for kinds that a newer version may have written. `kinds` are those of its topic."""
    version = version_of(key)
    if version < 0:
        raise ProtocolError(f"a key of version {version}")
    return kinds.get(version)


def read_key(kinds: Mapping[int, RecordKind], key: bytes) -> Message | None:
    kind = kind_of(kinds, key)
    return read_record(kind.key, key) if kind is not None else None


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Decode a subscription; an unknown version is read as the newest known one, as in Kafka."""
    return ConsumerProtocolSubscription.decode(data, 2, embedded_version(data, ConsumerProtocolSubscription.VERSIONS[1]))[0]


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Decode an assignment, with unknown versions as in `read_subscription`. The bytes must not be empty."""
    return ConsumerProtocolAssignment.decode(data, 2, embedded_version(data, ConsumerProtocolAssignment.VERSIONS[1]))[0]


def embedded_version(data: bytes, newest: int) -> int:
    version = version_of(data)
    if version < 0:
        raise ProtocolError(f"an embedded consumer protocol of version {version}")
    return min(version, newest)


def write_note(header: NoteHeader, body: Message) -> bytes:
    """Encode a note; without a `number` (its count among the group's notes) it is encoded as version 0."""
    version = NOTE_VERSION if header.number >= 0 else 0
    return pack_h(version) + header.encode(version) + body.encode(NOTE_BODY_VERSION)


def read_note(data: bytes) -> tuple[NoteHeader, Message | bytes]:
    """The header and the body; for an unknown kind or version, the body's bytes."""
    version = version_of(data)
    header, at = NoteHeader.decode(data, 2, min(max(version, 0), NOTE_VERSION))
    kind = NOTES.get(header.kind)
    if kind is None or not 0 <= version <= NOTE_VERSION:
        return header, data[at:]
    return header, kind.decode(data, at, NOTE_BODY_VERSION)[0]
