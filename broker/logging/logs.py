"""Logs for people and for machines, through structlog, to standard error.

`console` is readable and coloured on a terminal, `json` is one object a line. What the standard library and warnings have to say goes the
same way. Import structlog through here: `from broker import logs`, then `log = logs.get_logger()`.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Mapping
from typing import Any, TextIO

from broker.logging.line_format import LEVELS, Details, Render, console_line, json_line
from broker.logging.repeated_lines import Repeats
from broker.logging.sink import LineSink

# structlog imports rich for pretty tracebacks where it finds it: 40 ms of every start for something that is not used.
_rich_hidden = "rich" not in sys.modules
if _rich_hidden:
    sys.modules["rich"] = None  # type: ignore[assignment]
import structlog  # noqa: E402

if _rich_hidden:
    del sys.modules["rich"]

get_logger = structlog.get_logger

_debug = False
_sink: LineSink | None = None
_show_warning_before = warnings.showwarning


def debug_enabled() -> bool:
    """Whether frames are to be shown: asked once a frame, so that nothing is put together for a line nobody wants."""
    return _debug


def configure(level: str = "info", form: str = "auto", *, fd: int = 2, environ: Mapping[str, str] | None = None) -> LineSink:
    """Send everything that is logged from now on to the descriptor."""
    global _debug, _sink
    close()
    render = choose_renderer(form, fd, os.environ if environ is None else environ)
    repeats = Repeats(render)

    def once(logger: object, level: str, details: Details) -> bytes:
        if repeats.repeated(level, details):
            raise structlog.DropEvent
        return render(logger, level, details)

    sink = LineSink(
        fd,
        lambda count: render(None, "warning", {"event": "log lines were dropped: nobody read them", "lines": count}),
        repeats=repeats,
    )
    structlog.configure(
        processors=[once],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=SinkLoggerFactory(sink),
        cache_logger_on_first_use=False,  # it can be configured again; lines are rare enough
    )
    _debug = level == "debug"
    _sink = sink
    logging.getLogger().addHandler(BRIDGE)
    logging.getLogger().setLevel(LEVELS[level])
    warnings.showwarning = show_warning
    return sink


def close() -> None:
    """Write what is queued, within half a second, and let go of the standard library's loggers."""
    global _debug, _sink
    if _sink is None:
        return
    logging.getLogger().removeHandler(BRIDGE)
    logging.getLogger().setLevel(logging.WARNING)
    warnings.showwarning = _show_warning_before
    _sink.close()
    _sink = None
    _debug = False


def choose_renderer(form: str, fd: int, environ: Mapping[str, str]) -> Render:
    terminal = os.isatty(fd)
    if form == "json" or (form == "auto" and not terminal):
        return Render(json_line)
    # https://no-color.org: set and not empty, whatever the value.
    colour = terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
    return Render(console_line, colour)


class SinkLogger:
    """The last step of structlog: a rendered line goes into the queue."""

    __slots__ = ("critical", "debug", "error", "info", "warning")

    def __init__(self, sink: LineSink) -> None:
        self.debug = self.info = self.warning = self.error = self.critical = sink.write


class SinkLoggerFactory:
    def __init__(self, sink: LineSink) -> None:
        self._logger = SinkLogger(sink)

    def __call__(self, *_: Any) -> SinkLogger:
        return self._logger


class Bridge(logging.Handler):
    """What libraries tell the standard library's logging."""

    def emit(self, record: logging.LogRecord) -> None:
        level = max((known for known in LEVELS.values() if known <= record.levelno), default=logging.DEBUG)
        details = {"exc_info": record.exc_info} if record.exc_info else {}
        get_logger().log(level, record.getMessage(), logger=record.name, **details)


BRIDGE = Bridge()


def show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None, line: str | None = None
) -> None:
    get_logger().warning(str(message), category=category.__name__, where=f"{filename}:{lineno}")
