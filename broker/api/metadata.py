"""Metadata: the brokers and topics. A missing topic may be created on request."""

from __future__ import annotations

from functools import partial

from broker.api.brokers import brokers_of
from broker.api.described_partitions import described_epoch, described_partitions
from broker.api.encoded_arrays import put_array
from broker.api.parts import BrokerParts
from broker.net.dispatch import Call, ReplyTooLarge, Response, Route
from broker.net.long_requests import CREATE_COST, LOOKUP_COST
from broker.runtime.node import Address
from broker.security.authorizer import (
    OPERATIONS_NOT_REQUESTED,
    Operation,
    cluster_allowed,
    cluster_operations,
    topic_allowed,
    topic_operations,
)
from broker.topics.metadata_entries import FLEXIBLE_FROM, MetadataEntries, encode_topic, operations_bytes
from broker.topics.registry import NO_ID, Topic, name_problem
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker, MetadataResponseTopic
from protocol.wire import Steps

NAMES_PER_STEP = 16
BYTES_PER_STEP = 4096  # of an entry; it is copied, or encoded if it is not cached
TOPIC_IDS_FROM = 12  # versions 10 and 11 have topic ids, but Kafka refuses them in requests


def route(parts: BrokerParts) -> Route:
    return Route(MetadataRequest, parts.long_requests.handler(Metadata(parts).handle), error_response)


class Metadata:
    def __init__(self, parts: BrokerParts) -> None:
        self._node = parts.node
        self._leaders = parts.leaders
        self._topics = parts.topics
        self._registry = parts.registry_journal
        self._partitions = parts.partitions
        self._authorizer = parts.authorizer
        self._auto_create = parts.config.auto_create_topics_enable
        self._num_partitions = parts.config.num_partitions
        self._partitions_max = parts.config.partitions_max
        leader_epoch = partial(described_epoch, parts.partitions, parts.leaders)
        partitions_of = partial(described_partitions, parts.partitions)
        self._entries = MetadataEntries(parts.node.id, parts.leaders, parts.topics, partitions_of, leader_epoch)
        parts.partitions.epoch_changed = self._entries.epoch_changed

    def handle(self, call: Call, request: MetadataRequest) -> Steps[Response | None]:
        requested = request.topics
        version = call.version
        if version < TOPIC_IDS_FROM:
            for number, topic in enumerate(requested or ()):
                if number % NAMES_PER_STEP == NAMES_PER_STEP - 1:
                    yield LOOKUP_COST
                if topic.name is None or topic.topic_id != NO_ID:
                    return error_response(request, version, ErrorCode.INVALID_REQUEST)
        hold = self._topics.hold
        # Version 0 has no null list: an empty list requests all topics.
        if requested is None or (version == 0 and not requested):
            count, topics = self._all(call, request)
        else:
            may_create = self._auto_create and (version < 4 or request.allow_auto_topic_creation)
            # Each topic is described once; names are ignored if there are ids.
            ids = {topic.topic_id: None for topic in requested if topic.topic_id != NO_ID}
            names = {} if ids else {topic.name: None for topic in requested}
            try:
                parts = []
                size = 0
                for id in ids:
                    parts.append(self._entry_of_id(call, id, request))
                    size = self._count(call, parts, size)
                    yield LOOKUP_COST + len(parts[-1]) // BYTES_PER_STEP
                for name in names:
                    topics_before = len(self._topics.by_name)
                    parts.append(self._entry_of_name(call, name, may_create, request))
                    size = self._count(call, parts, size)
                    created = len(self._topics.by_name) != topics_before
                    yield (CREATE_COST if created else LOOKUP_COST) + len(parts[-1]) // BYTES_PER_STEP
            except ReplyTooLarge:
                raise
            except ProtocolError as error:  # a name may be longer than a reply can hold
                call.connection.close(str(error))
                return None
            count, topics = len(parts), b"".join(parts)
        address: Address = call.connection.listener
        node = self._node
        operations = OPERATIONS_NOT_REQUESTED
        if request.include_cluster_authorized_operations:
            operations = cluster_operations(self._authorizer, call)
        brokers, controller = brokers_of(node, self._leaders, address)
        reply_without_topics = MetadataResponse(
            brokers=[MetadataResponseBroker(*broker) for broker in brokers],
            cluster_id=node.cluster_id,
            controller_id=controller,
            cluster_authorized_operations=operations,
        )
        if hold is not self._topics.hold:  # replayed meanwhile: topics in the reply may not exist
            return error_response(request, version, ErrorCode.KAFKA_STORAGE_ERROR)
        call.reply = EncodedReply(reply_without_topics, count, topics, call.version)
        self._registry.hold_reply(call)
        return None

    def _count(self, call: Call, parts: list[bytes], size: int) -> int:
        """The size of the parts, of which the last one is new. Raises ReplyTooLarge."""
        size += len(parts[-1])
        if size > call.connection.context.reply_bytes_max:
            raise ReplyTooLarge(call)
        return size

    def _may_describe(self, call: Call, name: str) -> bool:
        return topic_allowed(self._authorizer, call, Operation.DESCRIBE, name)

    def _all(self, call: Call, request: MetadataRequest) -> tuple[int, bytes]:
        if self._authorizer.allows_all:
            return self._entries.all(call.version, self._operations(call, "", request))
        allowed = [topic for topic in self._topics.listed() if self._may_describe(call, topic.name)]
        return len(allowed), b"".join([self._describe(call, topic, request) for topic in allowed])

    def _entry_of_id(self, call: Call, id: bytes, request: MetadataRequest) -> bytes:
        topic = self._topics.by_id.get(id)
        if topic is None:
            return self._error_entry(call, request, None, ErrorCode.UNKNOWN_TOPIC_ID, id)
        if not self._may_describe(call, topic.name):
            return self._error_entry(call, request, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED, id)
        return self._describe(call, topic, request)

    def _entry_of_name(self, call: Call, name: str | None, may_create: bool, request: MetadataRequest) -> bytes:
        if name is None:
            return self._entry_of_id(call, NO_ID, request)
        if not self._may_describe(call, name):
            return self._error_entry(call, request, name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        topic = self._topics.by_name.get(name)
        if topic is not None:
            return self._describe(call, topic, request)
        if may_create and not self._create_allowed(call, name):
            return self._error_entry(call, request, name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if name_problem(name) is not None:
            return self._error_entry(call, request, name, ErrorCode.INVALID_TOPIC_EXCEPTION, described=True)
        if (
            not may_create
            or self._topics.colliding(name)
            or not self._registry.writable
            or self._topics.partition_count + self._num_partitions > self._partitions_max
        ):
            return self._error_entry(call, request, name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, described=True)
        topic = self._topics.create(name, self._num_partitions, {}, self._registry.wall)
        self._partitions.created(topic)
        return self._describe(call, topic, request)

    def _create_allowed(self, call: Call, name: str) -> bool:
        authorizer = self._authorizer
        return cluster_allowed(authorizer, call, Operation.CREATE) or topic_allowed(authorizer, call, Operation.CREATE, name)

    def _describe(self, call: Call, topic: Topic, request: MetadataRequest) -> bytes:
        """Describe a topic. A single broker is the leader of every partition, even of an unavailable one."""
        return bytes(self._entries.entry_of(topic, call.version) + self._operations(call, topic.name, request))

    def _error_entry(
        self, call: Call, request: MetadataRequest, name: str | None, error: ErrorCode, id: bytes = NO_ID, described: bool = False
    ) -> bytes:
        """The entry of a topic with an error. `described`: the caller may describe a topic of that name."""
        topic = MetadataResponseTopic(error_code=error, name=name, topic_id=id)
        if described and request.include_topic_authorized_operations:
            topic.topic_authorized_operations = topic_operations(self._authorizer, call, name or "")
        return encode_topic(topic, call.version)

    def _operations(self, call: Call, name: str, request: MetadataRequest) -> bytes:
        requested = request.include_topic_authorized_operations
        return operations_bytes(topic_operations(self._authorizer, call, name) if requested else OPERATIONS_NOT_REQUESTED, call.version)


class EncodedReply:
    """A Metadata reply whose topics are encoded already."""

    __slots__ = ("_count", "_reply_without_topics", "_topics", "_version")

    def __init__(self, reply_without_topics: MetadataResponse, count: int, topics: bytes, version: int) -> None:
        self._reply_without_topics = reply_without_topics
        self._count = count
        self._topics = topics
        self._version = version  # of the encoded topics

    def __repr__(self) -> str:
        return repr(MetadataResponse.decode(self.encode(self._version), 0, self._version)[0])

    def encode(self, version: int) -> bytes:
        return put_array(self._reply_without_topics.encode(version), bytes_after_topics(version), [self._topics], self._count, version >= FLEXIBLE_FROM)


def bytes_after_topics(version: int) -> int:
    """The size of the reply's part after the topics."""
    error = 2 if version >= 13 else 0
    cluster_operations = 4 if 8 <= version <= 10 else 0
    tagged_fields = 1 if version >= FLEXIBLE_FROM else 0
    return error + cluster_operations + tagged_fields


def error_response(request: MetadataRequest, version: int, error: int) -> Response:
    """The error for each topic; versions before 13 have no top-level error."""
    topics = [MetadataResponseTopic(error_code=error, name=topic.name or "", topic_id=topic.topic_id) for topic in request.topics or []]
    return MetadataResponse(topics=topics, error_code=error)
