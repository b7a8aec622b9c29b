"""Headers by API key and version, in both directions, for the clients and brokers of tests."""

from __future__ import annotations

from protocol import headers
from protocol.apis import API_VERSIONS, APIS
from protocol.errors import ProtocolError
from protocol.messages.fixed import pack_ii, pack_iib, unpack_hhih
from protocol.wire import UNREADABLE, skip_tags

FLEXIBLE_FROM = {key: api.flexible_from for key, api in APIS.items()}


class RequestHeader:
    __slots__ = ("api_key", "api_version", "client_id", "correlation_id")

    def __init__(self, api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id

    def __repr__(self) -> str:
        return f"RequestHeader({self.api_key}, {self.api_version}, {self.correlation_id}, {self.client_id!r})"


def request_header_version(key: int, version: int) -> int:
    return 2 if version >= FLEXIBLE_FROM[key] else 1


def response_header_version(key: int, version: int) -> int:
    return 1 if version >= FLEXIBLE_FROM[key] and key != API_VERSIONS else 0


def decode_request_header(frame: bytes) -> tuple[RequestHeader, int]:
    """The header, and the position of the body. The version may be unknown; the key is known."""
    try:
        key, version, correlation_id, n = unpack_hhih(frame, 0)
        at = 10
        client_id: str | None = None
        if n >= 0:
            client_id = frame[10 : 10 + n].decode("utf-8", "replace")
            at += n
        flexible_from = FLEXIBLE_FROM.get(key)
        if flexible_from is None:
            raise ProtocolError(f"there is no api {key} here")
        if version >= flexible_from:
            if frame[at]:
                at = skip_tags(frame, at)
            else:
                at += 1
    except UNREADABLE as error:
        raise ProtocolError("a request header is cut short") from error
    if at > len(frame):
        raise ProtocolError("a request header is cut short")
    return RequestHeader(key, version, correlation_id, client_id), at


def encode_request(key: int, version: int, correlation_id: int, client_id: str | None, body: bytes) -> bytes:
    return headers.encode_request(key, version, version >= FLEXIBLE_FROM[key], correlation_id, client_id, body)


def encode_response(key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """A whole frame, with its length."""
    if version >= FLEXIBLE_FROM[key] and key != API_VERSIONS:
        return pack_iib(len(body) + 5, correlation_id, 0) + body
    return pack_ii(len(body) + 4, correlation_id) + body
