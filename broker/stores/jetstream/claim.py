"""Take a log over: append a `claim` entry right after the last entry of the log's stream. Once acknowledged, it fences every older writer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from broker.runtime.contain import Contained
from broker.stores.jetstream.engine import STREAM_NOT_FOUND, WRONG_SEQUENCE, Engine, EngineError, StoredMessage, StreamState, reply_of
from broker.stores.jetstream.entry import CLAIM, HEADER, RELEASE, STATE, Entry, parse_entry
from broker.stores.jetstream.meta import MetaStreamClient, Owner
from broker.stores.jetstream.reading import damaged
from broker.stores.jetstream.stream_check import GONE, loss_of
from broker.stores.jetstream.streams import Stream
from broker.stores.jetstream.wire import NOT_FOUND, Message
from storage import HeldBy, Unreadable

CLAIM_SECONDS: Final = 12.0  # longer than an election of the engine
RETRY_SECONDS: Final = 0.1


class Claimed(NamedTuple):
    entry: Entry
    seq: int
    first_seq: int  # first sequence in the stream
    first_offset: int  # first offset in the stream
    bytes: int  # size of the stream
    created: str  # when the stream was created
    lease: int  # number of the lease under which the log was claimed (`MetaStreamClient.has_lease`)


class Claim:
    """One attempt to take over one log. `done` is called once."""

    def __init__(
        self,
        engine: Engine,
        meta: MetaStreamClient,
        stream: Stream,
        last_owner: Owner | None,
        node: int,
        incarnation: str,
        new_number: Callable[[], int],
        replicas: int,
        stream_settings: Mapping[str, Any],
        done: Callable[[Claimed | HeldBy | Unreadable], None],
    ) -> None:
        """`last_owner`: the owner that the meta stream records; `stream_settings`: for a stream that does not exist yet."""
        self._engine = engine
        self._meta = meta
        self._stream = stream
        self._last_owner = last_owner
        self._node = node
        self._incarnation = incarnation
        self._new_number = new_number
        self._replicas = replicas
        self._settings = stream_settings
        self._done = done
        self._loop = engine.connection.loop
        self._deadline = self._loop.time() + CLAIM_SECONDS
        self._claims_sent: set[tuple[str, int]] = set()  # entry ids of this attempt's claims: any of them may be in the stream
        self._awaited_seq = -1  # sequence of the last entry for which an up-to-date read of the meta stream is awaited
        self._ended = False
        self._lease = meta.lease_number

    def begin(self) -> None:
        self._engine.info(self._stream.name, self._ending_on_defect(self._check_state))

    def _ending_on_defect(self, callback: Callable[..., object]) -> Contained:
        return Contained(callback, partial(self._end, Unreadable("a defect in this version", False)))

    def _end(self, result: Claimed | HeldBy | Unreadable) -> None:
        if not self._ended:
            self._ended = True
            self._done(result)

    def _restart_later(self, reason: str) -> None:
        self._retry_later(reason, self.begin)

    def _retry_later(self, reason: str, step: Callable[[], None]) -> None:
        if self._meta.lease_lost or self._loop.time() > self._deadline:
            self._end(Unreadable(f"stream {self._stream.name}: {reason}", False))
        else:
            self._loop.call_later(RETRY_SECONDS, self._ending_on_defect(step))

    def _damaged(self, seq: int, reason: str) -> None:
        self._end(Unreadable(str(damaged(self._stream, seq, reason)), True))

    def _check_state(self, state: StreamState | EngineError) -> None:
        last_owner = self._last_owner
        if isinstance(state, EngineError):
            if state.code != STREAM_NOT_FOUND:
                self._restart_later(state.text)
            elif last_owner is not None:
                self._damaged(last_owner.seq, GONE)
            else:
                self._engine.create(self._stream.name, self._stream.subject, self._replicas, dict(self._settings), self._ending_on_defect(self._handle_created))
        elif last_owner is not None and (loss := loss_of(last_owner, state)):
            self._damaged(last_owner.seq, loss.reason)
        elif not state.last_seq:
            self._claim(state, None)
        elif not state.messages:
            self._damaged(state.last_seq, "the stream is empty")
        else:
            self._engine.get(self._stream.name, state.last_seq, self._ending_on_defect(partial(self._check_last_entry, state)))

    def _handle_created(self, result: EngineError | None) -> None:
        self._deadline = self._loop.time() + CLAIM_SECONDS  # restarts the time limit: the stream may have waited for the creation of others
        if result is None:
            self.begin()
        else:
            self._restart_later(f"the stream cannot be created: {result.text}")

    def _check_last_entry(self, state: StreamState, message: StoredMessage | EngineError) -> None:
        """Decide by the stream's last entry whether this node may claim the log."""
        if isinstance(message, EngineError):
            self._restart_later("the replica does not have the last entry yet" if message.code == NOT_FOUND else message.text)
            return
        try:
            last = parse_entry(message.headers.get(HEADER, ""))
        except ValueError:
            self._damaged(message.seq, "the last entry cannot be parsed")
            return
        if last.id in self._claims_sent:  # an earlier claim of this attempt, whose reply was lost
            self._find_start(last, message.seq)
            return
        is_own = last.node == self._node and last.incarnation == self._incarnation
        if last.kind == RELEASE or is_own:
            self._claim(state, last)
        elif self._meta.when_former_process_ended(last.node, last.incarnation, self._ending_on_defect(self._former_process_ended)):
            pass
        elif self._meta.view.is_live(last.node, last.incarnation):
            self._end(HeldBy(f"node {last.node}"))
        elif self._awaited_seq != message.seq:  # the owner may be alive: this node may have read the meta stream from a lagging replica
            self._awaited_seq = message.seq
            self._meta.when_current(self._ending_on_defect(self.begin))
        else:
            self._claim(state, last)

    def _former_process_ended(self) -> None:
        self._deadline = self._loop.time() + CLAIM_SECONDS
        self.begin()

    def _claim(self, state: StreamState, last: Entry | None) -> None:
        epoch = offset = state_seq = 0
        if last is not None:
            epoch, offset = last.epoch + 1, last.next_offset
            state_seq = state.last_seq if last.kind == STATE else last.state_seq
        entry = Entry(CLAIM, epoch, self._node, self._incarnation, self._new_number(), offset, 0, state_seq)
        self._claims_sent.add(entry.id)
        replied = self._ending_on_defect(partial(self._handle_reply, state, entry))
        self._engine.connection.request(self._stream.subject, b"", replied, entry.headers(state.last_seq))

    def _handle_reply(self, state: StreamState, entry: Entry, message: Message | None) -> None:
        reply = reply_of(message)
        if not isinstance(reply, EngineError):
            self._find_start(entry, int(reply.get("seq", 0)))
        elif reply.code in WRONG_SEQUENCE:
            self.begin()
        else:
            self._restart_later(reply.text)

    # The log is this node's: read where it begins.

    def _find_start(self, entry: Entry, seq: int) -> None:
        self._engine.info(self._stream.name, self._ending_on_defect(partial(self._read_first_entry, entry, seq)))

    def _read_first_entry(self, entry: Entry, seq: int, state: StreamState | EngineError) -> None:
        if isinstance(state, EngineError):
            self._retry_later(state.text, partial(self._find_start, entry, seq))
        else:
            self._engine.get(self._stream.name, state.first_seq, self._ending_on_defect(partial(self._finish, entry, seq, state)))

    def _finish(self, entry: Entry, seq: int, state: StreamState, message: StoredMessage | EngineError) -> None:
        if isinstance(message, EngineError):
            self._retry_later("the replica does not have the first entry", partial(self._find_start, entry, seq))
            return
        try:
            first = parse_entry(message.headers.get(HEADER, ""))
        except ValueError:
            self._damaged(message.seq, "the first entry cannot be parsed")
            return
        self._end(Claimed(entry, seq, state.first_seq, first.base_offset, state.bytes, state.created, self._lease))
