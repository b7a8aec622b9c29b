"""One log of a store: `Flusher` runs its flushes in worker threads, `OpenLog` is the owner's view of the log at one epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, Protocol

from broker.logging.logs import log
from broker.runtime.contain import Contained, report_failed, run_contained
from broker.runtime.workers import Workers
from protocol.batch import Fact
from storage import AppendFailed, Flush, Log, LogId, Repair, Truncation, describe_error

Appended = Callable[[int | AppendFailed], None]
Done = Callable[[AppendFailed | None], None]


class FlushRules(NamedTuple):
    """When a log is flushed."""

    flush: str  # always, interval or never, as offsets.flush
    flush_seconds: float = 0.0  # with `interval`


TOPIC_RULES = FlushRules("never")  # the operating system flushes topic data, as with Kafka


class Store(Protocol):
    """The store as its logs use it."""

    def schedule_flush(self, flusher: Flusher, seconds: float) -> None:
        """Flush the log after the delay; no reply waits for it."""
        ...

    def flush_at_turn_end(self, flusher: Flusher, batch: bytearray, offset: int, done: Done) -> None:
        """Flush the batch just appended at `offset`, together with all other appends of this turn."""
        ...

    def flushed(self, log: Log) -> None:
        """Called after a flush of this log, before the next begins."""
        ...

    def batch_copies(self, id: LogId) -> list[bytes]:
        """Copies of the log's batches in `turns.N` files (storage/turn_log.py). Called in any thread; raises OSError."""
        ...

    def forget(self, id: LogId) -> None: ...

    def cancel_compaction(self, log: Log) -> None:
        """Cancel the compaction of this log, if it is in progress."""
        ...


def run_all(flushes: list[Flush]) -> list[Exception | None]:
    """Run the flushes, in a worker thread; returns the exception of each, or None."""
    results: list[Exception | None] = [None] * len(flushes)
    for index, flush in enumerate(flushes):
        try:
            flush.run()
        except Exception as error:
            results[index] = error
    return results


class Flusher:
    """Runs the flushes of one log in worker threads, one at a time."""

    def __init__(self, store: Store, workers: Workers, log: Log) -> None:
        self.log = log
        self.busy = False
        self.scheduled = False  # the store will flush the log later
        self.failed: Callable[[AppendFailed], None] = lambda failure: None
        self.on_growth: Callable[[], None] | None = None  # called when more records became readable
        # Records before `safe_offset` are flushed or in `turns.N`; up to `queued_offset` they are being written there.
        self.safe_offset = 0
        self.queued_offset = 0
        self._store = store
        self._workers = workers
        self._next: list[Done] = []
        self._next_closed = True  # the next flush needs only closed segments

    def flush(self, done: Done, closed: bool = False) -> None:
        """Flush the log; during a flush, join the next one. `closed`: only closed segments."""
        flush = self.begin(done, closed)
        if flush is None:
            return
        try:
            self._workers.submit(flush.run, partial(self.flushed, flush, done))
        except Exception as error:  # for example, no thread could be started
            report_failed(self.flush, error)
            self.flushed(flush, done, error)

    def begin(self, done: Done, closed: bool = False) -> Flush | None:
        """Start a flush, which the caller runs and then passes to `flushed`. None: `done` waits for the next flush, or got a failure."""
        if self.busy:
            self._next.append(done)
            self._next_closed &= closed
            return None
        try:
            flush = self.log.start_flush(closed)
        except AppendFailed as failure:
            done(failure)
            return None
        except Exception as error:
            report_failed(self.begin, error)
            run_contained(done, AppendFailed("a defect in this version"))
            return None
        self.busy = True
        return flush

    def flushed(self, flush: Flush, done: Done, result: object) -> None:
        self.busy = False
        failure: AppendFailed | None = None
        try:
            self.log.finish_flush(flush, result if isinstance(result, Exception) else None)
        except AppendFailed as error:
            failure = error
        except Exception as unexpected:
            report_failed(self.flushed, unexpected)
            failure = AppendFailed("a defect in this version")
        if failure is None:
            run_contained(self._store.flushed, self.log)
        if self.on_growth is not None:
            run_contained(self.on_growth)
        waiting, self._next = self._next, []
        if waiting:
            closed, self._next_closed = self._next_closed, True
            # Start the next flush before calling `done`; if this flush failed, the next one fails at once.
            self.flush(partial(_call_all, waiting), closed)
        run_contained(done, failure)

    def report_failure(self, failure: AppendFailed | None) -> None:
        """Report a failure to the log's current owner."""
        if failure is not None:
            self.failed(failure)


class OpenLog:
    """One log of the store, at the epoch at which it was opened."""

    def __init__(self, store: Store, workers: Workers, id: LogId, flusher: Flusher, epoch: int, rules: FlushRules) -> None:
        self.id = id
        self.log = self.records = flusher.log
        self.flusher = flusher
        self.epoch = epoch
        self.rules = rules
        self._store = store
        self._workers = workers

    def usable(self) -> bool:
        return self.log.usable and self.epoch == self.log.epoch

    @property
    def high_watermark(self) -> int:
        """Records below the high watermark may have been acknowledged: consumers read them, and a repair keeps them."""
        raise NotImplementedError

    def watch(self, failed: Callable[[AppendFailed], None]) -> None:
        self.flusher.failed = failed

    def watch_growth(self, on_growth: Callable[[], None]) -> None:
        self.flusher.on_growth = on_growth

    def recover(self, done: Done) -> None:
        """Try to write again; on success, cut the log back to the high watermark."""
        if self.log.busy:
            self._store.cancel_compaction(self.log)
            done(AppendFailed("a flush or a compaction is still in progress"))
            return
        repair = self.log.start_repair(self.high_watermark, partial(self._store.batch_copies, self.id))
        after = partial(done, AppendFailed("a defect in this version"))
        self._workers.submit(repair.run, Contained(partial(self._repaired, repair, done), after))

    def _repaired(self, repair: Repair, done: Done, result: object) -> None:
        if isinstance(result, Exception):
            done(AppendFailed(describe_error(result, self.log.folder)))
            return
        if repair.truncation.kept:
            log_truncation(repair.truncation)
        self.log.finish_repair(repair)
        done(None)


class LocalLog(OpenLog):
    """An internal log: of groups, of the topic registry, or of notes."""

    def __init__(self, store: Store, workers: Workers, id: LogId, flusher: Flusher, epoch: int, rules: FlushRules) -> None:
        super().__init__(store, workers, id, flusher, epoch, rules)
        self._always = rules.flush == "always"
        self._interval = rules.flush == "interval"

    @property
    def high_watermark(self) -> int:
        """With `offsets.flush=always` the end of the durable records, since replies wait for durability; otherwise the end of the log."""
        return max(self.log.flushed_offset, self.flusher.safe_offset) if self._always else self.log.next_offset

    def replay(self) -> Iterator[list[Fact]]:
        return self.log.facts(end=self.high_watermark)

    def append(self, batch: bytes | bytearray, records: int, done: Appended) -> None:
        stamped = batch if isinstance(batch, bytearray) else bytearray(batch)
        try:
            offset = self.log.append(stamped, self.epoch)
        except AppendFailed as failure:
            done(failure)
            return
        if self._always:
            self._store.flush_at_turn_end(self.flusher, stamped, offset, lambda failure: done(failure or offset))
            return
        flusher = self.flusher
        if self._interval and not flusher.scheduled:
            self._store.schedule_flush(flusher, self.rules.flush_seconds)
        if flusher.on_growth is not None:
            flusher.on_growth()
        done(offset)

    def release(self) -> None:
        self._store.forget(self.id)
        self.log.claim()  # fences this epoch: later appends through this object fail


def log_truncation(truncation: Truncation) -> None:
    """Log the bytes that the opening cut off the end of a log, if any."""
    if truncation.kept:
        log.error(
            "damaged end of a log cut off and kept",
            file=truncation.path,
            position=truncation.position,
            bytes=truncation.cut_bytes,
            reason=truncation.reason,
            kept=truncation.kept,
        )
    elif truncation.cut_bytes:
        log.warning(
            "torn end of a log cut off",
            file=truncation.path,
            position=truncation.position,
            bytes=truncation.cut_bytes,
            reason=truncation.reason,
        )


def _call_all(callbacks: list[Done], failure: AppendFailed | None) -> None:
    for done in callbacks:
        run_contained(done, failure)
