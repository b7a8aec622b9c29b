"""InitProducerId: allocate an id for an idempotent producer.

Ids are allocated in blocks, each a fact of the registry. A block is used once its fact is durable, so that no id is ever
allocated twice. Unused ids of a block are lost when the broker ends.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.api.parts import Parts
from broker.groups.journal import Journal
from broker.net.dispatch import Call, Response, Route
from broker.security.authorizer import Authorizer, Operation, cluster_allowed, topic_allowed
from broker.topics.registry import Topics
from broker.topics.transactions import Transactions
from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NO_ID, NO_EPOCH = -1, -1
# Clients retry on it. Kafka answers it while it waits for a block.
NOT_YET = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def route(parts: Parts) -> Route:
    handler = InitProducerId(parts.topics, parts.registry, parts.transactions, parts.authorizer)
    return Route(InitProducerIdRequest, handler.handle, refuse)


class InitProducerId:
    def __init__(self, topics: Topics, registry: Journal, transactions: Transactions, authorizer: Authorizer) -> None:
        self._topics = topics
        self._registry = registry
        self._transactions = transactions
        self._authorizer = authorizer
        self._ids: Iterator[int] = iter(())  # of a durable block
        self._requested: _Block | None = None  # its fact is not durable yet

    def handle(self, call: Call, request: InitProducerIdRequest) -> Response | None:
        error = self._problem(call, request)
        if error:
            return refuse(request, call.version, error)
        # As in Kafka, a producer without transactions gets a new id even if it sends its current one.
        id = next(self._ids, None)
        if id is not None:
            return InitProducerIdResponse(producer_id=id, producer_epoch=0)
        if self._requested is None:
            if not self._registry.writable:
                return refuse(request, call.version, NOT_YET)
            self._requested = _Block(self, self._topics.reserve_producer_ids())
            self._requested.calls.append(call)
            self._registry.reply(self._requested)
        else:
            self._requested.calls.append(call)
        return None

    def _problem(self, call: Call, request: InitProducerIdRequest) -> int:
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

    def allocated(self, block: range, calls: list[Call]) -> None:
        """Answer the waiting calls from the durable block; if there are too many, they wait for the next one."""
        self._requested = None
        self._ids = iter(block)
        for call in calls:
            reply = self.handle(call, call.request)
            if reply is not None:
                call.answer(reply)

    def failed(self, calls: list[Call]) -> None:
        """Refuse the waiting calls. The block's fact may or may not be in the log, so its ids are not used."""
        self._requested = None
        for call in calls:
            call.fail(NOT_YET)


class _Block:
    """A block of ids whose fact is not durable yet, and the calls that wait for it."""

    __slots__ = ("_handler", "_ids", "calls")

    def __init__(self, handler: InitProducerId, ids: range) -> None:
        self._handler = handler
        self._ids = ids
        self.calls: list[Call] = []

    def release(self) -> None:
        self._handler.allocated(self._ids, self.calls)

    def fail(self, error: int) -> None:
        self._handler.failed(self.calls)


def refuse(request: InitProducerIdRequest, version: int, error: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(0, error, NO_ID, NO_EPOCH)
