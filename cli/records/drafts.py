"""Records to send, from arguments and lines. A malformed line raises Failure with its number."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from cli.failure import Exit, Failure
from cli.groups.offset_formats import parse_time
from protocol.batch import Record

Header = tuple[bytes, bytes | None]
FIELDS: Final = ("key", "value", "headers", "partition", "timestamp")
IGNORED_FIELDS: Final = ("topic", "offset", "timestamp_type", "leader_epoch")  # fields that `consume --json` prints; for the new record the broker sets them
RECORD_OVERHEAD: Final = 64  # the most bytes of a record besides key, value and headers, to bound the size of batches


class Draft(NamedTuple):
    line: int  # 0: not from a line
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
        """The record in a batch. `timestamp`: used if the draft has none."""
        return Record(offset, timestamp if self.timestamp is None else self.timestamp, self.key, self.value, self.headers)

    @property
    def source(self) -> str:
        return f"line {self.line}" if self.line else "the record"


LineParser = Callable[[bytes, int], Draft]


def plain_line_parser(
    key: bytes | None, separator: bytes | None, only_keys: bool, headers: Sequence[Header], partition: int | None
) -> LineParser:
    """Parse a line as a value, as a key and a value around a separator, or (`only_keys`) as the key of a tombstone."""

    def parse(line: bytes, number: int) -> Draft:
        if only_keys:
            return Draft(number, line, None, headers, partition)
        if separator is None:
            return Draft(number, key, line, headers, partition)
        name, separator_found, value = line.partition(separator)
        if not separator_found:
            raise bad_line(number, f"has no {separator.decode('utf-8', 'replace')!r} between key and value (--key-separator)")
        return Draft(number, name, value, headers, partition)

    return parse


def json_line_parser(key: bytes | None, headers: Sequence[Header], partition: int | None, any_partition: bool) -> LineParser:
    """Parse a line as an object, as `tenure consume --json` prints it. The command's arguments override its fields."""

    def parse(line: bytes, number: int) -> Draft:
        fields = read_object(line, number)
        own_partition = None if any_partition else non_negative(fields.get("partition"), "partition", number)
        own_key = text_or_bytes(fields, "key", number) if "key" in fields or "key_base64" in fields else None
        if "value" not in fields and "value_base64" not in fields:
            raise bad_line(number, 'has no "value" (a tombstone has "value": null)')
        return Draft(
            number,
            own_key if key is None else key,
            text_or_bytes(fields, "value", number),
            [*headers_of(fields.get("headers"), number), *headers],
            own_partition if partition is None else partition,
            timestamp_of(fields.get("timestamp"), number),
        )

    return parse


def read_object(line: bytes, number: int) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise bad_line(number, f"is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise bad_line(number, 'is not a JSON object like {"key": "k", "value": "v"}')
    if isinstance(failure := fields.get("error"), dict):  # the error line of `consume --json`
        raise bad_line(number, f"is the error of another command: {failure.get('message')}")
    known = {*FIELDS, *IGNORED_FIELDS, "key_base64", "value_base64"}
    for name in fields:
        if name not in known:
            raise bad_line(number, f"has a field {name!r}; there are {', '.join(FIELDS)}, key_base64 and value_base64")
    return fields


def text_or_bytes(fields: dict[str, Any], name: str, number: int) -> bytes | None:
    """The bytes of a field: a string as UTF-8, another value as compact JSON, or the decoded field NAME_base64."""
    encoded = fields.get(f"{name}_base64")
    value = fields.get(name)
    if encoded is None:
        return as_bytes(value, name, number)
    if value is not None:
        raise bad_line(number, f"has both {name} and {name}_base64")
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise bad_line(number, f"has a {name}_base64 that is not base64") from error


def as_bytes(value: object, name: str, number: int) -> bytes | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise bad_line(number, f"has a {name} with a lone surrogate, which is half of a character") from error


def headers_of(value: object, number: int) -> list[Header]:
    """Headers from [{"name": ..., "value": ...}], or from an object of names and values."""
    if value is None:
        return []
    if isinstance(value, dict):
        value = [{"name": name, "value": header_value} for name, header_value in value.items()]
    if not isinstance(value, list):
        raise bad_line(number, 'has headers that are not like [{"name": "n", "value": "v"}]')
    headers: list[Header] = []
    for header in value:
        if not isinstance(header, dict) or not isinstance(header.get("name"), str):
            raise bad_line(number, 'has a header that is not like {"name": "n", "value": "v"}')
        name = as_bytes(header["name"], "name of a header", number)
        headers.append((name or b"", text_or_bytes(header, "value", number)))
    return headers


def non_negative(value: object, name: str, number: int) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise bad_line(number, f"has a {name} that is not a whole number")
    return value


def timestamp_of(value: object, number: int) -> int | None:
    """Milliseconds, or a time as `consume --json` prints it."""
    if not isinstance(value, str):
        return non_negative(value, "timestamp", number)
    try:
        return parse_time(value)
    except ValueError as error:
        raise bad_line(number, f"has a timestamp that cannot be read: {error}") from error


def bad_line(number: int, problem: str) -> Failure:
    return Failure(Exit.DAMAGED, f"line {number} {problem}")


def header_argument(text: str) -> Header:
    """A header from NAME=VALUE, or from NAME without a value. ValueError without a name."""
    name, equals, value = text.partition("=")
    if not name:
        raise ValueError(f"{text!r} is not NAME=VALUE")
    return name.encode("utf-8", "surrogateescape"), value.encode("utf-8", "surrogateescape") if equals else None
