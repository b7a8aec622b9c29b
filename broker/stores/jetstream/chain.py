"""The writer of one log at one epoch: it appends entries in order, each with the stream sequence that it expects to get.

The expected sequence of an append comes from this chain alone and is never read from the engine, so a writer that was fenced cannot
write again. An append has one of three outcomes: it is in the log; it is refused, because another epoch has claimed the log; or no answer
comes. Then the same bytes are sent again, as long as the node's lease lasts: at most one copy can take the place. If the place is taken
when they are sent again, the entry there says whose it is.

One entry is under way at a time. The engine compares sequences and not entries: of several under way, the second would take the place
behind a claim that took the place of the first. Batches that are appended meanwhile share the next entry.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from broker.logging.logs import log
from broker.runtime.contain import Contained, run
from broker.stores.jetstream.engine import STREAM_FULL, TOO_LARGE, WRONG_SEQUENCE, Engine, Refused, Stored, last_sequence_of, reply_of
from broker.stores.jetstream.entry import DATA, HEADER, Entry, parse_entry
from broker.stores.jetstream.place import Place
from broker.stores.jetstream.wire import Message
from storage import AppendFailed, Fenced, Undecided

RESEND_SECONDS: Final = 1.0  # without an answer to the oldest append until all are sent again
PAUSE_SECONDS: Final = 0.1  # after an answer that says to try again
SHARED_BYTES_MAX: Final = 512 << 10  # of an entry with several batches
HEADERS_BYTES: Final = 512  # at most, of an entry's headers

Done = Callable[[int | AppendFailed], None]


class Pending:
    """One entry without an answer."""

    __slots__ = ("began", "committed", "done", "entry", "payload", "payloads", "refused", "sent", "seq", "size")

    def __init__(self, seq: int, entry: Entry, payload: bytes | bytearray, began: float, done: Done) -> None:
        self.seq = seq  # of its place
        self.entry = entry
        self.payloads = [payload]  # of one append each
        self.payload: bytes | bytearray = b""  # all of them, once it was sent
        self.size = len(payload)
        self.began = began
        self.done = [done]  # of each append
        self.sent = 0  # how many copies
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
        """It is about to be sent: from now on its bytes never change."""
        self.payload = self.payloads[0] if len(self.payloads) == 1 else b"".join(self.payloads)
        self.entry = self.entry._replace(state_seq=state_seq)


class Chain:
    """Appends of this node to one log. `failure` is set once and for all."""

    def __init__(
        self, engine: Engine, place: Place, claim: Entry, claim_seq: int, new_number: Callable[[], int], failed: Callable[[AppendFailed], None]
    ) -> None:
        """`failed` hears of the end of the chain."""
        self.place = place
        self.epoch = claim.epoch
        self.failure: AppendFailed | None = None
        self.next_offset = claim.next_offset  # of the next record
        self.committed_offset = claim.next_offset
        self.committed_seq = claim_seq
        self.state_seq = claim.state_seq
        self.pending: deque[Pending] = deque()
        self._engine = engine
        self._connection = engine.connection
        self._loop = engine.connection.loop
        self._claim = claim
        self._tail = claim_seq  # sequence of the newest entry, committed or not
        self._new_number = new_number
        self._failed = failed
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._sent_at = 0.0  # when the newest copy was sent
        self._again = False  # an answer said that all has to be sent again
        self._resolving = False

    @property
    def next_seq(self) -> int:
        """Of the next append."""
        return self._tail + 1

    @property
    def unanswered(self) -> int:
        """Appends without an answer."""
        return sum(len(one.done) for one in self.pending)

    @property
    def oldest_seconds(self) -> float:
        """The age of the oldest append without an answer."""
        return self._loop.time() - self.pending[0].began if self.pending else 0.0

    @property
    def payload_max(self) -> int:
        """Bytes of the largest entry."""
        return self._connection.payload_max - HEADERS_BYTES

    def append(self, payload: bytes | bytearray, records: int, done: Done, kind: str = DATA) -> None:
        """`done` hears the sequence of the entry, in the order of the calls."""
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
        pending = Pending(self._tail, entry, payload, self._loop.time(), done)
        self.pending.append(pending)
        if len(self.pending) == 1:
            self._send(pending)
        if self._timer is None:
            self._resend_in(RESEND_SECONDS)

    def _send(self, pending: Pending) -> None:
        if not pending.sent:
            pending.complete(self.state_seq)
        pending.sent += 1
        self._sent_at = self._loop.time()
        self._connection.append(self.place.subject, pending.payload, pending.entry.headers(pending.seq - 1), partial(self._answered, pending))

    def _resend_in(self, seconds: float) -> None:
        at = self._loop.time() + seconds
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_later(seconds, Contained(self._look))

    def _look(self) -> None:
        self._timer = None
        if self.failure is not None or not self.pending:
            return
        waited = self._loop.time() - self._sent_at
        if waited < RESEND_SECONDS and not self._again:
            self._resend_in(RESEND_SECONDS - waited)
        else:
            self.resend()

    def _retry(self) -> None:
        """Send all again soon: an answer has said so."""
        self._again = True
        self._resend_in(PAUSE_SECONDS)

    def resend(self) -> None:
        """Send the oldest append without an answer again; JetStream rejects it if it already has it."""
        self._again = False
        if self.failure is not None or not self.pending:
            return
        self._send(self.pending[0])
        self._resend_in(RESEND_SECONDS)

    # Answers.

    def _answered(self, pending: Pending, message: Message | None) -> None:
        if pending.committed or self.failure is not None:
            return
        reply = reply_of(message)
        if not isinstance(reply, Refused):
            if reply.get("seq") == pending.seq:
                self._commit(pending)
            else:
                self.fail(Fenced(f"the engine stored entry {pending.seq} as {reply.get('seq')}: its stream was made anew"))
        elif reply.code in WRONG_SEQUENCE:
            self._refused(pending, last_sequence_of(reply))
        elif reply.code in TOO_LARGE or reply.code == STREAM_FULL:
            self.fail(AppendFailed(f"the engine refuses: {reply.text}"))
        else:
            if message is not None:
                self._retry()
            if reply.code:
                log.warning("the engine could not append, which is tried again", log=self.place.name, reason=reply.text)

    def _refused(self, pending: Pending, last_seq: int) -> None:
        if 0 <= last_seq < pending.seq - 1:
            self._retry()  # one before it got lost on the way
        elif pending.sent == 1:
            self.fail(Fenced("another node has claimed the log"))
        else:
            pending.refused = True
            self._resolve()

    def _resolve(self) -> None:
        """Find out which entry has the sequence of the oldest append without an answer."""
        if self._resolving or self.failure is not None or not self.pending or not self.pending[0].refused:
            return
        self._resolving = True
        oldest = self.pending[0]
        self._engine.get(self.place.stream, oldest.seq, Contained(partial(self._found, oldest), self._resolved))

    def _found(self, pending: Pending, found: Stored | Refused) -> None:
        """What stands in the place of an append that was sent more than once."""
        self._resolving = False
        if pending.committed or self.failure is not None:
            return
        if isinstance(found, Refused):  # the replica lacks it yet
            self._retry()
            return
        try:
            same = parse_entry(found.headers.get(HEADER, "")).id == pending.entry.id
        except ValueError:
            same = False
        if same:
            self._commit(pending)
            self._resolve()
        else:
            self.fail(Fenced("another node has claimed the log"))

    def _resolved(self) -> None:
        self._resolving = False
        self._retry()

    def _commit(self, pending: Pending) -> None:
        pending.committed = True
        while self.pending and self.pending[0].committed:
            first = self.pending.popleft()
            self.committed_seq = first.seq
            self.committed_offset = first.entry.next_offset
            for done in first.done:
                run(done, first.seq)
            if self.failure is not None:
                return
        if self.pending and not self.pending[0].sent:
            self._send(self.pending[0])

    def fail(self, failure: AppendFailed) -> None:
        """Nothing more is written; appends without an answer may be in the log."""
        if self.failure is not None:
            return
        self.failure = failure
        pending, self.pending = list(self.pending), deque()
        for one in pending:
            outcome = failure if isinstance(failure, Fenced) and one.sent <= 1 else Undecided(str(failure))
            for done in one.done:
                run(done, outcome)
        run(self._failed, failure)
