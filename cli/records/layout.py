"""Formats for printing records: values, a template, in full, or JSON.

On a terminal control characters from a topic are escaped. In a pipe text is written unchanged, line feeds included, and invalid
UTF-8 is escaped as \\xNN; --raw leaves every byte unchanged.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from cli.groups.offsets_words import MOMENT_MAX, MOMENT_MIN, shown_moment
from cli.shown import plain
from protocol.batch import NO_TIMESTAMP, Record

NAMES: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
NULL: Final = "null"
ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
WHERE: Final = "{timestamp}  {topic}-{partition}@{offset}"
LONG: Final = f"{WHERE}  {{key:}}{{value}}{{:headers}}"
LONG_COLOURED: Final = f"\x1b[2m{WHERE}\x1b[0m  {{key:}}{{value}}\x1b[2m{{:headers}}\x1b[0m"

Text = Callable[[bytes | None], bytes]


class Found(NamedTuple):
    """A record and where it was."""

    topic: str
    partition: int
    record: Record
    append_time: bool = False


def as_text(data: bytes | None) -> bytes:
    """Bytes for a pipe: text as it is; invalid UTF-8 is escaped, together with text that looks like an escape."""
    if data is None:
        return NULL.encode()
    try:
        data.decode()
    except UnicodeDecodeError:
        return as_safe_text(data)
    return data


def as_safe_text(data: bytes | None) -> bytes:
    """Bytes for a terminal: control characters are escaped too."""
    if data is None:
        return NULL.encode()
    return plain(data.decode("utf-8", "backslashreplace")).encode()


def as_bytes(data: bytes | None) -> bytes:
    return data or b""


class Layout:
    """A compiled template: `line(found)` is the output for a record, with its line feed."""

    __slots__ = ("_end", "_pieces", "_text")

    def __init__(self, template: str, text: Text, end: bytes = b"\n") -> None:
        self._pieces = pieces(template)
        self._text = text
        self._end = end

    def line(self, found: Found) -> bytes:
        return b"".join(piece if isinstance(piece, bytes) else piece(found, self._text) for piece in self._pieces) + self._end


Piece = bytes | Callable[[Found, Text], bytes]


def pieces(template: str) -> Sequence[Piece]:
    """Literal bytes and places. ValueError: a place that there is not, or a brace that stands alone."""
    found: list[Piece] = []
    literal: list[str] = []
    at = 0
    while at < len(template):
        character = template[at]
        if character == "\\" and at + 1 < len(template) and template[at + 1] in ESCAPES:
            literal.append(ESCAPES[template[at + 1]])
            at += 2
        elif template[at : at + 2] in ("{{", "}}"):
            literal.append(character)
            at += 2
        elif character == "{":
            end = template.find("}", at)
            name = template[at + 1 : end] if end > 0 else template[at + 1 :]
            if end < 0 or name not in PLACES:
                raise ValueError(f"{{{name}}} is none of {', '.join(f'{{{known}}}' for known in NAMES)} ({{{{ for a brace)")
            if literal:
                found.append("".join(literal).encode("utf-8", "surrogateescape"))
                literal = []
            found.append(PLACES[name])
            at = end + 1
        elif character == "}":
            raise ValueError("a } without its { (}} for a brace)")
        else:
            literal.append(character)
            at += 1
    if literal:
        found.append("".join(literal).encode("utf-8", "surrogateescape"))
    return found


def shown_headers(found: Found, text: Text) -> bytes:
    return b", ".join(text(name) + b"=" + text(value) for name, value in found.record.headers)


def key_in_front(found: Found, text: Text) -> bytes:
    return b"" if found.record.key is None else text(found.record.key) + b": "


def headers_behind(found: Found, text: Text) -> bytes:
    return b"  [" + shown_headers(found, text) + b"]" if found.record.headers else b""


PLACES: Final[dict[str, Callable[[Found, Text], bytes]]] = {
    "topic": lambda found, text: found.topic.encode(),
    "partition": lambda found, text: b"%d" % found.partition,
    "offset": lambda found, text: b"%d" % found.record.offset,
    "timestamp": lambda found, text: str(shown_time(found.record.timestamp) or "-").encode(),
    "key": lambda found, text: text(found.record.key),
    "value": lambda found, text: text(found.record.value),
    "headers": shown_headers,
    "key:": key_in_front,
    ":headers": headers_behind,
}


def shown_time(timestamp: int) -> str | int | None:
    """ISO 8601; the bare number for a time beyond the calendar."""
    if timestamp == NO_TIMESTAMP:
        return None
    return shown_moment(timestamp) if MOMENT_MIN <= timestamp <= MOMENT_MAX else timestamp


def document(found: Found) -> dict[str, Any]:
    """As --json prints it and `produce --json` reads it."""
    record = found.record
    value: dict[str, Any] = {
        "topic": found.topic,
        "partition": found.partition,
        "offset": record.offset,
        "timestamp": shown_time(record.timestamp),
        "timestamp_type": "append" if found.append_time else "create",
    }
    put_bytes(value, "key", record.key)
    put_bytes(value, "value", record.value)
    headers: list[dict[str, Any]] = []
    for name, of in record.headers:
        header: dict[str, Any] = {"name": name.decode("utf-8", "backslashreplace")}
        put_bytes(header, "value", of)
        headers.append(header)
    value["headers"] = headers
    return value


def put_bytes(into: dict[str, Any], name: str, data: bytes | None) -> None:
    """Text where it is UTF-8; else base64, under a name that says so."""
    if data is None:
        into[name] = None
        return
    try:
        into[name] = data.decode()
    except UnicodeDecodeError:
        into[f"{name}_base64"] = base64.b64encode(data).decode()
