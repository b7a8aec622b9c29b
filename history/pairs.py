"""Pair departed members with new ones that are the same process, restarted, from what a coordinator knows of them.

A static member is recognized by its instance id. A dynamic member is recognized by the first of these that matches: the same client
id on the same host; the same client id, if only one departed member had it; client ids that differ only in a random part, if the
number of hosts is the same before and after, since pods get new addresses. Each member is in one pair at most, and the first departed
member is pair_returned with the first new one, as in a rolling restart. A pair is not `sure` if several departed members match.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

# A member that stays away longer was not restarted: Kafka's group.max.session.timeout.ms, the longest that a seat can be kept.
AWAY_MAX_MS = 1_800_000

# Suffixes that make names of pods and clients unique: a UUID, a hash, a ReplicaSet's hash and a pod's five characters.
_RANDOM = re.compile(
    r"(?:[-_.](?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[bcdf-hj-np-tv-xz2-9]{8,10}-[bcdf-hj-np-tv-xz2-9]{5}|(?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])[0-9a-f]{7,}"
    r"|(?=[a-z0-9]*[0-9])(?=[a-z0-9]*[a-z])[bcdf-hj-np-tv-xz2-9]{5}))+$"
)

# In deployments that start new processes before they stop old ones, arrivals and departures this close belong together.
SURGE_APART_MS = 600_000

Span = tuple[int, int]  # earliest and latest possible time; equal if the time is known


class Stay(NamedTuple):
    """The stay of a member in the group, under one member id."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    joined: Span | None  # None: unknown, it was a member when the log began
    silent: Span | None  # its last heartbeat; None: still a member, or removed by an administrator
    gone: Span | None  # when the coordinator removed it
    farewell: bool  # it sent a LeaveGroup

    @property
    def free_ms(self) -> int:
        """The earliest time at which another member can be its successor."""
        assert self.silent is not None
        return self.gone[0] if self.farewell and self.gone is not None else self.silent[0]

    @property
    def who(self) -> Hashable:
        return self.instance_id if self.instance_id is not None else (self.client_id, self.host)


class Pair(NamedTuple):
    """Places in the list of stays. `strong`: client id and host, or a client id that no other member has, or an instance id."""

    old: int
    new: int
    strong: bool
    sure: bool  # no other candidate fitted
    alone: bool = False  # not strong, but no other member with a similar name was restarted at about that time


def away(old: Stay, new: Stay) -> Span:
    """The time from its last heartbeat until it joined again."""
    assert old.silent is not None
    assert new.joined is not None
    return max(new.joined[0] - old.silent[1], 0), max(new.joined[1] - old.silent[0], 0)


def stem(client_id: str) -> str:
    """A client id without its random part."""
    return _RANDOM.sub("", client_id)


def pairs_of(stays: Sequence[Stay], deleted_ms: Sequence[int] = ()) -> list[Pair]:
    """In the order in which they came back. `deleted_ms`: when the group was deleted; no seat outlives it."""
    lives: dict[int, list[int]] = {}
    for at, one in enumerate(stays):
        lives.setdefault(_life(one, deleted_ms), []).append(at)
    found: list[Pair] = []
    for places in lives.values():
        search = _Search([stays[at] for at in places])
        search.by_identity()
        search.by_client()
        search.by_stem()
        search.judge_weak_ones()
        found += [pair._replace(old=places[pair.old], new=places[pair.new]) for pair in search.found]
    return sorted(found, key=lambda pair: (stays[pair.new].joined, pair.new))


def _life(one: Stay, deleted_ms: Sequence[int]) -> int:
    """The number of the group's life that the stay belongs to: each deletion begins a new one."""
    if one.joined is not None:
        return bisect_right(deleted_ms, one.joined[1])
    return bisect_left(deleted_ms, one.gone[1]) if one.gone is not None else 0


class _Search:
    def __init__(self, stays: Sequence[Stay]) -> None:
        self.stays = stays
        self.found: list[Pair] = []
        self._came = sorted((at for at, one in enumerate(stays) if one.joined is not None), key=self._when_joined)
        self._went = sorted((at for at, one in enumerate(stays) if one.silent is not None), key=self._when_free)

    def _when_joined(self, at: int) -> tuple[int, int]:
        joined = self.stays[at].joined
        assert joined is not None
        return joined[1], at

    def _when_free(self, at: int) -> tuple[int, int]:
        return self.stays[at].free_ms, at

    def _left(self) -> tuple[list[int], list[int]]:
        old = {pair.old for pair in self.found}
        new = {pair.new for pair in self.found}
        return [at for at in self._came if at not in new], [at for at in self._went if at not in old]

    def _candidates(self, keys: Sequence[Hashable]) -> Iterable[tuple[int, deque[int]]]:
        """Each new member with the departed members that it may have been; the caller removes the one it pairs."""
        came, went = self._left()
        waiting: dict[Hashable, deque[int]] = {}
        place = 0
        for new in came:
            one = self.stays[new]
            assert one.joined is not None
            itself = False
            while place < len(went) and self.stays[went[place]].free_ms <= one.joined[1]:
                if went[place] == new:  # it joined and left within the same millisecond
                    itself = True
                else:
                    waiting.setdefault(keys[went[place]], deque()).append(went[place])
                place += 1
            some = waiting.get(keys[new])
            while some and away(self.stays[some[0]], one)[0] > AWAY_MAX_MS:
                some.popleft()
            if some:
                yield new, some
            if itself:
                waiting.setdefault(keys[new], deque()).append(new)

    def by_identity(self) -> None:
        for new, some in self._candidates([one.who for one in self.stays]):
            while len(some) > 1 and self._is_over(some[0], some[1]):
                some.popleft()
            sure = len(some) == 1
            self.found.append(Pair(some.popleft(), new, True, sure))

    def _is_over(self, old: int, later: int) -> bool:
        """Whether its successor has departed too, or none is expected any more since an equal member departed much later."""
        old_free, joined = self.stays[old].free_ms, self.stays[later].joined
        return (joined is not None and old_free <= joined[1]) or self.stays[later].free_ms - old_free > SURGE_APART_MS

    def by_client(self) -> None:
        alone = _Living(self.stays)
        # A static member is found by its instance id or not at all.
        keys = [one.client_id if one.instance_id is None else at for at, one in enumerate(self.stays)]
        for new, some in self._candidates(keys):
            if len(some) == 1:
                old = some.popleft()
                strong = alone.before(self.stays[old]) and alone.after(self.stays[old], self.stays[new])
                self.found.append(Pair(old, new, strong, True))

    def by_stem(self) -> None:
        keys = [stem(one.client_id) or at if one.instance_id is None else at for at, one in enumerate(self.stays)]
        some = [Pair(left.popleft(), new, False, len(left) == 0) for new, left in self._candidates(keys)]
        hosts = _Hosts(self.stays, self.found)
        for run in _runs(self.stays, some):
            if hosts.before(self.stays[run[0].old]) == hosts.after(self.stays[run[-1].new]):
                self.found += run

    def judge_weak_ones(self) -> None:
        """Drop pairs of deployments that start each new process before they stop an old one: these restart no member.

        In such a deployment a new process joins before the first departure, and an old one departs after the last arrival. A weak
        pair then consists of one member's departure and the arrival of the next."""
        came, went = self._left()
        arrivals = self._by_stem([(self._joined_ms(at), at) for at in came if self.stays[at].instance_id is None])
        departures = self._by_stem([(self.stays[at].free_ms, at) for at in went if self.stays[at].instance_id is None])
        surges: set[Pair] = set()
        alone: set[Pair] = set()
        for chain in self._chains():
            first, last = self.stays[chain[0].old].free_ms, self._joined_ms(chain[-1].new)
            name = stem(self.stays[chain[0].old].client_id)
            before = any(first - SURGE_APART_MS <= at <= first for at, _ in arrivals.get(name, ()))
            if before and any(last <= at <= last + SURGE_APART_MS for at, _ in departures.get(name, ())):
                surges.update(chain)
            else:
                alone.update(pair for pair in chain if len(chain) == 1 or away(self.stays[pair.old], self.stays[pair.new])[0] > SURGE_APART_MS)
        self.found = [pair._replace(alone=pair in alone) for pair in self.found if pair not in surges]

    def _chains(self) -> Iterable[list[Pair]]:
        """Weak pairs with the same stem that follow each other closely, over half an hour at most."""
        by_name: dict[str, list[Pair]] = {}
        for pair in sorted(self.found, key=lambda pair: (self.stays[pair.old].free_ms, pair.old)):
            if not pair.strong:
                by_name.setdefault(stem(self.stays[pair.old].client_id), []).append(pair)
        for some in by_name.values():
            chain: list[Pair] = []
            for pair in some:
                begin = self.stays[pair.old].free_ms
                if chain and (
                    begin - self._joined_ms(chain[-1].new) > SURGE_APART_MS or begin - self.stays[chain[0].old].free_ms > AWAY_MAX_MS
                ):
                    yield chain
                    chain = []
                chain.append(pair)
            yield chain

    def _joined_ms(self, at: int) -> int:
        joined = self.stays[at].joined
        assert joined is not None
        return joined[1]

    def _by_stem(self, moments: list[tuple[int, int]]) -> dict[str, list[tuple[int, int]]]:
        found: dict[str, list[tuple[int, int]]] = {}
        for at_ms, at in moments:
            found.setdefault(stem(self.stays[at].client_id), []).append((at_ms, at))
        return found


def _runs(stays: Sequence[Stay], pairs: list[Pair]) -> list[list[Pair]]:
    """Pairs that overlap in time: a member departs before the one before it is back."""
    runs: list[list[Pair]] = []
    until = -1
    for pair in sorted(pairs, key=lambda pair: (stays[pair.old].free_ms, pair.old)):
        joined = stays[pair.new].joined
        assert joined is not None
        if runs and stays[pair.old].free_ms <= until:
            runs[-1].append(pair)
        else:
            runs.append([pair])
        until = max(until, joined[1])
    for run in runs:
        run.sort(key=lambda pair: (stays[pair.new].joined, pair.new))
    return runs


class _Living:
    """How many members with one client id there were at a moment."""

    def __init__(self, stays: Sequence[Stay]) -> None:
        self._joined: dict[str, list[int]] = {}
        self._gone: dict[str, list[int]] = {}
        for one in stays:
            self._joined.setdefault(one.client_id, []).append(one.joined[1] if one.joined is not None else -1)
            if one.gone is not None:
                self._gone.setdefault(one.client_id, []).append(one.gone[1])
        for moments in (*self._joined.values(), *self._gone.values()):
            moments.sort()

    def before(self, one: Stay) -> bool:
        """Whether no other member had its client id when it left."""
        at = one.free_ms
        return bisect_left(self._joined[one.client_id], at) - bisect_left(self._gone[one.client_id], at) == 1

    def after(self, old: Stay, new: Stay) -> bool:
        """Whether no other member has its client id after its return; the group may still wait for the departed member."""
        assert new.joined is not None
        assert old.gone is not None
        at = new.joined[1]
        there = bisect_right(self._joined[new.client_id], at) - bisect_right(self._gone.get(new.client_id, []), at)
        return there - (old.gone[1] > at) == 1


class _Hosts:
    """The number of hosts with members, including members that are being restarted."""

    def __init__(self, stays: Sequence[Stay], pairs: Iterable[Pair]) -> None:
        back = {pair.old: stays[pair.new].joined for pair in pairs}
        steps: list[tuple[int, int, str]] = []
        for at, one in enumerate(stays):
            steps.append((one.joined[1] if one.joined is not None else -1, 1, one.host))
            if one.gone is not None:
                returned = back.get(at)
                steps.append((max(one.gone[1], returned[1]) if returned is not None else one.gone[1], -1, one.host))
        steps.sort()
        members: dict[str, int] = {}
        self._moments: list[int] = []
        self._counts: list[int] = []
        for moment, step, host in steps:
            members[host] = members.get(host, 0) + step
            if not members[host]:
                del members[host]
            self._moments.append(moment)
            self._counts.append(len(members))

    def before(self, one: Stay) -> int:
        assert one.gone is not None
        return self._count(bisect_left(self._moments, one.gone[1]))

    def after(self, one: Stay) -> int:
        assert one.joined is not None
        return self._count(bisect_right(self._moments, one.joined[1]))

    def _count(self, steps: int) -> int:
        return self._counts[steps - 1] if steps else 0
