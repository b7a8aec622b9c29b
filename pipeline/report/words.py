"""Numbers, times and names as text. Names are untrusted: unprintable characters and direction marks are escaped."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from datetime import UTC, datetime


def plain(text: object) -> str:
    """The text with control characters and direction marks escaped."""
    return "".join(char if char.isprintable() and unicodedata.category(char) != "Cf" else f"\\u{ord(char):04x}" for char in str(text))


def lines(text: str) -> str:
    """Like `plain`, but line feeds stay: for settings that Tenure itself writes."""
    return "\n".join(map(plain, text.split("\n")))


def brief(text: str, length_max: int = 60) -> str:
    """The text, shortened in the middle if it is long."""
    text = plain(text)
    return text if len(text) <= length_max else f"{text[: length_max - 21]}…{text[-20:]}"


def moment(ms: int | None) -> str:
    if ms is None:
        return "unknown"
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def day(ms: int | None) -> str:
    """The time with the day of the week."""
    text = moment(ms)
    return text if ms is None or text.endswith("ms") else f"{datetime.fromtimestamp(ms / 1000, UTC):%a} {text[:16]}"


def span_text(from_ms: int | None, to_ms: int | None) -> str:
    if to_ms is None or from_ms is None:
        return moment(from_ms)
    return f"{moment(from_ms)} to {moment(to_ms)[11:] if moment(from_ms)[:10] == moment(to_ms)[:10] else moment(to_ms)}"


def short_time(ms: float | None) -> str:
    if ms is None:
        return "unknown"
    if ms < 0:
        return "never"
    if not ms:
        return "0 s"
    if ms < 1_000:
        return f"{ms:.0f} ms"
    for size, word, above in ((86_400_000, "d", 2), (3_600_000, "h", 2), (60_000, "min", 2)):
        if ms >= above * size:
            return f"{ms / size:.1f} {word}".replace(".0 ", " ")
    return f"{ms / 1000:.1f} s".replace(".0 ", " ")


def number(value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.1f}".removesuffix(".0")
    return f"{value:,}" if isinstance(value, int) else plain(value)


def counted(count: int, noun: str, plural: str = "") -> str:
    """The number with the noun, in the plural unless it is 1."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as ranges: `0-3, 7`."""
    runs: list[list[int]] = []
    for value in sorted(set(numbers)):
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def range_text(low: object, high: object) -> str:
    """Both ends of a range, or one if they are equal."""
    return str(high) if low == high else f"{low} to {high}"


def interval(low: int | None, high: int | None) -> str:
    """An interval of durations, with both ends if they differ."""
    if low is None and high is None:
        return "unknown"
    if low == high:
        return short_time(low)
    if low is None or high is None:
        return f"{'at most' if low is None else 'at least'} {short_time(high if low is None else low)}"
    return f"{short_time(low)} to {short_time(high)}"
