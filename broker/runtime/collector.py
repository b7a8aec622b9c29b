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


class GarbageCollector(Protocol):
    """The functions of the module `gc` that are used."""

    def enable(self) -> None: ...

    def disable(self) -> None: ...

    def isenabled(self) -> bool: ...

    def collect(self, generation: int = 2) -> int: ...

    def freeze(self) -> None: ...


class Collector:
    """Disables collection while partitions load, and freezes all objects afterwards."""

    def __init__(self, loop: asyncio.AbstractEventLoop, members: Callable[[], int], garbage: GarbageCollector = gc) -> None:
        self._loop = loop
        self._members = members
        self._garbage = garbage
        self._refreeze_at = 0  # the number of members at which to freeze again
        self._timer: asyncio.TimerHandle | None = None

    def pause(self) -> None:
        """Stop collections: while partitions load, almost no object becomes garbage."""
        self._garbage.disable()

    def resume(self) -> None:
        # No collection before the freeze: it would walk all group state to free the garbage of a few requests.
        self._freeze()
        self._garbage.enable()
        if self._timer is None:
            self._timer = self._loop.call_later(CHECK_SECONDS, Contained(self._refreeze_if_grown))

    def _freeze(self) -> None:
        self._garbage.freeze()
        members = self._members()
        self._refreeze_at = members + max(GROWTH_MEMBERS_MIN, members // GROWTH_DIVISOR)

    def _refreeze_if_grown(self) -> None:
        self._timer = self._loop.call_later(CHECK_SECONDS, Contained(self._refreeze_if_grown))
        if self._garbage.isenabled() and self._members() >= self._refreeze_at:
            self._garbage.collect(1)
            self._freeze()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
