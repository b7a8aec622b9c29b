"""Static members whose session has ended, and which the group keeps for a while (policy registration.timeout.ms).

From the end of its session such a member is away, as if it had said that it will be back: so its instance may join again, and gets its partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.consumer.removal import go_away, remove_members
from coordinator.notes import Cause

if TYPE_CHECKING:
    from coordinator.consumer.group import ConsumerGroup
    from coordinator.consumer.keeper import Keeper
    from coordinator.consumer.member import ConsumerMember


def end_session(keeper: Keeper, group: ConsumerGroup, member: ConsumerMember) -> None:
    """The member is kept, or it is removed. All that are away go with the first whose time is over, in one epoch."""
    kept_ms = keeper.kept_ms(group.id)
    if member.profile.instance_id is None or not kept_ms:
        remove_members(keeper, group, [member], Cause.SESSION_EXPIRED)
        return
    until = session_end(keeper, member) + kept_ms
    if keeper.out.now >= until:
        others = [other for other in kept(keeper, group) if other is not member]  # it is not away yet if nothing was done for so long
        remove_members(keeper, group, [member, *others], Cause.ABSENCES_ENDED)
        return
    if not member.is_away and member.profile.classic is None:
        go_away(keeper, group, member)
    keeper.out.deadlines.set(member, until)


def retime(keeper: Keeper, group: ConsumerGroup) -> None:
    """The time for which members are kept may be another one now."""
    gone = kept(keeper, group)
    if not gone:
        return
    kept_ms = keeper.kept_ms(group.id)
    if not kept_ms:
        remove_members(keeper, group, gone, Cause.REGISTRATION_UNSET)
        return
    for member in gone:
        keeper.out.deadlines.set(member, max(session_end(keeper, member) + kept_ms, keeper.out.now))


def kept(keeper: Keeper, group: ConsumerGroup) -> list[ConsumerMember]:
    """The static members that are there only because the group keeps them: those that say so, and silent ones of the classic protocol."""
    static = [group.members[id] for id in group.static_members.values()]
    return [member for member in static if (member.is_away or member.profile.classic is not None) and session_end(keeper, member) <= keeper.out.now]


def session_end(keeper: Keeper, member: ConsumerMember) -> int:
    return member.seen_ms + keeper.session_timeout_ms(member)
