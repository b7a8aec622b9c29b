"""A fault ends where it happens: one connection, shard, timer or callback, and nobody else.

Everything that the event loop or a turn calls back is called through here, or in a `try` that ends in `defect`. What it raises
is logged once, counted, and shown by `tenure health`; then its owner deals with the consequence: a connection is closed, a shard
is read anew from its log, a round of work is tried again at its next time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, Final

from broker.logging.logs import log

TEXT_MAX: Final = 200  # of the last defect's own words, as health shows them


class Defects:
    """What this process has met since it started."""

    __slots__ = ("count", "last")

    def __init__(self) -> None:
        self.count = 0
        self.last = ""

    def note(self, event: str, error: BaseException) -> None:
        self.count += 1
        words = " ".join(f"{type(error).__name__}: {error}".split())
        shown = "".join(one if one.isprintable() else "?" for one in words)
        self.last = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC, {event}: {shown[:TEXT_MAX]}"

    @property
    def text(self) -> str:
        """In a line for people, "" where there was none."""
        return f"defects: {self.count}, last: {self.last}" if self.count else ""


DEFECTS: Final = Defects()


def defect(event: str, error: BaseException, **details: object) -> None:
    """Log and count what should never have been raised."""
    DEFECTS.note(event, error)
    log.error(event, exc_info=error, **details)


def failed(callback: object, error: BaseException) -> None:
    """The same for a callback, which is named."""
    inner = callback
    while (wrapped := getattr(inner, "func", None)) is not None and not isinstance(wrapped, str):
        inner = wrapped
    name = getattr(inner, "__qualname__", None) or type(inner).__name__
    defect("a callback failed inside the broker", error, callback=str(name))


def run(callback: Callable[..., object], *arguments: Any) -> bool:
    """Call it; whether it came to its end."""
    try:
        callback(*arguments)
    except Exception as error:
        failed(callback, error)
        return False
    return True


class Contained:
    """A callback for the loop, for a worker or for whoever else calls back: it raises nothing.

    `after` is called when it has failed, to go on without it.
    """

    __slots__ = ("_after", "_callback")

    def __init__(self, callback: Callable[..., object], after: Callable[[], object] | None = None) -> None:
        self._callback = callback
        self._after = after

    def __call__(self, *arguments: Any) -> None:
        if not run(self._callback, *arguments) and self._after is not None:
            run(self._after)


async def alone(work: Callable[..., Coroutine[Any, Any, object]], *arguments: Any) -> None:
    """A task that raises nothing: nobody awaits it. The work is called in it, as a task may be cancelled before it begins."""
    try:
        await work(*arguments)
    except Exception as error:
        failed(work, error)


def broken(owner: object, event: str, error: BaseException, **details: object) -> None:
    """`owner` raised where it was called with others: what it keeps is not to be trusted any more."""
    defect(event, error, **details)
    end = getattr(owner, "broken", None)
    if end is not None:
        run(end)


def uncontained(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """The loop's exception handler: the last net below everything else."""
    error = context.get("exception")
    if not isinstance(error, Exception) or isinstance(error, OSError):  # of a socket, mostly, and no defect
        loop.default_exception_handler(context)
    else:
        defect("an exception reached the event loop", error, what=str(context.get("message", "")))
