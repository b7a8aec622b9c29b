"""Write notes about groups, for people: log lines of state changes, and records of __coordinator_notes. That topic also has the end
offsets of topic partitions (`topics/end_offset_notes.py`).

Notes are queued and appended by a timer, so that no reply waits for them. Lost notes are counted, logged once, and reported in the
next written note.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from broker.groups.change_log import ChangeLog
from broker.groups.group_journal import GroupJournal, HandOver
from broker.internal_topics import NOTES_LOG
from broker.logging.logs import log
from broker.runtime.clock import Clock
from broker.runtime.contain import Contained
from coordinator import Fact, Note, facts_bytes
from coordinator.hold import BATCH_OVERHEAD_BYTES
from coordinator.notes import ShardChange
from coordinator.states import State
from protocol.batch import build_facts
from protocol.messages.coordinator_notes import CoordinatorChange, EndOffsets, NoteHeader, NoteKey
from protocol.messages.kinds import NoteKind
from protocol.records import in_newest_version, write_note
from storage import AppendFailed, HeldBy, LogId, LogStore, OwnedLog, Unreadable

GATHER_MS = 200
RETRY_MS = 5_000
RELEASE_RETRY_MS = 20  # before another attempt to release a log that is still being opened
# Notes written in one pass, within some milliseconds; the next pass follows NEXT_PASS_MS later.
NOTES_PER_PASS = 500
NEXT_PASS_MS = 10
# The most queued notes of all logs together; further notes are lost and counted.
NOTES_QUEUED_MAX = 20_000
BATCH_BYTES_MAX = 1 << 20


class QueuedNote(NamedTuple):
    note: Note
    epoch: int
    offset: int


class NotesLog:
    """The log and the queued notes of one partition."""

    def __init__(self, partition: int) -> None:
        self.id = LogId(NOTES_LOG, partition)
        self.owned: OwnedLog | None = None
        self.opening = False  # the log is being acquired or recovered
        self.retry_at = 0
        self.queue: deque[QueuedNote] = deque()
        self.lost = 0  # since the last written note
        self.epoch = -1
        self.seq = 0  # the sequence number of the next note of that epoch

    def encode_record(self, queued: QueuedNote, lost: int) -> Fact:
        """Encode a note. Sequence numbers have no gaps within an epoch; `dropped` counts lost notes."""
        note = queued.note
        if queued.epoch != self.epoch:
            self.epoch = queued.epoch
            self.seq = 0
        header = NoteHeader(
            note.kind,
            note.at_ms,
            self.seq,
            queued.epoch,
            note.generation,
            note.state,
            queued.offset,
            note.dropped + lost,
            note.counted_from,
            note.number,
        )
        self.seq += 1
        return in_newest_version(NoteKey(note.group_id)), write_note(header, note.body)


class NotesLogs:
    """The NoteWriter of this node."""

    def __init__(self, store: LogStore, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._store = store
        self._loop = loop
        self._clock = clock
        self._changes = ChangeLog(loop, clock)
        self._logs: dict[int, NotesLog] = {}
        self._queued = 0  # notes in all logs
        self._timer: asyncio.TimerHandle | None = None
        self._failing = False  # whether a failure was logged
        self._done: Callable[[], None] | None = None  # called when the last notes are written
        self._closed = False
        self.observers: list[Callable[[GroupJournal, Note], None]] = []  # called for each note, before it is stored

    def write(self, journal: GroupJournal, notes: list[Note], offset: int) -> None:
        for note in notes:
            if note.kind == NoteKind.STATE_CHANGE:
                self._changes.add(note)
            self._enqueue(journal, note, offset)

    def write_change(self, journal: GroupJournal, change: ShardChange, hand_over: HandOver | None = None) -> None:
        """Note a change of the partition itself. If the partition has no records, its load is not noted, and its unload only if it has notes."""
        notes = self._logs.get(journal.partition)
        has_notes = notes is not None and (notes.queue or notes.seq)  # a consumer may have opened the log and found none
        if not journal.replayed and (change == ShardChange.LOADED or (change == ShardChange.UNLOADED and not has_notes)):
            return
        replayed = journal.replayed if change in (ShardChange.LOADED, ShardChange.RESUMED) else 0
        body = CoordinatorChange(change, journal.epoch, journal.load_ms if replayed else 0, len(journal.shard.groups), replayed)
        if hand_over is not None:
            body.to_node, body.drained = hand_over
        ends = change in (ShardChange.UNLOADED, ShardChange.SUSPENDED)  # a later load resets the groups' counts
        dropped = sum(group.notes_dropped for group in journal.shard.groups.values()) if ends else 0
        self._enqueue(journal, Note("", self._clock.wall, 0, State.EMPTY, body, dropped), -1)

    def write_end_offsets(self, journal: GroupJournal, ends: EndOffsets) -> bool:
        """Note end offsets of a topic in this partition of the notes. False: they are not noted now, since notes of groups have priority."""
        notes = self._logs.get(journal.partition)
        blocked = notes is not None and (self._clock.tick() < notes.retry_at or notes.lost > 0)
        if journal.refusal or blocked or self._queued >= NOTES_QUEUED_MAX // 2 or self._done is not None or self._closed:
            return False
        self._enqueue(journal, Note("", self._clock.wall, 0, State.EMPTY, ends), -1)
        return True

    def _enqueue(self, journal: GroupJournal, note: Note, offset: int) -> None:
        for observer in self.observers:
            observer(journal, note)
        notes = self._log(journal.partition)
        if self._queued >= NOTES_QUEUED_MAX:
            notes.lost += 1
            return
        notes.queue.append(QueuedNote(note, journal.epoch, offset))
        self._queued += 1
        self._schedule_write(GATHER_MS)

    def _log(self, partition: int) -> NotesLog:
        notes = self._logs.get(partition)
        if notes is None:
            notes = self._logs[partition] = NotesLog(partition)
        return notes

    def open_unchecked(self, partitions: list[int]) -> None:
        """Open these logs one after another: after a crash, opening checks and repairs them."""
        if not partitions or self._done is not None or self._closed:
            return
        first, *remaining = partitions
        notes = self._log(first)

        def opened(result: OwnedLog | HeldBy | Unreadable) -> None:
            self._acquired(notes, result)
            self.open_unchecked(remaining)

        if notes.owned is None and not notes.opening:
            notes.opening = True
            self._store.acquire(notes.id, opened)
        else:
            self.open_unchecked(remaining)

    def open(self, partition: int) -> None:
        """Open the log for a consumer."""
        notes = self._log(partition)
        if notes.owned is None and not notes.opening and self._done is None and not self._closed and self._clock.tick() >= notes.retry_at:
            notes.opening = True
            self._store.acquire(notes.id, partial(self._acquired, notes))

    def release(self, partition: int, done: Callable[[], None]) -> None:
        """Write the queued notes and release the log, since another node takes the partition over."""
        notes = self._logs.get(partition)
        if notes is None:
            done()
            return
        if notes.opening:
            self._loop.call_later(RELEASE_RETRY_MS / 1000, Contained(self.release, done), partition, done)
            return
        while notes.queue and self._ready(notes, self._clock.tick()) and notes.queue:
            self._write(notes, NOTES_PER_PASS)
        if notes.opening:
            self._loop.call_later(RELEASE_RETRY_MS / 1000, Contained(self.release, done), partition, done)
            return
        self._queued -= len(notes.queue)
        del self._logs[partition]
        if notes.owned is not None:
            notes.owned.release()
        done()

    def _schedule_write(self, ms: int) -> None:
        if self._timer is None and self._done is None and not self._closed:
            self._timer = self._loop.call_later(ms / 1000, Contained(self._write_queued, partial(self._schedule_write, RETRY_MS)))

    def _write_queued(self) -> None:
        self._timer = None
        room = NOTES_PER_PASS
        now = self._clock.tick()
        for notes in self._logs.values():
            if notes.queue and self._ready(notes, now):
                room -= self._write(notes, room)
                if room <= 0:
                    break
        if self._queued:
            self._schedule_write(GATHER_MS if room > 0 else NEXT_PASS_MS)

    def _ready(self, notes: NotesLog, now: int) -> bool:
        """Whether the log can be written now; if not, start acquiring or recovering it."""
        owned = notes.owned
        if owned is not None and owned.usable():
            return True
        if not (notes.opening or self._closed) and now >= notes.retry_at:
            notes.opening = True
            if owned is None:
                self._store.acquire(notes.id, partial(self._acquired, notes))
            else:
                owned.recover(partial(self._recovered, notes))
        return notes.owned is not None and notes.owned.usable()

    def _acquired(self, notes: NotesLog, result: OwnedLog | HeldBy | Unreadable) -> None:
        notes.opening = False
        if isinstance(result, HeldBy | Unreadable):
            self._refused(notes, result.holder if isinstance(result, HeldBy) else result.reason)
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
        notes.lost += len(notes.queue)
        self._queued -= len(notes.queue)
        notes.queue.clear()
        notes.retry_at = self._clock.tick() + RETRY_MS
        if not self._failing:
            self._failing = True
            log.warning("notes are lost", log=str(notes.id), reason=reason)

    def _write(self, notes: NotesLog, notes_max: int) -> int:
        """Write one batch and return its number of notes."""
        assert notes.owned is not None
        lost, notes.lost = notes.lost, 0
        epoch_and_seq = notes.epoch, notes.seq
        facts: list[Fact] = []
        size = BATCH_OVERHEAD_BYTES
        while notes.queue and len(facts) < notes_max and size < BATCH_BYTES_MAX:
            fact = notes.encode_record(notes.queue.popleft(), lost if not facts else 0)
            size += facts_bytes([fact])
            facts.append(fact)
        self._queued -= len(facts)

        def appended(result: int | AppendFailed) -> None:
            if isinstance(result, AppendFailed):
                notes.lost += lost + len(facts)
                notes.epoch, notes.seq = epoch_and_seq
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
            # `_ready` may have written the notes already: if it acquires the log at once, `_acquired` writes them.
            while notes.queue and self._ready(notes, self._clock.now) and notes.queue:
                self._write(notes, NOTES_PER_PASS)
        if self._done is not None and not any(notes.opening for notes in self._logs.values()):
            done, self._done = self._done, None
            self._closed = True
            done()
