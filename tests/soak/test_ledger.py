"""Each guarantee, broken once in a made-up history: a checker that has never fired is not yet a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from tests.running import broker
from tests.soak.ledger import Assignment, Ledger, Seat
from tests.soak.soak_broker import COMPLAINT

PLACE = ("g", "t", 0)
FIRST = Assignment("round 1", (0, 1))
SECOND = Assignment("round 1", (2, 3))
OTHER = Assignment("round 2", (2,))


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def check_single_violation(ledger: Ledger, words: str) -> None:
    assert len(ledger.violations) == 1, ledger.violations
    assert words in ledger.violations[0]


def commit(ledger: Ledger, acknowledged: bool = True) -> int:
    number = ledger.commit_sent(PLACE)
    if acknowledged:
        ledger.acknowledged(PLACE, number)
    return number


# The simulator's promises. Its own tests break each of them; the tests below check that the ledger applies them to the clients of the soak.


def test_the_newest_acknowledged_commit_and_any_later_one_may_be_read(ledger: Ledger) -> None:
    commit(ledger, acknowledged=False)
    ledger.fetched(PLACE, -1, ledger.now)
    first = commit(ledger)
    sent = ledger.now
    newer = commit(ledger)
    for offset in (first, newer, commit(ledger, acknowledged=False)):
        ledger.fetched(PLACE, offset, sent)
    ledger.acknowledged(PLACE, ledger.deletion_sent(PLACE))
    ledger.fetched(PLACE, -1, ledger.now)
    assert not ledger.violations


@pytest.mark.parametrize("read", ["nothing", "older", "invented", "refused", "deleted"])
def test_any_other_offset_breaks_a_promise(ledger: Ledger, read: str) -> None:
    older, newest = commit(ledger), commit(ledger)
    refused = commit(ledger, acknowledged=False)
    ledger.refused(PLACE, refused)
    if read == "deleted":
        ledger.acknowledged(PLACE, ledger.deletion_sent(PLACE))
    offset = {"nothing": -1, "older": older, "invented": 1_000, "refused": refused, "deleted": newest}[read]
    ledger.fetched(PLACE, offset, ledger.now)
    check_single_violation(ledger, "is read for g: t-0, although")


def test_members_of_a_generation_share_the_round_and_not_the_partitions(ledger: Ledger) -> None:
    for group, seat, generation, assignment in (("g", "a", 1, FIRST), ("g", "b", 1, SECOND), ("g", "a", 1, FIRST), ("g", "a", 2, OTHER), ("other", "b", 1, OTHER)):
        ledger.synced(group, seat, generation, assignment, ledger.now)
    assert not ledger.violations


@pytest.mark.parametrize(
    ("seat", "generation", "assignment"),
    [("b", 2, OTHER), ("a", 2, SECOND), ("b", 2, Assignment("round 1", (1, 2))), ("a", 1, OTHER)],
    ids=["two rounds", "two assignments of one member", "two owners", "an older generation"],
)
def test_a_generation_with_two_assignments_or_a_decrease_breaks_a_promise(
    ledger: Ledger, seat: str, generation: int, assignment: Assignment
) -> None:
    before = ledger.now
    ledger.synced("g", "a", 2, FIRST, before)
    ledger.restarted()
    ledger.synced("g", seat, 1, Assignment("round 0", (0,)), before)  # allowed, as it was sent before the reply of the newer generation
    assert not ledger.violations
    ledger.synced("g", seat, generation, assignment, ledger.now)
    assert any(wrong.startswith("run 1: generations: ") for wrong in ledger.violations)


# Seats.


def test_a_settled_member_has_the_same_assignment_after_a_restart(ledger: Ledger) -> None:
    ledger.synced("g", "a", 1, FIRST, ledger.now)
    ledger.settled("g", {"a": Seat(1, FIRST)})
    ledger.restarted()
    ledger.synced("g", "a", 1, FIRST, ledger.now)
    assert not ledger.violations
    ledger.synced("g", "a", 2, Assignment("round 2", (0, 1)), ledger.now)
    check_single_violation(ledger, "lost seat")


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS])
def test_a_rebalance_of_a_settled_member_is_a_violation(ledger: Ledger, code: int) -> None:
    ledger.answered("g", "a", "Heartbeat", code)
    assert not ledger.violations
    ledger.settled("g", {"a": Seat(1, FIRST)})
    ledger.answered("g", "a", "Heartbeat", code)
    check_single_violation(ledger, "rebalance without cause")


def test_a_group_that_was_disturbed_may_rebalance(ledger: Ledger) -> None:
    ledger.settled("g", {"a": Seat(1, FIRST)})
    ledger.disturbed("g")
    ledger.answered("g", "a", "Heartbeat", ErrorCode.REBALANCE_IN_PROGRESS)
    ledger.synced("g", "a", 2, OTHER, ledger.now)
    assert not ledger.violations


@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit"])
def test_a_living_process_that_is_fenced_is_found(ledger: Ledger, api: str) -> None:
    ledger.answered("g", "a", api, ErrorCode.FENCED_INSTANCE_ID)
    check_single_violation(ledger, "fenced")


@pytest.mark.parametrize(
    ("api", "code"), [("SyncGroup", 14), ("OffsetFetch", 15), ("Heartbeat", -1), ("JoinGroup", 23), ("OffsetCommit", 69)]
)
def test_a_final_error_code_is_a_violation(ledger: Ledger, api: str, code: int) -> None:
    ledger.answered("g", "a", api, code)
    check_single_violation(ledger, "unexpected code")


@pytest.mark.parametrize(
    ("api", "code"), [("JoinGroup", 14), ("SyncGroup", 27), ("OffsetFetch", 16), ("Heartbeat", 15), ("OffsetCommit", 15)]
)
def test_a_retriable_error_code_is_no_violation(ledger: Ledger, api: str, code: int) -> None:
    ledger.answered("g", "a", api, code)
    assert not ledger.violations
    assert ledger.counts == {f"{api} {code}": 1}


def test_an_error_that_the_broker_logs_is_a_complaint(tmp_path: Path) -> None:
    with broker("--data", str(tmp_path), "--listen", "127.0.0.1:0", "--set", "log.format=console") as running:
        running.stop()
    assert running.lines
    assert not any(COMPLAINT.match(line) for line in running.lines)
    (line, *_) = (line for line in running.lines if " info " in line)
    assert COMPLAINT.match(line.replace(" info    ", " error   ", 1))
