"""SCRAM (RFC 5802, RFC 7677), the client's half. As Kafka's, without channel binding and without SASLprep."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from secured.hidden import Secret

HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-512": "sha512", "SCRAM-SHA-256": "sha256"}  # the stronger one first
NO_CHANNEL_BINDING: Final = "n,,"
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 1_000_000  # a few seconds of computing; Kafka allows 16384


class ScramError(Exception):
    """The server's message is not what a server that knows the password would send."""


class Scram:
    """One exchange: `first`, then `final` with the server's answer to it, then `check` with the server's last message."""

    def __init__(self, mechanism: str, user: str, password: Secret, nonce: str) -> None:
        self._hash = HASHES[mechanism]
        self._password = password
        self._nonce = nonce
        self._first_bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        return f"{NO_CHANNEL_BINDING}{self._first_bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        values = attributes(server_first)
        nonce, salt, iterations = values.get("r", ""), values.get("s", ""), values.get("i", "")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise ScramError("the broker's nonce does not continue ours")
        if not (iterations.isascii() and iterations.isdigit() and len(iterations) < 10 and ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX):
            raise ScramError(f"the broker does not ask for {ITERATIONS_MIN} to {ITERATIONS_MAX} iterations")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password.reveal().encode(), decoded(salt), int(iterations))
        binding = base64.b64encode(NO_CHANNEL_BINDING.encode()).decode()
        without_proof = f"c={binding},r={nonce}"
        message = f"{self._first_bare},{server_first.decode()},{without_proof}".encode()
        client_key = self._hmac(salted, b"Client Key")
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), message)
        proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, server_final: bytes) -> None:
        """Whether the server knows the password, too."""
        signature = decoded(attributes(server_final).get("v", ""))
        if not self._server_signature or not hmac.compare_digest(signature, self._server_signature):
            raise ScramError("the broker's signature is wrong: it does not know the password")

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._hash)


def attributes(message: bytes) -> dict[str, str]:
    """The attributes of a message by their letter."""
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError:
        raise ScramError("the broker's message is not text") from None
    return {part[0]: part[2:] for part in reversed(parts) if part[1:2] == "="}


def decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramError("the broker's message is not in base64") from None
