"""The process that started this one: a broker of a test run ends when it is gone, however it ended."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final

from broker.contain import Contained
from broker.start import STARTED_BY

LOOK_SECONDS: Final = 0.5
INIT: Final = 1


class ParentWatch:
    """Looks twice a second, which works on every system; Linux's own signal (PR_SET_PDEATHSIG) comes when a mere thread of the parent ends.

    A process whose parent is already init, or that is a container's first, has none to watch.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, gone: Callable[[int], None]) -> None:
        self._loop = loop
        self._gone = gone
        self._timer: asyncio.TimerHandle | None = None
        if STARTED_BY > INIT:
            self._look()

    def _look(self) -> None:
        if os.getppid() != STARTED_BY:
            self._timer = None
            self._gone(STARTED_BY)
        else:
            self._timer = self._loop.call_later(LOOK_SECONDS, Contained(self._look))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
