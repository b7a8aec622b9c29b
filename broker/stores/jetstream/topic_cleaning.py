"""Compact logs of topics: append the retained records of closed segments to the end of the stream, then delete those segments.

Entries of kind `cleaned` hold the retained records with their offsets; the log's new entries are appended between them. A `state` entry
follows, which records that the cleaned entries replace the segments. Since the `state` entry is one append, a node that takes the log over finds the
pass complete or not at all, and a fenced node cannot complete it. After the acknowledgement of the `state` entry the engine (JetStream)
deletes all entries before the first segment that was not cleaned, among them the cleaned entries of the previous pass.

Kafka's rules choose the next log and the retained records, as for a data directory.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from broker.logging.logs import log
from broker.runtime.contain import Contained
from broker.stores.compaction_order import Partition, Settings
from broker.stores.jetstream.engine import Engine, EngineError, StoredMessage
from broker.stores.jetstream.entry import CLEANED, DATA
from broker.stores.jetstream.logs import StreamLog
from broker.stores.jetstream.reading import EntryReader, batches_in, damaged
from broker.stores.jetstream.topic_logs import SEGMENT_BYTES_MAX, StreamTopicLog
from broker.stores.jetstream.topic_state import SegmentState
from protocol.batch import BatchHeader, CorruptBatch
from storage import AppendFailed, DamagedLog, LogId
from storage.newest_records import NewestRecords

SLICE_SECONDS: Final = 0.004
WAIT_SECONDS: Final = 0.002  # between two checks whether requested entries have arrived
COPY_BYTES: Final = 256 << 10  # size of one entry, unless a batch is larger
GET_ATTEMPTS: Final = 50
GET_RETRY_SECONDS: Final = 0.2
RETRY_SECONDS: Final = 60.0  # after a pass that failed
FIRST_SECONDS_MAX: Final = 15.0


class Cleanable(NamedTuple):
    """The segments to clean: all before the segment `until`."""

    segment_states: list[SegmentState]
    until: SegmentState
    urgency: float


def cleanable(owned: StreamTopicLog, settings: Settings, now: int) -> Cleanable | None:
    """The segments of the log that Kafka's rules allow to clean now; None: no cleaning is due."""
    parts = owned.segment_states
    count = len(parts) - 1  # without the active segment
    if settings.min_compaction_lag_ms > 0:
        newest_allowed = now - settings.min_compaction_lag_ms
        count = next((at for at in range(count) if parts[at].max_timestamp > newest_allowed), count)
    if not count or parts[count].base <= owned.clean_to:
        return None
    closed = list(parts[:count])
    dirty = [part for part, after in zip(closed, parts[1:], strict=False) if after.base > owned.clean_to]
    closed_bytes, dirty_bytes = (sum(part.bytes for part in segments) for segments in (closed, dirty))
    ratio = dirty_bytes / closed_bytes if closed_bytes else 0.0
    if dirty_bytes and 0 <= dirty[0].first_timestamp < now - settings.max_compaction_lag_ms:
        return Cleanable(closed, parts[count], 1.0 + ratio)
    return Cleanable(closed, parts[count], ratio) if ratio > settings.min_cleanable_dirty_ratio else None


class TopicLogPass:
    """One compaction of one log."""

    def __init__(
        self,
        engine: Engine,
        owned: StreamTopicLog,
        chosen: Cleanable,
        newest: NewestRecords,
        monotonic: Callable[[], float],
        done: Callable[[bool], None],
    ) -> None:
        self._engine = engine
        self._owned = owned
        self._chain = owned.chain
        self._parts = chosen.segment_states
        self._until = chosen.until
        self._newest = newest
        self._monotonic = monotonic
        self._done = done
        self._loop = engine.connection.loop
        self._steps: Generator[bool, None, None] = self._steps_of_pass()
        self._entry_bytes = bytearray()  # retained batches that are not appended yet
        self._entry_part = SegmentState(0, chosen.segment_states[0].base, cleaned=True)  # describes the entry that will hold them
        self._cleaned: list[SegmentState] = []
        self._message: StoredMessage | EngineError | None = None
        self._waiting = False
        self._failure = ""
        self._refusal = ""  # why an entry was not appended

    def begin(self) -> None:
        self._owned.cleaning = True
        self._run_slice()

    def _run_slice(self) -> None:
        """Work for one time slice."""
        slice_end = self._monotonic() + SLICE_SECONDS
        try:
            while self._monotonic() < slice_end:
                if self._chain.failure is not None or self._owned.chain is not self._chain:
                    self._finish(False)  # the log's next owner cleans it
                    return
                if not next(self._steps):
                    self._run_later(WAIT_SECONDS)
                    return
        except StopIteration:
            self._end(self._failure)
        except (OSError, DamagedLog) as error:
            self._end(str(error))
        else:
            self._run_later(0.0)

    def _run_later(self, seconds: float) -> None:
        self._loop.call_later(seconds, Contained(self._run_slice, partial(self._end, "a defect in this version")))

    def _end(self, problem: str) -> None:
        if problem:
            log.warning("log of a topic could not be compacted", log=str(self._owned.id), reason=problem)
        else:
            before, after = (sum(part.bytes for part in parts) for parts in (self._parts, self._cleaned))
            log.info("log of a topic compacted", log=str(self._owned.id), bytes_before=before, bytes_after=after)
        self._finish(not problem)

    def _finish(self, cleaned: bool) -> None:
        self._owned.cleaning = False
        self._steps.close()
        self._done(cleaned)

    def _steps_of_pass(self) -> Generator[bool, None, None]:
        """The steps of the pass; yields False where it has to wait."""
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
                        yield from self._copy_batch(header, batch)
                yield payload is not None
        except CorruptBatch as error:
            raise damaged(self._owned.stream, self._parts[0].seq, str(error)) from error
        if self._entry_bytes or not self._cleaned:
            if not self._entry_bytes:  # no record is retained: an entry without records covers the offsets
                self._entry_part.max_timestamp = max(part.max_timestamp for part in self._parts)
            yield from self._write(self._until.base)
        self._waiting = True
        self._owned.use_cleaned(self._cleaned, len(self._parts), self._newest.clean_to, self._state_written)
        while self._waiting:
            yield False

    def _state_written(self, failure: Exception | None) -> None:
        self._waiting = False
        self._failure = str(failure) if failure is not None else ""

    # Reading.

    def _payloads(self, parts: Sequence[SegmentState]) -> Iterator[bytes | None]:
        """The batches of each entry, in the order of their offsets; None while a read is pending."""
        segments = [part for part in parts if not part.cleaned]
        for part in parts:
            if part.cleaned:
                yield from self._get(part.seq)
        if not segments:
            return
        reader = EntryReader(self._engine, self._owned.stream, segments[0].seq, self._until.seq - 1, _nothing)
        try:
            while True:
                if reader.ready:
                    read = reader.next_entry()
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
            self._message = None
            self._engine.get(self._owned.stream.name, seq, self._receive)
            while self._message is None:
                yield None
            if isinstance(self._message, StoredMessage):
                yield self._message.payload
                return
            retry_at = self._monotonic() + GET_RETRY_SECONDS  # the replica lags, or the engine elects a leader
            while self._monotonic() < retry_at:
                yield None
        raise OSError(f"{self._owned.stream.name}: the engine does not return entry {seq}")

    def _receive(self, message: StoredMessage | EngineError) -> None:
        self._message = message

    # Writing.

    def _copy_batch(self, header: BatchHeader, batch: bytes) -> Iterator[bool]:
        """Copy the retained records of one batch."""
        copied = bytearray()
        self._newest.filter(batch, copied)
        if len(copied) > self._chain.payload_max:
            copied[:] = batch  # unchanged: with a delete horizon, the batch would not fit into an entry
        if not copied:
            return
        if self._entry_bytes and len(self._entry_bytes) + len(copied) > min(COPY_BYTES, self._chain.payload_max):
            yield from self._write(header.base_offset)
        self._entry_bytes += copied
        self._entry_part.max_timestamp = max(self._entry_part.max_timestamp, header.max_timestamp)
        if self._entry_part.first_timestamp < 0:
            self._entry_part.first_timestamp = header.max_timestamp

    def _write(self, next_base: int) -> Iterator[bool]:
        """Append an entry with the collected batches; the next entry begins at offset `next_base`."""
        part, self._entry_part = self._entry_part, SegmentState(0, next_base, cleaned=True)
        part.bytes = len(self._entry_bytes)
        entry_bytes, self._entry_bytes = self._entry_bytes, bytearray()
        self._waiting = True
        self._chain.append(entry_bytes, 0, partial(self._written, part), CLEANED)
        while self._waiting:
            yield False
        if not part.seq:
            raise OSError(self._refusal)
        self._cleaned.append(part)
        size = sum(cleaned.bytes for cleaned in self._cleaned)
        if size // SEGMENT_BYTES_MAX > (size - part.bytes) // SEGMENT_BYTES_MAX:
            self._owned.write_state(_ignore)  # so that the next owner need not read the entries that this pass has written so far

    def _written(self, part: SegmentState, result: int | AppendFailed) -> None:
        """Note the entry's sequence. After a failure the pass ends: the chain has ended, or the entry has become too large for the engine."""
        if isinstance(result, AppendFailed):
            self._refusal = str(result)
        else:
            part.seq = result
        self._waiting = False


class TopicLogCleaner:
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
        """`now`: the wall time for deletion by age; below 0 while deletion by age is suspended."""
        self._engine = engine
        self._partitions = partitions
        self._log_of = log_of
        self._now = now
        self._monotonic = monotonic
        self._interval = interval_seconds
        self._map_bytes_max = map_bytes_max
        self._not_before: dict[LogId, float] = {}
        self._stopped = False
        self._schedule(min(interval_seconds, FIRST_SECONDS_MAX))

    def _schedule(self, seconds: float) -> None:
        self._engine.connection.loop.call_later(seconds, Contained(self._clean_next, partial(self._schedule, self._interval)))

    def _clean_next(self) -> None:
        """Clean the log with the highest urgency."""
        if self._stopped:
            return
        now, time = self._now(), self._monotonic()
        chosen: tuple[Partition, StreamTopicLog, Cleanable] | None = None
        for partition in self._partitions():
            owned = self._log_of(partition.id) if partition.settings.compact and not partition.error else None
            if not isinstance(owned, StreamTopicLog) or not owned.usable() or self._not_before.get(partition.id, 0.0) > time:
                continue
            candidate = cleanable(owned, partition.settings, now)
            if candidate is not None and (chosen is None or candidate.urgency > chosen[2].urgency):
                chosen = partition, owned, candidate
        if chosen is None:
            self._schedule(self._interval)
        else:
            self.clean(chosen[1], chosen[2], chosen[0].settings, partial(self._cleaned, chosen[0].id))

    def clean(self, owned: StreamTopicLog, chosen: Cleanable, settings: Settings, done: Callable[[bool], None]) -> None:
        newest = NewestRecords(
            chosen.until.base,
            first_dirty=owned.clean_to,
            now=self._now(),
            delete_retention_ms=settings.delete_retention_ms,
            map_bytes_max=self._map_bytes_max,
            producers={},  # their states are in `state` entries
        )
        TopicLogPass(self._engine, owned, chosen, newest, self._monotonic, done).begin()

    def _cleaned(self, id: LogId, cleaned: bool) -> None:
        if cleaned:
            self._not_before.pop(id, None)
        else:
            self._not_before[id] = self._monotonic() + RETRY_SECONDS
        self._schedule(0.0)

    def stop(self) -> None:
        self._stopped = True


def _nothing() -> None: ...


def _ignore(failure: Exception | None) -> None: ...
