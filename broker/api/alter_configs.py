"""AlterConfigs: replace all settings of a topic; settings that are not named return to their default."""

from __future__ import annotations

from typing import Final

from broker.api.config_changes import ConfigChanges, Resource
from broker.api.config_resources import Kind
from broker.api.parts import Parts
from broker.groups.journal import Journal
from broker.net.dispatch import Call, Response, Route
from broker.topics.registry import Topic
from protocol.errors import ErrorCode
from protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse

KINDS: Final = (Kind.TOPIC, Kind.BROKER, Kind.CLIENT_METRICS, Kind.GROUP)


def route(parts: Parts) -> Route:
    changes = ConfigChanges(parts.node, parts.topics, parts.registry, parts.partitions, parts.authorizer)
    return Route(AlterConfigsRequest, AlterConfigs(changes, parts.registry).handle, refuse)


class AlterConfigs:
    def __init__(self, changes: ConfigChanges, registry: Journal) -> None:
        self._changes = changes
        self._registry = registry

    def handle(self, call: Call, request: AlterConfigsRequest) -> Response | None:
        results = self._changes.apply(call, request.resources, KINDS, request.validate_only, _replaced)
        call.reply = AlterConfigsResponse(responses=[AlterConfigsResourceResponse(*result) for result in results])
        self._registry.reply(call)
        return None


def _replaced(topic: Topic, resource: Resource) -> dict[str, str]:
    return {one.name: one.value for one in resource.configs if one.value is not None}


def refuse(request: AlterConfigsRequest, version: int, error: int) -> Response:
    message = ErrorCode(error).message
    return AlterConfigsResponse(
        responses=[AlterConfigsResourceResponse(error, message, one.resource_type, one.resource_name) for one in request.resources]
    )
