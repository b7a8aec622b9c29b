"""A rebalance: members rejoin, and the join phase ends with a new generation or an empty group."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.calls import JoinedMember, JoinReply
from coordinator.classic.group import Group
from coordinator.classic.member import Member
from coordinator.deadlines import NEVER
from coordinator.facts import group_key, group_value, update_static_ids
from coordinator.notes import TEXT_CHARS_MAX, Cause, Removal, RoundResult, spend_note_budget
from coordinator.policies.expansion import admit_waiting, refuse_unlisted_newcomers
from coordinator.policies.registration import delete_records_of_removed, forget_removed, keeps_seat, mark_away
from coordinator.policies.roster import forming_timeout_ms, is_complete, unlisted_members
from coordinator.policies.target_size import (
    can_take_over,
    choose_active,
    end_take_overs,
    find_standbys,
    is_standby,
    misses_target_size,
    move_seats,
    remember_seat,
    seat_of,
    store_seats_record,
)
from coordinator.states import COMPLETING, EMPTY, PREPARING, STABLE, TRANSITIONS, State
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
    """Begin a rebalance. Members learn of it from their heartbeats and have the rebalance timeout to rejoin.

    With target.group.size, no rebalance begins if standbys get the seats of all members that were removed in this step.
    """
    if group.policy_state is not None:
        if move_seats(out, group):
            return
        end_take_overs(out, group.policy_state)
    if group.state is COMPLETING:
        note_round_end(out, group, RoundResult.SUPERSEDED, group.phase_start_ms - group.rebalance_start_ms, out.now - group.phase_start_ms)
        forget_assignments(out, group, ErrorCode.REBALANCE_IN_PROGRESS)
    if group.policy_state is not None:
        admit_waiting(out, group)
    group.pending_sync.clear()
    group.rebalance_start_ms = out.now
    group.rebalance_is_initial = group.state is EMPTY
    change_state(out, group, PREPARING, cause, member, text)
    if group.rebalance_is_initial:
        # Wait for other members of the same deployment (KIP-134).
        group.delay_ms = out.config.group_initial_rebalance_delay_ms
        group.delay_remaining_ms = max(group.rebalance_timeout_ms - group.delay_ms, 0)
        out.deadlines.set(group, out.now + group.delay_ms)
        roster_ms = forming_timeout_ms(group)
        if roster_ms is not None:
            group.delay_remaining_ms = 0
            out.deadlines.set(group, out.now + roster_ms)
            try_complete_join(out, group)
    elif group.all_parked:
        complete_join(out, group, Cause.EVERYONE_JOINED)
    else:
        out.deadlines.set(group, out.now + group.rebalance_timeout_ms)


def begin_or_complete_rebalance(out: StepOutput, group: Group, cause: Cause, member_id: str, reason: str | None) -> None:
    """After a JoinGroup was parked: begin a rebalance, or end the current join phase if all members have rejoined."""
    if group.state is not PREPARING:
        begin_rebalance(out, group, cause, member_id, reason)
    elif group.parked_joins + group.away_count == len(group.members):
        try_complete_join(out, group)


def try_complete_join(out: StepOutput, group: Group) -> None:
    if group.state is PREPARING and group.all_parked and (not group.rebalance_is_initial or is_complete(group)):
        complete_join(out, group, Cause.EVERYONE_JOINED)


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
    if group.away_count and group.policy_state is not None:
        group.laggards = [id for id in group.laggards if id not in group.policy_state.away]
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
    if group.policy_state is not None:
        for member in choose_active(out, group):
            remove_member(out, group, member, Removal.SEAT_TAKEN)
    if group.leader is None or members[group.leader].join_waiter is None:
        group.leader = next(member.id for member in members.values() if member.join_waiter is not None and not is_standby(group, member))
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
    if group.away_count and group.policy_state is not None:
        for id in group.policy_state.away:
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

    Standbys (members beyond the policy target.group.size) are left out. Static members come before dynamic ones: kafka-python's range and
    roundrobin need that order to assign to all.
    """
    members = [(member.id, member.instance_id, data) for member, data in zip(group.members.values(), metadata, strict=True)]
    if group.policy_state is not None and group.policy_state.standbys:
        members = [member for member in members if member[0] not in group.policy_state.standbys]
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
    store_seats_record(out, group)
    delete_records_of_removed(out, group)


def remove_member(out: StepOutput, group: Group, member: Member, removal: Removal, reason: str | None = None) -> None:
    """Remove the member and refuse its parked requests, so that its client does not wait for a timeout."""
    out.deadlines.remove(member)
    if member.join_waiter is not None:
        out.refuse_join(member.join_waiter, "", ErrorCode.UNKNOWN_MEMBER_ID)
    if member.sync_waiter is not None:
        out.refuse_sync(member.sync_waiter, ErrorCode.UNKNOWN_MEMBER_ID)
        member.sync_waiter = None
    remember_seat(out, group, member)
    group.remove(member)
    forget_removed(out, group, member)
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
    begin_rebalance(out, group, Cause.SYNC_TIMEOUT, late[0].id if late else None)


def expire_session(out: StepOutput, group: Group, member: Member) -> None:
    if not member.is_new and (member.join_waiter is not None or member.sync_waiter is not None):
        return  # parked: a new session begins with the reply
    if keeps_seat(group, member) and not is_standby(group, member) and not can_take_over(group, member):
        mark_away(out, group, member)
        if group.state is PREPARING:
            if group.all_parked and group.parked_joins:
                complete_join(out, group, Cause.SESSION_EXPIRED)
        elif group.state is COMPLETING and group.leader == member.id:  # another member must assign
            begin_rebalance(out, group, Cause.SESSION_EXPIRED, member.id)
        return
    expired = member.id
    remove_member(out, group, member, Removal.EXPIRED)
    if group.state is PREPARING:
        if group.all_parked:
            complete_join(out, group, Cause.SESSION_EXPIRED)
    elif group.state is not EMPTY:
        begin_rebalance(out, group, Cause.SESSION_EXPIRED, expired)


def end_absences(out: StepOutput, group: Group) -> None:
    """Called when registration.timeout.ms has passed since the earliest absence, or was unset: remove all away members, in one rebalance."""
    policy = group.policy_state
    if policy is None or not policy.away:
        return
    away = [group.members[id] for id in policy.away]
    unset = policy.policies.registration_timeout_ms is None
    cause = Cause.REGISTRATION_UNSET if unset else Cause.ABSENCES_ENDED
    for member in away:
        remove_member(out, group, member, Removal.REGISTRATION_UNSET if unset else Removal.STAYED_AWAY)
    if group.state is PREPARING:
        if group.all_parked:
            complete_join(out, group, cause)
    else:
        begin_rebalance(out, group, cause, away[0].id)


def move_seats_of_away(out: StepOutput, group: Group) -> bool:
    """In a STABLE group, free standbys take the seats of members that are away. Return False if nothing has changed."""
    policy = group.policy_state
    if policy is None or not policy.away or not policy.standbys:
        return False
    away = [group.members[id] for id in policy.away]
    standbys = find_standbys(group, [seat_of(group, member, policy.take_overs.get(member.id)) for member in away])
    replaced = [member for member, standby in zip(away, standbys, strict=True) if standby is not None]
    for member in replaced:
        remove_member(out, group, member, Removal.SEAT_TAKEN)
    if replaced:
        begin_rebalance(out, group, Cause.ABSENCES_ENDED, replaced[0].id)
    return bool(replaced)


def apply_target_size(out: StepOutput, group: Group) -> None:
    """Begin a rebalance if the number of active members does not match the target."""
    if (group.state is STABLE or group.state is COMPLETING) and misses_target_size(group):
        begin_rebalance(out, group, Cause.TARGET_CHANGED)


def apply_roster(out: StepOutput, group: Group) -> None:
    """Called after a change of policies: remove unlisted members, and end the wait of a forming group or of newcomers if it is over."""
    remove_unlisted_members(out, group)
    if group.state is PREPARING and group.rebalance_is_initial:
        roster_ms = forming_timeout_ms(group)
        ends = out.now + group.delay_ms if roster_ms is None else group.phase_start_ms + roster_ms
        if roster_ms is not None or ends < group.deadline:
            out.deadlines.set(group, max(ends, out.now))
        try_complete_join(out, group)
    elif group.policy_state is not None and group.policy_state.newcomers and is_complete(group):
        begin_rebalance(out, group, Cause.ROSTER_COMPLETE)


def remove_unlisted_members(out: StepOutput, group: Group) -> None:
    """With roster.strict, remove the members that instance.ids does not list, in one rebalance."""
    refuse_unlisted_newcomers(out, group)
    excluded = unlisted_members(group)
    if not excluded:
        return
    for member in excluded:
        remove_member(out, group, member, Removal.NOT_LISTED)
    for id in list(group.pending_members):
        drop_pending(out, group, id)
    if group.state is not PREPARING:
        begin_rebalance(out, group, Cause.ROSTER_CHANGED, excluded[0].id)
    elif group.all_parked and (not group.rebalance_is_initial or not group.members):
        complete_join(out, group, Cause.ROSTER_CHANGED)


def expire_pending(out: StepOutput, group: Group, id: str) -> None:
    """Drop a member id that no JoinGroup has used in time."""
    group.pop_pending(id)
    if spend_note_budget(group, out.now):
        out.add_note(group, MemberGone(id, None, Removal.PENDING_EXPIRED, 0, 0, None))
    if group.state is PREPARING and group.all_parked:
        complete_join(out, group, Cause.EVERYONE_JOINED)
