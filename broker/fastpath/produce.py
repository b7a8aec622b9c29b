"""Fast path of Produce: requests that differ only in one batch and its partition are stored and answered without being decoded.

A producer sends the same client id, acks and topic for hours. These parts of the request are compared as bytes, the batch is appended
from the request's buffer, and only the offset is new in the reply. Unusual and refused requests take the usual path before they have
any effect.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import Any, Final, Protocol

from broker.net.dispatch import Call
from broker.runtime.clock import Clock
from broker.security.authorizer import Authorizer
from broker.topics.append import CheckTimeBudget, Writable, append
from broker.topics.batch_checks import BatchRefused, TooMuchWork
from broker.topics.registry import Topic
from protocol.batch import COMPRESSION_MASK, HEADER_BYTES, LENGTH_FROM, MAGIC, TRANSACTIONAL
from protocol.compression import Compression
from protocol.errors import ProtocolError
from protocol.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse
from protocol.wire import UNREADABLE, uvarint, uvarint_bytes
from storage import AppendFailed

# Requests with a longer client id and topic get no fast path.
FRONT_BYTES_MAX: Final = 1_024

_KIND_BYTES: Final = 4  # API key and version; the correlation id follows
_FRONT_AT: Final = 8
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


class ProduceTemplate:
    """The constant parts of the requests and replies with one `key`: version, transactional id, acks, timeout and topic.

    Learned from the second consecutive request that has this key and one batch.
    """

    __slots__ = ("_authorizer", "_check_budget", "_clock", "_front", "_kind", "_partitions", "_reply_front", "_reply_size", "_reply_tail", "_tail",
                 "_topic", "_version", "_wants_reply", "key", "learned")  # fmt: skip

    def __init__(self, key: tuple[object, ...], partitions: PartitionTable, clock: Clock, authorizer: Authorizer, budget: CheckTimeBudget) -> None:
        self.key = key
        self.learned = False
        self._partitions = partitions
        self._clock = clock
        self._authorizer = authorizer
        self._check_budget = budget

    def learn(self, call: Call, request: ProduceRequest, flexible: bool) -> None:
        """Learn the constant parts of a request with one batch that was stored."""
        (topic,) = request.topic_data
        (partition,) = topic.partition_data
        records = partition.records or b""
        framed = call.request_frame
        body = request.encode(call.version)
        self._tail = _FLEXIBLE_TAIL if flexible else b""
        length = uvarint_bytes(len(records) + 1) if flexible else _INT32.pack(len(records))
        end = len(framed) - len(self._tail) - len(records) - len(length) - _INT32.size
        front = framed[_INT32.size + _FRONT_AT : end]
        if not framed.endswith(body) or len(front) > FRONT_BYTES_MAX:  # the client encodes requests differently from our encoder
            return
        self._kind = framed[_INT32.size : _INT32.size + _KIND_BYTES]
        self._front = front
        self._topic = topic.name
        self._version = call.version
        self._wants_reply = request.acks != 0
        reply = ProduceResponse([TopicProduceResponse(topic.name, [PartitionProduceResponse(-2, 0, -2, -2, -2)])]).encode(call.version)
        placeholder = _PART(-2, 0, -2, -2, -2) if call.version >= 5 else _OLD_PART(-2, 0, -2, -2)
        reply_front, _, self._reply_tail = reply.partition(placeholder)
        self._reply_front = b"\0" * flexible + reply_front
        self._reply_size = _INT32.pack(4 + flexible + len(reply))
        self.learned = True

    def __call__(self, data: bytes, at: int) -> bytes | None:
        """Return the reply to the request that begins at `at`, empty with acks=0; None: the request takes the usual path."""
        if not self.learned or not data.startswith(self._kind, at):
            return None
        front = self._front
        records_at = at + _FRONT_AT + len(front)
        if not data.startswith(front, at + _FRONT_AT) or len(data) < records_at + HEADER_BYTES:
            return None
        index, size = _LENGTHS(data, records_at)
        tail = self._tail
        if tail:
            try:
                size, records_at = uvarint(data, records_at + 4)
            except (*UNREADABLE, ProtocolError):  # the usual path reports the error
                return None
            size -= 1
        else:
            records_at += 8
        if size < HEADER_BYTES or records_at + size + len(tail) != len(data) or not data.endswith(tail):
            return None
        length, magic, attributes = _BATCH(data, records_at)
        if length != size - LENGTH_FROM or magic != MAGIC or attributes & TRANSACTIONAL:
            return None
        if self._version < 7 and attributes & COMPRESSION_MASK >= Compression.ZSTD:
            return None
        partition = self._partitions.find(self._topic, index)
        if partition is None or partition.error or partition.batch_queue is not None or partition.topic.internal or not self._authorizer.allows_all:
            return None
        try:
            offset, time = append(partition, data, records_at, size, self._clock.wall, self._check_budget)
        except (BatchRefused, TooMuchWork, AppendFailed):
            return None
        if not self._wants_reply:
            return b""
        if self._version >= 5:
            part = _PART(index, 0, offset, time, partition.start_offset)
        else:
            part = _OLD_PART(index, 0, offset, time)
        return self._reply_size + data[at + 4 : at + 8] + self._reply_front + part + self._reply_tail
