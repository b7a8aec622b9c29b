"""One connection to JetStream (the engine), reopened when it is lost. Callbacks instead of tasks keep messages in the order of `publish`.

The handler of a request is called once: with the reply, or with None when the connection was lost or the time was over. After None the
engine may have carried out the request or not.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

from broker.logging.logs import log
from broker.runtime.contain import Contained, contained_task, run_contained
from broker.settings.servers import Servers
from broker.stores.jetstream.wire import NO_RESPONDERS, Message, NatsError, Parser, connect_line, publish_parts, subscribe_line

VERSION_MIN: Final = (2, 12)
CONNECT_SECONDS: Final = 2.0
PING_SECONDS: Final = 2.0  # the connection is closed when a PING has no PONG by the time of the next PING
RETRY_SECONDS_MIN: Final = 0.05
RETRY_SECONDS_MAX: Final = 1.0
REQUEST_SECONDS: Final = 2.0
INBOX_SID: Final = 1
NOTHING_MORE: Final = Message("", INBOX_SID, b"", NO_RESPONDERS)  # ends requests with many replies when the connection is lost

AnswerHandler = Callable[[Message | None], None]
MessageHandler = Callable[[Message], None]


class TooOld(NatsError):
    """The server's release is too old: it may lose entries of a log, or accept writes of two nodes at one position."""


class _Link(asyncio.Protocol):
    """One socket to one server."""

    def __init__(self, owner: Connection, opened: asyncio.Future[None], login: dict[str, str], tls: ssl.SSLContext | None, host: str) -> None:
        self._owner = owner
        self._opened = opened
        self._login = login
        self._tls = tls
        self._host = host
        self._parser = Parser()
        self.transport: asyncio.Transport | None = None
        self.info: dict[str, Any] = {}
        self._greeted = False
        self._encrypting: asyncio.Task[None] | None = None  # a reference to the task, since the loop keeps none

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            for item in self._parser.feed(data):
                if isinstance(item, Message):
                    self._owner.dispatch(item)
                else:
                    self._handle_line(item)
        except (NatsError, ValueError) as error:
            self._fail(error)

    def _handle_line(self, line: bytes) -> None:
        if line == b"PING":
            self.write(b"PONG\r\n")
        elif line == b"PONG":
            if not self._opened.done():
                self._opened.set_result(None)
            self._owner.ponged(self)
        elif line.startswith(b"INFO "):
            self.info = json.loads(line[5:])
            if not self._greeted:
                self._greeted = True
                self._accept_server_info()
        elif line.startswith(b"-ERR"):
            error = NatsError(line[5:].decode("utf-8", "replace").strip().strip("'"))
            if not self._opened.done():
                self._fail(error)
            else:
                log.warning("the engine complains", reason=str(error))
        elif line and not line.startswith(b"+OK"):
            raise NatsError(f"a line of the server cannot be parsed: {line[:100]!r}")

    def _accept_server_info(self) -> None:
        version = server_version(self.info)
        if version < VERSION_MIN:
            version_min = ".".join(map(str, VERSION_MIN))
            self._fail(TooOld(f"nats-server {self.info.get('version')} is older than {version_min}; older servers have accepted writes of two nodes at one position of a log"))
        elif not self.info.get("jetstream"):
            self._fail(NatsError("the server has no JetStream: start it with jetstream enabled"))
        elif self._tls is not None:
            self._encrypting = asyncio.get_running_loop().create_task(contained_task(self._encrypt, self._tls))
        elif self.info.get("tls_required"):
            self._fail(NatsError("the server wants TLS: write tls:// instead of nats://"))
        else:
            self._send_connect()

    async def _encrypt(self, tls: ssl.SSLContext) -> None:
        assert self.transport is not None
        try:
            transport = await asyncio.get_running_loop().start_tls(self.transport, self, tls, server_hostname=self._host)
        except (OSError, ssl.SSLError) as error:
            self._fail(error)
            return
        self.transport = transport
        self._send_connect()

    def _send_connect(self) -> None:
        options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "name": "tenure", "lang": "python", "version": "1", "protocol": 1}
        self.write(connect_line({**options, **self._login}) + subscribe_line(f"{self._owner.inbox}.*", INBOX_SID) + b"PING\r\n")

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def _fail(self, error: Exception) -> None:
        if not self._opened.done():
            self._opened.set_exception(error)
        else:
            log.error("connection to the engine is closed", reason=str(error))
        if self.transport is not None:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._opened.done():
            self._opened.set_exception(exc or ConnectionError("the server closed the connection"))
        self._owner.lost(self)


class Connection:
    """The connection of one node to the engine."""

    def __init__(self, loop: asyncio.AbstractEventLoop, servers: Servers, inbox: str, changed: Callable[[bool], None]) -> None:
        """`inbox`: a subject that only this process uses. `changed` is called with True for a new connection, with False when it is lost."""
        self.inbox = inbox
        self.payload_max = 1 << 20
        self.info: dict[str, Any] = {}
        self.loop = loop
        self._servers = servers
        self._changed = changed
        self._link: _Link | None = None
        self._next = 0  # index of the server to try next
        self._payloads_max: dict[tuple[str, int], int] = {}  # of each server at its last connection: an entry must fit into all of them
        self._token = 0
        self._waiting: dict[str, AnswerHandler] = {}  # by the token, the last part of the reply subject
        self._many: dict[str, MessageHandler] = {}  # handlers of requests that get many replies
        self._subscribed: dict[int, tuple[str, MessageHandler]] = {}
        self._sid = INBOX_SID
        self._out: list[bytes | bytearray] = []
        self._closed = False
        self._pinged = False  # a PING waits for its PONG
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        return self._link is not None

    async def open(self) -> None:
        """Connect for the first time. If no server can be used, raises the error of the last one, or TooOld at once."""
        problem: Exception = NatsError("no server is configured")
        for _ in self._servers.addresses:
            try:
                await self._try_next()
                return
            except TooOld:
                raise
            except (TimeoutError, OSError, NatsError) as error:
                problem = error
        raise problem

    async def _try_next(self) -> None:
        host, port = self._servers.addresses[self._next % len(self._servers.addresses)]
        self._next += 1
        opened: asyncio.Future[None] = self.loop.create_future()
        tls = self._servers.ssl_context() if self._servers.tls else None
        link = _Link(self, opened, self._servers.login(), tls, host)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self.loop.create_connection(lambda: link, host, port)
                await opened
        except BaseException:
            opened.cancel()
            if opened.done() and not opened.cancelled():
                opened.exception()
            if link.transport is not None:
                link.transport.abort()
            raise
        if self._closed:
            assert link.transport is not None
            link.transport.abort()
            return
        self._link = link
        self.info = link.info
        self._payloads_max[host, port] = int(link.info.get("max_payload", self.payload_max))
        self.payload_max = min(self._payloads_max.values())
        for sid, (subject, _) in self._subscribed.items():
            link.write(subscribe_line(subject, sid))
        self._pinged = False
        self._timer = self.loop.call_later(PING_SECONDS, Contained(self._ping, self._drop))
        run_contained(self._changed, True)

    async def _reconnect(self) -> None:
        pause = RETRY_SECONDS_MIN
        while not self._closed:
            try:
                await self._try_next()
                return
            except (TimeoutError, OSError, NatsError, ValueError) as error:
                log.debug("the engine cannot be reached", reason=str(error) or type(error).__name__)
            await asyncio.sleep(pause)
            pause = min(2 * pause, RETRY_SECONDS_MAX)

    def _ping(self) -> None:
        if self._link is None or self._closed:
            return
        if self._pinged:
            log.warning("the engine does not answer", server=self.info.get("server_name", ""))
            self._drop()
            return
        self._pinged = True
        self._link.write(b"PING\r\n")
        self._timer = self.loop.call_later(PING_SECONDS, Contained(self._ping, self._drop))

    def ponged(self, link: _Link) -> None:
        if link is self._link:
            self._pinged = False

    def _drop(self) -> None:
        if self._link is not None and self._link.transport is not None:
            self._link.transport.abort()

    def lost(self, link: _Link) -> None:
        if link is not self._link:
            return
        self._link = None
        self._out.clear()
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._waiting = self._waiting, {}
        many, self._many = self._many, {}
        if not self._closed:
            self._task = self.loop.create_task(contained_task(self._reconnect))
        run_contained(self._changed, False)
        for answered in waiting.values():
            run_contained(answered, None)
        for receive in many.values():
            run_contained(receive, NOTHING_MORE)

    # Sending.

    def publish(self, subject: str, payload: bytes | bytearray, reply: str = "", headers: bytes = b"") -> None:
        """Send the message at the end of this loop iteration; without a connection it is lost."""
        if self._link is None:
            return
        if not self._out:
            self.loop.call_soon(Contained(self._flush, self._drop))
        self._out += publish_parts(subject, payload, reply, headers)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._link is not None:
            self._link.write(b"".join(out))

    def request(self, subject: str, payload: bytes | bytearray, answered: AnswerHandler, headers: bytes = b"", seconds: float = REQUEST_SECONDS) -> None:
        """`answered` is called once: with the reply, or with None if there is no connection or no reply within `seconds`."""
        if self._link is None:
            self.loop.call_soon(Contained(answered), None)
            return
        token = self._new_token()
        timer = self.loop.call_later(seconds, Contained(self._expire), token)

        def stop_timer(message: Message | None) -> None:
            timer.cancel()
            answered(message)

        self._waiting[token] = stop_timer
        self.publish(subject, payload, f"{self.inbox}.{token}", headers)

    def _new_token(self) -> str:
        self._token += 1
        return str(self._token)

    def _expire(self, token: str) -> None:
        answered = self._waiting.pop(token, None)
        if answered is not None:
            run_contained(answered, None)

    def request_many(self, subject: str, payload: bytes, receive: MessageHandler) -> Callable[[], None]:
        """`receive` is called with every reply until the returned function is called or the connection is lost."""
        token = self._new_token()
        if self._link is not None:
            self._many[token] = receive
            self.publish(subject, payload, f"{self.inbox}.{token}")
        return partial(self._forget, token)

    def _forget(self, token: str) -> None:
        self._many.pop(token, None)

    def append(self, subject: str, payload: bytes | bytearray, headers: bytes, answered: AnswerHandler) -> None:
        """As `request`, without a time limit: `answered` gets the reply, or None when the connection is lost."""
        if self._link is None:
            self.loop.call_soon(Contained(answered), None)
            return
        token = self._new_token()
        self._waiting[token] = answered
        self.publish(subject, payload, f"{self.inbox}.{token}", headers)

    def subscribe(self, subject: str, receive: MessageHandler) -> None:
        self._sid += 1
        self._subscribed[self._sid] = subject, receive
        if self._link is not None:
            self._link.write(subscribe_line(subject, self._sid))

    # Receiving.

    def dispatch(self, message: Message) -> None:
        if message.sid != INBOX_SID:
            subscription = self._subscribed.get(message.sid)
            if subscription is not None:
                run_contained(subscription[1], message)
            return
        token = message.subject.rpartition(".")[2]
        handler = self._waiting.pop(token, None)
        if handler is not None:
            run_contained(handler, message)
            return
        dispatch = self._many.get(token)
        if dispatch is not None:
            run_contained(dispatch, message)

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        if self._link is not None and self._link.transport is not None:
            with contextlib.suppress(OSError):
                self._flush()
            self._link.transport.close()


def server_version(info: dict[str, Any]) -> tuple[int, int]:
    match = re.match(r"v?(\d+)\.(\d+)", str(info.get("version", "")))
    return (int(match[1]), int(match[2])) if match else (0, 0)
