"""Making topics."""

from __future__ import annotations

from broker.dispatch import Call, Response, Route
from broker.journal import Journal
from broker.node import Node
from broker.topic_settings import TOPIC_SETTINGS, settings_problem
from broker.topics import Topic, Topics, name_problem
from protocol.apis import APIS
from protocol.errors import ErrorCode
from protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

PARTITIONS_PER_REQUEST_MAX = 10_000  # Kafka's own: an accident with one digit too many is no request
MESSAGE_CHARACTERS_MAX = 1000  # a message may name what the client sent, which may be longer than a reply can hold
TOPIC_SOURCE, DEFAULT_SOURCE = 1, 5  # where a setting's value comes from, as DescribeConfigs numbers it
USE_DEFAULT = -1


class Refused(Exception):
    """This topic is not made; the rest of the request goes on."""

    def __init__(self, error: ErrorCode, message: str | None) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


class TopicHandlers:
    """CreateTopics."""

    def __init__(self, node: Node, topics: Topics, registry: Journal, num_partitions: int, partitions_max: int) -> None:
        self._node = node
        self._topics = topics
        self._registry = registry
        self._num_partitions = num_partitions
        self._partitions_max = partitions_max

    def routes(self) -> list[Route]:
        return [Route(APIS[CreateTopicsRequest.API_KEY], self.create_topics, refuse_create_topics)]

    def create_topics(self, call: Call, request: CreateTopicsRequest) -> Response | None:
        if request.timeout_ms <= 0:
            return CreateTopicsResponse(topics=[_refusal(topic.name, ErrorCode.REQUEST_TIMED_OUT, None) for topic in request.topics])
        times: dict[str, int] = {}
        for topic in request.topics:
            times[topic.name] = times.get(topic.name, 0) + 1
        single = [topic for topic in request.topics if times[topic.name] == 1]
        too_many = sum(max(topic.num_partitions, len(topic.assignments)) for topic in single) > PARTITIONS_PER_REQUEST_MAX
        results = []
        for topic in single:
            try:
                if too_many:
                    raise Refused(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
                results.append(self._create(topic, request.validate_only))
            except Refused as refused:
                results.append(_refusal(topic.name, refused.error, refused.message))
        results += [
            _refusal(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.") for name, count in times.items() if count > 1
        ]
        call.reply = CreateTopicsResponse(topics=results)
        self._registry.reply(call)
        return None

    def _create(self, wanted: CreatableTopic, validate_only: bool) -> CreatableTopicResult:
        name = wanted.name
        problem = name_problem(name)
        if problem is not None:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
        if name in self._topics.by_name:
            raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        other = self._topics.colliding(name)
        if other is not None:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")
        problem = settings_problem([(config.name, config.value) for config in wanted.configs])
        if problem is not None:
            raise Refused(ErrorCode.INVALID_CONFIG, problem)
        partitions = self._partitions(wanted)
        if self._topics.partitions + partitions > self._partitions_max:
            raise Refused(
                ErrorCode.POLICY_VIOLATION,
                f"{self._topics.partitions} partitions exist and {partitions} more would be over {self._partitions_max} (partitions.max)",
            )
        chosen = {config.name: config.value for config in wanted.configs if config.value is not None}
        if validate_only:
            return _result(Topic(name, bytes(16), partitions, 0, chosen))
        if not self._registry.writable:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, "The registry of topics cannot be written at present.")
        return _result(self._topics.create(name, partitions, chosen, self._registry.now()))

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
        return self._num_partitions if wanted.num_partitions == USE_DEFAULT else wanted.num_partitions

    def _assigned_partitions(self, assignments: list[CreatableReplicaAssignment]) -> int:
        def invalid(message: str) -> Refused:
            return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)

        seen: set[int] = set()
        for assignment in assignments:
            if assignment.partition_index in seen:
                raise invalid(f"Found multiple manual partition assignments for partition {assignment.partition_index}")
            seen.add(assignment.partition_index)
            brokers = assignment.broker_ids
            if not brokers:
                raise invalid("The manual partition assignment includes an empty replica list.")
            for broker in brokers:
                if broker != self._node.id:
                    raise invalid(f"The manual partition assignment includes broker {broker}, but no such broker is registered.")
            if len(brokers) > 1:
                raise invalid(f"The manual partition assignment includes the broker {brokers[0]} more than once.")
        if seen != set(range(len(seen))):
            raise invalid("partitions should be a consecutive 0-based integer sequence")
        return len(seen)


def _result(topic: Topic) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=topic.partitions,
        replication_factor=1,
        configs=[
            CreatableTopicConfigs(
                setting.name,
                topic.settings.get(setting.name, setting.default),
                False,
                TOPIC_SOURCE if setting.name in topic.settings else DEFAULT_SOURCE,
                False,
            )
            for setting in TOPIC_SETTINGS.values()
        ],
    )


def _refusal(name: str, error: int, message: str | None) -> CreatableTopicResult:
    if message is not None and len(message) > MESSAGE_CHARACTERS_MAX:
        message = f"{message[:MESSAGE_CHARACTERS_MAX]}..."
    return CreatableTopicResult(name=name, error_code=error, error_message=message, num_partitions=-1, replication_factor=-1, configs=[])


def refuse_create_topics(request: CreateTopicsRequest, version: int, error: int) -> Response:
    message = ErrorCode(error).message
    return CreateTopicsResponse(topics=[_refusal(topic.name, error, message) for topic in request.topics])
