"""Repeat work on a timer that cannot end by itself: it is set again before the work begins, so an exception ends only that time's work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.runtime.contain import Contained, run_contained


class Repeating:
    """Calls `step` every `seconds`, the first time after `seconds`, until `stop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, step: Callable[[], object]) -> None:
        self._loop = loop
        self._seconds = seconds
        self._step = step
        self._stopped = False
        self._timer = loop.call_later(seconds, Contained(self._run))

    def _run(self) -> None:
        if not self._stopped:
            self._timer = self._loop.call_later(self._seconds, Contained(self._run))
            run_contained(self._step)

    def stop(self) -> None:
        self._stopped = True
        self._timer.cancel()
