"""Request and response headers for clients.

Kafka has two exceptions: the client id in a request is a legacy string even if the header is flexible, and the reply to ApiVersions
always has the old header, because the client does not know the broker's versions yet. The broker reads and writes headers in
`broker/net/dispatch.py`. This module imports no table of APIs: a command imports only the APIs it uses.
"""

from __future__ import annotations

from typing import Final

from protocol.errors import EncodeError
from protocol.messages.fixed import pack_ihhih
from protocol.wire import TEXT_BYTES_MAX, UNWRITABLE, skip_tags

API_VERSIONS: Final = 18


def encode_request(key: int, version: int, flexible: bool, correlation_id: int, client_id: str | None, body: bytes) -> bytes:
    """A whole frame, with its length."""
    text = b"" if client_id is None else client_id.encode()
    if len(text) > TEXT_BYTES_MAX:
        raise EncodeError(f"a client id of {len(text)} bytes")
    tags = b"\0" if flexible else b""
    size = 10 + len(text) + len(tags) + len(body)
    try:
        return pack_ihhih(size, key, version, correlation_id, -1 if client_id is None else len(text)) + text + tags + body
    except UNWRITABLE as error:
        raise EncodeError(f"a request header cannot be encoded: {error}") from error


def skip_response_header(key: int, flexible: bool, data: bytes, at: int) -> int:
    """The position of a reply's body; `at` is after its correlation id."""
    return skip_tags(data, at) if flexible and key != API_VERSIONS else at
