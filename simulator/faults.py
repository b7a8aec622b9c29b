"""The faults of a run. Each kind of fault that a plan may name is a method, called at random intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from protocol.messages.sync_group import SyncGroupRequest
from simulator.administrator import Administrator
from simulator.audit import Audit
from simulator.client import MAY_WAIT_FOR_MEMBERS
from simulator.consumer import Consumer
from simulator.course import Course
from simulator.machine import SLOW_DISK_NS
from simulator.node import Node
from simulator.plan import FAULT_SECONDS, Plan
from simulator.rot import Rot
from simulator.scene import Scene
from simulator.styles import STYLES
from simulator.world import MS, SECOND, World


class Faults:
    """The base class of a run, which injects the faults of the plan."""

    plan: Plan
    world: World
    course: Course
    scene: Scene
    nodes: Sequence[Node]
    audits: Mapping[Node, Audit]
    consumers: list[Consumer]
    administrator: Administrator
    rot: Rot
    flushes_since: int  # the moment since which no fault has prevented flushes

    @property
    def node(self) -> Node:
        """The target of the next fault."""
        return self.course.node

    def _schedule(self, kind: str) -> None:
        mean = FAULT_SECONDS[kind] / self.plan.fault_rate
        self.world.after(int(self.world.random.expovariate(1 / mean) * SECOND), self._inject, kind)

    def _inject(self, kind: str) -> None:
        if self.course.faults_over:
            return
        getattr(self, f"_{kind}")()
        self._schedule(kind)

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
