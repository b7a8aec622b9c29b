"""A soak of groups: they settle, the broker is killed at a time chosen by the seed, and every group must continue unchanged."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from tests.soak.ledger import Ledger, Seat
from tests.soak.member import TOPIC, GroupPlan, Member
from tests.soak.soak_broker import SoakBroker
from tests.soak.standalone_committer import StandaloneCommitter

PARTITIONS = 12
MEMBERS_MAX = 5
SIMPLE_GROUPS = ["simple-0", "simple-1", "simple-2"]
LOOK_SECONDS = 0.02
FLUSHES = ("always", "interval")


class Plan(NamedTuple):
    kills: int
    seed: int
    groups: int = 6
    flush: str = "both"  # or a value of FLUSHES
    session_ms: int = 5_000
    rebalance_ms: int = 4_000
    settle_seconds: float = 25.0  # the session of a dead member, the rebalance after it, and the delays of a busy machine
    silent_deaths: bool = False  # whether members crash; the group waits a session for each


class Group:
    """A group and its processes."""

    def __init__(self, plan: GroupPlan) -> None:
        self.plan = plan
        self.members: list[Member] = []
        self.leaving: list[Member] = []
        self.dead: list[Member] = []

    def kill(self, member: Member) -> None:
        member.stop()
        self.members.remove(member)
        self.dead.append(member)

    def seats(self, broker_run: int) -> dict[str, Seat] | None:
        """The assignment by instance, once the running broker has confirmed it to all members."""
        seats = {member.name: member.seat for member in self.members if member.seat is not None and member.steady_run == broker_run}
        if len(seats) != len(self.members) or self.leaving:
            return None
        if len({(seat.generation, seat.assignment.round) for seat in seats.values()}) != 1:
            return None
        owned = sorted(partition for seat in seats.values() for partition in seat.assignment.partitions)
        return seats if owned == list(range(self.plan.partitions)) else None


class Campaign:
    def __init__(self, broker: SoakBroker, plan: Plan, tell: Callable[[str], None] = lambda line: None) -> None:
        self.ledger = Ledger()
        self.kills = 0
        self.longest_pause = 0.0
        self.longest_settling = 0.0
        self._broker = broker
        self._plan = plan
        self._tell = tell
        self._random = random.Random(plan.seed)
        self._groups: list[Group] = []
        self._standalone: StandaloneCommitter | None = None
        self._started = 0

    async def run(self) -> Ledger:
        watch = asyncio.create_task(self._watch_pauses())
        try:
            await asyncio.to_thread(self._broker.start, self._flush())
            await asyncio.to_thread(self._broker.create_topic, TOPIC, PARTITIONS)
            self._populate()
            await self._settle()
            while self.kills < self._plan.kills and not self.ledger.violations:
                await self._kill_once()
            await self._settle()
        finally:
            watch.cancel()
            await self._end()
        return self.ledger

    # Clients.

    def _populate(self) -> None:
        for number in range(self._plan.groups):
            plan = GroupPlan(f"group-{number}", PARTITIONS, self._plan.session_ms, self._plan.rebalance_ms)
            group = Group(plan)
            self._groups.append(group)
            statics = (3, 0, 2)[number % 3]
            for seat in range(3):
                self._add(group, f"seat-{number}-{seat}" if seat < statics else None)
        self._standalone = StandaloneCommitter(self._broker.port, self.ledger, SIMPLE_GROUPS, random.Random(self._random.random()))

    def _add(self, group: Group, instance: str | None) -> None:
        self._started += 1
        randomness = random.Random(self._random.random())
        group.members.append(Member(self._broker.port, self.ledger, group.plan, instance, self._started, randomness))

    async def _end(self) -> None:
        clients: list[Member | StandaloneCommitter] = [member for group in self._groups for member in (*group.members, *group.leaving, *group.dead)]
        if self._standalone is not None:
            clients.append(self._standalone)
        for client in clients:
            client.stop()
        for client in clients:
            await client.ended()

    # Kills and other events.

    def _churn(self) -> None:
        group = self._random.choice(self._groups)
        statics = [member for member in group.members if member.instance is not None]
        dynamics = [member for member in group.members if member.instance is None]
        actions = ["rebalance"]
        if statics:
            actions += ["restart"] * 3
        if dynamics:
            actions += ["leave"] + ["silent death"] * self._plan.silent_deaths
        if len(group.members) < MEMBERS_MAX:
            actions += ["join"]
        action = self._random.choice(actions)
        self.ledger.count(f"churn: {action}")
        if action == "restart":  # also in a settled group, which must not be disturbed
            old = self._random.choice(statics)
            group.kill(old)
            self._add(group, old.instance)
            return
        self.ledger.disturbed(group.plan.name)
        if action == "rebalance":
            self._random.choice(group.members).call_for_rebalance()
        elif action == "join":
            self._add(group, None)
        else:
            client = self._random.choice(dynamics)
            if action == "leave":
                client.leaving = True
                group.members.remove(client)
                group.leaving.append(client)
            else:
                group.kill(client)
            if len(group.members) < 2:
                self._add(group, None)

    async def _kill_once(self) -> None:
        chance = self._random
        for _ in range(chance.choice((0, 0, 1, 1, 2, 4))):
            self._churn()
            await asyncio.sleep(chance.uniform(0, 0.1))
        await asyncio.sleep(chance.uniform(0, 0.3))
        await asyncio.to_thread(self._broker.kill)
        self.kills += 1
        if chance.random() < 0.15:
            await asyncio.to_thread(self._broker.start_and_kill, chance.uniform(0.05, 0.5), self._flush())
            self.ledger.count("killed while starting")
        await asyncio.sleep(chance.uniform(0, 0.1))
        self.ledger.restarted()
        await asyncio.to_thread(self._broker.start, self._flush())
        self._complain()
        if chance.random() < 0.8:
            await self._settle()
        self._tell(f"kill {self.kills}: {self.summary()}")

    def _flush(self) -> str:
        policy = self._random.choice(FLUSHES) if self._plan.flush == "both" else self._plan.flush
        return f"offsets.flush={policy}"

    def _complain(self) -> None:
        for line in self._broker.complaints:
            self.ledger.report_violation(f"the broker logged: {line}")
        self._broker.complaints.clear()

    # Checks after each kill.

    async def _settle(self) -> None:
        """Wait until all members are settled, within the time that the protocol allows; report those that are not."""
        begin = time.monotonic()
        while not self._check_settled() and not self.ledger.violations:
            if time.monotonic() - begin > self._plan.settle_seconds:
                waiting = [repr(member) for group in self._groups if group.seats(self.ledger.broker_run) is None for member in group.members]
                self.ledger.report_violation(
                    f"not settled after {self._plan.settle_seconds} s: {'; '.join(waiting) or self._standalone!r}"
                )
            await asyncio.sleep(LOOK_SECONDS)
        self.longest_settling = max(self.longest_settling, time.monotonic() - begin)

    def _check_settled(self) -> bool:
        for group in self._groups:
            done_members = [member for member in group.leaving if member.done]
            group.leaving = [member for member in group.leaving if not member.done]
            group.dead += done_members
            seats = group.seats(self.ledger.broker_run)
            if seats is not None and not self.ledger.is_settled(group.plan.name):
                self.ledger.settled(group.plan.name, seats)
        clients: list[Member | StandaloneCommitter | None] = [
            self._standalone,
            *(member for group in self._groups for member in (*group.members, *group.leaving, *group.dead)),
        ]
        for client in clients:
            if client is not None and (failure := client.failure()) is not None:
                raise failure
        checked = self._standalone is not None and self._standalone.checked_run == self.ledger.broker_run
        return checked and all(group.seats(self.ledger.broker_run) is not None for group in self._groups)

    async def _watch_pauses(self) -> None:
        """Measure how long this process did not run: a client that stalled so long is rightly removed from its group."""
        with suppress(asyncio.CancelledError):
            while True:
                begin = time.monotonic()
                await asyncio.sleep(LOOK_SECONDS)
                self.longest_pause = max(self.longest_pause, time.monotonic() - begin - LOOK_SECONDS)

    def summary(self) -> str:
        counts = self.ledger.counts
        text = ", ".join(f"{action} x {count}" for action, count in sorted(counts.items()))
        return f"settled within {self.longest_settling:.1f} s, own longest pause {self.longest_pause * 1000:.0f} ms; {text}"
