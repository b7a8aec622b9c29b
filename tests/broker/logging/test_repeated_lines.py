"""A line that repeats is written once, and then counted."""

from __future__ import annotations

from typing import Any

import pytest

from broker.logging.line_format import Lines
from broker.logging.repeated_lines import COUNTED_MAX, SECONDS_MAX, Repeats


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def repeats(clock: FakeClock) -> Repeats:
    return Repeats(Lines(as_json=True).render, clock)


def line(event: str = "closed", **fields: Any) -> dict[str, Any]:
    return {"event": event, **fields}


def test_the_first_line_is_written_and_repeats_are_counted(repeats: Repeats, clock: FakeClock) -> None:
    assert [repeats.count_if_repeated("warning", line(peer="a")) for _ in range(4)] == [False, True, True, True]
    assert repeats.due_lines() == []
    clock.now += 1
    (counted,) = repeats.due_lines()
    assert b'"peer": "a", "repeated": 3}' in counted


def test_lines_that_differ_are_all_written(repeats: Repeats) -> None:
    different = [("warning", line()), ("error", line()), ("warning", line(peer="a")), ("warning", line("opened"))]
    assert not any(repeats.count_if_repeated(level, details) for level, details in different)


def test_info_lines_are_never_suppressed(repeats: Repeats) -> None:
    assert not any(repeats.count_if_repeated("info", line()) for _ in range(3))
    assert repeats.wait_seconds() is None


def test_a_repeated_line_is_written_at_growing_intervals(repeats: Repeats, clock: FakeClock) -> None:
    written = 0
    for _ in range(36_000):
        repeats.count_if_repeated("error", line())
        clock.now += 0.1
        written += len(repeats.due_lines())
    assert written == 6 + (3_600 - 63) // SECONDS_MAX


def test_a_line_that_stopped_repeating_is_forgotten(repeats: Repeats, clock: FakeClock) -> None:
    repeats.count_if_repeated("error", line())
    assert repeats.wait_seconds() == 1
    clock.now += 1
    assert repeats.due_lines() == []
    assert repeats.wait_seconds() is None
    assert not repeats.count_if_repeated("error", line())


def test_exceptions_are_compared_by_location_not_message(repeats: Repeats) -> None:
    def is_repeated(text: str, kind: type[Exception]) -> bool:
        try:
            raise kind(text)
        except Exception as error:
            return repeats.count_if_repeated("error", line(exc_info=error))

    assert [is_repeated("one", ValueError), is_repeated("two", ValueError), is_repeated("one", KeyError)] == [False, True, False]


def test_the_number_of_tracked_lines_is_limited(repeats: Repeats) -> None:
    assert not any(repeats.count_if_repeated("warning", line(number=number)) for number in range(2 * COUNTED_MAX))
    assert repeats.count_if_repeated("warning", line(number=COUNTED_MAX - 1))
    assert not repeats.count_if_repeated("warning", line(number=COUNTED_MAX))


def test_pending_counts_are_written_at_the_end(repeats: Repeats) -> None:
    for _ in range(3):
        repeats.count_if_repeated("warning", line())
    (counted,) = repeats.due_lines(at_end=True)
    assert b'"repeated": 2' in counted
