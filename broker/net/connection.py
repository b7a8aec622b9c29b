"""One client connection: bytes in, frames to dispatch, replies out, in the order of the requests.

As in Kafka a connection works one request at a time: while a reply is parked or held, later frames wait. Everything
a peer can make us keep has a bound: frames behind a parked one and replies it does not read both end in no longer
reading from its socket.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from broker.net.long_replies import PIECE_BYTES_MIN, LongReplies, LongReply, ReplyLost, idle_socket
from broker.net.partial_requests import PartialRequests
from broker.runtime.clock import Clock
from broker.runtime.contain import defect, run
from broker.runtime.turn import TurnEnd
from protocol.errors import ProtocolError
from protocol.framing import Framer, frame_size, frame_size_bytes

# What one connection gets in one turn, until others have had theirs: a peer that sends thousands of requests in one
# chunk, and reads every reply at once, would keep all others waiting for seconds. Replies of one turn are one write.
REQUESTS_PER_TURN = 32
REPLY_BYTES_PER_TURN = 65_536
# What a frame that waits costs besides its bytes: frames may be empty, and then only this bounds them.
WAITING_FRAME_BYTES = 64


def other_protocol(data: bytes) -> str:
    """What a peer speaks who does not speak Kafka, as far as its first bytes tell."""
    if data[:2] == b"\x16\x03":
        return "; it looks like TLS, and this listener speaks plain text"
    if data[:5] in (b"GET /", b"POST ", b"PUT /", b"HEAD ", b"PRI *"):
        return "; it looks like HTTP"
    return ""


class Transport(Protocol):
    """What is used of an asyncio transport."""

    def write(self, data: bytes, /) -> None: ...
    def writelines(self, parts: list[bytes], /) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def get_write_buffer_size(self) -> int: ...
    def get_extra_info(self, name: str) -> Any: ...
    def is_closing(self) -> bool: ...
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


# The most that the fast paths of all connections may take in memory. Beyond it none is added.
FAST_PATH_BYTES_MAX = 64 << 20


class FastPath:
    """Answers requests like one that was answered before, without decoding them. `cost` is about what it takes in memory.

    ARCHITECTURE.md ("Fast paths") has the invariants that every implementation keeps. A class and no Protocol: compiled code calls the
    methods of its subclasses without looking them up, and `isinstance` costs nothing to speak of.
    """

    __slots__ = ("cost",)

    def __init__(self, cost: int) -> None:
        self.cost = cost

    def answer(self, connection: Connection, data: bytes) -> bytes | None:
        """Return the reply to the request; `b""`: the reply is sent later; None: the request goes the usual way."""
        raise NotImplementedError

    def close(self) -> None:
        """Called when the connection drops it and no longer counts its cost. Nothing else may keep a reference."""


# A request begins with its size, API key and version. These bytes are the key of its fast path. The correlation id follows,
# `data[KIND_BYTES:REST_AT]`, then the rest, `data[REST_AT:]`. Slices are written where they are used: with a `slice` object
# as index mypyc takes `bytes` for a sequence of ints and fails.
KIND_BYTES: Final = 8
REST_AT: Final = 12
# Fast paths of one connection: the oldest makes room for a new one.
FAST_PATHS_MAX = 6
_NO_FAST_PATHS: dict[bytes, FastPath] = {}  # shared by all connections without any, never written to


class Later(Protocol):
    def schedule_end_turn(self, connection: TurnEnd) -> None: ...


class Host:
    """What all connections share: the clock, the turn, where frames go, who must hear of an end, and the limits."""

    __slots__ = (
        "clock",
        "dispatch",
        "ended",
        "fast_path_bytes",
        "frame_bytes_max",
        "guard",
        "long_replies",
        "partial",
        "trace",
        "turn",
        "unread_bytes_max",
        "waiting_bytes_max",
    )

    def __init__(
        self,
        clock: Clock,
        turn: Later,
        dispatch: Callable[[Connection, bytes, int], bytes | None],
        ended: Callable[[Connection, str], None],
        frame_bytes_max: int,
        unread_bytes_max: int,
        waiting_bytes_max: int,
        trace: Callable[[str, Any, Any], None] | None = None,
        partial_bytes_max: int = 512 << 20,
    ) -> None:
        self.clock = clock
        self.turn = turn
        self.long_replies = LongReplies(turn)
        self.dispatch = dispatch
        self.ended = ended
        self.frame_bytes_max = frame_bytes_max
        self.unread_bytes_max = unread_bytes_max
        self.waiting_bytes_max = waiting_bytes_max
        self.fast_path_bytes = 0  # by all connections
        self.guard: Callable[[Any], Transport] | None = None  # around the transport of each connection, on a node that may lose its right to answer
        self.partial = PartialRequests(max(partial_bytes_max, frame_bytes_max + 4))
        self.trace = trace  # shows decoded requests (<) and replies (>) where the log level is debug


class Connection:
    """An asyncio protocol in shape; `listener` says which of our addresses the client dialled."""

    __slots__ = (
        "_clock",
        "_framer",
        "_full",
        "_long_reply",
        "_out",
        "_out_bytes",
        "_paused",
        "_ready",
        "_stalled",
        "_transport",
        "_waiting",
        "_waiting_bytes",
        "_working",
        "_write_now",
        "busy",
        "closed",
        "fast_paths",
        "host",
        "last_active",
        "leave",
        "listener",
        "peer",
        "produce_template",
        "reason",
        "stopping",
    )

    def __init__(self, host: Host, listener: Any, peer: str) -> None:
        self.host = host
        self.listener = listener
        self.peer = peer  # the client's address, without its port
        self._clock = host.clock
        self.last_active = host.clock.tick()
        self.fast_paths = _NO_FAST_PATHS  # by the first KIND_BYTES of their requests
        self.produce_template: Callable[[bytes, int], bytes | None] | None = None  # the fast path of Produce
        self.leave: Callable[[], None] | None = None  # whoever keeps something for the request at work hears of the end
        self.busy = False  # a request has no reply yet: it is parked or held
        self.closed = False
        self.stopping = False
        self.reason = ""
        self._framer = Framer(host.frame_bytes_max)
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._long_reply: LongReply | None = None  # what is being written piece by piece
        self._full = False  # the peer does not read its replies
        self._stalled = False  # for that, or because a long reply is being written, no request is worked
        self._paused = False  # we do not read from the peer
        self._working = False
        self._ready = True  # nothing of the above stands before a request that comes now; `_settle` keeps it true
        self._transport: Transport | None = None
        self._write_now: Callable[[bytes], object]  # its `write`, once there is a transport

    # What the event loop calls.

    def connection_made(self, transport: Any) -> None:
        if self.host.guard is not None:
            transport = self.host.guard(transport)
        self._transport = transport
        self._write_now = transport.write
        limit = self.host.unread_bytes_max
        transport.set_write_buffer_limits(limit, limit // 2)

    def data_received(self, data: bytes) -> None:
        try:
            clock = self._clock
            read = clock.monotonic_ns
            if (monotonic_ns := read()) >= clock.next_ns:  # `clock.tick` written out
                clock.move_to(monotonic_ns)
            self.last_active = clock.now
            if self._ready and not self.busy:
                # Most requests are heartbeats that repeat the one before.
                fast_path = self.fast_paths.get(data[:KIND_BYTES])
                if fast_path is not None:
                    answered = fast_path.answer(self, data)
                    if answered:
                        write = self._write_now  # to call it where it stands is slower: it is no method
                        write(answered)
                        return
                    if answered is not None:
                        return
                size = len(data) - 4
                # And a chunk is mostly one request: then nothing is cut, copied or queued.
                if 0 <= size <= self.host.frame_bytes_max and frame_size(data, 0)[0] == size:
                    self._work_on(data, 4)
                    if self._out:
                        self._write()
                    return
            elif self.closed or self.stopping:
                return
            self._cut(data)
        except ProtocolError as error:
            self.close(str(error))
        except Exception as failure:
            defect("a connection failed inside the broker", failure, peer=self.peer)
            self.broken()

    def _cut(self, data: bytes) -> None:
        """Into frames, some of which may wait."""
        try:
            frames = self._framer.feed(data)
        except ProtocolError as error:
            raise ProtocolError(f"{error}{other_protocol(data)}") from None
        pending = self._framer.pending
        partial = self.host.partial
        if pending or self in partial.sizes:
            partial.changed(self, pending)
            if self.closed:
                return
        if self.busy or self._stalled or self._waiting:
            self._wait(frames)
        else:
            self._work(frames)
            if self._out:
                self._write()
        self._settle()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._full = self._stalled = True
        self._pace_reading()
        self._settle()

    def resume_writing(self) -> None:
        self.last_active = self.host.clock.tick()
        self._full = False
        if self._long_reply is not None:
            self._pace_reading()
            self.host.long_replies.resume(self)
            return
        self._stalled = False
        self._pace_reading()
        self._settle()
        self.host.turn.schedule_end_turn(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self._ready = False
        self._transport = None
        run(self.forget_fast_paths)
        self._waiting.clear()
        self._out.clear()
        self._give_up_partial()
        if self._long_reply is not None:
            run(self._long_reply.close)
            self._long_reply = None
        if self.leave is not None:
            run(self.leave)
        self.host.ended(self, self.reason)

    # What the broker calls.

    def send(self, reply: bytes) -> None:
        """The reply to the one request at work here. It never overtakes what was answered before: that is in `_out`, or written."""
        self.busy = False
        if self._ready and not self._out:
            write = self._write_now
            write(reply)  # nothing goes with it, and nothing waits for it
            return
        if self.closed:
            return
        self._out.append(reply)
        self._out_bytes += len(reply)
        if not self._working:
            self._ready = False
            self.host.turn.schedule_end_turn(self)

    def send_in_pieces(self, reply: LongReply) -> None:
        """The reply to the one request at work here, too long for one write; the requests behind it wait for its end."""
        self.busy = False
        if self.closed or self._transport is None:
            reply.close()
            return
        self._long_reply = reply
        self._transport.set_write_buffer_limits(0, 0)  # a piece is made when the one before has left
        if not self._full:
            self._stalled = True
            self._ready = False
            self.host.long_replies.resume(self)

    @property
    def unsent(self) -> bool:
        """Whether a reply is complete and has not left."""
        return bool(self._out) or self._long_reply is not None

    @property
    def writes_on(self) -> bool:
        return self._long_reply is not None and not self._full and not self.closed

    def write_piece(self, bytes_max: int) -> int:
        """How much was written; whatever was answered before goes first."""
        reply = self._long_reply
        if reply is None or self.closed or self._transport is None:
            return 0
        if self._out:
            self._write()
        socket = idle_socket(self._transport)
        sent = reply.send(socket, bytes_max) if socket >= 0 else 0
        if sent:
            if reply.ended:
                self._end_long_reply()
            return sent
        try:
            # What the socket does not take now is copied into the transport, which tells when it is gone: little is enough.
            parts = reply.piece(bytes_max if socket < 0 else PIECE_BYTES_MIN)
        except ReplyLost as lost:
            self.abort(str(lost))
            return 0
        size = sum(map(len, parts))
        self._transport.writelines(parts)
        if reply.ended:
            self._end_long_reply()
        return size

    def _end_long_reply(self) -> None:
        assert self._long_reply is not None
        self._long_reply.close()
        self._long_reply = None
        if self._transport is None:
            return
        limit = self.host.unread_bytes_max
        self._transport.set_write_buffer_limits(limit, limit // 2)
        if not self._full:
            self._stalled = False
            self._pace_reading()
            self._settle()
            self.host.turn.schedule_end_turn(self)

    def end_turn(self) -> None:
        """Write what was answered late, then go on with the frames that waited for it."""
        if self._out:
            self._write()
        if not self._waiting and not self._paused:
            self._settle()
            return
        try:
            self._work_waiting()
        except ProtocolError as error:
            self.close(str(error))

    def _work_waiting(self) -> None:
        waiting = self._waiting
        for _ in range(REQUESTS_PER_TURN):
            if not waiting or self.busy or self._stalled or self.closed or self._out_bytes >= REPLY_BYTES_PER_TURN:
                break
            frame = waiting.popleft()
            self._waiting_bytes -= len(frame) + WAITING_FRAME_BYTES
            self._work([frame])
        if self._out:
            self._write()
        self._go_on_later()
        if self._paused:
            self._pace_reading()
        self._settle()

    def add_fast_path(self, kind: bytes, fast_path: FastPath) -> bool:
        """Ask `fast_path` first about requests that begin with `kind`; False: there is no memory left for it."""
        if self.closed:
            return False
        if self.fast_paths is _NO_FAST_PATHS:
            self.fast_paths = {}
        fast_paths = self.fast_paths
        host = self.host
        before = fast_paths.get(kind)
        taken = host.fast_path_bytes - (before.cost if before is not None else 0) + fast_path.cost
        if taken > FAST_PATH_BYTES_MAX:
            return False
        if before is None and len(fast_paths) >= FAST_PATHS_MAX:
            self._forget(next(iter(fast_paths)))
            taken = host.fast_path_bytes + fast_path.cost
        host.fast_path_bytes = taken
        fast_paths[kind] = fast_path
        if before is not None and before is not fast_path:
            before.close()
        return True

    def _forget(self, kind: bytes) -> None:
        dropped = self.fast_paths.pop(kind)
        self.host.fast_path_bytes -= dropped.cost
        dropped.close()

    def forget_fast_paths(self) -> None:
        for kind in list(self.fast_paths):
            self._forget(kind)
        self.fast_paths = _NO_FAST_PATHS

    def begin_nothing_more(self) -> None:
        """The broker stops: what is being answered may still be, what waits or comes now is dropped.

        It is read all the same: a socket that closes with something unread resets the connection, and the replies that
        are on their way to the client would be lost.
        """
        self.stopping = True
        self._ready = False
        self._waiting.clear()
        self._waiting_bytes = 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    def close_when_sent(self) -> None:
        """End in order, if the kernel has taken every reply by now."""
        if self._long_reply is not None:
            return
        if self._out:
            self._write()
        if self._transport is None or not self._transport.get_write_buffer_size():
            self.close("")

    def close(self, reason: str) -> None:
        """Let out what is answered, then end; nothing more is read."""
        if self.closed:
            return
        if self._out:
            self._write()
        self.closed = True
        self.busy = self._ready = False
        self.reason = reason
        self._waiting.clear()
        self._give_up_partial()
        if self._transport is not None:
            self._transport.close()

    def _give_up_partial(self) -> None:
        """Nothing more is read: what arrived of a request is let go."""
        if self in self.host.partial.sizes:
            self.host.partial.changed(self, 0)
        self._framer.clear()

    def broken(self) -> None:
        """Something raised that was done for this connection: what it keeps is not to be trusted. Its earlier replies are sound."""
        self._working = False
        try:
            self.close("")
        except Exception as error:
            defect("a connection failed inside the broker", error, peer=self.peer)
            self.abort("")

    def abort(self, reason: str) -> None:
        """End at once, with whatever the peer did not read."""
        self.closed = True
        self._ready = False
        self.reason = self.reason or reason
        self._give_up_partial()
        if self._transport is not None:
            self._transport.abort()

    def _work_on(self, data: bytes, at: int) -> None:
        """Dispatch the one request from `at` to the end; its reply is in `_out`, or comes later by `send`."""
        if self.produce_template is not None:
            answered = self.produce_template(data, at)
            if answered is not None:
                if answered:
                    self._out.append(answered)
                    self._out_bytes += len(answered)
                return
        self.busy = self._working = True
        reply = self.host.dispatch(self, data, at)
        self._working = False
        if reply is not None:
            self.busy = False
            self._out.append(reply)
            self._out_bytes += len(reply)

    def _try_fast_path(self, frame: bytes) -> bool:
        """Whether a fast path took the request; its reply is in `_out`, or comes later by `send`."""
        fast_paths = self.fast_paths
        if not fast_paths:
            return False
        size = frame_size_bytes(len(frame))
        fast_path = fast_paths.get(size + frame[: KIND_BYTES - 4])
        reply = fast_path.answer(self, size + frame) if fast_path is not None else None
        if reply is None:
            return False
        if reply:
            self._out.append(reply)
            self._out_bytes += len(reply)
        return True

    def _work(self, frames: list[bytes]) -> None:
        """Dispatch until a request has no reply yet, the peer no longer reads, or this turn's share is used; the rest waits."""
        done = 0
        for frame in frames:
            done += 1
            if not self._try_fast_path(frame):
                self._work_on(frame, 0)
            if self.busy or self._stalled or self.closed or done == REQUESTS_PER_TURN or self._out_bytes >= REPLY_BYTES_PER_TURN:
                break
        if done < len(frames) and not self.closed:
            self._wait(frames[done:])
            self._go_on_later()

    def _settle(self) -> None:
        """Called by whoever changed something of what may stand before a request."""
        held_up = self._stalled or self._paused or self._waiting or self._out or self._framer.pending
        self._ready = not (held_up or self.closed or self.stopping)

    def _go_on_later(self) -> None:
        """Frames that wait for nothing but their turn get the next one."""
        if self._waiting and not (self.busy or self._stalled or self.closed):
            self.host.turn.schedule_end_turn(self)

    def _wait(self, frames: list[bytes]) -> None:
        for frame in frames:
            self._waiting.append(frame)
            self._waiting_bytes += len(frame) + WAITING_FRAME_BYTES
        self._pace_reading()

    def _pace_reading(self) -> None:
        if self._transport is None or self.closed or self.stopping:
            return
        hold = self._full or self._waiting_bytes > self.host.waiting_bytes_max
        if hold and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        elif self._paused and not hold:
            self._paused = False
            self._transport.resume_reading()

    def _write(self) -> None:
        out = self._out
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        self._out_bytes = 0
        if self._transport is not None and not self.closed:
            self._transport.write(data)
