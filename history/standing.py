"""The known state of a group between two events, from its notes and records.

Notes may be missing. Each says the state and generation of its group, and how many notes the group made before it, so that
a hole shows; a group record says what the notes of its rebalance would have said of the result. Group records that are still in
the log are the newest ones without a hole, for compaction takes the oldest: two that follow one another are two rebalances
that followed one another. Everything else is unknown, and the story marks it so.
"""

from __future__ import annotations

from coordinator.notes import Removal
from coordinator.states import COMPLETING, EMPTY, PREPARING, STABLE, State
from history.episodes import Came, Deleted, End, Entry, Missing, Rebalance, Returned, Went
from history.note_records import GroupRecord

Waiting = Came | Went | Returned
UNKNOWN = -1


class Standing:
    """`whole`: notes and records are read from the oldest that is kept; otherwise the reader chose a later start, and nothing
    before it counts as missing. `recorded`: __consumer_offsets is read from its beginning, and compaction took nothing.
    """

    def __init__(self, group: str, *, whole: bool = False, recorded: bool = False) -> None:
        self.group = group
        self._open: Rebalance | None = None
        self._phase = (EMPTY, UNKNOWN)  # of the open one: PREPARING or COMPLETING, and the group's generation then
        self._closing = False  # its end is known; the note of the state change is still to come
        self._waiting: list[Waiting] = []  # notes before the state change that they caused
        self._waiting_at: tuple[State | None, int] = (None, UNKNOWN)  # state and generation then
        self._members: set[str] | None = None  # all members; None after a missing note
        # The last known stable state of the group.
        self._settled = 0 if whole else UNKNOWN  # its generation
        self._empty = whole  # it had no members then
        self._at_least = False  # `_settled` or a later one: begin or end of the last rebalance is unknown
        self._known_at_ms = UNKNOWN  # time of the last note or record about the group itself
        self._last: Rebalance | None = None  # the last one that settled
        self._image: GroupRecord | None = None  # the last record
        self._recorded = recorded  # no record since is missing
        # Position in the notes.
        self._whole = whole
        self._count: tuple[int, int] | None = None  # of the last note: when counting began, its number
        self._epoch = UNKNOWN  # of its coordinator
        self._noted = False  # at least one note was read
        self._loaded: bool | None = None  # by the last note of which that is known
        self._gap_before_ms = UNKNOWN  # time of the last note that follows missing notes
        self._place = UNKNOWN  # the offset in __consumer_offsets that the last note names
        self._reloaded_in = UNKNOWN  # the leader epoch in which the coordinator was loaded again since that note
        self._orderly = True  # the coordinator before was unloaded in order, and its notes were all written
        self._newest_epoch = UNKNOWN  # of all notes and records
        self._deleted = False  # since that note
        self._created_in = UNKNOWN  # the epoch in which another group of that name was made since then

    @property
    def now_open(self) -> Rebalance | None:
        return self._open

    def records_lost(self) -> None:
        """Note that records before the next one are missing, and not because of compaction, which removes the oldest first."""
        self._recorded = False

    # The rebalance that is open.

    def _begin(self, at_ms: int, before: State | None, phase: State, generation: int, from_generation: int) -> Rebalance:
        opened = self._open = Rebalance(at_ms, before, from_generation, None)
        if self._gap_before_ms == at_ms:
            opened.lost = UNKNOWN
        self._phase = (phase, generation)
        if self._at_image and from_generation == self._settled:
            opened.before = self._image
        return opened

    def _ended(self, opened: Rebalance, end: End, at_ms: int, generation: int) -> None:
        opened.end = end
        opened.ended_ms = at_ms
        opened.to_generation = generation

    def _close(self, end: End | None = None) -> list[Entry]:
        """`end`: how, where no note of its end says so; then others of it may be missing, too."""
        opened, self._open, self._closing = self._open, None, False
        if opened is None:
            return []
        if end is not None:
            opened.end = end
            opened.lost = opened.lost or UNKNOWN
        self._members = set() if opened.end is End.EMPTY else self._members if opened.end is End.STABLE and opened.complete else None
        if opened.end in (End.STABLE, End.EMPTY):
            self._last = opened
            self._empty = opened.end is End.EMPTY
            self._settled = opened.to_generation
            self._at_least = False
        elif opened.end is End.UNKNOWN:
            self._at_least = True  # a coordinator that loads the group goes back to the stored generation
        return [opened]

    def _alone(self) -> list[Entry]:
        """Handle waiting notes without their state change: its note is missing, or the state did not change."""
        waiting, self._waiting = self._waiting, []
        state, generation = self._waiting_at
        begun = [one for one in waiting if not isinstance(one, Went) or (one.session_ms and one.how is not Removal.OVER_MAX_SIZE)]
        if not begun or state not in (STABLE, EMPTY):
            return list(waiting)
        opened = self._begin(begun[0].at_ms, state, PREPARING, generation, generation)
        opened.whole, opened.lost = False, UNKNOWN
        for one in waiting:
            put(opened, one)
        return []

    def _again(self, member_id: str, instance_id: str | None) -> bool | None:
        """Whether a joining member was in the group before; None: unknown."""
        if self._members is not None:  # a static member that takes its seat again does not join, as far as notes say
            if member_id in self._members:
                return True
            # Of a seat that is taken by another id, as the record says, the note is lost or still to come.
            taken = self._image.ids_of(instance_id) if instance_id is not None and self._image is not None else set()
            return None if taken & self._members else False
        opened = self._open
        if opened is not None:
            if any(one.member_id == member_id for one in opened.came) or any(one.new_id == member_id for one in opened.returned):
                return True
            if instance_id is not None and any(one.instance_id == instance_id for one in opened.came):
                return None
        image = opened.before if opened is not None else self._image if self._at_image else None
        if image is None or image.stored is None:
            return None
        if member_id in image.member_ids:
            return True
        if instance_id is not None and any(one.group_instance_id == instance_id for one in image.stored.members):
            return None  # it returned under a new id, or it was removed and is new
        return False

    @property
    def _from(self) -> int:
        """The generation in which the group was last stable or empty; UNKNOWN if notes are missing."""
        return UNKNOWN if self._at_least else self._settled

    @property
    def _at_image(self) -> bool:
        """Whether the group is stable as in the last record."""
        return self._image is not None and self._image.generation == self._settled and not self._at_least

    def _size_of(self, generation: int) -> int:
        """The number of members of this generation."""
        if generation == 0:
            return 0
        image = self._image
        return len(image.stored.members) if image is not None and image.stored is not None and image.generation == generation else UNKNOWN

    # What a note or record implies about the time before it.

    def _reach(self, at_ms: int, state: State | None, generation: int) -> list[Entry]:
        """Bring the story to this state and generation; report as missing the rebalances that must have led there."""
        done: list[Entry] = []
        if state in (STABLE, EMPTY):
            done = self._settle(state, generation) + self._at_rest(at_ms, generation)
            self._empty = state is EMPTY
            return done
        if state not in (PREPARING, COMPLETING):
            return []
        assert state is not None
        done = []
        if self._open is not None:
            phase, then = self._phase
            if (state, generation) == (phase, then):
                return []
            onward = state is COMPLETING and phase is PREPARING and generation == then + 1
            if onward or (self._recorded and generation >= then):
                # Had it settled in between, there would be a record.
                self._open.lost = self._open.lost or UNKNOWN
                self._phase = (state, generation)
                return []
            done = self._close(End.UNKNOWN)
        highest = generation if state is PREPARING else generation - 1  # the generation in which it began, unless it was restarted
        first = self._settled
        if 0 <= highest < first:
            done += self._recreated(at_ms)
            first = 0
        if first < 0 and self._at_least and not self._recorded:
            done.append(Missing(self._known_at_ms, at_ms, UNKNOWN, UNKNOWN, 0, UNKNOWN, older=not self._noted))
        elif highest != first and first >= 0 and not self._recorded:
            first_known = UNKNOWN if self._at_least else first
            most = highest - first - bool(done and self._at_least)
            if most > 0:
                done.append(Missing(self._known_at_ms, at_ms, first_known, UNKNOWN, 0, most, older=not self._noted))
            first = UNKNOWN
        elif self._at_least:
            first = UNKNOWN
        opened = self._begin(at_ms, None, state, generation, first)
        opened.whole = False
        self._at_least = self._at_least or first == UNKNOWN
        return done

    def _settle(self, state: State | None, generation: int) -> list[Entry]:
        """End the open rebalance, whose last note is missing."""
        opened = self._open
        if opened is None:
            return []
        phase, then = self._phase
        if generation == (then + 1 if phase is PREPARING else then):
            opened.end = End.STABLE if state is STABLE else End.EMPTY
            opened.to_generation = generation
            opened.lost = opened.lost or UNKNOWN
            return self._close()
        came_to_nothing = generation < then or (phase is PREPARING and generation == then)
        return self._close(End.INTERRUPTED if came_to_nothing and (self._recorded or generation == then) else End.UNKNOWN)

    def _at_rest(self, at_ms: int, generation: int, after: GroupRecord | None = None) -> list[Entry]:
        """The group is at rest in this generation: rebalances in between are missing."""
        done: list[Entry] = []
        if 0 <= generation < self._settled:
            done += self._recreated(at_ms)
        first = self._settled
        if first < 0 and self._at_least and generation > 0:
            done.append(Missing(self._known_at_ms, at_ms, UNKNOWN, generation, 0, UNKNOWN, after=after, older=not self._noted))
            self._members = self._last = None
        elif first >= 0 and generation > first:
            most = generation - first
            if after is not None and not self._at_least:
                # With no lost record in between, a record is one rebalance; otherwise it stands for any number.
                most = 1 if self._recorded else UNKNOWN
            done.append(
                Missing(
                    self._known_at_ms,
                    at_ms,
                    self._from,
                    generation,
                    0 if self._at_least else 1,
                    most,
                    before=self._image if self._at_image else None,
                    after=after,
                    older=not self._noted,
                )
            )
            self._members = None
            self._last = None
        self._settled = generation
        self._at_least = False
        return done

    def _recreated(self, at_ms: int) -> list[Entry]:
        """A lower generation than before: a new group with the same name. Without a tombstone nothing else is known."""
        done: list[Entry] = []
        if not self._empty:
            done.append(Missing(self._known_at_ms, at_ms, self._from, UNKNOWN, 0, UNKNOWN))
        self._settled = 0
        self._at_least = False
        self._image = self._last = None
        self._recorded = False
        self._members = None
        self._deleted = self._empty = True
        return [*done, Deleted(at_ms, False)]

    # Records.

    def _stored(self, image: GroupRecord) -> list[Entry]:
        sure = self._recorded or image.offset == self._place  # the record belongs to this group, not to an earlier one of that name
        if image.epoch > self._newest_epoch:
            self._newest_epoch = image.epoch
            self._loaded = True
        done = self._alone() if image.generation != self._waiting_at[1] or not sure else []
        if self._closing:
            done += self._close()
        if image.stored is None:
            return done + self._tombstone(image)
        generation = image.generation
        members = bool(image.stored.members)
        opened = self._open
        if opened is not None:
            phase, then = self._phase
            before = generation <= (then if phase is PREPARING else then - 1)
            later = image.epoch > self._epoch >= 0  # another coordinator wrote this
            if before and sure and not later:
                # An instance has a new member id; the assignment is unchanged.
                self._image = image
                self._recorded = True
                if opened.before is not None and opened.before.generation == generation:
                    opened.before = image
                return done
            if later or (image.epoch != self._epoch and UNKNOWN not in (image.epoch, self._epoch)):
                # Another coordinator wrote this: if the one under way had settled, an earlier record would say so.
                done += self._close(End.INTERRUPTED if self._recorded else End.UNKNOWN)
            elif sure and not before:  # the oldest remaining record may belong to an earlier group of that name
                self._ended(opened, End.STABLE if members else End.EMPTY, image.at_ms, generation)
                opened.members_after = len(image.stored.members)
                opened.lost = opened.lost or UNKNOWN
                done += self._close()
            else:
                done += self._close(End.UNKNOWN)
        last = self._last
        if last is not None and last.after is None and last.to_generation == generation == self._settled and sure:
            last.after = image
            last.members_after = len(image.stored.members)
        elif not sure and (self._settled == generation or (self._settled < 0 and self._at_least)):
            # It has no note, and earlier records may be compacted, perhaps of an earlier group of that name.
            self._last = None
            to, after = (generation, image) if generation else (UNKNOWN, None)  # a new group has had no rebalance
            done.append(Missing(self._known_at_ms, image.at_ms, UNKNOWN, to, 0, UNKNOWN, after=after, older=not self._noted))
        else:
            done += self._at_rest(image.at_ms, generation, image)
        self._image = image
        self._recorded = True
        self._deleted = self._deleted and not generation  # the record of a new group comes before its first note
        self._created_in = image.epoch if self._deleted else UNKNOWN
        self._empty = not members
        self._members = image.member_ids
        self._known_at_ms = max(self._known_at_ms, image.at_ms)
        return done

    def _tombstone(self, image: GroupRecord) -> list[Entry]:
        done: list[Entry] = []
        if self._open is not None:
            done += self._close(End.UNKNOWN)
        if (self._settled >= 0 or self._at_least) and not self._recorded:  # compaction may have removed earlier records
            done.append(Missing(self._known_at_ms, image.at_ms, self._from, UNKNOWN, 0, UNKNOWN))
        if self._settled > 0 or self._image is not None or not self._recorded:
            done.append(Deleted(image.at_ms, True))
        self._settled = 0
        self._known_at_ms = max(self._known_at_ms, image.at_ms)
        self._at_least = False
        self._image = self._last = None
        self._recorded = True
        self._members = set()
        self._deleted = self._empty = True
        self._created_in = UNKNOWN
        return done


def put(opened: Rebalance, one: Waiting) -> None:
    if isinstance(one, Came):
        opened.came.append(one)
    elif isinstance(one, Went):
        opened.went.append(one)
    else:
        opened.returned.append(one)
