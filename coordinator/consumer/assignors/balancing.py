"""Members with different subscriptions: unowned partitions go to the least loaded subscribers, then topic by topic the most loaded
members pass partitions on to the least loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final

from coordinator.consumer.assignors.kept import set_order, with_more
from coordinator.consumer.assignors.members import Assignable, Assignment

ROUNDS_MAX: Final = 16
NOBODY: Final = -1
_SIGNED_ID: Final = Struct(">qq").unpack


def assign_balanced(members: Sequence[Assignable], topics: Mapping[bytes, int]) -> Assignment:
    """`members` in Java's order; a member is its place in it."""
    subscribers: dict[bytes, list[int]] = {}
    for member, assignable in enumerate(members):
        for topic in assignable.topics:
            if topic in topics:
                subscribers.setdefault(topic, []).append(member)
    owners = {topic: [NOBODY] * topics[topic] for topic in subscribers}
    sizes = [0] * len(members)
    for member, assignable in enumerate(members):
        for topic, partitions in assignable.target.items():
            if topic in assignable.topics and topic in owners:
                of_topic = owners[topic]
                for partition in partitions:
                    of_topic[partition] = member
                sizes[member] += len(partitions)
    order = sorted(subscribers, key=lambda topic: (-topics[topic] / len(subscribers[topic]), len(subscribers[topic]), _SIGNED_ID(topic)))
    for topic in order:
        assign_unowned(owners[topic], subscribers[topic], sizes)
    balance([topic for topic in order if len(subscribers[topic]) > 1], owners, subscribers, sizes)
    return as_assignment(members, owners)


def assign_unowned(owners: list[int], subscribers: list[int], sizes: list[int]) -> None:
    if NOBODY not in owners:
        return
    levels = Levels(subscribers, sizes)
    for partition, owner in enumerate(owners):
        if owner == NOBODY:
            member = levels.next_least()
            owners[partition] = member
            sizes[member] += 1


def balance(order: Sequence[bytes], owners: Mapping[bytes, list[int]], subscribers: Mapping[bytes, list[int]], sizes: list[int]) -> None:
    last_moved = b""
    for _ in range(ROUNDS_MAX):
        for topic in order:
            if balance_topic(owners[topic], subscribers[topic], sizes) or not last_moved:
                last_moved = topic
            elif topic == last_moved:
                return


def balance_topic(owners: list[int], subscribers: list[int], sizes: list[int]) -> bool:
    """Move partitions of one topic until its subscribers are balanced, or those with more have none of it. Return whether one moved."""
    levels = Levels(subscribers, sizes)
    if levels.are_balanced():
        return False
    owned: dict[int, list[int]] = {}
    for partition, owner in enumerate(owners):
        owned.setdefault(owner, []).append(partition)
    moved = False
    while not levels.are_balanced():
        most = levels.next_most()
        if most == NOBODY:
            break
        partitions = owned.get(most)
        if not partitions:
            levels.exclude_most()
            continue
        least = levels.next_least()
        if levels.are_balanced():
            break
        owners[partitions.pop()] = least
        sizes[most] -= 1
        sizes[least] += 1
        moved = True
    return moved


class Levels:
    """Walks the subscribers of a topic from the least and from the most loaded, and believes that each gets or gives one partition.

    `_order` is sorted by size. The first walk is in its beginning, up to `_least_end`, whose members have reached the size `_least`; the
    second in its end, from `_most_begin` to `_most_end`, whose members have gone down to `_most`. Members behind `_most_end` are excluded.
    """

    def __init__(self, subscribers: Sequence[int], sizes: list[int]) -> None:
        self._sizes = sizes
        self._order = sorted(subscribers, key=sizes.__getitem__)  # in order of number within a size
        self._least = sizes[self._order[0]]
        self._least_at = 0
        self._least_end = 0
        self._most = sizes[self._order[-1]]
        self._most_end = len(self._order)
        self._most_begin = len(self._order)
        self._most_at = len(self._order) - 1
        self._widen_least()
        self._widen_most()

    def are_balanced(self) -> bool:
        return self._most - self._least <= 1

    def next_least(self) -> int:
        if self._least_at >= self._least_end:
            self._least += 1
            self._widen_least()
            self._least_at = 0
        member = self._order[self._least_at]
        self._least_at += 1
        return member

    def next_most(self) -> int:
        """NOBODY if all are excluded."""
        if self._most_at < self._most_begin:
            if self._most_begin == self._most_end:
                if self._most_begin == 0:
                    return NOBODY
                self._most = self._sizes[self._order[self._most_begin - 1]]
            else:
                self._most -= 1
            self._widen_most()
            self._most_at = self._most_end - 1
        member = self._order[self._most_at]
        self._most_at -= 1
        return member

    def exclude_most(self) -> None:
        """The member of the last `next_most` has nothing to give."""
        order, at, last = self._order, self._most_at + 1, self._most_end - 1
        order[at], order[last] = order[last], order[at]
        self._most_end = last

    def _widen_least(self) -> None:
        order, sizes, end = self._order, self._sizes, self._least_end
        while end < len(order) and sizes[order[end]] == self._least:
            end += 1
        self._least_end = end

    def _widen_most(self) -> None:
        order, sizes, begin = self._order, self._sizes, self._most_begin
        while begin > 0 and sizes[order[begin - 1]] == self._most:
            begin -= 1
        self._most_begin = begin


def as_assignment(members: Sequence[Assignable], owners: Mapping[bytes, list[int]]) -> Assignment:
    assigned: list[dict[bytes, list[int]]] = [{} for _ in members]
    for topic, of_topic in owners.items():
        for partition, member in enumerate(of_topic):
            if topic not in assigned[member]:
                assigned[member][topic] = []
            assigned[member][topic].append(partition)
    return {member.member_id: changed(member.target, got) for member, got in zip(members, assigned, strict=True)}


def changed(target: Mapping[bytes, Sequence[int]], assigned: dict[bytes, list[int]]) -> Mapping[bytes, Sequence[int]]:
    """The assignment, in the order of Kafka's tables; the target itself if it has not changed."""
    if target.keys() == assigned.keys() and all(set(target[topic]) == set(got) for topic, got in assigned.items()):
        return target
    kept: dict[bytes, Sequence[int]] = {}
    more: list[tuple[bytes, Sequence[int]]] = []
    for topic, got in assigned.items():
        before = target.get(topic, ())
        now = set(got)
        stays = [partition for partition in set_order(before) if partition in now]
        now.difference_update(stays)
        if stays:
            kept[topic] = stays
        if now:
            more.append((topic, sorted(now)))
    return with_more(kept, more, len(target))
