"""Print a history: one block for each rebalance, one line for any other event; or the same as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from cli.client import failure, name_of
from cli.groups.offsets_words import shown_moment
from cli.shown import Role, Screen, counted, plain
from coordinator.notes import Cause, Coordinator, Removal, Replacement, StandbyStep
from history.episodes import Away, Barred, Came, Deleted, End, Late, Lost, Missing, Moved, Rebalance, Refused, Returned, Standby, Went
from history.moves import spans
from history.words import called, came, duration, ended, listed, mover, named, reasons, returned, title, went

if TYPE_CHECKING:
    from history import Entry, Move

LONG_MS = 10_000  # a rebalance that people feel
LABEL_WIDTH = 8
MOVES_TOLD = 12

COORDINATOR = {
    Coordinator.LOADED: "the coordinator was started, or took over: {groups} of this partition loaded in {load}",
    Coordinator.UNLOADED: "the coordinator was stopped",
    Coordinator.SUSPENDED: "the coordinator was suspended: its log refused to be written",
    Coordinator.RESUMED: "the coordinator serves again",
}


class Partitions(NamedTuple):
    """The moves of partitions in a rebalance. `moves` is None if they are unknown."""

    moves: list[Move] | None
    total: int
    protocol: str

    @property
    def cooperative(self) -> bool:
        return "cooperative" in self.protocol


NOTHING_KNOWN = Partitions(None, 0, "")


# For people


def show(screen: Screen, entry: Entry, partitions: Partitions = NOTHING_KNOWN) -> None:
    if isinstance(entry, Missing):
        show_missing(screen, entry, partitions)
        return
    if not isinstance(entry, Rebalance):
        text, role = sentence(entry)
        screen.line(f"{when(screen, entry.at_ms)}  {screen.paint(plain(text), role)}")
        return
    screen.line(f"{when(screen, entry.began_ms)}  {headline(screen, entry)}")
    for label, text in details(entry, partitions):
        screen.line(f"  {screen.paint(label.ljust(LABEL_WIDTH), Role.DIM)}  {plain(text)}")


def show_missing(screen: Screen, one: Missing, partitions: Partitions) -> None:
    at = one.after.at_ms if one.after is not None else one.before_ms if one.before_ms >= 0 else one.after_ms
    screen.line(f"{when(screen, at)}  {screen.paint(missing(one), Role.CAREFUL)}")
    lines = []
    if one.after_ms >= 0 and one.before_ms > one.after_ms:
        lines.append(("between", f"{shown_moment(one.after_ms)} and {shown_moment(one.before_ms)}"))
    if one.after is not None and one.after.stored is not None:
        members = [called(member.member_id, member.group_instance_id) for member in one.after.stored.members]
        what = f"{'1 member' if len(members) == 1 else f'{len(members)} members'}: {listed(members)}" if members else "nobody was left"
        lines.append(("stored", f"generation {one.after.generation} with {what}" if members else f"generation {one.after.generation}: {what}"))
    lines += told_moves(partitions)
    if partitions.moves is None:
        lines.append(("moved", "not known"))
    for label, text in lines:
        screen.line(f"  {screen.paint(label.ljust(LABEL_WIDTH), Role.DIM)}  {plain(text)}")


def missing(one: Missing) -> str:
    """`one rebalance is missing here: generation 1 -> 2, its notes were lost`"""
    if one.least == one.most:
        count = "one rebalance is" if one.least == 1 else f"{one.least} rebalances are"
    elif one.least == 0:
        count = "one rebalance may be" if one.most == 1 else f"up to {one.most} rebalances may be" if one.most > 0 else "rebalances may be"
    else:
        count = f"at least {'one rebalance is' if one.least == 1 else f'{one.least} rebalances are'}"
        count += f" (at most {one.most})" if one.most > 0 else ""
    known_ends = [str(number) if number >= 0 else "?" for number in (one.from_generation, one.to_generation)]
    generations = f"generation {known_ends[0]} -> {known_ends[1]}, " if known_ends != ["?", "?"] else ""
    why = "there are no notes from then" if one.older else f"{one.notes} notes were lost" if one.notes > 0 else "the notes were lost"
    return f"{count} missing here: {generations}{why}"


def show_begun(screen: Screen, one: Rebalance) -> None:
    """The begin of an open rebalance, for --follow; its end follows later."""
    screen.line(f"{when(screen, one.began_ms)}  {screen.paint('rebalance begins', Role.CAREFUL)}: {plain(title(one))}")


def when(screen: Screen, ms: int) -> str:
    return screen.paint(shown_moment(ms), Role.STRONG)


def headline(screen: Screen, one: Rebalance) -> str:
    if one.end is End.OPEN:
        return screen.paint("rebalance under way", Role.CAREFUL)
    parts = [screen.paint("rebalance", Role.CAREFUL)]
    if one.to_generation >= 0:
        parts.append(f"generation {one.from_generation if one.from_generation >= 0 else '?'} -> {one.to_generation}")
    took = f"took {duration(one.took_ms)}" if one.took_ms >= 0 else "how long is not known"
    parts.append(screen.paint(took, Role.BAD if one.took_ms >= LONG_MS else None))
    if one.rounds > 1:
        parts.append(screen.paint(f"in {one.rounds} rounds", Role.CAREFUL))
    return ", ".join(parts)


def details(one: Rebalance, partitions: Partitions) -> list[tuple[str, str]]:
    lines = [("why", why(one, partitions))]
    lines += [("", said) for said in reasons(one)]
    if one.also:
        lines.append(("again", f"begun anew: {', '.join(dict.fromkeys(cause.name.lower().replace('_', ' ') for cause in one.also))}"))
    lines += [("joined", came(member)) for member in one.joined]
    lines += [("joined", f"{came(member)}, for the first time or again") for member in one.came if member.again is None]
    named_members = named(one)
    lines += [("gone", went(member)) for member in one.went if member not in named_members]
    lines += [("back", returned(member)) for member in one.returned]
    lines += waits(one)
    if min(one.members_before, one.members_after) >= 0 and (one.members_before != one.members_after or one.joined or one.went):
        lines.append(("members", f"{one.members_before} -> {one.members_after}"))
    lines += moved(one, partitions)
    if ended(one):
        lines.append(("end", ended(one)))
    if one.lost > 0:
        lines.append(("lost", f"{'1 note' if one.lost == 1 else f'{one.lost} notes'} of it were not kept: more happened than is told here"))
    elif one.lost or not one.whole:
        lines.append(("lost", "notes of it are missing: more may have happened than is told here"))
    return lines


def why(one: Rebalance, partitions: Partitions) -> str:
    """A cooperative rebalance has two steps, and the notes alone do not say that this is the second."""
    again = one.cause in (Cause.MEMBER_METADATA_CHANGED, Cause.LEADER_REJOINED)
    if again and partitions.cooperative and partitions.moves and all(move.before is None for move in partitions.moves):
        who = mover(one) or "a member"
        return f"{who} joined again, and partitions that nobody had were assigned ({partitions.protocol})"
    return title(one)


def waits(one: Rebalance) -> list[tuple[str, str]]:
    """The members that delayed the rebalance."""
    if one.laggards and one.rounds == 1 and one.join_ms >= 0:
        return [("waited", f"{duration(one.join_ms)} for {listed(called(id) for id in one.laggards)}, who did not come")]
    last = one.last_to_come
    if last is not None:
        return [("waited", f"{duration(last.at_ms - one.began_ms)} for {called(last.member_id, last.instance_id)}, the last to join")]
    return []


def moved(one: Rebalance, partitions: Partitions) -> list[tuple[str, str]]:
    if one.end is End.OPEN:
        return []
    if partitions.moves is None:
        return [("moved", "not known")] if one.lost or not one.whole else []
    lines = told_moves(partitions)
    if one.from_state is not None and one.from_state.name == "STABLE" and one.members_after > 0:
        if partitions.cooperative:
            lines.append(("stopped", f"only what moved ({partitions.protocol})"))
        else:
            longest = f", for {duration(one.took_ms)} at most" if one.took_ms >= 0 else ""
            lines.append(("stopped", f"every partition{longest} ({partitions.protocol}: members give up all they have)"))
    return lines


def told_moves(partitions: Partitions) -> list[tuple[str, str]]:
    if partitions.moves is None:
        return []
    stayed = partitions.total - len(partitions.moves)
    lines = []
    changes: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for move in partitions.moves:
        before = called(move.before.member_id, move.before.instance_id) if move.before else "nobody"
        after = called(move.after.member_id, move.after.instance_id) if move.after else "nobody"
        changes.setdefault((before, after), []).append(move.partition)
    for number, ((before, after), where) in enumerate(changes.items()):
        if number == MOVES_TOLD:
            lines.append(("", f"... and {len(changes) - number} more changes (--json has all)"))
            break
        lines.append(("moved" if not number else "", f"{spans(where)}: {before} -> {after}"))
    if not lines:
        lines.append(("moved", f"nothing: {counted(stayed, 'partition')} stayed where {'it was' if stayed == 1 else 'they were'}"))
    elif stayed:
        lines.append(("", f"{counted(stayed, 'partition')} stayed"))
    return lines


def sentence(entry: Entry) -> tuple[str, Role | None]:
    match entry:
        case Returned():
            return returned(entry), Role.GOOD if entry.outcome is Replacement.NO_REBALANCE else None
        case Came():
            return f"{came(entry)} joined", None
        case Went():
            text = f"{went(entry)}; that concerned nobody else" if entry.how is Removal.PENDING_EXPIRED else went(entry)
            return text, Role.DIM if entry.how is Removal.PENDING_EXPIRED else None
        case Refused():
            who = called(entry.member_id, entry.instance_id)
            why = failure(entry.error_code, "").line.removeprefix(": ")
            times = "a commit" if entry.times == 1 else f"{entry.times} commits"
            return f"{times} of {who} refused: {why} ({name_of(entry.error_code)})", Role.CAREFUL
        case Away():
            who = called(entry.member_id, entry.instance_id)
            if entry.back:
                return f"{who} is back after {duration(entry.away_ms)} away and keeps its seat", Role.GOOD
            return f"{who} is away; its seat is kept for it", Role.CAREFUL
        case Standby():
            return standby(entry)
        case Barred():
            who = entry.instance_id or f"{entry.client_id}, which has no instance id,"
            return f"{who} at {entry.host.removeprefix('/')} was refused: it is not in the strict list of instances ({entry.listed})", Role.CAREFUL
        case Late():
            gaps = listed(f"{called(key)} ({duration(longest)})" for key, longest, _ in entry.gaps)
            return f"heartbeats came late, close to the session timeout: {gaps}", Role.CAREFUL
        case Moved():
            text = COORDINATOR.get(entry.what, "the coordinator changed") if entry.what is not None else "the coordinator changed"
            groups = "1 group" if entry.groups == 1 else f"{entry.groups} groups"
            text = text.format(groups=groups, load=duration(entry.load_ms))
            if entry.orderly is False:
                return f"{text}; it had not been stopped in order: notes of the last moments before may be missing", Role.CAREFUL
            if entry.dropped:
                return f"{text}; {entry.dropped} notes of its groups were not kept", Role.CAREFUL
            return text, Role.DIM
        case Lost():
            count = "notes" if entry.notes < 0 else "1 note" if entry.notes == 1 else f"{entry.notes} notes"
            return f"{count} before this {'may be' if entry.notes < 0 else 'are'} missing: more {'may have' if entry.notes < 0 else ''} happened than is told here".replace("  ", " "), Role.CAREFUL
        case Deleted():
            if entry.recorded:
                return "the group was deleted, or expired; its generations begin anew", Role.CAREFUL
            return "the group's generations begin anew: it was deleted or expired, or its log was set back", Role.CAREFUL
        case Missing():
            return missing(entry), Role.CAREFUL
        case Rebalance():
            return title(entry), None


def standby(entry: Standby) -> tuple[str, Role | None]:
    who = called(entry.member_id, entry.instance_id)
    seat = f"the seat of {called(entry.from_id or '', entry.from_instance)}"
    match entry.step:
        case StandbyStep.WAITS:
            return f"{who} is a standby", None
        case StandbyStep.TAKES_OVER:
            return f"the standby {who} took {seat}, without a rebalance", Role.GOOD
        case StandbyStep.TOOK_OVER:
            return f"{who} reads the partitions of {seat}, {duration(entry.after_ms)} after it became free", Role.GOOD
        case StandbyStep.TOO_LATE:
            return f"the standby {who} did not fetch the assignment of {seat} within its session timeout, and waits again", Role.CAREFUL
        case StandbyStep.GONE:
            return f"the standby {who} is gone, which caused no rebalance", None
    return f"{who}: a change of standbys that this version does not know", None


# For programs


def document(entry: Entry, partitions: Partitions = NOTHING_KNOWN) -> dict[str, object]:
    match entry:
        case Rebalance():
            return {"kind": "rebalance", **rebalance(entry, partitions)}
        case Returned():
            return {
                "kind": "static_member_returned",
                "at": shown_moment(entry.at_ms),
                "instance_id": entry.instance_id,
                "old_member_id": entry.old_id,
                "new_member_id": entry.new_id,
                "client_id": entry.client_id,
                "host": entry.host.removeprefix("/"),
                "away_ms": entry.since_heartbeat_ms,
                "outcome": entry.outcome.name.lower() if entry.outcome is not None else None,
            }
        case Came():
            return {"kind": "member_joined", **member(entry)}
        case Went():
            return {"kind": "member_gone", **member(entry)}
        case Refused():
            return {
                "kind": "commits_refused",
                "at": shown_moment(entry.at_ms),
                "error": name_of(entry.error_code),
                "member_id": entry.member_id,
                "instance_id": entry.instance_id,
                "count": entry.times,
                "since": shown_moment(entry.since_ms),
            }
        case Away():
            return {
                "kind": "member_back" if entry.back else "member_away",
                "at": shown_moment(entry.at_ms),
                "member_id": entry.member_id,
                "instance_id": entry.instance_id,
                "away_ms": entry.away_ms,
            }
        case Standby():
            return {
                "kind": "standby",
                "at": shown_moment(entry.at_ms),
                "step": entry.step.name.lower() if entry.step is not None else None,
                "member_id": entry.member_id,
                "instance_id": entry.instance_id,
                "from_member_id": entry.from_id,
                "from_instance_id": entry.from_instance,
                "after_ms": entry.after_ms,
            }
        case Barred():
            return {
                "kind": "join_refused",
                "at": shown_moment(entry.at_ms),
                "instance_id": entry.instance_id,
                "client_id": entry.client_id,
                "host": entry.host.removeprefix("/"),
                "listed": entry.listed,
            }
        case Late():
            gaps = [{"member": key, "longest_gap_ms": longest, "count": count} for key, longest, count in entry.gaps]
            return {"kind": "late_heartbeats", "at": shown_moment(entry.at_ms), "members": gaps}
        case Moved():
            what = entry.what.name.lower() if entry.what is not None else None
            return {"kind": "coordinator", "at": shown_moment(entry.at_ms), "what": what, "load_ms": entry.load_ms, "groups": entry.groups, "stopped_in_order": entry.orderly, "notes_lost": entry.dropped}
        case Lost():
            return {"kind": "notes_lost", "at": shown_moment(entry.at_ms), "count": known(entry.notes)}
        case Deleted():
            return {"kind": "group_deleted", "at": shown_moment(entry.at_ms), "certain": entry.recorded}
        case Missing():
            return gap(entry, partitions)


def rebalance(one: Rebalance, partitions: Partitions) -> dict[str, object]:
    moves = partitions.moves
    return {
        "at": shown_moment(one.began_ms),
        "began": shown_moment(one.began_ms) if one.whole else None,
        "ended": shown_moment(one.ended_ms) if one.ended_ms >= 0 else None,
        "took_ms": known(one.took_ms),
        "end": one.end.value,
        "from_generation": known(one.from_generation),
        "to_generation": known(one.to_generation),
        "cause": one.cause.name.lower() if one.cause is not None else None,
        "cause_text": title(one),
        "began_anew_for": [cause.name.lower() for cause in one.also],
        "rounds": one.rounds if not one.lost and one.whole else None,
        "join_ms": known(one.join_ms),
        "sync_ms": known(one.sync_ms),
        "members_before": known(one.members_before),
        "members_after": known(one.members_after),
        "joined": [member(come) for come in one.joined],
        "rejoined": [come.member_id for come in one.came if come.again],
        "joined_or_rejoined": [come.member_id for come in one.came if come.again is None],
        "gone": [member(gone) for gone in one.went],
        "returned": [
            {"instance_id": back.instance_id, "old_member_id": back.old_id, "new_member_id": back.new_id} for back in one.returned
        ],
        "did_not_come": one.laggards,
        "protocol": partitions.protocol or None,
        "partitions": partitions.total if moves is not None else None,
        "moved": moved_document(partitions),
        "complete": one.complete,
        "notes_lost": known(one.lost),
    }


def moved_document(partitions: Partitions) -> list[dict[str, object]] | None:
    if partitions.moves is None:
        return None
    return [
        {
            "topic": move.partition[0],
            "partition": move.partition[1],
            "from": move.before and move.before.seat,
            "to": move.after and move.after.seat,
        }
        for move in partitions.moves
    ]


def gap(one: Missing, partitions: Partitions) -> dict[str, object]:
    """Rebalances without notes. `stored` is the group record of __consumer_offsets after the last of them."""
    stored = one.after.stored if one.after is not None else None
    return {
        "kind": "gap",
        "reason": "no_notes" if one.older else "notes_lost",
        "after": moment_or_none(one.after_ms),
        "before": moment_or_none(one.before_ms),
        "from_generation": known(one.from_generation),
        "to_generation": known(one.to_generation),
        "rebalances_at_least": one.least,
        "rebalances_at_most": known(one.most),
        "notes_lost": known(one.notes),
        "cause": None,
        "stored": None
        if stored is None or one.after is None
        else {
            "at": shown_moment(one.after.at_ms),
            "generation": stored.generation,
            "protocol": stored.protocol,
            "leader": stored.leader,
            "members": [
                {"member_id": member.member_id, "instance_id": member.group_instance_id, "client_id": member.client_id}
                for member in stored.members
            ],
        },
        "moved": moved_document(partitions),
    }


def moment_or_none(ms: int) -> str | None:
    return shown_moment(ms) if ms >= 0 else None


def member(one: Came | Went) -> dict[str, object]:
    document: dict[str, object] = {"at": shown_moment(one.at_ms), "member_id": one.member_id, "instance_id": one.instance_id}
    if isinstance(one, Came):
        document |= {"client_id": one.client_id, "host": one.host.removeprefix("/")}
    else:
        document |= {"how": one.how.name.lower() if one.how is not None else None, "since_heartbeat_ms": one.since_heartbeat_ms}
    return {**document, "session_timeout_ms": one.session_ms, "reason": one.reason}


def known(number: int) -> int | None:
    return number if number >= 0 else None


def summary(entries: Sequence[Entry]) -> list[str]:
    """The conclusions from the history."""
    from history.restarts import avoidable

    rebalances = [entry for entry in entries if isinstance(entry, Rebalance)]
    kept = sum(isinstance(entry, Returned) and entry.outcome is Replacement.NO_REBALANCE for entry in entries)
    lines = []
    if kept:
        lines.append(f"{'1 restart' if kept == 1 else f'{kept} restarts'} of static members made no rebalance")
    found = avoidable(entries)
    if found.rebalances:
        which = "the one rebalance" if len(rebalances) == 1 else f"{found.rebalances} of {len(rebalances)} rebalances"
        lines.append(
            f"{which} came from restarts of members without a group.instance.id, away {duration(found.longest_ms)} at most: "
            "with one, and a session timeout above that, there would have been none"
        )
    return lines
