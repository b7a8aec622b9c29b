"""Decode a request, call its API's handler and encode the reply: the only place that knows the headers and versions of all APIs."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Any, ClassVar, Final, Protocol

from broker.logging.logs import log
from broker.net.connection import KIND_BYTES, REST_AT, SIZE_BYTES, Connection, FastPath
from broker.runtime.contain import report_defect
from broker.runtime.workers import Workers
from protocol.apis import API_VERSIONS, APIS, Api
from protocol.errors import EncodeError, ErrorCode, ProtocolError, TooManyElements
from protocol.wire import ELEMENTS, UNREADABLE, skip_tags

HEAD_BYTES = 14  # with the size of the request
# A request with more elements is decoded by another thread, so that other requests are not delayed. An element takes a byte or more, so a
# request of no more bytes need not be counted.
ELEMENTS_AT_ONCE_MAX: Final = 2_048
_HEAD = Struct(">4xhhih").unpack_from  # api key, version, correlation id, length of the client id (-1: null)

_REPLY = Struct(">ii").pack  # size, correlation id
_FLEXIBLE_REPLY = Struct(">iiB").pack  # size, correlation id, number of tagged fields (0)


class Request(Protocol):
    API_KEY: ClassVar[int]


class Response(Protocol):
    def encode(self, version: int) -> bytes: ...


class ConstantReply:
    """A reply that never changes, encoded once for each version."""

    __slots__ = ("_bytes", "_reply")

    def __init__(self, reply: Response) -> None:
        self._reply = reply
        self._bytes: dict[int, bytes] = {}

    def encode(self, version: int) -> bytes:
        data = self._bytes.get(version)
        if data is None:
            data = self._bytes[version] = self._reply.encode(version)
        return data


class ReplyTooLarge(ProtocolError):
    """A reply has more bytes than `socket.response.max.bytes`; the client gets an error instead."""

    def __init__(self, call: Call) -> None:
        limit = call.connection.context.reply_bytes_max
        super().__init__(f"the reply to {call.route.api.name} has more than {limit} bytes (socket.response.max.bytes)")


# A handler returns the reply, or returns None; the reply is then sent later through the `Call`.
Handler = Callable[["Call", Any], Response | None]
# Builds the API's reply with an error code and no other content.
ErrorResponse = Callable[[Any, int, int], Response]


class Route:
    """One served API: its handler, and its versions."""

    __slots__ = ("advertised", "api", "decode", "error_response", "flexible_from", "handle", "key", "newest", "oldest", "tagged_reply_from")

    def __init__(self, request: type[Request], handle: Handler, error_response: ErrorResponse, api: Api | None = None) -> None:
        """`api`: given for an API that Kafka does not have; Kafka's APIs are found by the request's key."""
        self.api = api = api or APIS[request.API_KEY]
        self.key: int = api.key
        self.oldest, self.newest = api.served
        self.advertised = api.advertised
        self.flexible_from: int = api.flexible_from
        # The header of an ApiVersions reply has no tagged fields in any version: a client reads it before it knows our versions.
        self.tagged_reply_from = api.flexible_from if api.key != API_VERSIONS else 1 << 15
        self.decode = api.request.decode
        self.handle = handle
        self.error_response = error_response

    def limit(self, oldest: int, newest: int) -> None:
        """Serve and advertise no version beyond these, as an older or newer broker would."""
        first, last = self.advertised
        self.advertised = max(first, oldest), min(last, newest)
        self.oldest, self.newest = max(self.oldest, oldest), min(self.newest, newest)


class Call:
    """A request and the connection that gets its reply. `coordinator.hold` keeps calls whose replies wait for the log."""

    __slots__ = ("connection", "correlation_id", "reply", "request", "request_frame", "route", "send_long", "version")

    def __init__(self, connection: Connection, route: Route, version: int, correlation_id: int, request: Any, frame: bytes) -> None:
        self.connection = connection
        self.route = route
        self.version = version
        self.correlation_id = correlation_id
        self.request = request
        self.reply: Response | None = None
        self.send_long: Callable[[Call, Response], None] | None = None  # encodes and sends the reply to a long request, in steps
        self.request_frame = frame  # the request with its size

    @property
    def client_id(self) -> str:
        return client_id_of(self.request_frame)

    @property
    def size(self) -> int:
        """The size of the request with its header."""
        return len(self.request_frame) - SIZE_BYTES

    @property
    def after_correlation_id(self) -> bytes:
        """The bytes of the request after its correlation id."""
        return self.request_frame[REST_AT:]

    def forget_request(self) -> None:
        """Drop the request's bytes, for a reply that may take long: the memory of what is kept of the request is bounded elsewhere."""
        self.request = None
        self.request_frame = b""

    def add_fast_path(self, fast_path: FastPath) -> bool:
        """Try `fast_path` first for later requests of this size, API and version; False: `FAST_PATH_BYTES_MAX` leaves no room for it."""
        return self.connection.add_fast_path(self.request_frame[:KIND_BYTES], fast_path)

    def fast_path(self) -> FastPath | None:
        """The fast path that was tried for this request, or None."""
        return self.connection.find_fast_path(self.request_frame[:KIND_BYTES])

    def answer(self, reply: Response) -> None:
        """Send the reply that the handler did not return."""
        if self.send_long is not None:
            self.send_long(self, reply)
            return
        try:
            frame = self.encode_frame(reply)
        except ReplyTooLarge as refused:
            self.refuse(refused)
        except ProtocolError as error:  # the reply repeats text of the request that is too long for a reply
            self.connection.close(str(error))
        else:
            self.connection.send(frame)

    def finish_without_reply(self) -> None:
        """Continue with the connection's next request: this one gets no reply (Produce with acks=0)."""
        self.connection.send(b"")

    def encode_frame(self, reply: Response) -> bytes:
        route = self.route
        version = self.version
        trace = self.connection.context.trace
        if trace is not None:
            trace(">", self, reply)
        body = reply.encode(version)
        if len(body) > self.connection.context.reply_bytes_max:
            raise ReplyTooLarge(self)
        if version >= route.tagged_reply_from:
            return _FLEXIBLE_REPLY(len(body) + 5, self.correlation_id, 0) + body
        return _REPLY(len(body) + 4, self.correlation_id) + body

    def encode_head(self, reply: Response, body_bytes: int) -> bytes:
        """The size and header of a reply whose body the caller encodes."""
        trace = self.connection.context.trace
        if trace is not None:
            trace(">", self, reply)
        if self.version >= self.route.tagged_reply_from:
            return _FLEXIBLE_REPLY(body_bytes + 5, self.correlation_id, 0)
        return _REPLY(body_bytes + 4, self.correlation_id)

    def release(self) -> None:
        assert self.reply is not None
        self.answer(self.reply)

    def refuse(self, refused: ReplyTooLarge) -> None:
        """Answer with an error instead of a reply that is too large."""
        try:
            self.connection.send(self.encode_frame(self.refusal(refused)))
        except ProtocolError as error:
            self.connection.close(str(error))

    def refusal(self, refused: ReplyTooLarge) -> Response:
        log.warning("reply refused", peer=self.connection.peer, reason=str(refused))
        self.connection.hold_reply_bytes(0)
        return self.route.error_response(self.request, self.version, ErrorCode.POLICY_VIOLATION)

    def fail(self, error: int) -> None:
        self.answer(self.route.error_response(self.request, self.version, error))


def client_id_of(frame: bytes) -> str:
    """The client id in a request's header; "" for null."""
    size = _HEAD(frame)[3]
    return frame[HEAD_BYTES : HEAD_BYTES + size].decode("utf-8", "replace") if size > 0 else ""


def _skip_header_tags(frame: bytes, at: int) -> int:
    try:
        return skip_tags(frame, at)
    except UNREADABLE:
        raise ProtocolError("a request header is cut short") from None


class Dispatch:
    """Finds the route of each request and calls its handler."""

    def __init__(self, elements_max: int, workers: Workers | None = None) -> None:
        """`workers`: one thread, which decodes long requests."""
        self.routes: dict[int, Route] = {}
        self._elements_max = elements_max
        self._workers = workers
        self.before_long_request: Callable[[], None] = lambda: None

    def add_routes(self, *routes: Route) -> None:
        for route in routes:
            self.routes[route.key] = route

    def __call__(self, connection: Connection, frame: bytes, failure: Exception | None = None) -> bytes | None:
        """Return the reply to the request, whose size comes first; None: it is sent later.

        `failure`: what a fast path has raised for this request. Raises ProtocolError if the connection must be closed.
        """
        end = len(frame)
        at = HEAD_BYTES
        if end < at:
            raise ProtocolError(f"a request of {end - SIZE_BYTES} bytes has no room for a header")
        key, version, correlation_id, client_id_bytes = _HEAD(frame)
        route = self.routes.get(key)
        if route is None:
            raise ProtocolError(f"API key {key} (version {version}) is not served")
        if not route.oldest <= version <= route.newest:
            if key == API_VERSIONS and version > route.newest:
                return _refuse_newer_version(route, correlation_id)
            raise ProtocolError(f"{route.api.name} version {version} is not served (served: {route.oldest} to {route.newest})")
        if client_id_bytes > 0:
            at += client_id_bytes
        if client_id_bytes < -1 or at > end:
            raise ProtocolError(f"{route.api.name} request: a client id of {client_id_bytes} bytes in a request of {end - SIZE_BYTES}")
        if version >= route.flexible_from:
            if at < end and not frame[at]:
                at += 1
            else:
                at = _skip_header_tags(frame, at)
        call = Call(connection, route, version, correlation_id, None, frame)
        try:
            if end - SIZE_BYTES > ELEMENTS_AT_ONCE_MAX:
                request = self._decode_large(call, frame, at)
                if request is None:
                    return None
            else:
                request, _ = route.decode(frame, at, version)
        except ProtocolError as error:
            raise _unreadable(call, error) from error
        return self._handle(call, request, failure)

    def _handle(self, call: Call, request: Any, failure: Exception | None = None) -> bytes | None:
        call.request = request
        connection, route = call.connection, call.route
        trace = connection.context.trace
        if trace is not None:
            trace("<", call, request)
        try:
            if failure is not None:
                raise failure
            reply = route.handle(call, request)
        except ReplyTooLarge as refused:
            reply = call.refusal(refused)
        except EncodeError:  # the reply repeats text of the request that is too long for a reply
            raise
        except Exception as error:
            report_defect("a request failed inside the broker", error, api=route.api.name, version=call.version)
            if not connection.busy:
                return None  # the request was answered before the exception
            reply = route.error_response(request, call.version, ErrorCode.UNKNOWN_SERVER_ERROR)
        if reply is None:
            return None
        try:
            return call.encode_frame(reply)
        except ReplyTooLarge as refused:
            return call.encode_frame(call.refusal(refused))

    def _decode_large(self, call: Call, data: bytes, at: int) -> Any:
        """The request, or None: the thread decodes it, and it is handled later."""
        route, version = call.route, call.version
        if self._workers is None or self._elements_max <= ELEMENTS_AT_ONCE_MAX:
            return _decode_bounded(route, data, at, version, self._elements_max)
        try:
            return _decode_bounded(route, data, at, version, ELEMENTS_AT_ONCE_MAX)
        except TooManyElements:
            self.before_long_request()
            decode = partial(_decode_bounded, route, data, at, version, self._elements_max, _let_others_run)
            self._workers.submit(decode, partial(self._decoded, call))
            return None

    def _decoded(self, call: Call, request: Any) -> None:
        """Handle a request that the thread has decoded; `request` may be the exception that it got."""
        connection = call.connection
        if connection.closed:
            return
        try:
            if isinstance(request, ProtocolError):
                raise _unreadable(call, request) from request
            if isinstance(request, Exception):
                raise request
            if connection.stopping:
                connection.close("")  # what serves requests may have stopped
                return
            reply = self._handle(call, request)
            if reply is not None:
                connection.send(reply)
        except ProtocolError as error:
            connection.close(str(error))
        except Exception as failure:
            report_defect("a connection failed inside the broker", failure, peer=connection.peer)
            connection.handle_defect()


def _let_others_run() -> None:
    time.sleep(0)


def _decode_bounded(route: Route, data: bytes, at: int, version: int, elements_max: int, pause: Callable[[], None] | None = None) -> Any:
    ELEMENTS.bound(elements_max, pause)
    try:
        return route.decode(data, at, version)[0]
    finally:
        ELEMENTS.unbound()


def _unreadable(call: Call, error: ProtocolError) -> ProtocolError:
    return ProtocolError(f"{call.route.api.name} version {call.version}: {error}")


def _refuse_newer_version(route: Route, correlation_id: int) -> bytes:
    """Answer an ApiVersions request of a newer version in version 0, which every client can read."""
    reply = route.error_response(None, 0, ErrorCode.UNSUPPORTED_VERSION).encode(0)
    return _REPLY(len(reply) + 4, correlation_id) + reply
