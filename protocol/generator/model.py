"""The description of a message over all its supported versions."""

from __future__ import annotations

from dataclasses import dataclass, field

NEVER = 32767  # FLEXIBLE_FROM of a message that has no flexible version
FIXED_SIZES = {"bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "int64": 8, "uuid": 16}
FIXED_LETTERS = {"bool": "t", "int8": "b", "int16": "h", "uint16": "w", "int32": "i", "int64": "q", "uuid": "u"}

Versions = tuple[int, int]  # first and last, both included


@dataclass(frozen=True)
class Field:
    """One field. `kind` is a fixed-size kind, "string", "bytes", "struct" or "array"; `element` is the kind of an array's elements."""

    name: str
    kind: str
    versions: Versions
    element: str = ""
    struct: Struct | None = None
    nullable: Versions | None = None
    tag: int | None = None
    default: object = None
    enum: str = ""  # the class of its values, as module.Class
    argument_last: bool = False  # in the constructor it follows the other fields

    def within(self, versions: Versions) -> bool:
        return self.versions[0] <= versions[1] and versions[0] <= self.versions[1]


@dataclass
class Struct:
    """A class to generate: a message, or a part of one."""

    name: str
    fields: list[Field]  # in the order on the wire

    @property
    def arguments(self) -> list[Field]:
        """The fields in the order of the constructor."""
        return sorted(self.fields, key=lambda item: item.argument_last)

    def nested(self) -> list[Struct]:
        """All structs inside this one, each once, inner structs first."""
        parts: dict[str, Struct] = {}
        for item in self.fields:
            if item.struct is not None:
                for part in [*item.struct.nested(), item.struct]:
                    parts.setdefault(part.name, part)
        return list(parts.values())


@dataclass
class Message:
    struct: Struct
    versions: Versions
    flexible_from: int
    about: str
    api_key: int | None = None
    kind: str = ""  # of a key or a note: the name of its kind
    value: str = ""  # of a key: the message of its value
    note: int | None = None  # the number of a kind of note

    @property
    def is_reply(self) -> bool:
        """Whether it is the reply to a client's request."""
        return self.api_key is not None and self.struct.name.endswith("Response")


@dataclass
class Module:
    """One file of protocol/messages."""

    name: str
    about: str
    messages: list[Message] = field(default_factory=list)

    def make_names_unique(self) -> None:
        """Prefix the name of a part with its message's name if several messages of the module have a part of that name."""
        owners: dict[str, set[str]] = {}
        for message in self.messages:
            for part in message.struct.nested():
                owners.setdefault(part.name, set()).add(message.struct.name)
        for message in self.messages:
            for part in message.struct.nested():
                if len(owners.get(part.name, ())) > 1:
                    part.name = message.struct.name + part.name
