"""The fold: notes and group records of one group, in the order of `order.py`, become the story of the group.

A rebalance opens with the change of state that leaves STABLE or EMPTY, stays open while it is begun anew, and closes when the
group is STABLE or EMPTY again. Notes about members are told before the change that these caused, within the same step: they
wait for it, and stand alone when none comes.

Notes may be missing. Each says the state and generation of its group, and how many notes the group made before it, so that
a hole shows; a group record says what the notes of its rebalance would have said of the result. Group records that are still in
the log are the newest ones without a hole, for compaction takes the oldest: two that follow one another are two rebalances
that followed one another. What neither says is unknown, and the story says so.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.notes import Cause, Coordinator, How, Replacement, Round
from coordinator.states import COMPLETING, EMPTY, PREPARING, STABLE, State
from history.episodes import Came, Deleted, End, Entry, Late, Lost, Missing, Moved, Rebalance, Refused, Returned, Went
from history.order import Order, point_before
from history.told import Image, Told, known
from protocol.messages.coordinator_notes import (
    CommitRefused,
    CoordinatorChange,
    Heartbeats,
    MemberGone,
    MemberJoin,
    NoteHeader,
    RoundEnd,
    StateChange,
    StaticReplaced,
)

Waiting = Came | Went | Returned
UNKNOWN = -1


class Story:
    """`add` gives what is complete with this event; `finish` what is left. What `now_open` gives is still under way.

    `whole`: notes and records are read from the oldest that is kept; otherwise the story begins in the middle by choice,
    and what was before is not missing. `recorded`: __consumer_offsets is read from its beginning, and compaction took nothing.
    """

    def __init__(self, group: str, *, whole: bool = False, recorded: bool = False) -> None:
        self.group = group
        self._open: Rebalance | None = None
        self._phase = (EMPTY, UNKNOWN)  # of the open one: PREPARING or COMPLETING, and the group's generation then
        self._closing = False  # it has come to its end; the change of state that says so follows
        self._waiting: list[Waiting] = []  # told before the change that they caused
        self._waiting_at: tuple[State | None, int] = (None, UNKNOWN)  # state and generation then
        self._members: set[str] | None = None  # all of them, where no note since they were known is missing
        # What is known of the group at rest.
        self._settled = 0 if whole else UNKNOWN  # its generation
        self._empty = whole  # nobody was in it then
        self._at_least = False  # that or a later one: it is not known how the last rebalance ended, or from where it began
        self._told_ms = UNKNOWN  # the last moment of which something is told of the group itself
        self._last: Rebalance | None = None  # the last one that settled
        self._image: Image | None = None  # the last record
        self._recorded = recorded  # no record since is missing
        # Of the notes.
        self._whole = whole
        self._count: tuple[int, int] | None = None  # of the last note: when counting began, its number
        self._epoch = UNKNOWN  # of its coordinator
        self._noted = False  # there was a note
        self._loaded: bool | None = None  # by the last note of which that is known
        self._hole_ms = UNKNOWN  # the moment of the last note before which others are missing
        self._place = UNKNOWN  # in __consumer_offsets, that it names
        self._began_anew = UNKNOWN  # the epoch in which, since that note, the coordinator began anew
        self._orderly = True  # the coordinator before was unloaded in order, and its notes were all written
        self._newest_epoch = UNKNOWN  # of all notes and records
        self._deleted = False  # since that note

    @property
    def now_open(self) -> Rebalance | None:
        return self._open

    def add(self, event: Told | Image) -> list[Entry]:
        if isinstance(event, Image):
            return self._stored(event)
        if event.group == self.group:
            return self._note(event.header, event)
        if not event.group and isinstance(event.body, CoordinatorChange):
            return self._coordinator(event.header, event.body)
        return []

    def finish(self) -> list[Entry]:
        """There are no more notes: what is open stays so."""
        done = self._alone()
        if self._closing:
            done += self._close()
        if self._open is not None:
            done.append(self._open)
            self._open = None
        return done

    # Notes.

    def _note(self, header: NoteHeader, told: Told) -> list[Entry]:
        body = told.body
        done: list[Entry] = []
        state, generation = point_before(told)
        known_before = self._count is not None
        lost, anew = self._missed(header)
        if self._waiting and (anew or self._waiting[-1].at_ms != header.ts or (state, generation) != self._waiting_at):
            done += self._alone()
        if self._closing and not (isinstance(body, StateChange) and body.to_state in (STABLE, EMPTY)):
            done += self._close()
        explained = self._deleted or self._began_anew == header.coordinator_epoch
        if lost or (anew and self._noted):
            self._members = None
        if lost or (anew and self._noted and not explained):
            self._hole_ms = header.ts
        if anew:  # loaded anew, or another group of that name
            done += self._close(End.INTERRUPTED if self._recorded else End.UNKNOWN)
        elif lost and self._open is not None:
            self._open.lost = max(self._open.lost, 0) + lost
        untold = generation > 0 or (self._settled <= 0 and (lost or known_before))
        if anew and not self._recorded and (lost or not explained or not self._orderly) and untold:
            # It may be another group of that name, and this one may have gone on for long.
            done.append(Missing(self._told_ms, header.ts, self._from, UNKNOWN, 0, UNKNOWN, lost or UNKNOWN, older=not self._noted))
            self._settled, self._at_least = (generation if state in (STABLE, EMPTY) else UNKNOWN), False
            self._last = self._image = None
        elif anew and not explained and not lost and generation > 0 and (self._noted or self._image is not None):
            done.append(Lost(header.ts, UNKNOWN))
        before = self._open
        self._place = UNKNOWN
        found = self._reach(header.ts, state, generation)
        then = self._told(header, body)
        if lost and self._open is not None and self._open is not before:
            self._open.lost = lost
        elif lost and before is None:
            if found and isinstance(found[-1], Missing):
                found[-1] = found[-1]._replace(notes=lost)
            else:
                found.append(Lost(header.ts, lost))
        self._noted = self._loaded = True
        self._deleted, self._began_anew, self._orderly = False, UNKNOWN, True
        self._epoch, self._place = header.coordinator_epoch, header.offsets_log_offset
        self._newest_epoch = max(self._newest_epoch, header.coordinator_epoch)
        self._told_ms = max(self._told_ms, header.ts)
        return done + found + then

    def _missed(self, header: NoteHeader) -> tuple[int, bool]:
        """How many notes are missing before this one, as far as they were counted; and whether counting began anew in between."""
        if header.number < 0:  # of a version that did not count
            return header.dropped, False
        before, self._count = self._count, (header.counted_from, header.number)
        if before is None:
            return (header.number, True) if self._whole else (0, False)
        if before[0] != header.counted_from:
            return header.number, True
        return header.number - before[1] - 1, False

    def _told(self, header: NoteHeader, body: object) -> list[Entry]:
        at = header.ts
        match body:
            case StateChange():
                return self._changed(header, body)
            case MemberJoin():
                again = self._again(body.member_id, body.instance_id)
                if self._members is not None:
                    self._members.add(body.member_id)
                came = Came(
                    at, body.member_id, body.instance_id, body.client_id, body.host, body.session_ms, again, body.client_reason
                )
                return self._take(came, header)
            case MemberGone():
                if self._members is not None:
                    self._members.discard(body.member_id)
                how = known(How, body.how)
                gone = Went(at, body.member_id, body.instance_id, how, body.since_heartbeat_ms, body.session_ms, body.client_reason)
                return self._take(gone, header)
            case StaticReplaced():
                if self._members is not None:
                    self._members.discard(body.old_id)
                    self._members.add(body.new_id)
                outcome = known(Replacement, body.outcome)
                back = Returned(at, body.instance_id, body.old_id, body.new_id, body.client_id, body.host, body.since_heartbeat_ms, outcome)
                return [back] if outcome is Replacement.NO_REBALANCE else self._take(back, header)
            case RoundEnd():
                self._round_ended(header, body)
            case Heartbeats():
                return [Late(at, tuple((one.member_key, one.max_gap_ms, one.count) for one in body.members))]
            case CommitRefused():
                return [Refused(at, body.error_code, body.member_id, body.instance_id, body.count, body.since_ms)]
        return []

    def _coordinator(self, header: NoteHeader, body: CoordinatorChange) -> list[Entry]:
        """A coordinator that begins anew knows the group as it was stored: a rebalance under way is no more."""
        done = self._alone()
        if self._closing:
            done += self._close()
        what = known(Coordinator, body.what)
        if self._open is not None and what is not None:
            if what is not Coordinator.LOADED and header.coordinator_epoch == self._epoch:
                self._open.ended_ms = header.ts  # otherwise the coordinator before it crashed, at a moment that nobody knows
            # The record of its end would have come before. Without records nobody knows.
            done += self._close(End.INTERRUPTED if self._recorded else End.UNKNOWN)
        begins = what in (Coordinator.LOADED, Coordinator.RESUMED)
        # An epoch of which nothing is told belongs to a coordinator of which all notes are missing.
        follows = self._newest_epoch < 0 or header.coordinator_epoch <= self._newest_epoch + 1
        orderly = None if not begins or self._loaded is None else not self._loaded and follows
        self._newest_epoch = max(self._newest_epoch, header.coordinator_epoch)
        if what is not None:
            self._loaded = begins
            self._began_anew = header.coordinator_epoch if begins else UNKNOWN
            self._orderly = self._orderly and orderly is not False and not header.dropped
        if begins and not orderly:
            self._members = None
        self._noted = True
        return [*done, Moved(header.ts, what, body.load_ms, body.groups, orderly, header.dropped)]

    # Members.

    def _take(self, one: Waiting, header: NoteHeader) -> list[Entry]:
        if self._open is not None and not self._closing:
            _put(self._open, one)
        else:
            self._waiting.append(one)
            self._waiting_at = known(State, header.state), header.generation
        return []

    def _alone(self) -> list[Entry]:
        """The change that they caused was not told: it is missing, or there was none."""
        waiting, self._waiting = self._waiting, []
        state, generation = self._waiting_at
        begun = [one for one in waiting if not isinstance(one, Went) or (one.session_ms and one.how is not How.OVER_MAX_SIZE)]
        if not begun or state not in (STABLE, EMPTY):
            return list(waiting)
        opened = self._begin(begun[0].at_ms, state, PREPARING, generation, generation)
        opened.whole, opened.lost = False, UNKNOWN
        for one in waiting:
            _put(opened, one)
        return []

    def _again(self, member_id: str, instance_id: str | None) -> bool | None:
        """Whether a member that joins was in the group before, as far as that is known."""
        if self._members is not None and (instance_id is None or member_id in self._members):
            return member_id in self._members
        opened = self._open
        if opened is not None:
            if any(one.member_id == member_id for one in opened.came) or any(one.new_id == member_id for one in opened.returned):
                return True
            if instance_id is not None and any(one.instance_id == instance_id for one in opened.came):
                return None
        image = opened.before if opened is not None else self._image if self._at_image else None
        if image is None or image.stored is None:
            return None if self._members is None else False
        if member_id in image.member_ids:
            return True
        if instance_id is not None and any(one.group_instance_id == instance_id for one in image.stored.members):
            return None  # it came back under a new id, or was removed and is new
        return False

    @property
    def _from(self) -> int:
        """The generation in which the group was last at rest, where that is known."""
        return UNKNOWN if self._at_least else self._settled

    @property
    def _at_image(self) -> bool:
        """The group is at rest as the last record says."""
        return self._image is not None and self._image.generation == self._settled and not self._at_least

    def _size_of(self, generation: int) -> int:
        """How many members the group had at rest in this generation."""
        if generation == 0:
            return 0
        image = self._image
        return len(image.stored.members) if image is not None and image.stored is not None and image.generation == generation else UNKNOWN

    # States.

    def _changed(self, header: NoteHeader, body: StateChange) -> list[Entry]:
        to = known(State, body.to_state)
        if to is PREPARING:
            self._prepared(header, body)
        elif to is COMPLETING:
            self._phase = (COMPLETING, header.generation)
        elif to in (STABLE, EMPTY) and self._open is not None:
            self._ended(self._open, End.STABLE if to is STABLE else End.EMPTY, header.ts, header.generation)
            self._open.members_after = body.members
            return self._close()
        return []

    def _prepared(self, header: NoteHeader, body: StateChange) -> None:
        cause = known(Cause, body.reason)
        before = known(State, body.from_state)
        opened = self._open
        if opened is not None:  # COMPLETING came to nothing
            if cause is not None:
                opened.also.append(cause)
            opened.rounds += 1
            self._phase = (PREPARING, header.generation)
            return
        waiting, self._waiting = self._waiting, []
        at_rest = before in (STABLE, EMPTY)
        opened = self._begin(header.ts, before, PREPARING, header.generation, header.generation if at_rest else UNKNOWN)
        opened.cause, opened.about, opened.whole = cause, body.reason_text, at_rest
        if before is EMPTY:
            self._members = {one.member_id for one in waiting if isinstance(one, Came)}
        for one in waiting:
            if isinstance(one, Came) and (before is EMPTY or (cause is Cause.NEW_MEMBER and names(body.reason_text, one.member_id))):
                one = one._replace(again=False)
            _put(opened, one)
        if before is EMPTY:
            opened.members_before = 0
        elif at_rest:
            opened.members_before = self._size_of(header.generation)
            if opened.members_before < 0 and self._hole_ms != header.ts:
                new = [one for one in opened.came if one.again is False]
                went = [one for one in opened.went if one.session_ms]  # without a session it was an id that was handed out, no member
                opened.members_before = body.members - len(new) + len(went)

    def _begin(self, at_ms: int, before: State | None, phase: State, generation: int, from_generation: int) -> Rebalance:
        opened = self._open = Rebalance(at_ms, before, from_generation, None)
        if self._hole_ms == at_ms:
            opened.lost = UNKNOWN
        self._phase = (phase, generation)
        if self._at_image and from_generation == self._settled:
            opened.before = self._image
        return opened

    def _round_ended(self, header: NoteHeader, body: RoundEnd) -> None:
        opened = self._open
        if opened is None:
            return
        result = known(Round, body.result)
        opened.laggards += [one for one in body.laggards if one not in opened.laggards]
        if result in (Round.STABLE, Round.EMPTY):
            opened.join_ms, opened.sync_ms = body.join_ms, body.sync_ms
            self._ended(opened, End.STABLE if result is Round.STABLE else End.EMPTY, header.ts, header.generation)
            self._closing = True

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
            self._at_least = True  # and no more: a coordinator that begins anew goes back to the generation that was stored
        return [opened]

    # What a note or a record says of what was before it.

    def _reach(self, at_ms: int, state: State | None, generation: int) -> list[Entry]:
        """The group is in this state and generation: whatever must have been for that, and was not told, is missing."""
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
        highest = generation if state is PREPARING else generation - 1  # the generation in which it began, unless it was begun anew
        first = self._settled
        if 0 <= highest < first:
            done += self._anew(at_ms)
            first = 0
        if first < 0 and self._at_least and not self._recorded:
            done.append(Missing(self._told_ms, at_ms, UNKNOWN, UNKNOWN, 0, UNKNOWN, older=not self._noted))
        elif highest != first and first >= 0 and not self._recorded:
            first_known = UNKNOWN if self._at_least else first
            most = highest - first - bool(done and self._at_least)
            if most > 0:
                done.append(Missing(self._told_ms, at_ms, first_known, UNKNOWN, 0, most, older=not self._noted))
            first = UNKNOWN
        elif self._at_least:
            first = UNKNOWN
        opened = self._begin(at_ms, None, state, generation, first)
        opened.whole = False
        self._at_least = self._at_least or first == UNKNOWN
        return done

    def _settle(self, state: State | None, generation: int) -> list[Entry]:
        """The open rebalance is over, though no note says so."""
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

    def _at_rest(self, at_ms: int, generation: int, after: Image | None = None) -> list[Entry]:
        """The group is at rest in this generation: rebalances in between are missing."""
        done: list[Entry] = []
        if 0 <= generation < self._settled:
            done += self._anew(at_ms)
        first = self._settled
        if first < 0 and self._at_least and generation > 0:
            done.append(Missing(self._told_ms, at_ms, UNKNOWN, generation, 0, UNKNOWN, after=after, older=not self._noted))
            self._members = self._last = None
        elif first >= 0 and generation > first:
            most = generation - first
            if after is not None and not self._at_least:
                # A record without another one in between is one rebalance; one that others may have been before may be any.
                most = 1 if self._recorded else UNKNOWN
            done.append(
                Missing(
                    self._told_ms,
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

    def _anew(self, at_ms: int) -> list[Entry]:
        """A generation lower than before: another group of that name. Without its tombstone only that much is known."""
        done: list[Entry] = []
        if not self._empty:
            done.append(Missing(self._told_ms, at_ms, self._from, UNKNOWN, 0, UNKNOWN))
        self._settled = 0
        self._at_least = False
        self._image = self._last = None
        self._recorded = False
        self._members = None
        self._deleted = self._empty = True
        return [*done, Deleted(at_ms, False)]

    # Records.

    def _stored(self, image: Image) -> list[Entry]:
        sure = self._recorded or image.offset == self._place  # it is of this very group
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
                # An instance has another member id now; the assignment is that of before.
                self._image = image
                self._recorded = True
                if opened.before is not None and opened.before.generation == generation:
                    opened.before = image
                return done
            if later or (image.epoch != self._epoch and UNKNOWN not in (image.epoch, self._epoch)):
                # Another coordinator wrote this: if the one under way had settled, an earlier record would say so.
                done += self._close(End.INTERRUPTED if self._recorded else End.UNKNOWN)
            elif sure and not before:  # the first record that is left may be of another group of that name
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
            # No note told of it, and records before it may be gone: perhaps of another group of that name.
            self._last = None
            to, after = (generation, image) if generation else (UNKNOWN, None)  # a group that is new was not rebalanced
            done.append(Missing(self._told_ms, image.at_ms, UNKNOWN, to, 0, UNKNOWN, after=after, older=not self._noted))
        else:
            done += self._at_rest(image.at_ms, generation, image)
        self._image = image
        self._recorded = True
        self._deleted = False
        self._empty = not members
        self._members = image.member_ids
        self._told_ms = max(self._told_ms, image.at_ms)
        return done

    def _tombstone(self, image: Image) -> list[Entry]:
        done: list[Entry] = []
        if self._open is not None:
            done += self._close(End.UNKNOWN)
        if (self._settled >= 0 or self._at_least) and not self._recorded:  # there may have been records before that compaction took
            done.append(Missing(self._told_ms, image.at_ms, self._from, UNKNOWN, 0, UNKNOWN))
        if self._settled > 0 or self._image is not None or not self._recorded:
            done.append(Deleted(image.at_ms, True))
        self._settled = 0
        self._told_ms = max(self._told_ms, image.at_ms)
        self._at_least = False
        self._image = self._last = None
        self._recorded = True
        self._members = set()
        self._deleted = self._empty = True
        return done


def names(about: str | None, member_id: str) -> bool:
    """Whether a cause is about this member: its id, and behind it perhaps what its client said."""
    return about is not None and (about == member_id or about.startswith(f"{member_id}: "))


def _put(opened: Rebalance, one: Waiting) -> None:
    if isinstance(one, Came):
        opened.came.append(one)
    elif isinstance(one, Went):
        opened.went.append(one)
    else:
        opened.returned.append(one)


def story_of(group: str, notes: Iterable[Told], images: Iterable[Image] = (), *, whole: bool = False, recorded: bool = False) -> list[Entry]:
    """The whole story, as far as notes and group records tell it; each in the order of its log."""
    story = Story(group, whole=whole, recorded=recorded)
    order = Order()
    entries: list[Entry] = []
    for event in order.feed(notes, images):
        entries += story.add(event)
    for image in order.rest():
        entries += story.add(image)
    return entries + story.finish()
