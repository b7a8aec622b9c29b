"""SyncGroup: the leader brings the assignments of the generation, and every member fetches its own."""

from __future__ import annotations

from typing import Final

from broker.api.parked_call import ParkedCall
from broker.api.parts import Parts
from broker.fastpath.rejoin import ELEMENTS_MAX, SYNC_BYTES_MAX, JoinFastPath, SyncFastPath, generation_at
from broker.groups.group_journal import GroupJournal
from broker.groups.member_replies import sync_response
from broker.groups.shards import Shards
from broker.net.dispatch import Call, Response, Route
from broker.runtime.clock import Clock
from broker.security.authorizer import Authorizer, Operation, group_allowed
from coordinator import SyncReply, SyncRequest
from protocol.errors import ErrorCode
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

NAMES_PROTOCOL: Final = 5


def route(parts: Parts) -> Route:
    handler = SyncGroup(parts.shards, parts.clock, parts.authorizer)
    return Route(SyncGroupRequest, handler.handle, refuse)


class ParkedSync(ParkedCall):
    __slots__ = ("assignment", "reply")

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self.assignment = b""
        self.reply: SyncReply | None = None

    def release(self) -> None:
        if self._call is not None and self.reply is not None:
            self._call.answer(sync_response(self.reply, self.assignment))


class SyncGroup:
    def __init__(self, shards: Shards, clock: Clock, authorizer: Authorizer) -> None:
        self._shards = shards
        self._clock = clock
        self._authorizer = authorizer

    def handle(self, call: Call, request: SyncGroupRequest) -> Response | None:
        if call.version >= NAMES_PROTOCOL and (request.protocol_type is None or request.protocol_name is None):
            return SyncGroupResponse(0, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not group_allowed(self._authorizer, call, Operation.READ, request.group_id):
            return SyncGroupResponse(0, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        journal = self._shards.of(request.group_id)
        if journal.refusal:
            return SyncGroupResponse(0, _refusal(request.group_id, journal.refusal))
        asked = SyncRequest(
            request.group_id,
            request.generation_id,
            request.member_id,
            request.group_instance_id,
            {one.member_id: one.assignment for one in request.assignments},
            request.protocol_type,
            request.protocol_name,
        )
        journal.park(journal.shard.sync, asked, ParkedSync(call), self._clock.now, self._clock.wall)
        if call.connection.fast_paths and call.size <= SYNC_BYTES_MAX and len(asked.assignments) <= ELEMENTS_MAX:
            self._remember(call, asked, journal)
        return None

    def _remember(self, call: Call, asked: SyncRequest, journal: GroupJournal) -> None:
        """A member whose JoinGroup has a fast path sends its SyncGroup again too."""
        group = journal.shard.groups.get(asked.group_id)
        fast_paths = call.connection.fast_paths
        if group is not None and asked.member_id in group.members and any(isinstance(one, JoinFastPath) for one in fast_paths.values()):
            at = generation_at(call.after_correlation_id, asked.group_id, call.version)
            if at:
                call.add_fast_path(SyncFastPath(call, journal, self._authorizer, self._clock, asked, at))


def _refusal(group_id: str, refusal: int) -> int:
    """While the partition is loading, the code on which every client joins again: on 14 Java's consumer gives up."""
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    return ErrorCode.REBALANCE_IN_PROGRESS if refusal == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else refusal


def refuse(request: SyncGroupRequest, version: int, error: int) -> Response:
    return SyncGroupResponse(0, error)
