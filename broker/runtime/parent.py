"""Watch the parent process, so that a broker ends with the test run or supervisor that started it."""

from __future__ import annotations

import asyncio
import os
import select
import stat
from collections.abc import Callable
from typing import Final

from broker.runtime.repeating import Repeating
from broker.runtime.start import PARENT_PID

CHECK_SECONDS: Final = 0.5
INIT: Final = 1
STANDARD_INPUT: Final = 0


class ParentWatch:
    """Polls twice a second, since Linux's PR_SET_PDEATHSIG also fires when only a thread of the parent ends.

    A process whose parent is init, or which is a container's first process, has no parent to watch. The parent may also be a wrapper
    (a shell, timeout) that outlives the test run: so if standard input is a pipe, the broker also stops when the pipe's other end is closed.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, stop: Callable[[dict[str, object]], None]) -> None:
        """`stop` is called with the reason, for the log."""
        self._stop = stop
        self._timer: Repeating | None = None
        self._parent = PARENT_PID > INIT
        self._pipe = is_pipe() and not is_hung_up()  # a pipe that was closed before the start is ignored
        if self._parent or self._pipe:
            self._timer = Repeating(loop, CHECK_SECONDS, self._check)
            self._check()

    def _check(self) -> None:
        if self._parent and os.getppid() != PARENT_PID:
            self._end({"reason": "the process that started this one has ended", "parent": PARENT_PID})
        elif self._pipe and is_hung_up():
            self._end({"reason": "standard input was a pipe, and its other end was closed"})

    def _end(self, reason: dict[str, object]) -> None:
        self.close()
        self._stop(reason)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.stop()


def is_pipe() -> bool:
    """Whether standard input is a pipe, or a socket pair, which some languages use instead."""
    try:
        mode = os.fstat(STANDARD_INPUT).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def is_hung_up() -> bool:
    poll = select.poll()
    poll.register(STANDARD_INPUT, 0)  # POLLHUP is always reported
    return any(events & select.POLLHUP for _, events in poll.poll(0))
