"""With `offsets.flush=always`: what one turn appended to many logs is made safe by one flush of one file.

One of these at a time; what is appended meanwhile goes with the next. The logs are flushed too, when the file has grown and
nobody waits for it, and then the file is removed. Where it cannot be written, each log is flushed for itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from broker.logging.logs import log
from broker.runtime.contain import run
from broker.runtime.workers import Workers
from broker.stores.owned import Done, Flusher
from storage import AppendFailed, Disk, describe_error
from storage.turn_log import Leftover, TurnLog

LOGS_MIN: Final = 4  # fewer are flushed one beside the other
BYTES_MAX: Final = 16 << 20  # of a file, before it is given up for another
RETRY_SECONDS: Final = 15.0  # after a file could not be written


class Appended(NamedTuple):
    """What was appended to a log, from which offset to which, and who waits for it to be safe."""

    flusher: Flusher
    batch: bytearray  # as the log stamped it
    offset: int
    end: int
    done: Done

    @property
    def alone(self) -> bool:
        """What is before it is neither flushed nor with us, and may be lost: then it is of no use to have it."""
        return self.offset > max(self.flusher.log.flushed_offset, self.flusher.given_offset)


class TurnFlushes:
    def __init__(
        self,
        disk: Disk,
        folder: str,
        workers: Workers,
        flush_each: Callable[[list[Appended]], None],
        flush_behind: Callable[[list[Flusher], Done], None],
    ) -> None:
        """Raises OSError. `flush_each` flushes logs somebody waits for, `flush_behind` those that nobody waits for."""
        self.leftover = Leftover(disk, folder)
        self._disk = disk
        self._folder = folder
        self.workers = workers
        self._flush_each = flush_each
        self._flush_behind = flush_behind
        number = max(self.leftover.numbers, default=0)
        self._old = [TurnLog(disk, folder, number) for number in self.leftover.numbers]  # to be removed
        self._log = TurnLog(disk, folder, number + 1)
        self._behind: dict[Flusher, None] = {}  # whose batches are in it and may be nowhere else
        self._waiting: list[Appended] = []
        self._writing = False
        self._usable_from = 0.0  # in the process's time

    def add(self, appended: list[Appended]) -> None:
        """Make it safe, and say so."""
        alone = [one for one in appended if one.alone]
        if alone:
            self._flush_each(alone)
            appended = [one for one in appended if not one.alone]
        if not self._writing and (len(appended) < LOGS_MIN or time.monotonic() < self._usable_from):
            self._flush_each(appended)
            return
        for one in appended:
            one.flusher.given_offset = one.end
        if self._writing:
            self._waiting += appended
        else:
            self._write(appended)

    def _write(self, appended: list[Appended]) -> None:
        self._writing = True
        turn = [(one.flusher.log.folder.rpartition("/")[2], one.batch, one.offset, one.end) for one in appended]
        self.workers.submit(partial(self._log.write, turn), partial(self._written, appended))

    def _written(self, appended: list[Appended], result: object) -> None:
        self._writing = False
        waiting, self._waiting = self._waiting, []
        if isinstance(result, Exception):
            self._usable_from = time.monotonic() + RETRY_SECONDS
            log.warning("logs are flushed one by one", reason=describe_error(result, self._folder), retry_s=RETRY_SECONDS)
            self._give_up()
            for one in (*appended, *waiting):
                one.flusher.given_offset = one.flusher.safe_offset
            self._flush_each([*appended, *waiting])
            return
        for one in appended:
            self._behind[one.flusher] = None
            one.flusher.safe_offset = one.end
        if self._log.size > BYTES_MAX:
            self._give_up()
        if waiting:  # started before anybody hears of this one
            self._write(waiting)
        for one in appended:
            run(one.done, None)

    def _give_up(self) -> None:
        """Flush the logs whose batches are in the file; when all are, it is removed."""
        old = self._log
        self._log = TurnLog(self._disk, self._folder, old.number + 1, old)
        behind, self._behind = self._behind, {}
        waiting = len(behind)
        failures = 0

        def flushed(failure: AppendFailed | None) -> None:
            nonlocal waiting, failures
            waiting -= 1
            failures += failure is not None
            if waiting <= 0:
                if failures:  # what they lack is there until the next start
                    old.close()
                    self._old.append(old)
                else:
                    self.workers.submit(old.remove, ignored)

        if behind:
            self._flush_behind(list(behind), flushed)
        else:
            flushed(None)

    def restored(self) -> None:
        """A log that was opened has what it lacked."""
        if self.leftover.used_up and self.leftover.numbers:
            self.leftover.numbers.clear()
            old, self._old = self._old, []
            for one in old:
                self.workers.submit(one.remove, ignored)

    def remove_all(self) -> None:
        """Every log is flushed, and the broker stops; raises OSError."""
        if self.leftover.used_up:
            for one in (*self._old, self._log):
                one.remove()

    def close(self) -> None:
        self._log.close()


def ignored(result: object) -> None:
    """A file that could not be removed does no harm: it has nothing that its logs lack."""
