"""One client connection: bytes in, frames to dispatch, replies out, in the order of the requests.

As in Kafka a connection processes one request at a time: while a reply waits for other members (parked) or for the log (held), later
frames wait. Waiting frames and unread replies are bounded: above the bound nothing more is read from the socket.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from broker.net.long_replies import PIECE_BYTES_MIN, LongReplies, LongReply, ReplyLost
from broker.net.reply_writer import OS_SOCKETS, ReplyWriter, Sockets, Transport, idle_socket
from broker.net.shared_bytes import partial_requests, unread_replies
from broker.runtime.clock import Clock
from broker.runtime.contain import report_defect, run_contained
from broker.runtime.turn import EndTurnScheduler
from protocol.errors import ProtocolError
from protocol.framing import Framer, frame_size

# One connection's share of a turn. Without it, a peer that sends thousands of requests in one chunk and reads every reply at once
# would delay all other connections for seconds.
REQUESTS_PER_TURN = 32
REPLY_BYTES_PER_TURN = 65_536
WHOLE_REPLIES = "whole_replies"  # extra info of a transport that takes each reply in one write
# Counted for each waiting frame besides its bytes, so that empty frames are bounded too.
WAITING_FRAME_BYTES = 60


def foreign_protocol_hint(data: bytes) -> str:
    """The protocol that the first bytes of a connection look like, as the end of an error text; "" if unknown."""
    if data[:2] == b"\x16\x03":
        return "; it looks like TLS, and this listener speaks plain text"
    if data[:5] in (b"GET /", b"POST ", b"PUT /", b"HEAD ", b"PRI *"):
        return "; it looks like HTTP"
    return ""


# Memory of the fast paths of all connections; beyond it no fast path is added.
FAST_PATH_BYTES_MAX = 64 << 20


# Results of `FastPath.answer` besides a reply.
ANSWERED_LATER: Final = b""
NO_REPLY: Final = b""  # and the connection's next request may be answered
NOT_MINE: Final = None  # the usual path must answer; nothing has changed


class FastPath:
    """Answers repeated requests without decoding them; `cost` is its approximate memory in bytes.

    ARCHITECTURE.md ("Fast paths") has the invariants that every implementation keeps. FastPath is a class and not a Protocol, because compiled
    code calls methods of its subclasses without a lookup and `isinstance` is cheap.
    """

    __slots__ = ("any_size", "cost", "kind")

    def __init__(self, cost: int, any_size: bool = False) -> None:
        self.kind = b""  # the first KIND_BYTES of its requests: size, API key and version (of any size: without the size); set by the connection
        self.cost = cost
        self.any_size = any_size

    def answer(self, connection: Connection, data: bytes) -> bytes | None:
        """Return the reply to the request, or ANSWERED_LATER, or NOT_MINE. If it raises, the connection calls `failed`."""
        raise NotImplementedError

    def failed(self, connection: Connection, data: bytes) -> bool:
        """`answer` has raised. Make sure that no reply is sent later; returns whether the request still needs one."""
        return True

    def close(self) -> None:
        """Called when the connection drops this fast path and stops counting its cost. Must remove other references, to free the memory."""


# A request begins with its size, API key and version: these bytes are the key of its fast path. Next come the correlation id,
# `data[KIND_BYTES:REST_AT]`, and the remaining bytes, `data[REST_AT:]`. These slices are repeated in the code because mypyc cannot
# index `bytes` with a `slice` object.
SIZE_BYTES: Final = 4
KIND_BYTES: Final = 8
REST_AT: Final = 12
FAST_PATHS_MAX = 6  # of one connection; the oldest is dropped for a new one
_NO_FAST_PATHS: dict[bytes, FastPath] = {}  # shared by all connections without a fast path, never written to
_NONE_WAITING: deque[bytes] = deque()  # shared in the same way: an empty deque takes 760 bytes
_NO_FAST_PATH: Final = FastPath(0)  # its kind matches no request


class ConnectionContext:
    """Shared by all connections: the clock, the turn, the dispatcher of frames, the callback for ended connections, and the limits."""

    __slots__ = (
        "clock",
        "dispatch",
        "ended",
        "fast_path_bytes",
        "frame_bytes_max",
        "guard",
        "long_replies",
        "partial_requests",
        "reply_bytes_max",
        "sockets",
        "trace",
        "turn",
        "unread_bytes_max",
        "unread_replies",
        "waiting_bytes_max",
    )

    def __init__(
        self,
        clock: Clock,
        turn: EndTurnScheduler,
        dispatch: Callable[..., bytes | None],  # `Dispatch`
        ended: Callable[[Connection, str], None],
        frame_bytes_max: int,
        unread_bytes_max: int,
        waiting_bytes_max: int,
        trace: Callable[[str, Any, Any], None] | None = None,
        partial_bytes_max: int = 512 << 20,
        sockets: Sockets = OS_SOCKETS,
        reply_bytes_max: int = 100_000_000,
        all_unread_bytes_max: int = 256 << 20,
    ) -> None:
        self.clock = clock
        self.turn = turn
        self.long_replies = LongReplies(turn)
        self.dispatch = dispatch
        self.ended = ended
        self.frame_bytes_max = frame_bytes_max
        self.unread_bytes_max = unread_bytes_max
        self.waiting_bytes_max = waiting_bytes_max
        self.fast_path_bytes = 0  # of all connections
        self.guard: Callable[[Any], Transport] | None = None  # wraps each transport: no reply once another node may own the logs
        self.partial_requests = partial_requests(max(partial_bytes_max, frame_bytes_max + 4))
        self.reply_bytes_max = reply_bytes_max
        self.unread_replies = unread_replies(max(all_unread_bytes_max, reply_bytes_max))
        self.sockets = sockets
        self.trace = trace  # logs decoded requests (<) and replies (>) at log level debug


class Connection:
    """Has the methods of an asyncio protocol; `listener` is the address that the client connected to."""

    __slots__ = (
        "_clock",
        "_dispatching",
        "_dropped",
        "_framer",
        "_latest_fast_path",
        "_long_reply",
        "_out",
        "_out_bytes",
        "_previous_fast_path",
        "_reading_paused",
        "_ready",
        "_stalled",
        "_transport",
        "_waiting",
        "_waiting_bytes",
        "_writer",
        "_writing_paused",
        "busy",
        "closed",
        "context",
        "fast_paths",
        "last_active",
        "listener",
        "on_lost",
        "peer",
        "reason",
        "stopping",
    )

    def __init__(self, context: ConnectionContext, listener: Any, peer: str) -> None:
        # The first attributes are used by every repeated heartbeat. Compiled code stores attributes in this order, so these share
        # cache lines: with thousands of connections, reading memory is most of what a heartbeat costs.
        self._clock = context.clock
        self.last_active = context.clock.tick()
        self._latest_fast_path = _NO_FAST_PATH  # used last, found without reading the cache lines of a dict
        self._previous_fast_path = _NO_FAST_PATH  # used before that: requests of two kinds often alternate
        self._writer: ReplyWriter  # set together with `_transport`
        self._ready = True  # a request that arrives now is processed at once; set by `_update_ready`
        self.busy = False  # the current request has no reply yet: it is parked or held
        self.context = context
        self.fast_paths = _NO_FAST_PATHS  # by the first KIND_BYTES of their requests
        self.listener = listener
        self.peer = peer  # the client's address, without its port
        self.on_lost: Callable[[], None] | None = None  # called when the connection ends before the current request is answered
        self.closed = False
        self.stopping = False
        self.reason = ""
        self._framer = Framer(context.frame_bytes_max)
        self._waiting = _NONE_WAITING
        self._waiting_bytes = 0
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._long_reply: LongReply | None = None  # being written piece by piece
        self._writing_paused = False  # the transport's buffer is full: the peer does not read its replies
        self._stalled = False  # no request is processed: the buffer is full, or a long reply is being written
        self._reading_paused = False  # the socket is not read
        self._dispatching = False
        self._dropped = False  # bytes arrived since the last `close_when_sent`
        self._transport: Transport | None = None

    # Called by the event loop.

    def connection_made(self, transport: Any) -> None:
        if self.context.guard is not None:
            transport = self.context.guard(transport)
        self._transport = transport
        self._writer = ReplyWriter(transport, self.context.sockets)
        limit = self.context.unread_bytes_max
        transport.set_write_buffer_limits(limit, limit // 2)
        if self.closed:  # after it was accepted, before the loop had made its transport
            transport.abort()

    def data_received(self, data: bytes) -> None:
        try:
            clock = self._clock
            read = clock.monotonic_ns
            if (monotonic_ns := read()) >= clock.next_ns:  # `clock.tick`, inlined
                clock.move_to(monotonic_ns)
            self.last_active = clock.now
            if self._ready and not self.busy:
                # Most requests are repeated heartbeats.
                fast_path = self.find_fast_path(data[:KIND_BYTES])
                if fast_path is not None:
                    try:
                        answered = fast_path.answer(self, data)
                    except Exception as failure:
                        answered = self._fast_path_failed(fast_path, data, failure)
                    if answered is not None:
                        if answered:
                            self._writer.write(answered)
                        return
                size = len(data) - 4
                # Most chunks are one request, which is neither copied nor queued.
                if 0 <= size <= self.context.frame_bytes_max and frame_size(data, 0)[0] == size:
                    self._dispatch(data)
                    if self._out:
                        self._write()
                    return
            elif self.closed or self.stopping:
                self._dropped = True
                return
            self._process_chunk(data)
        except ProtocolError as error:
            self.close(str(error))
        except Exception as failure:
            report_defect("a connection failed inside the broker", failure, peer=self.peer)
            self.handle_defect()

    def _process_chunk(self, data: bytes) -> None:
        """Split the bytes into frames; process them or let them wait."""
        try:
            frames = self._framer.feed(data)
        except ProtocolError as error:
            raise ProtocolError(f"{error}{foreign_protocol_hint(data)}") from None
        pending = self._framer.pending
        partial = self.context.partial_requests
        if pending or self in partial.sizes:
            partial.set_bytes(self, pending)
            if self.closed:
                return
        if self.busy or self._stalled or self._waiting:
            self._queue(frames)
        else:
            self._process(frames)
            if self._out:
                self._write()
        self._update_ready()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writing_paused = self._stalled = True
        if self._long_reply is None and self._transport is not None:
            self.hold_reply_bytes(self._transport.get_write_buffer_size())
        self._pace_reading()
        self._update_ready()

    def resume_writing(self) -> None:
        self.last_active = self.context.clock.tick()
        self._writing_paused = False
        if self._long_reply is not None:
            self._pace_reading()
            self.context.long_replies.resume(self)
            return
        self.hold_reply_bytes(0)
        self._stalled = False
        self._pace_reading()
        self._update_ready()
        self.context.turn.call_at_turn_end(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self._ready = False
        self._transport = None
        run_contained(self.drop_fast_paths)
        self._waiting.clear()
        self._out.clear()
        self._drop_partial_request()
        self.hold_reply_bytes(0)
        if self._long_reply is not None:
            run_contained(self._long_reply.close)
            self._long_reply = None
        if self.on_lost is not None:
            run_contained(self.on_lost)
        self.context.ended(self, self.reason)

    # Called by the broker.

    def send(self, reply: bytes) -> None:
        """Send the reply to the current request. It never overtakes earlier replies: they are written already, or in `_out`."""
        self.busy = False
        if self._ready and not self._out:
            self._writer.write(reply)  # no other reply is to be written, and no frame waits
            return
        if self.closed:
            return
        self._out.append(reply)
        self._out_bytes += len(reply)
        if not self._dispatching:
            self._ready = False
            self.context.turn.call_at_turn_end(self)

    def hold_reply_bytes(self, size: int) -> None:
        """Count the bytes of a large reply that is being built or that the client has not read; 0: none."""
        replies = self.context.unread_replies
        if size or self in replies.sizes:
            replies.set_bytes(self, 0 if self.closed else size)

    @property
    def takes_pieces(self) -> bool:
        """Whether a reply may be written in pieces."""
        return self._transport is None or not self._transport.get_extra_info(WHOLE_REPLIES)

    def send_in_pieces(self, reply: LongReply) -> None:
        """Send a reply to the current request that is too long for one write; later requests wait for its end."""
        self.busy = False
        if self.closed or self._transport is None:
            reply.close()
            return
        self._long_reply = reply
        self._transport.set_write_buffer_limits(0, 0)  # the next piece is built when the previous one is sent
        if not self._writing_paused:
            self._stalled = True
            self._ready = False
            self.context.long_replies.resume(self)

    @property
    def has_unsent_reply(self) -> bool:
        """Whether a reply is complete but not written."""
        return bool(self._out) or self._long_reply is not None

    @property
    def can_write_piece(self) -> bool:
        return self._long_reply is not None and not self._writing_paused and not self.closed

    def write_piece(self, bytes_max: int) -> int:
        """Write the next piece of the long reply, after all earlier replies; returns the number of bytes."""
        reply = self._long_reply
        if reply is None or self.closed or self._transport is None:
            return 0
        if self._out:
            self._write()
        socket = idle_socket(self._transport)
        sent = reply.send(socket, bytes_max) if socket >= 0 else 0
        if sent:
            self._sent_piece(reply)
            return sent
        try:
            # If a plain socket accepted nothing, write only the smallest piece: the transport copies what the socket does not accept.
            parts = reply.read_piece(bytes_max if socket < 0 else PIECE_BYTES_MIN)
        except ReplyLost as lost:
            self.abort(str(lost))
            return 0
        size = sum(map(len, parts))
        self._writer.writelines(parts)
        self._sent_piece(reply)
        return size

    def _sent_piece(self, reply: LongReply) -> None:
        if reply.ended:
            self._end_long_reply()
        else:
            self.hold_reply_bytes(reply.held_bytes)

    def _end_long_reply(self) -> None:
        assert self._long_reply is not None
        self._long_reply.close()
        self._long_reply = None
        self.hold_reply_bytes(0)
        if self._transport is None:
            return
        limit = self.context.unread_bytes_max
        self._transport.set_write_buffer_limits(limit, limit // 2)
        if not self._writing_paused:
            self._stalled = False
            self._pace_reading()
            self._update_ready()
            self.context.turn.call_at_turn_end(self)

    def end_turn(self) -> None:
        """Write the replies that were sent since the last read, then process waiting frames."""
        if self._out:
            self._write()
        if not self._waiting and not self._reading_paused:
            self._update_ready()
            return
        try:
            self._process_waiting()
        except ProtocolError as error:
            self.close(str(error))

    def _process_waiting(self) -> None:
        waiting = self._waiting
        for _ in range(REQUESTS_PER_TURN):
            if not waiting or self.busy or self._stalled or self.closed or self._out_bytes >= REPLY_BYTES_PER_TURN:
                break
            frame = waiting.popleft()
            self._waiting_bytes -= len(frame) + WAITING_FRAME_BYTES
            self._process([frame])
        if self._out:
            self._write()
        self._schedule_waiting()
        if self._reading_paused:
            self._pace_reading()
        self._update_ready()

    def add_fast_path(self, kind: bytes, fast_path: FastPath) -> bool:
        """Try `fast_path` first for requests that begin with `kind`; False: `FAST_PATH_BYTES_MAX` leaves no room for it."""
        if self.closed:
            return False
        if fast_path.any_size:
            kind = kind[SIZE_BYTES:]
        if self.fast_paths is _NO_FAST_PATHS:
            self.fast_paths = {}
        fast_paths = self.fast_paths
        context = self.context
        replaced = fast_paths.get(kind)
        total = context.fast_path_bytes - (replaced.cost if replaced is not None else 0) + fast_path.cost
        if total > FAST_PATH_BYTES_MAX:
            return False
        if replaced is None and len(fast_paths) >= FAST_PATHS_MAX:
            self._drop_fast_path(next(iter(fast_paths)))
            total = context.fast_path_bytes + fast_path.cost
        context.fast_path_bytes = total
        fast_path.kind = kind
        fast_paths[kind] = fast_path
        self._latest_fast_path = fast_path
        self._previous_fast_path = _NO_FAST_PATH  # it may be the replaced one
        if replaced is not None and replaced is not fast_path:
            replaced.close()
        return True

    def find_fast_path(self, kind: bytes) -> FastPath | None:
        latest = self._latest_fast_path
        if latest.kind == kind:
            return latest
        found = self._previous_fast_path
        if found.kind != kind:
            if latest.any_size and kind.endswith(latest.kind):
                return latest
            other = self.fast_paths.get(kind)
            if other is None:
                other = self.fast_paths.get(kind[SIZE_BYTES:])
                if other is None:
                    return None
            found = other
        self._latest_fast_path, self._previous_fast_path = found, latest
        return found

    def _drop_fast_path(self, kind: bytes) -> None:
        dropped = self.fast_paths.pop(kind)
        self._latest_fast_path = self._previous_fast_path = _NO_FAST_PATH
        self.context.fast_path_bytes -= dropped.cost
        dropped.close()

    def drop_fast_paths(self) -> None:
        for kind in list(self.fast_paths):
            self._drop_fast_path(kind)
        self.fast_paths = _NO_FAST_PATHS

    def stop_requests(self) -> None:
        """The broker stops: the current request is still answered; waiting and new requests are dropped.

        The socket is still read: closing a socket with unread bytes resets the connection, and the client would lose replies on
        their way.
        """
        self.stopping = True
        self._ready = False
        self._waiting.clear()
        self._waiting_bytes = 0
        if self._reading_paused and self._transport is not None:
            self._reading_paused = False
            self._transport.resume_reading()

    def close_when_sent(self) -> None:
        """Write what remains; close if the kernel has accepted every reply and no byte has arrived since the last call.

        Does nothing while a long reply is being written.
        """
        if self._long_reply is not None:
            return
        if self._out:
            self._write()
        still_sending, self._dropped = self._dropped, False
        if self._transport is None or not (still_sending or self._transport.get_write_buffer_size()):
            self.close("")

    def close(self, reason: str) -> None:
        """Write the complete replies, then close; nothing more is read."""
        if self.closed:
            return
        if self._out:
            self._write()
        self.closed = True
        self.busy = self._ready = False
        self.reason = reason
        self._waiting.clear()
        self._drop_partial_request()
        if self._transport is not None:
            self._transport.close()

    def _drop_partial_request(self) -> None:
        """Drop the bytes of an incomplete request: nothing more is read."""
        if self in self.context.partial_requests.sizes:
            self.context.partial_requests.set_bytes(self, 0)
        self._framer.clear()

    def handle_defect(self) -> None:
        """Close after an exception in work for this connection: its state is no longer trusted, but its earlier replies are sound."""
        self._dispatching = False
        try:
            self.close("")
        except Exception as error:
            report_defect("a connection failed inside the broker", error, peer=self.peer)
            self.abort("")

    def abort(self, reason: str) -> None:
        """Close at once; unsent replies are lost."""
        self.closed = True
        self._ready = False
        self.reason = self.reason or reason
        self._drop_partial_request()
        if self._transport is not None:
            self._transport.abort()

    def _dispatch(self, frame: bytes) -> None:
        """Dispatch the request; its reply is in `_out`, or sent later by `send`."""
        self.busy = self._dispatching = True
        reply = self.context.dispatch(self, frame)
        self._dispatching = False
        if reply is not None:
            self.busy = False
            self._out.append(reply)
            self._out_bytes += len(reply)

    def _fast_path_failed(self, fast_path: FastPath, data: bytes, failure: Exception) -> bytes | None:
        """Answer the request as the usual path does when its handler raises, unless it was answered before that."""
        if frame_size(data, 0)[0] != len(data) - 4:
            return NOT_MINE  # not one request
        self.busy = fast_path.failed(self, data)
        self.drop_fast_paths()
        reply = self.context.dispatch(self, data, failure)
        if reply is None:
            return ANSWERED_LATER
        self.busy = False
        return reply

    def _try_fast_path(self, frame: bytes) -> bool:
        """Returns whether a fast path answers the request; its reply is in `_out`, or sent later by `send`."""
        if not self.fast_paths:
            return False
        fast_path = self.find_fast_path(frame[:KIND_BYTES])
        if fast_path is None:
            return False
        try:
            reply = fast_path.answer(self, frame)
        except Exception as failure:
            reply = self._fast_path_failed(fast_path, frame, failure)
        if reply is None:
            return False
        if reply:
            self._out.append(reply)
            self._out_bytes += len(reply)
        return True

    def _process(self, frames: list[bytes]) -> None:
        """Dispatch until a request is parked or held, the peer no longer reads, or this turn's share is used; further frames wait."""
        done = 0
        for frame in frames:
            done += 1
            if not self._try_fast_path(frame):
                self._dispatch(frame)
            if self.busy or self._stalled or self.closed or done == REQUESTS_PER_TURN or self._out_bytes >= REPLY_BYTES_PER_TURN:
                break
        if done < len(frames) and not self.closed:
            self._queue(frames[done:])
            self._schedule_waiting()

    def _update_ready(self) -> None:
        held_up = self._stalled or self._reading_paused or self._waiting or self._out or self._framer.pending
        self._ready = not (held_up or self.closed or self.stopping)

    def _schedule_waiting(self) -> None:
        """Process waiting frames in the next turn, unless they wait for a reply or for the peer."""
        if self._waiting and not (self.busy or self._stalled or self.closed):
            self.context.turn.call_at_turn_end(self)

    def _queue(self, frames: list[bytes]) -> None:
        if self._waiting is _NONE_WAITING:
            self._waiting = deque()
        for frame in frames:
            self._waiting.append(frame)
            self._waiting_bytes += len(frame) + WAITING_FRAME_BYTES
        self._pace_reading()

    def _pace_reading(self) -> None:
        if self._transport is None or self.closed or self.stopping:
            return
        hold = self._writing_paused or self._waiting_bytes > self.context.waiting_bytes_max
        if hold and not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()
        elif self._reading_paused and not hold:
            self._reading_paused = False
            self._transport.resume_reading()

    def _write(self) -> None:
        out = self._out
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        self._out_bytes = 0
        if self._transport is not None and not self.closed:
            self._writer.write(data)
