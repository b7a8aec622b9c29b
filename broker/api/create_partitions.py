"""CreatePartitions: raise the number of partitions of topics."""

from __future__ import annotations

from broker.api.parts import BrokerParts
from broker.api.refused import Refused
from broker.api.replica_assignments import bad_assignment, check_replicas, live_brokers
from broker.api.topic_checks import (
    DUPLICATE_TOPIC,
    PARTITIONS_PER_REQUEST_MAX,
    TOO_MANY_PARTITIONS,
    check_partition_limit,
    check_writable,
    repeated,
)
from broker.net.dispatch import Call, Response, Route
from broker.net.long_requests import CREATE_COST, LOOKUP_COST
from broker.security.authorizer import Operation, topic_allowed
from protocol.errors import ErrorCode
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from protocol.wire import Steps


def route(parts: BrokerParts) -> Route:
    return Route(CreatePartitionsRequest, parts.long_requests.handler(CreatePartitions(parts).handle), error_response)


class CreatePartitions:
    def __init__(self, parts: BrokerParts) -> None:
        self._node = parts.node
        self._leaders = parts.leaders
        self._topics = parts.topics
        self._registry = parts.registry_journal
        self._partitions = parts.partitions
        self._authorizer = parts.authorizer
        self._partitions_max = parts.config.partitions_max

    def handle(self, call: Call, request: CreatePartitionsRequest) -> Steps[Response | None]:
        if request.timeout_ms <= 0:
            results = [CreatePartitionsTopicResult(topic.name, ErrorCode.REQUEST_TIMED_OUT, None) for topic in request.topics]
            return CreatePartitionsResponse(results=results)
        duplicates = repeated(topic.name for topic in request.topics)
        results = [CreatePartitionsTopicResult(name, ErrorCode.INVALID_REQUEST, DUPLICATE_TOPIC) for name in duplicates]
        hold = self._topics.hold
        for topic in request.topics:
            yield LOOKUP_COST
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
            if not error:
                yield CREATE_COST
        if hold is not self._topics.hold:  # replayed meanwhile: changes in the reply may be undone
            return error_response(request, call.version, ErrorCode.KAFKA_STORAGE_ERROR)
        call.reply = CreatePartitionsResponse(results=results)
        self._registry.hold_reply(call)
        return None

    def _grow(self, requested: CreatePartitionsTopic, validate_only: bool) -> None:
        name = requested.name
        topic = self._topics.by_name.get(name)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if topic.internal:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"The number of partitions of '{name}' decides where groups are stored, so it cannot be changed.")
        more = requested.count - topic.partition_count
        if more == 0:
            raise Refused(ErrorCode.INVALID_PARTITIONS, f"Topic already has {topic.partition_count} partition(s).")
        if more < 0:
            raise Refused(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {name} currently has {topic.partition_count} partition(s); {requested.count} would not be an increase.",
            )
        if requested.assignments is not None:
            if len(requested.assignments) != more:
                raise bad_assignment(
                    f"Attempted to add {more} additional partition(s), but only {len(requested.assignments)} assignment(s) were specified."
                )
            for assignment in requested.assignments:
                check_replicas(assignment.broker_ids, live_brokers(self._node, self._leaders))
        if more > PARTITIONS_PER_REQUEST_MAX:
            raise Refused(ErrorCode.POLICY_VIOLATION, TOO_MANY_PARTITIONS)
        check_partition_limit(self._topics, more, self._partitions_max)
        if validate_only:
            return
        check_writable(self._registry)
        self._partitions.partitions_added(self._topics.add_partitions(name, requested.count))


def error_response(request: CreatePartitionsRequest, version: int, error: int) -> Response:
    message = ErrorCode(error).message
    return CreatePartitionsResponse(results=[CreatePartitionsTopicResult(topic.name, error, message) for topic in request.topics])
