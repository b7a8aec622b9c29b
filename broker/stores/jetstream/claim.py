"""Take a log over: append a `claim` entry right after the last entry of its stream. Once it is acknowledged, every older writer is
fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from broker.runtime.contain import Contained
from broker.stores.jetstream.engine import STREAM_NOT_FOUND, WRONG_SEQUENCE, Engine, Refused, Stored, StreamState, reply_of
from broker.stores.jetstream.entry import CLAIM, HEADER, RELEASE, STATE, Entry, parse_entry
from broker.stores.jetstream.meta import Meta, Owner
from broker.stores.jetstream.place import Place
from broker.stores.jetstream.reading import damaged
from broker.stores.jetstream.wire import NOT_FOUND, Message
from storage import HeldBy, Unreadable

CLAIM_SECONDS: Final = 12.0  # longer than an election of the engine
AGAIN_SECONDS: Final = 0.1


class Claimed(NamedTuple):
    entry: Entry
    seq: int
    first_seq: int  # of the stream
    first_offset: int  # of its first entry
    bytes: int  # of the stream
    created: str


class Claim:
    """One attempt. `done` is called once."""

    def __init__(
        self,
        engine: Engine,
        meta: Meta,
        place: Place,
        known: Owner | None,
        node: int,
        incarnation: str,
        new_number: Callable[[], int],
        replicas: int,
        stream: Mapping[str, Any],
        done: Callable[[Claimed | HeldBy | Unreadable], None],
    ) -> None:
        """`known`: what its last owner has told; `stream`: settings of the stream, if it has to be made."""
        self._engine = engine
        self._meta = meta
        self._place = place
        self._known = known
        self._node = node
        self._incarnation = incarnation
        self._new_number = new_number
        self._replicas = replicas
        self._settings = stream
        self._done = done
        self._loop = engine.connection.loop
        self._until = self._loop.time() + CLAIM_SECONDS
        self._sent: set[tuple[str, int]] = set()  # ids of claims that may be in the stream
        self._proved = -1  # sequence of the last entry whose writer is no live node
        self._ended = False

    def begin(self) -> None:
        self._engine.info(self._place.stream, self._step(self._informed))

    def _step(self, step: Callable[..., object]) -> Contained:
        return Contained(step, partial(self._end, Unreadable("a defect in this version", False)))

    def _end(self, result: Claimed | HeldBy | Unreadable) -> None:
        if not self._ended:
            self._ended = True
            self._done(result)

    def _again(self, reason: str) -> None:
        self._later(reason, self.begin)

    def _later(self, reason: str, step: Callable[[], None]) -> None:
        if self._meta.lease_lost or self._loop.time() > self._until:
            self._end(Unreadable(f"stream {self._place.stream}: {reason}", False))
        else:
            self._loop.call_later(AGAIN_SECONDS, self._step(step))

    def _damaged(self, seq: int, reason: str) -> None:
        self._end(Unreadable(str(damaged(self._place, seq, reason)), True))

    def _informed(self, state: StreamState | Refused) -> None:
        known = self._known
        if isinstance(state, Refused):
            if state.code != STREAM_NOT_FOUND:
                self._again(state.text)
            elif known is not None:
                self._damaged(known.seq, "it is not there any more")
            else:
                self._engine.create(self._place.stream, self._place.subject, self._replicas, dict(self._settings), self._step(self._created))
        elif known is not None and known.created != state.created:
            self._damaged(known.seq, f"it was made anew at {state.created}")
        elif known is not None and known.seq > state.last_seq:
            self._damaged(known.seq, f"it ends at {state.last_seq}, although its owner had more")
        elif not state.last_seq:
            self._claim(state, None)
        elif not state.messages:
            self._damaged(state.last_seq, "it is empty")
        else:
            self._engine.get(self._place.stream, state.last_seq, self._step(partial(self._looked, state)))

    def _created(self, result: Refused | None) -> None:
        self._until = self._loop.time() + CLAIM_SECONDS  # others may have been made before
        if result is None:
            self.begin()
        else:
            self._again(f"cannot be made: {result.text}")

    def _looked(self, state: StreamState, found: Stored | Refused) -> None:
        """The last entry says who owns the log."""
        if isinstance(found, Refused):
            self._again("the last entry is not there yet" if found.code == NOT_FOUND else found.text)
            return
        try:
            last = parse_entry(found.headers.get(HEADER, ""))
        except ValueError:
            self._damaged(found.seq, "the last entry is not understood")
            return
        if last.id in self._sent:  # the claim of before, whose answer was lost
            self._find_start(last, found.seq)
            return
        mine = last.node == self._node and last.incarnation == self._incarnation
        if last.kind == RELEASE or mine:
            self._claim(state, last)
        elif self._meta.when_former_ended(last.node, last.incarnation, self._step(self._former_ended)):
            pass
        elif self._meta.view.is_live(last.node, last.incarnation):
            self._end(HeldBy(f"node {last.node}"))
        elif self._proved != found.seq:  # it may still be alive: this node may have read the meta stream from a lagging replica
            self._proved = found.seq
            self._meta.when_proved(self._step(self.begin))
        else:
            self._claim(state, last)

    def _former_ended(self) -> None:
        self._until = self._loop.time() + CLAIM_SECONDS
        self.begin()

    def _claim(self, state: StreamState, last: Entry | None) -> None:
        epoch = offset = state_seq = 0
        if last is not None:
            epoch, offset = last.epoch + 1, last.next_offset
            state_seq = state.last_seq if last.kind == STATE else last.state_seq
        entry = Entry(CLAIM, epoch, self._node, self._incarnation, self._new_number(), offset, 0, state_seq)
        self._sent.add(entry.id)
        answered = self._step(partial(self._answered, state, entry))
        self._engine.connection.request(self._place.subject, b"", answered, entry.headers(state.last_seq))

    def _answered(self, state: StreamState, entry: Entry, message: Message | None) -> None:
        reply = reply_of(message)
        if not isinstance(reply, Refused):
            self._find_start(entry, int(reply.get("seq", 0)))
        elif reply.code in WRONG_SEQUENCE:
            self.begin()
        else:
            self._again(reply.text)

    # The log is this node's; where does it begin?

    def _find_start(self, entry: Entry, seq: int) -> None:
        self._engine.info(self._place.stream, self._step(partial(self._start_informed, entry, seq)))

    def _start_informed(self, entry: Entry, seq: int, state: StreamState | Refused) -> None:
        if isinstance(state, Refused):
            self._later(state.text, partial(self._find_start, entry, seq))
        else:
            self._engine.get(self._place.stream, state.first_seq, self._step(partial(self._start_found, entry, seq, state)))

    def _start_found(self, entry: Entry, seq: int, state: StreamState, found: Stored | Refused) -> None:
        if isinstance(found, Refused):
            self._later("its first entry is not there", partial(self._find_start, entry, seq))
            return
        try:
            first = parse_entry(found.headers.get(HEADER, ""))
        except ValueError:
            self._damaged(found.seq, "the first entry is not understood")
            return
        self._end(Claimed(entry, seq, state.first_seq, first.base_offset, state.bytes, state.created))
