"""The partitions of each member before and after a rebalance, real or planned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from history.consumer import CONSUMER, assigned
from history.episodes import Missing, Rebalance
from protocol.messages.consumer_offsets import GroupMetadataValue

Partition = tuple[str, int]


class Owner(NamedTuple):
    """A seat in a group: the instance id if there is one, which survives a restart, else the member id."""

    member_id: str
    instance_id: str | None

    @property
    def seat(self) -> str:
        return self.instance_id if self.instance_id is not None else self.member_id


Owners = dict[Partition, Owner]


class Move(NamedTuple):
    """None: unassigned."""

    partition: Partition
    before: Owner | None
    after: Owner | None


def owners_of(image: GroupMetadataValue) -> Owners | None:
    """The seat of each partition; None if the assignments are not of the consumer protocol."""
    if image.protocol_type != CONSUMER:
        return None
    owners: Owners = {}
    for member in image.members:
        owner = Owner(member.member_id, member.group_instance_id)
        places = assigned(image, member)
        if places is None:
            return None
        for place in places:
            owners[place] = owner
    return owners


def moves(before: Mapping[Partition, Owner], after: Mapping[Partition, Owner]) -> list[Move]:
    """Partitions whose seat changed, sorted."""
    found = []
    for partition in sorted({*before, *after}):
        old, new = before.get(partition), after.get(partition)
        if (old.seat if old else None) != (new.seat if new else None):
            found.append(Move(partition, old, new))
    return found


def moves_of(entry: Rebalance | Missing) -> list[Move] | None:
    """The partitions it moved; None if the assignment before or after is unknown."""
    if entry.after is None or entry.after.stored is None:
        return None
    before: Owners | None = {}
    if entry.from_generation != 0:  # a new group had no partitions
        before = owners_of(entry.before.stored) if entry.before is not None and entry.before.stored is not None else None
    after = owners_of(entry.after.stored)
    return moves(before, after) if before is not None and after is not None else None


def spans(partitions: Iterable[Partition]) -> str:
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
