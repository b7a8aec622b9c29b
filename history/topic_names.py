"""Names of topics by their ids: records of consumer groups have only ids.

Each member's target has only topics that the member reads, by names that its own record has. Where that leaves a choice, the hash of the group's topics
decides: it covers ids, names and numbers of partitions (not racks, so it decides nothing where brokers have racks).
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterator, Mapping
from itertools import permutations
from math import perm
from typing import Final

from coordinator.consumer.changes import Target
from coordinator.consumer.topic_hash import hash_of_topic, hash_of_topics

TRIED_MAX: Final = 720  # ways to name the topics of a group


class TopicNames:
    """`known`: names by id, from elsewhere."""

    def __init__(self, known: Mapping[bytes, str] | None = None) -> None:
        self._names: dict[bytes, str] = dict(known or {})
        self._missed: set[bytes] = set()

    def name(self, id: bytes) -> str:
        """The topic's name; if it is unknown, its id as Kafka's tools show it."""
        known = self._names.get(id)
        if known is not None:
            return known
        self._missed.add(id)
        return urlsafe_b64encode(id).rstrip(b"=").decode()

    @property
    def learned_late(self) -> bool:
        """Whether a name was asked for before it was known."""
        return not self._missed.isdisjoint(self._names)

    def learn(self, members: Collection[tuple[Collection[str], Target]], hash: int) -> None:
        """What one target tells. `members`: for each the names of the topics that it reads, and its target; `hash`: of all these topics."""
        possible: dict[bytes, set[str]] = {}
        sizes: dict[bytes, int] = {}
        for topics, target in members:
            for id, partitions in target.items():
                possible[id] = possible[id] & set(topics) if id in possible else set(topics)
                sizes[id] = max([sizes.get(id, 0), *(number + 1 for number in partitions)])
        if all(id in self._names for id in possible):
            return
        for id in possible:
            if id in self._names:
                possible[id] = {self._names[id]}
        while single := next((id for id, names in possible.items() if len(names) == 1 and any(names <= other for at, other in possible.items() if at != id)), None):
            for id, names in possible.items():
                if id != single:
                    names -= possible[single]
        named = {id: next(iter(names)) for id, names in possible.items() if len(names) == 1}
        if len(named) < len(possible):
            named = next((named for named in _ways(possible) if _hash(named, sizes) == hash), named)
        self._names.update(named)


def _ways(possible: Mapping[bytes, set[str]]) -> Iterator[dict[bytes, str]]:
    """Each way to name the topics."""
    ids = list(possible)
    names = sorted(set().union(*possible.values()))
    if len(names) < len(ids) or perm(len(names), len(ids)) > TRIED_MAX:
        return
    for chosen in permutations(names, len(ids)):
        if all(name in possible[id] for id, name in zip(ids, chosen, strict=True)):
            yield dict(zip(ids, chosen, strict=True))


def _hash(named: Mapping[bytes, str], sizes: Mapping[bytes, int]) -> int:
    return hash_of_topics([hash_of_topic(id, name, sizes[id]) for id, name in sorted(named.items(), key=lambda item: item[1])])
