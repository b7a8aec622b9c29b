"""The owner of each partition before and after a rebalance, real or planned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from history.consumer import CONSUMER, assigned
from history.episodes import Rebalance, RebalancesMissing
from protocol.messages.consumer_offsets import GroupMetadataValue

TopicPartition = tuple[str, int]


class Owner(NamedTuple):
    """A member that owns partitions. Its `member_key` is the instance id, which stays the same after a restart, or else the member id."""

    member_id: str
    instance_id: str | None

    @property
    def member_key(self) -> str:
        return self.instance_id if self.instance_id is not None else self.member_id


Owners = dict[TopicPartition, Owner]


class Move(NamedTuple):
    partition: TopicPartition
    before: Owner | None  # None: unassigned
    after: Owner | None


def owners_of(record: GroupMetadataValue) -> Owners | None:
    """The owner of each partition; None if the assignments are not of the consumer protocol."""
    if record.protocol_type != CONSUMER:
        return None
    owners: Owners = {}
    for member in record.members:
        owner = Owner(member.member_id, member.group_instance_id)
        partitions = assigned(record, member)
        if partitions is None:
            return None
        for partition in partitions:
            owners[partition] = owner
    return owners


def moves(before: Mapping[TopicPartition, Owner], after: Mapping[TopicPartition, Owner]) -> list[Move]:
    """The partitions whose owner changed, sorted. A restarted static member is the same owner."""
    changed = []
    for partition in sorted({*before, *after}):
        old, new = before.get(partition), after.get(partition)
        if (old.member_key if old else None) != (new.member_key if new else None):
            changed.append(Move(partition, old, new))
    return changed


def moves_of(entry: Rebalance | RebalancesMissing) -> list[Move] | None:
    """The partitions that a rebalance moved; None if the assignment before or after is unknown."""
    if entry.after is None or entry.after.stored is None:
        return None
    before: Owners | None = {}
    first = entry.from_generation == 0 and (isinstance(entry, Rebalance) or entry.count_max == 1)
    if not first:  # a new group had no partitions
        before = owners_of(entry.before.stored) if entry.before is not None and entry.before.stored is not None else None
    after = owners_of(entry.after.stored)
    return moves(before, after) if before is not None and after is not None else None


def list_partitions(partitions: Iterable[TopicPartition]) -> str:
    """A short text for many partitions: `orders 0-3,7; payments 1`."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(set(partitions)):
        topics.setdefault(topic, []).append(partition)
    return "; ".join(f"{topic} {_ranges(numbers)}" for topic, numbers in topics.items())


def _ranges(numbers: list[int]) -> str:
    ranges: list[str] = []
    first = last = numbers[0]
    for number in [*numbers[1:], -1]:
        if number == last + 1:
            last = number
            continue
        ranges.append(str(first) if first == last else f"{first}-{last}" if last > first + 1 else f"{first},{last}")
        first = last = number
    return ",".join(ranges)
