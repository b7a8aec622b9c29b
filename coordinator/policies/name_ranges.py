"""Write instance names as ranges: the opposite of `policies.expand_names`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

RUN_MIN: Final = 3  # shorter runs are listed name by name

_NUMBERED: Final = re.compile(r"(.*?)(\d{1,9})(\D*)")


def join_names(names: Sequence[str]) -> str:
    """The names in order, runs of consecutive numbers as ranges: "billing-[01-32],audit"."""
    items: list[str] = []
    at = 0
    while at < len(names):
        run_length = _run_length(names, at)
        if run_length < RUN_MIN:
            items.append(names[at])
            at += 1
            continue
        first, last = _NUMBERED.fullmatch(names[at]), _NUMBERED.fullmatch(names[at + run_length - 1])
        assert first is not None
        assert last is not None
        items.append(f"{first[1]}[{first[2]}-{last[2]}]{first[3]}")
        at += run_length
    return ",".join(items)


def _run_length(names: Sequence[str], at: int) -> int:
    """The number of names from `at` on that differ only in a number, which increases by one from name to name."""
    first = _NUMBERED.fullmatch(names[at])
    if first is None:
        return 1
    before, number, after = first.groups()
    padded = len(number) > 1 and number[0] == "0"
    end = at + 1
    while end < len(names):
        value = int(number) + end - at
        digits = f"{value:0{len(number)}d}" if padded else str(value)
        if len(digits) > 9 or (padded and len(digits) != len(number)) or names[end] != f"{before}{digits}{after}":
            break
        end += 1
    return end - at
