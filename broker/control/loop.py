"""An event loop with a clock of its own: the timers of one cluster follow the cluster's clock, everything else is the real loop's.

When the clock is advanced, timers fire in order, each at its own time. When the cluster is killed, nothing that it has scheduled runs any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final, Protocol

from broker.runtime.contain import Contained

NEVER: Final = float("inf")


class Lines(Protocol):
    """What keeps log lines: a cluster, or the process of several."""

    id: str

    def keep(self, level: str, event: str, details: Mapping[str, Any]) -> None: ...


# The cluster to which the callback that runs belongs: log lines are sorted by it.
CURRENT: Final[ContextVar[Lines | None]] = ContextVar("tenure-cluster", default=None)


class Timer:
    """The part of `asyncio.TimerHandle` that is used."""

    __slots__ = ("_callback", "at")

    def __init__(self, at: float, callback: Callable[[], object]) -> None:
        self.at = at
        self._callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self._callback = None

    def cancelled(self) -> bool:
        return self._callback is None

    def when(self) -> float:
        return self.at

    def run(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class ClusterLoop:
    """What a broker uses of its loop; `now` is the cluster's monotonic time in seconds."""

    def __init__(self, real: asyncio.AbstractEventLoop, now: Callable[[], float], cluster: Lines | None = None) -> None:
        self.real = real
        self._cluster = cluster
        self.time = now
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = count()
        self._armed: asyncio.TimerHandle | None = None
        self._armed_at = NEVER
        self._tasks: set[asyncio.Task[Any]] = set()
        self._readers: set[int] = set()
        self._alive = True
        self.wrapped: Callable[[Any], Any] = lambda protocol: protocol  # what stands between a client's socket and the broker's connection
        self.held = False  # nothing is fired by real time, because the clock is being advanced, or the cluster is frozen

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    # Callbacks.

    def call_soon(self, callback: Callable[..., object], *arguments: Any, context: Context | None = None) -> asyncio.Handle:
        return self.real.call_soon(Contained(self._run), callback, arguments, context=context)

    def call_soon_threadsafe(self, callback: Callable[..., object], *arguments: Any, context: Context | None = None) -> asyncio.Handle:
        return self.real.call_soon_threadsafe(Contained(self._run), callback, arguments, context=context)

    def _run(self, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        if self._alive:
            self.within(callback, *arguments)

    def within(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Call it as one of this cluster's callbacks."""
        token = CURRENT.set(self._cluster)
        try:
            callback(*arguments)
        finally:
            CURRENT.reset(token)

    def add_reader(self, descriptor: int, callback: Callable[..., object], *arguments: Any) -> None:
        self._readers.add(descriptor)
        self.real.add_reader(descriptor, Contained(self._run), callback, arguments)

    def remove_reader(self, descriptor: int) -> bool:
        self._readers.discard(descriptor)
        return self.real.remove_reader(descriptor)

    def create_task(self, work: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
        context = copy_context()
        context.run(CURRENT.set, self._cluster)
        task = self.real.create_task(work, context=context, **options)
        self._tasks.add(task)
        task.add_done_callback(Contained(self._tasks.discard))
        return task

    async def connect_accepted_socket(self, new_protocol: Callable[[], Any], sock: Any) -> Any:
        return await self.real.connect_accepted_socket(lambda: self.wrapped(new_protocol()), sock)

    # Timers.

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: Any, context: Context | None = None) -> Timer:
        return self.call_at(self.time() + delay, callback, *arguments, context=context)

    def call_at(self, when: float, callback: Callable[..., object], *arguments: Any, context: Context | None = None) -> Timer:
        timer = Timer(when, lambda: callback(*arguments))
        heappush(self._timers, (when, next(self._numbers), timer))
        if when < self._armed_at:
            self._arm()
        return timer

    @property
    def next_at(self) -> float:
        """The time of the next timer."""
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heappop(timers)
        return timers[0][0] if timers else NEVER

    def _arm(self) -> None:
        at = self.next_at
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None
        self._armed_at = at
        if at < NEVER and self._alive and not self.held:
            self._armed = self.real.call_later(max(0.0, at - self.time()), Contained(self._fire))

    def _fire(self) -> None:
        self._armed = None
        self._armed_at = NEVER
        self.fire_due()

    def fire_due(self) -> None:
        """Run the timers whose time has come, and wait for the next one."""
        now = self.time()
        while self._alive and not self.held and self.next_at <= now:
            self.within(heappop(self._timers)[2].run)
        self._arm()

    def fire_next(self) -> None:
        """Run the next timer, whose time the clock shows."""
        if self.next_at < NEVER:
            self.within(heappop(self._timers)[2].run)

    def hold(self) -> None:
        """Fire no timer by itself until `go_on`."""
        self.held = True
        self._arm()

    def go_on(self) -> None:
        self.held = False
        self.fire_due()

    def kill(self) -> None:
        """Nothing of this cluster runs any more."""
        self._alive = False
        self._timers.clear()
        if self._armed is not None:
            self._armed.cancel()
        for descriptor in self._readers:
            self.real.remove_reader(descriptor)
        self._readers.clear()
        for task in list(self._tasks):
            task.cancel()
