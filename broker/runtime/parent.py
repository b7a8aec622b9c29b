"""The process that started this one: a broker of a test run ends when it is gone, however it ended."""

from __future__ import annotations

import asyncio
import os
import select
import stat
from collections.abc import Callable
from typing import Final

from broker.runtime.contain import Contained
from broker.runtime.start import STARTED_BY

LOOK_SECONDS: Final = 0.5
INIT: Final = 1
STANDARD_INPUT: Final = 0


class ParentWatch:
    """Looks twice a second, which works on every system; Linux's own signal (PR_SET_PDEATHSIG) comes when a mere thread of the parent ends.

    A process whose parent is already init, or that is a container's first, has none to watch. A wrapper (a shell, timeout) may
    outlive the test run, and is the parent then: a pipe on standard input tells through any of them when its other end is gone.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, gone: Callable[[dict[str, object]], None]) -> None:
        self._loop = loop
        self._gone = gone
        self._timer: asyncio.TimerHandle | None = None
        self._parent = STARTED_BY > INIT
        self._pipe = is_pipe() and not hung_up()  # one that was closed before says nothing: it was never held for us
        if self._parent or self._pipe:
            self._look()

    def _look(self) -> None:
        self._timer = None
        if self._parent and os.getppid() != STARTED_BY:
            self._gone({"reason": "the process that started this one has ended", "parent": STARTED_BY})
        elif self._pipe and hung_up():
            self._gone({"reason": "standard input was a pipe, and its other end was closed"})
        else:
            self._timer = self._loop.call_later(LOOK_SECONDS, Contained(self._look))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def is_pipe() -> bool:
    """Whether standard input is one; some languages make socket pairs for it."""
    try:
        mode = os.fstat(STANDARD_INPUT).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def hung_up() -> bool:
    asking = select.poll()
    asking.register(STANDARD_INPUT, 0)  # a hang-up is told unasked
    return any(told & select.POLLHUP for _, told in asking.poll(0))
