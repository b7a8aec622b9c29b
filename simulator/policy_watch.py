"""Passes replies to clients, notes of the coordinator and the content of its memory to the promises about policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker.settings.config import POLICY_PREFIX
from coordinator import Note
from coordinator.notes import Cause, Removal, Replacement, ShardChange, StandbyStep
from coordinator.policies.door import resolve
from coordinator.states import COMPLETING, STABLE, State
from history.causes import CAUSES, REMOVALS
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.kinds import NoteKind
from simulator.client import Request
from simulator.course import Course
from simulator.member import Member
from simulator.memory import Coordinators
from simulator.node import Node
from simulator.plan import GroupPlan, Plan
from simulator.policy_promises import (
    Absences,
    Arrivals,
    RebalanceRequests,
    Roster,
    Seats,
    SubscriptionChanges,
    WithoutPolicy,
    ends_an_absence,
    seats_of,
)
from simulator.policy_settings import Change, PolicySettings
from simulator.promises import Sessions
from simulator.world import MS, SECOND, World


class PolicyWatch:
    def __init__(self, world: World, plan: Plan, course: Course, coordinators: Coordinators, members: Sequence[Member], sessions: Sessions) -> None:
        """`members`: the consumers of all groups."""
        self._world = world
        self._plan = plan
        self._course = course
        self._coordinators = coordinators
        self._members = members
        self._sessions = sessions
        defaults = {name.removeprefix(POLICY_PREFIX): str(value) for name, value in plan.broker.items() if name.startswith(POLICY_PREFIX)}
        self.settings = PolicySettings(world, resolve(defaults))
        self.absences = Absences(world, self.settings)
        self.arrivals = Arrivals(world, self.settings)
        self.seats = Seats(world, self.settings)
        self.roster = Roster(world, self.settings)
        self.requests = RebalanceRequests(world)
        self.returns = SubscriptionChanges(world, self.settings)
        self.without_policy = WithoutPolicy(self.settings)
        self._loaded: dict[int, int] = {}  # partition -> the moment of its last load
        self._topics: dict[tuple[str, str], list[str]] = {}  # group, member -> topics of its answered JoinGroup
        self._unstored: dict[tuple[str, str], int] = {}  # group, member -> moment of that answer; a load may restore earlier topics
        self._returned: dict[str, str] = {}  # a static member's new id -> its old one, where the return caused no rebalance
        self._seats_removed: dict[str, tuple[int, int]] = {}  # group -> moment of a step, and number of members with a seat removed in it
        self._topics_of_instance: dict[tuple[str, str], set[tuple[str, ...]]] = {}  # group and instance -> the topics of its processes
        self._single_node = plan.nodes == 1  # otherwise a former owner has late notes and old memory
        self._topics_vary = plan.policies is not None and plan.policies.other_topics > 0

    # Replies that clients received.

    def process_starts(self, group: str, instance: str, topics: list[str]) -> None:
        """A process of this instance starts, and will subscribe to these topics."""
        self._topics_of_instance.setdefault((group, instance), set()).add(tuple(sorted(topics)))

    def changes_topics(self, group: str, instance: str) -> bool:
        """Whether the instance may return with other topics, and so cause a rebalance."""
        if len(self._topics_of_instance.get((group, instance), ())) < 2:
            return False
        self.without_policy.return_with_other_topics(group, instance)
        return True

    def joined(self, consumer: Member, request: Request, reply: Any) -> None:
        member = (consumer.group, reply.member_id)
        self._topics[member] = consumer.topics
        self._unstored[member] = self._world.now
        self._check_return(consumer, request, reply.member_id)
        if reply.members:
            self.seats.listed(consumer.group, len(reply.members), request.sent)
        self.roster.succeeded(consumer.group, consumer.name, consumer.instance, request.sent, "JoinGroup")

    def _check_return(self, consumer: Member, request: Request, member_id: str) -> None:
        old = (consumer.group, self._returned.pop(member_id, ""))
        before = self._topics.get(old)
        if before is None or set(before) == set(consumer.topics):
            return
        if old not in self._unstored or self._coordinators.served_since(consumer.group, self._unstored[old]):
            self.returns.returned_without_rebalance(consumer.group, member_id, request.sent)

    def assigned(self, consumer: Member, request: Request, data: bytes, announced: int) -> None:
        """A SyncGroup was answered with partitions."""
        self._unstored.pop((consumer.group, consumer.member_id), None)
        session = consumer.settings.session_ns
        known = announced >= 0 and self._world.now - announced < session and self._coordinators.served_since(consumer.group, announced)
        self.seats.held(consumer.group, consumer.generation, data, consumer.member_id, request.sent, announced if known else -1)

    def seats_move(self, group: str) -> bool:
        """Whether the group may ever have had standbys."""
        return self.seats.may_move(group)

    def rejoin_announced(self, consumer: Member, request: Request) -> None:
        """An error makes a member rejoin. If it takes a seat over, the former holder is fenced from now on, also after a failover."""
        group = self._in_memory(consumer.group)
        if group is None or group.state is not STABLE or group.generation != consumer.generation:
            return
        seats = seats_of(group)
        take_over = seats.take_overs.get(consumer.member_id) if seats is not None else None
        if take_over is not None and self._coordinators.served_since(consumer.group, request.sent) and not self._course.is_void(request):
            self._world.count("standby announced")
            self.seats.fenced(consumer.group, take_over.from_id)
            self._crash(2.0)

    def _in_memory(self, group: str) -> Any:
        """The group in memory; None if it does not exist, or if there are several nodes."""
        node = self._course.node
        return node.broker.shards.journal_of(group).shard.groups.get(group) if node.serving and self._single_node else None

    def standby_seen(self, consumer: Member) -> None:
        self.without_policy.standbys(consumer.group, f"{consumer.name} as a standby")
        self._world.count("standby")

    def succeeded(self, consumer: Member, member_id: str, request: Request, what: str) -> None:
        self.seats.succeeded(consumer.group, member_id, request.sent, what)
        self.roster.succeeded(consumer.group, consumer.name, consumer.instance, request.sent, what)

    def refused(self, consumer: Member, request: Request) -> None:
        self.roster.refused(consumer.group, consumer.name, consumer.instance, request.sent)

    def request_acknowledged(self, group: str, changes: list[Change], sent: int) -> None:
        group_state = self._in_memory(group)
        working = group_state is not None and group_state.state in (STABLE, COMPLETING) and self._coordinators.served_since(group, sent)
        if working:  # while a step waits for the log, its notes do too, and memory is ahead of them
            working = nothing_held(self._course.node.broker.shards.journal_of(group).shard)
        self.requests.acknowledged(group, changes, sent, working)

    # Notes of the coordinator.

    def note(self, partition: int, note: Note, moment: int, steady: bool) -> None:
        """`steady`: the wall clock was never set, so `moment` is exact."""
        group, body = note.group_id, note.body
        steady = steady and self._single_node
        if note.kind == NoteKind.COORDINATOR:
            self._coordinator(partition, body, moment)
            return
        if note.dropped:
            self.absences.forget_notes(group)
            self.arrivals.forget([group])
            self.seats.forget([group])
            self.requests.rebalanced(group)
        if note.kind == NoteKind.STATE_CHANGE:
            self._state_change(partition, group, body, moment, steady)
        elif note.kind == NoteKind.MEMBER_GONE:
            self._removed(partition, group, body, moment, steady)
        elif note.kind == NoteKind.MEMBER_AWAY:
            self._away(group, body, moment, steady)
        elif note.kind == NoteKind.STATIC_REPLACED:
            self._replaced(group, body, moment)
        elif note.kind == NoteKind.STANDBY:
            self._standby(group, body)
        elif note.kind == NoteKind.JOIN_REFUSED:
            self.without_policy.refusal(group)

    def _crash(self, weight: float = 1.0) -> None:
        """A policy has caused a step: sometimes the broker dies now."""
        plan, faults = self._plan.policies, self._plan.faults
        if plan is None or self._course.faults_over or not plan.crashes or not self._single_node or "kill" not in faults:
            return
        if self._world.chance(plan.crashes * weight):
            self._world.after(0, self._course.node.crash, "power" in faults and self._world.chance(0.8))

    def _coordinator(self, partition: int, body: Any, moment: int) -> None:
        self._forget()
        if body.what == ShardChange.LOADED:
            self._loaded[partition] = moment

    def _state_change(self, partition: int, group: str, body: Any, moment: int, steady: bool) -> None:
        cause = Cause(body.reason)
        if needs := CAUSES[cause].policies:
            self._crash()
            self.without_policy.shows(group, cause.name, *needs)
        self.absences.other_note(group, moment)
        if cause == Cause.REQUESTED:
            self.requests.rejoin_noted(group, body.text)
        self.requests.rebalanced(group)
        at, removed = self._seats_removed.pop(group, (0, 0))
        if body.to_state == State.PREPARING:
            if self._single_node:
                self.seats.rebalance(group, cause, removed if at == moment else 0, body.from_state == State.STABLE)
            if steady:
                rebalance_ns = next(plan.settings.rebalance_ns for plan in self._plan.groups if plan.name == group)
                self.arrivals.rebalance(group, cause, moment, self._loaded.get(partition, -1), rebalance_ns)
        else:
            self.seats.forget([group])
        if body.to_state == State.STABLE:
            self.seats.assigned(group)
            self.absences.rebalance_ended(group, moment)

    def _removed(self, partition: int, group: str, body: Any, moment: int, steady: bool) -> None:
        removal = Removal(body.how)
        if needs := REMOVALS[removal].policies:
            self.without_policy.shows(group, f"the removal {removal.name}", *needs)
        if steady:
            loaded, session_ns = self._loaded.get(partition, -1), body.session_ms * MS
            self.absences.removed(group, body.member_id, moment, ends_an_absence(removal), loaded, session_ns)
        moment_is_exact = steady or not self._single_node  # no clock is set where there are several nodes
        if removal == Removal.EXPIRED and moment_is_exact and body.instance_id is not None and (group, body.member_id) in self._topics:
            self.absences.expired(group, body.member_id, moment)
        if self.seats.is_free(group, body.member_id):
            self.seats.not_free(group, body.member_id)
        elif removal in (Removal.EXPIRED, Removal.LEFT, Removal.ADMIN_REMOVED):
            at, removed = self._seats_removed.get(group, (0, 0))
            self._seats_removed[group] = moment, removed + 1 if at == moment else 1

    def _away(self, group: str, body: Any, moment: int, steady: bool) -> None:
        self.without_policy.absence(group)
        self._world.count("back" if body.back else "away")
        self._crash()
        if body.back:
            self.absences.came_back(group, body.member_id, moment)
        elif steady:
            self._sessions.ended(group, body.member_id, moment)
            self.absences.went_away(group, body.member_id, body.instance_id, moment, moment - body.away_ms * MS)

    def _replaced(self, group: str, body: Any, moment: int) -> None:
        self.absences.came_back(group, body.old_id, moment)
        self.seats.member_id_changed(group, body.old_id, body.new_id)
        if body.outcome == Replacement.NO_REBALANCE:
            self._returned[body.new_id] = body.old_id

    def _standby(self, group: str, body: Any) -> None:
        self.without_policy.standbys(group)
        step = StandbyStep(body.step)
        self._world.count(f"standby {step.name}")
        self._crash()
        self.seats.not_free(group, body.member_id)  # `set_free_standbys` adds those that are free in memory

    # The coordinator's memory.

    def check(self, node: Node, shard: Any, plans: Sequence[GroupPlan], served_since: int, steady: bool) -> None:
        """`plans`: the groups of this shard."""
        if not self._single_node:
            return
        disk_is_sound = not (node.speed.slow or node.disk.fail_syncs or node.disk.fail_writes or node.disk.unreadable) and node.disk.room is None
        undisturbed_since = max(node.frozen_until, node.disturbed_at, served_since)
        all_noted = nothing_held(shard)
        for plan in plans:
            self.settings.used(plan.name, shard.policies.texts(plan.name))
            group = shard.groups.get(plan.name)
            if group is None:
                continue
            if group.policies is not None:
                self.without_policy.state_seen(plan.name)
            if all_noted:
                self._check_standbys(group)
            if disk_is_sound and all_noted and steady:
                self.absences.check(plan.name, undisturbed_since)
                self._check_newcomers(group, undisturbed_since)

    def _check_standbys(self, group: Any) -> None:
        seats = seats_of(group)
        if seats is not None and group.state is STABLE and not self._topics_vary:
            self.seats.set_free_standbys(group.id, seats.standbys)

    def _check_newcomers(self, group: Any, undisturbed_since: int) -> None:
        if group.state is not STABLE and group.state is not COMPLETING:
            return
        for consumer in self._members:
            wire = consumer.wire
            if consumer.group != group.id or wire is None or not wire.open or not wire.waiting or wire.stream is None:
                continue
            message = wire.waiting[0].message
            if not isinstance(message, JoinGroupRequest):
                continue
            if message.member_id not in group.members and consumer.instance not in group.static_members:
                since = max(wire.waiting[0].sent, wire.stream.busy_until, undisturbed_since)
                self.arrivals.newcomer_waits(group.id, consumer.name, since, self._world.now - SECOND // 10)

    # Losses.

    def node_ended(self) -> None:
        self._forget()

    def lost_since(self, moment: int) -> None:
        """The power failed, and `offsets.flush` allows the loss of what was acknowledged since `moment`."""
        self.settings.lost_since(moment)
        self.absences.lost_since(moment)
        self.seats.lost_since(moment)

    def _forget(self) -> None:
        self.absences.forget()
        self.arrivals.forget()
        self.seats.forget()
        self._seats_removed.clear()


def nothing_held(shard: Any) -> bool:
    """Whether all facts of the shard are durable, and all replies and notes have left."""
    return shard.hold.durable == shard.hold.emitted and not shard.hold.held
