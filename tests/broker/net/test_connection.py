"""One connection on a hand-made transport: order, limits and waiting requests."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack

import pytest

from broker.net.connection import Connection
from tests.support.connections import FRAME_MAX, UNREAD_MAX, WAITING_MAX, ConnectionHarness, FakeTransport


@pytest.fixture
def harness() -> ConnectionHarness:
    return ConnectionHarness()


def test_replies_of_one_read_leave_in_one_write_in_order(harness: ConnectionHarness) -> None:
    writes: list[bytes] = []
    harness.wire.write = lambda data, /: writes.append(data)  # type: ignore[method-assign]
    harness.receive(b"echo 1", b"echo 2", b"echo 3")
    assert writes == [b"echo 1echo 2echo 3"]


def test_a_frame_in_single_bytes_is_one_request(harness: ConnectionHarness) -> None:
    for byte in pack(">i", 6) + b"echo 1":
        harness.connection.data_received(bytes([byte]))
    assert harness.seen == [b"echo 1"]


def test_frames_after_a_parked_request_wait_for_its_reply(harness: ConnectionHarness) -> None:
    harness.receive(b"park", b"echo 1", b"park", b"echo 2")
    assert harness.seen == [b"park"]
    harness.connection.send(b"parked")
    assert harness.wire.written == b""
    harness.end_turn()
    assert harness.wire.written == b"parkedecho 1"
    assert harness.seen == [b"park", b"echo 1", b"park"]
    harness.connection.send(b"again")
    harness.end_turn()
    assert harness.wire.written == b"parkedecho 1againecho 2"


def test_frames_wait_in_a_queue_of_their_connection(harness: ConnectionHarness) -> None:
    """Connections without waiting frames share an empty queue, since most never need one."""
    other = ConnectionHarness()
    assert other.connection._waiting is harness.connection._waiting
    harness.receive(b"park", b"echo 1")
    other.receive(b"park", b"echo 2", b"echo 3")
    assert (list(harness.connection._waiting), list(other.connection._waiting)) == ([b"\0\0\0\6echo 1"], [b"\0\0\0\6echo 2", b"\0\0\0\6echo 3"])
    assert not ConnectionHarness().connection._waiting


def test_bytes_received_after_a_parked_request_are_limited(harness: ConnectionHarness) -> None:
    harness.receive(b"park")
    for _ in range(5):
        harness.receive(b"echo" + b"." * 300)
    assert not harness.wire.reading
    harness.connection.send(b"parked")
    harness.end_turn()
    assert harness.wire.reading
    assert len(harness.seen) == 6


def test_waiting_empty_frames_are_limited(harness: ConnectionHarness) -> None:
    harness.receive(b"park", *[b""] * (WAITING_MAX // 60))
    assert not harness.wire.reading


def test_a_peer_that_does_not_read_replies_is_paused(harness: ConnectionHarness) -> None:
    harness.answer = lambda frame: b"r" * 4_000
    for number in range(20):
        if harness.wire.reading:
            harness.receive(b"%d" % number, b"more")
    assert len(harness.wire.written) <= UNREAD_MAX + 2 * 4_000
    harness.receive(b"read before the kernel heard of it")
    worked = len(harness.seen)
    harness.end_turn()
    assert len(harness.seen) == worked
    harness.wire.peer_reads_everything()
    harness.end_turn()
    assert harness.wire.reading
    assert len(harness.seen) > worked


def test_many_requests_in_one_chunk_stop_at_the_bound_of_unread_replies(harness: ConnectionHarness) -> None:
    harness.answer = lambda frame: b"r" * 4_000
    harness.receive(*[b"%d" % number for number in range(500)])
    assert len(harness.wire.written) <= UNREAD_MAX + 65_536 + 4_000


def test_a_malformed_frame_closes_the_connection_after_earlier_replies(harness: ConnectionHarness) -> None:
    harness.receive(b"echo 1", b"nonsense", b"echo 2")
    assert harness.wire.written == b"echo 1"
    assert not harness.wire.open
    assert harness.seen == [b"echo 1", b"nonsense"]
    assert not harness.connection.busy, "the idle timeout closes the connection if the peer does not read the remaining replies"
    harness.receive(b"echo 3")
    assert len(harness.seen) == 2
    harness.connection.connection_lost(None)
    assert harness.ended == ["nonsense"]


def test_a_frame_larger_than_allowed_closes_the_connection(harness: ConnectionHarness) -> None:
    harness.connection.data_received(pack(">i", FRAME_MAX + 1))
    assert not harness.wire.open
    assert str(FRAME_MAX) in harness.connection.reason


def test_a_negative_length_closes_the_connection(harness: ConnectionHarness) -> None:
    harness.connection.data_received(pack(">i", -1))
    assert not harness.wire.open


def test_a_reply_to_a_closed_connection_is_dropped(harness: ConnectionHarness) -> None:
    harness.receive(b"park")
    harness.connection.connection_lost(ConnectionResetError())
    harness.connection.send(b"parked")
    harness.end_turn()
    assert harness.wire.written == b""


def test_a_stopping_broker_answers_parked_requests_and_starts_no_new_ones(harness: ConnectionHarness) -> None:
    harness.receive(b"park", b"echo 1")
    harness.connection.stop_requests()
    harness.receive(b"echo 2")
    harness.connection.send(b"parked")
    harness.end_turn()
    assert harness.wire.written == b"parked"
    assert harness.seen == [b"park"]


def test_a_stopping_broker_drains_the_socket(harness: ConnectionHarness) -> None:
    harness.receive(b"park", *[b"echo" + b"." * 300] * 5)
    assert not harness.wire.reading
    harness.connection.stop_requests()
    assert harness.wire.reading


def test_a_stopping_broker_closes_a_connection_after_its_last_reply(harness: ConnectionHarness) -> None:
    harness.receive(b"echo 1")
    harness.connection.stop_requests()
    harness.connection.close_when_sent()
    assert harness.wire.open
    harness.wire.peer_reads_everything()
    harness.connection.close_when_sent()
    assert not harness.wire.open


def test_a_stopping_broker_reads_what_a_client_sent_before_it_closes(harness: ConnectionHarness) -> None:
    """Closing a socket with unread bytes resets it, and the client loses the replies on their way."""
    harness.connection.stop_requests()
    harness.receive(b"echo 1")
    harness.connection.close_when_sent()
    assert harness.wire.open, "more may be on its way"
    harness.connection.close_when_sent()
    assert not harness.wire.open
    assert harness.seen == []


def test_a_chunk_of_many_requests_does_not_block_other_connections(harness: ConnectionHarness) -> None:
    harness.receive(*[b"echo %d" % number for number in range(100)])
    shares = [len(harness.seen)]
    while harness.loop.busy:
        harness.end_turn()
        shares.append(len(harness.seen))
    assert shares == [32, 64, 96, 100]


def test_large_replies_yield_to_other_connections_sooner(harness: ConnectionHarness) -> None:
    harness.wire.set_write_buffer_limits(1 << 30)
    harness.answer = lambda frame: b"r" * 30_000
    harness.receive(*[b"%d" % number for number in range(10)])
    assert len(harness.seen) == 3
    harness.end_turn()
    assert len(harness.seen) == 6


@pytest.mark.parametrize("end", [Connection.abort, Connection.close])
def test_a_connection_closed_before_it_has_a_transport_does_not_stay_open(end: Callable[[Connection, str], None]) -> None:
    harness = ConnectionHarness()
    connection = Connection(harness.connection.context, "PLAINTEXT", "127.0.0.1")
    end(connection, "not wanted")
    wire = FakeTransport()
    connection.connection_made(wire)
    assert wire.aborted
    connection.connection_lost(None)
    assert harness.ended == ["not wanted"]
