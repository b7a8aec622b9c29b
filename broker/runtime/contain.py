"""Contain exceptions: a defect ends one connection, shard (partition of groups), timer or callback, and nothing else.

Every callback of the event loop or a turn is called through this module, or in a `try` that ends in `report_defect`. The exception is
logged, counted and shown by `tenure health`; then the owner recovers: a connection is closed, a shard is replayed from its log,
periodic work runs again on schedule.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, Final

from broker.logging.logs import log

TEXT_MAX: Final = 200  # characters of the last exception that `tenure health` shows


class Defects:
    """The defects of this process since its start."""

    __slots__ = ("count", "last")

    def __init__(self) -> None:
        self.count = 0
        self.last = ""

    def record(self, event: str, error: BaseException) -> None:
        self.count += 1
        words = " ".join(f"{type(error).__name__}: {error}".split())
        shown = "".join(character if character.isprintable() else "?" for character in words)
        self.last = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC, {event}: {shown[:TEXT_MAX]}"

    @property
    def text(self) -> str:
        """The defects, for `tenure health`; "" without any."""
        return f"defects: {self.count}, last: {self.last}" if self.count else ""


DEFECTS: Final = Defects()


def report_defect(event: str, error: BaseException, **details: object) -> None:
    """Log and count an exception that should never have been raised."""
    DEFECTS.record(event, error)
    log.error(event, exc_info=error, **details)


def report_failed(callback: object, error: BaseException) -> None:
    """Log and count a callback's exception, with the callback's name."""
    inner = callback
    while (wrapped := getattr(inner, "func", None)) is not None and not isinstance(wrapped, str):
        inner = wrapped
    name = getattr(inner, "__qualname__", None) or type(inner).__name__
    report_defect("a callback failed inside the broker", error, callback=str(name))


def run_contained(callback: Callable[..., object], *arguments: Any) -> bool:
    """Call `callback`; returns False if it raised."""
    try:
        callback(*arguments)
    except Exception as error:
        report_failed(callback, error)
        return False
    return True


class Contained:
    """Wraps a callback so that it never raises; `on_failure` is called after it has raised."""

    __slots__ = ("_callback", "_on_failure")

    def __init__(self, callback: Callable[..., object], on_failure: Callable[[], object] | None = None) -> None:
        self._callback = callback
        self._on_failure = on_failure

    def __call__(self, *arguments: Any) -> None:
        if not run_contained(self._callback, *arguments) and self._on_failure is not None:
            run_contained(self._on_failure)


async def contained_task(work: Callable[..., Coroutine[Any, Any, object]], *arguments: Any) -> None:
    """The main coroutine of a task: run `work`, and never raise.

    `work` is called here: a coroutine passed in would never be awaited if the task is cancelled before it begins.
    """
    try:
        await work(*arguments)
    except Exception as error:
        report_failed(work, error)


def report_broken(owner: object, event: str, error: BaseException, **details: object) -> None:
    """Report an exception of `owner`, and call its `handle_defect` method: its state is no longer trusted."""
    report_defect(event, error, **details)
    end = getattr(owner, "handle_defect", None)
    if end is not None:
        run_contained(end)


def handle_loop_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """The event loop's exception handler, the last resort."""
    error = context.get("exception")
    if not isinstance(error, Exception) or isinstance(error, OSError):  # mostly socket errors, no defect
        loop.default_exception_handler(context)
    else:
        report_defect("an exception reached the event loop", error, what=str(context.get("message", "")))
