"""A connection over a transport in memory."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from struct import pack
from typing import cast

from broker.net.connection import Connection, ConnectionContext
from broker.runtime.turn import Turn
from protocol.errors import ProtocolError
from tests.support.stepped_loop import SteppedLoop
from tests.support.transports import BareTransport

UNREAD_MAX = 10_000
WAITING_MAX = 1_000
FRAME_MAX = 5_000


class FakeTransport(BareTransport):
    """The transport: the written bytes, and whether reading is paused. Calls back like asyncio's when its buffer is full."""

    def __init__(self) -> None:
        self.written = b""
        self.unread = 0
        self.reading = True
        self.open = True
        self.aborted = False
        self.connection: Connection | None = None
        self.high = 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high or 0

    def get_write_buffer_size(self) -> int:
        return self.unread

    def is_closing(self) -> bool:
        return not self.open

    def write(self, data: bytes, /) -> None:
        self.written += data
        self.unread += len(data)
        if self.unread > self.high and self.connection is not None:
            self.connection.pause_writing()

    def peer_reads_everything(self) -> None:
        self.unread = 0
        assert self.connection is not None
        self.connection.resume_writing()

    def close(self) -> None:
        self.open = False

    def abort(self) -> None:
        self.open = False
        self.aborted = True

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True


class ConnectionHarness:
    """A connection to a broker that replies to `echo` at once and holds all other requests until the test releases them."""

    def __init__(self) -> None:
        self.loop = SteppedLoop()
        clock = self.loop.clock()
        self.seen: list[bytes] = []
        self.ended: list[str] = []
        self.answer: Callable[[bytes], bytes | None] = lambda frame: frame if frame.startswith(b"echo") else None
        self.wire = FakeTransport()
        context = ConnectionContext(
            clock,
            Turn(cast(AbstractEventLoop, self.loop), clock),
            self.dispatch,
            lambda connection, reason: self.ended.append(reason),
            FRAME_MAX,
            UNREAD_MAX,
            WAITING_MAX,
        )
        self.connection = Connection(context, "PLAINTEXT", "127.0.0.1")
        self.wire.connection = self.connection
        self.connection.connection_made(self.wire)

    def dispatch(self, connection: Connection, framed: bytes) -> bytes | None:
        frame = framed[4:]
        self.seen.append(frame)
        if frame == b"nonsense":
            raise ProtocolError("nonsense")
        return self.answer(frame)

    def receive(self, *frames: bytes) -> None:
        self.connection.data_received(b"".join(pack(">i", len(frame)) + frame for frame in frames))

    def end_turn(self) -> None:
        self.loop.pass_once()
