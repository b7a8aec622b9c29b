"""The plan of a run: sizes, rates, settings, and the faults that may happen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from simulator.epoch_plan import EpochPlan
from simulator.policy_plan import PolicyPlan
from simulator.styles import STYLES, Settings
from simulator.world import MS, SECOND

WRITE_BACK_SECONDS: Final = 5


@dataclass(frozen=True)
class GroupPlan:
    name: str
    static: int
    dynamic: int
    settings: Settings
    styles: tuple[int, ...]

    def line(self) -> str:
        settings = self.settings
        styles = ", ".join(sorted({STYLES[style].name for style in self.styles}))
        topics = ", ".join(f"{topic} ({plural(partitions, 'partition')})" for topic, partitions in settings.topics)
        return (
            f"group {self.name}: {self.static} static and {self.dynamic} dynamic members ({styles}) of {topics}; "
            f"session timeout {duration(settings.session_ns)}, rebalance timeout {duration(settings.rebalance_ns)}, "
            f"a heartbeat every {duration(settings.heartbeat_ns)}, a commit every {duration(settings.commit_ns)}"
        )


@dataclass(frozen=True)
class Plan:
    seed: int
    flush: str
    partitions: int  # of __consumer_offsets
    groups: tuple[GroupPlan, ...]
    producers: int
    faults: tuple[str, ...]  # names of faults
    fault_rate: float  # faults happen this many times as often as usual
    # Probabilities that a leader dies between JoinGroup and SyncGroup, a SyncGroup is late, a new member id is never used, a commit is read back.
    leader_dies: float
    late_syncs: float
    abandoned_ids: float
    reads_offsets: float
    latency_ns: int
    connection_resets: float
    stalled: float
    torn: float
    pass_ns: int  # the shortest pass of the broker's event loop; a long pass answers many requests together
    segment_bytes: int
    retention_minutes: int
    safety_seconds: int
    topic_settings: tuple[tuple[str, str], ...]  # of the producers' topics
    broker: dict[str, object] = field(default_factory=dict)
    nodes: int = 1
    late_revocations: float = 0.0  # probability that a consumer commits late in a rebalance, before its JoinGroup
    offset_resets: float = 0.0  # probability that the administrator resets offsets instead of deleting them
    varied_sessions: bool = False  # a restarted process may have a longer session timeout
    late_leader_syncs: float = 0.0  # probability that a leader's SyncGroup is late
    early_commits: float = 0.0  # probability that a member commits in a new generation before its SyncGroup
    same_assignments: bool = False  # whether a leader sends equal assignments in generations with the same members
    write_back_seconds: int = WRITE_BACK_SECONDS  # how often the operating system writes unsynced data to the disk
    new_user_data: float = 0.0  # probability that a JoinGroup has new user data
    abandoned_ids_leave: float = 0.0  # share of the unused member ids for which the client sends LeaveGroup
    deletes_records: bool = False  # clients delete records of the producers' topics
    policies: PolicyPlan | None = None  # of single groups; `broker` has the defaults of all groups
    epochs: EpochPlan | None = None  # groups of the consumer protocol

    @property
    def group_names(self) -> list[str]:
        """Of both protocols."""
        return [group.name for group in self.groups] + [group.name for group in (self.epochs.groups if self.epochs is not None else ())]

    @property
    def retention_ns(self) -> int:
        """Of offsets."""
        return self.retention_minutes * 60 * SECOND

    def lasting(self, seconds: int) -> Plan:
        """The plan of a long run, in which faults are rarer."""
        return replace(self, safety_seconds=seconds, fault_rate=self.fault_rate / 8)

    def lines(self) -> list[str]:
        """The plan in words, without its faults."""
        nodes = "one node" if self.nodes == 1 else f"{self.nodes} nodes"
        settings = {"offsets.flush": self.flush, "offsets.retention.minutes": self.retention_minutes, **self.broker}
        lines = [
            f"seed {self.seed}: {nodes}, {plural(self.partitions, 'partition')} of __consumer_offsets, segments of {self.segment_bytes} bytes",
            f"settings: {joined(settings.items())}",
        ]
        lines += [group.line() for group in self.groups]
        if self.epochs is not None:
            lines += self.epochs.lines()
        if self.producers:
            beside = "a producer, a reader and a client that deletes records" if self.deletes_records else "a producer and a reader"
            lines.append(f"topics with {beside}: {self.producers}, each with {joined(self.topic_settings)}")
        if self.policies is not None:
            lines += self.policies.lines()
        clients = {
            "of leaders die before SyncGroup": self.leader_dies, "of SyncGroups are late": self.late_syncs, "of leaders' SyncGroups are late": self.late_leader_syncs,
            "of SyncGroups follow an early commit": self.early_commits, "of new member ids are never used": self.abandoned_ids,
            "of these ids are left with": self.abandoned_ids_leave, "of JoinGroups have new user data": self.new_user_data,
            "of commits are read back": self.reads_offsets, "of revoked partitions are committed late": self.late_revocations, "of deletions are resets of offsets instead": self.offset_resets,
        }  # fmt: skip
        if self.write_back_seconds != WRITE_BACK_SECONDS:
            lines.append(f"the operating system writes unsynced data every {self.write_back_seconds} s")
        lines.append(f"clients: {percentages(clients)}{', some sessions are longer' if self.varied_sessions else ''}{', leaders repeat their assignments' if self.same_assignments else ''}")
        network = {"of chunks break the connection": self.connection_resets, "of chunks stall": self.stalled, "of chunks arrive in two parts": self.torn}
        lines.append(f"network: {percentages(network)}, delays of up to {duration(self.latency_ns)}; a pass of the broker's loop takes {duration(self.pass_ns)} or more")
        return lines


def joined(settings: Iterable[tuple[str, object]]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings)


def duration(ns: int) -> str:
    return f"{ns / SECOND:.3g} s" if ns >= SECOND else f"{ns / MS:.3g} ms"


def percentages(probabilities: Mapping[str, float]) -> str:
    return ", ".join(f"{100 * probability:g} % {what}" for what, probability in probabilities.items() if probability) or "undisturbed"


def plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
