"""Pair removed members with new members that are the same process after a restart, by the data that the coordinator has of them.

A static member is recognized by its instance id. A dynamic member is recognized by the first match of: the same client id on the same
host; the same client id, if only one removed member had it; client ids that differ only in a random part, if the number of hosts is
the same before and after, since pods get new addresses. Each member is in at most one pair, and the first removed member is paired
with the first new one, as in a rolling restart. A pair is not `unambiguous` if several removed members match.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

# A longer absence is no restart. The limit is Kafka's default of group.max.session.timeout.ms, the longest time for which Kafka keeps
# an absent static member.
AWAY_MAX_MS = 1_800_000

# Suffixes that make names of pods and clients unique: a UUID, a hash, a ReplicaSet's hash and a pod's five characters.
_RANDOM_SUFFIX = re.compile(
    r"(?:[-_.](?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[bcdf-hj-np-tv-xz2-9]{8,10}-[bcdf-hj-np-tv-xz2-9]{5}|(?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])[0-9a-f]{7,}"
    r"|(?=[a-z0-9]*[0-9])(?=[a-z0-9]*[a-z])[bcdf-hj-np-tv-xz2-9]{5}))+$"
)

# In a deployment that starts new processes before it stops old ones, joins and removals within this time belong together.
SURGE_APART_MS = 600_000
SURGE_LAG_MS = 60_000  # the steps of a deployment differ by less, if they are short

Span = tuple[int, int]  # earliest and latest possible time; equal if the time is known


class Stay(NamedTuple):
    """The stay of a member in the group, under one member id."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    joined: Span | None  # None: unknown, it was a member when the log began
    last_heartbeat: Span | None  # None: it can have no successor: it is still a member, or its removal was no restart
    ended: Span | None  # when the coordinator removed it
    successor_after_end: bool  # whether a successor can join only after the end, as after a LeaveGroup; else from the last heartbeat on
    first: int | None = None  # the numbers of its first and last generation, in the order of the log, which clocks do not change; None: unknown
    last: int | None = None

    @property
    def successor_from_ms(self) -> int:
        """The earliest time at which a successor can join."""
        assert self.last_heartbeat is not None
        return self.ended[0] if self.successor_after_end and self.ended is not None else self.last_heartbeat[0]

    @property
    def process_key(self) -> Hashable:
        return self.instance_id if self.instance_id is not None else (self.client_id, self.host)

    def may_succeed(self, old: Stay) -> bool:
        """Whether this is another member, and joined when `old` was gone or silent, by the order of generations: a clock may be set back.

        A member that falls silent while the group waits for others is still in the next generation, perhaps beside its successor.
        """
        if self.first is None or old.last is None:
            return self.member_id != old.member_id
        return self.member_id != old.member_id and self.first >= old.last + old.successor_after_end


class RestartPair(NamedTuple):
    """A removed and a new member that are the same process: indexes in the list of stays.

    `strong`: matched by instance id, by client id and host, or by a client id of no other member.
    """

    old: int
    new: int
    strong: bool
    unambiguous: bool  # there was no other candidate
    alone: bool = False  # not strong, but no other member with a similar name was restarted at about that time


def away(old: Stay, new: Stay) -> Span:
    """The shortest and longest possible time from the last heartbeat of `old` until `new` joined."""
    assert old.last_heartbeat is not None
    assert new.joined is not None
    return max(new.joined[0] - old.last_heartbeat[1], 0), max(new.joined[1] - old.last_heartbeat[0], 0)


def stem(client_id: str) -> str:
    """A client id without its random part."""
    return _RANDOM_SUFFIX.sub("", client_id)


def pairs_of(stays: Sequence[Stay], deleted_ms: Sequence[int] = ()) -> list[RestartPair]:
    """The pairs in the order of their returns. `deleted_ms`: when the group was deleted; no member can return after that."""
    stays_by_deletions: dict[int, list[int]] = {}
    for at, stay in enumerate(stays):
        stays_by_deletions.setdefault(_deletions_before(stay, deleted_ms), []).append(at)
    pairs: list[RestartPair] = []
    for indexes in stays_by_deletions.values():
        search = _Search([stays[at] for at in indexes])
        search.pair_by_identity()
        search.pair_by_client()
        search.pair_by_stem()
        search.drop_surges()
        pairs += [pair._replace(old=indexes[pair.old], new=indexes[pair.new]) for pair in search.pairs]
    return sorted(pairs, key=lambda pair: (stays[pair.new].joined, pair.new))


def _deletions_before(stay: Stay, deleted_ms: Sequence[int]) -> int:
    """The number of deletions of the group before this stay."""
    if stay.joined is not None:
        return bisect_right(deleted_ms, stay.joined[1])
    return bisect_left(deleted_ms, stay.ended[1]) if stay.ended is not None else 0


class _Search:
    def __init__(self, stays: Sequence[Stay]) -> None:
        self.stays = stays
        self.pairs: list[RestartPair] = []
        self._joined = sorted((at for at, stay in enumerate(stays) if stay.joined is not None), key=self._when_joined)
        self._removed = sorted((at for at, stay in enumerate(stays) if stay.last_heartbeat is not None), key=self._when_replaceable)

    def _when_joined(self, at: int) -> tuple[int, int]:
        joined = self.stays[at].joined
        assert joined is not None
        return joined[1], at

    def _when_replaceable(self, at: int) -> tuple[int, int]:
        return self.stays[at].successor_from_ms, at

    def _unpaired(self) -> tuple[list[int], list[int]]:
        old = {pair.old for pair in self.pairs}
        new = {pair.new for pair in self.pairs}
        return [at for at in self._joined if at not in new], [at for at in self._removed if at not in old]

    def _candidates(self, keys: Sequence[Hashable]) -> Iterable[tuple[int, deque[int]]]:
        """Each new member with the removed members that may be the same process; the caller pops the member that it pairs."""
        joined, removed = self._unpaired()
        waiting: dict[Hashable, deque[int]] = {}
        next_removed = 0
        for new in joined:
            stay = self.stays[new]
            assert stay.joined is not None
            left_at_once = False
            while next_removed < len(removed) and self.stays[removed[next_removed]].successor_from_ms <= stay.joined[1]:
                if removed[next_removed] == new:  # it joined and left within the same millisecond
                    left_at_once = True
                else:
                    waiting.setdefault(keys[removed[next_removed]], deque()).append(removed[next_removed])
                next_removed += 1
            candidates = waiting.get(keys[new])
            while candidates and away(self.stays[candidates[0]], stay)[0] > AWAY_MAX_MS:
                candidates.popleft()
            if candidates:
                fitting = deque(old for old in candidates if stay.may_succeed(self.stays[old]))
                others = [old for old in candidates if not stay.may_succeed(self.stays[old])]
                if fitting:
                    yield new, fitting
                waiting[keys[new]] = deque(sorted([*fitting, *others], key=self._when_replaceable))
            if left_at_once:
                waiting.setdefault(keys[new], deque()).append(new)

    def pair_by_identity(self) -> None:
        for new, candidates in self._candidates([stay.process_key for stay in self.stays]):
            while len(candidates) > 1 and self._is_over(candidates[0], candidates[1]):
                candidates.popleft()
            unambiguous = len(candidates) == 1
            self.pairs.append(RestartPair(candidates.popleft(), new, True, unambiguous))

    def _is_over(self, old: int, later: int) -> bool:
        """Whether `old` needs no successor: `later` joined after `old` had gone and has gone too, or `later` went much later."""
        old_from_ms, joined = self.stays[old].successor_from_ms, self.stays[later].joined
        return (joined is not None and old_from_ms <= joined[1]) or self.stays[later].successor_from_ms - old_from_ms > SURGE_APART_MS

    def pair_by_client(self) -> None:
        members = _MemberCounts(self.stays)
        # A static member is found by its instance id or not at all.
        keys = [stay.client_id if stay.instance_id is None else at for at, stay in enumerate(self.stays)]
        for new, candidates in self._candidates(keys):
            if len(candidates) == 1:
                old = candidates.popleft()
                strong = members.alone_before(self.stays[old]) and members.alone_after(self.stays[old], self.stays[new])
                self.pairs.append(RestartPair(old, new, strong, True))

    def pair_by_stem(self) -> None:
        keys = [stem(stay.client_id) or at if stay.instance_id is None else at for at, stay in enumerate(self.stays)]
        pairs = [RestartPair(candidates.popleft(), new, False, len(candidates) == 0) for new, candidates in self._candidates(keys)]
        hosts = _HostCounts(self.stays, self.pairs)
        for run in _runs(self.stays, pairs):
            if hosts.before(self.stays[run[0].old]) == hosts.after(self.stays[run[-1].new]):
                self.pairs += run

    def drop_surges(self) -> None:
        """Drop pairs of deployments that start each new process before they stop an old one: these restart no member.

        In such a deployment a new process joins before the first removal, and an old process is removed after the last join. A weak
        pair then consists of two processes: one that was removed, and the next one that joined. A join and a removal that are further from the chain
        than its steps are from each other, or the removal of a new process, are not a part of it: the chain is a rolling restart.
        """
        joined, removed = self._unpaired()
        arrivals = self._by_stem([(self._joined_ms(at), at) for at in joined if self.stays[at].instance_id is None])
        departures = self._by_stem([(self.stays[at].successor_from_ms, at) for at in removed if self.stays[at].instance_id is None])
        surges: set[RestartPair] = set()
        alone: set[RestartPair] = set()
        for chain in self._chains():
            first, last = self.stays[chain[0].old].successor_from_ms, self._joined_ms(chain[-1].new)
            name = stem(self.stays[chain[0].old].client_id)
            apart = self._longest_step_ms(chain)
            before = {at for at_ms, at in arrivals.get(name, ()) if first - apart <= at_ms <= first}
            after = {at for at_ms, at in departures.get(name, ()) if last <= at_ms <= last + apart and self._joined_before(at, first)}
            if before and after - before:
                surges.update(chain)
            else:
                alone.update(pair for pair in chain if len(chain) == 1 or away(self.stays[pair.old], self.stays[pair.new])[0] > SURGE_APART_MS)
        self.pairs = [pair._replace(alone=pair in alone) for pair in self.pairs if pair not in surges]

    def _chains(self) -> Iterable[list[RestartPair]]:
        """Weak pairs with the same `stem` (client id without its random part) that follow each other closely, over half an hour at most."""
        by_name: dict[str, list[RestartPair]] = {}
        for pair in sorted(self.pairs, key=lambda pair: (self.stays[pair.old].successor_from_ms, pair.old)):
            if not pair.strong:
                by_name.setdefault(stem(self.stays[pair.old].client_id), []).append(pair)
        for pairs in by_name.values():
            chain: list[RestartPair] = []
            for pair in pairs:
                begin = self.stays[pair.old].successor_from_ms
                if chain and (
                    begin - self._joined_ms(chain[-1].new) > SURGE_APART_MS or begin - self.stays[chain[0].old].successor_from_ms > AWAY_MAX_MS
                ):
                    yield chain
                    chain = []
                chain.append(pair)
            yield chain

    def _longest_step_ms(self, chain: Sequence[RestartPair]) -> int:
        """The longest time from the join of a process to the next removal, if the chain is a deployment that starts each process before it stops another."""
        steps = [self.stays[later.old].successor_from_ms - self._joined_ms(pair.new) for pair, later in pairwise(chain)]
        return min(2 * max([*steps, 0]) + SURGE_LAG_MS, SURGE_APART_MS)

    def _joined_before(self, at: int, ms: int) -> bool:
        joined = self.stays[at].joined
        return joined is None or joined[1] < ms

    def _joined_ms(self, at: int) -> int:
        joined = self.stays[at].joined
        assert joined is not None
        return joined[1]

    def _by_stem(self, members: list[tuple[int, int]]) -> dict[str, list[tuple[int, int]]]:
        by_stem: dict[str, list[tuple[int, int]]] = {}
        for at_ms, at in members:
            by_stem.setdefault(stem(self.stays[at].client_id), []).append((at_ms, at))
        return by_stem


def _runs(stays: Sequence[Stay], pairs: list[RestartPair]) -> list[list[RestartPair]]:
    """Groups of pairs that overlap in time: a member departs before the previous one is back."""
    runs: list[list[RestartPair]] = []
    until = -1
    for pair in sorted(pairs, key=lambda pair: (stays[pair.old].successor_from_ms, pair.old)):
        joined = stays[pair.new].joined
        assert joined is not None
        if runs and stays[pair.old].successor_from_ms <= until:
            runs[-1].append(pair)
        else:
            runs.append([pair])
        until = max(until, joined[1])
    for run in runs:
        run.sort(key=lambda pair: (stays[pair.new].joined, pair.new))
    return runs


class _MemberCounts:
    """The number of members with a client id at a given time."""

    def __init__(self, stays: Sequence[Stay]) -> None:
        self._joined: dict[str, list[int]] = {}
        self._removed_at: dict[str, list[int]] = {}
        for stay in stays:
            self._joined.setdefault(stay.client_id, []).append(stay.joined[1] if stay.joined is not None else -1)
            if stay.ended is not None:
                self._removed_at.setdefault(stay.client_id, []).append(stay.ended[1])
        for times in (*self._joined.values(), *self._removed_at.values()):
            times.sort()

    def alone_before(self, stay: Stay) -> bool:
        """Whether no other member had this member's client id when this member left."""
        at = stay.successor_from_ms
        return bisect_left(self._joined[stay.client_id], at) - bisect_left(self._removed_at[stay.client_id], at) == 1

    def alone_after(self, old: Stay, new: Stay) -> bool:
        """Whether no other member had the client id of `new` when `new` joined. `old` does not count, although it may not have been removed yet."""
        assert new.joined is not None
        assert old.ended is not None
        at = new.joined[1]
        members = bisect_right(self._joined[new.client_id], at) - bisect_right(self._removed_at.get(new.client_id, []), at)
        return members - (old.ended[1] > at) == 1


class _HostCounts:
    """The number of hosts with members, including members that are being restarted."""

    def __init__(self, stays: Sequence[Stay], pairs: Iterable[RestartPair]) -> None:
        returns = {pair.old: stays[pair.new].joined for pair in pairs}
        changes: list[tuple[int, int, str]] = []
        for at, stay in enumerate(stays):
            changes.append((stay.joined[1] if stay.joined is not None else -1, 1, stay.host))
            if stay.ended is not None:
                return_span = returns.get(at)
                changes.append((max(stay.ended[1], return_span[1]) if return_span is not None else stay.ended[1], -1, stay.host))
        changes.sort()
        members: dict[str, int] = {}
        self._times: list[int] = []
        self._counts: list[int] = []
        for at_ms, change, host in changes:
            members[host] = members.get(host, 0) + change
            if not members[host]:
                del members[host]
            self._times.append(at_ms)
            self._counts.append(len(members))

    def before(self, stay: Stay) -> int:
        assert stay.ended is not None
        return self._count(bisect_left(self._times, stay.ended[1]))

    def after(self, stay: Stay) -> int:
        assert stay.joined is not None
        return self._count(bisect_right(self._times, stay.joined[1]))

    def _count(self, change_count: int) -> int:
        return self._counts[change_count - 1] if change_count else 0
