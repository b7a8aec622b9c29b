"""Kafka's assignor `uniform`: members keep what they have, and their numbers of partitions differ by one at most where that is possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from coordinator.consumer.assignors.balancing import assign_balanced
from coordinator.consumer.assignors.java_order import buckets_of, by_bucket, hashes
from coordinator.consumer.assignors.members import Assignable, Assignment, ServerAssignor, are_homogeneous
from coordinator.consumer.assignors.quotas import assign_quotas


def assign_uniformly(members: Sequence[Assignable], topics: Mapping[bytes, int], homogeneous: bool | None = None) -> Assignment:
    """`homogeneous`: whether all members have the same subscription. By default it is found out from what they read: Kafka's view differs
    only if their names or expressions differ and match the same topics."""
    if not members:
        return {}
    ordered = by_bucket(members, hashes([member.member_id for member in members]), buckets_of(len(members)))
    if are_homogeneous(members) if homogeneous is None else homogeneous:
        return assign_quotas(ordered, topics)
    return assign_balanced(ordered, topics)


UNIFORM: Final = ServerAssignor(
    "uniform",
    "Members keep what they have, and their numbers of partitions differ by one at most where that is possible.",
    assign_uniformly,
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor",
)
