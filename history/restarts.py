"""Restarts of members without an instance id: rebalances that static membership would have avoided."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from history.causes import CAUSES, REMOVALS, removal_end
from history.episodes import Entry, GroupDeleted, MemberJoined, MemberRemoved, Rebalance
from history.pairs import Stay, away, pairs_of


class Restart(NamedTuple):
    client_id: str
    host: str
    old_id: str
    new_id: str
    away_ms: int  # from its last heartbeat until it joined again
    rebalances: int  # caused by the restart: one, or one each for leaving and joining


class AvoidableRebalances(NamedTuple):
    """`rebalances`: the number of rebalances caused only by `restarts`. `longest_ms`: the longest time that a member was away."""

    restarts: list[Restart]
    rebalances: int
    longest_ms: int


class _DynamicStay(NamedTuple):
    """A member without an instance id, and the numbers of the rebalances in which it joined and was removed."""

    stay: Stay
    joined_number: int
    left_number: int


def avoidable(entries: Iterable[Entry]) -> AvoidableRebalances:
    listed = list(entries)
    rebalances = [entry for entry in listed if isinstance(entry, Rebalance)]
    dynamic = list(_stays_of(rebalances))
    pairs = pairs_of([member.stay for member in dynamic], [entry.at_ms for entry in listed if isinstance(entry, GroupDeleted)])
    restarts = [_restart(dynamic[pair.old], dynamic[pair.new]) for pair in pairs]
    old = {restart.old_id for restart in restarts}
    new = {restart.new_id for restart in restarts}
    count = 0
    for rebalance in rebalances:
        joined = {join.member_id for join in rebalance.joined}
        removed = {removal.member_id for removal in rebalance.removals if removal.session_ms}  # session 0: the client was only given a member id
        of_members = all(cause is not None and CAUSES[cause].of_members for cause in (rebalance.cause, *rebalance.restart_causes))
        count += rebalance.complete and of_members and bool(joined or removed) and joined <= new and removed <= old and not rebalance.returns
    return AvoidableRebalances(restarts, count, max((restart.away_ms for restart in restarts), default=0))


def _restart(old: _DynamicStay, new: _DynamicStay) -> Restart:
    before, after = old.stay, new.stay
    return Restart(after.client_id, after.host, before.member_id, after.member_id, away(before, after)[1], 1 if old.left_number == new.joined_number else 2)


def _stays_of(rebalances: list[Rebalance]) -> Iterable[_DynamicStay]:
    members: dict[str, _DynamicStay] = {}
    for number, rebalance in enumerate(rebalances):
        events: list[MemberJoined | MemberRemoved] = [*rebalance.removals, *rebalance.joins]
        for event in sorted(events, key=lambda event: event.at_ms):
            if event.instance_id is not None:
                continue
            if isinstance(event, MemberJoined):
                if event.member_id not in members:
                    joined = None if event.was_member else (event.at_ms, event.at_ms)
                    stay = Stay(event.member_id, None, event.client_id, event.host, joined, None, None, False, first=number)
                    members[event.member_id] = _DynamicStay(stay, number, -1)
                continue
            member = members.pop(event.member_id, None)
            if member is not None:
                silent = event.at_ms - event.since_heartbeat_ms
                stay = member.stay._replace(ended=(event.at_ms, event.at_ms), successor_after_end=removal_end(event.cause) == "left", last=number - 1)
                yield member._replace(stay=stay if event.cause is not None and REMOVALS[event.cause].final else stay._replace(last_heartbeat=(silent, silent)), left_number=number)
    yield from members.values()
