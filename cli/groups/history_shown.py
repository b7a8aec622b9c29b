"""Print a history: one block for each rebalance, one line for any other event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cli.client import failure, name_of
from cli.groups.history_details import NOTHING_KNOWN, Details, members_around, seats_kept
from cli.groups.offset_formats import time_text
from cli.shown import Role, Screen, counted, plain
from coordinator.notes import Replacement, ShardChange, StandbyStep
from history.causes import CAUSES, REMOVALS
from history.episodes import (
    AbsenceChanged,
    CommitsRefused,
    CoordinatorChanged,
    End,
    GroupDeleted,
    Handover,
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
from history.moves import list_partitions
from history.words import (
    describe_end,
    describe_join,
    describe_removal,
    describe_return,
    format_duration,
    host,
    list_names,
    reasons,
    removals_in_title,
    short_name,
    title,
    trigger_name,
)

if TYPE_CHECKING:
    from history import Entry, GroupRecord
    from history.compared import MemberIdentity
    from history.conclusion import Inferred
    from history.shared_ids import SharedId

SLOW_MS = 1_000  # from this time on, members that gave partitions up are named
LONG_MS = 10_000  # mark a rebalance that took this long
LABEL_WIDTH = 8
MOVES_SHOWN = 12

COORDINATOR_TEXTS = {
    ShardChange.LOADED: "the coordinator was started, or took over: {groups} of this partition loaded in {load}",
    ShardChange.UNLOADED: "the coordinator was stopped",
    ShardChange.SUSPENDED: "the coordinator was suspended: its log could not be written",
    ShardChange.RESUMED: "the coordinator resumed",
}




def show(screen: Screen, entry: Entry, details: Details = NOTHING_KNOWN) -> None:
    if isinstance(entry, RebalancesMissing):
        if entry.after is not None and details.inferred is not None:
            show_recorded(screen, entry, entry.after, details, details.inferred)
        else:
            show_missing(screen, entry, details)
        return
    if not isinstance(entry, Rebalance):
        text, role = sentence(entry)
        screen.line(f"{when(screen, entry.at_ms)}  {screen.paint(plain(text), role)}")
        return
    screen.line(f"{when(screen, entry.began_ms)}  {headline(screen, entry)}")
    for label, text in detail_lines(entry, details):
        screen.line(f"  {screen.paint(label.ljust(LABEL_WIDTH), Role.DIM)}  {plain(text)}")


def show_missing(screen: Screen, entry: RebalancesMissing, details: Details) -> None:
    at = entry.after.at_ms if entry.after is not None else entry.before_ms if entry.before_ms >= 0 else entry.after_ms
    screen.line(f"{when(screen, at)}  {screen.paint(missing_text(entry, notes_kept=details.notes_kept), Role.CAREFUL)}")
    lines = []
    if entry.after_ms >= 0 and entry.before_ms > entry.after_ms:
        lines.append(("between", f"{time_text(entry.after_ms)} and {time_text(entry.before_ms)}"))
    if entry.after is not None and entry.after.stored is not None:
        members = [short_name(member.member_id, member.group_instance_id) for member in entry.after.stored.members]
        members_text = f"with {counted(len(members), 'member')}: {list_names(members)}" if members else "without members"
        lines.append(("stored", f"generation {entry.after.generation} {members_text}"))
    lines += move_lines(details)
    if details.moves is None:
        lines.append(("moved", "unknown"))
    for label, text in lines:
        screen.line(f"  {screen.paint(label.ljust(LABEL_WIDTH), Role.DIM)}  {plain(text)}")


def show_recorded(screen: Screen, entry: RebalancesMissing, after: GroupRecord, details: Details, inferred: Inferred) -> None:
    """A rebalance without notes, between two records of the group."""
    generations = f"generation {entry.from_generation if entry.from_generation >= 0 else '?'} -> {entry.to_generation}"
    screen.line(f"{when(screen, after.at_ms)}  {screen.paint('rebalance', Role.CAREFUL)}, {generations}, duration unknown")
    lines = [("why", inferred_text(inferred))]
    seats = seats_kept(inferred)
    lines += [("joined", describe_identity(member)) for member in inferred.difference.joined if member.member_id not in seats]
    lines += [("gone", short_name(*member[:2])) for member in inferred.difference.left if member.member_id not in seats]
    lines += [("back", f"{describe_identity(new)}, under another member id") for old, new in inferred.difference.returned if new.member_id in seats]
    before, now = members_around(entry, after)
    if before != now or seats or inferred.difference.joined or inferred.difference.left:
        lines.append(("members", f"{before} -> {now}"))
    lines += move_lines(details)
    if before and now:
        lines.append(("stopped", stopped_text(details)))
    if not now:
        lines.append(("end", "no member remains"))
    if details.notes_kept:
        lines.append(("lost", "there are no notes from then" if entry.older else "its notes were lost"))
    for label, text in lines:
        screen.line(f"  {screen.paint(label.ljust(LABEL_WIDTH), Role.DIM)}  {plain(text)}")


def inferred_text(inferred: Inferred) -> str:
    return f"{inferred.evidence} (inferred from records, {inferred.confidence})"


def describe_identity(member: MemberIdentity) -> str:
    return f"{short_name(member.member_id, member.instance_id)} ({member.client_id or 'no client id'} on {host(member.host)})"


def missing_text(entry: RebalancesMissing, *, notes_kept: bool = True) -> str:
    """A line such as `one rebalance is missing here: generation 1 -> 2, its notes were lost`."""
    if entry.count_min == entry.count_max:
        count = "one rebalance is" if entry.count_min == 1 else f"{entry.count_min} rebalances are"
    elif entry.count_min == 0:
        count = "one rebalance may be" if entry.count_max == 1 else f"up to {entry.count_max} rebalances may be" if entry.count_max > 0 else "rebalances may be"
    elif entry.count_max > 0:
        count = f"between {entry.count_min} and {entry.count_max} rebalances are"
    else:
        count = f"at least {'one rebalance is' if entry.count_min == 1 else f'{entry.count_min} rebalances are'}"
    known_ends = [str(number) if number >= 0 else "?" for number in (entry.from_generation, entry.to_generation)]
    generations = f"generation {known_ends[0]} -> {known_ends[1]}, " if known_ends != ["?", "?"] else ""
    if entry.after is not None and entry.after.newer_since_ms >= 0:
        reason = "the group used a newer protocol meanwhile"
    elif not notes_kept:
        reason = "the records from then were compacted"
    else:
        reason = "there are no notes from then" if entry.older else f"{entry.notes} notes were lost" if entry.notes > 0 else "the notes were lost"
    return f"{count} missing here: {generations}{reason}"


def show_begun(screen: Screen, entry: Rebalance) -> None:
    """Print the beginning of a rebalance that has not ended, for --follow."""
    screen.line(f"{when(screen, entry.began_ms)}  {screen.paint('rebalance begins', Role.CAREFUL)}: {plain(title(entry))}")


def when(screen: Screen, ms: int) -> str:
    return screen.paint(time_text(ms), Role.STRONG)


def headline(screen: Screen, entry: Rebalance) -> str:
    if entry.end is End.OPEN:
        return screen.paint("rebalance in progress", Role.CAREFUL)
    parts = [screen.paint("rebalance", Role.CAREFUL)]
    if entry.to_generation >= 0:
        parts.append(f"{'epoch' if entry.of_epochs else 'generation'} {entry.from_generation if entry.from_generation >= 0 else '?'} -> {entry.to_generation}")
    took = f"took {format_duration(entry.duration_ms)}" if entry.duration_ms >= 0 else "duration unknown"
    parts.append(screen.paint(took, Role.BAD if entry.duration_ms >= LONG_MS else None))
    if entry.rounds > 1:
        parts.append(screen.paint(f"in {entry.rounds} rounds", Role.CAREFUL))
    return ", ".join(parts)


def detail_lines(entry: Rebalance, details: Details) -> list[tuple[str, str]]:
    lines = [("why", cause_text(entry, details))]
    lines += [("", reason) for reason in reasons(entry)]
    if entry.restart_causes:
        lines += [("again", f"restarted: {CAUSES[cause].title}") for cause in dict.fromkeys(entry.restart_causes)]
    lines += [("joined", describe_join(member)) for member in entry.joined]
    lines += [("joined", f"{describe_join(member)}, as a new or known member") for member in entry.joins if member.was_member is None]
    titled = removals_in_title(entry)
    lines += [("gone", describe_removal(member)) for member in entry.removals if member not in titled]
    lines += [("back", describe_return(member)) for member in entry.returns]
    lines += wait_lines(entry)
    if min(entry.members_before, entry.members_after) >= 0 and (entry.members_before != entry.members_after or entry.joined or entry.removals):
        lines.append(("members", f"{entry.members_before} -> {entry.members_after}"))
    if entry.assignor:
        lines.append(("assigned", f"by {entry.assignor}"))
    lines += moved_lines(entry, details)
    if describe_end(entry):
        lines.append(("end", describe_end(entry)))
    if entry.missing_notes > 0:
        lines.append(("lost", f"{'1 note' if entry.missing_notes == 1 else f'{entry.missing_notes} notes'} were dropped: more happened than is shown here"))
    elif entry.missing_notes or not entry.begin_known:
        lines.append(("lost", "notes are missing: more may have happened than is shown here"))
    return lines


def cause_text(entry: Rebalance, details: Details) -> str:
    """The cause of a rebalance. The second step of a cooperative rebalance shows only in the moves of partitions, not in the notes."""
    rejoined = entry.cause is not None and CAUSES[entry.cause].rejoin
    if rejoined and details.cooperative and details.moves and all(move.before is None for move in details.moves):
        who = trigger_name(entry) or "a member"
        return f"{who} joined again, and partitions without an owner were assigned ({details.protocol})"
    if entry.cause is None and details.inferred is not None:
        return inferred_text(details.inferred) if entry.told is not None else f"{inferred_text(details.inferred)}: the notes of its beginning are missing"
    return title(entry)


def wait_lines(entry: Rebalance) -> list[tuple[str, str]]:
    """The members that the rebalance waited for."""
    if entry.laggards and entry.rounds == 1 and entry.join_ms >= 0:
        return [("waited", f"{format_duration(entry.join_ms)} for {list_names(short_name(id) for id in entry.laggards)}, which did not join")]
    if entry.of_epochs:
        return [("waited", handover_text(handover)) for handover in entry.handovers if handover.given_ms < 0 or handover.given_ms - handover.told_ms >= SLOW_MS]
    last = entry.last_joiner
    if last is not None:
        return [("waited", f"{format_duration(last.at_ms - entry.began_ms)} for {short_name(last.member_id, last.instance_id)}, the last to join")]
    return []


def handover_text(handover: Handover) -> str:
    holder = short_name(handover.member_id, handover.instance_id)
    since = f"{format_duration(handover.given_ms - handover.told_ms)} for" if handover.given_ms >= 0 else f"since {time_text(handover.told_ms)} for"
    waiting = list_names(short_name(key) for key in handover.waiting)
    return f"{since} {holder}, which was told to give up {list_partitions(handover.partitions)}{f' for {waiting}' if waiting else ''}"


def moved_lines(entry: Rebalance, details: Details) -> list[tuple[str, str]]:
    if entry.end is End.OPEN:
        return []
    if details.moves is None or not details.before_known:
        return [("moved", "unknown")] if entry.missing_notes or not entry.begin_known else []
    lines = move_lines(details)
    if entry.from_state is not None and entry.from_state.name == "STABLE" and entry.members_after > 0:
        if entry.stopped_ms >= 0:
            stopped = [move for move in details.moves if move.before is not None]
            each = f": {counted(len(stopped), 'partition')}, {format_duration(entry.stopped_ms // max(len(stopped), 1))} each on average"
            return [*lines, ("stopped", f"only what moved{each}")]
        lines.append(("stopped", stopped_text(details, f", for {format_duration(entry.duration_ms)} at most" if entry.duration_ms >= 0 else "")))
    return lines


def stopped_text(details: Details, longest: str = "") -> str:
    if details.cooperative:
        return f"only the moved partitions ({details.protocol})"
    return f"every partition{longest} ({details.protocol}: members give up all partitions)"


def move_lines(details: Details) -> list[tuple[str, str]]:
    if details.moves is None:
        return []
    stayed = details.total - len(details.moves) if details.before_known else 0
    lines = []
    changes: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for move in details.moves:
        before = short_name(move.before.member_id, move.before.instance_id) if move.before else "no member" if details.before_known else "unknown"
        after = short_name(move.after.member_id, move.after.instance_id) if move.after else "no member"
        changes.setdefault((before, after), []).append(move.partition)
    for number, ((before, after), where) in enumerate(changes.items()):
        if number == MOVES_SHOWN:
            lines.append(("", f"... and {len(changes) - number} more changes (--json has all)"))
            break
        lines.append(("moved" if not number else "", f"{list_partitions(where)}: {before} -> {after}"))
    if not lines:
        lines.append(("moved", f"nothing: {counted(stayed, 'partition')} stayed" if stayed else "nothing: no member has a partition"))
    elif stayed:
        lines.append(("", f"{counted(stayed, 'partition')} stayed"))
    return lines


def sentence(entry: Entry) -> tuple[str, Role | None]:
    match entry:
        case StaticReturned():
            return describe_return(entry), Role.GOOD if entry.outcome is Replacement.NO_REBALANCE else None
        case MemberJoined():
            return f"{describe_join(entry)} joined", None
        case MemberRemoved():
            alone = entry.cause is not None and REMOVALS[entry.cause].alone
            return f"{describe_removal(entry)}; no other member was affected" if alone else describe_removal(entry), Role.DIM if alone else None
        case CommitsRefused():
            who = short_name(entry.member_id, entry.instance_id)
            reason = failure(entry.error_code, "").line.removeprefix(": ")
            times = "a commit" if entry.times == 1 else f"{entry.times} commits"
            epochs = f", with epoch {entry.sent_epoch} in place of {entry.member_epoch}" if min(entry.sent_epoch, entry.member_epoch) >= 0 else ""
            return f"{times} of {who} refused{epochs}: {reason} ({name_of(entry.error_code)})", Role.CAREFUL
        case AbsenceChanged():
            who = short_name(entry.member_id, entry.instance_id)
            if entry.back:
                return f"{who} is back after {format_duration(entry.away_ms)} away and keeps its seat", Role.GOOD
            return f"{who} is away; its seat is reserved", Role.CAREFUL
        case StandbyChanged():
            return standby_text(entry)
        case InstanceRefused():
            who = entry.instance_id or f"{entry.client_id}, which has no instance id,"
            return f"{who} at {entry.host.removeprefix('/')} was refused: it is not in the strict list of instances ({entry.listed})", Role.CAREFUL
        case HeartbeatsLate():
            gaps = list_names(f"{short_name(key)} ({format_duration(longest)})" for key, longest, _ in entry.gaps)
            return f"heartbeats came late, close to the session timeout: {gaps}", Role.CAREFUL
        case CoordinatorChanged():
            text = COORDINATOR_TEXTS.get(entry.change, "the coordinator changed") if entry.change is not None else "the coordinator changed"
            groups = "1 group" if entry.groups == 1 else f"{entry.groups} groups"
            text = text.format(groups=groups, load=format_duration(entry.load_ms))
            if entry.change is ShardChange.UNLOADED and entry.to_node >= 0:
                text = f"the coordinator handed this partition to node {entry.to_node}{', because its own node was drained' if entry.drained else ''}"
            if entry.orderly is False:
                return f"{text}; its predecessor was not stopped in order: the last notes may be missing", Role.CAREFUL
            if entry.dropped:
                return f"{text}; {entry.dropped} notes of its groups were dropped", Role.CAREFUL
            return text, Role.DIM
        case NotesMissing():
            count = "notes" if entry.notes < 0 else "1 note" if entry.notes == 1 else f"{entry.notes} notes"
            return f"{count} before this {'may be' if entry.notes < 0 else 'are'} missing: more {'may have ' if entry.notes < 0 else ''}happened than is shown here", Role.CAREFUL
        case GroupDeleted():
            if entry.recorded:
                return "the group was deleted or expired; its generations restart", Role.CAREFUL
            return "the group's generations restart: it was deleted or expired, or its log was reset to an earlier state", Role.CAREFUL
        case RebalancesMissing():
            return missing_text(entry), Role.CAREFUL
        case Rebalance():
            return title(entry), None


def standby_text(entry: StandbyChanged) -> tuple[str, Role | None]:
    name = short_name(entry.member_id, entry.instance_id)
    seat = f"the seat of {short_name(entry.from_id or '', entry.from_instance)}"
    match entry.step:
        case StandbyStep.WAITS:
            return f"{name} is a standby", None
        case StandbyStep.TAKES_OVER:
            return f"the standby {name} took {seat}, without a rebalance", Role.GOOD
        case StandbyStep.TOOK_OVER:
            return f"{name} reads the partitions of {seat}, {format_duration(entry.after_ms)} after it became free", Role.GOOD
        case StandbyStep.TOO_LATE:
            return f"the standby {name} did not fetch the assignment of {seat} within its session timeout, and waits again", Role.CAREFUL
        case StandbyStep.GONE:
            return f"the standby {name} was removed, without a rebalance", None
    return f"{name}: a change of standbys from a newer version", None


def summary(entries: Sequence[Entry]) -> list[str]:
    """Conclusions from the history: instance ids in use twice, restarts bridged, and rebalances that static membership would have avoided."""
    from history.restarts import avoidable
    from history.shared_ids import shared_ids

    rebalances = [entry for entry in entries if isinstance(entry, Rebalance)]
    shared = shared_ids(entries)
    lines = [shared_id_text(id) for id in shared]
    fought_over = {id.instance_id for id in shared}
    returns = [entry for entry in entries if isinstance(entry, StaticReturned) and entry.instance_id not in fought_over]
    bridged = sum(back.outcome is Replacement.NO_REBALANCE for back in returns)
    if bridged:
        lines.append(f"{counted(bridged, 'restart')} of static members caused no rebalance")
    avoided = avoidable(entries)
    if avoided.rebalances:
        share = "the one rebalance" if len(rebalances) == 1 else f"{avoided.rebalances} of {len(rebalances)} rebalances"
        lines.append(
            f"{share} came from restarts of members without a group.instance.id, away {format_duration(avoided.longest_ms)} at most: "
            "with an id and a longer session timeout there would have been none"
        )
    return lines


def shared_id_text(shared: SharedId) -> str:
    text = f"{shared.instance_id} returned {shared.returns} times within {format_duration(shared.period_ms)}"
    if shared.places:
        return f"{text}, alternately from {list_names(host(place) for place in shared.places)}: two processes use this group.instance.id, and fence each other"
    return f"{text}: two processes use this group.instance.id and fence each other, or its process is restarted in a loop"
