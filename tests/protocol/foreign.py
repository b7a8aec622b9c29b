"""Random messages as instances of kio's classes and of ours."""

from __future__ import annotations

import datetime
import importlib
import io
import types
import typing
import uuid
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from random import Random
from typing import Any

from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32Timedelta, i64Timedelta

from protocol.apis import APIS
from protocol.generator import from_kio
from protocol.generator.from_toml import modules, snake
from protocol.generator.model import Field, Message, Module, Struct

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MODULES: dict[str, Module] = {module.name: module for module in modules()}
MESSAGES: dict[str, tuple[Module, Message]] = {
    message.struct.name: (module, message) for module in MODULES.values() for message in module.messages
}
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def cases() -> Iterator[tuple[str, int]]:
    """Every message and version that kio has too."""
    for api in APIS.values():
        for version in range(api.coded[0], api.coded[1] + 1):
            for side in ("Request", "Response"):
                if from_kio.kio_class(snake(api.name), side.lower(), api.name + side, version) is not None:
                    yield api.name + side, version
    for name in ("ConsumerProtocolSubscription", "ConsumerProtocolAssignment"):
        for version in range(4):
            yield name, version


def versions() -> dict[str, list[int]]:
    """The versions of each message that kio has too."""
    by_name: dict[str, list[int]] = {}
    for name, version in cases():
        by_name.setdefault(name, []).append(version)
    return by_name


def our_class(name: str) -> Any:
    module, _ = MESSAGES[name]
    return getattr(importlib.import_module(f"protocol.messages.{module.name}"), name)


def kio_class(name: str, version: int) -> Any:
    for side in ("Request", "Response"):
        if name.endswith(side):
            return getattr(importlib.import_module(f"kio.schema.{snake(name.removesuffix(side))}.v{version}.{side.lower()}"), name)
    return getattr(importlib.import_module(f"kio.schema.{snake(name)}.v{version}.data"), name)


def kio_bytes(instance: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(instance))(buffer, instance)
    return buffer.getvalue()


def kio_read(cls: Any, data: bytes) -> tuple[Any, int]:
    return entity_reader(cls)(data, 0)


def random_instance(cls: Any, random: Random) -> Any:
    """A random instance of a kio class, with many edge values."""
    hints = typing.get_type_hints(cls)
    return cls(**{field.name: random_field(field, hints[field.name], random) for field in fields(cls)})


def random_field(field: Any, hint: Any, random: Random) -> Any:
    kind = field.metadata.get("kafka_type", "struct")
    if "tag" in field.metadata and random.random() < 0.5:
        return default_of(field, hint)
    if type(None) in typing.get_args(hint):
        if random.random() < 0.3 and "tag" not in field.metadata:
            return None
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    if typing.get_origin(hint) is tuple:
        part = typing.get_args(hint)[0]
        length = random.choice((0, 1, 1, 2, 3)) if is_dataclass(part) else random.choice((0, 1, 2, 5, 130))
        return tuple(random_instance(part, random) if is_dataclass(part) else random_value(kind, random) for _ in range(length))
    return random_instance(hint, random) if is_dataclass(hint) else random_value(kind, random)


def default_of(field: Any, hint: Any) -> Any:
    if field.default is not MISSING:
        return field.default
    return {bool: False, uuid.UUID: None}[hint]


def random_value(kind: str, random: Random) -> Any:
    if kind in BITS:
        limit = 1 << (BITS[kind] - 1)
        return random.choice((0, 1, -1, limit - 1, -limit, random.randrange(-limit, limit), random.randrange(0, 128)))
    match kind:
        case "uint16":
            return random.choice((0, 1, 32_767, 32_768, 65_535, random.randrange(65_536)))
        case "bool":
            return random.random() < 0.5
        case "string":
            return random_text(random)
        case "bytes" | "records":
            return random.randbytes(random.choice((0, 1, 5, 126, 127, 128, 300, 20_000)))
        case "uuid":
            return None if random.random() < 0.2 else uuid.UUID(bytes=random.randbytes(15) + b"\1")
        case "error_code":
            return random.choice(list(KioErrorCode))
        case "timedelta_i32":
            return i32Timedelta.parse(datetime.timedelta(milliseconds=random.choice((0, -1, 1, 45_000, 2**31 - 1, -(2**31)))))
        case "timedelta_i64":
            return i64Timedelta.parse(datetime.timedelta(milliseconds=random.choice((0, -1, 86_400_000, 2**40))))
        case "datetime_i64":
            return None if random.random() < 0.3 else EPOCH + datetime.timedelta(milliseconds=random.randrange(2**41))
    raise AssertionError(kind)


def random_text(random: Random) -> str:
    alphabet = random.choice(("abc-_.0", "aé中😀\x00"))
    return "".join(random.choices(alphabet, k=random.choice((0, 1, 7, 36, 126, 127, 128, 200)) if random.random() < 0.7 else 12))


def ours(name: str, instance: Any) -> Any:
    """The same message in our class."""
    module, message = MESSAGES[name]
    return converted(importlib.import_module(f"protocol.messages.{module.name}"), message.struct, instance)


def converted(module: types.ModuleType, struct: Struct, instance: Any) -> Any:
    values = []
    for field in struct.arguments:
        name = next((n for n in (field.name, field.name.removesuffix("_ms")) if hasattr(instance, n)), None)
        if name is None:
            values.append([] if field.default == () else field.default)
            continue
        value = getattr(instance, name)
        if field.struct is not None and isinstance(value, tuple):
            values.append([converted(module, field.struct, part) for part in value])
        elif field.struct is not None and value is not None:
            kio_default = next(f.default for f in fields(instance) if f.name == name)
            values.append(None if field.tag is not None and value == kio_default else converted(module, field.struct, value))
        else:
            values.append(plain(field.kind, value, field.default))
    return getattr(module, struct.name)(*values)


def plain(kind: str, value: Any, default: Any) -> Any:
    match value:
        case None if kind == "uuid":
            return bytes(16)
        case None if kind == "int64":
            return default
        case uuid.UUID():
            return value.bytes
        case datetime.timedelta():
            return value // datetime.timedelta(milliseconds=1)
        case datetime.datetime():
            return (value - EPOCH) // datetime.timedelta(milliseconds=1)
        case tuple():
            return list(value)
    return value


def lacking() -> Iterator[tuple[str, int]]:
    """Every message and version that we have and kio lacks, but not the kinds of records and requests that only Tenure has."""
    for api in APIS.values():
        for version in range(api.coded[0], api.coded[1] + 1):
            for side in ("Request", "Response"):
                if from_kio.kio_class(snake(api.name), side.lower(), api.name + side, version) is None:
                    yield api.name + side, version
    for message in MODULES["consumer_offsets"].messages:
        if message.struct.name.startswith("ConsumerGroup"):
            yield message.struct.name, message.versions[1]


def random_message(name: str, version: int, random: Random) -> Any:
    """A random message of ours, with many edge values."""
    module, message = MESSAGES[name]
    return random_struct(importlib.import_module(f"protocol.messages.{module.name}"), message.struct, version, random)


def random_struct(module: types.ModuleType, struct: Struct, version: int, random: Random) -> Any:
    present = [field for field in struct.fields if field.versions[0] <= version <= field.versions[1]]
    given = {field.name: random_of(module, field, version, random) for field in present if field.tag is None or random.random() < 0.5}
    return getattr(module, struct.name)(**given)


def random_of(module: types.ModuleType, field: Field, version: int, random: Random) -> Any:
    if field.nullable is not None and field.tag is None and random.random() < 0.3:
        return None
    if field.kind == "array" and field.struct is not None:
        return [random_struct(module, field.struct, version, random) for _ in range(random.choice((0, 1, 1, 2, 3)))]
    if field.kind == "array":
        lengths = (0, 1, 2, 5, 130) if field.tag is None else (1, 2, 5, 130)  # an empty list with a tag is left out
        return [random_value(field.element, random) for _ in range(random.choice(lengths))]
    if field.struct is not None:
        return random_struct(module, field.struct, version, random)
    return random.randbytes(16) if field.kind == "uuid" else random_value(field.kind, random)
