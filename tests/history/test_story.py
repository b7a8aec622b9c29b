"""History of a group, folded from notes: playbooks of the coordinator, and the rebalances and events shown for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coordinator.notes import Cause, Removal, Replacement, RoundResult, ShardChange
from coordinator.states import State
from history import (
    CommitsRefused,
    CoordinatorChanged,
    End,
    Entry,
    HeartbeatsLate,
    MemberRemoved,
    NoteRecord,
    Rebalance,
    StaticReturned,
    Story,
    avoidable,
    story_of,
)
from history.words import title
from protocol.message import Message
from protocol.messages.coordinator_notes import (
    CommitRefused,
    CoordinatorChange,
    HeartbeatGap,
    Heartbeats,
    MemberGone,
    MemberJoin,
    NoteHeader,
    RoundEnd,
    StateChange,
)
from protocol.messages.kinds import NoteKind
from tests.coordinator.playbook import T0_T1, Play
from tests.history.conftest import note_records

ReadStory = Callable[[], list[Entry]]


def only_rebalance(entries: list[Entry]) -> Rebalance:
    (rebalance,) = entries
    assert isinstance(rebalance, Rebalance)
    return rebalance


def test_members_that_join_during_the_initial_delay_form_the_group(play: Play, story: ReadStory) -> None:
    play.join("a", version=3)
    play.at(1_000)
    play.join("b", version=3)
    play.at(10_000)
    play.sync("a", {"a": 1, "b": 2}, generation=1)
    formed = only_rebalance(story())
    assert (formed.cause, formed.from_state, formed.end) == (Cause.NEW_MEMBER, State.EMPTY, End.STABLE)
    assert (formed.from_generation, formed.to_generation, formed.members_before, formed.members_after) == (0, 1, 0, 2)
    assert [arrival.member_id for arrival in formed.joined] == ["c-a", "c-b"]
    assert formed.duration_ms == 10_000
    assert formed.begin_known
    assert title(formed) == "c-a and c-b joined the empty group"


def test_a_new_member_is_distinguished_from_rejoining_ones(play: Play, story: ReadStory) -> None:
    play.two_dynamic()
    play.after(500)
    play.join("c", version=3)
    play.after(2_000)
    play.join("a")
    play.after(1_000)
    play.join("b")
    play.sync("a", {"a": 1}, generation=2)
    grown = only_rebalance(story())
    assert grown.cause is Cause.NEW_MEMBER
    assert [arrival.member_id for arrival in grown.joined] == ["c-c"]
    assert (grown.from_generation, grown.to_generation, grown.members_before, grown.members_after) == (1, 2, 2, 3)
    last = grown.last_joiner
    assert last is not None
    assert last.member_id == "c-b"
    assert (grown.duration_ms, grown.join_ms, grown.sync_ms) == (3_000, 3_000, 0)
    assert title(grown) == "c-c joined"


def test_a_returning_static_member_is_one_entry_and_no_rebalance(play: Play, story: ReadStory) -> None:
    play.two_static()
    play.after(4_000)
    play.join("b'")
    (returned,) = story()
    assert isinstance(returned, StaticReturned)
    assert (returned.instance_id, returned.old_id, returned.new_id, returned.since_heartbeat_ms) == ("ib", "ib-b", "ib-b'", 4_000)
    assert returned.outcome is Replacement.NO_REBALANCE


def test_a_static_member_that_returns_with_other_protocols_is_the_cause(play: Play, story: ReadStory) -> None:
    play.one_static()
    play.join("a'", protocols=[("roundrobin", T0_T1), ("range", T0_T1)])
    play.sync("a'", {"a'": 1}, generation=2)
    changed = only_rebalance(story())
    assert changed.cause is Cause.STATIC_PROTOCOL_CHANGED
    assert [(returned.instance_id, returned.outcome) for returned in changed.returns] == [("ia", Replacement.PROTOCOL_CHANGED)]
    assert title(changed).startswith("ia returned with other assignors")


def test_an_expired_member_is_named_with_its_silent_time(play: Play, story: ReadStory) -> None:
    play.two_dynamic().keep_alive("a")
    play.after(10_100)
    play.join("a")
    play.sync("a", {"a": 1}, generation=2)
    expired = only_rebalance(story())
    (departure,) = expired.removals
    assert (expired.cause, departure.cause, departure.member_id) == (Cause.SESSION_EXPIRED, Removal.EXPIRED, "c-b")
    assert (expired.members_before, expired.members_after) == (2, 1)
    assert title(expired) == "c-b sent no heartbeat for 10.0 s (session timeout 10.0 s)"


def test_a_group_without_members_is_empty(play: Play, story: ReadStory) -> None:
    play.two_dynamic()
    play.leave("a", "b")
    rebalance = only_rebalance(story())
    assert (rebalance.cause, rebalance.end, rebalance.to_generation, rebalance.members_after) == (Cause.MEMBER_LEFT, End.EMPTY, 2, 0)
    assert rebalance.members_before == 2
    assert title(rebalance) == "c-a and c-b left"


def test_a_removal_by_instance_id_is_named_as_such(play: Play, story: ReadStory) -> None:
    play.two_static()
    play.leave(("", "ib"))
    play.join("a")
    play.sync("a", {"a": 1}, generation=2)
    removed = only_rebalance(story())
    assert [departure.cause for departure in removed.removals] == [Removal.ADMIN_REMOVED]
    assert title(removed) == "ib was removed by instance id"


def test_a_restarted_rebalance_has_two_rounds(play: Play, story: ReadStory) -> None:
    play.two_awaiting_assignment(static=False)
    play.notes.clear()
    play.leave("b")
    play.join("a")
    play.sync("a", {"a": 1}, generation=2)
    (only,) = story_of("g", note_records(play))
    assert isinstance(only, Rebalance)
    assert only.end is End.STABLE
    assert not only.begin_known  # it had begun before the first note


def test_a_second_round_belongs_to_the_same_rebalance(play: Play, story: ReadStory) -> None:
    play.two_dynamic()
    play.join("c", version=3)
    play.join("a")
    play.join("b")
    play.leave("c")
    play.join("a")
    play.join("b")
    play.sync("a", {"a": 1}, generation=3)
    twice = only_rebalance(story())
    assert (twice.rounds, twice.restart_causes, twice.end) == (2, [Cause.MEMBER_LEFT], End.STABLE)
    assert (twice.from_generation, twice.to_generation) == (1, 3)


def test_a_running_rebalance_is_shown_as_open(play: Play, story: ReadStory) -> None:
    play.two_dynamic()
    play.join("c", version=3)
    under_way = only_rebalance(story())
    assert under_way.end is End.OPEN
    assert under_way.duration_ms == -1


def test_members_that_did_not_rejoin_in_time_are_named(play: Play, story: ReadStory) -> None:
    play.two_dynamic(rebalance=5_000, session=30_000).keep_alive("a", "b")
    play.join("c", version=3, rebalance=5_000)
    play.join("a")
    play.after(5_100)
    play.sync("a", {"a": 1}, generation=2)
    late = only_rebalance(story())
    assert late.laggards == ["c-b"]
    assert [departure.cause for departure in late.removals] == [Removal.REBALANCE_TIMEOUT]


# Notes written by hand, for cases that a playbook cannot produce.


class Notes:
    """Builds consecutive notes, ten milliseconds apart unless `after` says otherwise."""

    def __init__(self) -> None:
        self.note_records: list[NoteRecord] = []
        self.now = 1_000
        self.state = State.STABLE
        self.generation = 1

    def note(
        self,
        body: Message,
        kind: NoteKind = NoteKind.STATE_CHANGE,
        *,
        group: str = "g",
        generation: int = -1,
        dropped: int = 0,
        after: int = 10,
    ) -> Notes:
        self.now += after
        self.generation = generation = generation if generation >= 0 else self.generation
        if isinstance(body, StateChange):
            self.state = State(body.to_state)
        header = NoteHeader(kind, self.now, len(self.note_records), 0, generation, self.state, -1, dropped)
        self.note_records.append(NoteRecord(group, header, body))
        return self

    def change(self, before: State, to: State, cause: Cause, members: int = 2, **fields: Any) -> Notes:
        return self.note(StateChange(before, to, cause, None, None, members, 0), **fields)

    def story(self) -> list[Entry]:
        return story_of("g", self.note_records)


def test_a_coordinator_restart_ends_the_open_rebalance() -> None:
    notes = Notes().change(State.STABLE, State.PREPARING, Cause.MEMBER_LEFT)
    notes.note(CoordinatorChange(ShardChange.LOADED, 2, 5, 7, 100), NoteKind.COORDINATOR, group="")
    cut, loaded = notes.story()
    assert isinstance(cut, Rebalance)
    assert (cut.end, cut.duration_ms) == (End.UNKNOWN, -1)  # it may have ended just before its coordinator did
    assert isinstance(loaded, CoordinatorChanged)
    assert (loaded.change, loaded.groups) == (ShardChange.LOADED, 7)


def test_missing_notes_are_counted_and_unknown_durations_stay_unknown() -> None:
    notes = Notes()
    notes.note(RoundEnd(RoundResult.STABLE, 3_000, 500, []), NoteKind.ROUND_END, generation=9, dropped=4)
    notes.change(State.COMPLETING, State.STABLE, Cause.ASSIGNED, generation=9, after=0)
    rebalance = only_rebalance(notes.story())
    assert (rebalance.cause, rebalance.begin_known, rebalance.missing_notes, rebalance.to_generation) == (None, False, 4, 9)
    assert (rebalance.duration_ms, rebalance.join_ms, rebalance.sync_ms) == (-1, 3_000, 500)  # these are known for the last round only
    assert title(rebalance) == "unknown cause: the notes of its beginning are missing"


def test_the_end_of_a_rebalance_is_found_without_its_state_change_note() -> None:
    notes = Notes().change(State.STABLE, State.PREPARING, Cause.NEW_MEMBER).change(State.PREPARING, State.COMPLETING, Cause.EVERYONE_JOINED, generation=2)
    notes.note(RoundEnd(RoundResult.STABLE, 10, 10, []), NoteKind.ROUND_END, generation=2)
    notes.change(State.STABLE, State.PREPARING, Cause.MEMBER_LEFT, generation=2)
    first, second = notes.story()
    assert isinstance(first, Rebalance)
    assert (first.end, first.duration_ms) == (End.STABLE, 20)
    assert isinstance(second, Rebalance)
    assert second.end is End.OPEN


def test_notes_without_a_rebalance_are_separate_entries() -> None:
    notes = Notes()
    notes.note(MemberGone("p", None, Removal.PENDING_EXPIRED, 0, 0, None), NoteKind.MEMBER_GONE)
    notes.note(CommitRefused(25, "z", None, 3, 900), NoteKind.COMMIT_REFUSED)
    notes.note(Heartbeats([HeartbeatGap("ia", 4_000, 2, 5_000)]), NoteKind.HEARTBEATS)
    removal, refused, late = notes.story()
    assert isinstance(removal, MemberRemoved)
    assert refused == CommitsRefused(1_020, 25, "z", None, 3, 900)
    assert late == HeartbeatsLate(1_030, (("ia", 4_000, 2),))


def test_heartbeats_are_late_after_more_than_two_thirds_of_the_session_timeout() -> None:
    notes = Notes()
    notes.note(Heartbeats([HeartbeatGap("late", 4_001, 2, 6_000), HeartbeatGap("in time", 4_000, 9, 6_000)]), NoteKind.HEARTBEATS)
    notes.note(Heartbeats([HeartbeatGap("in time", 2_001, 9, 6_000)]), NoteKind.HEARTBEATS)
    notes.note(Heartbeats([HeartbeatGap("of an older version", 2_001, 9)]), NoteKind.HEARTBEATS)
    assert [late.gaps for late in notes.story() if isinstance(late, HeartbeatsLate)] == [(("late", 4_001, 2),), (("of an older version", 2_001, 9),)]


def test_notes_of_other_groups_are_ignored() -> None:
    assert Notes().change(State.STABLE, State.PREPARING, Cause.NEW_MEMBER, group="other").story() == []


def test_complete_rebalances_are_printed_at_once_and_open_ones_later() -> None:
    notes = Notes().change(State.STABLE, State.PREPARING, Cause.NEW_MEMBER).change(State.COMPLETING, State.STABLE, Cause.ASSIGNED, generation=2)
    story = Story("g")
    assert story.add(notes.note_records[0]) == []
    assert story.open_rebalance is not None
    (done,) = story.add(notes.note_records[1])
    assert isinstance(done, Rebalance)
    assert story.open_rebalance is None
    assert story.finish() == []


def test_unknown_state_and_cause_numbers_are_accepted() -> None:
    notes = Notes()
    notes.note(StateChange(3, 1, 99, None, None, 2, 0)).note(MemberGone("x", None, 77, 0, 0, None), NoteKind.MEMBER_GONE)
    under_way = only_rebalance(notes.story())
    assert (under_way.cause, [departure.cause for departure in under_way.removals]) == (None, [None])


# Avoidable rebalances.


def join(notes: Notes, id: str, *, client: str = "app-1", after: int = 10) -> Notes:
    body = MemberJoin(id, None, client, "/10.0.0.1", 10_000, 60_000, True, False, 0, None)
    return notes.note(body, NoteKind.MEMBER_JOIN, after=after)


def leave(notes: Notes, id: str, *, silent: int = 5) -> Notes:
    return notes.note(MemberGone(id, None, Removal.LEFT, silent, 10_000, None), NoteKind.MEMBER_GONE)


def settle(notes: Notes, cause: Cause, generation: int, members: int = 2) -> Notes:
    return end_round(notes.change(State.STABLE, State.PREPARING, cause, members, after=0, generation=generation - 1), generation, members)


def form(notes: Notes) -> Notes:
    return end_round(notes.change(State.EMPTY, State.PREPARING, Cause.NEW_MEMBER, 1, after=0, generation=0), 1, 1)


def end_round(notes: Notes, generation: int, members: int) -> Notes:
    notes.change(State.PREPARING, State.COMPLETING, Cause.EVERYONE_JOINED, members, generation=generation)
    return notes.change(State.COMPLETING, State.STABLE, Cause.ASSIGNED, members, generation=generation)


def test_a_leave_and_return_is_a_restart_with_two_avoidable_rebalances() -> None:
    notes = Notes()
    form(join(notes, "a1"))
    settle(join(notes, "b1", client="app-2"), Cause.NEW_MEMBER, 2)
    settle(leave(notes, "a1"), Cause.MEMBER_LEFT, 3, 1)
    settle(join(notes, "a2", after=3_000), Cause.NEW_MEMBER, 4)
    restarts = avoidable(notes.story())
    assert restarts.rebalances == 2
    (restart,) = restarts.restarts
    assert (restart.client_id, restart.old_id, restart.new_id, restart.rebalances) == ("app-1", "a1", "a2", 2)
    assert restart.away_ms == restarts.longest_ms == 3_000 + 20 + 5  # counted from the last heartbeat


def test_a_replacement_by_another_client_is_no_restart() -> None:
    notes = Notes()
    form(join(notes, "a1"))
    settle(leave(notes, "a1"), Cause.MEMBER_LEFT, 2, 1)
    settle(join(notes, "c1", client="other"), Cause.NEW_MEMBER, 3, 1)
    assert avoidable(notes.story()).rebalances == 0


def test_a_rebalance_with_a_new_member_was_not_avoidable() -> None:
    notes = Notes()
    form(join(notes, "a1"))
    settle(leave(notes, "a1"), Cause.MEMBER_LEFT, 2, 1)
    join(notes, "a2").change(State.STABLE, State.PREPARING, Cause.NEW_MEMBER, 1, after=0, generation=2)
    end_round(join(notes, "n1", client="new"), 3, 2)
    restarts = avoidable(notes.story())
    assert len(restarts.restarts) == 1
    assert restarts.rebalances == 1  # only the rebalance of the departure was avoidable


def test_a_joined_member_implies_a_rebalance_whose_note_is_missing() -> None:
    notes = join(Notes(), "a1")
    notes.note(CommitRefused(25, "z", None, 3, 900), NoteKind.COMMIT_REFUSED)
    begun, refused = notes.story()
    assert isinstance(begun, Rebalance)
    assert (begun.cause, begun.begin_known, begun.from_generation, [only_rebalance.member_id for only_rebalance in begun.joins]) == (None, False, 1, ["a1"])
    assert isinstance(refused, CommitsRefused)
