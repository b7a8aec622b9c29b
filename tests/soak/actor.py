"""A client of the soak: a task with one connection, which a kill may end at any moment."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from tests.soak.wire import Wire


class Actor(ABC):
    def __init__(self) -> None:
        self._wire: Wire | None = None
        self._task = asyncio.get_running_loop().create_task(self._run())

    @abstractmethod
    async def _run(self) -> None: ...

    def stop(self) -> None:
        """The process dies without sending anything."""
        self._task.cancel()
        self._drop_wire()

    async def ended(self) -> None:
        await asyncio.gather(self._task, return_exceptions=True)
        self._drop_wire()

    def failure(self) -> BaseException | None:
        """The exception that ended the task, unless it was stopped."""
        return self._task.exception() if self._task.done() and not self._task.cancelled() else None

    def _drop_wire(self) -> None:
        if self._wire is not None:
            self._wire.close()
        self._wire = None
