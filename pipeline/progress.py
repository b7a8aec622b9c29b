"""Progress of long work on standard error: a bar on a terminal, otherwise a line every few seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO

BAR_WIDTH: Final = 30
REFRESH_S: Final = 0.2
LINE_EVERY_S: Final = 10.0  # if it is not a terminal


class Progress:
    """Shows progress on `stream`; None: nothing."""

    def __init__(self, stream: TextIO | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._terminal = stream is not None and stream.isatty()

    def say(self, text: str) -> None:
        self._write(f"{text}\n")

    @contextmanager
    def showing(self, what: str, total: int, done: Callable[[], int], unit: str = "records") -> Iterator[None]:
        """Show `done()` of `total` until the block ends."""
        if self._stream is None or not total:
            yield
            return
        began = self._clock()
        ended = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(what, total, done, unit, began, ended), daemon=True)
        watcher.start()
        try:
            yield
        except BaseException:
            ended.set()
            watcher.join()
            self._clear()
            raise
        ended.set()
        watcher.join()
        self._clear()
        self._write(f"{what}: {short_number(total)} {unit} in {duration_text(self._clock() - began)}\n")

    def _watch(self, what: str, total: int, done: Callable[[], int], unit: str, began: float, ended: threading.Event) -> None:
        while not ended.wait(REFRESH_S if self._terminal else LINE_EVERY_S):
            line = self._line(what, total, min(done(), total), unit, self._clock() - began)
            self._write(f"\r\x1b[K{line}" if self._terminal else f"{line}\n")

    def _line(self, what: str, total: int, done: int, unit: str, passed: float) -> str:
        share = done / total if total else 1.0
        time_left = f"{duration_text(passed / share - passed)} left" if share > 0.02 else "time left unknown"
        bar = ""
        if self._terminal:
            filled = round(share * BAR_WIDTH)
            bar = f" [{'#' * filled}{'.' * (BAR_WIDTH - filled)}]"
        return f"{what}{bar} {short_number(done)} of {short_number(total)} {unit}, {share:.0%}, {time_left}"

    def _clear(self) -> None:
        if self._terminal:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        if self._stream is not None:
            try:
                self._stream.write(text)
                self._stream.flush()
            except (OSError, ValueError):
                self._stream = None  # closed by its reader; the work continues


def to_standard_error(quiet: bool = False) -> Progress:
    return Progress(None if quiet else sys.stderr)


def short_number(number: int) -> str:
    for size, word in ((1_000_000_000, "G"), (1_000_000, "M"), (10_000, "k")):
        if number >= size:
            return f"{number / (1000 if word == 'k' else size):.3g} {word}"
    return str(number)


def duration_text(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes / 60:.1f} h"
