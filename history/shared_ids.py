"""Instance ids that two processes seem to share: each takes the seat from the other, again and again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
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
        if any(last.at_ms - first.at_ms <= WINDOW_MS for first, last in zip(in_order, in_order[RETURNS_MIN - 1 :], strict=False)):
            places = _alternating([back.host for back in in_order]) or _alternating([back.client_id for back in in_order])
            shared.append(SharedId(instance_id, len(in_order), in_order[-1].at_ms - in_order[0].at_ms, places))
    return shared


def _alternating(places: list[str]) -> list[str]:
    """The places, sorted, if the id came back to one that it had left; else none: a process that only moves is at each place once."""
    changes = [place for number, place in enumerate(places) if not number or place != places[number - 1]]
    return sorted(set(changes)) if len(changes) > len(set(changes)) else []
