"""Notes of one group, in the order of their log, folded into its story.

A rebalance opens with the change of state that leaves STABLE or EMPTY, stays open while it is begun anew, and closes when the
group is STABLE or EMPTY again. Who joined or went is told before the change that this caused, within the same step: such notes
wait for it, and stand alone when none comes. Notes may be missing, for a group has a budget of them: whatever is told of a
rebalance whose beginning is not known opens it as far as it is known.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.notes import Cause, Coordinator, How, Replacement, Round
from coordinator.states import COMPLETING, EMPTY, PREPARING, STABLE, State
from history.episodes import Came, End, Entry, Late, Lost, Moved, Rebalance, Refused, Returned, Went
from history.told import Told, known
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


class Story:
    """`add` gives what is complete with this note; `finish` what is left. What `now_open` gives is still under way."""

    def __init__(self, group: str) -> None:
        self.group = group
        self._open: Rebalance | None = None
        self._closing = False  # it has come to its end; the change of state that says so follows
        self._waiting: list[Waiting] = []  # told before the change that they caused
        self._members: set[str] = set()
        self._members_known = False  # all of them: a whole rebalance was seen, or the group when it was empty

    @property
    def now_open(self) -> Rebalance | None:
        return self._open

    def add(self, told: Told) -> list[Entry]:
        done: list[Entry] = []
        header, body = told.header, told.body
        if told.group not in (self.group, ""):
            return done
        if self._waiting and self._waiting[-1].at_ms != header.ts:
            done += self._alone()
        if self._closing and not (isinstance(body, StateChange) and body.to_state in (STABLE, EMPTY)):
            done += self._close()
        if header.dropped and told.group:
            if self._open is not None:
                self._open.lost += header.dropped
            else:
                done.append(Lost(header.ts, header.dropped))
            self._members_known = False
        match body:
            case StateChange():
                done += self._changed(header, body)
            case MemberJoin():
                self._came(header.ts, body)
            case MemberGone():
                self._members.discard(body.member_id)
                how = known(How, body.how)
                gone = Went(header.ts, body.member_id, body.instance_id, how, body.since_heartbeat_ms, body.session_ms, body.client_reason)
                self._take(gone)
            case StaticReplaced():
                done += self._returned(header.ts, body)
            case RoundEnd():
                self._round_ended(header, body)
            case CoordinatorChange():
                done += self._interrupted(header.ts, body)
                done.append(Moved(header.ts, known(Coordinator, body.what), body.load_ms, body.groups))
            case Heartbeats():
                done.append(Late(header.ts, tuple((one.member_key, one.max_gap_ms, one.count) for one in body.members)))
            case CommitRefused():
                done.append(Refused(header.ts, body.error_code, body.member_id, body.instance_id, body.count, body.since_ms))
        return done

    def finish(self) -> list[Entry]:
        """There are no more notes: what is open stays so."""
        done = self._alone()
        if self._closing:
            done += self._close()
        if self._open is not None:
            done.append(self._open)
            self._open = None
        return done

    # Members.

    def _came(self, at_ms: int, body: MemberJoin) -> None:
        # A client of today brings its id when it joins for the first time too: only who was seen before is known to come again.
        again = body.member_id in self._members or (body.known_id and not self._members_known and self._open is not None)
        self._members.add(body.member_id)
        self._take(Came(at_ms, body.member_id, body.instance_id, body.client_id, body.host, body.session_ms, again, body.client_reason))

    def _returned(self, at_ms: int, body: StaticReplaced) -> list[Entry]:
        self._members.discard(body.old_id)
        self._members.add(body.new_id)
        outcome = known(Replacement, body.outcome)
        back = Returned(at_ms, body.instance_id, body.old_id, body.new_id, body.client_id, body.host, body.since_heartbeat_ms, outcome)
        if outcome is Replacement.NO_REBALANCE:
            return [back]
        self._take(back)
        return []

    def _take(self, one: Waiting) -> None:
        if self._open is not None and not self._closing:
            _put(self._open, one)
        else:
            self._waiting.append(one)

    def _alone(self) -> list[Entry]:
        waiting, self._waiting = self._waiting, []
        return list(waiting)

    # States.

    def _changed(self, header: NoteHeader, body: StateChange) -> list[Entry]:
        to = known(State, body.to_state)
        if to is PREPARING:
            return self._prepared(header, body)
        opened = self._opened(header)
        if to is COMPLETING:
            opened.to_generation = header.generation
        elif to in (STABLE, EMPTY):
            opened.end = End.STABLE if to is STABLE else End.EMPTY
            opened.ended_ms = header.ts
            opened.to_generation = header.generation
            opened.members_after = body.members
            opened.offset = header.offsets_log_offset
            return self._close()
        return []

    def _prepared(self, header: NoteHeader, body: StateChange) -> list[Entry]:
        cause = known(Cause, body.reason)
        before = known(State, body.from_state)
        opened = self._open
        if opened is not None and before is COMPLETING:
            if cause is not None:
                opened.also.append(cause)
            opened.rounds += 1
            opened.whole = opened.whole and not opened.lost
            return []
        done: list[Entry] = []
        if opened is not None:
            done += self._close()  # the notes of its end are missing
        waiting, self._waiting = self._waiting, []
        opened = self._open = Rebalance(header.ts, before, header.generation, cause, body.reason_text)
        if before is COMPLETING:
            opened.whole = False
        if before is EMPTY:
            self._members = {one.member_id for one in waiting if isinstance(one, Came)}
            self._members_known = True
        for one in waiting:
            if isinstance(one, Came) and cause is Cause.NEW_MEMBER:
                one = one._replace(again=False)
            _put(opened, one)
        opened.members_before = body.members - len(opened.joined) + len(opened.went)
        return done

    def _opened(self, header: NoteHeader) -> Rebalance:
        """The one under way; where nothing is known of its beginning, one that begins here."""
        if self._open is None:
            self._open = Rebalance(header.ts, None, -1, None, whole=False)
            for one in self._waiting:
                _put(self._open, one)
            self._waiting = []
        return self._open

    def _round_ended(self, header: NoteHeader, body: RoundEnd) -> None:
        opened = self._opened(header)
        result = known(Round, body.result)
        opened.join_ms, opened.sync_ms = body.join_ms, body.sync_ms
        opened.laggards += [one for one in body.laggards if one not in opened.laggards]
        if not opened.whole and opened.began_ms == header.ts:
            opened.began_ms -= body.join_ms + body.sync_ms
        if result in (Round.STABLE, Round.EMPTY):
            opened.end = End.STABLE if result is Round.STABLE else End.EMPTY
            opened.ended_ms = header.ts
            opened.to_generation = header.generation
            opened.offset = header.offsets_log_offset
            self._closing = True

    def _interrupted(self, at_ms: int, body: CoordinatorChange) -> list[Entry]:
        """A coordinator that begins anew knows the group as it was stored: a rebalance under way is no more."""
        if self._open is None or body.what not in (Coordinator.LOADED, Coordinator.UNLOADED, Coordinator.SUSPENDED, Coordinator.RESUMED):
            return []
        self._open.end = End.INTERRUPTED
        self._open.ended_ms = at_ms
        return self._close()

    def _close(self) -> list[Entry]:
        opened, self._open, self._closing = self._open, None, False
        if opened is None:
            return []
        if opened.end is End.OPEN:
            opened.end = End.INTERRUPTED  # nobody told how it ended
        if opened.end is End.EMPTY:
            self._members.clear()
        if opened.end in (End.STABLE, End.EMPTY) and not opened.lost:
            self._members_known = True
        return [opened]


def _put(opened: Rebalance, one: Waiting) -> None:
    if isinstance(one, Came):
        opened.came.append(one)
    elif isinstance(one, Went):
        opened.went.append(one)
    else:
        opened.returned.append(one)


def story_of(group: str, notes: Iterable[Told]) -> list[Entry]:
    """The whole story, as far as these notes tell it."""
    story = Story(group)
    entries: list[Entry] = []
    for told in notes:
        entries += story.add(told)
    return entries + story.finish()
