"""The NATS client protocol: parse the server's bytes, build the client's."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

LINE_BYTES_MAX: Final = 1 << 20  # INFO of a server may list many other servers
HEADERS_BEGIN: Final = b"NATS/1.0"
END: Final = b"\r\n"

NO_RESPONDERS: Final = 503
NOT_FOUND: Final = 404
END_OF_BATCH: Final = 204


class NatsError(Exception):
    """The server violated the protocol or refused this client."""


class Message(NamedTuple):
    """A message that the server delivered."""

    subject: str
    sid: int
    payload: bytes
    status: int = 0  # status code in the headers of a message without payload; 0: none
    headers: dict[str, str] | None = None
    reply: str = ""  # the subject to which an answer is sent

    def header(self, name: str) -> str:
        return (self.headers or {}).get(name, "")


class Parser:
    """Splits the server's bytes into messages (`Message`) and other lines (`bytes`)."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._head: tuple[str, int, str, int] | None = None  # subject, sid, reply subject and header size of the message whose payload is incomplete
        self._size = 0  # size of its headers and payload

    def feed(self, data: bytes) -> list[Message | bytes]:
        buffer = self._bytes
        buffer += data
        items: list[Message | bytes] = []
        at = 0
        while True:
            if self._head is not None:
                end = at + self._size
                if len(buffer) < end + 2:
                    break
                subject, sid, reply, header_bytes = self._head
                self._head = None
                items.append(_parse_message(subject, sid, reply, bytes(buffer[at : at + header_bytes]), bytes(buffer[at + header_bytes : end])))
                at = end + 2
                continue
            end = buffer.find(END, at)
            if end < 0:
                if len(buffer) - at > LINE_BYTES_MAX:
                    raise NatsError("a line of the server is too long")
                break
            line = bytes(buffer[at:end])
            at = end + 2
            if line.startswith((b"MSG ", b"HMSG ")):
                self._begin_message(line)
            else:
                items.append(line)
        del buffer[:at]
        return items

    def _begin_message(self, line: bytes) -> None:
        words = line.decode("ascii", "replace").split()
        try:
            with_headers = words[0] == "HMSG"
            header_bytes = int(words[-2]) if with_headers else 0
            self._size = int(words[-1])
            reply = words[3] if len(words) == (6 if with_headers else 5) else ""
            self._head = words[1], int(words[2]), reply, header_bytes
        except (IndexError, ValueError):
            raise NatsError(f"a line of the server cannot be parsed: {line[:100]!r}") from None


def _parse_message(subject: str, sid: int, reply: str, headers: bytes, payload: bytes) -> Message:
    if not headers:
        return Message(subject, sid, payload, reply=reply)
    lines = headers.decode("utf-8", "replace").split("\r\n")
    words = lines[0].split(None, 2)
    status = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
    parsed = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if colon:
            parsed[name] = value.strip()
    return Message(subject, sid, payload, status, parsed, reply)


def publish_parts(subject: str, payload: bytes | bytearray, reply: str, headers: bytes) -> list[bytes | bytearray]:
    """`headers`: lines that each end with CRLF; b"": no headers."""
    to = f"{subject} {reply}" if reply else subject
    if not headers:
        return [f"PUB {to} {len(payload)}\r\n".encode(), payload, END]
    size = len(HEADERS_BEGIN) + 2 + len(headers) + 2
    return [f"HPUB {to} {size} {size + len(payload)}\r\n".encode(), HEADERS_BEGIN, END, headers, END, payload, END]


def subscribe_line(subject: str, sid: int) -> bytes:
    return f"SUB {subject} {sid}\r\n".encode()


def connect_line(options: dict[str, Any]) -> bytes:
    return b"CONNECT " + json.dumps(options).encode() + END
