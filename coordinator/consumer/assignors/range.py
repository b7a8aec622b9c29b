"""Kafka's assignor `range`: each topic is divided into consecutive ranges, one for each subscriber, in one order of the members.

Hence members get the same partitions of topics with equal numbers of partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from coordinator.consumer.assignors.members import Assignable, Assignment, ServerAssignor, are_homogeneous


def assign_ranges(members: Sequence[Assignable], topics: Mapping[bytes, int], homogeneous: bool | None = None) -> Assignment:
    ordered = in_order(members)
    assigned: list[dict[bytes, Sequence[int]]] = [{} for _ in ordered]
    everyone = range(len(ordered))
    same = are_homogeneous(members) if homogeneous is None else homogeneous
    for topic, count in topics.items():
        subscribers: Sequence[int] = everyone
        if not same:
            subscribers = [at for at, member in enumerate(ordered) if topic in member.topics]
        elif not ordered or topic not in ordered[0].topics:
            continue
        if not subscribers:
            continue
        size, larger = divmod(count, len(subscribers))
        numbers = tuple(range(count))
        begin = 0
        for at in subscribers:
            end = begin + size
            if larger:
                end += 1
                larger -= 1
            if begin == end:
                break
            assigned[at][topic] = numbers[begin:end]
            begin = end
    return {member.member_id: got for member, got in zip(ordered, assigned, strict=True)}


def in_order(members: Sequence[Assignable]) -> list[Assignable]:
    """Static members by instance id, then dynamic ones by member id, both compared as Java compares texts."""
    static = {member.instance_id: member for member in members if member.instance_id is not None}
    dynamic = {member.member_id: member for member in members if member.instance_id is None}
    return [*(static[id] for id in sorted_texts(static)), *(dynamic[id] for id in sorted_texts(dynamic))]


def sorted_texts(texts: Iterable[str]) -> list[str]:
    listed = list(texts)
    if "".join(listed).isascii():
        return sorted(listed)
    return sorted(listed, key=lambda text: text.encode("utf-16-be", "surrogatepass"))


RANGE: Final = ServerAssignor(
    "range",
    "Each topic is divided into consecutive ranges, in one order of the members: they get the same partitions of topics with equal numbers of them.",
    assign_ranges,
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
)
