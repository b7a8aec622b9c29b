"""Describe entries in words: a sentence for the cause, and short texts for the members."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coordinator.notes import Replacement
from coordinator.states import State
from history.causes import CAUSES, REMOVALS, Admits, CauseRow, Detail
from history.episodes import End, MemberJoined, MemberRemoved, Rebalance, StaticReturned

# Member ids are the client id with a UUID, which readers do not need.
_UUID = re.compile(r"-([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
NAMED_MAX = 4


def short_name(member_id: str, instance_id: str | None = None) -> str:
    """The name of a member for readers: its instance id, or its member id with a shortened UUID."""
    return instance_id or _UUID.sub(r"-\1", member_id) or "(no id)"


def format_duration(ms: int) -> str:
    """A duration for readers, rounded to a useful precision."""
    if ms < 0:
        return "?"
    if ms < 1000:
        return f"{ms} ms"
    if ms < 59_950:
        return f"{ms / 1000:.1f} s"
    seconds = round(ms / 1000)
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes < 1440 else f"{minutes // 1440} d {minutes % 1440 // 60} h"


def list_names(names: Iterable[str]) -> str:
    """Join names; of many, only the first ones and the number of the others."""
    items = list(names)
    if len(items) > NAMED_MAX + 1:
        return f"{', '.join(items[:NAMED_MAX])} and {len(items) - NAMED_MAX} more"
    return ", ".join(items[:-1]) + f" and {items[-1]}" if len(items) > 1 else "".join(items)


def title(rebalance: Rebalance) -> str:
    """The cause, as a sentence without a full stop."""
    if rebalance.cause is None:
        return "unknown cause: the notes of its beginning are missing"
    row = CAUSES[rebalance.cause]
    names = _names_in_title(rebalance, row)
    text = rebalance.cause_text if row.detail is Detail.TEXT else None
    if not row.named or not (names or text):
        return row.title
    silent = next((removal for removal in removals_in_title(rebalance) if removal.member_id == rebalance.trigger_member and removal.since_heartbeat_ms >= 0), None)
    return (row.timed if row.timed and silent is not None else row.named).format(
        title=row.title,
        name=trigger_name(rebalance),
        names=list_names(names),
        was="was" if len(names) == 1 else "were",
        where=" the empty group" if rebalance.from_state is State.EMPTY else "",
        silent=format_duration(silent.since_heartbeat_ms) if silent is not None else "",
        session=format_duration(silent.session_ms) if silent is not None else "",
        text=text,
    )


def _names_in_title(rebalance: Rebalance, row: CauseRow) -> list[str]:
    name = trigger_name(rebalance)
    if row.removal is not None:
        return [short_name(removal.member_id, removal.instance_id) for removal in rebalance.removals if removal.cause is row.removal]
    if row.admits is not Admits.NOBODY:
        names = [short_name(join.member_id, join.instance_id) for join in rebalance.joined]
        return [name, *names] if name is not None and name not in names else names
    if name is None:
        return []
    names = [short_name(removal.member_id, removal.instance_id) for removal in removals_in_title(rebalance)]
    return names if name in names else [*names, name]


def trigger_name(rebalance: Rebalance) -> str | None:
    """The short name of the member that caused the rebalance."""
    id = rebalance.trigger_member
    if id is None:
        return None
    for back in rebalance.returns:
        if back.new_id == id:
            return back.instance_id
    instances = {join.member_id: join.instance_id for join in rebalance.joins} | {removal.member_id: removal.instance_id for removal in rebalance.removals}
    for record in (rebalance.before, rebalance.after):
        if record is not None and record.stored is not None:
            instances = {member.member_id: member.group_instance_id for member in record.stored.members} | instances
    return short_name(id, instances.get(id))


def removals_in_title(rebalance: Rebalance) -> list[MemberRemoved]:
    """The members whose removal began the rebalance: its title names them."""
    if rebalance.cause is None or not CAUSES[rebalance.cause].gone or rebalance.trigger_member is None or not rebalance.begin_known:
        return []
    return [removal for removal in rebalance.removals if removal.at_ms == rebalance.began_ms and removal.session_ms]


def describe_join(join: MemberJoined) -> str:
    return f"{short_name(join.member_id, join.instance_id)} ({join.client_id or 'no client id'} on {host(join.host)})"


def describe_removal(removal: MemberRemoved) -> str:
    name = short_name(removal.member_id, removal.instance_id)
    if removal.cause is None:
        return f"{name} was removed"
    row = REMOVALS[removal.cause]
    if removal.since_heartbeat_ms < 0:  # records do not have it
        return f"{name} {row.text}"
    return f"{name} {row.timed.format(silent=format_duration(removal.since_heartbeat_ms)) or row.text}"


def describe_return(member: StaticReturned) -> str:
    """A sentence for a static member that returned without a rebalance."""
    away = format_duration(member.since_heartbeat_ms)
    text = f"{member.instance_id} returned after {away} ({member.client_id or 'no client id'} on {host(member.host)})"
    return f"{text} and kept its seat: no rebalance" if member.outcome is Replacement.NO_REBALANCE else text


def describe_end(rebalance: Rebalance) -> str:
    """Describe the end of the rebalance, except for its duration."""
    match rebalance.end:
        case End.EMPTY:
            return "no member remains"
        case End.INTERRUPTED:
            if rebalance.handed_to >= 0:
                return f"interrupted: the coordinator handed the partition to node {rebalance.handed_to}"
            return "interrupted: the coordinator was restarted"
        case End.UNKNOWN:
            return "unknown: the notes of its end are missing"
        case End.OPEN:
            return "still in progress"
    return ""


def reasons(rebalance: Rebalance) -> list[str]:
    """The reasons that clients sent (KIP-800), each once, with the members that sent it."""
    senders: dict[str, str] = {}
    members: list[MemberJoined | MemberRemoved] = [*rebalance.removals, *rebalance.joins]
    for event in members:
        if event.reason:
            senders.setdefault(event.reason, short_name(event.member_id, event.instance_id))
    return [f'{name}: "{reason}"' for reason, name in senders.items()]


def host(text: str) -> str:
    return text.removeprefix("/") or "?"
