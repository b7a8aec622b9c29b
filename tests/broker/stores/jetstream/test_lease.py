"""No reply leaves after the end of the lease, unless the logs have heard of it first."""

from __future__ import annotations

import json
from typing import Any, cast

from broker.net.connection import Connection
from broker.net.guarded_transport import GuardedTransport
from broker.stores.jetstream.connection import Answered
from broker.stores.jetstream.connection import Connection as EngineConnection
from broker.stores.jetstream.engine import Engine
from broker.stores.jetstream.meta import FENCE_PART, Meta, View
from broker.stores.jetstream.place import Names
from broker.stores.jetstream.wire import Message
from storage import NodeInfo
from tests.support.connections import Bench, Wire
from tests.support.stepped_loop import SteppedLoop

LEASE = 10.0


class Beats:
    """The engine, as far as a node tells it that it lives; `held`: acknowledgements that the test gives."""

    def __init__(self) -> None:
        self.loop = SteppedLoop()
        self.held: list[Answered] | None = None
        self.seq = 0

    def request(self, subject: str, payload: bytes, answered: Answered, headers: bytes = b"", seconds: float = 0.0) -> None:
        if self.held is None:
            self.acknowledge(answered)
        else:
            self.held.append(answered)

    def acknowledge(self, answered: Answered) -> None:
        self.seq += 1
        answered(Message("", 1, json.dumps({"seq": self.seq}).encode()))


class Node:
    def __init__(self) -> None:
        self.engine = Beats()
        self.loop = self.engine.loop
        self.skew = 0.0  # of the machine's clock over the loop's, which stands still during a callback
        view = View(lambda id: id)
        engine = Engine(cast(EngineConnection, self.engine))
        self.meta = Meta(engine, Names("c"), view, 1, "mine", LEASE, lambda: 0, lambda: self.loop.time() + self.skew)
        self.served: list[str] = []
        self.meta.lost = lambda: self.served.append("lost")
        self.meta.regained = lambda: self.served.append("regained")
        self.meta.start(NodeInfo(1, ()))
        self.meta.first_beat(lambda result: None)

    def cut_off(self) -> None:
        self.engine.held = []


def client_of(node: Node) -> tuple[Bench, Wire, Connection]:
    bench = Bench()
    wire = Wire()
    bench.connection.host.guard = lambda transport: GuardedTransport(transport, node.meta.may_answer)
    bench.connection.connection_made(wire)
    return bench, wire, bench.connection


def test_replies_leave_while_the_lease_is_valid() -> None:
    node = Node()
    _, wire, connection = client_of(node)
    connection.busy = True
    node.cut_off()
    node.loop.advance(FENCE_PART * LEASE - 0.01)
    connection.send(b"an answer")
    assert bytes(wire.written) == b"an answer"


def test_a_reply_made_before_the_loop_stood_still_for_longer_than_the_lease_never_leaves() -> None:
    node = Node()
    _, wire, connection = client_of(node)
    connection.busy = True
    node.skew = LEASE  # the loop's own clock has not noticed
    connection.send(b"stale")
    assert not wire.written
    assert wire.aborted
    assert node.served == [], "the logs may be releasing replies at this moment"
    node.loop.pass_once()
    assert node.served == ["lost"]


def test_nothing_leaves_between_the_end_of_the_lease_and_the_end_of_service() -> None:
    node = Node()
    node.skew = LEASE
    assert not node.meta.may_answer()
    assert not node.meta.may_answer()
    node.loop.pass_once()
    assert node.meta.may_answer(), "from now on the logs refuse"


def test_an_acknowledgement_of_before_the_freeze_renews_nothing() -> None:
    node = Node()
    node.cut_off()
    node.loop.pass_ms(1_500)
    held: list[Any] = cast(list[Any], node.engine.held)
    assert held
    node.loop.advance(2 * LEASE)
    node.engine.acknowledge(held[0])
    assert not node.meta.may_answer()


def test_a_lease_that_is_regained_at_once_has_ended_all_the_same() -> None:
    node = Node()
    node.skew = LEASE
    assert not node.meta.may_answer()
    node.engine.seq += 1
    node.meta._beat()  # acknowledged before the loop has told the logs
    assert node.served == ["lost", "regained"]
    node.loop.run()
    assert node.served == ["lost", "regained"]
    assert node.meta.may_answer()


def test_long_replies_are_stopped_too() -> None:
    node = Node()
    _, wire, connection = client_of(node)
    transport = connection._transport
    assert transport is not None
    assert transport.get_extra_info("socket") is None
    node.skew = LEASE
    transport.writelines([b"a", b"b"])
    assert not wire.written
