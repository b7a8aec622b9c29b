"""The end of a classic group that becomes a group of the consumer protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.classic.rebalance import member_goes
from coordinator.classic.waiting import refuse_newcomers
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from coordinator.classic.group import Group
    from coordinator.step_output import StepOutput


def release(out: StepOutput, classic: Group) -> None:
    """The classic group ends: parked requests are told of another rebalance, so that their members join the new group."""
    refuse_newcomers(out, classic, list(classic.newcomers), ErrorCode.REBALANCE_IN_PROGRESS)
    for member in list(classic.members.values()):
        out.deadlines.remove(member)
        if member.join_waiter is not None:
            out.refuse_join(member.join_waiter, member.id, ErrorCode.REBALANCE_IN_PROGRESS)
        if member.sync_waiter is not None:
            out.refuse_sync(member.sync_waiter, ErrorCode.REBALANCE_IN_PROGRESS)
        member.join_waiter = member.sync_waiter = None
        member_goes(out, classic, member, None)
