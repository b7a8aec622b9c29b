"""The effects of a policy change on the group's current members."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from cli.groups.policies import INSTANCE_IDS
from cli.groups.policy_status import readable_status, standbys_of
from cli.groups.removal import predict
from cli.shown import counted
from coordinator.policies.values import expand_names
from history.words import format_duration, list_names

if TYPE_CHECKING:
    from cli.groups.described import Group, GroupMember

NONE = "none"


def effects(
    group: Group | None, before: Mapping[str, str], after: Mapping[str, str], status: Mapping[str, str], requested: bool
) -> list[str]:
    """A sentence for each effect, or one sentence that there is none. `before`, `after`: all policies of the group; `requested`: the change
    requests a rebalance.
    """
    if group is None or not group.members:
        return ["the group has no members now: the policies apply from its first member on"]
    sentences = list(_effects(group, without_none(before), without_none(after), status, requested))
    return sentences or ["no current member is affected"]


def without_none(policies: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in policies.items() if value != NONE}


def _effects(
    group: Group, before: dict[str, str], after: dict[str, str], status: Mapping[str, str], requested: bool
) -> Iterator[str]:
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    if requested:
        yield f"{counted(len(group.members), 'member')} would rejoin once; no member would be removed"
    if "registration.timeout.ms" in changed:
        yield from _registration(group, after.get("registration.timeout.ms"), status)
    if "expansion.timeout.ms" in changed and "expansion.timeout.ms" not in before:
        yield f"new members would wait up to {format_duration(int(after['expansion.timeout.ms']))} for others; the {counted(len(group.members), 'current member')} would not be affected"
    if INSTANCE_IDS in changed or "roster.strict" in changed:
        yield from _roster(group, after, status)
    if "target.group.size" in changed:
        yield from _target(group, after.get("target.group.size"), status)


def _registration(group: Group, timeout: str | None, status: Mapping[str, str]) -> Iterator[str]:
    if timeout is None:
        if "away" in status:
            yield f"the members that are away would be removed in one rebalance: {readable_status(status['away'])}"
        return
    dynamic = len(group.members) - group.static_count
    standbys = standbys_of(group, status)
    static = group.static_count - sum(standby.instance_id is not None for standby in standbys)  # standbys have no partitions to keep
    pronoun = "its" if static == 1 else "their"
    unless = ", unless a standby takes the seat" if standbys else ""
    yield f"{counted(static, 'static member')} would keep {pronoun} partitions for up to {format_duration(int(timeout))} after the session ended{unless}"
    if dynamic:
        yield f"{counted(dynamic, 'dynamic member')} would be removed at the end of the session, as now"


def _roster(group: Group, after: dict[str, str], status: Mapping[str, str]) -> Iterator[str]:
    text = after.get(INSTANCE_IDS)
    if text is None:
        return
    names = expand_names(text)
    present = {member.instance_id for member in group.members}
    missing = [name for name in names if name not in present]
    if missing:
        yield f"{counted(len(missing), 'instance')} of the list would be missing: {list_names(missing[:10])}{' and others' if len(missing) > 10 else ''}"
    unlisted = [member for member in group.members if member.instance_id not in frozenset(names)]
    if unlisted and after.get("roster.strict") == "true":
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


def _target(group: Group, text: str | None, status: Mapping[str, str]) -> Iterator[str]:
    if text is None:
        if "standby" in status:
            yield f"the standbys would become active in one rebalance: {readable_status(status['standby'])}"
        return
    standbys = standbys_of(group, status)
    active = len(group.members) - len(standbys)
    extra = len(group.members) - int(text)
    if active > int(text):
        yield f"{counted(extra, 'member')} of {len(group.members)} would be standby, without partitions, after one rebalance"
    elif active < int(text) and standbys:
        promoted = standbys[: int(text) - active]
        yield f"{counted(len(promoted), 'standby')} would become active in one rebalance: {_names(promoted)}"
