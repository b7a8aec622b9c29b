"""Lists of instance names, written with ranges like billing-[01-32]."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

RUN_MIN: Final = 3  # shorter runs are listed name by name

NAMES_MAX: Final = 10_000
NAME_CHARS_MAX: Final = 249

_RANGE: Final = re.compile(r"\[(\d{1,9})-(\d{1,9})\]")
_NAME: Final = re.compile(r"[^\s,\[\]]+")
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


def expand_names(text: str, policy: str) -> tuple[str, ...]:
    """The distinct names in a list like "billing-[01-32], audit-1", in order. A range keeps its leading zeros.

    Raises ValueError with a sentence that begins with the name of the policy.
    """
    names: dict[str, None] = {}
    for item in text.split(","):
        item = item.strip()
        if not item:
            continue
        for name in _expand(item, policy):
            if not _NAME.fullmatch(name) or len(name) > NAME_CHARS_MAX:
                raise ValueError(
                    f"{policy}: {item!r} is not a name or range; write names without spaces, at most {NAME_CHARS_MAX} "
                    "characters each, and ranges as in billing-[01-32]"
                )
            names[name] = None
            if len(names) > NAMES_MAX:
                raise ValueError(f"{policy}: more than {NAMES_MAX:,} names; shorten the list")
    return tuple(names)


def repeated_names(text: str, policy: str) -> list[str]:
    """The names that the list has more than once. Raises ValueError as `expand_names` does."""
    left = dict.fromkeys(expand_names(text, policy), 1)
    repeated: dict[str, None] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        for name in _expand(item, policy):
            left[name] -= 1
            if left[name] < 0:
                repeated[name] = None
    return list(repeated)


def without_repeats(text: str, policy: str) -> str:
    """The list with each name once; as written if no name is repeated. Raises ValueError as `expand_names` does."""
    return join_names(expand_names(text, policy)) if repeated_names(text, policy) else text


def _expand(item: str, policy: str) -> list[str]:
    match = _RANGE.search(item)
    if match is None:
        return [item]
    first, last = match.groups()
    low, high = int(first), int(last)
    if low > high:
        raise ValueError(f"{policy}: the range [{first}-{last}] runs backwards; write the smaller number first")
    if high - low >= NAMES_MAX:
        raise ValueError(f"{policy}: more than {NAMES_MAX:,} names in {item!r}; shorten the range")
    if first[0] == "0" and len(first) > 1 and len(first) != len(last):
        raise ValueError(f"{policy}: the ends of [{first}-{last}] have different widths; write as many digits in both")
    width = len(first) if first[0] == "0" else 0
    before, after = item[: match.start()], item[match.end() :]
    if _RANGE.search(after):
        raise ValueError(f"{policy}: {item!r} has two ranges; write one range in each name")
    return [f"{before}{number:0{width}d}{after}" for number in range(low, high + 1)]
