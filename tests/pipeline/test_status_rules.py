"""Each status rule, in the order in which the rules apply."""

from __future__ import annotations

import random

import pytest

from pipeline.status_rules import SEVERITY
from tests.pipeline.plain_status import Stored, View, burrow, max_quiet_ms, tenure, window_of

pytestmark = pytest.mark.once  # no dependence on the Python version

S = 1_000
MINUTE = 60 * S


def window(*commits: tuple[int, int, int | None]) -> list[Stored]:
    return [Stored(committed, at, lag) for committed, at, lag in commits]


STEADY = window((10, 0, 5), (20, 10 * S, 4), (30, 20 * S, 6))


@pytest.mark.parametrize(
    ("commits", "lag", "now", "status"),
    [
        (STEADY, 6, 25 * S, "OK"),  # its lag fell once
        (STEADY, 0, 900 * S, "OK"),  # rule 1: no lag
        (window((10, 0, 5), (20, 10 * S, 0), (15, 20 * S, 6)), 6, 900 * S, "OK"),  # rule 1 comes before all others
        (window((10, 0, 5), (9, 10 * S, 6)), 6, 900 * S, "REWIND"),  # rule 2, before rule 3
        (STEADY, 6, 40 * S, "OK"),  # silent for as long as the window spans, not longer
        (STEADY, 6, 40 * S + 999, "OK"),  # times are compared in whole seconds
        (STEADY, 6, 41 * S, "STOP"),  # rule 3
        (window((10, 0, 5)), 5, 0, "STALL"),  # a single commit: equal to all others
        (window((10, 0, 5)), 5, 1 * S, "STOP"),  # a window that spans no time
        (window((10, 0, 5), (10, 10 * S, 4), (10, 20 * S, 3)), 3, 25 * S, "STALL"),  # rule 4, whatever the lag does
        (window((10, 0, 5), (11, 10 * S, 5), (12, 20 * S, 5)), 5, 25 * S, "WARN"),  # rule 5: it does not have to grow
        (window((10, 0, 5), (11, 10 * S, 6), (12, 20 * S, 7)), 7, 25 * S, "WARN"),
        (window((10, 0, 5), (11, 10 * S, 6), (30, 20 * S, 1)), 1, 25 * S, "OK"),
    ],
)
def test_burrow_rules(commits: list[Stored], lag: int, now: int, status: str) -> None:
    assert burrow(commits, lag, now)[0] == status


LONG = window(*((10 + minute, minute * MINUTE, 5 + minute) for minute in range(12)))


def view(commits: list[Stored] = LONG, lag: int | None = 9, start: int | None = None, owned: bool | None = None, quiet: int = 0) -> View:
    return View(commits, commits[-1].committed if commits else 0, lag, start, owned, quiet)


@pytest.mark.parametrize(
    ("partition_view", "status", "rule"),
    [
        (view(start=22, lag=None), "LOST", "deleted-before-read"),  # does not need the end offset
        (view(start=21), "WARN", "lag-never-falls"),
        (view(lag=None, owned=False, quiet=1 << 40), "UNKNOWN", "no-end-offset"),
        (view(lag=0, owned=False, quiet=1 << 40), "OK", "no-lag"),
        (view(owned=False, quiet=1 << 40), "UNOWNED", "no-member-has-it"),
        (view(owned=True), "WARN", "lag-never-falls"),
        (view(quiet=11 * MINUTE), "WARN", "lag-never-falls"),
        (view(quiet=11 * MINUTE + 1), "STOP", "commits-stopped"),
        (view(LONG[:3], quiet=10 * MINUTE), "WARN", "lag-never-falls"),  # a silence of up to ten minutes is no stop
        (view(LONG[:3], quiet=10 * MINUTE + 1), "STOP", "commits-stopped"),
        (view([]), "OK", "few-commits"),
        (view(LONG[:1]), "OK", "few-commits"),
        (view(window((9, 0, 0), (5, 60 * S, 3), (5, 90 * S, 3))), "OK", "no-lag-in-window"),
        (view(window((9, 0, 1), (5, 60 * S, 3), (5, 90 * S, 3))), "REWIND", "offset-fell"),
        (view(window((5, 0, None), (5, 60 * S, 3))), "STALL", "offset-stands"),
        (view(window((5, 0, None), (6, 60 * S, 3))), "OK", "few-commits"),  # the first lag is unknown, and with it whether the lag fell
        (view(window((5, 0, 4), (6, 60 * S, 3))), "OK", "lag-falls"),
    ],
)
def test_tenure_rules(partition_view: View, status: str, rule: str) -> None:
    assert tenure(partition_view) == (status, rule)


def test_windows_have_ten_minutes_or_ten_commits_and_an_hour_at_most() -> None:
    often = window(*((n, n * 15 * S, 1) for n in range(100)))
    assert len(window_of(often)) == 41
    now_and_then = window(*((n, n * 5 * MINUTE, 1) for n in range(100)))
    assert len(window_of(now_and_then)) == 10
    rarely = window(*((n, n * 20 * MINUTE, 1) for n in range(100)))
    assert len(window_of(rarely)) == 4
    assert [max_quiet_ms(window_of(gaps)) // MINUTE for gaps in (often, now_and_then, rarely, [])] == [10, 45, 60, 10]


def severity(status: str) -> int:
    return SEVERITY.index(status)


@pytest.mark.parametrize("seed", range(60))
def test_more_lag_never_improves_a_status(seed: int) -> None:
    draw = random.Random(seed)
    size = draw.randrange(1, 11)
    committed = [draw.randrange(5) for _ in range(size)] if draw.random() < 0.3 else sorted(draw.randrange(50) for _ in range(size))
    lags = [draw.choice([0, 1, 1, 5, 9]) if draw.random() < 0.3 else draw.randrange(1, 9) for _ in range(size)]
    more = [0] * size
    for place in range(size):
        more[place] = (more[place - 1] if place else 0) + draw.choice([0, 0, 1, 4])
    last, extra = draw.choice([0, lags[-1], lags[-1] + 2]), draw.choice([0, 1, 8])
    quiet = draw.choice([0, 5 * MINUTE, 30 * MINUTE])
    owned, start = draw.choice([None, True, False]), draw.choice([None, 0, 4])
    now = size * 10 * S + quiet

    def severities(lags: list[int], lag: int, quiet: int) -> tuple[int, int]:
        commits = [Stored(offset, place * 10 * S, lag) for place, (offset, lag) in enumerate(zip(committed, lags, strict=True))]
        return severity(burrow(commits, lag, now)[0]), severity(tenure(View(commits, committed[-1], lag, start, owned, quiet))[0])

    less = severities(lags, last, quiet)
    # More lag, perhaps for a longer time without commits, cannot give a better status.
    more_lag = severities([lag + plus for lag, plus in zip(lags, more, strict=True)], last + more[-1] + extra, quiet + draw.choice([0, 60 * MINUTE]))
    assert more_lag[0] >= less[0]
    assert more_lag[1] >= less[1]
