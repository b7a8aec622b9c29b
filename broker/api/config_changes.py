"""Change settings: those of topics change at once; those of the broker cannot change while it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Sequence
from enum import IntEnum
from typing import Protocol

from broker.api.config_resources import Kind, authorization_error, check_broker, find_topic
from broker.api.refused import Refused
from broker.api.topic_checks import check_writable, repeated
from broker.groups.journal import Journal
from broker.net.dispatch import Call
from broker.runtime.node import Node
from broker.security.authorizer import Authorizer, Operation
from broker.topics.partitions import Partitions
from broker.topics.registry import Topic, Topics
from broker.topics.settings import settings_problem
from protocol.errors import ErrorCode

# Why settings of other resources cannot be changed.
FIXED = {
    Kind.BROKER: "The broker's settings stand from its start to its end: it reads them once, and none can be changed while it runs.",
    Kind.BROKER_LOGGER: "Log levels cannot be changed while the broker runs: start it with another log.level.",
    Kind.CLIENT_METRICS: "Clients are not asked for metrics here, so subscriptions to them cannot be made.",
    Kind.GROUP: "There are no groups here that have settings of their own.",
}


class Change(IntEnum):
    """Operation codes of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Setting(Protocol):
    name: str
    value: str | None


class Resource(Protocol):
    resource_type: int
    resource_name: str

    @property
    def configs(self) -> Sequence[Setting]: ...


Result = tuple[ErrorCode, str | None, int, str]  # of one resource: error, message, kind and name
NewSettings = Callable[[Topic, Resource], dict[str, str]]  # a topic's settings after the requested changes


class ConfigChanges:
    def __init__(self, node: Node, topics: Topics, registry: Journal, partitions: Partitions, authorizer: Authorizer) -> None:
        self._node = node
        self._topics = topics
        self._registry = registry
        self._partitions = partitions
        self._authorizer = authorizer

    def apply(
        self, call: Call, resources: Sequence[Resource], kinds: Container[int], validate_only: bool, new_settings: NewSettings
    ) -> list[Result]:
        times = Counter((one.resource_type, one.resource_name) for one in resources)
        results: list[Result] = []
        for resource in resources:
            kind, name = resource.resource_type, resource.resource_name
            error, message = ErrorCode.NONE, None
            try:
                if times[kind, name] > 1:
                    raise Refused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                _check_shape(resource)
                if kind not in kinds:
                    raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")
                if kind == Kind.BROKER_LOGGER or (kind == Kind.BROKER and name):
                    check_broker(name, self._node.id)
                forbidden = authorization_error(self._authorizer, call, Operation.ALTER_CONFIGS, kind, name)
                if forbidden:
                    raise Refused(forbidden)
                if kind == Kind.TOPIC:
                    self._alter_topic(resource, validate_only, new_settings)
                elif resource.configs:  # an empty change is accepted
                    raise Refused(ErrorCode.INVALID_REQUEST, FIXED[Kind(kind)])
            except Refused as refused:
                error, message = refused.error, refused.message
            results.append((error, message, kind, name))
        return results

    def _alter_topic(self, resource: Resource, validate_only: bool, new_settings: NewSettings) -> None:
        name = resource.resource_name
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        topic = find_topic(self._topics, name, f"The topic '{name}' does not exist.")
        settings = new_settings(topic, resource)
        problem = settings_problem(list(settings.items()))
        if problem is not None:
            raise Refused(ErrorCode.INVALID_CONFIG, problem)
        if topic.internal:
            raise Refused(ErrorCode.INVALID_REQUEST, f"The logs of '{name}' go by the broker's settings: those of the topic stay.")
        if validate_only or settings == topic.settings:
            return
        check_writable(self._registry)
        self._partitions.altered(self._topics.alter(name, settings))


def _check_shape(resource: Resource) -> None:
    if repeated(one.name for one in resource.configs):
        raise Refused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [one.name for one in resource.configs if one.value is None and getattr(one, "config_operation", Change.SET) != Change.DELETE]
    if nulls:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")
