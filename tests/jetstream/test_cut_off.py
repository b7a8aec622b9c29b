"""A node that is cut off from NATS, gets its messages late, or has a clock that jumps never writes a log together with the next owner."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from broker.stores.jetstream.logs import GroupLog
from broker.stores.jetstream.wire import Message
from protocol.batch import build_facts
from storage import AppendFailed, LogId
from tests.jetstream.writers import Writer, check_next_owner
from tests.stores.engine_proxy import EngineProxy
from tests.stores.jetstream_nodes import JetStreamNode, NodesOverJetStream
from tests.stores.nodes import append

pytestmark = pytest.mark.jetstream

LOG = LogId("__consumer_offsets", 3)
HOUR_NS = 3_600_000_000_000


def drop_heartbeats(node: JetStreamNode) -> None:
    """Drop the node's heartbeats, and none of its other messages."""
    connection: Any = node.store.connection
    publish = connection.publish

    def without_heartbeats(subject: str, *rest: Any) -> None:
        if ".meta.node." not in subject:
            publish(subject, *rest)

    connection.publish = without_heartbeats


@pytest.mark.parametrize("way", ["drops_requests", "drops_replies", "both", "heartbeats"])
def test_a_node_that_is_cut_off_in_any_way_ends_before_the_next_owner_begins(nodes: NodesOverJetStream, proxy: EngineProxy, way: str) -> None:
    first, second = nodes.start(1), nodes.start(2)
    log = first.own(LOG)
    append(first, log, b"a")
    ended: list[float] = []
    log.watch(lambda failure: ended.append(time.monotonic()))
    if way == "heartbeats":
        drop_heartbeats(first)
    else:
        proxy.drops_requests = way in ("drops_requests", "both")
        proxy.drops_replies = way in ("drops_replies", "both")
    second.wait(lambda: 1 not in second.store.view().live)
    dead_at = time.monotonic()
    assert ended, "the next owner could begin while it still served"
    assert ended[0] <= dead_at
    assert not log.usable()
    assert isinstance(append(first, log, b"late"), AppendFailed)
    acquired = second.own(LOG)
    append(second, acquired, b"b")
    assert second.keys(acquired) == [b"a", b"b"]


def delay_acknowledgements(node: JetStreamNode, stream: str, seconds: float) -> None:
    connection: Any = node.store.connection
    dispatch = connection.dispatch

    def late(message: Message) -> None:
        if b'"stream":"%s"' % stream.encode() in message.payload.replace(b": ", b":"):
            node.loop.call_later(seconds, dispatch, message)
        else:
            dispatch(message)

    connection.dispatch = late


def test_acknowledgements_that_come_late_are_no_failure(nodes: NodesOverJetStream) -> None:
    nodes.lease_ms = 20_000
    first, second = nodes.start(1), nodes.start(2)
    log = first.own(LOG)
    delay_acknowledgements(first, log.stream.name, 5.0)  # longer than every retry interval
    begun = time.monotonic()
    results: list[int | AppendFailed] = []
    for number in range(10):
        log.append(build_facts([(b"%d" % number, b"1")], 1), 1, results.append)
    first.wait(lambda: len(results) == 10)
    assert results == list(range(10))
    assert time.monotonic() > begun + 0.9, "sent again at least once"
    assert not first.store.meta.lease_lost
    nodes.end(first, second)
    assert second.keys(second.own(LOG)) == [b"%d" % number for number in range(10)]


def test_acknowledgements_that_get_lost_again_and_again_are_no_loss(nodes: NodesOverJetStream, proxy: EngineProxy) -> None:
    nodes.lease_ms = 20_000
    first, second = nodes.start(1), nodes.start(2)
    writer = Writer(first, 2)
    for _ in range(4):
        proxy.drops_replies = True
        writer.append_for(0.2)
        proxy.cut()
        proxy.drops_replies = False
        writer.append_for(0.2)
    writer.until_all_acknowledge()
    assert not writer.failures
    check_next_owner(nodes, writer, second)


def test_wall_clocks_that_jump_by_hours_change_nothing(nodes: NodesOverJetStream) -> None:
    jumps = [0]
    nodes.wall_ns = lambda: time.time_ns() + jumps[-1]
    first, second = nodes.start(1), nodes.start(2)
    log = first.own(LOG)
    for jump in (5 * HOUR_NS, -9 * HOUR_NS, 0):
        jumps.append(jump)
        first.loop.run_until_complete(asyncio.sleep(1.0))
        assert first.store.view().live.keys() == second.store.view().live.keys() == {1, 2}
        assert isinstance(append(first, log, b"a"), int)
        assert not first.store.meta.lease_lost
    assert not isinstance(second.acquire(LOG), GroupLog), "its owner lives"


def test_three_claimants_and_a_returning_owner_never_share_an_epoch(nodes: NodesOverJetStream) -> None:
    """Nodes that consider all others dead claim again and again, and append as fast as they can."""
    all_nodes = [nodes.start(id) for id in (1, 2, 3)]
    for node in all_nodes:
        node.store.view().is_live = lambda id, incarnation: False  # type: ignore[method-assign,assignment]
    acknowledged: list[bytes] = []
    epochs: list[tuple[int, int]] = []  # (epoch, the node that wrote in it)
    claimed: list[tuple[JetStreamNode, GroupLog]] = []

    def write(node: JetStreamNode, log: GroupLog, number: int) -> None:
        key = b"%d-%d-%d" % (node.id, log.epoch, number)

        def done(result: int | AppendFailed) -> None:
            if isinstance(result, int):
                acknowledged.append(key)
                epochs.append((log.epoch, node.id))

        log.append(build_facts([(key, b"1")], 1), 1, done)

    for round in range(15):
        for node in all_nodes:
            node.store.acquire(LOG, lambda found, node=node: claimed.append((node, found)) if isinstance(found, GroupLog) else None)  # type: ignore[misc]
        for number in range(10):
            for node, log in claimed[-6:]:
                write(node, log, 100 * round + number)
            nodes.loop.run_until_complete(asyncio.sleep(0.002))
    nodes.loop.run_until_complete(asyncio.sleep(0.3))
    assert len(set(epochs)) == len({epoch for epoch, _ in epochs}), "two nodes wrote in one epoch"
    last = all_nodes[0].own(LOG)
    found = all_nodes[0].keys(last)
    assert len(acknowledged) > 20
    assert set(acknowledged) <= set(found)
    assert len(set(found)) == len(found)
