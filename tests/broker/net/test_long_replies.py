"""Replies sent in pieces: at the peer's pace, in turns with other connections, with later requests waiting."""

from __future__ import annotations

import pytest

from broker.net.connection import Connection
from broker.net.long_replies import PIECE_BYTES, LongReplies, ReplyLost
from tests.support.connections import UNREAD_MAX, WAITING_MAX, Bench, Wire


class Slow(Wire):
    """A transport whose peer reads only when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.low = 0
        self.takes = 1 << 40  # how many more bytes the kernel takes at once
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


class Long:
    """A reply of so many bytes, in two parts a piece."""

    def __init__(self, size: int, letter: bytes = b"x", lost_at: int = -1) -> None:
        self.unsent = size
        self.letter = letter
        self.lost_at = lost_at
        self.closed = 0

    @property
    def ended(self) -> bool:
        return self.unsent == 0

    def piece(self, bytes_max: int) -> list[bytes]:
        if self.unsent <= self.lost_at:
            raise ReplyLost("the file is shorter than it was")
        size = min(bytes_max, self.unsent)
        self.unsent -= size
        return [self.letter, self.letter * (size - 1)] if size > 1 else [self.letter]

    def send(self, socket: int, bytes_max: int) -> int:
        raise AssertionError("there is no socket")

    def close(self) -> None:
        self.closed += 1


class Desk(Bench):
    """`Bench` with a wire that can be slow; more connections share its turns."""

    def __init__(self) -> None:
        super().__init__()
        host = self.connection.host
        host.long_replies = LongReplies(host.turn)
        self.wire = self.slow = self.wired(self.connection)

    def wired(self, connection: Connection) -> Slow:
        wire = Slow()
        wire.connection = connection
        connection.connection_made(wire)
        return wire

    def second_connection(self) -> tuple[Connection, Slow]:
        connection = Connection(self.connection.host, "PLAINTEXT", "127.0.0.1")
        return connection, self.wired(connection)

    def turns(self) -> int:
        count = 0
        while self.loop.busy:
            count += 1
            self.end_turn()
        return count


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_long_reply_is_sent_one_piece_per_turn(desk: Desk) -> None:
    desk.arrives(b"fetch")
    reply = Long(3 * PIECE_BYTES + 5)
    desk.connection.send_in_pieces(reply)
    for piece in range(4):
        assert len(desk.slow.pieces) == piece, "one a turn"
        desk.end_turn()
    assert desk.slow.pieces == [PIECE_BYTES] * 3 + [5]
    assert reply.closed == 1
    assert (desk.slow.high, desk.slow.low) == (UNREAD_MAX, UNREAD_MAX // 2), "the limits are those of before"


def test_requests_after_a_long_reply_wait_for_its_end(desk: Desk) -> None:
    desk.arrives(b"fetch", b"echo 1")
    desk.connection.send_in_pieces(Long(2 * PIECE_BYTES))
    desk.arrives(b"echo 2")
    desk.end_turn()
    assert desk.seen == [b"fetch"]
    desk.turns()
    assert desk.seen == [b"fetch", b"echo 1", b"echo 2"]
    assert desk.slow.written == b"x" * 2 * PIECE_BYTES + b"echo 1echo 2"


def test_earlier_replies_leave_before_a_long_reply(desk: Desk) -> None:
    desk.arrives(b"echo 1", b"fetch")
    desk.arrives()
    desk.connection.send_in_pieces(Long(3))
    desk.turns()
    assert desk.slow.written == b"echo 1xxx"


def test_no_piece_is_built_before_the_peer_took_the_previous_piece(desk: Desk) -> None:
    desk.slow.takes = PIECE_BYTES // 2
    desk.arrives(b"fetch")
    reply = Long(2 * PIECE_BYTES)
    desk.connection.send_in_pieces(reply)
    assert desk.turns() == 1
    assert desk.slow.pieces == [PIECE_BYTES]
    desk.slow.takes = 1 << 40
    desk.slow.peer_reads_everything()
    desk.turns()
    assert desk.slow.pieces == [PIECE_BYTES] * 2
    assert reply.closed == 1


def test_a_long_reply_begins_after_the_previous_reply_was_read(desk: Desk) -> None:
    desk.slow.takes = 0
    desk.answer = lambda frame: bytes(UNREAD_MAX + 1) if frame == b"much" else None
    desk.arrives(b"fetch")
    desk.connection.pause_writing()
    desk.connection.send_in_pieces(Long(7))
    assert desk.turns() == 0
    desk.slow.takes = 1 << 40
    desk.slow.peer_reads_everything()
    desk.turns()
    assert desk.slow.written == b"xxxxxxx"


def test_the_next_request_waits_for_the_last_piece_of_a_long_reply(desk: Desk) -> None:
    desk.slow.takes = 0
    desk.arrives(b"fetch", b"echo 1")
    desk.connection.send_in_pieces(Long(PIECE_BYTES))
    desk.turns()
    assert desk.seen == [b"fetch"]
    assert not desk.slow.reading
    desk.slow.takes = 1 << 40
    desk.slow.peer_reads_everything()
    desk.turns()
    assert desk.seen == [b"fetch", b"echo 1"]
    assert desk.slow.reading


def test_connections_with_long_replies_take_turns(desk: Desk) -> None:
    bystanders = [desk.second_connection() for _ in range(3)]
    for connection, _ in bystanders:
        connection.data_received(b"\0\0\0\5fetch")
        connection.send_in_pieces(Long(2 * PIECE_BYTES))
    for _ in range(3):
        desk.end_turn()
    assert [wire.pieces for _, wire in bystanders] == [[PIECE_BYTES]] * 3
    desk.turns()
    assert [wire.pieces for _, wire in bystanders] == [[PIECE_BYTES] * 2] * 3


def test_short_ends_of_long_replies_share_a_turn(desk: Desk) -> None:
    bystanders = [desk.second_connection() for _ in range(3)]
    for connection, _ in bystanders:
        connection.send_in_pieces(Long(100))
    desk.end_turn()
    assert [wire.pieces for _, wire in bystanders] == [[100]] * 3


def test_a_long_reply_that_fails_midway_closes_its_connection(desk: Desk) -> None:
    desk.arrives(b"fetch")
    reply = Long(2 * PIECE_BYTES, lost_at=PIECE_BYTES)
    desk.connection.send_in_pieces(reply)
    desk.turns()
    assert desk.slow.aborted
    desk.connection.connection_lost(None)
    assert desk.ended == ["the file is shorter than it was"]
    assert reply.closed == 1


def test_a_closed_connection_releases_its_long_reply(desk: Desk) -> None:
    desk.arrives(b"fetch")
    reply = Long(9 * PIECE_BYTES)
    desk.connection.send_in_pieces(reply)
    desk.end_turn()
    desk.connection.connection_lost(None)
    desk.turns()
    assert reply.closed == 1
    assert len(desk.slow.pieces) == 1


def test_a_long_reply_to_a_closed_connection_is_released(desk: Desk) -> None:
    desk.arrives(b"fetch")
    desk.connection.connection_lost(None)
    reply = Long(9)
    desk.connection.send_in_pieces(reply)
    assert reply.closed == 1
    assert desk.turns() == 0


def test_an_orderly_close_waits_for_the_rest_of_a_long_reply(desk: Desk) -> None:
    desk.arrives(b"fetch")
    desk.connection.send_in_pieces(Long(2 * PIECE_BYTES))
    desk.connection.close_when_sent()
    assert desk.slow.open
    desk.turns()
    desk.connection.close_when_sent()
    assert not desk.slow.open
    assert len(desk.slow.written) == 2 * PIECE_BYTES


def test_bytes_received_after_a_long_reply_began_are_limited(desk: Desk) -> None:
    desk.arrives(b"fetch")
    desk.slow.takes = PIECE_BYTES // 2
    desk.connection.send_in_pieces(Long(2 * PIECE_BYTES))
    desk.arrives(*[bytes(100)] * (WAITING_MAX // 100))
    assert not desk.slow.reading
    desk.turns()
    desk.slow.takes = 1 << 40
    desk.slow.peer_reads_everything()
    assert not desk.slow.reading, "too much waits"
    desk.connection.on_lost = None


def test_the_end_of_a_connection_is_reported_to_its_waiting_requests(desk: Desk) -> None:
    losses: list[str] = []
    desk.arrives(b"fetch")
    desk.connection.on_lost = lambda: losses.append("left")
    desk.connection.connection_lost(None)
    assert losses == ["left"]
