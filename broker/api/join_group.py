"""JoinGroup: a member enters its group, and waits for the generation that begins with it.

The order of checks is Kafka's, here and for the other requests of members: rights, then what needs no group, then whether
the group's partition serves, and then the shard, which knows the rest.
"""

from __future__ import annotations

from ipaddress import IPv6Address
from typing import Final

from broker.api.parked_call import ParkedCall
from broker.api.parts import Parts
from broker.fastpath.rejoin import ELEMENTS_MAX, JOIN_BYTES_MAX, JoinFastPath
from broker.groups.group_journal import GroupJournal
from broker.groups.member_replies import join_response
from broker.groups.shards import Shards
from broker.net.dispatch import Call, Response, Route
from broker.runtime.clock import Clock
from broker.security.authorizer import Authorizer, Operation, group_allowed
from coordinator import GroupConfig, JoinReply, JoinRequest
from protocol.errors import ErrorCode
from protocol.messages.join_group import JoinGroupRequest

HAS_REBALANCE_TIMEOUT: Final = 1
NEEDS_MEMBER_ID: Final = 4  # a newcomer gets its id first (KIP-394)
SKIP_ASSIGNMENT: Final = 9  # KIP-814


def route(parts: Parts) -> Route:
    handler = JoinGroup(parts.shards, parts.groups, parts.clock, parts.authorizer)
    return Route(JoinGroupRequest, handler.handle, refuse)


class ParkedJoin(ParkedCall):
    __slots__ = ("member_id", "reply")

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self.member_id = ""
        self.reply: JoinReply | None = None

    def release(self) -> None:
        if self._call is not None and self.reply is not None:
            self._call.answer(join_response(self.reply, self.member_id, self._call.version))


class JoinGroup:
    def __init__(self, shards: Shards, config: GroupConfig, clock: Clock, authorizer: Authorizer) -> None:
        self._shards = shards
        self._config = config
        self._clock = clock
        self._authorizer = authorizer

    def handle(self, call: Call, request: JoinGroupRequest) -> Response | None:
        version = call.version
        if not group_allowed(self._authorizer, call, Operation.READ, request.group_id):
            return refuse(request, version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        journal = self._shards.of(request.group_id)
        if journal.refusal:
            return self._refuse_early(request, version, journal.refusal)
        asked = JoinRequest(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.protocol_type,
            tuple([(protocol.name, protocol.metadata) for protocol in request.protocols]),
            request.session_timeout_ms,
            request.rebalance_timeout_ms if version >= HAS_REBALANCE_TIMEOUT else request.session_timeout_ms,
            call.client_id,
            java_address(call.connection.peer),
            version >= NEEDS_MEMBER_ID,
            version >= SKIP_ASSIGNMENT,
            request.reason,
            call.connection,
        )
        journal.park(journal.shard.join, asked, ParkedJoin(call), self._clock.now, self._clock.wall)
        self._remember(call, asked, journal)
        return None

    def _remember(self, call: Call, asked: JoinRequest, journal: GroupJournal) -> None:
        """A member that has rejoined once will do so again, most likely with the same request."""
        small = call.size <= JOIN_BYTES_MAX and len(asked.protocols) <= ELEMENTS_MAX
        if small and call.connection.host.trace is None and journal.shard.will_repeat(asked):
            call.add_fast_path(JoinFastPath(call, journal, self._authorizer, self._clock, asked))

    def _refuse_early(self, request: JoinGroupRequest, version: int, error: int) -> Response:
        """The partition does not serve. What is wrong with any group comes first, and repeats the member's id."""
        config = self._config
        if not request.group_id:
            return join_response(JoinReply(ErrorCode.INVALID_GROUP_ID), request.member_id, version)
        if not config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms:
            return join_response(JoinReply(ErrorCode.INVALID_SESSION_TIMEOUT), request.member_id, version)
        return refuse(request, version, error)


def refuse(request: JoinGroupRequest, version: int, error: int) -> Response:
    return join_response(JoinReply(error), "", version)


def java_address(address: str) -> str:
    """A client's address as Java prints it, which is what members are stored and shown with."""
    if ":" not in address:
        return f"/{address}"
    address, _, scope = address.partition("%")
    words = IPv6Address(address).packed
    groups = ":".join(f"{words[at] << 8 | words[at + 1]:x}" for at in range(0, 16, 2))
    return f"/{groups}%{scope}" if scope else f"/{groups}"
