"""Fold the notes and group records of one group, in the order of `order.py`, into the story of the group: a list of entries.

A rebalance opens with the state change from STABLE or EMPTY, stays open while it is restarted, and closes when the group is
STABLE or EMPTY again. Notes about members precede the note of the state change that they caused: they wait for that note,
and become separate entries if it does not follow. `known_state.py` handles missing notes.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.notes import Cause, Removal, Replacement, RoundResult, ShardChange, StandbyStep
from coordinator.states import COMPLETING, EMPTY, PREPARING, STABLE, State
from history.causes import CAUSES, Admits
from history.episodes import (
    AbsenceChanged,
    CommitsRefused,
    CoordinatorChanged,
    End,
    Entry,
    HeartbeatsLate,
    InstanceRefused,
    MemberJoined,
    MemberRemoved,
    NotesMissing,
    RebalancesMissing,
    StandbyChanged,
    StaticReturned,
)
from history.known_state import UNKNOWN, KnownState, Waiting, add_event
from history.note_records import GroupRecord, NoteRecord, known_member
from history.order import Order, state_before
from protocol.messages.coordinator_notes import (
    CommitRefused,
    CoordinatorChange,
    HeartbeatGap,
    Heartbeats,
    JoinRefused,
    MemberAway,
    MemberGone,
    MemberJoin,
    NoteHeader,
    RoundEnd,
    StandbyChange,
    StateChange,
    StaticReplaced,
)


class Story(KnownState):
    """`add` returns the entries that this event completes, `finish` the remaining ones. `open_rebalance` returns the open rebalance."""

    def add(self, event: NoteRecord | GroupRecord) -> list[Entry]:
        if isinstance(event, GroupRecord):
            return self._fold_record(event)
        if event.group == self.group:
            return self._fold_note(event.header, event)
        if not event.group and isinstance(event.body, CoordinatorChange):
            return self._coordinator_changed(event.header, event.body)
        return []

    def finish(self) -> list[Entry]:
        """Return the remaining entries after the last note; an open rebalance stays open."""
        done = self._without_state_change()
        if self._closing:
            done += self._close()
        if self._open is not None:
            done.append(self._open)
            self._open = None
        return done

    # Notes.

    def _fold_note(self, header: NoteHeader, record: NoteRecord) -> list[Entry]:
        body = record.body
        done: list[Entry] = []
        state, generation = state_before(record)
        known_before = self._count is not None
        lost, counter_restarted = self._count_missing(header)
        if self._waiting and (counter_restarted or self._waiting[-1].at_ms != header.ts or (state, generation) != self._waiting_at):
            done += self._without_state_change()
        if self._closing and not (isinstance(body, StateChange) and body.to_state in (STABLE, EMPTY)):
            done += self._close()
        deleted = self._deleted and self._recreated_in_epoch in (UNKNOWN, header.coordinator_epoch)
        # A coordinator whose partition has no records notes its unload, but not the load that follows.
        unknown_before = not known_before and self._last_record is None and self._records_complete
        is_first = not header.number and (unknown_before or (self._unloaded_without_groups and not generation))
        explained = deleted or is_first or self._reloaded_in_epoch == header.coordinator_epoch
        # A new group whose first member joined at an earlier coordinator: that coordinator's notes are missing, and the rebalance did not complete.
        created_by_earlier_coordinator = self._recreated_in_epoch not in (UNKNOWN, header.coordinator_epoch)
        if lost or (counter_restarted and self._any_note and not explained):
            self._members = None
            self._gap_before_ms = header.ts
        if counter_restarted:  # reloaded, or a new group with the same name
            done += self._close(End.INTERRUPTED if self._records_complete else End.UNKNOWN)
        elif lost and self._open is not None:
            self._open.missing_notes = max(self._open.missing_notes, 0) + lost
        may_lack_rebalances = generation > 0 or (self._stable_generation <= 0 and (lost or known_before))
        if counter_restarted and not self._records_complete and (lost or not explained or not self._orderly) and may_lack_rebalances:
            # These may be notes of a new group with the same name, long after the last known event.
            done.append(RebalancesMissing(self._known_at_ms, header.ts, self._last_known_generation, UNKNOWN, 0, UNKNOWN, lost or UNKNOWN, older=not self._any_note))
            self._stable_generation, self._may_be_newer = (generation if state in (STABLE, EMPTY) else UNKNOWN), False
            self._last = self._last_record = None
        elif counter_restarted and not explained and not lost and (created_by_earlier_coordinator or (generation > 0 and (self._any_note or self._last_record is not None))):
            done.append(NotesMissing(header.ts, UNKNOWN))
        before = self._open
        self._note_offset = UNKNOWN
        earlier = self._advance_to(header.ts, state, generation)
        entries = self._apply_note(header, body)
        if lost and self._open is not None and self._open is not before:
            self._open.missing_notes = lost
        elif lost and before is None:
            if earlier and isinstance(earlier[-1], RebalancesMissing):
                earlier[-1] = earlier[-1]._replace(notes=lost)
            else:
                earlier.append(NotesMissing(header.ts, lost))
        self._any_note = self._loaded = True
        self._unloaded_without_groups = False
        self._deleted, self._recreated_in_epoch, self._reloaded_in_epoch, self._orderly = False, UNKNOWN, UNKNOWN, True
        self._epoch, self._note_offset = header.coordinator_epoch, header.offsets_log_offset
        self._newest_epoch = max(self._newest_epoch, header.coordinator_epoch)
        self._known_at_ms = max(self._known_at_ms, header.ts)
        return done + earlier + entries

    def _count_missing(self, header: NoteHeader) -> tuple[int, bool]:
        """The number of missing notes before this one, and whether the note counter restarted in between."""
        if header.number < 0:  # written by a version without the counter
            return header.dropped, False
        before, self._count = self._count, (header.counted_from, header.number)
        if before is None:
            return (header.number, True) if self._from_start else (0, False)
        if before[0] != header.counted_from:
            return header.number, True
        return header.number - before[1] - 1, False

    def _apply_note(self, header: NoteHeader, body: object) -> list[Entry]:
        at = header.ts
        match body:
            case StateChange():
                return self._state_changed(header, body)
            case MemberJoin():
                was_member = self._was_member(body.member_id, body.instance_id)
                if self._members is not None:
                    self._members.add(body.member_id)
                join = MemberJoined(
                    at, body.member_id, body.instance_id, body.client_id, body.host, body.session_ms, was_member, body.client_reason
                )
                return self._add_event(join, header)
            case MemberGone():
                if self._members is not None:
                    self._members.discard(body.member_id)
                how = known_member(Removal, body.how)
                removal = MemberRemoved(at, body.member_id, body.instance_id, how, body.since_heartbeat_ms, body.session_ms, body.client_reason)
                return self._add_event(removal, header)
            case StaticReplaced():
                if self._members is not None:
                    self._members.discard(body.old_id)
                    self._members.add(body.new_id)
                outcome = known_member(Replacement, body.outcome)
                back = StaticReturned(at, body.instance_id, body.old_id, body.new_id, body.client_id, body.host, body.since_heartbeat_ms, outcome)
                return [back] if outcome is Replacement.NO_REBALANCE else self._add_event(back, header)
            case RoundEnd():
                self._round_ended(header, body)
            case Heartbeats():
                late = tuple((gap.member_key, gap.max_gap_ms, gap.count) for gap in body.members if is_late(gap))
                return [HeartbeatsLate(at, late)] if late else []
            case MemberAway():
                return [AbsenceChanged(at, body.member_id, body.instance_id, body.back, body.away_ms)]
            case StandbyChange():
                step = known_member(StandbyStep, body.step)
                standby = StandbyChanged(at, body.member_id, body.instance_id, step, body.from_member_id, body.from_instance_id, body.after_ms)
                return [*self._without_rebalance(standby), standby]
            case JoinRefused():
                return [InstanceRefused(at, body.instance_id, body.client_id, body.host, body.listed)]
            case CommitRefused():
                return [CommitsRefused.noted(at, body)]
        return []

    def _coordinator_changed(self, header: NoteHeader, body: CoordinatorChange) -> list[Entry]:
        """The coordinator was loaded, unloaded, suspended or resumed. A loaded one knows only the stored group: an open rebalance is interrupted."""
        done = self._without_state_change()
        if self._closing:
            done += self._close()
        change = known_member(ShardChange, body.what)
        if self._open is not None and change is not None:
            if change is not ShardChange.LOADED and header.coordinator_epoch == self._epoch:
                self._open.ended_ms = header.ts  # otherwise the previous coordinator crashed at an unknown time
                self._open.handed_to = body.to_node
            # A completed rebalance would have left a record before this note. Without records the end is unknown.
            done += self._close(End.INTERRUPTED if self._records_complete else End.UNKNOWN)
        begins = change in (ShardChange.LOADED, ShardChange.RESUMED)
        # An epoch without notes belongs to a coordinator whose notes are all missing.
        follows = self._newest_epoch < 0 or header.coordinator_epoch <= self._newest_epoch + 1
        orderly = None if not begins or self._loaded is None else not self._loaded and follows
        self._newest_epoch = max(self._newest_epoch, header.coordinator_epoch)
        if change is not None:
            self._loaded = begins
            self._reloaded_in_epoch = header.coordinator_epoch if begins else UNKNOWN
            self._orderly = self._orderly and orderly is not False and not header.dropped
            self._unloaded_without_groups = change is ShardChange.UNLOADED and not body.groups and not header.dropped
        if begins:  # with the members that were stored
            self._members = self._last_record.member_ids if self._last_record is not None and self._records_complete else None
        self._any_note = True
        return [*done, CoordinatorChanged(header.ts, change, body.load_ms, body.groups, orderly, header.dropped, body.to_node, body.drained)]

    # Members.

    def _without_rebalance(self, standby: StandbyChanged) -> list[Entry]:
        """The entry for the member that joined or left just before this note of a standby; no rebalance followed."""
        id = standby.from_id if standby.step is StandbyStep.TAKES_OVER else standby.member_id
        kind = MemberJoined if standby.step is StandbyStep.WAITS else MemberRemoved
        event = next((event for event in self._waiting if isinstance(event, kind) and event.member_id == id), None)
        if event is None:
            return []
        self._waiting.remove(event)
        return [event._replace(was_member=False) if isinstance(event, MemberJoined) else event]

    def _add_event(self, event: Waiting, header: NoteHeader) -> list[Entry]:
        """Add the event to the open rebalance, or let it wait for the state change that it caused."""
        if self._open is not None and not self._closing:
            add_event(self._open, event)
        else:
            self._waiting.append(event)
            self._waiting_at = known_member(State, header.state), header.generation
        return []

    # States.

    def _state_changed(self, header: NoteHeader, body: StateChange) -> list[Entry]:
        to = known_member(State, body.to_state)
        if to is PREPARING:
            self._begin_or_restart(header, body)
        elif to is COMPLETING:
            self._phase = (COMPLETING, header.generation)
        elif to in (STABLE, EMPTY) and self._open is not None:
            self._set_end(self._open, End.STABLE if to is STABLE else End.EMPTY, header.ts, header.generation)
            self._open.members_after = body.members
            return self._close()
        return []

    def _begin_or_restart(self, header: NoteHeader, body: StateChange) -> None:
        cause = known_member(Cause, body.reason)
        before = known_member(State, body.from_state)
        opened = self._open
        if opened is not None:  # COMPLETING was aborted
            if cause is not None:
                opened.restart_causes.append(cause)
            opened.rounds += 1
            self._phase = (PREPARING, header.generation)
            return
        waiting, self._waiting = self._waiting, []
        was_stable = before in (STABLE, EMPTY)
        opened = self._begin(header.ts, before, PREPARING, header.generation, header.generation if was_stable else UNKNOWN)
        opened.cause, opened.trigger_member, opened.cause_text, opened.begin_known = cause, body.member, body.text, was_stable
        if before is EMPTY:
            self._members = {event.member_id for event in waiting if isinstance(event, MemberJoined)}
        admits = CAUSES[cause].admits if cause is not None else Admits.NOBODY
        for event in waiting:
            # Under some policies newcomers wait for each other: their notes come just before the rebalance that admits them.
            if isinstance(event, MemberJoined) and (
                before is EMPTY
                or admits is Admits.WAITING
                or (admits is Admits.MEMBER and body.member == event.member_id)
            ):
                event = event._replace(was_member=False)
            add_event(opened, event)
        if before is EMPTY:
            opened.members_before = 0
        elif was_stable:
            opened.members_before = self._size_of(header.generation)
            if opened.members_before < 0 and self._gap_before_ms != header.ts:
                new = [join for join in opened.joins if join.was_member is False]
                removed = [removal for removal in opened.removals if removal.session_ms]  # session 0: the client was only given a member id
                opened.members_before = body.members - len(new) + len(removed)

    def _round_ended(self, header: NoteHeader, body: RoundEnd) -> None:
        opened = self._open
        if opened is None:
            return
        result = known_member(RoundResult, body.result)
        opened.laggards += [id for id in body.laggards if id not in opened.laggards]
        if result in (RoundResult.STABLE, RoundResult.EMPTY):
            opened.join_ms, opened.sync_ms = body.join_ms, body.sync_ms
            self._set_end(opened, End.STABLE if result is RoundResult.STABLE else End.EMPTY, header.ts, header.generation)
            self._closing = True


def story_of(
    group: str,
    notes: Iterable[NoteRecord],
    records: Iterable[GroupRecord] = (),
    *,
    from_start: bool = False,
    records_complete: bool = False,
) -> list[Entry]:
    """The complete story from notes and group records, each in log order."""
    story = Story(group, from_start=from_start, records_complete=records_complete)
    order = Order()
    entries: list[Entry] = []
    for event in order.feed(notes, records):
        entries += story.add(event)
    for record in order.remaining_records():
        entries += story.add(record)
    return entries + story.finish()


def is_late(gap: HeartbeatGap) -> bool:
    """Whether the gap came close to the session timeout. Notes also have shorter gaps. Notes of older versions do not contain the session timeout."""
    return gap.session_ms < 0 or gap.max_gap_ms * 3 > gap.session_ms * 2
