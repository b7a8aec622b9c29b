"""JoinGroup and SyncGroup that come again: a member sends the same bytes at every rebalance.

Only the correlation id differs, and in a SyncGroup the generation. Such a request is not read again, but its group is asked
anew. It is its own waiter, for a connection has one request at work at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Any, Final

from broker.groups.group_journal import GroupJournal
from broker.groups.member_replies import join_end, join_front, sync_end, sync_front
from broker.net.connection import KIND_BYTES, REST_AT, Connection
from broker.net.dispatch import Call
from broker.runtime.clock import Clock
from broker.runtime.contain import defect
from broker.security.authorizer import Authorizer
from coordinator import JoinReply, JoinRequest, SyncReply, SyncRequest
from coordinator.calls import JoinedMember
from protocol.errors import ErrorCode
from protocol.messages.sync_group import SyncGroupRequest
from protocol.wire import put_compact_text, put_legacy_text

# What is kept of a connection has a bound: larger requests are read anew each time, and so are those of which many objects
# are made, which take more room than their bytes.
JOIN_BYTES_MAX: Final = 2_048
SYNC_BYTES_MAX: Final = 4_096
ELEMENTS_MAX: Final = 32
# The same for what a reply has of its own.
END_BYTES_MAX: Final = 4_096
# What Python takes for it, about: of the whole, and for each protocol or assignment.
_COST: Final = 1_200
_COST_OF_ELEMENT: Final = 200

_GENERATION_BYTES: Final = 4
_REPLY: Final = Struct(">i4s").pack
_client_id_bytes: Final = Struct(">h").unpack_from


def generation_at(rest: bytes, group_id: str, version: int) -> int:
    """Where the generation is in what comes behind the correlation id of a SyncGroup; 0 where that is not plain to see."""
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
    """Cuts a SyncGroup into correlation id, what is before the generation, the generation, and what is behind it."""
    return Struct(f">8x4s{before}si{behind}s").unpack


class Repeated:
    """What both have in common. `connection` is set while a request has no reply yet."""

    __slots__ = ("authorizer", "clock", "connection", "correlation_id", "cost", "journal", "turn", "version")
    api = ""

    def __init__(self, call: Call, journal: GroupJournal, authorizer: Authorizer, clock: Clock, elements: int) -> None:
        self.authorizer = authorizer
        self.clock = clock
        self.journal = journal
        self.turn = journal.turn
        self.version = call.version
        self.connection: Connection | None
        self.correlation_id: bytes
        self.cost = _COST + 2 * call.size + elements * _COST_OF_ELEMENT

    def refused(self, error: int) -> bytes:
        raise NotImplementedError

    def forgotten(self) -> None: ...

    def reply_of(self, front: bytes, end: bytes) -> bytes:
        return _REPLY(4 + len(front) + len(end), self.correlation_id) + front + end

    def fail(self, error: int) -> None:
        connection = self.connection
        if connection is not None:
            refused = self.refused(error)
            self.connection = None
            connection.send(refused)

    def ended(self, connection: Connection, error: Exception) -> bytes:
        """The shard ended in an exception. Whatever its call still hears is void; the answer, where it had none before."""
        defect("a request failed inside the broker", error, api=self.api, version=self.version)
        answered = self.connection is None
        self.connection = None
        connection.forget_repeats()
        self.journal.broken()
        if answered:
            return b""
        connection.busy = False
        return self.refused(ErrorCode.UNKNOWN_SERVER_ERROR)


class Rejoin(Repeated):
    """A JoinGroup of a member that is known. Mostly all that is its own in the reply is its id."""

    __slots__ = ("_as_follower", "_as_leader", "_request", "_rest", "_told", "member_id", "reply")
    api = "JoinGroup"

    def __init__(self, call: Call, journal: GroupJournal, authorizer: Authorizer, clock: Clock, request: JoinRequest) -> None:
        super().__init__(call, journal, authorizer, clock, len(request.protocols))
        self._request = request
        self._rest = call.rest
        self._as_follower = join_end(request.member_id, (), call.version)
        self._as_leader: bytes  # what it was told when it led, and of whom, unless that was much
        self._told: list[JoinedMember] = []
        self.member_id: str
        self.reply: JoinReply | None

    def answer(self, connection: Connection, data: bytes) -> bytes | None:
        journal = self.journal
        if data[REST_AT:] != self._rest or journal.refusal or not self.authorizer.open:
            return None
        self.connection = connection
        self.correlation_id = data[KIND_BYTES:REST_AT]
        connection.busy = True
        shard = journal.shard
        hold = shard.hold
        emitted = hold.emitted  # what was emitted before has its journal at work already
        try:
            shard.join(self._request, self, self.clock.now, self.clock.wall)
        except Exception as error:
            return self.ended(connection, error)
        if hold.emitted != emitted or shard.deadlines.wake_at < self.turn.armed_at:
            journal.stepped()
        return b""

    def release(self) -> None:
        connection = self.connection
        reply = self.reply
        if connection is None or reply is None:
            return
        end = self._other_end(reply) if reply.error or reply.members else self._as_follower
        self.connection = None
        connection.send(self.reply_of(join_front(reply, self.version), end))

    def _other_end(self, reply: JoinReply) -> bytes:
        if reply.error or self.member_id != self._request.member_id:
            return join_end(self.member_id, reply.members, self.version)
        if self._told == reply.members:
            return self._as_leader
        end = join_end(self.member_id, reply.members, self.version)
        if len(end) <= END_BYTES_MAX:
            self._as_leader, self._told = end, list(reply.members)
        return end

    def refused(self, error: int) -> bytes:
        return self.reply_of(join_front(JoinReply(error), self.version), join_end("", (), self.version))


class Resync(Repeated):
    """A SyncGroup of a member that has rejoined; a leader that brings the same assignments each time sends the same too."""

    __slots__ = ("_assigned", "_before", "_behind", "_cut", "_end", "_request", "_size_told", "_told", "assignment", "reply")
    api = "SyncGroup"

    def __init__(
        self, call: Call, journal: GroupJournal, authorizer: Authorizer, clock: Clock, request: SyncRequest, generation_at: int
    ) -> None:
        """`generation_at`: where in the bytes behind the correlation id."""
        super().__init__(call, journal, authorizer, clock, len(request.assignments))
        self._request = request
        rest = call.rest
        self._before = rest[:generation_at]
        self._behind = rest[generation_at + _GENERATION_BYTES :]
        self._cut = _cutter(len(self._before), len(self._behind))
        # What it was answered last, and with which bytes around the correlation id.
        self._told: SyncReply | None = None
        self._assigned: bytes
        self._size_told: bytes
        self._end: bytes
        self.assignment: bytes
        self.reply: SyncReply | None

    def answer(self, connection: Connection, data: bytes) -> bytes | None:
        try:
            correlation_id, before, generation, behind = self._cut(data)
        except struct.error:
            return None  # it has another length
        journal = self.journal
        if before != self._before or behind != self._behind or journal.refusal or not self.authorizer.open:
            return None
        self.connection = connection
        self.correlation_id = correlation_id
        connection.busy = True
        request = self._request
        request.generation = generation
        shard = journal.shard
        hold = shard.hold
        emitted = hold.emitted
        try:
            shard.sync(request, self, self.clock.now, self.clock.wall)
        except Exception as error:
            return self.ended(connection, error)
        if hold.emitted != emitted or shard.deadlines.wake_at < self.turn.armed_at:
            journal.stepped()
        return b""

    def release(self) -> None:
        connection = self.connection
        reply = self.reply
        if connection is None or reply is None:
            return
        if reply is self._told and self.assignment is self._assigned:
            answered = self._size_told + self.correlation_id + self._end
        else:
            answered = self._written_anew(reply)
        self.connection = None
        connection.send(answered)

    def _written_anew(self, reply: SyncReply) -> bytes:
        whole = self.reply_of(sync_front(reply, self.version), sync_end(self.assignment, self.version))
        if len(whole) <= END_BYTES_MAX:
            self._told, self._assigned = reply, self.assignment
            self._size_told, self._end = whole[:4], whole[8:]
        return whole

    def refused(self, error: int) -> bytes:
        return self.reply_of(sync_front(SyncReply(error), self.version), sync_end(b"", self.version))
