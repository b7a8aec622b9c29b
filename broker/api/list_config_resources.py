"""ListConfigResources: the names of all resources with settings, by type.

Groups with policies are listed. Version 0 lists only subscriptions to client metrics, which do not exist here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from broker.api.config_resources import ConfigResourceType
from broker.api.parts import BrokerParts
from broker.groups.group_journal import GroupJournal
from broker.groups.held_replies import answer_when_all_durable
from broker.net.dispatch import Call, Response, Route
from broker.net.long_requests import LOOKUP_COST
from broker.security.authorizer import Operation, cluster_allowed
from protocol.errors import ErrorCode
from protocol.messages.list_config_resources import ConfigResource, ListConfigResourcesRequest, ListConfigResourcesResponse
from protocol.wire import Steps

BY_TYPE_FROM: Final = 1
NAMES_PER_STEP: Final = 8


def route(parts: BrokerParts) -> Route:
    return Route(ListConfigResourcesRequest, parts.long_requests.handler(ListConfigResources(parts).handle), error_response)


class ListConfigResources:
    def __init__(self, parts: BrokerParts) -> None:
        self._node = parts.node
        self._topics = parts.topics
        self._registry = parts.registry_journal
        self._authorizer = parts.authorizer
        self._shards = parts.shards

    def handle(self, call: Call, request: ListConfigResourcesRequest) -> Steps[Response | None]:
        if not cluster_allowed(self._authorizer, call, Operation.DESCRIBE_CONFIGS):
            return error_response(request, call.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        kinds: Collection[int] = dict.fromkeys(request.resource_types or ConfigResourceType) if call.version >= BY_TYPE_FROM else (ConfigResourceType.CLIENT_METRICS,)
        if any(kind not in tuple(ConfigResourceType) for kind in kinds):
            return error_response(request, call.version, ErrorCode.UNSUPPORTED_VERSION)
        serving: list[GroupJournal] = []
        if ConfigResourceType.GROUP in kinds:
            for journal in self._shards.journals:
                if not journal.refusal:
                    serving.append(journal)
                elif journal.refusal != ErrorCode.NOT_COORDINATOR:
                    return error_response(request, call.version, journal.refusal)
        reply = ListConfigResourcesResponse(config_resources=[])
        for kind in kinds:
            for number, name in enumerate(list(self._names(kind, serving))):
                if number % NAMES_PER_STEP == 0:
                    yield LOOKUP_COST
                reply.config_resources.append(ConfigResource(name, kind))

        def refuse_part(part: int, error: int) -> None:
            reply.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            reply.config_resources = []

        answer_when_all_durable(call, reply, [self._registry, *serving], refuse_part)
        return None

    def _names(self, kind: int, serving: Iterable[GroupJournal]) -> Iterable[str]:
        match kind:
            case ConfigResourceType.TOPIC:
                return (topic.name for topic in self._topics.listed())
            case ConfigResourceType.BROKER | ConfigResourceType.BROKER_LOGGER:
                return (str(self._node.id),)
            case ConfigResourceType.GROUP:
                return (name for journal in serving for name in journal.shard.policies.group_ids())
        return ()


def error_response(request: ListConfigResourcesRequest, version: int, error: int) -> Response:
    return ListConfigResourcesResponse(0, error)
