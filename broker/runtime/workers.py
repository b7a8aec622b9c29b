"""Worker threads for blocking work, such as flushing logs. Results are delivered in the event loop's thread."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from broker.runtime.contain import Contained

Job = tuple[Callable[[], Any], Callable[[Any], None]]


class Workers:
    """Daemon threads, started on demand: a hanging disk must not keep the process from exiting."""

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int, yielding: bool = False) -> None:
        """`yielding`: no reply waits for these jobs, and their threads must not preempt the event loop."""
        self._loop = loop
        self._count = count
        self._yielding = yielding
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Run `work` in a worker thread; `done` gets its result or exception in the event loop's thread."""
        if len(self._threads) < self._count:
            self._start_thread()
        self._jobs.put((work, done))

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._run, name="tenure-worker", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system allows no more threads: use those already running
            if not self._threads:
                raise
        else:
            self._threads.append(thread)

    def close(self) -> None:
        """Drop queued jobs. Each thread exits after its current job; nothing waits for that."""
        with contextlib.suppress(Empty):
            while True:
                self._jobs.get_nowait()
        for _ in self._threads:
            self._jobs.put(None)

    def _run(self) -> None:
        if self._yielding:
            never_preempt()
        while True:
            job = self._jobs.get()
            if job is None:
                return
            work, done = job
            try:
                result = work()
            except Exception as error:
                result = error
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(Contained(done), result)
            del job, work, done, result  # what they refer to is not kept until the next job


def never_preempt() -> None:
    """Make this thread, and threads that it starts, batch threads, which do not preempt a running thread when they wake up."""
    with contextlib.suppress(AttributeError, OSError):  # only Linux has it
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
