"""The result of a sequence on one server, in comparable values: uuids become names, lists in arbitrary order are sorted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from protocol.message import Part, field_names
from tests.sequences.steps import Step

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")
LOST = "lost"  # the name of an id that no reply had

Answers = dict[int, Any]  # the number of the requesting step -> its reply
GroupStates = dict[str, Any]  # group -> its DescribeGroups result


class Trace:
    """For each step: the replies that arrived before the next step, and the state of the groups at that time."""

    __slots__ = ("answers", "group_states", "late", "steps", "tainted")

    def __init__(self, steps: list[Step], answers: list[Answers], group_states: list[GroupStates], late: bool = False) -> None:
        self.steps = steps
        self.answers = answers
        self.group_states = group_states
        self.late = late  # the machine was too busy to keep the times of the ticks
        self.tainted: tuple[int, str] | None = None  # (step, deviation): from this step on the deviation may show

    def as_json(self) -> list[Any]:
        """The trace as JSON values; the state of a group is omitted where it has not changed."""
        before: GroupStates | None = None
        entries: list[Any] = []
        for answers, look in zip(self.answers, self.group_states, strict=True):
            entry: dict[str, Any] = {str(number): answer for number, answer in sorted(answers.items())}
            if look != before:
                entry["look"] = look
            before = look
            entries.append(entry)
        return entries

    @classmethod
    def from_json(cls, steps: list[Step], entries: list[Any]) -> Trace:
        group_states: list[GroupStates] = []
        for entry in entries:
            group_states.append(entry["look"] if "look" in entry else group_states[-1])
        answers = [{int(number): answer for number, answer in entry.items() if number != "look"} for entry in entries]
        return cls(steps, answers, group_states)


def flat(value: Any) -> Any:
    """A message as plain values; fields at their default are omitted, error codes never."""
    if isinstance(value, Part):
        silent = DEFAULTS.setdefault(type(value), type(value)())
        fields = {}
        for name in field_names(type(value)):
            field = getattr(value, name)
            if name == "error_code" or (field != getattr(silent, name) and name != "throttle_time_ms"):
                fields[name] = flat(field)
        return fields
    if isinstance(value, list):
        return [flat(item) for item in value]
    if isinstance(value, bytes):
        return value.decode() if value.isascii() and value.decode().isprintable() else value.hex()
    return value


DEFAULTS: dict[type, Any] = {}


class Naming:
    """Replaces the ids of one server by names that are the same for every server."""

    def __init__(self, prefix: str, port: int, owners: dict[str, str]) -> None:
        self.prefix = prefix
        self.port = port
        self.owners = owners  # member id -> the actor that got it, and the step

    def plain(self, value: Any, do: str) -> Any:
        """A reply to a step of kind `do` as plain values, with names for ids."""
        return AFTER.get(do, lambda answer: answer)(self.renamed(flat(value)))

    def renamed(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self.renamed(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.renamed(item) for item in value]
        if not isinstance(value, str):
            return value
        if match := UUID.search(value):
            return value[: match.start()] + "#" + self.owners.get(value, LOST)
        return value.removeprefix(self.prefix) if self.prefix else value

    def look(self, reply: Any) -> GroupStates:
        """A DescribeGroups reply, reduced to the fields about the group itself."""
        groups = {}
        for group in self.plain(reply, "describe")["groups"]:
            members = [
                [member.get(name, "") for name in ("member_id", "group_instance_id", "client_id", "client_host", "member_metadata", "member_assignment")]
                for member in group.get("members", [])
            ]
            facts = [group.get(name, "") for name in ("group_state", "protocol_type", "protocol_data")]
            groups[group["group_id"]] = [*facts, members] if group["error_code"] == 0 else [*facts, members, group["error_code"]]
        return groups


def sorted_in(*path: str) -> Callable[[Any], Any]:
    """Sort the list at this path in a reply, as servers return it in arbitrary order."""

    def after(value: Any) -> Any:
        visit(value, path)
        return value

    return after


def visit(value: Any, path: tuple[str, ...]) -> None:
    for element in value if isinstance(value, list) else [value]:
        inside = element.get(path[0]) if isinstance(element, dict) else None
        if inside is None:
            continue
        if len(path) > 1:
            visit(inside, path[1:])
        else:
            inside.sort(key=lambda item: json.dumps(item, sort_keys=True))


def texts_hidden(value: Any) -> Any:
    """Replace error messages, which differ between servers: only their presence is compared."""
    if isinstance(value, dict):
        return {key: "some" if key == "error_message" and item else texts_hidden(item) for key, item in value.items()}
    return [texts_hidden(item) for item in value] if isinstance(value, list) else value


def describe(value: Any) -> Any:
    return sorted_in("groups", "members")(sorted_in("groups")(texts_hidden(value)))


def find(value: Any) -> Any:
    """Replace the addresses of coordinators, which differ: only their presence is compared."""
    for entry in [value, *value.get("coordinators", [])]:
        for name in ("host", "port", "node_id"):
            if name in entry and entry["error_code"] == 0:
                entry[name] = "there"
        if entry["error_code"] != 0:
            entry.pop("error_message", None)
    return value


AFTER: dict[str, Callable[[Any], Any]] = {
    "join": sorted_in("members"),
    "describe": describe,
    "list": sorted_in("groups"),
    "delete": sorted_in("results"),
    "find": find,
    "fetch": lambda value: sorted_in("groups", "topics", "partitions")(
        sorted_in("groups", "topics")(sorted_in("topics", "partitions")(sorted_in("topics")(value)))
    ),
}
