"""When a node tries a log, asks for it, hands it over and waits: each rule of ownership by itself."""

from __future__ import annotations

from typing import Any

import pytest

from broker.cluster.ownership import GRACE_MS, LEAVING_MAX, NEVER, REQUEST_INTERVAL_MS, RETRY_MS, SWEEP_MS, Ownership, OwnershipState
from broker.cluster.placement import Placement
from storage import LogId

LOG, OTHER = LogId("__consumer_offsets", 0), LogId("orders", 0)
FREE, OWNED_BY_OTHER, TRYING, OWNED, LEAVING = OwnershipState


class Node:
    """Records what its ownership wants. `owners`: the table."""

    def __init__(self, id: int, owners: dict[LogId, int] | None = None, may_abort: bool = False) -> None:
        self.owners = owners or {}
        self.acquired: list[LogId] = []
        self.requested: list[tuple[int, list[LogId]]] = []
        self.handed_over: list[tuple[LogId, int]] = []
        self.may_abort = may_abort
        self.woken: list[int] = []
        self.version = 0
        self.ownership = Ownership(id, lambda log: self.owners.get(log), self, self.woken.append, lambda: self.version)

    def acquire(self, log: LogId) -> None:
        self.acquired.append(log)

    def may_abort_acquire(self, log: LogId) -> bool:
        return self.may_abort

    def hand_over(self, log: LogId, receiver: int) -> None:
        self.handed_over.append((log, receiver))

    def request_release(self, owner: int, logs: list[LogId]) -> None:
        self.requested.append((owner, logs))


def behind(first: int, log: LogId = LOG) -> int:
    """A node that is placed behind `first` for the log."""
    return next(node for node in range(first + 1, 100) if Placement().place([log], [first, node])[log][0] == first)


def alone(may_abort: bool = False, *logs: LogId) -> Node:
    """Node 1, the only one, before its first deadline."""
    node = Node(1, may_abort=may_abort)
    node.ownership.set_nodes([1], [], 0)
    node.ownership.set_logs("offsets", logs or [LOG], 0)
    return node


def owner() -> Node:
    node = alone()
    node.ownership.advance(0)
    node.ownership.acquired(LOG, 5)
    return node


# Trying.


def test_a_log_is_tried_once_and_owned_since_it_was_acquired() -> None:
    node = alone()
    ownership = node.ownership
    assert (ownership.state(LOG), ownership.state(OTHER), ownership.may_open(LOG)) == (FREE, None, False)
    assert (node.woken[-1], ownership.wake_at) == (0, 0)
    ownership.advance(0)
    ownership.advance(1)
    assert node.acquired == [LOG]
    assert (ownership.state(LOG), ownership.owns(LOG), ownership.may_open(LOG), ownership.settled) == (TRYING, False, True, False)
    ownership.acquired(LOG, 7)
    assert (ownership.owns(LOG), ownership.may_open(LOG), ownership.owned(), ownership.settled) == (True, True, {LOG: 7}, True)
    assert ownership.wake_at == SWEEP_MS
    assert list(ownership.logs()) == [LOG]


@pytest.mark.parametrize(("answer", "pause"), [("held_elsewhere", GRACE_MS), ("failed", RETRY_MS), ("lost", GRACE_MS)])
def test_a_log_that_is_not_acquired_is_tried_again_after_a_pause(answer: str, pause: int) -> None:
    node = owner() if answer == "lost" else alone()
    node.ownership.advance(10)
    node.woken.clear()
    getattr(node.ownership, answer)(LOG, 10)
    assert (node.ownership.state(LOG), node.ownership.wake_at) == (FREE, min(10 + pause, SWEEP_MS))
    assert node.woken == ([10 + pause] if pause < SWEEP_MS else [])
    tries = len(node.acquired)
    node.ownership.advance(10 + pause - 1)
    assert len(node.acquired) == tries
    node.ownership.advance(10 + pause)
    assert len(node.acquired) == tries + 1


@pytest.mark.parametrize("answer", ["held_elsewhere", "failed", "lost", "released"])
def test_an_answer_for_a_log_that_is_not_tried_changes_nothing(answer: str) -> None:
    node = Node(1, {LOG: 2})
    node.ownership.set_nodes([1, 2], [2], 0)
    node.ownership.set_logs("offsets", [LOG], 0)
    node.ownership.advance(0)
    assert node.ownership.state(LOG) is OWNED_BY_OTHER
    wake_at = node.ownership.wake_at
    for log in (LOG, OTHER):
        getattr(node.ownership, answer)(log, 1)
    assert (node.ownership.state(LOG), node.ownership.state(OTHER), node.ownership.wake_at) == (OWNED_BY_OTHER, None, wake_at)


def test_a_worse_placed_node_waits_one_grace_period_for_each_node_before_it() -> None:
    order = Placement().place([LOG], [1, 2, 3])[LOG]
    for rank, id in enumerate(order):
        node = Node(id)
        node.ownership.set_nodes([1, 2, 3], [], 100)
        node.ownership.set_logs("offsets", [LOG], 100)
        assert node.ownership.wake_at == 100 + rank * GRACE_MS
        node.ownership.advance(100 + rank * GRACE_MS)
        assert node.acquired == [LOG]
        assert node.ownership.expected_owner(LOG) == order[0]


def test_a_node_that_sees_the_nodes_again_does_not_begin_to_wait_anew() -> None:
    first, second = Placement().place([LOG], [1, 2])[LOG]
    node = Node(second)
    node.ownership.set_nodes([1, 2], [], 0)
    node.ownership.set_logs("offsets", [LOG], 0)
    node.ownership.set_logs("topics", [OTHER], GRACE_MS - 1)  # places all logs again
    node.ownership.advance(GRACE_MS)
    assert LOG in node.acquired
    assert first != second


@pytest.mark.parametrize("table", [{}, {LOG: 1}, {LOG: 9}])
def test_a_log_that_no_live_node_owns_is_free(table: dict[LogId, int]) -> None:
    """The table may still name a node that has ended, or this node's previous process."""
    node = Node(1, table)
    node.ownership.set_nodes([1], [], 0)
    node.ownership.set_logs("offsets", [LOG], 0)
    node.ownership.advance(0)
    assert node.acquired == [LOG]


def test_a_log_that_another_node_has_acquired_meanwhile_is_not_tried() -> None:
    first, second = Placement().place([LOG], [1, 2])[LOG]
    node = Node(second)
    node.ownership.set_nodes([1, 2], [], 0)
    node.ownership.set_logs("offsets", [LOG], 0)
    node.owners[LOG] = first
    node.ownership.advance(GRACE_MS)
    assert (node.acquired, node.requested, node.ownership.state(LOG)) == ([], [], OWNED_BY_OTHER)
    assert node.ownership.wake_at == SWEEP_MS  # it does not look again before the sweep
    del node.owners[LOG]
    node.version += 1
    node.ownership.advance(SWEEP_MS)
    assert node.acquired == []
    node.ownership.advance(SWEEP_MS + GRACE_MS)
    assert node.acquired == [LOG]


def test_no_log_is_placed_before_any_node_is_known() -> None:
    node = Node(1)
    node.ownership.set_logs("offsets", [LOG], 0)
    assert (node.ownership.expected_owner(LOG), node.ownership.state(LOG), node.ownership.wake_at) == (-1, FREE, NEVER)
    assert not node.ownership.settled
    node.ownership.set_nodes([], [], 3)
    assert (node.ownership.live, node.ownership.expected_owner(LOG), node.ownership.wake_at) == (frozenset([1]), 1, 3)


def test_an_unknown_log_has_no_expected_owner_and_is_not_owned() -> None:
    node = owner()
    ownership = node.ownership
    assert (ownership.expected_owner(OTHER), ownership.owns(OTHER), ownership.may_open(OTHER)) == (-1, False, False)
    assert ownership.planned([OTHER]) == {OTHER: 1}


def test_a_log_acquired_before_the_placing_is_owned_since_then() -> None:
    node = alone()
    node.ownership.already_acquired(LOG, 42)
    node.ownership.advance(50)
    assert (node.ownership.owned(), node.acquired) == ({LOG: 42}, [])


def test_logs_of_a_kind_that_have_not_changed_are_not_placed_again() -> None:
    node = alone()
    node.woken.clear()
    node.ownership.set_logs("offsets", [LOG], 1)
    assert node.woken == []
    node.ownership.deleted([LOG])
    node.ownership.set_logs("offsets", [LOG], 2)  # a new topic of the name
    assert node.woken
    assert node.ownership.state(LOG) is FREE
    node.ownership.set_logs("offsets", [], 3)
    assert node.ownership.state(LOG) is None


# Settled.


def test_a_node_is_settled_if_every_log_has_the_owner_that_it_should_have() -> None:
    first, second = Placement().place([LOG], [1, 2])[LOG]
    for id, owners, settled in ((second, {LOG: first}, True), (second, {}, False), (first, {LOG: second}, False)):
        node = Node(id, owners)
        node.ownership.set_nodes([1, 2], [], 0)
        node.ownership.set_logs("offsets", [LOG], 0)
        assert node.ownership.settled is settled


# Requests of release.


def test_the_owner_is_asked_again_each_second_and_for_all_its_logs_at_once() -> None:
    node = Node(1, {LOG: 2, OTHER: 2})
    node.ownership.set_nodes([1, 2], [2], 0)
    node.ownership.set_logs("offsets", [LOG], 0)
    node.ownership.set_logs("topics", [OTHER], 0)
    node.ownership.advance(0)
    assert node.requested == [(2, [LOG, OTHER])]
    assert node.ownership.wake_at == SWEEP_MS
    node.ownership.advance(REQUEST_INTERVAL_MS - 1)
    assert len(node.requested) == 1
    node.ownership.advance(REQUEST_INTERVAL_MS)
    assert node.requested == [(2, [LOG, OTHER])] * 2


def shared_with_better(may_abort: bool = False) -> tuple[Node, int]:
    """A node that owns the log, and a better placed node that has arrived since."""
    better = 1
    node = Node(behind(better), may_abort=may_abort)
    node.ownership.set_nodes([node.ownership.node_id], [], 0)
    node.ownership.set_logs("offsets", [LOG], 0)
    node.ownership.advance(0)
    node.ownership.acquired(LOG, 0)
    node.ownership.set_nodes([better, node.ownership.node_id], [], 0)
    return node, better


def test_a_released_log_is_left_to_its_receiver_for_a_second() -> None:
    node, better = shared_with_better()
    ownership = node.ownership
    ownership.release_requested(better, [LOG, OTHER], 100)
    assert (node.handed_over, ownership.state(LOG), ownership.may_open(LOG)) == ([(LOG, better)], LEAVING, False)
    ownership.release_requested(better, [LOG], 101)
    assert node.handed_over == [(LOG, better)]
    ownership.released(LOG, 200)
    assert ownership.state(LOG) is FREE
    node.acquired.clear()
    ownership.advance(200 + RETRY_MS + GRACE_MS - 1)
    assert node.acquired == []
    ownership.advance(200 + RETRY_MS + GRACE_MS)
    assert node.acquired == [LOG]


def test_a_request_of_a_node_that_is_not_better_placed_yet_is_kept() -> None:
    """The other node may know of a change of nodes that this node does not know yet."""
    node = owner()
    better = next(id for id in range(2, 100) if Placement().place([LOG], [1, id])[LOG][0] == id)
    node.ownership.release_requested(better, [LOG], 10)
    assert node.handed_over == []
    node.ownership.set_nodes([1], [], 11)
    assert node.handed_over == []
    node.ownership.set_nodes([1, better], [], 12)
    assert node.handed_over == [(LOG, better)]


def test_a_drained_owner_hands_its_logs_to_any_other_node() -> None:
    node = owner()
    worse = behind(1)
    node.ownership.set_nodes([1, worse], [], 1)
    node.ownership.release_requested(worse, [LOG], 2)
    assert node.handed_over == []
    node.ownership.set_nodes([1, worse], [1], 3)
    assert node.handed_over == [(LOG, worse)]
    node.ownership.released(LOG, 10)
    assert node.ownership.wake_at == SWEEP_MS
    node.ownership.advance(10 + RETRY_MS + GRACE_MS - 1)  # the rank of a draining node is behind all others
    assert node.acquired == [LOG]
    node.ownership.advance(10 + RETRY_MS + GRACE_MS)
    assert node.acquired == [LOG] * 2


def many_owned(count: int) -> tuple[Node, list[LogId], int]:
    """A draining node that owns so many logs, and the node that shall get them."""
    logs = [LogId("many", number) for number in range(count)]
    node = Node(1)
    node.ownership.set_nodes([1], [], 0)
    node.ownership.set_logs("topics", logs, 0)
    node.ownership.advance(0)
    for log in logs:
        node.ownership.acquired(log, 0)
    node.ownership.set_nodes([1, 2], [1], 1)
    return node, logs, 2


def test_logs_leave_in_turns() -> None:
    node, logs, receiver = many_owned(LEAVING_MAX + 3)
    node.ownership.release_requested(receiver, logs, 2)
    assert node.handed_over == [(log, receiver) for log in logs[:LEAVING_MAX]]
    node.ownership.released(logs[0], 3)
    assert len(node.handed_over) == LEAVING_MAX + 1
    node.ownership.deleted([logs[1]])
    node.ownership.released(logs[1], 4)
    assert len(node.handed_over) == LEAVING_MAX + 2
    node.ownership.released(logs[2], 4)
    assert len(node.handed_over) == LEAVING_MAX + 3


def test_a_deleted_log_is_not_handed_over() -> None:
    node, logs, receiver = many_owned(LEAVING_MAX + 1)
    node.ownership.release_requested(receiver, logs, 2)
    node.ownership.deleted(logs[-1:])
    node.ownership.released(logs[0], 3)
    assert len(node.handed_over) == LEAVING_MAX
    assert node.ownership.state(logs[-1]) is None


def test_a_stopped_node_hands_nothing_over_and_sets_no_deadline() -> None:
    node, logs, receiver = many_owned(2)
    node.ownership.stop()
    assert node.ownership.wake_at == NEVER
    node.woken.clear()
    node.ownership.release_requested(receiver, logs, 2)
    node.ownership.lost(logs[0], 3)
    node.ownership.set_nodes([1], [], 4)
    node.ownership.advance(10_000)
    assert (node.handed_over, node.woken, node.ownership.wake_at) == ([], [], NEVER)


def test_an_abandoned_try_is_handed_over_at_once() -> None:
    better = 1
    node = Node(behind(better), may_abort=True)
    node.ownership.set_nodes([node.ownership.node_id], [], 0)
    node.ownership.set_logs("offsets", [LOG], 0)
    node.ownership.advance(0)
    node.ownership.set_nodes([better, node.ownership.node_id], [], 1)
    node.ownership.release_requested(better, [LOG], 2)
    assert (node.handed_over, node.ownership.state(LOG)) == ([(LOG, better)], LEAVING)
    node.ownership.acquired(LOG, 3)
    assert node.ownership.state(LOG) is LEAVING


# Offers.


def test_an_offered_log_is_tried_at_once() -> None:
    node = Node(1, {LOG: 2})
    node.ownership.set_nodes([1, 2], [2], 0)
    node.ownership.set_logs("offsets", [LOG], 0)
    node.ownership.advance(0)
    del node.owners[LOG]
    node.woken.clear()
    node.ownership.offered([OTHER, LOG], 20)
    assert (node.ownership.state(LOG), node.woken, node.ownership.wake_at) == (FREE, [20], 20)
    node.ownership.advance(20)
    assert node.acquired == [LOG]
    node.ownership.offered([LOG], 21)
    assert node.ownership.state(LOG) is TRYING
    node.ownership.acquired(LOG, 22)
    node.ownership.offered([LOG], 23)
    assert node.ownership.owns(LOG)


# Sweeps.


def test_owners_are_looked_through_only_after_a_change_of_the_table() -> None:
    node = Node(1, {LOG: 2})
    looked_up: list[Any] = []
    node.ownership._owner_of = lambda log: (looked_up.append(log), node.owners.get(log))[1]  # type: ignore[func-returns-value]
    node.ownership.set_nodes([1, 2, 3], [1], 0)
    node.ownership.set_logs("offsets", [LOG], 0)
    node.ownership.advance(SWEEP_MS - 1)
    looked_up.clear()
    node.ownership.advance(SWEEP_MS)
    assert looked_up == [LOG]  # the first sweep
    node.ownership.advance(2 * SWEEP_MS)
    assert looked_up == [LOG]
    node.version = 1
    node.ownership.advance(2 * SWEEP_MS + 1)
    assert looked_up == [LOG]
    node.ownership.advance(3 * SWEEP_MS)
    assert looked_up == [LOG] * 2
    assert node.ownership.wake_at == 4 * SWEEP_MS
