"""Replies sent in pieces: at the peer's pace, in turns with other connections, with later requests waiting."""

from __future__ import annotations

import pytest

from broker.net.connection import Connection
from broker.net.long_replies import PIECE_BYTES, LongReplies, ReplyLost
from tests.support.connections import UNREAD_MAX, WAITING_MAX, ConnectionHarness, FakeTransport


class SlowTransport(FakeTransport):
    """A transport whose peer reads only when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.low = 0
        self.takes = 1 << 40  # how many more bytes the socket accepts
        self.pieces: list[int] = []

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high, self.low = high or 0, low or 0

    def write(self, data: bytes, /) -> None:
        self.writelines([data])

    def writelines(self, parts: list[bytes], /) -> None:
        data = b"".join(parts)
        self.pieces.append(len(data))
        self.written += data
        accepted = min(len(data), self.takes)
        self.takes -= accepted
        self.unread += len(data) - accepted
        if self.unread > self.high and self.connection is not None:
            self.connection.pause_writing()


class FakeLongReply:
    """A reply of `size` bytes, sent in pieces of two parts each."""

    def __init__(self, size: int, letter: bytes = b"x", lost_at: int = -1) -> None:
        self.unsent = size
        self.letter = letter
        self.lost_at = lost_at
        self.closed = 0

    @property
    def ended(self) -> bool:
        return self.unsent == 0

    held_bytes = 0

    def read_piece(self, bytes_max: int) -> list[bytes]:
        if self.unsent <= self.lost_at:
            raise ReplyLost("the file is shorter than it was")
        size = min(bytes_max, self.unsent)
        self.unsent -= size
        return [self.letter, self.letter * (size - 1)] if size > 1 else [self.letter]

    def send(self, socket: int, bytes_max: int) -> int:
        raise AssertionError("there is no socket")

    def close(self) -> None:
        self.closed += 1


class LongReplyHarness(ConnectionHarness):
    """A `ConnectionHarness` with a wire that can be slow, and with further connections on the same loop."""

    def __init__(self) -> None:
        super().__init__()
        context = self.connection.context
        context.long_replies = LongReplies(context.turn)
        self.wire = self.slow = self.wired(self.connection)

    def wired(self, connection: Connection) -> SlowTransport:
        wire = SlowTransport()
        wire.connection = connection
        connection.connection_made(wire)
        return wire

    def second_connection(self) -> tuple[Connection, SlowTransport]:
        connection = Connection(self.connection.context, "PLAINTEXT", "127.0.0.1")
        return connection, self.wired(connection)

    def turns(self) -> int:
        count = 0
        while self.loop.busy:
            count += 1
            self.end_turn()
        return count


@pytest.fixture
def harness() -> LongReplyHarness:
    return LongReplyHarness()


def test_a_long_reply_is_sent_one_piece_per_turn(harness: LongReplyHarness) -> None:
    harness.receive(b"fetch")
    reply = FakeLongReply(3 * PIECE_BYTES + 5)
    harness.connection.send_in_pieces(reply)
    for piece in range(4):
        assert len(harness.slow.pieces) == piece, "one a turn"
        harness.end_turn()
    assert harness.slow.pieces == [PIECE_BYTES] * 3 + [5]
    assert reply.closed == 1
    assert (harness.slow.high, harness.slow.low) == (UNREAD_MAX, UNREAD_MAX // 2), "the write buffer limits are restored"


def test_requests_after_a_long_reply_wait_for_its_end(harness: LongReplyHarness) -> None:
    harness.receive(b"fetch", b"echo 1")
    harness.connection.send_in_pieces(FakeLongReply(2 * PIECE_BYTES))
    harness.receive(b"echo 2")
    harness.end_turn()
    assert harness.seen == [b"fetch"]
    harness.turns()
    assert harness.seen == [b"fetch", b"echo 1", b"echo 2"]
    assert harness.slow.written == b"x" * 2 * PIECE_BYTES + b"echo 1echo 2"


def test_earlier_replies_leave_before_a_long_reply(harness: LongReplyHarness) -> None:
    harness.receive(b"echo 1", b"fetch")
    harness.receive()
    harness.connection.send_in_pieces(FakeLongReply(3))
    harness.turns()
    assert harness.slow.written == b"echo 1xxx"


def test_no_piece_is_built_before_the_peer_took_the_previous_piece(harness: LongReplyHarness) -> None:
    harness.slow.takes = PIECE_BYTES // 2
    harness.receive(b"fetch")
    reply = FakeLongReply(2 * PIECE_BYTES)
    harness.connection.send_in_pieces(reply)
    assert harness.turns() == 1
    assert harness.slow.pieces == [PIECE_BYTES]
    harness.slow.takes = 1 << 40
    harness.slow.peer_reads_everything()
    harness.turns()
    assert harness.slow.pieces == [PIECE_BYTES] * 2
    assert reply.closed == 1


def test_a_long_reply_begins_after_the_previous_reply_was_read(harness: LongReplyHarness) -> None:
    harness.slow.takes = 0
    harness.answer = lambda frame: bytes(UNREAD_MAX + 1) if frame == b"much" else None
    harness.receive(b"fetch")
    harness.connection.pause_writing()
    harness.connection.send_in_pieces(FakeLongReply(7))
    assert harness.turns() == 0
    harness.slow.takes = 1 << 40
    harness.slow.peer_reads_everything()
    harness.turns()
    assert harness.slow.written == b"xxxxxxx"


def test_the_next_request_waits_for_the_last_piece_of_a_long_reply(harness: LongReplyHarness) -> None:
    harness.slow.takes = 0
    harness.receive(b"fetch", b"echo 1")
    harness.connection.send_in_pieces(FakeLongReply(PIECE_BYTES))
    harness.turns()
    assert harness.seen == [b"fetch"]
    assert not harness.slow.reading
    harness.slow.takes = 1 << 40
    harness.slow.peer_reads_everything()
    harness.turns()
    assert harness.seen == [b"fetch", b"echo 1"]
    assert harness.slow.reading


def test_connections_with_long_replies_take_turns(harness: LongReplyHarness) -> None:
    bystanders = [harness.second_connection() for _ in range(3)]
    for connection, _ in bystanders:
        connection.data_received(b"\0\0\0\5fetch")
        connection.send_in_pieces(FakeLongReply(2 * PIECE_BYTES))
    for _ in range(3):
        harness.end_turn()
    assert [wire.pieces for _, wire in bystanders] == [[PIECE_BYTES]] * 3
    harness.turns()
    assert [wire.pieces for _, wire in bystanders] == [[PIECE_BYTES] * 2] * 3


def test_short_ends_of_long_replies_share_a_turn(harness: LongReplyHarness) -> None:
    bystanders = [harness.second_connection() for _ in range(3)]
    for connection, _ in bystanders:
        connection.send_in_pieces(FakeLongReply(100))
    harness.end_turn()
    assert [wire.pieces for _, wire in bystanders] == [[100]] * 3


def test_a_long_reply_that_fails_midway_closes_its_connection(harness: LongReplyHarness) -> None:
    harness.receive(b"fetch")
    reply = FakeLongReply(2 * PIECE_BYTES, lost_at=PIECE_BYTES)
    harness.connection.send_in_pieces(reply)
    harness.turns()
    assert harness.slow.aborted
    harness.connection.connection_lost(None)
    assert harness.ended == ["the file is shorter than it was"]
    assert reply.closed == 1


def test_a_closed_connection_releases_its_long_reply(harness: LongReplyHarness) -> None:
    harness.receive(b"fetch")
    reply = FakeLongReply(9 * PIECE_BYTES)
    harness.connection.send_in_pieces(reply)
    harness.end_turn()
    harness.connection.connection_lost(None)
    harness.turns()
    assert reply.closed == 1
    assert len(harness.slow.pieces) == 1


def test_a_long_reply_to_a_closed_connection_is_released(harness: LongReplyHarness) -> None:
    harness.receive(b"fetch")
    harness.connection.connection_lost(None)
    reply = FakeLongReply(9)
    harness.connection.send_in_pieces(reply)
    assert reply.closed == 1
    assert harness.turns() == 0


def test_an_orderly_close_waits_for_the_rest_of_a_long_reply(harness: LongReplyHarness) -> None:
    harness.receive(b"fetch")
    harness.connection.send_in_pieces(FakeLongReply(2 * PIECE_BYTES))
    harness.connection.close_when_sent()
    assert harness.slow.open
    harness.turns()
    harness.connection.close_when_sent()
    assert not harness.slow.open
    assert len(harness.slow.written) == 2 * PIECE_BYTES


def test_bytes_received_after_a_long_reply_began_are_limited(harness: LongReplyHarness) -> None:
    harness.receive(b"fetch")
    harness.slow.takes = PIECE_BYTES // 2
    harness.connection.send_in_pieces(FakeLongReply(2 * PIECE_BYTES))
    harness.receive(*[bytes(100)] * (WAITING_MAX // 100))
    assert not harness.slow.reading
    harness.turns()
    harness.slow.takes = 1 << 40
    harness.slow.peer_reads_everything()
    assert not harness.slow.reading, "too much waits"
    harness.connection.on_lost = None


def test_the_end_of_a_connection_is_reported_to_its_waiting_requests(harness: LongReplyHarness) -> None:
    losses: list[str] = []
    harness.receive(b"fetch")
    harness.connection.on_lost = lambda: losses.append("left")
    harness.connection.connection_lost(None)
    assert losses == ["left"]
