"""A rebalance: everybody is called back, joins, and is told of the new generation; nobody is forgotten on the way."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.calls import JoinedMember, JoinReply
from coordinator.deadlines import NEVER
from coordinator.facts import group_image, group_key, with_current_ids
from coordinator.group import Group
from coordinator.member import Member
from coordinator.notes import Cause, Kind, Removal, RoundResult, about, spend_note_budget
from coordinator.outcome import Outcome
from coordinator.states import COMPLETING, EMPTY, MOVES, PREPARING, State
from protocol.errors import ErrorCode
from protocol.messages.coordinator_notes import MemberGone, RoundEnd, StateChange


def change_state(out: Outcome, group: Group, state: State, cause: Cause, about: str | None = None) -> None:
    """`about`: the member it was about, or the reason that its client gave."""
    before = group.state
    assert state in MOVES[before], f"{group.id!r} cannot go from {before.name} to {state.name}"
    group.state = state
    group.state_ms = out.wall
    group.phase_start_ms = out.now
    group.version = object()
    if spend_note_budget(group, out.now):
        out.add_note(group, Kind.STATE_CHANGE, StateChange(before, state, cause, about, len(group.members), group.parked_joins))


def end_round(out: Outcome, group: Group, result: RoundResult, join_ms: int, sync_ms: int) -> None:
    if spend_note_budget(group, out.now):
        out.add_note(group, Kind.ROUND_END, RoundEnd(result, join_ms, sync_ms, group.laggards))


def prepare(out: Outcome, group: Group, cause: Cause, about: str | None = None) -> None:
    """Begin a rebalance. Members hear of it by their heartbeats and have as long as their rebalance timeout to rejoin."""
    if group.state is COMPLETING:
        end_round(out, group, RoundResult.SUPERSEDED, group.phase_start_ms - group.round_start_ms, out.now - group.phase_start_ms)
        forget_assignments(out, group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_sync.clear()
    group.round_start_ms = out.now
    group.initial = group.state is EMPTY
    change_state(out, group, PREPARING, cause, about)
    if group.initial:
        # Others of the same deployment are starting too: wait for them (KIP-134).
        group.delay_ms = out.config.group_initial_rebalance_delay_ms
        group.delay_remaining_ms = max(group.rebalance_timeout_ms - group.delay_ms, 0)
        out.deadlines.set(group, out.now + group.delay_ms)
    elif group.all_parked:
        complete(out, group, Cause.EVERYONE_JOINED)
    else:
        out.deadlines.set(group, out.now + group.rebalance_timeout_ms)


def prepare_or_try(out: Outcome, group: Group, cause: Cause, member_id: str, reason: str | None) -> None:
    """After somebody was parked: begin a rebalance, or end the join phase of the one under way if nobody is missing."""
    if group.state is not PREPARING:
        prepare(out, group, cause, about(member_id, reason))
    elif group.parked_joins == len(group.members):
        try_complete(out, group)


def try_complete(out: Outcome, group: Group) -> None:
    if group.state is PREPARING and group.all_parked and not group.initial:
        complete(out, group, Cause.EVERYONE_JOINED)


def complete_if_last(out: Outcome, group: Group, cause: Cause, about: str) -> None:
    """Somebody left while the others are joining: it may have been the last one missing."""
    try_complete(out, group)


def do_nothing(out: Outcome, group: Group, cause: Cause, about: str) -> None:
    """Nobody is there whom it would concern."""


def forget_assignments(out: Outcome, group: Group, error: ErrorCode) -> None:
    """COMPLETING ends without an assignment: whoever waits for one is told, and has a full session to react."""
    for member in group.members.values():
        member.assignment = b""
        answer_sync(out, member, error)
    group.image_changed = True  # the last image still has the assignments of the generation before


def answer_sync(out: Outcome, member: Member, error: ErrorCode) -> None:
    """Answer the member's parked SyncGroup, if there is one, with an error."""
    if member.sync is not None:
        out.refuse_sync(member.sync, error)
        member.sync = None
        member.seen_ms = out.now
        out.restart_session(member)


def end_join_phase(out: Outcome, group: Group) -> None:
    """Its deadline has come. A new group waits longer while members keep coming, up to their rebalance timeout."""
    if group.initial and group.new_member_added and group.delay_remaining_ms:
        group.new_member_added = False
        waited = group.delay_ms
        group.delay_ms = min(out.config.group_initial_rebalance_delay_ms, group.delay_remaining_ms)
        group.delay_remaining_ms = max(group.delay_remaining_ms - waited, 0)
        out.deadlines.set(group, out.now + group.delay_ms)
    else:
        complete(out, group, Cause.JOIN_TIMEOUT)


def complete(out: Outcome, group: Group, cause: Cause) -> None:
    """End the join phase: a new generation of those who rejoined, and of static members whether they did or not."""
    group.deadline = NEVER
    members = group.members
    group.laggards = [] if group.parked_joins == len(members) else [member.id for member in members.values() if member.join is None]
    for id in group.laggards:
        member = members[id]
        if member.instance_id is None:
            remove(out, group, member, Removal.REBALANCE_TIMEOUT)
    if members and not group.parked_joins:
        # Static members alone, and none of them came back yet: they have until their sessions end.
        out.deadlines.set(group, out.now + group.rebalance_timeout_ms)
        return
    group.generation += 1
    if not members:
        become_empty(out, group)
        return
    if group.leader is None or members[group.leader].join is None:
        group.leader = next(member.id for member in members.values() if member.join is not None)
        group.image_changed = True
    if group.static_ids_changed:
        _store_static_ids(out, group)
    metadata: Sequence[bytes] | None = group.subscriptions
    if group.image_changed or metadata is None:
        _set_protocol(group, group.select_protocol())
        metadata = group.all_metadata()
        group.remember_subscriptions(metadata)
    change_state(out, group, COMPLETING, cause)
    _answer_joins(out, group, metadata)
    # Whoever never asks for its assignment is removed, so that a group cannot stay in between (KAFKA-12890).
    group.pending_sync = dict.fromkeys(members)
    out.deadlines.set(group, out.now + group.rebalance_timeout_ms)


def _set_protocol(group: Group, protocol: str | None) -> None:
    if protocol != group.protocol_name:
        group.protocol_name = protocol
        group.sync_reply = None
        group.image_changed = True


def _answer_joins(out: Outcome, group: Group, metadata: Sequence[bytes]) -> None:
    assert group.leader is not None
    leads = group.members[group.leader].join
    followed = join_reply(group)
    now = out.now
    answers = out.replies
    deadlines = out.deadlines
    for member in group.members.values():
        waiter = member.join
        if waiter is not None:
            waiter.member_id = member.id
            waiter.reply = followed
            answers.append(waiter)
            member.join = None
            member.seen_ms = now
        member.is_new = False
        member.deadline = deadline = now + member.session_timeout_ms
        if deadline < member.scheduled_at:
            deadlines.reschedule(member)
    assert leads is not None
    leads.reply = led = join_reply(group, joined_members(group, metadata))
    led.written = followed.written
    group.parked_joins = 0


def join_reply(group: Group, told: Sequence[JoinedMember] = ()) -> JoinReply:
    """That somebody is in the generation; a leader is told of whom."""
    return JoinReply(0, group.generation, group.protocol_type, group.protocol_name, group.leader or "", told)


def joined_members(group: Group, metadata: Sequence[bytes]) -> list[JoinedMember]:
    """What a leader is told: all members, static ones that did not rejoin included.

    Static ones come first where there are both: kafka-python's range and roundrobin forget those before a dynamic one.
    """
    told = [(member.id, member.instance_id, said) for member, said in zip(group.members.values(), metadata, strict=True)]
    if 0 < len(group.statics) < len(told):
        told = [one for one in told if one[1] is not None] + [one for one in told if one[1] is None]
    return told


def _store_static_ids(out: Outcome, group: Group) -> None:
    """A static member came back under a new id, which nobody has stored yet. Its client is about to hear of it.

    A coordinator that takes over before the next image would know the old id alone and fence the process that lives.
    """
    group.static_ids_changed = False
    if group.last_image is not None:
        image = with_current_ids(group.last_image, group.statics)
        if image is not None:
            group.last_image = image
            out.facts.append((group_key(group.id), image))


def become_empty(out: Outcome, group: Group) -> None:
    _set_protocol(group, None)
    group.leader = None
    group.remember_subscriptions([])
    end_round(out, group, RoundResult.EMPTY, out.now - group.round_start_ms, 0)
    change_state(out, group, EMPTY, Cause.GROUP_EMPTIED)
    group.static_ids_changed = False
    group.last_image = group_image(group, (), None, None)
    out.facts.append((group_key(group.id), group.last_image))


def remove(out: Outcome, group: Group, member: Member, how: Removal, reason: str | None = None) -> None:
    """The member is gone. What it has parked is answered: it must not wait for its own timeout to find out."""
    out.deadlines.remove(member)
    if member.join is not None:
        out.refuse_join(member.join, "", ErrorCode.UNKNOWN_MEMBER_ID)
    if member.sync is not None:
        out.refuse_sync(member.sync, ErrorCode.UNKNOWN_MEMBER_ID)
        member.sync = None
    group.remove(member)
    member.join = None
    if spend_note_budget(group, out.now):
        gone = MemberGone(member.id, member.instance_id, how, out.now - member.seen_ms, member.session_timeout_ms, reason)
        out.add_note(group, Kind.MEMBER_GONE, gone)


def drop_pending(out: Outcome, group: Group, id: str) -> None:
    pending = group.pending.pop(id, None)
    if pending is not None:
        out.deadlines.remove(pending)


# What is due.


def end_sync_phase(out: Outcome, group: Group) -> None:
    """Whoever has not asked for its assignment by now is removed, heartbeats or not, static or not."""
    if not group.pending_sync:
        return
    late = [group.members[id] for id in group.pending_sync if id in group.members]
    group.pending_sync.clear()
    for member in late:
        remove(out, group, member, Removal.SYNC_TIMEOUT)
    prepare(out, group, Cause.SYNC_TIMEOUT, late[0].id if late else None)


def expire_session(out: Outcome, group: Group, member: Member) -> None:
    if not member.is_new and (member.join is not None or member.sync is not None):
        return  # parked: its session begins anew with the answer
    expired = member.id
    remove(out, group, member, Removal.EXPIRED)
    if group.state is PREPARING:
        if group.all_parked:
            complete(out, group, Cause.SESSION_EXPIRED)
    elif group.state is not EMPTY:
        prepare(out, group, Cause.SESSION_EXPIRED, expired)


def expire_pending(out: Outcome, group: Group, id: str) -> None:
    """An id was handed out and nobody joined with it."""
    del group.pending[id]
    if spend_note_budget(group, out.now):
        out.add_note(group, Kind.MEMBER_GONE, MemberGone(id, None, Removal.PENDING_EXPIRED, 0, 0, None))
    if group.state is PREPARING and group.all_parked:
        complete(out, group, Cause.EVERYONE_JOINED)
