"""The life of one cluster: a broker that starts, stops, dies and starts again on its port, beside others in the same process, by a clock of its own."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, cast

from broker.control.carrying import Carrier
from broker.control.loop import ClusterLoop
from broker.control.machine import ControlledClock, ControlledMachine
from broker.control.memory_disk import MemoryDisk
from broker.control.ports import Ports
from broker.control.traffic import Traffic
from broker.control.versions import Limits, limit
from broker.faults.book import Book
from broker.logging import logs
from broker.runtime.contain import Contained
from broker.runtime.node import Address
from broker.runtime.start import ExitCode, StartError
from broker.server import Server
from broker.settings.config import Config
from broker.settings.descriptors import Descriptors
from broker.settings.endpoints import format_endpoint, is_wildcard
from storage import SharedDisk

DATA: Final = "/data"  # the folder of a cluster's files in its memory
LINES_KEPT: Final = 200
QUIET_PASSES: Final = 6  # passes of the loop after which appends in memory and the replies that wait for them are done


class ClusterServer(Server):
    """A Server that says when it listens, to its cluster instead of standard output."""

    announced: Callable[[list[Address]], None]

    def _announce(self, addresses: list[Address]) -> None:
        self.announced(addresses)


class Life:
    def __init__(
        self,
        id: str,
        config: Config,
        descriptors: Descriptors,
        buffered_protocol: bool,
        disk: SharedDisk | None = None,
    ) -> None:
        """`disk`: the one of the configuration's data directory; None: files in memory, which end with the cluster."""
        self.id = id
        self.config = config
        self.clock = ControlledClock()
        self.in_memory = disk is None
        self._disk = disk
        self._descriptors = descriptors
        self._buffered_protocol = buffered_protocol
        self._ports = Ports()
        self._task: asyncio.Task[int] | None = None
        self._server: ClusterServer | None = None
        self.loop: ClusterLoop | None = None
        self.addresses: list[Address] = []
        self.lives = 0
        self.advancing = False
        self._still_until = 0.0  # on the clock of the real loop
        self._limits: Limits = {}  # of the versions of APIs
        self.lines: deque[str] = deque(maxlen=LINES_KEPT)  # the last warnings and errors of its log
        self._new_disk()
        self.traffic = self._new_traffic()

    def keep(self, level: str, event: str, details: Mapping[str, Any]) -> None:
        """Remember a line of its log if it is a warning or an error."""
        if logs.LEVELS[level] >= logs.LEVELS["warning"]:
            self.lines.append(logs.plain(level, event, details))

    def _new_traffic(self) -> Traffic:
        carrier = Carrier(lambda: self.broker.dispatch.routes, self._call_later, lambda: self._disk, self.stand_still)
        return Traffic(Book(self.topic_name), carrier, lambda: self.clock.monotonic(), lambda: self.clock.wall_ns() // 1_000_000, self._within)

    def _call_later(self, seconds: float, callback: Callable[[], object]) -> None:
        if self.loop is not None:
            self.loop.call_later(seconds, Contained(callback))

    def _within(self, callback: Callable[[], None]) -> None:
        if self.loop is not None:
            self.loop.within(callback)

    def topic_name(self, id: bytes) -> str | None:
        topic = self.broker.topics.by_id.get(id)
        return topic.name if topic is not None else None

    def _new_disk(self) -> None:
        if self.in_memory:
            self._disk = disk = cast(SharedDisk, MemoryDisk(lambda: self.clock.wall_ns() // 1_000_000))
            disk.make_folder(DATA)

    @property
    def disk(self) -> SharedDisk:
        assert self._disk is not None
        return self._disk

    @property
    def running(self) -> bool:
        return self._task is not None and not self._task.done()

    @property
    def broker(self) -> Any:
        """The parts of the broker. Raises StartError while none runs."""
        if self._server is None or not self.running:
            raise StartError(f"cluster {self.id} does not run", ExitCode.SOFTWARE)
        return self._server.broker

    @property
    def bootstrap(self) -> str:
        """Where clients connect: the advertised address of the first listener."""
        return ",".join(format_endpoint(address.host, address.port) for address in self.addresses[:1])

    @property
    def local_bootstrap(self) -> str:
        """The same as this process reaches it, whatever is advertised."""
        first = self.addresses[0]
        return format_endpoint("127.0.0.1" if is_wildcard(first.listen_host) else first.listen_host, first.listen_port)

    async def start(self) -> None:
        """Start the broker, and return when it listens. Raises StartError."""
        real = asyncio.get_running_loop()
        self.lives += 1
        self._still_until = 0.0
        self.traffic.frozen = False
        loop = self.loop = ClusterLoop(real, self.clock.monotonic, self)
        loop.wrapped = self.traffic.tap
        machine = ControlledMachine(self.clock, self.disk, self._ports)
        server = self._server = ClusterServer(
            self.config, cast(asyncio.AbstractEventLoop, loop), self._descriptors, self._buffered_protocol, machine
        )
        listens: asyncio.Future[list[Address]] = real.create_future()

        def announced(addresses: list[Address]) -> None:
            limit(server.broker.dispatch.routes, self._limits)
            if not listens.done():
                listens.set_result(addresses)

        server.announced = announced
        self._task = loop.create_task(self._serve(server))
        waits: list[asyncio.Future[Any]] = [self._task, listens]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if not listens.done():
            await self._task
            raise StartError(f"cluster {self.id} ended before it listened", ExitCode.SOFTWARE)
        self.addresses = listens.result()

    async def _serve(self, server: ClusterServer) -> int:
        try:
            return await server.serve()
        finally:
            server.broker.acceptor.close()

    async def stop(self) -> None:
        """Stop the broker in order, as after SIGTERM."""
        task, server = self._task, self._server
        if task is None or server is None or task.done():
            return
        server.stop({"reason": "asked to"})
        await asyncio.wait([task])
        self._end()

    def kill(self) -> None:
        """End the broker at once, as kill -9 does: what was not acknowledged may be lost, and nothing else."""
        task, server, loop = self._task, self._server, self.loop
        if task is None or server is None or loop is None or task.done():
            return
        loop.kill()
        task.cancel()
        for connection in list(server.broker.connections.live):
            connection.abort("")
        server.broker.acceptor.close()
        self._end()

    def _end(self) -> None:
        if self.loop is not None:
            self.loop.kill()
        if isinstance(self._disk, MemoryDisk):
            self._disk.locks.clear()

    async def close(self) -> None:
        """End the cluster for good."""
        self.kill()
        await self.ended()
        self._ports.close()

    async def ended(self) -> None:
        """Wait until the task of a killed broker has gone."""
        if self._task is not None:
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.exception()  # nobody else looks at it

    async def advertise(self, address: Address) -> None:
        """Tell clients this address of the first listener from now on."""
        first = self.config.listeners[0]
        listener = replace(first, advertised_host=address.host, advertised_port=address.port)
        self.config = replace(self.config, listeners=(listener, *self.config.listeners[1:]))
        await self._start_anew()

    async def limit_versions(self, limits: Limits) -> None:
        """Be a broker with these versions from now on: clients connect again, and ask which there are."""
        self._limits = limits
        await self._start_anew()

    async def _start_anew(self) -> None:
        self.kill()
        await self.ended()
        await self.start()

    def stand_still(self, ms: int) -> None:
        """Read nothing, answer nothing and let no timer fire for so long, as a frozen process, or one whose disk hangs."""
        loop, traffic = self.loop, self.traffic
        assert loop is not None
        until = self._still_until = max(self._still_until, loop.real.time() + ms / 1000)
        loop.hold()
        traffic.freeze()

        def go_on() -> None:
            if until == self._still_until:
                traffic.thaw()
                loop.go_on()

        loop.real.call_at(until, Contained(go_on))

    @property
    def standing_still(self) -> bool:
        return self.traffic.frozen

    def refuse_connections(self) -> None:
        self.broker.acceptor.close()

    def accept_connections(self) -> None:
        """Listen again, if a broker runs that does not."""
        if not self.running:
            return
        acceptor = self.broker.acceptor
        acceptor.close()
        for listener, address in zip(self.config.listeners, self.addresses, strict=True):
            sockets, _ = self._ports.open(listener, self.config.socket_listen_backlog_size)
            acceptor.add_sockets(sockets, address)
        acceptor.start()

    async def reset(self) -> None:
        """Topics, groups and clock as new, at the same address."""
        self.kill()
        await self.ended()
        self.clock = ControlledClock()
        self._limits = {}
        self._new_disk()
        self.traffic = self._new_traffic()
        await self.start()

    async def settle(self) -> None:
        """Let the passes of the loop run in which what was begun now is appended and answered."""
        for _ in range(QUIET_PASSES):
            await asyncio.sleep(0)

    async def advance(self, ms: int) -> None:
        """Let this time pass: every deadline in it comes in order, at its own time."""
        loop, clock = self.loop, self.clock
        assert loop is not None
        self.advancing = True
        await self.settle()
        clock.stand()
        loop.hold()
        try:
            target = clock.monotonic_ns() + ms * 1_000_000
            while (next_ns := round(loop.next_at * 1e9) if loop.next_at < float("inf") else target + 1) <= target:
                clock.move_to(next_ns)
                loop.fire_next()
                await self.settle()
            clock.move_to(target)
        finally:
            clock.go_on()
            loop.go_on()
            self.advancing = False
        await self.settle()
