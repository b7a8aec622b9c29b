"""One consumer group: its epochs, members, targets, and who holds which partition.

`apply` is the only writer of what is stored, live and at replay alike. What is not stored: deadlines, `refresh_at`, and the state of resolutions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from coordinator.classic.kept import KeptBytes, ids_bytes, text_bytes
from coordinator.committed import OffsetsOwner
from coordinator.consumer.assignors.java_order import CoordinatorOrder
from coordinator.consumer.changes import (
    GONE,
    Change,
    EpochChange,
    ExpressionChange,
    HoldingChange,
    ProfileChange,
    Resolved,
    Target,
    TargetChange,
    TargetEpochChange,
)
from coordinator.consumer.member import NEW, STABLE, ConsumerMember, Held, Holding, Profile
from coordinator.consumer.note_count import NoteCount

FIRST_EPOCH: Final = 1  # of a new group: its members have nothing
NO_TARGET: Final[Target] = {}


class ConsumerGroup(OffsetsOwner):
    """A group whose members speak the consumer protocol."""

    __slots__ = (
        "_kept",
        "assignor_votes",
        "epoch",
        "expression_counts",
        "hash",
        "holders",
        "is_resolving",
        "kept_bytes",
        "members",
        "note_count",
        "order",
        "refresh_at",
        "resolved",
        "resolved_version",
        "static_members",
        "target_epoch",
        "target_ms",
        "targets",
        "topic_counts",
    )

    def __init__(self, id: str, kept: KeptBytes) -> None:
        super().__init__(id)
        self._kept = kept
        self.kept_bytes = 0  # of members
        self.note_count = NoteCount()
        self.epoch = FIRST_EPOCH
        self.hash = 0  # of the topics that it reads, as of its last epoch
        self.target_epoch = FIRST_EPOCH  # the epoch for which the target was computed
        self.target_ms = 0  # and when; 0: never, or since then nobody is left
        self.targets: dict[str, Target] = {}
        self.members: dict[str, ConsumerMember] = {}
        self.order = CoordinatorOrder()  # of the members in Kafka's table, which decides between assignments that are as good
        self.static_members: dict[str, str] = {}  # instance id -> member id
        self.holders: dict[bytes, dict[int, str]] = {}  # topic id -> partition -> the member that has it assigned or pending
        self.resolved: dict[str, Resolved] = {}  # by expression
        # How many members name a topic, an expression, an assignor.
        self.topic_counts: dict[str, int] = {}
        self.expression_counts: dict[str, int] = {}
        self.assignor_votes: dict[str, int] = {}
        self.refresh_at = 0  # when the hash of its topics is computed again at the latest; 0: at the next heartbeat
        self.is_resolving = False  # the result of a resolution of its expressions is to come
        self.resolved_version = 0  # the version of the topics at the last resolution; 0: none in this process

    # What it shows.

    @property
    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        if all(is_reconciled(member.holding, self.target_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def subscribes_to(self, topic: str) -> bool:
        return topic in self.topic_counts or any(topic in resolved.topics for resolved in self.resolved.values())

    def is_held(self, topic_id: bytes, partition: int) -> bool:
        return partition in self.holders.get(topic_id, {})

    # The fold.

    def apply(self, change: Change) -> None:
        """Apply one change. Changes of members that are not there are possible at replay: compaction drops records one by one."""
        if isinstance(change, ProfileChange):
            if change.profile is None:
                self._remove(change.member_id)
            else:
                self._set_profile(self._member(change.member_id), change.profile)
        elif isinstance(change, HoldingChange):
            self._set_holding(change.member_id, change.holding)
        elif isinstance(change, TargetChange):
            if change.target is None:
                self.targets.pop(change.member_id, None)
            else:
                self.targets[change.member_id] = change.target
        elif isinstance(change, EpochChange):
            if change.epoch != GONE:
                self.epoch, self.hash = change
        elif isinstance(change, TargetEpochChange):
            self.target_epoch, self.target_ms = (FIRST_EPOCH, 0) if change.epoch == GONE else change
        elif isinstance(change, ExpressionChange):
            if change.resolved is None:
                self.resolved.pop(change.expression, None)
            else:
                self.resolved[change.expression] = change.resolved
        self.version += 1

    def _member(self, id: str) -> ConsumerMember:
        member = self.members.get(id)
        if member is None:
            member = self.members[id] = ConsumerMember(self.id, id)
            self._keep(ids_bytes(id, None, "", ""))
        return member

    def _remove(self, id: str) -> None:
        member = self.members.pop(id, None)
        if member is None:
            return
        self.order.remove(id)
        self._take_back(member)
        self._count(member.profile, -1)
        self._keep(-ids_bytes(id, None, "", ""))
        instance = member.profile.instance_id
        if instance is not None and self.static_members.get(instance) == id:
            del self.static_members[instance]

    def _set_profile(self, member: ConsumerMember, profile: Profile) -> None:
        self.order.put(member.id)
        self._count(member.profile, -1)
        member.profile = profile
        self._count(profile, 1)
        if profile.instance_id is not None:
            self.static_members[profile.instance_id] = member.id

    def _count(self, profile: Profile, change: int) -> None:
        for topic in profile.topics:
            count(self.topic_counts, topic, change)
        if profile.expression:
            count(self.expression_counts, profile.expression, change)
        if profile.assignor is not None:
            count(self.assignor_votes, profile.assignor, change)
        self._keep(change * profile_bytes(profile))

    def _set_holding(self, id: str, holding: Holding | None) -> None:
        member = self._member(id) if holding is not None else self.members.get(id)
        if member is None:
            return
        self.order.put(id)
        self._take_back(member)
        member.holding = holding or NEW
        for held in (member.holding.assigned, member.holding.pending):
            for topic_id, partitions in held.items():
                self.holders.setdefault(topic_id, {}).update(dict.fromkeys(partitions, id))

    def _take_back(self, member: ConsumerMember) -> None:
        """Nobody holds the member's partitions, except those that another holds by now: only a compacted log can say so."""
        for held in (member.holding.assigned, member.holding.pending):
            for topic_id, partitions in held.items():
                holders = self.holders.get(topic_id, {})
                for partition in partitions:
                    if holders.get(partition) == member.id:
                        del holders[partition]
                if not holders:
                    self.holders.pop(topic_id, None)

    def _keep(self, change: int) -> None:
        self.kept_bytes += change
        self._kept.bytes += change

    def drop(self) -> None:
        """Called for a group that is no longer in memory."""
        self.version += 1
        self._keep(-self.kept_bytes)


def is_reconciled(holding: Holding, target_epoch: int) -> bool:
    return holding.state is STABLE and holding.epoch == target_epoch


def count(counts: dict[str, int], key: str, change: int) -> None:
    after = counts.get(key, 0) + change
    if after:
        counts[key] = after
    else:
        counts.pop(key, None)


def profile_bytes(profile: Profile) -> int:
    """The memory that a profile keeps."""
    size = sum(map(text_bytes, (profile.instance_id, profile.rack_id, profile.client_id, profile.client_host, profile.expression, profile.assignor)))
    size += sum(map(text_bytes, profile.topics))
    if profile.classic is not None:
        size += sum(text_bytes(name) + len(metadata) for name, metadata in profile.classic.protocols)
    return size


def partitions_of(held: Held) -> Mapping[bytes, list[int]]:
    return {topic_id: sorted(partitions) for topic_id, partitions in held.items()}


def union(first: Held, second: Held) -> Held:
    merged = {topic_id: dict(partitions) for topic_id, partitions in first.items()}
    for topic_id, partitions in second.items():
        merged.setdefault(topic_id, {}).update(partitions)
    return merged


def same_partitions(first: Held, second: Held) -> bool:
    """Whether both have the same partitions, whatever their assignment epochs."""
    return first is second or (first.keys() == second.keys() and all(first[topic_id].keys() == second[topic_id].keys() for topic_id in first))
