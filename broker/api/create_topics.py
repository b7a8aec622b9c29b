"""CreateTopics: create topics; each partition is stored once.

As in Kafka, the replication factor is at most the number of nodes. The reply always says 1, since all nodes share one copy.
"""

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
from broker.security.authorizer import Operation, cluster_allowed, topic_allowed
from broker.topics.registry import NO_ID, Topic, name_problem
from broker.topics.setting_sources import TOPIC
from broker.topics.settings import TOPIC_SETTINGS, settings_problem
from protocol.errors import ErrorCode
from protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.wire import Steps

USE_DEFAULT = -1
CLUSTER_METADATA = "__cluster_metadata"


def route(parts: BrokerParts) -> Route:
    return Route(CreateTopicsRequest, parts.long_requests.handler(CreateTopics(parts).handle), error_response)


class CreateTopics:
    def __init__(self, parts: BrokerParts) -> None:
        self._node = parts.node
        self._leaders = parts.leaders
        self._topics = parts.topics
        self._registry = parts.registry_journal
        self._partitions = parts.partitions
        self._authorizer = parts.authorizer
        self._num_partitions = parts.config.num_partitions
        self._partitions_max = parts.config.partitions_max
        self._defaults = [
            CreatableTopicConfigs(name, value, False, source, False)
            for name in TOPIC_SETTINGS
            for value, source in [parts.setting_sources.default(name)]
        ]

    def handle(self, call: Call, request: CreateTopicsRequest) -> Steps[Response | None]:
        if request.timeout_ms <= 0:
            return CreateTopicsResponse(topics=[_error_result(topic.name, ErrorCode.REQUEST_TIMED_OUT, None) for topic in request.topics])
        duplicates = repeated(topic.name for topic in request.topics)
        single = [topic for topic in request.topics if topic.name not in duplicates]
        authorizer = self._authorizer
        may_create_all = cluster_allowed(authorizer, call, Operation.CREATE)
        allowed = [topic for topic in single if may_create_all or topic_allowed(authorizer, call, Operation.CREATE, topic.name)]
        too_many = sum(len(topic.assignments) or max(topic.num_partitions, 0) for topic in allowed) > PARTITIONS_PER_REQUEST_MAX
        results = []
        hold = self._topics.hold
        for topic in allowed:
            yield LOOKUP_COST + len(topic.configs) // 2
            try:
                if too_many:
                    raise Refused(ErrorCode.POLICY_VIOLATION, TOO_MANY_PARTITIONS)
                created = self._create(topic, request.validate_only)
                yield CREATE_COST
                results.append(self._result(created, topic_allowed(authorizer, call, Operation.DESCRIBE_CONFIGS, created.name)))
            except Refused as refused:
                results.append(_error_result(topic.name, refused.error, refused.message))
        results += [_error_result(name, ErrorCode.INVALID_REQUEST, DUPLICATE_TOPIC) for name in duplicates]
        if len(allowed) < len(single):
            names = {topic.name for topic in allowed}
            results += [_error_result(topic.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None) for topic in single if topic.name not in names]
        if hold is not self._topics.hold:  # replayed meanwhile: changes in the reply may be undone
            return error_response(request, call.version, ErrorCode.KAFKA_STORAGE_ERROR)
        call.reply = CreateTopicsResponse(topics=results)
        self._registry.hold_reply(call)
        return None

    def _create(self, requested: CreatableTopic, validate_only: bool) -> Topic:
        topics = self._topics
        name = requested.name
        if name == CLUSTER_METADATA:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{name} cannot be created by clients: Kafka reserves the name for its controllers.")
        problem = name_problem(name)
        if problem is not None:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
        if name in topics.by_name:
            raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        colliding = topics.colliding(name)
        if colliding is not None:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {colliding}")
        problem = settings_problem([(config.name, config.value) for config in requested.configs])
        if problem is not None:
            raise Refused(ErrorCode.INVALID_CONFIG, problem)
        partitions = self._partition_count(requested)
        check_partition_limit(topics, partitions, self._partitions_max)
        chosen = {config.name: config.value for config in requested.configs if config.value is not None}
        if validate_only:
            return Topic(name, NO_ID, partitions, 0, chosen)
        check_writable(self._registry)
        topic = topics.create(name, partitions, chosen, self._registry.wall)
        self._partitions.created(topic)
        return topic

    def _partition_count(self, requested: CreatableTopic) -> int:
        if requested.assignments:
            if requested.replication_factor != USE_DEFAULT:
                raise Refused(
                    ErrorCode.INVALID_REQUEST, "A manual partition assignment was specified, but replication factor was not set to -1."
                )
            if requested.num_partitions != USE_DEFAULT:
                raise Refused(
                    ErrorCode.INVALID_REQUEST, "A manual partition assignment was specified, but numPartitions was not set to -1."
                )
            return self._assigned_partitions(requested.assignments)
        if requested.replication_factor != USE_DEFAULT and requested.replication_factor <= 0:
            raise Refused(
                ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0, or -1 to use the default value."
            )
        if requested.num_partitions != USE_DEFAULT and requested.num_partitions <= 0:
            raise Refused(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
        brokers = len(live_brokers(self._node, self._leaders))
        if requested.replication_factor > brokers:
            raise Refused(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {requested.replication_factor} time(s): only {brokers} broker(s) are available.",
            )
        return self._num_partitions if requested.num_partitions == USE_DEFAULT else requested.num_partitions

    def _assigned_partitions(self, assignments: list[CreatableReplicaAssignment]) -> int:
        indexes: set[int] = set()
        for assignment in assignments:
            if assignment.partition_index in indexes:
                raise bad_assignment(f"Found multiple manual partition assignments for partition {assignment.partition_index}")
            indexes.add(assignment.partition_index)
            check_replicas(assignment.broker_ids, live_brokers(self._node, self._leaders))
        if indexes != set(range(len(indexes))):
            raise bad_assignment("partitions should be a consecutive 0-based integer sequence")
        return len(indexes)

    def _result(self, topic: Topic, with_settings: bool) -> CreatableTopicResult:
        if not with_settings:
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return CreatableTopicResult(topic.name, topic.id, ErrorCode.NONE, None, error, -1, -1, [])
        settings = self._defaults
        if topic.settings:
            own = {name: CreatableTopicConfigs(name, value, False, TOPIC, False) for name, value in topic.settings.items()}
            settings = [own.get(setting.name, setting) for setting in settings]
        return CreatableTopicResult(topic.name, topic.id, ErrorCode.NONE, None, 0, topic.partition_count, 1, settings)


def _error_result(name: str, error: int, message: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error, error_message=message, num_partitions=-1, replication_factor=-1, configs=[])


def error_response(request: CreateTopicsRequest, version: int, error: int) -> Response:
    message = ErrorCode(error).message
    return CreateTopicsResponse(topics=[_error_result(topic.name, error, message) for topic in request.topics])
