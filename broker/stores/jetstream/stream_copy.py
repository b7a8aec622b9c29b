"""A log's stream that is written as a copy, before any node has begun on the cluster.

Each entry follows from what is copied and from its place alone, so an import that was killed is repeated, and gives the same stream:
what is there already is passed over. Many entries are under way at the same time. A second import of the same export would write the
same entries; of another one there is none (Visitor.begin_import), and an entry of another hand at the end of the stream is refused.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from broker.runtime.contain import Contained
from broker.stores.jetstream.engine import STREAM_FULL, TOO_LARGE, Refused, reply_of
from broker.stores.jetstream.entry import DATA, RELEASE, STATE, Entry
from broker.stores.jetstream.place import Place
from broker.stores.jetstream.topic_state import Part, TopicState, encode_state
from broker.stores.jetstream.visitor import PATIENCE_SECONDS, PAUSE_SECONDS, StoreProblem, Visitor
from broker.stores.jetstream.wire import Message
from protocol.batch import NO_TIMESTAMP, BatchHeader, assemble, read_header
from storage.index import RELATIVE_OFFSET_MAX
from storage.log_copy import LogState

WINDOW_ENTRIES: Final = 128  # without an answer
WINDOW_BYTES: Final = 4 << 20
ANSWER_SECONDS: Final = 5.0
HEADER_BYTES_MAX: Final = 512  # of an entry
NO_NODE: Final = 0


class _Sent:
    """An entry without an answer."""

    __slots__ = ("entry", "flying", "payload", "stored")

    def __init__(self, entry: Entry, payload: bytes) -> None:
        self.entry = entry
        self.payload = payload
        self.flying = False
        self.stored = False


class StreamCopy:
    def __init__(self, visitor: Visitor, place: Place, import_id: str, settings: Mapping[str, Any]) -> None:
        """`settings`: of the stream."""
        self.epoch = 0  # of the newest entry
        self.segment_base = -1  # of the newest batch
        self._visitor = visitor
        self._connection = visitor.connection
        self._place = place
        self._import_id = import_id
        self._settings = settings
        self._seq = 0  # of the newest entry
        self._there = 0  # entries that were there before
        self._next_offset = -1
        self._parts: list[Part] = []
        self._pending: deque[_Sent] = deque()
        self._bytes = 0
        self._trouble = ""
        self._answered = asyncio.Event()

    async def open(self, first_offset: int) -> None:
        """Make the stream, or find out how far it is written. The log begins at the offset."""
        self._next_offset = first_offset
        await self._visitor.make_stream(self._place, self._settings)
        self._there = await self._stored()

    async def _stored(self) -> int:
        """The sequence of the last entry; raises StoreProblem if this import has not written it."""
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            state = await self._visitor.stream_state(self._place)
            last = await self._visitor.entry_at(self._place, state.last_seq) if state.last_seq else None
            if not state.last_seq or (last is not None and last.id == (self._import_id, state.last_seq)):
                return state.last_seq
            if last is not None or time.monotonic() > until:
                raise StoreProblem(f"stream {self._place.stream} was written by something else than this import")
            await asyncio.sleep(PAUSE_SECONDS)

    # Entries.

    async def append(self, segment_base: int, header: BatchHeader, batch: bytes) -> None:
        """The entry takes the offsets before the batch too, if there are none of other batches: a compaction has left a gap."""
        self.epoch = max(self.epoch, header.leader_epoch)
        if segment_base != self.segment_base:
            self.segment_base = segment_base
            self._parts.append(Part(self._seq + 1, self._next_offset))
        part = self._parts[-1]
        part.bytes += header.size
        part.max_timestamp = max(part.max_timestamp, header.max_timestamp)
        await self._put(DATA, batch, header.next_offset - self._next_offset, 0)

    async def finish(self, state: LogState, topic: bool) -> int:
        """Every batch is there: write what the log is besides; the sequence of the last entry."""
        if self._next_offset < state.next_offset and state.start_offset < state.next_offset:
            await self._pass_offsets(state.next_offset)
        self.epoch = max(self.epoch, state.epoch)
        missing = max(state.next_offset - self._next_offset, 0)
        state_seq = 0
        if topic:
            known = TopicState(self._seq, state.start_offset, state.next_offset, state.epochs_of_records, self._parts or [Part(1, self._next_offset)])
            state_seq = self._seq + 1
            await self._put(STATE, encode_state(known, state.producers), missing, 0)
            missing = 0
        await self._put(RELEASE, b"", missing, state_seq)
        await self._wait(0, 0)
        if await self._stored() != self._seq:
            raise StoreProblem(f"stream {self._place.stream} has entries behind those of this import")
        return self._seq

    async def _pass_offsets(self, end: int) -> None:
        """Batches without records, which lead readers past the offsets of what is not there; a compaction leaves such ones too."""
        while self._next_offset < end:
            base = self._next_offset
            delta = min(end - base, RELATIVE_OFFSET_MAX) - 1
            batch = assemble(b"", 0, 0, (delta, NO_TIMESTAMP, NO_TIMESTAMP), (-1, -1, -1), base, self.epoch)
            await self.append(max(self.segment_base, 0), read_header(batch, 0), batch)

    async def _put(self, kind: str, payload: bytes, records: int, state_seq: int) -> None:
        self._seq += 1
        if len(payload) + HEADER_BYTES_MAX > self._connection.payload_max:
            raise StoreProblem(f"{self._place.name}: {len(payload)} bytes at offset {self._next_offset} are more than max_payload of the engine")
        entry = Entry(kind, self.epoch, NO_NODE, self._import_id, self._seq, self._next_offset, records, state_seq)
        self._next_offset += records
        if self._seq <= self._there:
            return
        sent = _Sent(entry, payload)
        self._pending.append(sent)
        self._bytes += len(payload)
        self._send(sent)
        await self._wait(WINDOW_ENTRIES, WINDOW_BYTES)

    # Answers.

    def _send(self, sent: _Sent) -> None:
        sent.flying = True
        answered = Contained(partial(self._hear, sent))
        self._connection.request(self._place.subject, sent.payload, answered, sent.entry.headers(sent.entry.number - 1), ANSWER_SECONDS)

    def _hear(self, sent: _Sent, message: Message | None) -> None:
        sent.flying = False
        reply = reply_of(message)
        if not isinstance(reply, Refused) and reply.get("seq") == sent.entry.number:
            sent.stored = True
        else:
            self._trouble = reply.text if isinstance(reply, Refused) else f"entry {sent.entry.number} was stored as {reply.get('seq')}"
            if isinstance(reply, Refused) and (reply.code in TOO_LARGE or reply.code == STREAM_FULL):
                self._trouble = f"the engine refuses: {reply.text}"
        while self._pending and self._pending[0].stored:
            self._bytes -= len(self._pending.popleft().payload)
        self._answered.set()

    async def _wait(self, entries: int, size: int) -> None:
        """Until so much at most is without an answer."""
        until = time.monotonic() + PATIENCE_SECONDS
        while len(self._pending) > entries or self._bytes > size:
            if self._trouble and not any(sent.flying for sent in self._pending):
                if time.monotonic() > until:
                    raise StoreProblem(f"stream {self._place.stream}: {self._trouble}")
                await self._send_again()
            else:
                self._answered.clear()
                await self._answered.wait()

    async def _send_again(self) -> None:
        """Some were not stored, or their answers were lost."""
        await asyncio.sleep(PAUSE_SECONDS)
        there = await self._stored()
        while self._pending and self._pending[0].entry.number <= there:
            self._bytes -= len(self._pending.popleft().payload)
        self._trouble = ""
        for sent in self._pending:
            sent.stored = False
            self._send(sent)
