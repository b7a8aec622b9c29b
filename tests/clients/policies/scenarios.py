"""Actions of operators on a group of static members, with the matching policy and without: new generations, and how long partitions made no progress."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, Final, NamedTuple

from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from tests.clients.members import AWAIT_SECONDS, ClientKind, Member, TopicPartition
from tests.clients.membership import Group
from tests.running import Client, wait_until

GROUP_RESOURCE: Final = 32
SET, DELETE, APPEND, SUBTRACT = range(4)
MEMBERS: Final = 6
SESSION_MS: Final = 3_000
REJOIN_SECONDS: Final = SESSION_MS / 1000 + 1  # a restart that takes longer than the session timeout
BETWEEN_SECONDS: Final = 1.5  # between the starts or stops of two members
FEED_SECONDS: Final = 0.02  # between two records, which go to the six partitions in turn
QUIET_SECONDS: Final = 2.0
BROKER_SETTINGS: Final[dict[str, Any]] = {"group_initial_rebalance_delay_ms": "1000", "group_min_session_timeout_ms": "1000"}
CLOCKS_APART_SECONDS = 0.002  # tolerance: reported times are whole milliseconds of the wall clock, deadlines follow the monotonic clock


class Result(NamedTuple):
    generations: int  # new generations
    worst_seconds: float  # without progress, on the partition with the longest pause
    mean_seconds: float  # the mean of all partitions' longest pauses


class Scenario(NamedTuple):
    name: str
    policies: Mapping[str, str]
    generations_max: int  # new generations allowed with the policies
    play: Callable[[Run], Sequence[Member]]  # returns the remaining members
    started: int = MEMBERS
    killed: int = -1  # the member that needs a separate process, to be killed
    standby: bool = False  # one more member starts after the others have settled
    baseline: str = ""  # the scenario with the same figures without policies; empty: this scenario

    @property
    def without(self) -> str:
        return self.baseline or self.name


class Run:
    """One scenario with one kind of client."""

    def __init__(self, scenario: Scenario, kind: ClientKind, group: Group, with_policies: bool) -> None:
        self.with_policies = with_policies
        self.members: list[Member] = []
        self._scenario = scenario
        self._kind = kind
        self._group = group

    def instance(self, number: int) -> str:
        """The instance id; unique over all runs, since the Java members of several runs share a JVM."""
        return f"{self._scenario.name}.{'with' if self.with_policies else 'without'}-{number}"

    def start(self, number: int) -> Member:
        killed = number == self._scenario.killed
        return self._group.start(self._kind, self.instance(number), alone=killed, session_ms=SESSION_MS)

    def await_settled(self, *members: Member) -> None:
        self._group.await_settled(*members)

    def alter(self, operation: int, **policies: str) -> None:
        set_policies(self._group.port, self._group.name, {name.replace("_", "."): value for name, value in policies.items()}, operation)

    def measure(self) -> Result:
        scenario, group = self._scenario, self._group
        if self.with_policies and scenario.policies:
            names = {"names": ",".join(self.instance(number) for number in range(scenario.started))}
            set_policies(group.port, group.name, {name: value.format(**names) for name, value in scenario.policies.items()})
        self.members = [self.start(number) for number in range(scenario.started)]
        group.await_settled(*self.members)
        if scenario.standby:
            self.members.append(self.start(scenario.started))
            group.await_settled(*self.members)
        group.feed.begin(FEED_SECONDS)
        wait_until(lambda: len(consumed_at(group)) == group.partition_count, 20)
        quiet_from = time.time()
        time.sleep(QUIET_SECONDS)
        quiet_until = time.time()
        before = group.generation()
        remaining = scenario.play(self)
        group.await_settled(*remaining)
        generations = group.generation() - before
        group.feed.end()
        group.await_consumed()
        return Result(generations, *worst_and_mean_pause(consumed_at(group), quiet_from, quiet_until))


def set_policies(port: int, group: str, policies: Mapping[str, str], operation: int = SET) -> None:
    settings = [AlterableConfig(name, operation, value) for name, value in policies.items()]
    with Client(port) as client:
        reply = client.ask(IncrementalAlterConfigsRequest([AlterConfigsResource(GROUP_RESOURCE, group, settings)]), 1)
    assert reply.responses[0].error_code == 0, reply.responses[0].error_message


def status_since(port: int, group: str, entry: str) -> dict[str, float]:
    """The instances in this `status.*` entry of the group, each with the time since which it has been there (seconds since 1970)."""
    with Client(port) as client:
        reply = client.ask(DescribeConfigsRequest([DescribeConfigsResource(GROUP_RESOURCE, group, [entry])]), 4)
    (value,) = [config.value for config in reply.results[0].configs] or [""]
    instances = [instance.split(" since ") for instance in (value or "").split(", ") if instance]
    return {instance: int(since_ms) / 1000 for instance, since_ms in instances}


def await_status(port: int, group: str, entry: str, instance: str) -> float:
    """Wait until the group's entry `entry` (`status.*`) names this instance; return since when, in seconds since 1970."""
    until = time.monotonic() + AWAIT_SECONDS
    while (since := status_since(port, group, entry).get(instance)) is None:
        assert time.monotonic() < until, f"{instance} is not in {entry}"
        time.sleep(0.05)
    return since


def consumed_at(group: Group) -> dict[TopicPartition, list[float]]:
    """The times at which any member consumed records, by partition."""
    times: dict[TopicPartition, list[float]] = defaultdict(list)
    for member in group.members:
        for event in member.events_named("records"):
            for topic_partition in {(topic, number) for topic, number, _, _ in event["records"]}:
                times[topic_partition].append(event["at"])
    return {partition: sorted(at) for partition, at in times.items()}


def worst_and_mean_pause(times: Mapping[TopicPartition, Sequence[float]], quiet_from: float, quiet_until: float) -> tuple[float, float]:
    """The worst and the mean of the longest pauses of the partitions, minus the usual pause without a disturbance."""
    pauses: list[float] = []
    for reads in times.values():
        quiet = [read_ms for read_ms in reads if quiet_from <= read_ms <= quiet_until]
        ordinary = longest_pause(quiet)
        pauses.append(max(0.0, longest_pause([read_ms for read_ms in reads if read_ms >= quiet_from]) - ordinary))
    return max(pauses), sum(pauses) / len(pauses)


def longest_pause(times: Sequence[float]) -> float:
    return max((after - before for before, after in pairwise(times)), default=0.0)


def close_all(members: Sequence[Member]) -> None:
    """Close all members at the same time, as a deployment that stops all pods."""
    with ThreadPoolExecutor(len(members)) as pool:
        list(pool.map(Member.close, members))


# The scenarios.


def rolling_restart(run: Run) -> Sequence[Member]:
    """Restart two members at a time; each is away for longer than its session timeout."""
    for first in range(0, MEMBERS, 2):
        close_all(run.members[first : first + 2])
        time.sleep(REJOIN_SECONDS)
        run.members[first : first + 2] = [run.start(number) for number in (first, first + 1)]
        run.await_settled(*run.members)
    return run.members


def scale_up(run: Run) -> Sequence[Member]:
    for number in range(len(run.members), MEMBERS):
        run.members.append(run.start(number))
        time.sleep(BETWEEN_SECONDS)
    return run.members


def scale_up_roster(run: Run) -> Sequence[Member]:
    run.alter(APPEND, instance_ids=",".join(run.instance(number) for number in range(len(run.members), MEMBERS)))
    return scale_up(run)


def scale_down(run: Run) -> Sequence[Member]:
    for member in run.members[MEMBERS // 2 :]:
        member.close()
        time.sleep(BETWEEN_SECONDS)
    return run.members[: MEMBERS // 2]


def scale_down_roster(run: Run) -> Sequence[Member]:
    remaining, stopped = run.members[: MEMBERS // 2], run.members[MEMBERS // 2 :]
    close_all(stopped)
    run.alter(SUBTRACT, instance_ids=",".join(run.instance(number) for number in range(len(remaining), MEMBERS)))
    return remaining


def crash(run: Run) -> Sequence[Member]:
    assert run.members[0].partitions
    run.members[0].kill()
    return run.members[1:]


def full_stop(run: Run) -> Sequence[Member]:
    close_all(run.members)
    time.sleep(REJOIN_SECONDS)
    return [run.start(number) for number in range(MEMBERS)]


REGISTRATION: Final = {"registration.timeout.ms": "60000"}
SCENARIOS: Final = (
    Scenario("rolling-restart", REGISTRATION, 0, rolling_restart),
    Scenario("scale-up", {"expansion.timeout.ms": "12000"}, 1, scale_up, started=3),
    Scenario("scale-up-roster", {"instance.ids": "{names}", "roster.timeout.ms": "30000"}, 1, scale_up_roster, started=3, baseline="scale-up"),
    Scenario("scale-down", {"registration.timeout.ms": "8000"}, 1, scale_down),
    Scenario("scale-down-roster", {"instance.ids": "{names}", "roster.strict": "true"}, 1, scale_down_roster, baseline="scale-down"),
    Scenario("crash", {"target.group.size": str(MEMBERS - 1)}, 0, crash, started=MEMBERS - 1, killed=0, standby=True),
    Scenario("full-stop", REGISTRATION, 0, full_stop),
)


def of_name(name: str) -> Scenario:
    return next(scenario for scenario in SCENARIOS if scenario.name == name)
