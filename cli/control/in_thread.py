"""Clusters that a test controls, served in a thread of the test's own process."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from broker.control.host import Host, sorted_by_cluster
from broker.control.loop import CURRENT
from broker.logging import logs
from broker.logging.logs import log
from broker.runtime.start import StartError
from broker.server import choose_loop
from broker.settings.load import ConfigError, load_config
from cli import VERSION
from cli.control.serving import read_history

REFUSALS: Final = (ConfigError, StartError, OSError)


class Served:
    """A host of clusters and its loop. `serve` runs in the thread, everything else in others."""

    id = ""  # a line of the host belongs to no cluster

    def __init__(self, settings: Mapping[str, str], data: str | None, port: int, token: str, lines: deque[str]) -> None:
        """`lines` gets the warnings and errors. Raises ConfigError."""
        given = [f"{name}={value}" for name, value in settings.items()]
        config = load_config(listen=[f"127.0.0.1:{port}"], data=[data] if data else [], profile="test", settings=given)
        self.token = token
        self.bootstrap = self.url = ""
        self._lines = lines
        self._host = Host(config, token, read_history, in_memory=data is None, anywhere=False, version=VERSION)
        self._stopped: asyncio.Future[Mapping[str, object]] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def serve(self, ready: Callable[[], None]) -> None:
        """Serve until `stop`. Raises StartError."""
        loop_factory, _ = choose_loop(self._host.config.event_loop)
        LOG.borrow()
        try:
            with asyncio.Runner(loop_factory=loop_factory) as runner:
                self._loop = loop = runner.get_loop()
                self._stopped = loop.create_future()
                runner.run(self._run(loop, self._stopped, ready))
        finally:
            LOG.give_back()

    async def _run(self, loop: asyncio.AbstractEventLoop, stopped: asyncio.Future[Mapping[str, object]], ready: Callable[[], None]) -> None:
        CURRENT.set(self)

        def serving(url: str) -> None:
            self.url, self.bootstrap = url, self._host.default.bootstrap
            ready()

        await self._host.run(loop, "127.0.0.1", 0, serving, stopped)

    def stop(self) -> None:
        """End it, from any thread. Raises RuntimeError when it has ended."""
        loop, stopped = self._loop, self._stopped
        if loop is not None and stopped is not None:
            loop.call_soon_threadsafe(lambda: None if stopped.done() else stopped.set_result({"reason": "asked to"}))

    def keep(self, level: str, event: str, details: Mapping[str, Any]) -> None:
        if logs.LEVELS[level] >= logs.LEVELS["warning"]:
            self._lines.append(logs.plain(level, event, details))


class BorrowedLog:
    """The process's one log, while brokers in threads run: their lines go to them, and not to the application's output."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._borrowers = 0
        self._before: tuple[logs.Write, str] = log.sink, log.level_name

    def borrow(self) -> None:
        with self._lock:
            self._borrowers += 1
            if self._borrowers == 1:
                self._before = log.sink, log.level_name
                log.connect(sorted_by_cluster(lambda level, event, details: None), "warning")

    def give_back(self) -> None:
        with self._lock:
            self._borrowers -= 1
            if not self._borrowers:
                log.connect(*self._before)


LOG: Final = BorrowedLog()
