"""The input of the history: notes from __coordinator_notes, and group records from __consumer_offsets."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeVar

from protocol.message import Message
from protocol.messages.consumer_offsets import GroupMetadataKey, GroupMetadataValue
from protocol.messages.coordinator_notes import NoteHeader, NoteKey
from protocol.messages.kinds import NoteKind
from protocol.records import read_note, read_offsets_key, read_record

E = TypeVar("E", bound=IntEnum)


class NoteRecord(NamedTuple):
    """One note. `group` is empty for a note about the whole partition."""

    group: str
    header: NoteHeader
    body: Message

    @property
    def at_ms(self) -> int:
        return self.header.ts

    def concerns(self, group: str) -> bool:
        """Whether the note is about the group or the coordinator of its partition; other notes without a group are about topics."""
        return self.group == group or self.header.kind == NoteKind.COORDINATOR


class GroupRecord(NamedTuple):
    """A group metadata record: the group as it was stored. `stored` is None for a tombstone: the group was deleted, or `taken_over`."""

    offset: int
    at_ms: int  # when it was appended
    stored: GroupMetadataValue | None
    epoch: int = -1  # of the coordinator that wrote it
    taken_over: bool = False  # records of a newer protocol (KIP-848) follow: the group goes on in that protocol
    newer_since_ms: int = -1  # the time of the first record of a newer protocol between the previous record and this one
    newer_told: bool = False  # the records of the newer protocol are understood: `epochs.py` tells what happened in it
    is_target: bool = False  # no record of a log, but the target of a consumer group, as `epochs.py` makes it

    @property
    def generation(self) -> int:
        return self.stored.generation if self.stored is not None else -1

    @property
    def member_ids(self) -> set[str]:
        return {member.member_id for member in self.stored.members} if self.stored is not None else set()

    def ids_of(self, instance_id: str) -> set[str]:
        """The member ids with this instance id: one or none."""
        return {member.member_id for member in self.stored.members if member.group_instance_id == instance_id} if self.stored is not None else set()


def read_note_record(key: bytes | None, value: bytes | None) -> NoteRecord | None:
    """Decode a note; None for an unknown kind or version. Raises ProtocolError for invalid bytes."""
    if key is None or value is None:
        return None
    header, body = read_note(value)
    if isinstance(body, bytes):
        return None
    return NoteRecord(read_record(NoteKey, key).group, header, body)


def read_group_record(group: str, offset: int, at_ms: int, epoch: int, key: bytes | None, value: bytes | None) -> GroupRecord | None:
    """Decode a record of this group; None for other records of __consumer_offsets. Raises ProtocolError for invalid bytes."""
    if key is None:
        return None
    record_key = read_offsets_key(key)
    if not isinstance(record_key, GroupMetadataKey) or record_key.group != group:
        return None
    return GroupRecord(offset, at_ms, None if value is None else read_record(GroupMetadataValue, value), epoch)


def known_member(values: type[E], number: int) -> E | None:
    """The enum member; None for a number that only a newer version knows."""
    try:
        return values(number)
    except ValueError:
        return None
