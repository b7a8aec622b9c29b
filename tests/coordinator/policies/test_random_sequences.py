"""Random requests, crashes, failovers and policy changes: the invariants hold after each step, and then the group settles."""

from __future__ import annotations

from random import Random

import pytest

from coordinator.states import State
from protocol.errors import ErrorCode
from tests.coordinator.playbook import T0, T0_T1, Play
from tests.coordinator.sent_requests import SentRequest

CHOICES: dict[str, list[str]] = {
    "registration.timeout.ms": ["1000", "15000", "60000"],
    "expansion.timeout.ms": ["1000", "5000", "30000"],
    "instance.ids": ["i0,i1,i2", "i0,i1,i2,i3,i4", "i[0-5]"],
    "roster.timeout.ms": ["5000", "30000"],
    "roster.strict": ["true", "false"],
    "target.group.size": ["2", "4"],
    "subscription.change": ["rebalance", "keep"],
    "pending.release": ["true"],
    "topics.watch": ["true"],
}


class Connection:
    closed = False


class Client:
    """A consumer: joins, syncs and heartbeats as its replies say."""

    def __init__(self, play: Play, number: int, instance: str | None) -> None:
        self.play = play
        self.number = number
        self.instance = instance
        self.processes = 0
        self.start()

    def start(self) -> None:
        """A new process, which knows no member id."""
        self.processes += 1
        self.actor = f"p{self.number}-{self.processes}"
        self.connection = Connection()
        self.generation = -1
        self.sent: SentRequest | None = None
        self.is_leader = False
        self.knows_id = False
        self.stopped = False

    def stop(self) -> None:
        self.connection.closed = True
        self.stopped = True

    def step(self, random: Random) -> None:
        if self.stopped:
            return
        play = self.play
        sent = self.sent
        if sent is not None:
            if sent.parked:
                return
            self.sent = None
            self.answered(sent, sent.reply.error)
        elif self.generation < 0:
            self.join(random)
        else:
            beat = play.heartbeat(self.actor, self.generation, instance=self.instance)
            if beat.reply == ErrorCode.REBALANCE_IN_PROGRESS:
                self.join(random)
            elif beat.reply:
                self.generation = -1
                self.knows_id = False

    def join(self, random: Random) -> None:
        play = self.play
        play.connection = self.connection
        topics = T0_T1 if random.random() < 0.1 else T0
        id = None if self.knows_id else ""
        self.sent = play.join(self.actor, instance=self.instance, id=id, metadata=topics, rebalance=random.choice([7_000, 20_000]))
        play.connection = None

    def answered(self, sent: SentRequest, error: int) -> None:
        play = self.play
        if sent.title.startswith("join"):
            if error == ErrorCode.MEMBER_ID_REQUIRED:
                self.knows_id = True
            elif error:
                self.generation = -1
                self.knows_id = False
            else:
                self.knows_id = True
                play.ids[self.actor] = sent.member_id  # type: ignore[attr-defined]
                self.generation = sent.reply.generation
                members = sent.reply.members
                assignment = {id: number for number, (id, _, _) in enumerate(members)}
                self.sent = play.sync(self.actor, assignment, generation=self.generation, instance=self.instance)  # type: ignore[arg-type]
        elif error:
            self.generation = -1
            self.knows_id = error == ErrorCode.REBALANCE_IN_PROGRESS


def random_policies(random: Random) -> dict[str, str]:
    names = random.sample(sorted(CHOICES), random.randrange(len(CHOICES)))
    return {name: random.choice(CHOICES[name]) for name in names}


@pytest.mark.parametrize("seed", range(20))
def test_a_group_with_any_policies_stays_sound_and_settles(seed: int) -> None:
    random = Random(seed)
    play = Play()
    clients = [Client(play, number, f"i{number}" if random.random() < 0.8 else None) for number in range(6)]
    for client in clients:
        client.stop()
    for _ in range(250):
        client = random.choice(clients)
        match random.randrange(40):
            case 0 | 1 | 2:
                client.stop()
            case 3 | 4 | 5 | 6:
                client.start()
            case 7:
                play.policy(random_policies(random), random.choice([None, None, "reason"]))
            case 8:
                play.failover()
                for sender in clients:
                    sender.sent = None
                    sender.generation = -1
                    sender.knows_id = sender.knows_id and sender.actor in play.ids
            case 9:
                if client.instance is not None and random.random() < 0.3:
                    play.leave(("", client.instance))
            case 10:
                assert play.shard is not None
                play.shard.topics_changed(["t0"], play.now, play.wall)
                play.after(0)
            case 11 | 12 | 13 | 14:
                play.after(random.choice([100, 1_000, 3_000, 12_000]))
            case _:
                client.step(random)
    settle(play, clients, random)
    play.close()


def settle(play: Play, clients: list[Client], random: Random) -> None:
    """All clients run for five minutes: then each that may be is in the group, which no longer changes."""
    for client in clients:
        client.start()
    play.policy({name: text for name, text in play.texts().items() if name != "rebalance.request"})
    for _ in range(300):
        for client in clients:
            client.step(Random(1))
            client.step(Random(1))
        play.after(1_000)
    policies = play.policies()
    listed = policies.instance_ids or ()
    expected = {client.actor for client in clients if not policies.roster_strict or client.instance in listed}
    if not expected:
        return
    group = play.group()
    assert group.state is State.STABLE, group.state
    assert set(group.members) == {play.id_of(actor) for actor in expected}
    assert not group.away_count
    generation = group.generation
    for _ in range(60):
        for client in clients:
            client.step(Random(1))
        play.after(1_000)
    assert group.generation == generation
