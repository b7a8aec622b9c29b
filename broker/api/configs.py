"""DescribeConfigs: the settings of topics, of the broker, of its loggers, and of groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum

from broker.api.serving import Refused, Serving
from broker.net.dispatch import Call, Response, Route
from broker.net.long_requests import ASKING, Looks
from broker.security.authorizer import CLUSTER_NAME, Operation, Resource
from broker.settings.kafka_names import KNOWN
from broker.topics.registry import name_problem
from broker.topics.setting_docs import GROUP_SETTINGS, METRICS_SETTINGS, NO_EFFECT, TOPIC_DOCS
from broker.topics.setting_sources import DEFAULT, HONOURED, Source
from broker.topics.settings import TOPIC_SETTINGS
from protocol.apis import APIS
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from protocol.wire import UNWRITABLE, put_compact_count, put_legacy_count, unwritable


class Kind(IntEnum):
    """Of resources, as these APIs number them."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


KINDS = tuple(Kind)
BROKER_LOGGER_SOURCE = 6
ROOT_LOGGER = "root"
# Types of values, as DescribeConfigs numbers them.
TYPES = {"boolean": 1, "string": 2, "int": 3, "short": 4, "long": 5, "double": 6, "list": 7, "class": 8, "password": 9, "replicas": 7}
PASSWORD = TYPES["password"]


class DescribeConfigsHandlers:
    """DescribeConfigs."""

    def __init__(self, serving: Serving, log_level: str) -> None:
        self._serving = serving
        self._log_level = log_level
        self._looks = Looks(serving.registry.turn, lambda call, reply: serving.registry.reply(call))

    def routes(self) -> list[Route]:
        return [Route(APIS[DescribeConfigsRequest.API_KEY], self.describe, refuse_describe)]

    def describe(self, call: Call, request: DescribeConfigsRequest) -> Response | None:
        if any(resource.resource_type not in KINDS for resource in request.resources):
            return refuse_describe(request, call.version, ErrorCode.INVALID_REQUEST)
        # Of ten thousand topics it would take more than a second.
        call.reply = reply = EncodedConfigs(call.version)
        if self._looks.answer(call, reply, self._describe(call, request, reply)) is not None:
            self._serving.registry.reply(call)
        return None

    def _describe(self, call: Call, request: DescribeConfigsRequest, reply: EncodedConfigs) -> Iterator[int]:
        """One resource after the other; what each has cost."""
        topics = self._serving.topics
        hold = None
        while hold is not topics.hold:  # the registry was read anew: what was seen before may never have been true
            hold = topics.hold
            reply.clear()
            refused = []
            for resource in request.resources:
                result = DescribeConfigsResult(ErrorCode.NONE, "", resource.resource_type, resource.resource_name, [])
                error = refusal(self._serving, call, Operation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name)
                if error:
                    result.error_code, result.error_message = error, error.message
                    refused.append(result)
                else:
                    try:
                        result.configs = self._settings(resource, request.include_synonyms, request.include_documentation)
                    except Refused as problem:
                        result.error_code, result.error_message = problem.error, problem.message
                    reply.add(result)
                yield ASKING + len(result.configs)
            for result in refused:
                reply.add(result)

    def _settings(self, resource: DescribeConfigsResource, synonyms: bool, documentation: bool) -> list[DescribeConfigsResourceResult]:
        wanted = set(resource.configuration_keys or ())
        found = []
        for setting in self._settings_of(resource, wanted):
            if not synonyms:
                setting.synonyms = []
            if not documentation:
                setting.documentation = None
            found.append(setting)
        return found

    def _settings_of(self, resource: DescribeConfigsResource, wanted: set[str]) -> Iterator[DescribeConfigsResourceResult]:
        """Those named in `wanted`, or all of them."""
        name = resource.resource_name
        match resource.resource_type:
            case Kind.TOPIC:
                return self._of_topic(name, wanted)
            case Kind.BROKER:
                if not name:
                    return iter(())  # nothing is set for all brokers at run time
                check_broker(self._serving, name)
                return self._of_broker(wanted)
            case Kind.BROKER_LOGGER:
                if not name:
                    raise Refused(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
                check_broker(self._serving, name)
                return self._of_loggers(wanted)
            case Kind.CLIENT_METRICS:
                if not name:
                    raise Refused(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty.")
                return without_effect(METRICS_SETTINGS, wanted, lambda key: ())
            case Kind.GROUP:
                if not name:
                    raise Refused(ErrorCode.INVALID_REQUEST, "Group name must not be empty.")
                return without_effect(GROUP_SETTINGS, wanted, behind_group)
        raise AssertionError(f"no such kind: {resource.resource_type}")

    def _of_topic(self, name: str, wanted: set[str]) -> Iterator[DescribeConfigsResourceResult]:
        topic = self._serving.topics.by_name.get(name)
        if topic is None:
            problem = name_problem(name)
            if problem is not None:
                raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        settings = self._serving.settings
        return (
            shown(name, *settings.in_topic(topic, name), settings.of_topic(topic, name), setting.kind, TOPIC_DOCS[name], False)
            for name, setting in TOPIC_SETTINGS.items()
            if not wanted or name in wanted
        )

    def _of_broker(self, wanted: set[str]) -> Iterator[DescribeConfigsResourceResult]:
        """Nothing of it can be changed while it runs."""
        settings = self._serving.settings
        for name in dict.fromkeys([*KNOWN, *HONOURED, *settings.given]):
            if wanted and name not in wanted:
                continue
            honoured = HONOURED.get(name)
            kind = honoured.kind if honoured is not None else KNOWN[name][0].lower() if name in KNOWN else "password"
            sources = settings.of_broker(name)
            yield shown(name, sources[0].value, sources[0].source, sources, kind, honoured.doc if honoured is not None else NO_EFFECT)

    def _of_loggers(self, wanted: set[str]) -> Iterator[DescribeConfigsResourceResult]:
        """There is one level for everything."""
        for name in [ROOT_LOGGER] if not wanted or ROOT_LOGGER in wanted else []:
            level = self._log_level.upper()
            source = Source(name, level, BROKER_LOGGER_SOURCE)
            yield shown(name, level, BROKER_LOGGER_SOURCE, (source,), "string", HONOURED["log.level"].doc)


class EncodedConfigs:
    """A reply of which each resource is encoded when it is there: of many it would take too long in the end."""

    __slots__ = ("_parts", "_problem", "_version")

    def __init__(self, version: int) -> None:
        self._version = version
        self.clear()

    def clear(self) -> None:
        self._parts: list[bytes] = []
        self._problem: ProtocolError | None = None

    def add(self, result: DescribeConfigsResult) -> None:
        parts: list[bytes] = []
        try:
            DescribeConfigsResult.write_array(parts, [result], self._version)
        except UNWRITABLE as error:
            self._problem = unwritable("DescribeConfigsResponse", self._version, error)
        self._parts.append(b"".join(parts[1:]))  # behind the count

    def __repr__(self) -> str:
        return repr(DescribeConfigsResponse.decode(self.encode(self._version), 0, self._version)[0])

    def encode(self, version: int) -> bytes:
        """Raises ProtocolError where a text was too long."""
        if self._problem is not None:
            raise self._problem
        around = DescribeConfigsResponse(results=[]).encode(version)
        flexible = version >= DescribeConfigsResponse.FLEXIBLE_FROM
        count: list[bytes] = []
        put_count = put_compact_count if flexible else put_legacy_count
        put_count(count, 0)
        put_count(count, len(self._parts))
        behind = len(around) - 1 if flexible else len(around)  # no tagged fields
        return b"".join((around[: behind - len(count[0])], count[1], *self._parts, around[behind:]))


def without_effect(
    settings: dict[str, tuple[str, str]], wanted: set[str], behind: Callable[[str], tuple[Source, ...]]
) -> Iterator[DescribeConfigsResourceResult]:
    """What Kafka's other kinds of resources may be told; there are none of these here."""
    for name, (kind, default) in settings.items():
        if not wanted or name in wanted:
            yield shown(name, default, DEFAULT, behind(name), kind, NO_EFFECT)


def behind_group(name: str) -> tuple[Source, ...]:
    broker_name = f"group.{name}" if f"group.{name}" in KNOWN else name
    return (Source(broker_name, GROUP_SETTINGS[name][1], DEFAULT),)


def shown(
    name: str, value: str | None, source: int, sources: Iterable[Source], kind: str, documentation: str, read_only: bool = True
) -> DescribeConfigsResourceResult:
    type = TYPES[kind]
    secret = type == PASSWORD
    synonyms = [
        DescribeConfigsSynonym(one.name, None if secret else one.value, one.source)
        for one in sources
        if one.value is not None or one.source != DEFAULT
    ]
    return DescribeConfigsResourceResult(name, None if secret else value, read_only, source, secret, synonyms, type, documentation)


def refusal(serving: Serving, call: Call, operation: Operation, type: int, name: str) -> ErrorCode:
    """What who may not is told."""
    if serving.authorizer.open:
        return ErrorCode.NONE
    match type:
        case Kind.TOPIC:
            allowed = serving.authorizer.allows(call, operation, Resource.TOPIC, name)
            return ErrorCode.NONE if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        case Kind.GROUP:
            allowed = serving.authorizer.allows(call, operation, Resource.GROUP, name)
            return ErrorCode.NONE if allowed else ErrorCode.GROUP_AUTHORIZATION_FAILED
        case Kind.BROKER | Kind.BROKER_LOGGER | Kind.CLIENT_METRICS:
            allowed = serving.authorizer.allows(call, operation, Resource.CLUSTER, CLUSTER_NAME)
            return ErrorCode.NONE if allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def check_broker(serving: Serving, name: str) -> None:
    try:
        id = int(name) if name.isascii() else None
    except ValueError:
        id = None
    if id is None or "_" in name or name != name.strip():
        raise Refused(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if id != serving.node.id:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {serving.node.id}, but received {name}")


def refuse_describe(request: DescribeConfigsRequest, version: int, error: int) -> Response:
    message = ErrorCode(error).message
    return DescribeConfigsResponse(
        results=[DescribeConfigsResult(error, message, one.resource_type, one.resource_name, []) for one in request.resources]
    )
