"""The durable changes of a consumer group, one for each kind of record. A value of None, or an epoch of -1, removes: a tombstone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from coordinator.consumer.member import Holding, Profile

# What a member should own: partitions by topic id, in the order that its assignor gave them. Never changed in place.
Target = Mapping[bytes, Sequence[int]]

GONE = -1


class Resolved(NamedTuple):
    """The topics that an expression matched, sorted; the version of the topics at that time, and the time."""

    topics: tuple[str, ...]
    topics_version: int
    at_ms: int


class EpochChange(NamedTuple):
    """The epoch of the group, and the hash of the topics that it reads. GONE: the group is deleted."""

    epoch: int
    hash: int = 0


class ProfileChange(NamedTuple):
    """A member was created or is different; None: it was removed."""

    member_id: str
    profile: Profile | None


class TargetEpochChange(NamedTuple):
    """The epoch for which the target was computed, and when; 0: it was not, since nobody is left."""

    epoch: int
    at_ms: int = 0


class TargetChange(NamedTuple):
    member_id: str
    target: Target | None


class HoldingChange(NamedTuple):
    member_id: str
    holding: Holding | None


class ExpressionChange(NamedTuple):
    expression: str
    resolved: Resolved | None


class OldTopicsChange(NamedTuple):
    """Of the record in which Kafka 4.0 kept the topics of a group: it is only ever removed."""


Change = EpochChange | ProfileChange | TargetEpochChange | TargetChange | HoldingChange | ExpressionChange | OldTopicsChange
