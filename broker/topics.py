"""The registry of topics: their ids, partitions and settings, kept as facts in a compacted internal log.

It is a shard like any other: memory changes at once, facts go to the log, replies wait for them (`coordinator.hold`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from coordinator import Fact, Hold
from protocol.messages.topics_registry import TopicKey, TopicSetting, TopicValue
from protocol.records import read_record, with_version

CONSUMER_OFFSETS = "__consumer_offsets"
# Where the registry itself lives; not a topic that anybody may list or read.
REGISTRY_LOG = "__tenure_topics"
# What happened to groups, for people.
NOTES_LOG = "__coordinator_notes"
# Folders of these names are logs of ours: a topic of such a name would share one with them.
RESERVED_NAMES = (REGISTRY_LOG, NOTES_LOG)
NO_ID = bytes(16)

NAME_CHARACTERS_MAX = 249
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: bytes
    partitions: int
    created_ms: int
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def internal(self) -> bool:
        return self.name == CONSUMER_OFFSETS


def name_problem(name: str) -> str | None:
    """Why Kafka would not have a topic of this name, or None."""
    if not name:
        return "the empty string is not allowed"
    if name in RESERVED_NAMES:
        return f"'{name}' is kept for the broker itself"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > NAME_CHARACTERS_MAX:
        return f"the length of '{name}' is longer than the max allowed length {NAME_CHARACTERS_MAX}"
    if not _NAME_CHARACTERS.issuperset(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


class Topics:
    """All topics by name and by id; `hold` keeps what is on its way to the log."""

    def __init__(self, new_id: Callable[[], bytes]) -> None:
        self.hold = Hold()
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self.partitions = 0
        # Metric names fold '.' and '_' together, so Kafka refuses a name that differs from another in these alone.
        self._folded: dict[str, str] = {}
        self._new_id = new_id

    def clear(self) -> None:
        self.hold = Hold()
        self.by_name.clear()
        self.by_id.clear()
        self._folded.clear()
        self.partitions = 0

    def colliding(self, name: str) -> str | None:
        """The existing topic whose name differs from `name` only in '.' and '_', if there is one."""
        other = self._folded.get(name.replace(".", "_"))
        return other if other is not None and other != name else None

    def create(self, name: str, partitions: int, settings: dict[str, str], now: int) -> Topic:
        """The new topic; its name was found good and free."""
        topic = Topic(name, self._new_id(), partitions, now, settings)
        self._put(topic)
        self.hold.emit([_fact(topic)])
        return topic

    def replay(self, facts: Iterable[Fact]) -> None:
        """Fold stored facts into the registry: the last one of each name stands."""
        for key, value in facts:
            name = read_record(TopicKey, key).name
            if value is None:
                self._drop(name)
            else:
                stored = read_record(TopicValue, value)
                self._put(
                    Topic(
                        name,
                        stored.topic_id,
                        stored.partitions,
                        stored.created_ms,
                        {setting.name: setting.value for setting in stored.settings if setting.value is not None},
                    )
                )

    def _put(self, topic: Topic) -> None:
        self._drop(topic.name)
        self.by_name[topic.name] = topic
        self.by_id[topic.id] = topic
        self._folded[topic.name.replace(".", "_")] = topic.name
        self.partitions += topic.partitions

    def _drop(self, name: str) -> None:
        topic = self.by_name.pop(name, None)
        if topic is not None:
            del self.by_id[topic.id]
            self._folded.pop(name.replace(".", "_"), None)
            self.partitions -= topic.partitions


def _fact(topic: Topic) -> Fact:
    settings = [TopicSetting(name, value) for name, value in topic.settings.items()]
    value = TopicValue(topic.id, topic.partitions, topic.created_ms, settings)
    return with_version(TopicKey(topic.name), 0), with_version(value, 0)
