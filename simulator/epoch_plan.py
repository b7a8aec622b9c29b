"""The part of a plan about groups of the consumer protocol (KIP-848), whose members have epochs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from simulator.world import MS

PARTITIONS_MAX: Final = 8  # of a topic that grows
EXPRESSIONS: Final = ("t1.", "t1[02468]", "(t10|t12|t15)", "t1[0-9]+")


@dataclass(frozen=True)
class EpochGroupPlan:
    name: str
    static: int
    dynamic: int
    expressions: float  # share of the processes that subscribe by an expression
    other_topics: float  # share of the processes that subscribe to some of the topics only
    assignors: tuple[str | None, ...]
    rebalance_ns: int
    commit_ns: int

    def line(self) -> str:
        assignors = ", ".join(sorted({assignor or "none named" for assignor in self.assignors}))
        return (
            f"group {self.name} of the consumer protocol: {self.static} static and {self.dynamic} dynamic members, {100 * self.expressions:g} % of them by expression, "
            f"assignors: {assignors}; rebalance timeout {self.rebalance_ns // MS} ms, a commit every {self.commit_ns // MS} ms"
        )


@dataclass(frozen=True)
class EpochPlan:
    groups: tuple[EpochGroupPlan, ...]
    topics: tuple[tuple[str, int], ...]  # with their numbers of partitions at first
    session_ns: int
    heartbeat_ns: int
    size_max: int
    changes: float  # probability that a member changes its subscription with a heartbeat
    hangs: float  # probability that a member needs up to twice its rebalance timeout to give partitions up
    races: float  # probability that a member commits while its heartbeat is under way
    stale: float  # probability that a member commits with the epoch of before, or after it was fenced

    def lines(self) -> list[str]:
        topics = ", ".join(f"{topic} ({partitions})" for topic, partitions in self.topics)
        return [
            *(group.line() for group in self.groups),
            f"members of the consumer protocol: a heartbeat every {self.heartbeat_ns // MS} ms, a session of {self.session_ns // MS} ms; topics: {topics}",
        ]
