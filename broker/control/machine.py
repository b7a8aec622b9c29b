"""The machine of a controlled cluster: a clock that can be advanced, files in memory, and no thread or process of its own."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from typing import Any

from broker.control.ports import Ports
from broker.machine import RealMachine
from broker.runtime.collector import NoGarbage
from broker.runtime.contain import Contained, run_contained
from broker.runtime.workers import Workers
from broker.settings.listeners import Listener
from broker.stores.compaction_process import CleaningFailed
from broker.topics import batch_checker
from storage import DamagedLog, SharedDisk
from storage.cleaner import Report, job_of, report_line

NS_PER_SECOND = 1_000_000_000


class ControlledClock:
    """Real time, and how far it was advanced. While it stands, it shows the moment at which it was stopped."""

    def __init__(self) -> None:
        self.advanced_ns = 0
        self._stands_at: int | None = None

    def monotonic_ns(self) -> int:
        return self._stands_at if self._stands_at is not None else time.monotonic_ns() + self.advanced_ns

    def wall_ns(self) -> int:
        if self._stands_at is not None:
            return time.time_ns() - time.monotonic_ns() + self._stands_at
        return time.time_ns() + self.advanced_ns

    def monotonic(self) -> float:
        return self.monotonic_ns() / NS_PER_SECOND

    def stand(self) -> None:
        self._stands_at = self.monotonic_ns()

    def move_to(self, at_ns: int) -> None:
        """Show this time; only later than before, while the clock stands."""
        assert self._stands_at is not None
        self._stands_at = max(self._stands_at, at_ns)

    def go_on(self) -> None:
        """Run on from the time that the clock shows."""
        if self._stands_at is not None:
            self.advanced_ns = self._stands_at - time.monotonic_ns()
            self._stands_at = None


class InlineWorkers(Workers):
    """Runs jobs one after the other in the next passes of the loop: on files in memory none takes long."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._closed = False

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self._loop.call_soon(Contained(self._work), work, done)

    def _work(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        if self._closed:
            return
        try:
            result = work()
        except Exception as error:
            result = error
        Contained(done)(result)

    def close(self) -> None:
        self._closed = True


class InlineChecker:
    """Checks batches of producers in the next pass of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._stopped = False

    def submit(self, job: batch_checker.Job) -> None:
        self._loop.call_soon(Contained(self._check), job)

    def _check(self, job: batch_checker.Job) -> None:
        if not self._stopped and job.is_needed():
            run_contained(job.done, batch_checker.check_at_once(job))

    async def stop(self) -> None:
        self._stopped = True


class ControlledMachine(RealMachine):
    def __init__(self, clock: ControlledClock, disk: SharedDisk, ports: Ports) -> None:
        super().__init__()
        self.disk = disk
        self.garbage = NoGarbage()
        self.run_cleaner = self._run_cleaner
        self.monotonic = clock.monotonic
        self.monotonic_ns = clock.monotonic_ns
        self.wall_ns = clock.wall_ns
        self.boot_ns = clock.monotonic_ns
        self._ports = ports

    def workers(self, loop: asyncio.AbstractEventLoop, count: int, yielding: bool = False) -> Workers:
        return InlineWorkers(loop)

    def batch_checker(self, loop: asyncio.AbstractEventLoop) -> InlineChecker:
        return InlineChecker(loop)

    def open_sockets(self, listener: Listener, backlog: int) -> tuple[list[socket.socket], int]:
        return self._ports.open(listener, backlog)

    async def _run_cleaner(self, command: tuple[str, ...], folder: str, request: bytes, niceness: int, limit_seconds: float) -> Report:
        """Compact a log as the child process does."""
        job = job_of(self.disk, request)
        try:
            for _ in job.steps():
                await asyncio.sleep(0)
        except (OSError, DamagedLog) as error:
            raise CleaningFailed(str(error)) from None
        return Report(report_line(job))
