"""FindCoordinator: the coordinator of a group, at its address on the listener that the client uses."""

from __future__ import annotations

from broker.api.parts import BrokerParts
from broker.internal_topics import CONSUMER_OFFSETS
from broker.net.dispatch import Call, Response, Route
from broker.net.long_requests import LOOKUP_COST
from broker.runtime.node import Address
from broker.security.authorizer import Operation, ResourceType, group_allowed, is_allowed
from coordinator import partition_of
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from protocol.wire import Steps
from storage import LogId

GROUP, TRANSACTION, SHARE = 0, 1, 2
SEVERAL_KEYS_FROM = 4


def route(parts: BrokerParts) -> Route:
    return Route(FindCoordinatorRequest, parts.long_requests.handler(FindCoordinator(parts).handle), error_response)


class FindCoordinator:
    def __init__(self, parts: BrokerParts) -> None:
        self._node = parts.node
        self._topics = parts.topics
        self._view = parts.cluster_view
        self._transactions = parts.transaction_refusals
        self._authorizer = parts.authorizer
        self._health = parts.health

    def handle(self, call: Call, request: FindCoordinatorRequest) -> Steps[Response]:
        keys = request.coordinator_keys if call.version >= SEVERAL_KEYS_FROM else [request.key]
        coordinators = []
        for key in keys:
            coordinators.append(self._coordinator(call, key, request.key_type))
            yield LOOKUP_COST
        if call.version >= SEVERAL_KEYS_FROM:
            return FindCoordinatorResponse(coordinators=coordinators)
        coordinator = coordinators[0]
        # On success, the error message carries the broker's state to `tenure health`; no other client reads it.
        error = ErrorCode(coordinator.error_code)
        message = (coordinator.error_message or error.message) if error else self._health()
        return FindCoordinatorResponse(
            error_code=error, error_message=message, node_id=coordinator.node_id, host=coordinator.host, port=coordinator.port
        )

    def _coordinator(self, call: Call, key: str, key_type: int) -> Coordinator:
        if key_type == GROUP:
            if not group_allowed(self._authorizer, call, Operation.DESCRIBE, key):
                return _no_coordinator(key, ErrorCode.GROUP_AUTHORIZATION_FAILED)
            return self._coordinator_of_group(call, key)
        if key_type == TRANSACTION:
            error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            if not is_allowed(self._authorizer, call, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key):
                return _no_coordinator(key, error)
            self._transactions.refused(key)
            return _no_coordinator(key, error, "transactions are not served by this broker")
        if key_type == SHARE:
            return _no_coordinator(key, ErrorCode.INVALID_REQUEST, "")
        return _no_coordinator(key, ErrorCode.INVALID_REQUEST)

    def _coordinator_of_group(self, call: Call, group_id: str) -> Coordinator:
        offsets = self._topics.by_name.get(CONSUMER_OFFSETS)  # None if the registry has a record that this version cannot decode
        owner = None
        if offsets is not None:
            owner = self._view.owner(LogId(CONSUMER_OFFSETS, partition_of(group_id, offsets.partition_count)))
        address: Address = call.connection.listener
        if owner is not None:
            if owner.id == self._node.id:
                return Coordinator(group_id, owner.id, address.host, address.port, ErrorCode.NONE, "")
            for listener, host, port in owner.addresses:
                if listener == address.name:
                    return Coordinator(group_id, owner.id, host, port, ErrorCode.NONE, "")
        return _no_coordinator(group_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _no_coordinator(key: str, error: ErrorCode, message: str | None = None) -> Coordinator:
    return Coordinator(key, -1, "", -1, error, error.message if message is None else message)


def error_response(request: FindCoordinatorRequest, version: int, error: int) -> Response:
    message = ErrorCode(error).message
    if version >= SEVERAL_KEYS_FROM:
        return FindCoordinatorResponse(coordinators=[Coordinator(key, -1, "", -1, error, message) for key in request.coordinator_keys])
    return FindCoordinatorResponse(error_code=error, error_message=message, node_id=-1, host="", port=-1)
