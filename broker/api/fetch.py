"""Fetch: read records from an offset of each partition on; the reply may wait until there are enough bytes.

No fetch sessions are opened (KIP-227 allows that): every request names all its partitions. There are no transactions, so
the last stable offset is the high watermark.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from broker.api.parts import BrokerParts
from broker.logging.logs import log
from broker.net.dispatch import Call, Response, Route
from broker.net.long_requests import LOOKUP_COST
from broker.runtime.contain import report_defect
from broker.security.authorizer import Operation, cluster_allowed, topic_allowed
from broker.topics.fetch_replies import NO_TRANSACTIONS, SHORT_BYTES, TOPIC_IDS_FROM, FetchReply, LongFetch, Part, PartitionResult, size_of
from broker.topics.leader_epochs import epoch_error
from broker.topics.partition import Partition, read_error_code
from broker.topics.registry import Topic
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchableTopicResponse, FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from protocol.wire import Steps
from storage import DamagedLog

UNCOMMITTED: Final = 0
COMMITTED: Final = 1
NEW_SESSION: Final = 0
NO_SESSION: Final = -1
REPLICA_STATE_FROM: Final = 15  # from this version on, followers send their id in `replica_state`
PARTITIONS_PER_STEP: Final = 4
ADDED_PER_STEP: Final = 64
ADD_COST: Final = 16
COPIED_PER_STEP: Final = 256  # elements of a list that is copied
INLINE_BYTES_MAX: Final = 4_096  # a larger request is answered in steps
INLINE_PARTITIONS_MAX: Final = 500  # a fetch of more partitions that has waited is answered in steps
LOG_READ_ERROR_MS: Final = 15_000  # failed reads are logged at most this often

Results = dict[tuple[str | bytes, int], PartitionResult]  # by name or id of the topic, and partition

_UNREADABLE = (OSError, DamagedLog)


def route(parts: BrokerParts) -> Route:
    return Route(FetchRequest, Fetch(parts).handle, error_response)


class PendingFetch:
    """One fetch: its limits, and the result of each requested partition."""

    __slots__ = (
        "_available",
        "_bytes_left",
        "_bytes_max",
        "_bytes_min",
        "_call",
        "_first",
        "_from_follower",
        "_handler",
        "_isolation_level",
        "_refused",
        "_results",
        "_sizes",
        "must_answer_now",
    )

    def __init__(self, handler: Fetch, call: Call, request: FetchRequest, results: list[PartitionResult], refused: list[PartitionResult]) -> None:
        self._handler = handler
        self._call = call
        self._results = results
        self._refused = refused
        self._isolation_level = request.isolation_level
        self._from_follower = _replica_of(request, call.version) >= 0
        self._bytes_max = min(request.max_bytes, handler.bytes_max)
        self._bytes_min = min(request.min_bytes, self._bytes_max)
        self._sizes: dict[Partition, tuple[PartitionResult, int]] = {}  # while the fetch waits: result and available bytes
        self.must_answer_now = False  # whether a result, mostly an error, must be sent without waiting for more bytes
        # While records are found: bytes that the reply may still have, whether it has none yet, and those found within the limits.
        self._bytes_left = self._bytes_max
        self._first = True
        self._available = 0

    def find_records(self) -> bool:
        """Find the records of all partitions; returns whether the fetch can be answered now."""
        self._begin()
        self._find(self._results)
        return self._has_found_enough

    def find_in_steps(self) -> Steps[bool]:
        self._begin()
        for at in range(0, len(self._results), PARTITIONS_PER_STEP):
            self._find(self._results[at : at + PARTITIONS_PER_STEP])
            yield LOOKUP_COST
        return self._has_found_enough

    def _begin(self) -> None:
        self._bytes_left = self._bytes_max
        self._first = True
        self._available = 0
        self.must_answer_now = False

    def _find(self, results: list[PartitionResult]) -> None:
        for result in results:
            if not self._is_at_end(result):
                self._find_in(result, self._bytes_left, self._first)
                if result.extent is not None:
                    self._first = False
                    self._available += result.extent.bytes_within_limit
                    self._bytes_left -= result.extent.size
            if self._bytes_left < 0:
                self._bytes_left = 0

    @property
    def _has_found_enough(self) -> bool:
        return self.must_answer_now or self._available >= self._bytes_min

    def _is_at_end(self, result: PartitionResult) -> bool:
        """Whether the consumer has read the partition to its end; a shortcut for the most frequent case."""
        partition, requested = result.partition, result.requested
        assert partition is not None
        if partition.error or requested.last_fetched_epoch >= 0 or self._from_follower:
            return False
        end = partition.high_watermark
        log = partition.log
        if requested.fetch_offset != end or end < log.start_offset or (requested.current_leader_epoch >= 0 and requested.current_leader_epoch != log.epoch):
            return False
        result.extent = result.diverging = None
        result.error = ErrorCode.NONE
        result.high_watermark = end
        result.start_offset = log.start_offset
        result.transactions = 0 if self._isolation_level == COMMITTED else NO_TRANSACTIONS
        return True

    def _find_in(self, result: PartitionResult, bytes_left: int, one_at_least: bool) -> None:
        partition = result.partition
        assert partition is not None
        result.extent = None
        result.diverging = None
        result.transactions = NO_TRANSACTIONS
        try:
            error = self._find_extent(result, partition, bytes_left, one_at_least)
        except _UNREADABLE as problem:
            error = self._handler.read_error_code(partition, problem)
        if error:
            result.refuse(error)
            result.transactions = NO_TRANSACTIONS
            self.must_answer_now = True

    def _find_extent(self, result: PartitionResult, partition: Partition, bytes_left: int, one_at_least: bool) -> int:
        if partition.error:
            return partition.error
        requested = result.requested
        if requested.current_leader_epoch >= 0:
            error = epoch_error(partition, requested.current_leader_epoch)
            if error:
                return error
        if self._from_follower:  # partitions have no followers here
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if requested.current_leader_epoch < 0 else ErrorCode.UNKNOWN_LEADER_EPOCH
        offset = requested.fetch_offset
        end = result.high_watermark = partition.high_watermark
        start = result.start_offset = partition.start_offset
        fetched = requested.last_fetched_epoch
        if fetched >= 0:
            epoch, epoch_end = partition.log.epoch_end(fetched)
            if epoch_end < 0 or offset < start:
                return ErrorCode.OFFSET_OUT_OF_RANGE
            if epoch < fetched or epoch_end < offset:
                result.diverging = epoch, epoch_end
                result.error = ErrorCode.NONE
                self.must_answer_now = True
                return ErrorCode.NONE
        if offset < start or offset > partition.log.next_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        result.error = ErrorCode.NONE
        if self._isolation_level == COMMITTED:
            result.transactions = 0
        if offset < end:
            limit = min(requested.partition_max_bytes, bytes_left)
            if limit < 0:
                return ErrorCode.UNKNOWN_SERVER_ERROR
            extent = result.extent = partition.log.extent(offset, limit, end, one_at_least)
            if extent is None:
                if limit:
                    result.transactions = NO_TRANSACTIONS  # Kafka lists none where the first batch exceeds the limit
            elif extent.closed:
                self.must_answer_now = True  # the records are in a closed segment, which does not grow
        return ErrorCode.NONE

    # Called while the fetch waits (`topics/waiting_fetches.py`).

    def partitions(self) -> Collection[Partition]:
        """The partitions to wait for."""
        for result in self._results:
            assert result.partition is not None
            self._sizes[result.partition] = result, result.bytes_within_limit
            result.extent = None
        return self._sizes

    def has_enough(self, grown: Collection[Partition]) -> bool:
        try:
            for partition in grown:
                result, _ = self._sizes[partition]
                self._find_in(result, self._bytes_max, True)
                self._sizes[partition] = result, result.bytes_within_limit
                result.extent = None
        except Exception as error:
            report_defect("a fetch failed inside the broker while it waited", error)
            return True  # `complete` will fail again and answer with an error
        return self.must_answer_now or sum([size for _, size in self._sizes.values()]) >= self._bytes_min

    def complete(self) -> None:
        call = self._call
        if len(self._results) > INLINE_PARTITIONS_MAX:
            self._handler.long_requests.run(call, self._complete_in_steps())
            return
        try:
            self.find_records()
            reply = self.reply()
        except Exception as error:
            report_defect("a fetch failed inside the broker", error)
            call.fail(ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        if reply is not None:
            call.answer(reply)

    def _complete_in_steps(self) -> Steps[Response | None]:
        yield from self.find_in_steps()
        return (yield from self.reply_in_steps())

    def reply(self) -> Response | None:
        """The reply with the records found; None for a long reply, which is being sent in pieces."""
        reply = self._reply()
        if self._is_long:
            self._send_long(reply, reply.parts(self._call.version))
            return None
        self._read_all()
        return reply

    def reply_in_steps(self) -> Steps[Response | None]:
        reply = self._reply()
        if self._is_long:
            parts: list[Part] = []
            yield from reply.put_parts(parts, self._call.version)
            self._send_long(reply, parts)
            return None
        self._read_all()
        return reply

    def _reply(self) -> FetchReply:
        address = None if self._from_follower else self._call.connection.listener
        return FetchReply(self._results + self._refused, self._handler.node, self._handler.leaders, address)

    @property
    def _is_long(self) -> bool:
        return sum([result.size for result in self._results]) > SHORT_BYTES

    def _send_long(self, reply: FetchReply, parts: list[Part]) -> None:
        call = self._call
        parts.insert(0, call.encode_head(reply, size_of(parts)))
        call.connection.send_in_pieces(LongFetch(parts))

    def _read_all(self) -> None:
        for result in self._results:
            if result.extent is not None:
                self._read(result)

    def _read(self, result: PartitionResult) -> None:
        extent, result.extent = result.extent, None
        assert extent is not None
        assert result.partition is not None
        try:
            result.data = extent.read(extent.size)
        except _UNREADABLE as problem:
            result.refuse(self._handler.read_error_code(result.partition, problem))


class Fetch:
    """The handler of Fetch, for all versions."""

    def __init__(self, parts: BrokerParts) -> None:
        self.node = parts.node
        self.leaders = parts.leaders
        self.bytes_max = parts.config.fetch_max_bytes
        self._topics = parts.topics
        self._partitions = parts.partitions
        self._fetches = parts.fetches
        self._clock = parts.clock
        self._authorizer = parts.authorizer
        self.long_requests = parts.long_requests
        self._in_steps = parts.long_requests.handler(self._handle_long)
        self._next_read_error_log = 0

    def handle(self, call: Call, request: FetchRequest) -> Response | None:
        if call.size > INLINE_BYTES_MAX:
            return self._in_steps(call, request)
        if request.session_epoch not in (NEW_SESSION, NO_SESSION):
            return FetchResponse(0, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        results: Results = {}
        for topic in request.topics:
            self._add(results, call, request, topic, topic.partitions)
        fetch = self._begin(call, request, results)
        if not isinstance(fetch, PendingFetch):
            return fetch
        if fetch.find_records() or request.max_wait_ms <= 0:
            return fetch.reply()
        self._fetches.park(fetch, fetch.partitions(), call.connection, request.max_wait_ms)
        return None

    def _handle_long(self, call: Call, request: FetchRequest) -> Steps[Response | None]:
        """As `handle`, for a request with many partitions."""
        if request.session_epoch not in (NEW_SESSION, NO_SESSION):
            return FetchResponse(0, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        results: Results = {}
        for topic in request.topics:
            for at in range(0, len(topic.partitions), ADDED_PER_STEP):
                copied = self._add(results, call, request, topic, topic.partitions[at : at + ADDED_PER_STEP])
                yield ADD_COST + copied // COPIED_PER_STEP
            yield LOOKUP_COST
        fetch = self._begin(call, request, results)
        if not isinstance(fetch, PendingFetch):
            return fetch
        if (yield from fetch.find_in_steps()) or request.max_wait_ms <= 0:
            return (yield from fetch.reply_in_steps())
        self._fetches.park(fetch, fetch.partitions(), call.connection, request.max_wait_ms)
        return None

    def _begin(self, call: Call, request: FetchRequest, results: Results) -> PendingFetch | Response:
        """Begin to read the partitions; the reply, if none can be read."""
        refused = [result for result in results.values() if result.partition is None]
        if _replica_of(request, call.version) < 0:  # topics with unknown ids come first
            refused.sort(key=lambda result: result.error != ErrorCode.UNKNOWN_TOPIC_ID)
        readable = [result for result in results.values() if result.partition is not None]
        if not readable:
            return FetchReply(refused, self.node, self.leaders, call.connection.listener)
        if request.isolation_level not in (UNCOMMITTED, COMMITTED):
            return error_response(request, call.version, ErrorCode.UNKNOWN_SERVER_ERROR)
        return PendingFetch(self, call, request, readable, refused)

    def _add(self, results: Results, call: Call, request: FetchRequest, wanted: FetchTopic, partitions: list[FetchPartition]) -> int:
        """Add partitions of a topic; one that is requested twice keeps its first position and its last limits. Returns the topic's partitions."""
        by_id = call.version >= TOPIC_IDS_FROM
        key: str | bytes = wanted.topic_id if by_id else wanted.topic
        topic = self._topics.by_id.get(wanted.topic_id) if by_id else self._topics.by_name.get(wanted.topic)
        error = self._topic_error(call, wanted, topic, by_id, _replica_of(request, call.version) >= 0)
        existing = self._partitions.of_topic(topic) if topic is not None and not error else []
        for requested in partitions:
            index = requested.partition
            if error:
                result = PartitionResult(key, requested, None, error)
            elif 0 <= index < len(existing):
                partition = existing[index]
                if partition.error:
                    self._partitions.find(partition.topic.name, index)  # opens its log before other logs
                result = PartitionResult(key, requested, partition, ErrorCode.NONE)
            else:
                result = PartitionResult(key, requested, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            results[key, index] = result
        return len(existing)

    def _topic_error(self, call: Call, requested: FetchTopic, topic: Topic | None, by_id: bool, from_follower: bool) -> int:
        """The error for all partitions of the topic, or 0."""
        if from_follower and not cluster_allowed(self._authorizer, call, Operation.CLUSTER_ACTION):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if topic is None and by_id:
            return ErrorCode.UNKNOWN_TOPIC_ID
        name = requested.topic if topic is None else topic.name
        if not from_follower and not topic_allowed(self._authorizer, call, Operation.READ, name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else ErrorCode.NONE

    def read_error_code(self, partition: Partition, problem: Exception) -> int:
        """The error code of a failed read. Failed reads are logged at intervals only, since clients retry."""
        now = self._clock.now
        if now >= self._next_read_error_log:
            self._next_read_error_log = now + LOG_READ_ERROR_MS
            log.error("partition cannot be read", log=str(partition), reason=str(problem))
        return read_error_code(problem)


def _replica_of(request: FetchRequest, version: int) -> int:
    if version < REPLICA_STATE_FROM:
        return request.replica_id
    return request.replica_state.replica_id if request.replica_state is not None else -1


def error_response(request: FetchRequest, version: int, error: int) -> Response:
    """The error for each partition; from version 13 on clients read the top-level error instead."""
    topics = []
    if version < TOPIC_IDS_FROM:
        for topic in request.topics:
            parts = [PartitionData(partition.partition, error, -1, aborted_transactions=[], records=b"") for partition in topic.partitions]
            topics.append(FetchableTopicResponse(topic=topic.topic, partitions=parts))
    return FetchResponse(0, error, request.session_id, topics)
