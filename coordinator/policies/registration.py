"""Policy registration.timeout.ms: a static member whose session ends is away, and keeps its seat until the timeout.

An away member stays in the generation and in the leader's member list, but neither JoinGroup nor SyncGroup waits for it. When the
earliest absence has lasted for the policy's timeout, all members that are away at that moment are removed in one rebalance.

Each absence is a record, so that a failover does not restart it. After a load every member first gets a full session; a stored
absence continues only if that session ends too. The record of a removed member is deleted with the first group record without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from coordinator.classic.group import Group
from coordinator.classic.member import Absence, GroupTimer, Member
from coordinator.classic.rebalance import begin_rebalance, complete_join, rebalance_or_hand_over, remove_member
from coordinator.deadlines import NEVER
from coordinator.hold import Fact
from coordinator.notes import Cause, Removal, spend_note_budget
from coordinator.policies.declaration import GroupPolicies, InConsumerGroups, Timeout
from coordinator.policies.hooks import PolicyRules
from coordinator.policies.status import AWAY, StatusEntry
from coordinator.states import COMPLETING, PREPARING
from coordinator.step_output import StepOutput
from protocol.messages.consumer_offsets import AwayMemberKey, AwayMemberValue
from protocol.messages.coordinator_notes import MemberAway
from protocol.messages.kinds import CONSUMER_OFFSETS
from protocol.records import in_newest_version, read_key, read_record

REGISTRATION_TIMEOUT: Final = Timeout(
    "registration.timeout.ms",
    "How long a static member may be away after its session ended. It keeps its partitions meanwhile, and the group does not rebalance.",
    consumers=InConsumerGroups(True, "the same, also for members that said that they will be back; a failover begins the time again"),
)


class AwayTimer(GroupTimer):
    """Its deadline: the start of the earliest absence plus the policy's timeout."""

    __slots__ = ("_rules",)

    def __init__(self, group_id: str, rules: Registration) -> None:
        super().__init__(group_id)
        self._rules = rules

    def due(self, out: Any, groups: Any) -> None:
        self._rules.end_absences(out, groups[self.group_id])


class Registration(PolicyRules):
    declares = (REGISTRATION_TIMEOUT,)
    explained = True

    def __init__(self) -> None:
        self.stored_away: dict[str, int] = {}  # after a load: member id -> begin of its stored absence, until a request or the session's end
        self.removed_away: dict[str, None] = {}  # removed instances whose absence record is not deleted yet
        self.timer: AwayTimer | None = None  # made for the first absence

    @property
    def timeout_ms(self) -> int | None:
        return REGISTRATION_TIMEOUT.of(self.values)

    def changed(self, out: StepOutput, group: Group, named: Mapping[str, str], stored: dict[bytes, bytes]) -> None:
        for data, value in list(stored.items()):
            key = read_key(CONSUMER_OFFSETS, data)
            if isinstance(key, AwayMemberKey):
                absence = read_record(AwayMemberValue, value)
                member = group.members.get(absence.member_id)
                if member is not None and member.instance_id == key.instance_id:
                    del stored[data]
                    self.stored_away[member.id] = absence.since_ms
                    member.seen_ms = out.now - member.session_timeout_ms  # so `renew_session` fails, and the first request ends the absence
        self._set_timer(out, group)

    def status(self, group: Group) -> dict[str, list[StatusEntry]]:
        return {AWAY: [StatusEntry(group.members[id].instance_id or id, absence.since_wall_ms) for id, absence in group.away.items()]}

    def heard_from(self, out: StepOutput, group: Group, member: Member, synced: bool) -> bool:
        """A request of an absent member: it keeps its seat, and its session restarts."""
        if member.id not in group.away and member.id not in self.stored_away:
            return False
        self._end_absence(out, group, member)
        member.seen_ms = out.now
        out.restart_session(member)
        return True

    def session_ended(self, out: StepOutput, group: Group, member: Member) -> bool:
        if self.timeout_ms is None or member.instance_id is None or member.is_new:
            return False
        self._mark_away(out, group, member, member.instance_id)
        if group.state is PREPARING:
            if group.all_parked and group.parked_joins:
                complete_join(out, group, Cause.SESSION_EXPIRED)
        elif group.state is COMPLETING and group.leader == member.id:  # another member must assign
            begin_rebalance(out, group, Cause.SESSION_EXPIRED, member.id)
        return True

    def member_goes(self, out: StepOutput, group: Group, member: Member, successor: Member | None) -> None:
        """The record of a removed member stays until the group is stored without it."""
        if successor is not None:
            self._end_absence(out, group, member)
        elif member.instance_id is not None and self._pop_absence(out, group, member)[0]:
            self.removed_away[member.instance_id] = None

    def stored(self, out: StepOutput, group: Group) -> bool:
        """Tombstones that do not fit wait for the next record."""
        if self.removed_away:
            tombstones: list[Fact] = [(away_key(group.id, instance), None) for instance in self.removed_away]
            if out.fits(out.facts + tombstones):
                out.facts += tombstones
                self.removed_away.clear()
        return True

    @staticmethod
    def kept_ms(values: GroupPolicies) -> int:
        return REGISTRATION_TIMEOUT.of(values) or 0

    def end_absences(self, out: StepOutput, group: Group) -> None:
        """Remove all away members, in one rebalance: the timeout has passed since the earliest absence, or was unset."""
        if not group.away:
            return
        away = [group.members[id] for id in group.away]
        unset = self.timeout_ms is None
        cause = Cause.REGISTRATION_UNSET if unset else Cause.ABSENCES_ENDED
        for member in away:
            remove_member(out, group, member, Removal.REGISTRATION_UNSET if unset else Removal.STAYED_AWAY)
        if group.state is PREPARING:
            if group.all_parked:
                complete_join(out, group, cause)
        else:
            rebalance_or_hand_over(out, group, cause, away[0].id)

    def _mark_away(self, out: StepOutput, group: Group, member: Member, instance: str) -> None:
        self.removed_away.pop(instance, None)
        stored_ms = self.stored_away.pop(member.id, None)
        wall = out.wall if stored_ms is None else stored_ms
        absence = group.away[member.id] = Absence(out.now - max(out.wall - wall, 0), wall)
        if group.pending_sync.pop(member.id, instance) is None and not group.pending_sync:
            group.deadline = NEVER
        if stored_ms is None:
            out.facts.append((away_key(group.id, instance), away_value(member.id, wall)))
        self._set_timer(out, group)
        _add_note(out, group, member, False, out.now - absence.since_ms)

    def _end_absence(self, out: StepOutput, group: Group, member: Member) -> None:
        """Delete the member's absence, if any, and its record."""
        instance = member.instance_id
        if instance is None:
            return
        was_absent, absence = self._pop_absence(out, group, member)
        if was_absent:
            out.facts.append((away_key(group.id, instance), None))
        if absence is not None:
            _add_note(out, group, member, True, out.now - absence.since_ms)

    def _pop_absence(self, out: StepOutput, group: Group, member: Member) -> tuple[bool, Absence | None]:
        """Drop the member's absence. Return whether it was absent, and its `Absence`: None if only `stored_away` had one."""
        stored_ms = self.stored_away.pop(member.id, None)
        absence = group.away.pop(member.id, None)
        if absence is not None:
            self._set_timer(out, group)
        return absence is not None or stored_ms is not None, absence

    def _set_timer(self, out: StepOutput, group: Group) -> None:
        timer = self.timer
        if not group.away:
            if timer is not None:
                out.deadlines.remove(timer)
            return
        if timer is None:
            timer = self.timer = AwayTimer(group.id, self)
        timeout_ms = self.timeout_ms
        if timeout_ms is None:  # the policy was unset
            out.deadlines.set(timer, out.now)
        else:
            # Not in the past: then sessions that end in this millisecond, as they do after a load, end before this timer.
            out.deadlines.set(timer, max(min([absence.since_ms for absence in group.away.values()]) + timeout_ms, out.now))


def away_key(group_id: str, instance_id: str) -> bytes:
    return in_newest_version(AwayMemberKey(group_id, instance_id))


def away_value(member_id: str, since_ms: int) -> bytes:
    return in_newest_version(AwayMemberValue(member_id, since_ms))


def _add_note(out: StepOutput, group: Group, member: Member, back: bool, away_ms: int) -> None:
    if spend_note_budget(group, out.now):
        out.add_note(group, MemberAway(member.id, member.instance_id or "", back, away_ms, member.session_timeout_ms))
