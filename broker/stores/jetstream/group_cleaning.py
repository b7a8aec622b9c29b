"""Compact the logs of groups and of the registry: append the newest record of each key again, then delete the old entries.

After a `live-begin` entry, every live record is appended again, between the shard's own appends; a `live-end` entry follows, and the
engine (JetStream) deletes everything before `live-begin`. Replay ignores both entries: it keeps the last record of each key. A key that
the shard has written since `live-begin` is not copied, so that a copy never replaces a newer record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Final

from broker.internal_topics import CONSUMER_OFFSETS, REGISTRY_LOG
from broker.logging.logs import log
from broker.runtime.contain import Contained
from broker.stores.jetstream.engine import Engine, EngineError
from broker.stores.jetstream.entry import LIVE_BEGIN, LIVE_END
from broker.stores.jetstream.logs import GroupLog, StreamLog
from broker.stores.jetstream.reading import facts_in
from protocol.batch import CorruptBatch, Fact, build_facts, facts_of
from storage import NOT_YET, AppendFailed, DamagedLog

CHECK_SECONDS: Final = 1.0
# Smaller logs are not compacted. An offsets log of this size replays in tenths of a second. The registry has a lower limit, since each
# node keeps all of it in memory.
BYTES_MIN: Final = {CONSUMER_OFFSETS: 16 << 20, REGISTRY_LOG: 1 << 20}
SLICE_SECONDS: Final = 0.004
REMOTE_READ_RETRY_SECONDS: Final = 0.002
COPY_RECORDS: Final = 1_000
COPY_BYTES: Final = 128 << 10
RETRY_SECONDS: Final = 60.0  # after a pass that failed


class GroupLogPass:
    """One compaction of one log."""

    def __init__(
        self, engine: Engine, owned: GroupLog, wall_ms: Callable[[], int], monotonic: Callable[[], float], done: Callable[[bool], None]
    ) -> None:
        self._engine = engine
        self._owned = owned
        self._chain = owned.chain
        self._wall_ms = wall_ms
        self._monotonic = monotonic
        self._done = done
        self._loop = engine.connection.loop
        self._begin_seq = 0
        self._begin_offset = 0
        self._bytes_before = 0
        self._live: dict[bytes, bytes] = {}
        self._remaining: Iterator[tuple[bytes, bytes]] = iter(())
        self._steps: Iterator[list[Fact]] = iter(())
        self._written: set[bytes] = set()  # keys written since `live-begin`
        self._ended = False
        self.copied = 0

    def begin(self) -> None:
        self._owned.on_append = Contained(self._note_written, partial(self._end, "a defect in this version"))
        self._begin_offset = self._chain.next_offset
        self._bytes_before = self._owned.bytes
        self._chain.append(b"", 0, self._start_reading, LIVE_BEGIN)

    def _note_written(self, batch: bytearray) -> None:
        """Note the keys of a batch that the shard appends after `live-begin`. If that fails, nothing more is copied: a copy might undo the batch."""
        try:
            for key, _ in facts_of(bytes(batch)):
                self._written.add(key)
        except CorruptBatch as error:
            self._end(str(error))

    def _start_reading(self, result: int | AppendFailed) -> None:
        if self._ended or isinstance(result, AppendFailed):
            self._end(str(result))
            return
        self._begin_seq = result
        self._steps = facts_in(self._engine, self._owned.stream, self._owned.first_seq, result, lambda entry: None)
        self._read()

    def _run_later(self, seconds: float, step: Callable[[], None]) -> None:
        self._loop.call_later(seconds, Contained(step, partial(self._end, "a defect in this version")))

    def _read(self) -> None:
        """Collect the newest record of each key up to `live-begin`, for one time slice."""
        if self._ended:
            return
        until = self._monotonic() + SLICE_SECONDS
        live = self._live
        try:
            while self._monotonic() < until:
                facts = next(self._steps)
                if facts is NOT_YET:
                    self._run_later(REMOTE_READ_RETRY_SECONDS, self._read)
                    return
                for key, value in facts:
                    if value is None:
                        live.pop(key, None)
                    else:
                        live[key] = value
        except StopIteration:
            self._remaining = iter(live.items())
            self._copy()
            return
        except (OSError, DamagedLog, CorruptBatch) as error:
            self._end(str(error))
            return
        self._run_later(0.0, self._read)

    def _copy(self) -> None:
        """Append the next live records, except keys that were written since `live-begin`."""
        if self._ended or self._chain.failure is not None:
            self._end(str(self._chain.failure))
            return
        written = self._written
        facts: list[Fact] = []
        examined = size = 0
        for key, value in self._remaining:
            examined += 1
            if key not in written:
                facts.append((key, value))
                size += len(key) + len(value or b"")
            if examined == COPY_RECORDS or size >= COPY_BYTES:
                break
        if facts:
            self.copied += len(facts)
            self._owned.append_copy(bytearray(build_facts(facts, self._wall_ms())), self._copy_written)
        elif examined:
            self._run_later(0.0, self._copy)
        else:
            self._chain.append(b"", 0, self._delete_old_entries, LIVE_END)

    def _copy_written(self, result: int | AppendFailed) -> None:
        if isinstance(result, AppendFailed):
            self._end(str(result))
        else:
            self._run_later(0.0, self._copy)

    def _delete_old_entries(self, result: int | AppendFailed) -> None:
        if self._ended:
            return  # a batch that was appended before `live-end` could not be read
        if isinstance(result, AppendFailed):
            self._end(str(result))
        else:
            self._owned.note_needed(self._begin_seq)
            self._engine.purge(self._owned.stream.name, self._begin_seq, self._cut)

    def _cut(self, result: EngineError | None) -> None:
        if result is None and self._chain is self._owned.chain:
            self._owned.note_deleted(self._begin_offset, self._begin_seq, self._bytes_before)
        self._end(result.text if result is not None else "")

    def _end(self, problem: str) -> None:
        if self._ended:
            return
        self._ended = True
        self._owned.on_append = None
        if problem:
            log.warning("log could not be compacted", log=str(self._owned.id), reason=problem)
        else:
            log.info("log compacted", log=str(self._owned.id), records=self.copied)
        self._done(not problem)


class GroupLogCleaner:
    """Compacts the logs of groups and the registry of one store, one after the other."""

    def __init__(
        self,
        engine: Engine,
        logs: Callable[[], Collection[StreamLog]],
        wall_ms: Callable[[], int],
        monotonic: Callable[[], float],
        bytes_min: Mapping[str, int] = BYTES_MIN,
    ) -> None:
        self._engine = engine
        self._logs = logs
        self._wall_ms = wall_ms
        self._monotonic = monotonic
        self._bytes_min = bytes_min
        self._busy = False
        self._stopped = False
        self._not_before: dict[object, float] = {}
        self._clean_due_log()

    def _clean_due_log(self) -> None:
        if self._stopped:
            return
        self._engine.connection.loop.call_later(CHECK_SECONDS, Contained(self._clean_due_log))
        if self._busy:
            return
        now = self._monotonic()
        for owned in list(self._logs()):
            bytes_min = self._bytes_min.get(owned.id.name)
            if isinstance(owned, GroupLog) and bytes_min is not None and owned.usable():
                due = owned.bytes > max(bytes_min, 2 * owned.live_bytes)
                if due and self._not_before.get(owned.id, 0.0) <= now:
                    self.clean(owned)
                    return

    def clean(self, owned: GroupLog) -> None:
        self._busy = True
        GroupLogPass(self._engine, owned, self._wall_ms, self._monotonic, partial(self._pass_ended, owned)).begin()

    def _pass_ended(self, owned: GroupLog, cleaned: bool) -> None:
        self._busy = False
        if cleaned:
            self._not_before.pop(owned.id, None)
        else:
            self._not_before[owned.id] = self._monotonic() + RETRY_SECONDS

    def stop(self) -> None:
        self._stopped = True
