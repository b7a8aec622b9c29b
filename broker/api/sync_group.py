"""SyncGroup: the leader sends the assignments of the generation, and every member fetches its own."""

from __future__ import annotations

from typing import Final

from broker.api.parked_call import ParkedCall
from broker.api.parts import BrokerParts
from broker.fastpath.learning import learn, may_learn
from broker.fastpath.rejoin import ELEMENTS_MAX, SYNC_BYTES_MAX, JoinFastPath, SyncFastPath, generation_position
from broker.groups.group_journal import GroupJournal
from broker.groups.member_replies import sync_response
from broker.net.dispatch import Call, Response, Route
from broker.security.authorizer import Operation, group_allowed
from coordinator import SyncReply, SyncRequest
from protocol.errors import ErrorCode
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_NAME_FROM: Final = 5


def route(parts: BrokerParts) -> Route:
    return Route(SyncGroupRequest, SyncGroup(parts).handle, error_response)


class ParkedSync(ParkedCall):
    __slots__ = ("_ids", "_journal", "assignment", "reply")

    def __init__(self, call: Call, journal: GroupJournal, sync: SyncRequest) -> None:
        super().__init__(call)
        self._journal = journal
        self._ids = sync.group_id, sync.member_id, sync.instance_id
        self.assignment = b""
        self.reply: SyncReply | None = None

    def release(self) -> None:
        if self._call is not None and self.reply is not None:
            if self.reply.error == ErrorCode.FENCED_INSTANCE_ID:
                self._journal.fenced_lines.add(self._journal, "SyncGroup", *self._ids, self.connection.peer)
            self._call.answer(sync_response(self.reply, self.assignment))


class SyncGroup:
    def __init__(self, parts: BrokerParts) -> None:
        self._shards = parts.shards
        self._clock = parts.clock
        self._authorizer = parts.authorizer

    def handle(self, call: Call, request: SyncGroupRequest) -> Response | None:
        if call.version >= PROTOCOL_NAME_FROM and (request.protocol_type is None or request.protocol_name is None):
            return SyncGroupResponse(0, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not group_allowed(self._authorizer, call, Operation.READ, request.group_id):
            return SyncGroupResponse(0, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        journal = self._shards.journal_of(request.group_id)
        if journal.refusal:
            return SyncGroupResponse(0, _error_for(request.group_id, journal.refusal))
        sync = SyncRequest(
            request.group_id,
            request.generation_id,
            request.member_id,
            request.group_instance_id,
            {member.member_id: member.assignment for member in request.assignments},
            request.protocol_type,
            request.protocol_name,
        )
        journal.park(journal.shard.sync, sync, ParkedSync(call, journal, sync), self._clock.now, self._clock.wall)
        if call.connection.fast_paths and call.size <= SYNC_BYTES_MAX and len(sync.assignments) <= ELEMENTS_MAX:
            self._learn(call, sync, journal)
        call.forget_request()
        return None

    def _learn(self, call: Call, sync: SyncRequest, journal: GroupJournal) -> None:
        """Build a fast path: a member whose JoinGroup has a fast path repeats its SyncGroup too."""
        group = journal.shard.groups.get(sync.group_id)
        rejoins = any(isinstance(fast_path, JoinFastPath) for fast_path in call.connection.fast_paths.values())
        if rejoins and group is not None and sync.member_id in group.members and may_learn(call, self._clock.now):
            position = generation_position(call.after_correlation_id, sync.group_id, call.version)
            if position:
                learn(call, SyncFastPath(call, journal, self._authorizer, self._clock, sync, position), self._clock.now)


def _error_for(group_id: str, refusal: int) -> int:
    """REBALANCE_IN_PROGRESS while the partition is loading: every client rejoins on it; Java's consumer fails on COORDINATOR_LOAD_IN_PROGRESS."""
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    return ErrorCode.REBALANCE_IN_PROGRESS if refusal == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else refusal


def error_response(request: SyncGroupRequest | None, version: int, error: int) -> Response:
    """`request` is None where the call has forgotten it."""
    return SyncGroupResponse(0, error)
