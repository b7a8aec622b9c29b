"""DescribeCluster: the cluster's id, controller and brokers."""

from __future__ import annotations

from broker.api.brokers import brokers_of
from broker.api.parts import BrokerParts
from broker.net.dispatch import Call, Response, Route
from broker.runtime.node import Address
from broker.security.authorizer import OPERATIONS_NOT_REQUESTED, cluster_operations
from protocol.errors import ErrorCode
from protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

BROKERS, CONTROLLERS = 1, 2


def route(parts: BrokerParts) -> Route:
    return Route(DescribeClusterRequest, DescribeCluster(parts).handle, error_response)


class DescribeCluster:
    def __init__(self, parts: BrokerParts) -> None:
        self._node = parts.node
        self._leaders = parts.leaders
        self._authorizer = parts.authorizer

    def handle(self, call: Call, request: DescribeClusterRequest) -> Response:
        if request.endpoint_type != BROKERS:
            if request.endpoint_type == CONTROLLERS:
                error = ErrorCode.MISMATCHED_ENDPOINT_TYPE
                message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
            else:
                error, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {request.endpoint_type}"
            return DescribeClusterResponse(error_code=error, error_message=message)
        operations = OPERATIONS_NOT_REQUESTED
        if request.include_cluster_authorized_operations:
            operations = cluster_operations(self._authorizer, call)
        address: Address = call.connection.listener
        brokers, controller = brokers_of(self._node, self._leaders, address)
        return DescribeClusterResponse(
            endpoint_type=BROKERS,
            cluster_id=self._node.cluster_id,
            controller_id=controller,
            brokers=[DescribeClusterBroker(*broker, False) for broker in brokers],
            cluster_authorized_operations=operations,
        )


def error_response(request: DescribeClusterRequest, version: int, error: int) -> Response:
    return DescribeClusterResponse(error_code=error, error_message=ErrorCode(error).message)
