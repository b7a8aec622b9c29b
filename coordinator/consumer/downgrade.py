"""A group of the consumer protocol becomes a classic one: its last member of that protocol goes, or a process with the classic protocol replaces it.

The members that stay keep their places, with their targets as assignments, and rejoin if that is not what they have.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from coordinator.classic.group import CONSUMER, Group
from coordinator.classic.member import Member
from coordinator.classic.rebalance import begin_rebalance
from coordinator.consumer.embedded import assignment_bytes
from coordinator.consumer.group import NO_TARGET
from coordinator.facts import group_key, group_value
from coordinator.notes import Cause
from coordinator.states import STABLE

if TYPE_CHECKING:
    from coordinator.consumer.group import ConsumerGroup
    from coordinator.consumer.keeper import Keeper
    from coordinator.consumer.member import ConsumerMember, Profile

REASON: Final = "no member of the consumer protocol is left"  # what made the last one go follows


def ends_consumer_protocol(keeper: Keeper, group: ConsumerGroup, gone: Collection[ConsumerMember], joining: int = 0) -> bool:
    """Whether the group becomes a classic one: all that stay speak the classic protocol. `joining`: how many take the places of those that go."""
    return (
        0 < len(group.members) - len(gone) + joining <= keeper.out.config.group_max_size
        and keeper.config_of(group.id).migration_policy.downgrades
        and all(member.profile.classic is not None or member in gone for member in group.members.values())
    )


class Downgrade:
    """A group as a classic one, which is not among the groups yet."""

    def __init__(self, keeper: Keeper, group: ConsumerGroup) -> None:
        self._keeper = keeper
        self._old = group
        self.group = classic = Group(group.id, keeper.out.now, keeper.out.wall, keeper.out.kept)
        classic.protocol_type = CONSUMER
        classic.generation = group.epoch
        classic.state = STABLE
        self._targets: dict[str, str] = {}  # by member id: the member that the target was computed for

    def add(self, id: str, profile: Profile, target_of: str) -> None:
        out = self._keeper.out
        part = profile.classic
        assert part is not None
        self._targets[id] = target_of
        member = Member(
            self.group.id,
            id,
            profile.instance_id,
            out.intern_text(profile.client_id),
            out.intern_text(profile.client_host),
            out.intern_number(profile.rebalance_timeout_ms),
            out.intern_number(part.session_timeout_ms),
            out.intern_protocols(self.group, part.protocols),
            is_new=False,
            seen_ms=out.now,
        )
        self.group.add(member)

    def carry_out(self, cause: Cause | None, member_id: str) -> bool:
        """`cause`: why the last member of the consumer protocol went, if a rebalance begins. False: the records do not fit into a batch, and nothing has changed."""
        keeper, old, classic = self._keeper, self._old, self.group
        out = keeper.out
        classic.protocol_name = protocol = classic.select_protocol()
        for member in classic.members.values():
            target = old.targets.get(self._targets[member.id], NO_TARGET)
            classic.set_assignment(member, assignment_bytes(target, keeper.topics, member.metadata(protocol)))
        value = group_value(classic, classic.members.values(), classic.leader, protocol)
        facts = [*keeper.tombstones(old), (group_key(classic.id), value)]
        if not out.fits(facts):
            classic.drop()
            return False
        out.facts += facts
        classic.last_record = value
        classic.remember_subscriptions(classic.all_metadata())
        classic.offsets = old.offsets
        keeper.discard(old)
        keeper.enter_classic(classic)
        for member in classic.members.values():
            out.restart_session(member)
        if cause is not None and classic.state is STABLE:  # a policy may have begun one
            begin_rebalance(out, classic, Cause.DOWNGRADED, member_id, f"{REASON} ({cause.name.lower()})")
        return True


def downgrade_without(keeper: Keeper, group: ConsumerGroup, gone: Collection[ConsumerMember], cause: Cause) -> bool:
    """The members of the consumer protocol go. False: the group stays as it is, since its records do not fit into a batch."""
    downgrade = Downgrade(keeper, group)
    for id in group.order.ids():
        member = group.members[id]
        if member not in gone:
            downgrade.add(id, member.profile, id)
    return downgrade.carry_out(cause, next(iter(gone)).id)


def downgrade_with(keeper: Keeper, group: ConsumerGroup, replaced: ConsumerMember, id: str, profile: Profile, rebalances: bool) -> bool:
    """A member of the classic protocol takes the place of the only one of the consumer protocol, under this id. `rebalances`: its target is out of date."""
    downgrade = Downgrade(keeper, group)
    for other in group.order.ids():
        if other != replaced.id:
            downgrade.add(other, group.members[other].profile, other)
    downgrade.add(id, profile, replaced.id)
    return downgrade.carry_out(Cause.STATIC_PROTOCOL_CHANGED if rebalances else None, id)
