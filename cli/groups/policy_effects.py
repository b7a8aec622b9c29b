"""The effects of a policy change on the group's current members."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from cli.groups.described import CONSUMER
from cli.groups.policy_status import readable_status, standbys_of
from cli.groups.removal import predict
from cli.shown import counted
from coordinator.policies.declaration import NONE_TEXT, Policy
from coordinator.policies.expansion import EXPANSION_TIMEOUT, Expansion
from coordinator.policies.hooks import PolicyRules
from coordinator.policies.names import expand_names
from coordinator.policies.rebalance_request import RebalanceRequest
from coordinator.policies.registration import REGISTRATION_TIMEOUT, Registration
from coordinator.policies.roster import INSTANCE_IDS, ROSTER_STRICT, Roster
from coordinator.policies.status import AWAY, STANDBY
from coordinator.policies.target_size import TARGET_GROUP_SIZE, TargetSize
from history.words import format_duration, list_names

if TYPE_CHECKING:
    from cli.groups.described import Group, GroupMember


def effects(
    group: Group | None, before: Mapping[str, str], after: Mapping[str, str], status: Mapping[str, str], requested: bool
) -> list[str]:
    """A sentence for each effect, or one sentence that there is none. `before`, `after`: all policies of the group; `requested`: the change
    requests a rebalance.
    """
    if group is None or not group.members:
        return ["the group has no members now: the policies apply from its first member on"]
    change = Change(group, without_none(before), without_none(after), status, requested)
    sentences = [sentence for effect in EFFECTS.values() for sentence in effect(change)]
    return sentences or ["no current member is affected"]


def without_none(policies: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in policies.items() if value != NONE_TEXT}


class Change(NamedTuple):
    """A change of the policies of a group that has members; each policy's own and default values together."""

    group: Group
    before: dict[str, str]
    after: dict[str, str]
    status: Mapping[str, str]
    requested: bool

    def of(self, *policies: Policy) -> bool:
        """Whether one of these policies changes."""
        return any(self.before.get(policy.name) != self.after.get(policy.name) for policy in policies)


def _request(change: Change) -> Iterator[str]:
    if change.requested and change.group.type == CONSUMER:
        yield "the group would get a new epoch, and the coordinator compute a new assignment; no member would rejoin or be removed"
    elif change.requested:
        yield f"{counted(len(change.group.members), 'member')} would rejoin once; no member would be removed"


def _expansion(change: Change) -> Iterator[str]:
    if change.of(EXPANSION_TIMEOUT) and EXPANSION_TIMEOUT.name not in change.before:
        yield f"new members would wait up to {format_duration(int(change.after[EXPANSION_TIMEOUT.name]))} for others; the {counted(len(change.group.members), 'current member')} would not be affected"


def _registration(change: Change) -> Iterator[str]:
    if not change.of(REGISTRATION_TIMEOUT):
        return
    group, status, timeout = change.group, change.status, change.after.get(REGISTRATION_TIMEOUT.name)
    if timeout is None:
        if AWAY in status:
            yield f"the members that are away would be removed in one rebalance: {readable_status(AWAY, status[AWAY])}"
        return
    dynamic = len(group.members) - group.static_count
    standbys = standbys_of(group, status)
    static = group.static_count - sum(standby.instance_id is not None for standby in standbys)  # standbys have no partitions to keep
    pronoun = "its" if static == 1 else "their"
    unless = ", unless a standby takes the seat" if standbys else ""
    yield f"{counted(static, 'static member')} would keep {pronoun} partitions for up to {format_duration(int(timeout))} after the session ended{unless}"
    if dynamic:
        yield f"{counted(dynamic, 'dynamic member')} would be removed at the end of the session, as now"


def _roster(change: Change) -> Iterator[str]:
    if not change.of(INSTANCE_IDS, ROSTER_STRICT):
        return
    group, after, status = change.group, change.after, change.status
    text = after.get(INSTANCE_IDS.name)
    if text is None:
        return
    names = expand_names(text, INSTANCE_IDS.name)
    present = {member.instance_id for member in group.members}
    missing = [name for name in names if name not in present]
    if missing:
        yield f"{counted(len(missing), 'instance')} of the list would be missing: {list_names(missing[:10])}{' and others' if len(missing) > 10 else ''}"
    unlisted = [member for member in group.members if member.instance_id not in frozenset(names)]
    if unlisted and after.get(ROSTER_STRICT.name) == "true":
        reason = f"because {'it is' if len(unlisted) == 1 else 'they are'} not on the list"
        removal = predict(group, unlisted, {}, standbys_of(group, status))
        how = "in one rebalance" if removal.rebalances or not removal.staying else "without a rebalance"
        yield f"{counted(len(unlisted), 'member')} would be removed {how}, {reason}: {_names(unlisted)}"
        if removal.take_overs:
            standbys = [seat.standby for seat in removal.take_overs]
            seats = _names([seat.removed for seat in removal.take_overs])
            yield f"{counted(len(standbys), 'standby')} would take the {'seat' if len(standbys) == 1 else 'seats'} of {seats}: {_names(standbys)}"


def _names(members: list[GroupMember]) -> str:
    return list_names(member.shown_name for member in members)


def _target(change: Change) -> Iterator[str]:
    if not change.of(TARGET_GROUP_SIZE):
        return
    group, status, text = change.group, change.status, change.after.get(TARGET_GROUP_SIZE.name)
    if text is None:
        if STANDBY in status:
            yield f"the standbys would become active in one rebalance: {readable_status(STANDBY, status[STANDBY])}"
        return
    standbys = standbys_of(group, status)
    active = len(group.members) - len(standbys)
    extra = len(group.members) - int(text)
    if active > int(text):
        yield f"{counted(extra, 'member')} of {len(group.members)} would be standby, without partitions, after one rebalance"
    elif active < int(text) and standbys:
        promoted = standbys[: int(text) - active]
        yield f"{counted(len(promoted), 'standby')} would become active in one rebalance: {_names(promoted)}"


# What a change of these policies does to the present members, in the order of the sentences; others concern later requests only.
EFFECTS: Final[dict[type[PolicyRules], Callable[[Change], Iterator[str]]]] = {
    RebalanceRequest: _request,
    Registration: _registration,
    Expansion: _expansion,
    Roster: _roster,
    TargetSize: _target,
}
