"""Where the groups, topics, partitions and resources stand in each API's request and reply: one row for each API that names several.

A request has a list of things, its reply a list with an entry for each of them. By these rows a fault takes some of the things out of a
request, and puts errors for them into the reply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from protocol.message import Part, field_names


class Kind(Enum):
    GROUP = "group"
    TOPIC = "topic"
    PARTITION = "partitions"
    RESOURCE = "resource"
    MEMBER = "member"
    INSTANCE = "instance"


class Level(NamedTuple):
    """One list of a request, and the list of its reply."""

    kind: Kind
    request: str  # the field of the list
    reply: str
    key: tuple[str, ...]  # fields of an entry of the request that name it, the first that is not empty counts; none: the entry is the name itself
    reply_key: tuple[str, ...]
    inner: Level | None = None
    error: str = "error_code"  # of an entry of the reply, if there is no inner list


class Path(NamedTuple):
    """A thing in a request: the keys on the way to it, from the outermost list."""

    keys: tuple[Any, ...]
    kinds: tuple[Kind, ...]


Rows = Mapping[int, Callable[[int], "Level | None"]]


def of_topics(
    request: str = "topics",
    reply: str = "topics",
    key: tuple[str, ...] = ("name",),
    partitions: str = "partitions",
    index: tuple[str, ...] = ("partition_index",),
    reply_key: tuple[str, ...] = (),
    reply_partitions: str = "partitions",
    reply_index: tuple[str, ...] = ("partition_index",),
    error: str = "error_code",
) -> Level:
    inner = Level(Kind.PARTITION, partitions, reply_partitions, index, reply_index, error=error)
    return Level(Kind.TOPIC, request, reply, key, reply_key or key, inner)


def always(level: Level | None) -> Callable[[int], Level | None]:
    return lambda version: level


_TOPIC = ("name", "topic_id")
_RESOURCE = ("resource_name",)
_OFFSETS_OF_GROUP: Final = of_topics(partitions="partition_indexes", index=())
_OFFSETS_OF_GROUPS: Final = of_topics(key=_TOPIC, partitions="partition_indexes", index=())
ROWS: Final[Rows] = {
    0: always(of_topics("topic_data", "responses", _TOPIC, partitions="partition_data", index=("index",), reply_partitions="partition_responses", reply_index=("index",))),
    1: always(of_topics("topics", "responses", ("topic", "topic_id"), index=("partition",))),
    2: always(of_topics()),
    3: always(Level(Kind.TOPIC, "topics", "topics", _TOPIC, _TOPIC)),
    8: always(of_topics(key=_TOPIC)),
    9: lambda version: Level(Kind.GROUP, "groups", "groups", ("group_id",), ("group_id",), _OFFSETS_OF_GROUPS) if version >= 8 else _OFFSETS_OF_GROUP,
    10: lambda version: Level(Kind.GROUP, "coordinator_keys", "coordinators", (), ("key",)) if version >= 4 else None,
    13: lambda version: Level(Kind.MEMBER, "members", "members", ("member_id", "group_instance_id"), ("member_id", "group_instance_id")) if version >= 3 else None,
    15: always(Level(Kind.GROUP, "groups", "groups", (), ("group_id",))),
    19: always(Level(Kind.TOPIC, "topics", "topics", ("name",), ("name",))),
    20: lambda version: Level(Kind.TOPIC, "topics", "responses", _TOPIC, _TOPIC) if version >= 6 else Level(Kind.TOPIC, "topic_names", "responses", (), ("name",)),
    21: always(of_topics()),
    23: always(of_topics(key=("topic",), index=("partition",), reply_index=("partition",))),
    24: always(of_topics("v3_and_below_topics", "results_by_topic_v3_and_below", index=(), reply_partitions="results_by_partition", error="partition_error_code")),
    28: always(of_topics()),
    32: always(Level(Kind.RESOURCE, "resources", "results", _RESOURCE, _RESOURCE)),
    33: always(Level(Kind.RESOURCE, "resources", "responses", _RESOURCE, _RESOURCE)),
    37: always(Level(Kind.TOPIC, "topics", "results", ("name",), ("name",))),
    42: always(Level(Kind.GROUP, "groups_names", "results", (), ("group_id",))),
    43: always(of_topics("topic_partitions", "replica_election_results", ("topic",), index=(), reply_partitions="partition_result", reply_index=("partition_id",))),
    44: always(Level(Kind.RESOURCE, "resources", "responses", _RESOURCE, _RESOURCE)),
    45: always(of_topics("topics", "responses")),
    47: always(of_topics()),
    55: always(of_topics(key=("topic_name",))),
    69: always(Level(Kind.GROUP, "group_ids", "groups", (), ("group_id",))),
    75: always(Level(Kind.TOPIC, "topics", "topics", ("name",), ("name",))),
}


def shape_of(key: int, version: int) -> Level | None:
    row = ROWS.get(key)
    return row(version) if row is not None else None


def name_of(entry: Any, fields: tuple[str, ...]) -> Any:
    """The key of an entry: the first of these fields that is not empty."""
    if not fields:
        return entry
    values = [getattr(entry, field) for field in fields]
    return next((value for value in values if value not in (None, "", bytes(16))), values[0])


def paths(level: Level, request: Any, keys: tuple[Any, ...] = (), kinds: tuple[Kind, ...] = ()) -> Iterator[Path]:
    """All things that a request names. A list that is null ("all") yields the path to it alone."""
    entries = getattr(request, level.request)
    if entries is None:
        if keys:
            yield Path(keys, kinds)
        return
    for entry in entries:
        path = (*keys, name_of(entry, level.key))
        if level.inner is None:
            yield Path(path, (*kinds, level.kind))
        else:
            yield from paths(level.inner, entry, path, (*kinds, level.kind))


def asks_for_all(level: Level, request: Any) -> bool:
    return getattr(request, level.request) is None


def copied(part: Part, **changes: Any) -> Any:
    cls = type(part)
    return cls(*[changes[name] if name in changes else getattr(part, name) for name in field_names(cls)])


def narrowed(level: Level, request: Any, wanted: Callable[[tuple[Any, ...]], bool], keys: tuple[Any, ...] = ()) -> tuple[Any, int]:
    """A copy of the request with the things that are wanted, and their number."""
    entries, count = [], 0
    for entry in getattr(request, level.request) or ():
        path = (*keys, name_of(entry, level.key))
        if level.inner is None or getattr(entry, level.inner.request) is None:
            if wanted(path):
                entries.append(entry)
                count += 1
        else:
            inner, inner_count = narrowed(level.inner, entry, wanted, path)
            if inner_count:
                entries.append(inner)
                count += inner_count
    return copied(request, **{level.request: entries}), count


def merged(level: Level, reply: Any, more: Any) -> Any:
    """The reply with the entries of another reply, which replace those of the same key."""
    entries = list(getattr(reply, level.reply) or ())
    at = {name_of(entry, level.reply_key): number for number, entry in enumerate(entries)}
    for entry in getattr(more, level.reply) or ():
        number = at.get(name_of(entry, level.reply_key))
        if number is None:
            entries.append(entry)
        elif level.inner is None or not getattr(entry, level.inner.reply):
            entries[number] = entry
        else:
            entries[number] = merged(level.inner, entries[number], entry)
    return copied(reply, **{level.reply: entries})


def error_codes(level: Level, reply: Any) -> Iterator[tuple[tuple[Any, ...], int]]:
    """The keys and error code of each entry of a reply."""
    for entry in getattr(reply, level.reply) or ():
        name = name_of(entry, level.reply_key)
        if level.inner is None or (not getattr(entry, level.inner.reply) and hasattr(entry, level.error)):
            yield (name,), int(getattr(entry, level.error))
        else:
            for keys, code in error_codes(level.inner, entry):
                yield (name, *keys), code
