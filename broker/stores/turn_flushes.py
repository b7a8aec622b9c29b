"""With `offsets.flush=always`: one flush of one file (`turns.N`) makes one event-loop turn's appends to many logs durable.

One write of the file runs at a time; appends made meanwhile join the next write. When the file has grown, the logs themselves are
flushed in the background and the file is removed. While the file cannot be written, each log is flushed separately.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from broker.logging.logs import log
from broker.runtime.contain import run_contained
from broker.runtime.workers import Workers
from broker.stores.owned import Done, Flusher
from storage import AppendFailed, Disk, describe_error
from storage.turn_log import LeftoverTurns, TurnLog

LOGS_MIN: Final = 4  # fewer logs are flushed separately, in parallel
BYTES_MAX: Final = 16 << 20  # of a file, before the next one is begun
RETRY_SECONDS: Final = 15.0  # after a failed write of the file


class UnflushedBatch(NamedTuple):
    """A batch appended to a log at `offset`, up to `end`; `done` is called when it is durable."""

    flusher: Flusher
    batch: bytearray  # as the log stamped it
    offset: int
    end: int
    done: Done

    @property
    def has_gap_before(self) -> bool:
        """Whether earlier records are neither flushed nor in `turns.N`: a crash could lose them, so the copy would be useless."""
        return self.offset > max(self.flusher.log.flushed_offset, self.flusher.queued_offset)


class TurnFlushes:
    def __init__(
        self,
        disk: Disk,
        folder: str,
        workers: Workers,
        flush_each: Callable[[list[UnflushedBatch]], None],
        flush_in_background: Callable[[list[Flusher], Done], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises OSError. `flush_each` flushes logs for which replies wait, `flush_in_background` other logs."""
        self.leftover = LeftoverTurns(disk, folder)
        self._disk = disk
        self._folder = folder
        self.workers = workers
        self._flush_each = flush_each
        self._flush_in_background = flush_in_background
        self._monotonic = monotonic
        self.bytes_max = BYTES_MAX
        number = max(self.leftover.numbers, default=0)
        self._old = [TurnLog(disk, folder, number) for number in self.leftover.numbers]  # files to remove
        self._log = TurnLog(disk, folder, number + 1)
        self._in_file: dict[Flusher, None] = {}  # logs with unflushed batches in the file
        self._waiting: list[UnflushedBatch] = []
        self._writing = False
        self._usable_from = 0.0  # monotonic time of the next attempt after a failure

    def add(self, appended: list[UnflushedBatch]) -> None:
        """Make the batches durable, then call `done` of each."""
        with_gap = [append for append in appended if append.has_gap_before]
        if with_gap:
            self._flush_each(with_gap)
            appended = [append for append in appended if not append.has_gap_before]
        if not self._writing and (len(appended) < LOGS_MIN or self._monotonic() < self._usable_from):
            self._flush_each(appended)
            return
        for append in appended:
            append.flusher.queued_offset = append.end
        if self._writing:
            self._waiting += appended
        else:
            self._write(appended)

    def _write(self, appended: list[UnflushedBatch]) -> None:
        self._writing = True
        turn = [(append.flusher.log.folder.rpartition("/")[2], append.batch, append.offset, append.end) for append in appended]
        self.workers.submit(partial(self._log.write, turn), partial(self._written, appended))

    def _written(self, appended: list[UnflushedBatch], result: object) -> None:
        self._writing = False
        waiting, self._waiting = self._waiting, []
        if isinstance(result, Exception):
            self._usable_from = self._monotonic() + RETRY_SECONDS
            log.warning("logs are flushed one by one", reason=describe_error(result, self._folder), retry_s=RETRY_SECONDS)
            self._start_new_file()
            for append in (*appended, *waiting):
                append.flusher.queued_offset = append.flusher.safe_offset
            self._flush_each([*appended, *waiting])
            return
        for append in appended:
            self._in_file[append.flusher] = None
            append.flusher.safe_offset = append.end
        if self._log.size > self.bytes_max:
            self._start_new_file()
        if waiting:  # started before the callbacks of this write
            self._write(waiting)
        for append in appended:
            run_contained(append.done, None)

    def _start_new_file(self) -> None:
        """Begin the next file; flush the logs with batches in the old file, then remove the old file."""
        old = self._log
        self._log = TurnLog(self._disk, self._folder, old.number + 1, old)
        flushers, self._in_file = self._in_file, {}
        waiting = len(flushers)
        failures = 0

        def flushed(failure: AppendFailed | None) -> None:
            nonlocal waiting, failures
            waiting -= 1
            failures += failure is not None
            if waiting <= 0:
                if failures:  # the next start restores the logs from the file
                    old.close()
                    self._old.append(old)
                else:
                    self.workers.submit(old.remove, ignored)

        if flushers:
            self._flush_in_background(list(flushers), flushed)
        else:
            flushed(None)

    def remove_restored_files(self) -> None:
        """Called when an opened log has its missing batches: remove old files once no log needs them."""
        if self.leftover.can_be_removed and self.leftover.numbers:
            self.leftover.numbers.clear()
            old, self._old = self._old, []
            for file in old:
                self.workers.submit(file.remove, ignored)

    def forget(self, flusher: Flusher) -> None:
        """Forget the log, which was flushed and closed for another node to own: no file has to be kept for it."""
        self._in_file.pop(flusher, None)

    def remove_all(self) -> None:
        """Remove all files once every log is flushed at the stop; raises OSError."""
        if self.leftover.can_be_removed:
            for file in (*self._old, self._log):
                file.remove()

    def close(self) -> None:
        self._log.close()


def ignored(result: object) -> None:
    """Do nothing if a file could not be removed: its batches are all in their logs."""
