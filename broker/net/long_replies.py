"""Replies too long for one write: they leave in pieces, and all of them together get a bounded share of each turn.

A fetch may be answered with tens of megabytes. Written at once they would keep everybody else waiting, and stay in memory
until the slowest reader has them. So a piece is made when the one before has left, and the connections take turns.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from broker.runtime.contain import broken
from broker.runtime.turn import TurnEnd

PIECE_BYTES = 1 << 20  # what all long replies together write in one turn: about a millisecond
PIECE_BYTES_MIN = 1 << 16  # what is left of it may be too little to be worth a write


class ReplyLost(Exception):
    """The rest of a reply cannot be had, and its beginning has left: the connection cannot go on."""


class LongReply(Protocol):
    """One of them; `close` is called once, whatever became of it."""

    @property
    def ended(self) -> bool: ...

    def piece(self, bytes_max: int) -> list[bytes]:
        """What comes next, about as much as that and not nothing. Raises ReplyLost."""
        ...

    def close(self) -> None: ...


class Writer(Protocol):
    """A connection with a long reply; `writes_on` while there is more of it and the peer takes it."""

    @property
    def writes_on(self) -> bool: ...

    def write_piece(self, bytes_max: int) -> int: ...


class Later(Protocol):
    def schedule_end_turn(self, connection: TurnEnd) -> None: ...


class LongReplies:
    """Whose turn it is to write."""

    __slots__ = ("_turn", "_writers")

    def __init__(self, turn: Later) -> None:
        self._turn = turn
        self._writers: deque[Writer] = deque()

    def resume(self, writer: Writer) -> None:
        """`writer` can write; it is not among those that wait for that."""
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
        """A turn of it was lost: the writers get the next one."""
        if self._writers:
            self._turn.schedule_end_turn(self)
