"""Log lines for people and for machines, on standard error: `log.info("what happened", field=value)`.

The format `console` is for people, coloured on a terminal; `json` is one object per line. Records of the standard library's logging
and warnings are included. structlog is not used: its imports would take 20 ms, a tenth of a start.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Mapping
from typing import Any, Final, TextIO

from broker.logging.line_format import LEVELS, LineRenderer, console_line, json_line
from broker.logging.repeated_lines import Repeats
from broker.logging.sink import LineSink


class Log:
    """The broker's logger. Until `configure` is called, lines go to standard output."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.level = LEVELS["info"]
        self._render = LineRenderer(console_line)
        self._repeats: Repeats | None = None
        self._sink: LineSink | None = None
        self._common: Mapping[str, Any] = {}

    def connect(
        self, sink: LineSink, level: str, render: LineRenderer, repeats: Repeats, common: Mapping[str, Any] | None = None
    ) -> None:
        """Write lines to `sink`, each with the fields `common`."""
        self.level, self._render, self._repeats, self._sink, self._common = LEVELS[level], render, repeats, sink, common or {}

    def debug(self, event: str, /, **details: Any) -> None:
        self.write("debug", event, details)

    def info(self, event: str, /, **details: Any) -> None:
        self.write("info", event, details)

    def warning(self, event: str, /, **details: Any) -> None:
        self.write("warning", event, details)

    def error(self, event: str, /, **details: Any) -> None:
        self.write("error", event, details)

    def exception(self, event: str, /, **details: Any) -> None:
        """Log an error with the traceback of the exception being handled."""
        self.write("error", event, {"exc_info": True, **details})

    def write(self, level: str, event: str, details: Mapping[str, Any]) -> None:
        if LEVELS[level] < self.level:
            return
        line = {**self._common, **details, "event": event}
        sink = self._sink
        if sink is None:
            sys.stdout.write(self._render(level, line).decode())
        elif self._repeats is None or not self._repeats.count_if_repeated(level, line):
            sink.write(self._render(level, line))


log: Final = Log()

_sink: LineSink | None = None
_show_warning_before = warnings.showwarning


def debug_enabled() -> bool:
    """Whether requests and replies are logged."""
    return log.level <= LEVELS["debug"]


def configure(
    level: str = "info", form: str = "auto", *, fd: int = 2, environ: Mapping[str, str] | None = None, common: Mapping[str, Any] | None = None
) -> LineSink:
    """Send all log lines to the descriptor from now on; each has the fields `common`."""
    global _sink
    close()
    render = choose_renderer(form, fd, os.environ if environ is None else environ)
    repeats = Repeats(render)
    sink = LineSink(
        fd,
        lambda count: render("warning", {"event": "log lines were dropped: the reader of the log did not read", "lines": count}),
        repeats=repeats,
    )
    log.connect(sink, level, render, repeats, common)
    _sink = sink
    logging.getLogger().addHandler(BRIDGE)
    logging.getLogger().setLevel(LEVELS[level])
    warnings.showwarning = show_warning
    return sink


def close() -> None:
    """Write the queued lines, within half a second, and detach from the standard library's loggers."""
    global _sink
    if _sink is None:
        return
    logging.getLogger().removeHandler(BRIDGE)
    logging.getLogger().setLevel(logging.WARNING)
    warnings.showwarning = _show_warning_before
    _sink.close()
    _sink = None


def choose_renderer(form: str, fd: int, environ: Mapping[str, str]) -> LineRenderer:
    terminal = os.isatty(fd)
    if form == "json" or (form == "auto" and not terminal):
        return LineRenderer(json_line)
    # https://no-color.org: any value of NO_COLOR except the empty one means no colour.
    colour = terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
    return LineRenderer(console_line, colour)


class Bridge(logging.Handler):
    """Forwards records of the standard library's logging."""

    def emit(self, record: logging.LogRecord) -> None:
        level = next((name for name, number in reversed(LEVELS.items()) if number <= record.levelno), "debug")
        details = {"exc_info": record.exc_info} if record.exc_info else {}
        log.write(level, record.getMessage(), {"logger": record.name, **details})


BRIDGE = Bridge()


def show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None, line: str | None = None
) -> None:
    log.warning(str(message), category=category.__name__, where=f"{filename}:{lineno}")
