"""Connections between clients and a broker. Each has two byte streams, which are delayed, stall, arrive in parts and break."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from broker.net.reply_writer import Sockets
from simulator.world import MS, World

if TYPE_CHECKING:
    from simulator.node import Node

PORT = 9092


class Delays:
    """How long bytes are in flight, in nanoseconds, and the faults of the network."""

    def __init__(self) -> None:
        self.low = MS // 10
        self.high = MS
        self.tear_probability = 0.0  # probability that a chunk arrives in two parts
        self.stall_probability = 0.0  # probability that a chunk delays its stream by up to `stall_ns`
        self.stall_ns = 0
        self.reset_probability = 0.0  # probability that the connection breaks instead of accepting a chunk


class ListeningSocket:
    """The part of a listening socket that the broker's acceptor uses."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.backlog: deque[AcceptedSocket] = deque()
        self.closed = False

    def fileno(self) -> int:
        return self._number

    def accept(self) -> tuple[AcceptedSocket, tuple[str, int]]:
        while self.backlog:
            accepted = self.backlog.popleft()
            if not accepted.stream.broken:
                return accepted, (accepted.stream.address, 40_000)
        raise BlockingIOError

    def close(self) -> None:
        self.closed = True


class AcceptedSocket:
    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def fileno(self) -> int:
        return 100

    def setblocking(self, flag: bool) -> None: ...

    def setsockopt(self, *option: Any) -> None: ...

    def close(self) -> None:
        self.stream.reset()

    def connect(self, protocol: Any) -> tuple[Any, Any]:
        transport = ServerTransport(self.stream, protocol)
        self.stream.transport = transport
        protocol.connection_made(transport)
        transport.arrived.extend(self.stream.early)
        transport.deliver()
        return transport, protocol


WRITES_PER_REFUSAL: Final = 50


class SimSockets:
    """The sockets of a process. Of each `WRITES_PER_REFUSAL` writes one is refused and one is accepted by half, as with a slow client."""

    def __init__(self) -> None:
        self.port = Sockets(self._socket_of, self._write)
        self._transports: dict[int, ServerTransport] = {}
        self._writes = 0

    def _socket_of(self, transport: Any) -> int:
        if not isinstance(transport, ServerTransport):
            return -1  # a connection between two nodes
        descriptor = 1 + max(self._transports, default=0)
        self._transports[descriptor] = transport
        transport.on_lost = lambda: self._transports.pop(descriptor)
        return descriptor

    def _write(self, descriptor: int, data: bytes) -> int:
        transport = self._transports[descriptor]  # a KeyError is a defect: the broker wrote to a closed descriptor, which another connection may have by now
        self._writes += 1
        rest = self._writes % WRITES_PER_REFUSAL
        if transport.get_write_buffer_size() or rest == 1:
            raise BlockingIOError
        accepted = len(data) if rest else len(data) // 2
        transport.write(data[:accepted])
        return accepted


class ServerTransport:
    """The broker's end of a connection: a transport as asyncio has it."""

    def __init__(self, stream: Stream, protocol: Any) -> None:
        self._stream = stream
        self.protocol = protocol
        self.arrived: deque[bytes] = deque()
        self._reading = True
        self._closing = False
        self._high = 1 << 16
        self._low = 1 << 14
        self.unread = 0  # bytes that the client has not read yet
        self._full = False
        self.lost = False
        self.on_lost: Callable[[], object] = lambda: None  # called when the socket is closed

    # Called by the broker.

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high if high is not None else 1 << 16
        self._low = low if low is not None else self._high // 4

    def get_write_buffer_size(self) -> int:
        return self.unread if self._full else 0

    def get_extra_info(self, name: str) -> Any:
        return None

    def is_closing(self) -> bool:
        return self._closing

    def write(self, data: bytes) -> None:
        if self._closing:
            return
        self.unread += len(data)
        self._stream.to_client(bytes(data))
        if self.unread > self._high and not self._full:
            self._full = True
            self.protocol.pause_writing()

    def writelines(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        if self.arrived:
            self._stream.node.loop.post(self.deliver)

    def close(self) -> None:
        self._end(self._stream.closed_by_broker)

    def abort(self) -> None:
        self._end(self._stream.reset)

    def _end(self, end: Callable[[], None]) -> None:
        if not self._closing:
            self._closing = True
            end()
            self._stream.node.loop.call_soon(self._lost)

    def _lost(self) -> None:
        self.lost = True
        self.protocol.connection_lost(None)
        self.on_lost()
        self._stream.settle()

    # Called by the network, in the broker's loop.

    def deliver(self) -> None:
        while self.arrived and self._reading and not self._closing:
            self.protocol.data_received(self.arrived.popleft())

    def client_read(self, size: int) -> None:
        """The client has read so many bytes."""
        self.unread -= size
        if self._full and self.unread <= self._low:
            self._stream.node.loop.post(self._resume)

    def _resume(self) -> None:
        if self._full and not self._closing:
            self._full = False
            self.protocol.resume_writing()

    def client_ended(self) -> None:
        """Called when the client has closed the connection, or the connection broke: tell the broker that it is lost."""
        if not self._closing:
            self._closing = True
            self._lost()


class Stream:
    """One connection, seen from both ends. `received` and `lost` are callbacks of the client."""

    def __init__(self, world: World, delays: Delays, node: Node, address: str, received: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        self._world = world
        self._delays = delays
        self.node = node
        self._life = node.life
        self.address = address
        self._received = received
        self._lost = lost
        self.transport: ServerTransport | None = None
        self.broken = False
        self._server_at = 0  # when the client's last chunk reaches the broker
        self._client_at = 0
        self._to_server: deque[bytes] = deque()
        self._to_client: deque[bytes] = deque()
        self.early: list[bytes] = []  # chunks that arrived before the broker accepted the connection
        self.on_settled: Callable[[], None] | None = None  # called when the broker can no longer handle a request of this connection
        self.client_reads = True

    @property
    def busy_until(self) -> int:
        """When the last chunk of either direction arrives or arrived."""
        return max(self._server_at, self._client_at)

    @property
    def arrives_at(self) -> int:
        """When the client's last chunk reaches the broker, or reached it."""
        return self._server_at

    def _arrival(self, after: int) -> int:
        world, delays = self._world, self._delays
        moment = world.now + world.between(delays.low, delays.high)
        if delays.stall_probability and world.chance(delays.stall_probability):
            world.count("stalled connection", 1)
            moment += world.between(0, delays.stall_ns)
        return max(moment, after)

    # From the client.

    def send(self, data: bytes) -> None:
        if self.broken:
            return
        world, delays = self._world, self._delays
        if delays.reset_probability and world.chance(delays.reset_probability):
            world.count("connection reset", 1)
            self.reset()
            return
        if delays.tear_probability and world.chance(delays.tear_probability) and len(data) > 1:
            at = world.random.randrange(1, len(data))
            self._send(data[:at])
            data = data[at:]
        self._send(data)

    def _send(self, data: bytes) -> None:
        self._to_server.append(data)
        self._server_at = self._arrival(self._server_at)
        self._world.at(self._server_at, self._at_server)

    def _at_server(self) -> None:
        if not self._to_server or self.node.life != self._life:
            return
        data = self._to_server.popleft()
        transport = self.transport
        if transport is not None:
            transport.arrived.append(data)
            self.node.loop.post(transport.deliver)
        else:
            self.early.append(data)

    def close(self) -> None:
        """The client closes the connection; the bytes that it sent still arrive."""
        if not self.broken:
            self.broken = True
            self._to_client.clear()
            self._world.at(max(self._server_at, self._world.now) + 1, self._end_server)

    # From the broker.

    def to_client(self, data: bytes) -> None:
        if self.broken:
            return
        if self._delays.reset_probability and self._world.chance(self._delays.reset_probability):
            self._world.count("reply lost", 1)
            self.reset()
            return
        self._to_client.append(data)
        self._client_at = self._arrival(self._client_at)
        self._world.at(self._client_at, self._at_client)

    def _at_client(self) -> None:
        if self.broken or not self._to_client:
            return
        if not self.client_reads:
            self._world.after(10 * MS, self._at_client)
            return
        data = self._to_client.popleft()
        if self.transport is not None and self.node.life == self._life:
            self.transport.client_read(len(data))
        self._received(data)

    def closed_by_broker(self) -> None:
        """The broker has closed the connection; the bytes that it wrote before still arrive."""
        if not self.broken:
            self._world.at(max(self._client_at, self._world.now) + self._delays.low, self._end_client)

    def reset(self) -> None:
        """Both ends lose the connection and all bytes in flight."""
        if self.broken:
            return
        self.broken = True
        self._to_server.clear()
        self._to_client.clear()
        world = self._world
        world.after(world.between(self._delays.low, self._delays.high), self._lost)
        world.after(world.between(self._delays.low, self._delays.high), self._end_server)

    def _end_client(self) -> None:
        if not self.broken:
            self.broken = True
            self._to_server.clear()
            self._lost()

    def _end_server(self) -> None:
        if self.node.life != self._life or self.transport is None:
            self.settle()
        elif not self.transport.lost:
            self.node.loop.post(self.transport.client_ended)

    def broker_died(self) -> None:
        """The broker's process has ended; the bytes that it wrote before still arrive, and unread requests are lost."""
        self._to_server.clear()
        self.settle()
        if not self.broken:
            self._world.at(max(self._client_at, self._world.now) + self._delays.low, self._end_client)

    def settle(self) -> None:
        if self.on_settled is not None:
            on_settled, self.on_settled = self.on_settled, None
            on_settled()


class Network:
    def __init__(self, world: World) -> None:
        self.world = world
        self.delays = Delays()

    def connect(
        self,
        node: Node,
        address: str,
        received: Callable[[bytes], None],
        lost: Callable[[], None],
        delays: Delays | None = None,
        listening: ListeningSocket | None = None,
    ) -> Stream | None:
        """Connect to the node, or return None if it does not listen. `listening`: not where clients connect."""
        listening = listening or node.listening
        if listening is None or listening.closed:
            return None
        stream = Stream(self.world, delays or self.delays, node, address, received, lost)
        node.streams[stream] = None
        listening.backlog.append(AcceptedSocket(stream))
        node.loop.readable(listening.fileno())
        return stream
