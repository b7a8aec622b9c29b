"""Parse and print arguments about offsets: partitions of a topic, times, durations."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

MS = 1000
PARTITION_LIMIT = 1 << 31  # Kafka's partition numbers are signed 32 bit integers
RANGE_LIMIT = 100_000  # of partitions in one T:A-B, more than any topic has: a mistyped number must not allocate a gigabyte
TIME_MIN_MS = -62_135_596_800_000  # the years 1 to 9999, the range of datetime
TIME_MAX_MS = 253_402_300_799_999
UNITS_MS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": MS, "ms": 1}

ISO_DURATION = re.compile(
    r"P(?:(?P<w>\d{1,9})W)?(?:(?P<d>\d{1,9})D)?(?P<T>T(?:(?P<h>\d{1,9})H)?(?:(?P<m>\d{1,9})M)?(?:(?P<s>\d{1,9}(?:[.,]\d{1,3})?)S)?)?",
    re.IGNORECASE | re.ASCII,
)
TIME_PARTS = re.compile(r"(\d{4})-(\d{1,2})(?:-(\d{1,2})(?:[T ](\d{1,2})(?::(\d{1,2})(?::(\d{1,2}))?)?)?)?(?!\d)", re.ASCII | re.IGNORECASE)
PLAIN_DURATION = re.compile(r"(\d{1,15})(ms|[wdhms])", re.ASCII)


class Scope(NamedTuple):
    """A topic and some of its partitions (None: all), as in `orders:0,3-5` or `orders`."""

    topic: str
    partitions: tuple[int, ...] | None

    def __str__(self) -> str:
        return self.topic if self.partitions is None else f"{self.topic}:{partition_ranges(self.partitions)}"


def parse_scope(text: str) -> Scope:
    topic, colon, listed = text.partition(":")
    if not topic:
        raise ValueError(f"{text!r} has no topic")
    if not colon:
        return Scope(topic, None)
    partitions: set[int] = set()
    for part in listed.split(","):
        first, dash, last = part.partition("-")
        if not (is_digits(first) and (not dash or is_digits(last))):
            raise ValueError(f"{text!r} is not TOPIC or TOPIC:0,2,5-7")
        begin, end = int(first), int(last if dash else first)
        if not begin <= end < PARTITION_LIMIT or end - begin >= RANGE_LIMIT:
            raise ValueError(f"{text!r}: there are no partitions {part}")
        partitions.update(range(begin, end + 1))
    return Scope(topic, tuple(sorted(partitions)))


def is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10


def partition_ranges(partitions: Iterable[int]) -> str:
    """The numbers as ranges (0, 1, 2, 5: `0-2,5`), which `parse_scope` can parse."""
    runs: list[list[int]] = []
    for partition in sorted(partitions):
        if runs and partition == runs[-1][1] + 1:
            runs[-1][1] = partition
        else:
            runs.append([partition, partition])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def merge_scopes(scopes: Iterable[Scope]) -> dict[str, set[int] | None]:
    """The partitions of each topic in several `--topic` values. None: all, since one of the values names no partitions."""
    partitions: dict[str, set[int] | None] = {}
    for scope in scopes:
        earlier = partitions.get(scope.topic, set())
        partitions[scope.topic] = None if scope.partitions is None or earlier is None else earlier | set(scope.partitions)
    return partitions


def parse_time(text: str) -> int:
    """Parse an ISO 8601 time, in UTC if it has no zone. Returns milliseconds since 1970."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        if re.fullmatch(r"\d{10}|\d{13}", text, re.ASCII):
            raise ValueError(f"{text!r} is not a time: as a number of {'seconds' if len(text) == 10 else 'milliseconds'} it is {time_text(int(text.ljust(13, '0')))}") from None
        date = re.match(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?:([T ])(\d{1,2}))?(?!\d)", text, re.ASCII)
        if date and not impossible_part(text):
            hour = f"T{date[5]:0>2}" if date[4] else ""
            meant = f"{date[1]}-{date[2]:0>2}-{date[3]:0>2}{hour}{text[date.end():]}"
            if meant != text:
                raise ValueError(f"{text!r} is not a time; did you mean {meant}?") from None
        raise ValueError(f"{text!r} is not a time{impossible_part(text) or ' like 2026-11-21T08:30:00Z or 2026-11-21T09:30+01:00'}") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    since = time - datetime(1970, 1, 1, tzinfo=UTC)
    ms = since.days * UNITS_MS["d"] + since.seconds * MS + since.microseconds // MS
    if ms < 0:
        raise ValueError(f"{text!r} is before 1970, where Kafka's times begin")
    if ms > TIME_MAX_MS:
        raise ValueError(f"{text!r} is after the year 9999 in UTC")
    return ms


def impossible_part(text: str) -> str:
    """The part of a time that no calendar or clock has, as the end of an error text; "" if there is none."""
    match = TIME_PARTS.match(text)
    if match is None:
        return ""
    year, month, day, hour, minute, second = (None if part is None else int(part) for part in match.groups())
    if year is None or month is None:
        return ""
    if not year:
        return ": there is no year 0"
    if not 1 <= month <= 12:
        return f": there is no month {month}"
    if day is not None and not 1 <= day <= monthrange(year, month)[1]:
        return f": {year:04}-{month:02} has no day {day}"
    for value, unit, limit in ((hour, "hour", 24), (minute, "minute", 60), (second, "second", 60)):
        if value is not None and value >= limit:
            return f": there is no {unit} {value}"
    return ""


def time_text(ms: int) -> str:
    """ISO 8601 in UTC, with milliseconds if not zero. Outside of the calendar's range, which a record's timestamp may be: the number."""
    if not TIME_MIN_MS <= ms <= TIME_MAX_MS:
        return f"{ms} ms after 1970"
    at = datetime.fromtimestamp(ms // MS, UTC).replace(microsecond=ms % MS * 1000)
    return at.isoformat(timespec="milliseconds" if ms % MS else "seconds").removesuffix("+00:00") + "Z"


def parse_duration(text: str) -> int:
    """Parse PT1H30M, P2DT6H, 90s, 15m, 1h30m or 2d. Returns milliseconds."""
    if match := ISO_DURATION.fullmatch(text):
        values = {unit: match[unit].replace(",", ".") for unit in ("w", "d", "h", "m", "s") if match[unit] is not None}
        if values and match["T"] not in ("T", "t"):
            ms = sum(int(value) * UNITS_MS[unit] for unit, value in values.items() if unit != "s")
            seconds, _, fraction = values.get("s", "0").partition(".")
            return ms + int(seconds) * MS + int(fraction.ljust(3, "0") or 0)
    parts = PLAIN_DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        more = "; months and years have no fixed length" if re.fullmatch(r"P(\d+Y)?(\d+M)?(\d+D)?(T.*)?", text, re.IGNORECASE) and re.match(r"P\d+[YM]", text, re.IGNORECASE) else ""
        long_unit = re.fullmatch(r"(\d{1,9}) ?(milliseconds?|seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|weeks?)", text.lower(), re.ASCII)
        more = f"; did you mean {long_unit[1]}{'ms' if long_unit[2].startswith('mil') else long_unit[2][0]}?" if long_unit else more
        more = "; it has no sign, as it always reaches back from now" if text[:1] in ("-", "+") else more
        raise ValueError(f"{text!r} is not a duration like 90s, 15m, 1h30m, 2d or PT1H30M{more}")
    return sum(int(number) * UNITS_MS[unit] for number, unit in parts)
