"""Who had which partitions before, and who has them after: what a rebalance did, or would do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from history.consumer import CONSUMER, assigned
from history.episodes import Missing, Rebalance
from protocol.messages.consumer_offsets import GroupMetadataValue

Partition = tuple[str, int]


class Owner(NamedTuple):
    """A seat in a group: the instance id where there is one, for a restarted process has another member id and the same seat."""

    member_id: str
    instance_id: str | None

    @property
    def seat(self) -> str:
        return self.instance_id if self.instance_id is not None else self.member_id


Owners = dict[Partition, Owner]


class Move(NamedTuple):
    """None: nobody."""

    partition: Partition
    before: Owner | None
    after: Owner | None


def owners_of(image: GroupMetadataValue) -> Owners | None:
    """Who has what; None where the assignments are not the consumer protocol's."""
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
    """Partitions whose seat is another one; in order."""
    found = []
    for partition in sorted({*before, *after}):
        old, new = before.get(partition), after.get(partition)
        if (old.seat if old else None) != (new.seat if new else None):
            found.append(Move(partition, old, new))
    return found


def moves_of(entry: Rebalance | Missing) -> list[Move] | None:
    """What it did to partitions; None where what the group had before or after is not known."""
    if entry.after is None or entry.after.stored is None:
        return None
    before: Owners | None = {}
    if entry.from_generation != 0:  # a group that is new had nothing
        before = owners_of(entry.before.stored) if entry.before is not None and entry.before.stored is not None else None
    after = owners_of(entry.after.stored)
    return moves(before, after) if before is not None and after is not None else None


def spans(partitions: Iterable[Partition]) -> str:
    """`orders 0-3,7; payments 1`: what people can read of many partitions."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(set(partitions)):
        topics.setdefault(topic, []).append(partition)
    return "; ".join(f"{topic} {_ranges(numbers)}" for topic, numbers in topics.items())


def _ranges(numbers: list[int]) -> str:
    told: list[str] = []
    first = last = numbers[0]
    for number in [*numbers[1:], -1]:
        if number == last + 1:
            last = number
            continue
        told.append(str(first) if first == last else f"{first}-{last}" if last > first + 1 else f"{first},{last}")
        first = last = number
    return ",".join(told)
