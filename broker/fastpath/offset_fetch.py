"""An OffsetFetch that comes again gets the bytes that it got before, as long as the offsets of its group are the same.

Tools that watch groups ask so all day. Whether the group may be asked is asked anew each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from broker.groups.group_journal import GroupJournal
from broker.groups.offset_replies import FETCH_FLEXIBLE, Fetched, Wanted, read_topics
from broker.net.connection import KIND_BYTES, REST_AT, Connection
from broker.net.dispatch import Call
from broker.security.authorizer import Authorizer
from coordinator.group import Group
from protocol.errors import ErrorCode

# What is kept of a fetch has a bound, the request's and the reply's: larger ones are answered anew each time.
FETCH_BYTES_MAX: Final = 4_096

_SIZE: Final = Struct(">i").pack
# What Python takes for it, about: of the whole, and for each partition.
_COST: Final = 1_000
_COST_OF_PARTITION: Final = 80


class FetchAgain:
    """Answers a fetch of the same bytes."""

    __slots__ = ("_authorizer", "_body", "_front", "_group_id", "_journal", "_mark", "_rest", "_version", "_wanted", "cost")

    def __init__(self, call: Call, group_id: str, wanted: Sequence[Wanted] | None, journal: GroupJournal, authorizer: Authorizer) -> None:
        self._rest = call.rest
        self._version = call.version
        self._group_id = group_id
        self._wanted = wanted
        self._journal = journal
        self._authorizer = authorizer
        self._mark: object = None  # of the offsets when they were read
        self._front: bytes  # what stands before the correlation id, and behind it
        self._body: bytes
        partitions = sum([len(topic.partition_indexes) for topic in wanted or ()])
        self.cost = _COST + 2 * len(self._rest) + _COST_OF_PARTITION * partitions + FETCH_BYTES_MAX

    def forgotten(self) -> None: ...

    def answer(self, connection: Connection, data: bytes) -> bytes | None:
        """None where it is another fetch, or has to wait, or is refused."""
        if data[REST_AT:] != self._rest:
            return None
        journal = self._journal
        shard = journal.shard
        hold = shard.hold
        if journal.refusal or hold.durable != hold.emitted or not self._authorizer.open:
            return None
        group = shard.groups.get(self._group_id)
        if group is None or ((group.newest is not None or group.offsets_mark is not self._mark) and not self._read(group)):
            return None
        return self._front + data[KIND_BYTES:REST_AT] + self._body

    def _read(self, group: Group) -> bool:
        """The offsets have changed since, or were never read."""
        reply = Fetched([(self._group_id, read_topics(group.offsets, self._wanted), ErrorCode.NONE)])
        body = reply.encode(self._version)
        if len(body) > FETCH_BYTES_MAX:
            return False
        self._body = b"\0" + body if self._version >= FETCH_FLEXIBLE else body
        self._front = _SIZE(4 + len(self._body))
        self._mark = group.offsets_mark
        return True
