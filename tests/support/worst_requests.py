"""The worst requests of each served API: lists with many elements, of existing, missing and repeated names, from the types of its messages."""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from protocol.apis import APIS

Path = tuple[str, ...]  # the names of nested lists

EXISTING = "t"
FIXED: dict[str, Any] = {
    "acks": 1,
    "config_type": 0,
    "endpoint_type": 1,
    "generation_id_or_member_epoch": -1,
    "group_id": "g",
    "max_wait_ms": 0,
    "num_partitions": -1,
    "protocol_type": "consumer",
    "rebalance_timeout_ms": 10_000,
    "replication_factor": -1,
    "resource_type": 2,
    "response_partition_limit": 2000,
    "session_timeout_ms": 10_000,
    "timeout_ms": 5000,
    "validate_only": True,
}


class Worst(NamedTuple):
    path: Path
    wide: bool  # many elements around the list, each with one element in it
    distinct: bool
    request: Any

    def __str__(self) -> str:
        return f"{'.'.join(self.path)}{' wide' if self.wide else ''}{' distinct' if self.distinct else ''}"


def worst_requests(key: int, elements: int) -> Iterator[Worst]:
    """Requests with about this number of elements, most of them in one list, for each list of the API's request."""
    request = APIS[key].request
    for path in list_paths(request):
        for distinct in (False, True):
            yield Worst(path, False, distinct, build(request, {path: elements}, distinct))
            if len(path) > 1:
                counts = {path[:-1]: elements // len(path), path: 1}
                yield Worst(path, True, distinct, build(request, counts, distinct))


@cache
def fields(cls: type) -> tuple[tuple[str, Any, Any], ...]:
    """The name and type of each field of a message, and the type of its elements if it is a list."""
    return tuple(evaluated(cls))


def evaluated(cls: type) -> Iterator[tuple[str, Any, Any]]:
    for name, hint in typing.get_type_hints(vars(cls)["__init__"], vars(sys.modules[cls.__module__])).items():
        if name == "return":
            continue
        kind = next(part for part in typing.get_args(hint) if part is not types.NoneType) if isinstance(hint, types.UnionType) else hint
        if typing.get_origin(kind) is list:
            yield name, list, typing.get_args(kind)[0]
        else:
            yield name, kind, None


def is_part(kind: Any) -> bool:
    return isinstance(kind, type) and kind not in (str, int, bytes, bool, list)


def list_paths(cls: type, prefix: Path = ()) -> Iterator[Path]:
    for name, kind, element in fields(cls):
        if kind is list:
            yield (*prefix, name)
            if is_part(element):
                yield from list_paths(element, (*prefix, name))


def build(cls: type, counts: dict[Path, int], distinct: bool, at: Path = (), number: int = 0) -> Any:
    values: dict[str, Any] = {}
    for name, kind, element in fields(cls):
        path = (*at, name)
        if kind is list:
            on_the_way = any(listed[: len(path)] == path for listed in counts)
            count = counts.get(path, 1 if on_the_way else 0)
            if is_part(element):
                values[name] = [build(element, counts, distinct, path, number + index) for index in range(count)]
            else:
                values[name] = [value(name, element, number + index, distinct) for index in range(count)]
        elif not is_part(kind):
            values[name] = value(name, kind, number, distinct)
    return cls(**values)


def value(name: str, kind: type, number: int, distinct: bool) -> Any:
    if name in FIXED:
        return FIXED[name]
    if kind is bool:
        return False
    if kind is str:
        return f"x{number}" if distinct and number else EXISTING
    if kind is bytes:
        return number.to_bytes(16, "big") if name.endswith("_id") and distinct else bytes(16) if name.endswith("_id") else b""
    if "partition" in name or name in ("index", "broker_ids"):
        return number if distinct else 0
    return -1 if "epoch" in name or name in ("timestamp", "fetch_offset", "offset") else 0
