"""Describe entries in words: a sentence for the cause, and short texts for the members."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coordinator.notes import Cause, Removal, Replacement
from coordinator.states import State
from history.episodes import End, MemberJoined, MemberRemoved, Rebalance, StaticReturned

# Member ids are the client id with a UUID, which readers do not need.
_UUID = re.compile(r"-([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
NAMED_MAX = 4

REMOVAL_TEXT = {
    Removal.LEFT: "left",
    Removal.EXPIRED: "expired",
    Removal.REBALANCE_TIMEOUT: "did not rejoin in time",
    Removal.FENCED: "was fenced",
    Removal.ADMIN_REMOVED: "was removed",
    Removal.PENDING_EXPIRED: "never joined with its assigned member id",
    Removal.SYNC_TIMEOUT: "did not fetch its assignment in time",
    Removal.OVER_MAX_SIZE: "was over the group's maximum size",
    Removal.REPLACED: "was replaced",
    Removal.NOT_LISTED: "was not in the strict list of instances",
    Removal.STAYED_AWAY: "stayed away longer than registration.timeout.ms",
    Removal.SEAT_TAKEN: "was away, and a standby took its seat",
    Removal.REGISTRATION_UNSET: "was away when registration.timeout.ms was unset",
}

# Titles for rebalances whose causing member is unknown.
TITLES_WITHOUT_MEMBER = {
    Cause.NEW_MEMBER: "a new member joined",
    Cause.LEADER_REJOINED: "the leader rejoined and requested new assignments",
    Cause.MEMBER_METADATA_CHANGED: "a member rejoined with another subscription (its topics, its assignors or its owned partitions)",
    Cause.MEMBER_LEFT: "a member left",
    Cause.SESSION_EXPIRED: "a member sent no heartbeat within its session timeout",
    Cause.REBALANCE_TIMEOUT: "a member did not rejoin in time",
    Cause.STATIC_PROTOCOL_CHANGED: "a static member returned with other assignors or topics",
    Cause.STATIC_DURING_COMPLETING: "a static member was restarted while the group waited for assignments",
    Cause.SYNC_FAILED: "the assignments could not be stored",
    Cause.ADMIN_REMOVED: "a static member was removed by its instance id (an administrator, or a client that leaves so)",
    Cause.GROUP_EMPTIED: "no member remained",
    Cause.COORDINATOR_MOVED: "the coordinator moved",
    Cause.SYNC_TIMEOUT: "a member did not fetch its assignment in time",
    Cause.PENDING_LEFT: "a client that was about to join left",
    Cause.OVER_MAX_SIZE: "the group was over its maximum size",
    Cause.JOIN_TIMEOUT: "members did not rejoin in time",
    Cause.EVERYONE_JOINED: "all members had joined",
    Cause.ASSIGNED: "the leader assigned partitions",
    Cause.ABSENCES_ENDED: "members stayed away longer than registration.timeout.ms",
    Cause.EXPANSION: "members that had waited for each other joined at once",
    Cause.ROSTER_COMPLETE: "all listed instances had joined",
    Cause.ROSTER_CHANGED: "members were removed from the strict list of instances",
    Cause.TOPICS_CHANGED: "topics that members subscribe to were created or deleted, or got partitions",
    Cause.TARGET_CHANGED: "target.group.size requires another number of active members",
    Cause.STANDBY_LATE: "a standby did not take over its seat in time, and no other standby was free",
    Cause.REGISTRATION_UNSET: "registration.timeout.ms was unset while members were away",
    Cause.REQUESTED: "an operator requested a rebalance",
}


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
    cause = rebalance.cause
    if cause is None:
        return "unknown cause: the notes of its beginning are missing"
    if cause in (Cause.EXPANSION, Cause.ROSTER_COMPLETE) and rebalance.joined:
        return f"{_joined(rebalance)} at once"
    if cause is Cause.ABSENCES_ENDED:
        names = _removed_names(rebalance, Removal.STAYED_AWAY)
        return f"{list_names(names)} stayed away longer than registration.timeout.ms" if names else TITLES_WITHOUT_MEMBER[cause]
    if cause is Cause.REGISTRATION_UNSET:
        names = _removed_names(rebalance, Removal.REGISTRATION_UNSET)
        verb = "was" if len(names) == 1 else "were"
        return f"registration.timeout.ms was unset while {list_names(names)} {verb} away" if names else TITLES_WITHOUT_MEMBER[cause]
    if cause is Cause.ROSTER_CHANGED:
        names = _removed_names(rebalance, Removal.NOT_LISTED)
        return f"{TITLES_WITHOUT_MEMBER[cause]}: {list_names(names)}" if names else TITLES_WITHOUT_MEMBER[cause]
    if cause is Cause.TOPICS_CHANGED:
        return f"{TITLES_WITHOUT_MEMBER[cause]} ({rebalance.cause_text})" if rebalance.cause_text else TITLES_WITHOUT_MEMBER[cause]
    if cause is Cause.NEW_MEMBER:
        return _joined(rebalance)
    if cause is Cause.REQUESTED and rebalance.cause_text:
        return f'{TITLES_WITHOUT_MEMBER[cause]}: "{rebalance.cause_text}"'
    name = trigger_name(rebalance)
    if name is None:
        return TITLES_WITHOUT_MEMBER[cause]
    match cause:
        case Cause.MEMBER_LEFT | Cause.ADMIN_REMOVED | Cause.SESSION_EXPIRED | Cause.SYNC_TIMEOUT:
            return _removals_title(rebalance, cause, name)
        case Cause.STATIC_DURING_COMPLETING:
            return f"{name} was restarted while the group waited for assignments"
        case Cause.STATIC_PROTOCOL_CHANGED:
            return f"{name} returned with other assignors or topics, so it could not keep its seat without a rebalance"
        case Cause.LEADER_REJOINED:
            return f"{name}, the leader, rejoined and requested new assignments"
        case Cause.MEMBER_METADATA_CHANGED:
            return f"{name} rejoined with another subscription (its topics, its assignors or its owned partitions)"
    return TITLES_WITHOUT_MEMBER[cause]


def _removed_names(rebalance: Rebalance, cause: Removal) -> list[str]:
    return [short_name(removal.member_id, removal.instance_id) for removal in rebalance.removals if removal.cause is cause]


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


def _joined(rebalance: Rebalance) -> str:
    names = [short_name(join.member_id, join.instance_id) for join in rebalance.joined]
    name = trigger_name(rebalance)
    if name is not None and name not in names:
        names.insert(0, name)
    if not names:
        return TITLES_WITHOUT_MEMBER[Cause.NEW_MEMBER]
    if rebalance.from_state is State.EMPTY:
        return f"{list_names(names)} joined the empty group"
    return f"{list_names(names)} joined"


def removals_in_title(rebalance: Rebalance) -> list[MemberRemoved]:
    """The members whose removal began the rebalance: its title names them."""
    if rebalance.cause not in (Cause.MEMBER_LEFT, Cause.ADMIN_REMOVED, Cause.SESSION_EXPIRED, Cause.SYNC_TIMEOUT):
        return []
    if rebalance.trigger_member is None or not rebalance.begin_known:
        return []
    return [removal for removal in rebalance.removals if removal.at_ms == rebalance.began_ms and removal.session_ms]


def _removals_title(rebalance: Rebalance, cause: Cause, name: str) -> str:
    first = removals_in_title(rebalance)
    names = [short_name(removal.member_id, removal.instance_id) for removal in first]
    if name not in names:
        names.append(name)
    verb = "was" if len(names) == 1 else "were"
    if cause is Cause.SESSION_EXPIRED:
        silent = next((removal for removal in first if removal.member_id == rebalance.trigger_member), None)
        if silent is None:
            return f"{name} sent no heartbeat within its session timeout"
        # Members whose sessions ended at the same moment are listed below the title.
        return f"{name} sent no heartbeat for {format_duration(silent.since_heartbeat_ms)} (session timeout {format_duration(silent.session_ms)})"
    if cause is Cause.SYNC_TIMEOUT:
        return f"{list_names(names)} did not fetch the assignment in time"
    return f"{list_names(names)} {verb} removed by instance id" if cause is Cause.ADMIN_REMOVED else f"{list_names(names)} left"


def describe_join(join: MemberJoined) -> str:
    return f"{short_name(join.member_id, join.instance_id)} ({join.client_id or 'no client id'} on {host(join.host)})"


def describe_removal(removal: MemberRemoved) -> str:
    text = REMOVAL_TEXT[removal.cause] if removal.cause is not None else "was removed"
    if removal.cause is Removal.EXPIRED:
        text = f"expired after {format_duration(removal.since_heartbeat_ms)} without a heartbeat"
    return f"{short_name(removal.member_id, removal.instance_id)} {text}"


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
