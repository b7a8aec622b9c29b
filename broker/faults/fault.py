"""The fault: one value that says which requests it is for and what becomes of them. `Fault.parse` reads it from JSON, `document` writes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from protocol.apis import APIS
from protocol.errors import ErrorCode

NEVER: Final = "never"
BEFORE: Final = "before"
LATE: Final = "late"
LOG_TROUBLES: Final = ("full", "io-error", LATE)
LATE_MS: Final = 1_000
APIS_BY_NAME: Final = {api.name: api for api in APIS.values()}


class BadFault(Exception):
    """A fault that cannot be: what is wrong, and the remedy."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint


@dataclass(frozen=True)
class Action:
    """What becomes of a request; exactly one of the first eight."""

    error: str | None = None  # the name of the code
    drop: bool = False  # close the connection without a reply
    delay_ms: int | None = None
    hold: bool = False  # no reply until it is released
    blackhole: bool = False  # never a reply
    throttle_ms: int | None = None  # the reply says this throttle time, and comes after it
    log: str | None = None  # the append behind the request fails, or hangs
    late_ms: int | None = None  # how long it hangs
    observe: bool = False  # nothing: it is counted
    apply: str = NEVER  # `before`: the request is served and stored, then the client gets this instead of its reply
    top_level: bool = False  # the error is of the whole reply

    @property
    def name(self) -> str:
        return next(name for name in ACTIONS if getattr(self, name) not in (None, False))


ACTIONS: Final = ("error", "drop", "delay_ms", "hold", "blackhole", "throttle_ms", "log", "observe")


@dataclass(frozen=True)
class Fault:
    """Selectors that are absent match anything; texts may end in `*`; the request must match all."""

    action: Action
    apis: tuple[str, ...] = ()
    versions: tuple[int, ...] = ()
    client_id: tuple[str, ...] = ()
    peer: tuple[str, ...] = ()
    listener: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    member: tuple[str, ...] = ()
    instance: tuple[str, ...] = ()
    topic: tuple[str, ...] = ()
    topic_id: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()
    transactional_id: tuple[str, ...] = ()
    producer_id: tuple[int, ...] = ()
    resource: tuple[str, ...] = ()
    where: tuple[tuple[str, Any], ...] = ()  # fields of the request
    skip: int = 0
    count: int = 1  # -1: until it is removed
    probability: float = 1.0
    seed: int = 0
    name: str = ""
    may_not_fire: bool = False

    @classmethod
    def parse(cls, document: Any) -> Fault:
        """Read a fault from JSON; also as kfake and `kcl fake` write it (keys, err, txn_id, when)."""
        if not isinstance(document, Mapping):
            raise BadFault("a fault is an object", 'for example {"apis": ["OffsetCommit"], "action": {"error": "REQUEST_TIMED_OUT"}}')
        given = dict(document)
        for other, name in SYNONYMS.items():
            if other in given:
                given.setdefault(name, given.pop(other))
        action = given.pop("action", None)
        short = {name: given.pop(name) for name in (*ACTIONS, "delay", "throttle", "apply", "top_level", "late_ms") if name in given}
        if action is not None and short:
            raise BadFault(f"{', '.join(short)}: stands beside the action and belongs into it")
        values: dict[str, Any] = {"action": parse_action(short if action is None else action)}
        known = {field.name for field in fields(cls)}
        for name, value in given.items():
            if name not in known:
                raise BadFault(f"a fault has no field {name!r}", nearest(name, [*known, *ACTIONS, "action"]))
            values[name] = parse_field(name, value)
        fault = cls(**values)
        fault.check()
        return fault

    def check(self) -> None:
        action = self.action
        if action.name in ("throttle_ms", "error") and action.apply not in (NEVER, BEFORE):
            raise BadFault(f"apply: {action.apply!r} is neither {NEVER!r} nor {BEFORE!r}")
        if not 0 < self.probability <= 1:
            raise BadFault("probability: a number above 0 and up to 1")
        if self.skip < 0 or self.count < -1 or self.count == 0:
            raise BadFault("skip and count: whole numbers; a count of -1 has no end, and 0 would never fire")

    def document(self) -> dict[str, Any]:
        """As JSON, without what has its default."""
        shown: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "action":
                action = {part.name: getattr(value, part.name) for part in fields(value)}
                shown["action"] = {name: part for name, part in action.items() if part not in (None, False) and (name, part) != ("apply", NEVER)}
            elif field.name == "where":
                if value:
                    shown["where"] = dict(value)
            elif value != field.default:
                shown[field.name] = list(value) if isinstance(value, tuple) else value
        return shown

    @property
    def api_keys(self) -> tuple[int, ...]:
        return tuple(APIS_BY_NAME[name].key for name in self.apis)

    @property
    def selects_things(self) -> bool:
        """Whether it is for some of the things of a request: groups, topics, partitions, resources, members."""
        return bool(self.group or self.topic or self.topic_id or self.partitions or self.resource or self.member or self.instance)


SYNONYMS: Final = {"keys": "apis", "api": "apis", "api_key": "apis", "err": "error", "txn_id": "transactional_id", "partition": "partitions", "client": "client_id"}
TEXTS: Final = ("client_id", "peer", "listener", "group", "member", "instance", "topic", "topic_id", "transactional_id", "resource")
NUMBERS: Final = ("versions", "partitions", "producer_id")


def nearest(name: str, known: list[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, known, 1, 0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known))}"


def parse_field(name: str, value: Any) -> Any:
    if name == "apis":
        return tuple(api_name(entry) for entry in entries_of(name, value))
    if name in TEXTS:
        entries = entries_of(name, value)
        if not all(isinstance(entry, str) for entry in entries):
            raise BadFault(f"{name}: a text, or a list of texts")
        return tuple(entries)
    if name in NUMBERS:
        entries = entries_of(name, value)
        if not all(isinstance(entry, int) and not isinstance(entry, bool) for entry in entries):
            raise BadFault(f"{name}: a whole number, or a list of them")
        return tuple(entries)
    if name == "where":
        if not isinstance(value, Mapping):
            raise BadFault("where: an object of fields of the request", 'for example {"generation_id": 3}')
        return tuple(value.items())
    if name in ("skip", "count", "seed"):
        if not isinstance(value, int) or isinstance(value, bool):
            raise BadFault(f"{name}: a whole number")
        return value
    if name == "probability":
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise BadFault("probability: a number above 0 and up to 1")
        return float(value)
    if name == "may_not_fire":
        if not isinstance(value, bool):
            raise BadFault("may_not_fire: true or false")
        return value
    if not isinstance(value, str):
        raise BadFault(f"{name}: a text")
    return value


def entries_of(name: str, value: Any) -> list[Any]:
    entries = list(value) if isinstance(value, list | tuple) else [value]
    if not entries:
        raise BadFault(f"{name}: an empty list selects nothing", "leave it out to select all")
    return entries


def of_kfake(rule: Any) -> Any:
    """A rule of `kcl fake` with what it leaves out: without an error it means UNKNOWN_SERVER_ERROR, and these two errors are answered after the work is done."""
    if not isinstance(rule, Mapping):
        return rule
    given = dict(rule)
    if not given.get("observe"):
        error = error_name(given.setdefault("error", given.pop("err", "UNKNOWN_SERVER_ERROR")))
        if error in ("REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"):
            given.setdefault("apply", BEFORE)
    if not given.get("count", 1):
        given["count"] = 1
    return given


def number_of(value: Any) -> Any:
    """`kcl` writes numbers of APIs and errors as texts."""
    return int(value) if isinstance(value, str) and value.removeprefix("-").isdecimal() else value


def api_name(entry: Any) -> str:
    entry = number_of(entry)
    if isinstance(entry, int) and not isinstance(entry, bool) and entry in APIS:
        return APIS[entry].name
    if isinstance(entry, str):
        by_lower = {name.lower(): name for name in APIS_BY_NAME}
        known = by_lower.get(entry.removesuffix("Request").lower())
        if known:
            return known
        raise BadFault(f"there is no API {entry!r}", nearest(entry, list(APIS_BY_NAME)))
    raise BadFault(f"there is no API {entry!r}", "name it, or give its number")


def parse_action(document: Any) -> Action:
    if isinstance(document, str):
        document = {document: True}
    if not isinstance(document, Mapping):
        raise BadFault("action: an object", 'for example {"error": "REQUEST_TIMED_OUT"}')
    given = dict(document)
    for other, name in (("delay", "delay_ms"), ("throttle", "throttle_ms")):
        if other in given:
            given[name] = given.pop(other)
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name == "error":
            values["error"] = error_name(value)
        elif name in ("delay_ms", "throttle_ms", "late_ms"):
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise BadFault(f"action: {name} is a whole number of milliseconds")
            values[name] = value
        elif name in ("drop", "hold", "blackhole", "observe", "top_level"):
            if not isinstance(value, bool):
                raise BadFault(f"action: {name} is true or false")
            values[name] = value
        elif name == "log":
            if value not in LOG_TROUBLES:
                raise BadFault(f"action: log is one of {', '.join(LOG_TROUBLES)}")
            values["log"] = value
        elif name == "apply":
            if value not in (NEVER, BEFORE):
                raise BadFault(f"action: apply is {NEVER!r} or {BEFORE!r}")
            values["apply"] = value
        else:
            raise BadFault(f"an action has no field {name!r}", nearest(name, [*ACTIONS, "apply", "top_level", "late_ms"]))
    if "late_ms" in values and values.get("log") != LATE:
        raise BadFault("action: late_ms says how long a log is late", f'{{"log": "{LATE}", "late_ms": {LATE_MS}}}')
    wanted = [name for name in ACTIONS if values.get(name) not in (None, False)]
    if len(wanted) != 1:
        what = " and ".join(wanted) if wanted else "nothing"
        raise BadFault(f"action: {what}; an action is exactly one of {', '.join(ACTIONS)}")
    return Action(**values)


def error_name(value: Any) -> str:
    value = number_of(value)
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            value = ErrorCode(value).name
        except ValueError:
            raise BadFault(f"there is no error {value}") from None
    if not isinstance(value, str):
        raise BadFault("action: error is the name of a code, or its number", "for example REQUEST_TIMED_OUT")
    name = value.upper()
    if name not in ErrorCode.__members__:
        raise BadFault(f"there is no error {value!r}", nearest(name, list(ErrorCode.__members__)))
    if name == "NONE":
        raise BadFault("error NONE is no error", 'to only count requests, use the action {"observe": true}')
    return name
