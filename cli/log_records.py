"""What a record of a log says: its kind, whom it is about, and its fields, ready to be printed or written as JSON.

Which log a record is from decides how it is read. What cannot be read, or was written by something newer, is kept as bytes
with a remark that says why.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from coordinator import notes
from coordinator.states import State
from protocol.batch import Record
from protocol.errors import ErrorCode, ProtocolError
from protocol.message import Message, Part, fields_of
from protocol.messages.consumer_offsets import GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from protocol.messages.coordinator_notes import EndOffsets, NoteHeader, NoteKey
from protocol.messages.topics_registry import TopicKey, TopicValue
from protocol.records import (
    NOTE_VERSION,
    NOTES,
    read_assignment,
    read_note,
    read_offsets_key,
    read_record,
    read_subscription,
    version_of,
)

OFFSETS_LOG = "__consumer_offsets"
NOTES_LOG = "__coordinator_notes"
REGISTRY_LOG = "__tenure_topics"
CONSUMER = "consumer"
NO_UUID = bytes(16)

Fields = dict[str, Any]


@dataclass(slots=True)
class Decoded:
    """One record. `kind`: offset, group, note, topic, record, control, or other for kinds that we do not know."""

    kind: str
    key: Any
    value: Any
    group: str | None = None
    topic: str | None = None
    remark: str = ""
    unreadable: bool = False
    newer: bool = False  # not to be understood because something newer wrote it
    members: list[tuple[str, str | None]] = field(default_factory=list)  # member and instance ids of a group's image


def decode(log: str, record: Record, control: bool = False) -> Decoded:
    """Never raises, whatever the bytes."""
    if control:
        return _control(record)
    read = _READERS.get(log)
    if read is None:
        return Decoded("record", shown_bytes(record.key), shown_bytes(record.value))
    try:
        return read(record)
    except ProtocolError as error:
        return Decoded("other", shown_bytes(record.key), shown_bytes(record.value), remark=f"cannot be read: {error}", unreadable=True)


# The logs that we know


def _offsets(record: Record) -> Decoded:
    if record.key is None:
        raise ProtocolError("a record without a key")
    key = read_offsets_key(record.key)
    if key is None:
        remark = f"a key of version {version_of(record.key)}, a kind of record that Tenure does not know and skips"
        return Decoded("other", shown_bytes(record.key), shown_bytes(record.value), remark=remark)
    if isinstance(key, OffsetCommitKey):
        found = Decoded("offset", plain(key), None, key.group, key.topic)
        _fill(found, record.value, OffsetCommitValue, plain)
        return found
    found = Decoded("group", plain(key), None, key.group)
    _fill(found, record.value, GroupMetadataValue, _group_fields)
    if isinstance(found.value, dict):
        found.members = [(member["member_id"], member["group_instance_id"]) for member in found.value.get("members", ())]
    return found


def _registry(record: Record) -> Decoded:
    if newer := _newer_key(record, TopicKey):
        return newer
    key = read_record(TopicKey, record.key or b"")
    found = Decoded("topic", plain(key), None, topic=key.name)
    _fill(found, record.value, TopicValue, plain)
    return found


def _newer_key(record: Record, cls: type[Message]) -> Decoded | None:
    version = version_of(record.key or b"")
    if version <= cls.VERSIONS[1]:
        return None
    remark = f"a key of version {version}, newer than version {cls.VERSIONS[1]}, the last that this Tenure reads"
    return Decoded("other", shown_bytes(record.key), shown_bytes(record.value), remark=remark, newer=True)


def _fill(found: Decoded, value: bytes | None, cls: type[Message], fields: Callable[[Any], Fields]) -> None:
    """The value in its version; None removes what the key names."""
    if value is None:
        return
    version = version_of(value)
    if version > cls.VERSIONS[1]:
        found.value = shown_bytes(value)
        found.remark = f"a value of version {version}, newer than version {cls.VERSIONS[1]}, the last that this Tenure reads"
        found.newer = True
        return
    found.value = {"version": version, **fields(read_record(cls, value))}


def _group_fields(group: GroupMetadataValue) -> Fields:
    fields = plain(group)
    if group.protocol_type == CONSUMER:
        for member, shown in zip(group.members, fields["members"], strict=True):
            shown["subscription"] = _embedded(member.subscription, read_subscription)
            shown["assignment"] = _embedded(member.assignment, read_assignment)
    return fields


def _embedded(data: bytes, read: Callable[[bytes], Part]) -> Any:
    """What the client wrote: whether it can be read is its own affair, and no damage of the log."""
    if not data:
        return None
    try:
        return {"version": version_of(data), **plain(read(data))}
    except ProtocolError as error:
        return {"hex": data.hex(), "remark": f"not in the consumer protocol: {error}"}


def _note(record: Record) -> Decoded:
    if newer := _newer_key(record, NoteKey):
        return newer
    key = read_record(NoteKey, record.key or b"")
    found = Decoded("note", plain(key), None, key.group)
    if record.value is None:
        return found
    header, body = read_note(record.value)
    found.value = _note_fields(header)
    if isinstance(body, bytes):
        version = version_of(record.value)
        found.value["body"] = {"hex": body.hex()}
        what = f"a note of version {version}" if version != NOTE_VERSION else f"a note of kind {header.kind}"
        found.remark = f"{what}, which this Tenure does not know"
        return found
    found.value["body"] = plain(body)
    for name, values in _NOTE_ENUMS.get(header.kind, {}).items():
        found.value["body"][name] = word(values, found.value["body"][name])
    if isinstance(body, EndOffsets):
        found.topic = body.topic
    return found


def _note_fields(header: NoteHeader) -> Fields:
    fields = plain(header)
    fields["kind"] = NOTES[header.kind].__name__ if header.kind in NOTES else header.kind
    fields["state"] = word(State, header.state)
    return fields


_NOTE_ENUMS: dict[int, dict[str, type[IntEnum]]] = {
    notes.Kind.STATE_CHANGE: {"from_state": State, "to_state": State, "reason": notes.Cause},
    notes.Kind.MEMBER_GONE: {"how": notes.How},
    notes.Kind.STATIC_REPLACED: {"outcome": notes.Replacement},
    notes.Kind.ROUND_END: {"result": notes.Round},
    notes.Kind.COMMIT_REFUSED: {"error_code": ErrorCode},
    notes.Kind.COORDINATOR: {"what": notes.Coordinator},
}
_READERS: dict[str, Callable[[Record], Decoded]] = {OFFSETS_LOG: _offsets, NOTES_LOG: _note, REGISTRY_LOG: _registry}


def _control(record: Record) -> Decoded:
    """The mark that ends a transaction: int16 version, int16 type."""
    key = record.key or b""
    kinds = {0: "ABORT", 1: "COMMIT"}
    kind = int.from_bytes(key[2:4], "big") if len(key) >= 4 else -1
    return Decoded("control", kinds.get(kind, shown_bytes(key)), shown_bytes(record.value))


# Values for JSON


def plain(part: Part) -> Fields:
    """Fields by name, structs inside as fields again."""
    return {name: _plain(name, getattr(part, name)) for name in fields_of(type(part))}


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, Part):
        return plain(value)
    if isinstance(value, list):
        return [_plain(name, one) for one in value]
    if isinstance(value, bytes):
        if name == "topic_id":
            return topic_id_text(value)
        return shown_bytes(value)
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


