"""When the directory was in use, by a clock that counts: the next start compares."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial

from broker.runtime.contain import Contained
from broker.stores.local import LocalStore

NOTED_SECONDS = 15.0  # after a kill and a start within a minute the clock is as trusted as it was


class LastUse:
    """Notes it now and then. `now`: wall time, below 0 while that is not trusted (`Clock.deletion_ms`)."""

    def __init__(self, store: LocalStore, loop: asyncio.AbstractEventLoop, now: Callable[[], int]) -> None:
        self._store = store
        self._loop = loop
        self._now = now
        self._note()

    def _note(self) -> None:
        self._timer = self._loop.call_later(NOTED_SECONDS, Contained(self._note))
        now = self._now()
        if now >= 0:
            self._store.checkpoint_worker.submit(partial(self._store.directory.note_use, now), _unheard)

    def stop(self) -> None:
        self._timer.cancel()
        now = self._now()
        if now >= 0:
            with contextlib.suppress(OSError):
                self._store.directory.note_use(now)


def _unheard(result: object) -> None: ...
