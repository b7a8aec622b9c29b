"""Members without an instance id that went and came back: rebalances that static membership would have avoided."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from coordinator.notes import Cause, Removal
from history.episodes import Came, Deleted, Entry, Rebalance, Went
from history.pairs import Pair, Stay, away, pairs_of

# Causes of rebalances in which only the members change. A static member that returns to a stable group causes none.
OF_MEMBERS: Final = frozenset(
    {
        Cause.NEW_MEMBER,
        Cause.MEMBER_LEFT,
        Cause.SESSION_EXPIRED,
        Cause.REBALANCE_TIMEOUT,
        Cause.GROUP_EMPTIED,
        Cause.SYNC_TIMEOUT,
        Cause.PENDING_LEFT,
        Cause.JOIN_TIMEOUT,
        Cause.STATIC_DURING_COMPLETING,
        Cause.ABSENCES_ENDED,
        Cause.EXPANSION,
        Cause.ROSTER_COMPLETE,
    }
)

# Removals that do not come from a restarted process.
FOR_GOOD: Final = frozenset({Removal.ADMIN_REMOVED, Removal.OVER_MAX_SIZE, Removal.REPLACED, Removal.NOT_LISTED})


class Restart(NamedTuple):
    client_id: str
    host: str
    old_id: str
    new_id: str
    away_ms: int  # from its last heartbeat until it joined
    rebalances: int  # caused by the restart: one, or one each for leaving and joining


class Avoidable(NamedTuple):
    """`rebalances` caused only by such restarts, and the duration of the longest of them."""

    restarts: list[Restart]
    rebalances: int
    longest_ms: int


class _DynamicStay(NamedTuple):
    """A member without an instance id, and the rebalances in which it came and went."""

    stay: Stay
    came: int
    went: int


def avoidable(entries: Iterable[Entry]) -> Avoidable:
    listed = list(entries)
    rebalances = [entry for entry in listed if isinstance(entry, Rebalance)]
    met = list(_stays_of(rebalances))
    stays = [one.stay for one in met]
    pairs = pairs_of(stays, [entry.at_ms for entry in listed if isinstance(entry, Deleted)])
    restarts = [_restart(met[pair.old], met[pair.new], pair) for pair in pairs]
    old = {one.old_id for one in restarts}
    new = {one.new_id for one in restarts}
    count = 0
    for rebalance in rebalances:
        joined = {one.member_id for one in rebalance.joined}
        went = {one.member_id for one in rebalance.went if one.session_ms}  # without a session it was an id that was handed out
        of_members = {rebalance.cause, *rebalance.also} <= OF_MEMBERS
        count += rebalance.complete and of_members and bool(joined or went) and joined <= new and went <= old and not rebalance.returned
    return Avoidable(restarts, count, max((one.away_ms for one in restarts), default=0))


def _restart(old: _DynamicStay, new: _DynamicStay, pair: Pair) -> Restart:
    before, after = old.stay, new.stay
    return Restart(after.client_id, after.host, before.member_id, after.member_id, away(before, after)[1], 1 if old.went == new.came else 2)


def _stays_of(rebalances: list[Rebalance]) -> Iterable[_DynamicStay]:
    there: dict[str, _DynamicStay] = {}
    for number, rebalance in enumerate(rebalances):
        steps: list[Came | Went] = [*rebalance.went, *rebalance.came]
        for one in sorted(steps, key=lambda one: one.at_ms):
            if one.instance_id is not None:
                continue
            if isinstance(one, Came):
                if one.member_id not in there:
                    joined = None if one.again else (one.at_ms, one.at_ms)
                    there[one.member_id] = _DynamicStay(Stay(one.member_id, None, one.client_id, one.host, joined, None, None, False), number, -1)
                continue
            before = there.pop(one.member_id, None)
            if before is not None:
                silent = one.at_ms - one.since_heartbeat_ms
                stay = before.stay._replace(gone=(one.at_ms, one.at_ms), farewell=one.how is Removal.LEFT)
                yield before._replace(stay=stay if one.how in FOR_GOOD else stay._replace(silent=(silent, silent)), went=number)
    yield from there.values()
