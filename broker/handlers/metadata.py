"""Metadata: which brokers and topics there are. Whoever asks for a topic that is missing may have it made."""

from __future__ import annotations

from broker.authorizer import Operation, cluster_operations, topic_operations
from broker.dispatch import Call, Response, Route
from broker.handlers.serving import Serving
from broker.node import Address
from broker.topics import NO_ID, Topic, name_problem
from protocol.apis import APIS
from protocol.errors import ErrorCode
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

OPERATIONS_NOT_ASKED = -(1 << 31)
ASKED_BY_ID_FROM = 12  # versions 10 and 11 have a field for the id, but only in replies


class MetadataHandlers:
    """Metadata."""

    def __init__(self, serving: Serving, auto_create: bool) -> None:
        self._serving = serving
        self._topics = serving.topics
        self._auto_create = auto_create

    def routes(self) -> list[Route]:
        return [Route(APIS[MetadataRequest.API_KEY], self.metadata, refuse_metadata)]

    def metadata(self, call: Call, request: MetadataRequest) -> Response | None:
        wanted = request.topics
        if call.version < ASKED_BY_ID_FROM and any(topic.name is None or topic.topic_id != NO_ID for topic in wanted or []):
            return refuse_metadata(request, call.version, ErrorCode.INVALID_REQUEST)
        serving = self._serving
        # Version 0 has no null: there an empty list asks for everything.
        if wanted is None or (call.version == 0 and not wanted):
            topics = [
                self._describe(call, topic, request)
                for topic in self._topics.listed()
                if serving.may(call, Operation.DESCRIBE, topic.name)
            ]
        else:
            may_create = self._auto_create and (call.version < 4 or request.allow_auto_topic_creation)
            # Each is answered once; names beside ids count for nothing.
            ids = {topic.topic_id: None for topic in wanted if topic.topic_id != NO_ID}
            names = {} if ids else {topic.name: None for topic in wanted}
            topics = [self._find_id(call, id, request) for id in ids]
            topics += [self._find(call, name, may_create, request) for name in names]
        address: Address = call.connection.listener
        node = serving.node
        operations = OPERATIONS_NOT_ASKED
        if request.include_cluster_authorized_operations:
            operations = cluster_operations(serving.authorizer, call)
        call.reply = MetadataResponse(
            brokers=[MetadataResponseBroker(node.id, address.host, address.port, node.rack)],
            cluster_id=node.cluster_id,
            controller_id=node.id,
            topics=topics,
            cluster_authorized_operations=operations,
        )
        serving.registry.reply(call)
        return None

    def _find_id(self, call: Call, id: bytes, request: MetadataRequest) -> MetadataResponseTopic:
        topic = self._topics.by_id.get(id)
        if topic is None:
            return _unknown(None, ErrorCode.UNKNOWN_TOPIC_ID, id)
        if not self._serving.may(call, Operation.DESCRIBE, topic.name):
            return _unknown(None, ErrorCode.TOPIC_AUTHORIZATION_FAILED, id)
        return self._describe(call, topic, request)

    def _find(self, call: Call, name: str | None, may_create: bool, request: MetadataRequest) -> MetadataResponseTopic:
        if name is None:
            return self._find_id(call, NO_ID, request)
        serving = self._serving
        if not serving.may(call, Operation.DESCRIBE, name):
            return _unknown(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        topic = self._topics.by_name.get(name)
        if topic is not None:
            return self._describe(call, topic, request)
        if may_create and not serving.may_all(call, Operation.CREATE) and not serving.may(call, Operation.CREATE, name):
            return _unknown(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        operations = self._operations(call, name, request)
        if name_problem(name) is not None:
            return _unknown(name, ErrorCode.INVALID_TOPIC_EXCEPTION, operations=operations)
        if (
            not may_create
            or self._topics.colliding(name)
            or not serving.registry.writable
            or self._topics.partitions + serving.num_partitions > serving.partitions_max
        ):
            return _unknown(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, operations=operations)
        topic = self._topics.create(name, serving.num_partitions, {}, serving.registry.now())
        serving.partitions.created(topic)
        return self._describe(call, topic, request)

    def _describe(self, call: Call, topic: Topic, request: MetadataRequest) -> MetadataResponseTopic:
        """A partition that cannot be used for now is led by this node all the same: nobody else could."""
        me = self._serving.node.id
        return MetadataResponseTopic(
            error_code=ErrorCode.NONE,
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.internal,
            partitions=[
                MetadataResponsePartition(ErrorCode.NONE, one.index, me, self._serving.leader_epoch(one), [me], [me], [])
                for one in self._serving.partitions_of(topic)
            ],
            topic_authorized_operations=self._operations(call, topic.name, request),
        )

    def _operations(self, call: Call, name: str, request: MetadataRequest) -> int:
        return topic_operations(self._serving.authorizer, call, name) if request.include_topic_authorized_operations else OPERATIONS_NOT_ASKED


def _unknown(name: str | None, error: ErrorCode, id: bytes = NO_ID, operations: int = OPERATIONS_NOT_ASKED) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error, name=name, topic_id=id, topic_authorized_operations=operations)


def refuse_metadata(request: MetadataRequest, version: int, error: int) -> Response:
    """Before version 13 there is no place for an error but the topics."""
    topics = [MetadataResponseTopic(error_code=error, name=topic.name or "", topic_id=topic.topic_id) for topic in request.topics or []]
    return MetadataResponse(topics=topics, error_code=error)
