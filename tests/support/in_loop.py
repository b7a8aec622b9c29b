"""A whole broker in the event loop of the test, instead of a process of its own, and clients for it.

A test can inspect the broker between two requests, and plant failures; tests of signals, exit codes or speed start a process
(`tests/running.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
from collections import deque
from pathlib import Path
from struct import unpack
from typing import Any, Self

from broker.machine import RealMachine
from broker.runtime.collector import GarbageCollector, NoGarbage
from broker.runtime.node import Address
from broker.server import Server
from broker.settings.config import Config
from broker.settings.descriptors import divide_descriptors
from broker.settings.load import load_config
from protocol.apis import APIS
from tests.support.headers import encode_request, response_header_version

ANSWER_SECONDS = 10
DESCRIPTORS = divide_descriptors(4_096, always_open=1)


class Thresholds(NoGarbage):
    """Freezes nothing: what a frozen broker of an ended test has in cycles would never be collected, some megabytes for each."""

    def __init__(self) -> None:
        self._thresholds = gc.get_threshold()

    def get_threshold(self) -> tuple[int, int, int]:
        return self._thresholds

    def set_threshold(self, threshold0: int, threshold1: int, threshold2: int, /) -> None:
        self._thresholds = (threshold0, threshold1, threshold2)


class Announcing(Server):
    """Announces its listeners in the loop, and not on standard output."""

    def __init__(self, config: Config, loop: asyncio.AbstractEventLoop, garbage: GarbageCollector) -> None:
        machine = RealMachine()
        machine.garbage = garbage
        super().__init__(config, loop, DESCRIPTORS, True, machine)
        self.listening: asyncio.Future[int] = self._loop.create_future()

    def _announce(self, addresses: list[Address]) -> None:
        self.listening.set_result(addresses[0].listen_port)


class InLoopBroker:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0
        self.garbage = Thresholds()
        self._clients: list[AsyncClient] = []

    async def start(self, **settings: object) -> None:
        """Start, or start again after `stop`. `settings`: names have underscores in place of dots."""
        values = {"group_initial_rebalance_delay_ms": 0} | settings
        words = [f"{name.replace('_', '.')}={value}" for name, value in values.items()]
        config = load_config(listen=["127.0.0.1:0"], data=[str(self.folder)], settings=words, environ={})
        self.server = Announcing(config, asyncio.get_running_loop(), self.garbage)
        self._serving = asyncio.create_task(self.server.run())
        await asyncio.wait([self._serving, self.server.listening], return_when=asyncio.FIRST_COMPLETED)
        gc.enable()  # a start disables it
        if self._serving.done():
            self._serving.result()  # raises the exception with which the start failed
        self.port = self.server.listening.result()

    async def connect(self, client_id: str | None = "test") -> AsyncClient:
        client = AsyncClient(*await asyncio.open_connection("127.0.0.1", self.port), client_id)
        self._clients.append(client)
        return client

    async def stop(self) -> None:
        """Stop in order, as after SIGTERM."""
        if not self._serving.done():
            if not self.server.stop_request.requested:
                self.server.stop_request.signalled(signal.SIGTERM)
            await self._serving
        for client in self._clients:
            await client.close()
        self._clients.clear()


class AsyncClient:
    """A connection; requests may be sent ahead of the replies."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str | None) -> None:
        self._reader = reader
        self._writer = writer
        self._client_id = client_id
        self._correlation_id = 0
        self._unanswered: deque[tuple[int, Any, int]] = deque()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def frame(self, request: Any, version: int) -> bytes:
        """The frame of a request, which the caller must write next: `reply` expects replies in the order of these calls."""
        self._correlation_id += 1
        self._unanswered.append((self._correlation_id, request, version))
        return encode_request(request.API_KEY, version, self._correlation_id, self._client_id, request.encode(version))

    def send(self, *requests: tuple[Any, int]) -> None:
        """Send all in one write."""
        self._writer.write(b"".join([self.frame(request, version) for request, version in requests]))

    async def reply(self) -> Any:
        """The next reply, which must belong to the oldest request."""
        async with asyncio.timeout(ANSWER_SECONDS):
            (size,) = unpack(">i", await self._reader.readexactly(4))
            frame = await self._reader.readexactly(size)
        correlation_id, request, version = self._unanswered.popleft()
        assert unpack(">i", frame[:4])[0] == correlation_id, "replies in another order than their requests"
        api = APIS[request.API_KEY]
        reply, end = api.response.decode(frame, 4 + response_header_version(api.key, version), version)
        assert end == len(frame)
        return reply

    async def ask(self, request: Any, version: int) -> Any:
        self.send((request, version))
        return await self.reply()

    async def await_close(self) -> bool:
        """Wait until the broker closes the connection or sends something; returns whether it closed."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._reader.read(1) == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
