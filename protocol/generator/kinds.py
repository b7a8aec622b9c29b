"""Renders protocol/messages/kinds.py: the kinds of records in internal topics, the kinds of notes, and the enums of fields."""

from __future__ import annotations

from protocol.generator.lines import Lines
from protocol.generator.model import Message, Module
from protocol.generator.render import GENERATED_NOTICE, write_imports


def render_kinds(modules: list[Module]) -> str:
    out = Lines()
    out.put(
        '"""The kinds of records in internal topics, the kinds of notes, and the enums of their fields.',
        "",
        GENERATED_NOTICE,
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from enum import IntEnum",
        "from typing import Final, NamedTuple",
        "",
        "from protocol.message import Message, Part",
    )
    enums = {module.name: enums_of(module) for module in modules}
    for module in modules:
        keys = {name for message in module.messages if message.value for name in (message.struct.name, message.value)}
        bodies = {message.struct.name for message in module.messages if message.note is not None}
        write_imports(out, f"protocol.messages.{module.name}", keys | bodies | enums[module.name].keys())
    out.put("", "")
    with out.block("class RecordKind(NamedTuple):"):
        out.put('"""A kind of record: its name in the output of commands, the messages of its key and its value."""', "")
        out.put("name: str", "key: type[Message]", "value: type[Message]")
    out.put("", "", "# The kinds of records of a topic, by the version of their keys.")
    for module in modules:
        if any(message.value for message in module.messages):
            write_records(out, module)
    notes = sorted((message for module in modules for message in module.messages if message.note is not None), key=number_of)
    out.put("", "")
    with out.block("class NoteKind(IntEnum):"):
        out.put(*(f"{message.kind} = {message.note}" for message in notes))
    out.put("", "", "NOTES: Final[dict[int, type[Message]]] = {", *(f"    {message.note}: {message.struct.name}," for message in notes), "}")
    out.put("KIND_OF_NOTE: Final[dict[type[Message], NoteKind]] = {", *(f"    {message.struct.name}: NoteKind.{message.kind}," for message in notes), "}")
    out.put("", "# The class of a field's values, as module.Class: the module is not one that this package may import.")
    out.put("ENUMS: Final[dict[type[Part], dict[str, str]]] = {")
    for of_module in enums.values():
        for name, fields in of_module.items():
            out.put(f"    {name}: {{", *(f'        "{field}": "{enum}",' for field, enum in fields.items()), "    },")
    out.put("}")
    return "\n".join(out.lines) + "\n"


def write_records(out: Lines, module: Module) -> None:
    names = {message.struct.name for message in module.messages}
    kinds: dict[int, Message] = {}
    for message in module.messages:
        if not message.value:
            continue
        if message.value not in names:
            raise ValueError(f"{module.name}: {message.struct.name} has the value {message.value}, which is no message of the same file")
        for version in range(message.versions[0], message.versions[1] + 1):
            if version in kinds:
                raise ValueError(f"{module.name}: {message.struct.name} and {kinds[version].struct.name} have the same version {version}")
            kinds[version] = message
    out.put(f"{module.name.upper()}: Final[dict[int, RecordKind]] = {{")
    out.put(*(f'    {version}: RecordKind("{key.kind}", {key.struct.name}, {key.value}),' for version, key in kinds.items()))
    out.put("}")


def enums_of(module: Module) -> dict[str, dict[str, str]]:
    """By message or part: its fields whose values are those of an enum."""
    found: dict[str, dict[str, str]] = {}
    for message in module.messages:
        for struct in (*message.struct.nested(), message.struct):
            if fields := {field.name: field.enum for field in struct.fields if field.enum}:
                found[struct.name] = fields
    return found


def number_of(note: Message) -> int:
    assert note.note is not None
    return note.note
