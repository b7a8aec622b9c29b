"""The checks of the test that kills nodes detect each violation."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.clients.members import KAFKA_PYTHON
from tests.nodes.ledger import Account
from tests.nodes.producers import Producer, broken_promises

PLACE = ("probed", 0)


class FakeHost:
    """Receives the lines that a producer process would print."""

    listener: Any

    def add(self, listener: Any) -> None:
        self.listener = listener


def sender(*events: dict[str, Any]) -> Producer:
    new_sender = Producer(KAFKA_PYTHON, FakeHost())  # type: ignore[arg-type]
    for event in (*events, {"event": "finished"}):
        new_sender.add_event(json.loads(json.dumps(event)))
    return new_sender


def stored(value: str, partition: int, offset: int) -> dict[str, Any]:
    return {"event": "stored", "value": value, "partition": partition, "offset": offset}


def test_acknowledged_records_at_their_offsets_break_no_promise() -> None:
    assert broken_promises([sender(stored("a", 0, 0), stored("b", 1, 4))], {(0, 0): "a", (1, 4): "b", (1, 3): "not heard of"}) == []


@pytest.mark.parametrize(
    ("log", "wrong"),
    [
        ({(1, 4): "b"}, "1 of 2 records that were acknowledged"),
        ({(0, 0): "c", (1, 4): "b"}, "1 of 2 records that were acknowledged"),  # another record has the offset of "a"
        ({(0, 0): "a", (0, 1): "a", (1, 4): "b"}, "1 records of idempotent producers are in the log twice"),
    ],
)
def test_lost_replaced_and_repeated_records_are_found(log: dict[tuple[int, int], str], wrong: str) -> None:
    (problem,) = broken_promises([sender(stored("a", 0, 0), stored("b", 1, 4))], log)
    assert problem.startswith(wrong)


def test_a_producer_that_ended_by_itself_is_found() -> None:
    ended = sender(stored("a", 0, 0))
    ended.finished = False
    assert broken_promises([ended], {(0, 0): "a"}) == ["kafka-python-producer has ended by itself"]


def test_a_refused_record_and_a_producer_without_records_are_found() -> None:
    problems = broken_promises([sender({"event": "refused", "value": "a", "text": "no"})], {})
    assert [line.partition(" of kafka-python-producer")[0] for line in problems] == ["1 records", "no record"]


class FakeNodes:
    """A stand-in for the nodes: one coordinator, which has the commit `kept`."""

    def __init__(self) -> None:
        self.kept = 0

    def coordinator(self, group: str) -> int:
        return 1

    def port(self, id: int) -> int:
        return 0

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        return {PLACE: self.kept}


class FakeActor:
    def __init__(self, answer: Callable[[int], int]) -> None:
        self._answer = answer

    def connect(self, port: int) -> None: ...

    def commit(self, topic: str, partition: int, offset: int) -> int:
        return self._answer(offset)


def account(nodes: FakeNodes, answer: Callable[[int], int]) -> Account:
    new_account = Account(nodes, "g")  # type: ignore[arg-type]
    new_account._actor = FakeActor(answer)  # type: ignore[assignment]
    return new_account


def test_a_lost_commit_is_found_and_an_unanswered_commit_may_or_may_not_be_stored() -> None:
    nodes = FakeNodes()

    def answer(offset: int) -> int:
        if offset == 3:
            raise ConnectionResetError
        return 0

    group = account(nodes, answer)
    assert [group.commit(PLACE) for _ in range(3)] == ["", "", ""]
    assert group.waits
    for nodes.kept, wrong in ((1, True), (2, False), (3, False), (4, True)):
        assert bool(group.check(PLACE)) == wrong
        assert not group.waits


@pytest.mark.parametrize(("code", "wrong"), [(0, False), (14, False), (15, False), (16, False), (22, True), (25, True), (27, True), (82, True)])
def test_a_member_that_lost_its_seat_is_found(code: int, wrong: bool) -> None:
    assert bool(account(FakeNodes(), lambda offset: code).commit(PLACE)) == wrong
