"""ConsumerGroupHeartbeat: everything that a member of the consumer protocol says to its group, and hears from it (KIP-848)."""

from __future__ import annotations

from typing import Final

from broker.api.join_group import java_address
from broker.api.parts import BrokerParts
from broker.fastpath.consumer_heartbeat import BEAT_BYTES_MAX, ConsumerHeartbeatFastPath
from broker.fastpath.learning import learn, may_learn
from broker.groups.group_journal import GroupJournal
from broker.groups.held_replies import answer_when_durable
from broker.groups.resolutions import Resolutions
from broker.net.dispatch import Call, Response, Route
from broker.runtime.contain import report_defect
from broker.security.authorizer import Operation, group_allowed, topic_allowed
from coordinator.consumer.calls import HeartbeatReply, HeartbeatRequest, Partitions
from coordinator.consumer.checks import refusal, switched_off
from coordinator.consumer.repeats import repeated
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)

OWN_ID_FROM: Final = 1  # a member brings its id


def route(parts: BrokerParts) -> Route:
    return Route(ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeat(parts).handle, error_response)


class ConsumerGroupHeartbeat:
    def __init__(self, parts: BrokerParts) -> None:
        self._shards = parts.shards
        self._config = parts.groups.consumer
        self._clock = parts.clock
        self._authorizer = parts.authorizer
        self._resolutions = Resolutions(parts.authorizer, parts.clock)

    def handle(self, call: Call, request: ConsumerGroupHeartbeatRequest) -> Response | None:
        refused = switched_off(self._config)
        if refused is not None:
            return response(refused)
        unauthorized = self._unauthorized(call, request)
        if unauthorized:
            return error_response(request, call.version, unauthorized)
        beat = HeartbeatRequest(
            request.group_id,
            request.member_id,
            request.member_epoch,
            request.instance_id,
            request.rack_id,
            request.rebalance_timeout_ms,
            request.subscribed_topic_names,
            request.subscribed_topic_regex,
            request.server_assignor,
            owned_partitions(request.topic_partitions),
            call.client_id,
            java_address(call.connection.peer),
            call.version >= OWN_ID_FROM,
            call,
        )
        journal = self._shards.journal_of(request.group_id)
        if journal.refusal:  # what is wrong with the request itself comes first
            refused = refusal(self._config, beat)
            return error_response(request, call.version, journal.refusal) if refused is None else response(refused)
        room = journal.shard.consumers
        reply = journal.call(room.heartbeat, beat, self._clock.now, self._clock.wall)
        if room.resolutions:
            self._resolutions.schedule(journal)
        if reply.failure is not None:
            report_defect("an assignor failed", reply.failure, log=journal.name, group=request.group_id)
        elif reply.error == ErrorCode.FENCED_INSTANCE_ID:
            journal.fenced_lines.add(
                journal, "ConsumerGroupHeartbeat", request.group_id, request.member_id, request.instance_id, call.connection.peer
            )
        answer = response(reply)
        self._learn_fast_path(call, beat, reply, answer, journal)
        return answer_when_durable(journal, call, answer)

    def _learn_fast_path(
        self, call: Call, request: HeartbeatRequest, reply: HeartbeatReply, answer: ConsumerGroupHeartbeatResponse, journal: GroupJournal
    ) -> None:
        """Build a fast path: the next heartbeat on this connection is usually the same, if this one changed nothing."""
        if call.size > BEAT_BYTES_MAX or not may_learn(call, self._clock.now):
            return
        beat = repeated(journal.shard.consumers, request, reply)
        if beat is not None:
            learn(call, ConsumerHeartbeatFastPath(call, beat, answer, journal, self._authorizer, self._clock), self._clock.now)

    def _unauthorized(self, call: Call, request: ConsumerGroupHeartbeatRequest) -> int:
        authorizer = self._authorizer
        if authorizer.allows_all:
            return ErrorCode.NONE
        if not group_allowed(authorizer, call, Operation.READ, request.group_id):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        if not all(topic_allowed(authorizer, call, Operation.DESCRIBE, name) for name in request.subscribed_topic_names or ()):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ErrorCode.NONE


def owned_partitions(topics: list[ConsumerGroupHeartbeatRequestTopicPartitions] | None) -> Partitions | None:
    """By topic id; a topic that is named twice has the partitions of both."""
    if topics is None:
        return None
    owned: dict[bytes, list[int]] = {}
    for topic in topics:
        owned.setdefault(topic.topic_id, []).extend(topic.partitions)
    return owned


def response(reply: HeartbeatReply) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if reply.assignment is not None:
        topics = [ConsumerGroupHeartbeatResponseTopicPartitions(id, list(partitions)) for id, partitions in reply.assignment.items()]
        assignment = Assignment(topics)
    return ConsumerGroupHeartbeatResponse(0, reply.error, reply.message, reply.member_id, reply.epoch, reply.heartbeat_interval_ms, assignment)


def error_response(request: ConsumerGroupHeartbeatRequest, version: int, error: int) -> Response:
    return ConsumerGroupHeartbeatResponse(0, error, ErrorCode(error).message)
