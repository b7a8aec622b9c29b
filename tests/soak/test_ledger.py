"""Each guarantee, broken once in a made-up history: a checker that has never fired is not yet a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from tests.running import broker
from tests.soak.ledger import Assignment, Ledger, Seat
from tests.soak.world import COMPLAINT

PLACE = ("g", 0)
FIRST = Assignment("round 1", (0, 1))
SECOND = Assignment("round 1", (2, 3))


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def only(ledger: Ledger, words: str) -> None:
    assert len(ledger.wrong) == 1, ledger.wrong
    assert words in ledger.wrong[0]


def commit(ledger: Ledger, acknowledged: bool = True) -> int:
    number = ledger.commit_sent(PLACE)
    if acknowledged:
        ledger.acknowledged(PLACE, number)
    return number


# Offsets.


def test_the_newest_acknowledged_commit_and_any_later_one_may_be_read(ledger: Ledger) -> None:
    commit(ledger)
    floor = ledger.fetch_begun(PLACE)
    commit(ledger, acknowledged=False)
    for offset in (1, 2):
        ledger.fetched(PLACE, offset, floor)
    assert not ledger.wrong


def test_nothing_may_be_read_while_nothing_is_acknowledged(ledger: Ledger) -> None:
    commit(ledger, acknowledged=False)
    ledger.fetched(PLACE, -1, ledger.fetch_begun(PLACE))
    assert not ledger.wrong


def test_an_acknowledged_commit_that_is_not_there_is_lost(ledger: Ledger) -> None:
    commit(ledger)
    ledger.fetched(PLACE, -1, ledger.fetch_begun(PLACE))
    only(ledger, "lost commit")


def test_an_older_offset_than_the_acknowledged_one_is_a_lost_commit(ledger: Ledger) -> None:
    commit(ledger)
    commit(ledger)
    ledger.fetched(PLACE, 1, ledger.fetch_begun(PLACE))
    only(ledger, "lost commit")


def test_a_commit_acknowledged_while_a_fetch_was_under_way_need_not_be_in_it(ledger: Ledger) -> None:
    commit(ledger)
    floor = ledger.fetch_begun(PLACE)
    commit(ledger)
    ledger.fetched(PLACE, 1, floor)
    assert not ledger.wrong


def test_an_offset_that_was_never_sent_is_invented(ledger: Ledger) -> None:
    commit(ledger)
    ledger.fetched(PLACE, 2, ledger.fetch_begun(PLACE))
    only(ledger, "invented commit")


def test_a_refused_commit_must_not_be_stored(ledger: Ledger) -> None:
    commit(ledger)
    ledger.refused(PLACE, commit(ledger, acknowledged=False))
    ledger.fetched(PLACE, 2, ledger.fetch_begun(PLACE))
    only(ledger, "refused commit")


@pytest.mark.parametrize("acknowledged", [True, False])
def test_after_a_deletion_there_may_be_nothing(ledger: Ledger, acknowledged: bool) -> None:
    commit(ledger)
    number = ledger.deletion_sent(PLACE)
    if acknowledged:
        ledger.acknowledged(PLACE, number)
    ledger.fetched(PLACE, -1, ledger.fetch_begun(PLACE))
    assert not ledger.wrong


def test_a_deleted_offset_that_returns_is_found(ledger: Ledger) -> None:
    commit(ledger)
    ledger.acknowledged(PLACE, ledger.deletion_sent(PLACE))
    ledger.fetched(PLACE, 1, ledger.fetch_begun(PLACE))
    only(ledger, "lost commit: g partition 0 has 1, 2 was deleted")


def test_a_commit_after_a_deletion_must_not_be_lost(ledger: Ledger) -> None:
    ledger.acknowledged(PLACE, ledger.deletion_sent(PLACE))
    commit(ledger)
    ledger.fetched(PLACE, -1, ledger.fetch_begun(PLACE))
    only(ledger, "lost commit")


# Generations and assignments.


def test_members_of_a_generation_share_the_round_and_not_the_partitions(ledger: Ledger) -> None:
    ledger.synced("g", "a", 1, FIRST, 0)
    ledger.synced("g", "b", 1, SECOND, 0)
    ledger.synced("g", "a", 1, FIRST, 0)
    ledger.synced("g", "a", 2, Assignment("round 2", (0,)), 0)
    ledger.synced("other", "b", 1, Assignment("round 3", (0,)), 0)
    assert not ledger.wrong


def test_a_generation_used_for_another_assignment_is_found_though_no_member_saw_both(ledger: Ledger) -> None:
    ledger.synced("g", "a", 1, FIRST, 0)
    ledger.synced("g", "b", 1, Assignment("round 2", (2,)), 0)
    only(ledger, "two assignments: g generation 1 was handed out for round round 1 and for round 2")


def test_a_member_given_something_else_in_the_same_generation_is_found(ledger: Ledger) -> None:
    ledger.synced("g", "a", 1, FIRST, 0)
    ledger.synced("g", "a", 1, SECOND, 0)
    only(ledger, "two assignments: g generation 1 gave a (0, 1) and then (2, 3)")


def test_a_partition_given_to_two_members_is_found(ledger: Ledger) -> None:
    ledger.synced("g", "a", 1, FIRST, 0)
    ledger.synced("g", "b", 1, Assignment("round 1", (1, 2)), 0)
    only(ledger, "two owners")


def test_an_acknowledged_generation_must_not_be_forgotten_by_a_restart(ledger: Ledger) -> None:
    ledger.synced("g", "a", 2, FIRST, 0)
    ledger.restarted()
    ledger.synced("g", "a", 1, Assignment("round 0", (0,)), 1)
    only(ledger, "forgotten generation: g generation 1 is handed out after 2 was")


def test_an_answer_to_a_question_from_before_the_restart_may_be_older(ledger: Ledger) -> None:
    ledger.synced("g", "a", 2, FIRST, 0)
    ledger.restarted()
    ledger.synced("g", "a", 1, Assignment("round 0", (0,)), 0)
    assert not ledger.wrong


# Seats.


def test_a_settled_member_has_the_same_assignment_after_a_restart(ledger: Ledger) -> None:
    ledger.synced("g", "a", 1, FIRST, 0)
    ledger.settled("g", {"a": Seat(1, FIRST)})
    ledger.restarted()
    ledger.synced("g", "a", 1, FIRST, 1)
    assert not ledger.wrong
    ledger.synced("g", "a", 2, Assignment("round 2", (0, 1)), 1)
    only(ledger, "lost seat")


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS])
def test_a_settled_member_that_is_called_back_is_found(ledger: Ledger, code: int) -> None:
    ledger.answered("g", "a", "Heartbeat", code)
    assert not ledger.wrong
    ledger.settled("g", {"a": Seat(1, FIRST)})
    ledger.answered("g", "a", "Heartbeat", code)
    only(ledger, "rebalance without cause")


def test_a_group_that_was_disturbed_may_rebalance(ledger: Ledger) -> None:
    ledger.settled("g", {"a": Seat(1, FIRST)})
    ledger.disturbed("g")
    ledger.answered("g", "a", "Heartbeat", ErrorCode.REBALANCE_IN_PROGRESS)
    ledger.synced("g", "a", 2, Assignment("round 2", (0, 1)), 0)
    assert not ledger.wrong


@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit"])
def test_a_living_process_that_is_fenced_is_found(ledger: Ledger, api: str) -> None:
    ledger.answered("g", "a", api, ErrorCode.FENCED_INSTANCE_ID)
    only(ledger, "fenced")


@pytest.mark.parametrize(
    ("api", "code"), [("SyncGroup", 14), ("OffsetFetch", 15), ("Heartbeat", -1), ("JoinGroup", 23), ("OffsetCommit", 69)]
)
def test_a_code_that_stops_a_client_is_found(ledger: Ledger, api: str, code: int) -> None:
    ledger.answered("g", "a", api, code)
    only(ledger, "unexpected code")


@pytest.mark.parametrize(
    ("api", "code"), [("JoinGroup", 14), ("SyncGroup", 27), ("OffsetFetch", 16), ("Heartbeat", 15), ("OffsetCommit", 15)]
)
def test_a_code_on_which_clients_try_again_is_no_fault(ledger: Ledger, api: str, code: int) -> None:
    ledger.answered("g", "a", api, code)
    assert not ledger.wrong
    assert ledger.counts == {f"{api} {code}": 1}


def test_an_error_that_the_broker_logs_is_a_complaint(tmp_path: Path) -> None:
    with broker("--data", str(tmp_path), "--listen", "127.0.0.1:0", "--set", "log.format=console") as running:
        running.stop()
    assert running.lines
    assert not any(COMPLAINT.match(line) for line in running.lines)
    (line, *_) = (line for line in running.lines if " info " in line)
    assert COMPLAINT.match(line.replace(" info    ", " error   ", 1))
