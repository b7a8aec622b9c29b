"""Serves HTTP/1.1 on one port; h11 reads the requests. A handler gets a `Request` and returns a `Reply`; what it raises ends that request alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import h11

from broker.runtime.contain import report_defect

BODY_BYTES_MAX: Final = 16 << 20
HEAD_SECONDS: Final = 30.0  # for the next request on an open connection to be complete
CONNECTIONS_MAX: Final = 256
READ_BYTES: Final = 1 << 16


class Request(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]  # names in lower case
    body: bytes


class Reply(NamedTuple):
    status: int
    document: Any = None  # sent as JSON
    text: str | None = None  # sent as it is, instead
    headers: tuple[tuple[str, str], ...] = ()

    def body(self) -> tuple[bytes, str]:
        if self.text is not None:
            return self.text.encode(), "text/plain; charset=utf-8"
        return json.dumps(self.document, ensure_ascii=False, separators=(", ", ": ")).encode() + b"\n", "application/json"


Handler = Callable[[Request], Awaitable[Reply]]


class HttpServer:
    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int) -> int:
        """Listen, and return the port. Raises OSError."""
        self._server = await asyncio.start_server(self._connected, host, port, limit=READ_BYTES)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if len(self._connections) <= CONNECTIONS_MAX:
                await self._serve(reader, writer)
        except (OSError, TimeoutError, asyncio.CancelledError, h11.LocalProtocolError):
            pass
        except Exception as error:
            report_defect("an HTTP connection failed inside the broker", error)
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        http = h11.Connection(h11.SERVER)
        while True:
            try:
                async with asyncio.timeout(HEAD_SECONDS):
                    request = await self._read(http, reader, writer)
            except h11.RemoteProtocolError as error:
                if http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                    await self._send(http, writer, Reply(error.error_status_hint or 400, {"error": str(error)}))
                return
            if request is None:
                return
            await self._send(http, writer, await self._answer(request))
            if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
                return
            http.start_next_cycle()

    async def _read(self, http: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request | None:
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                if http.they_are_waiting_for_100_continue:
                    writer.write(http.send(h11.InformationalResponse(status_code=100, headers=[])))
                http.receive_data(await reader.read(READ_BYTES))
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > BODY_BYTES_MAX:
                    raise h11.RemoteProtocolError(f"the body has more than {BODY_BYTES_MAX} bytes", error_status_hint=413)
            elif isinstance(event, h11.EndOfMessage):
                assert head is not None
                return request_of(head, bytes(body))
            else:
                return None  # the client has closed

    async def _answer(self, request: Request) -> Reply:
        try:
            return await self._handler(request)
        except Exception as error:
            report_defect("an HTTP request failed inside the broker", error, path=request.path)
            return Reply(500, {"error": f"{type(error).__name__}: {error}", "hint": "this is a defect; the broker's log has more"})

    async def _send(self, http: h11.Connection, writer: asyncio.StreamWriter, reply: Reply) -> None:
        body, kind = reply.body()
        headers = [("content-type", kind), ("content-length", str(len(body))), ("cache-control", "no-store"), *reply.headers]
        writer.write(http.send(h11.Response(status_code=reply.status, headers=headers)) or b"")
        writer.write(http.send(h11.Data(data=body)) or b"")
        writer.write(http.send(h11.EndOfMessage()) or b"")
        await writer.drain()


def request_of(head: h11.Request, body: bytes) -> Request:
    parts = urlsplit(head.target.decode("ascii", "replace"))
    return Request(
        head.method.decode("ascii"),
        unquote(parts.path),
        dict(parse_qsl(parts.query, keep_blank_values=True)),
        {name.decode("ascii"): value.decode("latin-1") for name, value in head.headers},
        body,
    )
