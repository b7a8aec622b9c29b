"""The numbers in stored notes, which other versions must read, and the counting of notes."""

from __future__ import annotations

from enum import IntEnum

import pytest

from coordinator.classic.group import Group
from coordinator.classic.member import Member
from coordinator.config import NOTE_BUDGET_MAX, NOTES_PER_NEW_MEMBER
from coordinator.notes import (
    Cause,
    Removal,
    Replacement,
    RoundResult,
    ShardChange,
    grant_note_budget,
    make_note,
    spend_note_budget,
)
from coordinator.states import State
from protocol.messages.coordinator_notes import StateChange
from protocol.messages.kinds import NoteKind

pytestmark = pytest.mark.once  # no dependence on the Python version

BODY = StateChange(0, 1, 0, None, None, 1, 0)

STORED: dict[type[IntEnum], str] = {
    NoteKind: "STATE_CHANGE=1 MEMBER_JOIN=2 MEMBER_GONE=3 STATIC_REPLACED=4 ROUND_END=5 HEARTBEATS=6 COMMIT_REFUSED=7 END_OFFSETS=8 "
    "COORDINATOR=9",
    Cause: "NEW_MEMBER=0 LEADER_REJOINED=1 MEMBER_METADATA_CHANGED=2 MEMBER_LEFT=3 SESSION_EXPIRED=4 REBALANCE_TIMEOUT=5 "
    "STATIC_PROTOCOL_CHANGED=6 STATIC_DURING_COMPLETING=7 SYNC_FAILED=8 ADMIN_REMOVED=9 GROUP_EMPTIED=10 COORDINATOR_MOVED=11 SYNC_TIMEOUT=12 "
    "PENDING_LEFT=13 OVER_MAX_SIZE=14 JOIN_TIMEOUT=15 EVERYONE_JOINED=16 ASSIGNED=17",
    Removal: "LEFT=0 EXPIRED=1 REBALANCE_TIMEOUT=2 FENCED=3 ADMIN_REMOVED=4 PENDING_EXPIRED=5 SYNC_TIMEOUT=6 OVER_MAX_SIZE=7 REPLACED=8",
    Replacement: "NO_REBALANCE=0 PROTOCOL_CHANGED=1 COMPLETING=2 PREPARING=3",
    RoundResult: "STABLE=0 EMPTY=1 SUPERSEDED=2 LEADER_LOST=3",
    ShardChange: "LOADED=0 UNLOADED=1 SUSPENDED=2 RESUMED=3",
    State: "EMPTY=0 PREPARING=1 COMPLETING=2 STABLE=3 DEAD=4",
}


@pytest.mark.parametrize("kind", STORED)
def test_numbers_in_stored_notes_stay(kind: type[IntEnum]) -> None:
    """Stored notes have these numbers, so a new name needs a new number."""
    stored_fields = dict(pair.split("=") for pair in STORED[kind].split())
    assert {name: int(kind[name]) for name in stored_fields} == {name: int(number) for name, number in stored_fields.items()}


def test_states_are_shown_with_kafkas_names() -> None:
    assert [state.shown for state in State] == ["Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"]


def test_note_numbers_count_dropped_notes() -> None:
    group = Group("g", 0, 0)
    notes = [make_note(group, wall, BODY) for wall in (0, 7)]
    group.notes_dropped = 3
    notes += [make_note(group, wall, BODY) for wall in (9, 11)]
    assert [(note.at_ms, note.dropped, note.counted_from, note.number) for note in notes] == [(0, 0, 0, 0), (7, 0, 0, 1), (9, 3, 0, 5), (11, 0, 0, 6)]
    assert group.notes_dropped == 0


def test_a_group_counts_its_notes_from_the_moment_of_its_first() -> None:
    group = Group("g", 0, 0)
    assert [make_note(group, wall, BODY).counted_from for wall in (1_700, 1_800, 1_600)] == [1_700] * 3


def test_suppressed_notes_are_counted_in_the_next_note() -> None:
    group = Group("g", 1_000, 0)
    assert [spend_note_budget(group, 1_000) for _ in range(201)] == [True] * 200 + [False]
    assert [spend_note_budget(group, now) for now in (1_049, 1_050, 1_050, 1_150, 1_150, 1_150)] == [False, True, False, True, True, False]
    assert group.notes_dropped == 4


@pytest.mark.parametrize("members", [0, 50, 51, 300])
def test_each_newcomer_raises_the_note_budget_up_to_the_limit_of_the_group_size(members: int) -> None:
    group = Group("g", 0, 0)
    for number in range(members):
        group.add(Member("g", f"m{number}", None, "", "", 0, 0, (("range", b""),)))
    for _ in range(2_000):
        grant_note_budget(group)
    assert group.note_budget == max(NOTE_BUDGET_MAX, NOTES_PER_NEW_MEMBER * members)
    group.note_budget = 0
    grant_note_budget(group)
    assert group.note_budget == NOTES_PER_NEW_MEMBER
