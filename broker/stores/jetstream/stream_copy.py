"""Writes a copy of a log as a stream, before the first node of the cluster starts.

Each entry depends only on the copied log and on its sequence. A killed import can therefore be repeated: it skips the entries that are
stored and writes the same stream. Many entries are in flight at a time. Two concurrent imports of one export write the same entries;
StoreClient.begin_import excludes imports of other exports, and a last entry of any other writer is an error.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from broker.runtime.contain import Contained
from broker.stores.jetstream.engine import STREAM_FULL, TOO_LARGE, EngineError, reply_of
from broker.stores.jetstream.entry import DATA, RELEASE, STATE, Entry
from broker.stores.jetstream.store_client import ANSWER_SECONDS_MAX, PAUSE_SECONDS, StoreClient, StoreProblem
from broker.stores.jetstream.streams import Stream
from broker.stores.jetstream.topic_state import SegmentState, TopicState, encode_state
from broker.stores.jetstream.wire import Message
from protocol.batch import NO_TIMESTAMP, BatchHeader, assemble, read_header
from storage.index import RELATIVE_OFFSET_MAX
from storage.log_copy import LogState

WINDOW_ENTRIES: Final = 128  # entries without a reply
WINDOW_BYTES: Final = 4 << 20
ANSWER_SECONDS: Final = 5.0
HEADER_BYTES_MAX: Final = 512  # size of an entry's headers
NO_NODE: Final = 0


class _UnackedEntry:
    """An entry that the engine has not acknowledged."""

    __slots__ = ("entry", "in_flight", "payload", "stored")

    def __init__(self, entry: Entry, payload: bytes) -> None:
        self.entry = entry
        self.payload = payload
        self.in_flight = False
        self.stored = False


class StreamCopy:
    def __init__(self, store_client: StoreClient, stream: Stream, import_id: str, settings: Mapping[str, Any]) -> None:
        """`settings`: JetStream settings of the stream."""
        self.epoch = 0  # epoch of the newest entry
        self.segment_base = -1  # base offset of the newest batch's segment
        self._store_client = store_client
        self._connection = store_client.connection
        self._stream = stream
        self._import_id = import_id
        self._settings = settings
        self._seq = 0  # sequence of the newest entry
        self._stored_before = 0  # entries that an earlier attempt has stored
        self._next_offset = -1
        self._parts: list[SegmentState] = []
        self._pending: deque[_UnackedEntry] = deque()
        self._bytes = 0
        self._problem = ""
        self._reply_arrived = asyncio.Event()

    async def open(self, first_offset: int) -> None:
        """Create the stream, or read how many entries an earlier attempt has stored. The log begins at `first_offset`."""
        self._next_offset = first_offset
        await self._store_client.make_stream(self._stream, self._settings)
        self._stored_before = await self._last_stored_seq()

    async def _last_stored_seq(self) -> int:
        """The sequence of the last stored entry; raises StoreProblem if this import has not written it."""
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while True:
            state = await self._store_client.stream_state(self._stream)
            last = await self._store_client.entry_of(self._stream, state.last_seq) if state.last_seq else None
            if not state.last_seq or (last is not None and last.id == (self._import_id, state.last_seq)):
                return state.last_seq
            if last is not None or time.monotonic() > deadline:
                raise StoreProblem(f"stream {self._stream.name} was not written by this import")
            await asyncio.sleep(PAUSE_SECONDS)

    # Entries.

    async def append(self, segment_base: int, header: BatchHeader, batch: bytes) -> None:
        """Append one batch; its entry also covers a gap of offsets before the batch, which compaction has left."""
        self.epoch = max(self.epoch, header.leader_epoch)
        if segment_base != self.segment_base:
            self.segment_base = segment_base
            self._parts.append(SegmentState(self._seq + 1, self._next_offset))
        part = self._parts[-1]
        part.bytes += header.size
        part.max_timestamp = max(part.max_timestamp, header.max_timestamp)
        await self._put(DATA, batch, header.next_offset - self._next_offset, 0)

    async def finish(self, state: LogState, topic: bool) -> int:
        """After the last batch: append a `state` entry (only for a topic's log) and a `release` entry; returns the sequence of the last entry."""
        if self._next_offset < state.next_offset and state.start_offset < state.next_offset:
            await self._skip_offsets(state.next_offset)
        self.epoch = max(self.epoch, state.epoch)
        missing = max(state.next_offset - self._next_offset, 0)
        state_seq = 0
        if topic:
            known = TopicState(self._seq, state.start_offset, state.next_offset, state.epochs_of_records, self._parts or [SegmentState(1, self._next_offset)])
            state_seq = self._seq + 1
            await self._put(STATE, encode_state(known, state.producers), missing, 0)
            missing = 0
        await self._put(RELEASE, b"", missing, state_seq)
        await self._wait(0, 0)
        if await self._last_stored_seq() != self._seq:
            raise StoreProblem(f"stream {self._stream.name} has entries after those of this import")
        return self._seq

    async def _skip_offsets(self, end: int) -> None:
        """Append batches without records, so that readers pass the offsets up to `end`; compaction leaves such batches too."""
        while self._next_offset < end:
            base = self._next_offset
            delta = min(end - base, RELATIVE_OFFSET_MAX) - 1
            batch = assemble(b"", 0, 0, (delta, NO_TIMESTAMP, NO_TIMESTAMP), (-1, -1, -1), base, self.epoch)
            await self.append(max(self.segment_base, 0), read_header(batch, 0), batch)

    async def _put(self, kind: str, payload: bytes, records: int, state_seq: int) -> None:
        self._seq += 1
        if len(payload) + HEADER_BYTES_MAX > self._connection.payload_max:
            raise StoreProblem(f"{self._stream.log}: {len(payload)} bytes at offset {self._next_offset} exceed max_payload of the engine")
        entry = Entry(kind, self.epoch, NO_NODE, self._import_id, self._seq, self._next_offset, records, state_seq)
        self._next_offset += records
        if self._seq <= self._stored_before:
            return
        sent = _UnackedEntry(entry, payload)
        self._pending.append(sent)
        self._bytes += len(payload)
        self._send(sent)
        await self._wait(WINDOW_ENTRIES, WINDOW_BYTES)

    # Replies.

    def _send(self, sent: _UnackedEntry) -> None:
        sent.in_flight = True
        handle_reply = Contained(partial(self._handle_reply, sent))
        self._connection.request(self._stream.subject, sent.payload, handle_reply, sent.entry.headers(sent.entry.number - 1), ANSWER_SECONDS)

    def _handle_reply(self, sent: _UnackedEntry, message: Message | None) -> None:
        sent.in_flight = False
        reply = reply_of(message)
        if not isinstance(reply, EngineError) and reply.get("seq") == sent.entry.number:
            sent.stored = True
        else:
            self._problem = reply.text if isinstance(reply, EngineError) else f"entry {sent.entry.number} was stored as {reply.get('seq')}"
            if isinstance(reply, EngineError) and (reply.code in TOO_LARGE or reply.code == STREAM_FULL):
                self._problem = f"the engine refuses: {reply.text}"
        while self._pending and self._pending[0].stored:
            self._bytes -= len(self._pending.popleft().payload)
        self._reply_arrived.set()

    async def _wait(self, entries: int, size: int) -> None:
        """Wait until at most `entries` entries, of at most `size` bytes in all, lack a reply."""
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while len(self._pending) > entries or self._bytes > size:
            if self._problem and not any(sent.in_flight for sent in self._pending):
                if time.monotonic() > deadline:
                    raise StoreProblem(f"stream {self._stream.name}: {self._problem}")
                await self._resend_missing()
            else:
                self._reply_arrived.clear()
                await self._reply_arrived.wait()

    async def _resend_missing(self) -> None:
        """Send the entries again that were not stored or whose replies were lost."""
        await asyncio.sleep(PAUSE_SECONDS)
        last_seq = await self._last_stored_seq()
        while self._pending and self._pending[0].entry.number <= last_seq:
            self._bytes -= len(self._pending.popleft().payload)
        self._problem = ""
        for sent in self._pending:
            sent.stored = False
            self._send(sent)
