"""Flush and close many logs at once when the broker stops.

Each fsync makes the disk empty its cache, even when nothing was written. So a few logs are flushed in parallel, but for many logs
one call of syncfs writes the whole file system.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Sequence
from functools import partial

from broker.runtime.contain import report_failed, run_contained
from broker.runtime.workers import Workers
from broker.stores.owned import Done, Flusher, run_all
from storage import Disk, Flush, Handles, Log, OsDisk, describe_error

THREADS = 8
SYNCFS_LOGS_MIN = 100
CLOSING_HANDLES = 4  # open files per thread
SAVE_INDEXES_SECONDS = 0.8

Begun = list[tuple[Flusher, Done, Flush]]


class BulkFlusher:
    def __init__(self, workers: Workers, disk: Disk, folder: str, concurrency: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        """`workers`: THREADS threads. `concurrency`: the maximum number of logs to flush at a time; each keeps files open."""
        self.workers = workers
        self._monotonic = monotonic
        self._concurrency = concurrency
        self._disk = disk
        self._folder = folder if isinstance(disk, OsDisk) else ""

    def flush(self, flushers: list[Flusher], done: Done | None) -> None:
        """Flush the logs and call `done` for each; without `done`, report failures to the logs' owners."""
        if len(flushers) >= SYNCFS_LOGS_MIN and self._folder:
            ends = [flusher.log.next_offset for flusher in flushers]
            self.workers.submit(partial(sync_file_system, self._folder), partial(self._synced, flushers, ends, done))
        else:
            self._flush_each(flushers, done)

    def _synced(self, flushers: list[Flusher], ends: list[int], done: Done | None, result: object) -> None:
        if result is not True:
            self._flush_each(flushers, done)
            return
        unflushed = []
        for flusher, end in zip(flushers, ends, strict=True):
            log = flusher.log
            if log.usable and not flusher.busy:
                log.mark_flushed(end)
            if log.flushed_offset < log.next_offset or not log.usable:
                unflushed.append(flusher)
            elif done is not None:
                run_contained(done, None)
        self._flush_each(unflushed, done)

    def _flush_each(self, flushers: list[Flusher], done: Done | None) -> None:
        flush_in_parts(self.workers, THREADS, [(flusher, done or flusher.report_failure) for flusher in flushers], self._concurrency)

    def close_logs(self, logs: list[Log], done: Callable[[str], None]) -> None:
        """Close logs that the loop no longer uses; `done` gets the first problem, or "".

        The largest logs are closed first; after SAVE_INDEXES_SECONDS logs are closed without saving their indexes.
        """
        logs = sorted(logs, key=lambda log: log.size, reverse=True)
        parts = [logs[number::THREADS] for number in range(min(THREADS, len(logs)))]
        until = self._monotonic() + SAVE_INDEXES_SECONDS
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
        handles = Handles(self._disk, CLOSING_HANDLES)
        try:
            for log in logs:
                log.use(handles)  # the loop's handles are not thread-safe
                log.close(self._monotonic() < until)
        except OSError as error:
            return describe_error(error, log.folder)
        finally:
            handles.close()
        return ""

    def close(self) -> None:
        self.workers.close()


def flush_in_parts(workers: Workers, threads: int, flushes: Sequence[tuple[Flusher, Done]], concurrency: int) -> None:
    """Split the flushes among `threads` jobs: waking a thread for each log costs more than most flushes.

    At most `concurrency` logs are flushed together; the rest follow when these are done.
    """
    begun: Begun = []
    handled = 0
    for flusher, done in flushes:
        if len(begun) == concurrency:
            break
        handled += 1
        flush = flusher.begin(done)
        if flush is not None:
            begun.append((flusher, done, flush))
    parts = [begun[number::threads] for number in range(min(threads, len(begun)))]
    unfinished = [len(parts)]  # a list: shared by the callbacks
    for part in parts:
        finish = partial(_finish, part, unfinished, partial(flush_in_parts, workers, threads, flushes[handled:], concurrency))
        try:
            workers.submit(partial(run_all, [flush for _, _, flush in part]), finish)
        except Exception as error:  # for example, no thread could be started
            report_failed(flush_in_parts, error)
            finish([error] * len(part))


def _finish(part: Begun, unfinished: list[int], flush_next: Callable[[], None], results: list[Exception | None]) -> None:
    unfinished[0] -= 1
    try:
        for (flusher, done, flush), result in zip(part, results, strict=True):
            run_contained(flusher.flushed, flush, done, result)
    finally:
        if not unfinished[0]:
            flush_next()


def sync_file_system(folder: str) -> bool:
    """Sync the file system of the folder; returns False if the operating system cannot confirm it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return bool(ctypes.CDLL(None).syncfs(descriptor) == 0)
    except AttributeError:  # only Linux has it
        return False
    finally:
        os.close(descriptor)
