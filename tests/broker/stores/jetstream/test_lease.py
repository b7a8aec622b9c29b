"""A node whose lease has ended sends no reply to a client before it has stopped serving its logs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

from broker.net.connection import Connection
from broker.net.guarded_transport import GuardedTransport
from broker.stores.jetstream.connection import AnswerHandler
from broker.stores.jetstream.connection import Connection as EngineConnection
from broker.stores.jetstream.engine import Engine, StoredMessage
from broker.stores.jetstream.meta import FENCE_FRACTION, MetaStreamClient, View
from broker.stores.jetstream.streams import ClusterNames
from broker.stores.jetstream.wire import Message
from storage import NodeInfo
from tests.support.connections import ConnectionHarness, FakeTransport
from tests.support.stepped_loop import SteppedLoop

LEASE = 10.0


class FakeHeartbeatServer:
    """A fake NATS server for the heartbeats of nodes. `held`: acknowledgements that wait for the test; None: they are immediate."""

    def __init__(self) -> None:
        self.loop = SteppedLoop()
        self.held: list[AnswerHandler] | None = None
        self.seq = 0

    def request(self, subject: str, payload: bytes, answered: AnswerHandler, headers: bytes = b"", seconds: float = 0.0) -> None:
        if self.held is None:
            self.acknowledge(answered)
        else:
            self.held.append(answered)

    def request_many(self, subject: str, payload: bytes, heard: object) -> Callable[[], None]:
        return lambda: None

    def acknowledge(self, answered: AnswerHandler) -> None:
        self.seq += 1
        answered(Message("", 1, json.dumps({"seq": self.seq}).encode()))


class Node:
    def __init__(self) -> None:
        self.engine = FakeHeartbeatServer()
        self.loop = self.engine.loop
        self.skew = 0.0  # how far the machine's clock is ahead of the loop's, which stands still during a callback
        view = View(lambda id: id)
        engine = Engine(cast(EngineConnection, self.engine))
        self.meta = MetaStreamClient(engine, ClusterNames("c"), view, 1, "mine", LEASE, lambda: 0, lambda: self.loop.time() + self.skew)
        self.served: list[str] = []
        self.meta.on_lease_lost = lambda: self.served.append("lost")
        self.meta.on_lease_regained = lambda: self.served.append("regained")
        self.meta.start(NodeInfo(1, ()))
        self.meta.first_heartbeat(lambda result: None)

    def cut_off(self) -> None:
        self.engine.held = []


def client_of(node: Node) -> tuple[ConnectionHarness, FakeTransport, Connection]:
    harness = ConnectionHarness()
    wire = FakeTransport()
    harness.connection.context.guard = lambda transport: GuardedTransport(transport, node.meta.may_answer)
    harness.connection.connection_made(wire)
    return harness, wire, harness.connection


def test_replies_leave_while_the_lease_is_valid() -> None:
    node = Node()
    _, wire, connection = client_of(node)
    connection.busy = True
    node.cut_off()
    node.loop.advance(FENCE_FRACTION * LEASE - 0.01)
    connection.send(b"an answer")
    assert bytes(wire.written) == b"an answer"


def test_a_reply_from_before_a_stall_longer_than_the_lease_is_never_sent() -> None:
    node = Node()
    _, wire, connection = client_of(node)
    connection.busy = True
    node.skew = LEASE  # the lease ends by the machine's clock, while the loop's stands still
    connection.send(b"stale")
    assert not wire.written
    assert wire.aborted
    assert node.served == [], "the logs may be releasing replies at this moment"
    node.loop.pass_once()
    assert node.served == ["lost"]


def test_no_reply_is_sent_between_the_end_of_the_lease_and_the_end_of_service() -> None:
    node = Node()
    node.skew = LEASE
    assert not node.meta.may_answer()
    assert not node.meta.may_answer()
    node.loop.pass_once()
    assert node.meta.may_answer(), "from now on the logs refuse"


def test_an_acknowledgement_from_before_a_freeze_renews_no_lease() -> None:
    node = Node()
    node.cut_off()
    node.loop.pass_ms(1_500)
    held: list[Any] = cast(list[Any], node.engine.held)
    assert held
    node.loop.advance(2 * LEASE)
    node.engine.acknowledge(held[0])
    assert not node.meta.may_answer()


def test_logs_are_fenced_even_if_the_lease_is_regained_at_once() -> None:
    node = Node()
    node.skew = LEASE
    assert not node.meta.may_answer()
    node.engine.seq += 1
    node.meta._send_heartbeat()  # acknowledged before the loop's callback for the lost lease runs
    assert node.served == ["lost", "regained"]
    node.loop.run()
    assert node.served == ["lost", "regained"]
    assert node.meta.may_answer()


def test_a_heartbeat_after_the_end_of_the_lease_begins_another_lease() -> None:
    node = Node()
    first = node.meta.lease_number
    assert node.meta.has_lease(first)
    node.skew = FENCE_FRACTION * LEASE - 0.01
    assert node.meta.has_lease(first)
    node.skew = LEASE
    assert not node.meta.has_lease(first), "also before the end was noticed"
    node.meta._send_heartbeat()  # before the timer that would notice it
    assert node.served == ["lost", "regained"]
    assert not node.meta.has_lease(first)
    assert node.meta.has_lease(node.meta.lease_number)


def test_long_replies_are_stopped_too() -> None:
    node = Node()
    _, wire, connection = client_of(node)
    transport = connection._transport
    assert transport is not None
    assert transport.get_extra_info("socket") is None
    node.skew = LEASE
    transport.writelines([b"a", b"b"])
    assert not wire.written


# Which other nodes live.


def read(node: Node, of: int, seq: int) -> None:
    """Apply the heartbeat of node `of`, as read from a replica of the stream."""
    body: dict[str, object] = {"incarnation": "mine" if of == 1 else "other", "addresses": [], "rack": None, "wall_ms": 0}
    node.meta._apply(StoredMessage(seq, ClusterNames("c").node_key(of), json.dumps(body).encode(), {}))


def test_a_node_is_not_considered_dead_because_of_a_lagging_replica() -> None:
    node = Node()
    read(node, 2, node.engine.seq + 1)
    node.engine.seq += 1
    node.loop.pass_ms(round(3 * LEASE * 1000))
    assert not node.meta.lease_lost, "its own messages are acknowledged"
    assert 2 in node.meta.view.live
    read(node, 1, node.engine.seq)
    node.loop.pass_ms(200)
    assert 2 not in node.meta.view.live


def test_when_current_waits_until_a_later_heartbeat_is_read_back() -> None:
    node = Node()
    node.engine.held = []
    proved: list[bool] = []
    node.meta.when_current(lambda: proved.append(True))
    read(node, 1, node.engine.seq)  # a message from before `when_current`
    node.loop.run()
    assert not proved
    node.engine.acknowledge(node.engine.held[-1])
    read(node, 1, node.engine.seq)
    node.loop.run()
    assert proved


def leave(node: Node, of: int, incarnation: str) -> None:
    """Apply the message with which this process of node `of` has left in order."""
    node.engine.seq += 1
    node.meta._apply(StoredMessage(node.engine.seq, ClusterNames("c").node_key(of), json.dumps({"incarnation": incarnation, "gone": True}).encode(), {}))


def test_an_earlier_process_that_leaves_does_not_end_the_node_that_has_its_id_now() -> None:
    """Processes of older versions send this message even after a newer process has taken their node id."""
    node = Node()
    deposed: list[bool] = []
    node.meta.on_superseded = lambda: deposed.append(True)
    leave(node, 1, "earlier")
    assert not deposed
    read(node, 2, node.engine.seq + 1)
    leave(node, 2, "earlier")
    assert node.meta.view.is_live(2, "other")
    leave(node, 2, "other")
    assert not node.meta.view.is_live(2, "other")


def test_a_process_whose_node_id_was_taken_is_live_until_its_lease_ends() -> None:
    node = Node()
    read(node, 2, 2)
    body: dict[str, object] = {"incarnation": "newer", "addresses": [], "rack": None, "wall_ms": 0, "ended": ""}
    key = ClusterNames("c").node_key(2)
    node.meta._apply(StoredMessage(3, key, json.dumps(body).encode(), {}))
    assert node.meta.view.is_live(2, "newer")
    assert node.meta.view.is_live(2, "other")
    node.meta._apply(StoredMessage(4, key, json.dumps({**body, "incarnation": "newest", "ended": "newer"}).encode(), {}))
    assert not node.meta.view.is_live(2, "newer"), "its process has ended for certain"
    node.engine.seq = 4
    for _ in range(15):
        node.loop.pass_ms(1_000)
        read(node, 1, node.engine.seq)
    assert not node.meta.view.is_live(2, "other")
