"""One connection of a sequence: sends requests and delivers their replies in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from struct import unpack_from
from typing import Any

from cli.client.connection import BY_NAME_UNTIL
from protocol.apis import APIS
from protocol.messages.api_versions import ApiVersionsRequest
from tests.support.headers import encode_request, response_header_version

Arrived = Callable[[Any], None]
CLOSED = "closed"


class Wire(asyncio.Protocol):
    """Delivers each reply as the decoded message, or CLOSED if the other side closes instead."""

    def __init__(self) -> None:
        self._data = b""
        self._waiting: deque[tuple[Any, int, Arrived]] = deque()
        self._correlation_id = 0
        self.closed = False
        self.transport: asyncio.Transport | None = None

    @classmethod
    async def open(cls, port: int) -> Wire:
        _, wire = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return wire

    @property
    def busy(self) -> bool:
        return bool(self._waiting)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def send(self, request: Any, version: int, client_id: str | None, arrived: Arrived) -> None:
        assert self.transport is not None
        self._correlation_id += 1
        self._waiting.append((request, version, arrived))
        self.transport.write(encode_request(request.API_KEY, version, self._correlation_id, client_id, request.encode(version)))

    async def ask(self, request: Any, version: int, client_id: str | None = "look") -> Any:
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def arrived(value: Any) -> None:
            if not reply.done():
                reply.set_result(value)

        self.send(request, version, client_id, arrived)
        return await reply

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= 4:
            (size,) = unpack_from(">i", self._data)
            if len(self._data) < size + 4:
                return
            frame, self._data = self._data[4 : size + 4], self._data[size + 4 :]
            request, version, arrived = self._waiting.popleft()
            at = 4 + response_header_version(request.API_KEY, version)
            reply, end = APIS[request.API_KEY].response.decode(frame, at, version)
            assert (end, reply.encode(version)) == (len(frame), frame[at:]), f"the decoded reply does not encode to these bytes: {reply}"
            arrived(reply)

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        waiting, self._waiting = self._waiting, deque()
        for _, _, arrived in waiting:
            arrived(CLOSED)

    def drop(self) -> None:
        """Close; pending requests get no reply."""
        self._waiting.clear()
        self.closed = True
        if self.transport is not None:
            self.transport.abort()


Versions = dict[int, tuple[int, int]]


async def versions_of(port: int) -> Versions:
    """The versions that a server advertises and this project has a codec for."""
    wire = await Wire.open(port)
    reply = await wire.ask(ApiVersionsRequest("sequences", "1"), 3)
    wire.drop()
    versions: Versions = {}
    for offered in reply.api_keys:
        if (api := APIS.get(offered.api_key)) is not None:
            # Ids of topics differ between two servers: tests/clients/test_against_kafka.py asks the versions that have them.
            newest = min(offered.max_version, api.served[1], BY_NAME_UNTIL.get(api.key, offered.max_version))
            versions[api.key] = max(offered.min_version, api.served[0]), newest
    return versions


def common(first: Versions, second: Versions) -> Versions:
    both = {key: (max(first[key][0], second[key][0]), min(first[key][1], second[key][1])) for key in first if key in second}
    return {key: (low, high) for key, (low, high) in both.items() if low <= high}
