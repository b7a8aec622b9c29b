"""The topic registry: ids, partitions and settings of topics, and allocated producer ids, stored as facts in a compacted
internal log.

As in the group coordinator, a change is in memory at once and becomes a record (fact) of the log; replies wait until it is durable
(`coordinator.hold`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from broker.internal_topics import CONSUMER_OFFSETS, NOTES_LOG, RESERVED_NAMES
from coordinator import Fact, Hold
from coordinator.consumer.topics import Topic as SeenTopic
from protocol.message import Message
from protocol.messages.kinds import TOPICS_REGISTRY
from protocol.messages.topics_registry import (
    DeletedTopicKey,
    DeletedTopicValue,
    DeletionNumberKey,
    DeletionNumberValue,
    ProducerIdsKey,
    ProducerIdsValue,
    TopicKey,
    TopicSetting,
    TopicValue,
)
from protocol.records import in_newest_version, kind_of, read_record

NO_ID = bytes(16)

# As in Kafka. Unused ids of a block are lost when the broker stops.
PRODUCER_IDS_PER_BLOCK = 1000

# Parts of a deleted topic that are removed separately.
_FOLDERS, _OFFSETS = 1, 2

NAME_CHARACTERS_MAX = 249
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: bytes
    partition_count: int
    created_ms: int
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def internal(self) -> bool:
        return self.name in (CONSUMER_OFFSETS, NOTES_LOG)

    @property
    def listed(self) -> bool:
        """Whether listings of all topics have it. The notes topic is left out, so that tools that copy or count topics, or subscribe to a pattern, get
        the same list as from Kafka."""
        return self.name != NOTES_LOG


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """A deleted topic whose folders or committed offsets are not removed yet."""

    name: str
    id: bytes
    partition_count: int
    deleted_ms: int
    number: int = 0  # deletions are numbered in their order, across all topics; 0: stored by an earlier version


def name_problem(name: str) -> str | None:
    """Why Kafka refuses a topic of this name; None: it is valid."""
    if not name:
        return "the empty string is not allowed"
    if name in RESERVED_NAMES:
        return f"'{name}' is reserved for the broker"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > NAME_CHARACTERS_MAX:
        return f"the length of '{name}' is longer than the max allowed length {NAME_CHARACTERS_MAX}"
    if not _NAME_CHARACTERS.issuperset(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


class TopicRegistry:
    """All topics by name and by id; `hold` has the facts and replies that wait for the log."""

    def __init__(self, new_id: Callable[[], bytes]) -> None:
        self.hold = Hold()
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self.deleted: dict[bytes, DeletedTopic] = {}
        self.last_deletion = 0  # the number of the last deletion, complete or not
        self._remaining_parts: dict[bytes, int] = {}  # by topic id, once one part is removed: the other part
        self.next_producer_id = 0
        self.partition_count = 0
        # Kafka's metric names do not distinguish '.' and '_', so Kafka refuses a topic whose name differs from another only in these.
        self._folded: dict[str, str] = {}
        self.version = object()  # replaced on every change of a topic
        self._new_id = new_id
        # Called when a topic is created or deleted or gets partitions.
        self.partitions_changed: Callable[[str], None] = lambda name: None

    def listed(self) -> Iterator[Topic]:
        """The topics in a listing of all topics."""
        return (topic for topic in self.by_name.values() if topic.listed)

    def name_of(self, id: bytes) -> str | None:
        """The name of the topic with this id; None: there is none."""
        topic = self.by_id.get(id)
        return None if topic is None else topic.name

    def id_of(self, name: str) -> bytes | None:
        topic = self.by_name.get(name)
        return None if topic is None else topic.id

    def seen_by_groups(self, name: str) -> SeenTopic | None:
        """The topic of this name in the view of groups (`coordinator.consumer.topics`); None: it does not exist."""
        topic = self.by_name.get(name)
        return None if topic is None else SeenTopic(name, topic.id, topic.partition_count, topic.listed)

    def clear(self) -> None:
        self.hold = Hold()
        self.by_name.clear()
        self.by_id.clear()
        self.deleted.clear()
        self.last_deletion = 0
        self._folded.clear()
        self.version = object()
        self.next_producer_id = 0
        self.partition_count = 0

    def colliding(self, name: str) -> str | None:
        """The existing topic whose name differs from `name` only in '.' and '_', or None."""
        existing = self._folded.get(name.replace(".", "_"))
        return existing if existing is not None and existing != name else None

    def create(self, name: str, partition_count: int, settings: dict[str, str], now: int) -> Topic:
        """Create a topic; its name must be valid and free."""
        topic = Topic(name, self._new_id(), partition_count, now, settings)
        self._put(topic)
        self.hold.emit([_fact(topic)])
        self.partitions_changed(name)
        return topic

    def delete(self, name: str, now: int) -> Topic:
        """Delete a topic. The deletion is kept until folders and offsets are removed (`folders_gone`, `offsets_gone`)."""
        topic = self.by_name[name]
        self._drop(name)
        self.last_deletion += 1
        deleted = self.deleted[topic.id] = DeletedTopic(name, topic.id, topic.partition_count, now, self.last_deletion)
        self.hold.emit([(_key(name), None), _deletion(deleted), _last_deletion(self.last_deletion)])
        self.partitions_changed(name)
        return topic

    def folders_gone(self, id: bytes) -> None:
        """Called when the folders of this deleted topic are removed or renamed."""
        self._part_removed(id, _FOLDERS)

    def offsets_gone(self, id: bytes) -> None:
        """Called when no group has offsets of this deleted topic any more."""
        self._part_removed(id, _OFFSETS)

    def _part_removed(self, id: bytes, part: int) -> None:
        if id not in self.deleted:
            return
        remaining = self._remaining_parts.pop(id, _FOLDERS | _OFFSETS) & ~part
        if remaining:
            self._remaining_parts[id] = remaining
        else:
            del self.deleted[id]
            self.hold.emit([(in_newest_version(DeletedTopicKey(id)), None)])

    def add_partitions(self, name: str, count: int) -> Topic:
        """Raise the topic's number of partitions to `count`."""
        topic = self.by_name[name]
        assert count > topic.partition_count
        topic = self._change(replace(topic, partition_count=count))
        self.partitions_changed(name)
        return topic

    def alter(self, name: str, settings: dict[str, str]) -> Topic:
        """Replace the topic's settings; they must be valid."""
        return self._change(replace(self.by_name[name], settings=settings))

    def _change(self, topic: Topic) -> Topic:
        self._put(topic)
        self.hold.emit([_fact(topic)])
        return topic

    def reserve_producer_ids(self) -> range:
        """Allocate a block of unused ids, and emit the fact that stores it. Use them only after this fact is durable; never if its append fails."""
        first = self.next_producer_id
        self.next_producer_id = first + PRODUCER_IDS_PER_BLOCK
        self.hold.emit([(in_newest_version(ProducerIdsKey(0)), in_newest_version(ProducerIdsValue(self.next_producer_id)))])
        return range(first, self.next_producer_id)

    def replay(self, facts: Iterable[Fact]) -> None:
        """Apply stored facts; the last fact of each key counts. Unknown kinds are ignored.

        All facts are read before any is applied: if one of them cannot be read, this raises ProtocolError, and nothing has changed.
        """
        self._apply([_read(key, value) for key, value in facts])

    def replace(self, facts: Iterable[Fact]) -> None:
        """Like `replay`, but nothing of what was known before stays."""
        stored = [_read(key, value) for key, value in facts]
        before = dict(self.by_name)
        self.clear()
        self._apply(stored)
        for name in before.keys() | self.by_name.keys():
            if _partitions(before.get(name)) != _partitions(self.by_name.get(name)):
                self.partitions_changed(name)

    def _apply(self, stored: list[tuple[Message | None, Message | None]]) -> None:
        for key, value in stored:
            if isinstance(key, TopicKey):
                self._drop(key.name)
                if isinstance(value, TopicValue):
                    settings = {setting.name: setting.value for setting in value.settings if setting.value is not None}
                    self._put(Topic(key.name, value.topic_id, value.partitions, value.created_ms, settings))
            elif isinstance(key, ProducerIdsKey):
                self.next_producer_id = value.next_id if isinstance(value, ProducerIdsValue) else 0
            elif isinstance(key, DeletedTopicKey):
                id = key.topic_id
                self.deleted.pop(id, None)
                if isinstance(value, DeletedTopicValue):
                    self.deleted[id] = DeletedTopic(value.name, id, value.partitions, value.deleted_ms, value.number)
            elif isinstance(key, DeletionNumberKey):
                self.last_deletion = value.last if isinstance(value, DeletionNumberValue) else 0

    def _put(self, topic: Topic) -> None:
        self._drop(topic.name)
        self.by_name[topic.name] = topic
        self.by_id[topic.id] = topic
        self._folded[topic.name.replace(".", "_")] = topic.name
        self.partition_count += topic.partition_count
        if topic.name == CONSUMER_OFFSETS:
            notes = _notes_topic(topic)
            self.by_name[NOTES_LOG] = self.by_id[notes.id] = notes

    def _drop(self, name: str) -> None:
        self.version = object()
        topic = self.by_name.pop(name, None)
        if topic is not None:
            del self.by_id[topic.id]
            self._folded.pop(name.replace(".", "_"), None)
            self.partition_count -= topic.partition_count


def _partitions(topic: Topic | None) -> tuple[bytes, int] | None:
    return None if topic is None else (topic.id, topic.partition_count)


def _read(data: bytes, value: bytes | None) -> tuple[Message | None, Message | None]:
    """A stored fact; without a key if its kind is unknown. Raises ProtocolError."""
    kind = kind_of(TOPICS_REGISTRY, data)
    if kind is None:
        return None, None
    return read_record(kind.key, data), read_record(kind.value, value) if value is not None else None


def _notes_topic(offsets: Topic) -> Topic:
    """The notes topic, derived from the offsets topic: a group's notes and offsets have the same partition number. It is not stored in
    the registry, where older versions would take it for a user's topic."""
    id = hashlib.sha256(b"notes beside " + offsets.id).digest()[:16]
    return Topic(NOTES_LOG, id, offsets.partition_count, offsets.created_ms)


def _key(name: str) -> bytes:
    return in_newest_version(TopicKey(name))


def _fact(topic: Topic) -> Fact:
    settings = [TopicSetting(name, value) for name, value in topic.settings.items()]
    return _key(topic.name), in_newest_version(TopicValue(topic.id, topic.partition_count, topic.created_ms, settings))


def _deletion(deleted: DeletedTopic) -> Fact:
    value = DeletedTopicValue(deleted.name, deleted.partition_count, deleted.deleted_ms, deleted.number)
    return in_newest_version(DeletedTopicKey(deleted.id)), in_newest_version(value)


def _last_deletion(number: int) -> Fact:
    return in_newest_version(DeletionNumberKey(0)), in_newest_version(DeletionNumberValue(number))
