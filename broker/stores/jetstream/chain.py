"""The writer of one log at one epoch: it appends entries in order, each with the stream sequence that it expects to get.

The chain counts the expected sequences itself and never reads them from JetStream (the engine), so a fenced writer cannot write again. An
append has one of three outcomes: the entry is in the log; the engine refuses it, because another epoch has claimed the log; or no reply
arrives. In the third case the chain sends the same bytes again until the node's lease ends or the stream is found to be gone: the engine stores
at most one copy at that sequence. If the engine then says that the sequence is taken, the id of the stored entry shows whether the entry is this
chain's. What no other writer explains, as a stream that ends before its last acknowledged entry, is left to a check of the stream (stream_check.py).

One entry is in flight at a time. The engine compares sequences and not entries: if two were in flight and another node's claim took the
sequence of the first, the engine would store the second after that claim. Batches appended in the meantime share the next entry.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from broker.logging.logs import log
from broker.runtime.contain import Contained, run_contained
from broker.stores.jetstream.engine import (
    STREAM_FULL,
    TOO_LARGE,
    WRONG_SEQUENCE,
    Engine,
    EngineError,
    StoredMessage,
    last_sequence_of,
    reply_of,
)
from broker.stores.jetstream.entry import DATA, HEADER, Entry, parse_entry
from broker.stores.jetstream.streams import Stream
from broker.stores.jetstream.wire import Message
from storage import AppendFailed, Fenced, Undecided

RESEND_SECONDS: Final = 1.0  # an entry without a reply is sent again after this time
PAUSE_SECONDS: Final = 0.1  # before an entry is sent again after a refusal
SHARED_BYTES_MAX: Final = 512 << 10  # size of an entry that several batches share
HEADERS_BYTES: Final = 512  # the most that an entry's headers use

Done = Callable[[int | AppendFailed], None]


class UnackedEntry:
    """One entry that the engine has not acknowledged."""

    __slots__ = ("began", "committed", "done", "entry", "payload", "payloads", "refused", "sent", "seq", "size")

    def __init__(self, seq: int, entry: Entry, payload: bytes | bytearray, began: float, done: Done) -> None:
        self.seq = seq  # the stream sequence that it is to get
        self.entry = entry
        self.payloads = [payload]  # one per append
        self.payload: bytes | bytearray = b""  # all payloads joined, set when the entry is first sent
        self.size = len(payload)
        self.began = began
        self.done = [done]  # one callback per append
        self.sent = 0  # number of copies sent
        self.committed = False
        self.refused = False  # its sequence is taken: by an earlier copy of this entry, or by an entry of another node

    def has_room(self, kind: str, size: int, size_max: int) -> bool:
        """Whether one more batch may share the entry."""
        return not self.sent and self.entry.kind == kind == DATA and self.size + size <= size_max

    def add(self, payload: bytes | bytearray, records: int, done: Done) -> None:
        self.payloads.append(payload)
        self.size += len(payload)
        self.entry = self.entry._replace(records=self.entry.records + records)
        self.done.append(done)

    def complete(self, state_seq: int) -> None:
        """Join the payloads before the entry is first sent; its bytes never change afterwards."""
        self.payload = self.payloads[0] if len(self.payloads) == 1 else b"".join(self.payloads)
        self.entry = self.entry._replace(state_seq=state_seq)


class Chain:
    """Appends of this node to one log. Once `failure` is set, the chain appends nothing more."""

    def __init__(
        self,
        engine: Engine,
        stream: Stream,
        claim: Entry,
        claim_seq: int,
        new_number: Callable[[], int],
        failed: Callable[[AppendFailed], None],
        suspect: Callable[[], None],
    ) -> None:
        """`failed` is called when the chain ends, `suspect` whenever the stream may be gone."""
        self.stream = stream
        self.epoch = claim.epoch
        self.failure: AppendFailed | None = None
        self.next_offset = claim.next_offset
        self.committed_offset = claim.next_offset
        self.committed_seq = claim_seq
        self.state_seq = claim.state_seq
        self.pending: deque[UnackedEntry] = deque()
        self._engine = engine
        self._connection = engine.connection
        self._loop = engine.connection.loop
        self._claim = claim
        self._tail = claim_seq  # sequence of the newest entry, committed or not
        self._new_number = new_number
        self._failed = failed
        self._suspect = suspect
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._sent_at = 0.0  # when the newest copy was sent
        self._resend_soon = False  # the timer sends the oldest entry again even if its newest copy is recent
        self._resolving = False

    @property
    def next_seq(self) -> int:
        """The stream sequence of the next append."""
        return self._tail + 1

    @property
    def unanswered(self) -> int:
        """Number of appends without a reply."""
        return sum(len(pending.done) for pending in self.pending)

    @property
    def oldest_seconds(self) -> float:
        """The age of the oldest append without a reply."""
        return self._loop.time() - self.pending[0].began if self.pending else 0.0

    @property
    def payload_max(self) -> int:
        """The payload size that an entry may have."""
        return self._connection.payload_max - HEADERS_BYTES

    def append(self, payload: bytes | bytearray, records: int, done: Done, kind: str = DATA) -> None:
        """`done` is called with the sequence of the entry, in the order of the appends, or with the failure."""
        if self.failure is not None:
            done(self.failure)
            return
        if len(payload) > self.payload_max:
            done(AppendFailed(f"a batch of {len(payload)} bytes is larger than max_payload of the engine"))
            return
        if self.pending and self.pending[-1].has_room(kind, len(payload), min(SHARED_BYTES_MAX, self.payload_max)):
            self.pending[-1].add(payload, records, done)
            self.next_offset += records
            return
        claim = self._claim
        entry = Entry(kind, claim.epoch, claim.node, claim.incarnation, self._new_number(), self.next_offset, records, self.state_seq)
        self._tail += 1
        self.next_offset += records
        pending = UnackedEntry(self._tail, entry, payload, self._loop.time(), done)
        self.pending.append(pending)
        if len(self.pending) == 1:
            self._send(pending)
        if self._timer is None:
            self._resend_in(RESEND_SECONDS)

    def _send(self, pending: UnackedEntry) -> None:
        if pending.size > self.payload_max:  # this node is now connected to a server with a lower limit, which would close the connection each time
            self.fail(AppendFailed(f"an entry of {pending.size} bytes is larger than max_payload of the engine, which is lower than before"))
            return
        if not pending.sent:
            pending.complete(self.state_seq)
        pending.sent += 1
        self._sent_at = self._loop.time()
        self._connection.append(self.stream.subject, pending.payload, pending.entry.headers(pending.seq - 1), partial(self._handle_reply, pending))

    def _resend_in(self, seconds: float) -> None:
        at = self._loop.time() + seconds
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_later(seconds, Contained(self._check_answers, self._check_again))

    def _check_again(self) -> None:
        """After a defect in `_check_answers`: without a timer the entry would never be sent again."""
        if self._timer is None:
            self._resend_in(RESEND_SECONDS)

    def _check_answers(self) -> None:
        self._timer = None
        if self.failure is not None or not self.pending:
            return
        waited = self._loop.time() - self._sent_at
        if waited < RESEND_SECONDS and not self._resend_soon:
            self._resend_in(RESEND_SECONDS - waited)
        else:
            self.resend()

    def _resend_after_pause(self) -> None:
        """Send the oldest entry again after a pause."""
        self._resend_soon = True
        self._resend_in(PAUSE_SECONDS)

    def resend(self) -> None:
        """Send the oldest entry without a reply again; JetStream refuses it if it has stored an earlier copy."""
        self._resend_soon = False
        if self.failure is not None or not self.pending:
            return
        self._send(self.pending[0])
        self._resend_in(RESEND_SECONDS)

    # Replies.

    def _handle_reply(self, pending: UnackedEntry, message: Message | None) -> None:
        if pending.committed or self.failure is not None:
            return
        reply = reply_of(message)
        if not isinstance(reply, EngineError):
            if reply.get("seq") == pending.seq:
                self._commit(pending)
            else:
                self.fail(Fenced(f"the engine stored entry {pending.seq} as {reply.get('seq')}: its stream was created anew"))
        elif reply.code in WRONG_SEQUENCE:
            self._handle_refusal(pending, last_sequence_of(reply))
        elif reply.code in TOO_LARGE or reply.code == STREAM_FULL:
            self.fail(AppendFailed(f"the engine refuses: {reply.text}"))
        else:
            if message is not None:
                self._resend_after_pause()
            if message is not None and message.status:  # nobody receives the append: there is no stream, or no leader of it
                run_contained(self._suspect)
            if reply.code:
                log.warning("the engine could not append; the append is sent again", log=self.stream.log, reason=reply.text)

    def _handle_refusal(self, pending: UnackedEntry, last_seq: int) -> None:
        if 0 <= last_seq < pending.seq - 1:  # only a stream that has lost acknowledged entries, or a leader that has not applied them yet, says that
            self._resend_after_pause()
            run_contained(self._suspect)
        elif pending.sent == 1:
            self.fail(Fenced("another node has claimed the log"))
        else:
            pending.refused = True
            self._resolve()

    def _resolve(self) -> None:
        """Read which entry has the sequence of the oldest append without a reply."""
        if self._resolving or self.failure is not None or not self.pending or not self.pending[0].refused:
            return
        self._resolving = True
        oldest = self.pending[0]
        self._engine.get(self.stream.name, oldest.seq, Contained(partial(self._compare_stored, oldest), self._resolve_failed))

    def _compare_stored(self, pending: UnackedEntry, stored: StoredMessage | EngineError) -> None:
        """Compare the entry stored at this sequence with the append, which was sent more than once."""
        self._resolving = False
        if pending.committed or self.failure is not None:
            return
        if isinstance(stored, EngineError):  # the replica does not have the entry yet, or the entry was removed
            self._resend_after_pause()
            run_contained(self._suspect)
            return
        try:
            same = parse_entry(stored.headers.get(HEADER, "")).id == pending.entry.id
        except ValueError:
            same = False
        if same:
            self._commit(pending)
            self._resolve()
        else:
            self.fail(Fenced("another node has claimed the log"))

    def _resolve_failed(self) -> None:
        self._resolving = False
        self._resend_after_pause()

    def _commit(self, pending: UnackedEntry) -> None:
        pending.committed = True
        while self.pending and self.pending[0].committed:
            first = self.pending.popleft()
            self.committed_seq = first.seq
            self.committed_offset = first.entry.next_offset
            for done in first.done:
                run_contained(done, first.seq)
            if self.failure is not None:
                return
        if self.pending and not self.pending[0].sent:
            self._send(self.pending[0])

    def fail(self, failure: AppendFailed) -> None:
        """End the chain: nothing more is appended. Appends without a reply may be in the log."""
        if self.failure is not None:
            return
        self.failure = failure
        unanswered, self.pending = list(self.pending), deque()
        for pending in unanswered:
            outcome = failure if isinstance(failure, Fenced) and pending.sent <= 1 else Undecided(str(failure))
            for done in pending.done:
                run_contained(done, outcome)
        run_contained(self._failed, failure)
