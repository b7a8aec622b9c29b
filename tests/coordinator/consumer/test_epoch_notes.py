"""Notes about the epochs of consumer groups, and the history that they make together with the records."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.config import NOTE_BUDGET_MAX
from coordinator.consumer.config import MigrationPolicy
from coordinator.consumer.note_count import NoteCount
from coordinator.notes import Cause, EpochStep, Note, Removal
from coordinator.states import State
from history.episodes import End, Rebalance
from history.epoch_notes import EpochNotes, is_of_epochs
from history.epochs import tell
from history.newer import newer_kind, read_newer_record
from history.note_records import NoteRecord
from history.words import title
from protocol.messages.coordinator_notes import CommitRefused, EpochNote, NoteHeader, StateChange
from tests.coordinator.consumer.playing import TIMEOUT, Play, partitions
from tests.coordinator.consumer.programs import CONFIG
from tests.coordinator.consumer.test_migration import classic_group

SESSION_MS = 45_000


@pytest.fixture
def notes(play: Play) -> list[Note]:
    noted: list[Note] = []
    play.shard._note_sink = lambda notes, fact_number: noted.extend(notes)
    return noted


def begun(notes: list[Note]) -> list[tuple[int, Cause, list[str]]]:
    return [(note.generation, Cause(note.body.cause), note.body.members) for note in notes if isinstance(note.body, EpochNote) and note.body.step == EpochStep.BEGUN]


def steps(notes: list[Note], step: EpochStep) -> list[Any]:
    return [note.body for note in notes if isinstance(note.body, EpochNote) and note.body.step == step]


def rebalances(play: Play, notes: list[Note]) -> list[Rebalance]:
    """The history of the group by the records and notes of the play."""
    records = []
    for offset, (key, value) in enumerate(play.log):
        kind = newer_kind(key)
        if kind is not None:
            records.append(read_newer_record(kind, offset, play.wall, 0, key, value))
    told = tell("g", [], records).entries
    explained = EpochNotes(
        NoteRecord(note.group_id, NoteHeader(note.kind, note.at_ms, 0, 0, note.generation, note.state, -1, note.dropped, note.counted_from, note.number), note.body)
        for note in notes
    )
    for entry in told:
        explained.explain(entry)
    return [entry for entry in told if isinstance(entry, Rebalance)]


def test_each_epoch_has_one_note_with_its_cause(play: Play, notes: list[Note]) -> None:
    play.join("a", "t")
    play.join("b", "t")
    play.settle_members("a", "b")
    play.topic("t", 6)
    play.settle_members("a", "b")
    play.poll("b", topics=["t", "u"])
    play.poll("b", assignor="range")
    play.say("b", -1)
    assert begun(notes) == [
        (2, Cause.NEW_MEMBER, ["a"]),
        (3, Cause.NEW_MEMBER, ["b"]),
        (4, Cause.TOPICS_CHANGED, []),
        (5, Cause.MEMBER_METADATA_CHANGED, ["b"]),
        (6, Cause.ASSIGNOR_CHANGED, ["b"]),
        (7, Cause.MEMBER_LEFT, ["b"]),
    ]
    assert {note.state for note in notes} == {State.DEAD}
    assert [note.number for note in notes] == list(range(len(notes)))


def test_an_expression_that_is_resolved_is_a_cause(play: Play, notes: list[Note]) -> None:
    play.join("a", regex="t.*")
    assert begun(notes)[-1][1] is Cause.REGEX_RESOLVED


def test_a_target_says_how_many_partitions_move_and_the_last_member_how_long_it_took(play: Play, notes: list[Note]) -> None:
    play.join("a", "t")
    play.join("b", "t")
    began = play.moment
    assert [body.moved for body in steps(notes, EpochStep.COMPUTED)] == [4, 2]
    play.ack("a")
    assert len(steps(notes, EpochStep.REACHED)) == 1  # that of the first member alone
    play.wait(1_000)
    play.settle_members("a", "b")
    assert len(steps(notes, EpochStep.REACHED)) == 2
    assert 1_000 <= steps(notes, EpochStep.REACHED)[-1].took_ms <= play.moment - began + 1


def test_a_target_names_its_assignor(play: Play, notes: list[Note]) -> None:
    play.join("a", "t")
    play.join("b", "t", assignor="range")
    assert [body.assignor for body in steps(notes, EpochStep.COMPUTED)] == ["uniform", "range"]
    play.settle_members("a", "b")
    assert [rebalance.assignor for rebalance in rebalances(play, notes)] == ["uniform", "range"]


def test_the_last_step_names_the_members_that_others_waited_for_and_how_long(play: Play, notes: list[Note]) -> None:
    play.join("a", "t")
    play.join("b", "t")
    play.poll("a")
    play.wait(1_000)
    play.poll("b")
    play.ack("a")
    play.poll("b")
    first, last = steps(notes, EpochStep.REACHED)
    assert (first.held_up_by, first.held_up_ms) == ([], [])
    assert last.held_up_by == ["a"]
    assert 1_000 <= last.held_up_ms[0] <= 1_010
    assert rebalances(play, notes)[-1].held_up == [("a", last.held_up_ms[0])]
    assert not play.group.note_count.told_ms
    assert not play.group.note_count.held_up_ms


def test_a_member_that_goes_holds_nobody_up_any_more(play: Play, notes: list[Note]) -> None:
    play.join("a", "t")
    play.join("b", "t")
    play.poll("a")
    play.wait(500)
    play.say("a", -1)
    play.poll("b")
    last = steps(notes, EpochStep.REACHED)[-1]
    assert last.held_up_by == ["a"]
    assert not play.group.note_count.told_ms


def test_refused_commits_are_counted_with_the_epochs_that_were_compared(play: Play, notes: list[Note]) -> None:
    play.join("a", "t")
    for _ in range(3):
        assert play.commit_as("a", 1, partitions(0)) == 113
    assert play.commit_as("nobody", 1, partitions(0)) == 25
    play.wait(11_000)
    refused = {note.body.member_id: note.body for note in notes if isinstance(note.body, CommitRefused)}
    stale = refused["a"]
    assert (stale.error_code, stale.count, stale.sent_epoch, stale.member_epoch) == (113, 3, 1, 2)
    assert (refused["nobody"].error_code, refused["nobody"].member_epoch) == (25, -1)
    assert all(is_of_epochs(NoteRecord("g", NoteHeader(note.kind, 0, 0, 0, 2, note.state, -1, 0, -1, -1), note.body)) for note in notes)


def test_a_group_that_is_downgraded_rebalances_for_that_cause(notes: list[Note]) -> None:
    play = Play(CONFIG._replace(consumer=CONFIG.consumer._replace(migration_policy=MigrationPolicy.BIDIRECTIONAL)))
    noted: list[Note] = []
    play.shard._note_sink = lambda of_step, fact_number: noted.extend(of_step)
    play.topic("t", 4)
    play.join("a", "t")
    play.play({"do": "classic_join", "name": "c", "topics": ["t"], "new": True, "v": 3})
    play.say("a", -1)
    (change,) = [note.body for note in noted if isinstance(note.body, StateChange) and note.body.reason == Cause.DOWNGRADED]
    assert change.member == play.identities.id_of("a")
    assert change.text == "no member of the consumer protocol is left (member_left)"


def test_a_session_that_ends_is_told_from_a_leave(play: Play, notes: list[Note]) -> None:
    play.join("a", "t")
    play.wait(SESSION_MS + 1)
    assert begun(notes)[-1] == (3, Cause.SESSION_EXPIRED, ["a"])
    (formed, ended) = rebalances(play, notes)
    assert (ended.cause, ended.end, [removal.cause for removal in ended.removals]) == (Cause.SESSION_EXPIRED, End.EMPTY, [Removal.EXPIRED])
    assert title(formed) == "a joined the empty group"
    assert title(ended) == "a sent no heartbeat within its session timeout"


def test_a_member_that_gives_nothing_up_is_named(play: Play, notes: list[Note]) -> None:
    play.join("a", "t", timeout=TIMEOUT // 2)
    play.join("b", "t")
    play.poll("a")
    for _ in range(4):
        play.wait(TIMEOUT // 8)
        play.poll("a")
        play.poll("b")
    assert begun(notes)[-1] == (4, Cause.REBALANCE_TIMEOUT, ["a"])
    last = rebalances(play, notes)[-1]
    assert last.restart_causes == [Cause.REBALANCE_TIMEOUT]
    assert [removal.cause for removal in last.removals] == [Removal.NOT_GIVEN_UP]


def test_a_static_member_that_is_back_has_no_epoch(play: Play, notes: list[Note]) -> None:
    play.join("a", "t", instance="i")
    play.say("a", -2, instance="i")
    before = len(begun(notes))
    play.join("a2", "t", instance="i")
    assert len(begun(notes)) == before


@pytest.mark.parametrize("vote", ["range", None])
def test_a_static_member_that_is_back_with_other_topics_has_not_left(play: Play, notes: list[Note], vote: str | None) -> None:
    play.join("a", "t", instance="i")
    play.say("a", -2, instance="i")
    play.join("a2", "t", "u", instance="i", assignor=vote)
    assert begun(notes)[1:] == [(3, Cause.MEMBER_METADATA_CHANGED, ["a2"])]


def test_a_topic_that_grew_meanwhile_is_the_cause_when_a_static_member_is_back(play: Play, notes: list[Note]) -> None:
    play.join("a", "t", instance="i")
    play.say("a", -2, instance="i")
    play.topic("t", 6)
    play.join("a2", "t", instance="i")
    assert begun(notes)[1:] == [(3, Cause.TOPICS_CHANGED, [])]


def test_notes_of_consumer_groups_are_told_from_those_of_classic_groups(play: Play, notes: list[Note]) -> None:
    play.join("a", "t")
    header = NoteHeader(notes[0].kind, 0, 0, 0, 2, notes[0].state, -1, 0, -1, -1)
    assert is_of_epochs(NoteRecord("g", header, notes[0].body))
    header.state = State.STABLE
    assert not is_of_epochs(NoteRecord("g", header, notes[0].body))


def test_a_budget_that_is_used_up_counts_the_notes_that_are_dropped(play: Play, notes: list[Note]) -> None:
    count = NoteCount()
    assert sum(count.spend(0) for _ in range(NOTE_BUDGET_MAX + 3)) == NOTE_BUDGET_MAX
    assert count.dropped == 3
    play.join("a", "t")
    group = play.shard.consumers.groups["g"]
    group.note_count.budget, group.note_count.earned_ms = 0, play.shard._out.now
    play.poll("a", topics=["t", "u"])
    group.note_count.budget = 10
    play.poll("a", topics=["t"])
    assert notes[-1].dropped + notes[-2].dropped + notes[-3].dropped > 0
    assert notes[-1].number > len(notes) - 1


def test_the_first_member_of_the_consumer_protocol_upgrades_a_classic_group() -> None:
    play = Play(CONFIG._replace(consumer=CONFIG.consumer._replace(migration_policy=MigrationPolicy.BIDIRECTIONAL)))
    notes: list[Note] = []
    play.shard._note_sink = lambda noted, fact_number: notes.extend(noted)
    play.topic("t", 4)
    classic_group(play)
    play.join("a", "t")
    assert begun(notes) == [(3, Cause.UPGRADED, ["a"])]


@pytest.mark.parametrize(("id", "cause"), [("", Cause.ADMIN_REMOVED), ("a", Cause.MEMBER_LEFT)])
def test_a_member_that_is_removed_by_its_instance_id_alone_did_not_leave(play: Play, notes: list[Note], id: str, cause: Cause) -> None:
    play.join("a", "t", instance="i")
    play.play({"do": "leave", "members": [(id, "i")]})
    assert begun(notes)[-1] == (3, cause, ["a"])
