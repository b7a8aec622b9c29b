"""Instance ids that two processes seem to share: each takes the seat from the other, again and again."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from history.episodes import Entry, Rebalance, StaticReturned

RETURNS_MIN: Final = 3  # returns within WINDOW_MS that are too many for a process that is only restarted
WINDOW_MS: Final = 600_000


class SharedId(NamedTuple):
    """`places`: the hosts, or else the client ids, between which the id alternates; empty if it alternates between neither."""

    instance_id: str
    returns: int
    period_ms: int  # from the first return to the last
    places: list[str]


def shared_ids(entries: Iterable[Entry]) -> list[SharedId]:
    returns: dict[str, list[StaticReturned]] = defaultdict(list)
    for entry in entries:
        for back in entry.returns if isinstance(entry, Rebalance) else [entry] if isinstance(entry, StaticReturned) else []:
            returns[back.instance_id].append(back)
    shared = []
    for instance_id, list_of_returns in sorted(returns.items()):
        in_order = sorted(list_of_returns, key=lambda back: back.at_ms)
        if max(returns_in_window([back.at_ms for back in in_order], WINDOW_MS)) >= RETURNS_MIN:
            places = alternating([back.host for back in in_order]) or alternating([back.client_id for back in in_order])
            shared.append(SharedId(instance_id, len(in_order), in_order[-1].at_ms - in_order[0].at_ms, places))
    return shared


def returns_in_window(times_ms: Sequence[int], window_ms: int) -> list[int]:
    """For each of these ascending times, the number of them in the window that ends at it."""
    return [number - bisect_left(times_ms, last - window_ms) + 1 for number, last in enumerate(times_ms)]


def alternating(places: Sequence[str]) -> list[str]:
    """The places, sorted, if the id came back to one that it had left; else none: a process that only moves is at each place once."""
    changes = [place for number, place in enumerate(places) if not number or place != places[number - 1]]
    return sorted(set(changes)) if len(changes) > len(set(changes)) else []
