"""Shows the progress of a copy on standard error: on a terminal in one line that it updates, else in a line from time to time."""

from __future__ import annotations

import time
from typing import Final, TextIO

from cli.shown import counted

SHOW_SECONDS: Final = 0.2
LINE_SECONDS: Final = 10.0
UNITS: Final = ("bytes", "kB", "MB", "GB", "TB")


def bytes_text(number: float) -> str:
    """A number of bytes as text: 512 bytes, 1.3 MB."""
    unit = 0
    while number >= 1000 and unit < len(UNITS) - 1:
        number /= 1000
        unit += 1
    return f"{number:.0f} {UNITS[unit]}" if unit == 0 else f"{number:.1f} {UNITS[unit]}"


class Progress:
    def __init__(self, err: TextIO) -> None:
        self._err = err
        self._terminal = err.isatty()
        self._stage = ""
        self._logs_done = self._logs_total = 0
        self._bytes_done = self._bytes_total = 0
        self._began = self._shown = time.monotonic()
        self._width = 0

    def begin(self, stage: str, logs: int, size: int) -> None:
        """Begin a stage with this number of logs, and this number of bytes (0: unknown)."""
        self.end()
        self._stage, self._logs_total, self._bytes_total = stage, logs, size
        self._logs_done = self._bytes_done = 0
        self._began = self._shown = time.monotonic()
        if self._terminal:
            self._show()

    def add_bytes(self, size: int) -> None:
        self._bytes_done += size
        now = time.monotonic()
        if now - self._shown >= (SHOW_SECONDS if self._terminal else LINE_SECONDS):
            self._shown = now
            self._show()

    def add_log(self) -> None:
        self._logs_done += 1

    def skip_log(self) -> None:
        """Do not count a log that does not exist or is empty."""
        self._logs_total -= 1

    def end(self) -> None:
        """End the stage."""
        if self._stage:
            self._bytes_total = 0
            self._show()
            self._stage = ""
            if self._terminal:
                self._err.write("\n")
                self._err.flush()
        self._width = 0

    def _show(self) -> None:
        seconds = time.monotonic() - self._began
        size = bytes_text(self._bytes_done) + (f" of {bytes_text(self._bytes_total)}" if self._bytes_total > self._bytes_done else "")
        pace = f", {bytes_text(self._bytes_done / seconds)}/s" if seconds >= 1 else ""
        logs = f"{self._logs_done} of {counted(self._logs_total, 'log')}" if self._logs_done < self._logs_total else counted(self._logs_done, "log")
        line = f"{self._stage}: {logs}, {size}{pace}"
        if self._terminal:
            self._err.write("\r" + line.ljust(self._width))
            self._width = len(line)
        else:
            self._err.write(line + "\n")
        self._err.flush()
