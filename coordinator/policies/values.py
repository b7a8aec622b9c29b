"""Policies of a group, set by an operator: names, values, and the combinations that are refused.

A group without policies behaves as Kafka's groups do. A value is stored as the operator wrote it; `resolve` applies the values
of a group over the broker's defaults.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from coordinator.policies.name_ranges import join_names

TIMEOUT_MS_MIN: Final = 1_000
TIMEOUT_MS_MAX: Final = 7 * 24 * 3_600_000
NAMES_MAX: Final = 10_000
NAME_CHARS_MAX: Final = 249
TARGET_SIZE_MAX: Final = 10_000
REQUEST_CHARS_MAX: Final = 1_000

TARGET_SIZE: Final = "target.group.size"
NONE_TEXT: Final = "none"  # as a group's value: the broker's default does not apply
REBALANCE_REQUEST: Final = "rebalance.request"  # setting it requests one rebalance; the value is the reason


class GroupPolicies(NamedTuple):
    """The effective policies of one group. Each field belongs to the policy of its name; None means unset."""

    registration_timeout_ms: int | None = None
    expansion_timeout_ms: int | None = None
    instance_ids: tuple[str, ...] | None = None
    roster_timeout_ms: int | None = None
    roster_strict: bool = False
    target_group_size: int | None = None
    subscription_change: bool = False  # True: a change of topics by a returning static member causes a rebalance
    pending_release: bool = False
    topics_watch: bool = False


NO_POLICIES: Final = GroupPolicies()

_RANGE: Final = re.compile(r"\[(\d{1,9})-(\d{1,9})\]")
_NAME: Final = re.compile(r"[^\s,\[\]]+")


def expand_names(text: str) -> tuple[str, ...]:
    """The distinct names in a list like "billing-[01-32], audit-1", in order. A range keeps its leading zeros."""
    names: dict[str, None] = {}
    for item in text.split(","):
        item = item.strip()
        if not item:
            continue
        for name in _expand(item):
            if not _NAME.fullmatch(name) or len(name) > NAME_CHARS_MAX:
                raise ValueError(
                    f"instance.ids: {item!r} is not a name or range; write names without spaces, at most {NAME_CHARS_MAX} "
                    "characters each, and ranges as in billing-[01-32]"
                )
            names[name] = None
            if len(names) > NAMES_MAX:
                raise ValueError(f"instance.ids: more than {NAMES_MAX:,} names; shorten the list")
    return tuple(names)


def repeated_names(text: str) -> list[str]:
    """The names that the list has more than once. Raises ValueError as `expand_names` does."""
    left = dict.fromkeys(expand_names(text), 1)
    repeated: dict[str, None] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        for name in _expand(item):
            left[name] -= 1
            if left[name] < 0:
                repeated[name] = None
    return list(repeated)


def without_repeats(text: str) -> str:
    """The list with each name once; as written if no name is repeated. Raises ValueError as `expand_names` does."""
    return join_names(expand_names(text)) if repeated_names(text) else text


def _expand(item: str) -> list[str]:
    match = _RANGE.search(item)
    if match is None:
        return [item]
    first, last = match.groups()
    low, high = int(first), int(last)
    if low > high:
        raise ValueError(f"instance.ids: the range [{first}-{last}] runs backwards; write the smaller number first")
    if high - low >= NAMES_MAX:
        raise ValueError(f"instance.ids: more than {NAMES_MAX:,} names in {item!r}; shorten the range")
    if first[0] == "0" and len(first) > 1 and len(first) != len(last):
        raise ValueError(f"instance.ids: the ends of [{first}-{last}] have different widths; write as many digits in both")
    width = len(first) if first[0] == "0" else 0
    before, after = item[: match.start()], item[match.end() :]
    if _RANGE.search(after):
        raise ValueError(f"instance.ids: {item!r} has two ranges; write one range in each name")
    return [f"{before}{number:0{width}d}{after}" for number in range(low, high + 1)]


def _parse_instance_ids(name: str, text: str) -> tuple[str, ...]:
    names = expand_names(text)
    if not names:
        raise ValueError("instance.ids: the list is empty; name at least one instance, or delete the policy")
    return names


def _parse_timeout(name: str, text: str) -> int:
    value = _parse_number(text)
    if value is None or not TIMEOUT_MS_MIN <= value <= TIMEOUT_MS_MAX:
        raise ValueError(f"{name}: {text!r} is not a timeout; write milliseconds from {TIMEOUT_MS_MIN} (1 s) to {TIMEOUT_MS_MAX} (7 days)")
    return value


def _parse_switch(name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{name}: {text!r} is not a switch; write true or false")
    return text == "true"


def _parse_size(name: str, text: str) -> int:
    value = _parse_number(text)
    if value is None or not 1 <= value <= TARGET_SIZE_MAX:
        raise ValueError(f"{name}: {text!r} is not a number of members; write a number from 1 to {TARGET_SIZE_MAX}")
    return value


def _parse_change(name: str, text: str) -> bool:
    if text not in ("keep", "rebalance"):
        raise ValueError(f"{name}: {text!r} is unknown; write keep or rebalance")
    return text == "rebalance"


def _parse_reason(name: str, text: str) -> str:
    if not text or len(text) > REQUEST_CHARS_MAX:
        raise ValueError(f"{name}: give the reason of the rebalance, at most {REQUEST_CHARS_MAX} characters")
    return text


def _parse_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


PolicyValue = int | bool | str | tuple[str, ...]

_PARSERS: Final[dict[str, Callable[[str, str], PolicyValue]]] = {
    "registration.timeout.ms": _parse_timeout,
    "expansion.timeout.ms": _parse_timeout,
    "instance.ids": _parse_instance_ids,
    "roster.timeout.ms": _parse_timeout,
    "roster.strict": _parse_switch,
    "target.group.size": _parse_size,
    "subscription.change": _parse_change,
    "pending.release": _parse_switch,
    "topics.watch": _parse_switch,
    REBALANCE_REQUEST: _parse_reason,
}
POLICY_NAMES: Final[tuple[str, ...]] = tuple(_PARSERS)

_FIELDS: Final = {name: name.replace(".", "_") for name in POLICY_NAMES if name != REBALANCE_REQUEST}


def parse(name: str, text: str) -> PolicyValue:
    """The value of one policy. Raises ValueError with a sentence that names the accepted values."""
    parser = _PARSERS.get(name)
    if parser is None:
        raise ValueError(f"{name}: there is no such policy; the policies of a group are {', '.join(POLICY_NAMES)}")
    return parser(name, text)


def resolve(texts: Mapping[str, str], defaults: GroupPolicies = NO_POLICIES) -> GroupPolicies:
    """The policies of a group with these values. Raises ValueError as `parse` does."""
    values: dict[str, PolicyValue | None] = {}
    for name, text in texts.items():
        if text == NONE_TEXT and name in _FIELDS and name != "instance.ids":
            values[_FIELDS[name]] = getattr(NO_POLICIES, _FIELDS[name])
        else:
            value = parse(name, text)
            if name in _FIELDS:
                values[_FIELDS[name]] = value
    policies = defaults._replace(**values)  # type: ignore[arg-type]
    if policies.instance_ids is None:  # defaults of roster policies do not apply to a group without a list
        unset = {field: getattr(NO_POLICIES, field) for field in ("roster_timeout_ms", "roster_strict") if field not in values}
        policies = policies._replace(**unset)
    return policies


def resolve_known(texts: Mapping[str, str], defaults: GroupPolicies = NO_POLICIES) -> GroupPolicies:
    """`resolve` for stored values: values that this version cannot parse, perhaps written by a newer one, have no effect."""
    known: dict[str, str] = {}
    for name, text in texts.items():
        try:
            resolve({name: text})
        except ValueError:
            continue
        known[name] = text
    return resolve(known, defaults)


def combination_problems(policies: GroupPolicies) -> list[str]:
    """Why this combination of policies may not be set, one sentence for each problem; empty if it may be."""
    problems: list[str] = []
    listed = policies.instance_ids
    if policies.roster_strict and listed is None:
        problems.append("roster.strict: there is no list to be strict about; set instance.ids too")
    if policies.roster_timeout_ms is not None and listed is None:
        problems.append("roster.timeout.ms: there is no list to wait for; set instance.ids too")
    size = policies.target_group_size
    if size is not None and listed is not None and size > len(listed) and policies.roster_strict:
        problems.append(f"target.group.size: {size} is more than the {len(listed)} names of a strict instance.ids; lower it or add names")
    return problems


def transition_problems(before: GroupPolicies, after: GroupPolicies) -> list[str]:
    """Why a group's policies may not change like this, one sentence for each problem."""
    if before.instance_ids is None or after.instance_ids is None or after.roster_strict:
        return []
    remaining = frozenset(after.instance_ids)
    removed = [name for name in before.instance_ids if name not in remaining]
    if not removed:
        return []
    more = f" and {len(removed) - 3} more" if len(removed) > 3 else ""
    return [f"instance.ids: {', '.join(removed[:3])}{more} would be removed from the list but not from the group; set roster.strict=true first"]
