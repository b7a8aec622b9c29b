"""IncrementalAlterConfigs: set or delete single settings of a topic or group, or append to and subtract from lists."""

from __future__ import annotations

from collections.abc import Mapping

from broker.api.config_changes import AlterOperation, ConfigChanges, ConfigResource, Edit, Result
from broker.api.config_resources import ConfigResourceType
from broker.api.group_policies import changed_names, is_list
from broker.api.node_drain import drained_value
from broker.api.parts import BrokerParts
from broker.api.refused import Refused
from broker.net.dispatch import Call, Response, Route
from broker.topics.setting import items_of
from broker.topics.settings import TOPIC_SETTINGS
from protocol.errors import ErrorCode
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.wire import Steps


def route(parts: BrokerParts) -> Route:
    return Route(IncrementalAlterConfigsRequest, parts.long_requests.handler(IncrementalAlterConfigs(ConfigChanges(parts)).handle), error_response)


class IncrementalAlterConfigs:
    def __init__(self, changes: ConfigChanges) -> None:
        self._changes = changes

    def handle(self, call: Call, request: IncrementalAlterConfigsRequest) -> Steps[None]:
        return self._changes.answer(call, request.resources, tuple(ConfigResourceType), request.validate_only, Edit(_edit_topic, _edit_group, _drained), _reply)


def _reply(results: list[Result]) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(responses=[AlterConfigsResourceResponse(*result) for result in results])


def _edit_topic(present: Mapping[str, str], resource: ConfigResource) -> dict[str, str]:
    settings = dict(present)
    for config in resource.configs:
        assert isinstance(config, AlterableConfig)
        _edit_setting(settings, config)
    return settings


def _edit_setting(settings: dict[str, str], config: AlterableConfig) -> None:
    name, value = config.name, config.value or ""
    match config.config_operation:
        case AlterOperation.SET:
            settings[name] = value
        case AlterOperation.DELETE:
            settings.pop(name, None)
        case AlterOperation.APPEND | AlterOperation.SUBTRACT as change:
            setting = TOPIC_SETTINGS.get(name)
            if setting is None or setting.kind not in ("list", "replicas"):
                raise Refused(ErrorCode.INVALID_CONFIG, not_a_list(change, name))
            items = [item for item in items_of(settings.get(name, setting.default)) if item]
            for operand in value.split(","):
                if change == AlterOperation.SUBTRACT:
                    items = [item for item in items if item != operand]
                elif operand not in items:
                    items.append(operand)
            settings[name] = ",".join(items)
        case unknown:
            raise Refused(ErrorCode.INVALID_REQUEST, f"There is no operation {unknown}")


def _edit_group(present: Mapping[str, str], resource: ConfigResource) -> dict[str, str]:
    settings = dict(present)
    for config in resource.configs:
        assert isinstance(config, AlterableConfig)
        name, value = config.name, config.value or ""
        match config.config_operation:
            case AlterOperation.SET:
                settings[name] = value.strip()
            case AlterOperation.DELETE:
                settings.pop(name, None)
            case AlterOperation.APPEND | AlterOperation.SUBTRACT as change:
                if not is_list(name):
                    raise Refused(ErrorCode.INVALID_CONFIG, not_a_list(change, name))
                try:
                    names = changed_names(name, settings.pop(name, None), value, change == AlterOperation.SUBTRACT)
                except ValueError as error:
                    raise Refused(ErrorCode.INVALID_CONFIG, f"{error}.") from None
                if names:
                    settings[name] = names
            case unknown:
                raise Refused(ErrorCode.INVALID_REQUEST, f"There is no operation {unknown}")
    return settings


def _drained(resource: ConfigResource) -> bool:
    (config,) = resource.configs
    assert isinstance(config, AlterableConfig)
    match config.config_operation:
        case AlterOperation.SET:
            return drained_value(config.value or "")
        case AlterOperation.DELETE:
            return False
        case AlterOperation.APPEND | AlterOperation.SUBTRACT as change:
            raise Refused(ErrorCode.INVALID_CONFIG, not_a_list(change, config.name))
        case unknown:
            raise Refused(ErrorCode.INVALID_REQUEST, f"There is no operation {unknown}")


def not_a_list(change: int, name: str) -> str:
    return f"Can't {AlterOperation(change).name} to key {name} because its type is not LIST."


def error_response(request: IncrementalAlterConfigsRequest, version: int, error: int) -> Response:
    message = ErrorCode(error).message
    return IncrementalAlterConfigsResponse(
        responses=[AlterConfigsResourceResponse(error, message, resource.resource_type, resource.resource_name) for resource in request.resources]
    )
