"""Decode a record of a log: its kind, its subject, and its fields, to print as text or JSON.

Which log a record is from decides how it is read. What cannot be read, or was written by something newer, is kept as bytes
with a remark that says why. Fields are put together when they are asked for: a check of a million records needs few of them.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from coordinator import notes
from coordinator.states import State
from protocol.batch import Record
from protocol.errors import ErrorCode, ProtocolError
from protocol.message import Message, Part, fields_of
from protocol.messages.consumer_offsets import GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from protocol.messages.coordinator_notes import EndOffsets, NoteHeader, NoteKey
from protocol.messages.topics_registry import DeletedTopicValue, ProducerIdsKey, ProducerIdsValue, TopicKey, TopicValue
from protocol.records import (
    NOTE_VERSION,
    NOTES,
    read_assignment,
    read_note,
    read_offsets_key,
    read_record,
    read_registry_key,
    read_subscription,
    version_of,
)

OFFSETS_LOG = "__consumer_offsets"
NOTES_LOG = "__coordinator_notes"
REGISTRY_LOG = "__tenure_topics"
CONSUMER = "consumer"
NO_UUID = bytes(16)

Fields = dict[str, Any]


class Decoded:
    """One record. `kind`: offset, group, note, topic, producer-ids, deleted-topic, record, control, or other for unknown ones."""

    __slots__ = ("group", "header", "key_message", "kind", "message", "newer", "record", "remark", "topic", "unreadable")

    def __init__(self, kind: str, record: Record, key: Message | None = None, group: str | None = None, topic: str | None = None) -> None:
        self.kind = kind
        self.record = record
        self.key_message = key
        self.message: Message | None = None  # the value, where it was understood
        self.header: NoteHeader | None = None
        self.group = group
        self.topic = topic
        self.remark = ""
        self.unreadable = False
        self.newer = False  # not understood because something newer wrote it

    @property
    def key(self) -> Any:
        if self.kind == "control":
            return _control_type(self.record.key or b"")
        return shown_bytes(self.record.key) if self.key_message is None else plain(self.key_message)

    @property
    def value(self) -> Any:
        """Fields by name; None for a tombstone."""
        data, message = self.record.value, self.message
        if data is None:
            return None
        if self.header is not None:
            return _note_fields(self.header, message, data)
        if message is None:
            return shown_bytes(data)
        fields = _group_fields(message) if isinstance(message, GroupMetadataValue) else plain(message)
        return {"version": version_of(data), **fields}


def decode(log: str, record: Record, control: bool = False) -> Decoded:
    """Decode any bytes without raising."""
    if control:
        return Decoded("control", record)
    read = _READERS.get(log)
    if read is None:
        return Decoded("record", record)
    try:
        return read(record)
    except ProtocolError as error:
        found = Decoded("other", record)
        found.remark = f"cannot be read: {error}"
        found.unreadable = True
        return found


# The logs that we know


def _offsets(record: Record) -> Decoded:
    if record.key is None:
        raise ProtocolError("a record without a key")
    key = read_offsets_key(record.key)
    if key is None:
        found = Decoded("other", record)
        found.remark = f"a key of version {version_of(record.key)}, a kind of record that Tenure does not know and skips"
        return found
    if isinstance(key, OffsetCommitKey):
        return _with_value(Decoded("offset", record, key, key.group, key.topic), OffsetCommitValue)
    return _with_value(Decoded("group", record, key, key.group), GroupMetadataValue)


def _registry(record: Record) -> Decoded:
    key = read_registry_key(record.key or b"")
    if key is None:
        found = Decoded("other", record)
        found.remark = f"a key of version {version_of(record.key or b'')}, newer than version 2, the last that this Tenure reads"
        found.newer = True
        return found
    if isinstance(key, TopicKey):
        return _with_value(Decoded("topic", record, key, topic=key.name), TopicValue)
    if isinstance(key, ProducerIdsKey):
        return _with_value(Decoded("producer-ids", record, key), ProducerIdsValue)
    found = _with_value(Decoded("deleted-topic", record, key), DeletedTopicValue)
    if isinstance(found.message, DeletedTopicValue):
        found.topic = found.message.name
    return found


def _note(record: Record) -> Decoded:
    if newer := _newer_key(record, NoteKey):
        return newer
    key = read_record(NoteKey, record.key or b"")
    found = Decoded("note", record, key, key.group)
    if record.value is None:
        return found
    found.header, body = read_note(record.value)
    if isinstance(body, bytes):
        version = version_of(record.value)
        what = f"a note of version {version}" if version > NOTE_VERSION else f"a note of kind {found.header.kind}"
        found.remark = f"{what}, which this Tenure does not know"
        return found
    found.message = body
    if isinstance(body, EndOffsets):
        found.topic = body.topic
    return found


_READERS: dict[str, Callable[[Record], Decoded]] = {OFFSETS_LOG: _offsets, NOTES_LOG: _note, REGISTRY_LOG: _registry}


def _newer_key(record: Record, cls: type[Message]) -> Decoded | None:
    version = version_of(record.key or b"")
    if version <= cls.VERSIONS[1]:
        return None
    found = Decoded("other", record)
    found.remark = f"a key of version {version}, newer than version {cls.VERSIONS[1]}, the last that this Tenure reads"
    found.newer = True
    return found


def _with_value(found: Decoded, cls: type[Message]) -> Decoded:
    value = found.record.value
    if value is None:
        return found
    version = version_of(value)
    if version > cls.VERSIONS[1]:
        found.remark = f"a value of version {version}, newer than version {cls.VERSIONS[1]}, the last that this Tenure reads"
        found.newer = True
    else:
        found.message = read_record(cls, value)
    return found


# Fields


def _group_fields(group: GroupMetadataValue) -> Fields:
    fields = plain(group)
    if group.protocol_type == CONSUMER:
        for member, shown in zip(group.members, fields["members"], strict=True):
            shown["subscription"] = _embedded(member.subscription, read_subscription)
            shown["assignment"] = _embedded(member.assignment, read_assignment)
    return fields


def _embedded(data: bytes, read: Callable[[bytes], Part]) -> Any:
    """Decode bytes written by a client; unreadable ones do not count as damage of the log."""
    if not data:
        return None
    try:
        return {"version": version_of(data), **plain(read(data))}
    except ProtocolError as error:
        return {"hex": data.hex(), "remark": f"not in the consumer protocol: {error}"}


_NOTE_ENUMS: dict[int, dict[str, type[IntEnum]]] = {
    notes.Kind.STATE_CHANGE: {"from_state": State, "to_state": State, "reason": notes.Cause},
    notes.Kind.MEMBER_GONE: {"how": notes.Removal},
    notes.Kind.STATIC_REPLACED: {"outcome": notes.Replacement},
    notes.Kind.ROUND_END: {"result": notes.RoundResult},
    notes.Kind.COMMIT_REFUSED: {"error_code": ErrorCode},
    notes.Kind.COORDINATOR: {"what": notes.Coordinator},
    notes.Kind.STANDBY: {"step": notes.StandbyStep},
}


def _note_fields(header: NoteHeader, body: Message | None, data: bytes) -> Fields:
    fields = plain(header)
    fields["kind"] = NOTES[header.kind].__name__ if header.kind in NOTES else header.kind
    fields["state"] = word(State, header.state)
    if body is None:
        raw = read_note(data)[1]
        fields["body"] = {"hex": raw.hex() if isinstance(raw, bytes) else ""}
        return fields
    fields["body"] = plain(body)
    for name, values in _NOTE_ENUMS.get(header.kind, {}).items():
        fields["body"][name] = word(values, fields["body"][name])
    return fields


def _control_type(key: bytes) -> Any:
    """The mark that ends a transaction: int16 version, int16 type."""
    kind = int.from_bytes(key[2:4], "big") if len(key) >= 4 else -1
    return {0: "ABORT", 1: "COMMIT"}.get(kind, shown_bytes(key))


def plain(part: Part) -> Fields:
    """Fields by name, structs inside as fields again."""
    return {name: _plain(name, getattr(part, name)) for name in fields_of(type(part))}


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, Part):
        return plain(value)
    if isinstance(value, list):
        return [_plain(name, one) for one in value]
    if isinstance(value, bytes):
        return topic_id_text(value) if name == "topic_id" else shown_bytes(value)
    return value


def topic_id_text(id: bytes) -> str | None:
    """As Kafka writes it; None for none."""
    return None if id == NO_UUID else base64.urlsafe_b64encode(id).decode().rstrip("=")


def shown_bytes(data: bytes | None) -> Any:
    """Text where it is text that can be shown, else {"hex": ...}."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"hex": data.hex()}
    return text if text.isprintable() else {"hex": data.hex()}


def word(values: type[IntEnum], number: int) -> str | int:
    """The name of a number, or the number where something newer wrote it."""
    try:
        return values(number).name
    except ValueError:
        return number
