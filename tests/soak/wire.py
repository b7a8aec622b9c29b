"""A connection of a soak client: requests and their replies; a lost connection raises `Lost`."""

from __future__ import annotations

import asyncio
from struct import unpack
from typing import Any

from protocol.apis import APIS
from tests.support.headers import encode_request, response_header_version

CONNECT_SECONDS = 5


class Lost(Exception):
    """The connection failed: whether the request was processed is unknown."""


class Silent(Exception):
    """No reply within a client's timeout."""


class Wire:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str) -> None:
        self._reader = reader
        self._writer = writer
        self._client_id = client_id
        self._correlation_id = 0

    @classmethod
    async def open(cls, port: int, client_id: str) -> Wire:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except (OSError, TimeoutError) as error:
            raise Lost from error
        return cls(reader, writer, client_id)

    async def ask(self, request: Any, version: int, seconds: float) -> Any:
        return await self.receive(request, version, self.send(request, version), seconds)

    def send(self, request: Any, version: int) -> int:
        """Send a request; returns the correlation id for `receive`, which must be called in the order of the requests."""
        self._correlation_id += 1
        self._writer.write(encode_request(request.API_KEY, version, self._correlation_id, self._client_id, request.encode(version)))
        return self._correlation_id

    async def receive(self, request: Any, version: int, correlation_id: int, seconds: float) -> Any:
        try:
            async with asyncio.timeout(seconds):  # asyncio.wait_for of Python 3.11 may lose a cancellation
                frame = await self._frame()
        except TimeoutError as error:
            raise Silent from error
        except (OSError, asyncio.IncompleteReadError) as error:
            raise Lost from error
        reply, end = APIS[request.API_KEY].response.decode(frame, 4 + response_header_version(request.API_KEY, version), version)
        assert end == len(frame)
        assert unpack(">i", frame[:4]) == (correlation_id,)
        return reply

    async def _frame(self) -> bytes:
        (size,) = unpack(">i", await self._reader.readexactly(4))
        return await self._reader.readexactly(size)

    def close(self) -> None:
        transport = self._writer.transport
        if not transport.is_closing():
            transport.abort()
