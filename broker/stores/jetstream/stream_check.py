"""Notice that the stream of an owned log is gone: deleted, made anew, restored from an older backup, or purged; or that another node writes it.

The engine (JetStream) refuses an append only by comparing sequences, so a refusal alone does not say why. A stream that ends before the
last acknowledged entry can only have lost that entry; the state of the stream decides. The next owner applies the same rules to what the
last one has published (claim.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from broker.runtime.contain import Contained
from broker.stores.jetstream.engine import STREAM_NOT_FOUND, Engine, EngineError, StreamState
from broker.stores.jetstream.meta import Owner

CONFIRM_SECONDS: Final = 1.5  # a new leader of the stream may not have applied everything yet, so the same must be found again after this time
GONE: Final = "the stream does not exist any more"
ANEW: Final = "anew"  # the kind of loss that needs no second look


class Loss(NamedTuple):
    kind: str
    reason: str


def loss_of(owner: Owner, state: StreamState) -> Loss | None:
    """What the stream has lost of what its last owner has published."""
    if owner.created != state.created:
        return Loss(ANEW, f"the stream was created anew at {state.created}")
    if owner.seq > state.last_seq:
        return Loss("shorter", f"the stream ends at {state.last_seq}, although its owner had more")
    if state.last_seq and not state.messages:
        return Loss("removed", "the stream is empty")
    if 0 < owner.first < state.first_seq:
        return Loss("removed", f"entries {owner.first} to {state.first_seq - 1} were removed")
    return None


class StreamCheck:
    """The checks of one owned log's stream. `lost` is called once, with what was found."""

    def __init__(
        self,
        engine: Engine,
        stream_name: str,
        known: Callable[[], Owner | None],
        lost: Callable[[str], None],
        compare_end: Callable[[int], None] = lambda last_seq: None,
    ) -> None:
        """`known`: what the log has for certain; None when the log is no longer used. `compare_end` gets the last sequence of an intact stream."""
        self._engine = engine
        self._name = stream_name
        self._known = known
        self._lost = lost
        self._compare_end = compare_end
        self._loop = engine.connection.loop
        self._asked: Owner | None = None  # what the log had when the running check began; None: none is running
        self._suspected = ""  # what the last check found
        self._suspected_since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        known = self._known()
        if self._asked is None and self._timer is None and known is not None:
            self._asked = known
            self._engine.info(self._name, Contained(self._judge, self._end))

    def _end(self) -> None:
        self._asked = None

    def _judge(self, state: StreamState | EngineError) -> None:
        asked, self._asked = self._asked, None
        known = self._known()
        if known is None or asked is None:
            return
        if isinstance(state, EngineError):
            if state.code != STREAM_NOT_FOUND:
                return
            loss: Loss | None = Loss("gone", GONE)
        else:
            loss = loss_of(asked._replace(first=known.first), state)  # `first`, since the owner itself may have deleted entries meanwhile
            if loss is None:
                self._compare_end(state.last_seq)
        if loss is None:
            self._suspected = ""
        elif loss.kind == ANEW or (loss.kind == self._suspected and self._loop.time() >= self._suspected_since + CONFIRM_SECONDS):
            self._lost(loss.reason)
        else:
            if loss.kind != self._suspected:
                self._suspected, self._suspected_since = loss.kind, self._loop.time()
            self._timer = self._loop.call_later(CONFIRM_SECONDS, Contained(self._begin_again))

    def _begin_again(self) -> None:
        self._timer = None
        self.begin()
