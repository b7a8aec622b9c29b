"""The machine of a simulated broker: clocks, disk, threads and child processes, all driven by the world."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from broker.runtime.collector import NoGarbage
from broker.runtime.contain import Contained, run_contained
from broker.runtime.workers import Job, Workers
from broker.settings.listeners import Listener
from broker.stores.compaction_process import CleaningFailed, RunCleaner
from broker.stores.node_files import LiveNodes, Noticed
from broker.topics import batch_checker
from simulator.census import Census, SimNodeFiles
from simulator.disk import Crashed, SimDisk
from simulator.loop import SimLoop
from simulator.network import ListeningSocket, SimSockets
from simulator.world import MS, SECOND, World
from storage import DamagedLog
from storage.cleaner import Report, job_of, report_line

SLOW_DISK_NS = 5 * SECOND  # the most that a job takes while the disk is slow
SLICE_READ_NS = 200_000  # virtual time that passes at each call of `monotonic`, by which the broker bounds its slices of work


class DiskSpeed:
    """The durations of jobs of worker threads, in nanoseconds."""

    def __init__(self) -> None:
        self.low = MS // 20
        self.high = 2 * MS
        self.slow = 0.0  # probability that a job takes up to `slow_ns`
        self.slow_ns = 0


class SimWorkers(Workers):
    """Worker threads. A job takes some time, and has its whole effect at one moment within it."""

    def __init__(self, world: World, loop: SimLoop, speed: DiskSpeed, crashed: Callable[[], None], count: int) -> None:
        self._world = world
        self._sim_loop = loop
        self._speed = speed
        self._crashed = crashed
        self._free = count
        self._queue: deque[Job] = deque()

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self._queue.append((work, done))
        self._start()

    def _start(self) -> None:
        world, speed = self._world, self._speed
        while self._free and self._queue:
            self._free -= 1
            work, done = self._queue.popleft()
            duration_ns = world.between(speed.low, speed.high)
            if speed.slow and world.chance(speed.slow):
                world.count("slow disk", 1)
                duration_ns = world.between(duration_ns, speed.slow_ns)
            before = int(duration_ns * world.random.random())
            world.after(before, self._work, work, done, duration_ns - before)

    def _work(self, work: Callable[[], Any], done: Callable[[Any], None], remaining_ns: int) -> None:
        if self._sim_loop.dead:
            return
        if self._sim_loop.frozen_until > self._world.now:
            self._world.at(self._sim_loop.frozen_until, self._work, work, done, remaining_ns)
            return
        try:
            result = work()
        except Crashed:
            self._crashed()
            return
        except Exception as error:
            result = error
        self._world.after(remaining_ns, self._done, done, result)

    def _done(self, done: Callable[[Any], None], result: Any) -> None:
        if self._sim_loop.dead:
            return
        self._free += 1
        self._sim_loop.post(Contained(done), result)
        self._start()

    def close(self) -> None:
        self._queue.clear()


class SimBatchChecker:
    """Checks the batches of producers after a delay; in a real broker child processes check them."""

    def __init__(self, world: World, loop: SimLoop) -> None:
        self._world = world
        self._loop = loop
        self._stopped = False

    def submit(self, job: batch_checker.Job) -> None:
        self._world.after(self._world.between(MS, 20 * MS), self._check, job)

    def _check(self, job: batch_checker.Job) -> None:
        if not self._loop.dead and not self._stopped and job.is_needed():
            outcome = batch_checker.check_at_once(job)
            self._loop.post(run_contained, job.done, outcome)

    async def stop(self) -> None:
        self._stopped = True


class SimMachine:
    """The machine as one process sees it. The wall clock may be wrong; the monotonic clock counts from the begin of the run."""

    # If several nodes share this machine: the live nodes, and what connects a protocol to one of them.
    census: Census
    connect_peer: Callable[[int, Callable[[], Any]], Coroutine[Any, Any, object]]

    def __init__(self, world: World, disk: SimDisk, loop: SimLoop, speed: DiskSpeed, wall_offset_ns: int, crashed: Callable[[], None]) -> None:
        self.world = world
        self.disk = disk
        self.loop = loop
        self.speed = speed
        self.wall_offset_ns = wall_offset_ns  # wall time minus virtual time
        self._crashed = crashed
        self.garbage = NoGarbage()
        self.run_cleaner: RunCleaner = self._run_cleaner
        self.random_bytes: Callable[[int], bytes] = world.random.randbytes
        self.sockets = SimSockets().port
        self.listening: ListeningSocket | None = None  # for clients
        self.channel: ListeningSocket | None = None  # for other nodes

    def monotonic(self) -> float:
        self.loop.spent_ns += SLICE_READ_NS
        return (self.world.now + self.loop.spent_ns) / SECOND

    def monotonic_ns(self) -> int:
        return SECOND + self.world.now + self.loop.spent_ns

    def wall_ns(self) -> int:
        return self.world.now + self.loop.spent_ns + self.wall_offset_ns

    boot_ns = monotonic_ns

    def workers(self, loop: asyncio.AbstractEventLoop, count: int, yielding: bool = False) -> Workers:
        return SimWorkers(self.world, self.loop, self.speed, self._crashed, count)

    def batch_checker(self, loop: asyncio.AbstractEventLoop) -> SimBatchChecker:
        return SimBatchChecker(self.world, self.loop)

    def open_sockets(self, listener: Listener, backlog: int) -> tuple[list[Any], int]:
        self.listening = ListeningSocket(10)
        return [self.listening], listener.port

    def sleep(self, seconds: float) -> None:
        self.loop.spent_ns += int(seconds * SECOND)

    def listen_for_nodes(self, folder: str, node_id: int) -> Any:
        self.channel = ListeningSocket(11)
        return self.channel

    async def connect_to_node(self, loop: asyncio.AbstractEventLoop, folder: str, node_id: int, new_protocol: Callable[[], Any]) -> None:
        await self.connect_peer(node_id, new_protocol)

    def live_nodes(self, folder: str, node_id: int, noticed: Noticed) -> LiveNodes:
        return SimNodeFiles(self.census, self.disk, folder, node_id, noticed, lambda: self.loop.frozen_until)

    async def _run_cleaner(self, command: tuple[str, ...], folder: str, request: bytes, niceness: int, limit_seconds: float) -> Report:
        """Compact a log as the child process does. It dies with the broker, and sometimes alone."""
        world = self.world
        job = job_of(self.disk, request)
        try:
            for _ in job.steps():
                await asyncio.sleep(world.random.random() * 0.02)
                if world.chance(self.cleaner_dies):
                    world.count("cleaner killed", 1)
                    raise CleaningFailed("killed by signal 9")
        except (OSError, DamagedLog) as error:
            raise CleaningFailed(str(error)) from None
        world.count("log cleaned")
        return Report(report_line(job))

    cleaner_dies = 0.0
