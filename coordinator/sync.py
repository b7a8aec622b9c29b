"""SyncGroup: the leader brings the assignments, everybody gets its own."""

from __future__ import annotations

from coordinator.calls import SyncReply, SyncRequest, SyncWaiter
from coordinator.deadlines import NEVER
from coordinator.facts import group_image, group_key, with_generation
from coordinator.group import Group
from coordinator.member import Member
from coordinator.notes import Cause, Round
from coordinator.outcome import Outcome
from coordinator.rebalance import change, end_round, forget_assignments, prepare
from coordinator.states import STABLE
from protocol.errors import ErrorCode


def names_other_protocol(group: Group, request: SyncRequest) -> bool:
    """Type and name are checked where both sides know them."""
    return (request.protocol_type is not None and group.protocol_type is not None and request.protocol_type != group.protocol_type) or (
        request.protocol_name is not None and group.protocol_name is not None and request.protocol_name != group.protocol_name
    )


def settle(out: Outcome, group: Group, member: Member, request: SyncRequest, waiter: SyncWaiter) -> None:
    """COMPLETING: wait for the leader's assignments, or bring them."""
    # One SyncGroup of a member waits at a time: an older one, whose connection is likely gone, is answered.
    if member.sync is not None:
        out.refuse_sync(member.sync, ErrorCode.REBALANCE_IN_PROGRESS)
    member.sync = waiter
    member.seen_ms = out.now
    asked(group, member)
    if member.id == group.leader:
        assign(out, group, request.assignments)


def asked(group: Group, member: Member) -> None:
    """The member has asked for its assignment; when all have, nobody is waited for any more."""
    pending = group.pending_sync
    if pending:
        pending.pop(member.id, None)
        if not pending:
            group.pending_sync = {}  # an emptied one keeps its room
            group.deadline = NEVER


def assign(out: Outcome, group: Group, given: dict[str, bytes]) -> None:
    """Whom the leader forgot gets nothing; whom it invented is dropped."""
    members = group.members
    assignments = {id: given.get(id, b"") for id in members}
    last = group.last_image
    if last is not None and not group.altered and list(assignments.values()) == [member.assignment for member in members.values()]:
        image = with_generation(last, group.generation, group.state_ms)  # mostly a group comes back as it was
    else:
        image = group_image(group, members.values(), group.leader, group.protocol_name, assignments)
    fact = (group_key(group.id), image)
    if not out.fits([fact]):
        forget_assignments(out, group, ErrorCode.UNKNOWN_SERVER_ERROR)
        prepare(out, group, Cause.SYNC_FAILED)
        return
    out.facts.append(fact)
    group.last_image = image
    group.altered = False
    end_round(out, group, Round.STABLE, group.phase_began_ms - group.round_began_ms, out.now - group.phase_began_ms)
    change(out, group, STABLE, Cause.ASSIGNED)
    for member in members.values():
        member.assignment = assignments[member.id]
        if member.sync is not None:
            out.answer_sync(member.sync, member.assignment, assigned(group))
            member.sync = None
            member.seen_ms = out.now
            out.restart_session(member)


def answer_assignment(out: Outcome, group: Group, member: Member, request: SyncRequest, waiter: SyncWaiter) -> None:
    """STABLE: what the leader decided stands; assignments in a late request are not looked at."""
    asked(group, member)
    out.answer_sync(waiter, member.assignment, group.assigned or assigned(group))


def assigned(group: Group) -> SyncReply:
    reply = group.assigned
    if reply is None:
        reply = group.assigned = SyncReply(0, group.protocol_type, group.protocol_name)
    return reply
