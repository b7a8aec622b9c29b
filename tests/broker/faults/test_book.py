"""Which requests a fault meets, how often it fires, and what came near it."""

from __future__ import annotations

from typing import Any

import pytest

from broker.faults.book import Book, Match, Request
from broker.faults.fault import Fault
from protocol.apis import APIS
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.metadata import MetadataRequest
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic

ORDERS_ID = bytes([7]) * 16
COMMIT = OffsetCommitRequest(
    "billing", 3, "m-1", "billing-1", -1,
    [
        OffsetCommitRequestTopic("orders", [OffsetCommitRequestPartition(0, 5), OffsetCommitRequestPartition(1, 6)]),
        OffsetCommitRequestTopic("refunds", [OffsetCommitRequestPartition(0, 7)]),
    ],
)  # fmt: skip


def seen(message: Any, version: int = 8, client_id: str = "b-1") -> Request:
    api = APIS[message.API_KEY]
    return Request(api.key, api.name, version, client_id, "127.0.0.1", "PLAINTEXT", 1, message, 1_000)


def meet(message: Any, *, version: int = 8, **fault: Any) -> Match | None:
    book = Book(lambda id: "orders" if id == ORDERS_ID else None)
    book.install(Fault.parse({"drop": True, **fault}))
    return book.match(seen(message, version))


@pytest.mark.parametrize(
    ("selectors", "selected"),
    [
        ({}, None),
        ({"api": "OffsetCommit"}, None),
        ({"group": "billing"}, None),
        ({"group": "bill*", "instance": "billing-1", "member": "m-1", "client_id": "b-*", "versions": 8}, None),
        ({"where": {"generation_id": 3}}, None),
        ({"topic": "orders"}, {("orders", 0), ("orders", 1)}),
        ({"topic": ["refunds", "none"], "group": "billing"}, {("refunds", 0)}),
        ({"partitions": 0}, {("orders", 0), ("refunds", 0)}),
        ({"topic": "o*", "partitions": [1, 2]}, {("orders", 1)}),
    ],
)
def test_what_a_commit_meets(selectors: dict[str, Any], selected: set[tuple[str, int]] | None) -> None:
    met = meet(COMMIT, **selectors)
    assert met is not None
    assert met.selected == (None if selected is None else frozenset(selected))


@pytest.mark.parametrize(
    "selectors",
    [
        {"api": "Heartbeat"}, {"group": "shipping"}, {"group": "bill"}, {"instance": "billing-2"}, {"member": "m-2"}, {"client_id": "c"},
        {"versions": 7}, {"topic": "payments"}, {"topic": "orders", "partitions": 2}, {"where": {"generation_id": 4}}, {"where": {"no_such": 1}},
        {"resource": "orders"}, {"peer": "10.0.0.1"}, {"listener": "SSL"}, {"transactional_id": "x"},
    ],
)  # fmt: skip
def test_what_it_does_not_meet(selectors: dict[str, Any]) -> None:
    assert meet(COMMIT, **selectors) is None


def test_topics_by_id() -> None:
    fetch = FetchRequest(topics=[FetchTopic(ORDERS_ID, "", [FetchPartition(0)]), FetchTopic(bytes([8]) * 16, "", [FetchPartition(0)])])
    met = meet(fetch, version=13, topic="orders")
    assert met is not None
    assert met.selected == frozenset({(ORDERS_ID, 0)})
    met = meet(fetch, version=13, topic_id=ORDERS_ID.hex())
    assert met is not None
    assert met.selected == frozenset({(ORDERS_ID, 0)})


def test_members_of_a_leave() -> None:
    leave = LeaveGroupRequest("billing", [MemberIdentity("", "billing-1"), MemberIdentity("m-2", None)])
    for selectors, chosen in (({"instance": "billing-1"}, "billing-1"), ({"member": "m-*"}, "m-2")):
        met = meet(leave, version=5, **selectors)
        assert met is not None
        assert met.selected == frozenset({(chosen,)})


def test_a_request_for_all_topics_meets_a_fault_of_one() -> None:
    met = meet(MetadataRequest(None), version=12, topic="orders")
    assert met is not None
    assert met.selected is None


def test_skip_and_count() -> None:
    book = Book()
    installed = book.install(Fault.parse({"drop": True, "skip": 1, "count": 2}))
    fired = [book.match(seen(COMMIT)) is not None for _ in range(5)]
    assert fired == [False, True, True, False, False]
    assert (installed.hits, installed.left) == (2, 0)
    assert [hit["group"] for hit in installed.hit] == ["billing", "billing"]


def test_without_end_and_by_chance() -> None:
    book = Book()
    installed = book.install(Fault.parse({"drop": True, "count": -1, "probability": 0.5, "seed": 1}))
    fired = sum(book.match(seen(COMMIT)) is not None for _ in range(200))
    assert 60 < fired < 140
    assert installed.left == -1
    again = Book()
    again.install(Fault.parse({"drop": True, "count": -1, "probability": 0.5, "seed": 1}))
    assert sum(again.match(seen(COMMIT)) is not None for _ in range(200)) == fired


def test_the_first_installed_fires_first() -> None:
    book = Book()
    first = book.install(Fault.parse({"drop": True}))
    second = book.install(Fault.parse({"hold": True}))
    assert [match.installed for match in (book.match(seen(COMMIT)), book.match(seen(COMMIT))) if match] == [first, second]
    assert book.match(seen(COMMIT)) is None


def test_near_misses_say_what_was_wrong() -> None:
    book = Book()
    installed = book.install(Fault.parse({"drop": True, "api": "OffsetCommit", "client_id": "billing", "name": "the commit"}))
    assert installed.story() == "fault 1 'the commit' never fired, and no request came near it"
    book.match(seen(HeartbeatRequest("billing", 3, "m-1"), 4))  # two selectors differ: not near
    assert not installed.misses
    book.match(seen(COMMIT))
    assert [miss["why"] for miss in installed.misses] == ["its client id is 'b-1', and the fault is for billing"]
    assert "the nearest was OffsetCommit of client 'b-1': its client id is 'b-1'" in installed.story()
