"""The records of a log in a stream, for readers: the newest are in memory, older records are read from JetStream (the engine) on demand.

`Records` implements `Readable`, whose methods do not wait. For records that are not in memory they return nothing, request the records
from the engine, and wake the log's readers when the records arrive, as if the log had grown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from broker.logging.logs import log
from broker.runtime.contain import Contained, run_contained
from broker.stores.jetstream.engine import Engine, EngineError, StoredMessage
from broker.stores.jetstream.entry import DATA, HEADER, Entry, parse_entry
from broker.stores.jetstream.reading import batches_in
from broker.stores.jetstream.streams import Stream
from protocol.batch import CorruptBatch, read_header
from storage import DamagedLog, Extent, FoundRecord
from storage.epochs import Epochs, epoch_at, epoch_end, with_epoch
from storage.times import SearchStep, first_in_batch

TAIL_BYTES: Final = 4 << 20  # newest records of each log in memory
OLDER_BYTES: Final = 8 << 20  # older records of each log in memory
RUN_BYTES: Final = 1 << 20  # size of one read from the engine
RUN_MESSAGES: Final = 512
NEVER_FULL: Final = 1 << 62
LOADS_MAX: Final = 64  # reads of older records at a time
RETRY_SECONDS: Final = 0.2


class CachedBatch(NamedTuple):
    """One batch in memory."""

    seq: int  # sequence of its entry
    base: int
    next: int
    max_timestamp: int
    data: bytes | bytearray


class BatchSource:
    """The batches of one fetch, as the source of an Extent."""

    descriptor = -1

    def __init__(self, stream: Stream, cached_batches: Sequence[CachedBatch]) -> None:
        self.log_path = f"stream {stream.name}"
        self._cached_batches = cached_batches
        self._joined: bytes | None = None

    def bytes_at(self, at: int, size: int) -> bytes:
        if self._joined is None:
            self._joined = b"".join([part.data for part in self._cached_batches])
        return self._joined[at : at + size]

    def pin(self) -> None: ...

    def unpin(self) -> None: ...


class BatchRun:
    """Consecutive batches in memory."""

    def __init__(self, base: int, bytes_max: int = NEVER_FULL) -> None:
        self.cached_batches: list[CachedBatch] = []
        self.base = base
        self.end = base
        self.bytes = 0
        self._bytes_max = bytes_max

    def add(self, part: CachedBatch) -> None:
        self.cached_batches.append(part)
        self.base = min(self.base, part.base)
        self.end = part.next
        self.bytes += len(part.data)
        if self.bytes > self._bytes_max and len(self.cached_batches) > 1:
            dropped = 0
            size = self.bytes
            while size > self._bytes_max * 3 // 4 and dropped < len(self.cached_batches) - 1:
                size -= len(self.cached_batches[dropped].data)
                dropped += 1
            self.drop(self.cached_batches[dropped].base)

    def drop(self, offset: int) -> None:
        """Drop the batches before this offset."""
        dropped = self.index(offset)
        self.bytes -= sum(len(part.data) for part in self.cached_batches[:dropped])
        del self.cached_batches[:dropped]
        self.base = max(self.base, min(offset, self.end))

    def has(self, offset: int) -> bool:
        return self.base <= offset < self.end

    def index(self, offset: int) -> int:
        """The index of the batch that holds the offset, or of the first batch after it."""
        return bisect_right(self.cached_batches, offset, key=_next_of)

    def find(self, offset: int, bytes_max: int, end: int, one_at_least: bool) -> tuple[list[CachedBatch], int, int]:
        """The batches from `offset` up to offset `end` that fit, their size, and the bytes that count for fetch.min.bytes."""
        cached_batches: list[CachedBatch] = []
        size = 0
        for at in range(self.index(offset), len(self.cached_batches)):
            part = self.cached_batches[at]
            if part.next > end:
                break
            if size + len(part.data) > bytes_max and (cached_batches or not one_at_least):
                return cached_batches, size, max(size, bytes_max)
            cached_batches.append(part)
            size += len(part.data)
        return cached_batches, size, size


def _next_of(part: CachedBatch) -> int:
    return part.next


class CleanedEntry(NamedTuple):
    """A `cleaned` entry: the records that compaction retained from offset `base` up to the base of the next `cleaned` entry."""

    seq: int
    base: int


def _base_of(cleaned: CleanedEntry) -> int:
    return cleaned.base


class Records:
    """The `Readable` (storage/store.py) of one log."""

    def __init__(
        self, engine: Engine, stream: Stream, epoch: int, start_offset: int, start_seq: int, next_offset: int, next_seq: int, tail_bytes: int = TAIL_BYTES
    ) -> None:
        """`next_offset`: the offset of the first record that will be added. The entry `next_seq` begins at this offset or before."""
        self.epoch = epoch
        self.start_offset = start_offset
        self.epochs: Epochs = []
        self.on_growth: Callable[[], None] | None = None
        self.size = 0  # bytes in the stream, as far as known
        self._engine = engine
        self._stream = stream
        self._high_watermark = next_offset
        self._tail = BatchRun(next_offset, tail_bytes)
        self._older_runs: OrderedDict[int, BatchRun] = OrderedDict()
        self._loading: set[int] = set()  # offsets whose records are requested
        # (base offset, sequence) of some entries, ascending: a search for an offset begins between two of them.
        self._anchors: list[tuple[int, int]] = [(start_offset, start_seq), (next_offset, next_seq)]
        self._cleaned: list[CleanedEntry] = []  # the entries that hold the records before `_cleaned_end`
        self._cleaned_end = 0

    @property
    def next_offset(self) -> int:
        return self._high_watermark

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    def new_epoch(self, epoch: int, offset: int) -> None:
        self.epochs = with_epoch(self.epochs, epoch, offset)

    def add(self, seq: int, base: int, next: int, data: bytes | bytearray) -> None:
        """Add a committed batch."""
        self._tail.add(CachedBatch(seq, base, next, read_header(data, 0).max_timestamp, data))
        self.size += len(data)
        self._high_watermark = next

    def anchor(self, offset: int, seq: int) -> None:
        """Note that the entry `seq` begins at this offset."""
        at = bisect_right(self._anchors, (offset, NEVER_FULL))
        if at == 0 or self._anchors[at - 1][0] != offset:
            self._anchors.insert(at, (offset, seq))

    def drop_before(self, offset: int, seq: int) -> None:
        """Forget the entries before `seq`, which are deleted; `seq` begins at `offset` or before."""
        self._anchors = [(offset, seq), *(anchor for anchor in self._anchors if anchor[0] > offset)]
        self._tail.drop(offset)
        for base in [base for base in self._older_runs if base < offset]:
            del self._older_runs[base]

    def clean(self, cleaned: list[CleanedEntry], end: int) -> None:
        """From now on, read records before the offset `end` only from these entries."""
        self._cleaned = cleaned
        self._cleaned_end = end if cleaned else 0

    # Readable.

    def read(self, offset: int, bytes_max: int, end: int = -1) -> bytes:
        extent = self.extent(offset, bytes_max, end)
        return extent.read(extent.size) if extent is not None else b""

    def extent(self, offset: int, bytes_max: int, end: int = -1, one_at_least: bool = True) -> Extent | None:
        stop = self._high_watermark if end < 0 else min(end, self._high_watermark)
        while offset < stop:
            run = self._run_of(offset)
            if run is None:
                self.load(offset)
                return None
            parts, size, within = run.find(offset, bytes_max, stop, one_at_least)
            if parts or run.index(offset) < len(run.cached_batches):
                return Extent(BatchSource(self._stream, parts), 0, size, within, run is not self._tail) if parts else None
            offset = run.end  # compaction has removed the records up to there
        return None

    def _run_of(self, offset: int) -> BatchRun | None:
        if self._tail.has(offset):
            return self._tail
        for base, older in self._older_runs.items():
            if older.has(offset):
                self._older_runs.move_to_end(base)
                return older
        return None

    def find_time(self, timestamp: int) -> Iterator[SearchStep]:
        """Scans the log from its start."""
        for part in self._parts():
            if part is None:
                yield None
            elif part.max_timestamp >= timestamp:
                for found in self._first_in(part, timestamp):
                    yield found
                    if isinstance(found, FoundRecord):
                        return

    def _parts(self) -> Iterator[CachedBatch | None]:
        """All batches from the log's start; yields None after each run of batches, and as long as the next batches are still being read."""
        offset = self.start_offset
        while offset < self._high_watermark:
            run = self._run_of(offset)
            if run is None:
                self.load(offset)
            else:
                yield from run.cached_batches[run.index(offset) :]
                offset = run.end
            yield None

    def _first_in(self, part: CachedBatch, timestamp: int) -> Iterator[SearchStep]:
        try:
            yield from first_in_batch(bytes(part.data), timestamp, self.start_offset)
        except CorruptBatch as error:
            raise DamagedLog(f"stream {self._stream.name}", part.base, str(error)) from error

    def latest_record(self) -> Iterator[SearchStep]:
        newest: CachedBatch | None = None
        for part in self._parts():
            if part is None:
                yield None
            elif newest is None or part.max_timestamp > newest.max_timestamp:
                newest = part
        if newest is not None:
            yield from self._first_in(newest, newest.max_timestamp)

    def epoch_at(self, offset: int) -> int:
        return epoch_at(self.epochs, offset)

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        if self.epochs and epoch >= self.epochs[-1][0]:
            return (self.epochs[-1][0], self._high_watermark) if epoch <= self.epoch else (-1, -1)
        return epoch_end(self.epochs, epoch)

    # Older records.

    def load(self, offset: int) -> None:
        """Read the records from this offset on from the engine, and wake the readers."""
        if offset in self._loading or len(self._loading) >= LOADS_MAX:
            return
        self._loading.add(offset)
        if offset < self._cleaned_end:
            self._read_cleaned(offset)
            return
        after = bisect_right(self._anchors, (offset, NEVER_FULL))
        low = self._anchors[max(after - 1, 0)][1]
        if after < len(self._anchors):
            high = self._anchors[after][1]
        elif self._tail.cached_batches:
            high = self._tail.cached_batches[0].seq + 1  # the entry may hold batches that are no longer in memory
        else:
            high = low
        self._search(offset, low, high)

    def _search(self, offset: int, low: int, high: int) -> None:
        """Find the entry with the offset by binary search; the entry at `low` begins at the offset or before it."""
        if high - low <= 1:
            self._read_from(offset, low)
            return
        middle = (low + high) // 2
        self._engine.get(self._stream.name, middle, Contained(partial(self._narrow, offset, low, middle, high), partial(self._loaded, offset, False)))

    def _narrow(self, offset: int, low: int, middle: int, high: int, message: StoredMessage | EngineError) -> None:
        entry = None if isinstance(message, EngineError) else self._entry(message)
        if entry is None:
            self._loaded(offset, False)
        elif entry.base_offset <= offset:
            self.anchor(entry.base_offset, middle)
            self._search(offset, middle, high)
        else:
            self._search(offset, low, middle)

    def _entry(self, message: StoredMessage) -> Entry | None:
        try:
            return parse_entry(message.headers.get(HEADER, ""))
        except ValueError:
            log.error("entry cannot be parsed", log=self._stream.log, sequence=message.seq)
            return None

    def _read_from(self, offset: int, seq: int) -> None:
        run = BatchRun(offset)
        begins = -1  # base offset of the first entry that holds the offset or is after it

        def receive(message: StoredMessage) -> None:
            nonlocal begins
            entry = self._entry(message)
            if entry is None or not offset < entry.next_offset <= self._high_watermark or not entry.records:
                return
            if begins < 0:
                begins = entry.base_offset
            if entry.kind == DATA:
                _put(run, message, offset)
            run.end = entry.next_offset  # not the last batch's end: an import writes entries that cover gaps of offsets

        def ended(result: EngineError | None) -> None:
            # The entry that held the offset may have been deleted during the read.
            self._cache_run(offset, run if begins <= offset else BatchRun(offset))

        self._engine.read(self._stream.name, seq, receive, Contained(ended, partial(self._loaded, offset, False)), batch=RUN_MESSAGES, max_bytes=RUN_BYTES)

    def _read_cleaned(self, offset: int) -> None:
        at = bisect_right(self._cleaned, offset, key=_base_of) - 1
        cleaned = self._cleaned[max(at, 0)]
        end = self._cleaned[at + 1].base if at + 1 < len(self._cleaned) else self._cleaned_end
        run = BatchRun(cleaned.base if at >= 0 else 0)

        def received(message: StoredMessage | EngineError) -> None:
            if not isinstance(message, EngineError):
                _put(run, message, run.base)
                run.end = end
            self._cache_run(offset, run)

        self._engine.get(self._stream.name, cleaned.seq, Contained(received, partial(self._loaded, offset, False)))

    def _cache_run(self, offset: int, run: BatchRun) -> None:
        if run.has(offset):
            self._older_runs[run.base] = run
            while sum(older.bytes for older in self._older_runs.values()) > OLDER_BYTES and len(self._older_runs) > 1:
                self._older_runs.popitem(last=False)
        self._loaded(offset, run.has(offset))

    def _loaded(self, offset: int, found: bool) -> None:
        if not found:  # a replica lags, or the engine does not answer: wake the readers later, they try again
            self._engine.connection.loop.call_later(RETRY_SECONDS, Contained(self._loaded), offset, True)
            return
        self._loading.discard(offset)
        if self.on_growth is not None:
            run_contained(self.on_growth)


def _put(run: BatchRun, message: StoredMessage, offset: int) -> None:
    """Add those batches of the entry that end after `offset`."""
    for header, batch in batches_in(message.payload):
        if header.next_offset > offset:
            run.add(CachedBatch(message.seq, header.base_offset, header.next_offset, header.max_timestamp, batch))
