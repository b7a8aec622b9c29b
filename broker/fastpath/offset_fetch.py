"""Fast path of OffsetFetch: a repeated request gets the cached reply while the offsets of its group are unchanged.

Monitoring tools send the same request all day.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from broker.fastpath.learning import LearnedFastPath
from broker.groups.group_journal import GroupJournal
from broker.groups.offset_replies import (
    FETCH_FLEXIBLE_FROM,
    FETCH_TOPIC_IDS_FROM,
    PARTITION_BYTES_MIN,
    FetchedTopic,
    OffsetFetchReply,
    TopicKey,
    read_topic,
    read_whole_topic,
    without_offsets,
)
from broker.net.connection import KIND_BYTES, NOT_MINE, REST_AT, Connection
from broker.net.dispatch import Call
from broker.security.authorizer import Authorizer
from broker.topics.registry import TopicRegistry
from coordinator.classic.group import Group
from coordinator.committed import TopicOffsets
from protocol.errors import ErrorCode
from protocol.messages.offset_fetch import OffsetFetchRequestTopic, OffsetFetchRequestTopics

# Larger requests, and requests with larger replies, get no fast path.
FETCH_BYTES_MAX: Final = 4_096

_SIZE: Final = Struct(">i").pack
# The approximate memory of the objects: of one fast path, and in addition of each partition.
_COST: Final = 1_000
_COST_OF_PARTITION: Final = 80


RequestedTopic = OffsetFetchRequestTopic | OffsetFetchRequestTopics


def topic_ids(registry: TopicRegistry, version: int) -> TopicRegistry | None:
    """Where to look up the topics of a request that names them by id; None: it names them by name."""
    return registry if version >= FETCH_TOPIC_IDS_FROM else None


def key_and_name(topic: RequestedTopic, ids: TopicRegistry | None) -> tuple[TopicKey, str | None]:
    """How the request names a topic, and the topic's name; None: there is no topic with its id."""
    if ids is not None and isinstance(topic, OffsetFetchRequestTopics):
        return topic.topic_id, ids.name_of(topic.topic_id)
    return topic.name, topic.name


class OffsetFetchFastPath(LearnedFastPath):
    """Answers fetches with the same bytes."""

    __slots__ = ("_authorizer", "_encoded_ids", "_encoded_version", "_group_id", "_ids", "_journal", "_repeated_bytes", "_reply_end", "_reply_size", "_topics",
                 "_version")  # fmt: skip

    def __init__(
        self, call: Call, group_id: str, topics: Sequence[RequestedTopic] | None, journal: GroupJournal, authorizer: Authorizer, registry: TopicRegistry
    ) -> None:
        self._repeated_bytes = call.after_correlation_id
        self._ids = topic_ids(registry, call.version)
        self._encoded_ids: object = None  # `TopicRegistry.version` when the topics were looked up
        self._version = call.version
        self._group_id = group_id
        self._topics = topics
        self._journal = journal
        self._authorizer = authorizer
        self._encoded_version: object = None  # `Group.offsets_version` when the offsets were encoded
        self._reply_size: bytes
        self._reply_end: bytes  # after the correlation id
        partitions = sum([len(topic.partition_indexes) for topic in topics or ()])
        super().__init__(_COST + 2 * len(self._repeated_bytes) + _COST_OF_PARTITION * partitions + FETCH_BYTES_MAX)

    def answer(self, connection: Connection, data: bytes) -> bytes | None:
        if data[REST_AT:] != self._repeated_bytes:
            return NOT_MINE
        journal = self._journal
        if not self._authorizer.allows_all or not journal.answers_at_once or journal.queued_deletions:
            return NOT_MINE
        group = journal.shard.groups.get(self._group_id)
        if self._ids is not None and self._ids.version is not self._encoded_ids:
            self._encoded_version = None
        if group is None or ((group.newest_undecoded is not None or group.offsets_version is not self._encoded_version) and not self._encode(group)):
            return NOT_MINE
        return self._reply_size + data[KIND_BYTES:REST_AT] + self._reply_end

    def _encode(self, group: Group) -> bool:
        """Encode the group's present offsets; False: the reply is too large."""
        if self._topics is None and sum([len(stored.values) for stored in group.offsets.values()]) * PARTITION_BYTES_MIN > FETCH_BYTES_MAX:
            return False
        reply = OffsetFetchReply([(self._group_id, self._read(group.offsets), ErrorCode.NONE)])
        body = reply.encode(self._version)
        if len(body) > FETCH_BYTES_MAX:
            return False
        self._reply_end = b"\0" + body if self._version >= FETCH_FLEXIBLE_FROM else body
        self._reply_size = _SIZE(4 + len(self._reply_end))
        self._encoded_version = group.offsets_version
        self._encoded_ids = self._ids.version if self._ids is not None else None
        return True

    def _read(self, offsets: dict[str, TopicOffsets]) -> list[FetchedTopic]:
        """As the usual path."""
        ids = self._ids
        if self._topics is None:
            keys = [(name if ids is None else ids.id_of(name), stored) for name, stored in offsets.items()]
            return [read_whole_topic(key, stored) for key, stored in keys if key is not None]
        fetched: list[FetchedTopic] = []
        unknown: list[FetchedTopic] = []
        for topic in self._topics:
            key, name = key_and_name(topic, ids)
            if name is None:
                unknown.append(without_offsets(key, topic.partition_indexes, ErrorCode.UNKNOWN_TOPIC_ID))
            else:
                fetched.append(read_topic(key, offsets.get(name), topic.partition_indexes))
        return fetched + unknown
