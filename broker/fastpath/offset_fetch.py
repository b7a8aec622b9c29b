"""Fast path of OffsetFetch: a repeated request gets the cached reply while the offsets of its group are unchanged.

Monitoring tools send the same request all day.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from broker.fastpath.learning import LearnedFastPath
from broker.groups.group_journal import GroupJournal
from broker.groups.offset_replies import FETCH_FLEXIBLE_FROM, PARTITION_BYTES_MIN, OffsetFetchReply, RequestedTopic, read_topics
from broker.net.connection import KIND_BYTES, NOT_MINE, REST_AT, Connection
from broker.net.dispatch import Call
from broker.security.authorizer import Authorizer
from coordinator.classic.group import Group
from protocol.errors import ErrorCode

# Larger requests, and requests with larger replies, get no fast path.
FETCH_BYTES_MAX: Final = 4_096

_SIZE: Final = Struct(">i").pack
# The approximate memory of the objects: of one fast path, and in addition of each partition.
_COST: Final = 1_000
_COST_OF_PARTITION: Final = 80


class OffsetFetchFastPath(LearnedFastPath):
    """Answers fetches with the same bytes."""

    __slots__ = ("_authorizer", "_encoded_version", "_group_id", "_journal", "_repeated_bytes", "_reply_end", "_reply_size", "_topics", "_version")

    def __init__(
        self, call: Call, group_id: str, topics: Sequence[RequestedTopic] | None, journal: GroupJournal, authorizer: Authorizer
    ) -> None:
        self._repeated_bytes = call.after_correlation_id
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
        if group is None or ((group.newest_undecoded is not None or group.offsets_version is not self._encoded_version) and not self._encode(group)):
            return NOT_MINE
        return self._reply_size + data[KIND_BYTES:REST_AT] + self._reply_end

    def _encode(self, group: Group) -> bool:
        """Encode the group's present offsets; False: the reply is too large."""
        if self._topics is None and sum([len(stored.values) for stored in group.offsets.values()]) * PARTITION_BYTES_MIN > FETCH_BYTES_MAX:
            return False
        reply = OffsetFetchReply([(self._group_id, read_topics(group.offsets, self._topics), ErrorCode.NONE)])
        body = reply.encode(self._version)
        if len(body) > FETCH_BYTES_MAX:
            return False
        self._reply_end = b"\0" + body if self._version >= FETCH_FLEXIBLE_FROM else body
        self._reply_size = _SIZE(4 + len(self._reply_end))
        self._encoded_version = group.offsets_version
        return True
