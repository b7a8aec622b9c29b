"""The two tables of docs/policies.md against a started broker: members over sockets, with the coordinator killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.clients.policies.scenarios import set_policies
from tests.support.lasting import Actor, LastingBroker, hand_out, settle

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

GROUP = "g"
SESSION_SECONDS = 1.0
BEAT_SECONDS = 0.1
PRECISION_SECONDS = 1.0
END_SECONDS = 20.0  # since the beginning, or the load
REBALANCE_IN_PROGRESS = 27

Step = tuple[float, Callable[[], None]]


class Players:
    """Members over sockets: heartbeats, steps at fixed seconds, and a coordinator that may be killed."""

    def __init__(self, folder: Path) -> None:
        self.broker = LastingBroker(folder / "data")
        self.broker.start()
        self.beating: list[Actor] = []
        self.waiting: list[Actor] = []  # with a JoinGroup sent and not answered
        self.last_beat: dict[str, float] = {}  # the last accepted heartbeat of an instance
        self.first_join = 0.0  # of the waiting newcomers, since the last load
        self.loaded = 0.0
        self.begun = 0.0

    def actor(self, name: str) -> Actor:
        return Actor(self.broker.port, GROUP, name, session_ms=int(SESSION_SECONDS * 1000))

    def policy(self, name: str, seconds: float) -> None:
        set_policies(self.broker.port, GROUP, {name: str(int(seconds * 1000))})

    def now(self) -> float:
        return time.monotonic() - self.begun

    def arrive(self, actor: Actor) -> None:
        actor.connect()
        actor.say_join("")
        self.waiting.append(actor)
        self.first_join = self.first_join or self.now()

    def kill(self) -> None:
        """Kill the broker and restart it. Members reconnect, and repeat a JoinGroup without a reply."""
        self.broker.kill()
        self.broker.start()
        self.loaded = self.now()
        for actor in self.beating:
            actor.connect()
        returning, self.waiting, self.first_join = self.waiting, [], 0.0
        for actor in returning:
            self.arrive(actor)

    def until_rebalance(self, *steps: Step) -> float:
        """Play the steps at their seconds; returns when a heartbeat is answered with REBALANCE_IN_PROGRESS."""
        steps_left = sorted(steps, key=lambda step: step[0])
        while self.now() < self.loaded + END_SECONDS:
            while steps_left and self.now() >= steps_left[0][0]:
                steps_left.pop(0)[1]()
            for actor in self.beating:
                code = actor.beat()
                if code == REBALANCE_IN_PROGRESS:
                    assert not steps_left, "a rebalance before the last row"
                    return self.now()
                assert not code
                self.last_beat[str(actor.instance)] = self.now()
            time.sleep(BEAT_SECONDS)
        raise AssertionError("no rebalance")

    def close(self) -> None:
        for actor in (*self.beating, *self.waiting):
            actor.close()
        self.broker.__exit__()


@pytest.fixture
def players(tmp_path: Path) -> Iterator[Players]:
    with ExitStack() as ends:
        made = Players(tmp_path)
        ends.callback(made.close)
        yield made


@pytest.mark.parametrize("killed_at", [None, 0.5, 2.4, 4.7], ids=["not killed", "killed while A is away", "killed while both are away", "killed at the end"])
def test_the_table_of_absences(players: Players, killed_at: float | None) -> None:
    """A fifth of the seconds of the docs: A away 0.0, B away 2.0, A back 2.8, one rebalance at 5.0."""
    timeout = 3.0
    leader, first, second = (players.actor(name) for name in ("leader", "a", "b"))
    settle(leader, first, second)
    players.policy("registration.timeout.ms", timeout)
    assert not first.beat()
    players.beating = [leader, second]
    players.begun = time.monotonic() + SESSION_SECONDS  # when A is away
    returned = players.actor("a")

    def return_of_a() -> None:
        assert returned.join("").generation_id == leader.generation
        assert not returned.sync().error_code
        players.beating.append(returned)

    steps: list[Step] = [(2.0 - SESSION_SECONDS, lambda: players.beating.remove(second)), (2.8, return_of_a)]
    if killed_at is not None:
        steps.append((killed_at, players.kill))
    rebalanced = players.until_rebalance(*steps)
    # Unless its absence was stored before, B has a full session after the load.
    silent = players.last_beat["b"] if killed_at is None or killed_at > 2.0 else max(players.last_beat["b"], players.loaded)
    due = max(silent + SESSION_SECONDS + timeout, players.loaded + SESSION_SECONDS if killed_at else 0.0)
    assert due - BEAT_SECONDS * 2 <= rebalanced <= due + PRECISION_SECONDS
    leader.say_join()
    returned.say_join()
    assert [actor.hear_join().error_code for actor in (leader, returned)] == [0, 0]


@pytest.mark.parametrize("killed_at", [None, 1.0, 2.0], ids=["not killed", "killed while A waits", "killed while A and B wait"])
def test_the_table_of_arrivals(players: Players, killed_at: float | None) -> None:
    """Half of the seconds of the docs: A 0.0, B 1.5, a rebalance at 2.5 with both; C 3.0, a rebalance at 5.5."""
    timeout = 2.5
    leader, first, second, third = (players.actor(name) for name in ("leader", "a", "b", "c"))
    settle(leader)
    players.policy("expansion.timeout.ms", timeout)
    players.beating = [leader]
    players.begun = time.monotonic()
    steps: list[Step] = [(0.0, lambda: players.arrive(first)), (1.5, lambda: players.arrive(second))]
    if killed_at is not None:
        steps.append((killed_at, players.kill))
    rebalanced = players.until_rebalance(*steps)
    due = players.first_join + timeout
    assert due - BEAT_SECONDS <= rebalanced <= due + PRECISION_SECONDS
    regroup(players, leader, first, second)
    arrived = max(3.0, players.now())
    players.first_join = 0.0
    rebalanced = players.until_rebalance((arrived, lambda: players.arrive(third)))
    due = players.first_join + timeout
    assert due - BEAT_SECONDS <= rebalanced <= due + PRECISION_SECONDS
    regroup(players, leader, first, second, third)


def regroup(players: Players, leader: Actor, *others: Actor) -> None:
    """All members join the rebalance in progress, and get their assignments."""
    for actor in (leader, *others):
        if actor not in players.waiting:
            actor.say_join()
    replies = [actor.hear_join() for actor in (leader, *others)]
    assert {(reply.error_code, reply.generation_id) for reply in replies} == {(0, leader.generation)}
    assert {member.group_instance_id for member in replies[0].members} == {actor.instance for actor in (leader, *others)}
    hand_out(leader, *others)
    players.waiting = []
    players.beating = [leader, *others]
