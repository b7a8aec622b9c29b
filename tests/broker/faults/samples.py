"""A request of each API with two of each thing that it can name."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from broker.faults.shapes import Kind, Level, shape_of
from protocol.apis import APIS, Api
from tests.protocol.foreign import MESSAGES, our_class

NAMES = ("alpha", "beta")
PARTITIONS = (0, 1)


def request_of(api: Api, version: int, topic_ids: dict[str, bytes] | None = None) -> Any:
    """As a client of this version sends it: encoded and decoded."""
    module, message = MESSAGES[f"{api.name}Request"]
    shape = shape_of(api.key, version)
    values = filled(message.struct, module, shape, topic_ids or {})
    request = our_class(f"{api.name}Request")(**values)
    return api.request.decode(request.encode(version), 0, version)[0]


def filled(struct: Any, module: Any, shape: Level | None, topic_ids: dict[str, bytes]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in struct.arguments:
        if shape is not None and field.name == shape.request:
            values[field.name] = entries(field, module, shape, topic_ids)
        elif field.kind == "array":
            values[field.name] = []
    return values


def entries(field: Any, module: Any, shape: Level, topic_ids: dict[str, bytes]) -> list[Any]:
    names: tuple[Any, ...] = PARTITIONS if shape.kind is Kind.PARTITION else NAMES
    if not shape.key:
        return list(names)
    struct = field.struct
    cls = our_class_of(module, struct)
    made = []
    for name in names:
        values = filled(struct, module, shape.inner, topic_ids)
        values[shape.key[0]] = name
        if "topic_id" in shape.key:
            values["topic_id"] = topic_ids.get(name, bytes(16))
        if shape.kind is Kind.MEMBER:
            values["group_instance_id"] = None
        made.append(cls(**values))
    return made


def our_class_of(module: Any, struct: Any) -> Any:
    return getattr(import_module(f"protocol.messages.{module.name}"), struct.name)


def shaped() -> list[tuple[int, int]]:
    """Key and version of each request that names several things."""
    return [
        (key, version)
        for key, api in sorted(APIS.items())
        for version in range(api.served[0], api.served[1] + 1)
        if shape_of(key, version) is not None
    ]
