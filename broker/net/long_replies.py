"""Send long replies in pieces; all of them together get a bounded share of each turn.

The reply to a fetch may have tens of megabytes. Written at once, it would delay all other connections, and stay in memory
until a slow client has read it. So each piece is built when the one before is sent, and connections take turns.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from broker.runtime.contain import broken
from broker.runtime.turn import TurnEnd

PIECE_BYTES = 1 << 20  # of all long replies in one turn: about a millisecond
PIECE_BYTES_MIN = 1 << 16  # a smaller piece is not worth a write


class ReplyLost(Exception):
    """The rest of a reply cannot be read after its beginning was sent: the connection must be closed."""


class LongReply(Protocol):
    """A reply in pieces; `close` is called exactly once."""

    @property
    def ended(self) -> bool: ...

    def piece(self, bytes_max: int) -> list[bytes]:
        """The next bytes, about `bytes_max` and at least one. Raises ReplyLost."""
        ...

    def send(self, socket: int, bytes_max: int) -> int:
        """Send the next bytes straight from their file, without copying them; 0 if the socket or the file does not allow it now."""
        ...

    def close(self) -> None: ...


class Writer(Protocol):
    """A connection with a long reply; `writes_on` while there is more of it and the peer reads."""

    @property
    def writes_on(self) -> bool: ...

    def write_piece(self, bytes_max: int) -> int: ...


class Scheduler(Protocol):
    def schedule_end_turn(self, connection: TurnEnd) -> None: ...


class Transport(Protocol):
    def get_write_buffer_size(self) -> int: ...
    def get_extra_info(self, name: str) -> Any: ...
    def is_closing(self) -> bool: ...


def idle_socket(transport: Transport) -> int:
    """The plain socket of a transport that has nothing left to write; -1: it has, or there is none."""
    if transport.get_write_buffer_size() or transport.is_closing() or transport.get_extra_info("sslcontext") is not None:
        return -1
    socket = transport.get_extra_info("socket")
    return int(socket.fileno()) if socket is not None else -1


class LongReplies:
    """The queue of connections that write long replies."""

    __slots__ = ("_turn", "_writers")

    def __init__(self, turn: Scheduler) -> None:
        self._turn = turn
        self._writers: deque[Writer] = deque()

    def resume(self, writer: Writer) -> None:
        """Queue a writer that can write and is not queued."""
        self._writers.append(writer)
        self._turn.schedule_end_turn(self)

    def end_turn(self) -> None:
        left = PIECE_BYTES
        writers = self._writers
        while writers and left > 0:
            writer = writers.popleft()
            try:
                left -= writer.write_piece(max(left, PIECE_BYTES_MIN))
                if writer.writes_on:
                    writers.append(writer)
            except Exception as error:
                broken(writer, "a long reply failed inside the broker", error)
        if writers:
            self._turn.schedule_end_turn(self)

    def broken(self) -> None:
        """Continue in the next turn, after an exception in this one."""
        if self._writers:
            self._turn.schedule_end_turn(self)
