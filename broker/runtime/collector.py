"""When Python looks for garbage. What groups are made of has no cycles and lives long: looking through it finds nothing and
stops the loop for as long as there is much of it, so it is taken out of sight.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Final

from broker.runtime.contain import Contained

LOOK_SECONDS: Final = 10.0
# A full collection walks what came since the last time: an eighth of all, but there is no hurry for a few.
MEMBERS_MORE: Final = 1_000
PART_MORE: Final = 8


class Collector:
    """Off while partitions load; afterwards everything there is counts as there to stay."""

    def __init__(self, loop: asyncio.AbstractEventLoop, members: Callable[[], int]) -> None:
        self._loop = loop
        self._members = members
        self._enough = 0
        self._timer: asyncio.TimerHandle | None = None

    def pause(self) -> None:
        """What is made from now on is no garbage, nearly all of it."""
        gc.disable()

    def go_on(self) -> None:
        # No collection before: it would walk everything once, and find what a few requests left behind.
        self._settle()
        gc.enable()
        if self._timer is None:
            self._timer = self._loop.call_later(LOOK_SECONDS, Contained(self._look))

    def _settle(self) -> None:
        gc.freeze()
        members = self._members()
        self._enough = members + max(MEMBERS_MORE, members // PART_MORE)

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK_SECONDS, Contained(self._look))
        if gc.isenabled() and self._members() >= self._enough:
            gc.collect(1)
            self._settle()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
