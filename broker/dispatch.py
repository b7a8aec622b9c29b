"""From a frame to its handler and back: the only place that knows headers and versions of every API."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Protocol

from broker.connection import Connection
from broker.logs import get_logger
from protocol.apis import Api
from protocol.errors import ErrorCode, ProtocolError
from protocol.wire import UNREADABLE, skip_tags

log = get_logger("broker.dispatch")

_HEAD = Struct(">hhih")  # api key, version, correlation id, length of the client id (-1: null)
_REPLY = Struct(">ii")
_FLEXIBLE_REPLY = Struct(">iiB")  # ... and an empty section of tagged fields

API_VERSIONS = 18


class Response(Protocol):
    def encode(self, version: int) -> bytes: ...


# A handler answers at once by returning the reply, or returns None and answers its call later.
Handler = Callable[["Call", Any], Response | None]
# The reply in the API's own shape that carries an error and nothing else.
Refusal = Callable[[Any, int, int], Response]


class Route:
    """One API as served here."""

    __slots__ = ("api", "decode", "flexible_from", "handle", "key", "newest", "oldest", "refuse", "tagged_reply_from")

    def __init__(self, api: Api, handle: Handler, refuse: Refusal) -> None:
        self.api = api
        self.key: int = api.key
        self.oldest, self.newest = api.served
        self.flexible_from: int = api.flexible_from
        # The header of an ApiVersions reply has no tagged fields in any version: a client reads it before it knows ours.
        self.tagged_reply_from = api.flexible_from if api.key != API_VERSIONS else 1 << 15
        self.decode = api.request.decode
        self.handle = handle
        self.refuse = refuse


class Call:
    """A request, who asked, and where the reply goes. It is its own held reply (`coordinator.hold`)."""

    __slots__ = ("_frame", "connection", "correlation_id", "reply", "request", "route", "version")

    def __init__(
        self, connection: Connection, route: Route, version: int, correlation_id: int, request: Any, frame: bytes
    ) -> None:
        self.connection = connection
        self.route = route
        self.version = version
        self.correlation_id = correlation_id
        self.request = request
        self.reply: Response | None = None
        self._frame = frame

    @property
    def client_id(self) -> str:
        length = _HEAD.unpack_from(self._frame)[3]
        return self._frame[10 : 10 + length].decode("utf-8", "replace") if length > 0 else ""

    def answer(self, reply: Response) -> None:
        trace = self.connection.host.trace
        if trace is not None:
            trace(">", self, reply)
        body = reply.encode(self.version)
        if self.version >= self.route.tagged_reply_from:
            head = _FLEXIBLE_REPLY.pack(len(body) + 5, self.correlation_id, 0)
        else:
            head = _REPLY.pack(len(body) + 4, self.correlation_id)
        self.connection.send(head + body)

    def release(self) -> None:
        assert self.reply is not None
        self.answer(self.reply)

    def fail(self, error: int) -> None:
        self.answer(self.route.refuse(self.request, self.version, error))


def _skip_header_tags(frame: bytes, at: int) -> int:
    try:
        return skip_tags(frame, at)
    except UNREADABLE:
        raise ProtocolError("a request header is cut short") from None


class Dispatch:
    """The routes served, and the way of every frame through them."""

    def __init__(self) -> None:
        self.routes: dict[int, Route] = {}

    def serve(self, *routes: Route) -> None:
        for route in routes:
            self.routes[route.key] = route

    def __call__(self, connection: Connection, frame: bytes) -> None:
        """Decode one frame and answer it, now or later. ProtocolError: the connection cannot go on."""
        if len(frame) < 10:
            raise ProtocolError(f"a frame of {len(frame)} bytes has no room for a request header")
        key, version, correlation_id, client_id_length = _HEAD.unpack_from(frame)
        route = self.routes.get(key)
        if route is None:
            raise ProtocolError(f"API key {key} (version {version}) is not served")
        if not route.oldest <= version <= route.newest:
            if key == API_VERSIONS and version > route.newest:
                self._downgrade(connection, route, correlation_id)
                return
            raise ProtocolError(f"{route.api.name} version {version} is not served (served: {route.oldest} to {route.newest})")
        at = 10 + client_id_length if client_id_length > 0 else 10
        if client_id_length < -1 or at > len(frame):
            raise ProtocolError(f"{route.api.name} request: client id of {client_id_length} bytes in a frame of {len(frame)}")
        if version >= route.flexible_from:
            if at < len(frame) and not frame[at]:
                at += 1
            else:
                at = _skip_header_tags(frame, at)
        request, _ = route.decode(frame, at, version)
        call = Call(connection, route, version, correlation_id, request, frame)
        trace = connection.host.trace
        if trace is not None:
            trace("<", call, request)
        try:
            reply = route.handle(call, request)
        except Exception:
            log.exception("a request failed inside the broker", api=route.api.name, version=version)
            reply = route.refuse(request, version, ErrorCode.UNKNOWN_SERVER_ERROR)
        if reply is not None:
            call.answer(reply)

    def _downgrade(self, connection: Connection, route: Route, correlation_id: int) -> None:
        """A client newer than us asks which versions we speak: answer in the oldest form, which it can read."""
        reply = route.refuse(None, 0, ErrorCode.UNSUPPORTED_VERSION).encode(0)
        connection.send(_REPLY.pack(len(reply) + 4, correlation_id) + reply)
