"""Checks inside a broker, every few seconds: bounds, invariants, and the log against memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from coordinator import partition_of
from coordinator.deadlines import NEVER, TICK_MS
from coordinator.facts import read_offset
from coordinator.hold import UntilDurable
from coordinator.notes import Cause, Removal
from coordinator.states import State
from simulator.client import ANSWERS, MAY_WAIT_FOR_MEMBERS
from simulator.epoch_audit import EpochAudit
from simulator.expiry import Expiry
from simulator.machine import SLOW_DISK_NS
from simulator.member import Member
from simulator.memory import Memory
from simulator.plan import GroupPlan, Plan
from simulator.policy_watch import PolicyWatch, nothing_held
from simulator.promises import NONE, Generations, Offsets, Sessions
from simulator.rebalances import BOUNDS, Rebalances
from simulator.topics import Topics
from simulator.truths import check_group, commits_in_order, compare_with_log, offsets_of
from simulator.world import MS, SECOND, Broken, Promise, World, format_time
from storage import DamagedLog

ANSWERED_NS: Final = 60 * SECOND  # added to the timeouts of a consumer
COMPARED_BYTES: Final = 10_000  # a longer log is compared with memory less often
UUID_LENGTH: Final = 37  # of a member id after its instance id: a hyphen and a UUID
WATCHED_RETENTION_NS: Final = 3600 * SECOND  # with a longer retention no offset expires within a run
LATE_NS: Final = 500 * MS  # how long ago the session of a member in memory may have ended
TIMER_LATE_PASSES_MAX: Final = 4  # a timer may be this many passes of the event loop late, since the loop reads input first
STATIC_RESTART: Final = Promise(
    "static restart",
    "a static member that returns within its session causes no rebalance and is no new member",
)
NOTES: Final = Promise("notes", "the notes of a group are complete, or say how many are missing")
REPLAY: Final = Promise("replay", "a coordinator that loads the log has the groups, members and offsets that memory had")
INVARIANTS: Final = Promise("invariants", "counters and indexes of a group agree with its members")


class Audit:
    def __init__(
        self, world: World, plan: Plan, memory: Memory, members: Sequence[Member], topics: Topics, offsets: Offsets, sessions: Sessions, policies: PolicyWatch
    ) -> None:
        """`members`: the consumers of all groups."""
        self._world = world
        self._plan = plan
        self.memory = memory
        self._node = memory.node
        self._consumers = members
        self._topics = topics
        self._offsets = offsets
        self._sessions = sessions
        self._policies = policies
        self._member_of_instance: dict[str, dict[str, str]] = {}  # group -> instance -> member id, by the notes
        self._clock_set_at = -(1 << 62)
        self._processes: Counter[str] = Counter()  # group -> processes of its consumers
        self.epochs: EpochAudit | None = None  # of groups of the consumer protocol
        self._groups: dict[int, list[GroupPlan]] = {}  # partition -> its groups
        for group in plan.groups:
            self._groups.setdefault(partition_of(group.name, plan.partitions), []).append(group)
        self._changed_at: dict[str, int] = {}  # group -> the moment of its last change of state
        self._members: dict[str, dict[str, Any]] = {}  # group -> its members at the last check
        self._states: dict[str, tuple[int, int]] = {}  # group -> its state and generation, by the notes
        self._extended: dict[str, tuple[int, int, int]] = {}  # member with an extended session -> last request, begin of the group's phase, deadline
        self._waited: dict[str, tuple[Any, int]] = {}  # member whose SyncGroup was parked -> group, generation
        self._first_offsets: dict[int, tuple[Any, int]] = {}  # partition -> a hold, and the offset of its first fact
        self._compared: dict[int, tuple[Any, ...]] = {}  # partition -> its log and memory at the last comparison
        self._late_ms_max = TICK_MS + TIMER_LATE_PASSES_MAX * plan.pass_ns // MS
        delay_ms = int(str(plan.broker["group.initial.rebalance.delay.ms"])) if plan.policies is None else 0
        timeouts_ms = {group.name: group.settings.rebalance_ns // MS for group in plan.groups}
        self.rebalances = Rebalances(int(str(plan.broker["group.max.size"])), timeouts_ms, delay_ms)
        watched = plan.retention_ns < WATCHED_RETENTION_NS and Expiry.promise.holds(plan.faults)
        self._expiry = Expiry(plan.retention_ns // MS, "admin" in plan.faults) if watched else None

    # Notes.

    def joined(self, group: str, body: Any, at_ms: int) -> None:
        self.rebalances.joined(group, body.member_id, at_ms)
        if body.instance_id is not None:
            member_of_instance = self._member_of_instance.setdefault(group, {})
            before = member_of_instance.get(body.instance_id)
            if before is not None and before != body.member_id and not body.known_id:
                raise Broken(STATIC_RESTART, f"{body.instance_id} joins as new member {body.member_id}, although {before} has its seat", group)
            member_of_instance[body.instance_id] = body.member_id

    def removed(self, group: str, body: Any) -> None:
        if body.instance_id is not None and body.how == Removal.REBALANCE_TIMEOUT:
            raise Broken(Sessions.promise, f"{body.member_id} is removed since it did not rejoin in time, although its session has not ended", group)
        found = self.memory.find(group)
        if found is not None and body.how == Removal.EXPIRED:
            self.rebalances.expired(found, body.member_id)
        member_of_instance = self._member_of_instance.get(group, {})
        if body.instance_id is not None and member_of_instance.get(body.instance_id) == body.member_id:
            del member_of_instance[body.instance_id]

    def check_lateness(self, group: str, body: Any, moment: int) -> None:
        """Raise Broken if an undisturbed broker removed a member (at `moment`) more than a tick after its session ended.

        A session begins with a request of the member, and again when a phase of a rebalance ends. After a slow append the broker
        extends a session once, by its timeout. Groups with policies are not checked: standbys have other deadlines.
        """
        found, node = self.memory.find(group), self._node
        began = max(moment - body.since_heartbeat_ms * MS, self._changed_at.get(group, 0))
        late_ms = (moment - began) // MS - body.session_ms
        if found is None or found.policies is not None or late_ms <= self._late_ms_max:
            return
        if not self._sessions.knows(group, body.member_id):
            return
        member = self._members.get(group, {}).get(body.member_id)
        if member is None or member.extended_since_ms == member.seen_ms or self._plan.varied_sessions:
            return
        undisturbed_since = max(node.frozen_until, node.disturbed_at, self.memory.serving.get(partition_of(group, self._plan.partitions), NEVER))
        if undisturbed_since < began - SLOW_DISK_NS - SECOND:
            raise Broken(Sessions.promise, f"{body.member_id} was removed {late_ms} ms after the end of its session of {body.session_ms} ms", group)

    def replaced(self, group: str, body: Any) -> None:
        self._member_of_instance.setdefault(group, {})[body.instance_id] = body.new_id

    def changed(self, group: str, cause: Cause, body: Any, generation: int, at_ms: int) -> None:
        before, generation_before = self._states.get(group, (body.from_state, generation))
        if before != body.from_state:
            raise Broken(NOTES, f"a note of {group} about the change from {State(before).name} to {State(body.from_state).name} is missing", group)
        if before == State.PREPARING and group in self._states and generation != generation_before + 1:
            raise Broken(Generations.promise, f"generation {generation} of {group} follows generation {generation_before}", group)
        self._states[group] = body.to_state, generation
        self._changed_at[group] = self._world.now
        found = self.memory.find(group)
        if self.clock_is_steady:
            self.rebalances.changed(group, State(body.from_state), State(body.to_state), cause, at_ms)
        if found is not None and body.from_state == State.PREPARING:
            self.rebalances.ended(found, cause, generation, at_ms)
        if cause != Cause.STATIC_PROTOCOL_CHANGED:
            return
        instance = str(body.member)[:-UUID_LENGTH]
        if not self._policies.changes_topics(group, instance):
            raise Broken(STATIC_RESTART, f"{body.member} causes a rebalance, although its subscription is the same", group)

    def forget_notes(self, group: str) -> None:
        """Notes about the group are missing."""
        self._member_of_instance.pop(group, None)
        self._states.pop(group, None)
        self.rebalances.forget_joins(group)

    def partition_changed(self, partition: int) -> None:
        """The partition was loaded or unloaded: changes that were not durable may be lost."""
        self._forget()
        self.memory.serving.pop(partition, None)

    def loaded(self, journal: Any) -> None:
        """The coordinator has loaded a partition: check the offsets that clients will now read."""
        if self.epochs is not None:
            self.epochs.loaded(journal.shard)
        for plan in self._groups.get(journal.partition, ()):
            group = journal.shard.groups.get(plan.name)
            stored = offsets_of(group) if group is not None else {}
            for topic, partitions in plan.settings.topics:
                if topic in self._topics.deleted:
                    continue  # the coordinator removes its offsets next
                for number in range(partitions):
                    partition = plan.name, topic, number
                    value = stored.get((topic, number))
                    if value is None:
                        self._offsets.may_expire(partition, self._plan.retention_ns)
                    self._offsets.read(partition, NONE if value is None else read_offset(value).offset, self._world.now)

    def node_ended(self) -> None:
        """The process has ended: changes that were not durable may be lost."""
        self._forget()
        self.memory.serving.clear()

    def _forget(self) -> None:
        self._member_of_instance.clear()
        self._members.clear()
        self._states.clear()
        self._extended.clear()
        self._waited.clear()
        self.rebalances.forget()
        if self._expiry is not None:
            self._expiry.forget()

    def clock_set(self) -> None:
        self._clock_set_at = self._world.now

    @property
    def clock_is_steady(self) -> bool:
        return self._clock_set_at < 0

    # Checks of memory.

    def check(self) -> None:
        node = self._node
        node.check()
        if not node.serving:
            return
        connections = len(node.broker.connections.live)
        if connections > len(node.streams):
            raise Broken(BOUNDS, f"the broker has {connections} connections, and clients opened {len(node.streams)}")
        for stream in [stream for stream in node.streams if stream.transport is not None and stream.transport.lost]:
            del node.streams[stream]
        shards = [journal.shard for journal in node.broker.shards.journals]
        kept = sum(group.kept_bytes for shard in shards for group in (*shard.groups.values(), *shard.consumers.groups.values()))
        if kept != node.broker.shards.kept.bytes:
            raise Broken(BOUNDS, f"{node.broker.shards.kept.bytes} bytes of members are counted, the groups count {kept}")
        self._processes = Counter([consumer.group for consumer in self._consumers])
        for journal in node.broker.shards.journals:
            if journal.refusal:
                self.memory.serving.pop(journal.partition, None)
                continue
            self.memory.serving.setdefault(journal.partition, self._world.now)
            shard = journal.shard
            for group in shard.groups.values():
                self._check_group(group)
            if self.epochs is not None:
                self.epochs.check(shard, nothing_held(shard))
            if self._expiry is not None:
                self._expiry.check(journal.partition, shard.groups, node.wall_ms)
            if journal.partition in self._groups:
                self._policies.check(node, shard, self._groups[journal.partition], self.memory.serving[journal.partition], self.clock_is_steady)
            if nothing_held(shard):
                size = journal._owned.log.size
                chance = 0.3 if size < COMPARED_BYTES else 0.3 * COMPARED_BYTES / size
                state = journal, journal._owned.log.next_offset, size, *[group.version for group in (*shard.groups.values(), *shard.consumers.groups.values())]
                if self._compared.get(journal.partition) == state:
                    chance /= 10
                if self._world.chance(chance):
                    self._compare(journal)
                    self._compared[journal.partition] = state
        for consumer in self._consumers:
            self._check_answered(consumer.wire, consumer)
            if consumer.waits_for(*MAY_WAIT_FOR_MEMBERS):
                self._check_parked(consumer)

    def check_appends(self) -> None:
        """Check the appends of all partitions: cheap, so run more often than `check`."""
        if self._node.serving:
            for journal in self._node.broker.shards.journals:
                if not journal.refusal:
                    self._check_appends(journal)

    def _check_appends(self, journal: Any) -> None:
        """Raise Broken if facts that are not in the log count as durable, or if replies still wait although the append is late."""
        hold, end, in_flight = journal.shard.hold, journal._owned.log.next_offset, journal._in_flight
        known, first = self._first_offsets.get(journal.partition, (None, 0))
        if known is hold:
            if first + hold.durable > end:
                raise Broken(REPLAY, f"replies wait only for the log before offset {first + hold.durable}, and it ends at offset {end}", f"partition {journal.partition}")
        elif not in_flight:
            self._first_offsets[journal.partition] = hold, end - hold.durable
        waited_ms = self._node.broker.clock.tick() - journal._append_began
        if not in_flight or waited_ms < journal._append_timeout_ms + LATE_NS // MS or self._world.now - self._node.frozen_until < LATE_NS:
            return
        # The journal fails late replies and then sets `_late_fact_number`: replies held since then have at least that number, and more time.
        if any(fact_number <= in_flight and fact_number < journal._late_fact_number for fact_number, held in hold.held if not isinstance(held, UntilDurable)):
            raise Broken(ANSWERS, f"replies have waited {waited_ms} ms for the log of partition {journal.partition}, although an append is late after {journal._append_timeout_ms} ms")

    def _check_parked(self, consumer: Any) -> None:
        """Raise Broken if an unanswered JoinGroup or SyncGroup is not parked in its group, although no reply waits for the log."""
        wire, node = consumer.wire, self._node
        transport = wire.stream.transport if wire.node is node and wire.life == node.life else None
        if transport is None or len(wire.waiting) > 1 or not transport.protocol.busy:
            return
        journal = node.broker.shards.journal_of(consumer.group)
        if journal.refusal or not nothing_held(journal.shard):
            return
        group = journal.shard.groups.get(consumer.group)
        if group is None or not any(waiter.connection is transport.protocol for waiter in waiters(group)):
            first = wire.waiting[0]
            api = type(first.message).__name__.removesuffix("Request")
            raise Broken(ANSWERS, f"{consumer.name}: {api} of {format_time(first.sent)} is parked nowhere", consumer.group)

    def _check_group(self, group: Any) -> None:
        try:
            check_group(group)
        except AssertionError as error:
            raise Broken(INVARIANTS, f"{group.id}: {error}", group.id) from error
        self._check_sessions(group)
        self._members[group.id] = dict(group.members)
        self.rebalances.check(group, self._world.now)
        statics, processes = len(group.static_members), self._processes[group.id]
        if statics > processes:
            raise Broken(BOUNDS, f"{group.id} has {statics} static members, and its clients are {processes} processes", group.id)

    def _check_sessions(self, group: Any) -> None:
        """Raise Broken if a deadline is later than the session timeout allows, or long past in an undisturbed broker.

        A session must also begin when a parked SyncGroup gets its assignment.
        """
        node = self._node
        now = node.broker.clock.tick()
        undisturbed = self._world.now - max(node.frozen_until, node.disturbed_at) > LATE_NS
        for member in group.members.values():
            if member.sync_waiter is not None:
                self._waited[member.id] = group, group.generation
                self._sessions.sync_is_parked(group.id, member.id, group.generation, node, member.session_timeout_ms * MS)
            waited = group.state == State.STABLE and self._waited.get(member.id) == (group, group.generation)
            if waited and member.deadline < group.phase_start_ms + member.session_timeout_ms:
                raise Broken(Sessions.promise, f"no session of {member.id} began with the assignment that it waited for", group.id)
            if member.deadline == NEVER or member.is_new:  # until the end of its first rebalance, a new member has five minutes instead of its session timeout
                continue
            if member.deadline > now + member.session_timeout_ms and not self._plan.varied_sessions:  # after a restart with another timeout, the first session still has the old one
                raise Broken(Sessions.promise, f"the session of {member.id} ends in {member.deadline - now} ms, although its timeout is {member.session_timeout_ms} ms", group.id)
            if member.extended_since_ms == member.seen_ms:
                self._check_extended(group, member)
            if undisturbed and member.deadline < now - LATE_NS // MS:
                raise Broken(Sessions.promise, f"the session of {member.id} ended {now - member.deadline} ms ago, and it is still a member", group.id)

    def _check_extended(self, group: Any, member: Any) -> None:
        """Raise Broken if a session is extended twice."""
        seen, began, deadline = self._extended.get(member.id, (-1, -1, -1))
        if (seen, began) == (member.seen_ms, group.phase_start_ms) and deadline < member.deadline:
            raise Broken(Sessions.promise, f"the session of {member.id} is extended again, by {member.deadline - deadline} ms", group.id)
        self._extended[member.id] = member.seen_ms, group.phase_start_ms, member.deadline

    def _compare(self, journal: Any) -> None:
        shard = journal.shard
        try:
            log = [fact for facts in journal._owned.replay() for fact in facts]
        except (OSError, DamagedLog):
            return
        if self.clock_is_steady and self._plan.nodes == 1 and not commits_in_order(log):
            raise Broken(REPLAY, f"offsets in partition {journal.partition} of __consumer_offsets are not in the order of their commits")
        try:
            compare_with_log(shard, log, journal._clock.now)
        except AssertionError as error:
            raise Broken(REPLAY, str(error), str(error).partition(":")[0]) from error
        self._world.count("compared with the log")

    def _check_answered(self, wire: Any, consumer: Any) -> None:
        if wire is None or not wire.open or not wire.waiting:
            return
        first = wire.waiting[0]
        bound = 2 * consumer.settings.rebalance_ns + consumer.settings.session_ns + ANSWERED_NS + 40 * SECOND
        if self._world.now - first.sent > bound:
            raise Broken(
                ANSWERS, f"{consumer.name}: {type(first.message).__name__} of {format_time(first.sent)} has no reply", consumer.group
            )

    def check_all_answered(self) -> None:
        """Called when faults have ended: raise Broken if a request has waited too long for its reply."""
        for consumer in self._consumers:
            self._check_answered(consumer.wire, consumer)


def waiters(group: Any) -> Iterator[Any]:
    """The parked requests of a group."""
    for member in group.members.values():
        if member.join_waiter is not None:
            yield member.join_waiter
        if member.sync_waiter is not None:
            yield member.sync_waiter
    for newcomer in group.newcomers.values():
        yield newcomer.waiter
