"""One run: a broker, its clients and faults, in two phases.

*Safety*: all faults of the plan happen, and the promises must hold. *Liveness*: the faults end, and every group with live members must
become stable within a bounded time, with all of them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Sequence
from itertools import pairwise
from typing import Any, Final

from broker.groups.group_journal import GroupJournal
from coordinator import Note
from coordinator.notes import Cause, NoteKind, Removal, Replacement, ShardChange
from coordinator.states import COMPLETING, PREPARING, State
from protocol.errors import ErrorCode
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.join_group import JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from simulator.administrator import RECREATION_PAUSES, Administrator, Removals
from simulator.audit import Audit
from simulator.client import ClientConnection, Request
from simulator.consumer import REQUEST_NS, Consumer
from simulator.faults import Faults
from simulator.machine import SLOW_DISK_NS
from simulator.network import Network
from simulator.node import Node
from simulator.plan import FAULT_SECONDS, WRITE_BACK_SECONDS, GroupPlan, Plan, plural
from simulator.policy_operator import PolicyOperator
from simulator.policy_watch import PolicyWatch
from simulator.producing import Deleter, Producer, Reader
from simulator.promises import Generations, GroupPartition, Instances, Offsets, Sessions
from simulator.rebalances import check_subscription
from simulator.records import EVERYWHERE, Records
from simulator.rot import Rot
from simulator.styles import SESSION_FACTOR, STYLES
from simulator.world import MS, SECOND, Broken, World

# A power failure may lose unsynced data up to this age: also data that the system would have written back, but a failed sync dropped.
LOST_NS: Final = 2 * WRITE_BACK_SECONDS * SECOND + SLOW_DISK_NS
# The same for records of topics. After a failed flush the repair of the log writes them again, and is itself retried with pauses.
RECORDS_LOST_NS: Final = LOST_NS + 45 * SECOND
FLUSHED_NS: Final = 4 * SECOND  # with offsets.flush=interval, if no fault prevents flushes: the longest interval, and two slow jobs
GARBAGE_MAX: Final = 300_000  # collect garbage above this number of new objects, most of them of killed processes
RETENTION_MARGIN_NS: Final = 100 * MS
LEAVE_VERSION: Final = 5
OFFSETS_REMOVED_NS: Final = 60 * SECOND  # after it, groups have removed the offsets of a deleted topic
AUDIT_NS: Final = 2 * SECOND
AUDIT_EVENTS: Final = 8  # check memory after this many events, or after AUDIT_NS_MAX
AUDIT_NS_MAX: Final = 20 * SECOND
LIVENESS_MARGIN_NS: Final = 90 * SECOND  # for retries of a suspended or unreadable log, and pauses of clients


class Run(Faults):
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
        self.node = self.nodes[0]  # the target of the next fault
        for node in self.nodes:
            node.observers.append(self._note)
            node.on_ended.append(self._node_ended)
            node.disk.sync_failed = self._sync_failed
            node.pass_ns = plan.pass_ns
            if plan.policies is not None:
                node.speed.high += plan.policies.log_ms * MS
            if "cleaner" in plan.faults:
                node.cleaner_dies = 0.01
        self.offsets = Offsets(world)
        self.instances = Instances(world)
        self.retention_ns = plan.retention_minutes * 60 * SECOND
        self.generations = Generations(world, lambda group: self.offsets.surely_has(group, self.retention_ns))
        self.sessions = Sessions(world)
        self.audits = {node: Audit(self, node) for node in self.nodes}
        self.rot = Rot(self)
        topic_settings = dict(plan.topic_settings)
        kept_ns = int(topic_settings.get("retention.ms", 1 << 40)) * MS - RETENTION_MARGIN_NS
        kept_bytes = int(topic_settings.get("retention.bytes", EVERYWHERE))
        self.records = Records(world, self.rot.logs, 0 if {"wall", "clocks"} & set(plan.faults) else kept_ns, kept_bytes)
        self.policies = PolicyWatch(self)
        self.consumers: list[Consumer] = []
        self.topics: dict[str, int] = {}
        self.created: set[str] = set()  # topics that clients may know
        self.faults_over = False
        self.power_failed_at = -1
        self._audit_from = 0  # number of events at the next check of memory
        self._audit_at = 0
        self.flushes_since = 0
        self._flushed_at = 0  # everything appended to logs of groups before this moment is flushed (offsets.flush=interval)
        self.lost_until = -1
        for group in plan.groups:
            for topic, partitions in group.settings.topics:
                self.topics[topic] = max(self.topics.get(topic, 1), partitions)
            self._add_consumers(group)
        self.administrator = Administrator(self)
        self.recreation_pauses = RECREATION_PAUSES
        self.operator = PolicyOperator(self, plan.policies) if plan.policies is not None else None
        self.producers: list[Producer] = []
        self.readers: list[Reader] = []
        self.deleters: list[Deleter] = []
        for number in range(plan.producers):
            topic = f"data{number}"
            self.producers.append(Producer(self, f"producer-{number}", topic, 2))
            self.readers.append(Reader(self, f"reader-{number}", topic, 2))
            if plan.deletes_records:
                self.deleters.append(Deleter(self, f"deleter-{number}", topic, 2))

    def _new_nodes(self, settings: dict[str, object]) -> Sequence[Node]:
        return [Node(self.world, settings)]

    def _add_consumers(self, group: GroupPlan) -> None:
        def style(number: int) -> Any:
            return STYLES[group.styles[number % len(group.styles)]]

        for number in range(group.static):
            name = f"{group.name}/s{number}"
            self.consumers.append(Consumer(self, group.name, name, f"i{number}", group.settings, style(number)))
        for number in range(group.dynamic):
            self.consumers.append(Consumer(self, group.name, f"{group.name}/d{number}", None, group.settings, style(number)))

    # Running.

    def run(self, events_max: int = 1 << 62) -> None:
        """Run both phases; raise Broken if a promise is broken."""
        plan, world = self.plan, self.world
        for line in plan.lines():
            world.trace(line)
        for node in self.nodes:
            node.start()
        self._write_back_ns = plan.write_back_seconds * SECOND
        world.after(self._write_back_ns, self._write_back)
        world.after(AUDIT_NS, self._audit)
        self.administrator.run(self.administrator.create_topics())
        if self.operator is not None:
            self.operator.run(self.operator.work())
        for consumer in self.consumers:
            world.after(world.between(0, 5 * SECOND), self.start, consumer)
        for kind in plan.faults:
            if kind in FAULT_SECONDS:
                self._schedule(kind)
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
        self.faults_over = True
        world.trace("no more faults")
        delays = self.network.delays
        delays.reset_probability = delays.stall_probability = delays.tear_probability = 0.0
        self._heal_disk()
        self._end_late_appends()
        longest = max((SESSION_FACTOR * group.settings.session_ns + group.settings.rebalance_ns for group in self.plan.groups), default=0)
        for consumer in self.consumers:
            if not consumer.running or consumer.fenced:
                world.after(world.between(0, 5 * SECOND), self.start, consumer)
            consumer.poll_stops_at = 1 << 62
        bound = world.now + 2 * longest + 35 * SECOND + LIVENESS_MARGIN_NS
        while world.now < bound:
            world.run_until(world.now + SECOND)
            if self._serves() and self._topics_serve() and all(self._is_stable(group) for group in self.plan.groups):
                for audit in self.audits.values():
                    audit.check_all_answered()
                world.trace("every group is stable")
                return
            for node in self.nodes:
                self._start_node(node)
        for group in self.plan.groups:
            if not self._is_stable(group):
                raise Broken("liveness", self._why_not_stable(group), group.name)
        raise Broken("liveness", self._why_not_serving())

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

    def has_hole(self, topic: str, partition: int, offset: int) -> bool:
        """Whether `offset` is missing between two segments: a power failure has lost the end of the earlier segment, but not the later one."""
        logs = [node.broker.partitions.find(topic, partition) for node in self.nodes if node.serving]
        return any(before.next_offset <= offset < after.base for found in logs if found is not None and found.opened for before, after in pairwise(found.log._segments))

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

    def connect(self, name: str, address: str) -> ClientConnection | None:
        if not self.node.serving:
            return None
        wire = ClientConnection(self.world, self.network, self.node, name, address)
        return wire if wire.open else None

    def find_coordinator(self, wire: ClientConnection, group: str) -> Generator[Any, Any, ClientConnection | None]:
        """A connection to the group's coordinator, which is looked up over `wire`. With one node, `wire` itself."""
        return wire
        yield

    def find_leader(self, wire: ClientConnection, client: str, topic: str, partition: int) -> Generator[Any, Any, ClientConnection | None]:
        """A connection to the leader of a partition, which is looked up over `wire`. With one node, `wire` itself."""
        return wire
        yield

    def coordinator_moved(self, code: int) -> bool:
        """Whether the error makes a client look up the group's coordinator again."""
        return False

    def lost_leader(self, client: str, topic: str, partition: int) -> None:
        """A request for the partition got an error: the client must look up the leader again."""

    def in_memory(self, group: str) -> Any:
        """The group in its coordinator's memory; None if no node serves it."""
        for audit in self.audits.values():
            found = audit.in_memory(group)
            if found is not None:
                return found
        return None

    def joined(self, group: str, request: Request) -> None:
        """A JoinGroup was answered without an error."""
        found = self.in_memory(group)
        if found is not None and self.served_since(group, request.sent):
            check_subscription(found, request.message, request.reply)

    def listed(self, group: str, reply: JoinGroupResponse) -> None:
        """The leader of a generation received this list of its members."""
        for audit in self.audits.values():
            found = audit.in_memory(group)
            if found is not None:
                audit.rebalances.listed(found, reply)

    def leave(self, wire: ClientConnection, group: str, members: list[MemberIdentity]) -> Generator[Any, Any, None]:
        """Remove members with LeaveGroup: raise Broken if a member id that was answered without an error is still in the group."""
        request = wire.send(LeaveGroupRequest(group, members), LEAVE_VERSION, REQUEST_NS)
        yield request
        if request.lost:
            return
        answers = request.reply.members
        if request.reply.error_code == ErrorCode.NONE and len(answers) != len(members):
            raise Broken("members leave", f"LeaveGroup of {len(members)} members is answered for {len(answers)}", group)
        found = self.in_memory(group)
        if found is None or self.is_void(request) or not self.served_since(group, request.sent):
            return
        for member in answers:
            if member.error_code == ErrorCode.NONE and (member.member_id in found.members or member.member_id in found.pending_members):
                raise Broken("members leave", f"{member.member_id} left and is still in {group}", group)

    def commit_refused(self, group: str, request: Request) -> None:
        """A commit got REBALANCE_IN_PROGRESS: raise Broken in a join phase, since members of the old generation may then still commit."""
        found = self.in_memory(group)
        if found is None or found.policy_state is not None or found.state is not PREPARING:
            return
        if found.phase_start_ms * MS < request.sent and self.served_since(group, request.sent):
            raise Broken("offsets", f"{group} refuses a commit in a join phase", group)

    def heartbeat_accepted(self, group: str, request: Request) -> None:
        """A heartbeat was answered without an error."""
        for audit in self.audits.values():
            if audit.rebalances.saw_rebalance(group):
                found = audit.in_memory(group)
                if found is not None:
                    audit.rebalances.heartbeat_accepted(found, request.sent, "Heartbeat")

    def committed_elsewhere(self, node: Node, partition: GroupPartition, value: int) -> None:
        """A commit was acknowledged by a node that may not know the newest topic of that name."""

    def deletion_of(self, name: str) -> tuple[DeleteTopicsRequest, int] | None:
        """The request that deletes the topic, and its version; None: the topic is not known yet."""
        return DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 5

    def topic_deleted(self, name: str, removals: Removals, code: int) -> None:
        """The topic is deleted. `code`: NONE, or UNKNOWN_TOPIC_OR_PARTITION if an earlier request, whose reply was lost, has deleted it."""
        if code == ErrorCode.NONE:
            self.administrator.removed(removals, code)
        else:  # groups may not have removed its offsets yet
            self.world.after(OFFSETS_REMOVED_NS, self.administrator.removed, removals, None)

    def committed(self, group: str, request: Request) -> None:
        """A commit was answered without an error."""
        found = self.in_memory(group)
        if found is not None and found.state is COMPLETING and found.phase_start_ms * MS - SECOND < request.sent and not self.is_void(request):
            raise Broken("offsets", f"{group} accepts a commit of generation {found.generation}, which is not assigned yet", group)

    def unknown(self, group: str, request: Request) -> None:
        """A request was answered with UNKNOWN_MEMBER_ID."""
        message = request.message
        found = self.in_memory(group)
        if found is not None and message.group_instance_id is not None and message.member_id and not self.is_void(request):
            holder = found.static_members.get(message.group_instance_id)
            self.instances.unknown(group, message.group_instance_id, message.member_id, holder, request.sent)

    def served_since(self, group: str, moment: int) -> bool:
        """Whether the group's coordinator is known to have served it since `moment`."""
        return any(audit.served_since(group, moment) for audit in self.audits.values())

    # Replies that clients received.

    def session_renewed(self, consumer: Consumer, member_id: str, request: Request) -> None:
        what = type(request.message).__name__.removesuffix("Request")
        if not self.is_void(request):
            self.sessions.renewed(consumer.group, member_id, request.sent, consumer.settings.session_ns, what)

    def is_void(self, request: Request) -> bool:
        """Whether a power failure voids the reply: unless `offsets.flush` is `always`, a reply shortly before it promises nothing."""
        return request.sent <= self.lost_until

    def offsets_read(self, group: str, request: Request) -> None:
        if self.is_void(request):
            return
        reply = request.reply
        topics = reply.topics
        code = reply.error_code
        if reply.groups:
            topics = reply.groups[0].topics
            code = reply.groups[0].error_code
        if code:
            self.world.count(f"OffsetFetch {code}")
            return
        for topic in topics or ():
            if topic.name in request.unknown_topics:
                continue
            for each in topic.partitions:
                if not each.error_code:
                    if each.committed_offset < 0:
                        self.offsets.may_expire((group, topic.name, each.partition_index), self.retention_ns)
                    self.offsets.read((group, topic.name, each.partition_index), each.committed_offset, request.sent)
                    self.world.counts["offsets read"] = self.world.counts.get("offsets read", 0) + 1

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
            if body.what in (ShardChange.LOADED, ShardChange.RESUMED):
                audit.loaded(journal)
        else:
            self.world.count(f"note {NoteKind(kind).name}")

    def _node_ended(self, node: Node, power_failed: bool) -> None:
        self.audits[node].node_ended()
        self.policies.node_ended()
        if power_failed:
            now = self.power_failed_at = self.world.now
            self.records.lost_since(now - RECORDS_LOST_NS)
            if self.plan.flush != "always":
                window = LOST_NS if self.plan.flush == "never" else 0
                self.lost_until = now
                for promise in (self.offsets, self.instances, self.generations, self.sessions, self.policies):
                    promise.lost_since(self._flushed_at - window)
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
        served = all(self.audits[self._coordinator_of(group.name)].serves(group.name) for group in self.plan.groups)
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
