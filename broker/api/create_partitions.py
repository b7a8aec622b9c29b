"""CreatePartitions: raise the number of partitions of topics."""

from __future__ import annotations

from broker.api.parts import Parts
from broker.api.refused import Refused
from broker.api.replica_assignments import bad_assignment, brokers_there, check_replicas
from broker.api.topic_checks import DUPLICATE_TOPIC, PARTITIONS_PER_REQUEST_MAX, TOO_MANY_PARTITIONS, check_room, check_writable, repeated
from broker.groups.journal import Journal
from broker.net.dispatch import Call, Response, Route
from broker.runtime.node import Node
from broker.security.authorizer import Authorizer, Operation, topic_allowed
from broker.settings.config import Config
from broker.topics.leaders import Leaders
from broker.topics.partitions import Partitions
from broker.topics.registry import Topics
from protocol.errors import ErrorCode
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


def route(parts: Parts) -> Route:
    handler = CreatePartitions(parts.node, parts.leaders, parts.topics, parts.registry, parts.partitions, parts.authorizer, parts.config)
    return Route(CreatePartitionsRequest, handler.handle, refuse)


class CreatePartitions:
    def __init__(
        self,
        node: Node,
        leaders: Leaders | None,
        topics: Topics,
        registry: Journal,
        partitions: Partitions,
        authorizer: Authorizer,
        config: Config,
    ) -> None:
        self._node = node
        self._leaders = leaders
        self._topics = topics
        self._registry = registry
        self._partitions = partitions
        self._authorizer = authorizer
        self._partitions_max = config.partitions_max

    def handle(self, call: Call, request: CreatePartitionsRequest) -> Response | None:
        if request.timeout_ms <= 0:
            results = [CreatePartitionsTopicResult(topic.name, ErrorCode.REQUEST_TIMED_OUT, None) for topic in request.topics]
            return CreatePartitionsResponse(results=results)
        duplicates = repeated(topic.name for topic in request.topics)
        results = [CreatePartitionsTopicResult(name, ErrorCode.INVALID_REQUEST, DUPLICATE_TOPIC) for name in duplicates]
        for topic in request.topics:
            if topic.name in duplicates:
                continue
            error, message = ErrorCode.NONE, None
            try:
                if not topic_allowed(self._authorizer, call, Operation.ALTER, topic.name):
                    raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                self._grow(topic, request.validate_only)
            except Refused as refused:
                error, message = refused.error, refused.message
            results.append(CreatePartitionsTopicResult(topic.name, error, message))
        call.reply = CreatePartitionsResponse(results=results)
        self._registry.reply(call)
        return None

    def _grow(self, wanted: CreatePartitionsTopic, validate_only: bool) -> None:
        name = wanted.name
        topic = self._topics.by_name.get(name)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if topic.internal:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Groups live by the number of partitions that '{name}' has: it stays.")
        more = wanted.count - topic.partitions
        if more == 0:
            raise Refused(ErrorCode.INVALID_PARTITIONS, f"Topic already has {topic.partitions} partition(s).")
        if more < 0:
            raise Refused(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {name} currently has {topic.partitions} partition(s); {wanted.count} would not be an increase.",
            )
        if wanted.assignments is not None:
            if len(wanted.assignments) != more:
                raise bad_assignment(
                    f"Attempted to add {more} additional partition(s), but only {len(wanted.assignments)} assignment(s) were specified."
                )
            for assignment in wanted.assignments:
                check_replicas(assignment.broker_ids, brokers_there(self._node, self._leaders))
        if more > PARTITIONS_PER_REQUEST_MAX:
            raise Refused(ErrorCode.POLICY_VIOLATION, TOO_MANY_PARTITIONS)
        check_room(self._topics, more, self._partitions_max)
        if validate_only:
            return
        check_writable(self._registry)
        self._partitions.grown(self._topics.add_partitions(name, wanted.count), topic.partitions)


def refuse(request: CreatePartitionsRequest, version: int, error: int) -> Response:
    message = ErrorCode(error).message
    return CreatePartitionsResponse(results=[CreatePartitionsTopicResult(topic.name, error, message) for topic in request.topics])
