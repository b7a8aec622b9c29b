"""Flushing and closing many logs at once, when the broker stops.

Each flush of a file makes the disk empty its cache, whether or not there was anything to write. A few of them go on side
by side; for many there is one call that writes everything the file system has to write.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from collections.abc import Callable, Sequence
from functools import partial

from broker.runtime.contain import failed, run
from broker.runtime.workers import Workers
from broker.stores.owned import Done, Flusher, run_all
from storage import Disk, Flush, Handles, Log, OsDisk, told

THREADS = 8
MANY = 100
HANDLES = 4
INDEX_SECONDS = 0.8

Begun = list[tuple[Flusher, Done, Flush]]


class Together:
    def __init__(self, loop: asyncio.AbstractEventLoop, disk: Disk, folder: str, at_once: int) -> None:
        """`at_once`: so many logs are flushed at a time, for each has files open meanwhile."""
        self.workers = Workers(loop, THREADS)
        self._at_once = at_once
        self._disk = disk
        self._folder = folder if isinstance(disk, OsDisk) else ""

    def flush(self, flushers: list[Flusher], done: Done | None) -> None:
        """`done` hears of each; without it, who has the log hears of a failure."""
        if len(flushers) >= MANY and self._folder:
            ends = [flusher.log.next_offset for flusher in flushers]
            self.workers.submit(partial(sync_file_system, self._folder), partial(self._synced, flushers, ends, done))
        else:
            self._share_out(flushers, done)

    def _synced(self, flushers: list[Flusher], ends: list[int], done: Done | None, result: object) -> None:
        if result is not True:
            self._share_out(flushers, done)
            return
        left = []
        for flusher, end in zip(flushers, ends, strict=True):
            log = flusher.log
            if log.usable and not flusher.busy:
                log.all_written(end)
            if log.flushed_offset < log.next_offset or not log.usable:
                left.append(flusher)
            elif done is not None:
                run(done, None)
        self._share_out(left, done)

    def _share_out(self, flushers: list[Flusher], done: Done | None) -> None:
        share_out(self.workers, THREADS, [(flusher, done or flusher.told_nobody) for flusher in flushers], self._at_once)

    def close_logs(self, logs: list[Log], done: Callable[[str], None]) -> None:
        """When the loop has nothing more to do with them. `done` hears what went wrong, or "".

        Indexes are saved as far as time allows, the largest logs' first.
        """
        logs = sorted(logs, key=lambda log: log.size, reverse=True)
        parts = [logs[number::THREADS] for number in range(min(THREADS, len(logs)))]
        until = time.monotonic() + INDEX_SECONDS
        waiting = len(parts)
        problems: list[str] = []

        def closed(problem: object) -> None:
            nonlocal waiting
            waiting -= 1
            if problem:
                problems.append(str(problem))
            if waiting <= 0:
                done(problems[0] if problems else "")

        for part in parts:
            self.workers.submit(partial(self._close_all, part, until), closed)
        if not parts:
            closed("")

    def _close_all(self, logs: list[Log], until: float) -> str:
        handles = Handles(self._disk, HANDLES)
        try:
            for log in logs:
                log.use(handles)  # those of the loop are not for several threads
                log.close(time.monotonic() < until)
        except OSError as error:
            return told(error, log.folder)
        finally:
            handles.close()
        return ""

    def close(self) -> None:
        self.workers.close()


def share_out(workers: Workers, threads: int, wanted: Sequence[tuple[Flusher, Done]], at_once: int) -> None:
    """Each of so many threads has its part, one flush behind the other: to wake a thread for each costs more than most flushes.

    Of more than `at_once` the others follow when these are flushed.
    """
    begun: Begun = []
    later = 0
    for flusher, done in wanted:
        if len(begun) == at_once:
            break
        later += 1
        flush = flusher.begin(done)
        if flush is not None:
            begun.append((flusher, done, flush))
    parts = [begun[number::threads] for number in range(min(threads, len(begun)))]
    left = [len(parts)]
    for part in parts:
        told = partial(_told, part, left, partial(share_out, workers, threads, wanted[later:], at_once))
        try:
            workers.submit(partial(run_all, [flush for _, _, flush in part]), told)
        except Exception as error:  # no thread to be had, for one: these flushes failed
            failed(share_out, error)
            told([error] * len(part))


def _told(part: Begun, left: list[int], go_on: Callable[[], None], results: list[Exception | None]) -> None:
    left[0] -= 1
    try:
        tell_all(part, results)
    finally:
        if not left[0]:
            go_on()


def tell_all(begun: Begun, results: list[Exception | None]) -> None:
    for (flusher, done, flush), result in zip(begun, results, strict=True):
        run(flusher.flushed, flush, done, result)


def sync_file_system(folder: str) -> bool:
    """The one that the folder is in; whether the system says that everything is on the disk now."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return bool(ctypes.CDLL(None).syncfs(descriptor) == 0)
    except AttributeError:  # only Linux has it
        return False
    finally:
        os.close(descriptor)
