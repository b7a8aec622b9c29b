"""Fast path of OffsetFetch: a repeated request gets the same reply while the offsets of its group are unchanged.

Tools that monitor groups send the same request all day.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from broker.fastpath.learning import Learned
from broker.groups.group_journal import GroupJournal
from broker.groups.offset_replies import FETCH_FLEXIBLE, Fetched, Wanted, read_topics
from broker.net.connection import KIND_BYTES, REST_AT, Connection
from broker.net.dispatch import Call
from broker.security.authorizer import Authorizer
from coordinator.group import Group
from protocol.errors import ErrorCode

# Larger requests, and requests with larger replies, get no fast path.
FETCH_BYTES_MAX: Final = 4_096

_SIZE: Final = Struct(">i").pack
# About what the objects take in memory: in all, and for each partition.
_COST: Final = 1_000
_COST_OF_PARTITION: Final = 80


class OffsetFetchFastPath(Learned):
    """Answers a fetch of the same bytes."""

    __slots__ = ("_authorizer", "_body", "_front", "_group_id", "_journal", "_mark", "_rest", "_version", "_wanted")

    def __init__(self, call: Call, group_id: str, wanted: Sequence[Wanted] | None, journal: GroupJournal, authorizer: Authorizer) -> None:
        self._rest = call.after_correlation_id
        self._version = call.version
        self._group_id = group_id
        self._wanted = wanted
        self._journal = journal
        self._authorizer = authorizer
        self._mark: object = None  # of the offsets when they were read
        self._front: bytes  # the reply before the correlation id, and after it
        self._body: bytes
        partitions = sum([len(topic.partition_indexes) for topic in wanted or ()])
        super().__init__(_COST + 2 * len(self._rest) + _COST_OF_PARTITION * partitions + FETCH_BYTES_MAX)

    def answer(self, connection: Connection, data: bytes) -> bytes | None:
        if data[REST_AT:] != self._rest:
            return None
        journal = self._journal
        if not self._authorizer.open or not journal.answers_at_once():
            return None
        group = journal.shard.groups.get(self._group_id)
        if group is None or ((group.newest is not None or group.offsets_mark is not self._mark) and not self._read(group)):
            return None
        return self._front + data[KIND_BYTES:REST_AT] + self._body

    def _read(self, group: Group) -> bool:
        """Encode the offsets as they are now; False: the reply is too large."""
        reply = Fetched([(self._group_id, read_topics(group.offsets, self._wanted), ErrorCode.NONE)])
        body = reply.encode(self._version)
        if len(body) > FETCH_BYTES_MAX:
            return False
        self._body = b"\0" + body if self._version >= FETCH_FLEXIBLE else body
        self._front = _SIZE(4 + len(self._body))
        self._mark = group.offsets_mark
        return True
