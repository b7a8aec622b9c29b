"""Formats a record for output: as its value, by a template, as a long line, or as JSON.

On a terminal, control characters from a topic are escaped. In a pipe, text is written unchanged, line feeds included; in data with
invalid UTF-8, control characters are escaped too, and invalid bytes as \\xNN. With --raw no byte is changed.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from cli.groups.offset_formats import TIME_MAX_MS, TIME_MIN_MS, time_text
from cli.hints import nearest
from cli.shown import plain
from protocol.batch import NO_TIMESTAMP, Record

NAMES: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
NULL: Final = "null"
ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
POSITION: Final = "{timestamp}  {topic}-{partition}@{offset}"
LONG: Final = f"{POSITION}  {{key:}}{{value}}{{:headers}}"
LONG_COLOURED: Final = f"\x1b[2m{POSITION}\x1b[0m  {{key:}}{{value}}\x1b[2m{{:headers}}\x1b[0m"

Text = Callable[[bytes | None], bytes]


class ConsumedRecord(NamedTuple):
    """A record with its topic and partition."""

    topic: str
    partition: int
    record: Record
    append_time: bool = False


def as_text(data: bytes | None) -> bytes:
    """Bytes for a pipe. Valid UTF-8 is unchanged; otherwise invalid bytes and all control characters are escaped."""
    if data is None:
        return NULL.encode()
    try:
        data.decode()
    except UnicodeDecodeError:
        return as_safe_text(data)
    return data


def as_safe_text(data: bytes | None) -> bytes:
    """Bytes for a terminal: with invalid UTF-8 and control characters escaped."""
    if data is None:
        return NULL.encode()
    return plain(data.decode("utf-8", "backslashreplace")).encode()


def as_bytes(data: bytes | None) -> bytes:
    return data or b""


class Layout:
    """A compiled template. `line()` is the output for a record, with its line feed: that of the template, or one more."""

    __slots__ = ("_end", "_pieces", "_text")

    def __init__(self, template: str, text: Text) -> None:
        self._pieces = pieces(template)
        if all(isinstance(piece, bytes) for piece in self._pieces):
            raise ValueError(f"{template!r} has no part of a record, such as {{value}} or %s" + ("; --json prints JSON" if template.lower() == "json" else ""))
        self._text = text
        last = self._pieces[-1] if self._pieces else b""
        self._end = b"" if isinstance(last, bytes) and last.endswith(b"\n") else b"\n"

    def line(self, consumed: ConsumedRecord) -> bytes:
        return b"".join(piece if isinstance(piece, bytes) else piece(consumed, self._text) for piece in self._pieces) + self._end


Placeholder = Callable[[ConsumedRecord, Text], bytes]
Piece = bytes | Placeholder


def pieces(template: str) -> Sequence[Piece]:
    """The literal bytes and placeholders of a template: {name}, or kcat's %letter. ValueError for an unknown one, a single brace or percent sign."""
    collected: list[Piece] = []
    literal: list[str] = []
    at = 0
    while at < len(template):
        character = template[at]
        if character == "\\" and at + 1 < len(template) and template[at + 1] in ESCAPES:
            literal.append(ESCAPES[template[at + 1]])
            at += 2
        elif template[at : at + 2] in ("{{", "}}", "%%"):
            literal.append(character)
            at += 2
        elif character in "{%":
            placeholder, at = placeholder_at(template, at)
            if literal:
                collected.append("".join(literal).encode("utf-8", "surrogateescape"))
                literal = []
            collected.append(placeholder)
        elif character == "}":
            raise ValueError("a } without its { (}} for a brace)")
        else:
            literal.append(character)
            at += 1
    if literal:
        collected.append("".join(literal).encode("utf-8", "surrogateescape"))
    return collected


def placeholder_at(template: str, at: int) -> tuple[Placeholder, int]:
    """The placeholder that begins here, and the position behind it."""
    if template[at] == "%":
        letter = template[at + 1 : at + 2]
        if letter not in LETTERS:
            raise ValueError(f"%{letter} is none of {', '.join(f'%{known}' for known in LETTERS)} (%% for a percent sign)")
        return LETTERS[letter], at + 2
    end = template.find("}", at)
    if end < 0:
        raise ValueError(f"{template[at:]} has no }} ({{{{ for a brace)")
    name = template[at + 1 : end]
    if name not in PLACEHOLDERS:
        meant = nearest(name, NAMES)
        suggestion = f"no part of a record; did you mean {{{meant}}}?" if meant else f"none of {', '.join(f'{{{known}}}' for known in NAMES)}"
        raise ValueError(f"{{{name}}} is {suggestion} ({{{{ for a brace)")
    return PLACEHOLDERS[name], end + 1


def headers_text(consumed: ConsumedRecord, text: Text) -> bytes:
    return b", ".join(text(name) + b"=" + text(value) for name, value in consumed.record.headers)


def key_prefix(consumed: ConsumedRecord, text: Text) -> bytes:
    return b"" if consumed.record.key is None else text(consumed.record.key) + b": "


def headers_suffix(consumed: ConsumedRecord, text: Text) -> bytes:
    return b"  [" + headers_text(consumed, text) + b"]" if consumed.record.headers else b""


PLACEHOLDERS: Final[dict[str, Placeholder]] = {
    "topic": lambda consumed, text: consumed.topic.encode(),
    "partition": lambda consumed, text: b"%d" % consumed.partition,
    "offset": lambda consumed, text: b"%d" % consumed.record.offset,
    "timestamp": lambda consumed, text: str(timestamp_shown(consumed.record.timestamp) or "-").encode(),
    "key": lambda consumed, text: text(consumed.record.key),
    "value": lambda consumed, text: text(consumed.record.value),
    "headers": headers_text,
    "key:": key_prefix,
    ":headers": headers_suffix,
}


def letter_text(data: bytes | None, text: Text) -> bytes:
    return b"" if data is None else text(data)


def letter_size(data: bytes | None) -> bytes:
    return b"%d" % (-1 if data is None else len(data))


# kcat's letters, with its output: null is empty, and its size -1.
LETTERS: Final[dict[str, Placeholder]] = {
    "t": PLACEHOLDERS["topic"],
    "p": PLACEHOLDERS["partition"],
    "o": PLACEHOLDERS["offset"],
    "T": lambda consumed, text: b"%d" % consumed.record.timestamp,
    "k": lambda consumed, text: letter_text(consumed.record.key, text),
    "s": lambda consumed, text: letter_text(consumed.record.value, text),
    "h": lambda consumed, text: b",".join(text(name) + b"=" + (b"NULL" if value is None else text(value)) for name, value in consumed.record.headers),
    "K": lambda consumed, text: letter_size(consumed.record.key),
    "S": lambda consumed, text: letter_size(consumed.record.value),
}


def timestamp_shown(timestamp: int) -> str | int | None:
    """The time in ISO 8601, or the number outside of the calendar's range; None if there is none."""
    if timestamp == NO_TIMESTAMP:
        return None
    return time_text(timestamp) if TIME_MIN_MS <= timestamp <= TIME_MAX_MS else timestamp


def document(consumed: ConsumedRecord) -> dict[str, Any]:
    """The JSON object that `consume --json` prints and `produce --json-lines` reads."""
    record = consumed.record
    value: dict[str, Any] = {
        "topic": consumed.topic,
        "partition": consumed.partition,
        "offset": record.offset,
        "timestamp": timestamp_shown(record.timestamp),
        "timestamp_type": "append" if consumed.append_time else "create",
    }
    put_bytes(value, "key", record.key)
    put_bytes(value, "value", record.value)
    headers: list[dict[str, Any]] = []
    for name, header_value in record.headers:
        header: dict[str, Any] = {"name": name.decode("utf-8", "backslashreplace")}
        put_bytes(header, "value", header_value)
        headers.append(header)
    value["headers"] = headers
    return value


def put_bytes(into: dict[str, Any], name: str, data: bytes | None) -> None:
    """Add a field as text if it is UTF-8, else as NAME_base64."""
    if data is None:
        into[name] = None
        return
    try:
        into[name] = data.decode()
    except UnicodeDecodeError:
        into[f"{name}_base64"] = base64.b64encode(data).decode()
