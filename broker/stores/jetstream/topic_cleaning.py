"""Compact logs of topics: append the records of closed segments that stay to the end of the stream, then delete those segments.

Entries of kind `cleaned` hold the records that stay, each at its offset, and the growing log goes on between them. The `state` entry behind
them says that they stand for the segments that were cleaned. That is one append, so a node that takes the log over finds all of it or
nothing, and a node that was fenced cannot make it. Only behind its acknowledgement the engine drops what is before the first
segment that was not cleaned; cleaned entries of an earlier pass are among that.

Which log is next, and which records stay, are Kafka's rules, as in a directory.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from broker.logging.logs import log
from broker.runtime.contain import Contained
from broker.stores.compaction_order import Partition, Settings
from broker.stores.jetstream.engine import Engine, Refused, Stored
from broker.stores.jetstream.entry import CLEANED, DATA
from broker.stores.jetstream.logs import StreamLog
from broker.stores.jetstream.reading import EntryReader, batches_in, damaged
from broker.stores.jetstream.topic_logs import SEGMENT_BYTES_MAX, StreamTopicLog
from broker.stores.jetstream.topic_state import Part
from protocol.batch import BatchHeader, CorruptBatch
from storage import AppendFailed, DamagedLog, LogId
from storage.newest_records import NewestRecords

SLICE_SECONDS: Final = 0.004
WAIT_SECONDS: Final = 0.002  # between two checks whether requested entries have arrived
COPY_BYTES: Final = 256 << 10  # of one entry, unless a batch is larger
GET_ATTEMPTS: Final = 50
GET_AGAIN_SECONDS: Final = 0.2
RETRY_SECONDS: Final = 60.0  # after a pass that failed
FIRST_SECONDS_MAX: Final = 15.0


class Cleanable(NamedTuple):
    """The first segments of a log, up to one that stays as it is."""

    parts: list[Part]
    until: Part
    urgency: float


def cleanable(owned: StreamTopicLog, settings: Settings, now: int) -> Cleanable | None:
    """What is due, by Kafka's rules."""
    parts = owned.parts
    count = len(parts) - 1  # the last one grows
    if settings.min_compaction_lag_ms > 0:
        young = now - settings.min_compaction_lag_ms
        count = next((at for at in range(count) if parts[at].max_timestamp > young), count)
    if not count or parts[count].base <= owned.clean_to:
        return None
    closed = list(parts[:count])
    dirty = [part for part, after in zip(closed, parts[1:], strict=False) if after.base > owned.clean_to]
    whole, dirty_bytes = (sum(part.bytes for part in some) for some in (closed, dirty))
    ratio = dirty_bytes / whole if whole else 0.0
    if dirty_bytes and 0 <= dirty[0].first_timestamp < now - settings.max_compaction_lag_ms:
        return Cleanable(closed, parts[count], 1.0 + ratio)
    return Cleanable(closed, parts[count], ratio) if ratio > settings.min_cleanable_dirty_ratio else None


class TopicPass:
    """One log, once."""

    def __init__(
        self,
        engine: Engine,
        owned: StreamTopicLog,
        found: Cleanable,
        newest: NewestRecords,
        monotonic: Callable[[], float],
        done: Callable[[bool], None],
    ) -> None:
        self._engine = engine
        self._owned = owned
        self._chain = owned.chain
        self._parts = found.parts
        self._until = found.until
        self._newest = newest
        self._monotonic = monotonic
        self._done = done
        self._loop = engine.connection.loop
        self._steps: Generator[bool, None, None] = self._work()
        self._out = bytearray()  # what is not written yet
        self._growing = Part(0, found.parts[0].base, cleaned=True)  # the entry that it will be
        self._cleaned: list[Part] = []
        self._got: Stored | Refused | None = None
        self._waiting = False
        self._failure = ""

    def begin(self) -> None:
        self._owned.cleaning = True
        self._go_on()

    def _go_on(self) -> None:
        """Work for one slice."""
        until = self._monotonic() + SLICE_SECONDS
        try:
            while self._monotonic() < until:
                if self._chain.failure is not None or self._owned.chain is not self._chain:
                    self._leave(False)  # the next owner of the log cleans it, or this node when it has it again
                    return
                if not next(self._steps):
                    self._later(WAIT_SECONDS)
                    return
        except StopIteration:
            self._end(self._failure)
        except (OSError, DamagedLog) as error:
            self._end(str(error))
        else:
            self._later(0.0)

    def _later(self, seconds: float) -> None:
        self._loop.call_later(seconds, Contained(self._go_on, partial(self._end, "a defect in this version")))

    def _end(self, problem: str) -> None:
        if problem:
            log.warning("log of a topic could not be compacted", log=str(self._owned.id), reason=problem)
        else:
            before, after = (sum(part.bytes for part in parts) for parts in (self._parts, self._cleaned))
            log.info("log of a topic compacted", log=str(self._owned.id), bytes_before=before, bytes_after=after)
        self._leave(not problem)

    def _leave(self, cleaned: bool) -> None:
        self._owned.cleaning = False
        self._steps.close()
        self._done(cleaned)

    def _work(self) -> Generator[bool, None, None]:
        """All steps; False where there is nothing to do yet."""
        ends = [*(part.base for part in self._parts[1:]), self._until.base]
        dirty = [part for part, end in zip(self._parts, ends, strict=True) if end > self._owned.clean_to]
        try:
            for payload in self._payloads(dirty):
                if payload is not None:
                    self._newest.gather(payload)
                    if self._newest.is_full():
                        break
                yield payload is not None
            for payload in self._payloads(self._parts):
                if payload is not None:
                    for header, batch in batches_in(payload):
                        yield from self._keep(header, batch)
                yield payload is not None
        except CorruptBatch as error:
            raise damaged(self._owned.place, self._parts[0].seq, str(error)) from error
        if self._out or not self._cleaned:
            if not self._out:  # nothing stays: an entry without records stands for the offsets
                self._growing.max_timestamp = max(part.max_timestamp for part in self._parts)
            yield from self._write(self._until.base)
        self._waiting = True
        self._owned.use_cleaned(self._cleaned, len(self._parts), self._newest.clean_to, self._state_written)
        while self._waiting:
            yield False

    def _state_written(self, failure: Exception | None) -> None:
        self._waiting = False
        self._failure = str(failure) if failure is not None else ""

    # Reading.

    def _payloads(self, parts: Sequence[Part]) -> Iterator[bytes | None]:
        """The batches of each entry, in the order of their offsets; None while they are on their way."""
        segments = [part for part in parts if not part.cleaned]
        for part in parts:
            if part.cleaned:
                yield from self._get(part.seq)
        if not segments:
            return
        reader = EntryReader(self._engine, self._owned.place, segments[0].seq, self._until.seq - 1, _nothing)
        try:
            while True:
                if reader.ready:
                    read = reader.take()
                    if read.entry.kind == DATA:
                        yield read.payload
                elif reader.problem is not None:
                    raise reader.problem
                elif reader.ended:
                    return
                else:
                    yield None
        finally:
            reader.stop()

    def _get(self, seq: int) -> Iterator[bytes | None]:
        for _ in range(GET_ATTEMPTS):
            self._got = None
            self._engine.get(self._owned.place.stream, seq, self._have)
            while self._got is None:
                yield None
            if isinstance(self._got, Stored):
                yield self._got.payload
                return
            again_at = self._monotonic() + GET_AGAIN_SECONDS  # the replica lags, or the engine elects a leader
            while self._monotonic() < again_at:
                yield None
        raise OSError(f"{self._owned.place.stream}: the engine does not return entry {seq}")

    def _have(self, got: Stored | Refused) -> None:
        self._got = got

    # Writing.

    def _keep(self, header: BatchHeader, batch: bytes) -> Iterator[bool]:
        """Take up what stays of one batch."""
        kept = bytearray()
        self._newest.filter(batch, kept)
        if len(kept) > self._chain.payload_max:
            kept[:] = batch  # with horizons for its tombstones it would not fit into an entry
        if not kept:
            return
        if self._out and len(self._out) + len(kept) > min(COPY_BYTES, self._chain.payload_max):
            yield from self._write(header.base_offset)
        self._out += kept
        self._growing.max_timestamp = max(self._growing.max_timestamp, header.max_timestamp)
        if self._growing.first_timestamp < 0:
            self._growing.first_timestamp = header.max_timestamp

    def _write(self, next_base: int) -> Iterator[bool]:
        """Append an entry with what was taken up; the next one is for offsets from `next_base` on."""
        part, self._growing = self._growing, Part(0, next_base, cleaned=True)
        part.bytes = len(self._out)
        out, self._out = self._out, bytearray()
        self._waiting = True
        self._chain.append(out, 0, partial(self._written, part), CLEANED)
        while self._waiting:
            yield False
        self._cleaned.append(part)
        if sum(one.bytes for one in self._cleaned) // SEGMENT_BYTES_MAX > sum(one.bytes for one in self._cleaned[:-1]) // SEGMENT_BYTES_MAX:
            self._owned.write_state(_ignore)  # a node that takes the log over need not read what is of no use to it yet

    def _written(self, part: Part, result: int | AppendFailed) -> None:
        """After a failure the chain has ended, and so does the pass."""
        if not isinstance(result, AppendFailed):
            part.seq = result
        self._waiting = False


class TopicCleaning:
    """Compacts the logs of one node's topics, one after the other."""

    def __init__(
        self,
        engine: Engine,
        partitions: Callable[[], Iterable[Partition]],
        log_of: Callable[[LogId], StreamLog | None],
        now: Callable[[], int],
        monotonic: Callable[[], float],
        interval_seconds: float,
        map_bytes_max: int,
    ) -> None:
        """`now`: the wall time for deletion by age; below 0 while that is suspended."""
        self._engine = engine
        self._partitions = partitions
        self._log_of = log_of
        self._now = now
        self._monotonic = monotonic
        self._interval = interval_seconds
        self._map_bytes_max = map_bytes_max
        self._not_before: dict[LogId, float] = {}
        self._stopped = False
        self._look_later(min(interval_seconds, FIRST_SECONDS_MAX))

    def _look_later(self, seconds: float) -> None:
        self._engine.connection.loop.call_later(seconds, Contained(self._look, partial(self._look_later, self._interval)))

    def _look(self) -> None:
        """Clean the most urgent log, then look again."""
        if self._stopped:
            return
        now, time = self._now(), self._monotonic()
        chosen: tuple[Partition, StreamTopicLog, Cleanable] | None = None
        for partition in self._partitions():
            owned = self._log_of(partition.id) if partition.settings.compact and not partition.error else None
            if not isinstance(owned, StreamTopicLog) or not owned.usable() or self._not_before.get(partition.id, 0.0) > time:
                continue
            found = cleanable(owned, partition.settings, now)
            if found is not None and (chosen is None or found.urgency > chosen[2].urgency):
                chosen = partition, owned, found
        if chosen is None:
            self._look_later(self._interval)
        else:
            self.clean(chosen[1], chosen[2], chosen[0].settings, partial(self._cleaned, chosen[0].id))

    def clean(self, owned: StreamTopicLog, found: Cleanable, settings: Settings, done: Callable[[bool], None]) -> None:
        newest = NewestRecords(
            found.until.base,
            first_dirty=owned.clean_to,
            now=self._now(),
            delete_retention_ms=settings.delete_retention_ms,
            map_bytes_max=self._map_bytes_max,
            producers={},  # their states are in `state` entries
        )
        TopicPass(self._engine, owned, found, newest, self._monotonic, done).begin()

    def _cleaned(self, id: LogId, cleaned: bool) -> None:
        if cleaned:
            self._not_before.pop(id, None)
        else:
            self._not_before[id] = self._monotonic() + RETRY_SECONDS
        self._look_later(0.0)

    def stop(self) -> None:
        self._stopped = True


def _nothing() -> None: ...


def _ignore(failure: Exception | None) -> None: ...
