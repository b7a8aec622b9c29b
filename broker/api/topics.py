"""Making topics, and making them larger."""

from __future__ import annotations

from broker.api.serving import PARTITIONS_PER_REQUEST_MAX, Refused, Serving, bad_assignment, repeated
from broker.net.dispatch import Call, Response, Route
from broker.security.authorizer import Operation
from broker.topics.registry import NO_ID, Topic, name_problem
from broker.topics.setting_sources import TOPIC
from broker.topics.settings import TOPIC_SETTINGS, settings_problem
from protocol.apis import APIS
from protocol.errors import ErrorCode
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

USE_DEFAULT = -1
CLUSTER_METADATA = "__cluster_metadata"
DUPLICATE = "Duplicate topic name."
TOO_MANY = "Excessively large number of partitions per request."


class TopicHandlers:
    """CreateTopics, CreatePartitions."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._defaults = [
            CreatableTopicConfigs(name, value, False, source, False)
            for name in TOPIC_SETTINGS
            for value, source in [serving.settings.default(name)]
        ]

    def routes(self) -> list[Route]:
        return [
            Route(APIS[CreateTopicsRequest.API_KEY], self.create_topics, refuse_create_topics),
            Route(APIS[CreatePartitionsRequest.API_KEY], self.create_partitions, refuse_create_partitions),
        ]

    # CreateTopics

    def create_topics(self, call: Call, request: CreateTopicsRequest) -> Response | None:
        if request.timeout_ms <= 0:
            return CreateTopicsResponse(topics=[_refusal(topic.name, ErrorCode.REQUEST_TIMED_OUT, None) for topic in request.topics])
        serving = self._serving
        duplicates = repeated(topic.name for topic in request.topics)
        single = [topic for topic in request.topics if topic.name not in duplicates]
        may_all = serving.may_all(call, Operation.CREATE)
        allowed = [topic for topic in single if may_all or serving.may(call, Operation.CREATE, topic.name)]
        too_many = sum(len(topic.assignments) or max(topic.num_partitions, 0) for topic in allowed) > PARTITIONS_PER_REQUEST_MAX
        results = []
        for topic in allowed:
            try:
                if too_many:
                    raise Refused(ErrorCode.POLICY_VIOLATION, TOO_MANY)
                created = self._create(topic, request.validate_only)
                results.append(self._result(created, serving.may(call, Operation.DESCRIBE_CONFIGS, created.name)))
            except Refused as refused:
                results.append(_refusal(topic.name, refused.error, refused.message))
        results += [_refusal(name, ErrorCode.INVALID_REQUEST, DUPLICATE) for name in duplicates]
        if len(allowed) < len(single):
            done = {topic.name for topic in allowed}
            results += [_refusal(topic.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None) for topic in single if topic.name not in done]
        call.reply = CreateTopicsResponse(topics=results)
        serving.registry.reply(call)
        return None

    def _create(self, wanted: CreatableTopic, validate_only: bool) -> Topic:
        serving = self._serving
        topics = serving.topics
        name = wanted.name
        if name == CLUSTER_METADATA:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{name} cannot be made by clients: Kafka keeps the name for its controllers.")
        problem = name_problem(name)
        if problem is not None:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
        if name in topics.by_name:
            raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        other = topics.colliding(name)
        if other is not None:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")
        problem = settings_problem([(config.name, config.value) for config in wanted.configs])
        if problem is not None:
            raise Refused(ErrorCode.INVALID_CONFIG, problem)
        partitions = self._partitions(wanted)
        serving.check_room(partitions)
        chosen = {config.name: config.value for config in wanted.configs if config.value is not None}
        if validate_only:
            return Topic(name, NO_ID, partitions, 0, chosen)
        serving.check_writable()
        topic = topics.create(name, partitions, chosen, serving.registry.wall)
        serving.partitions.created(topic)
        return topic

    def _partitions(self, wanted: CreatableTopic) -> int:
        if wanted.assignments:
            if wanted.replication_factor != USE_DEFAULT:
                raise Refused(
                    ErrorCode.INVALID_REQUEST, "A manual partition assignment was specified, but replication factor was not set to -1."
                )
            if wanted.num_partitions != USE_DEFAULT:
                raise Refused(
                    ErrorCode.INVALID_REQUEST, "A manual partition assignment was specified, but numPartitions was not set to -1."
                )
            return self._assigned_partitions(wanted.assignments)
        if wanted.replication_factor != USE_DEFAULT and wanted.replication_factor <= 0:
            raise Refused(
                ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0, or -1 to use the default value."
            )
        if wanted.num_partitions != USE_DEFAULT and wanted.num_partitions <= 0:
            raise Refused(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
        if wanted.replication_factor > 1:
            raise Refused(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {wanted.replication_factor} time(s): only 1 broker is there.",
            )
        return self._serving.num_partitions if wanted.num_partitions == USE_DEFAULT else wanted.num_partitions

    def _assigned_partitions(self, assignments: list[CreatableReplicaAssignment]) -> int:
        seen: set[int] = set()
        for assignment in assignments:
            if assignment.partition_index in seen:
                raise bad_assignment(f"Found multiple manual partition assignments for partition {assignment.partition_index}")
            seen.add(assignment.partition_index)
            self._serving.check_replicas(assignment.broker_ids)
        if seen != set(range(len(seen))):
            raise bad_assignment("partitions should be a consecutive 0-based integer sequence")
        return len(seen)

    def _result(self, topic: Topic, with_settings: bool) -> CreatableTopicResult:
        if not with_settings:
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return CreatableTopicResult(topic.name, topic.id, ErrorCode.NONE, None, error, -1, -1, [])
        shown = self._defaults
        if topic.settings:
            own = {name: CreatableTopicConfigs(name, value, False, TOPIC, False) for name, value in topic.settings.items()}
            shown = [own.get(setting.name, setting) for setting in shown]
        return CreatableTopicResult(topic.name, topic.id, ErrorCode.NONE, None, 0, topic.partitions, 1, shown)

    # CreatePartitions

    def create_partitions(self, call: Call, request: CreatePartitionsRequest) -> Response | None:
        if request.timeout_ms <= 0:
            results = [CreatePartitionsTopicResult(topic.name, ErrorCode.REQUEST_TIMED_OUT, None) for topic in request.topics]
            return CreatePartitionsResponse(results=results)
        serving = self._serving
        duplicates = repeated(topic.name for topic in request.topics)
        results = [CreatePartitionsTopicResult(name, ErrorCode.INVALID_REQUEST, DUPLICATE) for name in duplicates]
        for topic in request.topics:
            if topic.name in duplicates:
                continue
            error, message = ErrorCode.NONE, None
            try:
                if not serving.may(call, Operation.ALTER, topic.name):
                    raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                self._grow(topic, request.validate_only)
            except Refused as refused:
                error, message = refused.error, refused.message
            results.append(CreatePartitionsTopicResult(topic.name, error, message))
        call.reply = CreatePartitionsResponse(results=results)
        serving.registry.reply(call)
        return None

    def _grow(self, wanted: CreatePartitionsTopic, validate_only: bool) -> None:
        serving = self._serving
        name = wanted.name
        topic = serving.topics.by_name.get(name)
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
                serving.check_replicas(assignment.broker_ids)
        if more > PARTITIONS_PER_REQUEST_MAX:
            raise Refused(ErrorCode.POLICY_VIOLATION, TOO_MANY)
        serving.check_room(more)
        if validate_only:
            return
        serving.check_writable()
        serving.partitions.grown(serving.topics.add_partitions(name, wanted.count), topic.partitions)


def _refusal(name: str, error: int, message: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error, error_message=message, num_partitions=-1, replication_factor=-1, configs=[])


def refuse_create_topics(request: CreateTopicsRequest, version: int, error: int) -> Response:
    message = ErrorCode(error).message
    return CreateTopicsResponse(topics=[_refusal(topic.name, error, message) for topic in request.topics])


def refuse_create_partitions(request: CreatePartitionsRequest, version: int, error: int) -> Response:
    message = ErrorCode(error).message
    return CreatePartitionsResponse(results=[CreatePartitionsTopicResult(topic.name, error, message) for topic in request.topics])
