"""A rebalance: members rejoin, and the join phase ends with a new generation or an empty group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coordinator.calls import JoinedMember, JoinReply
from coordinator.classic.group import Group
from coordinator.classic.member import Member
from coordinator.classic.newcomer import wait_of
from coordinator.classic.waiting import admit_newcomers
from coordinator.deadlines import NEVER
from coordinator.facts import group_key, group_value, update_static_ids
from coordinator.notes import TEXT_CHARS_MAX, Cause, Removal, RoundResult, spend_note_budget
from coordinator.states import COMPLETING, EMPTY, PREPARING, TRANSITIONS, State
from coordinator.step_output import StepOutput
from protocol.errors import ErrorCode
from protocol.messages.coordinator_notes import MemberGone, RoundEnd, StateChange


def change_state(out: StepOutput, group: Group, state: State, cause: Cause, member: str | None = None, text: str | None = None) -> None:
    """`member` caused the change. `text`: the reason that its client sent, or what else the cause is about."""
    before = group.state
    assert state in TRANSITIONS[before], f"{group.id!r} cannot go from {before.name} to {state.name}"
    group.state = state
    group.state_ms = out.wall
    group.phase_start_ms = out.now
    group.version += 1
    if spend_note_budget(group, out.now):
        text = text[:TEXT_CHARS_MAX] if text else None
        out.add_note(group, StateChange(before, state, cause, member, text, len(group.members), group.parked_joins))


def note_round_end(out: StepOutput, group: Group, result: RoundResult, join_ms: int, sync_ms: int) -> None:
    if spend_note_budget(group, out.now):
        out.add_note(group, RoundEnd(result, join_ms, sync_ms, group.laggards))


def begin_rebalance(out: StepOutput, group: Group, cause: Cause, member: str | None = None, text: str | None = None) -> None:
    """Begin a rebalance. Members learn of it from their heartbeats and have the rebalance timeout to rejoin."""
    if group.policies is not None:
        group.policies.rebalance_begins(out, group)
    if group.state is COMPLETING:
        note_round_end(out, group, RoundResult.SUPERSEDED, group.phase_start_ms - group.rebalance_start_ms, out.now - group.phase_start_ms)
        forget_assignments(out, group, ErrorCode.REBALANCE_IN_PROGRESS)
    if group.newcomers:
        admit_newcomers(out, group)
    group.pending_sync.clear()
    group.rebalance_start_ms = out.now
    group.rebalance_is_initial = group.state is EMPTY
    change_state(out, group, PREPARING, cause, member, text)
    if group.rebalance_is_initial:
        # Wait for other members of the same deployment (KIP-134).
        group.delay_ms = out.config.group_initial_rebalance_delay_ms
        group.delay_remaining_ms = max(group.rebalance_timeout_ms - group.delay_ms, 0)
        out.deadlines.set(group, out.now + group.delay_ms)
        wait = wait_of(group, None)
        if wait is not None:
            group.delay_remaining_ms = 0
            out.deadlines.set(group, out.now + wait.ms)
            try_complete_join(out, group)
    elif group.all_parked:
        complete_join(out, group, Cause.EVERYONE_JOINED)
    else:
        out.deadlines.set(group, out.now + group.rebalance_timeout_ms)


def rebalance_or_hand_over(out: StepOutput, group: Group, cause: Cause, member: str | None = None, text: str | None = None) -> None:
    """After members were removed: begin a rebalance, unless others have taken their seats."""
    if group.policies is None or not group.policies.hand_over(out, group):
        begin_rebalance(out, group, cause, member, text)


def begin_or_complete_rebalance(out: StepOutput, group: Group, cause: Cause, member_id: str, reason: str | None) -> None:
    """After a JoinGroup was parked: begin a rebalance, or end the current join phase if all members have rejoined."""
    if group.state is not PREPARING:
        begin_rebalance(out, group, cause, member_id, reason)
    elif group.parked_joins + len(group.away) == len(group.members):
        try_complete_join(out, group)


def try_complete_join(out: StepOutput, group: Group) -> None:
    if group.state is PREPARING and group.all_parked and (not group.rebalance_is_initial or nobody_is_missing(group)):
        complete_join(out, group, Cause.EVERYONE_JOINED)


def nobody_is_missing(group: Group) -> bool:
    """Whether a forming group, or the newcomers to a formed one, need not wait for others any more."""
    wait = wait_of(group, None)
    return wait is not None and wait.complete


def complete_join_if_last(out: StepOutput, group: Group, cause: Cause, member: str | None, text: str | None) -> None:
    """PREPARING: if all other members have rejoined, the join phase ends."""
    try_complete_join(out, group)


def no_effect(out: StepOutput, group: Group, cause: Cause, member: str | None, text: str | None) -> None:
    """EMPTY: there are no other members."""


def forget_assignments(out: StepOutput, group: Group, error: ErrorCode) -> None:
    """End COMPLETING without assignments: parked SyncGroups get `error`, and the sessions of their members restart."""
    for member in group.members.values():
        group.set_assignment(member, b"")
        if member.sync_waiter is not None:
            out.refuse_sync(member.sync_waiter, error)
            member.sync_waiter = None
            member.seen_ms = out.now
            out.restart_session(member)
    group.record_changed = True  # the last group record has the previous generation's assignments


def end_join_phase(out: StepOutput, group: Group) -> None:
    """Called at the deadline of the join phase. A new group waits longer while members keep joining, up to the rebalance timeout."""
    if group.rebalance_is_initial and group.new_member_added and group.delay_remaining_ms:
        group.new_member_added = False
        waited = group.delay_ms
        group.delay_ms = min(out.config.group_initial_rebalance_delay_ms, group.delay_remaining_ms)
        group.delay_remaining_ms = max(group.delay_remaining_ms - waited, 0)
        out.deadlines.set(group, out.now + group.delay_ms)
    else:
        complete_join(out, group, Cause.JOIN_TIMEOUT)


def complete_join(out: StepOutput, group: Group, cause: Cause) -> None:
    """End the join phase: the new generation has the members that rejoined, and static ones that did not.

    If members remain but none has rejoined, the phase goes on.
    """
    group.deadline = NEVER
    members = group.members
    group.laggards = [] if group.parked_joins == len(members) else [member.id for member in members.values() if member.join_waiter is None]
    if group.away:
        group.laggards = [id for id in group.laggards if id not in group.away]
    for id in group.laggards:
        member = members[id]
        if member.instance_id is None:
            remove_member(out, group, member, Removal.REBALANCE_TIMEOUT)
    if members and not group.parked_joins:
        # The remaining members are static, and none has rejoined: wait until one rejoins, or the sessions of all have ended.
        out.deadlines.set(group, out.now + group.rebalance_timeout_ms)
        return
    group.generation += 1
    if not members:
        become_empty(out, group)
        return
    if group.policies is not None:
        group.policies.generation_begins(out, group)
    if group.leader is None or members[group.leader].join_waiter is None:
        group.leader = next(member.id for member in members.values() if member.join_waiter is not None)
        group.record_changed = True
    if group.static_ids_changed:
        store_static_ids(out, group)
    metadata: Sequence[bytes] | None = group.subscriptions
    if group.record_changed or metadata is None:
        _set_protocol(group, group.select_protocol())
        metadata = group.all_metadata()
        group.remember_subscriptions(metadata)
    change_state(out, group, COMPLETING, cause)
    _answer_joins(out, group, metadata)
    # A member that sends no SyncGroup is removed, so that the group cannot stay in COMPLETING (KAFKA-12890).
    group.pending_sync = dict.fromkeys(members)
    for id in group.away:
        del group.pending_sync[id]
        out.deadlines.remove(members[id])
    out.deadlines.set(group, out.now + group.rebalance_timeout_ms)


def _set_protocol(group: Group, protocol: str | None) -> None:
    if protocol != group.protocol_name:
        group.protocol_name = protocol
        group.sync_reply = None
        group.record_changed = True


def _answer_joins(out: StepOutput, group: Group, metadata: Sequence[bytes]) -> None:
    assert group.leader is not None
    leader_waiter = group.members[group.leader].join_waiter
    follower_reply = join_reply(group)
    now = out.now
    answers = out.replies
    deadlines = out.deadlines
    for member in group.members.values():
        waiter = member.join_waiter
        if waiter is not None:
            waiter.member_id = member.id
            waiter.reply = follower_reply
            answers.append(waiter)
            member.join_waiter = None
            member.seen_ms = now
        member.is_new = False
        member.deadline = deadline = now + member.session_timeout_ms
        if deadline < member.scheduled_at:
            deadlines.reschedule(member)
    assert leader_waiter is not None
    leader_waiter.reply = leader_reply = join_reply(group, joined_members(group, metadata))
    leader_reply.encoded_fronts = follower_reply.encoded_fronts
    group.parked_joins = 0


def join_reply(group: Group, members: Sequence[JoinedMember] = ()) -> JoinReply:
    """The reply to a member of the generation; only the leader's lists the members."""
    return JoinReply(0, group.generation, group.protocol_type, group.protocol_name, group.leader or "", members)


def joined_members(group: Group, metadata: Sequence[bytes]) -> list[JoinedMember]:
    """The members in the leader's reply, including static members that did not rejoin.

    Members without a seat (by a policy) are left out. Static members come before dynamic ones: kafka-python's range and
    roundrobin need that order to assign to all.
    """
    members = [(member.id, member.instance_id, data) for member, data in zip(group.members.values(), metadata, strict=True)]
    left_out = without_seat(group)
    if left_out:
        members = [member for member in members if member[0] not in left_out]
    if 0 < len(group.static_members) < len(group.members):
        members = [member for member in members if member[1] is not None] + [member for member in members if member[1] is None]
    return members


def store_static_ids(out: StepOutput, group: Group) -> None:
    """Store the new ids of static members before their clients receive them.

    Otherwise a coordinator that takes over before the next group record would know only the old ids, and fence the running processes.
    """
    group.static_ids_changed = False
    if group.last_record is not None:
        value = update_static_ids(group.last_record, group.static_members)
        if value is not None:
            group.last_record = value
            out.facts.append((group_key(group.id), value))


def become_empty(out: StepOutput, group: Group) -> None:
    _set_protocol(group, None)
    group.leader = None
    group.remember_subscriptions([])
    note_round_end(out, group, RoundResult.EMPTY, out.now - group.rebalance_start_ms, 0)
    change_state(out, group, EMPTY, Cause.GROUP_EMPTIED)
    group.static_ids_changed = False
    group.last_record = group_value(group, (), None, None)
    out.facts.append((group_key(group.id), group.last_record))
    stored_with_group(out, group)


# What the group's policies do, if it has any (`policies/hooks.py`).


def heard_from(out: StepOutput, group: Group, member: Member, synced: bool) -> bool:
    """A request of the member has arrived, a SyncGroup if `synced`. True: its session was restarted."""
    return group.policies is not None and group.policies.heard_from(out, group, member, synced)


def member_goes(out: StepOutput, group: Group, member: Member, successor: Member | None) -> None:
    """Called before a member is removed, or after it was replaced by its successor."""
    if group.policies is not None:
        group.policies.member_goes(out, group, member, successor)


def without_seat(group: Group) -> Mapping[str, bytes]:
    """The members that the leader assigns nothing to, with the assignment that they get instead."""
    return group.policies.without_seat() if group.policies is not None else {}


def stored_with_group(out: StepOutput, group: Group) -> bool:
    """The group's record is the last fact of the step: add what belongs beside it. False: they do not fit into a batch."""
    return out.fits([out.facts[-1]]) if group.policies is None else group.policies.stored(out, group)


def settle(out: StepOutput, group: Group) -> None:
    """Bring the members in line with the policies."""
    if group.policies is not None:
        group.policies.settled(out, group)


def remove_member(out: StepOutput, group: Group, member: Member, removal: Removal, reason: str | None = None) -> None:
    """Remove the member and refuse its parked requests, so that its client does not wait for a timeout."""
    out.deadlines.remove(member)
    if member.join_waiter is not None:
        out.refuse_join(member.join_waiter, "", ErrorCode.UNKNOWN_MEMBER_ID)
    if member.sync_waiter is not None:
        out.refuse_sync(member.sync_waiter, ErrorCode.UNKNOWN_MEMBER_ID)
        member.sync_waiter = None
    member_goes(out, group, member, None)
    group.remove(member)
    member.join_waiter = None
    if spend_note_budget(group, out.now):
        note = MemberGone(member.id, member.instance_id, removal, out.now - member.seen_ms, member.session_timeout_ms, reason)
        out.add_note(group, note)


def drop_pending(out: StepOutput, group: Group, id: str) -> None:
    pending = group.pop_pending(id)
    if pending is not None:
        out.deadlines.remove(pending)


# Rules at deadlines.


def end_sync_phase(out: StepOutput, group: Group) -> None:
    """Remove every member that has sent no SyncGroup, even if it is static or sends heartbeats."""
    if not group.pending_sync:
        return
    late = [group.members[id] for id in group.pending_sync if id in group.members]
    group.pending_sync.clear()
    for member in late:
        remove_member(out, group, member, Removal.SYNC_TIMEOUT)
    rebalance_or_hand_over(out, group, Cause.SYNC_TIMEOUT, late[0].id if late else None)


def expire_session(out: StepOutput, group: Group, member: Member) -> None:
    if not member.is_new and (member.join_waiter is not None or member.sync_waiter is not None):
        return  # parked: a new session begins with the reply
    if group.policies is not None and group.policies.session_ended(out, group, member):
        return
    remove_expired(out, group, member)


def remove_expired(out: StepOutput, group: Group, member: Member) -> None:
    expired = member.id
    remove_member(out, group, member, Removal.EXPIRED)
    if group.state is PREPARING:
        if group.all_parked:
            complete_join(out, group, Cause.SESSION_EXPIRED)
    elif group.state is not EMPTY:
        rebalance_or_hand_over(out, group, Cause.SESSION_EXPIRED, expired)


def expire_pending(out: StepOutput, group: Group, id: str) -> None:
    """Drop a member id that no JoinGroup has used in time."""
    group.pop_pending(id)
    if spend_note_budget(group, out.now):
        out.add_note(group, MemberGone(id, None, Removal.PENDING_EXPIRED, 0, 0, None))
    if group.state is PREPARING and group.all_parked:
        complete_join(out, group, Cause.EVERYONE_JOINED)
