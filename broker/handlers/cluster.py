"""What a client asks before anything else: versions, brokers, topics, and who coordinates its group."""

from __future__ import annotations

import re
from collections.abc import Callable

from broker.authorizer import Authorizer, Operation, Resource
from broker.dispatch import Call, Constant, Dispatch, Response, Route
from broker.journal import Journal
from broker.node import Address, Node
from broker.topics import CONSUMER_OFFSETS, NO_ID, Topic, Topics, name_problem
from coordinator import partition_of
from protocol.apis import API_VERSIONS, APIS
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from storage import ClusterView, LogId

# Authorized operations are a set of bits; nobody is refused anything here, so it is all that exist for the kind.
# Cluster: create, alter, describe, cluster action, describe and alter configs, idempotent write.
CLUSTER_OPERATIONS = 1 << 5 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12
# Topic: read, write, create, delete, alter, describe, describe and alter configs.
TOPIC_OPERATIONS = 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 11
OPERATIONS_NOT_ASKED = -(1 << 31)

LEADER_EPOCH = 0
GROUP, TRANSACTION, SHARE = 0, 1, 2
BROKERS, CONTROLLERS = 1, 2
ASKED_BY_ID_FROM = 12  # Metadata: versions 10 and 11 have a field for the id, but only in replies

_CLIENT_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ClusterHandlers:
    """ApiVersions, Metadata, FindCoordinator, DescribeCluster."""

    def __init__(
        self,
        dispatch: Dispatch,
        node: Node,
        topics: Topics,
        registry: Journal,
        view: ClusterView,
        authorizer: Authorizer,
        auto_create: bool,
        num_partitions: int,
        partitions_max: int,
        progress: Callable[[], str] = lambda: "",
    ) -> None:
        self._dispatch = dispatch
        self._node = node
        self._topics = topics
        self._registry = registry
        self._view = view
        self._authorizer = authorizer
        self._auto_create = auto_create
        self._num_partitions = num_partitions
        self._partitions_max = partitions_max
        self._progress = progress  # what keeps this broker from being ready; "" when it is
        self._versions: Response = ApiVersionsResponse()

    def offer(self) -> None:
        """Offer what is served, now that all of it is known: the answer is the same for everybody."""
        self._versions = Constant(ApiVersionsResponse(ErrorCode.NONE, [self._range(route) for route in self._dispatch.routes.values()]))

    def routes(self) -> list[Route]:
        return [
            Route(APIS[API_VERSIONS], self.api_versions, self.refuse_api_versions),
            Route(APIS[MetadataRequest.API_KEY], self.metadata, refuse_metadata),
            Route(APIS[FindCoordinatorRequest.API_KEY], self.find_coordinator, refuse_find_coordinator),
            Route(APIS[DescribeClusterRequest.API_KEY], self.describe_cluster, refuse_describe_cluster),
        ]

    # ApiVersions

    def api_versions(self, call: Call, request: ApiVersionsRequest) -> Response:
        named = (request.client_software_name, request.client_software_version)
        if call.version >= 3 and not all(_CLIENT_SOFTWARE.fullmatch(text) for text in named):
            return ApiVersionsResponse(ErrorCode.INVALID_REQUEST)
        return self._versions

    def refuse_api_versions(self, request: ApiVersionsRequest | None, version: int, error: int) -> Response:
        """With key 18 in it, a client that is newer than us knows at which version to ask again."""
        return ApiVersionsResponse(error, [self._range(self._dispatch.routes[API_VERSIONS])])

    @staticmethod
    def _range(route: Route) -> ApiVersion:
        oldest, newest = route.api.advertised
        return ApiVersion(route.key, oldest, newest)

    # Metadata

    def metadata(self, call: Call, request: MetadataRequest) -> Response | None:
        wanted = request.topics
        if call.version < ASKED_BY_ID_FROM and any(topic.name is None or topic.topic_id != NO_ID for topic in wanted or []):
            return refuse_metadata(request, call.version, ErrorCode.INVALID_REQUEST)
        # Version 0 has no null: there an empty list asks for everything.
        if wanted is None or (call.version == 0 and not wanted):
            topics = [self._describe(topic, request) for topic in self._topics.by_name.values()]
        else:
            may_create = self._auto_create and (call.version < 4 or request.allow_auto_topic_creation)
            # Each is answered once; names beside ids count for nothing.
            ids = {topic.topic_id: None for topic in wanted if topic.topic_id != NO_ID}
            names = {} if ids else {topic.name: None for topic in wanted}
            topics = [self._find_id(id, request) for id in ids] + [self._find(name, may_create, request) for name in names]
        address: Address = call.connection.listener
        call.reply = MetadataResponse(
            brokers=[MetadataResponseBroker(self._node.id, address.host, address.port, self._node.rack)],
            cluster_id=self._node.cluster_id,
            controller_id=self._node.id,
            topics=topics,
            cluster_authorized_operations=_cluster_operations(request),
        )
        self._registry.reply(call)
        return None

    def _find_id(self, id: bytes, request: MetadataRequest) -> MetadataResponseTopic:
        topic = self._topics.by_id.get(id)
        return self._describe(topic, request) if topic is not None else _unknown(None, ErrorCode.UNKNOWN_TOPIC_ID, id)

    def _find(self, name: str | None, may_create: bool, request: MetadataRequest) -> MetadataResponseTopic:
        if name is None:
            return self._find_id(NO_ID, request)
        topic = self._topics.by_name.get(name)
        if topic is not None:
            return self._describe(topic, request)
        operations = _topic_operations(request)
        if name_problem(name) is not None:
            return _unknown(name, ErrorCode.INVALID_TOPIC_EXCEPTION, operations=operations)
        if (
            not may_create
            or self._topics.colliding(name)
            or not self._registry.writable
            or self._topics.partitions + self._num_partitions > self._partitions_max
        ):
            return _unknown(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, operations=operations)
        topic = self._topics.create(name, self._num_partitions, {}, self._registry.now())
        return self._describe(topic, request)

    def _describe(self, topic: Topic, request: MetadataRequest) -> MetadataResponseTopic:
        me = self._node.id
        return MetadataResponseTopic(
            error_code=ErrorCode.NONE,
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.internal,
            partitions=[
                MetadataResponsePartition(ErrorCode.NONE, number, me, LEADER_EPOCH, [me], [me], []) for number in range(topic.partitions)
            ],
            topic_authorized_operations=_topic_operations(request),
        )

    # FindCoordinator

    def find_coordinator(self, call: Call, request: FindCoordinatorRequest) -> Response:
        keys = request.coordinator_keys if call.version >= 4 else [request.key]
        found = [self._coordinator(call, key, request.key_type) for key in keys]
        if call.version >= 4:
            return FindCoordinatorResponse(coordinators=found)
        one = found[0]
        if one.error_code:
            message = one.error_message or ErrorCode(one.error_code).message
        else:
            message = self._progress() or "NONE"  # no client reads it but `tenure health`
        return FindCoordinatorResponse(
            error_code=one.error_code, error_message=message, node_id=one.node_id, host=one.host, port=one.port
        )

    def _coordinator(self, call: Call, key: str, key_type: int) -> Coordinator:
        if key_type == GROUP:
            if not self._may_describe(call, Resource.GROUP, key):
                return _no_coordinator(key, ErrorCode.GROUP_AUTHORIZATION_FAILED)
            return self._coordinator_of_group(call, key)
        if key_type == TRANSACTION:
            error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            if not self._may_describe(call, Resource.TRANSACTIONAL_ID, key):
                return _no_coordinator(key, error)
            return _no_coordinator(key, error, "transactions are not served by this broker")
        if key_type == SHARE:
            return _no_coordinator(key, ErrorCode.INVALID_REQUEST, "")
        return _no_coordinator(key, ErrorCode.INVALID_REQUEST)

    def _may_describe(self, call: Call, resource: Resource, name: str) -> bool:
        return self._authorizer.open or self._authorizer.allows(call, Operation.DESCRIBE, resource, name)

    def _coordinator_of_group(self, call: Call, group_id: str) -> Coordinator:
        """Whoever owns the group's partition, at its address for the listener that the client dialled."""
        offsets = self._topics.by_name.get(CONSUMER_OFFSETS)  # missing while the registry cannot be read
        owner = None
        if offsets is not None:
            owner = self._view.owner(LogId(CONSUMER_OFFSETS, partition_of(group_id, offsets.partitions)))
        dialled: Address = call.connection.listener
        if owner is not None:
            if owner.id == self._node.id:
                return Coordinator(group_id, owner.id, dialled.host, dialled.port, ErrorCode.NONE, "")
            for listener, host, port in owner.addresses:
                if listener == dialled.name:
                    return Coordinator(group_id, owner.id, host, port, ErrorCode.NONE, "")
        return _no_coordinator(group_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    # DescribeCluster

    def describe_cluster(self, call: Call, request: DescribeClusterRequest) -> Response:
        if request.endpoint_type != BROKERS:
            if request.endpoint_type == CONTROLLERS:
                error = ErrorCode.MISMATCHED_ENDPOINT_TYPE
                message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
            else:
                error, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {request.endpoint_type}"
            return DescribeClusterResponse(error_code=error, error_message=message)
        address: Address = call.connection.listener
        return DescribeClusterResponse(
            endpoint_type=BROKERS,
            cluster_id=self._node.cluster_id,
            controller_id=self._node.id,
            brokers=[DescribeClusterBroker(self._node.id, address.host, address.port, self._node.rack, False)],
            cluster_authorized_operations=_cluster_operations(request),
        )


def _no_coordinator(key: str, error: ErrorCode, message: str | None = None) -> Coordinator:
    return Coordinator(key, -1, "", -1, error, error.message if message is None else message)


def _cluster_operations(request: MetadataRequest | DescribeClusterRequest) -> int:
    return CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else OPERATIONS_NOT_ASKED


def _topic_operations(request: MetadataRequest) -> int:
    return TOPIC_OPERATIONS if request.include_topic_authorized_operations else OPERATIONS_NOT_ASKED


def _unknown(name: str | None, error: ErrorCode, id: bytes = NO_ID, operations: int = OPERATIONS_NOT_ASKED) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error, name=name, topic_id=id, topic_authorized_operations=operations)


def refuse_metadata(request: MetadataRequest, version: int, error: int) -> Response:
    """Before version 13 there is no place for an error but the topics."""
    topics = [MetadataResponseTopic(error_code=error, name=topic.name or "", topic_id=topic.topic_id) for topic in request.topics or []]
    return MetadataResponse(topics=topics, error_code=error)


def refuse_find_coordinator(request: FindCoordinatorRequest, version: int, error: int) -> Response:
    message = ErrorCode(error).message
    if version >= 4:
        return FindCoordinatorResponse(coordinators=[Coordinator(key, -1, "", -1, error, message) for key in request.coordinator_keys])
    return FindCoordinatorResponse(error_code=error, error_message=message, node_id=-1, host="", port=-1)


def refuse_describe_cluster(request: DescribeClusterRequest, version: int, error: int) -> Response:
    return DescribeClusterResponse(error_code=error, error_message=ErrorCode(error).message)
