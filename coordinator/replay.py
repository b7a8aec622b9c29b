"""Replay: rebuild the groups from the facts in the log when a coordinator takes over a partition.

Offset records are kept encoded. Only the newest group record counts; it is decoded at the end of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct
from typing import Final

from coordinator.classic.group import Group
from coordinator.classic.kept import KeptBytes
from coordinator.classic.member import Member
from coordinator.committed import OffsetsOwner, TopicOffsets
from coordinator.consumer.changes import GONE, Change, EpochChange, ProfileChange
from coordinator.consumer.facts import change_of, is_of_consumers
from coordinator.consumer.group import ConsumerGroup
from coordinator.facts import offset_key_prefix, read_deletions, read_group, read_offset
from coordinator.hold import Fact
from coordinator.states import State
from protocol.errors import ProtocolError
from protocol.messages.consumer_offsets import GroupMetadataKey, OffsetCommitKey, TopicDeletionsKey
from protocol.messages.kinds import CONSUMER_OFFSETS
from protocol.records import kind_of, read_offsets_key, read_record

_VALUE_SHAPE: Final = Struct(">h12xh").unpack_from  # version; in version 3 also the length of the metadata
_PARTITION_BYTES: Final = 4
_OFFSET_KEY_VERSIONS: Final = (b"\0\0", b"\0\1")
VALUE_BYTES_MIN: Final = 24  # of version 3, without metadata


class Replay:
    """Folds facts into `groups`; `fold_own` gets our own records of groups: group id, key and value.

    Offsets that outlive their group's tombstone are moved to `orphaned_offsets`, and back if the group is created again.
    """

    def __init__(
        self,
        groups: dict[str, Group],
        consumers: dict[str, ConsumerGroup],
        orphaned_offsets: dict[str, dict[str, TopicOffsets]],
        kept: KeptBytes | None = None,
        fold_own: Callable[[str, bytes, bytes | None], None] | None = None,
    ) -> None:
        self.facts = 0
        self.deletions_applied = 0  # the number of the last deletion of a topic whose offsets are removed
        self.unknown = 0  # records of an unknown kind, perhaps of a newer version
        self._groups = groups
        self._consumers = consumers
        self._kept = KeptBytes() if kept is None else kept
        self._orphaned_offsets = orphaned_offsets
        self._founded: set[str] = set()  # groups of the consumer protocol of which an epoch or a member was read
        self._fold_own_record = fold_own
        self._topics: dict[bytes, TopicOffsets] = {}  # by key prefix, the key without the partition
        self._splits: dict[int, Callable[[bytes], tuple[bytes, int]]] = {}

    def fold(self, facts: Iterable[Fact]) -> None:
        """Fold facts in log order. Most records are offsets of a topic seen before: the loop folds them itself. Each other record takes a call."""
        topics = self._topics
        count = 0
        size = -1
        last_prefix: bytes | None = None
        values: dict[int, bytes]
        prefix: bytes
        partition: int
        version: int
        metadata_bytes: int
        for key, value in facts:
            count += 1
            if len(key) != size:
                if len(key) < _PARTITION_BYTES:
                    self._fold_record(key, value)
                    continue
                size = len(key)
                split = self._splits.get(size) or self._split(size)
            prefix, partition = split(key)
            if prefix != last_prefix or value is None:
                stored = topics.get(prefix)
                if stored is None or value is None:
                    self._fold_record(key, value)
                    last_prefix = None  # the record may have replaced the whole group
                    continue
                values = stored.values
                last_prefix = prefix
            length = len(value)
            if length < VALUE_BYTES_MIN:
                read_offset(value)
            else:
                version, metadata_bytes = _VALUE_SHAPE(value)
                if version != 3 or length - VALUE_BYTES_MIN != metadata_bytes:
                    read_offset(value)
            values[partition] = value
        self.facts += count

    def _split(self, size: int) -> Callable[[bytes], tuple[bytes, int]]:
        """Make the function that splits a key of this size into prefix and partition."""
        split = self._splits[size] = Struct(f">{size - _PARTITION_BYTES}si").unpack
        return split

    def _fold_record(self, data: bytes, value: bytes | None) -> None:
        key = read_offsets_key(data)
        if isinstance(key, GroupMetadataKey):
            self._fold_group(key.group, value)
        elif isinstance(key, OffsetCommitKey):
            self._fold_offset(key, data, value)
        else:
            self._fold_own(data, value)

    def _fold_own(self, data: bytes, value: bytes | None) -> None:
        kind = kind_of(CONSUMER_OFFSETS, data)
        if kind is None:
            self.unknown += 1
            return
        key = read_record(kind.key, data)
        if isinstance(key, TopicDeletionsKey):
            self.deletions_applied = 0 if value is None else read_deletions(value)
            return
        if value is not None:
            read_record(kind.value, value)  # a record that cannot be read ends the replay
        group_id: str = getattr(key, "group")  # noqa: B009 - every other kind of ours belongs to a group
        if is_of_consumers(key):
            change = change_of(key, value)
            if change is not None:
                self._fold_consumers(group_id, change, value is not None)
        elif self._fold_own_record is not None:
            self._fold_own_record(group_id, data, value)

    def _fold_consumers(self, id: str, change: Change, creates: bool) -> None:
        """A change of a group of the consumer protocol. A group that is gone has orphaned its offsets, as a classic one."""
        group = self._consumers.get(id)
        if isinstance(change, EpochChange) and change.epoch == GONE:
            self._founded.discard(id)
            if group is not None:
                del self._consumers[id]
                group.drop()
                self._orphan(group)
            return
        if group is None and creates:
            group = self._consumers[id] = ConsumerGroup(id, self._kept)
            classic = self._groups.pop(id, None)  # of a commit before the first heartbeat
            if classic is not None:
                group.offsets = classic.offsets
                classic.drop()
            else:
                group.offsets = self._orphaned_offsets.pop(id, {})
        if creates and isinstance(change, (EpochChange, ProfileChange)):
            self._founded.add(id)
        if group is not None:
            group.apply(change)

    def take_out_unfounded(self) -> list[str]:
        """After the last record: take out the groups of which the log has assignments or targets, but neither an epoch nor a member. Their offsets stay.

        A group without an epoch record may be sound: in its first epoch it has none, as in Kafka, until a topic matches what its members subscribe to.
        """
        unfounded = [id for id in self._consumers if id not in self._founded]
        for id in unfounded:
            group = self._consumers.pop(id)
            group.drop()
            drop_empty_topics(group)
            if group.offsets:
                offsets = self._group(id).offsets
                for topic, stored in group.offsets.items():
                    offsets.setdefault(topic, stored)
        return unfounded

    def _fold_group(self, id: str, value: bytes | None) -> None:
        if value is not None:
            self._group(id).last_record = value
            return
        group = self._groups.pop(id, None)
        if group is None:
            return
        group.drop()
        self._orphan(group)

    def _orphan(self, group: OffsetsOwner) -> None:
        for stored in group.offsets.values():
            for version in _OFFSET_KEY_VERSIONS:  # a later offset creates a new group
                self._topics.pop(version + stored.key_prefix[2:], None)
        orphaned_offsets = {topic: stored for topic, stored in group.offsets.items() if stored.values}
        if orphaned_offsets:
            self._orphaned_offsets[group.id] = orphaned_offsets

    def _owner(self, id: str) -> OffsetsOwner:
        return self._consumers.get(id) or self._group(id)

    def _group(self, id: str) -> Group:
        group = self._groups.get(id)
        if group is None:
            group = self._groups[id] = Group(id, 0, -1, self._kept)
            group.offsets = self._orphaned_offsets.pop(id, {})
        return group

    def _fold_offset(self, key: OffsetCommitKey, data: bytes, value: bytes | None) -> None:
        if value is None:
            group = self._groups.get(key.group) or self._consumers.get(key.group)
            topics = group.offsets if group is not None else self._orphaned_offsets.get(key.group, {})
            if key.topic in topics:
                topics[key.topic].values.pop(key.partition, None)
            return
        read_offset(value)
        topics = self._owner(key.group).offsets
        stored = topics.get(key.topic)
        if stored is None:
            stored = topics[key.topic] = TopicOffsets(offset_key_prefix(key.group, key.topic))
        self._topics[data[:-4]] = stored
        stored.values[key.partition] = value


def drop_empty_topics(group: OffsetsOwner) -> None:
    for topic in [topic for topic, stored in group.offsets.items() if not stored.values]:
        del group.offsets[topic]


def open_group(group: Group, intern: Callable[[str], str]) -> None:
    """Initialize the group from its newest record: EMPTY, or STABLE with members that offer only the selected protocol.

    `intern` returns one object for equal strings, since client ids and hosts repeat often.
    """
    drop_empty_topics(group)
    if group.last_record is None:
        return
    record = read_group(group.last_record)
    group.protocol_type = intern(record.protocol_type) or None
    group.generation = record.generation
    group.protocol_name = record.protocol
    group.state_ms = record.current_state_timestamp
    for stored in record.members:
        instance = stored.group_instance_id
        if instance in group.static_members:
            raise ProtocolError(f"two members of group {group.id!r} have the instance id {instance!r}")
        rebalance_ms = stored.rebalance_timeout if stored.rebalance_timeout != -1 else stored.session_timeout
        member = Member(
            group.id,
            stored.member_id,
            instance,
            intern(stored.client_id),
            intern(stored.client_host),
            rebalance_ms,
            stored.session_timeout,
            ((intern(record.protocol or ""), stored.subscription),),
            stored.assignment,
            is_new=False,
        )
        group.add(member)
    if record.leader in group.members:  # otherwise the first member leads: the record may come from another writer
        group.leader = record.leader
    group.state = State.STABLE if group.members else State.EMPTY
    group.remember_subscriptions(group.all_metadata())
