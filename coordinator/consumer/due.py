"""What happens at the deadlines of members. While a session or a revocation could not be heard, it gets its time once more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.consumer.absence import end_session
from coordinator.consumer.removal import remove_members
from coordinator.notes import Cause

if TYPE_CHECKING:
    from coordinator.consumer.keeper import Keeper
    from coordinator.consumer.member import ConsumerMember, RejoinTimer, RevocationTimer


def session_due(keeper: Keeper, member: ConsumerMember) -> None:
    if keeper.out.deadlines.extends and member.extended_since_ms != member.seen_ms:
        member.extended_since_ms = member.seen_ms
        keeper.out.deadlines.set(member, keeper.out.now + keeper.session_timeout_ms(member))
    else:
        end_session(keeper, keeper.groups[member.group_id], member)


def revocation_due(keeper: Keeper, timer: RevocationTimer) -> None:
    """The member has not given up what it was told to: others wait for it."""
    group = keeper.groups[timer.group_id]
    member = group.members[timer.member_id]
    if keeper.out.deadlines.extends and not timer.extended:
        timer.extended = True
        keeper.out.deadlines.set(timer, keeper.out.now + timer.timeout_ms)
    elif member.holding.epoch == timer.epoch:
        remove_members(keeper, group, [member], Cause.REBALANCE_TIMEOUT)


def rejoin_due(keeper: Keeper, timer: RejoinTimer) -> None:
    """A member that speaks the classic protocol has not sent its JoinGroup or SyncGroup in time."""
    if keeper.out.deadlines.extends and not timer.extended:
        timer.extended = True
        keeper.out.deadlines.set(timer, keeper.out.now + timer.timeout_ms)
        return
    group = keeper.groups[timer.group_id]
    member = group.members[timer.member_id]
    remove_members(keeper, group, [member], Cause.JOIN_TIMEOUT if timer is member.join_timer else Cause.SYNC_TIMEOUT)
