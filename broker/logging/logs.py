"""Log lines for people and for machines, on standard error: `log.info("what happened", field=value)`.

The format `console` is for people, coloured on a terminal; `json` is one object per line. Records of the standard library's logging
and warnings are included. Events are structlog's, but this module does not import it: see `Events`.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final, TextIO

from broker.logging.events import Events, now
from broker.logging.sink import LineSink

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}

Write = Callable[[str, str, Mapping[str, Any]], None]


def print_line(level: str, event: str, details: Mapping[str, Any]) -> None:
    from broker.logging.line_format import Lines

    sys.stdout.write(Lines(as_json=False).render(level, {"time": now(), "event": event, **details}).decode())


class Log:
    """The broker's logger. Until `configure` is called, lines go to standard output."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.connect(print_line, "info")

    def connect(self, write: Write, level: str) -> None:
        """Pass events of this level and above to `write`: level, event, fields."""
        self.level, self.level_name, self.sink = LEVELS[level], level, write

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
        self.write("error", event, {"exc_info": sys.exc_info()[1], **details})

    def write(self, level: str, event: str, details: Mapping[str, Any]) -> None:
        if LEVELS[level] >= self.level:
            self.sink(level, event, details)


log: Final = Log()

_open: tuple[Events, LineSink] | None = None
_show_warning_before = warnings.showwarning


def debug_enabled() -> bool:
    """Whether requests and replies are logged."""
    return log.level <= LEVELS["debug"]


def configure(
    level: str = "info", form: str = "auto", *, fd: int = 2, environ: Mapping[str, str] | None = None, common: Mapping[str, Any] | None = None
) -> None:
    """Send all log lines to the descriptor from now on; each has the fields `common`."""
    global _open
    close()
    as_json, colour = choose_format(form, fd, os.environ if environ is None else environ)
    events = Events(as_json, colour, common)
    sink = LineSink(
        fd,
        lambda count: events.render("warning", {"event": "log lines were dropped: the reader of the log did not read", "lines": count}),
        repeats=events.repeats,
        first=events.import_when_started,
    )
    log.connect(events.write, level)
    _open = events, sink
    logging.getLogger().addHandler(BRIDGE)
    logging.getLogger().setLevel(LEVELS[level])
    warnings.showwarning = show_warning


def plain(level: str, event: str, details: Mapping[str, Any]) -> str:
    """A line without time and colour, for those who keep lines in memory."""
    shown = " ".join(f"{name}={value!r}" if name == "exc_info" else f"{name}={value}" for name, value in details.items())
    return f"{level}: {event} {shown}".rstrip()


def started() -> None:
    """The process has started. Before this, lines may be written a second late."""
    if _open is not None:
        _open[0].started()


def close() -> None:
    """Write the queued lines, within half a second, and detach from the standard library's loggers."""
    global _open
    if _open is None:
        return
    logging.getLogger().removeHandler(BRIDGE)
    logging.getLogger().setLevel(logging.WARNING)
    warnings.showwarning = _show_warning_before
    events, sink = _open
    events.close(sink)
    sink.close()
    _open = None


def choose_format(form: str, fd: int, environ: Mapping[str, str]) -> tuple[bool, bool]:
    """Whether lines are JSON, and whether they are coloured."""
    terminal = os.isatty(fd)
    if form == "json" or (form == "auto" and not terminal):
        return True, False
    # https://no-color.org: any value of NO_COLOR except the empty one means no colour.
    return False, terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


class Bridge(logging.Handler):
    """Forwards records of the standard library's logging."""

    def emit(self, record: logging.LogRecord) -> None:
        level = next((name for name, number in reversed(LEVELS.items()) if number <= record.levelno), "debug")
        details = {"exc_info": record.exc_info[1]} if record.exc_info else {}
        log.write(level, record.getMessage(), {"logger": record.name, **details})


BRIDGE = Bridge()


def show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None, line: str | None = None
) -> None:
    log.warning(str(message), category=category.__name__, where=f"{filename}:{lineno}")
