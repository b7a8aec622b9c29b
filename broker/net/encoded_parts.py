"""Build long replies from parts that are encoded one by one, within `socket.response.max.bytes`."""

from __future__ import annotations

import os
from collections import deque
from typing import Final

from broker.net.dispatch import Call, ReplyTooLarge, Response
from protocol.wire import Steps

JOIN_COST: Final = 100  # the parts of steps of this cost are joined, since small parts need much more memory than their bytes
PART_BYTES_MAX: Final = 1 << 18
WHOLE_BYTES_MAX: Final = 65_536  # a shorter reply is written at once


class EncodedParts:
    """Encoded parts of the reply to a call. They count as unread by the client while they are built, and raise ReplyTooLarge above the limit."""

    __slots__ = ("_call", "parts", "size")

    def __init__(self, call: Call) -> None:
        self._call = call
        self.parts: deque[bytes] = deque()
        self.size = 0

    def add(self, data: bytes) -> None:
        self.size += len(data)
        if self.size > self._call.connection.context.reply_bytes_max:
            raise ReplyTooLarge(self._call)
        self._call.connection.hold_reply_bytes(self.size)
        for at in range(0, len(data), PART_BYTES_MAX):
            self.parts.append(data[at : at + PART_BYTES_MAX])

    def encode(self, steps: Steps[None], out: list[bytes]) -> Steps[None]:
        """Add what the steps append to `out`."""
        spent = 0
        for cost in steps:
            spent += cost
            if spent >= JOIN_COST:
                self.add(b"".join(out))
                out.clear()
                spent = 0
            yield cost
        self.add(b"".join(out))

    def send(self, reply: Response) -> None:
        """Send them as the reply to the call."""
        call = self._call
        connection = call.connection
        head = call.encode_head(reply, self.size)
        if self.size > WHOLE_BYTES_MAX and connection.takes_pieces:
            self.parts.appendleft(head)
            connection.send_in_pieces(LongEncodedReply(self.parts, self.size + len(head)))
        else:
            connection.hold_reply_bytes(0)
            connection.send(b"".join([head, *self.parts]))


class LongEncodedReply:
    """A reply in memory that is sent in pieces; each part is freed when it is sent."""

    __slots__ = ("_parts", "held_bytes")

    def __init__(self, parts: deque[bytes], size: int) -> None:
        self._parts = parts
        self.held_bytes = size

    @property
    def ended(self) -> bool:
        return not self._parts

    def read_piece(self, bytes_max: int) -> list[bytes]:
        piece: list[bytes] = []
        size = 0
        while self._parts and size < bytes_max:
            part = self._parts.popleft()
            size += len(part)
            piece.append(part)
        self.held_bytes -= size
        return piece

    def send(self, socket: int, bytes_max: int) -> int:
        sent = 0
        parts = self._parts
        while parts and sent < bytes_max:
            part = parts[0]
            try:
                accepted = os.write(socket, part)
            except OSError:  # the socket is full, or an error that ordinary writing will report
                break
            sent += accepted
            if accepted < len(part):
                parts[0] = part[accepted:]
                break
            parts.popleft()
        self.held_bytes -= sent
        return sent

    def close(self) -> None:
        self._parts.clear()
