"""Stop a process in order after SIGTERM, SIGINT or SIGHUP; a second signal ends it at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Final

from broker.runtime.start import early_stop_signals

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # SIGHUP: the terminal was closed; Kafka stops in order too


def run_until_stopped(runner: asyncio.Runner, main: Coroutine[Any, Any, int]) -> int:
    """Run `main`, which calls `StopRequest.handle_signals`, and return its exit code.

    Stop signals are blocked until that call: otherwise the early handler and uvloop would both count the same signal.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        return runner.run(main)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


class StopRequest:
    """The request to stop, by a signal or by `stop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, kill_children: Callable[[], None] = lambda: None) -> None:
        """`kill_children` is called when the second signal ends the process."""
        self.reason: asyncio.Future[dict[str, object]] = loop.create_future()  # for the log
        self._loop = loop
        self._kill_children = kill_children
        self._signals = 0

    @property
    def requested(self) -> bool:
        return self.reason.done()

    def handle_signals(self) -> None:
        for number in STOP_SIGNALS:
            if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue  # started with nohup
            self._loop.add_signal_handler(number, self.signalled, number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        if early_stop_signals:
            self.signalled(signal.Signals(early_stop_signals.pop()))

    def signalled(self, number: signal.Signals) -> None:
        if number == signal.SIGHUP and self.requested:
            return  # shell and kernel may both send it when a terminal is closed
        self._signals += 1
        if self._signals > 1:
            self._kill_children()
            os._exit(128 + number)
        self.stop({"signal": number.name})

    def stop(self, reason: dict[str, object]) -> None:
        if not self.requested:
            self.reason.set_result(reason)
