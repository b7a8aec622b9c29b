"""Kills nodes under real clients, and checks the promises to these.

A group with one static member of each client library consumes the records that an idempotent producer of each library sends, and so does a
group of the consumer protocol with those that speak it. Further groups commit numbers, which a ledger checks. Before each round the nodes are settled. A round kills a random node, the controller, the
group's coordinator, or two nodes at once, with SIGKILL. The supervisor starts them again. In the end each node is drained and restarted
in turn, as for an upgrade.
"""

from __future__ import annotations

import random
import signal
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from broker.runtime.build import build
from protocol.records import read_assignment
from tests.clients.members import (
    CONFLUENT,
    JAVA_CLIENT,
    PRODUCER_PROBE,
    ClientKind,
    Event,
    Member,
    MemberProcess,
    TopicPartition,
    python_host,
    python_producer_host,
)
from tests.clients.membership import TOPIC
from tests.nodes.cluster import Nodes, ServiceProbe
from tests.nodes.ledger import Ledger
from tests.nodes.producers import Producer, broken_promises, read_log
from tests.running import wait_until
from tests.support.restartable import create_topic

GROUP, NEWER_GROUP = "workers", "newer-workers"
PROTOCOLS: Final = {GROUP: "classic", NEWER_GROUP: "consumer"}
SPEAK_THE_NEWER: Final = (CONFLUENT, JAVA_CLIENT)
NEWER_SETTINGS: Final = ("group.consumer.min.heartbeat.interval.ms=200", "group.consumer.heartbeat.interval.ms=200", "group.consumer.assignment.interval.ms=0")
PARTITIONS = 12
PROBED = "probed"
STABLE_SECONDS = 5.0  # the time limit from a kill until all groups are stable
START_SECONDS = 90.0  # time to start five interpreters and a JVM on a busy machine
END_SECONDS = 60.0
SESSION_MS = 45_000
VICTIMS = ("random", "controller", "two", "coordinator")
Seats = dict[str, tuple[str, frozenset[TopicPartition]]]  # by instance, which has the name of its group: member id and assignment
GroupPartition = tuple[str, TopicPartition]


class Kill(NamedTuple):
    """One round: the killed nodes, and the seconds until all partitions were served and all groups stable."""

    what: str
    victims: tuple[int, ...]
    service_seconds: float
    stable_seconds: float


def no_jvm(program: str = "") -> NoReturn:
    raise AssertionError


class Campaign:
    """Three nodes, their clients, and the violations found."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        kinds: Sequence[ClientKind],
        tell: Callable[[str], None],
        nodes: int = 3,
        sessions_ms: Mapping[ClientKind, int] | None = None,
        settings: Sequence[str] = (),
        new_nodes: Callable[..., Nodes] = Nodes,
        jvm: Callable[..., MemberProcess] = no_jvm,
    ) -> None:
        self.nodes = new_nodes(folder / "data", nodes, "group.initial.rebalance.delay.ms=0", "num.partitions=1", *NEWER_SETTINGS, *settings)
        self._sessions_ms = sessions_ms or {}
        self.kills: list[Kill] = []
        self.violations: list[str] = []
        self._random = random.Random(seed)
        self._kinds = kinds
        self._jvm = jvm
        self._folder = folder
        self._tell = tell
        self._hosts: list[MemberProcess] = []
        self.members: list[Member] = []
        self._group_of: dict[str, str] = {}  # by name of a member
        self.senders: list[Producer] = []
        self.ledger = Ledger(self.nodes, (PROBED, 0), self.violations.append)
        self._seats: Seats = {}

    def run(self, rounds: int) -> None:
        probe = self.begin()
        for number in range(rounds):
            self._round(VICTIMS[number % len(VICTIMS)], probe)
        for id in self.nodes.ids:
            self.restart_in_order(id, probe)
        self.end()

    def begin(self) -> ServiceProbe:
        """Start the nodes, the producers and the members, and wait until all members have their seats."""
        nodes = self.nodes
        nodes.start()
        create_topic(nodes.port(1), TOPIC, PARTITIONS)
        create_topic(nodes.port(2), PROBED, PARTITIONS)
        nodes.await_settled()
        probe = ServiceProbe(nodes, PROBED, PARTITIONS)
        probe.seconds(())
        for kind in self._kinds:
            self._start_producer(kind)
            self._start(kind, GROUP)
            if kind in SPEAK_THE_NEWER:
                self._start(kind, NEWER_GROUP)
        self.ledger.begin()
        wait_until(self._all_seated, START_SECONDS, 0.1, lambda: (self.seated(), [member.events[-5:] for member in self.members]))
        self._seats = self.seated()
        for member in self.members:
            member.await_progress()
            member.steady_from = len(member.events)
        self._rebalances = nodes.rebalances(GROUP)
        return probe

    def end(self) -> None:
        """Check the guarantees to producers and members."""
        self.ledger.end()
        for sender in self.senders:
            sender.finish()
        self.violations += broken_promises(self.senders, read_log(self.nodes.bootstrap, TOPIC, PARTITIONS))
        self._check_all_consumed()
        self._check_members()

    def close(self) -> None:
        self.ledger.close()
        for host in self._hosts:
            host.kill()
        self.nodes.close()

    def _start(self, kind: ClientKind, group: str) -> None:
        instance = f"{group}-{kind.name}-seat"
        host = self._jvm() if kind is JAVA_CLIENT else python_host(kind, self._folder / f"{instance}.errors")
        self._hosts.append(host)
        member = Member(kind, host, f"{instance}-0", instance, True)
        self.members.append(member)
        self._group_of[member.name] = group
        session_ms, protocol = self._sessions_ms.get(kind, SESSION_MS), PROTOCOLS[group]
        member.do("start", bootstrap=self.nodes.bootstrap, group=group, topics=[TOPIC], instance=instance, session_ms=session_ms, protocol=protocol)

    def _start_producer(self, kind: ClientKind) -> None:
        host = self._jvm(PRODUCER_PROBE) if kind is JAVA_CLIENT else python_producer_host(kind, self._folder / f"{kind.name}-producer.errors")
        self._hosts.append(host)
        sender = Producer(kind, host)
        self.senders.append(sender)
        sender.start(self.nodes.bootstrap, TOPIC, PARTITIONS)

    # Rounds.

    def _round(self, victim_kind: str, probe: ServiceProbe) -> None:
        nodes = self.nodes
        # The supervisor restarts a node after the shortest pause if it has served for two seconds: kill it sooner or later than that.
        time.sleep(self._random.uniform(1.5, 3.0))
        victims = self._victims(victim_kind)
        promised = self.promised()
        begin = time.monotonic()
        nodes.kill(*victims)
        service = probe.seconds(victims)
        stable = self._await_stable(begin)
        self.kills.append(Kill(victim_kind, victims, service, stable))
        self.check_offsets(promised)
        self._tell(f"nodes: kill {len(self.kills)}: {victim_kind}, nodes {victims}: {service:.2f} s without service, stable after {stable:.2f} s")
        nodes.await_settled()

    def restart_in_order(self, id: int, probe: ServiceProbe) -> None:
        """Drain the node, stop it, and wait until the supervisor has restarted it and it owns its share of partitions."""
        nodes = self.nodes
        nodes.drain(id)
        empty = nodes.status(id)
        if empty["status.groups.partitions"] != "0" or empty["status.topics.partitions"] != "0":
            self.violations.append(f"node {id} is drained and owns {empty}")
        promised = self.promised()
        nodes.signal(signal.SIGTERM, id)
        service = probe.seconds((id,))
        if self.seated() != self._seats or not self.ledger.stable():
            self.violations.append(f"a group has changed while node {id} was restarted in order: {self.seated()}")
        self.check_offsets(promised)
        nodes.await_settled()
        self._tell(f"nodes: node {id} restarted in order: {service:.2f} s without service")

    def _victims(self, victim_kind: str) -> tuple[int, ...]:
        match victim_kind:
            case "controller":
                return (self.nodes.controller(),)
            case "coordinator":
                return (self.nodes.coordinator(GROUP),)
            case "two":
                return tuple(self._random.sample(self.nodes.ids, 2))
        return (self._random.choice(self.nodes.ids),)

    def promised(self) -> dict[GroupPartition, int]:
        """The offsets with acknowledged commits so far."""
        ends: dict[GroupPartition, int] = {}
        for member in self.members:
            for event in member.events_named("committed"):
                for topic, partition, offset in event["positions"]:
                    place = self._group_of[member.name], (topic, partition)
                    ends[place] = max(offset, ends.get(place, 0))
        return ends

    def seated(self) -> Seats:
        return self._seated() | self._seated_in_the_newer()

    def _seated(self) -> Seats:
        group = self.nodes.described(GROUP)
        if group is None or group.group_state != "Stable":
            return {}
        seats: Seats = {}
        for member in group.members:
            assigned = read_assignment(bytes(member.member_assignment)).assigned_partitions if member.member_assignment else ()
            partitions = frozenset((topic.topic, partition) for topic in assigned for partition in topic.partitions)
            seats[member.group_instance_id or member.client_id] = (member.member_id, partitions)
        return seats

    def _seated_in_the_newer(self) -> Seats:
        group = self.nodes.described_newer(NEWER_GROUP)
        if group is None or group.group_state != "Stable":
            return {}
        return {
            member.instance_id or member.client_id: (
                member.member_id,
                frozenset((topic.topic_name, partition) for topic in member.assignment.topic_partitions for partition in topic.partitions),
            )
            for member in group.members
        }

    def _all_seated(self) -> bool:
        seats = self.seated()
        return seats.keys() == {member.instance for member in self.members} and all(
            seats[member.name_in_replies][1] == member.partitions for member in self.members
        )

    def _await_stable(self, begin: float) -> float:
        """Wait until the coordinators describe each group with the same members and partitions as before; returns the seconds since `begin`."""
        until = begin + 6 * STABLE_SECONDS
        while (seats := self.seated()) != self._seats or not self.ledger.stable():
            if time.monotonic() > until:
                self.violations.append(f"after kill {len(self.kills) + 1} the members or assignments of a group have changed: {seats}, before the kill {self._seats}")
                break
            time.sleep(0.02)
        stable = time.monotonic() - begin
        if stable > STABLE_SECONDS:
            self.violations.append(f"after kill {len(self.kills) + 1} all groups were stable after {stable:.1f} s")
        return stable

    def check_offsets(self, promised: dict[GroupPartition, int], seconds: float = STABLE_SECONDS) -> None:
        self.ledger.check()
        groups = sorted({group for group, _ in promised})
        committed: dict[str, dict[TopicPartition, int]] = {group: wait_until(partial(self.nodes.committed, group), seconds) for group in groups}
        for (group, partition), offset in promised.items():
            found = committed[group].get(partition, -1)
            if found < offset:
                self.violations.append(f"after kill {len(self.kills)} {partition} of {group} is committed to {found}, and {offset} was acknowledged")

    # The end.

    def _check_all_consumed(self) -> None:
        """Wait until every acknowledged record is consumed; report those that are not."""
        sent = {value for sender in self.senders for value in sender.stored}
        until = time.monotonic() + END_SECONDS
        for group in sorted(set(self._group_of.values())):
            while (lost := sent - self._consumed(group)) and time.monotonic() < until:
                time.sleep(0.1)
            if lost:
                self.violations.append(f"{len(lost)} of {len(sent)} acknowledged records were not consumed by {group}, such as {sorted(lost)[:3]}")
        self.records = len(sent)

    def _consumed(self, group: str) -> set[str]:
        members = [member for member in self.members if self._group_of[member.name] == group]
        return {value for member in members for event in member.events_named("records") for _, _, _, value in event["records"]}

    def _check_members(self) -> None:
        for member in self.members:
            member.check_alive()
            noticed: list[Event] = member.disturbances()
            if noticed:
                self.violations.append(f"{member.instance} got an error or a rebalance {len(noticed)} times, first {noticed[0]}")
        if (builds := self.nodes.builds()) != {build()}:
            self.violations.append(f"the nodes run {builds}, and this test {build()}")
        if (rebalances := self.nodes.rebalances(GROUP)) != self._rebalances:
            self.violations.append(f"the group was rebalanced: {rebalances[len(self._rebalances) :]}")

    def summary(self) -> str:
        service = {victim_kind: [kill.service_seconds for kill in self.kills if victim_kind in ("all", kill.what)] for victim_kind in ("all", *VICTIMS)}
        figures = [f"{victim_kind} {statistics.median(seconds):.2f} (longest {max(seconds):.2f})" for victim_kind, seconds in service.items() if seconds]
        return (
            f"nodes: {len(self.kills)} kills; median of seconds without service: {', '.join(figures)}\n"
            f"nodes: all groups stable after at most {max(kill.stable_seconds for kill in self.kills):.2f} s\n"
            f"nodes: {self.records} records acknowledged ({', '.join(f'{sender.kind} {len(sender.stored)}' for sender in self.senders)}), "
            f"{self.ledger.commits} commits of {len(self.ledger.accounts)} further groups\n"
            f"nodes: broken promises: {len(self.violations)} ({build()})"
        )


