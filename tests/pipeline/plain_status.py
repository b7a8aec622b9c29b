"""A partition's status at one moment, written directly from the rules: the reference for `pipeline/status.py`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from pipeline.status_rules import (
    COMMITS_MIN,
    FEW,
    LOST,
    MOVING,
    NO_LAG,
    NO_LAG_IN_WINDOW,
    REWIND,
    STALL,
    STOP,
    UNKNOWN,
    UNOWNED,
    WARN,
    WINDOW_MS_MAX,
    WINDOW_MS_MIN,
)

Verdict = tuple[str, str]  # status and rule


class Stored(NamedTuple):
    """One commit of a window, with its lag."""

    committed: int
    at_ms: int
    lag: int | None


def burrow(window: Sequence[Stored], lag: int, now_ms: int) -> Verdict:
    """Burrow's status. `window`: the last commits with known lag, one to ten. `lag`: the current lag of the last commit."""
    first, last = window[0], window[-1]
    now_ms -= now_ms % 1_000  # Burrow's clock counts whole seconds
    if lag == 0:
        return NO_LAG
    if any(commit.lag == 0 for commit in window):
        return NO_LAG_IN_WINDOW
    if any(after.committed < before.committed for before, after in pairwise(window)):
        return REWIND
    if now_ms - last.at_ms > last.at_ms - first.at_ms:
        return STOP
    if all(after.committed == before.committed for before, after in pairwise(window)):
        return STALL
    if all(after.lag >= before.lag for before, after in pairwise(window)):  # type: ignore[operator]
        return WARN
    return MOVING


class View(NamedTuple):
    """Everything known about a partition at one moment."""

    window: Sequence[Stored]
    committed: int
    lag: int | None
    log_start: int | None
    owned: bool | None  # whether a member of the group has the partition
    quiet_ms: int  # time since the last commit and since the lag began, whichever is shorter, without excused time


def tenure(view: View) -> Verdict:
    window = view.window
    if view.log_start is not None and view.committed < view.log_start:
        return LOST
    if view.lag is None:
        return UNKNOWN
    if view.lag == 0:
        return NO_LAG
    if view.owned is False:
        return UNOWNED
    if view.quiet_ms > max_quiet_ms(window):
        return STOP
    if any(commit.lag == 0 for commit in window):
        return NO_LAG_IN_WINDOW
    if len(window) < 2:
        return FEW
    if any(after.committed < before.committed for before, after in pairwise(window)):
        return REWIND
    if all(after.committed == before.committed for before, after in pairwise(window)):
        return STALL
    if any(commit.lag is None for commit in window):
        return FEW
    if all(after.lag >= before.lag for before, after in pairwise(window)):  # type: ignore[operator]
        return WARN
    return MOVING


def max_quiet_ms(window: Sequence[Stored]) -> int:
    """The longest time without commits before STOP: the span of the window, as in Burrow, but at least ten minutes and at most an hour."""
    span = window[-1].at_ms - window[0].at_ms if window else 0
    return min(max(span, WINDOW_MS_MIN), WINDOW_MS_MAX)


def window_of(thinned: Sequence[Stored]) -> Sequence[Stored]:
    """The commits of the last ten minutes or the last ten, whichever are more, of at most an hour. `thinned`: the commits that thinning kept."""
    if not thinned:
        return []
    last = thinned[-1].at_ms
    long = [commit for commit in thinned if commit.at_ms >= last - WINDOW_MS_MIN]
    window = max(long, thinned[-COMMITS_MIN:], key=len)
    return [commit for commit in window if commit.at_ms >= last - WINDOW_MS_MAX]
