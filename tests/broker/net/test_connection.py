"""One connection on a hand-made transport: order, limits and waiting requests."""

from __future__ import annotations

from struct import pack

import pytest

from tests.support.connections import FRAME_MAX, UNREAD_MAX, WAITING_MAX, Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_replies_of_one_read_leave_in_one_write_in_order(bench: Bench) -> None:
    writes: list[bytes] = []
    bench.wire.write = lambda data, /: writes.append(data)  # type: ignore[method-assign]
    bench.arrives(b"echo 1", b"echo 2", b"echo 3")
    assert writes == [b"echo 1echo 2echo 3"]


def test_a_frame_in_single_bytes_is_one_request(bench: Bench) -> None:
    for byte in pack(">i", 6) + b"echo 1":
        bench.connection.data_received(bytes([byte]))
    assert bench.seen == [b"echo 1"]


def test_frames_after_a_parked_request_wait_for_its_reply(bench: Bench) -> None:
    bench.arrives(b"park", b"echo 1", b"park", b"echo 2")
    assert bench.seen == [b"park"]
    bench.connection.send(b"parked")
    assert bench.wire.written == b""
    bench.end_turn()
    assert bench.wire.written == b"parkedecho 1"
    assert bench.seen == [b"park", b"echo 1", b"park"]
    bench.connection.send(b"again")
    bench.end_turn()
    assert bench.wire.written == b"parkedecho 1againecho 2"


def test_bytes_received_after_a_parked_request_are_limited(bench: Bench) -> None:
    bench.arrives(b"park")
    for _ in range(5):
        bench.arrives(b"echo" + b"." * 300)
    assert not bench.wire.reading
    bench.connection.send(b"parked")
    bench.end_turn()
    assert bench.wire.reading
    assert len(bench.seen) == 6


def test_waiting_empty_frames_are_limited(bench: Bench) -> None:
    bench.arrives(b"park", *[b""] * (WAITING_MAX // 60))
    assert not bench.wire.reading


def test_a_peer_that_does_not_read_replies_is_paused(bench: Bench) -> None:
    bench.answer = lambda frame: b"r" * 4_000
    for number in range(20):
        if bench.wire.reading:
            bench.arrives(b"%d" % number, b"more")
    assert len(bench.wire.written) <= UNREAD_MAX + 2 * 4_000
    bench.arrives(b"read before the kernel heard of it")
    worked = len(bench.seen)
    bench.end_turn()
    assert len(bench.seen) == worked
    bench.wire.peer_reads_everything()
    bench.end_turn()
    assert bench.wire.reading
    assert len(bench.seen) > worked


def test_many_requests_in_one_chunk_stop_at_the_bound_of_unread_replies(bench: Bench) -> None:
    bench.answer = lambda frame: b"r" * 4_000
    bench.arrives(*[b"%d" % number for number in range(500)])
    assert len(bench.wire.written) <= UNREAD_MAX + 65_536 + 4_000


def test_a_malformed_frame_closes_the_connection_after_earlier_replies(bench: Bench) -> None:
    bench.arrives(b"echo 1", b"nonsense", b"echo 2")
    assert bench.wire.written == b"echo 1"
    assert not bench.wire.open
    assert bench.seen == [b"echo 1", b"nonsense"]
    assert not bench.connection.busy, "the idle timeout closes the connection if the peer does not read the remaining replies"
    bench.arrives(b"echo 3")
    assert len(bench.seen) == 2
    bench.connection.connection_lost(None)
    assert bench.ended == ["nonsense"]


def test_a_frame_larger_than_allowed_closes_the_connection(bench: Bench) -> None:
    bench.connection.data_received(pack(">i", FRAME_MAX + 1))
    assert not bench.wire.open
    assert str(FRAME_MAX) in bench.connection.reason


def test_a_negative_length_closes_the_connection(bench: Bench) -> None:
    bench.connection.data_received(pack(">i", -1))
    assert not bench.wire.open


def test_a_reply_to_a_closed_connection_is_dropped(bench: Bench) -> None:
    bench.arrives(b"park")
    bench.connection.connection_lost(ConnectionResetError())
    bench.connection.send(b"parked")
    bench.end_turn()
    assert bench.wire.written == b""


def test_a_stopping_broker_answers_parked_requests_and_starts_no_new_ones(bench: Bench) -> None:
    bench.arrives(b"park", b"echo 1")
    bench.connection.stop_requests()
    bench.arrives(b"echo 2")
    bench.connection.send(b"parked")
    bench.end_turn()
    assert bench.wire.written == b"parked"
    assert bench.seen == [b"park"]


def test_a_stopping_broker_drains_the_socket(bench: Bench) -> None:
    bench.arrives(b"park", *[b"echo" + b"." * 300] * 5)
    assert not bench.wire.reading
    bench.connection.stop_requests()
    assert bench.wire.reading


def test_a_stopping_broker_closes_a_connection_after_its_last_reply(bench: Bench) -> None:
    bench.arrives(b"echo 1")
    bench.connection.stop_requests()
    bench.connection.close_when_sent()
    assert bench.wire.open
    bench.wire.peer_reads_everything()
    bench.connection.close_when_sent()
    assert not bench.wire.open


def test_a_chunk_of_many_requests_does_not_block_other_connections(bench: Bench) -> None:
    bench.arrives(*[b"echo %d" % number for number in range(100)])
    shares = [len(bench.seen)]
    while bench.loop.busy:
        bench.end_turn()
        shares.append(len(bench.seen))
    assert shares == [32, 64, 96, 100]


def test_large_replies_yield_to_other_connections_sooner(bench: Bench) -> None:
    bench.wire.set_write_buffer_limits(1 << 30)
    bench.answer = lambda frame: b"r" * 30_000
    bench.arrives(*[b"%d" % number for number in range(10)])
    assert len(bench.seen) == 3
    bench.end_turn()
    assert len(bench.seen) == 6
