"""Members without an instance id that went and came back: rebalances that static membership would have avoided.

One process is told from another by its client id and host. Where several have both in common nothing is known for certain, so
that the first to go is taken for the first to come back, as in a rolling restart.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from history.episodes import Came, Entry, Rebalance, Went

# Who stays away longer was not restarted: Kafka's group.max.session.timeout.ms, the longest that a seat can be kept.
AWAY_MAX_MS = 1_800_000


class Restart(NamedTuple):
    client_id: str
    host: str
    old_id: str
    new_id: str
    away_ms: int  # from its last heartbeat until it joined
    rebalances: int  # that this made: one, or one for going and one for coming


class Avoidable(NamedTuple):
    """`rebalances` in which nothing happened but such restarts, and the longest time that one of them took."""

    restarts: list[Restart]
    rebalances: int
    longest_ms: int


def avoidable(entries: Iterable[Entry]) -> Avoidable:
    rebalances = [entry for entry in entries if isinstance(entry, Rebalance)]
    restarts = _restarts(rebalances)
    old = {one.old_id for one in restarts}
    new = {one.new_id for one in restarts}
    count = 0
    for rebalance in rebalances:
        joined = {one.member_id for one in rebalance.joined}
        went = {one.member_id for one in rebalance.went}
        count += rebalance.complete and bool(joined or went) and joined <= new and went <= old and not rebalance.returned
    return Avoidable(restarts, count, max((one.away_ms for one in restarts), default=0))


def _restarts(rebalances: list[Rebalance]) -> list[Restart]:
    seen: dict[str, Came] = {}  # members without an instance id
    gone: dict[tuple[str, str], list[tuple[Went, int]]] = {}
    found: list[Restart] = []
    for number, rebalance in enumerate(rebalances):
        steps: list[Came | Went] = [*rebalance.went, *rebalance.came]
        for one in sorted(steps, key=lambda one: one.at_ms):
            if one.instance_id is not None:
                continue
            if isinstance(one, Went):
                before = seen.pop(one.member_id, None)
                if before is not None:
                    gone.setdefault((before.client_id, before.host), []).append((one, number))
                continue
            seen[one.member_id] = one
            left = gone.get((one.client_id, one.host))
            while left and not one.again:
                went, at = left.pop(0)
                away = max(one.at_ms - went.at_ms, 0) + went.since_heartbeat_ms  # the wall clock may have been set back
                if away <= AWAY_MAX_MS:
                    found.append(Restart(one.client_id, one.host, went.member_id, one.member_id, away, 1 if at == number else 2))
                    break
    return found
