"""The groups of a shard that speak the consumer protocol, and how they change: facts, deadlines, the place beside the classic groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from coordinator.classic.group import Group
from coordinator.consumer.calls import Resolution
from coordinator.consumer.changes import GONE, Change, EpochChange, OldTopicsChange, ProfileChange, TargetEpochChange
from coordinator.consumer.config import ConsumerConfig
from coordinator.consumer.facts import fact_of
from coordinator.consumer.group import ConsumerGroup
from coordinator.consumer.member import UNREVOKED, ConsumerMember, RevocationTimer
from coordinator.consumer.topic_hash import hash_of_topics
from coordinator.consumer.topics import TopicsView
from coordinator.facts import group_key
from coordinator.hold import BATCH_OVERHEAD_BYTES, Fact, facts_bytes
from coordinator.step_output import StepOutput


class Keeper:
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
        self.classic = classic
        self._discard_classic = discard_classic
        self.end_step = end_step
        self.config = out.config.consumer

    def config_of(self, group_id: str) -> ConsumerConfig:
        """The settings of the group: those of the broker."""
        return self.config

    def begin_step(self, now: int, wall: int) -> None:
        self.out.now = now
        self.out.wall = wall

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
                self.end_step()
                size = BATCH_OVERHEAD_BYTES
            self.out.facts.append(fact)
            size += cost

    def _enter(self, group: ConsumerGroup) -> None:
        """A new group, or one in place of an empty classic one, whose offsets it takes over."""
        classic = self.classic.get(group.id)
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
