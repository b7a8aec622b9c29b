"""Write notes about groups, for people: log lines of state changes, and records of __coordinator_notes, which also hold the end
offsets of topic partitions (`topics/end_offset_notes.py`).

Notes are collected and appended by a timer, so that no reply waits for them. A lost note is never a lost commit: lost notes are
counted, logged once, and reported in the next note that is written.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from broker.groups.change_log import ChangeLog
from broker.groups.group_journal import GroupJournal
from broker.internal_topics import NOTES_LOG
from broker.logging.logs import log
from broker.runtime.clock import Clock
from broker.runtime.contain import Contained
from coordinator import Fact, Note, facts_bytes
from coordinator.hold import BATCH_OVERHEAD_BYTES
from coordinator.notes import Coordinator, Kind
from coordinator.states import State
from protocol.batch import build_facts
from protocol.messages.coordinator_notes import CoordinatorChange, EndOffsets, NoteHeader, NoteKey
from protocol.records import NOTE_KEY_VERSION, with_version, write_note
from storage import AppendFailed, HeldBy, LogId, LogStore, OwnedLog, Unreadable

GATHER_MS = 200
RETRY_MS = 5_000
LEAVE_MS = 20  # between two looks at a log that is being opened while its partition is given up
# One pass writes so many notes, within some milliseconds; the next pass follows MORE_MS later.
NOTES_AT_ONCE = 500
MORE_MS = 10
# Of all logs together; further notes are lost and counted.
NOTES_WAITING_MAX = 20_000
BATCH_BYTES_MAX = 1 << 20


class Waiting(NamedTuple):
    note: Note
    epoch: int
    offset: int


class NotesLog:
    """The notes of one partition that wait to be written, and their log."""

    def __init__(self, partition: int) -> None:
        self.id = LogId(NOTES_LOG, partition)
        self.owned: OwnedLog | None = None
        self.opening = False  # the log is being acquired or recovered
        self.try_at = 0
        self.waiting: deque[Waiting] = deque()
        self.lost = 0  # since the last written note
        self.epoch = -1
        self.seq = 0  # of the next note in that epoch

    def record(self, waiting: Waiting, lost: int) -> Fact:
        """Encode a note. Sequence numbers have no gaps within an epoch; `dropped` counts lost notes."""
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
    """The NoteWriter of this node."""

    def __init__(self, store: LogStore, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._store = store
        self._loop = loop
        self._clock = clock
        self._changes = ChangeLog(loop, clock)
        self._logs: dict[int, NotesLog] = {}
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None
        self._failing = False  # the failure was logged
        self._done: Callable[[], None] | None = None  # called when the last notes are written
        self._closed = False
        self.observers: list[Callable[[GroupJournal, Note], None]] = []  # called for each note, before it is stored

    def write(self, journal: GroupJournal, notes: list[Note], offset: int) -> None:
        for note in notes:
            if note.kind == Kind.STATE_CHANGE:
                self._changes.add(note)
            self._gather(journal, note, offset)

    def write_change(self, journal: GroupJournal, change: Coordinator) -> None:
        """Note a change of the partition itself, unless it never held any record."""
        if change == Coordinator.LOADED and not journal.replayed:
            return
        if change == Coordinator.UNLOADED and not (journal.replayed or journal.partition in self._logs):
            return
        replayed = journal.replayed if change in (Coordinator.LOADED, Coordinator.RESUMED) else 0
        body = CoordinatorChange(change, journal.epoch, journal.load_ms if replayed else 0, len(journal.shard.groups), replayed)
        ends = change in (Coordinator.UNLOADED, Coordinator.SUSPENDED)  # a later load resets the groups' counts
        dropped = sum(group.notes_dropped for group in journal.shard.groups.values()) if ends else 0
        self._gather(journal, Note("", Kind.COORDINATOR, self._clock.wall, 0, State.EMPTY, body, dropped), -1)

    def write_ends(self, journal: GroupJournal, ends: EndOffsets) -> bool:
        """Note end offsets of a topic, in the partition of a group of that name. False: not now; notes of groups go first."""
        notes = self._logs.get(journal.partition)
        waits = notes is not None and (self._clock.tick() < notes.try_at or notes.lost > 0)
        if journal.refusal or waits or self._waiting >= NOTES_WAITING_MAX // 2 or self._done is not None or self._closed:
            return False
        self._gather(journal, Note("", Kind.END_OFFSETS, self._clock.wall, 0, State.EMPTY, ends), -1)
        return True

    def _gather(self, journal: GroupJournal, note: Note, offset: int) -> None:
        for observer in self.observers:
            observer(journal, note)
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
        """Open these logs one after another: after a crash every log must be checked once."""
        if not partitions or self._done is not None or self._closed:
            return
        first, *others = partitions
        notes = self._log(first)

        def opened(result: OwnedLog | HeldBy | Unreadable) -> None:
            self._acquired(notes, result)
            self.check(others)

        if notes.owned is None and not notes.opening:
            notes.opening = True
            self._store.acquire(notes.id, opened)
        else:
            self.check(others)

    def open(self, partition: int) -> None:
        """Open the log for a consumer."""
        notes = self._log(partition)
        if notes.owned is None and not notes.opening and self._done is None and not self._closed and self._clock.tick() >= notes.try_at:
            notes.opening = True
            self._store.acquire(notes.id, partial(self._acquired, notes))

    def leave(self, partition: int, done: Callable[[], None]) -> None:
        """Write the notes that wait, and give the log up: another node takes the partition over."""
        notes = self._logs.get(partition)
        if notes is None:
            done()
            return
        if notes.opening:
            self._loop.call_later(LEAVE_MS / 1000, Contained(self.leave, done), partition, done)
            return
        while notes.waiting and self._ready(notes, self._clock.tick()) and notes.waiting:
            self._write(notes, NOTES_AT_ONCE)
        if notes.opening:
            self._loop.call_later(LEAVE_MS / 1000, Contained(self.leave, done), partition, done)
            return
        self._waiting -= len(notes.waiting)
        del self._logs[partition]
        if notes.owned is not None:
            notes.owned.release()
        done()

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
        """Whether the log can be written now; if not, start acquiring or recovering it."""
        owned = notes.owned
        if owned is not None and owned.usable():
            return True
        if not (notes.opening or self._closed) and now >= notes.try_at:
            notes.opening = True
            if owned is None:
                self._store.acquire(notes.id, partial(self._acquired, notes))
            else:
                owned.recover(partial(self._recovered, notes))
        return notes.owned is not None and notes.owned.usable()

    def _acquired(self, notes: NotesLog, result: OwnedLog | HeldBy | Unreadable) -> None:
        notes.opening = False
        if isinstance(result, HeldBy | Unreadable):
            self._refused(notes, result.who if isinstance(result, HeldBy) else result.reason)
        else:
            notes.owned = result
        self._write_last_if_closing()

    def _recovered(self, notes: NotesLog, failure: AppendFailed | None) -> None:
        notes.opening = False
        if failure is not None:
            self._refused(notes, str(failure))
        self._write_last_if_closing()

    def _write_last_if_closing(self) -> None:
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
        """Write one batch and return its number of notes."""
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
        """Write the last notes, then call `done`."""
        self._done = done
        self._changes.flush()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._write_last()

    def _write_last(self) -> None:
        for notes in self._logs.values():
            # `_ready` acquires a new log at once and then writes its notes before it returns.
            while notes.waiting and self._ready(notes, self._clock.now) and notes.waiting:
                self._write(notes, NOTES_AT_ONCE)
        if self._done is not None and not any(notes.opening for notes in self._logs.values()):
            done, self._done = self._done, None
            self._closed = True
            done()
