"""Members of groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Versions end here. The order of checks is Kafka's: rights, then what needs no group, then whether its shard serves, and then
the shard itself, which knows the rest.
"""

from __future__ import annotations

from ipaddress import IPv6Address
from typing import Final

from broker.fastpath.heartbeat import HEARTBEAT_BYTES_MAX, HeartbeatAgain, heartbeat_replies
from broker.fastpath.rejoin import ELEMENTS_MAX, JOIN_BYTES_MAX, SYNC_BYTES_MAX, Rejoin, Resync, generation_at
from broker.groups.group_journal import GroupJournal
from broker.groups.held_replies import answer
from broker.groups.member_replies import join_response, sync_response
from broker.groups.shards import Shards
from broker.net.dispatch import Call, Constant, Response, Route
from broker.runtime.clock import Clock
from broker.security.authorizer import Authorizer, Operation, Resource, may
from coordinator import GroupConfig, JoinReply, JoinRequest, Leaver, SyncReply, SyncRequest
from protocol.apis import APIS
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

# What changes from these versions on.
JOIN_HAS_REBALANCE_TIMEOUT: Final = 1
JOIN_NEEDS_MEMBER_ID: Final = 4  # a newcomer gets its id first (KIP-394)
JOIN_SKIP_ASSIGNMENT: Final = 9  # KIP-814
SYNC_NAMES_PROTOCOL: Final = 5
LEAVE_SEVERAL: Final = 3


class Waiting:
    """A call without an answer yet, until it is `void`: answered otherwise."""

    __slots__ = ("_call", "connection")

    def __init__(self, call: Call) -> None:
        self._call: Call | None = call
        self.connection = call.connection

    def fail(self, error: int) -> None:
        if self._call is not None:
            self._call.fail(error)

    def void(self) -> None:
        self._call = None


class Joining(Waiting):
    """A JoinGroup; the core parks it on its member."""

    __slots__ = ("member_id", "reply")

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self.member_id = ""
        self.reply: JoinReply | None = None

    def release(self) -> None:
        if self._call is not None and self.reply is not None:
            self._call.answer(join_response(self.reply, self.member_id, self._call.version))


class Syncing(Waiting):
    """A SyncGroup."""

    __slots__ = ("assignment", "reply")

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self.assignment = b""
        self.reply: SyncReply | None = None

    def release(self) -> None:
        if self._call is not None and self.reply is not None:
            self._call.answer(sync_response(self.reply, self.assignment))


class GroupHandlers:
    """What members ask of their coordinator."""

    def __init__(self, shards: Shards, config: GroupConfig, clock: Clock, authorizer: Authorizer) -> None:
        self._shards = shards
        self._config = config
        self._clock = clock
        self._authorizer = authorizer
        self._replies = [heartbeat_replies(version) for version in range(HeartbeatResponse.VERSIONS[1] + 1)]
        self._beats: dict[int, Constant] = {code.value: Constant(HeartbeatResponse(0, code)) for code in ErrorCode}

    def routes(self) -> list[Route]:
        return [
            Route(APIS[JoinGroupRequest.API_KEY], self.join, refuse_join),
            Route(APIS[SyncGroupRequest.API_KEY], self.sync, refuse_sync),
            Route(APIS[HeartbeatRequest.API_KEY], self.heartbeat, refuse_heartbeat),
            Route(APIS[LeaveGroupRequest.API_KEY], self.leave, refuse_leave),
        ]

    def _may_read(self, call: Call, group_id: str) -> bool:
        return may(self._authorizer, call, Operation.READ, Resource.GROUP, group_id)

    def join(self, call: Call, request: JoinGroupRequest) -> Response | None:
        version = call.version
        if not self._may_read(call, request.group_id):
            return refuse_join(request, version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        journal = self._shards.of(request.group_id)
        if journal.refusal:
            return self._refuse_join_early(request, version, journal.refusal)
        waiter = Joining(call)
        asked = JoinRequest(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.protocol_type,
            tuple([(protocol.name, protocol.metadata) for protocol in request.protocols]),
            request.session_timeout_ms,
            request.rebalance_timeout_ms if version >= JOIN_HAS_REBALANCE_TIMEOUT else request.session_timeout_ms,
            call.client_id,
            java_address(call.connection.peer),
            version >= JOIN_NEEDS_MEMBER_ID,
            version >= JOIN_SKIP_ASSIGNMENT,
            request.reason,
        )
        try:
            journal.shard.join(asked, waiter, self._clock.now, self._clock.wall)
        except Exception:
            waiter.void()
            journal.broken()
            raise
        journal.stepped()
        self._remember_join(call, asked, journal)
        return None

    def _remember_join(self, call: Call, asked: JoinRequest, journal: GroupJournal) -> None:
        """A member that has come back once will do so again, most likely with the same words."""
        small = call.size <= JOIN_BYTES_MAX and len(asked.protocols) <= ELEMENTS_MAX
        if small and call.connection.host.trace is None and journal.shard.will_repeat(asked):
            call.remember(Rejoin(call, journal, self._authorizer, self._clock, asked))

    def _refuse_join_early(self, request: JoinGroupRequest, version: int, error: int) -> Response:
        """The shard does not serve; what is wrong whatever its groups are comes first, and repeats the member's id."""
        config = self._config
        if not request.group_id:
            return join_response(JoinReply(ErrorCode.INVALID_GROUP_ID), request.member_id, version)
        if not config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms:
            return join_response(JoinReply(ErrorCode.INVALID_SESSION_TIMEOUT), request.member_id, version)
        return refuse_join(request, version, error)

    def sync(self, call: Call, request: SyncGroupRequest) -> Response | None:
        if call.version >= SYNC_NAMES_PROTOCOL and (request.protocol_type is None or request.protocol_name is None):
            return SyncGroupResponse(0, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not self._may_read(call, request.group_id):
            return SyncGroupResponse(0, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        journal = self._shards.of(request.group_id)
        if journal.refusal:
            return SyncGroupResponse(0, _sync_refusal(request.group_id, journal.refusal))
        waiter = Syncing(call)
        asked = SyncRequest(
            request.group_id,
            request.generation_id,
            request.member_id,
            request.group_instance_id,
            {one.member_id: one.assignment for one in request.assignments},
            request.protocol_type,
            request.protocol_name,
        )
        try:
            journal.shard.sync(asked, waiter, self._clock.now, self._clock.wall)
        except Exception:
            waiter.void()
            journal.broken()
            raise
        journal.stepped()
        if call.connection.again and call.size <= SYNC_BYTES_MAX and len(asked.assignments) <= ELEMENTS_MAX:
            self._remember_sync(call, asked, journal)
        return None

    def _remember_sync(self, call: Call, asked: SyncRequest, journal: GroupJournal) -> None:
        """Who joins again syncs again."""
        group = journal.shard.groups.get(asked.group_id)
        again = call.connection.again
        if group is not None and asked.member_id in group.members and any(isinstance(one, Rejoin) for one in again.values()):
            at = generation_at(call.rest, asked.group_id, call.version)
            if at:
                call.remember(Resync(call, journal, self._authorizer, self._clock, asked, at))

    def heartbeat(self, call: Call, request: HeartbeatRequest) -> Response | None:
        group_id = request.group_id
        if not self._may_read(call, group_id):
            return self._beats[ErrorCode.GROUP_AUTHORIZATION_FAILED]
        journal = self._shards.of(group_id)
        if journal.refusal:
            return self._beats[_heartbeat_refusal(group_id, journal.refusal)]
        try:
            code = journal.shard.heartbeat(group_id, request.generation_id, request.member_id, request.group_instance_id, self._clock.now)
        except Exception:
            journal.broken()
            raise
        journal.stepped()
        if not code:
            self._remember(call, request, journal)
        return answer(journal, call, self._beats[code])

    def _remember(self, call: Call, request: HeartbeatRequest, journal: GroupJournal) -> None:
        """The next heartbeat is nearly always the same, and its answer too: it is answered without being read again."""
        if call.size <= HEARTBEAT_BYTES_MAX and call.connection.host.trace is None:
            call.remember(HeartbeatAgain(call, request, journal, self._authorizer, self._clock, self._replies[call.version]))

    def leave(self, call: Call, request: LeaveGroupRequest) -> Response | None:
        if not self._may_read(call, request.group_id):
            return LeaveGroupResponse(0, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not request.group_id:
            return LeaveGroupResponse(0, ErrorCode.INVALID_GROUP_ID)
        journal = self._shards.of(request.group_id)
        if journal.refusal:
            return LeaveGroupResponse(0, journal.refusal)
        several = call.version >= LEAVE_SEVERAL
        members = request.members if several else [MemberIdentity(request.member_id)]
        leavers = [Leaver(one.member_id, one.group_instance_id, one.reason) for one in members]
        try:
            codes = journal.shard.leave(request.group_id, leavers, self._clock.now, self._clock.wall)
        except Exception:
            journal.broken()
            raise
        journal.stepped()
        if not several:
            return answer(journal, call, LeaveGroupResponse(0, codes[0]))
        told = [MemberResponse(one.member_id, one.group_instance_id, code) for one, code in zip(members, codes, strict=True)]
        return answer(journal, call, LeaveGroupResponse(0, ErrorCode.NONE, told))


def _sync_refusal(group_id: str, refusal: int) -> int:
    """While the shard is loading, the code on which every client joins again: on 14 Java's consumer gives up."""
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    return ErrorCode.REBALANCE_IN_PROGRESS if refusal == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else refusal


def _heartbeat_refusal(group_id: str, refusal: int) -> int:
    """Nobody is told to worry while the shard is loading: sessions begin anew when it is done."""
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    return ErrorCode.NONE if refusal == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else refusal


def refuse_join(request: JoinGroupRequest, version: int, error: int) -> Response:
    return join_response(JoinReply(error), "", version)


def refuse_sync(request: SyncGroupRequest, version: int, error: int) -> Response:
    return SyncGroupResponse(0, error)


def refuse_heartbeat(request: HeartbeatRequest, version: int, error: int) -> Response:
    return HeartbeatResponse(0, error)


def refuse_leave(request: LeaveGroupRequest, version: int, error: int) -> Response:
    return LeaveGroupResponse(0, error)


def java_address(address: str) -> str:
    """A client's address as Java prints it, which is what members are stored and shown with."""
    if ":" not in address:
        return f"/{address}"
    address, _, scope = address.partition("%")
    words = IPv6Address(address).packed
    groups = ":".join(f"{words[at] << 8 | words[at + 1]:x}" for at in range(0, 16, 2))
    return f"/{groups}%{scope}" if scope else f"/{groups}"
