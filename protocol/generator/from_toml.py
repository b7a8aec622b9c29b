"""Reads protocol/schema: the APIs, our own records, and records that kio lacks."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

from protocol.generator import from_kio
from protocol.generator.model import NEVER, Field, Message, Module, Struct, Versions

SCHEMA = Path(__file__).parent.parent / "schema"
SIZED = {"bool", "int8", "int16", "int32", "int64", "uuid", "string", "bytes"}


def apis() -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = tomllib.loads((SCHEMA / "apis.toml").read_text())["api"]
    return sorted(listed, key=lambda api: api["key"])


def snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


def versions_with_codec(api: dict[str, Any]) -> Versions:
    first, last = api.get("coded", api["advertised"])
    return first, last


def api_modules() -> list[Module]:
    modules = []
    for api in apis():
        name, versions = api["name"], versions_with_codec(api)
        module = Module(snake(name), f"{name}, api key {api['key']}.")
        for side in ("Request", "Response"):
            message = from_kio.message_of(snake(name), side.lower(), name + side, versions)
            assert message.api_key == api["key"], f"{name}: kio has key {message.api_key}"
            message.about = f"{name} {side.lower()}"
            module.messages.append(message)
        add_fields(module, api.get("new", []))
        end_fields(module, api.get("ended", []))
        order_arguments(module, set(api.get("arguments_last", [])))
        check_newest(api, versions)
        modules.append(module)
    return modules


def add_fields(module: Module, new: list[dict[str, Any]]) -> None:
    """Insert fields that kio lacks after the fields that they follow on the wire."""
    for item in new:
        message, struct = owner_of(module, item["in"])
        at = [field.name for field in struct.fields].index(item["after"]) + 1
        struct.fields.insert(at, field_of(item, message.versions, {}))


def end_fields(module: Module, ended: list[dict[str, Any]]) -> None:
    """Take fields out of the versions that kio lacks and that do not have them."""
    for item in ended:
        _, struct = owner_of(module, item["in"])
        at = [field.name for field in struct.fields].index(item["name"])
        field = struct.fields[at]
        struct.fields[at] = replace(field, versions=(field.versions[0], item["last"]))


def order_arguments(module: Module, last: set[str]) -> None:
    """Put these fields at the end of the constructors that have them."""
    for message in module.messages:
        for struct in (*message.struct.nested(), message.struct):
            struct.fields = [replace(field, argument_last=field.name in last) for field in struct.fields]


def owner_of(module: Module, name: str) -> tuple[Message, Struct]:
    """The message or part of this name, and its message."""
    for message in module.messages:
        for struct in (*message.struct.nested(), message.struct):
            if struct.name == name:
                return message, struct
    raise ValueError(f"apis.toml: {module.name} has no {name}")


def check_newest(api: dict[str, Any], versions: Versions) -> None:
    """Check that the schema declares the new fields of a version that kio lacks, if only by `new = []`."""
    name = api["name"]
    if from_kio.kio_class(snake(name), "request", f"{name}Request", versions[1]) is None and "new" not in api:
        raise ValueError(f"kio does not know {name} version {versions[1]}: declare its fields as [[api.new]] in protocol/schema/apis.toml")


def record_modules() -> list[Module]:
    modules = []
    for path in sorted(SCHEMA.glob("*.toml")):
        if path.name == "apis.toml":
            continue
        schema = tomllib.loads(path.read_text())
        module = Module(path.stem, schema["about"])
        module.messages += [record_of(message) for message in schema.get("message", [])]
        for name, versions in schema.get("kio", {}).items():
            message = from_kio.message_of(snake(name), "data", name, (versions[0], versions[1]))
            message.about = "Embedded in group messages"
            module.messages.append(message)
        modules.append(module)
    return modules


def record_of(message: dict[str, Any]) -> Message:
    versions = versions_of(message["versions"], (0, NEVER))
    parts = {name: Struct(name, []) for name in message.get("structs", {})}
    for name, listed in message.get("structs", {}).items():
        parts[name].fields = [field_of(item, versions, parts) for item in listed]
    return Message(
        struct=Struct(message["name"], [field_of(item, versions, parts) for item in message["fields"]]),
        versions=versions,
        flexible_from=message.get("flexible_from", NEVER),
        about=f"Kind {message['note']}: {message['about']}" if "note" in message else message["about"],
        kind=message.get("kind", ""),
        value=message.get("value", ""),
        note=message.get("note"),
    )


def field_of(item: dict[str, Any], all_versions: Versions, parts: dict[str, Struct]) -> Field:
    array = item["type"].startswith("[]")
    kind = item["type"].removeprefix("[]")
    assert kind in SIZED or kind in parts, f"{item['name']}: unknown type {kind}"
    kind_or_struct = kind if kind in SIZED else "struct"
    versions = versions_of(item.get("versions", f"{all_versions[0]}+"), all_versions)
    nullable = versions if item.get("nullable", False) else None
    empty = None if nullable else () if array else None if kind_or_struct == "struct" else from_kio.ZEROS[kind]
    return Field(
        name=item["name"],
        kind="array" if array else kind_or_struct,
        versions=versions,
        element=kind_or_struct if array else "",
        struct=parts.get(kind),
        nullable=nullable,
        tag=item.get("tag"),
        default=item.get("default", empty),
        enum=item.get("enum", ""),
    )


def versions_of(text: str, within: Versions) -> Versions:
    """Parse "3+", "1" or "0-4"."""
    if text.endswith("+"):
        return int(text[:-1]), within[1]
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def modules() -> list[Module]:
    all_modules = [*api_modules(), *record_modules()]
    for module in all_modules:
        module.make_names_unique()
    return all_modules
