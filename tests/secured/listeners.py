"""A secured listener in front of a started broker: TLS, and a login by any mechanism, as Kafka does both."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import socket
import ssl
import time
from collections.abc import Generator, Mapping
from contextlib import suppress
from struct import pack, unpack, unpack_from
from typing import Any

from protocol.apis import API_VERSIONS, APIS
from protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from protocol.messages.find_coordinator import FindCoordinatorResponse
from protocol.messages.metadata import MetadataResponse
from tests.cli.fake_brokers import Close, Listener, exactly, frame_of, read_frame
from tests.support.headers import encode_response, response_header_version

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
SALT = b"salt of the user"
ITERATIONS = 4096
GRACE_SECONDS = 4.0
FRAME_BYTES_MAX = 100 << 20  # as Kafka's socket.request.max.bytes: the beginning of a TLS handshake means more
ALL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


class RefusedLogin(Exception):
    pass


class SecuredListener(Listener):
    """Forwards the requests of those who are let in. `logins`: the names of users that logged in, in order; `overdue`: the requests that came
    so late after the end of their session that no busy machine is the reason.
    """

    def __init__(
        self,
        bootstrap: str,
        tls: ssl.SSLContext | None = None,
        mechanisms: tuple[str, ...] = (),
        users: Mapping[str, str] | None = None,
        token: str = "",
        lifetime_ms: int = 0,
        false_signature: bool = False,
    ) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._broker = (host, int(port))
        self._tls = tls
        self._mechanisms = mechanisms
        self._users = dict(users or {})
        self._token = token
        self._lifetime_ms = lifetime_ms
        self._false_signature = false_signature
        self.logins: list[str] = []
        self.overdue = 0
        self.seen = b""  # everything that clients sent, decrypted
        super().__init__()

    def serve(self, connection: socket.socket) -> None:
        connection.settimeout(30)
        with connection if self._tls is None else self._tls.wrap_socket(connection, server_side=True) as opened:
            self._serve_secured(opened)

    def _serve_secured(self, connection: socket.socket) -> None:
        ends_at = self._let_in(connection) if self._mechanisms else None
        with socket.create_connection(self._broker, 30) as broker:
            while True:
                frame = self._read(connection)
                if ends_at is not None and time.monotonic() >= ends_at + GRACE_SECONDS:
                    self.overdue += 1
                    raise Close
                self._forward(frame, connection, broker)

    def _read(self, connection: socket.socket) -> bytes:
        (size,) = unpack(">i", exactly(connection, 4))
        if not 0 <= size <= FRAME_BYTES_MAX:
            raise Close
        frame = exactly(connection, size)
        self.seen += frame
        return frame

    def _forward(self, frame: bytes, connection: socket.socket, broker: socket.socket) -> None:
        key, version, correlation_id = unpack(">hhi", frame[:8])
        broker.sendall(frame_of(frame))
        connection.sendall(self._changed(read_frame(broker), key, version, correlation_id))

    def _changed(self, reply: bytes, key: int, version: int, correlation_id: int) -> bytes:
        if key not in (API_VERSIONS, 3, 10):
            return frame_of(reply)
        message, _ = APIS[key].response.decode(reply, 4 + response_header_version(key, version), version)
        match message:
            case ApiVersionsResponse() if self._mechanisms:
                message.api_keys += [ApiVersion(SASL_HANDSHAKE, 0, 1), ApiVersion(SASL_AUTHENTICATE, 0, 1)]
            case MetadataResponse():
                for entry in message.brokers:
                    entry.host, entry.port = self.host, self.port
            case FindCoordinatorResponse():
                endpoints: list[Any] = [*message.coordinators] or [message]
                for endpoint in endpoints:
                    endpoint.host, endpoint.port = self.host, self.port
        return encode_response(key, version, correlation_id, message.encode(version))

    # The login

    def _let_in(self, connection: socket.socket) -> float | None:
        """The time at which the session ends."""
        steps: Generator[bytes, bytes, str] | None = None
        with socket.create_connection(self._broker, 30) as broker:
            while True:
                frame = self._read(connection)
                key, version, correlation_id, size = unpack_from(">hhih", frame)
                body = frame[10 + max(0, size) :]
                if key == API_VERSIONS:
                    self._forward(frame, connection, broker)
                    continue
                head = pack(">i", correlation_id)
                if key == SASL_HANDSHAKE:
                    (size,) = unpack_from(">h", body)
                    mechanism = body[2 : 2 + size].decode()
                    offered = b"".join(pack(">h", len(name)) + name.encode() for name in self._mechanisms)
                    known = mechanism in self._mechanisms
                    connection.sendall(frame_of(head + pack(">hi", 0 if known else 33, len(self._mechanisms)) + offered))
                    if not known:
                        raise Close
                    steps = getattr(self, f"_{mechanism.partition('-')[0].lower()}")(mechanism)
                    next(steps)
                elif key == SASL_AUTHENTICATE and steps is not None:
                    assert version == 1
                    try:
                        connection.sendall(frame_of(head + pack(">hh", 0, -1) + bytes_of(steps.send(body[4:])) + pack(">q", 0)))
                    except StopIteration as done:
                        answer, user = done.value
                        self.logins.append(user)
                        connection.sendall(frame_of(head + pack(">hh", 0, -1) + bytes_of(answer) + pack(">q", self._lifetime_ms)))
                        return time.monotonic() + self._lifetime_ms / 1000 if self._lifetime_ms else None
                    except RefusedLogin:
                        text = b"Authentication failed: Invalid username or password"
                        connection.sendall(frame_of(head + pack(">hh", 58, len(text)) + text + bytes_of(b"") + pack(">q", 0)))
                        raise Close from None
                else:
                    raise Close

    def _plain(self, mechanism: str) -> Generator[bytes, bytes, tuple[bytes, str]]:
        message = yield b""
        _, user, password = message.decode().split("\0")
        if self._users.get(user) != password:
            raise RefusedLogin
        return b"", user

    def _scram(self, mechanism: str) -> Generator[bytes, bytes, tuple[bytes, str]]:
        def mac(key: bytes, data: bytes) -> bytes:
            return hmac.new(key, data, HASHES[mechanism]).digest()

        first = (yield b"").decode()
        assert first.startswith("n,,n=")
        bare = first.removeprefix("n,,")
        user = bare.split(",")[0][2:].replace("=2C", ",").replace("=3D", "=")
        nonce = bare.split(",r=")[1] + secrets.token_hex(8)
        server_first = f"r={nonce},s={base64.b64encode(SALT).decode()},i={ITERATIONS}"
        final = (yield server_first.encode()).decode()
        without_proof, _, proof = final.partition(",p=")
        assert without_proof == f"c=biws,r={nonce}"
        salted = hashlib.pbkdf2_hmac(HASHES[mechanism], self._users.get(user, "").encode(), SALT, ITERATIONS)
        message = f"{bare},{server_first},{without_proof}".encode()
        stored = hashlib.new(HASHES[mechanism], mac(salted, b"Client Key")).digest()
        signature = mac(stored, message)
        client_key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        if user not in self._users or hashlib.new(HASHES[mechanism], client_key).digest() != stored:
            raise RefusedLogin
        verifier = mac(mac(salted, b"Server Key"), message)
        if self._false_signature:
            verifier = bytes(len(verifier))
        return b"v=" + base64.b64encode(verifier), user

    def _oauthbearer(self, mechanism: str) -> Generator[bytes, bytes, tuple[bytes, str]]:
        message = (yield b"").decode()
        if f"auth=Bearer {self._token}\x01" not in message:
            answer = yield b'{"status":"invalid_token"}'
            assert answer == b"\x01"
            raise RefusedLogin
        return b"", "of a token"

    def close(self) -> None:
        with suppress(OSError):
            super().close()


def bytes_of(data: bytes) -> bytes:
    return pack(">i", len(data)) + data


def server_context(pair: tuple[str, str], client_authority: str = "", newest: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    """`client_authority`: clients must show a certificate that it signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    if newest is not None:
        context.maximum_version = newest
    if client_authority:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_authority)
    return context
