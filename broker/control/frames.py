"""Frames of requests and replies, from and to messages."""

from __future__ import annotations

from struct import Struct
from typing import Any

from broker.control.exchange import Exchange
from protocol.apis import API_VERSIONS, APIS
from protocol.errors import ErrorCode
from protocol.headers import encode_request, skip_response_header
from protocol.message import Part, field_names

_REPLY_HEAD = Struct(">ii").pack


def request_frame(exchange: Exchange, message: Any) -> bytes:
    flexible = exchange.version >= APIS[exchange.key].flexible_from
    return encode_request(exchange.key, exchange.version, flexible, exchange.correlation_id, exchange.client_id, message.encode(exchange.version))


def response_frame(exchange: Exchange, reply: Any) -> bytes:
    api = APIS[exchange.key]
    version = exchange.version
    if exchange.key == API_VERSIONS and getattr(reply, "error_code", 0) == ErrorCode.UNSUPPORTED_VERSION:
        version = 0  # which every client can read
    tags = b"\0" if version >= api.flexible_from and exchange.key != API_VERSIONS else b""
    body: bytes = tags + reply.encode(version)
    return _REPLY_HEAD(len(body) + 4, exchange.correlation_id) + body


def reply_of(exchange: Exchange, frame: bytes) -> Any:
    """The message of a reply."""
    api = APIS[exchange.key]
    at = skip_response_header(exchange.key, exchange.version >= api.flexible_from, frame, 8)
    return api.response.decode(frame, at, exchange.version)[0]


def first_error(message: Any) -> str:
    """The name of the first error in a reply; "" if it has none."""
    code = find_error(message, 4)
    if not code:
        return ""
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else str(code)


def find_error(part: Any, depth: int) -> int:
    if not isinstance(part, Part) or not depth:
        return 0
    names = field_names(type(part))
    for name in names:
        if name.endswith("error_code"):
            code = int(getattr(part, name))
            if code:
                return code
    for name in names:
        value = getattr(part, name)
        if isinstance(value, list):
            for entry in value:
                code = find_error(entry, depth - 1)
                if code:
                    return code
    return 0
