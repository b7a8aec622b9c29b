"""The numbers that stand in stored notes: another version has to read them as they were meant."""

from __future__ import annotations

from enum import IntEnum

import pytest

from coordinator.notes import Cause, Coordinator, How, Kind, Replacement, Round
from coordinator.states import State

STORED: dict[type[IntEnum], str] = {
    Kind: "STATE_CHANGE=1 MEMBER_JOIN=2 MEMBER_GONE=3 STATIC_REPLACED=4 ROUND_END=5 HEARTBEATS=6 COMMIT_REFUSED=7 END_OFFSETS=8 COORDINATOR=9",
    Cause: "NEW_MEMBER=0 LEADER_REJOINED=1 MEMBER_METADATA_CHANGED=2 MEMBER_LEFT=3 SESSION_EXPIRED=4 REBALANCE_TIMEOUT=5 "
    "STATIC_PROTOCOL_CHANGED=6 STATIC_DURING_COMPLETING=7 SYNC_FAILED=8 ADMIN_REMOVED=9 GROUP_EMPTIED=10 COORDINATOR_MOVED=11 SYNC_TIMEOUT=12 "
    "PENDING_LEFT=13 OVER_MAX_SIZE=14 JOIN_TIMEOUT=15 EVERYONE_JOINED=16 ASSIGNED=17",
    How: "LEFT=0 EXPIRED=1 REBALANCE_TIMEOUT=2 FENCED=3 ADMIN_REMOVED=4 PENDING_EXPIRED=5 SYNC_TIMEOUT=6 OVER_MAX_SIZE=7 REPLACED=8",
    Replacement: "NO_REBALANCE=0 PROTOCOL_CHANGED=1 COMPLETING=2 PREPARING=3",
    Round: "STABLE=0 EMPTY=1 SUPERSEDED=2 LEADER_LOST=3",
    Coordinator: "LOADED=0 UNLOADED=1 SUSPENDED=2 RESUMED=3",
    State: "EMPTY=0 PREPARING=1 COMPLETING=2 STABLE=3 DEAD=4",
}


@pytest.mark.parametrize("kind", STORED)
def test_numbers_in_stored_notes_stay(kind: type[IntEnum]) -> None:
    """What is added later comes behind these."""
    known = dict(one.split("=") for one in STORED[kind].split())
    assert {name: int(kind[name]) for name in known} == {name: int(number) for name, number in known.items()}


def test_states_are_shown_with_kafkas_names() -> None:
    assert [state.shown for state in State] == ["Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"]
