"""Ownership of logs by several nodes in virtual time: a table of owners, messages with a delay, and locks that only one node gets."""

from __future__ import annotations

import random
from collections import Counter
from heapq import heappop, heappush
from itertools import count
from typing import Any

import pytest

from broker.cluster.ownership import GRACE_MS, LOGS_PER_MS, NEVER, SWEEP_MS, SWEPT_MAX, Ownership, OwnershipState
from broker.cluster.placement import Placement, share_max
from storage import LogId

OFFSETS = [LogId("__consumer_offsets", number) for number in range(24)]
TOPICS = [LogId(f"topic-{number % 5}", number // 5) for number in range(40)]
LOGS_BY_KIND = {"offsets": OFFSETS, "topics": TOPICS}

NOTICED_MS = 5  # from the death of a node until other nodes notice it
MESSAGE_MS = 2
OPENING_MS = 4


class Node:
    """The `Ownership` of one node; carries out what it requests: messages, timers, acquiring and releasing logs."""

    def __init__(self, world: ClusterWorld, id: int) -> None:
        self.world = world
        self.id = id
        self.alive = True
        self.tried: list[tuple[int, LogId]] = []
        self.ownership = Ownership(id, world.owner_of, self, lambda at: world.at(at, self.advance))

    def advance(self) -> None:
        if self.alive and self.ownership.wake_at <= self.world.now:
            self.ownership.advance(self.world.now)

    def acquire(self, log: LogId) -> None:
        world = self.world
        self.tried.append((world.now, log))
        holder = world.locks.get(log)
        if holder is not None:
            world.later(1, self.call, "held_elsewhere", log)
        elif log in world.unreadable.get(self.id, ()):
            world.later(1, self.call, "failed", log)
        else:
            world.locks[log] = self.id
            world.changes[log] += 1
            world.later(OPENING_MS, self.call, "acquired", log)

    def may_abort_acquire(self, log: LogId) -> bool:
        return False

    def hand_over(self, log: LogId, receiver: int) -> None:
        self.world.later(OPENING_MS, self.drop, log, receiver)

    def drop(self, log: LogId, receiver: int) -> None:
        if not self.alive:
            return
        assert self.world.locks.pop(log) == self.id
        self.ownership.released(log, self.world.now)
        self.world.send(receiver, "offered", [log])

    def request_release(self, owner: int, logs: list[LogId]) -> None:
        self.world.send(owner, "release_requested", self.id, logs)

    def call(self, name: str, *arguments: Any) -> None:
        if self.alive:
            getattr(self.ownership, name)(*arguments, self.world.now)


class ClusterWorld:
    def __init__(self) -> None:
        self.now = 0
        self.nodes: dict[int, Node] = {}
        self.locks: dict[LogId, int] = {}
        self.changes: Counter[LogId] = Counter()  # how often each log was acquired
        self.unreadable: dict[int, set[LogId]] = {}
        self.draining: set[int] = set()
        self.lossy: random.Random | None = None
        self._events: list[tuple[int, int, Any, tuple[Any, ...]]] = []
        self._numbers = count()

    def owner_of(self, log: LogId) -> int | None:
        return self.locks.get(log)

    def at(self, when: int, step: Any, *arguments: Any) -> None:
        if when < NEVER:
            heappush(self._events, (max(when, self.now), next(self._numbers), step, arguments))

    def later(self, ms: int, step: Any, *arguments: Any) -> None:
        self.at(self.now + ms, step, *arguments)

    def send(self, node: int, name: str, *arguments: Any) -> None:
        if self.lossy is not None and self.lossy.random() < 0.3:
            return
        if node in self.nodes:
            self.later(MESSAGE_MS, self.nodes[node].call, name, *arguments)

    def run(self, ms: int) -> None:
        until = self.now + ms
        while self._events and self._events[0][0] <= until:
            self.now, _, step, arguments = heappop(self._events)
            step(*arguments)
        self.now = until

    @property
    def live(self) -> set[int]:
        return {node.id for node in self.nodes.values() if node.alive}

    def start(self, *ids: int) -> None:
        for id in ids:
            self.nodes[id] = Node(self, id)
            for kind, logs in LOGS_BY_KIND.items():
                self.nodes[id].ownership.set_logs(kind, logs, self.now)
        self.announce_nodes()

    def announce_nodes(self) -> None:
        for node in self.nodes.values():
            if node.alive:
                node.ownership.set_nodes(self.live, self.draining, self.now)

    def kill(self, *ids: int) -> None:
        for id in ids:
            self.nodes[id].alive = False
        self.locks = {log: node for log, node in self.locks.items() if node not in ids}
        self.later(NOTICED_MS, self.announce_nodes)

    def drain(self, *ids: int) -> None:
        self.draining = set(ids)
        self.announce_nodes()

    def check_even(self) -> None:
        accepting = self.live - self.draining
        for logs in LOGS_BY_KIND.values():
            owners = Counter(self.locks[log] for log in logs)
            assert set(owners) <= accepting
            assert max(owners.values()) <= share_max(len(logs), len(accepting))
        for log, owner in self.locks.items():
            for node in self.nodes.values():
                if node.alive:
                    assert node.ownership.owns(log) == (node.id == owner)
        assert all(node.ownership.settled for node in self.nodes.values() if node.alive)


@pytest.fixture
def world() -> ClusterWorld:
    return ClusterWorld()


def test_a_single_node_owns_everything(world: ClusterWorld) -> None:
    world.start(1)
    world.run(100)
    world.check_even()


def test_nodes_that_start_together_share_the_logs_without_a_double_owner(world: ClusterWorld) -> None:
    world.start(1, 2, 3)
    world.run(2_000)
    world.check_even()
    assert sum(world.changes.values()) <= len(OFFSETS + TOPICS) + 8


def test_the_next_placed_nodes_acquire_the_logs_of_a_killed_node_at_once(world: ClusterWorld) -> None:
    world.start(1, 2, 3)
    world.run(2_000)
    world.kill(2)
    world.run(NOTICED_MS + OPENING_MS + GRACE_MS)
    world.check_even()


def test_two_nodes_killed_at_once_leave_everything_to_the_third(world: ClusterWorld) -> None:
    world.start(1, 2, 3)
    world.run(2_000)
    world.kill(1, 3)
    world.run(200)
    world.check_even()


def test_a_returning_node_gets_its_share_and_other_logs_stay(world: ClusterWorld) -> None:
    world.start(1, 2, 3)
    world.run(2_000)
    before = dict(world.locks)
    world.kill(2)
    world.run(2_000)
    world.changes.clear()
    world.start(2)
    world.run(3_000)
    world.check_even()
    assert world.locks == before
    assert all(times == 1 for times in world.changes.values())


def test_a_drained_node_owns_nothing_until_it_is_no_longer_drained(world: ClusterWorld) -> None:
    world.start(1, 2, 3)
    world.run(2_000)
    world.drain(3)
    world.run(3_000)
    assert 3 not in world.locks.values()
    world.check_even()
    world.drain()
    world.run(3_000)
    world.check_even()


def test_a_node_keeps_its_logs_while_every_node_drains(world: ClusterWorld) -> None:
    world.start(1, 2)
    world.run(2_000)
    world.drain(1, 2)
    world.run(1_000)
    assert len(world.locks) == len(OFFSETS + TOPICS)


def test_the_next_placed_node_acquires_a_log_that_the_first_cannot_read(world: ClusterWorld) -> None:
    world.start(1, 2, 3)
    world.run(2_000)
    log = next(log for log, owner in world.locks.items() if owner == 1)
    world.kill(1)
    world.run(1_000)
    world.unreadable[1] = {log}
    world.start(1)
    world.run(5_000)
    assert world.locks[log] in (2, 3)


def test_a_log_is_not_handed_to_a_node_that_is_placed_behind_its_owner(world: ClusterWorld) -> None:
    world.start(1, 2, 3)
    world.run(2_000)
    before = dict(world.locks)
    for node in world.nodes.values():
        for peer_node in world.nodes.values():
            peer_node.ownership.release_requested(node.id, OFFSETS, world.now)
    world.run(2_000)
    assert world.locks == before


def test_a_log_that_is_lost_is_tried_again(world: ClusterWorld) -> None:
    world.start(1)
    world.run(100)
    del world.locks[OFFSETS[0]]
    world.nodes[1].ownership.lost(OFFSETS[0], world.now)
    assert world.nodes[1].ownership.state(OFFSETS[0]) is OwnershipState.FREE
    world.run(2 * GRACE_MS + OPENING_MS)
    world.check_even()


class Table:
    """A table of owners in which one node, or none, owns all logs. Records the logs that the node under test tries to acquire."""

    def __init__(self, logs: int, owner: int | None) -> None:
        self.logs = [LogId("many", number) for number in range(logs)]
        self.owner = owner
        self.version = 0
        self.lookups = 0
        self.tried: list[LogId] = []
        self.ownership = Ownership(1, self.owner_of, self, version=lambda: self.version)  # type: ignore[arg-type]
        self.ownership.set_nodes([1, 2], [], 0)
        self.ownership.set_logs("topics", self.logs, 0)

    def owner_of(self, log: LogId) -> int | None:
        self.lookups += 1
        return self.owner

    def acquire(self, log: LogId) -> None:
        self.tried.append(log)

    def request_release(self, owner: int, logs: list[LogId]) -> None: ...


@pytest.mark.parametrize(("logs", "grace_ms"), [(10, GRACE_MS), (400 * LOGS_PER_MS, 400)])
def test_the_more_logs_there_are_the_longer_their_best_placed_node_has_to_lock_them(logs: int, grace_ms: int) -> None:
    table = Table(logs, None)
    table.ownership.advance(0)
    tried_by_node = len(table.tried)
    assert 0 < tried_by_node < logs
    table.ownership.advance(grace_ms - 1)
    assert len(table.tried) == tried_by_node
    table.ownership.advance(grace_ms)
    assert len(table.tried) == logs


def test_logs_that_lose_their_owner_unnoticed_are_found_in_several_rounds() -> None:
    table = Table(5 * SWEPT_MAX, 2)
    for number in range(1, 10):
        table.ownership.advance(number * SWEEP_MS)
    table.owner = None
    table.version += 1
    table.ownership.advance(10 * SWEEP_MS)
    assert len(table.tried) < len(table.logs)
    for number in range(11, 18):
        table.ownership.advance(number * SWEEP_MS)
    assert set(table.tried) == set(table.logs)


def test_nodes_that_have_not_changed_place_no_log_again() -> None:
    table = Table(100, 2)
    table.lookups = 0
    table.ownership.set_nodes([2], [], 1)
    assert table.lookups == 0
    table.ownership.set_nodes([2, 3], [], 1)
    assert table.lookups == 100
    table.ownership.set_nodes([2, 3], [3], 1)
    assert table.lookups == 200


def test_a_stopped_node_acquires_and_releases_nothing(world: ClusterWorld) -> None:
    world.start(1, 2)
    world.run(2_000)
    before = dict(world.locks)
    world.nodes[1].ownership.stop()
    world.start(3)
    world.run(3_000)
    assert {log for log, owner in world.locks.items() if owner == 1} == {log for log, owner in before.items() if owner == 1}


@pytest.mark.parametrize("seed", range(30))
def test_every_log_has_its_owner_after_any_deaths_starts_and_losses(world: ClusterWorld, seed: int) -> None:
    chance = random.Random(seed)
    world.lossy = chance if seed % 2 else None
    world.start(1)
    for _ in range(30):
        world.run(chance.choice((1, 5, 20, 100, 700)))
        live = sorted(world.live)
        match chance.randrange(4):
            case 0 if len(live) > 1:
                world.kill(chance.choice(live))
            case 1:
                world.drain(*chance.sample(live, chance.randrange(len(live))))
            case _ if len(live) < 5:
                world.start(chance.choice([id for id in range(1, 6) if id not in live]))
    world.lossy = None
    world.drain()
    world.run(20_000)
    world.check_even()


def test_an_acquired_log_that_is_not_placed_any_more_is_ignored(world: ClusterWorld) -> None:
    """Its topic was deleted while it was opened, or it was handed over or lost meanwhile."""
    world.start(1)
    ownership = world.nodes[1].ownership
    ownership.acquired(LogId("deleted", 0), world.now)
    assert not ownership.owns(LogId("deleted", 0))
    world.run(10_000)
    since = ownership.owned()[OFFSETS[0]]
    ownership.acquired(OFFSETS[0], world.now)
    assert ownership.owned()[OFFSETS[0]] == since
    ownership.deleted([OFFSETS[0]])
    ownership.acquired(OFFSETS[0], world.now)
    assert not ownership.owns(OFFSETS[0])


class Recorder:
    """A node whose actions are recorded and not carried out."""

    def __init__(self, node: int, owners: dict[LogId, int], may_abort: bool = False) -> None:
        self.acquired: list[LogId] = []
        self.requested: list[tuple[int, list[LogId]]] = []
        self.handed_over: list[tuple[LogId, int]] = []
        self.may_abort = may_abort
        self.ownership = Ownership(node, owners.get, self, lambda at: None)

    def acquire(self, log: LogId) -> None:
        self.acquired.append(log)

    def may_abort_acquire(self, log: LogId) -> bool:
        return self.may_abort

    def hand_over(self, log: LogId, receiver: int) -> None:
        self.handed_over.append((log, receiver))

    def request_release(self, owner: int, logs: list[LogId]) -> None:
        self.requested.append((owner, logs))


def placed_second(first: int, log: LogId) -> int:
    """A node that is placed behind `first` for the log."""
    return next(node for node in range(first + 1, 100) if Placement().place([log], [first, node])[log][0] == first)


@pytest.mark.parametrize("may_abort", [False, True])
def test_a_release_that_is_requested_while_the_log_is_opened_is_not_forgotten(may_abort: bool) -> None:
    log, better = OFFSETS[0], 1
    node = placed_second(better, log)
    recorder = Recorder(node, {}, may_abort)
    ownership = recorder.ownership
    ownership.set_nodes([node], set(), 0)
    ownership.set_logs("offsets", [log], 0)
    ownership.advance(0)
    assert recorder.acquired == [log]
    ownership.set_nodes([better, node], set(), 1)
    ownership.release_requested(better, [log], 2)
    assert recorder.handed_over == ([(log, better)] if may_abort else [])
    if not may_abort:
        ownership.acquired(log, 3)
    assert recorder.handed_over == [(log, better)]
    ownership.released(log, 4)
    assert not ownership.owns(log)
    assert recorder.handed_over == [(log, better)]


def test_only_the_best_placed_node_asks_the_owner_for_its_log() -> None:
    log, better, owner = OFFSETS[0], 1, 100
    node = placed_second(better, log)
    for id, asks in ((better, True), (node, False)):
        recorder = Recorder(id, {log: owner})
        ownership = recorder.ownership
        ownership.set_nodes([better, node, owner], {owner}, 0)
        ownership.set_logs("offsets", [log], 0)
        for now in range(0, 20_000, 100):
            ownership.advance(now)
        assert bool(recorder.requested) is asks, id
        assert all(request == (owner, [log]) for request in recorder.requested)
        assert recorder.acquired == []
