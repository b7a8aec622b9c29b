"""A history as JSON: one object for each entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.client import name_of
from cli.groups.described import partitions_document
from cli.groups.history_details import NOTHING_KNOWN, Details, members_around, seats_kept
from cli.groups.offset_formats import time_text
from history.consumer import assigned
from history.episodes import (
    AbsenceChanged,
    CommitsRefused,
    CoordinatorChanged,
    GroupDeleted,
    HeartbeatsLate,
    InstanceRefused,
    MemberJoined,
    MemberRemoved,
    NotesMissing,
    Rebalance,
    RebalancesMissing,
    StandbyChanged,
    StaticReturned,
)
from history.inferred import join_phase_end_ms
from history.words import title

if TYPE_CHECKING:
    from history import Entry, GroupRecord
    from history.compared import MemberIdentity
    from history.conclusion import Inferred
    from protocol.messages.consumer_offsets import GroupMetadataValue


def document(entry: Entry, details: Details = NOTHING_KNOWN) -> dict[str, object]:
    match entry:
        case Rebalance():
            return {"kind": "rebalance", **rebalance_document(entry, details)}
        case StaticReturned():
            return {
                "kind": "static_member_returned",
                "at": time_text(entry.at_ms),
                "instance_id": entry.instance_id,
                "old_member_id": entry.old_id,
                "new_member_id": entry.new_id,
                "client_id": entry.client_id,
                "host": entry.host.removeprefix("/"),
                "away_ms": entry.since_heartbeat_ms,
                "outcome": entry.outcome.name.lower() if entry.outcome is not None else None,
            }
        case MemberJoined():
            return {"kind": "member_joined", **member_document(entry)}
        case MemberRemoved():
            return {"kind": "member_gone", **member_document(entry)}
        case CommitsRefused():
            return {
                "kind": "commits_refused",
                "at": time_text(entry.at_ms),
                "error": name_of(entry.error_code),
                "member_id": entry.member_id,
                "instance_id": entry.instance_id,
                "count": entry.times,
                "since": time_text(entry.since_ms),
                "sent_epoch": none_if_unknown(entry.sent_epoch),
                "member_epoch": none_if_unknown(entry.member_epoch),
            }
        case AbsenceChanged():
            return {
                "kind": "member_back" if entry.back else "member_away",
                "at": time_text(entry.at_ms),
                "member_id": entry.member_id,
                "instance_id": entry.instance_id,
                "away_ms": entry.away_ms,
            }
        case StandbyChanged():
            return {
                "kind": "standby",
                "at": time_text(entry.at_ms),
                "step": entry.step.name.lower() if entry.step is not None else None,
                "member_id": entry.member_id,
                "instance_id": entry.instance_id,
                "from_member_id": entry.from_id,
                "from_instance_id": entry.from_instance,
                "after_ms": entry.after_ms,
            }
        case InstanceRefused():
            return {
                "kind": "join_refused",
                "at": time_text(entry.at_ms),
                "instance_id": entry.instance_id,
                "client_id": entry.client_id,
                "host": entry.host.removeprefix("/"),
                "listed": entry.listed,
            }
        case HeartbeatsLate():
            gaps = [{"member": key, "longest_gap_ms": longest, "count": count} for key, longest, count in entry.gaps]
            return {"kind": "late_heartbeats", "at": time_text(entry.at_ms), "members": gaps}
        case CoordinatorChanged():
            what = entry.change.name.lower() if entry.change is not None else None
            return {
                "kind": "coordinator",
                "at": time_text(entry.at_ms),
                "what": what,
                "load_ms": entry.load_ms,
                "groups": entry.groups,
                "stopped_in_order": entry.orderly,
                "notes_lost": entry.dropped,
                "to_node": none_if_unknown(entry.to_node),
                "drained": entry.drained,
            }
        case NotesMissing():
            return {"kind": "notes_lost", "at": time_text(entry.at_ms), "count": none_if_unknown(entry.notes)}
        case GroupDeleted():
            return {"kind": "group_deleted", "at": time_text(entry.at_ms), "certain": entry.recorded}
        case RebalancesMissing():
            if entry.after is not None and entry.after.stored is not None and details.inferred is not None:
                return {"kind": "rebalance", **recorded_document(entry, entry.after, entry.after.stored, details, details.inferred)}
            return missing_document(entry, details)


def rebalance_document(entry: Rebalance, details: Details) -> dict[str, object]:
    moves = details.moves
    return {
        "at": time_text(entry.began_ms),
        "began": time_text(entry.began_ms) if entry.begin_known else None,
        "ended": time_text(entry.ended_ms) if entry.ended_ms >= 0 else None,
        "took_ms": none_if_unknown(entry.duration_ms),
        "end": entry.end.value,
        "from_generation": none_if_unknown(entry.from_generation),
        "to_generation": none_if_unknown(entry.to_generation),
        "cause": entry.cause.name.lower() if entry.cause is not None else None,
        "cause_text": title(entry),
        "inferred": inferred_document(details.inferred) if entry.cause is None else None,
        "began_anew_for": [cause.name.lower() for cause in entry.restart_causes],
        "rounds": entry.rounds if not entry.missing_notes and entry.begin_known else None,
        "join_ms": none_if_unknown(entry.join_ms),
        "sync_ms": none_if_unknown(entry.sync_ms),
        "members_before": none_if_unknown(entry.members_before),
        "members_after": none_if_unknown(entry.members_after),
        "joined": [member_document(join) for join in entry.joined],
        "rejoined": [join.member_id for join in entry.joins if join.was_member],
        "joined_or_rejoined": [join.member_id for join in entry.joins if join.was_member is None],
        "gone": [member_document(removal) for removal in entry.removals],
        "returned": [
            {"instance_id": back.instance_id, "old_member_id": back.old_id, "new_member_id": back.new_id} for back in entry.returns
        ],
        "did_not_come": entry.laggards,
        "protocol": details.protocol or None,
        "assignor": entry.assignor or None,
        "held_up": [{"member_id": id, "ms": ms} for id, ms in entry.held_up],
        "partitions": details.total if moves is not None and details.before_known else None,
        "moved": moved_document(details),
        "stopped_partition_ms": none_if_unknown(entry.stopped_ms),
        "waited_for": [
            {
                "member_id": handover.member_id,
                "instance_id": handover.instance_id,
                "told": time_text(handover.told_ms),
                "given_up": moment_or_none(handover.given_ms),
                "partitions": partitions_document(handover.partitions),
                "waiting": list(handover.waiting),
            }
            for handover in entry.handovers
        ],
        "complete": entry.complete,
        "noted": entry.told is None or entry.cause is not None,
        "notes_lost": none_if_unknown(entry.missing_notes),
    }


def recorded_document(
    entry: RebalancesMissing, after: GroupRecord, stored: GroupMetadataValue, details: Details, inferred: Inferred
) -> dict[str, object]:
    """The JSON of a rebalance without notes: the same fields, of which those that records do not show are null. `cause` is for causes in notes."""
    seats = seats_kept(inferred)
    before, now = members_around(entry, after)
    return {
        "at": time_text(after.at_ms),
        "began": None,
        "ended": time_text(after.at_ms),
        "took_ms": None,
        "end": "stable" if now else "empty",
        "from_generation": none_if_unknown(entry.from_generation),
        "to_generation": none_if_unknown(entry.to_generation),
        "cause": None,
        "cause_text": None,
        "inferred": inferred_document(inferred),
        "began_anew_for": None,
        "rounds": inferred.rounds,
        "join_ms": None,
        "sync_ms": after.at_ms - join_phase_end_ms(after) if stored.current_state_timestamp >= 0 else None,
        "members_before": before,
        "members_after": now,
        "joined": [identity_document(member) for member in inferred.difference.joined if member.member_id not in seats],
        "rejoined": None,
        "joined_or_rejoined": None,
        "gone": [identity_document(member) for member in inferred.difference.left if member.member_id not in seats],
        "returned": [
            {"instance_id": new.instance_id, "old_member_id": old.member_id, "new_member_id": new.member_id}
            for old, new in inferred.difference.returned
            if new.member_id in seats
        ],
        "did_not_come": None,
        "protocol": details.protocol or None,
        "assignor": None,
        "held_up": [],
        "partitions": details.total if details.moves is not None and details.before_known else None,
        "moved": moved_document(details),
        "stopped_partition_ms": None,
        "waited_for": [],
        "complete": False,
        "noted": False,
        "notes_lost": none_if_unknown(entry.notes),
    }


def inferred_document(inferred: Inferred | None) -> dict[str, object] | None:
    """A conclusion from records, as far as it goes: `cause` is one of notes, or stands for several of them."""
    if inferred is None:
        return None
    member = inferred.trigger_member
    return {
        "cause": inferred.cause,
        "confidence": inferred.confidence,
        "evidence": inferred.evidence,
        "member_id": member and member.member_id,
        "instance_id": member and member.instance_id,
    }


def identity_document(member: MemberIdentity) -> dict[str, object]:
    return {"member_id": member.member_id, "instance_id": member.instance_id, "client_id": member.client_id, "host": member.host.removeprefix("/")}


def moved_document(details: Details) -> list[dict[str, object]] | None:
    if details.moves is None or not details.before_known:
        return None
    return [
        {
            "topic": move.partition[0],
            "partition": move.partition[1],
            "from": move.before and move.before.member_key,
            "to": move.after and move.after.member_key,
        }
        for move in details.moves
    ]


def missing_document(entry: RebalancesMissing, details: Details) -> dict[str, object]:
    """The JSON of rebalances that have no notes in __coordinator_notes. `stored`: the group record in __consumer_offsets after the last of them."""
    stored = entry.after.stored if entry.after is not None else None
    return {
        "kind": "gap",
        "reason": "no_notes" if entry.older else "notes_lost",
        "after": moment_or_none(entry.after_ms),
        "before": moment_or_none(entry.before_ms),
        "from_generation": none_if_unknown(entry.from_generation),
        "to_generation": none_if_unknown(entry.to_generation),
        "rebalances_at_least": entry.count_min,
        "rebalances_at_most": none_if_unknown(entry.count_max),
        "notes_lost": none_if_unknown(entry.notes),
        "cause": None,
        "stored": None
        if stored is None or entry.after is None
        else {
            "at": time_text(entry.after.at_ms),
            "generation": stored.generation,
            "protocol": stored.protocol,
            "leader": stored.leader,
            "members": [
                {
                    "member_id": member.member_id,
                    "instance_id": member.group_instance_id,
                    "client_id": member.client_id,
                    "assigned": partitions_document(assigned(stored, member)),
                }
                for member in stored.members
            ],
        },
        "inferred": None,
        "moved": moved_document(details),
    }


def moment_or_none(ms: int) -> str | None:
    return time_text(ms) if ms >= 0 else None


def member_document(entry: MemberJoined | MemberRemoved) -> dict[str, object]:
    document: dict[str, object] = {"at": time_text(entry.at_ms), "member_id": entry.member_id, "instance_id": entry.instance_id}
    if isinstance(entry, MemberJoined):
        document |= {"client_id": entry.client_id, "host": entry.host.removeprefix("/")}
    else:
        document |= {"how": entry.cause.name.lower() if entry.cause is not None else None, "since_heartbeat_ms": entry.since_heartbeat_ms}
    return {**document, "session_timeout_ms": entry.session_ms, "reason": entry.reason}


def none_if_unknown(number: int) -> int | None:
    return number if number >= 0 else None
