"""A few threads for what blocks: flushing logs. Results come back in the loop's thread."""

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
    """Daemon threads, started when first needed: a disk that hangs must not keep the process from ending."""

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int, patient: bool = False) -> None:
        """`patient`: nobody waits for what they do, so they do not interrupt the loop's thread when they could go on."""
        self._loop = loop
        self._count = count
        self._patient = patient
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Run `work` in some thread; `done` gets its result, or the exception it raised, in the loop's thread."""
        if len(self._threads) < self._count:
            self._start_thread()
        self._jobs.put((work, done))

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._run, name="tenure-worker", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system gives no more threads: those there are have to do
            if not self._threads:
                raise
        else:
            self._threads.append(thread)

    def close(self) -> None:
        """Threads end with the job they have; nothing waits for them. What nobody began is not done any more."""
        with contextlib.suppress(Empty):
            while True:
                self._jobs.get_nowait()
        for _ in self._threads:
            self._jobs.put(None)

    def _run(self) -> None:
        if self._patient:
            _stand_back()
        while True:
            job = self._jobs.get()
            if job is None:
                return
            work, done = job
            try:
                result = work()
            except Exception as error:
                result = error
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(Contained(done), result)


def _stand_back() -> None:
    """A thread that wakes is given the processor at once, the one it shares with the loop if there is no other: not so this one."""
    with contextlib.suppress(AttributeError, OSError):  # only Linux has it
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
