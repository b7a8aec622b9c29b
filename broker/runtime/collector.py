"""Control Python's garbage collector. Group state is long-lived and without cycles: collecting it frees nothing and stalls the
event loop, so it is frozen (`gc.freeze`: collections skip it).
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Final, Protocol

from broker.runtime.contain import Contained

CHECK_SECONDS: Final = 10.0
# Freeze again after the members grew by an eighth and at least by this number: a collection walks all objects that are not frozen.
GROWTH_MEMBERS_MIN: Final = 1_000
GROWTH_DIVISOR: Final = 8
# A full collection walks the objects of every long request that is decoded or answered: 80 ms for one of 60,000 elements. None runs while
# long requests come, for at most POSTPONED_SECONDS_MAX: garbage of closed connections may wait so long.
POSTPONED_SECONDS_MAX: Final = 60.0
NEVER: Final = 1 << 30  # young collections before a full one


class GarbageCollector(Protocol):
    """The functions of the module `gc` that are used."""

    def enable(self) -> None: ...

    def disable(self) -> None: ...

    def isenabled(self) -> bool: ...

    def collect(self, generation: int = 2) -> int: ...

    def freeze(self) -> None: ...

    def get_threshold(self) -> tuple[int, int, int]: ...

    def set_threshold(self, threshold0: int, threshold1: int, threshold2: int, /) -> None: ...


class NoGarbage:
    """Ignores all calls: the collector is not this broker's to control, or costs time without a visible effect."""

    def enable(self) -> None: ...

    def disable(self) -> None: ...

    def isenabled(self) -> bool:
        return False

    def collect(self, generation: int = 2) -> int:
        return 0

    def freeze(self) -> None: ...

    def get_threshold(self) -> tuple[int, int, int]:
        return (0, 0, 0)

    def set_threshold(self, threshold0: int, threshold1: int, threshold2: int, /) -> None: ...


class Collector:
    """Disables collection while partitions load, and freezes all objects afterwards."""

    def __init__(self, loop: asyncio.AbstractEventLoop, members: Callable[[], int], garbage: GarbageCollector = gc) -> None:
        self._loop = loop
        self._members = members
        self._garbage = garbage
        self._refreeze_at = 0  # the number of members at which to freeze again
        self._timer: asyncio.TimerHandle | None = None
        self._thresholds = garbage.get_threshold()
        self._postponed_at: float | None = None  # None: full collections are not postponed
        self._long_request_at = 0.0

    def postpone(self) -> None:
        """A long request is to be decoded: no full collection for some seconds."""
        now = self._long_request_at = self._loop.time()
        if self._postponed_at is None and self._timer is not None:
            self._postponed_at = now
            self._garbage.set_threshold(*self._thresholds[:2], NEVER)

    def _end_postponement(self) -> None:
        if self._postponed_at is not None:
            self._postponed_at = None
            self._garbage.set_threshold(*self._thresholds)

    def pause(self) -> None:
        """Stop collections: while partitions load, almost no object becomes garbage."""
        self._garbage.disable()

    def resume(self) -> None:
        # No collection before the freeze: it would walk all group state to free the garbage of a few requests.
        self._freeze()
        self._garbage.enable()
        if self._timer is None:
            self._timer = self._loop.call_later(CHECK_SECONDS, Contained(self._check))

    def _freeze(self) -> None:
        self._garbage.freeze()
        members = self._members()
        self._refreeze_at = members + max(GROWTH_MEMBERS_MIN, members // GROWTH_DIVISOR)

    def _check(self) -> None:
        self._timer = self._loop.call_later(CHECK_SECONDS, Contained(self._check))
        now = self._loop.time()
        since = self._postponed_at
        if since is not None and (now >= self._long_request_at + CHECK_SECONDS or now >= since + POSTPONED_SECONDS_MAX):
            self._end_postponement()
        if self._garbage.isenabled() and self._members() >= self._refreeze_at:
            self._garbage.collect(1)
            self._freeze()

    def close(self) -> None:
        self._end_postponement()
        if self._timer is not None:
            self._timer.cancel()
