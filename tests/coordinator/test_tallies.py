"""Notes that count late heartbeats and refused commits."""

from __future__ import annotations

import pytest

from coordinator import tallies
from coordinator.classic.group import Group
from coordinator.config import MS_PER_NOTE, NOTE_BUDGET_MAX
from coordinator.notes import spend_note_budget
from protocol.errors import ErrorCode
from protocol.messages.coordinator_notes import CommitRefused, Heartbeats
from protocol.messages.kinds import NoteKind
from tests.coordinator.playbook import Play

pytestmark = pytest.mark.once  # no dependence on the Python version


def gaps(play: Play) -> list[dict[str, tuple[int, int]]]:
    bodies = [note.body for note in play.notes if isinstance(note.body, Heartbeats)]
    assert all(member.session_ms == 10_000 for body in bodies for member in body.members)
    return [{member.member_key: (member.max_gap_ms, member.count) for member in body.members} for body in bodies]


def refusals(play: Play) -> list[tuple[int, str, str | None, int]]:
    bodies = [note.body for note in play.notes if isinstance(note.body, CommitRefused)]
    return [(body.error_code, body.member_id, body.instance_id, body.count) for body in bodies]


def test_late_heartbeats_are_noted_once_a_minute(play: Play) -> None:
    play.settled("a", "b", static={"a"})
    for ms in range(0, 66_000, 6_000):
        play.at(ms).heartbeat("a").expect()
        play.heartbeat("b").expect()
        play.at(ms + 3_000).heartbeat("b").expect()
    play.at(65_999)
    assert gaps(play) == []
    play.at(66_000)
    assert gaps(play) == [{"ia": (6_000, 10)}]


def test_refused_commits_are_noted_ten_seconds_after_the_first(play: Play) -> None:
    play.two_static()
    play.keep_alive("a", "b")
    for _ in range(3):
        play.commit("b", generation=0).expect(ErrorCode.ILLEGAL_GENERATION)
    play.at(9_999).commit("x", generation=1, instance=None).expect(ErrorCode.UNKNOWN_MEMBER_ID)
    assert refusals(play) == []
    play.at(10_000)
    assert refusals(play) == [(ErrorCode.ILLEGAL_GENERATION, play.id_of("b"), "ib", 3), (ErrorCode.UNKNOWN_MEMBER_ID, "x", None, 1)]
    play.at(60_000)
    assert len(refusals(play)) == 2


def test_a_commit_to_an_unknown_group_belongs_to_no_member(play: Play) -> None:
    play.commit("x", generation=1).expect(69)
    play.at(20_000)
    assert refusals(play) == []


@pytest.mark.plain
def test_sums_have_a_limit(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tallies, "ENTRIES_MAX", 3)
    play.one_static(session=600_000)
    for number in range(5):
        play.commit(f"x{number}", generation=1, instance=None).expect(ErrorCode.UNKNOWN_MEMBER_ID)
        play.commit("x0", generation=1, instance=None)
    play.at(10_000)
    assert [(refusal[1], refusal[3]) for refusal in refusals(play)] == [("x0", 6), ("x1", 1), ("x2", 1)]


def test_a_group_with_too_many_notes_has_the_number_of_dropped_ones(play: Play) -> None:
    play.one_dynamic(session=1_800_000)
    play.keep_alive("a")
    for number in range(1_500):
        play.commit(f"x{number}", generation=1)
    play.at(10_000)
    noted = [note for note in play.notes if note.kind == NoteKind.COMMIT_REFUSED]
    assert len(noted) == NOTE_BUDGET_MAX
    play.at(11_000)
    play.leave("a")
    dropped = [note.dropped for note in play.notes if note.dropped]
    assert sum(dropped) == 1_500 - len(noted)


@pytest.mark.plain
def test_sums_of_late_heartbeats_have_a_limit_and_restart_once_noted(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tallies, "ENTRIES_MAX", 2)
    play.settled("a", "b", "c")
    for ms in range(6_000, 126_000, 6_000):
        play.at(ms)
        for name in ("a", "b", "c") if ms < 66_000 else ("c", "b", "a"):
            play.heartbeat(name).expect()
    assert gaps(play) == [{play.id_of("a"): (6_000, 10), play.id_of("b"): (6_000, 10)}]
    play.at(126_000)
    assert gaps(play)[1:] == [{play.id_of("c"): (6_000, 10), play.id_of("b"): (6_000, 10)}]


@pytest.mark.parametrize("tally", ["late heartbeats", "refused commits"])
@pytest.mark.parametrize("why", ["the group was deleted", "the group has no note budget"])
def test_no_tally_is_noted_for_a_deleted_group_or_one_without_note_budget(play: Play, tally: str, why: str) -> None:
    play.one_dynamic()
    if tally == "late heartbeats":
        play.at(6_000).heartbeat("a").expect()
        due = 66_000
    else:
        play.commit("x", generation=1).expect(ErrorCode.UNKNOWN_MEMBER_ID)
        due = 10_000
    play.leave("a").expect()
    if why == "the group was deleted":
        play.delete().expect()
        play.at(due)
    else:
        play.at(due - 1)
        note_budget(play.group(), play.now, NOTE_BUDGET_MAX)
        dropped = play.group().notes_dropped
        play.at(due)
        assert play.group().notes_dropped == dropped + 1
    assert (gaps(play), refusals(play)) == ([], [])


def note_budget(group: Group, ms: int, most: int) -> int:
    """Use up the note budget of the group at that moment; returns the number of notes that it allowed, at most `most`."""
    return next(number for number in range(most + 1) if not spend_note_budget(group, ms))


def test_a_group_without_note_budget_earns_a_note_every_fifty_milliseconds(play: Play) -> None:
    play.one_dynamic()
    group = play.group()
    begin = play.now
    assert note_budget(group, begin, NOTE_BUDGET_MAX) < NOTE_BUDGET_MAX
    assert note_budget(group, begin + MS_PER_NOTE - 1, 1) == 0
    assert note_budget(group, begin + MS_PER_NOTE, 2) == 1
    assert note_budget(group, begin + MS_PER_NOTE + 3 * MS_PER_NOTE, 4) == 3
    assert note_budget(group, begin + 1_000_000, NOTE_BUDGET_MAX) == NOTE_BUDGET_MAX


def test_a_group_within_its_note_budget_drops_no_note(play: Play) -> None:
    play.one_dynamic()
    group = play.group()
    assert all(spend_note_budget(group, play.now + number * 1_000) for number in range(3 * NOTE_BUDGET_MAX))


def test_a_new_member_of_a_group_without_note_budget_is_noted(play: Play) -> None:
    play.one_dynamic()
    note_budget(play.group(), play.now, NOTE_BUDGET_MAX)
    before = len(play.notes)
    play.join("b", version=3)
    assert [note.kind for note in play.notes[before:]] == [NoteKind.MEMBER_JOIN, NoteKind.STATE_CHANGE]
