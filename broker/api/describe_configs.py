"""DescribeConfigs: the settings of topics, of the broker, of its loggers, and of groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from broker.api.config_resources import ConfigResourceType, authorization_error, check_broker, find_topic
from broker.api.encoded_arrays import EncodedArray
from broker.api.group_policies import GroupSettings
from broker.api.node_drain import DRAINED_DOC
from broker.api.parts import BrokerParts
from broker.api.refused import Refused
from broker.api.settings_without_effect import GROUP_SETTINGS, METRICS_SETTINGS, NO_EFFECT
from broker.groups.held_replies import GroupParts
from broker.net.dispatch import Call, Response, Route
from broker.net.long_requests import LOOKUP_COST
from broker.runtime.node import DRAINED
from broker.security.authorizer import Operation
from broker.settings.config import SUPPORTED
from broker.settings.kafka_names import KNOWN
from broker.topics.setting_sources import DEFAULT, DYNAMIC_BROKER, Synonym
from broker.topics.settings import TOPIC_SETTINGS
from protocol.errors import ErrorCode
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from protocol.wire import Steps

_write = DescribeConfigsResult.write_array_in_steps

KINDS = tuple(ConfigResourceType)
RESOURCES_PER_STEP = 16
BROKER_LOGGER_SOURCE = 6
ROOT_LOGGER = "root"
STATUS_DOC = "A state of this node, not a setting."
# Type codes of DescribeConfigs.
TYPES = {"boolean": 1, "string": 2, "int": 3, "short": 4, "long": 5, "double": 6, "list": 7, "class": 8, "password": 9, "replicas": 7}
PASSWORD = TYPES["password"]


def route(parts: BrokerParts) -> Route:
    return Route(DescribeConfigsRequest, parts.long_requests.handler(DescribeConfigs(parts).handle), error_response)


class DescribeConfigs:
    def __init__(self, parts: BrokerParts) -> None:
        self._node = parts.node
        self._topics = parts.topics
        self._registry = parts.registry_journal
        self._authorizer = parts.authorizer
        self._sources = parts.setting_sources
        self._log_level = parts.config.log_level
        self._status = parts.status
        self._drain = parts.drain
        self._groups = GroupSettings(parts.shards, parts.clock, parts.setting_sources)

    def handle(self, call: Call, request: DescribeConfigsRequest) -> Steps[Response | None]:
        """Describe the resources one by one."""
        for number, resource in enumerate(request.resources):
            if number % RESOURCES_PER_STEP == 0:
                yield LOOKUP_COST
            if resource.resource_type not in KINDS:
                return error_response(request, call.version, ErrorCode.INVALID_REQUEST)
        topics = self._topics
        reply = EncodedArray(call, DescribeConfigsResponse())
        hold = None
        while hold is not topics.hold:  # start over if the registry was replayed: undone changes may be in the reply
            hold = topics.hold
            reply.clear()
            groups = GroupParts()
            refused = []
            for resource in request.resources:
                result = DescribeConfigsResult(ErrorCode.NONE, "", resource.resource_type, resource.resource_name, [])
                error = authorization_error(
                    self._authorizer, call, Operation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name
                )
                yield LOOKUP_COST
                if error:
                    result.error_code, result.error_message = error, error.message
                    refused.append(result)
                    continue
                try:
                    result.configs = self._settings(resource, request.include_synonyms, request.include_documentation)
                    if resource.resource_type == ConfigResourceType.GROUP:
                        result.configs += self._policies(resource, request, groups, len(reply))
                except Refused as problem:
                    result.error_code, result.error_message = problem.error, problem.message
                yield len(result.configs)
                yield from reply.add(_write, result)
            for result in refused:
                yield from reply.add(_write, result)
        call.reply = reply
        if not groups:
            self._registry.hold_reply(call)
            return None

        def refuse(error: int) -> None:
            reply.clear()
            for result in error_response(request, call.version, error).results:
                for _ in reply.add(_write, result):
                    pass

        groups.answer_all(call, reply, self._registry, refuse)
        return None

    def _settings(self, resource: DescribeConfigsResource, synonyms: bool, documentation: bool) -> list[DescribeConfigsResourceResult]:
        names = set(resource.configuration_keys or ())
        settings = []
        for setting in self._settings_of(resource, names):
            if not synonyms:
                setting.synonyms = []
            if not documentation:
                setting.documentation = None
            settings.append(setting)
        return settings

    def _policies(
        self, resource: DescribeConfigsResource, request: DescribeConfigsRequest, groups: GroupParts, number: int
    ) -> list[DescribeConfigsResourceResult]:
        journal = self._groups.journal_of(resource.resource_name)
        groups.add(journal, number)
        results = []
        for entry in self._groups.entries(journal, resource.resource_name, resource.configuration_keys or ()):
            value, source = entry.sources[0].value, entry.sources[0].source
            sources = entry.sources if request.include_synonyms else ()
            documentation = entry.documentation if request.include_documentation else None
            results.append(config_result(entry.name, value, source, sources, entry.kind, documentation, entry.read_only))
        return results

    def _settings_of(self, resource: DescribeConfigsResource, names: set[str]) -> Iterator[DescribeConfigsResourceResult]:
        """The settings named in `names`, or all if it is empty."""
        name = resource.resource_name
        match resource.resource_type:
            case ConfigResourceType.TOPIC:
                return self._topic_settings(name, names)
            case ConfigResourceType.BROKER:
                if not name:
                    return iter(())  # there are no cluster-wide dynamic settings
                check_broker(name, self._node.id)
                return self._broker_settings(names)
            case ConfigResourceType.BROKER_LOGGER:
                if not name:
                    raise Refused(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
                check_broker(name, self._node.id)
                return self._logger_settings(names)
            case ConfigResourceType.CLIENT_METRICS:
                if not name:
                    raise Refused(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty.")
                return without_effect(METRICS_SETTINGS, names, lambda key: ())
            case ConfigResourceType.GROUP:
                if not name:
                    raise Refused(ErrorCode.INVALID_REQUEST, "Group name must not be empty.")
                return without_effect(GROUP_SETTINGS, names, group_synonyms)
        raise AssertionError(f"unknown resource type: {resource.resource_type}")

    def _topic_settings(self, name: str, names: set[str]) -> Iterator[DescribeConfigsResourceResult]:
        topic = find_topic(self._topics, name, "")
        sources = self._sources
        return (
            config_result(name, *sources.topic_value(topic, name), sources.topic_sources(topic, name), setting.kind, setting.doc, False)
            for name, setting in TOPIC_SETTINGS.items()
            if not names or name in names
        )

    def _broker_settings(self, names: set[str]) -> Iterator[DescribeConfigsResourceResult]:
        """The broker's settings, read-only except `node.drained`."""
        if self._drain is not None and (not names or DRAINED in names):
            default = Synonym(DRAINED, "false", DEFAULT)
            sources: tuple[Synonym, ...] = (Synonym(DRAINED, "true", DYNAMIC_BROKER), default) if self._drain.drained else (default,)
            yield config_result(DRAINED, sources[0].value, sources[0].source, sources, "boolean", DRAINED_DOC, False)
        for name in dict.fromkeys([*KNOWN, *SUPPORTED, *self._sources.given]):
            if names and name not in names:
                continue
            honoured = SUPPORTED.get(name)
            kind = honoured.kind if honoured is not None else KNOWN[name][0].lower() if name in KNOWN else "password"
            sources = self._sources.broker_sources(name)
            yield config_result(name, sources[0].value, sources[0].source, sources, kind, honoured.doc if honoured is not None else NO_EFFECT)

        for name, value in self._status().items():
            if not names or name in names:
                yield config_result(name, value, DEFAULT, (Synonym(name, value, DEFAULT),), "string", STATUS_DOC)

    def _logger_settings(self, names: set[str]) -> Iterator[DescribeConfigsResourceResult]:
        """The root logger, which has the level of all logging."""
        for name in [ROOT_LOGGER] if not names or ROOT_LOGGER in names else []:
            level = self._log_level.upper()
            source = Synonym(name, level, BROKER_LOGGER_SOURCE)
            yield config_result(name, level, BROKER_LOGGER_SOURCE, (source,), "string", SUPPORTED["log.level"].doc)


def without_effect(
    settings: dict[str, tuple[str, str]], names: set[str], synonyms_of: Callable[[str], tuple[Synonym, ...]]
) -> Iterator[DescribeConfigsResourceResult]:
    """The settings of Kafka resource types that do not exist here, at their defaults."""
    for name, (kind, default) in settings.items():
        if not names or name in names:
            yield config_result(name, default, DEFAULT, synonyms_of(name), kind, NO_EFFECT)


def group_synonyms(name: str) -> tuple[Synonym, ...]:
    broker_name = f"group.{name}" if f"group.{name}" in KNOWN else name
    return (Synonym(broker_name, GROUP_SETTINGS[name][1], DEFAULT),)


def config_result(
    name: str, value: str | None, source: int, sources: Iterable[Synonym], kind: str, documentation: str | None, read_only: bool = True
) -> DescribeConfigsResourceResult:
    type = TYPES[kind]
    secret = type == PASSWORD
    synonyms = [
        DescribeConfigsSynonym(synonym.name, None if secret else synonym.value, synonym.source)
        for synonym in sources
        if synonym.value is not None or synonym.source != DEFAULT
    ]
    return DescribeConfigsResourceResult(name, None if secret else value, read_only, source, secret, synonyms, type, documentation)


def error_response(request: DescribeConfigsRequest, version: int, error: int) -> DescribeConfigsResponse:
    message = ErrorCode(error).message
    return DescribeConfigsResponse(
        results=[DescribeConfigsResult(error, message, resource.resource_type, resource.resource_name, []) for resource in request.resources]
    )
