from __future__ import annotations

import pytest

from cli.groups import offset_formats
from cli.groups.offset_formats import Scope


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders", Scope("orders", None)),
        ("orders:0", Scope("orders", (0,))),
        ("orders:3,0,5-7", Scope("orders", (0, 3, 5, 6, 7))),
        ("orders:1,1-2", Scope("orders", (1, 2))),
        ("a.b_c-d:2147483647", Scope("a.b_c-d", (2147483647,))),
    ],
)
def test_a_topic_and_its_partitions_are_read(text: str, expected: Scope) -> None:
    assert offset_formats.parse_scope(text) == expected


@pytest.mark.parametrize("text", ["", ":0", "orders:", "orders:x", "orders:-1", "orders:1,", "orders:3-1", "orders:2147483648", "orders:0-99999999", "orders:²"])
def test_a_malformed_partition_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"orders|has no topic"):
        offset_formats.parse_scope(text)


def test_partitions_are_printed_as_they_may_be_written() -> None:
    assert str(Scope("orders", (0, 1, 2, 5, 7, 8))) == "orders:0-2,5,7-8"
    assert str(Scope("orders", None)) == "orders"


def test_scopes_of_a_topic_are_merged() -> None:
    named = [Scope("a", (1,)), Scope("b", None), Scope("a", (0, 1)), Scope("b", (3,)), Scope("c", (1,)), Scope("c", None)]
    assert offset_formats.merge_scopes(named) == {"a": {0, 1}, "b": None, "c": None}


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-02", 86_400_000),
        ("1970-01-01T02:00+02:00", 0),
        ("1970-01-01T00:00:00.123", 123),
        ("1970-01-01 00:01", 60_000),
        ("2026-11-21T09:30:00.5+01:00", 1_795_249_800_500),
    ],
)
def test_a_time_is_iso_8601_and_utc_without_a_zone(text: str, ms: int) -> None:
    assert offset_formats.parse_time(text) == ms


@pytest.mark.parametrize("text", ["", "now", "2026-13-01", "1969-12-31T23:59:59Z", "10:30", "1700000000000"])
def test_a_malformed_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a time|before 1970"):
        offset_formats.parse_time(text)


def test_times_are_printed_with_their_zone() -> None:
    assert offset_formats.time_text(1_795_249_800_000) == "2026-11-21T08:30:00Z"
    assert offset_formats.time_text(7) == "1970-01-01T00:00:00.007Z"


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("90s", 90_000),
        ("15m", 900_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("1h30m", 5_400_000),
        ("1w", 604_800_000),
        ("250ms", 250),
        ("PT1H30M", 5_400_000),
        ("pt15m", 900_000),
        ("P2DT6H", 194_400_000),
        ("P1W", 604_800_000),
        ("PT0.5S", 500),
        ("PT1M2.25S", 62_250),
        ("P0D", 0),
    ],
)
def test_durations_are_iso_8601_or_numbers_with_units(text: str, ms: int) -> None:
    assert offset_formats.parse_duration(text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "5", "h", "-5m", "1.5h", "5 m", "5M", "P1M", "P1Y", "PT5", "1h30", "9" * 40 + "s"])
def test_a_malformed_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        offset_formats.parse_duration(text)


def test_a_month_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match="no fixed length"):
        offset_formats.parse_duration("P1M")


def test_a_time_beyond_the_calendar_is_refused_and_any_number_is_shown() -> None:
    for text in ("9999-12-31T23:59:59-23:00", "0001-01-01T00:00:00+23:00"):
        with pytest.raises(ValueError, match=r"is after the year 9999|is before 1970"):
            offset_formats.parse_time(text)
    assert offset_formats.parse_time("9999-12-31T23:59:59.999Z") == 253_402_300_799_999
    for ms in (-(1 << 63), (1 << 63) - 1, 253_402_300_800_000):
        assert offset_formats.time_text(ms) == f"{ms} ms after 1970"
    assert offset_formats.time_text(253_402_300_799_999) == "9999-12-31T23:59:59.999Z"
