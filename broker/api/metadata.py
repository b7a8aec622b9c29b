"""Metadata: which brokers and topics there are. Whoever asks for a topic that is missing may have it made."""

from __future__ import annotations

from broker.api.serving import Serving
from broker.net.dispatch import Call, Response, Route
from broker.runtime.node import Address
from broker.security.authorizer import OPERATIONS_NOT_ASKED, Operation, cluster_operations, topic_operations
from broker.topics.metadata_entries import FLEXIBLE_FROM, MetadataEntries, encode_topic, operations_bytes
from broker.topics.registry import NO_ID, Topic, name_problem
from protocol.apis import APIS
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from protocol.wire import put_compact_count, put_legacy_count

ASKED_BY_ID_FROM = 12  # versions 10 and 11 have a field for the id, but only in replies


class MetadataHandlers:
    """Metadata."""

    def __init__(self, serving: Serving, auto_create: bool) -> None:
        self._serving = serving
        self._topics = serving.topics
        self._auto_create = auto_create
        self._entries = MetadataEntries(serving.node.id, serving.topics, serving.partitions_of, serving.leader_epoch)
        serving.partitions.epoch_changed = self._entries.epoch_changed

    def routes(self) -> list[Route]:
        return [Route(APIS[MetadataRequest.API_KEY], self.metadata, refuse_metadata)]

    def metadata(self, call: Call, request: MetadataRequest) -> Response | None:
        wanted = request.topics
        version = call.version
        if version < ASKED_BY_ID_FROM and any(topic.name is None or topic.topic_id != NO_ID for topic in wanted or []):
            return refuse_metadata(request, version, ErrorCode.INVALID_REQUEST)
        serving = self._serving
        # Version 0 has no null: there an empty list asks for everything.
        if wanted is None or (version == 0 and not wanted):
            count, topics = self._all(call, request)
        else:
            may_create = self._auto_create and (version < 4 or request.allow_auto_topic_creation)
            # Each is answered once; names beside ids count for nothing.
            ids = {topic.topic_id: None for topic in wanted if topic.topic_id != NO_ID}
            names = {} if ids else {topic.name: None for topic in wanted}
            try:
                parts = [self._find_id(call, id, request) for id in ids]
                parts += [self._find(call, name, may_create, request) for name in names]
            except ProtocolError as error:  # a name may be longer than a reply can hold
                call.connection.close(str(error))
                return None
            count, topics = len(parts), b"".join(parts)
        address: Address = call.connection.listener
        node = serving.node
        operations = OPERATIONS_NOT_ASKED
        if request.include_cluster_authorized_operations:
            operations = cluster_operations(serving.authorizer, call)
        around = MetadataResponse(
            brokers=[MetadataResponseBroker(node.id, address.host, address.port, node.rack)],
            cluster_id=node.cluster_id,
            controller_id=node.id,
            cluster_authorized_operations=operations,
        )
        call.reply = EncodedReply(around, count, topics, call.version)
        serving.registry.reply(call)
        return None

    def _all(self, call: Call, request: MetadataRequest) -> tuple[int, bytes]:
        serving = self._serving
        if serving.authorizer.open:
            return self._entries.all(call.version, self._operations(call, "", request))
        allowed = [topic for topic in self._topics.listed() if serving.may(call, Operation.DESCRIBE, topic.name)]
        return len(allowed), b"".join([self._describe(call, topic, request) for topic in allowed])

    def _find_id(self, call: Call, id: bytes, request: MetadataRequest) -> bytes:
        topic = self._topics.by_id.get(id)
        if topic is None:
            return self._unknown(call, request, None, ErrorCode.UNKNOWN_TOPIC_ID, id)
        if not self._serving.may(call, Operation.DESCRIBE, topic.name):
            return self._unknown(call, request, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED, id)
        return self._describe(call, topic, request)

    def _find(self, call: Call, name: str | None, may_create: bool, request: MetadataRequest) -> bytes:
        if name is None:
            return self._find_id(call, NO_ID, request)
        serving = self._serving
        if not serving.may(call, Operation.DESCRIBE, name):
            return self._unknown(call, request, name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        topic = self._topics.by_name.get(name)
        if topic is not None:
            return self._describe(call, topic, request)
        if may_create and not serving.may_all(call, Operation.CREATE) and not serving.may(call, Operation.CREATE, name):
            return self._unknown(call, request, name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if name_problem(name) is not None:
            return self._unknown(call, request, name, ErrorCode.INVALID_TOPIC_EXCEPTION, described=True)
        if (
            not may_create
            or self._topics.colliding(name)
            or not serving.registry.writable
            or self._topics.partitions + serving.num_partitions > serving.partitions_max
        ):
            return self._unknown(call, request, name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, described=True)
        topic = self._topics.create(name, serving.num_partitions, {}, serving.registry.wall)
        serving.partitions.created(topic)
        return self._describe(call, topic, request)

    def _describe(self, call: Call, topic: Topic, request: MetadataRequest) -> bytes:
        """A partition that cannot be used for now is led by this node all the same: nobody else could."""
        return bytes(self._entries.of(topic, call.version) + self._operations(call, topic.name, request))

    def _unknown(
        self, call: Call, request: MetadataRequest, name: str | None, error: ErrorCode, id: bytes = NO_ID, described: bool = False
    ) -> bytes:
        """`described`: its caller may know that there is no such topic."""
        topic = MetadataResponseTopic(error_code=error, name=name, topic_id=id)
        if described and request.include_topic_authorized_operations:
            topic.topic_authorized_operations = topic_operations(self._serving.authorizer, call, name or "")
        return encode_topic(topic, call.version)

    def _operations(self, call: Call, name: str, request: MetadataRequest) -> bytes:
        asked = request.include_topic_authorized_operations
        return operations_bytes(topic_operations(self._serving.authorizer, call, name) if asked else OPERATIONS_NOT_ASKED, call.version)


class EncodedReply:
    """A Metadata reply whose topics are encoded already."""

    __slots__ = ("_around", "_count", "_topics", "_version")

    def __init__(self, around: MetadataResponse, count: int, topics: bytes, version: int) -> None:
        self._around = around  # all but the topics
        self._count = count
        self._topics = topics
        self._version = version  # that the topics are encoded in

    def __repr__(self) -> str:
        return repr(MetadataResponse.decode(self.encode(self._version), 0, self._version)[0])

    def encode(self, version: int) -> bytes:
        around = self._around.encode(version)
        count: list[bytes] = []
        put_count = put_compact_count if version >= FLEXIBLE_FROM else put_legacy_count
        put_count(count, 0)
        put_count(count, self._count)
        behind = len(around) - behind_topics(version)
        return b"".join((around[: behind - len(count[0])], count[1], self._topics, around[behind:]))


def behind_topics(version: int) -> int:
    """How long the part of a reply is that follows its topics."""
    error = 2 if version >= 13 else 0
    cluster_operations = 4 if 8 <= version <= 10 else 0
    tagged_fields = 1 if version >= FLEXIBLE_FROM else 0
    return error + cluster_operations + tagged_fields


def refuse_metadata(request: MetadataRequest, version: int, error: int) -> Response:
    """Before version 13 there is no place for an error but the topics."""
    topics = [MetadataResponseTopic(error_code=error, name=topic.name or "", topic_id=topic.topic_id) for topic in request.topics or []]
    return MetadataResponse(topics=topics, error_code=error)
