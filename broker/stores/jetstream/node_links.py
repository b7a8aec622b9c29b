"""Links between nodes through the servers of the engine: whoever may write the store may send requests of nodes, and no client of the nodes may.

Each process of a node subscribes to a subject of its own (`ClusterNames.node_subject`). A link is opened by a request to the other process. Then
both ends send numbered messages, and a message that is missing ends the link, as do the ends of the two processes and of their connections to
the engine. `Transport` is one end as asyncio knows it, so the protocols are the same as over a socket.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from struct import Struct
from typing import Any, Final, NamedTuple, Protocol

from broker.runtime.contain import Contained, run_contained
from broker.stores.jetstream.connection import AnswerHandler, MessageHandler
from broker.stores.jetstream.streams import ClusterNames
from broker.stores.jetstream.wire import NO_RESPONDERS, Message
from broker.stores.tokens import RandomBytes

OPEN_SECONDS: Final = 5.0
CHUNK_BYTES: Final = 65_536
WINDOW: Final = 8  # messages of one link that are on their way; a link can neither fill the memory of a server nor that of the receiver
ACKNOWLEDGE_EVERY: Final = WINDOW // 2
ID_BYTES: Final = 8
REQUESTED_MAX: Final = 256  # links that wait to be accepted
INCARNATION_BYTES: Final = 12
_HEAD: Final = Struct(f">BI{ID_BYTES}si{INCARNATION_BYTES}s")  # kind, number, id of the link, node and incarnation of the sender


class Kind(IntEnum):
    OPEN = 1  # a request, answered with OPENED or END
    OPENED = 2
    DATA = 3
    ACKNOWLEDGED = 4  # all messages up to this number were processed
    END = 5
    LOST = 6  # all links of the sender have ended, since its connection to the engine was lost


class Process(NamedTuple):
    """A process of a node."""

    node: int
    incarnation: str


class Engine(Protocol):
    """The part of a connection to the engine that links use."""

    loop: asyncio.AbstractEventLoop
    payload_max: int

    def publish(self, subject: str, payload: bytes, reply: str = "") -> None: ...

    def request(self, subject: str, payload: bytes, answered: AnswerHandler, headers: bytes = b"", seconds: float = 0.0) -> None: ...

    def subscribe(self, subject: str, receive: MessageHandler) -> None: ...


class Transport:
    """One end of a link."""

    def __init__(self, links: NodeLinks, peer: Process, id: bytes) -> None:
        self._links = links
        self.peer = peer
        self.id = id
        self.protocol: Any = None  # None until the link is open
        self._sent = 0  # number of the last message to the other end
        self._acknowledged = 0
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._high, self._low = 1 << 16, 1 << 14
        self._writing_paused = False
        self._received = 0
        self._processed = 0
        self._unread: deque[bytes] = deque()
        self._reading = True
        self._closing = False  # what is unsent is still sent
        self.ended = False

    def opened(self, protocol: Any) -> None:
        self.protocol = protocol
        run_contained(protocol.connection_made, self)

    # Called by the protocol.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or self.ended or not data:
            return
        self._unsent.append(memoryview(bytes(data)))
        self._unsent_bytes += len(data)
        self._send_unsent()
        if self._unsent_bytes > self._high and not self._writing_paused:
            self._writing_paused = True
            run_contained(self.protocol.pause_writing)

    def writelines(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    def close(self) -> None:
        self._closing = True
        if not self._unsent:
            self.abort()

    def abort(self) -> None:
        if not self.ended:
            self._sent += 1
            self._links.publish(self, Kind.END, self._sent)
            self.end()

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        if self._unread:
            self._links.loop.call_soon(Contained(self._process, self.abort))

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def get_extra_info(self, name: str) -> Any:
        return None

    def is_closing(self) -> bool:
        return self._closing or self.ended

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high if high is not None else 1 << 16
        self._low = low if low is not None else self._high // 4

    # Called by `NodeLinks`.

    def receive(self, kind: int, number: int, data: bytes) -> None:
        """A message of the other end."""
        if kind == Kind.ACKNOWLEDGED and self._acknowledged <= number <= self._sent:
            self._acknowledged = number
            self._send_unsent()
        elif kind == Kind.DATA and number == self._received + 1 and number - self._processed <= WINDOW and self.protocol is not None:
            self._received = number
            self._unread.append(data)
            self._process()
        elif kind == Kind.END:
            self.end()
        else:
            self.abort()

    def end(self) -> None:
        """The link is over; nothing more is sent or processed."""
        if self.ended:
            return
        self.ended = True
        self._unsent.clear()
        self._unsent_bytes = 0
        self._unread.clear()
        self._links.forget(self)
        if self.protocol is not None:
            self._links.loop.call_soon(Contained(self.protocol.connection_lost), None)

    def _process(self) -> None:
        while self._unread and self._reading and not self._closing and not self.ended:
            data = self._unread.popleft()
            run_contained(self.protocol.data_received, data)
            self._processed += 1
            if self._processed % ACKNOWLEDGE_EVERY == 0 and not self.ended:
                self._links.publish(self, Kind.ACKNOWLEDGED, self._processed)

    def _send_unsent(self) -> None:
        chunk_bytes = self._links.chunk_bytes
        while self._unsent and self._sent - self._acknowledged < WINDOW:
            first = self._unsent.popleft()
            if len(first) > chunk_bytes:
                self._unsent.appendleft(first[chunk_bytes:])
            chunk = first[:chunk_bytes]
            self._unsent_bytes -= len(chunk)
            self._sent += 1
            self._links.publish(self, Kind.DATA, self._sent, chunk)
        if self._writing_paused and self._unsent_bytes <= self._low:
            self._writing_paused = False
            run_contained(self.protocol.resume_writing)
        if self._closing and not self._unsent:
            self.abort()


class NodeLinks:
    """The links of one process."""

    def __init__(
        self,
        engine: Engine,
        names: ClusterNames,
        me: Process,
        incarnation_of: Callable[[int], str | None],
        refresh: Callable[[Callable[[], None]], None],
        random_bytes: RandomBytes,
        accept: Callable[[], Any],
    ) -> None:
        """`incarnation_of`: of the live process of a node; None: none is known. `refresh` looks for new nodes, and calls back.

        `accept` returns the protocol of a new link, or None.
        """
        self.loop = engine.loop
        self._engine = engine
        self._names = names
        self._me = me
        self._incarnation_of = incarnation_of
        self._refresh = refresh
        self._random_bytes = random_bytes
        self._accept = accept
        self._links: dict[tuple[Process, bytes], Transport] = {}
        self._known: set[Process] = set()  # processes with which this one has had links
        self._requested: dict[tuple[Process, bytes], str] = {}  # links to be accepted: the subjects for the answers
        self._started = self._closed = False

    @property
    def chunk_bytes(self) -> int:
        return min(CHUNK_BYTES, self._engine.payload_max - _HEAD.size)

    # `NodeChannel`.

    async def connect(self, node: int, new_protocol: Callable[[], Any]) -> None:
        incarnation = self._incarnation_of(node)
        if incarnation is None:
            raise ConnectionError("it is not live")
        link = Transport(self, Process(node, incarnation), self._random_bytes(ID_BYTES))
        self._links[link.peer, link.id] = link
        self._known.add(link.peer)
        answered: asyncio.Future[Message | None] = self.loop.create_future()
        self._engine.request(self._subject(link.peer), self._message(link, Kind.OPEN, 0), partial(_set_result, answered), seconds=OPEN_SECONDS)
        try:
            message = await answered
        except BaseException:
            link.abort()
            raise
        if message is None or _kind_of(message) != Kind.OPENED or link.ended:
            link.abort()
            raise ConnectionError(_refusal(message))
        link.opened(new_protocol())

    def listen(self) -> None:
        """Let other nodes request links, which wait for `start`."""
        self._engine.subscribe(self._subject(self._me), self._receive)

    def start(self) -> None:
        """Accept links from now on."""
        self._started = True
        for peer, id in list(self._requested):
            self._open_if_live(peer, id)

    def close(self) -> None:
        """Accept no more links."""
        self._closed = True

    # The ends of processes and connections.

    def node_ended(self, node: int) -> None:
        self._end_links_with(lambda peer: peer.node == node)
        self._known = {peer for peer in self._known if peer.node != node}

    def engine_changed(self, connected: bool) -> None:
        """The connection to the engine was lost, or there is a new one."""
        if not connected:
            self._end_links_with(lambda peer: True)
            return
        known, self._known = self._known, set()
        for peer in known:
            self._engine.publish(self._subject(peer), self._head(Kind.LOST, 0, bytes(ID_BYTES)))

    def _end_links_with(self, has_ended: Callable[[Process], bool]) -> None:
        for link in list(self._links.values()):
            if has_ended(link.peer):
                link.end()
        self._requested = {link: reply for link, reply in self._requested.items() if not has_ended(link[0])}

    # Messages.

    def publish(self, link: Transport, kind: Kind, number: int, data: bytes | memoryview = b"") -> None:
        self._engine.publish(self._subject(link.peer), self._message(link, kind, number, data))

    def forget(self, link: Transport) -> None:
        self._links.pop((link.peer, link.id), None)

    def _subject(self, process: Process) -> str:
        return f"{self._names.node_subject}.{process.node}.{process.incarnation}"

    def _head(self, kind: Kind, number: int, id: bytes) -> bytes:
        return _HEAD.pack(kind, number & 0xFFFFFFFF, id, self._me.node, self._me.incarnation.encode())

    def _message(self, link: Transport, kind: Kind, number: int, data: bytes | memoryview = b"") -> bytes:
        return b"".join((self._head(kind, number, link.id), data))

    def _receive(self, message: Message) -> None:
        payload = message.payload
        if len(payload) < _HEAD.size:
            return
        kind, number, id, node, incarnation = _HEAD.unpack_from(payload)
        peer = Process(node, incarnation.decode("ascii", "replace"))
        link = self._links.get((peer, id))
        if kind == Kind.OPEN:
            self._open_requested(peer, id, message.reply)
        elif kind == Kind.LOST:
            self._end_links_with(lambda other: other == peer)
        elif link is not None:
            link.receive(kind, number, payload[_HEAD.size :])
        elif kind == Kind.END:
            self._requested.pop((peer, id), None)
        elif kind == Kind.DATA:
            self._engine.publish(self._subject(peer), self._head(Kind.END, 0, id))

    def _open_requested(self, peer: Process, id: bytes, reply: str) -> None:
        if not reply or (peer, id) in self._links or len(self._requested) >= REQUESTED_MAX:
            return
        self._requested[peer, id] = reply
        if self._started:
            self._open_if_live(peer, id)

    def _open_if_live(self, peer: Process, id: bytes) -> None:
        if self._incarnation_of(peer.node) == peer.incarnation:
            self._open(peer, id)
        else:  # perhaps a node that has just started
            self._refresh(partial(self._open, peer, id))

    def _open(self, peer: Process, id: bytes) -> None:
        reply = self._requested.pop((peer, id), None)
        if reply is None:  # it was given up
            return
        is_live = self._incarnation_of(peer.node) == peer.incarnation
        protocol = self._accept() if is_live and not self._closed else None
        if protocol is None:
            self._engine.publish(reply, self._head(Kind.END, 0, id))
            return
        link = self._links[peer, id] = Transport(self, peer, id)
        self._known.add(peer)
        link.opened(protocol)
        self._engine.publish(reply, self._head(Kind.OPENED, 0, id))


def _kind_of(message: Message) -> int:
    return message.payload[0] if message.payload else 0


def _refusal(message: Message | None) -> str:
    if message is None:
        return "no answer"
    return "it is not connected to the engine" if message.status == NO_RESPONDERS else "it accepts no link"


def _set_result(answered: asyncio.Future[Message | None], message: Message | None) -> None:
    if not answered.done():
        answered.set_result(message)
