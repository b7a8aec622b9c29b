"""A client inside the process: the requests that the test control sends to a cluster for its own verbs. They pass no fault, and are not listed."""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import Any, Final

from broker.net.connection import Connection
from broker.runtime.contain import Contained
from broker.runtime.node import Address
from protocol.apis import API_VERSIONS, APIS
from protocol.framing import Framer
from protocol.headers import encode_request, skip_response_header
from protocol.message import Message

_INT = Struct(">i").unpack_from
MORE_BYTES: Final = 16  # of a reply's header, which its limit does not count
CLIENT_ID: Final = "tenure-control"
NO_LISTENER: Final = Address("CONTROL", "127.0.0.1", 0, "127.0.0.1", 0)


class LocalClient:
    """The transport of a connection whose other end is this object."""

    def __init__(self, connections: Any, context: Any) -> None:
        self._framer = Framer(context.reply_bytes_max + MORE_BYTES)
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._next_id = 1
        self._connection = Connection(context, NO_LISTENER, "127.0.0.1")
        connections.add(self._connection)
        self._connection.connection_made(self)

    async def call(self, request: Message, version: int | None = None) -> Any:
        """Send a request in the newest served version, or in this one, and wait for the reply. Raises ConnectionError if the broker closes."""
        api = APIS[request.API_KEY]  # type: ignore[attr-defined]
        version = api.served[1] if version is None else version
        flexible = version >= api.flexible_from
        correlation_id = self._next_id
        self._next_id += 1
        waiting = self._waiting[correlation_id] = asyncio.get_running_loop().create_future()
        self._connection.data_received(encode_request(api.key, version, flexible, correlation_id, CLIENT_ID, request.encode(version)))
        frame = await waiting
        at = skip_response_header(api.key, flexible and api.key != API_VERSIONS, frame, 8)
        return api.response.decode(frame, at, version)[0]

    # The transport.

    def write(self, data: bytes) -> None:
        for frame in self._framer.feed(data):
            waiting = self._waiting.pop(_INT(frame, 4)[0], None)
            if waiting is not None and not waiting.done():
                waiting.set_result(frame)

    def writelines(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(ConnectionError("the broker closed the connection"))
        connection = self._connection
        asyncio.get_running_loop().call_soon(Contained(connection.connection_lost), None)

    def is_closing(self) -> bool:
        return self._connection.closed

    def get_extra_info(self, name: str) -> Any:
        return None

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...
