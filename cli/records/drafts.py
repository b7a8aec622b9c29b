"""Records to be sent, from arguments and lines. A malformed line is a Failure that names the line."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from cli.failure import EXIT, Failure
from cli.groups.offsets_words import moment
from protocol.batch import Record

Header = tuple[bytes, bytes | None]
FIELDS: Final = ("key", "value", "headers", "partition", "timestamp")
ELSEWHERE: Final = ("topic", "offset", "timestamp_type", "leader_epoch")  # fields of `consume --json` that a new record gets anew
RECORD_OVERHEAD: Final = 64  # maximum overhead of lengths and deltas per record: enough to cut batches by


class Draft(NamedTuple):
    line: int  # 0: not out of a line
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()
    partition: int | None = None
    timestamp: int | None = None

    @property
    def size(self) -> int:
        size = RECORD_OVERHEAD + len(self.key or b"") + len(self.value or b"")
        return size + sum(len(name) + len(value or b"") + 10 for name, value in self.headers)

    def record(self, offset: int, timestamp: int) -> Record:
        """As a batch has it; `timestamp` is for a draft that has none of its own."""
        return Record(offset, timestamp if self.timestamp is None else self.timestamp, self.key, self.value, self.headers)

    @property
    def place(self) -> str:
        return f"line {self.line}" if self.line else "the record"


Parse = Callable[[bytes, int], Draft]


def plain_lines(
    key: bytes | None, separator: bytes | None, keys_alone: bool, headers: Sequence[Header], partition: int | None
) -> Parse:
    """Lines as they are: a value, a key and a value around a separator, or (`keys_alone`) keys whose values are null."""

    def parse(line: bytes, number: int) -> Draft:
        if keys_alone:
            return Draft(number, line, None, headers, partition)
        if separator is None:
            return Draft(number, key, line, headers, partition)
        name, found, value = line.partition(separator)
        if not found:
            raise unreadable(number, f"has no {separator.decode('utf-8', 'replace')!r} between key and value (--key-separator)")
        return Draft(number, name, value, headers, partition)

    return parse


def json_lines(key: bytes | None, headers: Sequence[Header], partition: int | None, any_partition: bool) -> Parse:
    """One object per line, as `tenure consume --json` prints them; arguments override the fields of a line."""

    def parse(line: bytes, number: int) -> Draft:
        found = read_object(line, number)
        own = None if any_partition else whole(found.get("partition"), "partition", number)
        said = text_or_bytes(found, "key", number) if "key" in found or "key_base64" in found else None
        if "value" not in found and "value_base64" not in found:
            raise unreadable(number, 'has no "value" (a tombstone says "value": null)')
        return Draft(
            number,
            said if key is None else key,
            text_or_bytes(found, "value", number),
            [*headers_of(found.get("headers"), number), *headers],
            own if partition is None else partition,
            timestamp_of(found.get("timestamp"), number),
        )

    return parse


def read_object(line: bytes, number: int) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise unreadable(number, f"is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise unreadable(number, 'is not a JSON object like {"key": "k", "value": "v"}')
    if isinstance(failure := found.get("error"), dict):  # the last line of `consume --json`, or all it had to say
        raise unreadable(number, f"is the error of another command: {failure.get('message')}")
    known = {*FIELDS, *ELSEWHERE, "key_base64", "value_base64"}
    for name in found:
        if name not in known:
            raise unreadable(number, f"has a field {name!r}; there are {', '.join(FIELDS)}, key_base64 and value_base64")
    return found


def text_or_bytes(found: dict[str, Any], name: str, number: int) -> bytes | None:
    """A field as UTF-8, its `_base64` neighbour as bytes; other values are written as compact JSON."""
    coded = found.get(f"{name}_base64")
    value = found.get(name)
    if coded is None:
        return as_bytes(value, name, number)
    if value is not None:
        raise unreadable(number, f"has both {name} and {name}_base64")
    try:
        return base64.b64decode(coded, validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise unreadable(number, f"has a {name}_base64 that is not base64") from error


def as_bytes(value: object, name: str, number: int) -> bytes | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise unreadable(number, f"has a {name} that is half of a character (a lone surrogate)") from error


def headers_of(value: object, number: int) -> list[Header]:
    """[{"name": ..., "value": ...}], or an object when every name is there once."""
    if value is None:
        return []
    if isinstance(value, dict):
        value = [{"name": name, "value": of} for name, of in value.items()]
    if not isinstance(value, list):
        raise unreadable(number, 'has headers that are not like [{"name": "n", "value": "v"}]')
    headers: list[Header] = []
    for header in value:
        if not isinstance(header, dict) or not isinstance(header.get("name"), str):
            raise unreadable(number, 'has a header that is not like {"name": "n", "value": "v"}')
        name = as_bytes(header["name"], "name of a header", number)
        headers.append((name or b"", text_or_bytes(header, "value", number)))
    return headers


def whole(value: object, name: str, number: int) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise unreadable(number, f"has a {name} that is not a whole number")
    return value


def timestamp_of(value: object, number: int) -> int | None:
    """Milliseconds, or a time as `consume --json` prints it."""
    if not isinstance(value, str):
        return whole(value, "timestamp", number)
    try:
        return moment(value)
    except ValueError as error:
        raise unreadable(number, f"has a timestamp that cannot be read: {error}") from error


def unreadable(number: int, what: str) -> Failure:
    return Failure(EXIT.DAMAGED, f"line {number} {what}")


def header_argument(text: str) -> Header:
    """NAME=VALUE; NAME alone has no value. ValueError: no name."""
    name, found, value = text.partition("=")
    if not name:
        raise ValueError(f"{text!r} is not NAME=VALUE")
    return name.encode("utf-8", "surrogateescape"), value.encode("utf-8", "surrogateescape") if found else None
