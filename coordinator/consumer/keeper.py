"""The groups of a shard that speak the consumer protocol, and how they change: facts, deadlines, the place beside the classic groups."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping

from coordinator.classic.group import Group
from coordinator.consumer.assignors.java_order import CoordinatorOrder
from coordinator.consumer.calls import Resolution
from coordinator.consumer.changes import (
    GONE,
    Change,
    EpochChange,
    ExpressionChange,
    HoldingChange,
    OldTopicsChange,
    ProfileChange,
    TargetChange,
    TargetEpochChange,
)
from coordinator.consumer.config import ConsumerConfig, config_of_group
from coordinator.consumer.facts import fact_of
from coordinator.consumer.group import ConsumerGroup
from coordinator.consumer.member import UNREVOKED, ConsumerMember, RejoinTimer, RevocationTimer
from coordinator.consumer.noting import StepNotes
from coordinator.consumer.release import release
from coordinator.consumer.target import preferred_assignor
from coordinator.consumer.topic_hash import hash_of_topics
from coordinator.consumer.topics import TopicsView
from coordinator.facts import group_key
from coordinator.hold import BATCH_OVERHEAD_BYTES, Fact, facts_bytes
from coordinator.notes import Cause
from coordinator.step_output import StepOutput


class Keeper:
    """`classic`: the other groups of the shard; `discard_classic`: drops one of them, `open_classic`: applies its policies to a new one;
    `end_step`: hands the output of the step to the hold; `own_settings`: the settings that a group has of its own, as an operator wrote them;
    `kept_ms`: how long its static members are kept after their sessions ended."""

    def __init__(
        self,
        out: StepOutput,
        classic: dict[str, Group],
        topics: TopicsView,
        discard_classic: Callable[[Group], None],
        open_classic: Callable[[Group], None],
        end_step: Callable[[], None],
        own_settings: Callable[[str], Mapping[str, str]],
        kept_ms: Callable[[str], int],
    ) -> None:
        self.out = out
        self.groups: dict[str, ConsumerGroup] = {}
        self.topics = topics
        self.resolutions: list[Resolution] = []  # asked for, not taken yet
        self.classic = classic
        self._discard_classic = discard_classic
        self._open_classic = open_classic
        self.end_step = end_step
        self._own_settings = own_settings
        self.kept_ms = kept_ms
        self.config = out.config.consumer

    def config_of(self, group_id: str) -> ConsumerConfig:
        """The settings of the group: its own, and otherwise those of the broker."""
        own = self._own_settings(group_id)
        return config_of_group(self.config, own) if own else self.config

    def begin_step(self, now: int, wall: int) -> None:
        self.out.now = now
        self.out.wall = wall

    def new_member_id(self) -> str:
        """As Kafka's and its clients': the bytes of a UUID in 22 characters."""
        return urlsafe_b64encode(bytes.fromhex(self.out.fresh_id().replace("-", ""))).rstrip(b"=").decode()

    def ask_for_resolution(self, group: ConsumerGroup, asker: object) -> None:
        group.is_resolving = True
        self.resolutions.append(Resolution(group.id, asker))

    # Changes.

    def carry_out(self, group: ConsumerGroup, changes: list[Change], cause: Cause | None = None, text: str = "") -> None:
        """Apply the changes of a step and emit their facts, in one batch if they fit into one. `cause`: of a new epoch, if the changes do not tell
        it; `text`: what an operator said about it.

        Each prefix of them is sound: a target that is not complete has not got its epoch yet, so the next heartbeat computes it again.
        """
        if not changes:
            return
        enters = self.groups.get(group.id) is not group
        if enters:
            self._enter(group)
        notes = StepNotes(group, changes, cause)
        facts: list[Fact] = []
        for change in changes:
            if isinstance(change, ProfileChange) and change.profile is None:
                self._forget_deadlines(group.members[change.member_id])
            group.apply(change)
            facts.append(fact_of(group.id, change))
        notes.add(self.out, changes, text, preferred_assignor(group.assignor_votes, self.config_of(group.id)) if notes.computed else "")
        if enters:
            for member in group.members.values():
                self.restart_session(member)
        if self.out.fits([*self.out.facts, *facts]):
            self.out.facts += facts
        else:
            self._emit_in_batches(facts)

    def _emit_in_batches(self, facts: list[Fact]) -> None:
        size = BATCH_OVERHEAD_BYTES + facts_bytes(self.out.facts)
        for fact in facts:
            cost = facts_bytes([fact])
            if self.out.facts and size + cost > self.out.config.batch_bytes_max:
                self.end_step()
                size = BATCH_OVERHEAD_BYTES
            self.out.facts.append(fact)
            size += cost

    def _enter(self, group: ConsumerGroup) -> None:
        """A new group, or one in place of a classic one, whose offsets it takes over. The changes that found it are applied (again) after this."""
        classic = self.classic.get(group.id)
        if classic is not None:
            release(self.out, classic)
            group.offsets = classic.offsets
            self._discard_classic(classic)
            self.out.facts.append((group_key(group.id), None))
        group.order = CoordinatorOrder()
        self.groups[group.id] = group

    def enter_classic(self, group: Group) -> None:
        """A classic group, in place of one that was discarded."""
        self.classic[group.id] = group
        self._open_classic(group)

    def tombstones(self, group: ConsumerGroup) -> list[Fact]:
        """Those of a group and its members. Its offsets are the caller's: to delete, or to take over."""
        changes: list[Change] = [HoldingChange(id, None) for id in group.members]
        changes += [TargetChange(id, None) for id in group.members]
        changes.append(TargetEpochChange(GONE))
        changes += [ProfileChange(id, None) for id in group.members]
        changes += [ExpressionChange(expression, None) for expression in group.resolved]
        changes += (OldTopicsChange(), EpochChange(GONE))
        return [fact_of(group.id, change) for change in changes]

    def discard(self, group: ConsumerGroup) -> None:
        """Drop a group from memory."""
        for member in group.members.values():
            self._forget_deadlines(member)
        del self.groups[group.id]
        group.drop()

    # Deadlines.

    def session_timeout_ms(self, member: ConsumerMember) -> int:
        classic = member.profile.classic
        return self.config_of(member.group_id).session_timeout_ms if classic is None else classic.session_timeout_ms

    def restart_session(self, member: ConsumerMember) -> None:
        member.seen_ms = self.out.now
        self.out.deadlines.set(member, self.out.now + self.session_timeout_ms(member))

    def restart_revocation(self, member: ConsumerMember) -> None:
        """Begin the time in which the member must give up what it was just told to; end it if there is nothing to give up."""
        self.stop_revocation(member)
        if member.profile.classic is not None:
            return  # it has the time of its next requests: `start_join`, `start_sync`
        if member.holding.state is UNREVOKED and member.holding.pending:  # one that is away has nothing to give up
            timer = RevocationTimer(member.group_id, member.id, member.holding.epoch, max(0, member.profile.rebalance_timeout_ms))
            member.revocation = timer
            self.out.deadlines.set(timer, self.out.now + timer.timeout_ms)

    def stop_revocation(self, member: ConsumerMember) -> None:
        if member.revocation is not None:
            self.out.deadlines.remove(member.revocation)
            member.revocation = None

    def start_join(self, member: ConsumerMember) -> None:
        """The member was told to rejoin: its time to do so begins, unless it runs already."""
        if member.join_timer is None:
            member.join_timer = self._rejoin_timer(member)

    def stop_join(self, member: ConsumerMember) -> None:
        if member.join_timer is not None:
            self.out.deadlines.remove(member.join_timer)
            member.join_timer = None

    def start_sync(self, member: ConsumerMember) -> None:
        """The member has rejoined: it must fetch its partitions in time."""
        self.stop_sync(member)
        member.sync_timer = self._rejoin_timer(member)

    def stop_sync(self, member: ConsumerMember) -> None:
        if member.sync_timer is not None:
            self.out.deadlines.remove(member.sync_timer)
            member.sync_timer = None

    def _rejoin_timer(self, member: ConsumerMember) -> RejoinTimer:
        timer = RejoinTimer(member.group_id, member.id, max(0, member.profile.rebalance_timeout_ms))
        self.out.deadlines.set(timer, self.out.now + timer.timeout_ms)
        return timer

    def stop_phases(self, member: ConsumerMember) -> None:
        """End all times of a member but its session."""
        self.stop_revocation(member)
        self.stop_join(member)
        self.stop_sync(member)

    def _forget_deadlines(self, member: ConsumerMember) -> None:
        self.out.deadlines.remove(member)
        self.stop_phases(member)

    # Life cycle.

    def open_group(self, group: ConsumerGroup) -> None:
        """After a load, every member has a whole session to be heard, and a whole time to give up what it was told to."""
        for member in group.members.values():
            member.seen_ms = self.out.now
            self.out.deadlines.set(member, self.out.now + self.config_of(group.id).session_timeout_ms)  # whatever protocol it speaks, as in Kafka
            self.restart_revocation(member)

    def drop_all(self) -> None:
        for group in self.groups.values():
            group.drop()
        self.groups.clear()
        self.resolutions.clear()

    def hash_of(self, names: Iterable[str]) -> int:
        """The hash of those topics that exist, in the order of their names; without any: 0."""
        topics = self.topics
        return hash_of_topics([topics.hash_of(topics.by_name[name]) for name in sorted(names) if name in topics.by_name])
