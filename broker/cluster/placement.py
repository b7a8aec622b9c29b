"""Place logs on nodes by rendezvous hashing with a bound on each node's share. Pure.

Every node computes the same placement from the same logs and live nodes, so the nodes need no agreement. When a node
arrives, logs move only to it; when a node ends, only its logs move. The bound moves a few more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from typing import Final

from storage import LogId

_MASK: Final = (1 << 64) - 1
_MIX_1: Final = 0xFF51AFD7ED558CCD
_MIX_2: Final = 0xC4CEB9FE1A85EC53

HASHES_MAX: Final = 1 << 16  # cached hashes of log names


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def _mix(value: int) -> int:
    """The finalizer of MurmurHash3: every bit of the value changes every bit of the result."""
    value = (value ^ (value >> 33)) * _MIX_1 & _MASK
    value = (value ^ (value >> 33)) * _MIX_2 & _MASK
    return value ^ (value >> 33)


def share_max(logs: int, nodes: int) -> int:
    """The most logs that one node gets."""
    return -(-logs // nodes) + 1


class Placement:
    """Ranks nodes for logs; caches hashes and rankings."""

    def __init__(self) -> None:
        self._hashes: dict[LogId, int] = {}
        self._rankings: dict[LogId, list[int]] = {}
        self._nodes: tuple[int, ...] = ()  # of the rankings

    def ranking(self, log: LogId, nodes: Iterable[int]) -> list[int]:
        """The nodes, best first, without the bound on each node's share."""
        ranking = self._rankings.get(log)
        if ranking is None:
            ranking = self._rankings[log] = self._rank(log, nodes)
        return ranking

    def _rank(self, log: LogId, nodes: Iterable[int]) -> list[int]:
        seed = self._hash(log)
        return sorted(nodes, key=lambda node: (_mix(seed ^ _mix(node + 1)), node), reverse=True)

    def _hash(self, log: LogId) -> int:
        value = self._hashes.get(log)
        if value is None:
            if len(self._hashes) >= HASHES_MAX:
                self._hashes.clear()
                self._rankings.clear()
            value = self._hashes[log] = _hash(f"{log.name}-{log.partition}")
        return value

    def place(self, logs: Collection[LogId], nodes: Collection[int]) -> dict[LogId, list[int]]:
        """For each log, the nodes in the order in which they may own it; the first node should own it.

        No node is first for more than `share_max` logs. A log is placed on its best-ranked node that has room; logs are placed in the order
        of their hashes, so that a new log moves few others.
        """
        if not nodes:
            return {log: [] for log in logs}
        room = dict.fromkeys(sorted(nodes), share_max(len(logs), len(nodes)))
        if self._nodes != tuple(room):
            self._nodes = tuple(room)
            self._rankings.clear()
        placed: dict[LogId, list[int]] = {}
        for log in sorted(logs, key=self._hash):
            order = self.ranking(log, room)
            for place, node in enumerate(order):
                if room[node]:
                    if place:
                        order = [node, *order[:place], *order[place + 1 :]]
                    room[node] -= 1
                    break
            placed[log] = order
        return placed


def moved(before: Mapping[LogId, list[int]], after: Mapping[LogId, list[int]]) -> list[LogId]:
    """The logs that have another first node now."""
    return [log for log, order in after.items() if before.get(log, order)[:1] != order[:1]]
