"""The time of each step of a start, logged by `tenure serve --trace-start` when the broker listens."""

from __future__ import annotations

import os
import sys
import time
from itertools import pairwise
from typing import NamedTuple


class Mark(NamedTuple):
    """The end of a step."""

    step: str
    at_ns: int
    modules: int  # imported so far


marks: dict[str, Mark] = {}
requested = False  # by `--trace-start`


def mark(step: str) -> None:
    """The first time counts: a process with many clusters (test control) starts once."""
    if step not in marks:
        marks[step] = Mark(step, time.monotonic_ns(), len(sys.modules))


def summary() -> dict[str, str]:
    """Milliseconds and newly imported modules of each step; the first step begins at the process start, if that is known."""
    done = list(marks.values())
    start = Mark("", process_started_ns() or done[0].at_ns, 0)
    steps = {
        mark.step: f"{milliseconds(previous, mark)} ms, {mark.modules - previous.modules} modules"
        for previous, mark in pairwise([start, *done])
    }
    return steps | {"total": f"{milliseconds(start, done[-1])} ms, {done[-1].modules} modules"}


def milliseconds(begin: Mark, end: Mark) -> str:
    return f"{(end.at_ns - begin.at_ns) / 1e6:.1f}"


def process_started_ns() -> int | None:
    """The process start on the monotonic clock, to a hundredth of a second; known on Linux only."""
    try:
        with open("/proc/self/stat", "rb") as stat:
            ticks = int(stat.read().rpartition(b")")[2].split()[19])
        since_boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError, IndexError):
        return None
    return time.monotonic_ns() - since_boot_ns
