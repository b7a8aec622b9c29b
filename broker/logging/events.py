"""Events on their way to structlog, whose import would take a sixth of a start. The log thread imports it, soon after the broker listens;
events wait until then, or until the process ends.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from broker.logging.repeated_lines import Repeats
from broker.logging.sink import LineSink

if TYPE_CHECKING:
    from broker.logging.line_format import Lines

START_SECONDS = 2.0  # a longer start is logged while it goes on
ANSWER_SECONDS = 0.1  # from listening to the import: clients are answered first
AGAIN_SECONDS = 1.0
WAITING_MAX = 10_000


class Events:
    """`write` passes events on to structlog, or keeps them until it is imported."""

    def __init__(self, as_json: bool, colour: bool = False, common: Mapping[str, Any] | None = None) -> None:
        self.repeats = Repeats(self.render)
        self._as_json = as_json
        self._colour = colour
        self._common = common or {}
        self._lines: Lines | None = None
        self._waiting: list[tuple[str, str, dict[str, Any]]] = []
        self._lock = threading.RLock()  # a destructor may warn while this thread has it
        self._importing = threading.Lock()
        self._started = threading.Event()
        self._closed = threading.Event()

    def write(self, level: str, event: str, details: Mapping[str, Any]) -> None:
        details = {"time": now(), **details}  # structlog's TimeStamper knows no milliseconds, and would stamp what has waited too late
        lines = self._lines
        if lines is None:
            with self._lock:
                if self._lines is None:
                    if len(self._waiting) < WAITING_MAX:
                        self._waiting.append((level, event, details))
                    return
                lines = self._lines
        lines.write(level, event, details)

    def render(self, level: str, details: Mapping[str, Any]) -> bytes:
        """The line of a count; lines were written before, so structlog is imported."""
        assert self._lines is not None
        return self._lines.render(level, {"time": now(), **details})

    def started(self) -> None:
        """The process has started: its lines may be written."""
        self._started.set()

    def import_when_started(self, sink: LineSink) -> None:
        """Called on the log thread, before it writes."""
        if self._started.wait(START_SECONDS):
            self._closed.wait(ANSWER_SECONDS)
        while not self._closed.is_set():
            with self._importing, suppress(OSError):  # perhaps no descriptor is free
                if not self._closed.is_set():
                    self._import(sink)
                    return
            self._closed.wait(AGAIN_SECONDS)

    def close(self, sink: LineSink) -> None:
        """Pass on what waits."""
        self._closed.set()
        self._started.set()
        with self._importing, suppress(OSError):
            if self._waiting:
                self._import(sink)

    def _import(self, sink: LineSink) -> None:
        from broker.logging.line_format import Lines

        lines = Lines(self._as_json, self._colour, self._common, sink.write, self.repeats)
        while True:
            with self._lock:
                waiting, self._waiting = self._waiting, []
                if not waiting:
                    self._lines = lines
                    return
            for level, event, details in waiting:
                try:
                    lines.write(level, event, details)
                except Exception as error:
                    problem = {"event": "a line cannot be logged", "line": event, "reason": repr(error)}
                    sink.write(lines.render("warning", problem | {"time": details["time"]}))


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
