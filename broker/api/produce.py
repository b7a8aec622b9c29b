"""Produce: append record batches to the logs of their partitions, and reply when they are written.

In a data directory a write to the operating system is enough, as in Kafka: no reply waits for the disk. With JetStream the reply waits
until the engine has acknowledged the batch, or until the request's own timeout: then the batch may be stored or not. A refused batch
changes nothing.
"""

from __future__ import annotations

from typing import Final

from broker.api.parts import BrokerParts
from broker.fastpath.learning import learn, may_learn_repeated
from broker.fastpath.produce import ProduceFastPath, produce_front
from broker.groups.offset_replies import TopicKey
from broker.net.dispatch import Call, Response, Route
from broker.net.long_requests import LOOKUP_COST
from broker.security.authorizer import Operation, topic_allowed
from broker.topics.appender import failed_reply
from broker.topics.batch_checks import BatchRefused, InvalidBatch, TooMuchWork, batch_size, check_single_batch, is_transactional
from broker.topics.batch_queues import QueuedBatch
from broker.topics.leaders import NO_NODE, Leaders
from broker.topics.partitions import Partition
from broker.topics.registry import Topic, TopicRegistry
from protocol.errors import ErrorCode
from protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol.wire import Steps
from storage import LogId

NO_REPLY: Final = 0  # acks: the producer gets no reply; an error closes its connection
ACKS: Final = (-1, 0, 1)  # there is one replica, so 1 and -1 (all) mean the same
APPENDS_MAX: Final = 64  # batches of one request appended at once; further batches are appended in later turns
PARTITIONS_PER_STEP: Final = 4
TIMEOUT_MS_MAX: Final = 120_000  # as long as Java's producer tries to deliver a batch; also for requests with a timeout of 0 or less

CURRENT_LEADER_FROM: Final = 10  # KIP-951
TOPIC_IDS_FROM: Final = 13  # in place of names

TopicPartition = tuple[TopicKey, int]  # topic, as the request names it, and partition


def route(parts: BrokerParts) -> Route:
    return Route(ProduceRequest, parts.long_requests.handler(Produce(parts).handle), error_response)


class PendingProduce:
    """A request whose reply is incomplete: some of its batches wait to be checked or appended in later turns of the event loop."""

    __slots__ = ("answers", "call", "request", "waiting")

    def __init__(self, call: Call, request: ProduceRequest, answers: dict[TopicPartition, PartitionProduceResponse]) -> None:
        self.call = call
        self.request = request
        self.answers = answers
        self.waiting = 0  # the number of batches that wait

    def is_needed(self) -> bool:
        """Whether to append a waiting batch. False if its client expected a reply and has disconnected: to that client, the batch is lost anyway."""
        return self.request.acks == NO_REPLY or not self.call.connection.closed

    def answered(self, partition: Partition, answer: PartitionProduceResponse) -> None:
        topic = partition.topic
        self.answers.setdefault((topic.id if self.call.version >= TOPIC_IDS_FROM else topic.name, partition.index), answer)
        self.waiting -= 1
        if self.waiting:
            return
        reply = _reply(self.request, self.call.version, self.answers)
        if self.request.acks == NO_REPLY:
            _end_without_reply(self.call, reply)
        else:
            self.call.answer(reply)


class Produce:
    def __init__(self, parts: BrokerParts) -> None:
        self._leaders = parts.leaders
        self._topics = parts.topics
        self._partitions = parts.partitions
        self._transactions = parts.transaction_refusals
        self._clock = parts.clock
        self._authorizer = parts.authorizer
        self._check_budget = parts.check_budget
        self._append = parts.appender
        self._batch_queues = parts.batch_queues

    def handle(self, call: Call, request: ProduceRequest) -> Steps[Response | None]:
        reply = yield from self._produce(call, request)
        if self._leaders is not None and reply is not None and call.version >= CURRENT_LEADER_FROM:
            name_leaders(reply, self._leaders, self._topics, call.connection.listener.name)
        if reply is None or request.acks != NO_REPLY:
            return reply
        _end_without_reply(call, reply)
        return None

    def _produce(self, call: Call, request: ProduceRequest) -> Steps[ProduceResponse | None]:
        """Return the reply; None if some batches wait, and the reply is sent later."""
        try:
            sizes = yield from _sizes(request)
        except InvalidBatch as invalid:
            return error_response(request, call.version, ErrorCode.CORRUPT_MESSAGE, str(invalid))
        if sizes is None:
            self._transactions.refused(request.transactional_id or "")
            return error_response(request, call.version, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        size_of_next = iter(sizes)
        # Of several valid batches for one partition only the last is appended.
        batches: dict[TopicPartition, tuple[Partition, bytes, int]] = {}
        answers: dict[TopicPartition, PartitionProduceResponse] = {}
        for topic in request.topic_data:
            topic_key = _key(topic, call.version)
            refusal = self._refusal(call, topic_key)
            yield LOOKUP_COST
            for number, data in enumerate(topic.partition_data):
                if number % PARTITIONS_PER_STEP == PARTITIONS_PER_STEP - 1:
                    yield LOOKUP_COST
                key = (topic_key, data.index)
                size = next(size_of_next)
                name = self._name(topic_key)  # its topic may have been deleted since the last step, or recreated with another id
                partition = self._partitions.find(name, data.index) if name is not None and not refusal else None
                if partition is None:
                    unknown = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    answers[key] = failed_reply(data.index, refusal or unknown)
                    continue
                records = data.records or b""
                try:
                    check_single_batch(records, size, call.version)
                except BatchRefused as refused:
                    answers[key] = failed_reply(data.index, refused.error)
                else:
                    batches[key] = (partition, records, size)
        pending = PendingProduce(call, request, answers)
        appends_left = APPENDS_MAX
        deadline = self._clock.now + (min(request.timeout_ms, TIMEOUT_MS_MAX) if request.timeout_ms > 0 else TIMEOUT_MS_MAX)
        for number, (key, (partition, records, size)) in enumerate(batches.items()):
            if number % PARTITIONS_PER_STEP == PARTITIONS_PER_STEP - 1:
                yield LOOKUP_COST
            if request.acks not in ACKS:
                answer = failed_reply(partition.index, ErrorCode.INVALID_REQUIRED_ACKS)
            elif partition.topic.internal:
                answer = failed_reply(partition.index, ErrorCode.INVALID_TOPIC_EXCEPTION)
            elif partition.error:
                answer = failed_reply(partition.index, partition.error)
            else:
                appended = None
                too_much_work = False
                if partition.batch_queue is None and appends_left:
                    appends_left -= 1
                    try:
                        appended = self._append(partition, records, 0, size)
                    except TooMuchWork:
                        too_much_work = True
                if appended is not None:
                    answer = appended
                else:
                    queued = QueuedBatch(records, size, call.connection, pending.is_needed, pending.answered, deadline)
                    if self._batch_queues.add(partition, queued, too_much_work):
                        pending.waiting += 1
                        continue
                    answer = failed_reply(partition.index, ErrorCode.REQUEST_TIMED_OUT, "too many batches wait to be checked")
            answers.setdefault(key, answer)
        if pending.waiting:
            return None
        if len(answers) == 1 and not any(answer.error_code for answer in answers.values()):
            ((partition, _, _),) = batches.values()
            self._learn_fast_path(call, request, partition.topic)
        return _reply(request, call.version, answers)

    def _name(self, key: TopicKey) -> str | None:
        """The name of a topic; None: no topic has the id."""
        return self._topics.name_of(key) if isinstance(key, bytes) else key

    def _refusal(self, call: Call, key: TopicKey) -> int:
        """The error of all partitions of a topic that the caller may not write, or that does not exist, or 0."""
        name = self._name(key)
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return ErrorCode.NONE if topic_allowed(self._authorizer, call, Operation.WRITE, name) else ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def _learn_fast_path(self, call: Call, request: ProduceRequest, topic: Topic) -> None:
        """Build a fast path from a request with one batch: the next request likely has the same form."""
        now = self._clock.now
        if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1 or not may_learn_repeated(call, now, any_size=True):
            return
        front = produce_front(call, request, call.version >= call.route.flexible_from)
        if front is not None:
            learn(call, ProduceFastPath(call, request, topic, front, self._partitions, self._clock, self._authorizer, self._check_budget), now)


def name_leaders(reply: ProduceResponse, leaders: Leaders, topics: TopicRegistry, listener: str) -> None:
    """Add to the reply the current leader of each partition that another node leads."""
    leader_ids: set[int] = set()
    for topic in reply.responses:
        for part in topic.partition_responses:
            if part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                log = LogId(topic.name or topics.name_of(topic.topic_id) or "", part.index)
                leader = leaders.leader(log)
                if leader != NO_NODE:
                    leader_ids.add(leader)
                    part.current_leader = LeaderIdAndEpoch(leader, leaders.leader_epoch(log))
    if leader_ids:
        reply.node_endpoints = [NodeEndpoint(*endpoint) for endpoint in leaders.endpoints(listener) if endpoint.id in leader_ids]


def _sizes(request: ProduceRequest) -> Steps[list[int] | None]:
    """The size of the first batch in each entry of the request; None if a batch is transactional.

    Raises InvalidBatch if an invalid batch comes first.
    """
    sizes: list[int] = []
    for topic in request.topic_data:
        yield LOOKUP_COST
        for number, data in enumerate(topic.partition_data):
            if number % PARTITIONS_PER_STEP == PARTITIONS_PER_STEP - 1:
                yield LOOKUP_COST
            records = data.records or b""
            size = batch_size(records, 0)
            if is_transactional(records, size):
                return None
            sizes.append(size)
    return sizes


def _end_without_reply(call: Call, reply: ProduceResponse) -> None:
    error = next((part.error_code for topic in reply.responses for part in topic.partition_responses if part.error_code), 0)
    if error:
        call.connection.close(f"a produce request with acks=0 failed with {ErrorCode(error).name}")
    else:
        call.finish_without_reply()


def _key(topic: TopicProduceData, version: int) -> TopicKey:
    return topic.topic_id if version >= TOPIC_IDS_FROM else topic.name


def _reply(request: ProduceRequest, version: int, answers: dict[TopicPartition, PartitionProduceResponse]) -> ProduceResponse:
    """The reply with each topic and each partition once, in the order of the request."""
    topics: dict[TopicKey, list[PartitionProduceResponse]] = {}
    for topic in request.topic_data:
        key = _key(topic, version)
        parts = topics.setdefault(key, []) if topic.partition_data else []
        for data in topic.partition_data:
            answer = answers.pop((key, data.index), None)
            if answer is not None:
                parts.append(answer)
    return ProduceResponse(
        [TopicProduceResponse("", parts, key) if isinstance(key, bytes) else TopicProduceResponse(key, parts) for key, parts in topics.items()]
    )


def error_response(request: ProduceRequest, version: int, error: int, message: str | None = None) -> ProduceResponse:
    keys = [(_key(topic, version), data.index) for topic in request.topic_data for data in topic.partition_data]
    return _reply(request, version, {key: failed_reply(key[1], error, message) for key in keys})
