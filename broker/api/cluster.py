"""What a client asks before anything else: versions, brokers, and who coordinates its group."""

from __future__ import annotations

import re
from collections.abc import Callable

from broker.internal_topics import CONSUMER_OFFSETS
from broker.net.dispatch import Call, Constant, Dispatch, Response, Route
from broker.runtime.node import Address, Node
from broker.security.authorizer import Authorizer, Operation, Resource, cluster_operations, may
from broker.topics.registry import Topics
from coordinator import partition_of
from protocol.apis import API_VERSIONS, APIS
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from storage import ClusterView, LogId

OPERATIONS_NOT_ASKED = -(1 << 31)

GROUP, TRANSACTION, SHARE = 0, 1, 2
BROKERS, CONTROLLERS = 1, 2

_CLIENT_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ClusterHandlers:
    """ApiVersions, FindCoordinator, DescribeCluster."""

    def __init__(
        self,
        dispatch: Dispatch,
        node: Node,
        topics: Topics,
        view: ClusterView,
        authorizer: Authorizer,
        progress: Callable[[], str] = lambda: "",
        remark: Callable[[], str] = lambda: "",
        transaction_refused: Callable[[str], None] = lambda transactional_id: None,
    ) -> None:
        self._dispatch = dispatch
        self._node = node
        self._topics = topics
        self._view = view
        self._authorizer = authorizer
        self._transaction_refused = transaction_refused
        self._progress = progress  # what keeps this broker from being ready; "" when it is
        self._remark = remark  # what else its operator should know; "" when there is nothing
        self._versions: Response = ApiVersionsResponse()

    def offer(self) -> None:
        """Offer what is served, now that all of it is known: the answer is the same for everybody."""
        self._versions = Constant(ApiVersionsResponse(ErrorCode.NONE, [self._range(route) for route in self._dispatch.routes.values()]))

    def routes(self) -> list[Route]:
        return [
            Route(APIS[API_VERSIONS], self.api_versions, self.refuse_api_versions),
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
            # No client reads it but `tenure health`.
            message = "; ".join([self._progress() or "NONE", *filter(None, [self._remark()])])
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
            self._transaction_refused(key)
            return _no_coordinator(key, error, "transactions are not served by this broker")
        if key_type == SHARE:
            return _no_coordinator(key, ErrorCode.INVALID_REQUEST, "")
        return _no_coordinator(key, ErrorCode.INVALID_REQUEST)

    def _may_describe(self, call: Call, resource: Resource, name: str) -> bool:
        return may(self._authorizer, call, Operation.DESCRIBE, resource, name)

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
        operations = OPERATIONS_NOT_ASKED
        if request.include_cluster_authorized_operations:
            operations = cluster_operations(self._authorizer, call)
        address: Address = call.connection.listener
        return DescribeClusterResponse(
            endpoint_type=BROKERS,
            cluster_id=self._node.cluster_id,
            controller_id=self._node.id,
            brokers=[DescribeClusterBroker(self._node.id, address.host, address.port, self._node.rack, False)],
            cluster_authorized_operations=operations,
        )


def _no_coordinator(key: str, error: ErrorCode, message: str | None = None) -> Coordinator:
    return Coordinator(key, -1, "", -1, error, error.message if message is None else message)


def refuse_find_coordinator(request: FindCoordinatorRequest, version: int, error: int) -> Response:
    message = ErrorCode(error).message
    if version >= 4:
        return FindCoordinatorResponse(coordinators=[Coordinator(key, -1, "", -1, error, message) for key in request.coordinator_keys])
    return FindCoordinatorResponse(error_code=error, error_message=message, node_id=-1, host="", port=-1)


def refuse_describe_cluster(request: DescribeClusterRequest, version: int, error: int) -> Response:
    return DescribeClusterResponse(error_code=error, error_message=ErrorCode(error).message)
