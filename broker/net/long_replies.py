"""Send long replies in pieces; all of them together get a bounded share of each turn (pass of the event loop).

The reply to a fetch may have tens of megabytes. Written at once, it would delay all other connections, and stay in memory
until a slow client has read it. So each piece is built when the previous one is sent, and connections alternate.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from broker.runtime.contain import report_broken
from broker.runtime.turn import EndTurnScheduler

PIECE_BYTES = 1 << 20  # written in one turn by all long replies together: about a millisecond
PIECE_BYTES_MIN = 1 << 16  # a smaller piece is not worth a write


class ReplyLost(Exception):
    """The reply's records cannot be read after its first bytes were sent: the connection must be closed."""


class LongReply(Protocol):
    """A reply in pieces; `close` is called exactly once."""

    @property
    def ended(self) -> bool: ...

    @property
    def held_bytes(self) -> int:
        """The bytes in memory that are not sent yet."""
        ...

    def read_piece(self, bytes_max: int) -> list[bytes]:
        """Return the next bytes, about `bytes_max` and at least one. Raises ReplyLost."""
        ...

    def send(self, socket: int, bytes_max: int) -> int:
        """Send the next bytes from their file without copying them; returns 0 if the socket or the file does not allow it now."""
        ...

    def close(self) -> None: ...


class Writer(Protocol):
    """A connection with a long reply."""

    @property
    def can_write_piece(self) -> bool:
        """Whether the reply has more pieces and the peer reads."""
        ...

    def write_piece(self, bytes_max: int) -> int: ...


class LongReplies:
    """The queue of connections that write long replies."""

    __slots__ = ("_turn", "_writers")

    def __init__(self, turn: EndTurnScheduler) -> None:
        self._turn = turn
        self._writers: deque[Writer] = deque()

    def resume(self, writer: Writer) -> None:
        """Queue a writer that can write and is not queued."""
        self._writers.append(writer)
        self._turn.call_at_turn_end(self)

    def end_turn(self) -> None:
        budget = PIECE_BYTES
        writers = self._writers
        while writers and budget > 0:
            writer = writers.popleft()
            try:
                budget -= writer.write_piece(max(budget, PIECE_BYTES_MIN))
                if writer.can_write_piece:
                    writers.append(writer)
            except Exception as error:
                report_broken(writer, "a long reply failed inside the broker", error)
        if writers:
            self._turn.call_at_turn_end(self)

    def handle_defect(self) -> None:
        """Continue in the next turn, after an exception in this one."""
        if self._writers:
            self._turn.call_at_turn_end(self)
