"""ConsumerGroupDescribe: groups of the consumer protocol, with the epochs, partitions and targets of their members."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.api.encoded_arrays import EncodedArray
from broker.api.parts import BrokerParts
from broker.groups.held_replies import GroupParts
from broker.net.dispatch import Call, Response, Route
from broker.net.long_requests import LOOKUP_COST
from broker.security.authorizer import Operation, group_allowed, group_operations, topic_allowed
from coordinator.consumer.calls import ConsumerGroupView, ConsumerMemberView, Partitions
from coordinator.consumer.topics import Topic
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from protocol.wire import TEXT_BYTES_MAX, Steps

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1

_write: Final = DescribedGroup.write_array_in_steps


def route(parts: BrokerParts) -> Route:
    return Route(ConsumerGroupDescribeRequest, parts.long_requests.handler(ConsumerGroupDescribe(parts).handle), error_response)


class ConsumerGroupDescribe:
    def __init__(self, parts: BrokerParts) -> None:
        self._shards = parts.shards
        self._authorizer = parts.authorizer
        self._enabled = parts.groups.consumer.enabled

    def handle(self, call: Call, request: ConsumerGroupDescribeRequest) -> Steps[Response | None]:
        if not self._enabled:
            return error_response(request, call.version, ErrorCode.UNSUPPORTED_VERSION)
        refused: list[str] = []
        allowed: list[str] = []
        for id in request.group_ids:
            (allowed if group_allowed(self._authorizer, call, Operation.DESCRIBE, id) else refused).append(id)
            yield LOOKUP_COST
        ids = refused + allowed
        reply = EncodedArray(call, ConsumerGroupDescribeResponse())
        parts = GroupParts()
        for number, id in enumerate(ids):
            yield LOOKUP_COST
            if number < len(refused):
                group = error_of(id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
            else:
                group = self._describe(call, request, number, id, parts)
            yield from reply.add(_write, group)

        def refuse(number: int, error: int) -> None:
            for _ in reply.replace(number, _write, error_of(ids[number], error)):
                pass

        parts.answer(call, reply, refuse)
        return None

    def _describe(self, call: Call, request: ConsumerGroupDescribeRequest, number: int, id: str, parts: GroupParts) -> DescribedGroup:
        if not id:
            return error_of(id, ErrorCode.INVALID_GROUP_ID)
        journal = self._shards.journal_of(id)
        if journal.refusal:
            return error_of(id, journal.refusal)
        parts.add(journal, number)
        room = journal.shard.consumers
        view = room.describe(id)
        if view is None:
            return missing(id)
        topics = room.topics.by_id
        if not self._authorizer.allows_all and not self._may_see(call, view, topics):
            return error_of(id, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        group = described(id, view, topics)
        if request.include_authorized_operations:
            group.authorized_operations = group_operations(self._authorizer, call, id)
        return group

    def _may_see(self, call: Call, view: ConsumerGroupView, topics: Mapping[bytes, Topic]) -> bool:
        """Whether the client may describe every topic that the group's description names."""
        names: set[str] = set()
        for member in view.members:
            names.update(member.topics)
            names.update(topics[topic_id].name for topic_id in (*member.assigned, *member.target))
        return all(topic_allowed(self._authorizer, call, Operation.DESCRIBE, name) for name in names)


def described(id: str, view: ConsumerGroupView, topics: Mapping[bytes, Topic]) -> DescribedGroup:
    members = [described_member(member, topics) for member in view.members]
    return DescribedGroup(ErrorCode.NONE, None, id, view.state, view.epoch, view.target_epoch, view.assignor, members)


def described_member(member: ConsumerMemberView, topics: Mapping[bytes, Topic]) -> Member:
    return Member(
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.client_host,
        list(member.topics),
        member.expression,
        with_names(member.assigned, topics),
        with_names(member.target, topics),
        CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def with_names(partitions: Partitions, topics: Mapping[bytes, Topic]) -> Assignment:
    return Assignment([TopicPartitions(topic_id, topics[topic_id].name, list(numbers)) for topic_id, numbers in partitions.items()])


def missing(id: str) -> DescribedGroup:
    """There is no such group, or it is of another type."""
    message = f"Group {id} not found."
    if len(message.encode()) > TEXT_BYTES_MAX:
        return error_of(id, ErrorCode.UNKNOWN_SERVER_ERROR)
    return DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, message, id)


def error_of(id: str, error: int) -> DescribedGroup:
    return DescribedGroup(error, None, id)


def error_response(request: ConsumerGroupDescribeRequest, version: int, error: int) -> Response:
    return ConsumerGroupDescribeResponse(0, [error_of(id, error) for id in request.group_ids])
