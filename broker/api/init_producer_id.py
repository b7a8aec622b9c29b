"""InitProducerId: an id for a producer that wants each batch stored once.

Ids come in blocks that are facts of the registry: a block is used once its fact is durable, so that no id is given out
twice, whatever happens to the broker. What is left of a block is lost when the broker ends.
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
# On this clients ask again. Kafka says it while a block is on its way to it.
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
        self._coming: _Block | None = None

    def handle(self, call: Call, request: InitProducerIdRequest) -> Response | None:
        error = self._problem(call, request)
        if error:
            return refuse(request, call.version, error)
        # A producer without transactions that shows what it had gets a new id all the same, as from Kafka.
        id = next(self._ids, None)
        if id is not None:
            return InitProducerIdResponse(producer_id=id, producer_epoch=0)
        if self._coming is None:
            if not self._registry.writable:
                return refuse(request, call.version, NOT_YET)
            self._coming = _Block(self, self._topics.reserve_producer_ids())
            self._coming.calls.append(call)
            self._registry.reply(self._coming)
        else:
            self._coming.calls.append(call)
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
        """As in Kafka: a client that may write to any topic may do so idempotently."""
        authorizer = self._authorizer
        return cluster_allowed(authorizer, call, Operation.IDEMPOTENT_WRITE) or any(
            topic_allowed(authorizer, call, Operation.WRITE, name) for name in self._topics.by_name
        )

    def came(self, block: range, calls: list[Call]) -> None:
        """The block is ours: it serves the calls that waited for it, and where these are too many, the next one."""
        self._coming = None
        self._ids = iter(block)
        for call in calls:
            reply = self.handle(call, call.request)
            if reply is not None:
                call.answer(reply)

    def failed(self, calls: list[Call]) -> None:
        """Its fact may be in the log or not, so none of its ids is used."""
        self._coming = None
        for call in calls:
            call.fail(NOT_YET)


class _Block:
    """Ids whose fact is on its way to the log, and the calls that wait for them."""

    __slots__ = ("_handler", "_ids", "calls")

    def __init__(self, handler: InitProducerId, ids: range) -> None:
        self._handler = handler
        self._ids = ids
        self.calls: list[Call] = []

    def release(self) -> None:
        self._handler.came(self._ids, self.calls)

    def fail(self, error: int) -> None:
        self._handler.failed(self.calls)


def refuse(request: InitProducerIdRequest, version: int, error: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(0, error, NO_ID, NO_EPOCH)
