"""Policy registration.timeout.ms: a static member whose session ends is away, and keeps its seat until the timeout.

An away member stays in the generation and in the leader's member list, but neither JoinGroup nor SyncGroup waits for it. When the
earliest absence has lasted for the policy's timeout, all members that are away at that moment are removed in one rebalance (`end_absences`).

Each absence is a record, so that a failover does not restart it. After a load every member first gets a full session; a stored
absence continues only if that session ends too. The record of a removed member is deleted with the first group record without it.
"""

from __future__ import annotations

from coordinator.classic.group import Group
from coordinator.classic.member import Member
from coordinator.deadlines import NEVER
from coordinator.hold import Fact
from coordinator.notes import spend_note_budget
from coordinator.policies.records import away_key, away_value
from coordinator.policies.state import Absence
from coordinator.step_output import StepOutput
from protocol.messages.coordinator_notes import MemberAway


def keeps_seat(group: Group, member: Member) -> bool:
    """Whether the member becomes away when its session ends, instead of being removed."""
    policy = group.policy_state
    return policy is not None and policy.policies.registration_timeout_ms is not None and member.instance_id is not None and not member.is_new


def mark_away(out: StepOutput, group: Group, member: Member) -> None:
    policy = group.policy_state
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
    """Whether the member is away, or was away when the coordinator took over and has sent no request since."""
    policy = group.policy_state
    return policy is not None and (member.id in policy.away or member.id in policy.stored_away)


def end_absence_in_time(out: StepOutput, group: Group, member: Member) -> None:
    """Called for a request of an absent member: it keeps its seat, and its session restarts."""
    end_absence(out, group, member)
    member.seen_ms = out.now
    out.restart_session(member)


def end_absence(out: StepOutput, group: Group, member: Member) -> None:
    """Delete the member's absence, if any, and its record."""
    instance = member.instance_id
    if instance is None:
        return
    was_absent, absence = _pop_absence(out, group, member)
    if was_absent:
        out.facts.append((away_key(group.id, instance), None))
    if absence is not None:
        _add_note(out, group, member, True, out.now - absence.since_ms)


def forget_removed(out: StepOutput, group: Group, member: Member) -> None:
    """Delete a removed member's absence. Its record stays until the group is stored without the member."""
    policy = group.policy_state
    instance = member.instance_id
    if policy is not None and instance is not None and _pop_absence(out, group, member)[0]:
        policy.removed_away[instance] = None


def _pop_absence(out: StepOutput, group: Group, member: Member) -> tuple[bool, Absence | None]:
    """Drop the member's absence. Return whether the member was absent, and its `Absence`: None if only `stored_away` had one."""
    policy = group.policy_state
    if policy is None:
        return False, None
    stored_ms = policy.stored_away.pop(member.id, None)
    absence = policy.away.pop(member.id, None)
    if absence is not None:
        group.away_count = len(policy.away)
        set_away_timer(out, group)
    return absence is not None or stored_ms is not None, absence


def delete_records_of_removed(out: StepOutput, group: Group) -> None:
    """Called after a group record without the removed members was emitted in this step. Tombstones that do not fit wait for the next record."""
    policy = group.policy_state
    if policy is None or not policy.removed_away:
        return
    tombstones: list[Fact] = [(away_key(group.id, instance), None) for instance in policy.removed_away]
    if out.fits(out.facts + tombstones):
        out.facts += tombstones
        policy.removed_away.clear()


def set_away_timer(out: StepOutput, group: Group) -> None:
    policy = group.policy_state
    assert policy is not None
    timeout_ms = policy.policies.registration_timeout_ms
    if not policy.away:
        out.deadlines.remove(policy.away_timer)
    elif timeout_ms is None:  # the policy was unset
        out.deadlines.set(policy.away_timer, out.now)
    else:
        # Not in the past: then sessions that end in this millisecond, as they do after a load, end before this timer.
        out.deadlines.set(policy.away_timer, max(min([absence.since_ms for absence in policy.away.values()]) + timeout_ms, out.now))


def restore_absences(out: StepOutput, group: Group, stored: dict[str, tuple[str, int]]) -> None:
    """Called after a load, when each member has a new session: apply the stored absences; delete records without a member."""
    policy = group.policy_state
    for instance, (member_id, since_ms) in stored.items():
        member = group.members.get(member_id)
        if policy is None or member is None or member.instance_id != instance:
            out.facts.append((away_key(group.id, instance), None))
            continue
        policy.stored_away[member_id] = since_ms
        member.seen_ms = out.now - member.session_timeout_ms  # so `renew_session` fails, and the first request ends the absence


def _add_note(out: StepOutput, group: Group, member: Member, back: bool, away_ms: int) -> None:
    if spend_note_budget(group, out.now):
        out.add_note(group, MemberAway(member.id, member.instance_id or "", back, away_ms, member.session_timeout_ms))
