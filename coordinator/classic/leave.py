"""LeaveGroup: members that leave, and static members removed by an administrator by instance id (KIP-345)."""

from __future__ import annotations

from coordinator.calls import Leaver
from coordinator.classic import identity
from coordinator.classic.group import Group
from coordinator.classic.rebalance import drop_pending, remove_member
from coordinator.classic.waiting import drop_newcomer
from coordinator.notes import Cause, Removal, spend_note_budget
from coordinator.step_output import StepOutput
from protocol.errors import ErrorCode
from protocol.messages.coordinator_notes import MemberGone


def remove_leavers(out: StepOutput, group: Group, leavers: list[Leaver]) -> tuple[list[int], Cause | None, str | None, str | None]:
    """Remove the leavers. Return an error code for each, in order, and the cause (None: no member or pending id left), member and text of the rebalance."""
    codes: list[int] = []
    cause: Cause | None = None
    member: str | None = None
    text: str | None = None
    for leaver in leavers:
        if group.newcomers and drop_newcomer(out, group, leaver.member_id, leaver.instance_id):
            codes.append(ErrorCode.NONE)
            continue
        was_pending = leaver.member_id in group.pending_members
        error = _leave(out, group, leaver)
        codes.append(error)
        if error or (was_pending and cause is not None):
            continue  # a member that left is a better cause than an unused id
        member, text = leaver.member_id or leaver.instance_id, leaver.reason
        if was_pending:
            cause = Cause.PENDING_LEFT
        else:
            cause = Cause.MEMBER_LEFT if leaver.member_id else Cause.ADMIN_REMOVED
    return codes, cause, member, text


def _leave(out: StepOutput, group: Group, leaver: Leaver) -> int:
    id, instance, reason = leaver
    if not id:
        owner = group.static_members.get(instance) if instance is not None else None
        if owner is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        remove_member(out, group, group.members[owner], Removal.ADMIN_REMOVED, reason)
        return ErrorCode.NONE
    if id in group.pending_members:
        drop_pending(out, group, id)
        if spend_note_budget(group, out.now):
            out.add_note(group, MemberGone(id, instance, Removal.LEFT, 0, 0, reason))
        return ErrorCode.NONE
    error = identity.check_ids(group, id, instance)
    if not error:
        remove_member(out, group, group.members[id], Removal.LEFT, reason)
    return error
