"""One log of a store: its flushes, in worker threads, one at a time; and the log as its owner has it, at one epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, Protocol

from broker.logging.logs import log
from broker.runtime.contain import Contained, failed, run
from broker.runtime.workers import Workers
from protocol.batch import Fact
from storage import AppendFailed, Flush, Log, LogId, Recovery, Repair, describe_error

Appended = Callable[[int | AppendFailed], None]
Done = Callable[[AppendFailed | None], None]


class Rules(NamedTuple):
    """How a log is written."""

    flush: str  # as offsets.flush
    flush_seconds: float = 0.0  # with `interval`


TOPIC_RULES = Rules("never")  # the operating system writes it, as with Kafka


class Store(Protocol):
    """What a log asks of the store it is in."""

    def plan_flush(self, flusher: Flusher, seconds: float) -> None:
        """Flush the log when so much time has passed; nobody waits for it."""
        ...

    def flush_soon(self, flusher: Flusher, batch: bytearray, offset: int, done: Done) -> None:
        """Make safe what was just appended to the log at this offset, together with what others got in this turn."""
        ...

    def flushed(self, log: Log) -> None:
        """A flush of this log has just ended, and the next has not begun."""
        ...

    def written_twice(self, id: LogId) -> list[bytes]:
        """Batches of the log that are in another file too; in any thread. Raises OSError."""
        ...

    def forget(self, id: LogId) -> None: ...

    def give_up_compaction(self, log: Log) -> None:
        """If this log is being compacted: soon it is not."""
        ...


def run_all(flushes: list[Flush]) -> list[Exception | None]:
    """What became of each; in a worker thread."""
    results: list[Exception | None] = []
    for flush in flushes:
        try:
            flush.run()
        except Exception as error:
            results.append(error)
        else:
            results.append(None)
    return results


class Flusher:
    """The flushes of one log: in worker threads, one at a time."""

    def __init__(self, store: Store, workers: Workers, log: Log) -> None:
        self.log = log
        self.busy = False
        self.planned = False  # by the store, for a moment to come
        self.failed: Callable[[AppendFailed], None] = lambda failure: None
        self.grown: Callable[[], None] | None = None  # hears when there is more that may be read
        # Everything before it is in the log of turns, or was given to that: if it is not flushed.
        self.safe_offset = 0
        self.given_offset = 0
        self._store = store
        self._workers = workers
        self._next: list[Done] = []
        self._next_closed = True  # nobody of them asks for more than what is closed

    def flush(self, done: Done, closed: bool = False) -> None:
        """Who comes while one is under way is served by the next. `closed`: all but the last segment, which grows."""
        flush = self.begin(done, closed)
        if flush is None:
            return
        try:
            self._workers.submit(flush.run, partial(self.flushed, flush, done))
        except Exception as error:  # no thread to be had, for one: it failed, and the next one may go better
            failed(self.flush, error)
            self.flushed(flush, done, error)

    def begin(self, done: Done, closed: bool = False) -> Flush | None:
        """A flush to run and to tell of with `flushed`; None: `done` will hear of another one, or has heard that it cannot be."""
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
            failed(self.begin, error)
            run(done, AppendFailed("a defect in this version"))
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
        except Exception as error:
            failed(self.flushed, error)
            failure = AppendFailed("a defect in this version")
        if failure is None:
            run(self._store.flushed, self.log)
        if self.grown is not None:
            run(self.grown)
        waiting, self._next = self._next, []
        if waiting:
            closed, self._next_closed = self._next_closed, True
            # Started before anybody hears of this one; after a failure it fails at once.
            self.flush(partial(_tell, waiting), closed)
        run(done, failure)

    def broke(self, failure: AppendFailed) -> None:
        """Whoever owns the log now hears of it."""
        self.failed(failure)

    def report_failure(self, failure: AppendFailed | None) -> None:
        """A flush for which nobody waited came to its end."""
        if failure is not None:
            self.failed(failure)


class OpenLog:
    """One log of the store, at the epoch at which it was opened."""

    def __init__(self, store: Store, workers: Workers, id: LogId, flusher: Flusher, epoch: int, rules: Rules) -> None:
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
        """What lies before it was acknowledged, or may have been: readers get it, and a repair keeps it."""
        raise NotImplementedError

    def watch(self, failed: Callable[[AppendFailed], None]) -> None:
        self.flusher.failed = failed

    def tell_growth(self, grown: Callable[[], None]) -> None:
        self.flusher.grown = grown

    def recover(self, done: Done) -> None:
        """Try whether writing works again; if so, cut the log back to what was acknowledged."""
        if self.log.busy:
            self._store.give_up_compaction(self.log)
            done(AppendFailed("a flush or a compaction under way has not ended"))
            return
        repair = self.log.start_repair(self.high_watermark, partial(self._store.written_twice, self.id))
        after = partial(done, AppendFailed("a defect in this version"))
        self._workers.submit(repair.run, Contained(partial(self._repaired, repair, done), after))

    def _repaired(self, repair: Repair, done: Done, result: object) -> None:
        if isinstance(result, Exception):
            done(AppendFailed(describe_error(result, self.log.folder)))
            return
        if repair.recovery.kept:
            tell_cut(repair.recovery)
        self.log.finish_repair(repair)
        done(None)


class LocalLog(OpenLog):
    """A log of the broker's own: of groups, of the registry of topics, of notes."""

    def __init__(self, store: Store, workers: Workers, id: LogId, flusher: Flusher, epoch: int, rules: Rules) -> None:
        super().__init__(store, workers, id, flusher, epoch, rules)
        self._always = rules.flush == "always"
        self._interval = rules.flush == "interval"

    @property
    def high_watermark(self) -> int:
        """With `always` no reply told of what is not safe."""
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
            self._store.flush_soon(self.flusher, stamped, offset, lambda failure: done(failure or offset))
            return
        flusher = self.flusher
        if self._interval and not flusher.planned:
            self._store.plan_flush(flusher, self.rules.flush_seconds)
        if flusher.grown is not None:
            flusher.grown()
        done(offset)

    def release(self) -> None:
        self._store.forget(self.id)
        self.log.claim()  # whoever still holds this is refused from now on


def tell_cut(recovery: Recovery) -> None:
    """Say what an opening cut off a log, if it did."""
    if recovery.kept:
        log.error(
            "damaged end of a log cut off and kept",
            file=recovery.path,
            position=recovery.position,
            bytes=recovery.cut_bytes,
            reason=recovery.reason,
            kept=recovery.kept,
        )
    elif recovery.cut_bytes:
        log.warning(
            "torn end of a log cut off",
            file=recovery.path,
            position=recovery.position,
            bytes=recovery.cut_bytes,
            reason=recovery.reason,
        )


def _tell(waiting: list[Done], failure: AppendFailed | None) -> None:
    for one in waiting:
        run(one, failure)
