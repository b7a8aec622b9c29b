"""Lets Ctrl-C, SIGTERM and SIGHUP end a command only while it waits, so that it also commits the records that it has printed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from cli import Interrupted

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # SIGHUP: the terminal of the command was closed


class Interrupts:
    """In this context the first signal raises Interrupted only inside `waiting`, and a second signal at once."""

    def __init__(self) -> None:
        self._signal: int | None = None
        self._waiting = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in SIGNALS:
            before = signal.getsignal(number)
            if before != signal.SIG_IGN:  # nohup, and shells for background jobs, let a command ignore the signal: keep that
                self._before[number] = before
                signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *error: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        repeated = self._signal is not None
        self._signal = number
        if self._waiting or repeated:
            raise Interrupted(number, forced=repeated)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        self._waiting = True
        try:
            if self._signal is not None:
                raise Interrupted(self._signal)
            yield
        finally:
            self._waiting = False
