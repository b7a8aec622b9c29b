"""Fast paths of JoinGroup and SyncGroup: a member sends the same bytes at every rebalance.

Only the correlation id differs, and in a SyncGroup the generation. Such a request is not decoded, and its group decides as on the
usual path. The fast path also receives the parked reply, since a connection processes one request at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Any, Final

from broker.fastpath.learning import LearnedFastPath
from broker.groups.group_journal import GroupJournal
from broker.groups.member_replies import join_end, join_front, sync_end, sync_front
from broker.net.connection import ANSWERED_LATER, KIND_BYTES, NOT_MINE, REST_AT, Connection
from broker.net.dispatch import Call
from broker.runtime.clock import Clock
from broker.security.authorizer import Authorizer
from coordinator import JoinReply, JoinRequest, Shard, SyncReply, SyncRequest
from coordinator.calls import JoinedMember
from protocol.errors import ErrorCode
from protocol.messages.sync_group import SyncGroupRequest
from protocol.wire import put_compact_text, put_legacy_text

# Larger requests get no fast path. Requests with more elements get none either: their objects take more memory than their bytes.
JOIN_BYTES_MAX: Final = 2_048
SYNC_BYTES_MAX: Final = 4_096
ELEMENTS_MAX: Final = 32
# Longer ends of replies are not cached.
END_BYTES_MAX: Final = 4_096
# The approximate memory of the objects: of one fast path, and in addition of each protocol or assignment.
_COST: Final = 1_200
_COST_OF_ELEMENT: Final = 200

_GENERATION_BYTES: Final = 4
_REPLY: Final = Struct(">i4s").pack
_client_id_bytes: Final = Struct(">h").unpack_from


def generation_position(data: bytes, group_id: str, version: int) -> int:
    """The position of the generation in `data`, a SyncGroup after its correlation id; 0 if the header is unusual."""
    parts: list[bytes] = []
    flexible = version >= SyncGroupRequest.FLEXIBLE_FROM
    (put_compact_text if flexible else put_legacy_text)(parts, group_id)
    name = b"".join(parts)
    (client_id_bytes,) = _client_id_bytes(data)
    at = 2 + max(client_id_bytes, 0)
    if flexible:
        name = b"\0" + name  # no tagged fields in the header
    return at + len(name) if data.startswith(name, at) else 0


@lru_cache(256)
def _splitter(head_bytes: int, tail_bytes: int) -> Callable[[bytes], tuple[Any, ...]]:
    """Make a function that splits a SyncGroup into correlation id, the bytes before the generation, the generation, and the bytes after it."""
    return Struct(f">8x4s{head_bytes}si{tail_bytes}s").unpack


class MemberFastPath(LearnedFastPath):
    """Passes a member's repeated request to its shard, and receives the parked reply. `connection` is set until the reply is sent."""

    __slots__ = ("authorizer", "clock", "connection", "correlation_id", "journal", "version")
    api = ""

    def __init__(self, call: Call, journal: GroupJournal, authorizer: Authorizer, clock: Clock, elements: int) -> None:
        super().__init__(_COST + 2 * call.size + elements * _COST_OF_ELEMENT)
        self.authorizer = authorizer
        self.clock = clock
        self.journal = journal
        self.version = call.version
        self.connection: Connection | None
        self.correlation_id = b""

    def error_reply(self, error: int) -> bytes:
        raise NotImplementedError

    def build_reply(self, front: bytes, end: bytes) -> bytes:
        return _REPLY(4 + len(front) + len(end), self.correlation_id) + front + end

    def fail(self, error: int) -> None:
        connection = self.connection
        if connection is not None:
            reply = self.error_reply(error)
            self.connection = None
            connection.send(reply)

    def call_shard(self, shard: Shard, now: int, wall: int) -> None:
        """Run the shard's step for the request; this object is the reply that the step releases or parks."""
        raise NotImplementedError

    def run_step(self, connection: Connection, correlation_id: bytes) -> bytes:
        self.connection = connection
        self.correlation_id = correlation_id
        connection.busy = True
        journal = self.journal
        self.call_shard(journal.shard, self.clock.now, self.clock.wall)
        journal.schedule_after_step()
        return ANSWERED_LATER

    def failed(self, connection: Connection, data: bytes) -> bool:
        if self.correlation_id != data[KIND_BYTES:REST_AT]:
            return True  # the step has not begun
        unanswered = self.connection is not None
        self.journal.step_failed(self)
        return unanswered

    def discard(self) -> None:
        self.connection = None


class JoinFastPath(MemberFastPath):
    """A JoinGroup of a known member. The replies to the followers of one generation differ only in the member id."""

    __slots__ = ("_follower_end", "_last_members", "_leader_end", "_repeated_bytes", "_request", "member_id", "reply")
    api = "JoinGroup"

    def __init__(self, call: Call, journal: GroupJournal, authorizer: Authorizer, clock: Clock, request: JoinRequest) -> None:
        super().__init__(call, journal, authorizer, clock, len(request.protocols))
        self._request = request
        self._repeated_bytes = call.after_correlation_id
        self._follower_end = join_end(request.member_id, (), call.version)
        self._leader_end: bytes  # the end of the last reply to this member as leader, unless that reply was long
        self._last_members: list[JoinedMember] = []
        self.member_id: str
        self.reply: JoinReply | None

    def answer(self, connection: Connection, data: bytes) -> bytes | None:
        journal = self.journal
        if data[REST_AT:] != self._repeated_bytes or journal.refusal or not self.authorizer.allows_all:
            return NOT_MINE
        return self.run_step(connection, data[KIND_BYTES:REST_AT])

    def call_shard(self, shard: Shard, now: int, wall: int) -> None:
        shard.join(self._request, self, now, wall)

    def release(self) -> None:
        connection = self.connection
        reply = self.reply
        if connection is None or reply is None:
            return
        end = self._reply_end(reply) if reply.error or reply.members else self._follower_end
        if reply.error == ErrorCode.FENCED_INSTANCE_ID:
            join = self._request
            self.journal.fenced_lines.add(self.journal, self.api, join.group_id, join.member_id, join.instance_id, connection.peer)
        self.connection = None
        connection.send(self.build_reply(join_front(reply, self.version), end))

    def _reply_end(self, reply: JoinReply) -> bytes:
        if reply.error or self.member_id != self._request.member_id:
            return join_end(self.member_id, reply.members, self.version)
        if self._last_members == reply.members:
            return self._leader_end
        end = join_end(self.member_id, reply.members, self.version)
        if len(end) <= END_BYTES_MAX:
            self._leader_end, self._last_members = end, list(reply.members)
        return end

    def error_reply(self, error: int) -> bytes:
        return self.build_reply(join_front(JoinReply(error), self.version), join_end("", (), self.version))


class SyncFastPath(MemberFastPath):
    """A SyncGroup of a member that rejoins: a follower, or a leader that sends the same assignments each time."""

    __slots__ = ("_end", "_head", "_last_assignment", "_last_reply", "_request", "_size_bytes", "_split", "_tail", "assignment", "reply")
    api = "SyncGroup"

    def __init__(
        self, call: Call, journal: GroupJournal, authorizer: Authorizer, clock: Clock, request: SyncRequest, position: int
    ) -> None:
        """`position`: the generation's position (`generation_position`)."""
        super().__init__(call, journal, authorizer, clock, len(request.assignments))
        self._request = request
        data = call.after_correlation_id
        self._head = data[:position]
        self._tail = data[position + _GENERATION_BYTES :]
        self._split = _splitter(len(self._head), len(self._tail))
        # The last reply, and its bytes around the correlation id.
        self._last_reply: SyncReply | None = None
        self._last_assignment: bytes
        self._size_bytes: bytes
        self._end: bytes
        self.assignment: bytes
        self.reply: SyncReply | None

    def answer(self, connection: Connection, data: bytes) -> bytes | None:
        try:
            correlation_id, head, generation, tail = self._split(data)
        except struct.error:
            return NOT_MINE  # a different length
        journal = self.journal
        if head != self._head or tail != self._tail or journal.refusal or not self.authorizer.allows_all:
            return NOT_MINE
        self._request.generation = generation
        return self.run_step(connection, correlation_id)

    def call_shard(self, shard: Shard, now: int, wall: int) -> None:
        shard.sync(self._request, self, now, wall)

    def release(self) -> None:
        connection = self.connection
        reply = self.reply
        if connection is None or reply is None:
            return
        if reply is self._last_reply and self.assignment is self._last_assignment:
            data = self._size_bytes + self.correlation_id + self._end
        else:
            data = self._encode(reply)
        if reply.error == ErrorCode.FENCED_INSTANCE_ID:
            sync = self._request
            self.journal.fenced_lines.add(self.journal, self.api, sync.group_id, sync.member_id, sync.instance_id, connection.peer)
        self.connection = None
        connection.send(data)

    def _encode(self, reply: SyncReply) -> bytes:
        data = self.build_reply(sync_front(reply, self.version), sync_end(self.assignment, self.version))
        if len(data) <= END_BYTES_MAX:
            self._last_reply, self._last_assignment = reply, self.assignment
            self._size_bytes, self._end = data[:4], data[8:]
        return data

    def error_reply(self, error: int) -> bytes:
        return self.build_reply(sync_front(SyncReply(error), self.version), sync_end(b"", self.version))
