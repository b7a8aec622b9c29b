"""The same for asyncio: each verb runs in a thread, so that the test's own loop goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from .broker import Broker
from .cluster import Cluster


class AsyncCluster:
    """A cluster whose verbs are awaited: `await kafka.wait_group("billing", members=3)`. `sync` is the cluster itself."""

    def __init__(self, cluster: Cluster) -> None:
        self.sync = cluster
        self.bootstrap = cluster.bootstrap
        self.clients = cluster.clients

    def __getattr__(self, name: str) -> Callable[..., Any]:
        verb = getattr(self.sync, name)
        if not callable(verb):
            raise AttributeError(f"{name} is no verb: use .sync.{name}")
        return partial(asyncio.to_thread, verb)

    @contextlib.asynccontextmanager
    async def no_rebalance(self, group: str, **options: Any) -> AsyncIterator[None]:
        async with _in_threads(self.sync.no_rebalance(group, **options)):
            yield

    @contextlib.asynccontextmanager
    async def rebalances(self, group: str, **options: Any) -> AsyncIterator[None]:
        async with _in_threads(self.sync.rebalances(group, **options)):
            yield

    @contextlib.asynccontextmanager
    async def fault(self, **selectors: Any) -> AsyncIterator[Any]:
        installed = await asyncio.to_thread(partial(self.sync.fault, **selectors))
        async with _in_threads(installed):
            yield installed


@contextlib.asynccontextmanager
async def _in_threads(manager: Any) -> AsyncIterator[Any]:
    """A context manager whose enter and exit take time."""
    entered = await asyncio.to_thread(manager.__enter__)
    try:
        yield entered
    except BaseException as error:
        if not await asyncio.to_thread(manager.__exit__, type(error), error, error.__traceback__):
            raise
    else:
        await asyncio.to_thread(manager.__exit__, None, None, None)


class AsyncBroker(AsyncCluster):
    """`async with AsyncBroker(topics={"orders": 6}) as kafka:`; takes what `Broker` takes."""

    def __init__(self, **options: Any) -> None:
        self._options = options

    async def __aenter__(self) -> AsyncBroker:
        super().__init__(await asyncio.to_thread(partial(Broker, **self._options)))
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self.sync.close)
