"""Read the entries of a stream in order, with prefetch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from broker.runtime.contain import Contained, run_contained
from broker.stores.jetstream.engine import Engine, EngineError, StoredMessage, StreamState
from broker.stores.jetstream.entry import DATA, HEADER, Entry, parse_entry
from broker.stores.jetstream.streams import Stream
from protocol.batch import DECOMPRESSED_BYTES_MAX, BatchHeader, CorruptBatch, Fact, iterate_headers, read_facts_into, validate
from protocol.fact_layouts import FactLayouts
from storage import NOT_YET, DamagedLog

PREFETCH_BYTES_MAX: Final = 16 << 20
SLICE_BYTES: Final = 64 << 10  # facts of about this size are replayed together
RETRY_SECONDS: Final = 0.1
STREAM_REMEDY: Final = "replace it from an export (tenure store import --only), or restore the stream; until then no node serves this log"
ATTEMPTS_MAX: Final = 100  # reads without a new entry before the reader gives up


class ReadEntry(NamedTuple):
    seq: int
    entry: Entry
    payload: bytes


class EntryReader:
    """Reads the entries from one sequence up to another, both included, and checks that none is missing.

    `changed` is called when entries have arrived, and at the end. `problem` is the reason for an early end.
    """

    def __init__(self, engine: Engine, stream: Stream, first_seq: int, last_seq: int, changed: Callable[[], None]) -> None:
        self.ready: deque[ReadEntry] = deque()
        self.problem: Exception | None = None
        self._engine = engine
        self._stream = stream
        self._next_seq = first_seq
        self._last_seq = last_seq
        self._changed = changed
        self._bytes = 0
        self._reading = False
        self._stopped = False
        self._explaining = False  # entries are missing, and the state of the stream is asked for
        self._epoch = 0
        self._offset = -1
        self._attempts = 0
        self._window_from = first_seq
        self._read()

    @property
    def ended(self) -> bool:
        return self._next_seq > self._last_seq or self.problem is not None

    def next_entry(self) -> ReadEntry:
        entry = self.ready.popleft()
        self._bytes -= len(entry.payload)
        if not self._reading and self._bytes < PREFETCH_BYTES_MAX:
            self._read()
        return entry

    def stop(self) -> None:
        self._stopped = True
        self.ready.clear()

    def _read(self) -> None:
        if self._reading or self.ended or self._stopped:
            return
        self._reading = True
        self._window_from = self._next_seq
        self._engine.read(self._stream.name, self._next_seq, self._receive, Contained(self._window_ended, self._fail_by_defect))

    def _receive(self, message: StoredMessage) -> None:
        if self.ended or self._stopped:
            return
        if message.seq != self._next_seq:
            if message.seq > self._next_seq and not self._explaining:
                self._explaining = True
                found_missing = Contained(partial(self._explain_missing, message.seq), partial(self._fail_missing, message.seq))
                self._engine.info(self._stream.name, found_missing)
            return
        try:
            entry = parse_entry(message.headers.get(HEADER, ""))
        except ValueError:
            self._fail(f"entry {message.seq} cannot be parsed")
            return
        if entry.epoch < self._epoch:
            self._fail(f"entry {message.seq} has epoch {entry.epoch}, after an entry of epoch {self._epoch}")
        elif self._offset not in (-1, entry.base_offset):
            self._fail(f"entry {message.seq} begins at offset {entry.base_offset} instead of {self._offset}")
        else:
            self._epoch, self._offset = entry.epoch, entry.next_offset
            self.ready.append(ReadEntry(message.seq, entry, message.payload))
            self._bytes += len(message.payload)
            self._next_seq += 1
            if self.ended:
                run_contained(self._changed)

    def _explain_missing(self, seq: int, state: StreamState | EngineError) -> None:
        """Entries before `seq` are missing: an earlier owner has deleted them while they were read, if the stream begins after them."""
        if self.ended or self._stopped:
            return
        if isinstance(state, EngineError) or state.first_seq > self._next_seq:
            why = state.text if isinstance(state, EngineError) else f"entries before {state.first_seq} were deleted while the log was read"
            self.problem = OSError(f"{self._stream.name}: {why}")
            run_contained(self._changed)
        else:
            self._fail_missing(seq)

    def _fail_missing(self, seq: int) -> None:
        self._fail(f"entries {self._next_seq} to {seq - 1} are missing")

    def _fail(self, reason: str) -> None:
        self.problem = damaged(self._stream, self._next_seq, reason)
        run_contained(self._changed)

    def _fail_by_defect(self) -> None:
        """End the read after an exception, since nothing would continue it."""
        if self.problem is None:
            self.problem = OSError(f"{self._stream.name}: a defect in this version")
            run_contained(self._changed)

    def _window_ended(self, result: EngineError | None) -> None:
        self._reading = False
        if self._stopped or self.ended or self._explaining:
            return
        if self._next_seq == self._window_from:  # no new entry: the replica lags, or the engine elects a leader
            self._attempts += 1
            if self._attempts >= ATTEMPTS_MAX:
                self.problem = OSError(f"{self._stream.name}: the engine does not return entry {self._next_seq}")
                run_contained(self._changed)
            else:
                self._engine.connection.loop.call_later(RETRY_SECONDS, Contained(self._read, self._fail_by_defect))
            return
        self._attempts = 0
        run_contained(self._changed)
        if self._bytes < PREFETCH_BYTES_MAX:
            self._read()


def damaged(stream: Stream, seq: int, reason: str) -> DamagedLog:
    """Entries of a stream are missing or corrupt."""
    return DamagedLog(f"stream {stream.name}", seq, reason, "entry", STREAM_REMEDY)


def facts_in(engine: Engine, stream: Stream, first_seq: int, last_seq: int, on_entry: Callable[[ReadEntry], None]) -> Iterator[list[Fact]]:
    """Key and value of every record in the entries, in slices; NOT_YET while a read is pending.

    `on_entry` is called with each entry. Raises DamagedLog and OSError.
    """
    reader = EntryReader(engine, stream, first_seq, last_seq, _nothing)
    layouts = FactLayouts()
    try:
        while True:
            facts: list[Fact] = []
            size = 0
            while reader.ready and size < SLICE_BYTES:
                read = reader.next_entry()
                size += len(read.payload)
                on_entry(read)
                read_entry_facts(stream, read, facts, layouts)
            if facts:
                yield facts
            elif reader.problem is not None:
                raise reader.problem
            elif reader.ended and not reader.ready:
                return
            elif not size:
                yield NOT_YET
    finally:
        reader.stop()


def read_entry_facts(stream: Stream, read: ReadEntry, facts: list[Fact], layouts: FactLayouts) -> None:
    if read.entry.kind != DATA:
        return
    payload = read.payload
    try:
        for at, header in batches_at(payload):
            validate(payload, at, len(payload))
            read_facts_into(payload, at, header, facts, layouts, DECOMPRESSED_BYTES_MAX)
    except CorruptBatch as error:
        raise damaged(stream, read.seq, str(error)) from error


def batches_at(payload: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Each batch's position and header. Raises CorruptBatch; checksums are not verified."""
    at = 0
    for header in iterate_headers(payload, 0, len(payload)):
        yield at, header
        at += header.size


def batches_in(payload: bytes) -> Iterator[tuple[BatchHeader, bytes]]:
    """Each batch of an entry with its header. Raises CorruptBatch; checksums are not verified."""
    for at, header in batches_at(payload):
        yield header, payload[at : at + header.size]


def read_all(engine: Engine, stream: Stream, first_seq: int, last_seq: int, done: Callable[[list[ReadEntry] | Exception], None]) -> None:
    """Call `done` with all entries of the range in one list."""
    entries: list[ReadEntry] = []
    reader: list[EntryReader] = []

    def changed() -> None:
        if not reader:
            return
        while reader[0].ready:
            entries.append(reader[0].next_entry())
        if reader[0].problem is not None:
            done(reader[0].problem)
        elif reader[0].ended:
            done(entries)

    if first_seq > last_seq:
        engine.connection.loop.call_soon(Contained(partial(done, entries)))
        return
    reader.append(EntryReader(engine, stream, first_seq, last_seq, changed))


def _nothing() -> None: ...
