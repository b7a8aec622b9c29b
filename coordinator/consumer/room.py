"""The groups of a shard that speak the consumer protocol, beside its classic ones. Each id belongs to a group of one type.

The shard calls it, one call at a time, and ends the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from coordinator.calls import Leaver
from coordinator.classic.group import Group
from coordinator.consumer import expressions, views
from coordinator.consumer.calls import ConsumerGroupView, HeartbeatReply, HeartbeatRequest, Resolution
from coordinator.consumer.changes import GONE, Change, EpochChange, OldTopicsChange, ProfileChange, TargetEpochChange
from coordinator.consumer.checks import refusal
from coordinator.consumer.config import ConsumerConfig
from coordinator.consumer.facts import fact_of
from coordinator.consumer.group import ConsumerGroup
from coordinator.consumer.heartbeat import heartbeat
from coordinator.consumer.member import UNREVOKED, ConsumerMember, RevocationTimer
from coordinator.consumer.removal import remove_members
from coordinator.consumer.topic_hash import hash_of_topics
from coordinator.consumer.topics import Topic, TopicsView
from coordinator.facts import group_key
from coordinator.hold import BATCH_OVERHEAD_BYTES, Fact, facts_bytes
from coordinator.states import EMPTY
from coordinator.step_output import StepOutput
from protocol.errors import ErrorCode

NO_GROUP: Final = HeartbeatReply(ErrorCode.GROUP_ID_NOT_FOUND, "there is no such group of the consumer protocol")


class Room:
    """`classic`: the other groups of the shard; `discard_classic`: drops one of them; `end_step`: hands the output of the step to the hold."""

    def __init__(
        self,
        out: StepOutput,
        classic: dict[str, Group],
        topics: TopicsView,
        discard_classic: Callable[[Group], None],
        end_step: Callable[[], None],
    ) -> None:
        self.out = out
        self.groups: dict[str, ConsumerGroup] = {}
        self.topics = topics
        self.resolutions: list[Resolution] = []  # asked for, not taken yet
        self._classic = classic
        self._discard_classic = discard_classic
        self._end_step = end_step
        self._config = out.config.consumer

    def config_of(self, group_id: str) -> ConsumerConfig:
        """The settings of the group: those of the broker."""
        return self._config

    def begin_step(self, now: int, wall: int) -> None:
        self.out.now = now
        self.out.wall = wall

    # Steps.

    def heartbeat(self, request: HeartbeatRequest, now: int, wall: int) -> HeartbeatReply:
        """Handle a ConsumerGroupHeartbeat; the caller holds the reply."""
        self.begin_step(now, wall)
        reply = self._heartbeat(request)
        self._end_step()
        return reply

    def _heartbeat(self, request: HeartbeatRequest) -> HeartbeatReply:
        refused = refusal(self._config, request)
        if refused is not None:
            return refused
        group = self.groups.get(request.group_id)
        if group is None:
            if request.epoch != 0:
                return NO_GROUP
            classic = self._classic.get(request.group_id)
            if classic is not None and classic.state is not EMPTY:
                return NO_GROUP
            group = ConsumerGroup(request.group_id, self.out.kept)
        return heartbeat(self, group, request)

    def take_resolutions(self) -> list[Resolution]:
        """The resolutions that heartbeats have asked for since the last call: the driver carries out each with `resolve`."""
        taken, self.resolutions = self.resolutions, []
        return taken

    def resolve(self, resolution: Resolution, now: int, wall: int, may_see: Callable[[str], bool] | None = None) -> None:
        """Resolve the expressions of a group. `may_see`: the topics that the asker may describe; None: all."""
        self.begin_step(now, wall)
        group = self.groups.get(resolution.group_id)
        if group is not None and group.is_resolving:
            expressions.resolve(self, group, may_see)
        self._end_step()

    def change_topics(self, present: Iterable[Topic], deleted: Iterable[str]) -> None:
        """Topics were created, are different, or are gone: groups that read them look at the next heartbeat."""
        changed = self.topics.change(present, deleted)
        for group in self.groups.values():
            if any(group.subscribes_to(name) for name in changed):
                group.refresh_at = 0

    def describe(self, group_id: str) -> ConsumerGroupView | None:
        """None: there is no such group of this type."""
        group = self.groups.get(group_id)
        return None if group is None else views.describe(self, group)

    # Requests of the classic protocol.

    def classic_refusal(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> int:
        """The error of a SyncGroup or Heartbeat: its sender is no member that speaks the classic protocol."""
        owner = None if instance_id is None else group.static_members.get(instance_id)
        return ErrorCode.FENCED_INSTANCE_ID if owner is not None and owner != member_id else ErrorCode.UNKNOWN_MEMBER_ID

    def has_members(self, group_id: str) -> bool:
        group = self.groups.get(group_id)
        return group is not None and bool(group.members)

    def leave(self, group_id: str, leavers: list[Leaver]) -> list[int]:
        """Handle a LeaveGroup: so administrators remove members of this protocol too. At most one new epoch follows for all."""
        group = self.groups.get(group_id)
        if group is None:
            return [ErrorCode.UNKNOWN_MEMBER_ID] * len(leavers)
        gone: dict[str, ConsumerMember] = {}
        codes: list[int] = []
        for leaver in leavers:
            error, member = find_leaver(group, leaver)
            codes.append(error)
            if member is not None:
                gone[member.id] = member
        if gone:
            remove_members(self, group, list(gone.values()))
        return codes

    def new_member_id(self) -> str:
        return self.out.fresh_id()

    def ask_for_resolution(self, group: ConsumerGroup, asker: object) -> None:
        group.is_resolving = True
        self.resolutions.append(Resolution(group.id, asker))

    # Changes.

    def carry_out(self, group: ConsumerGroup, changes: list[Change]) -> None:
        """Apply the changes of a step and emit their facts, in one batch if they fit into one.

        Each prefix of them is sound: a target that is not complete has not got its epoch yet, so the next heartbeat computes it again.
        """
        if not changes:
            return
        if self.groups.get(group.id) is not group:
            self._enter(group)
        facts: list[Fact] = []
        for change in changes:
            if isinstance(change, ProfileChange) and change.profile is None:
                self._forget_deadlines(group.members[change.member_id])
            group.apply(change)
            facts.append(fact_of(group.id, change))
        if self.out.fits(facts):
            self.out.facts += facts
        else:
            self._emit_in_batches(facts)

    def _emit_in_batches(self, facts: list[Fact]) -> None:
        size = BATCH_OVERHEAD_BYTES
        for fact in facts:
            cost = facts_bytes([fact])
            if self.out.facts and size + cost > self.out.config.batch_bytes_max:
                self._end_step()
                size = BATCH_OVERHEAD_BYTES
            self.out.facts.append(fact)
            size += cost

    def _enter(self, group: ConsumerGroup) -> None:
        """A new group, or one in place of an empty classic one, whose offsets it takes over."""
        classic = self._classic.get(group.id)
        if classic is not None:
            group.offsets = classic.offsets
            self._discard_classic(classic)
            self.out.facts.append((group_key(group.id), None))
        self.groups[group.id] = group

    def tombstones(self, group: ConsumerGroup) -> list[Fact]:
        """Those of a group without members. Its offsets are the caller's: to delete, or to take over."""
        changes: list[Change] = [TargetEpochChange(GONE), OldTopicsChange(), EpochChange(GONE)]
        return [fact_of(group.id, change) for change in changes]

    def discard(self, group: ConsumerGroup) -> None:
        """Drop a group without members from memory."""
        del self.groups[group.id]
        group.drop()

    # Deadlines.

    def session_timeout_ms(self, member: ConsumerMember) -> int:
        return self.config_of(member.group_id).session_timeout_ms

    def restart_session(self, member: ConsumerMember) -> None:
        member.seen_ms = self.out.now
        self.out.deadlines.set(member, self.out.now + self.session_timeout_ms(member))

    def restart_revocation(self, member: ConsumerMember) -> None:
        """Begin the time in which the member must give up what it was just told to; end it if there is nothing to give up."""
        self.stop_revocation(member)
        if member.holding.state is UNREVOKED and member.holding.pending:  # one that is away has nothing to give up
            timer = RevocationTimer(member.group_id, member.id, member.holding.epoch, max(0, member.profile.rebalance_timeout_ms))
            member.revocation = timer
            self.out.deadlines.set(timer, self.out.now + timer.timeout_ms)

    def stop_revocation(self, member: ConsumerMember) -> None:
        if member.revocation is not None:
            self.out.deadlines.remove(member.revocation)
            member.revocation = None

    def _forget_deadlines(self, member: ConsumerMember) -> None:
        self.out.deadlines.remove(member)
        self.stop_revocation(member)

    # Life cycle.

    def open_group(self, group: ConsumerGroup) -> None:
        """After a load, every member has a whole session to be heard, and a whole time to give up what it was told to."""
        for member in group.members.values():
            self.restart_session(member)
            self.restart_revocation(member)

    def drop_all(self) -> None:
        for group in self.groups.values():
            group.drop()
        self.groups.clear()
        self.resolutions.clear()

    def hash_of(self, names: Iterable[str]) -> int:
        """The hash of those topics that exist, in the order of their names; without any: 0."""
        by_name = self.topics.by_name
        return hash_of_topics([by_name[name].hash for name in sorted(names) if name in by_name])


def find_leaver(group: ConsumerGroup, leaver: Leaver) -> tuple[int, ConsumerMember | None]:
    """The member that leaves by its id, its instance id, or both, which must agree; or the error."""
    id = leaver.member_id
    if leaver.instance_id is not None:
        owner = group.static_members.get(leaver.instance_id)
        if owner is not None and id and owner != id:
            return ErrorCode.FENCED_INSTANCE_ID, None
        id = owner or ""
    member = group.members.get(id)
    return (ErrorCode.UNKNOWN_MEMBER_ID, None) if member is None else (ErrorCode.NONE, member)
