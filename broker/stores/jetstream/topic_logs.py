"""Logs of topics, one JetStream stream per partition. A batch is acknowledged when a majority of the stream's replicas has it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

from broker.logging.logs import log
from broker.runtime.contain import Contained
from broker.stores.jetstream.claim import Claimed
from broker.stores.jetstream.engine import EngineError, StoredMessage
from broker.stores.jetstream.entry import DATA, STATE
from broker.stores.jetstream.logs import RELEASED, StreamLog
from broker.stores.jetstream.reading import ReadEntry, batches_in, damaged, read_all
from broker.stores.jetstream.records import CleanedEntry, Records
from broker.stores.jetstream.store import JetStreamStore
from broker.stores.jetstream.streams import Stream
from broker.stores.jetstream.topic_state import SegmentState, TopicState, decode_state, encode_state
from broker.stores.jetstream.wire import NOT_FOUND
from protocol.batch import BatchHeader, CorruptBatch, read_header
from storage import AppendFailed, Fenced, HeldBy, LogId, RetentionLimits, ServedLog, TopicInfo, TopicLog, Unreadable
from storage.epochs import from_offset, with_epoch

SEGMENT_BYTES_MAX: Final = 16 << 20  # a new owner reads at most this much
DELETE_RETRY_SECONDS: Final = 2.0

Opened = Callable[[TopicLog | HeldBy | Unreadable], None]
Done = Callable[[Exception | None], None]


class StreamTopicLog(StreamLog):
    """The `TopicLog` (storage/store.py) of one partition."""

    assigns_offsets_at_once = False
    busy = False

    def __init__(self, store: JetStreamStore, topics: StreamTopicStore, id: LogId, stream: Stream, topic: TopicInfo) -> None:
        super().__init__(store, id, stream)
        self._engine = store.engine
        self._topics = topics
        self._producers = topic.producers
        self._state = TopicState(0, 0, 0)
        self._segment_bytes = min(topic.segment_bytes, SEGMENT_BYTES_MAX)
        self._segment_ms = 0  # no limit
        self._active_base = -1  # base offset of the active segment
        self._active_since = 0  # when this node first saw that segment
        self._state_pending = False  # a `state` entry is not acknowledged yet
        self.cleaning = False  # True: a compaction reads the segments, so they must not be dropped

    @property
    def durable_offset(self) -> int:
        return self.records.high_watermark

    # Opening.

    def _load(self, claimed: Claimed, done: Done) -> None:
        seq = claimed.entry.state_seq
        if seq < claimed.first_seq:
            self._read(claimed, claimed.first_seq, done)
        else:
            self._engine.get(self.stream.name, seq, Contained(partial(self._decode_state, claimed, done), lambda: done(OSError("a defect in this version"))))

    def _decode_state(self, claimed: Claimed, done: Done, message: StoredMessage | EngineError) -> None:
        if isinstance(message, EngineError):
            reason = f"the replica does not have state entry {claimed.entry.state_seq}" if message.code == NOT_FOUND else message.text
            done(OSError(f"stream {self.stream.name}: {reason}"))
            return
        self._producers.clear()
        try:
            self._state = decode_state(message.payload, self._producers)
        except ValueError as error:
            done(damaged(self.stream, message.seq, str(error)))
            return
        self._read(claimed, self._state.seq + 1, done)

    def _read(self, claimed: Claimed, first_seq: int, done: Done) -> None:
        read_all(self._engine, self.stream, first_seq, claimed.seq, partial(self._loaded, claimed, first_seq, done))

    def _loaded(self, claimed: Claimed, first_seq: int, done: Done, result: list[ReadEntry] | Exception) -> None:
        if isinstance(result, Exception):
            done(result)
            return
        if first_seq == claimed.first_seq:
            self._begin_without_state(claimed, result)
        state = self._state
        first = state.first_segment
        self.note_needed(first.seq)
        records = Records(self._engine, self.stream, self.epoch, state.start_offset, first.seq, state.next_offset, state.seq + 1)
        for part in state.segment_states:
            if not part.cleaned:
                records.anchor(part.base, part.seq)
        records.clean(cleaned_in(state), first.base)
        try:
            for seq, entry, payload in result:
                if seq <= state.seq:
                    continue
                if not state.epochs or state.epochs[-1][0] != entry.epoch:
                    state.epochs = with_epoch(state.epochs, entry.epoch, entry.base_offset)
                if entry.kind == DATA:
                    for header, batch in batches_in(payload):
                        if header.producer_id >= 0:
                            self._producers.note(header, header.base_offset)
                        records.add(seq, header.base_offset, header.next_offset, batch)
                        self._count_in_segment(header)
        except CorruptBatch as error:
            done(damaged(self.stream, claimed.seq, str(error)))
            return
        records.epochs = state.epochs
        records.size = sum(part.bytes for part in state.segment_states)
        self._use(records)
        self._topics.durable_starts[self.id] = state.start_offset
        done(None)

    def _begin_without_state(self, claimed: Claimed, entries: list[ReadEntry]) -> None:
        """The claim names no `state` entry: use the newest readable one of `entries`, which are all entries of the stream."""
        self._producers.clear()
        base = entries[0].entry.base_offset if entries else claimed.entry.base_offset
        self._state = TopicState(claimed.first_seq - 1, base, base, [], [SegmentState(claimed.first_seq, base)])
        for seq, entry, payload in reversed(entries):
            if entry.kind == STATE:
                try:
                    self._state = decode_state(payload, self._producers)
                except ValueError as error:
                    log.error("state entry cannot be parsed", log=self.stream.log, sequence=seq, reason=str(error))
                else:
                    return

    # Appending.

    @property
    def batch_bytes_max(self) -> int:
        return self.chain.payload_max

    def append(self, batch: bytearray, done: Callable[[int | AppendFailed], None]) -> int:
        self._write(batch, done)
        return -1

    def _count_in_segment(self, header: BatchHeader) -> None:
        part = next(part for part in reversed(self._state.segment_states) if part.base <= header.base_offset)
        part.bytes += header.size
        part.max_timestamp = max(part.max_timestamp, header.max_timestamp)
        if part.first_timestamp < 0:
            part.first_timestamp = header.max_timestamp

    def _add_to_segment(self, seq: int, batch: bytearray) -> None:
        self._count_in_segment(read_header(batch, 0))
        active = self._state.segment_states[-1]
        old = self._segment_ms > 0 and 0 <= active.first_timestamp < active.max_timestamp - self._segment_ms
        # Roll only after the last batch of an entry, since a `state` entry covers whole entries.
        if (old or active.bytes >= self._segment_bytes) and self.records.high_watermark == self.chain.committed_offset:
            self._roll()

    def _roll(self) -> None:
        """Begin a new segment, with a state entry."""
        if not self._state_pending:
            self._state.segment_states.append(SegmentState(self.chain.next_seq, self.chain.next_offset))
            self.write_state(_ignore)

    def write_state(self, done: Done) -> None:
        """Append a `state` entry with the log's current state, then delete the entries that it makes superfluous."""
        state = self._state
        chain = self.chain
        state.seq = chain.committed_seq
        state.start_offset = self.records.start_offset
        state.next_offset = chain.committed_offset
        state.epochs = self.records.epochs = from_offset(self.records.epochs, state.start_offset)
        while not self.cleaning and len(state.segment_states) > 1 and state.segment_states[1].base <= state.start_offset:
            del state.segment_states[0]
        self.records.size = sum(part.bytes for part in state.segment_states)
        self._state_pending = True
        first = state.first_segment
        written = partial(self._state_written, state.start_offset, first.seq, first.base, cleaned_in(state), done)
        chain.append(encode_state(state, self._producers), 0, written, STATE)

    def _state_written(
        self, start_offset: int, first_seq: int, first_base: int, cleaned: list[CleanedEntry], done: Done, result: int | AppendFailed
    ) -> None:
        self._state_pending = False
        if isinstance(result, AppendFailed):
            done(result)
            return
        self.chain.state_seq = result
        self._topics.durable_starts[self.id] = start_offset
        if first_seq > 1:
            self.note_needed(first_seq)
            self.records.clean(cleaned, first_base)
            self.records.drop_before(first_base, first_seq)
            self._engine.purge(self.stream.name, first_seq, _ignore_purge)
        done(None)

    # Compaction.

    @property
    def segment_states(self) -> Sequence[SegmentState]:
        return self._state.segment_states

    @property
    def clean_to(self) -> int:
        return self._state.clean_to

    def use_cleaned(self, cleaned: list[SegmentState], replaced: int, clean_to: int, done: Done) -> None:
        """Replace the first `replaced` segments by cleaned entries."""
        self._state.segment_states[:replaced] = cleaned
        self._state.clean_to = clean_to
        self.cleaning = False
        self.write_state(done)

    # Retention.

    def interrupt(self) -> None: ...

    def set_segment_limits(self, segment_bytes: int, segment_ms: int) -> None:
        self._segment_bytes = min(segment_bytes, SEGMENT_BYTES_MAX)
        self._segment_ms = segment_ms

    def _roll_if_old(self, monotonic: int) -> None:
        """Roll a segment that has been active for segment.ms, regardless of its timestamps: otherwise an idle log would never be compacted."""
        active = self._state.segment_states[-1]
        if active.base != self._active_base:
            self._active_base, self._active_since = active.base, monotonic
        elif self._segment_ms and active.bytes and monotonic - self._active_since > self._segment_ms and not self.chain.pending:
            self._roll()

    def apply_retention(self, now: int, monotonic: int, limits: RetentionLimits) -> int:
        """Drop expired segments, as Kafka does; the active segment only after a roll."""
        parts = self._state.segment_states
        if self._state_pending or self.cleaning or self.chain.failure is not None:
            return 0
        self._roll_if_old(monotonic)
        oldest = now - limits.retention_ms if limits.retention_ms >= 0 and now >= 0 else None
        if oldest is not None and parts[-1].bytes and 0 <= parts[-1].max_timestamp < oldest and not self.chain.pending:
            parts.append(SegmentState(self.chain.next_seq, self.chain.next_offset))
        size = sum(part.bytes for part in parts)
        dropped = 0
        while len(parts) - dropped > 1:
            part = parts[dropped]
            too_old = oldest is not None and 0 <= part.max_timestamp < oldest
            if not too_old and not 0 <= limits.retention_bytes <= size - part.bytes:
                break
            size -= part.bytes
            dropped += 1
        if dropped:
            self.records.start_offset = max(self.records.start_offset, parts[dropped].base)
            self.write_state(_ignore)
        return dropped

    def delete_before(self, offset: int) -> None:
        self.records.start_offset = max(self.records.start_offset, min(offset, self.records.next_offset))


class StreamTopicStore:
    """The `TopicStore` over streams. Streams are named by topic ids, so the stream of a deleted topic never blocks a new topic of its name."""

    def __init__(self, store: JetStreamStore) -> None:
        self.durable_starts: dict[tuple[str, int], int] = {}
        self._store = store
        self._deleting: dict[tuple[LogId, bytes], list[Done]] = {}

    def open_topic_log(self, id: LogId, topic: TopicInfo, done: Opened) -> None:
        previous = self._store.topic_log(id)
        if previous is not None:
            previous.fence(Fenced(RELEASED))
        owned = StreamTopicLog(self._store, self, id, self._store.names.topic(id, topic.topic_id), topic)
        self._store.open_log(owned, lambda problem: done(owned if problem is None else problem))

    def served_log(self, id: LogId) -> ServedLog | None:
        return self._store.owned_log(id)

    def list_existing_logs(self, delete_delay_ms: int) -> list[LogId]:
        return []

    def exists(self, id: LogId) -> bool:
        return False

    def set_aside(self, id: LogId, topic_id: bytes, opened: TopicLog | None, name_in_use: bool, delete_delay_ms: int) -> None:
        """Delete the stream at once: its name has the topic's id, so no other topic can use it."""
        stream = self._store.names.topic(id, topic_id)
        owned = self._store.topic_log(id)
        if owned is not None and owned.stream == stream:
            owned.fence(Fenced("its topic was deleted"))
            self._store.drop(id)
            self.durable_starts.pop(id, None)
        if (id, topic_id) not in self._deleting:
            self._deleting[id, topic_id] = []
            self._delete(id, topic_id, stream)

    def _delete(self, id: LogId, topic_id: bytes, stream: Stream) -> None:
        def deleted(result: EngineError | None) -> None:
            if result is not None:
                self._store.loop.call_later(DELETE_RETRY_SECONDS, Contained(self._delete), id, topic_id, stream)
                return
            self._store.meta.unpublish_owner(id, stream)
            for done in self._deleting.pop((id, topic_id), []):
                done(None)

        self._store.engine.delete(stream.name, deleted)

    def forget_topics(self, ids: Collection[LogId], done: Done) -> None:
        """Call `done` when the streams of these topics are deleted."""
        waiting = [key for key in self._deleting if key[0] in ids]
        self._wait(waiting, done)

    def _wait(self, keys: list[tuple[LogId, bytes]], done: Done) -> None:
        pending = [key for key in keys if key in self._deleting]
        if pending:
            self._deleting[pending[0]].append(lambda failure: self._wait(pending, done))
        else:
            self._store.loop.call_soon(Contained(done), None)

    def save_start_offsets(self, offsets: dict[tuple[str, int], int], done: Done) -> None:
        waiting = 1
        failures: list[Exception] = []

        def written(failure: Exception | None) -> None:
            nonlocal waiting
            waiting -= 1
            if failure is not None:
                failures.append(failure)
            if not waiting:
                done(failures[0] if failures else None)

        for (name, partition), offset in offsets.items():
            owned = self._store.topic_log(LogId(name, partition))
            if isinstance(owned, StreamTopicLog) and offset > self.durable_starts.get((name, partition), 0):
                waiting += 1
                owned.write_state(written)
        written(None)

    def save_recovery_points(self, offsets: dict[tuple[str, int], int], done: Done) -> None:
        """Does nothing: acknowledged batches are replicated, so no log is verified after a crash."""
        done(None)


def _ignore(failure: Exception | None) -> None: ...


def _ignore_purge(result: EngineError | None) -> None: ...


def cleaned_in(state: TopicState) -> list[CleanedEntry]:
    return [CleanedEntry(part.seq, part.base) for part in state.segment_states if part.cleaned]
