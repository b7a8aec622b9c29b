"""InitProducerId: allocate an id for an idempotent producer, from a block of ids (broker/topics/producer_ids.py)."""

from __future__ import annotations

from collections.abc import Iterator

from broker.api.parts import BrokerParts
from broker.net.dispatch import Call, Response, Route
from broker.security.authorizer import Operation, cluster_allowed, topic_allowed
from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NO_ID, NO_EPOCH = -1, -1
# Kafka returns this error while it waits for a block of ids; clients retry on it.
RETRY_LATER = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def route(parts: BrokerParts) -> Route:
    return Route(InitProducerIdRequest, InitProducerId(parts).handle, error_response)


class InitProducerId:
    def __init__(self, parts: BrokerParts) -> None:
        self._topics = parts.topics
        self._producer_ids = parts.producer_ids
        self._transactions = parts.transaction_refusals
        self._authorizer = parts.authorizer
        self._ids: Iterator[int] = iter(())  # the unused ids of the block
        self._waiting: list[Call] = []  # calls that wait for the next block

    def handle(self, call: Call, request: InitProducerIdRequest) -> Response | None:
        error = self._error(call, request)
        if error:
            return error_response(request, call.version, error)
        # As in Kafka, a producer without transactions gets a new id even if it sends its current one.
        id = next(self._ids, None)
        if id is not None:
            return InitProducerIdResponse(producer_id=id, producer_epoch=0)
        self._waiting.append(call)
        if len(self._waiting) == 1:
            self._producer_ids.reserve(self._answer_waiting)
        return None

    def _error(self, call: Call, request: InitProducerIdRequest) -> int:
        id = request.transactional_id
        if id == "":
            return ErrorCode.INVALID_REQUEST
        if id is not None:
            self._transactions.refused(id)
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if not self._write_allowed(call):
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if (request.producer_id == NO_ID) != (request.producer_epoch == NO_EPOCH):
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def _write_allowed(self, call: Call) -> bool:
        """As in Kafka, a client that may write to any topic may use idempotence."""
        authorizer = self._authorizer
        return cluster_allowed(authorizer, call, Operation.IDEMPOTENT_WRITE) or any(
            topic_allowed(authorizer, call, Operation.WRITE, name) for name in self._topics.by_name
        )

    def _answer_waiting(self, block: range | None) -> None:
        """Answer the waiting calls from the new block; calls beyond its size wait for the next block."""
        waiting, self._waiting = self._waiting, []
        if block is None:
            for call in waiting:
                call.fail(RETRY_LATER)
            return
        self._ids = iter(block)
        for call in waiting:
            reply = self.handle(call, call.request)
            if reply is not None:
                call.answer(reply)


def error_response(request: InitProducerIdRequest, version: int, error: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(0, error, NO_ID, NO_EPOCH)
