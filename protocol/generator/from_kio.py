"""Merges the classes of kio (Kafka's schemas as Python classes), one per message and version, into one description per message.

Kafka's schema lists the fields of all versions in one order, and so does each of kio's classes for the fields it has:
merging keeps that order.
"""

from __future__ import annotations

import importlib
import typing
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from dataclasses import Field as KioField
from datetime import timedelta
from types import UnionType
from typing import Any

from protocol.generator.model import NEVER, Field, Message, Struct, Versions

KINDS = {"error_code": "int16", "timedelta_i32": "int32", "timedelta_i64": "int64", "datetime_i64": "int64", "records": "bytes"}
ZEROS: dict[str, object] = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "uint16": 0,
    "int32": 0,
    "int64": 0,
    "string": "",
    "bytes": b"",
    "uuid": bytes(16),
}
MILLISECOND = timedelta(milliseconds=1)


def message_of(api: str, side: str, name: str, versions: Versions) -> Message:
    """The message `name`, which kio has in `kio.schema.<api>.v<n>.<side>`.

    Versions newer than kio's are derived from its newest: protocol/schema/apis.toml declares the fields that they add.
    """
    classes: dict[int, Any] = {}
    for version in range(versions[0], versions[1] + 1):
        classes[version] = kio_class(api, side, name, version) or classes[version - 1]
    flexible = [v for v, cls in classes.items() if cls.__flexible__]
    assert flexible == list(range(flexible[0] if flexible else NEVER, versions[1] + 1)), f"{name}: once flexible, always flexible"
    key = int(getattr(classes[versions[1]], "__api_key__", -1))
    return Message(
        struct=struct_of(name, classes),
        versions=versions,
        flexible_from=flexible[0] if flexible else NEVER,
        about="",
        api_key=None if key < 0 else key,
    )


def kio_class(api: str, side: str, name: str, version: int) -> Any:
    """kio's class for one version of a message, None if it has none."""
    try:
        return getattr(importlib.import_module(f"kio.schema.{api}.v{version}.{side}"), name)
    except ModuleNotFoundError:
        return None


def struct_of(name: str, classes: dict[int, Any]) -> Struct:
    return Struct(name, [field_of(key, classes) for key in merged_order([[f.name for f in fields(cls)] for cls in classes.values()])])


def merged_order(orders: list[list[str]]) -> list[str]:
    """One order of fields that agrees with the order in every version."""
    merged: list[str] = []
    for order in orders:
        at = 0
        for name in order:
            if name in merged:
                at = merged.index(name) + 1
            else:
                merged.insert(at, name)
                at += 1
    for order in orders:
        assert [name for name in merged if name in order] == order, f"the versions disagree about the order of {order}"
    return merged


def field_of(name: str, classes: dict[int, Any]) -> Field:
    seen = {v: f for v, cls in classes.items() for f in fields(cls) if f.name == name}
    hints = {v: typing.get_type_hints(classes[v])[name] for v in seen}
    last = seen[max(seen)]
    kio_kind = last.metadata.get("kafka_type", "struct")
    kind = KINDS.get(kio_kind, kio_kind)
    array = is_array(hints[max(seen)])
    parts = {v: part for v, hint in hints.items() for part in leaf_types(hint) if isinstance(part, type) and is_dataclass(part)}
    never_null = kind == "uuid" or kio_kind == "datetime_i64"  # kio's None stands for Kafka's zero id, or Kafka's time -1
    nullable = [] if never_null else [v for v, hint in hints.items() if type(None) in typing.get_args(hint)]
    tags = {f.metadata.get("tag") for f in seen.values()}
    assert len(tags) == 1, f"{name}: one tag or none"
    return Field(
        name=field_name(name, kio_kind),
        kind="array" if array else kind,
        versions=version_range(seen),
        element=kind if array else "",
        struct=struct_of(parts[max(parts)].__name__, parts) if parts else None,
        nullable=version_range(dict.fromkeys(nullable)) if nullable else None,
        tag=tags.pop(),
        default=default_of(last, kind, array, kio_kind),
    )


def field_name(name: str, kio_kind: str) -> str:
    """The field's name with its unit, which kio drops from Kafka's names."""
    return f"{name}_ms" if kio_kind.startswith("timedelta") or (kio_kind.startswith("datetime") and name.endswith("_time")) else name


def is_array(hint: Any) -> bool:
    return any(typing.get_origin(part) is tuple for part in (hint, *typing.get_args(hint)))


def leaf_types(hint: Any) -> Iterator[Any]:
    if typing.get_origin(hint) in (tuple, UnionType, typing.Union):
        for part in typing.get_args(hint):
            yield from leaf_types(part)
    else:
        yield hint


def version_range(versions: dict[int, Any]) -> Versions:
    assert list(versions) == list(range(min(versions), max(versions) + 1)), "a field's versions have no gap"
    return min(versions), max(versions)


def default_of(field: KioField[Any], kind: str, array: bool, kio_kind: str) -> object:
    if array:
        return None if field.default is None else ()
    if kind == "struct":
        return None
    if kio_kind == "datetime_i64" and field.default is None:
        return -1
    if field.default is MISSING or (field.default is None and kind == "uuid"):
        return None if kio_kind == "records" else ZEROS[kind]
    if isinstance(field.default, timedelta):
        return field.default // MILLISECOND
    if isinstance(field.default, int) and kind != "bool":
        return int(field.default)
    return field.default
