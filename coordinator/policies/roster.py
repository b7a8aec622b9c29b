"""Policies instance.ids, roster.timeout.ms and roster.strict: the list of instances that belong to a group.

With roster.timeout.ms a forming group waits for all listed instances, and in a formed group new listed instances wait until the list
is complete. Either way one rebalance admits them all, at the latest when the first has waited for the timeout. With roster.strict,
unlisted members are removed in one rebalance, and refused from then on.
"""

from __future__ import annotations

from typing import Final

from coordinator.calls import JoinRequest
from coordinator.classic.group import Group
from coordinator.classic.member import Member
from coordinator.classic.rebalance import (
    begin_rebalance,
    complete_join,
    drop_pending,
    nobody_is_missing,
    rebalance_or_hand_over,
    remove_member,
    try_complete_join,
)
from coordinator.classic.waiting import refuse_newcomers
from coordinator.notes import TEXT_CHARS_MAX, Cause, Removal, spend_note_budget
from coordinator.policies.declaration import GroupPolicies, Names, Switch, Timeout, not_in_consumer_groups
from coordinator.policies.hooks import PolicyRules, Wait
from coordinator.policies.status import MISSING, StatusEntry
from coordinator.policies.target_size import TARGET_GROUP_SIZE
from coordinator.states import PREPARING
from coordinator.step_output import StepOutput
from protocol.errors import ErrorCode
from protocol.messages.coordinator_notes import JoinRefused

NO_ROSTER: Final = not_in_consumer_groups("members are not compared with a list there")
INSTANCE_IDS: Final = Names("instance.ids", "The group.instance.ids of the group's members; ranges as in billing-[01-32].", consumers=NO_ROSTER)
ROSTER_TIMEOUT: Final = Timeout(
    "roster.timeout.ms", "How long the group waits for instances in instance.ids that have not joined yet.", needs=INSTANCE_IDS.name, consumers=NO_ROSTER
)
ROSTER_STRICT: Final = Switch(
    "roster.strict", "Whether instances that are not in instance.ids, and dynamic members, are refused.", needs=INSTANCE_IDS.name, consumers=NO_ROSTER
)


class Roster(PolicyRules):
    declares = (INSTANCE_IDS, ROSTER_TIMEOUT, ROSTER_STRICT)
    explained = True

    def __init__(self) -> None:
        self._listed: frozenset[str] = frozenset()
        self._listed_by: GroupPolicies | None = None  # the values that `_listed` was made of

    @staticmethod
    def problems(before: GroupPolicies, after: GroupPolicies, group: Group | None) -> list[str]:
        names, listed = INSTANCE_IDS.of(before), INSTANCE_IDS.of(after)
        problems: list[str] = []
        if ROSTER_STRICT.of(after) and listed is None:
            problems.append("roster.strict: there is no list to be strict about; set instance.ids too")
        if ROSTER_TIMEOUT.of(after) is not None and listed is None:
            problems.append("roster.timeout.ms: there is no list to wait for; set instance.ids too")
        size = TARGET_GROUP_SIZE.of(after)
        if size is not None and listed is not None and size > len(listed) and ROSTER_STRICT.of(after):
            problems.append(f"{TARGET_GROUP_SIZE.name}: {size} is more than the {len(listed)} names of a strict instance.ids; lower it or add names")
        if names is None or listed is None or ROSTER_STRICT.of(after):
            return problems
        remaining = frozenset(listed)
        removed = [name for name in names if name not in remaining]
        if removed:
            more = f" and {len(removed) - 3} more" if len(removed) > 3 else ""
            problems.append(
                f"instance.ids: {', '.join(removed[:3])}{more} would be removed from the list but not from the group; set roster.strict=true first"
            )
        return problems

    @property
    def names(self) -> tuple[str, ...]:
        return INSTANCE_IDS.of(self.values) or ()

    @property
    def listed(self) -> frozenset[str]:
        """The names as a set, made once after each change: `wait` and `refusal` are asked often."""
        if self._listed_by is not self.values:
            self._listed_by = self.values
            self._listed = frozenset(self.names)
        return self._listed

    def settled(self, out: StepOutput, group: Group) -> None:
        """Remove unlisted members, and end the wait of a forming group or of newcomers if it is over."""
        if ROSTER_STRICT.of(self.values):
            self._remove_unlisted(out, group)
        if group.state is PREPARING and group.rebalance_is_initial:
            wait = self.wait(group, None)
            ends = out.now + group.delay_ms if wait is None else group.phase_start_ms + wait.ms
            if wait is not None or ends < group.deadline:
                out.deadlines.set(group, max(ends, out.now))
            try_complete_join(out, group)
        elif group.newcomers and nobody_is_missing(group):
            begin_rebalance(out, group, Cause.ROSTER_COMPLETE)

    def status(self, group: Group) -> dict[str, list[StatusEntry]]:
        return {MISSING: [StatusEntry(name) for name in self._missing(group)]}

    def refusal(self, out: StepOutput, group: Group | None, member: Member | None, request: JoinRequest) -> int:
        """With roster.strict: whether the sender's instance is not listed, or it has none. A request of a known member may lack the id."""
        if not ROSTER_STRICT.of(self.values):
            return ErrorCode.NONE
        instance = request.instance_id if member is None else member.instance_id
        if instance is not None and instance in self.listed:
            return ErrorCode.NONE
        if group is not None and spend_note_budget(group, out.now):
            names = ", ".join(self.names)[:TEXT_CHARS_MAX]
            out.add_note(group, JoinRefused(request.instance_id, request.client_id, request.client_host, names))
        return ErrorCode.GROUP_AUTHORIZATION_FAILED

    def wait(self, group: Group, request: JoinRequest | None) -> Wait | None:
        """A forming group waits for all listed instances, and listed newcomers wait for each other."""
        timeout_ms, listed = ROSTER_TIMEOUT.of(self.values), self.listed
        if timeout_ms is None or not listed or (request is not None and request.instance_id not in listed):
            return None
        complete = request is None and len(group.static_members) + len(group.newcomers) >= len(listed) and not self._missing(group)
        return Wait(timeout_ms, complete)

    def _missing(self, group: Group) -> list[str]:
        """The listed instances that are neither members nor waiting newcomers, in the order of the list."""
        present = group.static_members.keys() | {name for is_instance, name in group.newcomers if is_instance}
        return [name for name in self.names if name not in present]

    def _remove_unlisted(self, out: StepOutput, group: Group) -> None:
        """Remove the members that instance.ids does not list, in one rebalance."""
        listed = self.listed
        unlisted = [key for key, newcomer in group.newcomers.items() if newcomer.request.instance_id not in listed]
        refuse_newcomers(out, group, unlisted, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        excluded = [member for member in group.members.values() if member.instance_id not in listed]
        if not excluded:
            return
        for member in excluded:
            remove_member(out, group, member, Removal.NOT_LISTED)
        for id in list(group.pending_members):
            drop_pending(out, group, id)
        if group.state is not PREPARING:
            rebalance_or_hand_over(out, group, Cause.ROSTER_CHANGED, excluded[0].id)
        elif group.all_parked and (not group.rebalance_is_initial or not group.members):
            complete_join(out, group, Cause.ROSTER_CHANGED)
