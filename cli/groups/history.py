"""`tenure group history`: the events of a group, from a Tenure broker's notes (records of each event) and the records of `__consumer_offsets`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from shlex import quote
from typing import TYPE_CHECKING, Final

from cli.client import Cluster, Exit, Failure
from cli.groups import history_document, history_shown
from cli.groups.described import describe
from cli.groups.finding import unknown_group
from cli.groups.history_details import NOTHING_KNOWN, Details, seats_kept
from cli.groups.history_reading import GroupLogReader
from cli.groups.offset_formats import time_text
from cli.shown import Role, Screen, plain
from history.conclusion import Inferred
from history.episodes import (
    AbsenceChanged,
    CommitsRefused,
    CoordinatorChanged,
    HeartbeatsLate,
    InstanceRefused,
    MemberJoined,
    MemberRemoved,
    Rebalance,
    RebalancesMissing,
    StandbyChanged,
    StaticReturned,
    at_ms,
)
from history.epoch_notes import EpochNotes, is_of_epochs
from history.epoch_notes import entries_of as entries_of_epochs
from history.epochs import EpochStory, tell
from history.inferred import InferenceCache
from history.moves import Move, moves_of, owners_of
from history.newer import PROPOSALS, understood
from history.order import Order
from history.outages import Outages, as_outage
from history.recorded import RecordedCauses
from history.spells import Spells
from history.story import Story
from history.topic_names import TopicNames

if TYPE_CHECKING:
    from history import Entry
    from history.newer import NewerRecord
    from history.note_records import GroupRecord, NoteRecord
    from protocol.messages.consumer_offsets import GroupMetadataValue

MEMBER_EVENTS: Final = (AbsenceChanged, CommitsRefused, HeartbeatsLate, InstanceRefused, MemberJoined, MemberRemoved, StandbyChanged, StaticReturned)
# Start to read this long before --since, to show a rebalance in progress from its beginning, and to recognize new members.
CONTEXT_MS = 1_800_000


# How long to wait for the notes of the newest records: the broker writes notes a moment after the group's records.
NOTES_WAIT_SECONDS: Final = 1.0
PAUSE_SECONDS: Final = 0.5  # between attempts to follow a log that no broker has at the moment
# A broker that cannot write notes tries again within this time, so the notes of younger records may still follow.
NOTES_LATE_MS: Final = 5_000
NOTES_NOT_WRITTEN_YET: Final = "what happened in the last seconds is left out: the broker has not written its notes yet; try again in a moment"


class HistoryReader:
    """Merges the notes and records of a group in the order of events, and makes the entries of the history from them."""

    def __init__(self, reader: GroupLogReader, since_ms: int | None) -> None:
        self._reader = reader
        self._order = Order()
        cache = InferenceCache(reader.commits)
        self._causes = RecordedCauses(cache, reader.whole)
        self._spells = Spells(cache, reader.epochs_ms)
        self._epochs: EpochStory | None = None  # of the group's times in the consumer protocol
        self._told: list[Entry] = []
        self._epoch_notes = EpochNotes()
        group_records = self._new_group_records()
        # Of the records before --since only the newest is needed: it has the group's state at that time.
        old = [record for record in group_records if since_ms is not None and record.at_ms < since_ms]
        complete = reader.records_complete if since_ms is None else bool(group_records)
        self.story = Story(reader.group, from_start=since_ms is None, records_complete=complete)
        for record in old[-1:]:
            self._fold(record)
        self._notes: list[NoteRecord] = []
        self._group_records = group_records[len(old) :]
        self.has_young_records = False  # whether records were left out because their notes may still be written

    def _new_group_records(self) -> list[GroupRecord]:
        group_records = self._reader.group_records()
        for record in group_records:
            self._causes.generations.add(record)
        self._tell_epochs(group_records, self._reader.newer_records())
        return group_records

    def _tell_epochs(self, group_records: list[GroupRecord], newer: list[NewerRecord]) -> None:
        """Read the new records of the consumer protocol among those of the classic one."""
        if self._epochs is None:
            if not understood(newer):
                return
            names = TopicNames(self._reader.topic_names())
            tell(self._reader.group, group_records, newer, names)  # which learns names that topics had
            self._epochs = EpochStory(self._reader.group, names)
        self._told += self._epochs.add_all(group_records, newer)

    @property
    def has_epochs(self) -> bool:
        return self._epochs is not None

    @property
    def open_rebalance(self) -> Rebalance | None:
        """The one that has not ended, in either protocol."""
        return self.story.open_rebalance or (self._epochs.open_rebalance if self._epochs is not None else None)

    def explain(self, entries: list[Entry]) -> None:
        """Add the causes of notes to rebalances that records tell."""
        for entry in entries:
            self._epoch_notes.explain(entry)

    def finish(self) -> list[Entry]:
        return self.story.finish() + (self._epochs.finish() if self._epochs is not None else [])

    def _take_told(self) -> list[Entry]:
        told, self._told = self._told, []
        return told

    def _fold(self, event: NoteRecord | GroupRecord) -> list[Entry]:
        self._spells.add(event)
        return self.story.add(event)

    def _inferred(self, entry: Rebalance | RebalancesMissing) -> Inferred | None:
        """The cause that the records tell, if notes do not."""
        inferred = self._causes.of(entry)
        if inferred is None or entry.after is None or entry.after.is_target:
            return inferred
        seats = seats_kept(inferred)
        joined, left = ([member.key for member in members if member.member_id not in seats] for members in (inferred.difference.joined, inferred.difference.left))
        return as_outage(inferred) if Outages(self._spells.all).explain(entry.from_generation, entry.after.generation, joined, left) else inferred

    def details(self, entry: Entry) -> Details:
        """What the group's records tell about the entry besides."""
        if not isinstance(entry, Rebalance | RebalancesMissing):
            return NOTHING_KNOWN
        stored = [record.stored for record in (entry.after, entry.before) if record and record.stored]
        protocols = [group.protocol for group in stored if group.protocol]  # an empty group has none
        moves, before_known = moves_of(entry), True
        if moves is None and entry.after is not None and entry.after.stored is not None:
            moves, before_known = unknown_moves(entry.after.stored), False
        return Details(
            moves,
            len({partition for group in stored for partition in owners_of(group) or ()}) if moves is not None else 0,
            protocols[0] if protocols else "",
            before_known,
            self._inferred(entry),
            self._reader.has_notes,
        )

    def entries_of(self, records: Iterable[NoteRecord]) -> list[Entry]:
        """The entries of new notes, and of the group's new records. What was read before a failure is in the next result."""
        for note in records:
            if is_of_epochs(note):
                self._epoch_notes.add(note)
                self._told += entries_of_epochs(note)
            else:
                self._notes.append(note)
        self._group_records += self._new_group_records()
        (notes, group_records), self._notes, self._group_records = (self._notes, self._group_records), [], []
        return [entry for event in self._order.feed(notes, group_records) for entry in self._fold(event)] + self._take_told()

    def entries_so_far(self) -> list[Entry]:
        """The entries of all notes and records so far."""
        entries = self.entries_of(self._reader.read())
        until = time.monotonic() + NOTES_WAIT_SECONDS
        while self._reader.has_notes and (self._order.newest_without_note is not None or self._lacks_epoch_notes(entries)) and time.monotonic() < until:
            entries += self.entries_of(self._reader.wait())
        return entries

    def _lacks_epoch_notes(self, entries: list[Entry]) -> bool:
        """Whether notes of an epoch that has just begun may still be written."""
        now_ms = time.time_ns() // 1_000_000
        opened = self._epochs.open_rebalance if self._epochs is not None else None
        told = [entry for entry in (*entries, opened) if isinstance(entry, Rebalance) and entry.epochs]
        return any(not self._epoch_notes.has(entry.epochs[-1]) and abs(now_ms - entry.began_ms) < NOTES_LATE_MS for entry in told)

    def pending_entries(self) -> list[Entry]:
        """The entries of records whose notes are lost, up to the first young record: its notes may still be written."""
        entries: list[Entry] = []
        now_ms = time.time_ns() // 1_000_000
        for record in self._order.remaining_records():
            # A young record. Deletions do not count, as they have no notes, nor do times far ahead, which another clock wrote.
            if self._reader.has_notes and record.stored is not None and abs(now_ms - record.at_ms) < NOTES_LATE_MS:
                self.has_young_records = True
                break
            entries += self._fold(record)
        return entries


def unknown_moves(stored: GroupMetadataValue) -> list[Move] | None:
    """A move of each partition to its owner, from an unknown one."""
    owners = owners_of(stored)
    return None if owners is None else [Move(partition, None, owner) for partition, owner in sorted(owners.items())]


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    with Cluster.of(options) as cluster:
        reader = GroupLogReader(cluster, options.group)
        since = None if options.since is None else options.since - CONTEXT_MS
        reader.begin(since)
        history = HistoryReader(reader, since)
        entries = history.entries_so_far()
        open_rebalance = history.open_rebalance
        if not options.follow:
            entries += history.pending_entries() + history.finish()
            if history.has_young_records:
                screen.warn(NOTES_NOT_WRITTEN_YET)
        elif not reader.has_notes:
            entries += history.pending_entries()
        history.explain(entries)
        nothing_found = not since_first_event(entries) and open_rebalance is None and not history.has_young_records
        problems = unread_parts(cluster, reader, history, nothing_found=nothing_found and not options.follow)
        if problems and nothing_found and not options.follow:
            raise problems[0]
        print_history(screen, history, sorted(entries, key=at_ms) if history.has_epochs else in_order_of_begin(entries), options)
        code = max(map(screen.fail, problems), default=Exit.DONE)
        if options.follow:
            options.endless = True
            follow(screen, history, reader, cluster)
    return code


def unread_parts(cluster: Cluster, reader: GroupLogReader, history: HistoryReader, *, nothing_found: bool) -> list[Failure]:
    """What of the group's history this command does not read, or may not read. Raises Failure if nothing was found, and there is no such group."""
    problems = []
    if reader.records_problem is not None:
        problem = reader.records_problem
        problems.append(problem.with_line(f"{problem.line}; without the group's records the moved partitions are not known"))
    kind = reader.newer[-1].kind if reader.newer and not history.has_epochs else None
    if nothing_found and not history.has_epochs:
        group = describe(cluster, [reader.group])[reader.group]
        if group is None:
            raise unknown_group(cluster, reader.group)
        kind = kind or (group.type if group.type in PROPOSALS else None)
    if kind is not None:
        since = f" since {time_text(reader.newer[0].at_ms)}" if reader.newer and not nothing_found else ""
        text = f"group {reader.group} is a {kind} group ({PROPOSALS[kind]}){since}: this command does not understand all its records"
        problems.append(Failure(Exit.UNSUPPORTED, text, hint=f"tenure group describe {quote(reader.group)} shows its present state"))
    return problems


def print_history(screen: Screen, history: HistoryReader, entries: list[Entry], options: argparse.Namespace) -> None:
    in_period = entries_since(entries, options.since)
    newest = in_period[-options.limit :] if options.limit else in_period
    if screen.json and options.follow:
        for entry in newest:
            screen.json_line(history_document.document(entry, history.details(entry)))
    elif screen.json:
        documents = [history_document.document(entry, history.details(entry)) for entry in newest]
        screen.document({"group": options.group, "earlier": len(in_period) - len(newest), "entries": documents})
    else:
        show(screen, history, in_period, newest, options)


def show(screen: Screen, history: HistoryReader, in_period: list[Entry], newest: list[Entry], options: argparse.Namespace) -> None:
    if not newest:
        since = f" since {time_text(options.since)}" if options.since is not None else ""
        screen.line(f"group {plain(options.group)} has no history{since}")
        return
    if len(in_period) > len(newest):
        screen.line(screen.paint(f"{len(in_period) - len(newest)} earlier entries are left out (--limit 0 shows all)", Role.DIM))
    for entry in newest:
        history_shown.show(screen, entry, history.details(entry))
    if not options.follow:
        lines = history_shown.summary(in_period)
        if lines:
            screen.line()
        for line in lines:
            screen.line(plain(line))


def in_order_of_begin(entries: list[Entry]) -> list[Entry]:
    """In `entries` a rebalance stands where it ended: move it before the member events that happened during the rebalance."""
    ordered: list[Entry] = []
    for entry in entries:
        at = len(ordered)
        if isinstance(entry, Rebalance):
            while at and isinstance(ordered[at - 1], MEMBER_EVENTS) and at_ms(ordered[at - 1]) > entry.began_ms:
                at -= 1
        ordered.insert(at, entry)
    return ordered


def since_first_event(entries: list[Entry]) -> list[Entry]:
    """Leave out the coordinator changes before the first event of the group."""
    first = next((at for at, entry in enumerate(entries) if not isinstance(entry, CoordinatorChanged)), len(entries))
    return entries[first:]


def entries_since(entries: list[Entry], since_ms: int | None) -> list[Entry]:
    """Those that ended then or later, without the coordinator changes before the group's first event; None: from the beginning."""
    shown = since_first_event(entries)
    return shown if since_ms is None else [entry for entry in shown if last_ms(entry) >= since_ms]


def last_ms(entry: Entry) -> int:
    match entry:
        case Rebalance():
            return max(entry.began_ms, entry.ended_ms)
        case RebalancesMissing():
            return entry.before_ms
    return at_ms(entry)


def follow(screen: Screen, history: HistoryReader, reader: GroupLogReader, cluster: Cluster) -> None:
    """Print new entries until an interrupt. While no broker has the logs, say so once, and wait for one."""
    last_begun: Rebalance | None = None
    reported = False
    while True:
        cluster.patience.renew()
        try:
            entries = history.entries_of(reader.wait())
        except Failure as trouble:
            if trouble.exit_code not in (Exit.UNREACHABLE, Exit.AGAIN):
                raise
            if not reported:
                screen.warn(f"{trouble.line}; the history goes on when a broker has the group's log again")
            reported = True
            time.sleep(PAUSE_SECONDS)
            continue
        reported = False
        if not reader.has_notes:
            entries += history.pending_entries()
        history.explain(entries)
        for entry in entries:
            print_entry(screen, history, entry)
        open_rebalance = history.open_rebalance
        if open_rebalance is not None and open_rebalance is not last_begun:
            last_begun = open_rebalance
            if not screen.json:
                history_shown.show_begun(screen, open_rebalance)
        screen.out.flush()


def print_entry(screen: Screen, history: HistoryReader, entry: Entry) -> None:
    if screen.json:
        screen.json_line(history_document.document(entry, history.details(entry)))
    else:
        history_shown.show(screen, entry, history.details(entry))
