"""Java's properties format, in which Kafka's own configuration files are written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

WHITESPACE = " \t\f"
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Line(NamedTuple):
    number: int
    name: str
    value: str


class PropertiesError(Exception):
    """The text is not in the format; the message says where and why."""


def parse_properties(text: str) -> list[tuple[str, str]]:
    """The names and values, in the order of the file. Raises PropertiesError."""
    return [(line.name, line.value) for line in parse_lines(text)]


def parse_lines(text: str) -> list[Line]:
    """The names and values with the numbers of their lines. Raises PropertiesError."""
    lines = []
    for number, line in _logical_lines(text):
        end = _end_of_name(line)
        value = line[end:].lstrip(WHITESPACE)
        if value[:1] in ("=", ":"):
            value = value[1:].lstrip(WHITESPACE)
        try:
            lines.append(Line(number, _unescaped(line[:end]), _unescaped(value)))
        except ValueError:
            raise PropertiesError(f"\\u needs four hexadecimal digits (at line {number})") from None
    return lines


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Each line with its number, without comments and empty lines. A line that ends with a backslash is joined with the next one."""
    lines = iter(enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1))
    for number, line in lines:
        joined = line.lstrip(WHITESPACE)
        if not joined or joined[0] in "#!":
            continue
        while _is_continued(joined):
            joined = joined[:-1] + next(lines, (0, ""))[1].lstrip(WHITESPACE)
        yield number, joined


def _is_continued(line: str) -> bool:
    """Whether the line ends with an odd number of backslashes: two are an escaped one."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _end_of_name(line: str) -> int:
    """The position of the first `=`, `:` or whitespace that is not escaped."""
    at = 0
    while at < len(line) and line[at] not in "=:" + WHITESPACE:
        at += 2 if line[at] == "\\" else 1
    return at


def _unescaped(text: str) -> str:
    """Raises ValueError for a wrong \\uXXXX."""
    parts = []
    at = 0
    while (escape := text.find("\\", at)) >= 0:
        char = text[escape + 1 : escape + 2]
        parts.append(text[at:escape])
        at = escape + 2
        if char == "u":
            digits = text[at : at + 4]
            if len(digits) < 4 or not (digits.isascii() and digits.isalnum()):
                raise ValueError(digits)
            parts.append(chr(int(digits, 16)))
            at += 4
        else:
            parts.append(ESCAPES.get(char, char))
    return "".join(parts) + text[at:]
