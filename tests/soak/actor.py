"""A client of the soak: a task with one connection, which a kill may end at any moment."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Callable

from tests.soak.wire import Lost, Silent, Wire

RETRY_SECONDS = 0.03
ANSWER_SECONDS = 15


class Retry(Exception):
    """Raised by a client to continue after a pause."""


class Actor(ABC):
    def __init__(self, port: int, client_id: str, randomness: random.Random, broken: Callable[[str], None]) -> None:
        """`broken` reports a broken guarantee."""
        self._port = port
        self._client_id = client_id
        self._random = randomness
        self._broken = broken
        self._wire: Wire | None = None
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        """Call `_work` until it returns False; reconnect after a lost connection."""
        while True:
            try:
                if self._wire is None:
                    self._wire = await Wire.open(self._port, self._client_id)
                    await self._connected(self._wire)
                if not await self._work(self._wire):
                    return
            except Retry:
                await self._pause()
            except (Lost, Silent) as error:
                if isinstance(error, Silent):
                    self._broken(f"no answer: {self!r} waited {ANSWER_SECONDS} s")
                self._drop_wire()
                await self._pause()

    async def _pause(self) -> None:
        await asyncio.sleep(RETRY_SECONDS * self._random.uniform(0.5, 1.5))

    async def _connected(self, wire: Wire) -> None:  # noqa: B027 (most clients have none)
        """The first requests of a connection."""

    @abstractmethod
    async def _work(self, wire: Wire) -> bool:
        """The next requests. Return False after the last one."""

    def stop(self) -> None:
        """End the client as if its process died: nothing more is sent."""
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
