"""Decodes a record according to its log: its kind, group or topic, and fields.

A record that is unreadable or from a newer version is shown as bytes, with a remark. Fields are computed on access, since a check of a million
records needs few of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import cache
from pkgutil import resolve_name
from typing import Any

from cli.shown import topic_id_text
from protocol.batch import Record
from protocol.errors import ProtocolError
from protocol.message import Message, Part, field_names
from protocol.messages.consumer_offsets import GroupMetadataValue
from protocol.messages.coordinator_notes import NoteHeader, NoteKey
from protocol.messages.kinds import CONSUMER_OFFSETS, ENUMS, NOTES, TOPICS_REGISTRY, RecordKind
from protocol.messages.topics_registry import DeletedTopicValue, TopicKey
from protocol.records import NOTE_VERSION, kind_of, read_assignment, read_note, read_record, read_subscription, version_of

OFFSETS_LOG = "__consumer_offsets"
NOTES_LOG = "__coordinator_notes"
REGISTRY_LOG = "__tenure_topics"
CONSUMER = "consumer"

Fields = dict[str, Any]


class Decoded:
    """One record. `kind`: that of protocol/schema, or note, record, control, or other."""

    __slots__ = ("group", "header", "key_message", "kind", "message", "newer", "record", "remark", "topic", "unreadable")

    def __init__(self, kind: str, record: Record, key: Message | None = None, group: str | None = None, topic: str | None = None) -> None:
        self.kind = kind
        self.record = record
        self.key_message = key
        self.message: Message | None = None  # the value, if it could be decoded
        self.header: NoteHeader | None = None
        self.group = group
        self.topic = topic
        self.remark = ""
        self.unreadable = False
        self.newer = False  # written by a newer version, so not decoded

    @property
    def key(self) -> Any:
        if self.kind == "control":
            return _control_type(self.record.key or b"")
        return shown_bytes(self.record.key) if self.key_message is None else fields_by_name(self.key_message)

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
        fields = _group_fields(message) if isinstance(message, GroupMetadataValue) else fields_by_name(message)
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
        decoded = Decoded("other", record)
        decoded.remark = f"cannot be read: {error}"
        decoded.unreadable = True
        return decoded


# Internal topics


def _offsets(record: Record) -> Decoded:
    if record.key is None:
        raise ProtocolError("a record without a key")
    decoded = _of_kind(CONSUMER_OFFSETS, record)
    if decoded is None:
        decoded = Decoded("other", record)
        decoded.remark = f"a key of version {version_of(record.key)}, a kind of record that Tenure does not know and skips"
    return decoded


def _registry(record: Record) -> Decoded:
    decoded = _of_kind(TOPICS_REGISTRY, record)
    return decoded if decoded is not None else _newer(Decoded("other", record), "key", version_of(record.key or b""), max(TOPICS_REGISTRY))


def _of_kind(kinds: Mapping[int, RecordKind], record: Record) -> Decoded | None:
    kind = kind_of(kinds, record.key or b"")
    if kind is None:
        return None
    key = read_record(kind.key, record.key or b"")
    decoded = _with_value(Decoded(kind.name, record, key, getattr(key, "group", None), _topic_of(key)), kind.value)
    if decoded.topic is None and decoded.message is not None:
        decoded.topic = _topic_of(decoded.message)
    return decoded


def _topic_of(message: Message) -> str | None:
    topic: str | None = message.name if isinstance(message, (TopicKey, DeletedTopicValue)) else getattr(message, "topic", None)
    return topic


def _note(record: Record) -> Decoded:
    version = version_of(record.key or b"")
    if version > NoteKey.VERSIONS[1]:
        return _newer(Decoded("other", record), "key", version, NoteKey.VERSIONS[1])
    key = read_record(NoteKey, record.key or b"")
    decoded = Decoded("note", record, key, key.group)
    if record.value is None:
        return decoded
    decoded.header, body = read_note(record.value)
    if isinstance(body, bytes):
        version = version_of(record.value)
        note = f"a note of version {version}" if version > NOTE_VERSION else f"a note of kind {decoded.header.kind}"
        decoded.remark = f"{note}, which this version of Tenure does not know"
        return decoded
    decoded.message = body
    decoded.topic = _topic_of(body)
    return decoded


_READERS: dict[str, Callable[[Record], Decoded]] = {OFFSETS_LOG: _offsets, NOTES_LOG: _note, REGISTRY_LOG: _registry}


def _newer(decoded: Decoded, part: str, version: int, newest: int) -> Decoded:
    decoded.remark = f"a {part} of version {version}; this version of Tenure reads up to version {newest}"
    decoded.newer = True
    return decoded


def _with_value(decoded: Decoded, cls: type[Message]) -> Decoded:
    value = decoded.record.value
    if value is None:
        return decoded
    version = version_of(value)
    if version > cls.VERSIONS[1]:
        return _newer(decoded, "value", version, cls.VERSIONS[1])
    decoded.message = read_record(cls, value)
    return decoded


# Fields


def _group_fields(group: GroupMetadataValue) -> Fields:
    fields = fields_by_name(group)
    if group.protocol_type == CONSUMER:
        for member, shown in zip(group.members, fields["members"], strict=True):
            shown["subscription"] = _embedded(member.subscription, read_subscription)
            shown["assignment"] = _embedded(member.assignment, read_assignment)
    return fields


def _embedded(data: bytes, read: Callable[[bytes], Part]) -> Any:
    """Decode bytes that a client wrote: if they are unreadable, the log is not damaged."""
    if not data:
        return None
    try:
        return {"version": version_of(data), **fields_by_name(read(data))}
    except ProtocolError as error:
        return {"hex": data.hex(), "remark": f"not in the consumer protocol: {error}"}


def _note_fields(header: NoteHeader, body: Message | None, data: bytes) -> Fields:
    fields = fields_by_name(header)
    fields["kind"] = NOTES[header.kind].__name__ if header.kind in NOTES else header.kind
    if body is None:
        raw = read_note(data)[1]
        fields["body"] = {"hex": raw.hex() if isinstance(raw, bytes) else ""}
        return fields
    fields["body"] = fields_by_name(body)
    return fields


def _control_type(key: bytes) -> Any:
    """COMMIT or ABORT, from the key of a control record (int16 version, int16 type); any other key as bytes."""
    kind = int.from_bytes(key[2:4], "big") if len(key) >= 4 else -1
    return {0: "ABORT", 1: "COMMIT"}.get(kind, shown_bytes(key))


def fields_by_name(part: Part) -> Fields:
    """The fields of a message by name, nested ones too; the values of enums by name."""
    fields = {name: _field_value(name, getattr(part, name)) for name in field_names(type(part))}
    for name, values in ENUMS.get(type(part), {}).items():
        fields[name] = enum_name(_enum(values), fields[name])
    return fields




@cache
def _enum(name: str) -> type[IntEnum]:
    values: type[IntEnum] = resolve_name(name)
    return values


def _field_value(name: str, value: Any) -> Any:
    if isinstance(value, Part):
        return fields_by_name(value)
    if isinstance(value, list):
        return [_field_value(name, element) for element in value]
    if isinstance(value, bytes):
        return topic_id_text(value) if name == "topic_id" else shown_bytes(value)
    return value


def shown_bytes(data: bytes | None) -> Any:
    """Printable text as text, other bytes as {"hex": ...}."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"hex": data.hex()}
    return text if text.isprintable() else {"hex": data.hex()}


def enum_name(values: type[IntEnum], number: int) -> str | int:
    """The name of an enum value; the number itself if a newer version wrote it."""
    try:
        return values(number).name
    except ValueError:
        return number
