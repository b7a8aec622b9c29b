"""Cache the encoded topics of Metadata replies until they change.

An entry belongs to one Topic object, which the registry replaces on every change. `Partitions` reports changed leader epochs. All
partitions of a topic have the same encoded size, so an epoch is overwritten in place. Changed epochs of internal topics are not reported,
since the group coordinator opens their logs; these epochs are compared at each request.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from struct import pack_into
from typing import Final

from broker.internal_topics import CONSUMER_OFFSETS
from broker.topics.leaders import NO_NODE, Leaders
from broker.topics.partition import Partition
from broker.topics.registry import Topic, TopicRegistry
from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from protocol.wire import UNWRITABLE, put_compact_count, put_legacy_count, unwritable
from storage import LogId

# The versions in which the encoding of a topic changed. (12 only allows null names, which existing topics do not have.)
ENCODING_VERSIONS: Final = (0, 1, 5, 7, 9, 10)
EPOCH_FROM: Final = 7
OPERATIONS_FROM: Final = 8
FLEXIBLE_FROM: Final = 9
EPOCH_AT: Final = 10  # in a partition: after error, index and leader
LISTS_MAX: Final = 4  # cached listings of all topics


class TopicEncodings:
    """The encodings of one topic, and the leader epochs in them."""

    __slots__ = ("changed", "encodings", "epochs", "topic")

    def __init__(self, topic: Topic, epochs: list[int]) -> None:
        self.topic = topic
        self.epochs = epochs
        self.changed: set[int] = set()  # partitions whose epoch may have changed
        self.encodings: dict[int, tuple[bytearray, int, int]] = {}  # by encoding version: bytes, position of the partitions, size of a partition

    def set_epoch(self, index: int, epoch: int) -> None:
        self.epochs[index] = epoch
        for encoding, (data, begin, size) in self.encodings.items():
            if encoding >= EPOCH_FROM:
                pack_into(">i", data, begin + index * size + EPOCH_AT, epoch)


class Listing:
    """The entries of all topics in one encoding, each followed by the same authorized operations."""

    __slots__ = ("changed", "joined", "parts", "positions", "version")

    def __init__(self) -> None:
        self.version: object = None  # the registry's version when the parts were encoded
        self.parts: list[bytes] = []
        self.positions: dict[bytes, int] = {}  # index of the part, by topic id
        self.changed: set[bytes] = set()  # topics whose part may have changed
        self.joined = b""


class MetadataEntries:
    """The cached entries of single topics, and of all topics together."""

    def __init__(
        self,
        node_id: int,
        leaders: Leaders | None,
        topics: TopicRegistry,
        partitions_of: Callable[[Topic], list[Partition]],
        leader_epoch: Callable[[Partition], int],
    ) -> None:
        self.encoded = 0  # count of complete encodings
        self._node_id = node_id
        self._leaders = leaders  # None: this node leads all partitions
        self._leaders_version: object = None
        self._topics = topics
        self._partitions_of = partitions_of
        self._leader_epoch = leader_epoch
        self._entries: dict[bytes, TopicEncodings] = {}
        self._partitions: dict[int, bytes] = {}  # by encoding: an encoded partition, whose index and epoch are overwritten
        self._listings: dict[tuple[int, bytes], Listing] = {}

    def epoch_changed(self, partition: Partition) -> None:
        """Called when the partition's leader epoch may have changed."""
        id = partition.topic.id
        entry = self._entries.get(id)
        if entry is not None:
            entry.changed.add(partition.index)
            for listing in self._listings.values():
                listing.changed.add(id)

    def entry_of(self, topic: Topic, version: int) -> bytearray:
        """The topic's entry without its authorized operations; later calls may change this buffer."""
        if self._leaders is not None:
            self._compare_leaders(self._leaders)
        if topic.internal:
            self._compare_epochs(topic)
        return self._entry(topic, encoding_version(version))

    def all(self, version: int, operations: bytes) -> tuple[int, bytes]:
        """The number of topics that a request for all topics gets, and their encoded entries.

        `operations`: the encoded authorized operations, appended to each entry.
        """
        if self._leaders is not None:
            self._compare_leaders(self._leaders)
        encoding = encoding_version(version)
        listing = self._listings.pop((encoding, operations), None) or Listing()
        self._listings[encoding, operations] = listing  # the most recently used is last
        if len(self._listings) > LISTS_MAX:
            del self._listings[next(iter(self._listings))]
        topics = self._topics
        offsets = topics.by_name.get(CONSUMER_OFFSETS)
        if offsets is not None:
            self._compare_epochs(offsets)
        if listing.version is not topics.version:
            listed = list(topics.listed())
            listing.parts = [bytes(self._entry(topic, encoding) + operations) for topic in listed]
            listing.positions = {topic.id: position for position, topic in enumerate(listed)}
            listing.version = topics.version
            self._drop_deleted()
        elif listing.changed:
            for id in listing.changed:
                position = listing.positions.get(id)
                if position is not None:
                    listing.parts[position] = bytes(self._entry(topics.by_id[id], encoding) + operations)
        else:
            return len(listing.parts), listing.joined
        listing.changed.clear()
        listing.joined = b"".join(listing.parts)
        return len(listing.parts), listing.joined

    def _compare_leaders(self, leaders: Leaders) -> None:
        """Drop all entries when logs may have other leaders."""
        version = leaders.version
        if version is not self._leaders_version:
            self._leaders_version = version
            self._entries.clear()
            self._listings.clear()

    def _compare_epochs(self, topic: Topic) -> None:
        entry = self._entries.get(topic.id)
        partitions = self._partitions_of(topic)  # also finds logs opened since
        if entry is not None and entry.topic is topic:
            for partition, encoded_epoch in zip(partitions, entry.epochs, strict=True):
                if self._leader_epoch(partition) != encoded_epoch:
                    self.epoch_changed(partition)

    def _entry(self, topic: Topic, encoding: int) -> bytearray:
        entry = self._entries.get(topic.id)
        if entry is None or entry.topic is not topic:
            entry = self._entries[topic.id] = TopicEncodings(topic, [self._leader_epoch(partition) for partition in self._partitions_of(topic)])
        elif entry.changed:
            partitions = self._partitions_of(topic)
            for index in entry.changed:
                entry.set_epoch(index, self._leader_epoch(partitions[index]))
            entry.changed.clear()
        encoded = entry.encodings.get(encoding)
        if encoded is None:
            encoded = entry.encodings[encoding] = self._encode(entry, encoding)
        return encoded[0]

    def _encode(self, entry: TopicEncodings, encoding: int) -> tuple[bytearray, int, int]:
        self.encoded += 1
        topic, node_id = entry.topic, self._node_id
        no_partitions = without_operations(MetadataResponseTopic(ErrorCode.NONE, topic.name, topic.id, topic.internal, []), encoding)
        count: list[bytes] = []
        put_count = put_compact_count if encoding >= FLEXIBLE_FROM else put_legacy_count
        put_count(count, 0)
        data = no_partitions[: len(no_partitions) - len(count[0])]
        count.clear()
        put_count(count, topic.partition_count)
        data += count[0]
        partition = self._partitions.get(encoding)
        if partition is None:
            array: list[bytes] = []
            MetadataResponsePartition.write_array(array, [MetadataResponsePartition(ErrorCode.NONE, 0, node_id, -1, [node_id], [node_id], [])], encoding)
            partition = self._partitions[encoding] = b"".join(array[1:])  # without the count
        begin, size = len(data), len(partition)
        if self._leaders is not None:
            return data + self._led_partitions(self._leaders, entry, encoding), begin, size
        data += partition * topic.partition_count
        at = begin
        for index, epoch in enumerate(entry.epochs):
            pack_into(">i", data, at + 2, index)
            if encoding >= EPOCH_FROM:
                pack_into(">i", data, at + EPOCH_AT, epoch)
            at += size
        return data, begin, size

    def _led_partitions(self, leaders: Leaders, entry: TopicEncodings, encoding: int) -> bytes:
        """The encoded partitions of a topic, each with its own leader. The size does not depend on the leaders."""
        partitions = []
        for index, epoch in enumerate(entry.epochs):
            log = LogId(entry.topic.name, index)
            leader = leaders.leader(log)
            error = ErrorCode.LEADER_NOT_AVAILABLE if leader == NO_NODE else ErrorCode.NONE
            replica = leader if leader != NO_NODE else self._node_id
            partitions.append(MetadataResponsePartition(error, index, leader, epoch, [replica], [replica], []))
        out: list[bytes] = []
        MetadataResponsePartition.write_array(out, partitions, encoding)
        return b"".join(out[1:])  # without the count

    def _drop_deleted(self) -> None:
        if len(self._entries) > len(self._topics.by_id):
            self._entries = {id: entry for id, entry in self._entries.items() if id in self._topics.by_id}


def encoding_version(version: int) -> int:
    return ENCODING_VERSIONS[bisect_right(ENCODING_VERSIONS, version) - 1]


def operations_bytes(operations: int, version: int) -> bytes:
    """The encoded end of a topic entry: authorized operations and tagged fields."""
    if version < OPERATIONS_FROM:
        return b""
    return operations.to_bytes(4, "big", signed=True) + (b"\0" if version >= FLEXIBLE_FROM else b"")  # no tagged fields


def encode_topic(topic: MetadataResponseTopic, version: int) -> bytes:
    """Raises ProtocolError when the name is too long."""
    parts: list[bytes] = []
    try:
        MetadataResponseTopic.write_array(parts, [topic], version)
    except UNWRITABLE as error:
        raise unwritable("MetadataResponse", version, error) from error
    return b"".join(parts[1:])  # without the count


def without_operations(topic: MetadataResponseTopic, encoding: int) -> bytearray:
    """The encoded topic up to its authorized operations. Up to there versions 7 and 8 are equal, so both use encoding 7."""
    data = bytearray(encode_topic(topic, encoding))
    del data[len(data) - len(operations_bytes(0, encoding)) :]
    return data
