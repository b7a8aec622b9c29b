"""Format one log line, for people or as JSON.

Log lines contain names chosen by clients, so control characters and line breaks are escaped.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, MutableMapping
from datetime import UTC, datetime
from typing import Any

from broker.logging.secrets import hide

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
EVENT_WIDTH = 20  # columns; most events are shorter

DIM, BOLD, CYAN, PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[36m", "\x1b[0m"
COLOURS = {"debug": DIM, "info": "\x1b[32m", "warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[31;1m"}

Details = MutableMapping[str, Any]
Format = Callable[[str, str, str, Details, str, bool], str]


class LineRenderer:
    """Renders an event as a line: time, level, event, fields, traceback."""

    def __init__(self, form: Format, colour: bool = False) -> None:
        self._format = form
        self._colour = colour

    def __call__(self, level: str, details: Details) -> bytes:
        exception = traceback_text(details.pop("exc_info", None))
        event = str(details.pop("event", ""))
        line = hide(self._format(now(), level, event, details, exception, self._colour))
        return line.encode("utf-8", "backslashreplace") + b"\n"


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def traceback_text(exc_info: Any) -> str:
    if exc_info is True:
        exc_info = sys.exc_info()
    if isinstance(exc_info, BaseException):
        exc_info = (type(exc_info), exc_info, exc_info.__traceback__)
    if not exc_info or exc_info[0] is None:
        return ""
    return "".join(traceback.format_exception(*exc_info)).rstrip("\n")


_encode = json.JSONEncoder(default=str).encode  # json.dumps would create an encoder for every line


def json_line(time: str, level: str, event: str, details: Details, exception: str, colour: bool) -> str:
    # ASCII only: an escape sequence in a name must not reach a terminal.
    fields = {"time": time, "level": level, "event": event, **details}
    if exception:
        fields["exception"] = exception
    try:
        return _encode(fields)
    except (TypeError, ValueError, RecursionError):  # a key that is not a string, or a cycle: logging must not raise
        return json.dumps({"time": time, "level": level, "event": event, "details": repr(details), "exception": exception})


def console_line(time: str, level: str, event: str, details: Details, exception: str, colour: bool) -> str:
    dim, bold, cyan, plain = (DIM, BOLD, CYAN, PLAIN) if colour else ("", "", "", "")
    level_colour = COLOURS.get(level, "") if colour else ""
    words = [f"{dim}{time}{plain} {level_colour}{level:<7}{plain} {bold}{escape(event):<{EVENT_WIDTH if details else 0}}{plain}"]
    words += [f"{cyan}{escape(str(name))}{plain}={format_value(value)}" for name, value in details.items()]
    lines = [" ".join(words), *map(escape, exception.splitlines())]
    return "\n".join(lines)


def format_value(value: object) -> str:
    """The value, quoted where it would be ambiguous."""
    if not isinstance(value, str):
        return escape(str(value))
    needs_no_quotes = value and value.isprintable() and not any(mark in value for mark in " \"'=")
    return value if needs_no_quotes else repr(value)


def escape(text: str) -> str:
    return text if text.isprintable() else repr(text)[1:-1]
