"""IncrementalAlterConfigs: set or delete single settings of a topic, or append to and subtract from lists."""

from __future__ import annotations

from broker.api.config_changes import Change, ConfigChanges, Resource
from broker.api.config_resources import Kind
from broker.api.parts import Parts
from broker.api.refused import Refused
from broker.groups.journal import Journal
from broker.net.dispatch import Call, Response, Route
from broker.topics.registry import Topic
from broker.topics.settings import TOPIC_SETTINGS, items_of
from protocol.errors import ErrorCode
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


def route(parts: Parts) -> Route:
    changes = ConfigChanges(parts.node, parts.topics, parts.registry, parts.partitions, parts.authorizer)
    return Route(IncrementalAlterConfigsRequest, IncrementalAlterConfigs(changes, parts.registry).handle, refuse)


class IncrementalAlterConfigs:
    def __init__(self, changes: ConfigChanges, registry: Journal) -> None:
        self._changes = changes
        self._registry = registry

    def handle(self, call: Call, request: IncrementalAlterConfigsRequest) -> Response | None:
        results = self._changes.apply(call, request.resources, tuple(Kind), request.validate_only, _changed)
        call.reply = IncrementalAlterConfigsResponse(responses=[AlterConfigsResourceResponse(*result) for result in results])
        self._registry.reply(call)
        return None


def _changed(topic: Topic, resource: Resource) -> dict[str, str]:
    settings = dict(topic.settings)
    for one in resource.configs:
        assert isinstance(one, AlterableConfig)
        _change(settings, one)
    return settings


def _change(settings: dict[str, str], one: AlterableConfig) -> None:
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
            items = [item for item in items_of(settings.get(name, setting.default)) if item]
            for changed in value.split(","):
                if change == Change.SUBTRACT:
                    items = [item for item in items if item != changed]
                elif changed not in items:
                    items.append(changed)
            settings[name] = ",".join(items)
        case unknown:
            raise Refused(ErrorCode.INVALID_REQUEST, f"There is no operation {unknown}")


def refuse(request: IncrementalAlterConfigsRequest, version: int, error: int) -> Response:
    message = ErrorCode(error).message
    return IncrementalAlterConfigsResponse(
        responses=[AlterConfigsResourceResponse(error, message, one.resource_type, one.resource_name) for one in request.resources]
    )
