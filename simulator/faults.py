"""The kinds of faults of a run, and what each does. The rows are at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar

from protocol.messages.sync_group import SyncGroupRequest
from simulator.administrator import Administrator
from simulator.audit import Audit
from simulator.client import MAY_WAIT_FOR_MEMBERS
from simulator.consumer import Consumer
from simulator.course import Course
from simulator.epoch_groups import EpochGroups
from simulator.machine import SLOW_DISK_NS
from simulator.node import Node
from simulator.plan import Plan
from simulator.rot import Rot
from simulator.scene import Scene
from simulator.styles import STYLES
from simulator.world import MS, SECOND, World

T = TypeVar("T", bound="Faults")


def always(plan: Plan) -> bool:
    return True


class Fault(NamedTuple, Generic[T]):
    """A kind of fault, which a plan has by its name.

    A promise that does not hold under a fault says so itself (`Promise.unless`).
    """

    name: str
    words: str
    seconds: int = 0  # mean time between two of the kind
    happen: Callable[[T], None] | None = None  # None: it has no moments of its own
    begin: Callable[[T], None] | None = None  # called when the run begins
    rate: str = ""  # the field of Plan with the probability of the fault
    possible: Callable[[Plan], bool] = always
    excludes: tuple[str, ...] = ()  # faults that a plan with this fault does not have
    rare: bool = False  # drawn apart from the others
    own_moments: bool = False  # its moments are drawn from a stream of their own


class Faults:
    """The base class of a run, which injects the faults of the plan."""

    kinds: ClassVar[Mapping[str, Fault[Any]]]
    plan: Plan
    world: World
    course: Course
    scene: Scene
    nodes: Sequence[Node]
    audits: Mapping[Node, Audit]
    consumers: list[Consumer]
    administrator: Administrator
    epoch_groups: EpochGroups | None
    rot: Rot
    flushes_since: int  # the moment since which no fault has prevented flushes

    @property
    def node(self) -> Node:
        """The target of the next fault."""
        return self.course.node

    def lines(self) -> list[str]:
        """The plan in words, for the header of the trace."""
        plan = self.plan
        rate = "as often as usual" if plan.fault_rate == 1 else f"{plan.fault_rate:g} times as often as usual"
        faults = "; ".join(self.kinds[name].words for name in plan.faults) or "none"
        return [*plan.lines(), f"faults for {plan.safety_seconds} s, {rate}: {faults}"]

    def _begin_faults(self) -> None:
        for name in self.plan.faults:
            begin = self.kinds[name].begin
            if begin is not None:
                begin(self)

    def _schedule_faults(self) -> None:
        for name in self.plan.faults:
            fault = self.kinds[name]
            if fault.happen is not None:
                self._schedule(fault)

    def _schedule(self, fault: Fault[Any]) -> None:
        mean = fault.seconds / self.plan.fault_rate
        self.world.after(int(self._random_of(fault).expovariate(1 / mean) * SECOND), self._inject, fault)

    def _random_of(self, fault: Fault[Any]) -> Random:
        """The stream from which the moments of the fault are drawn."""
        return self.world.random

    def _inject(self, fault: Fault[Any]) -> None:
        if self.course.faults_over:
            return
        assert fault.happen is not None
        fault.happen(self)
        self._schedule(fault)

    def _fault(self, text: str) -> None:
        self.node.disturbed_at = self.world.now
        self.world.trace(f"fault: {text}", "node")
        self.world.count(f"fault: {text.split(':')[0]}", 1)

    def _kill(self) -> None:
        if self.node.running and self.world.chance(0.3):  # the power also fails, soon after the restart
            self.world.after(self.world.between(0, 5 * SECOND), self._power_if_allowed)
        self.node.crash(False)

    def _power(self) -> None:
        self.node.crash(True)

    def _stop(self) -> None:
        if self.node.serving:
            self._fault("orderly stop")
            power_follows = False
            if self.world.chance(0.6):  # the last flush fails, and the power fails before or soon after the restart
                self._fail_some_syncs(self.world.random.randrange(1, 60))
                power_follows = "power" in self.plan.faults and self.world.chance(0.5)
                self.world.after(self.world.between(SECOND, 5 * SECOND), self._power_if_allowed)
            self.node.stop(power_follows)

    def _mid_step(self) -> None:
        """Kill the process, or fail the power, at one of its next changes of a file."""
        if self.node.running:
            self._fault("crash at one of the next writes")
            self.node.power_fails = self.world.chance(0.4)
            self.node.disk.changes_until_crash = self.world.random.randrange(30)

    def _slow_disk(self) -> None:
        speed = self.node.speed
        self._fault("slow disk")
        speed.slow, speed.slow_ns = 0.3, self.world.between(100 * MS, SLOW_DISK_NS)
        duration = self.world.between(SECOND, 20 * SECOND)
        self.flushes_since = max(self.flushes_since, self.world.now + duration + 2 * SLOW_DISK_NS)
        self.world.after(duration, self._heal_disk)

    def _fail_sync(self) -> None:
        self._fault("fsync fails")
        self._fail_some_syncs(self.world.random.randrange(1, 4))

    def _fail_some_syncs(self, count: int) -> None:
        """Plant failures of syncs: of all files, or of one partition of __consumer_offsets."""
        disk, random = self.node.disk, self.world.random
        disk.fail_syncs = count
        disk.fails_in = f"__consumer_offsets-{random.randrange(self.plan.partitions)}/" if self.world.chance(0.5) else ""

    def _sync_failed(self, path: str) -> None:
        """A planted sync failure happened: often let the process or the power fail soon after."""
        if "__consumer_offsets" not in path:
            return
        choice = self.world.random.random()
        if choice < 0.4:
            self.world.after(self.world.between(0, self.world.random.choice((10, 250)) * MS), self._kill_if_allowed)
            self.world.after(self.world.between(2 * SECOND, 8 * SECOND), self._power_if_allowed)
        elif choice < 0.8:
            self.world.after(self.world.between(0, 2 * SECOND), self._power_if_allowed)

    def _kill_if_allowed(self) -> None:
        if "kill" in self.plan.faults and not self.course.faults_over:
            self._kill()

    def _power_if_allowed(self) -> None:
        if "power" in self.plan.faults and not self.course.faults_over:
            self._power()

    def _fail_write(self) -> None:
        self._fault("writes fail")
        self.node.disk.fail_writes = self.world.random.randrange(1, 4)

    def _full_disk(self) -> None:
        self._fault("disk is full")
        self.node.disk.room = self.world.random.randrange(2_000)
        self.world.after(self.world.between(SECOND, 30 * SECOND), self._heal_disk)

    def _unreadable(self) -> None:
        self._fault("reads fail")
        self.node.disk.unreadable = self.world.random.choice(("__consumer_offsets", "00000000", "__tenure_topics"))
        self.world.after(self.world.between(SECOND, 10 * SECOND), self._heal_disk)

    def _heal_disk(self) -> None:
        for node in self.nodes:
            disk = node.disk
            disk.room = None
            disk.unreadable = ""
            disk.fail_syncs = disk.fail_writes = 0
            disk.changes_until_crash = -1
            node.speed.slow = 0.0
            node.disturbed_at = self.world.now

    def _freeze(self) -> None:
        if self.node.running:
            duration = self.world.between(10 * MS, self.world.random.choice((SECOND, 40 * SECOND)))
            self._fault(f"broker frozen: {duration // MS} ms")
            self.node.stall(duration)

    def _wall(self) -> None:
        by = self.world.random.choice((-1, 1)) * self.world.between(SECOND, self.world.random.choice((60, 90_000)) * SECOND)
        self._fault(f"wall clock set: by {by // SECOND} s")
        for node, audit in self.audits.items():
            audit.clock_set()
            node.shift_wall(by)

    def _cleaners_die(self) -> None:
        for node in self.nodes:
            node.cleaner_dies = 0.01

    def _client_kill(self) -> None:
        if not self.consumers:
            return
        consumer = self.world.random.choice(self.consumers)
        self.world.count("client ended", 1)
        if not consumer.running or consumer.fenced:
            consumer.restart()
            return
        choice = self.world.random.random()
        if choice < 0.6:
            consumer.kill()
        elif choice < 0.9:
            consumer.close(consumer.instance is None or (consumer.style.name == "java" and choice > 0.85))
        else:
            consumer.poll_stops_at = self.world.now
            self.world.trace(f"{consumer.name}: polls no more", consumer.group)
            self.world.after(3 * consumer.settings.rebalance_ns, self._polls_again, consumer)
            return
        quick = self.world.chance(0.6)
        session = consumer.settings.session_ns
        self.world.after(self.world.between(0, session // 2 if quick else 4 * session), consumer.restart)

    def _polls_again(self, consumer: Consumer) -> None:
        consumer.poll_stops_at = 1 << 62

    def _client_freeze(self) -> None:
        if self.consumers:
            consumer = self.world.random.choice(self.consumers)
            duration = self.world.between(0, 3 * consumer.settings.session_ns)
            self.world.trace(f"{consumer.name}: frozen for {duration // MS} ms", consumer.group)
            self.world.count("client frozen", 1)
            consumer.freeze(duration)

    def _two_owners(self) -> None:
        """Run a second process with the instance id of a static member for a while."""
        static = [consumer for consumer in self.consumers if consumer.instance is not None]
        if not static:
            return
        self._second_owner(self.world.random.choice(static))

    def _waiting(self) -> None:
        """Disturb a member whose JoinGroup or SyncGroup waits. If none waits, a leader may rejoin, as it does when its topics change."""
        waiting = [consumer for consumer in self.consumers if consumer.waits_for(*MAY_WAIT_FOR_MEMBERS)]
        if waiting:
            self._disturb(self.world.random.choice(waiting))
            return
        leaders = [consumer for consumer in self.consumers if consumer.leads and consumer.has_assignment]
        if leaders and self.world.chance(0.5):
            self.world.random.choice(leaders).has_assignment = False

    def _watch_late_leaders(self) -> None:
        self.course.on_late_leader = self._leader_delays_sync

    def _leader_delays_sync(self, group: str, until: int) -> None:
        """A leader delays its SyncGroup until `until`. Perhaps disturb a follower before that, whose SyncGroup is parked."""
        self.world.at(self.world.between(self.world.now, until), self._disturb_followers, group)

    def _disturb_followers(self, group: str) -> None:
        waiting = [consumer for consumer in self.consumers if consumer.group == group and consumer.waits_for(SyncGroupRequest)]
        if waiting and not self.course.faults_over:
            self._disturb(self.world.random.choice(waiting))

    def _disturb(self, consumer: Consumer) -> None:
        """Start a second process with the member's instance id, let the administrator remove the member, or break its connection."""
        choice = self.world.random.random() if consumer.instance is not None else 1.0
        if choice < 0.45:
            self._second_owner(consumer)
        elif choice < 0.7 and "admin" in self.plan.faults and not self.administrator.running:
            self.administrator.run(self.administrator.remove_member(consumer.group, str(consumer.instance)))
        else:
            self.world.count("waiting member disconnected", 1)
            consumer.disconnect()

    def _second_owner(self, first: Consumer) -> None:
        self.world.count("two owners", 1)
        second = first.twin(self.world.random.choice(STYLES))
        self.consumers.append(second)
        second.start()
        self.world.after(self.world.between(SECOND, 30 * SECOND), self._end_second, second)

    def _end_second(self, second: Consumer) -> None:
        second.retired = True
        second.kill()
        self.consumers.remove(second)

    def _admin(self) -> None:
        if not self.administrator.running and self.plan.groups:
            self.administrator.run(self.administrator.act())

    def _rot(self) -> None:
        """Kill the process and flip a bit on the disk before it restarts: a running process does not verify a segment twice."""
        if self.node.running:
            self.node.crash(self.world.chance(0.5))
            where = self.rot.flip_bit()
            if where:
                self._fault(f"a bit rots: {where}")

    def _delete_topic(self) -> None:
        if not self.administrator.running:
            self.administrator.run(self.administrator.delete_topic())

    # Groups of the consumer protocol.

    def _member_kill(self) -> None:
        if self.epoch_groups is not None:
            self.epoch_groups.kill_member()

    def _member_freeze(self) -> None:
        if self.epoch_groups is not None:
            self.epoch_groups.freeze_member()

    def _member_twin(self) -> None:
        if self.epoch_groups is not None:
            self.epoch_groups.start_twin()

    def _group_admin(self) -> None:
        if self.epoch_groups is not None:
            self.epoch_groups.administer()

    def _grow_topic(self) -> None:
        if self.epoch_groups is not None:
            self.epoch_groups.grow_topic()

    def _new_topic(self) -> None:
        if self.epoch_groups is not None:
            self.epoch_groups.create_topic()


# Deleted and recreated topics need logs in which a power failure undoes no deletion, and a clock that never makes an old offset look newer
# than the deletion of its topic.
DELETE_TOPIC: Final = Fault(
    "delete_topic", "topic deleted and recreated", 30, Faults._delete_topic, possible=lambda plan: plan.flush == "always", excludes=("wall",), rare=True
)
# In the order in which plans draw them. A new kind is `rare`, and has a stream of random numbers of its own.
FAULTS: Final[tuple[Fault[Faults], ...]] = (
    Fault("kill", "kill -9", 90, Faults._kill),
    Fault("power", "power failure", 120, Faults._power),
    Fault("stop", "orderly stop", 80, Faults._stop),
    Fault("mid_step", "crash in the middle of a write", 60, Faults._mid_step),
    Fault("reset", "connection reset", rate="connection_resets"),
    Fault("stall", "stalled connection", rate="stalled"),
    Fault("slow_disk", "slow disk", 60, Faults._slow_disk),
    Fault("fail_sync", "failing fsync", 45, Faults._fail_sync),
    Fault("fail_write", "failing write", 120, Faults._fail_write),
    Fault("full_disk", "full disk", 150, Faults._full_disk),
    Fault("unreadable", "failing reads", 200, Faults._unreadable),
    Fault("freeze", "frozen broker", 60, Faults._freeze),
    Fault("wall", "wall clock set", 300, Faults._wall),
    Fault("cleaner", "killed cleaner", begin=Faults._cleaners_die),
    Fault("client_kill", "killed client", 5, Faults._client_kill),
    Fault("client_freeze", "frozen client", 15, Faults._client_freeze),
    Fault("two_owners", "second process with the same instance id", 30, Faults._two_owners),
    Fault("leader_dies", "leader dies before SyncGroup", rate="leader_dies"),
    Fault("admin", "administrator removes members, offsets and groups", 10, Faults._admin),
    DELETE_TOPIC,
    Fault("rot", "rotten bit", 100, Faults._rot, rare=True),
    Fault("waiting", "waiting member is disconnected, replaced or removed, a leader rejoins", 4, Faults._waiting, Faults._watch_late_leaders, rare=True),
    # Of groups of the consumer protocol, drawn by `epoch_plan.py`.
    Fault("member_kill", "ended member of the consumer protocol", 8, Faults._member_kill, rare=True),
    Fault("member_freeze", "frozen member of the consumer protocol", 20, Faults._member_freeze, rare=True),
    Fault("member_twin", "second process with the instance id of a member of the consumer protocol", 40, Faults._member_twin, rare=True),
    Fault("group_admin", "administrator describes, empties and deletes groups of the consumer protocol", 15, Faults._group_admin, rare=True),
    Fault("grow_topic", "topic gets partitions", 40, Faults._grow_topic, rare=True),
    Fault("new_topic", "topic created that expressions match", 40, Faults._new_topic, rare=True),
)
