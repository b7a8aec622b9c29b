"""What happened to groups, for people: a line in the log for each change of state, and records of __coordinator_notes, which also say
where partitions of topics ended (`topics/end_offset_notes.py`).

Records are gathered and appended by a timer, never on the way of a reply. Losing one loses evidence, never a commit: what
cannot be written is counted, said once, and told by the next note that can.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from broker.groups.group_journal import GroupJournal
from broker.internal_topics import NOTES_LOG
from broker.logging.logs import log
from broker.runtime.clock import Clock
from broker.runtime.contain import Contained
from coordinator import Fact, Note, facts_bytes
from coordinator.hold import BATCH_OVERHEAD_BYTES
from coordinator.notes import Cause, Coordinator, Kind
from coordinator.states import State
from protocol.batch import build_facts
from protocol.messages.coordinator_notes import CoordinatorChange, EndOffsets, NoteHeader, NoteKey, StateChange
from protocol.records import NOTE_KEY_VERSION, with_version, write_note
from storage import AppendFailed, HeldBy, LogId, LogStore, OwnedLog, Unreadable

GATHER_MS = 200
RETRY_MS = 5_000
# Written in one go: some milliseconds. What is left comes soon after.
NOTES_AT_ONCE = 500
MORE_MS = 10
# Waiting for all logs together; beyond it notes are lost, and counted.
NOTES_WAITING_MAX = 20_000
BATCH_BYTES_MAX = 1 << 20

STATES = {state.value: state.name.lower() for state in State}
CAUSES = {cause.value: cause.name.lower() for cause in Cause}


class Waiting(NamedTuple):
    note: Note
    epoch: int
    offset: int


class NotesLog:
    """The notes of one partition, on their way."""

    def __init__(self, partition: int) -> None:
        self.id = LogId(NOTES_LOG, partition)
        self.owned: OwnedLog | None = None
        self.asked = False  # for the log, or for writing to work again
        self.try_at = 0
        self.waiting: deque[Waiting] = deque()
        self.lost = 0  # since the last one that was written
        self.epoch = -1
        self.seq = 0  # of the next note of that epoch

    def record(self, waiting: Waiting, lost: int) -> Fact:
        """Numbers have no gap within an epoch: what was lost is in `dropped`."""
        note = waiting.note
        if waiting.epoch != self.epoch:
            self.epoch = waiting.epoch
            self.seq = 0
        header = NoteHeader(
            note.kind,
            note.at_ms,
            self.seq,
            waiting.epoch,
            note.generation,
            note.state,
            waiting.offset,
            note.dropped + lost,
            note.counted_from,
            note.number,
        )
        self.seq += 1
        return with_version(NoteKey(note.group_id), NOTE_KEY_VERSION), write_note(header, note.body)


class Notes:
    """All notes of this node (`group_journal.Telling`)."""

    def __init__(self, store: LogStore, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._store = store
        self._loop = loop
        self._clock = clock
        self._logs: dict[int, NotesLog] = {}
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None
        self._failing = False  # said so
        self._done: Callable[[], None] | None = None  # who waits for the last ones
        self._closed = False

    # What shards say.

    def tell(self, journal: GroupJournal, notes: list[Note], offset: int) -> None:
        for note in notes:
            if note.kind == Kind.STATE_CHANGE:
                log_change(note)
            self._gather(journal, note, offset)

    def tell_change(self, journal: GroupJournal, what: Coordinator) -> None:
        """About the partition itself; nothing is told of one that has never had anything in it."""
        if what == Coordinator.LOADED and not journal.replayed:
            return
        if what == Coordinator.UNLOADED and not (journal.replayed or journal.partition in self._logs):
            return
        replayed = journal.replayed if what in (Coordinator.LOADED, Coordinator.RESUMED) else 0
        body = CoordinatorChange(what, journal.epoch, journal.load_ms if replayed else 0, len(journal.shard.groups), replayed)
        ends = what in (Coordinator.UNLOADED, Coordinator.SUSPENDED)  # its groups count anew when it is loaded again
        dropped = sum(group.notes_dropped for group in journal.shard.groups.values()) if ends else 0
        self._gather(journal, Note("", Kind.COORDINATOR, self._clock.wall, 0, State.EMPTY, body, dropped), -1)

    def tell_ends(self, journal: GroupJournal, ends: EndOffsets) -> bool:
        """About a topic, whose place is that of a group of its name. False: not now, for groups need the room, or nothing can be written."""
        notes = self._logs.get(journal.partition)
        waits = notes is not None and (self._clock.tick() < notes.try_at or notes.lost > 0)
        if journal.refusal or waits or self._waiting >= NOTES_WAITING_MAX // 2 or self._done is not None or self._closed:
            return False
        self._gather(journal, Note("", Kind.END_OFFSETS, self._clock.wall, 0, State.EMPTY, ends), -1)
        return True

    def _gather(self, journal: GroupJournal, note: Note, offset: int) -> None:
        notes = self._log(journal.partition)
        if self._waiting >= NOTES_WAITING_MAX:
            notes.lost += 1
            return
        notes.waiting.append(Waiting(note, journal.epoch, offset))
        self._waiting += 1
        self._write_in(GATHER_MS)

    def _log(self, partition: int) -> NotesLog:
        notes = self._logs.get(partition)
        if notes is None:
            notes = self._logs[partition] = NotesLog(partition)
        return notes

    def check(self, partitions: list[int]) -> None:
        """Open these, one after the other: after a crash every log has to be looked at once."""
        if not partitions or self._done is not None or self._closed:
            return
        first, *others = partitions
        notes = self._log(first)

        def opened(result: OwnedLog | HeldBy | Unreadable) -> None:
            self._acquired(notes, result)
            self.check(others)

        if notes.owned is None and not notes.asked:
            notes.asked = True
            self._store.acquire(notes.id, opened)
        else:
            self.check(others)

    def open(self, partition: int) -> None:
        """Somebody wants to read them."""
        notes = self._log(partition)
        if notes.owned is None and not notes.asked and self._done is None and not self._closed and self._clock.tick() >= notes.try_at:
            notes.asked = True
            self._store.acquire(notes.id, partial(self._acquired, notes))

    # The way to the logs.

    def _write_in(self, ms: int) -> None:
        if self._timer is None and self._done is None and not self._closed:
            self._timer = self._loop.call_later(ms / 1000, Contained(self._write_some, partial(self._write_in, RETRY_MS)))

    def _write_some(self) -> None:
        self._timer = None
        left = NOTES_AT_ONCE
        now = self._clock.tick()
        for notes in self._logs.values():
            if notes.waiting and self._ready(notes, now):
                left -= self._write(notes, left)
                if left <= 0:
                    break
        if self._waiting:
            self._write_in(GATHER_MS if left > 0 else MORE_MS)

    def _ready(self, notes: NotesLog, now: int) -> bool:
        """Its log is ours and can be written; otherwise that is asked for, and it gets its turn later."""
        owned = notes.owned
        if owned is not None and owned.usable():
            return True
        if not (notes.asked or self._closed) and now >= notes.try_at:
            notes.asked = True
            if owned is None:
                self._store.acquire(notes.id, partial(self._acquired, notes))
            else:
                owned.recover(partial(self._recovered, notes))
        return notes.owned is not None and notes.owned.usable()

    def _acquired(self, notes: NotesLog, result: OwnedLog | HeldBy | Unreadable) -> None:
        notes.asked = False
        if isinstance(result, HeldBy | Unreadable):
            self._refused(notes, result.who if isinstance(result, HeldBy) else result.reason)
        else:
            notes.owned = result
        self._write_last_if_asked()

    def _recovered(self, notes: NotesLog, failure: AppendFailed | None) -> None:
        notes.asked = False
        if failure is not None:
            self._refused(notes, str(failure))
        self._write_last_if_asked()

    def _write_last_if_asked(self) -> None:
        if self._done is not None:
            self._write_last()

    def _refused(self, notes: NotesLog, reason: str) -> None:
        notes.lost += len(notes.waiting)
        self._waiting -= len(notes.waiting)
        notes.waiting.clear()
        notes.try_at = self._clock.tick() + RETRY_MS
        if not self._failing:
            self._failing = True
            log.warning("notes are lost", log=str(notes.id), reason=reason)

    def _write(self, notes: NotesLog, most: int) -> int:
        """One batch; how many notes went into it."""
        assert notes.owned is not None
        lost, notes.lost = notes.lost, 0
        before = notes.epoch, notes.seq
        facts: list[Fact] = []
        size = BATCH_OVERHEAD_BYTES
        while notes.waiting and len(facts) < most and size < BATCH_BYTES_MAX:
            fact = notes.record(notes.waiting.popleft(), lost if not facts else 0)
            size += facts_bytes([fact])
            facts.append(fact)
        self._waiting -= len(facts)

        def appended(result: int | AppendFailed) -> None:
            if isinstance(result, AppendFailed):
                notes.lost += lost + len(facts)
                notes.epoch, notes.seq = before
                self._refused(notes, str(result))
            elif self._failing:
                self._failing = False
                log.info("notes are written again", log=str(notes.id))

        notes.owned.append(build_facts(facts, self._clock.wall), len(facts), appended)
        return len(facts)

    def close(self, done: Callable[[], None]) -> None:
        """Write the last ones; `done` is called when there is nothing left to wait for."""
        self._done = done
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._write_last()

    def _write_last(self) -> None:
        for notes in self._logs.values():
            # A new log is acquired at once, and then its notes are written before `_ready` returns.
            while notes.waiting and self._ready(notes, self._clock.now) and notes.waiting:
                self._write(notes, NOTES_AT_ONCE)
        if self._done is not None and not any(notes.asked for notes in self._logs.values()):
            done, self._done = self._done, None
            self._closed = True
            done()


def log_change(note: Note) -> None:
    change = note.body
    assert isinstance(change, StateChange)
    log.info(
        "group",
        group=note.group_id,
        **{"from": STATES[change.from_state]},
        to=STATES[change.to_state],
        generation=note.generation,
        cause=CAUSES[change.reason],
        member=change.reason_text,
        members=change.members,
    )
