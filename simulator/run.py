"""One run: a broker, its clients and faults, in two phases.

*Safety*: all faults of the plan happen, and the promises must hold. *Liveness*: the faults end, and every group with live members must
become stable within a bounded time, with all of them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from broker.groups.group_journal import GroupJournal
from coordinator import Note
from coordinator.notes import Cause, Removal, Replacement, ShardChange
from coordinator.states import State
from protocol.messages.kinds import NoteKind
from simulator.administrator import Administrator
from simulator.audit import Audit
from simulator.consumer import Consumer
from simulator.course import Course
from simulator.epoch_audit import EpochAudit
from simulator.epoch_groups import EpochGroups
from simulator.epoch_watch import EpochWatch
from simulator.faults import FAULTS, Fault, Faults
from simulator.lookups import Lookups
from simulator.machine import SLOW_DISK_NS
from simulator.memory import Coordinators
from simulator.network import Network
from simulator.node import Node
from simulator.plan import WRITE_BACK_SECONDS, GroupPlan, Plan, plural
from simulator.policy_operator import PolicyOperator
from simulator.policy_watch import PolicyWatch
from simulator.producing import Deleter, Producer, Reader
from simulator.promises import Generations, Instances, Offsets, Sessions
from simulator.records import EVERYWHERE, Records
from simulator.replies import Replies
from simulator.rot import Rot
from simulator.scene import Scene
from simulator.styles import SESSION_FACTOR, STYLES
from simulator.topics import Topics
from simulator.world import MS, SECOND, Broken, Promise, World

# A power failure may lose unsynced data up to this age: also data that the system would have written back, but a failed sync dropped.
LOST_NS: Final = 2 * WRITE_BACK_SECONDS * SECOND + SLOW_DISK_NS
# The same for records of topics. After a failed flush the repair of the log writes them again, and is itself retried with pauses.
RECORDS_LOST_NS: Final = LOST_NS + 45 * SECOND
FLUSHED_NS: Final = 4 * SECOND  # with offsets.flush=interval, if no fault prevents flushes: the longest interval, and two slow jobs
GARBAGE_MAX: Final = 300_000  # collect garbage above this number of new objects, most of them of killed processes
RETENTION_MARGIN_NS: Final = 100 * MS
AUDIT_NS: Final = 2 * SECOND
AUDIT_EVENTS: Final = 8  # check memory after this many events, or after AUDIT_NS_MAX
AUDIT_NS_MAX: Final = 20 * SECOND
LIVENESS_MARGIN_NS: Final = 90 * SECOND  # for retries of a suspended or unreadable log, and pauses of clients
LIVENESS: Final = Promise(
    "liveness",
    "without faults every group with living members is stable within a bounded time, with every living member in it",
)


class Run(Faults):
    kinds: ClassVar[Mapping[str, Fault[Any]]] = {fault.name: fault for fault in FAULTS}

    def __init__(self, plan: Plan, show: Callable[[str], object] | None = None) -> None:
        self.plan = plan
        self.world = world = World(plan.seed, show)
        self.network = Network(world)
        self.network.delays.high = plan.latency_ns
        self.network.delays.reset_probability = plan.connection_resets
        self.network.delays.stall_probability = plan.stalled
        self.network.delays.stall_ns = 20 * SECOND
        self.network.delays.tear_probability = plan.torn
        self.nodes = self._new_nodes(
            {
                "offsets.flush": plan.flush,
                "offsets.topic.num.partitions": plan.partitions,
                "offsets.topic.segment.bytes": plan.segment_bytes,
                "offsets.retention.minutes": plan.retention_minutes,
                "offsets.retention.check.interval.ms": 20_000,
                "log.retention.check.interval.ms": 20_000,
                "notes.end.offsets.interval.ms": 10_000,
                **plan.broker,
            },
        )
        self.course = course = Course(self.nodes[0])
        for node in self.nodes:
            node.observers.append(self._note)
            node.on_ended.append(self._node_ended)
            node.disk.sync_failed = self._sync_failed
            node.pass_ns = plan.pass_ns
            if plan.policies is not None:
                node.speed.high += plan.policies.log_ms * MS
        self.offsets = Offsets(world)
        self.instances = Instances(world)
        self.generations = Generations(world, lambda group: self.offsets.surely_has(group, plan.retention_ns))
        self.sessions = Sessions(world)
        self.consumers: list[Consumer] = []
        self.topics = self._new_topics()
        self.coordinators = Coordinators(self.nodes)
        self.policies = PolicyWatch(world, plan, course, self.coordinators, self.consumers, self.sessions)
        self.audits = {
            node: Audit(world, plan, memory, self.consumers, self.topics, self.offsets, self.sessions, self.policies)
            for node, memory in self.coordinators.memories.items()
        }
        self.rot = Rot(world.random, course.node)
        topic_settings = dict(plan.topic_settings)
        kept_ns = int(topic_settings.get("retention.ms", 1 << 40)) * MS - RETENTION_MARGIN_NS
        kept_bytes = int(topic_settings.get("retention.bytes", EVERYWHERE))
        self.records = Records(world, self.rot.logs, 0 if set(Records.ages_unknown) & set(plan.faults) else kept_ns, kept_bytes)
        replies = Replies(world, course, self.coordinators, list(self.audits.values()), self.offsets, self.instances, self.sessions, plan.retention_ns)
        self.scene = scene = Scene(
            world,
            plan,
            course,
            self._new_lookups(),
            self.topics,
            self.coordinators,
            replies,
            self.offsets,
            self.instances,
            self.generations,
            self.sessions,
            self.records,
            self.policies,
        )
        self._audit_from = 0  # number of events at the next check of memory
        self._audit_at = 0
        self.flushes_since = 0
        self._flushed_at = 0  # everything appended to logs of groups before this moment is flushed (offsets.flush=interval)
        for group in plan.groups:
            for topic, partitions in group.settings.topics:
                self.topics.partitions[topic] = max(self.topics.partitions.get(topic, 1), partitions)
            self._add_consumers(group)
        self.administrator = Administrator(scene, self.consumers)
        self.operator = PolicyOperator(scene, self.consumers, plan.policies) if plan.policies is not None else None
        self._add_epoch_groups()
        self.producers: list[Producer] = []
        self.readers: list[Reader] = []
        self.deleters: list[Deleter] = []
        for number in range(plan.producers):
            topic = f"data{number}"
            self.topics.partitions[topic] = 2
            self.producers.append(Producer(scene, f"producer-{number}", topic, 2))
            self.readers.append(Reader(scene, f"reader-{number}", topic, 2))
            if plan.deletes_records:
                self.deleters.append(Deleter(scene, f"deleter-{number}", topic, 2))

    def _new_nodes(self, settings: dict[str, object]) -> Sequence[Node]:
        return [Node(self.world, settings)]

    def _new_topics(self) -> Topics:
        return Topics(self.world, self.offsets)

    def _new_lookups(self) -> Lookups:
        return Lookups(self.world, self.network, self.nodes[0])

    def _add_consumers(self, group: GroupPlan) -> None:
        def style(number: int) -> Any:
            return STYLES[group.styles[number % len(group.styles)]]

        for number in range(group.static):
            name = f"{group.name}/s{number}"
            self.consumers.append(Consumer(self.scene, group.name, name, f"i{number}", group.settings, style(number)))
        for number in range(group.dynamic):
            self.consumers.append(Consumer(self.scene, group.name, f"{group.name}/d{number}", None, group.settings, style(number)))

    def _add_epoch_groups(self) -> None:
        self.epoch_watch: EpochWatch | None = None
        self.epoch_groups: EpochGroups | None = None
        plan = self.plan.epochs
        if plan is None:
            return
        retention_ns = self.plan.retention_ns
        self.epoch_watch = EpochWatch(self.world, plan, retention_ns, self.course, self.nodes, self.coordinators, self.offsets, self.sessions)
        self.topics.partitions.update(plan.topics)
        for node, audit in self.audits.items():
            audit.epochs = EpochAudit(self.world, node, self.epoch_watch, self.offsets, self.topics, retention_ns)
        self.epoch_groups = EpochGroups(self.scene, plan, self.epoch_watch, self.administrator)

    # Running.

    def run(self, events_max: int = 1 << 62) -> None:
        """Run both phases; raise Broken if a promise is broken."""
        plan, world = self.plan, self.world
        for line in self.lines():
            world.trace(line)
        self._begin_faults()
        for node in self.nodes:
            node.start()
        self._write_back_ns = plan.write_back_seconds * SECOND
        world.after(self._write_back_ns, self._write_back)
        world.after(AUDIT_NS, self._audit)
        self.administrator.run(self.administrator.create_topics())
        if self.operator is not None:
            self.operator.run(self.operator.work())
        for consumer in self.consumers:
            world.after(world.between(0, 5 * SECOND), consumer.restart)
        if self.epoch_groups is not None:
            self.epoch_groups.start()
        self._schedule_faults()
        for producer in self.producers:
            producer.run(producer.work())
        for reader in self.readers:
            reader.run(reader.work())
        for deleter in self.deleters:
            deleter.run(deleter.work())
        world.run_until(plan.safety_seconds * SECOND, events_max)
        self._check_liveness()

    def _check_liveness(self) -> None:
        """End the faults; raise Broken unless every group becomes stable in time, with all its live members."""
        world = self.world
        self.course.faults_over = True
        world.trace("no more faults")
        delays = self.network.delays
        delays.reset_probability = delays.stall_probability = delays.tear_probability = 0.0
        self._heal_disk()
        self._end_late_appends()
        longest = max((SESSION_FACTOR * group.settings.session_ns + group.settings.rebalance_ns for group in self.plan.groups), default=0)
        for consumer in self.consumers:
            if not consumer.running or consumer.fenced:
                world.after(world.between(0, 5 * SECOND), consumer.restart)
            consumer.poll_stops_at = 1 << 62
        longest = 2 * longest + 35 * SECOND
        if self.epoch_groups is not None:
            self.epoch_groups.end_faults()
            longest = max(longest, self.epoch_groups.bound_ns)
        bound = world.now + longest + LIVENESS_MARGIN_NS
        while world.now < bound:
            world.run_until(world.now + SECOND)
            if self._serves() and self._topics_serve() and all(self._is_stable(group) for group in self.plan.groups) and not self._unstable_epochs():
                for audit in self.audits.values():
                    audit.check_all_answered()
                world.trace("every group is stable")
                return
            for node in self.nodes:
                self._start_node(node)
        for group in self.plan.groups:
            if not self._is_stable(group):
                raise Broken(LIVENESS, self._why_not_stable(group), group.name)
        name, why = self._unstable_epochs() or ("", "")
        if name:
            raise Broken(LIVENESS, f"{name} is not stable: {why}", name)
        raise Broken(LIVENESS, self._why_not_serving())

    def _unstable_epochs(self) -> tuple[str, str] | None:
        """A group of the consumer protocol that is not stable, and why. When all are, each is disturbed again, a few times."""
        groups = self.epoch_groups
        if groups is None:
            return None
        for group in groups.plan.groups:
            why = "" if self.rot.allows_closed(group.name) else groups.unstable(group)
            if why:
                return group.name, why
        return ("", "") if groups.busy or groups.disturb_again() else None

    def _end_late_appends(self) -> None:
        """Make appends fast if the plan made them slower than `offsets.commit.timeout.ms`: with late appends a group need not become stable."""
        policies = self.plan.policies
        if policies is not None and policies.log_ms > int(str(self.plan.broker.get("offsets.commit.timeout.ms", 5_000))):
            for node in self.nodes:
                node.speed.high -= policies.log_ms * MS

    def _serves(self) -> bool:
        return self.node.serving

    def _topics_serve(self) -> bool:
        return not self._closed_topics()

    def _closed_topics(self) -> str:
        """Say which partitions of topics the broker does not serve, and why; "" if it serves all."""
        broker = self.node.broker
        closed = [
            f"{topic.name}-{number}: {partition.refusal_reason}"
            for topic in broker.topics.by_name.values()
            for number, partition in enumerate(broker.partitions.of_topic(topic))
            if not topic.internal and (topic.name, number) not in self.rot.logs and partition.refusal_reason
        ]
        return ", ".join(closed)

    def _why_not_serving(self) -> str:
        return f"closed topics: {self._closed_topics()}" if self.node.serving else "the broker does not serve"

    def _coordinator_of(self, group: str) -> Node:
        return self.node

    def _members(self, group: GroupPlan) -> list[Consumer]:
        return [consumer for consumer in self.consumers if consumer.group == group.name and consumer.running and not consumer.fenced]

    def _is_stable(self, group: GroupPlan) -> bool:
        if self.rot.allows_closed(group.name):
            return True
        members = self._members(group)
        room = int(str(self.plan.broker.get("group.max.size", 1 << 31)))
        assigned = [consumer for consumer in members if consumer.has_assignment]
        if len({consumer.generation for consumer in assigned}) > 1:
            return False
        owners = {consumer.instance or consumer.name for consumer in members}
        return len(assigned) >= min(len(owners), room) or not members

    def _why_not_stable(self, group: GroupPlan) -> str:
        shard = self._coordinator_of(group.name).broker.shards.journal_of(group.name).shard
        found = shard.groups.get(group.name)
        state = f"{State(found.state).name} in generation {found.generation} with {sorted(found.members)}" if found is not None else "unknown"
        members = ", ".join(f"{each.name} {'settled in ' + str(each.generation) if each.has_assignment else 'waits'}" for each in self._members(group))
        return f"{group.name} is {state}; {members}"

    # Notes of the broker.

    def _note(self, node: Node, journal: GroupJournal, note: Note) -> None:
        audit = self.audits[node]
        source = "note" if len(self.nodes) == 1 else f"note of {node.name}"
        body: Any = note.body
        kind = note.kind
        group = note.group_id
        moment = (note.at_ms + 1) * MS - node.wall_offset_ns
        if note.dropped:
            audit.forget_notes(group)
        self.policies.note(journal.partition, note, moment, audit.clock_is_steady)
        if kind == NoteKind.STATE_CHANGE:
            cause = Cause(body.reason)
            why = ": ".join(part for part in (cause.name, body.member, body.text) if part)
            states = f"{State(body.from_state).name} -> {State(body.to_state).name} ({why})"
            self.world.trace(f"{source}: {group}: {states}, generation {note.generation}, {plural(body.members, 'member')}", group)
            audit.changed(group, cause, body, note.generation, note.at_ms)
        elif kind == NoteKind.MEMBER_JOIN:
            self.world.trace(f"{source}: {group}: {body.member_id} joins{f' as instance {body.instance_id}' if body.instance_id else ''}", group)
            audit.joined(group, body, note.at_ms)
        elif kind == NoteKind.MEMBER_GONE:
            how = Removal(body.how)
            self.world.trace(f"{source}: {group}: {body.member_id} is removed ({how.name})", group)
            self.world.events += 1
            if how == Removal.EXPIRED and audit.clock_is_steady:
                audit.check_lateness(group, body, moment)
                self.sessions.expired(group, body.member_id, moment)
            else:
                if how == Removal.SYNC_TIMEOUT:
                    self.sessions.removed_without_sync(group, body.member_id, note.generation, node)
                    if audit.clock_is_steady:
                        audit.rebalances.sync_phase_ended(group, note.at_ms)
                self.sessions.removed(group, body.member_id)
            audit.removed(group, body)
        elif kind == NoteKind.STATIC_REPLACED:
            self.world.trace(f"{source}: {group}: instance {body.instance_id} returns as {body.new_id}, instead of {body.old_id} ({Replacement(body.outcome).name})", group)
            audit.replaced(group, body)
        elif kind == NoteKind.COORDINATOR:
            self.world.trace(f"{source}: partition {journal.partition} of __consumer_offsets: {ShardChange(body.what).name}", "node")
            audit.partition_changed(journal.partition)
            if self.epoch_watch is not None:
                self.epoch_watch.node_ended()
            if body.what in (ShardChange.LOADED, ShardChange.RESUMED):
                audit.loaded(journal)
        elif kind == NoteKind.EPOCH and self.epoch_watch is not None:
            self.epoch_watch.note(note, moment, audit.clock_is_steady)
        else:
            self.world.count(f"note {NoteKind(kind).name}")

    def _node_ended(self, node: Node, power_failed: bool) -> None:
        self.audits[node].node_ended()
        self.policies.node_ended()
        if self.epoch_watch is not None:
            self.epoch_watch.node_ended()
        if power_failed:
            now = self.course.power_failed_at = self.world.now
            self.records.lost_since(now - RECORDS_LOST_NS)
            if self.plan.flush != "always":
                window = LOST_NS if self.plan.flush == "never" else 0
                self.course.lost_until = now
                for promise in (self.offsets, self.instances, self.generations, self.sessions, self.policies):
                    promise.lost_since(self._flushed_at - window)
                if self.epoch_watch is not None:
                    self.epoch_watch.power_failed()
        delay = self.world.between(10 * MS, 3 * SECOND)
        self.world.after(delay * (1 + min(node.failed_starts, 5)), self._start_node, node)

    def _start_node(self, node: Node) -> None:
        if not node.running:
            node.start()

    # Repeated steps.

    def _write_back(self) -> None:
        if gc.get_count()[0] > GARBAGE_MAX:
            gc.collect()
        self.node.disk.write_back()
        self.world.after(self._write_back_ns, self._write_back)

    def _watch_flushes(self) -> None:
        """Set `_flushed_at` to FLUSHED_NS ago if since then every log of groups was served and no fault prevented flushes.

        A process flushes what it appended, and also what it read at its start from an earlier process.
        """
        now = self.world.now
        served = all(self.coordinators.memories[self._coordinator_of(name)].serves(name) for name in self.plan.group_names)
        if not served or any(node.disk.fail_syncs for node in self.nodes):
            self.flushes_since = max(self.flushes_since, now)
        self.flushes_since = max((self.flushes_since, *(node.frozen_until for node in self.nodes if node.running)))
        if self.flushes_since <= now - FLUSHED_NS:
            self._flushed_at = now - FLUSHED_NS

    def _audit(self) -> None:
        self._watch_flushes()
        for audit in self.audits.values():
            audit.check_appends()
        if self.world.events >= self._audit_from or self.world.now >= self._audit_at:
            self._audit_from = self.world.events + AUDIT_EVENTS
            self._audit_at = self.world.now + AUDIT_NS_MAX
            for audit in self.audits.values():
                audit.check()
        self.world.after(AUDIT_NS, self._audit)
