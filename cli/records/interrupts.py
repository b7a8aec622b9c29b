"""Ctrl-C, SIGTERM and SIGHUP end a command while it waits, or at its next wait: printed records are then also committed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # SIGHUP: its terminal was closed


class Interrupted(KeyboardInterrupt):
    """A caller that does not know it handles it as Ctrl-C, which it mostly is."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Interrupts:
    """Between __enter__ and __exit__ a signal raises Interrupted only inside waiting(); a second one at once."""

    def __init__(self) -> None:
        self._came: int | None = None
        self._waiting = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in SIGNALS:
            before = signal.getsignal(number)
            if before != signal.SIG_IGN:  # as nohup and background jobs want it
                self._before[number] = before
                signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *error: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        again = self._came is not None
        self._came = number
        if self._waiting or again:
            raise Interrupted(number)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        self._waiting = True
        try:
            if self._came is not None:
                raise Interrupted(self._came)
            yield
        finally:
            self._waiting = False
