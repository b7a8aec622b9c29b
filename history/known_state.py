"""The known state of a group between two events, from its notes and records.

Notes may be missing. Each note has the state and generation of its group and the number of earlier notes, so that gaps are visible; a
group record has the result of its rebalance. Compaction removes the oldest group records first, so the remaining records have no gap:
two consecutive records are two consecutive rebalances. Everything else is unknown, and the story marks it as such.
"""

from __future__ import annotations

from coordinator.states import COMPLETING, EMPTY, PREPARING, STABLE, State
from history.causes import REMOVALS
from history.episodes import End, Entry, GroupDeleted, MemberJoined, MemberRemoved, Rebalance, RebalancesMissing, StaticReturned
from history.note_records import GroupRecord

Waiting = MemberJoined | MemberRemoved | StaticReturned
UNKNOWN = -1


class KnownState:
    """The known state of one group. `from_start`: reading begins with the oldest note and record; otherwise it begins later by choice, and
    earlier events do not count as missing. `records_complete`: __consumer_offsets is read from its start, and compaction has removed nothing.
    """

    def __init__(self, group: str, *, from_start: bool = False, records_complete: bool = False) -> None:
        self.group = group
        self._open: Rebalance | None = None
        self._phase = (EMPTY, UNKNOWN)  # of the open rebalance: PREPARING or COMPLETING, and the group's generation
        self._closing = False  # the open rebalance's end is known, and the note of that state change may follow
        self._waiting: list[Waiting] = []  # notes that precede the state change that they caused
        self._waiting_at: tuple[State | None, int] = (None, UNKNOWN)  # state and generation in these notes
        self._members: set[str] | None = None  # all members; None after a missing note
        # The last known stable state of the group.
        self._stable_generation = 0 if from_start else UNKNOWN  # its generation
        self._stable_empty = from_start  # it had no members
        self._may_be_newer = False  # the generation may be later than `_stable_generation`: begin or end of a rebalance is unknown
        self._known_at_ms = UNKNOWN  # time of the last note or record about the group itself
        self._last: Rebalance | None = None  # the last rebalance that ended in STABLE or EMPTY
        self._last_record: GroupRecord | None = None  # the last record
        self._records_complete = records_complete  # no record is missing since `_last_record`
        # Position in the notes.
        self._from_start = from_start
        self._count: tuple[int, int] | None = None  # of the last note: when its counting began, and its number
        self._epoch = UNKNOWN  # the coordinator epoch of the last note
        self._any_note = False  # at least one note was read
        self._loaded: bool | None = None  # whether the coordinator is loaded; None: unknown
        self._gap_before_ms = UNKNOWN  # time of the last note with missing notes right before it
        self._note_offset = UNKNOWN  # the offset in __consumer_offsets that the last note contains
        self._reloaded_in_epoch = UNKNOWN  # the leader epoch in which the coordinator was loaded again since the last note
        self._unloaded_without_groups = False  # the coordinator was last unloaded, and its partition had no groups
        self._orderly = True  # the previous coordinator was unloaded in order, and all its notes were written
        self._newest_epoch = UNKNOWN  # the highest coordinator epoch of all notes and records
        self._deleted = False  # whether the group was deleted since the last note
        self._recreated_in_epoch = UNKNOWN  # the epoch in which a group of that name was created again after the deletion

    @property
    def open_rebalance(self) -> Rebalance | None:
        return self._open

    def mark_records_lost(self) -> None:
        """Call this before a record if the records right before it are missing, except through compaction, which removes the oldest first."""
        self._records_complete = False

    # The rebalance that is open.

    def _begin(self, at_ms: int, before: State | None, phase: State, generation: int, from_generation: int) -> Rebalance:
        opened = self._open = Rebalance(at_ms, before, from_generation, None)
        if self._gap_before_ms == at_ms:
            opened.missing_notes = UNKNOWN
        self._phase = (phase, generation)
        if self._at_last_record and from_generation == self._stable_generation:
            opened.before = self._last_record
        return opened

    def _set_end(self, opened: Rebalance, end: End, at_ms: int, generation: int) -> None:
        opened.end = end
        opened.ended_ms = at_ms
        opened.to_generation = generation

    def _close(self, end: End | None = None) -> list[Entry]:
        """Close the open rebalance and return it. `end`: how it ended, if no note says so; then other notes of this rebalance may be missing too."""
        opened, self._open, self._closing = self._open, None, False
        if opened is None:
            return []
        if end is not None:
            opened.end = end
            opened.missing_notes = opened.missing_notes or UNKNOWN
        self._members = set() if opened.end is End.EMPTY else self._members if opened.end is End.STABLE and opened.complete else None
        if opened.end in (End.STABLE, End.EMPTY):
            self._last = opened
            self._stable_empty = opened.end is End.EMPTY
            self._stable_generation = opened.to_generation
            self._may_be_newer = False
        elif opened.end is End.UNKNOWN:
            self._may_be_newer = True  # a coordinator that loads the group returns to the stored generation
        return [opened]

    def _without_state_change(self) -> list[Entry]:
        """The entries for waiting notes whose state change does not follow: its note is missing, or the state did not change."""
        waiting, self._waiting = self._waiting, []
        state, generation = self._waiting_at
        causes = [event for event in waiting if not isinstance(event, MemberRemoved) or (event.session_ms and (event.cause is None or REMOVALS[event.cause].begins_rebalance))]
        if not causes or state not in (STABLE, EMPTY):
            return list(waiting)
        opened = self._begin(causes[0].at_ms, state, PREPARING, generation, generation)
        opened.begin_known, opened.missing_notes = False, UNKNOWN
        for event in waiting:
            add_event(opened, event)
        return []

    def _was_member(self, member_id: str, instance_id: str | None) -> bool | None:
        """Whether a joining member was in the group before; None: unknown."""
        if self._members is not None:  # a static member that returns under a new id has another kind of note
            if member_id in self._members:
                return True
            # If the record has another id for this instance, the note of the replacement is missing or follows.
            ids = self._last_record.ids_of(instance_id) if instance_id is not None and self._last_record is not None else set()
            return None if ids & self._members else False
        opened = self._open
        if opened is not None:
            if any(join.member_id == member_id for join in opened.joins) or any(back.new_id == member_id for back in opened.returns):
                return True
            if instance_id is not None and any(join.instance_id == instance_id for join in opened.joins):
                return None
        record = opened.before if opened is not None else self._last_record if self._at_last_record else None
        if record is None or record.stored is None:
            return None
        if member_id in record.member_ids:
            return True
        if instance_id is not None and any(member.group_instance_id == instance_id for member in record.stored.members):
            return None  # it returned under a new id, or it was removed and is new
        return False

    @property
    def _last_known_generation(self) -> int:
        """The generation in which the group was last stable or empty; UNKNOWN if notes are missing."""
        return UNKNOWN if self._may_be_newer else self._stable_generation

    @property
    def _at_last_record(self) -> bool:
        """Whether the last known stable state is that of the last record."""
        return self._last_record is not None and self._last_record.generation == self._stable_generation and not self._may_be_newer

    def _size_of(self, generation: int) -> int:
        """The number of members of this generation."""
        if generation == 0:
            return 0
        record = self._last_record
        return len(record.stored.members) if record is not None and record.stored is not None and record.generation == generation else UNKNOWN

    # What is missing before a note or record.

    def _advance_to(self, at_ms: int, state: State | None, generation: int) -> list[Entry]:
        """Bring the story to this state and generation; report the rebalances that must have happened before as missing."""
        done: list[Entry] = []
        if state in (STABLE, EMPTY):
            done = self._settle(state, generation) + self._set_stable(at_ms, generation)
            self._stable_empty = state is EMPTY
            return done
        if state not in (PREPARING, COMPLETING):
            return []
        assert state is not None
        done = []
        if self._open is not None:
            phase, phase_generation = self._phase
            if (state, generation) == (phase, phase_generation):
                return []
            next_phase = state is COMPLETING and phase is PREPARING and generation == phase_generation + 1
            if next_phase or (self._records_complete and generation >= phase_generation):
                # If the open rebalance had ended in between, there would be a record.
                self._open.missing_notes = self._open.missing_notes or UNKNOWN
                self._phase = (state, generation)
                return []
            done = self._close(End.UNKNOWN)
        highest = generation if state is PREPARING else generation - 1  # the generation before the rebalance, unless it was restarted
        first = self._stable_generation
        if 0 <= highest < first:
            done += self._recreated(at_ms)
            first = 0
        if first < 0 and self._may_be_newer and not self._records_complete:
            done.append(RebalancesMissing(self._known_at_ms, at_ms, UNKNOWN, UNKNOWN, 0, UNKNOWN, older=not self._any_note))
        elif highest != first and first >= 0 and not self._records_complete:
            first_known = UNKNOWN if self._may_be_newer else first
            missing_max = highest - first - bool(done and self._may_be_newer)
            if missing_max > 0:
                done.append(RebalancesMissing(self._known_at_ms, at_ms, first_known, UNKNOWN, 0, missing_max, older=not self._any_note))
            first = UNKNOWN
        elif self._may_be_newer:
            first = UNKNOWN
        opened = self._begin(at_ms, None, state, generation, first)
        opened.begin_known = False
        self._may_be_newer = self._may_be_newer or first == UNKNOWN
        return done

    def _settle(self, state: State | None, generation: int) -> list[Entry]:
        """End the open rebalance, whose last note is missing."""
        opened = self._open
        if opened is None:
            return []
        phase, phase_generation = self._phase
        if generation == (phase_generation + 1 if phase is PREPARING else phase_generation):
            opened.end = End.STABLE if state is STABLE else End.EMPTY
            opened.to_generation = generation
            opened.missing_notes = opened.missing_notes or UNKNOWN
            return self._close()
        had_no_result = generation < phase_generation or (phase is PREPARING and generation == phase_generation)
        return self._close(End.INTERRUPTED if had_no_result and (self._records_complete or generation == phase_generation) else End.UNKNOWN)

    def _set_stable(self, at_ms: int, generation: int, after: GroupRecord | None = None) -> list[Entry]:
        """Set this generation as stable or empty; report the rebalances since the last known stable generation as missing."""
        done: list[Entry] = []
        if 0 <= generation < self._stable_generation:
            done += self._recreated(at_ms)
        first = self._stable_generation
        if first < 0 and self._may_be_newer and generation > 0:
            done.append(RebalancesMissing(self._known_at_ms, at_ms, UNKNOWN, generation, 0, UNKNOWN, after=after, older=not self._any_note))
            self._members = self._last = None
        elif first >= 0 and generation > first:
            missing_max = generation - first
            if after is not None and not self._may_be_newer:
                # If no record is missing in between, only one rebalance is missing, that of this record. Otherwise any number may be.
                missing_max = 1 if self._records_complete else UNKNOWN
            done.append(
                RebalancesMissing(
                    self._known_at_ms,
                    at_ms,
                    self._last_known_generation,
                    generation,
                    0 if self._may_be_newer else 1,
                    missing_max,
                    before=self._last_record if self._at_last_record else None,
                    after=after,
                    older=not self._any_note,
                )
            )
            self._members = None
            self._last = None
        self._stable_generation = generation
        self._may_be_newer = False
        return done

    def _recreated(self, at_ms: int) -> list[Entry]:
        """The generation is lower than before: this is a new group with the same name. Without a tombstone nothing else is known."""
        done: list[Entry] = []
        if not self._stable_empty:
            done.append(RebalancesMissing(self._known_at_ms, at_ms, self._last_known_generation, UNKNOWN, 0, UNKNOWN))
        self._stable_generation = 0
        self._may_be_newer = False
        self._last_record = self._last = None
        self._records_complete = False
        self._members = None
        self._deleted = self._stable_empty = True
        return [*done, GroupDeleted(at_ms, False)]

    # Records.

    def _fold_record(self, record: GroupRecord) -> list[Entry]:
        # Whether the record is certainly of this group, not of a deleted group of that name: no record is missing, or the last note contains the
        # record's offset or a later one. A note precedes the record of its operation, and policy records may follow the record.
        belongs = self._records_complete or record.offset <= self._note_offset
        if record.epoch > self._newest_epoch:
            self._newest_epoch = record.epoch
            self._loaded = True
        done = self._without_state_change() if record.generation != self._waiting_at[1] or not belongs else []
        if self._closing:
            done += self._close()
        if record.stored is None:
            return done + self._tombstone(record)
        if record.newer_since_ms >= 0:
            return done + self._returned(record)
        generation = record.generation
        members = bool(record.stored.members)
        opened = self._open
        if opened is not None:
            phase, phase_generation = self._phase
            before = generation <= (phase_generation if phase is PREPARING else phase_generation - 1)
            later = record.epoch > self._epoch >= 0  # another coordinator wrote this
            if before and belongs and not later:
                # A static member has a new member id; the assignment is unchanged.
                self._last_record = record
                self._records_complete = True
                if opened.before is not None and opened.before.generation == generation:
                    opened.before = record
                return done
            if later or (record.epoch != self._epoch and UNKNOWN not in (record.epoch, self._epoch)):
                # Another coordinator wrote this record: if the open rebalance had settled, there would be an earlier one.
                done += self._close(End.INTERRUPTED if self._records_complete else End.UNKNOWN)
            elif belongs and not before:
                self._set_end(opened, End.STABLE if members else End.EMPTY, record.at_ms, generation)
                opened.members_after = len(record.stored.members)
                opened.missing_notes = opened.missing_notes or UNKNOWN
                done += self._close()
            else:
                done += self._close(End.UNKNOWN)
        last = self._last
        if last is not None and last.after is None and last.to_generation == generation == self._stable_generation and belongs:
            # A record with another number of members was stored later in that generation: a standby was added, or replaced a member.
            if last.members_after in (UNKNOWN, len(record.stored.members)):
                last.after = record
                last.members_after = len(record.stored.members)
        elif not belongs and (self._stable_generation == generation or (self._stable_generation < 0 and self._may_be_newer)):
            # No note belongs to this record. Compaction may have removed earlier records, perhaps of a deleted group of that name.
            self._last = None
            to, after = (generation, record) if generation else (UNKNOWN, None)  # a new group has had no rebalance
            done.append(RebalancesMissing(self._known_at_ms, record.at_ms, UNKNOWN, to, 0, UNKNOWN, after=after, older=not self._any_note))
        else:
            done += self._set_stable(record.at_ms, generation, record)
        self._last_record = record
        self._records_complete = True
        self._deleted = self._deleted and not generation  # the record of a new group comes before its first note
        self._recreated_in_epoch = record.epoch if self._deleted else UNKNOWN
        self._stable_empty = not members
        self._members = record.member_ids
        self._known_at_ms = max(self._known_at_ms, record.at_ms)
        return done

    def _returned(self, record: GroupRecord) -> list[Entry]:
        """The group returns from a newer protocol, in which any number of rebalances may have happened."""
        done = self._close(End.UNKNOWN) if self._open is not None else []
        to = record.generation if record.generation > 0 else UNKNOWN
        since_ms = min(record.newer_since_ms, record.at_ms)
        if not record.newer_told:
            done.append(RebalancesMissing(since_ms, record.at_ms, UNKNOWN, to, 0, UNKNOWN, after=record, older=not self._any_note))
        self._stable_generation, self._stable_empty = record.generation, not record.member_ids
        self._may_be_newer = self._deleted = False
        self._last, self._last_record = None, record
        self._records_complete = True
        self._members = record.member_ids
        self._known_at_ms = max(self._known_at_ms, record.at_ms)
        self._recreated_in_epoch = UNKNOWN
        return done

    def _tombstone(self, record: GroupRecord) -> list[Entry]:
        done: list[Entry] = []
        if self._open is not None:
            done += self._close(End.UNKNOWN)
        if (self._stable_generation >= 0 or self._may_be_newer) and not self._records_complete:  # compaction may have removed earlier records
            done.append(RebalancesMissing(self._known_at_ms, record.at_ms, self._last_known_generation, UNKNOWN, 0, UNKNOWN))
        if not record.taken_over and (self._stable_generation > 0 or self._last_record is not None or not self._records_complete):
            done.append(GroupDeleted(record.at_ms, True))
        self._stable_generation = 0
        self._known_at_ms = max(self._known_at_ms, record.at_ms)
        self._may_be_newer = False
        self._last_record = self._last = None
        self._records_complete = True
        self._members = set()
        self._deleted = self._stable_empty = True
        self._recreated_in_epoch = UNKNOWN
        return done


def add_event(opened: Rebalance, event: Waiting) -> None:
    if isinstance(event, MemberJoined):
        opened.joins.append(event)
    elif isinstance(event, MemberRemoved):
        opened.removals.append(event)
    else:
        opened.returns.append(event)
