"""Random requests, crashes, failovers and policy changes. After each step the invariants hold, and no two members work with one seat."""

from __future__ import annotations

from random import Random

import pytest

from coordinator.classic.subscription import EMPTY_ASSIGNMENT
from coordinator.policies.door import rules_of
from coordinator.policies.roster import INSTANCE_IDS, ROSTER_STRICT
from coordinator.policies.target_size import TargetSize
from coordinator.states import State
from protocol.errors import ErrorCode
from tests.coordinator.playbook import T0, T0_T1, Play
from tests.coordinator.sent_requests import SentJoin, SentRequest, SentSync
from tests.support.cases import some

POLICIES: dict[str, list[str]] = {
    "target.group.size": ["1", "2", "3", "4"],
    "registration.timeout.ms": ["1000", "5000", "30000", "60000"],
    "expansion.timeout.ms": ["1000", "3000", "30000"],
    "instance.ids": ["i0,i1,i2", "i[0-4]", "i[0-6]"],
    "roster.timeout.ms": ["5000", "30000"],
    "roster.strict": ["true", "false"],
    "subscription.change": ["rebalance", "keep"],
    "pending.release": ["true"],
    "topics.watch": ["true"],
}
SESSION_MS = 10_000


class Connection:
    closed = False


class Process:
    """One process of a consumer: it acts only on replies that have left the coordinator."""

    def __init__(self, play: Play, actor: str, instance: str | None) -> None:
        self.play = play
        self.actor = actor
        self.instance = instance
        self.id = ""
        self.connection = Connection()
        self.keeps_subscription = False  # set: it never changes its subscription, so it causes no rebalance by itself
        self.sent: SentRequest | None = None
        self.generation = -1
        self.held: tuple[int, bytes] | None = None  # the generation and assignment with which it consumes and commits

    def step(self, random: Random) -> None:
        sent = self.sent
        if sent is None:
            if self.generation < 0:
                self.join(random)
            else:
                self.sent = self.play.heartbeat(self.actor, self.generation, instance=self.instance)
        elif sent.answered:
            self.sent = None
            self.replied(sent, random)

    def join(self, random: Random) -> None:
        metadata = T0 if self.keeps_subscription else random.choice([T0] * 30 + [T0[:-4] + b"\0\0\0\1x", T0_T1])
        self.held = None  # an eager consumer revokes its partitions first
        if self.connection.closed:
            self.connection = Connection()
        self.play.connection = self.connection
        self.sent = self.play.join(
            self.actor, instance=self.instance, id=self.id, metadata=metadata, session=SESSION_MS, rebalance=12_000, version=random.choice([5, 9])
        )
        self.play.connection = None

    def replied(self, sent: SentRequest, random: Random) -> None:
        error = sent.reply.error if isinstance(sent, SentJoin | SentSync) else sent.reply
        if isinstance(sent, SentJoin) and error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.id = self.play.ids[self.actor] = sent.member_id
        if error == ErrorCode.REBALANCE_IN_PROGRESS:
            self.generation = -1
        elif error:
            self.generation = -1
            self.held = None
            if error != ErrorCode.MEMBER_ID_REQUIRED:
                self.id = ""
                self.actor += "+"  # in this fixture the actor's name becomes part of the next member id, which must be new
        elif isinstance(sent, SentJoin):
            self.generation = sent.reply.generation
            assignment = {id: number for number, (id, _, _) in enumerate(sent.reply.members, 1)}
            self.sent = self.play.sync(self.actor, assignment, generation=self.generation, instance=self.instance)  # type: ignore[arg-type]
        elif isinstance(sent, SentSync):
            self.held = self.generation, sent.assignment

    def works(self) -> bool:
        """Whether the coordinator would store its commits."""
        group = self.play._of("g")
        if group is None or self.held is None or self.held[0] != group.generation:
            return False
        return self.id in group.members and group.members[self.id].instance_id == self.instance


class PolicyWorld:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.step_random = Random(1)
        self.play = Play()
        self.started = 0
        self.members = 7
        self.running: list[Process | None] = [None] * self.members
        self.all: list[Process] = []  # stopped or disconnected processes may return
        for number in range(self.members):
            self.start(number)
        self.appends_held = False

    def stop(self, number: int) -> None:
        process = self.running[number]
        if process is not None:
            process.connection.closed = True
        self.running[number] = None

    def start(self, number: int) -> None:
        self.stop(number)
        self.started += 1
        process = Process(self.play, f"p{number}-{self.started}", f"i{number}" if number < 5 else None)
        self.running[number] = process
        self.all.append(process)

    def step(self) -> None:
        random, play = self.random, self.play
        number = random.randrange(self.members)
        running = self.running[number]
        for process in self.running:
            if process is not None and random.random() < 0.7:
                process.step(random)
                self.check()
        match random.randrange(40):
            case 0 | 1:
                self.stop(number)
            case 2 | 3 | 4:
                if running is None or random.random() < 0.2:
                    self.start(number)
            case 5:
                if running is not None and running.sent is None and running.id:
                    play.leave((running.id, running.instance))
                    self.stop(number)
            case 6:
                play.leave(("", f"i{number}"))
            case 7:
                if random.random() < 0.3:
                    self.set_policies()
            case 8:
                self.failover(written=random.random() < 0.5)
            case 9:
                play.hold_appends()
                self.appends_held = True
            case 10 | 11:
                self.confirm()
            case 12 | 13 | 14:
                if not self.appends_held or random.random() < 0.2:
                    play.after(random.choice([100, 1_000, 3_000, 9_999, 12_000]))
            case 15 if self.all:  # any process, also a stopped one that does not know that another took its place
                random.choice(self.all).step(random)
            case 16:
                assert play.shard is not None
                play.shard.policies.topics_changed(["t0"], play.now, play.wall)
                play.after(0)
            case _:
                if not self.appends_held:
                    play.after(random.choice([1, 300]))
        self.check()

    def set_policies(self) -> None:
        random = self.random
        names = [name for name in POLICIES if random.random() < (0.9 if name == "target.group.size" else 0.3)]
        self.play.set_policies({name: random.choice(POLICIES[name]) for name in names}, random.choice([None, None, "reason"]))

    def failover(self, *, written: bool) -> None:
        self.play.failover(written=written)
        self.appends_held = False
        for process in self.all:
            if process.sent is not None and not process.sent.answered:
                process.sent = None  # the crash closed its connection: no reply will arrive
                process.generation = -1

    def confirm(self) -> None:
        self.play.confirm()
        self.appends_held = False

    def restart_all(self) -> None:
        for number in range(self.members):
            self.start(number)
            running = self.running[number]
            assert running is not None
            running.keeps_subscription = True

    def run(self, steps: int) -> None:
        """Let the processes act every half second."""
        for _ in range(steps):
            for process in self.running:
                if process is not None:
                    process.step(self.step_random)
                    process.step(self.step_random)
                    self.check()
            self.play.after(500)

    def check(self) -> None:
        """No two processes whose commits would be stored have the same seat, nor any two members of a Stable group."""
        seats: dict[bytes, Process] = {}
        for process in self.all:
            if not process.works():
                continue
            assert process.held is not None
            _, assignment = process.held
            if assignment in (b"", EMPTY_ASSIGNMENT):
                continue
            assert assignment not in seats, f"{process.actor} and {seats[assignment].actor} have the same seat"
            seats[assignment] = process
        group = self.play._of("g")
        if group is not None and group.state is State.STABLE:
            assignments = [member.assignment for member in group.members.values() if member.assignment not in (b"", EMPTY_ASSIGNMENT)]
            assert len(assignments) == len(set(assignments)), "two members have the same seat"


@pytest.mark.parametrize("seed", some(8, range(40)))
def test_a_seat_has_one_holder_in_any_sequence(seed: int) -> None:
    world = PolicyWorld(seed)
    world.play.set_policies({"target.group.size": "2"})
    for _ in range(300):
        world.step()
    world.confirm()
    settle(world)
    world.play.close()


def settle(world: PolicyWorld) -> None:
    """Let all processes run: the group becomes Stable with 3 active members and 4 standbys, and a crash moves seats without a rebalance."""
    play = world.play
    play.set_policies({"target.group.size": "3"})
    world.restart_all()
    world.run(120)
    group = play.group()
    assert group.state is State.STABLE
    rules = rules_of(group, TargetSize)
    assert rules is not None
    assert (len(group.members), len(rules.standbys), len(rules.take_overs)) == (7, 4, 0)
    generation = group.generation
    leader = group.leader
    # Two crash, one of them the leader: two standbys take their seats.
    crashed = [number for number, consumer in enumerate(world.running) if consumer is not None and consumer.id == leader]
    spared = (*rules.standbys, leader)
    crashed += [number for number, consumer in enumerate(world.running) if consumer is not None and consumer.id not in spared][:1]
    for number in crashed:
        world.stop(number)
    world.run(60)
    assert group.state is State.STABLE
    assert group.generation == generation
    assert (len(group.members), len(rules.standbys), len(rules.take_overs)) == (5, 2, 0)


@pytest.mark.parametrize("seed", some(5, range(20)))
def test_a_group_with_any_policies_settles(seed: int) -> None:
    """After all processes have run for five minutes, each that a strict roster allows is a member, and the generation stays the same."""
    world = PolicyWorld(seed)
    play = world.play
    for _ in range(250):
        world.step()
    world.confirm()
    play.set_policies({name: text for name, text in play.texts().items() if name != "rebalance.request"})
    world.restart_all()
    world.run(600)
    policies = play.policies()
    expected = {process.id for process in world.running if process is not None and (not ROSTER_STRICT.of(policies) or process.instance in (INSTANCE_IDS.of(policies) or ()))}
    if expected:
        group = play.group()
        assert group.state is State.STABLE
        assert set(group.members) == expected
        assert not group.away
        generation = group.generation
        world.run(120)
        assert group.generation == generation
    play.close()
