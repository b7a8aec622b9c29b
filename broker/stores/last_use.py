"""Store the time of the data directory's last use; the next start compares its clock with it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial

from broker.runtime.contain import Contained
from broker.stores.local import LocalStore

INTERVAL_SECONDS = 15.0  # well below the clock's STEP_MS, a minute: so a restart soon after a kill trusts its clock


class LastUse:
    """Stores the time periodically. `now`: wall time, below 0 while it is not trusted (`Clock.wall_for_deletion`)."""

    def __init__(self, store: LocalStore, loop: asyncio.AbstractEventLoop, now: Callable[[], int]) -> None:
        self._store = store
        self._loop = loop
        self._now = now
        self._store_time()

    def _store_time(self) -> None:
        self._timer = self._loop.call_later(INTERVAL_SECONDS, Contained(self._store_time))
        now = self._now()
        if now >= 0:
            self._store.checkpoint_worker.submit(partial(self._store.directory.note_use, now), _ignore)

    def stop(self) -> None:
        self._timer.cancel()
        now = self._now()
        if now >= 0:
            with contextlib.suppress(OSError):
                self._store.directory.note_use(now)


def _ignore(result: object) -> None: ...
