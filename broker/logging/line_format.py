"""Turn an event into a line, for people or as JSON, by the processors and renderers of structlog. Importing this module imports structlog.

Log lines contain names chosen by clients, so control characters and line breaks are escaped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from broker.logging.repeated_lines import Repeats
from broker.logging.secrets import hide


@contextmanager
def without(*packages: str) -> Iterator[None]:
    """Imports in this block do not find these packages: structlog would import them where they are installed, which takes longer than itself."""
    hidden = [name for name in packages if name not in sys.modules]
    modules: dict[str, Any] = sys.modules
    modules.update(dict.fromkeys(hidden))
    try:
        yield
    finally:
        for name in hidden:
            del modules[name]


with without("better_exceptions", "colorama", "rich", "twisted"):
    import structlog
    from structlog.dev import Column, ConsoleRenderer, KeyValueColumnFormatter, plain_traceback
    from structlog.processors import JSONRenderer, add_log_level, format_exc_info
    from structlog.typing import EventDict, Processor

EVENT_WIDTH = 20  # columns; most events are shorter
LEVEL_WIDTH = 7

DIM, BOLD, CYAN, PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[36m", "\x1b[0m"
COLOURS = {"debug": DIM, "info": "\x1b[32m", "warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[31;1m"}

FIRST = ("time", "level", "event")


class Lines:
    """structlog's loggers: `write` folds repeated events and passes lines to `sink`, `render` returns the line."""

    def __init__(
        self,
        as_json: bool,
        colour: bool = False,
        common: Mapping[str, Any] | None = None,
        sink: Callable[[bytes], None] | None = None,
        repeats: Repeats | None = None,
    ) -> None:
        rendering = [JSONRenderer(to_json)] if as_json else [printable, console(colour)]
        processors: list[Processor] = [add_log_level, format_exc_info, *rendering, encode]
        first = {**dict.fromkeys(FIRST), **(common or {})}
        self._returning = structlog.wrap_logger(structlog.ReturnLogger(), processors, structlog.BoundLogger, **first).bind()
        self._writing = self._returning
        if sink is not None and repeats is not None:
            self._writing = structlog.wrap_logger(Sink(sink), [Folding(repeats), *processors], structlog.BoundLogger, **first).bind()

    def write(self, level: str, event: str, details: Mapping[str, Any]) -> None:
        getattr(self._writing, level)(event, **details)

    def render(self, level: str, details: Mapping[str, Any]) -> bytes:
        line: bytes = getattr(self._returning, level)(**details)
        return line


class Sink:
    """What structlog calls a logger: it gets the lines."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self.debug = self.info = self.warning = self.error = self.critical = write


class Folding:
    """Drops an event that is counted as a repetition."""

    def __init__(self, repeats: Repeats) -> None:
        self._repeats = repeats

    def __call__(self, logger: Any, level: str, event: EventDict) -> EventDict:
        if self._repeats.count_if_repeated(level, event):
            raise structlog.DropEvent
        return event


_encode = json.JSONEncoder(default=str).encode  # json.dumps would create an encoder for every line


def to_json(event: EventDict, **options: Any) -> str:
    # ASCII only: an escape sequence in a name must not reach a terminal.
    try:
        return _encode(event)
    except (TypeError, ValueError, RecursionError):  # a key that is not a string, or a cycle: logging must not raise
        first, exception = {name: event.pop(name) for name in FIRST}, event.pop("exception", "")
        return json.dumps({**first, "details": repr(event), "exception": exception}, default=str)


def printable(logger: Any, level: str, event: EventDict) -> EventDict:
    """Escape what is no value, and align the event."""
    exception = event.pop("exception", "")
    width = EVENT_WIDTH if len(event) > len(FIRST) else 0
    event["event"] = f"{escape(str(event['event'])):<{width}}"
    shown = {escape(name): value for name, value in event.items()}
    return {**shown, "exception": "\n".join(map(escape, exception.splitlines()))} if exception else shown


def console(colour: bool) -> ConsoleRenderer:
    dim, bold, cyan, plain = (DIM, BOLD, CYAN, PLAIN) if colour else ("", "", "", "")
    return ConsoleRenderer(
        columns=[
            Column("time", KeyValueColumnFormatter(None, dim, plain, str)),
            Column("level", lambda _, level: f"{COLOURS[str(level)] if colour else ''}{level:<{LEVEL_WIDTH}}{plain}"),
            Column("event", KeyValueColumnFormatter(None, bold, plain, str)),
            Column("", lambda name, value: f"{cyan}{name}{plain}={format_value(value)}"),
        ],
        sort_keys=False,
        exception_formatter=plain_traceback,
    )


def encode(logger: Any, level: str, line: Any) -> bytes:
    return hide(str(line)).encode("utf-8", "backslashreplace") + b"\n"


def format_value(value: object) -> str:
    """The value, quoted where it would be ambiguous."""
    if not isinstance(value, str):
        return escape(str(value))
    needs_no_quotes = value and value.isprintable() and not any(mark in value for mark in " \"'=")
    return value if needs_no_quotes else repr(value)


def escape(text: str) -> str:
    return text if text.isprintable() else repr(text)[1:-1]
