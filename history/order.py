"""Merge the notes and records of one group, from two logs, in the order of events.

A note contains the offset of the last record that its operation stored in __consumer_offsets: the group record, or a policy record after it.
The group record belongs right after the notes of its operation. The place of a record whose offset is in no note follows from the offsets
in the notes around it, and from its time and generation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from coordinator.notes import Removal, RoundResult, ShardChange, StandbyStep
from coordinator.states import COMPLETING, EMPTY, PREPARING, STABLE, State
from history.note_records import GroupRecord, NoteRecord, known_member
from protocol.messages.coordinator_notes import CoordinatorChange, MemberGone, RoundEnd, StandbyChange, StateChange

NO_OFFSET = -1
NO_EPOCH = -1
APPENDED_LATE_MS = 1_000  # a record may wait for an earlier append


def state_before(note: NoteRecord) -> tuple[State | None, int]:
    """State and generation of the group before the note's event.

    At the end of a join phase the generation rises before the state changes: notes about standbys in between have the new generation and PREPARING.
    """
    header, body = note.header, note.body
    if isinstance(body, StateChange):
        before = known_member(State, body.from_state)
        joined = before is PREPARING and body.to_state in (COMPLETING, EMPTY)
        return before, header.generation - joined
    if isinstance(body, RoundEnd):
        return (PREPARING, header.generation - 1) if body.result == RoundResult.EMPTY else (COMPLETING, header.generation)
    state = known_member(State, header.state)
    at_join_end = state is PREPARING and (
        (isinstance(body, StandbyChange) and body.step == StandbyStep.WAITS) or (isinstance(body, MemberGone) and body.how == Removal.SEAT_TAKEN)
    )
    return state, header.generation - at_join_end


class Order:
    """`feed` returns events whose order is known; `remaining_records` returns the records that still wait for their notes."""

    def __init__(self) -> None:
        self._records: deque[GroupRecord] = deque()
        self._last_note_offset = NO_OFFSET  # the offset in the last note

    def feed(self, notes: Iterable[NoteRecord], records: Iterable[GroupRecord] = ()) -> Iterator[NoteRecord | GroupRecord]:
        """`records` must contain all records up to the highest offset in a note, in the order of their offsets."""
        self._records.extend(records)
        note_records = list(notes)
        next_offsets = self._next_offsets(note_records)
        for note, next_offset in zip(note_records, next_offsets, strict=True):
            offset = note.header.offsets_log_offset
            if self._last_note_offset != NO_OFFSET and offset != self._last_note_offset:
                yield from self._records_up_to(self._last_note_offset)
                self._last_note_offset = NO_OFFSET
            if offset >= 0:
                while self._records and self._records[0].offset < offset and not (self._is_last_up_to(offset) and _is_stored_by(note, self._records[0])):
                    yield self._records.popleft()
                self._last_note_offset = offset
            else:
                while self._records and _precedes(self._records[0], note, next_offset):
                    yield self._records.popleft()
            yield note
        if self._last_note_offset != NO_OFFSET:
            yield from self._records_up_to(self._last_note_offset)

    def remaining_records(self) -> Iterator[GroupRecord]:
        while self._records:
            yield self._records.popleft()

    @property
    def newest_without_note(self) -> GroupRecord | None:
        """The newest record without a note so far."""
        return self._records[-1] if self._records else None

    def _records_up_to(self, offset: int) -> Iterator[GroupRecord]:
        while self._records and self._records[0].offset <= offset:
            yield self._records.popleft()

    def _is_last_up_to(self, offset: int) -> bool:
        return len(self._records) == 1 or self._records[1].offset > offset

    def _next_offsets(self, note_records: list[NoteRecord]) -> list[int]:
        """For each note its offset in __consumer_offsets, or that of the first later note that has one."""
        offsets = []
        offset = NO_OFFSET
        for note in reversed(note_records):
            if note.header.offsets_log_offset >= 0:
                offset = note.header.offsets_log_offset
            offsets.append(offset)
        return offsets[::-1]


def _is_stored_by(note: NoteRecord, record: GroupRecord) -> bool:
    """Whether the operation that wrote this note also stored `record`, the last group record before the note's offset.

    Policy records may lie between the record and that offset.
    """
    state, generation = state_before(note)
    if record.stored is None or record.generation < generation or (record.generation == generation and state is EMPTY):
        return False
    return record.at_ms >= note.at_ms and record.epoch in (NO_EPOCH, note.header.coordinator_epoch)


def _precedes(record: GroupRecord, note: NoteRecord, next_offset: int) -> bool:
    if next_offset != NO_OFFSET and record.offset >= next_offset:
        return False
    epoch = note.header.coordinator_epoch
    if record.epoch >= 0 and record.epoch != epoch:
        return record.epoch < epoch
    if isinstance(note.body, CoordinatorChange) and note.body.what == ShardChange.UNLOADED and record.epoch == epoch:
        return True
    if record.at_ms < note.at_ms:
        return True
    if isinstance(note.body, CoordinatorChange) and note.body.what == ShardChange.SUSPENDED:
        return record.at_ms == note.at_ms  # nothing is stored while it is suspended
    if not note.group or record.stored is None or record.at_ms > note.at_ms + APPENDED_LATE_MS:
        return False
    state, generation = state_before(note)
    # A group record is stored when COMPLETING ends: a note of COMPLETING in the same generation precedes it.
    return 0 < record.generation < generation or (  # 0: the record of a new group with the same name
        record.generation == generation and record.at_ms == note.at_ms and state in (STABLE, EMPTY, PREPARING)
    )
