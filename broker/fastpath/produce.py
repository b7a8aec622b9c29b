"""Fast path of Produce: requests that differ only in one batch and its partition are stored and answered without being decoded.

A producer sends the same client id, acks and topic for hours. These parts of the request are compared as bytes, the batch is appended
from the request's buffer, and only the offset is new in the reply. Unusual and refused requests take the usual path before they have
any effect.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import Any, Final, NamedTuple, Protocol

from broker.fastpath.learning import LearnedFastPath
from broker.net.connection import KIND_BYTES, NO_REPLY, NOT_MINE, REST_AT, SIZE_BYTES, Connection
from broker.net.dispatch import Call
from broker.runtime.clock import Clock
from broker.security.authorizer import Authorizer
from broker.topics.append import CheckTimeBudget, Writable, append
from broker.topics.batch_checks import BatchRefused, TooMuchWork
from broker.topics.registry import Topic
from protocol.batch import COMPRESSION_MASK, HEADER_BYTES, LENGTH_FROM, MAGIC, TRANSACTIONAL
from protocol.compression import Compression
from protocol.errors import ProtocolError
from protocol.framing import frame_size
from protocol.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse
from protocol.wire import UNREADABLE, uvarint, uvarint_bytes
from storage import AppendFailed

# Requests with a longer client id and topic get no fast path.
FRONT_BYTES_MAX: Final = 1_024

_COST: Final = 1_000  # the approximate memory of the objects besides the front
_FLEXIBLE_TAIL: Final = b"\0\0\0"  # no tagged fields, of the partition, the topic and the request
_INT32: Final = Struct(">i")
_LENGTHS: Final = Struct(">ii").unpack_from  # the partition and, in versions that are not flexible, the length of its records
_BATCH: Final = Struct(">8xi4xb5xB").unpack_from  # length, magic, the lower half of the attributes
_PART: Final = Struct(">ihqqq").pack
_OLD_PART: Final = Struct(">ihqq").pack  # without the log start offset


class AppendTarget(Writable, Protocol):
    """A partition as this fast path uses it."""

    topic: Topic
    error: int
    batch_queue: deque[Any] | None

    @property
    def start_offset(self) -> int: ...


class PartitionTable(Protocol):
    """Finds partitions (`broker.topics.partitions`)."""

    def find(self, name: str, index: int) -> AppendTarget | None: ...


class ProduceFront(NamedTuple):
    """What precedes the partition and the batch in requests like this one, after the correlation id."""

    front: bytes
    flexible: bool


def produce_front(call: Call, request: ProduceRequest, flexible: bool) -> ProduceFront | None:
    """The front of a request with one batch; None if it is long, or if the client encodes the request differently from our encoder."""
    (topic,) = request.topic_data
    (partition,) = topic.partition_data
    records = partition.records or b""
    frame = call.request_frame
    length = uvarint_bytes(len(records) + 1) if flexible else _INT32.pack(len(records))
    end = len(frame) - len(_FLEXIBLE_TAIL) * flexible - len(records) - len(length) - _INT32.size
    front = frame[REST_AT:end]
    if len(front) > FRONT_BYTES_MAX or not frame.endswith(request.encode(call.version)):
        return None
    return ProduceFront(front, flexible)


class ProduceFastPath(LearnedFastPath):
    """Appends the batch of a request that has the same client id, version, transactional id, acks, timeout and topic as an earlier one."""

    __slots__ = ("_authorizer", "_check_budget", "_clock", "_front", "_partitions", "_reply_front", "_reply_size", "_reply_tail", "_tail",
                 "_topic", "_topic_id", "_version", "_wants_reply")  # fmt: skip

    def __init__(
        self,
        call: Call,
        request: ProduceRequest,
        topic: Topic,
        front: ProduceFront,
        partitions: PartitionTable,
        clock: Clock,
        authorizer: Authorizer,
        budget: CheckTimeBudget,
    ) -> None:
        """`request`: its one batch was stored, in a partition of `topic`."""
        super().__init__(_COST + len(front.front), any_size=True)
        self._partitions = partitions
        self._clock = clock
        self._authorizer = authorizer
        self._check_budget = budget
        self._front = front.front
        self._tail = _FLEXIBLE_TAIL if front.flexible else b""
        self._topic = topic.name
        requested = request.topic_data[0]
        self._topic_id = topic.id if requested.topic_id == topic.id else b""  # b"": the request names the topic by name
        self._version = call.version
        self._wants_reply = request.acks != 0
        reply = ProduceResponse([TopicProduceResponse(requested.name, [PartitionProduceResponse(-2, 0, -2, -2, -2)], requested.topic_id)]).encode(call.version)
        placeholder = _PART(-2, 0, -2, -2, -2) if call.version >= 5 else _OLD_PART(-2, 0, -2, -2)
        reply_front, _, self._reply_tail = reply.partition(placeholder)
        self._reply_front = b"\0" * front.flexible + reply_front
        self._reply_size = _INT32.pack(4 + front.flexible + len(reply))

    def answer(self, connection: Connection, data: bytes) -> bytes | None:
        front = self._front
        records_at = REST_AT + len(front)
        end = len(data)
        if not data.startswith(front, REST_AT) or end < records_at + HEADER_BYTES:
            return NOT_MINE
        if frame_size(data, 0)[0] != end - SIZE_BYTES or end - SIZE_BYTES > connection.context.frame_bytes_max:
            return NOT_MINE
        index, size = _LENGTHS(data, records_at)
        tail = self._tail
        if tail:
            try:
                size, records_at = uvarint(data, records_at + 4)
            except (*UNREADABLE, ProtocolError):  # the usual path reports the error
                return NOT_MINE
            size -= 1
        else:
            records_at += 8
        if size < HEADER_BYTES or records_at + size + len(tail) != end or not data.endswith(tail):
            return NOT_MINE
        length, magic, attributes = _BATCH(data, records_at)
        if length != size - LENGTH_FROM or magic != MAGIC or attributes & TRANSACTIONAL:
            return NOT_MINE
        if self._version < 7 and attributes & COMPRESSION_MASK >= Compression.ZSTD:
            return NOT_MINE
        partition = self._partitions.find(self._topic, index)
        if partition is None or partition.error or partition.batch_queue is not None or partition.topic.internal or not self._authorizer.allows_all:
            return NOT_MINE
        if self._topic_id and partition.topic.id != self._topic_id:
            return NOT_MINE  # the topic was recreated
        try:
            offset, time = append(partition, data, records_at, size, self._clock.wall, self._check_budget)
        except (BatchRefused, TooMuchWork, AppendFailed):
            return NOT_MINE
        if not self._wants_reply:
            return NO_REPLY
        if self._version >= 5:
            part = _PART(index, 0, offset, time, partition.start_offset)
        else:
            part = _OLD_PART(index, 0, offset, time)
        return self._reply_size + data[KIND_BYTES:REST_AT] + self._reply_front + part + self._reply_tail
