"""Fast path of OffsetCommit: a commit that differs from an earlier one only in its offsets is stored without being decoded.

A consumer commits the same partitions for hours. One comparison covers all other bytes of the request. The positions of the
offsets are found by encoding the request twice, with different offsets, so this module does not depend on the request's format.
`coordinator.repeats` encodes the records once, except for offsets and time. The reply is always the same.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from broker.fastpath.learning import LearnedFastPath
from broker.groups.group_journal import GroupJournal
from broker.net.connection import ANSWERED_LATER, KIND_BYTES, NOT_MINE, REST_AT, Connection
from broker.net.dispatch import Call
from broker.runtime.clock import Clock
from broker.security.authorizer import Authorizer
from broker.topics.registry import TopicRegistry
from coordinator import Commit
from coordinator.repeats import FALLBACK, RepeatedCommit
from protocol.batch_writing import CUT_BYTES as OFFSET_BYTES
from protocol.messages.offset_commit import OffsetCommitRequest

# Larger commits get no fast path.
COMMIT_BYTES_MAX: Final = 4_096

_READ_CORRELATION_ID: Final = Struct(">i").unpack_from
_ANY_OFFSET: Final = b"\xff" * OFFSET_BYTES
# The approximate memory of the objects: of one fast path, and in addition of each partition (without its key).
_COST: Final = 1_800
_COST_OF_PARTITION: Final = 200


class CommitLayout(NamedTuple):
    """An encoded commit and the positions of its offsets. `constant_parts` unpacks all that follows the correlation id, except the offsets."""

    frame: bytes
    body_at: int
    offset_positions: list[int]
    constant_parts: Struct


def commit_layout(frame: bytes, request: OffsetCommitRequest, version: int) -> CommitLayout | None:
    """Find the offsets in the request's bytes; None if the client encodes the request differently from our encoder."""
    partitions = [partition for topic in request.topics for partition in topic.partitions]
    body = request.encode(version)
    if not frame.endswith(body):
        return None
    size = len(body)
    offsets = [partition.committed_offset for partition in partitions]
    bodies = []
    for any_offset in (0, -1):
        for partition in partitions:
            partition.committed_offset = any_offset
        bodies.append(request.encode(version))
    for partition, offset in zip(partitions, offsets, strict=True):
        partition.committed_offset = offset
    body_at = len(frame) - size
    differing = (int.from_bytes(bodies[0], "big") ^ int.from_bytes(bodies[1], "big")).to_bytes(size, "big")
    layout, end = f"{REST_AT}x", REST_AT
    positions = []
    at = differing.find(_ANY_OFFSET)
    while at >= 0:
        position = body_at + at
        positions.append(position)
        layout += f"{position - end}s{OFFSET_BYTES}x"
        end = position + OFFSET_BYTES
        at = differing.find(_ANY_OFFSET, at + OFFSET_BYTES)
    return CommitLayout(frame, body_at, positions, _struct(f"{layout}{len(frame) - end}s"))


@lru_cache(256)
def _struct(layout: str) -> Struct:
    return Struct(layout)


class CommitFastPath(LearnedFastPath):
    """Stores a repeated commit. The fast path is also that commit's held reply, since a connection processes one request at a time."""

    __slots__ = (
        "_authorizer",
        "_body_at",
        "_clock",
        "_commit",
        "_constant_parts",
        "_frame",
        "_journal",
        "_registry",
        "_reply_end",
        "_reply_size",
        "_route",
        "_topics",
        "_topics_version",
        "_unpack",
        "_version",
        "connection",
    )

    def __init__(
        self,
        call: Call,
        layout: CommitLayout,
        commit: Commit,
        reply: bytes,
        journal: GroupJournal,
        registry: TopicRegistry,
        authorizer: Authorizer,
        clock: Clock,
    ) -> None:
        """`call` was answered by `reply`: all its offsets are stored."""
        size = len(layout.frame)
        self._unpack = layout.constant_parts.unpack
        self._constant_parts = self._unpack(layout.frame)  # without the first KIND_BYTES, by which the connection found this fast path, and the correlation id
        self._frame = b""  # the newest request
        self._body_at = layout.body_at
        self._commit = RepeatedCommit(commit, layout.offset_positions, size)
        self._reply_size = reply[:4]
        self._reply_end = reply[8:]  # after the correlation id
        self._journal = journal
        self._registry = registry
        self._topics_version = registry.version
        self._topics = [(name, registry.by_name[name]) for name, _ in commit.topics]
        self._authorizer = authorizer
        self._clock = clock
        self._route = call.route
        self._version = call.version
        self.connection: Connection = call.connection
        super().__init__(_COST + 4 * size + self._commit.size + _COST_OF_PARTITION * self._commit.records)

    def answer(self, connection: Connection, data: bytes) -> bytes | None:
        unpack = self._unpack
        try:
            if unpack(data) != self._constant_parts:
                return NOT_MINE
        except struct.error:
            return NOT_MINE  # a different length
        journal = self._journal
        if journal.refusal or not self._authorizer.allows_all:
            return NOT_MINE
        if self._registry.version is not self._topics_version and not self._topics_are_unchanged():
            return NOT_MINE
        self._frame = data
        connection.busy = True
        clock = self._clock
        step = self._commit.try_accept(journal.shard, data, self, clock.now, clock.wall)
        if step:  # most commits join a batch and need no `schedule_after_step`
            if step == FALLBACK:
                connection.busy = False
                return NOT_MINE
            journal.schedule_after_step()
        return ANSWERED_LATER

    def failed(self, connection: Connection, data: bytes) -> bool:
        if self._frame is not data:
            return True  # the step has not begun
        self._journal.step_failed()
        return connection.busy  # not if the step had held the reply

    def close(self) -> None:
        self._commit.close()

    def _topics_are_unchanged(self) -> bool:
        """Whether none of the commit's topics was changed, deleted, or recreated with the same name."""
        by_name = self._registry.by_name
        for name, topic in self._topics:
            if by_name.get(name) is not topic:
                return False
        self._topics_version = self._registry.version
        return True

    # As a held reply.

    def release(self) -> None:
        self.connection.send(self._reply_size + self._frame[KIND_BYTES:REST_AT] + self._reply_end)

    def fail(self, error: int) -> None:
        """Decode the request and refuse it as on the usual path."""
        data = self._frame
        route = self._route
        request, _ = route.decode(data, self._body_at, self._version)
        (correlation_id,) = _READ_CORRELATION_ID(data, KIND_BYTES)
        Call(self.connection, route, self._version, correlation_id, request, data).fail(error)
