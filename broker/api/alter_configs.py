"""AlterConfigs: replace all settings of a topic or group; settings that are not named return to their default."""

from __future__ import annotations

from typing import Final

from broker.api.config_changes import ConfigChanges, ConfigResource, Edit, Result
from broker.api.config_resources import ConfigResourceType
from broker.api.parts import BrokerParts
from broker.net.dispatch import Call, Response, Route
from protocol.errors import ErrorCode
from protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse
from protocol.wire import Steps

KINDS: Final = (ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.CLIENT_METRICS, ConfigResourceType.GROUP)


def route(parts: BrokerParts) -> Route:
    return Route(AlterConfigsRequest, parts.long_requests.handler(AlterConfigs(ConfigChanges(parts)).handle), error_response)


class AlterConfigs:
    def __init__(self, changes: ConfigChanges) -> None:
        self._changes = changes

    def handle(self, call: Call, request: AlterConfigsRequest) -> Steps[None]:
        return self._changes.answer(call, request.resources, KINDS, request.validate_only, Edit(_replace, _replace), _reply)


def _replace(before: object, resource: ConfigResource) -> dict[str, str]:
    return {setting.name: setting.value for setting in resource.configs if setting.value is not None}


def _reply(results: list[Result]) -> AlterConfigsResponse:
    return AlterConfigsResponse(responses=[AlterConfigsResourceResponse(*result) for result in results])


def error_response(request: AlterConfigsRequest, version: int, error: int) -> Response:
    message = ErrorCode(error).message
    return AlterConfigsResponse(
        responses=[AlterConfigsResourceResponse(error, message, resource.resource_type, resource.resource_name) for resource in request.resources]
    )
