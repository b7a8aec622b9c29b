"""Members with one subscription: each has a quota. What a member has above it is given up, and goes to those that have less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coordinator.consumer.assignors.java_order import buckets_of, copied_buckets, in_id_order, in_run_order
from coordinator.consumer.assignors.kept import copied, in_topic_order, set_order, with_more
from coordinator.consumer.assignors.members import Assignable, Assignment


def assign_quotas(members: Sequence[Assignable], topics: Mapping[bytes, int]) -> Assignment:
    """`members` in Java's order. The work is done in runs of partitions; members that keep their target cost one comparison."""
    read = [topic for topic in topics if topic in members[0].topics]
    order = in_id_order(read, copied_buckets(len(read)))
    free = unowned(members, topics, order)
    quota, extra = divmod(sum([topics[topic] for topic in order]), len(members))
    assigned: Assignment = {}
    needy: list[tuple[Assignable, int]] = []
    rest = len(members)  # members from this one on
    subscribed = frozenset(order)
    for member in members:
        left = quota
        has_extra = extra > 0
        if has_extra:
            left += 1
        target = member.target
        owned = sum(map(len, target.values())) if target else 0
        if not target or (owned <= left and target.keys() <= subscribed):
            assigned[member.member_id] = target
            left -= owned
        else:
            kept, given_up = reduced(target, left, subscribed)
            assigned[member.member_id] = kept
            free += given_up
            left -= sum(map(len, kept.values()))
        if left and has_extra and rest > extra:  # members after it get the extra partitions, so those that hold one keep it
            left -= 1
            has_extra = False
        if left:
            needy.append((member, left))
        if has_extra:
            extra -= 1
        rest -= 1
    hand_out(assigned, needy, free)
    return assigned


def unowned(members: Sequence[Assignable], topics: Mapping[bytes, int], order: Sequence[bytes]) -> list[tuple[bytes, Sequence[int]]]:
    """By topic, in this order: the partitions that no member has in its target, ascending."""
    owned: dict[bytes, list[int]] = {topic: [] for topic in order}
    for member in members:
        for topic, partitions in member.target.items():
            if topic in owned:
                owned[topic].extend(partitions)
    free: list[tuple[bytes, Sequence[int]]] = []
    for topic, partitions in owned.items():
        if not partitions:
            free.append((topic, range(topics[topic])))
        elif len(partitions) < topics[topic]:
            free.append((topic, sorted(set(range(topics[topic])).difference(partitions))))
    return free


def reduced(
    target: Mapping[bytes, Sequence[int]], left: int, subscribed: frozenset[bytes]
) -> tuple[dict[bytes, Sequence[int]], list[tuple[bytes, Sequence[int]]]]:
    """At most `left` partitions of subscribed topics, and those that are given up."""
    kept: dict[bytes, Sequence[int]] = {}
    given_up: list[tuple[bytes, Sequence[int]]] = []
    for topic in in_topic_order(target):
        if topic not in subscribed:
            continue
        partitions = set_order(target[topic])
        if left:
            kept[topic] = partitions[:left]
        if len(partitions) > left:
            given_up.append((topic, partitions[left:]))
        left = max(left - len(partitions), 0)
    return copied(kept, len(target)), given_up


def hand_out(assigned: Assignment, needy: Sequence[tuple[Assignable, int]], free: Sequence[tuple[bytes, Sequence[int]]]) -> None:
    """Give the needy, in order, their numbers of partitions from the front of `free`."""
    runs = iter(free)
    topic = b""
    numbers: list[int] = []
    consecutive = False
    begin = 0
    for member, left in needy:
        id = member.member_id
        end = begin + left
        if consecutive and end <= len(numbers) and not assigned[id]:  # most members of a new group
            assigned[id] = {topic: in_run_order(numbers[begin:end], buckets_of(left))}
            begin = end
            continue
        more: list[tuple[bytes, Sequence[int]]] = []
        while left:
            if begin == len(numbers):
                topic, partitions = next(runs)
                numbers = list(partitions)
                consecutive = isinstance(partitions, range)
                begin = 0
            taken = numbers[begin : begin + left]
            more.append((topic, taken))
            left -= len(taken)
            begin += len(taken)
        assigned[id] = with_more(assigned[id], more, len(member.target))
