"""Policy registration.timeout.ms: a static member whose session ends is away, and keeps its seat until the timeout.

An away member stays in the generation and in the leader's list, but no phase waits for it. The earliest absence counts: when it
has lasted as long as the policy says, all members that are away at that moment are removed in one rebalance (`end_absences`).

Each absence is a record, so that a failover does not restart it. After a load every member has one full session first; a stored
absence goes on only when that session ends too. The record of a removed member is deleted with the image that no longer has it.
"""

from __future__ import annotations

from coordinator.deadlines import NEVER
from coordinator.group import Group
from coordinator.hold import Fact
from coordinator.member import Member
from coordinator.notes import Kind, spend_note_budget
from coordinator.outcome import Outcome
from coordinator.policy_records import away_key, away_value
from coordinator.policy_state import Absence
from protocol.messages.coordinator_notes import MemberAway


def keeps_seat(group: Group, member: Member) -> bool:
    """Whether the end of this member's session makes it away instead of removing it."""
    policy = group.policy
    return policy is not None and policy.policies.registration_timeout_ms is not None and member.instance_id is not None and not member.is_new


def go_away(out: Outcome, group: Group, member: Member) -> None:
    policy = group.policy
    instance = member.instance_id
    assert policy is not None
    assert instance is not None
    policy.removed_away.pop(instance, None)
    stored_ms = policy.stored_away.pop(member.id, None)
    wall = out.wall if stored_ms is None else stored_ms
    policy.away[member.id] = Absence(out.now - max(out.wall - wall, 0), wall)
    group.away_count = len(policy.away)
    if group.pending_sync.pop(member.id, instance) is None and not group.pending_sync:
        group.deadline = NEVER
    if stored_ms is None:
        out.facts.append((away_key(group.id, instance), away_value(member.id, wall)))
    set_away_timer(out, group)
    _add_note(out, group, member, False, out.now - policy.away[member.id].since_ms)


def is_absent(group: Group, member: Member) -> bool:
    """Whether the member is away, or was when the coordinator took over and has not been heard of since."""
    policy = group.policy
    return policy is not None and (member.id in policy.away or member.id in policy.stored_away)


def come_back(out: Outcome, group: Group, member: Member) -> None:
    """A request of an absent member arrived in time: it keeps its seat and gets a new session."""
    end_absence(out, group, member)
    member.seen_ms = out.now
    out.restart_session(member)


def end_absence(out: Outcome, group: Group, member: Member) -> None:
    """Delete the member's absence, if any, and its record."""
    policy = group.policy
    if policy is None or member.instance_id is None:
        return
    absence = policy.away.pop(member.id, None)
    stored_ms = policy.stored_away.pop(member.id, None)
    if absence is None and stored_ms is None:
        return
    out.facts.append((away_key(group.id, member.instance_id), None))
    if absence is not None:
        group.away_count = len(policy.away)
        set_away_timer(out, group)
        _add_note(out, group, member, True, out.now - absence.since_ms)


def forget_removed(out: Outcome, group: Group, member: Member) -> None:
    """A removed member is no longer away. Its record stays until the group is stored without it."""
    policy = group.policy
    if policy is None or member.instance_id is None:
        return
    absence = policy.away.pop(member.id, None)
    stored_ms = policy.stored_away.pop(member.id, None)
    if absence is None and stored_ms is None:
        return
    policy.removed_away[member.instance_id] = None
    if absence is not None:
        group.away_count = len(policy.away)
        set_away_timer(out, group)


def delete_records_of_removed(out: Outcome, group: Group) -> None:
    """Called when an image without the removed members was emitted in this step. What does not fit waits for the next image."""
    policy = group.policy
    if policy is None or not policy.removed_away:
        return
    tombstones: list[Fact] = [(away_key(group.id, instance), None) for instance in policy.removed_away]
    if out.fits(out.facts + tombstones):
        out.facts += tombstones
        policy.removed_away.clear()


def set_away_timer(out: Outcome, group: Group) -> None:
    policy = group.policy
    assert policy is not None
    timeout_ms = policy.policies.registration_timeout_ms
    if not policy.away:
        out.deadlines.remove(policy.away_timer)
    elif timeout_ms is None:  # the policy was unset
        out.deadlines.set(policy.away_timer, out.now)
    else:
        # Not in the past: sessions that end at this moment, as all do after a load, come before it.
        out.deadlines.set(policy.away_timer, max(min([absence.since_ms for absence in policy.away.values()]) + timeout_ms, out.now))


def restore_absences(out: Outcome, group: Group, stored: dict[str, tuple[str, int]]) -> None:
    """After a load, with a new session of each member: take over stored absences, by instance id; delete records without a member."""
    policy = group.policy
    for instance, (member_id, since_ms) in stored.items():
        member = group.members.get(member_id)
        if policy is None or member is None or member.instance_id != instance:
            out.facts.append((away_key(group.id, instance), None))
            continue
        policy.stored_away[member_id] = since_ms
        member.seen_ms = out.now - member.session_timeout_ms  # its first request is no repetition: it ends the absence


def _add_note(out: Outcome, group: Group, member: Member, back: bool, away_ms: int) -> None:
    if spend_note_budget(group, out.now):
        out.add_note(group, Kind.MEMBER_AWAY, MemberAway(member.id, member.instance_id or "", back, away_ms, member.session_timeout_ms))
