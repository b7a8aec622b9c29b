"""JoinGroup: new members, rejoining members, and static members that return without a member id."""

from __future__ import annotations

from coordinator.calls import JoinReply, JoinRequest, JoinWaiter
from coordinator.classic.group import Group
from coordinator.classic.kept import ALL_METADATA_MAX, MEMBER_METADATA_MAX, member_bytes, protocols_bytes, request_bytes
from coordinator.classic.member import Member, PendingMember
from coordinator.classic.newcomer import admit_member, note_join, wait_of
from coordinator.classic.rebalance import (
    begin_or_complete_rebalance,
    drop_pending,
    join_reply,
    joined_members,
    member_goes,
    remove_member,
    settle,
)
from coordinator.classic.waiting import count_other_newcomers, drop_newcomer, park_newcomer
from coordinator.facts import group_key, group_value
from coordinator.notes import Cause, Removal, Replacement, spend_note_budget
from coordinator.states import COMPLETING, EMPTY, PREPARING, STABLE
from coordinator.step_output import StepOutput
from protocol.errors import ErrorCode
from protocol.messages.coordinator_notes import StaticReplaced


def has_room(group: Group, request: JoinRequest, size_max: int) -> bool:
    """Whether group.max.size allows this JoinGroup; in EMPTY always.

    Members have a place; in PREPARING only those that have rejoined have one. A static member that returns without its member id counts as new.
    """
    if group.state is EMPTY:
        return True
    member = group.members.get(request.member_id)
    if group.state is PREPARING:
        return group.parked_joins < size_max or (member is not None and member.join_waiter is not None)
    return member is not None or len(group.members) + count_other_newcomers(group, request) < size_max


def exceeded_setting(out: StepOutput, group: Group | None, member: Member | None, request: JoinRequest) -> str:
    """The setting that leaves no memory for what the sender of this JoinGroup would keep; "" if none does.

    What a known member already keeps counts only once, also if it is a static member that returns without its member id.
    """
    size = request_bytes(request)
    if size > out.config.group_member_metadata_max_bytes:
        return MEMBER_METADATA_MAX
    if out.has_memory(size):
        return ""
    if member is None and group is not None and request.instance_id is not None:
        member = group.members.get(group.static_members.get(request.instance_id, ""))
    if member is not None:
        size -= member_bytes(member) - len(member.assignment) + protocols_bytes(member.protocols)
    return "" if out.has_memory(size) else ALL_METADATA_MAX


def refuse_over_limit(out: StepOutput, request: JoinRequest, waiter: JoinWaiter, setting: str) -> None:
    """Every client gives up at this error. A member keeps its place until it leaves or its session ends."""
    out.limit_reached(setting, request.group_id, request.member_id, request.client_host, request_bytes(request))
    out.refuse_join(waiter, request.member_id, ErrorCode.GROUP_MAX_SIZE_REACHED)


def remove_over_size(out: StepOutput, group: Group, id: str) -> None:
    """Remove a member that `has_room` refused, so that the rebalance does not wait for it."""
    member = group.members.get(id)
    if member is not None:
        remove_member(out, group, member, Removal.OVER_MAX_SIZE)
    drop_pending(out, group, id)


def offers_protocol_twice(request: JoinRequest) -> bool:
    """Whether the request has a protocol twice: it would be ambiguous which metadata counts."""
    protocols = request.protocols
    return len(protocols) > 1 and len({name for name, _ in protocols}) != len(protocols)


# New members.


def require_member_id(out: StepOutput, group: Group, request: JoinRequest, waiter: JoinWaiter, id: str) -> None:
    """Let the client join again with the new id, so that a client that retries blindly leaves no ghost members (KIP-394)."""
    pending = PendingMember(group.id, id, request.session_timeout_ms)
    group.add_pending(pending)
    out.deadlines.set(pending, out.now + pending.session_timeout_ms)
    if group.policies is not None:
        group.policies.id_handed_out(out, group, pending, request)
    out.refuse_join(waiter, id, ErrorCode.MEMBER_ID_REQUIRED)


def admit_newcomer(out: StepOutput, group: Group, request: JoinRequest, waiter: JoinWaiter, id: str) -> None:
    drop_pending(out, group, id)
    if answers_join(out, group, None, request, waiter, id):
        return
    if (group.state is STABLE or group.state is COMPLETING) and wait_of(group, request) is not None:
        park_newcomer(out, group, request, waiter, id)
        settle(out, group)
        return
    drop_waiting_request(out, group, request, id)
    admit_member(out, group, request, waiter, id)
    begin_or_complete_rebalance(out, group, Cause.NEW_MEMBER, id, request.reason)


def answers_join(out: StepOutput, group: Group, member: Member | None, request: JoinRequest, waiter: JoinWaiter, id: str) -> bool:
    """Whether a policy has answered the JoinGroup of a newcomer, or of a member in STABLE, without a rebalance."""
    return group.policies is not None and group.policies.answers_join(out, group, member, request, waiter, id)


def drop_waiting_request(out: StepOutput, group: Group, request: JoinRequest, id: str) -> None:
    """After a change a newcomer may still have a parked JoinGroup: refuse that request, so that the newcomer joins only once."""
    if group.newcomers:
        drop_newcomer(out, group, id if request.instance_id is None else "", request.instance_id)


# Known members.


def rejoin_if_changed(out: StepOutput, group: Group, member: Member, request: JoinRequest, waiter: JoinWaiter) -> None:
    """COMPLETING: a member that sends the same protocols again has missed the reply to its JoinGroup, so the reply is sent again."""
    if member.protocols != request.protocols:
        rejoin(out, group, member, request, waiter)
    else:
        members = joined_members(group, group.all_metadata()) if group.leader == member.id else ()
        out.reply_join(waiter, member.id, join_reply(group, members))


def rejoin_if_leader_or_changed(out: StepOutput, group: Group, member: Member, request: JoinRequest, waiter: JoinWaiter) -> None:
    """STABLE: a leader rejoins to request a rebalance, for example because the topics' partitions changed."""
    if answers_join(out, group, member, request, waiter, member.id):
        return
    if group.leader == member.id or member.protocols != request.protocols:
        rejoin(out, group, member, request, waiter)
    else:
        out.reply_join(waiter, member.id, join_reply(group))


def rejoin(out: StepOutput, group: Group, member: Member, request: JoinRequest, waiter: JoinWaiter) -> None:
    """Park the member's JoinGroup and begin a rebalance."""
    cause = Cause.LEADER_REJOINED if member.repeatable_join is request else update_member(out, group, member, request)
    park(out, group, member, waiter)
    member.seen_ms = out.now
    if spend_note_budget(group, out.now):
        note_join(out, group, member, request)
    begin_or_complete_rebalance(out, group, cause, member.id, request.reason)


def update_member(out: StepOutput, group: Group, member: Member, request: JoinRequest) -> Cause:
    """Set the timeouts and protocols of the request; return the cause of a rebalance that follows."""
    member.repeatable_join = None
    if member.rebalance_timeout_ms != request.rebalance_timeout_ms or member.session_timeout_ms != request.session_timeout_ms:
        member.rebalance_timeout_ms = out.intern_number(request.rebalance_timeout_ms)
        member.session_timeout_ms = out.intern_number(request.session_timeout_ms)
        group.invalidate_members()
    if member.protocols == request.protocols:
        return Cause.LEADER_REJOINED
    group.set_protocols(member, request.protocols)
    return Cause.MEMBER_METADATA_CHANGED


def park(out: StepOutput, group: Group, member: Member, waiter: JoinWaiter) -> None:
    """Park at most one JoinGroup of a member: an older request, likely of a lost connection, is refused."""
    if member.join_waiter is not None:
        out.refuse_join(member.join_waiter, "", ErrorCode.UNKNOWN_MEMBER_ID)
    else:
        group.parked_joins += 1
    member.join_waiter = waiter


# Returning static members.


def replace(out: StepOutput, group: Group, old: Member, request: JoinRequest, waiter: JoinWaiter, id: str) -> None:
    """A restarted static member takes its seat under a new member id, and a rebalance begins unless one runs; the old id is fenced (KIP-345)."""
    new = _successor(out, old, request, id)
    cause = Cause.STATIC_DURING_COMPLETING if group.state is COMPLETING else Cause.STATIC_PROTOCOL_CHANGED
    outcome = Replacement.PROTOCOL_CHANGED
    if group.state is not STABLE:
        outcome = Replacement.COMPLETING if group.state is COMPLETING else Replacement.PREPARING
    _note_replaced(out, group, old, new, request, outcome)
    _swap_member(out, group, old, new)
    group.static_ids_changed = True
    park(out, group, new, waiter)
    begin_or_complete_rebalance(out, group, cause, id, request.reason)


def replace_in_stable(out: StepOutput, group: Group, old: Member, request: JoinRequest, waiter: JoinWaiter, id: str) -> None:
    """STABLE: a restarted static member takes its seat without a rebalance, unless its protocols or a policy require one."""
    if group.select_protocol(old, request.protocols) != group.protocol_name or (
        group.policies is not None and group.policies.return_rebalances(group, old, request)
    ):
        replace(out, group, old, request, waiter, id)
        return
    new = _successor(out, old, request, id)
    old_leader = group.leader or ""
    members = [new if member is old else member for member in group.members.values()]
    value = group_value(group, members, id if old_leader == old.id else old_leader, group.protocol_name)
    fact = (group_key(group.id), value)
    if not out.fits([fact]):
        # Refused before anything changes: the old member keeps its seat.
        error = ErrorCode.UNKNOWN_SERVER_ERROR
        out.reply_join(waiter, "", JoinReply(error, group.generation, group.protocol_type, group.protocol_name, old_leader))
        return
    _note_replaced(out, group, old, new, request, Replacement.NO_REBALANCE)
    _swap_member(out, group, old, new)
    group.last_record = value
    out.facts.append(fact)
    out.reply_join(waiter, new.id, reply_without_rebalance(group, new, old_leader, request.knows_skip_assignment))


def _successor(out: StepOutput, old: Member, request: JoinRequest, id: str) -> Member:
    new = Member(
        old.group_id,
        id,
        old.instance_id,
        old.client_id,
        old.client_host,
        out.intern_number(request.rebalance_timeout_ms),
        out.intern_number(request.session_timeout_ms),
        old.protocols if old.protocols == request.protocols else request.protocols,
        old.assignment,
        is_new=False,
        seen_ms=out.now,
    )
    new.successor_host = out.intern_text(request.client_host)
    return new


def _swap_member(out: StepOutput, group: Group, old: Member, new: Member) -> None:
    """Replace the old member by the new one, at the same place in the order of members."""
    if old.join_waiter is not None:
        out.refuse_join(old.join_waiter, old.id, ErrorCode.FENCED_INSTANCE_ID)
        group.parked_joins -= 1
    if old.sync_waiter is not None:
        out.refuse_sync(old.sync_waiter, ErrorCode.FENCED_INSTANCE_ID)
    old.join_waiter = old.sync_waiter = None
    out.deadlines.remove(old)
    group.members = {new.id if member is old else id: new if member is old else member for id, member in group.members.items()}
    assert new.instance_id is not None
    group.static_members[new.instance_id] = new.id
    group.keep(member_bytes(new) - member_bytes(old))
    group.count_protocols(old.protocols, -1)
    group.count_protocols(new.protocols, 1)
    if old.id in group.pending_sync:
        group.pending_sync = {new.id if id == old.id else id: None for id in group.pending_sync}
    if group.leader == old.id:
        group.leader = new.id
    member_goes(out, group, old, new)
    group.invalidate_members()
    # As in Kafka, the first session has the old member's timeout.
    out.deadlines.set(new, out.now + old.session_timeout_ms)


def reply_without_rebalance(group: Group, new: Member, old_leader: str, knows_skip_assignment: bool) -> JoinReply:
    """The leader must not compute assignments: from v9 on SkipAssignment says so, and older replies name the old member id as leader."""
    if group.leader == new.id and knows_skip_assignment:
        members = joined_members(group, group.all_metadata())
        return JoinReply(0, group.generation, group.protocol_type, group.protocol_name, new.id, members, True)
    return JoinReply(0, group.generation, group.protocol_type, group.protocol_name, old_leader)


def _note_replaced(out: StepOutput, group: Group, old: Member, new: Member, request: JoinRequest, outcome: Replacement) -> None:
    if spend_note_budget(group, out.now):
        since = out.now - old.seen_ms
        body = StaticReplaced(new.instance_id or "", old.id, new.id, request.client_id, request.client_host, since, outcome)
        out.add_note(group, body)
