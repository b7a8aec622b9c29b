"""One connection on a hand-made transport: order, bounds, and what waits."""

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


def test_frames_behind_a_parked_reply_wait_and_go_on_when_it_is_answered(bench: Bench) -> None:
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


def test_what_arrives_behind_a_parked_reply_is_bounded(bench: Bench) -> None:
    bench.arrives(b"park")
    for _ in range(5):
        bench.arrives(b"echo" + b"." * 300)
    assert not bench.wire.reading
    bench.connection.send(b"parked")
    bench.end_turn()
    assert bench.wire.reading
    assert len(bench.seen) == 6


def test_empty_frames_that_wait_are_bounded_too(bench: Bench) -> None:
    bench.arrives(b"park", *[b""] * (WAITING_MAX // 60))
    assert not bench.wire.reading


def test_a_peer_that_does_not_read_is_no_longer_read_from_nor_worked_for(bench: Bench) -> None:
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


def test_nonsense_closes_the_connection_after_what_was_answered(bench: Bench) -> None:
    bench.arrives(b"echo 1", b"nonsense", b"echo 2")
    assert bench.wire.written == b"echo 1"
    assert not bench.wire.open
    assert bench.seen == [b"echo 1", b"nonsense"]
    assert not bench.connection.busy, "idleness ends it, should the peer not read what is left"
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


def test_a_reply_to_a_connection_that_is_gone_is_dropped(bench: Bench) -> None:
    bench.arrives(b"park")
    bench.connection.connection_lost(ConnectionResetError())
    bench.connection.send(b"parked")
    bench.end_turn()
    assert bench.wire.written == b""


def test_while_the_broker_stops_what_is_parked_is_answered_and_nothing_new_begins(bench: Bench) -> None:
    bench.arrives(b"park", b"echo 1")
    bench.connection.begin_nothing_more()
    bench.arrives(b"echo 2")
    bench.connection.send(b"parked")
    bench.end_turn()
    assert bench.wire.written == b"parked"
    assert bench.seen == [b"park"]


def test_while_the_broker_stops_nothing_is_left_unread_in_the_socket(bench: Bench) -> None:
    bench.arrives(b"park", *[b"echo" + b"." * 300] * 5)
    assert not bench.wire.reading
    bench.connection.begin_nothing_more()
    assert bench.wire.reading


def test_while_the_broker_stops_a_connection_ends_when_its_replies_are_out(bench: Bench) -> None:
    bench.arrives(b"echo 1")
    bench.connection.begin_nothing_more()
    bench.connection.close_when_sent()
    assert bench.wire.open
    bench.wire.peer_reads_everything()
    bench.connection.close_when_sent()
    assert not bench.wire.open


def test_a_chunk_of_many_requests_leaves_turns_to_others(bench: Bench) -> None:
    bench.arrives(*[b"echo %d" % number for number in range(100)])
    shares = [len(bench.seen)]
    while bench.later:
        bench.end_turn()
        shares.append(len(bench.seen))
    assert shares == [32, 64, 96, 100]


def test_large_replies_leave_turns_to_others_sooner(bench: Bench) -> None:
    bench.wire.set_write_buffer_limits(1 << 30)
    bench.answer = lambda frame: b"r" * 30_000
    bench.arrives(*[b"%d" % number for number in range(10)])
    assert len(bench.seen) == 3
    bench.end_turn()
    assert len(bench.seen) == 6
