"""JoinGroup: a member joins its group, and waits for the next generation.

Requests of members are checked in Kafka's order: authorization, fields that need no group, whether the group's partition serves, and
finally, in the shard, the group and the member.
"""

from __future__ import annotations

from ipaddress import IPv6Address
from typing import Final

from broker.api.parked_call import ParkedCall
from broker.api.parts import BrokerParts
from broker.fastpath.learning import learn, may_learn
from broker.fastpath.rejoin import ELEMENTS_MAX, JOIN_BYTES_MAX, JoinFastPath
from broker.groups.group_journal import GroupJournal
from broker.groups.member_replies import join_response
from broker.net.dispatch import Call, Response, Route
from broker.security.authorizer import Operation, group_allowed
from coordinator import JoinReply, JoinRequest
from protocol.errors import ErrorCode
from protocol.messages.join_group import JoinGroupRequest

REBALANCE_TIMEOUT_FROM: Final = 1
MEMBER_ID_REQUIRED_FROM: Final = 4  # a new member gets its id first (KIP-394)
SKIP_ASSIGNMENT_FROM: Final = 9  # KIP-814


def route(parts: BrokerParts) -> Route:
    return Route(JoinGroupRequest, JoinGroup(parts).handle, error_response)


class ParkedJoin(ParkedCall):
    __slots__ = ("_ids", "_journal", "member_id", "reply")

    def __init__(self, call: Call, journal: GroupJournal, join: JoinRequest) -> None:
        super().__init__(call)
        self._journal = journal
        self._ids = join.group_id, join.member_id, join.instance_id
        self.member_id = ""
        self.reply: JoinReply | None = None

    def release(self) -> None:
        if self._call is not None and self.reply is not None:
            if self.reply.error == ErrorCode.FENCED_INSTANCE_ID:
                self._journal.fenced_lines.add(self._journal, "JoinGroup", *self._ids, self.connection.peer)
            self._call.answer(join_response(self.reply, self.member_id, self._call.version))


class JoinGroup:
    def __init__(self, parts: BrokerParts) -> None:
        self._shards = parts.shards
        self._config = parts.groups
        self._clock = parts.clock
        self._authorizer = parts.authorizer

    def handle(self, call: Call, request: JoinGroupRequest) -> Response | None:
        version = call.version
        if not group_allowed(self._authorizer, call, Operation.READ, request.group_id):
            return error_response(request, version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        journal = self._shards.journal_of(request.group_id)
        if journal.refusal:
            return self._refuse_for_partition(request, version, journal.refusal)
        join = JoinRequest(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.protocol_type,
            tuple([(protocol.name, protocol.metadata) for protocol in request.protocols]),
            request.session_timeout_ms,
            request.rebalance_timeout_ms if version >= REBALANCE_TIMEOUT_FROM else request.session_timeout_ms,
            call.client_id,
            java_address(call.connection.peer),
            version >= MEMBER_ID_REQUIRED_FROM,
            version >= SKIP_ASSIGNMENT_FROM,
            request.reason,
            call.connection,
        )
        journal.park(journal.shard.join, join, ParkedJoin(call, journal, join), self._clock.now, self._clock.wall)
        self._learn_fast_path(call, join, journal)
        call.forget_request()
        return None

    def _learn_fast_path(self, call: Call, join: JoinRequest, journal: GroupJournal) -> None:
        """Build a fast path: a member that has rejoined once will likely send the same request again."""
        small = call.size <= JOIN_BYTES_MAX and len(join.protocols) <= ELEMENTS_MAX
        if small and may_learn(call, self._clock.now) and journal.shard.remember_repeatable_join(join):
            learn(call, JoinFastPath(call, journal, self._authorizer, self._clock, join), self._clock.now)

    def _refuse_for_partition(self, request: JoinGroupRequest, version: int, error: int) -> Response:
        """The reply while the partition does not serve. Errors of the request itself come first, and their replies have the member's id."""
        config = self._config
        if not request.group_id:
            return join_response(JoinReply(ErrorCode.INVALID_GROUP_ID), request.member_id, version)
        if not config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms:
            return join_response(JoinReply(ErrorCode.INVALID_SESSION_TIMEOUT), request.member_id, version)
        return error_response(request, version, error)


def error_response(request: JoinGroupRequest | None, version: int, error: int) -> Response:
    """`request` is None where the call has forgotten it."""
    return join_response(JoinReply(error), "", version)


def java_address(address: str) -> str:
    """A client's address in Java's format, as groups store it and DescribeGroups shows it."""
    if ":" not in address:
        return f"/{address}"
    address, _, scope = address.partition("%")
    packed = IPv6Address(address).packed
    groups = ":".join(f"{packed[at] << 8 | packed[at + 1]:x}" for at in range(0, 16, 2))
    return f"/{groups}%{scope}" if scope else f"/{groups}"
