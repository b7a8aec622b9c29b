"""Notes as they are read back: the records of __coordinator_notes, and what an operation left behind in the offsets log."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeVar

from protocol.message import Message
from protocol.messages.coordinator_notes import NoteHeader, NoteKey
from protocol.records import read_note, read_record

E = TypeVar("E", bound=IntEnum)


class Told(NamedTuple):
    """One note. `group` is empty for what was told of the whole partition."""

    group: str
    header: NoteHeader
    body: Message

    @property
    def at_ms(self) -> int:
        return self.header.ts


def read_told(key: bytes | None, value: bytes | None) -> Told | None:
    """None for notes of a kind or version that we do not know. Raises ProtocolError for bytes that are no note."""
    if key is None or value is None:
        return None
    header, body = read_note(value)
    if isinstance(body, bytes):
        return None
    return Told(read_record(NoteKey, key).group, header, body)


def known(values: type[E], number: int) -> E | None:
    """None where something newer wrote the number."""
    try:
        return values(number)
    except ValueError:
        return None
