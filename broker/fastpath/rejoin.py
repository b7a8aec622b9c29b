"""Fast paths of JoinGroup and SyncGroup: a member sends the same bytes at every rebalance.

Only the correlation id differs, and in a SyncGroup the generation. Such a request is not decoded again, and its group decides
as on the usual way. The fast path is its own waiter, since a connection works one request at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Any, Final

from broker.groups.group_journal import GroupJournal
from broker.groups.member_replies import join_end, join_front, sync_end, sync_front
from broker.net.connection import KIND_BYTES, REST_AT, Connection, FastPath
from broker.net.dispatch import Call
from broker.runtime.clock import Clock
from broker.runtime.contain import defect
from broker.security.authorizer import Authorizer
from coordinator import JoinReply, JoinRequest, SyncReply, SyncRequest
from coordinator.calls import JoinedMember
from protocol.errors import ErrorCode
from protocol.messages.sync_group import SyncGroupRequest
from protocol.wire import put_compact_text, put_legacy_text

# Larger requests get no fast path, nor do those with more elements, whose objects take more memory than their bytes.
JOIN_BYTES_MAX: Final = 2_048
SYNC_BYTES_MAX: Final = 4_096
ELEMENTS_MAX: Final = 32
# The longest end of a reply that is kept.
END_BYTES_MAX: Final = 4_096
# About what the objects take in memory: in all, and for each protocol or assignment.
_COST: Final = 1_200
_COST_OF_ELEMENT: Final = 200

_GENERATION_BYTES: Final = 4
_REPLY: Final = Struct(">i4s").pack
_client_id_bytes: Final = Struct(">h").unpack_from


def generation_at(rest: bytes, group_id: str, version: int) -> int:
    """The position of the generation behind the correlation id of a SyncGroup; 0 if the header is unusual."""
    before: list[bytes] = []
    flexible = version >= SyncGroupRequest.FLEXIBLE_FROM
    (put_compact_text if flexible else put_legacy_text)(before, group_id)
    name = b"".join(before)
    (client_id_bytes,) = _client_id_bytes(rest)
    at = 2 + max(client_id_bytes, 0)
    if flexible:
        name = b"\0" + name  # no tagged fields in the header
    return at + len(name) if rest.startswith(name, at) else 0


@lru_cache(256)
def _cutter(before: int, behind: int) -> Callable[[bytes], tuple[Any, ...]]:
    """Cut a SyncGroup into correlation id, the bytes before the generation, the generation, and the bytes after it."""
    return Struct(f">8x4s{before}si{behind}s").unpack


class MemberFastPath(FastPath):
    """The common part of both. `connection` is set while a request has no reply yet."""

    __slots__ = ("_answered", "authorizer", "clock", "connection", "correlation_id", "journal", "version")
    api = ""

    def __init__(self, call: Call, journal: GroupJournal, authorizer: Authorizer, clock: Clock, elements: int) -> None:
        super().__init__(_COST + 2 * call.size + elements * _COST_OF_ELEMENT)
        self.authorizer = authorizer
        self.clock = clock
        self.journal = journal
        self.version = call.version
        self.connection: Connection | None
        self.correlation_id: bytes
        self._answered: bool  # before the step ended in an exception

    def refused(self, error: int) -> bytes:
        raise NotImplementedError

    def reply_of(self, front: bytes, end: bytes) -> bytes:
        return _REPLY(4 + len(front) + len(end), self.correlation_id) + front + end

    def fail(self, error: int) -> None:
        connection = self.connection
        if connection is not None:
            refused = self.refused(error)
            self.connection = None
            connection.send(refused)

    def ask(self, connection: Connection, correlation_id: bytes, step: Callable[[Any, Any, int, int], None], request: Any) -> bytes:
        """Let the shard take one step with this object as the waiter of its reply."""
        self.connection = connection
        self.correlation_id = correlation_id
        self._answered = False
        connection.busy = True
        try:
            self.journal.park(step, request, self, self.clock.now, self.clock.wall)
        except Exception as error:
            defect("a request failed inside the broker", error, api=self.api, version=self.version)
            connection.drop_fast_paths()
            if not self._answered:
                connection.busy = False
                return self.refused(ErrorCode.UNKNOWN_SERVER_ERROR)
        return b""

    def void(self) -> None:
        """The step ended in an exception: a reply that the shard still makes is dropped."""
        self._answered = self.connection is None
        self.connection = None


class JoinFastPath(MemberFastPath):
    """A JoinGroup of a known member. For a follower only its id differs in the reply."""

    __slots__ = ("_as_follower", "_as_leader", "_last_members", "_request", "_rest", "member_id", "reply")
    api = "JoinGroup"

    def __init__(self, call: Call, journal: GroupJournal, authorizer: Authorizer, clock: Clock, request: JoinRequest) -> None:
        super().__init__(call, journal, authorizer, clock, len(request.protocols))
        self._request = request
        self._rest = call.after_correlation_id
        self._as_follower = join_end(request.member_id, (), call.version)
        self._as_leader: bytes  # the end of its last reply as leader, and the members in it, unless that was long
        self._last_members: list[JoinedMember] = []
        self.member_id: str
        self.reply: JoinReply | None

    def answer(self, connection: Connection, data: bytes) -> bytes | None:
        journal = self.journal
        if data[REST_AT:] != self._rest or journal.refusal or not self.authorizer.open:
            return None
        return self.ask(connection, data[KIND_BYTES:REST_AT], journal.shard.join, self._request)

    def release(self) -> None:
        connection = self.connection
        reply = self.reply
        if connection is None or reply is None:
            return
        end = self._reply_end(reply) if reply.error or reply.members else self._as_follower
        self.connection = None
        connection.send(self.reply_of(join_front(reply, self.version), end))

    def _reply_end(self, reply: JoinReply) -> bytes:
        if reply.error or self.member_id != self._request.member_id:
            return join_end(self.member_id, reply.members, self.version)
        if self._last_members == reply.members:
            return self._as_leader
        end = join_end(self.member_id, reply.members, self.version)
        if len(end) <= END_BYTES_MAX:
            self._as_leader, self._last_members = end, list(reply.members)
        return end

    def refused(self, error: int) -> bytes:
        return self.reply_of(join_front(JoinReply(error), self.version), join_end("", (), self.version))


class SyncFastPath(MemberFastPath):
    """A SyncGroup of a member that has rejoined, also of a leader that sends the same assignments each time."""

    __slots__ = ("_assigned", "_before", "_behind", "_cut", "_end", "_last_reply", "_request", "_size_bytes", "assignment", "reply")
    api = "SyncGroup"

    def __init__(
        self, call: Call, journal: GroupJournal, authorizer: Authorizer, clock: Clock, request: SyncRequest, generation_at: int
    ) -> None:
        """`generation_at`: where in the bytes behind the correlation id."""
        super().__init__(call, journal, authorizer, clock, len(request.assignments))
        self._request = request
        rest = call.after_correlation_id
        self._before = rest[:generation_at]
        self._behind = rest[generation_at + _GENERATION_BYTES :]
        self._cut = _cutter(len(self._before), len(self._behind))
        # The last reply, and its bytes around the correlation id.
        self._last_reply: SyncReply | None = None
        self._assigned: bytes
        self._size_bytes: bytes
        self._end: bytes
        self.assignment: bytes
        self.reply: SyncReply | None

    def answer(self, connection: Connection, data: bytes) -> bytes | None:
        try:
            correlation_id, before, generation, behind = self._cut(data)
        except struct.error:
            return None  # a different length
        journal = self.journal
        if before != self._before or behind != self._behind or journal.refusal or not self.authorizer.open:
            return None
        self._request.generation = generation
        return self.ask(connection, correlation_id, journal.shard.sync, self._request)

    def release(self) -> None:
        connection = self.connection
        reply = self.reply
        if connection is None or reply is None:
            return
        if reply is self._last_reply and self.assignment is self._assigned:
            answered = self._size_bytes + self.correlation_id + self._end
        else:
            answered = self._encode(reply)
        self.connection = None
        connection.send(answered)

    def _encode(self, reply: SyncReply) -> bytes:
        whole = self.reply_of(sync_front(reply, self.version), sync_end(self.assignment, self.version))
        if len(whole) <= END_BYTES_MAX:
            self._last_reply, self._assigned = reply, self.assignment
            self._size_bytes, self._end = whole[:4], whole[8:]
        return whole

    def refused(self, error: int) -> bytes:
        return self.reply_of(sync_front(SyncReply(error), self.version), sync_end(b"", self.version))
