"""The faults of one cluster: which of them a request meets, how often each has fired, and what came near it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final, NamedTuple

from broker.faults.fault import Fault
from broker.faults.shapes import Kind, Level, Path, asks_for_all, paths, shape_of
from protocol.message import Part, field_names

MISSES_KEPT: Final = 5
HITS_KEPT: Final = 100


class Request(NamedTuple):
    """A request as faults see it."""

    key: int
    api: str
    version: int
    client_id: str
    peer: str
    listener: str
    correlation_id: int
    message: Any
    wall_ms: int


class Match(NamedTuple):
    """A fault that a request meets. `selected`: the things that it is for; None: the whole request, or all that its reply names."""

    installed: Installed
    selected: frozenset[tuple[Any, ...]] | None


class Installed:
    """A fault with what has become of it."""

    def __init__(self, id: int, fault: Fault) -> None:
        self.id = id
        self.fault = fault
        self.seen = 0  # matching requests
        self.hits = 0
        self.hit: deque[dict[str, Any]] = deque(maxlen=HITS_KEPT)
        self.misses: deque[dict[str, Any]] = deque(maxlen=MISSES_KEPT)
        self.random = Random(fault.seed)
        self.api_keys = frozenset(fault.api_keys)

    @property
    def left(self) -> int:
        """How often it may still fire; -1: without end."""
        count = self.fault.count
        return -1 if count < 0 else count - self.hits

    def report(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "fault": self.fault.document(),
            "hits": self.hits,
            "left": self.left,
            "hit": list(self.hit),
            "nearest_misses": list(self.misses),
        }

    def story(self) -> str:
        """In a sentence, why it has not fired, for the failure of a test."""
        name = f" {self.fault.name!r}" if self.fault.name else ""
        if self.hits:
            return f"fault {self.id}{name} fired {self.hits} times"
        if not self.misses:
            return f"fault {self.id}{name} never fired, and no request came near it"
        miss = self.misses[-1]
        return f"fault {self.id}{name} never fired; the nearest was {miss['api']} of client {miss['client_id']!r}: {miss['why']}"


class Book:
    def __init__(self, topic_name: Callable[[bytes], str | None] = lambda id: None) -> None:
        """`topic_name`: of a topic's id."""
        self._topic_name = topic_name
        self._installed: dict[int, Installed] = {}
        self._next_id = 1

    def __bool__(self) -> bool:
        return bool(self._installed)

    def __iter__(self) -> Iterator[Installed]:
        return iter(self._installed.values())

    def get(self, id: int) -> Installed | None:
        return self._installed.get(id)

    def install(self, fault: Fault) -> Installed:
        installed = self._installed[self._next_id] = Installed(self._next_id, fault)
        self._next_id += 1
        return installed

    def remove(self, id: int) -> Installed | None:
        return self._installed.pop(id, None)

    def clear(self) -> None:
        self._installed.clear()

    def match(self, request: Request) -> Match | None:
        """The first fault that the request meets, if it fires now."""
        shape = shape_of(request.key, request.version)
        for installed in self._installed.values():
            fault = installed.fault
            if installed.left == 0:
                continue
            wrong = self._differences(installed, request)
            selected: frozenset[tuple[Any, ...]] | None = None
            if fault.selects_things:
                selected, missing = self._selected(fault, request, shape)
                wrong += missing
            if wrong:
                if len(wrong) == 1:
                    installed.misses.append(self._entry(request) | {"why": wrong[0]})
                continue
            installed.seen += 1
            if installed.seen <= fault.skip:
                continue
            if fault.probability < 1 and installed.random.random() >= fault.probability:
                continue
            installed.hits += 1
            installed.hit.append(self._entry(request))
            return Match(installed, selected)
        return None

    def _entry(self, request: Request) -> dict[str, Any]:
        entry = {
            "time_ms": request.wall_ms,
            "api": request.api,
            "version": request.version,
            "client_id": request.client_id,
            "peer": request.peer,
            "correlation_id": request.correlation_id,
        }
        group = getattr(request.message, "group_id", None)
        return entry | {"group": group} if group else entry

    def _differences(self, installed: Installed, request: Request) -> list[str]:
        """In what the request, as a whole, is not what the fault is for."""
        fault, message = installed.fault, request.message
        wrong = []
        if installed.api_keys and request.key not in installed.api_keys:
            wrong.append(f"it is {request.api}, and the fault is for {', '.join(fault.apis)}")
        if fault.versions and request.version not in fault.versions:
            wrong.append(f"its version is {request.version}")
        for name, value in (("client_id", request.client_id), ("peer", request.peer), ("listener", request.listener)):
            patterns = getattr(fault, name)
            if patterns and not matches_any(value, patterns):
                wrong.append(f"its {name.replace('_', ' ')} is {value!r}, and the fault is for {', '.join(patterns)}")
        for name in ("transactional_id", "producer_id"):
            wanted = getattr(fault, name)
            if wanted:
                id = getattr(message, name, getattr(message, f"v3_and_below_{name}", None))
                if id not in wanted and not (isinstance(id, str) and matches_any(id, wanted)):
                    wrong.append(f"its {name.replace('_', ' ')} is {id!r}")
        for field, wanted in fault.where:
            found = find_field(message, field)
            if found != wanted:
                wrong.append(f"its {field} is {found!r}, and the fault wants {wanted!r}")
        return wrong

    def _selected(self, fault: Fault, request: Request, shape: Level | None) -> tuple[frozenset[tuple[Any, ...]] | None, list[str]]:
        """The things of the request that the fault is for, and what keeps it from being for any. None: the whole request."""
        message = request.message
        wrong = []
        kinds = kinds_of(shape)
        # What stands in the request once is for all of it.
        for kind, fields in ((Kind.GROUP, ("group_id", "key")), (Kind.MEMBER, ("member_id",)), (Kind.INSTANCE, ("group_instance_id", "instance_id"))):
            patterns = getattr(fault, kind.value)
            if not patterns or kind in kinds or (kind is Kind.INSTANCE and Kind.MEMBER in kinds):
                continue
            value = next((getattr(message, field) for field in fields if hasattr(message, field)), None)
            if value is None or not matches_any(value, patterns):
                wrong.append(f"its {kind.value} is {value!r}, and the fault is for {', '.join(patterns)}")
        wanted = {kind for kind in Kind if getattr(fault, kind.value)}
        if fault.topic_id:
            wanted.add(Kind.TOPIC)
        inside = wanted & (kinds | ({Kind.INSTANCE} if Kind.MEMBER in kinds else set()))
        outside = wanted - inside - {Kind.GROUP, Kind.MEMBER, Kind.INSTANCE}
        wrong += [f"it names no {'topics' if kind is Kind.PARTITION else kind.value + 's'}" for kind in sorted(outside, key=lambda kind: kind.value)]
        if wrong or not inside or shape is None:
            return None, wrong
        if asks_for_all(shape, message):
            return None, wrong
        chosen = frozenset(path.keys for path in paths(shape, message) if self._chooses(fault, path, message, shape))
        if not chosen:
            wrong.append(f"it names no {' or '.join(sorted(kind.value for kind in inside))} that the fault is for")
        return chosen, wrong

    def _chooses(self, fault: Fault, path: Path, message: Any, shape: Level) -> bool:
        for key, kind in zip(path.keys, path.kinds, strict=True):
            if kind is Kind.PARTITION:
                if fault.partitions and key not in fault.partitions:
                    return False
                continue
            if kind is Kind.TOPIC:
                name = self._topic_name(key) if isinstance(key, bytes) else key
                if fault.topic and not matches_any(name or "", fault.topic):
                    return False
                if fault.topic_id and not (isinstance(key, bytes) and key.hex() in [id.replace("-", "") for id in fault.topic_id]):
                    return False
                continue
            if kind is Kind.MEMBER:
                entry = next(entry for entry in getattr(message, shape.request) if key in (entry.member_id, entry.group_instance_id))
                if fault.member and not matches_any(entry.member_id, fault.member):
                    return False
                if fault.instance and not matches_any(entry.group_instance_id or "", fault.instance):
                    return False
                continue
            patterns = getattr(fault, kind.value)
            if patterns and not matches_any(key, patterns):
                return False
        return True


def kinds_of(shape: Level | None) -> set[Kind]:
    kinds = set()
    while shape is not None:
        kinds.add(shape.kind)
        shape = shape.inner
    return kinds


def matches_any(value: str, patterns: tuple[str, ...]) -> bool:
    return any(value.startswith(pattern[:-1]) if pattern.endswith("*") else value == pattern for pattern in patterns)


def find_field(message: Any, name: str) -> Any:
    """A field of a request; `generation_id` also finds what newer versions call otherwise."""
    if not isinstance(message, Part):
        return None
    names = field_names(type(message))
    if name in names:
        return getattr(message, name)
    longer = [other for other in names if other.startswith(f"{name}_or_")]
    return getattr(message, longer[0]) if longer else None
