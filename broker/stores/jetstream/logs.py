"""Logs of groups, of notes and of the registry. Logs of topics are in topic_logs.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Protocol

from broker.internal_topics import NOTES_LOG, REGISTRY_LOG
from broker.runtime.contain import run_contained
from broker.stores.jetstream.chain import Chain
from broker.stores.jetstream.claim import Claimed
from broker.stores.jetstream.engine import Engine
from broker.stores.jetstream.entry import DATA, LIVE_BEGIN, LIVE_END
from broker.stores.jetstream.meta import Owner
from broker.stores.jetstream.reading import ReadEntry, batches_in, damaged, facts_in, read_all
from broker.stores.jetstream.records import NEVER_FULL, TAIL_BYTES, Records
from broker.stores.jetstream.stream_check import StreamCheck
from broker.stores.jetstream.streams import Stream
from protocol.batch import CorruptBatch, Fact, facts_of, stamp_whole
from storage import AppendFailed, DamagedLog, Fenced, LogId
from storage.epochs import Epochs, with_epoch

RELEASED: Final = "this node has released the log"

Failed = Callable[[AppendFailed], None]
Recovered = Callable[[AppendFailed | None], None]


class StreamStore(Protocol):
    """The store, as its logs use it."""

    engine: Engine

    def open_again(self, log: StreamLog, done: Recovered) -> None: ...

    def new_chain(self, log: StreamLog, claimed: Claimed) -> Chain: ...

    def owner_of(self, log: StreamLog) -> Owner: ...

    def stream_lost(self, log: StreamLog, reason: str) -> None: ...

    def quarantine(self, id: LogId, reason: str) -> None: ...

    def end_quarantine(self, id: LogId) -> None: ...


class StreamLog:
    """One log that this node has claimed."""

    def __init__(self, store: StreamStore, id: LogId, stream: Stream) -> None:
        self.id = id
        self.stream = stream
        self.epoch = -1
        self.chain: Chain
        self.records: Records
        self.created = ""
        self.first_needed = 0  # sequence of the oldest entry that the log needs; 0: the engine itself drops the oldest entries
        self._store = store
        self._failed: Failed = _ignore
        self.opening = True  # while the store opens it, a failure is the result of the opening, and not reported to `_failed`
        self._check = StreamCheck(store.engine, stream.name, self._known, partial(store.stream_lost, self), self._compare_end)

    @property
    def high_watermark(self) -> int:
        return self.records.high_watermark

    @property
    def tail_bytes(self) -> int:
        """Bytes of the newest records to keep in memory."""
        return NEVER_FULL if self.id.name == REGISTRY_LOG else TAIL_BYTES

    def usable(self) -> bool:
        return self.chain.failure is None and not self.opening

    def watch(self, failed: Failed) -> None:
        self._failed = failed
        if self.chain.failure is not None and not self.opening:
            run_contained(failed, self.chain.failure)

    def watch_growth(self, on_growth: Callable[[], None]) -> None:
        self.records.on_growth = on_growth

    def check_stream(self) -> None:
        """Check that the stream is still the one that this node has claimed, with all that was acknowledged."""
        self._check.begin()

    def _known(self) -> Owner | None:
        return self._store.owner_of(self) if self.usable() else None

    def _compare_end(self, last_seq: int) -> None:
        """Fence the log if its stream has an entry after all that this node has sent: only another owner can have written it."""
        if self.usable() and last_seq >= self.chain.next_seq:
            self.fence(Fenced("another node has claimed the log"))

    def note_needed(self, seq: int) -> None:
        """Entries before `seq` are not needed any more, and may be deleted at any time: by this node, or late by an earlier owner."""
        if self.first_needed:
            self.first_needed = max(self.first_needed, seq)

    def chain_failed(self, chain: Chain, failure: AppendFailed) -> None:
        if chain is self.chain and not self.opening:
            run_contained(self._failed, failure)

    # Opening.

    def open(self, claimed: Claimed, done: Callable[[Exception | None], None]) -> None:
        """Open the claimed log; `done` is called when it can be read."""
        self.opening = True
        self.epoch = claimed.entry.epoch
        self.created = claimed.created
        self.first_needed = claimed.first_seq if self.id.name != NOTES_LOG else 0
        self.chain = self._store.new_chain(self, claimed)
        self._load(claimed, done)

    def _load(self, claimed: Claimed, done: Callable[[Exception | None], None]) -> None:
        raise NotImplementedError

    def _use(self, records: Records) -> None:
        """Serve these records from now on; the callback of the previous records, by which readers learn of growth, stays."""
        previous: Records | None = getattr(self, "records", None)
        if previous is not None:
            records.on_growth = previous.on_growth
        self.records = records

    def recover(self, done: Recovered) -> None:
        """Claim the log again, unless another node has claimed it."""
        self._store.open_again(self, done)

    def fence(self, failure: AppendFailed) -> None:
        """Refuse further appends."""
        self.chain.fail(failure)

    def release(self) -> None:
        """The shard or partition no longer uses the log: report no more failures to its callback."""
        self._failed = _ignore

    def _write(self, batch: bytearray, done: Callable[[int | AppendFailed], None]) -> None:
        """Stamp and append one batch; `done` is called with the offset of its first record."""
        chain = self.chain
        base = chain.next_offset
        last_delta, _ = stamp_whole(batch, base, self.epoch)
        chain.append(batch, last_delta + 1, partial(self._written, chain, batch, base, base + last_delta + 1, done))

    def _written(
        self, chain: Chain, batch: bytearray, base: int, next_offset: int, done: Callable[[int | AppendFailed], None], result: int | AppendFailed
    ) -> None:
        if isinstance(result, AppendFailed):
            done(result)
            return
        if chain is self.chain:
            self.records.add(result, base, next_offset, batch)
            if self.records.on_growth is not None:
                run_contained(self.records.on_growth)
        done(base)
        if chain is self.chain and chain.failure is None:
            self._add_to_segment(result, batch)

    def _add_to_segment(self, seq: int, batch: bytearray) -> None:
        """Count a written batch in its segment (topic logs) or log; called once the callback of the append has run."""


class _Compactions:
    """Finds, while a log is read, the newest compaction that was complete: its owner may delete all entries before it at any later time."""

    def __init__(self, log: StreamLog) -> None:
        self._log = log
        self._begin_seq = 0

    def note(self, read: ReadEntry) -> None:
        if read.entry.kind == LIVE_BEGIN:
            self._begin_seq = read.seq
        elif read.entry.kind == LIVE_END:
            self._log.note_needed(self._begin_seq)


class GroupLog(StreamLog):
    """An internal log: an `OwnedLog` for its shard, and a `ServedLog` for consumers that read it as a topic."""

    def __init__(self, store: StreamStore, id: LogId, stream: Stream) -> None:
        super().__init__(store, id, stream)
        self.first_seq = 0
        self.bytes = 0  # approximate size of the stream
        self.live_bytes = 0  # size after the last compaction; 0: none yet
        self.on_append: Callable[[bytearray], None] | None = None  # called with each batch of the shard (group_cleaning.py)

    def _load(self, claimed: Claimed, done: Callable[[Exception | None], None]) -> None:
        self.first_seq = claimed.first_seq
        self.bytes = claimed.bytes
        entry = claimed.entry
        if self.id.name == REGISTRY_LOG:
            read_all(self._store.engine, self.stream, claimed.first_seq, claimed.seq, partial(self._loaded, claimed, done))
            return
        records = Records(
            self._store.engine, self.stream, self.epoch, claimed.first_offset, claimed.first_seq, entry.next_offset, claimed.seq, self.tail_bytes
        )
        records.new_epoch(self.epoch, entry.next_offset)
        self._use(records)
        done(None)

    def _loaded(self, claimed: Claimed, done: Callable[[Exception | None], None], result: list[ReadEntry] | Exception) -> None:
        """Keep the whole registry in memory, since the broker may read the registry again at any time."""
        if isinstance(result, Exception):
            done(result)
            return
        compactions = _Compactions(self)
        start = result[0].entry.base_offset if result else claimed.entry.base_offset
        records = Records(self._store.engine, self.stream, self.epoch, start, claimed.first_seq, start, claimed.first_seq, self.tail_bytes)
        try:
            for read in result:
                seq, entry, payload = read
                compactions.note(read)
                if not records.epochs or records.epochs[-1][0] != entry.epoch:
                    records.new_epoch(entry.epoch, entry.base_offset)
                if entry.kind == DATA:
                    for header, batch in batches_in(payload):
                        records.add(seq, header.base_offset, header.next_offset, batch)
        except CorruptBatch as error:
            done(damaged(self.stream, seq, str(error)))
            return
        self._use(records)
        done(None)

    def replay(self) -> Iterator[list[Fact]]:
        if self.id.name == REGISTRY_LOG:
            data = self.records.read(self.records.start_offset, NEVER_FULL)
            return iter([list(facts_of(data))])
        epochs: Epochs = []
        self.records.epochs = epochs
        compactions = _Compactions(self)

        def note_entry(read: ReadEntry) -> None:
            entry = read.entry
            compactions.note(read)
            if not epochs or epochs[-1][0] != entry.epoch:
                epochs[:] = with_epoch(epochs, entry.epoch, entry.base_offset)

        return self._replay_and_report(facts_in(self._store.engine, self.stream, self.first_seq, self.chain.committed_seq, note_entry))

    def _replay_and_report(self, replay: Iterator[list[Fact]]) -> Iterator[list[Fact]]:
        """Replay, and report to the store whether the log is damaged."""
        try:
            yield from replay
        except DamagedLog as error:
            self._store.quarantine(self.id, str(error))
            raise
        self._store.end_quarantine(self.id)

    def append(self, batch: bytes | bytearray, records: int, done: Callable[[int | AppendFailed], None]) -> None:
        stamped = batch if isinstance(batch, bytearray) else bytearray(batch)
        if self.on_append is not None:
            self.on_append(stamped)
        self._write(stamped, done)

    def append_copy(self, batch: bytearray, done: Callable[[int | AppendFailed], None]) -> None:
        """Append copies of records that the log has already."""
        self._write(batch, done)

    def _add_to_segment(self, seq: int, batch: bytearray) -> None:
        self.bytes += len(batch)

    def note_deleted(self, offset: int, seq: int, size: int) -> None:
        """Account for `size` bytes of deleted entries: all before `seq`, which begins at `offset`."""
        self.first_seq = seq
        self.records.start_offset = max(self.records.start_offset, offset)
        self.records.drop_before(offset, seq)
        self.bytes -= size
        self.live_bytes = self.bytes


def _ignore(failure: AppendFailed) -> None: ...
