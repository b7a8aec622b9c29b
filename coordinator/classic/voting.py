"""Selection of the group's protocol: each member votes for its first protocol that all members support."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.group_partition import java_hash


def vote(offers: Sequence[Sequence[tuple[str, bytes]]]) -> str:
    """The protocol with most votes; in a tie, the first in the iteration order of a Java HashMap, as in Kafka."""
    first = offers[0]
    for offer in offers:
        if offer is not first and [name for name, _ in offer] != [name for name, _ in first]:
            break
    else:
        return first[0][0]
    candidates = {name for name, _ in first}
    for offer in offers:
        candidates &= {name for name, _ in offer}
    votes: dict[str, int] = {}
    for offer in offers:
        for name, _ in offer:
            if name in candidates:
                votes[name] = votes.get(name, 0) + 1
                break
    highest = max(votes.values())
    tied = [name for name, count in votes.items() if count == highest]
    return tied[0] if len(tied) == 1 else first_in_java_order(list(votes), tied)


def first_in_java_order(names: list[str], tied: list[str]) -> str:
    """The first of `tied` in the iteration order of a HashMap into which `names` were put, in their order."""
    buckets = 16
    while len(names) > buckets * 3 // 4:
        buckets *= 2

    def bucket(name: str) -> int:
        code = java_hash(name) & 0xFFFFFFFF
        return (code ^ code >> 16) & (buckets - 1)

    return min((name for name in names if name in tied), key=bucket)
