"""InitProducerId: an id for a producer that wants each batch stored once.

Ids come in blocks that are facts of the registry: a block is used once its fact is durable, so that no id is given out
twice, whatever happens to the broker. What is left of a block is lost when the broker ends.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.groups.journal import Journal
from broker.net.dispatch import Call, Response, Route
from broker.security.authorizer import CLUSTER_NAME, Authorizer, Operation, Resource
from broker.topics.registry import Topics
from broker.topics.transactions import Transactions
from protocol.apis import APIS
from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NO_ID, NO_EPOCH = -1, -1
# What clients come again on. Kafka says it while a block is on its way to it.
NOT_YET = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class ProducerIdHandlers:
    """InitProducerId."""

    def __init__(self, topics: Topics, registry: Journal, transactions: Transactions, authorizer: Authorizer) -> None:
        self._topics = topics
        self._registry = registry
        self._transactions = transactions
        self._authorizer = authorizer
        self._ids: Iterator[int] = iter(())  # of a durable block
        self._coming: _Block | None = None

    def routes(self) -> list[Route]:
        return [Route(APIS[InitProducerIdRequest.API_KEY], self.init_producer_id, refuse_init_producer_id)]

    def init_producer_id(self, call: Call, request: InitProducerIdRequest) -> Response | None:
        error = self._problem(call, request)
        if error:
            return refuse_init_producer_id(request, call.version, error)
        # A producer without transactions that shows what it had gets a new id all the same, as from Kafka.
        id = next(self._ids, None)
        if id is not None:
            return InitProducerIdResponse(producer_id=id, producer_epoch=0)
        if self._coming is None:
            if not self._registry.writable:
                return refuse_init_producer_id(request, call.version, NOT_YET)
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
        if not self._authorizer.open and not self._may_write(call):
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if (request.producer_id == NO_ID) != (request.producer_epoch == NO_EPOCH):
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def _may_write(self, call: Call) -> bool:
        """As Kafka has it: who may write to any topic may do so idempotently."""
        allows = self._authorizer.allows
        return allows(call, Operation.IDEMPOTENT_WRITE, Resource.CLUSTER, CLUSTER_NAME) or any(
            allows(call, Operation.WRITE, Resource.TOPIC, name) for name in self._topics.by_name
        )

    def came(self, block: range, calls: list[Call]) -> None:
        """The block is ours; whoever waited for it is served from it, and whoever is too many from the next."""
        self._coming = None
        self._ids = iter(block)
        for call in calls:
            reply = self.init_producer_id(call, call.request)
            if reply is not None:
                call.answer(reply)

    def failed(self, calls: list[Call]) -> None:
        """It may be ours or not, so it is nobody's."""
        self._coming = None
        for call in calls:
            call.fail(NOT_YET)


class _Block:
    """Ids whose fact is on its way to the log, and who waits for them."""

    __slots__ = ("_handlers", "_ids", "calls")

    def __init__(self, handlers: ProducerIdHandlers, ids: range) -> None:
        self._handlers = handlers
        self._ids = ids
        self.calls: list[Call] = []

    def release(self) -> None:
        self._handlers.came(self._ids, self.calls)

    def fail(self, error: int) -> None:
        self._handlers.failed(self.calls)


def refuse_init_producer_id(request: InitProducerIdRequest, version: int, error: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(0, error, NO_ID, NO_EPOCH)
