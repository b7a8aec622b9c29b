"""The memory of incomplete requests is limited over all connections, and a client that keeps sending can complete its request."""

from __future__ import annotations

import socket
from collections.abc import Callable
from random import Random
from struct import pack

import pytest

from broker.net.shared_bytes import SharedBytes, partial_requests, unread_replies
from protocol.batch import Record, build
from protocol.framing import Framer
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.running import Client, broker
from tests.support.connections import ConnectionHarness
from tests.support.peers import LOOPS, becomes_true, close_reasons, defects, is_served, serve_options
from tests.support.restartable import create_topic

pytestmark = pytest.mark.once  # limits over sockets and random sizes

MIB = 1 << 20


class Peer:
    def __init__(self, partial_requests: SharedBytes, last_active: int = 0) -> None:
        self.partial = partial_requests
        self.last_active = last_active
        self.reason = ""

    def receive(self, size: int) -> None:
        self.partial.set_bytes(self, size)

    def close(self, reason: str) -> None:
        self.reason = reason

    def abort(self, reason: str) -> None:
        self.reason = f"aborted: {reason}"


def test_clients_of_unread_replies_are_closed_without_waiting_for_them() -> None:
    replies = unread_replies(1_000)
    silent, active = Peer(replies, last_active=1), Peer(replies, last_active=2)
    silent.receive(600)
    active.receive(600)
    assert silent.reason.startswith("aborted: the unread replies of all connections")
    assert (active.reason, replies.bytes) == ("", 600)


def test_received_partial_bytes_are_counted_and_released() -> None:
    partial = partial_requests(1_000)
    first, second = Peer(partial), Peer(partial)
    first.receive(10)
    second.receive(20)
    first.receive(500)
    assert partial.bytes == 520
    first.receive(0)
    assert (partial.bytes, dict(partial.sizes)) == (20, {second: 20})


def test_the_longest_silent_large_partial_requests_are_closed_first() -> None:
    partial = partial_requests(1_000)
    small, idle, idler, busy, newest = (Peer(partial, at) for at in (1, 3, 2, 4, 5))
    for peer, size in ((small, 10), (idle, 300), (idler, 300), (busy, 300), (newest, 91)):
        peer.receive(size)
    assert [bool(peer.reason) for peer in (small, idle, idler, busy, newest)] == [False, False, True, False, False]
    assert "connections.partial.requests.max.bytes" in idler.reason
    assert partial.bytes == 701


def test_a_request_of_the_limit_size_can_be_completed() -> None:
    partial = partial_requests(1_000)
    held = [Peer(partial, at) for at in range(9)]
    for peer in held:
        peer.receive(110)
    sender = Peer(partial, 100)
    for size in range(10, 1_001, 10):
        sender.receive(size)
        assert partial.bytes <= 1_000
    assert not sender.reason
    assert all(peer.reason for peer in held)


def test_small_partial_requests_are_closed_after_all_large_ones() -> None:
    partial = partial_requests(1_000)
    many = [Peer(partial, at) for at in range(90)]
    for peer in many:
        peer.receive(10)
    sender = Peer(partial, 100)
    sender.receive(90)
    sender.receive(1_000)
    assert not sender.reason
    assert all(peer.reason for peer in many)
    assert partial.bytes == 1_000


@pytest.mark.parametrize("seed", range(20))
def test_the_bound_holds_for_random_requests(seed: int) -> None:
    random = Random(seed)
    partial = partial_requests(10_000)
    peers = [Peer(partial) for _ in range(50)]
    for now in range(2_000):
        peer = random.choice(peers)
        peer.last_active = now
        peer.receive(0 if random.random() < 0.1 else min(partial.sizes.get(peer, 0) + random.randrange(2_000), 10_000))
        assert partial.bytes == sum(partial.sizes.values()) <= 10_000


def test_a_closed_connection_releases_its_partial_bytes() -> None:
    ends: tuple[Callable[[ConnectionHarness], None], ...] = (
        lambda harness: harness.connection.close("why"),
        lambda harness: harness.connection.abort("why"),
        lambda harness: harness.connection.connection_lost(None),
        lambda harness: harness.connection.data_received(pack(">i", -1).rjust(4_500, b"x")),
    )
    for end in ends:
        harness = ConnectionHarness()
        harness.connection.data_received(pack(">i", 4_000) + b"x" * 1_000)
        assert harness.connection.context.partial_requests.bytes == 1_004
        end(harness)
        assert harness.connection.context.partial_requests.bytes == 0
        assert harness.connection._framer.pending == 0


def test_a_framer_that_was_cleared_begins_with_a_length() -> None:
    framer = Framer(100)
    framer.feed(b"\0\0\0\5ab")
    framer.clear()
    assert framer.feed(b"\0\0\0\1z") == [b"\0\0\0\1z"]


@pytest.mark.parametrize("loop", LOOPS)
def test_partial_large_requests_of_many_connections_are_limited(loop: str) -> None:
    settings = ("socket.request.max.bytes=8388608", "connections.partial.requests.max.bytes=33554432", "message.max.bytes=7340032")
    with broker(*serve_options(loop, *settings)) as ours:
        create_topic(ours.port, "t", 1)
        before = ours.memory_kib()
        held = [socket.create_connection(("127.0.0.1", ours.port)) for _ in range(30)]
        try:
            for sock in held:
                sock.sendall(pack(">i", 8 * MIB) + bytes(6 * MIB))
            with Client(ours.port) as client:
                batch = build([Record(0, 0, None, b"x" * 7_000_000)])
                request = ProduceRequest(None, -1, 5_000, [TopicProduceData("t", [PartitionProduceData(0, batch)])])
                (part,) = client.ask(request, 9).responses[0].partition_responses
                assert part.error_code == 0
                assert is_served(client)
            assert becomes_true(lambda: len(close_reasons(ours)) >= 24)
            assert all("connections.partial.requests.max.bytes" in reason for reason in close_reasons(ours))
            assert ours.memory_kib() - before < 110 * 1024, "without the limit the requests would take 180 MiB"
            assert defects(ours) == []
        finally:
            for sock in held:
                sock.close()
