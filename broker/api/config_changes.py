"""AlterConfigs and IncrementalAlterConfigs: settings of topics change at once; those of the broker stand until it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Sequence
from enum import IntEnum
from typing import Protocol

from broker.api.configs import Kind, check_broker, refusal
from broker.api.serving import Refused, Serving, repeated
from broker.net.dispatch import Call, Response, Route
from broker.security.authorizer import Operation
from broker.topics.registry import Topic, name_problem
from broker.topics.settings import TOPIC_SETTINGS, items_of, settings_problem
from protocol.apis import APIS
from protocol.errors import ErrorCode
from protocol.messages import alter_configs, incremental_alter_configs
from protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from protocol.messages.incremental_alter_configs import AlterableConfig, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse

# Why nothing else can be changed.
FIXED = {
    Kind.BROKER: "The broker's settings stand from its start to its end: it reads them once, and none can be changed while it runs.",
    Kind.BROKER_LOGGER: "Log levels cannot be changed while the broker runs: start it with another log.level.",
    Kind.CLIENT_METRICS: "Clients are not asked for metrics here, so subscriptions to them cannot be made.",
    Kind.GROUP: "There are no groups here that have settings of their own.",
}
REPLACED = (Kind.TOPIC, Kind.BROKER, Kind.CLIENT_METRICS, Kind.GROUP)  # what AlterConfigs knows


class Change(IntEnum):
    """What is to be done with a setting, as IncrementalAlterConfigs numbers it."""

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


Result = tuple[ErrorCode, str | None, int, str]  # of each resource: error, message, its kind and name


class ConfigChangeHandlers:
    """AlterConfigs, IncrementalAlterConfigs."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    def routes(self) -> list[Route]:
        return [
            Route(APIS[AlterConfigsRequest.API_KEY], self.alter, refuse_alter),
            Route(APIS[IncrementalAlterConfigsRequest.API_KEY], self.change, refuse_change),
        ]

    def alter(self, call: Call, request: AlterConfigsRequest) -> Response | None:
        """What is not named goes back to its default."""
        results = self._judge(call, request.resources, REPLACED, request.validate_only, replaced)
        call.reply = AlterConfigsResponse(responses=[alter_configs.AlterConfigsResourceResponse(*result) for result in results])
        self._serving.registry.reply(call)
        return None

    def change(self, call: Call, request: IncrementalAlterConfigsRequest) -> Response | None:
        results = self._judge(call, request.resources, tuple(Kind), request.validate_only, changed)
        told = [incremental_alter_configs.AlterConfigsResourceResponse(*result) for result in results]
        call.reply = IncrementalAlterConfigsResponse(responses=told)
        self._serving.registry.reply(call)
        return None

    def _judge(
        self,
        call: Call,
        resources: Sequence[Resource],
        kinds: Container[int],
        validate_only: bool,
        settings_of: Callable[[Topic, Resource], dict[str, str]],
    ) -> list[Result]:
        times = Counter((one.resource_type, one.resource_name) for one in resources)
        results: list[Result] = []
        for resource in resources:
            error, message = ErrorCode.NONE, None
            try:
                if times[resource.resource_type, resource.resource_name] > 1:
                    raise Refused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                check_shape(resource)
                self._check_kind(resource, kinds)
                forbidden = refusal(self._serving, call, Operation.ALTER_CONFIGS, resource.resource_type, resource.resource_name)
                if forbidden:
                    raise Refused(forbidden)
                self._apply(resource, validate_only, settings_of)
            except Refused as refused:
                error, message = refused.error, refused.message
            results.append((error, message, resource.resource_type, resource.resource_name))
        return results

    def _check_kind(self, resource: Resource, kinds: Container[int]) -> None:
        kind = resource.resource_type
        if kind not in kinds:
            raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")
        if kind == Kind.BROKER_LOGGER or (kind == Kind.BROKER and resource.resource_name):
            check_broker(self._serving, resource.resource_name)

    def _apply(self, resource: Resource, validate_only: bool, settings_of: Callable[[Topic, Resource], dict[str, str]]) -> None:
        if resource.resource_type == Kind.TOPIC:
            self._alter_topic(resource, validate_only, settings_of)
        elif resource.configs:  # to change nothing is no change
            raise Refused(ErrorCode.INVALID_REQUEST, FIXED[Kind(resource.resource_type)])

    def _alter_topic(self, resource: Resource, validate_only: bool, settings_of: Callable[[Topic, Resource], dict[str, str]]) -> None:
        serving = self._serving
        name = resource.resource_name
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        topic = serving.topics.by_name.get(name)
        if topic is None:
            problem = name_problem(name)
            if problem is not None:
                raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        settings = settings_of(topic, resource)
        problem = settings_problem(list(settings.items()))
        if problem is not None:
            raise Refused(ErrorCode.INVALID_CONFIG, problem)
        if topic.internal:
            raise Refused(ErrorCode.INVALID_REQUEST, f"The logs of '{name}' go by the broker's settings: those of the topic stay.")
        if validate_only or settings == topic.settings:
            return
        serving.check_writable()
        serving.partitions.altered(serving.topics.alter(name, settings))


def check_shape(resource: Resource) -> None:
    if repeated(one.name for one in resource.configs):
        raise Refused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [one.name for one in resource.configs if one.value is None and getattr(one, "config_operation", Change.SET) != Change.DELETE]
    if nulls:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")


def replaced(topic: Topic, resource: Resource) -> dict[str, str]:
    return {one.name: one.value for one in resource.configs if one.value is not None}


def changed(topic: Topic, resource: Resource) -> dict[str, str]:
    settings = dict(topic.settings)
    for one in resource.configs:
        assert isinstance(one, AlterableConfig)
        apply(settings, one)
    return settings


def apply(settings: dict[str, str], one: AlterableConfig) -> None:
    """One change of one setting. Only lists can be added to and taken from."""
    name, value = one.name, one.value or ""
    match one.config_operation:
        case Change.SET:
            settings[name] = value
        case Change.DELETE:
            settings.pop(name, None)
        case Change.APPEND | Change.SUBTRACT as change:
            setting = TOPIC_SETTINGS.get(name)
            if setting is None or setting.kind not in ("list", "replicas"):
                kind = Change(change).name
                raise Refused(ErrorCode.INVALID_CONFIG, f"Can't {kind} to key {name} because its type is not LIST.")
            there = [item for item in items_of(settings.get(name, setting.default)) if item]
            for item in value.split(","):
                if change == Change.SUBTRACT:
                    there = [one for one in there if one != item]
                elif item not in there:
                    there.append(item)
            settings[name] = ",".join(there)
        case unknown:
            raise Refused(ErrorCode.INVALID_REQUEST, f"There is no operation {unknown}")


def refuse_alter(request: AlterConfigsRequest, version: int, error: int) -> Response:
    message = ErrorCode(error).message
    return AlterConfigsResponse(
        responses=[
            alter_configs.AlterConfigsResourceResponse(error, message, one.resource_type, one.resource_name) for one in request.resources
        ]
    )


def refuse_change(request: IncrementalAlterConfigsRequest, version: int, error: int) -> Response:
    message = ErrorCode(error).message
    return IncrementalAlterConfigsResponse(
        responses=[
            incremental_alter_configs.AlterConfigsResourceResponse(error, message, one.resource_type, one.resource_name)
            for one in request.resources
        ]
    )
