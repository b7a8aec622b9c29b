"""SyncGroup: the leader sends the assignments, and each member gets its own."""

from __future__ import annotations

from coordinator.calls import SyncReply, SyncRequest, SyncWaiter
from coordinator.classic.group import Group
from coordinator.classic.kept import ALL_METADATA_MAX, MEMBER_METADATA_MAX
from coordinator.classic.member import Member
from coordinator.classic.rebalance import (
    begin_rebalance,
    change_state,
    forget_assignments,
    note_round_end,
    settle,
    stored_with_group,
    without_seat,
)
from coordinator.deadlines import NEVER
from coordinator.facts import group_key, group_value, replace_generation
from coordinator.notes import Cause, RoundResult
from coordinator.states import STABLE
from coordinator.step_output import StepOutput
from protocol.errors import ErrorCode


def names_other_protocol(group: Group, request: SyncRequest) -> bool:
    """Whether protocol type or name differ, where both the group and the request have one."""
    return (request.protocol_type is not None and group.protocol_type is not None and request.protocol_type != group.protocol_type) or (
        request.protocol_name is not None and group.protocol_name is not None and request.protocol_name != group.protocol_name
    )


def sync_when_completing(out: StepOutput, group: Group, member: Member, request: SyncRequest, waiter: SyncWaiter) -> None:
    """COMPLETING: park the SyncGroup until the leader sends its own, which ends the sync phase."""
    # Park at most one SyncGroup of a member: an older request, likely of a lost connection, is refused.
    if member.sync_waiter is not None:
        out.refuse_sync(member.sync_waiter, ErrorCode.REBALANCE_IN_PROGRESS)
    member.sync_waiter = waiter
    member.seen_ms = out.now
    mark_synced(group, member)
    if member.id == group.leader:
        assign(out, group, request.assignments)


def mark_synced(group: Group, member: Member) -> None:
    """Remember that the member has sent its SyncGroup; after the last member, clear the sync deadline."""
    pending = group.pending_sync
    if pending:
        pending.pop(member.id, None)
        if not pending:
            group.pending_sync = {}  # an emptied dict keeps its memory
            group.deadline = NEVER


def assign(out: StepOutput, group: Group, leader_assignments: dict[str, bytes]) -> None:
    """Store and send the leader's assignments. Members without an assignment get empty bytes; unknown members are ignored.

    If the assignments do not fit into a batch, or leave no memory, a rebalance begins.
    """
    members = group.members
    assignments = {id: leader_assignments.get(id, b"") for id in members}
    assignments.update(without_seat(group))
    growth = 0
    last = group.last_record
    if last is not None and not group.record_changed and list(assignments.values()) == [member.assignment for member in members.values()]:
        value = replace_generation(last, group.generation, group.state_ms)  # members and assignments are mostly unchanged
    else:
        value = group_value(group, members.values(), group.leader, group.protocol_name, assignments)
        growth = sum([len(assignment) for assignment in assignments.values()]) - sum([len(member.assignment) for member in members.values()])
        if _leave_no_memory(out, group, assignments, growth + len(value) - len(last or b"")):
            forget_assignments(out, group, ErrorCode.INVALID_REQUEST)
            begin_rebalance(out, group, Cause.SYNC_FAILED)
            return
    fact = (group_key(group.id), value)
    out.facts.append(fact)
    if not stored_with_group(out, group):
        out.facts.pop()
        forget_assignments(out, group, ErrorCode.UNKNOWN_SERVER_ERROR)
        begin_rebalance(out, group, Cause.SYNC_FAILED)
        return
    group.last_record = value
    group.record_changed = False
    note_round_end(out, group, RoundResult.STABLE, group.phase_start_ms - group.rebalance_start_ms, out.now - group.phase_start_ms)
    change_state(out, group, STABLE, Cause.ASSIGNED)
    group.keep(growth)
    for member in members.values():
        member.assignment = assignments[member.id]
        if member.sync_waiter is not None:
            out.answer_sync(member.sync_waiter, member.assignment, sync_reply(group))
            member.sync_waiter = None
            member.seen_ms = out.now
            out.restart_session(member)
    settle(out, group)


def _leave_no_memory(out: StepOutput, group: Group, assignments: dict[str, bytes], growth: int) -> bool:
    """Whether a setting refuses these assignments. `growth`: what they and the group's record, which repeats them, add to what is kept."""
    longest_max = out.config.group_member_metadata_max_bytes
    too_long = [id for id, assignment in assignments.items() if len(assignment) > longest_max]
    if not too_long and out.has_memory(growth):
        return False
    member = group.members[too_long[0] if too_long else group.leader or ""]
    setting, size = (MEMBER_METADATA_MAX, len(assignments[member.id])) if too_long else (ALL_METADATA_MAX, growth)
    out.limit_reached(setting, group.id, member.id, member.successor_host or member.client_host, size)
    return True


def sync_when_stable(out: StepOutput, group: Group, member: Member, request: SyncRequest, waiter: SyncWaiter) -> None:
    """STABLE: reply with the stored assignment; assignments in a late request of the leader are ignored."""
    mark_synced(group, member)
    out.answer_sync(waiter, member.assignment, group.sync_reply or sync_reply(group))


def sync_reply(group: Group) -> SyncReply:
    reply = group.sync_reply
    if reply is None:
        reply = group.sync_reply = SyncReply(0, group.protocol_type, group.protocol_name)
    return reply
