"""Between a client and the broker's connection: every request and reply of a controlled cluster passes here.

The tap frames the client's bytes, lets the faults look at each request, and passes the frame on to the real `Connection`, whose transport
it is. So fast paths, parked replies and long replies stay as they are, and what a fault does to a request is done to its bytes and those
of its reply.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from broker.control.exchange import Exchange
from broker.net.connection import Connection
from protocol.apis import API_VERSIONS, APIS
from protocol.errors import ProtocolError
from protocol.wire import UNREADABLE, skip_tags

_HEAD = Struct(">ihhih").unpack_from  # size, api key, version, correlation id, length of the client id
_INT = Struct(">i").unpack_from
HEAD_BYTES: Final = 14


# What becomes of a request: called with the tap, the exchange and the request's frame.
Outcome = Callable[["Tap", Exchange, bytes], None]


class TapOwner:
    """What a tap asks of its cluster."""

    watching = False  # whether requests are decoded: there are faults, or somebody waits for a request

    def now(self) -> float:
        raise NotImplementedError

    def decide(self, tap: Tap, exchange: Exchange, frame: bytes) -> Outcome | None:
        """What a fault does to this request; None: nothing."""
        raise NotImplementedError

    def answered(self, tap: Tap, exchange: Exchange, reply: bytes | None, fault: int | None = None) -> None:
        """The reply has left, or none will."""

    def within(self, callback: Callable[[], None]) -> None:
        """Call it as a callback of the cluster."""
        callback()

    def opened(self, tap: Tap) -> None: ...

    def closed(self, tap: Tap) -> None: ...


class Tap(asyncio.Protocol):
    """The protocol of the client's socket, and the transport of the inner connection."""

    def __init__(self, connection: Connection, owner: TapOwner, number: int) -> None:
        self.inner: Any = connection
        self.owner = owner
        self.number = number
        self.peer = connection.peer
        self.listener: str = getattr(connection.listener, "name", "")
        self.client_id = ""
        self.software = ""  # the client library, as it names itself
        self.requests = 0
        self.opened_at = owner.now()
        self.last_at = self.opened_at
        self._transport: Any = None
        self._unframed = bytearray()
        self._frames: deque[bytes] = deque()  # wait behind a request that a fault keeps
        self._kept = False
        self._under_way: deque[Exchange] = deque()  # passed on, and not answered
        self._reply = bytearray()
        self._passing = 0  # bytes of the current reply that are still to come, and pass through
        self.blackholed = False
        self._frozen = False
        self._unsent: list[bytes] = []  # what the broker wrote while it stood still
        self._inner_paused = False

    # The client's side.

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.owner.opened(self)
        self.inner.connection_made(self)

    def data_received(self, data: bytes) -> None:
        if self.blackholed:
            return
        self._unframed += data
        if self._frozen:  # the loop has read before it was told not to
            self._transport.pause_reading()
        else:
            self.owner.within(self._take_frames)

    def _take_frames(self) -> None:
        buffer = self._unframed
        while len(buffer) >= 4:
            (size,) = _INT(buffer)
            if size < 0 or size > self.inner.context.frame_bytes_max:
                rest = bytes(buffer)  # no request of Kafka: the connection says what it is
                buffer.clear()
                self.inner.data_received(rest)
                return
            if len(buffer) < size + 4:
                break
            frame = bytes(buffer[: size + 4])
            del buffer[: size + 4]
            self._frames.append(frame)
        self._go_on()

    def _go_on(self) -> None:
        while self._frames and not self._kept and not self.blackholed:
            self._handle(self._frames.popleft())

    def _handle(self, frame: bytes) -> None:
        self.requests += 1
        self.last_at = now = self.owner.now()
        if len(frame) < HEAD_BYTES:
            self.inner.data_received(frame)
            return
        size, key, version, correlation_id, name_bytes = _HEAD(frame)
        client_id = frame[HEAD_BYTES : HEAD_BYTES + name_bytes].decode("utf-8", "replace") if name_bytes > 0 else ""
        self.client_id = client_id or self.client_id
        exchange = Exchange(key, version, correlation_id, client_id, size, now)
        if key == API_VERSIONS:
            self.software = software_in(decoded(frame, exchange)) or self.software
        outcome = self.owner.decide(self, exchange, frame) if self.owner.watching else None
        if outcome is None:
            self.pass_on(frame, exchange)
        else:
            outcome(self, exchange, frame)

    # What outcomes of faults do.

    def pass_on(self, frame: bytes, exchange: Exchange) -> None:
        """Let the broker serve the request."""
        self._under_way.append(exchange)
        self.inner.data_received(frame)

    def keep(self) -> None:
        """Later requests of the connection wait."""
        self._kept = True

    def release(self) -> None:
        if self._kept:
            self._kept = False
            self._go_on()

    def answer(self, reply: bytes, exchange: Exchange, fault: int | None = None) -> None:
        """Send a reply to the client, after those that it waits for already."""
        if self._transport is not None and reply:
            self._transport.write(reply)
        self.owner.answered(self, exchange, reply or None, fault)

    def cut(self) -> None:
        """Close the connection at once, as a dead network does."""
        if self._transport is not None:
            self._transport.abort()

    def swallow(self) -> None:
        """Read and discard everything from now on, and answer nothing."""
        self.blackholed = True
        self._frames.clear()
        self._unframed.clear()

    @property
    def gone(self) -> bool:
        return self._transport is None

    @property
    def idle(self) -> bool:
        """Whether no earlier request waits for its reply."""
        return not self._under_way

    def freeze(self) -> None:
        """Read and write nothing more, as a stopped process does."""
        self._frozen = True
        if self._transport is not None and not self._inner_paused:
            self._transport.pause_reading()

    def thaw(self) -> None:
        self._frozen = False
        unsent, self._unsent = self._unsent, []
        for data in unsent:
            self.write(data)
        if self._transport is not None and not self._inner_paused:
            self._transport.resume_reading()
            self.owner.within(self._take_frames)

    # The client's socket.

    def eof_received(self) -> bool:
        return bool(self.inner.eof_received())

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._frames.clear()
        self._unsent.clear()
        self.inner.connection_lost(error)
        self.owner.closed(self)

    # The transport of the inner connection: what the broker writes.

    def write(self, data: bytes) -> None:
        if self._transport is None:
            return
        if self._frozen:
            self._unsent.append(bytes(data))
            return
        if not self._passing and not self._reply and self._whole(data):
            return
        view = memoryview(data)
        while len(view):
            if self._passing:
                part = view[: self._passing]
                self._passing -= len(part)
                view = view[len(part) :]
                self._transport.write(bytes(part))
                continue
            self._reply += view
            view = view[len(view) :]
            view = memoryview(self._take_reply())

    def _whole(self, data: bytes) -> bool:
        """Handle the usual case: the bytes are one whole reply."""
        if len(data) < 8 or _INT(data)[0] != len(data) - 4:
            return False
        self._replied(data)
        return True

    def _take_reply(self) -> bytes:
        """Handle the replies in the buffer; returns the bytes of one that pass through from here on."""
        buffer = self._reply
        while len(buffer) >= 8:
            (size,) = _INT(buffer)
            exchange = self._exchange_of(_INT(buffer, 4)[0])
            if len(buffer) >= size + 4:
                reply = bytes(buffer[: size + 4])
                del buffer[: size + 4]
                self._replied(reply)
                continue
            if exchange is None or exchange.on_reply is not None:
                return b""  # the whole reply is needed
            self._under_way.popleft()
            exchange.reply_bytes = size
            rest = bytes(buffer)
            buffer.clear()
            self._passing = size + 4
            self.owner.answered(self, exchange, None)
            return rest
        return b""

    def _exchange_of(self, correlation_id: int) -> Exchange | None:
        """The exchange of this reply. Earlier ones got none: a Produce with acks=0."""
        under_way = self._under_way
        while under_way and under_way[0].correlation_id != correlation_id:
            unanswered = under_way.popleft()
            self.owner.answered(self, unanswered, None)
        return under_way[0] if under_way else None

    def _replied(self, reply: bytes) -> None:
        exchange = self._exchange_of(_INT(reply, 4)[0])
        if exchange is None:
            if self._transport is not None:
                self._transport.write(reply)
            return
        self._under_way.popleft()
        exchange.reply_bytes = len(reply) - 4
        if self.blackholed:
            return
        if exchange.on_reply is not None:
            exchange.on_reply(reply)
        else:
            self.answer(reply, exchange)

    def writelines(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    def close(self) -> None:
        if self._transport is not None and not self.blackholed:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport is None or bool(self._transport.is_closing())

    def get_extra_info(self, name: str) -> Any:
        return None if name == "socket" or self._transport is None else self._transport.get_extra_info(name)

    def get_write_buffer_size(self) -> int:
        return 0 if self._transport is None else int(self._transport.get_write_buffer_size())

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high, low)

    def pause_reading(self) -> None:
        self._inner_paused = True
        if self._transport is not None and not self._frozen:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._inner_paused = False
        if self._transport is not None and not self._frozen:
            self._transport.resume_reading()


def decoded(frame: bytes, exchange: Exchange) -> Any:
    """The request's message; None if it cannot be read, or the API is not served."""
    api = APIS.get(exchange.key)
    if api is None or not api.served[0] <= exchange.version <= api.served[1]:
        return None
    try:
        at = body_at(frame, exchange)
        return api.request.decode(frame, at, exchange.version)[0]
    except (ProtocolError, *UNREADABLE):
        return None


def software_in(request: Any) -> str:
    return f"{request.client_software_name} {request.client_software_version}".strip() if request is not None else ""


def body_at(frame: bytes, exchange: Exchange) -> int:
    """Where the request's body begins."""
    name_bytes = _HEAD(frame)[4]
    at = HEAD_BYTES + max(name_bytes, 0)
    return skip_tags(frame, at) if exchange.version >= APIS[exchange.key].flexible_from else at
