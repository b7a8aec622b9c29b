"""What a test asserts about a group, from its history: which rebalances there were, why, and what they moved."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

from .control import path_of
from .verbs import WAIT_SECONDS, Verbs

HISTORY_PAUSE_SECONDS = 0.02  # between two readings of a history


class RebalanceSeen(AssertionError):
    """Other rebalances than expected; the text tells the group's story."""


class Rebalance:
    """One rebalance; `document` is its entry of `tenure group history --json`."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    @property
    def cause(self) -> str:
        """`session-expired`, `new-member`, ..."""
        return str(self.document.get("cause") or "unknown").replace("_", "-")

    @property
    def sentence(self) -> str:
        return str(self.document.get("cause_text") or self.cause)

    @property
    def duration_ms(self) -> int:
        return int(self.document.get("took_ms") or 0)

    @property
    def generation(self) -> int:
        return int(self.document.get("to_generation") or -1)

    @property
    def triggers(self) -> list[str]:
        """The causes in their order: the first one, and those for which it began anew."""
        return [self.cause, *(str(cause).replace("_", "-") for cause in self.document.get("began_anew_for") or [])]

    @property
    def stopped(self) -> list[str]:
        """The members that had to rejoin: one with an eager assignor consumes nothing meanwhile."""
        return list(self.document.get("rejoined") or [])

    @property
    def moved(self) -> list[dict[str, Any]]:
        return list(self.document.get("moved") or [])

    def __repr__(self) -> str:
        return f"<rebalance to generation {self.generation}: {self.sentence}>"


class Member:
    def __init__(self, group: Group, document: dict[str, Any]) -> None:
        self._group = group
        self.id: str = document["member"]
        self.instance: str | None = document["instance"]
        self.client_id: str = document["client_id"]
        self.partitions: dict[str, list[int]] | None = document["partitions"]

    def expire(self) -> None:
        """End its session now, exactly as if no heartbeat had come."""
        self._group.post("expire", member=self.id)

    def remove(self) -> None:
        """Remove it as an administrator does."""
        self._group.post("remove", member=self.id)


class Group:
    """A group of a cluster. Its history counts from the mark of the test."""

    def __init__(self, cluster: Verbs, name: str) -> None:
        self.cluster = cluster
        self.name = name

    def post(self, verb: str, **fields: Any) -> Any:
        return self.cluster.control.post(path_of(self.cluster.id, "groups", verb), {"group": self.name, **fields})

    def show(self) -> dict[str, Any]:
        return dict(self.cluster.control.get(path_of(self.cluster.id, "groups", "show"), group=self.name))

    @property
    def state(self) -> str:
        return str(self.show()["state"])

    @property
    def coordinator(self) -> int:
        """The node that coordinates it; 0 where there is one."""
        return int(self.show().get("coordinator", 0))

    @property
    def generation(self) -> int:
        """Its generation; -1 with several nodes, where only the history tells it."""
        return int(self.show()["generation"])

    @property
    def members(self) -> list[Member]:
        return [Member(self, document) for document in self.show()["members"]]

    def member(self, *, instance: str | None = None, client_id: str | None = None, member: str | None = None) -> Member:
        """The one member of this instance id, client id or member id."""
        members = self.members
        found = [
            each
            for each in members
            if instance in (None, each.instance) and client_id in (None, each.client_id) and member in (None, each.id)
        ]
        if len(found) != 1:
            known = ", ".join(each.instance or each.client_id for each in members) or "no members"
            raise LookupError(f"group {self.name} has {len(found)} such members; it has {known}")
        return found[0]

    def owner(self, topic: str, partition: int) -> Member | None:
        """The member that has the partition."""
        return next((member for member in self.members if partition in (member.partitions or {}).get(topic, ())), None)

    def rebalance(self) -> None:
        """Begin one, as a consumer does that enforces it."""
        self.post("rebalance")

    def delete(self) -> None:
        self.post("delete")

    def forget_coordinator(self, seconds: float = 0.0) -> None:
        """Its coordinator gives it up for so long, and then loads it again from the log."""
        path = path_of(self.cluster.id, "coordinator", "forget")
        self.cluster.control.post(path, {"group": self.name, "ms": round(seconds * 1000)})

    def committed(self, topic: str, partition: int = 0) -> int:
        """The committed offset; -1: there is none."""
        waited = {"committed": {"group": self.name, "topic": topic, "partition": partition, "offset": 0}, "timeout_ms": 0}
        try:
            return int(self.cluster.control.post(path_of(self.cluster.id, "wait"), waited)["offset"])
        except AssertionError:
            return -1

    def lags(self) -> dict[str, dict[int, int]]:
        """How many records it has not committed, by topic and partition."""
        lag = self.cluster.control.get(path_of(self.cluster.id, "groups", "lag"), group=self.name)["lag"]
        return {topic: {int(partition): behind for partition, behind in partitions.items()} for topic, partitions in lag.items()}

    @property
    def lag(self) -> int:
        """How many records it has not committed, in all partitions that it has committed or that its members have."""
        return sum(sum(partitions.values()) for partitions in self.lags().values())

    # History.

    def read_history(self, since: int | None = None) -> dict[str, Any]:
        query = {"group": self.name, "since": self.cluster.begin_mark if since is None else since}
        return dict(self.cluster.control.get(path_of(self.cluster.id, "history"), **{name: value for name, value in query.items() if value}))

    @property
    def history(self) -> list[dict[str, Any]]:
        """The entries of `tenure group history --json`."""
        return list(self.read_history()["entries"])

    @property
    def text(self) -> str:
        """The history in words."""
        return "\n".join(self.read_history()["text"])

    @property
    def rebalances(self) -> list[Rebalance]:
        return rebalances_in(self.history)

    @property
    def last_rebalance(self) -> Rebalance:
        found = self.rebalances
        if not found:
            raise LookupError(f"group {self.name} has had no rebalance")
        return found[-1]

    @property
    def restarts_kept(self) -> int:
        """How often a static member came back to its partitions, without a rebalance."""
        return sum(is_kept(entry) for entry in self.history)

    def kept(self, instance: str) -> bool:
        """Whether this static member came back to its partitions."""
        return any(is_kept(entry) and entry["instance_id"] == instance for entry in self.history)

    def wait_kept(self, instance: str, timeout: float = WAIT_SECONDS) -> None:
        """Wait until this static member has come back to its partitions."""
        wait_kept(self, instance, timeout)


def wait_kept(group: Group, instance: str, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while not group.kept(instance):
        if time.monotonic() >= deadline:
            raise AssertionError(f"{instance} has not come back to its partitions of group {group.name} within {timeout:g} s; its history:\n{group.text}")
        time.sleep(HISTORY_PAUSE_SECONDS)


def is_kept(entry: dict[str, Any]) -> bool:
    """Whether a static member came back without a rebalance."""
    return bool(entry["kind"] == "static_member_returned" and entry["outcome"] == "no_rebalance")


def rebalances_in(entries: Sequence[dict[str, Any]]) -> list[Rebalance]:
    return [Rebalance(entry) for entry in entries if entry.get("kind") == "rebalance"]


@contextlib.contextmanager
def rebalances(
    cluster: Verbs,
    name: str,
    *,
    exactly: int | None = None,
    at_most: int | None = None,
    cause: str | None = None,
    except_causes: Sequence[str] = (),
) -> Iterator[None]:
    group = Group(cluster, name)
    mark = cluster.mark()
    yield
    history = group.read_history(mark)
    ignored = {cause.replace("_", "-") for cause in except_causes}
    seen = [each for each in rebalances_in(history["entries"]) if each.cause not in ignored]
    wanted = cause.replace("_", "-") if cause else None
    if (
        (exactly is not None and len(seen) != exactly)
        or (at_most is not None and len(seen) > at_most)
        or (wanted is not None and any(each.cause != wanted for each in seen))
    ):
        raise RebalanceSeen(expectation(name, exactly, at_most, wanted, seen, history["text"]))


def expectation(name: str, exactly: int | None, at_most: int | None, cause: str | None, seen: list[Rebalance], text: Sequence[str]) -> str:
    wanted = f"{exactly}" if exactly is not None else f"at most {at_most}" if at_most is not None else "any number of"
    for_cause = f" for {cause}" if cause else ""
    lines = [f"group {name}: {wanted} rebalances{for_cause} were expected, and {len(seen)} happened:"]
    lines += [f"  generation {each.generation}: {each.sentence} ({each.cause})" for each in seen]
    return "\n".join([*lines, *(["its history:"] if text else []), *(f"  {line}" for line in text)])


def assert_each_record_once(cluster: Verbs, topic: str, name: str) -> None:
    """Compare what the group committed with what the topic holds, partition by partition, and the moves of partitions with the commits."""
    group = Group(cluster, name)
    count = cluster.topics().get(topic)
    if count is None:
        raise LookupError(f"there is no topic {topic}")
    problems = []
    for partition in range(count):
        records = cluster.records(topic, partition)
        end = records[-1]["offset"] + 1 if records else 0
        committed = group.committed(topic, partition)
        if records and committed < end:
            problems.append(f"partition {partition}: {end - max(committed, 0)} of {len(records)} records are not committed (offset {committed} of {end})")
        elif committed > end:
            problems.append(f"partition {partition}: offset {committed} is committed, and its records end at {end}")
    backwards = list(commits_backwards(cluster, name, topic))
    if problems or backwards:
        raise AssertionError("\n".join([f"group {name} has not handled each record of {topic} once:", *problems, *backwards]))


def commits_backwards(cluster: Verbs, group: str, topic: str) -> Iterator[str]:
    """Commits that went back, so that records were read twice."""
    path = path_of(cluster.id, "commits")
    for entry in cluster.control.get(path, group=group, topic=topic)["went_back"]:
        yield f"partition {entry['partition']}: read again from {entry['to']} after {entry['from']} was committed"
