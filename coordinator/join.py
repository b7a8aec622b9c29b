"""JoinGroup: new members, members that rejoin, and static members that return without a member id."""

from __future__ import annotations

from typing import Final
from zlib import crc32

from coordinator.calls import JoinReply, JoinRequest, JoinWaiter
from coordinator.config import NEW_MEMBER_TIMEOUT_MS
from coordinator.facts import group_image, group_key
from coordinator.group import Group
from coordinator.member import Member, Pending
from coordinator.notes import Cause, Kind, Removal, Replacement, grant_note_budget, spend_note_budget
from coordinator.outcome import Outcome
from coordinator.rebalance import drop_pending, join_reply, joined_members, prepare_or_try, remove
from coordinator.states import COMPLETING, EMPTY, PREPARING, STABLE
from protocol.errors import ErrorCode
from protocol.messages.coordinator_notes import MemberJoin, StaticReplaced


def has_room(group: Group, request: JoinRequest, size_max: int) -> bool:
    """The check of group.max.size. Members keep their place; a static member that returns without its id counts as new."""
    if group.state is EMPTY:
        return True
    member = group.members.get(request.member_id)
    if group.state is PREPARING:
        return group.parked_joins < size_max or (member is not None and member.join is not None)
    return member is not None or len(group.members) < size_max


def remove_over_size(out: Outcome, group: Group, id: str) -> None:
    """A member refused for lack of room is removed, so that the rebalance does not wait for it."""
    member = group.members.get(id)
    if member is not None:
        remove(out, group, member, Removal.OVER_MAX_SIZE)
    drop_pending(out, group, id)


def offers_protocol_twice(request: JoinRequest) -> bool:
    """Refused, since it would be ambiguous which of the two metadata counts."""
    protocols = request.protocols
    return len(protocols) > 1 and len({name for name, _ in protocols}) != len(protocols)


# New members.


def require_member_id(out: Outcome, group: Group, request: JoinRequest, waiter: JoinWaiter, id: str) -> None:
    """Let the client join again with the new id, so that a client that retries blindly leaves no ghost members (KIP-394)."""
    pending = group.pending[id] = Pending(group.id, id, request.session_timeout_ms)
    out.deadlines.set(pending, out.now + pending.session_timeout_ms)
    out.refuse_join(waiter, id, ErrorCode.MEMBER_ID_REQUIRED)


def add(out: Outcome, group: Group, request: JoinRequest, waiter: JoinWaiter, id: str) -> None:
    member = Member(
        group.id,
        id,
        request.instance_id,
        out.intern_text(request.client_id),
        out.intern_text(request.client_host),
        out.intern_number(request.rebalance_timeout_ms),
        out.intern_number(request.session_timeout_ms),
        out.intern_protocols(group, request.protocols),
        seen_ms=out.now,
    )
    member.join = waiter
    if group.state is PREPARING and group.initial:
        group.new_member_added = True
    if not group.members:
        group.protocol_type = request.protocol_type
    drop_pending(out, group, id)
    group.add(member)
    grant_note_budget(group)
    if member.instance_id is not None and group.last_image is not None:
        group.static_ids_changed = True
    out.deadlines.set(member, out.now + NEW_MEMBER_TIMEOUT_MS)
    if spend_note_budget(group, out.now):
        note_join(out, group, member, request)
    prepare_or_try(out, group, Cause.NEW_MEMBER, id, request.reason)


def note_join(out: Outcome, group: Group, member: Member, request: JoinRequest) -> None:
    out.add_note(
        group,
        Kind.MEMBER_JOIN,
        MemberJoin(
            member.id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.session_timeout_ms,
            member.rebalance_timeout_ms,
            bool(request.member_id),
            group.leader == member.id,
            subscription_hash(member),
            request.reason,
        ),
    )


def subscription_hash(member: Member) -> int:
    """A checksum of the metadata, to compare subscriptions between notes."""
    return crc32(member.protocols[0][1])


# Known members.

LEADER_REJOINED: Final = Cause.LEADER_REJOINED


def rejoin_if_changed(out: Outcome, group: Group, member: Member, request: JoinRequest, waiter: JoinWaiter) -> None:
    """COMPLETING: a member whose offer is unchanged missed the reply, so it is sent again."""
    if member.protocols != request.protocols:
        rejoin(out, group, member, request, waiter)
    else:
        members = joined_members(group, group.all_metadata()) if group.leader == member.id else ()
        out.reply_join(waiter, member.id, join_reply(group, members))


def rejoin_if_leader_or_changed(out: Outcome, group: Group, member: Member, request: JoinRequest, waiter: JoinWaiter) -> None:
    """STABLE: a leader rejoins to request a rebalance, for example because the topics' partitions changed."""
    if group.leader == member.id or member.protocols != request.protocols:
        rejoin(out, group, member, request, waiter)
    else:
        out.reply_join(waiter, member.id, join_reply(group))


def rejoin(out: Outcome, group: Group, member: Member, request: JoinRequest, waiter: JoinWaiter) -> None:
    """Park the member with its current offer and begin a rebalance."""
    cause = LEADER_REJOINED if member.repeatable_join is request else update_member(out, group, member, request)
    park(out, group, member, waiter)
    member.seen_ms = out.now
    if spend_note_budget(group, out.now):
        note_join(out, group, member, request)
    prepare_or_try(out, group, cause, member.id, request.reason)


def update_member(out: Outcome, group: Group, member: Member, request: JoinRequest) -> Cause:
    """Take over the timeouts and protocols of the request."""
    member.repeatable_join = None
    if member.rebalance_timeout_ms != request.rebalance_timeout_ms or member.session_timeout_ms != request.session_timeout_ms:
        member.rebalance_timeout_ms = out.intern_number(request.rebalance_timeout_ms)
        member.session_timeout_ms = out.intern_number(request.session_timeout_ms)
        group.members_changed()
    if member.protocols == request.protocols:
        return LEADER_REJOINED
    group.set_protocols(member, request.protocols)
    return Cause.MEMBER_METADATA_CHANGED


def park(out: Outcome, group: Group, member: Member, waiter: JoinWaiter) -> None:
    """Park at most one JoinGroup of a member: an older one, likely of a lost connection, is refused."""
    if member.join is not None:
        out.refuse_join(member.join, "", ErrorCode.UNKNOWN_MEMBER_ID)
    else:
        group.parked_joins += 1
    member.join = waiter


# Returning static members.


def replace(out: Outcome, group: Group, old: Member, request: JoinRequest, waiter: JoinWaiter, id: str) -> None:
    """A restarted static member takes its seat under a new member id, and a rebalance begins; the old id is fenced (KIP-345)."""
    new = _successor(out, old, request, id)
    cause = Cause.STATIC_DURING_COMPLETING if group.state is COMPLETING else Cause.STATIC_PROTOCOL_CHANGED
    happened = Replacement.PROTOCOL_CHANGED
    if group.state is not STABLE:
        happened = Replacement.COMPLETING if group.state is COMPLETING else Replacement.PREPARING
    _note_replaced(out, group, old, new, request, happened)
    _swap_member(out, group, old, new)
    group.static_ids_changed = True
    park(out, group, new, waiter)
    prepare_or_try(out, group, cause, id, request.reason)


def replace_in_stable(out: Outcome, group: Group, old: Member, request: JoinRequest, waiter: JoinWaiter, id: str) -> None:
    """As `replace`, without a rebalance unless the member's new offer would change the selected protocol."""
    if group.select_protocol(old, request.protocols) != group.protocol_name:
        replace(out, group, old, request, waiter, id)
        return
    new = _successor(out, old, request, id)
    old_leader = group.leader or ""
    members = [new if member is old else member for member in group.members.values()]
    image = group_image(group, members, id if old_leader == old.id else old_leader, group.protocol_name)
    fact = (group_key(group.id), image)
    if not out.fits([fact]):
        # Refused before anything changes: the old member keeps its seat.
        error = ErrorCode.UNKNOWN_SERVER_ERROR
        out.reply_join(waiter, "", JoinReply(error, group.generation, group.protocol_type, group.protocol_name, old_leader))
        return
    _note_replaced(out, group, old, new, request, Replacement.NO_REBALANCE)
    _swap_member(out, group, old, new)
    group.last_image = image
    out.facts.append(fact)
    out.reply_join(waiter, new.id, _reply_without_rebalance(group, new, old_leader, request.knows_skip_assignment))


def _successor(out: Outcome, old: Member, request: JoinRequest, id: str) -> Member:
    return Member(
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


def _swap_member(out: Outcome, group: Group, old: Member, new: Member) -> None:
    """Replace the old member by the new one, at the same place in the order of members."""
    if old.join is not None:
        out.refuse_join(old.join, old.id, ErrorCode.FENCED_INSTANCE_ID)
        group.parked_joins -= 1
    if old.sync is not None:
        out.refuse_sync(old.sync, ErrorCode.FENCED_INSTANCE_ID)
    old.join = old.sync = None
    out.deadlines.remove(old)
    group.members = {new.id if member is old else id: new if member is old else member for id, member in group.members.items()}
    assert new.instance_id is not None
    group.statics[new.instance_id] = new.id
    group.count_protocols(old.protocols, -1)
    group.count_protocols(new.protocols, 1)
    if old.id in group.pending_sync:
        group.pending_sync = {new.id if id == old.id else id: None for id in group.pending_sync}
    if group.leader == old.id:
        group.leader = new.id
    group.members_changed()
    # As in Kafka, the first session has the old member's timeout.
    out.deadlines.set(new, out.now + old.session_timeout_ms)


def _reply_without_rebalance(group: Group, new: Member, old_leader: str, knows_skip_assignment: bool) -> JoinReply:
    """Keep the returning leader from computing assignments that would be ignored: before v9 the reply names its old id as leader."""
    if group.leader == new.id and knows_skip_assignment:
        members = joined_members(group, group.all_metadata())
        return JoinReply(0, group.generation, group.protocol_type, group.protocol_name, new.id, members, True)
    return JoinReply(0, group.generation, group.protocol_type, group.protocol_name, old_leader)


def _note_replaced(out: Outcome, group: Group, old: Member, new: Member, request: JoinRequest, happened: Replacement) -> None:
    if spend_note_budget(group, out.now):
        since = out.now - old.seen_ms
        body = StaticReplaced(new.instance_id or "", old.id, new.id, request.client_id, request.client_host, since, happened)
        out.add_note(group, Kind.STATIC_REPLACED, body)
