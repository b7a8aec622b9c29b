"""One connection to one broker: requests and replies in the newest version that both sides know, never past a deadline."""

from __future__ import annotations

import sys
import time
from struct import Struct, pack
from typing import Any, Final, cast

from broker.settings.endpoints import format_endpoint
from cli import VERSION
from cli.client import other_protocols
from cli.client.releases import unsupported
from cli.client.security import exit_code_of
from cli.dial import UnknownHostError, dial, remaining
from cli.failure import Exit
from protocol.errors import ProtocolError
from protocol.headers import encode_request, skip_response_header
from protocol.message import Message
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from secured import probing
from secured.channel import Channel
from secured.errors import AccessError, Cause
from secured.opening import open_channel
from secured.security import OPEN, Security

CLIENT_ID = "tenure"
# Kafka has version 3 since 2.4; an older broker answers in version 0 (KIP-511).
API_VERSIONS_VERSION = 3
UNSUPPORTED_VERSION = 35
METADATA = 3
# More than any reply to this client, but less than the size that the first four bytes of a TLS alert or of a line of text would mean.
REPLY_BYTES_MAX = 1 << 28
# Without an answer after this time (or share of the time), probe the peer for other protocols. The answer may still arrive.
PROBE_AFTER_SECONDS = 3.0
PROBE_AFTER_SHARE = 0.5
BANNER_SECONDS = 0.2

unpack_int = Struct(">i").unpack_from

# Produce, OffsetCommit, OffsetFetch: the newest versions that name topics by name, as the command does.
BY_NAME_UNTIL: Final = {0: 12, 8: 9, 9: 9}


class NoReply(Exception):
    """There is no usable reply. `final`: a retry is useless; `sent`: the broker may have processed the request; `late`: the time limit has
    passed, which `line` does not say (see `full_text`); `refusal`: the client does not get in, and why.
    """

    def __init__(self, line: str, *, final: bool = False, sent: bool = False, late: bool = False, refusal: AccessError | None = None) -> None:
        super().__init__(line)
        self.line = line
        self.final = final
        self.sent = sent
        self.late = late
        self.refusal = refusal

    @property
    def exit_code(self) -> Exit:
        return exit_code_of(self.refusal) if self.refusal else Exit.UNREACHABLE

    @property
    def hint(self) -> str | None:
        return self.refusal.remedy if self.refusal else None

    @property
    def everywhere(self) -> bool:
        """Whether no other broker of the cluster would answer otherwise."""
        return self.refusal is not None and self.refusal.cause != Cause.LISTENER

    @property
    def full_text(self) -> str:
        return f"{self.line} in time" if self.late else self.line

    def repeated(self) -> NoReply:
        """The same, to be raised for a later request that is not sent."""
        return NoReply(self.full_text, final=self.final, refusal=self.refusal)


def api_name(request: Message) -> str:
    return type(request).__name__.removesuffix("Request")


def response_class(request: Message) -> type[Message]:
    """The response class of a request, looked up in the request's own module, so that no table has to import all APIs."""
    module = sys.modules[type(request).__module__]
    return cast("type[Message]", getattr(module, api_name(request) + "Response"))


class Connection:
    """A connection with negotiated versions. Any failure closes it, so that a late reply is not taken for the reply to the next request."""

    __slots__ = ("_channel", "_correlation_id", "_ends_at", "_replies", "_security", "host", "port", "versions")

    def __init__(self, host: str, port: int, deadline: float, security: Security = OPEN) -> None:
        self.host = host
        self.port = port
        self.versions: dict[int, tuple[int, int]] = {}
        self._security = security
        self._correlation_id = 0
        self._replies = 0
        self._ends_at: float | None = None  # when the session of the login is to be renewed, by a new connection
        self._channel = self._open(deadline)
        try:
            self._learn_versions(deadline)
            if security.sasl is not None:
                self._log_in(deadline)
        except BaseException:
            self.close()
            raise

    @property
    def endpoint(self) -> str:
        return format_endpoint(self.host, self.port)

    def close(self) -> None:
        self._channel.close()

    def fileno(self) -> int:
        """The descriptor, for callers that poll several connections; `readable` says whether it had data."""
        return self._channel.fileno()

    @property
    def stale(self) -> bool:
        """Whether to use another connection: the broker has closed this one, or its login ends soon. A broker sends nothing without a request, so
        a connection with data is closed.
        """
        return self._channel.fileno() < 0 or self.expired or self._channel.arrived(0)

    @property
    def expired(self) -> bool:
        """Whether the login ends soon: then the broker closes the connection at the next request."""
        return self._ends_at is not None and time.monotonic() >= self._ends_at

    @property
    def channel(self) -> Channel:
        """The bytes, for a caller that encodes its own requests."""
        return self._channel

    # Opening

    def _open(self, deadline: float) -> Channel:
        try:
            return open_channel(self.host, self.port, deadline, self._security, dial)
        except AccessError as refusal:
            raise self._refused(refusal) from refusal
        except UnknownHostError as error:
            raise NoReply(f"{self.endpoint}: unknown host name ({error.reason})", final=True) from error
        except TimeoutError as error:
            raise NoReply(f"{self.endpoint} does not answer", late=True) from error
        except OSError as error:
            if self._security.tls is not None and isinstance(error, ConnectionResetError | BrokenPipeError):
                raise self._no_handshake(deadline) from error
            raise NoReply(f"{self.endpoint}: {(error.strerror or str(error)).lower()} (is a broker running there?)") from error

    def _no_handshake(self, deadline: float) -> NoReply:
        """The error for a listener that closes the connection during the TLS handshake."""
        if probing.speaks_kafka(lambda until: dial(self.host, self.port, until), deadline):
            return self._refused(probing.no_tls())
        return NoReply(f"{self.endpoint} closes connections during the TLS handshake")

    def _refused(self, refusal: AccessError) -> NoReply:
        about = f"{self.endpoint} " if refusal.about_broker else ""
        return NoReply(f"{about}{refusal.line}", final=True, refusal=refusal)

    def _log_in(self, deadline: float) -> None:
        from secured.sasl import OtherMechanism, log_in

        assert self._security.sasl is not None

        def exchange(key: int, version: int, body: bytes) -> bytes:
            return self._exchange(key, version, body, deadline)

        try:
            try:
                renewed_after = log_in(self._security.sasl, exchange, self.versions, deadline)
            except OtherMechanism:
                self.close()
                self._channel = self._open(deadline)
                renewed_after = log_in(self._security.sasl, exchange, self.versions, deadline)
        except AccessError as refusal:
            raise self._refused(refusal) from refusal
        except TimeoutError as error:
            raise NoReply(f"{self.endpoint} does not answer the login", late=True) from error
        except other_protocols.NotKafka as error:
            raise NoReply(f"{self.endpoint} {error}", final=True) from error
        except (EOFError, OSError) as error:
            raise NoReply(f"{self.endpoint} closes the connection during the login") from error
        if renewed_after is not None:
            self._ends_at = time.monotonic() + renewed_after

    def _exchange(self, key: int, version: int, body: bytes, deadline: float) -> bytes:
        """Send a request whose codec is not in `protocol`; returns the body of its reply."""
        self._correlation_id += 1
        client_id = CLIENT_ID.encode()
        header = pack(">hhih", key, version, self._correlation_id, len(client_id)) + client_id
        self._channel.send(pack(">i", len(header) + len(body)) + header + body, deadline)
        return self._receive(self._correlation_id, deadline)

    # Versions

    def version(self, api_key: int, known: tuple[int, int]) -> int:
        """The newest version that client and broker support, or -1."""
        offered = self.versions.get(api_key)
        if offered is None:
            return -1
        newest = min(offered[1], known[1])
        return newest if newest >= max(offered[0], known[0]) else -1

    def version_for(self, request: Message, oldest: int) -> int:
        """The version to send the request in. Raises Failure if the broker serves none that is `oldest` or newer."""
        key: int = request.API_KEY  # type: ignore[attr-defined]
        known = request.VERSIONS[0], min(request.VERSIONS[1], BY_NAME_UNTIL.get(key, request.VERSIONS[1]))
        version = self.version(key, known)
        if version < max(oldest, 0):
            raise unsupported(self.endpoint, api_name(request), key, self.versions.get(key), known, oldest)
        return version

    def _learn_versions(self, deadline: float) -> None:
        request = ApiVersionsRequest(CLIENT_ID, VERSION)
        reply = self._versions_reply(request, API_VERSIONS_VERSION, deadline)
        if reply.error_code == UNSUPPORTED_VERSION:
            reply = self._versions_reply(request, 0, deadline)
        if reply.error_code:
            raise NoReply(f"{self.endpoint}: ApiVersions is refused with error {reply.error_code}", final=True)
        self.versions = {entry.api_key: (entry.min_version, entry.max_version) for entry in reply.api_keys}

    def _versions_reply(self, request: ApiVersionsRequest, version: int, deadline: float) -> ApiVersionsResponse:
        try:
            correlation_id = self._send(request, version, deadline)
            self._probe_if_silent(deadline)
            body = self._receive(correlation_id, deadline)
        except other_protocols.NotKafka as error:
            raise NoReply(f"{self.endpoint} {error}", final=True) from error
        except TimeoutError as error:
            raise NoReply(f"{self.endpoint} accepts connections, but does not answer", late=True) from error
        except (EOFError, OSError) as error:
            self.close()
            raise self._explained(error) or self._other_protocol(deadline) from error
        refused = body[:2] == b"\0\x23"  # UNSUPPORTED_VERSION, which a broker always answers in version 0
        try:
            return ApiVersionsResponse.decode(body, 0, 0 if refused else version)[0]
        except ProtocolError as error:
            raise NoReply(f"{self.endpoint}: its reply to ApiVersions is invalid ({error})", final=True) from error

    def _probe_if_silent(self, deadline: float) -> None:
        """Wait for an answer; if none arrives, probe the peer for other protocols."""
        if not self._channel.arrived(min(PROBE_AFTER_SECONDS, remaining(deadline) * PROBE_AFTER_SHARE)) and self._security.tls is None:
            listener = other_protocols.describe_listener(self.host, self.port, deadline)
            if listener:
                raise other_protocols.NotKafka(listener)

    def readable(self, seconds: float) -> bool:
        """Whether an answer, or the end of the connection, arrives within this time."""
        return self._channel.arrived(seconds)

    def _explained(self, error: Exception) -> NoReply | None:
        """The error for an alert of TLS that came after the handshake: a client certificate is checked then."""
        if self._security.tls is None or not isinstance(error, OSError):
            return None
        from secured.tls import alert_in_words

        refusal = alert_in_words(error, self._security.tls)
        return self._refused(refusal) if isinstance(refusal, AccessError) else None

    def _other_protocol(self, deadline: float) -> NoReply:
        """The error for a closed connection, after a probe for other protocols."""
        if self._security.tls is not None:
            return NoReply(f"{self.endpoint} closes encrypted connections without an answer: is a Kafka broker there, and does it want a client certificate?")
        listener = other_protocols.describe_listener(self.host, self.port, deadline)
        if listener:
            return NoReply(f"{self.endpoint} {listener}", final=True)
        return NoReply(f"{self.endpoint} closes connections without an answer: is a Kafka broker there?")

    # Requests

    def send_and_receive(self, request: Message, version: int, deadline: float) -> Any:
        return self.receive(request, version, self.send(request, version, deadline), deadline)

    def send(self, request: Message, version: int, deadline: float) -> int:
        """Send a request; return its correlation id."""
        remaining(deadline)
        try:
            return self._send(request, version, deadline)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise self._connection_cut(error, api_name(request), deadline) from error
            raise

    def receive(self, request: Message, version: int, correlation_id: int, deadline: float) -> Any:
        name = api_name(request)
        try:
            body = self._receive(correlation_id, deadline)
            key: int = request.API_KEY  # type: ignore[attr-defined]
            at = skip_response_header(key, version >= request.FLEXIBLE_FROM, body, 0)
            reply, _ = response_class(request).decode(body, at, version)
        except BaseException as error:
            self.close()
            match error:
                case other_protocols.NotKafka():
                    raise NoReply(f"{self.endpoint} {error}", final=True) from error
                case TimeoutError():
                    raise NoReply(f"{self.endpoint} does not answer {name}", sent=True, late=True) from error
                case EOFError() | OSError():
                    raise self._connection_cut(error, name, deadline) from error
                case ProtocolError():
                    raise NoReply(f"{self.endpoint}: its reply to {name} is invalid ({error})", final=True, sent=True) from error
            raise
        self._replies += 1
        return reply

    def _connection_cut(self, error: Exception, name: str, deadline: float) -> NoReply:
        """The error for a connection that was closed during a request. A listener with SASL closes it at the first request after ApiVersions."""
        if not self._replies and self._security.sasl is None and probing.SASL_HANDSHAKE in self.versions:
            mechanisms = probing.sasl_mechanisms(lambda until: open_channel(self.host, self.port, until, self._security, dial), deadline)
            if mechanisms is not None:
                return self._refused(probing.wants_login(mechanisms))
        refusal = None if self._replies else self._explained(error)
        return refusal or NoReply(f"{self.endpoint} closed the connection before it answered {name}", sent=True)

    def _send(self, request: Message, version: int, deadline: float) -> int:
        key: int = request.API_KEY  # type: ignore[attr-defined]
        self._correlation_id += 1
        frame = encode_request(key, version, version >= request.FLEXIBLE_FROM, self._correlation_id, CLIENT_ID, request.encode(version))
        self._channel.send(frame, deadline)
        return self._correlation_id

    def _receive(self, correlation_id: int, deadline: float) -> bytes:
        """Receive a reply; return the bytes after its correlation id."""
        head = self._channel.receive_exactly(4, deadline)
        (size,) = unpack_int(head)
        if not 4 <= size <= REPLY_BYTES_MAX:
            raise other_protocols.NotKafka(other_protocols.sender_of(head + self._read_banner(deadline)))
        body = self._channel.receive_exactly(size, deadline)
        (reply_id,) = unpack_int(body)
        if reply_id != correlation_id:
            raise other_protocols.NotKafka(other_protocols.sender_of(head + body))
        return body[4:]

    def _read_banner(self, deadline: float) -> bytes:
        """Read the bytes of another protocol's banner that have arrived."""
        try:
            return self._channel.receive(200, min(deadline, time.monotonic() + BANNER_SECONDS))
        except OSError:
            return b""
