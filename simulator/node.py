"""One broker: one disk, and the processes that run on it one after the other."""

from __future__ import annotations

import asyncio
from asyncio import events
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final, cast

from broker.groups.group_journal import GroupJournal
from broker.logging.logs import log
from broker.runtime.contain import DEFECTS
from broker.runtime.node import Address
from broker.runtime.start import StartError
from broker.server import Server
from broker.settings.config import Config
from broker.settings.descriptors import divide_descriptors
from broker.settings.load import load_config
from coordinator import Note
from simulator.disk import SimDisk
from simulator.loop import SimLoop, run_in
from simulator.machine import DiskSpeed, SimMachine
from simulator.network import PORT, ListeningSocket, Stream
from simulator.world import MS, SECOND, Broken, Promise, World

DESCRIPTORS: Final = divide_descriptors(65_536, always_open=1)
EPOCH_NS: Final = 1_800_000_000 * SECOND  # the wall time at which a run begins

NoteObserver = Callable[["Node", GroupJournal, Note], None]
NO_DEFECT: Final = Promise("no defect", "no exception reaches the containment of faults or the event loop")


class SimServer(Server):
    """A Server that reports to the simulation when it listens."""

    announced: Callable[[], None]

    def _announce(self, addresses: list[Address]) -> None:
        self.announced()


class LogLines:
    """Adds the broker's log lines to the trace."""

    def __init__(self, world: World) -> None:
        self._world = world

    def write(self, level: str, event: str, details: Mapping[str, Any]) -> None:
        loop: Any = events._get_running_loop()
        shown = " ".join(f"{name}={value!r}" for name, value in details.items() if name != "exc_info")
        error = details.get("exc_info")
        self._world.trace(f"log: {loop.name if loop is not None else ''}{level} {event} {shown}{f' {error!r}' if error else ''}")


class Node:
    def __init__(
        self, world: World, settings: Mapping[str, object], disk: SimDisk | None = None, port: int = PORT, name: str = "node"
    ) -> None:
        """`disk`: that of an earlier node, or one that several nodes share; None: a new disk."""
        self.world = world
        self.name = name
        self.disk = disk or SimDisk(world.random)
        self.disk.recording = False
        self.disk.stays_down = True
        self.speed = DiskSpeed()
        self.life = 0
        self.running = False
        self.serving = False
        self.loop = SimLoop(world, self.disk, self.died)
        self.loop.kill()
        self.machine: SimMachine | None = None
        self.server: SimServer | None = None
        self.wall_offset_ns = EPOCH_NS
        self.cleaner_dies = 0.0
        self.pass_ns = 3_000
        # Smaller than a real broker's limits: logs do not grow to those within the minutes of a run.
        self.dirty_bytes_min = 10_000
        self.turn_bytes_max = 30_000
        self.streams: dict[Stream, None] = {}
        self.observers: list[NoteObserver] = []
        self.unknown_topics: Callable[[], Collection[str]] = tuple  # names whose newest topic this node does not know; one broker knows all
        self.on_ended: list[Callable[[Node, bool], None]] = []  # called after a process has ended; True: the power failed
        self.power_fails = False  # whether the crash planted in the disk is a power failure
        self.power_follows = False  # whether the power fails after the orderly stop in progress
        self.frozen_until = 0
        self.disturbed_at = 0  # the moment of the last fault of the process, its disk or its clock
        self.failed_starts = 0
        self._settings = [f"{name}={value}" for name, value in settings.items()]
        self.config = self._load_config(port)
        if not self.disk.exists("/data"):
            self.disk.make_folder("/data")
            self.disk.write_back()
        self._defects = DEFECTS.count

    def _load_config(self, port: int) -> Config:
        return load_config(listen=[f"127.0.0.1:{port}"], data=["/data"], settings=self._settings, environ={})

    @property
    def listening(self) -> ListeningSocket | None:
        return self.machine.listening if self.machine is not None and self.running else None

    @property
    def broker(self) -> Any:
        assert self.server is not None
        return self.server.broker

    def start(self) -> None:
        assert not self.running
        self.life += 1
        self.running, self.serving = True, False
        self.power_follows = False
        self.disturbed_at = self.world.now
        self.loop = SimLoop(self.world, self.disk, self.died)
        self.loop.pass_ns = self.pass_ns
        self.machine = self._new_machine()
        self.machine.cleaner_dies = self.cleaner_dies
        log.connect(LogLines(self.world).write, "warning")
        self.server = SimServer(self.config, cast(asyncio.AbstractEventLoop, self.loop), DESCRIPTORS, False, self.machine)
        self.server.announced = self._announced
        run_in(self.loop, self._serve)

    def _new_machine(self) -> SimMachine:
        return SimMachine(self.world, self.disk, self.loop, self.speed, self.wall_offset_ns, self.died)

    async def _serve(self) -> None:
        server = self.server
        assert server is not None
        try:
            await server.serve()
        except StartError as error:
            self.world.trace(f"{self.name}: ends: {error}", "node")
            self.failed_starts += 1
        if self.power_follows:
            self.crash(True)
        else:
            self._ended(False)

    def _announced(self) -> None:
        self.serving = True
        self.failed_starts = 0
        self.world.trace(f"{self.name}: life {self.life} listens", "node")
        self.broker.notes.observers.append(self._observe)
        cleaning = self.broker.stores.cleaning
        cleaning.rules = replace(cleaning.rules, dirty_bytes_min=self.dirty_bytes_min)
        self.broker.shards._store.turn_flushes.bytes_max = self.turn_bytes_max

    def _observe(self, journal: GroupJournal, note: Note) -> None:
        try:
            for observer in self.observers:
                observer(self, journal, note)
        except Broken as broken:  # the broker, which calls this, would contain the exception
            self.world.broken = self.world.broken or broken

    # Ends of a process.

    def stop(self, power_follows: bool = False) -> None:
        """Stop in order, as after SIGTERM; with `power_follows` the power fails when the process has ended."""
        if self.running and self.server is not None:
            self.disturbed_at = self.world.now
            self.power_follows = power_follows
            server = self.server
            self.loop.post(server.stop, {"signal": "SIGTERM"})

    def died(self) -> None:
        """The disk has reached its planted crash."""
        if self.running:
            self.crash(self.power_fails)

    def crash(self, power_fails: bool) -> None:
        """End the process at once, by kill -9 or a power failure."""
        if self.running:
            self.world.trace(f"{self.name}: {'the power fails' if power_fails else 'kill -9'}", "node")
            self.world.count("power failure" if power_fails else "kill -9", 1)
            self._ended(power_fails)

    def _ended(self, power_fails: bool) -> None:
        self.loop.kill()
        if power_fails:
            self._lose_power()
        else:
            self.disk.kill()
        self.running = self.serving = False
        self.disturbed_at = self.world.now
        for listening in (self.machine.listening, self.machine.channel) if self.machine is not None else ():
            if listening is not None:
                listening.close()
        for stream in list(self.streams):
            stream.broker_died()
        self.streams.clear()
        for ended in self.on_ended:
            ended(self, power_fails)

    def _lose_power(self) -> None:
        self.disk.crash()

    def check(self) -> None:
        """Raise Broken if the broker had to contain an exception (a defect), or one reached the loop."""
        if DEFECTS.count != self._defects:
            raise Broken(NO_DEFECT, DEFECTS.last)
        if self.loop.problems:
            raise Broken(NO_DEFECT, self.loop.problems[0])

    def stall(self, duration_ns: int) -> None:
        """Freeze the process, as SIGSTOP does, for this long."""
        self.loop.stall_ns += duration_ns
        self.frozen_until = max(self.frozen_until, self.world.now) + duration_ns
        self.disturbed_at = self.world.now + duration_ns
        self.loop.post(lambda: None)

    def answers_from(self) -> int:
        """When the last of the processes runs again that answer a request to this one."""
        return self.frozen_until

    @property
    def wall_ms(self) -> int:
        return (self.world.now + self.wall_offset_ns) // MS

    def shift_wall(self, by_ns: int) -> None:
        self.wall_offset_ns += by_ns
        self.disturbed_at = self.world.now
        if self.machine is not None:
            self.machine.wall_offset_ns = self.wall_offset_ns
