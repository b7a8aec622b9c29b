"""Check batches that are too much work for the event loop in two child processes, started on demand.

Each process has its queue (lane). The short lane checks every batch first. Batches above the work limits of the short lane would delay
others, so they continue in the long lane. In both lanes, connections take turns. A process that dies is restarted, and its batch is checked
again. After a second death, or the time limit, the batch gets an error that producers retry.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import astuple

from broker.logging.logs import log
from broker.runtime.children import child_command, child_environment, end_child, set_niceness, write_input
from broker.runtime.contain import contained_task, report_defect, run_contained
from broker.topics.batch_checker_process import SIZE, CheckFailed, CheckResult, check_job, job_bytes, outcome_of
from broker.topics.batch_checks import UNLIMITED, CheckLimits, TooMuchWork
from broker.topics.settings import LogSettings

COMMAND = child_command("broker.topics.batch_checker_process")
# The work limits of the short lane: at worst some tenths of a second per batch in plain Python.
SHORT_LIMITS = CheckLimits(100 << 20, 1 << 20, 100_000, 16 << 20, 200_000, 20_000, 4 << 20)
NICENESS_SHORT = 0  # it also checks ordinary batches
NICENESS_LONG = 10
JOB_SECONDS = 20.0  # a producer waits for 30 s (request.timeout.ms)
GRACE_SECONDS = 2.0  # after JOB_SECONDS, for the process to end itself before it is killed
TRIES = 2
IDLE_SECONDS = 300.0


class Job:
    """A batch to be checked, from `connection`."""

    __slots__ = ("connection", "data", "done", "is_needed", "name", "now", "settings")

    def __init__(
        self,
        connection: object,
        data: bytes,
        settings: LogSettings,
        now: int,
        name: str,
        done: Callable[[CheckResult], None],
        is_needed: Callable[[], bool],
    ) -> None:
        self.connection = connection
        self.data = data
        self.settings = settings
        self.now = now
        self.name = name
        self.done = done
        self.is_needed = is_needed  # called before the check begins: whether the result is still needed


def check_at_once(job: Job) -> CheckResult:
    """Check a batch in this thread, whatever work it is."""
    return check_job((job.data, astuple(job.settings), job.now, job.name, tuple(UNLIMITED), 0.0))


class Checker:
    """Checks batches in both lanes. `done` of a job is never called within `submit`, and not after `stop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, command: tuple[str, ...] = COMMAND) -> None:
        self._long = Lane(loop, command, UNLIMITED, NICENESS_LONG, None)
        self._short = Lane(loop, command, SHORT_LIMITS, NICENESS_SHORT, self._long)

    def submit(self, job: Job) -> None:
        self._short.submit(job)

    @property
    def pids(self) -> list[int]:
        """The ids of the running processes."""
        return [lane.process.pid for lane in (self._short, self._long) if lane.process is not None]

    async def stop(self) -> None:
        await self._short.stop()
        await self._long.stop()


class Lane:
    """One child process and the jobs that wait for it."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, command: tuple[str, ...], limits: CheckLimits, niceness: int, next_lane: Lane | None
    ) -> None:
        self.process: asyncio.subprocess.Process | None = None
        self._loop = loop
        self._command = command
        self._limits = limits
        self._niceness = niceness
        self._next_lane = next_lane  # checks the batches above this lane's limits
        self._jobs: dict[object, deque[Job]] = {}  # by connection, in the order of their turns
        self._job_added = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[asyncio.subprocess.Process] | None = None
        self._stopped = False

    def submit(self, job: Job) -> None:
        if self._stopped:
            return
        self._jobs.setdefault(job.connection, deque()).append(job)
        self._job_added.set()
        if self._task is None:
            self._task = self._loop.create_task(contained_task(self._process_jobs))

    async def stop(self) -> None:
        self._stopped = True
        self._jobs.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _next(self) -> Job:
        connection = next(iter(self._jobs))
        jobs = self._jobs.pop(connection)
        job = jobs.popleft()
        if jobs:
            self._jobs[connection] = jobs
        return job

    async def _process_jobs(self) -> None:
        try:
            while not self._stopped:
                if self._jobs:
                    await self._run_job(self._next())
                    continue
                self._job_added.clear()
                try:
                    async with asyncio.timeout(IDLE_SECONDS):
                        await self._job_added.wait()
                except TimeoutError:
                    await self._end_process()
                    if not self._jobs:
                        return
        finally:
            self._task = None
            await self._end_process()

    async def _run_job(self, job: Job) -> None:
        outcome: CheckResult = CheckFailed("the connection is closed")
        if job.is_needed():
            try:
                outcome = await self._check(job)
            except Exception as error:
                report_defect("checking a batch failed inside the broker", error, log=job.name)
                outcome = CheckFailed("a defect of the broker")
                await self._end_process()  # the process may still work on this batch
        if isinstance(outcome, TooMuchWork) and self._next_lane is not None:
            self._next_lane.submit(job)
            return
        run_contained(job.done, outcome)

    async def _check(self, job: Job) -> CheckResult:
        request = job_bytes(job.data, astuple(job.settings), job.now, job.name, self._limits, JOB_SECONDS)
        reason = ""
        for _ in range(TRIES):
            started_at = self._loop.time()
            try:
                if self.process is None:
                    self._starting = self._loop.create_task(self._start())
                    self.process = await asyncio.shield(self._starting)  # shielded: a stop must get the process, to end it
                async with asyncio.timeout(JOB_SECONDS + GRACE_SECONDS):
                    return outcome_of(await self._exchange(self.process, request))
            except (OSError, EOFError, ValueError, TypeError) as error:  # a TimeoutError is an OSError, and the end of the output an EOFError
                code = await self._end_process()
                late = self._loop.time() - started_at >= JOB_SECONDS
                reason = f"it took longer than {JOB_SECONDS:g} s" if late else str(error)
                if isinstance(error, EOFError) and not late:
                    reason = f"the process ended with code {code}"
                log.warning("checking a batch in another process failed", log=job.name, reason=reason)
                if late:
                    break
        return CheckFailed(f"the batch could not be checked: {reason}")

    async def _start(self) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *self._command, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, env=child_environment()
        )
        set_niceness(process, self._niceness)
        return process

    async def _exchange(self, process: asyncio.subprocess.Process, request: bytes) -> bytes:
        assert process.stdin is not None
        assert process.stdout is not None
        write_input(process, request)
        await process.stdin.drain()
        (size,) = SIZE.unpack(await process.stdout.readexactly(SIZE.size))
        return await process.stdout.readexactly(size)

    async def _end_process(self) -> int | None:
        """End the process if it still runs; returns its exit code."""
        if self.process is None and self._starting is not None:
            with contextlib.suppress(OSError):
                self.process = await self._starting
        self._starting = None
        process = self.process  # kept until it has ended: a stop may interrupt this call and repeat it
        if process is None:
            return None
        await end_child(process)
        self.process = None
        return process.returncode
