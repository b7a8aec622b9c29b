"""A node whose registry lags behind a deletion that clients may know of closes the connections of its clients."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from broker.cluster.late_node import LateNode
from broker.runtime.clock import Clock


class World:
    def __init__(self) -> None:
        self.store = SimpleNamespace(last_deletion=0)
        self.topics = SimpleNamespace(last_deletion=0)
        self.aborted: list[str] = []
        self.connections: list[Any] = [SimpleNamespace(abort=lambda reason: self.aborted.append(f"a{reason}")), SimpleNamespace(abort=lambda reason: self.aborted.append(f"b{reason}"))]
        self.following: list[Callable[[], None]] = []
        self.late = LateNode(cast(Any, self.store), cast(Any, self.topics), lambda: self.connections, self.following.append)


def test_a_node_that_knows_all_deletions_serves_its_clients() -> None:
    world = World()
    for known, told in ((0, 0), (3, 3), (4, 3)):
        world.topics.last_deletion, world.store.last_deletion = known, told
        assert not world.late.check()
    assert (world.aborted, world.following) == ([], [])


def test_clients_are_refused_until_the_node_has_followed() -> None:
    world = World()
    world.store.last_deletion = 1
    assert world.late.check()
    assert world.aborted == ["a", "b"]
    assert len(world.following) == 1
    world.late.check()  # a client has connected again
    assert world.aborted == ["a", "b", "a", "b"]
    assert len(world.following) == 1
    world.topics.last_deletion = 1
    world.following.pop()()
    world.late.check()
    assert len(world.aborted) == 4
    world.store.last_deletion = 2
    world.late.check()
    assert (len(world.aborted), len(world.following)) == (6, 1)


def test_clients_are_refused_after_a_lost_lease_until_the_node_has_followed_again() -> None:
    world = World()
    world.store.last_deletion = 1
    world.late.check()
    world.topics.last_deletion = 1
    world.late.lease_regained()
    earlier, after_the_lease = world.following
    earlier()  # what it has read may be older than the lease
    assert world.late.check()
    after_the_lease()
    assert not world.late.check()


def test_the_clock_calls_in_each_new_millisecond_once_unless_clients_are_refused() -> None:
    times = [5_000_000]
    clock = Clock(lambda: 0, lambda: times[-1])
    called: list[int] = []
    refused = False

    def moved() -> bool:
        called.append(clock.now)
        return refused

    clock.moved = moved
    for moment in (5_000_001, 6_000_000, 6_999_999, 9_000_000):
        times.append(moment)
        clock.tick()
    assert called == [6, 9]
    refused = True
    for moment in (10_000_000, 10_000_000, 10_000_001):  # clients whose connections wait to be accepted
        times.append(moment)
        clock.tick()
    refused = False
    clock.tick()
    clock.tick()
    assert called == [6, 9, *[10] * 4]
