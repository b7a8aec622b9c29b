"""Encode the reply to a Fetch: small parts in memory, record batches straight from segment files.

A short reply is encoded at once. A long one is sent in pieces: straight from the segment files (`sendfile`) if the socket accepts that,
otherwise read into memory and written.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from struct import Struct
from typing import Final

from broker.net.long_replies import ReplyLost
from broker.runtime.node import Address, Node
from broker.topics.leaders import Endpoint, Leaders
from broker.topics.partition import Partition
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchResponse
from protocol.wire import (
    BYTES,
    UNWRITABLE,
    Steps,
    put_compact_count,
    put_compact_text,
    put_legacy_count,
    put_legacy_text,
    unwritable,
    uvarint_bytes,
)
from storage import DamagedLog, Extent

# The first version with each field.
LOG_START_OFFSET_FROM: Final = 5
SESSION_FROM: Final = 7
PREFERRED_READ_REPLICA_FROM: Final = 11
TOPIC_IDS_FROM: Final = 13
CURRENT_LEADER_FROM: Final = 16

NO_OFFSET: Final = -1
NO_TRANSACTIONS: Final = -1  # null in place of the list of aborted transactions
SHORT_BYTES: Final = 65_536  # a reply with fewer bytes of records is sent at once
PARTITIONS_PER_STEP: Final = 8  # of the steps in which the reply with many partitions is encoded
STEP_COST: Final = 1
JOINED_BYTES: Final = 16_384  # shorter pieces are joined by copying

# Errors whose reply has the current leader.
_WITH_LEADER: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

_THROTTLE: Final = Struct(">i").pack
_HEAD: Final = Struct(">ihi").pack  # throttle time, error, session id
_COUNT: Final = Struct(">i").pack
_PARTITION_4: Final = Struct(">ihqqi").pack  # index, error, high watermark, last stable offset, aborted transactions
_PARTITION_5: Final = Struct(">ihqqqi").pack  # with the log start offset before the aborted transactions
_PARTITION_11: Final = Struct(">ihqqqii").pack  # and the preferred read replica after them
_PARTITION_12: Final = Struct(">ihqqqBi").pack  # as 11, with a compact list of aborted transactions
_DIVERGING: Final = Struct(">BBiqB").pack  # tag, size, epoch, end, no tags
_LEADER: Final = Struct(">BBiiB").pack  # tag, size, leader, epoch, no tags
_NODE: Final = Struct(">i").pack

Part = bytes | Extent


class PartitionResult:
    """One requested partition of a fetch, and its result."""

    __slots__ = ("data", "diverging", "error", "extent", "high_watermark", "partition", "requested", "start_offset", "topic", "transactions")

    def __init__(self, topic: str | bytes, requested: FetchPartition, partition: Partition | None, error: int) -> None:
        self.topic = topic  # its name, or from version 13 on its id
        self.requested = requested
        self.partition = partition  # None: not read
        self.transactions = 0 if partition is None else NO_TRANSACTIONS  # aborted transactions: an empty list, or null
        self.extent: Extent | None = None
        self.data = b""  # records already read
        self.diverging: tuple[int, int] | None = None
        self.refuse(error)

    def refuse(self, error: int) -> None:
        self.error = error
        self.high_watermark = self.start_offset = NO_OFFSET

    @property
    def bytes_within_limit(self) -> int:
        """The bytes of records within the requested limit; the last batch may exceed it."""
        return self.extent.bytes_within_limit if self.extent is not None else 0

    @property
    def size(self) -> int:
        return self.extent.size if self.extent is not None else 0


class FetchReply:
    """The reply, with the partitions in the order of `results`; it never opens a fetch session."""

    __slots__ = ("_address", "_leaders", "_node", "results")

    def __init__(self, results: Sequence[PartitionResult], node: Node, leaders: Leaders | None, address: Address | None) -> None:
        self.results = results
        self._node = node
        self._leaders = leaders
        self._address = address  # this node's address on the client's listener; None for a follower

    def __repr__(self) -> str:
        results = ", ".join(f"{result.topic!r}-{result.requested.partition}: error {result.error}, {result.size} bytes" for result in self.results)
        return f"FetchReply({results})"

    def encode(self, version: int) -> bytes:
        """Encode a short reply, whose records are already read."""
        return b"".join([part if isinstance(part, bytes) else b"" for part in self.parts(version)])

    def parts(self, version: int) -> list[Part]:
        out: list[Part] = []
        for _ in self.put_parts(out, version):
            pass
        return out

    def encode_in_steps(self, out: list[bytes], version: int) -> Steps[None]:
        parts: list[Part] = []
        yield from self.put_parts(parts, version)
        out += [part for part in parts if isinstance(part, bytes)]

    def put_parts(self, out: list[Part], version: int) -> Steps[None]:
        return self._put_compact(out, version) if version >= FetchResponse.FLEXIBLE_FROM else self._put_legacy(out, version)

    def _topics(self) -> list[list[PartitionResult]]:
        """Group consecutive results by topic; a topic may have several groups."""
        topics: list[list[PartitionResult]] = []
        last: str | bytes | None = None
        for result in self.results:
            if result.topic == last:
                topics[-1].append(result)
            else:
                topics.append([result])
                last = result.topic
        return topics

    def _put_compact(self, out: list[Part], version: int) -> Steps[None]:
        try:
            small: list[bytes] = [_HEAD(0, 0, 0)]
            topics = self._topics()
            put_compact_count(small, len(topics))
            leader_ids: set[int] = set()
            for topic_number, results in enumerate(topics):
                if topic_number % PARTITIONS_PER_STEP == PARTITIONS_PER_STEP - 1:
                    yield STEP_COST
                topic = results[0].topic
                if isinstance(topic, bytes):
                    small.append(topic)
                else:
                    put_compact_text(small, topic)
                put_compact_count(small, len(results))
                for number, result in enumerate(results):
                    if number % PARTITIONS_PER_STEP == PARTITIONS_PER_STEP - 1:
                        yield STEP_COST
                    index, error, end = result.requested.partition, result.error, result.high_watermark
                    small.append(_PARTITION_12(index, error, end, end, result.start_offset, result.transactions + 1, -1))
                    n = result.size + len(result.data) + 1
                    small.append(BYTES[n] if n < 128 else uvarint_bytes(n))
                    _put_records(out, small, result)
                    if result.diverging is not None:
                        small.append(b"\1" + _DIVERGING(0, 13, *result.diverging, 0))
                    elif error in _WITH_LEADER and version >= CURRENT_LEADER_FROM:
                        leader, epoch = self._leader_of(result.partition)
                        leader_ids.add(leader)
                        small.append(b"\1" + _LEADER(1, 9, leader, epoch, 0))
                    else:
                        small.append(b"\0")
                small.append(b"\0")
            small.append(_endpoints(self._endpoints(leader_ids, self._address)) if leader_ids and self._address is not None else b"\0")
            out.append(b"".join(small))
        except UNWRITABLE as failure:
            raise unwritable("FetchResponse", version, failure) from failure

    def _leader_of(self, partition: Partition | None) -> tuple[int, int]:
        """The leader and its epoch."""
        if partition is None:
            return self._node.id, -1
        if self._leaders is None:
            return self._node.id, partition.leader_epoch
        return self._leaders.leader(partition.id), self._leaders.leader_epoch(partition.id)

    def _endpoints(self, leader_ids: set[int], address: Address) -> list[Endpoint]:
        if self._leaders is None:
            return [Endpoint(self._node.id, address.host, address.port, self._node.rack)]
        return [endpoint for endpoint in self._leaders.endpoints(address.name) if endpoint.id in leader_ids]

    def _put_legacy(self, out: list[Part], version: int) -> Steps[None]:
        try:
            small: list[bytes] = [_HEAD(0, 0, 0) if version >= SESSION_FROM else _THROTTLE(0)]
            topics = self._topics()
            put_legacy_count(small, len(topics))
            for topic_number, results in enumerate(topics):
                if topic_number % PARTITIONS_PER_STEP == PARTITIONS_PER_STEP - 1:
                    yield STEP_COST
                put_legacy_text(small, str(results[0].topic))
                put_legacy_count(small, len(results))
                for number, result in enumerate(results):
                    if number % PARTITIONS_PER_STEP == PARTITIONS_PER_STEP - 1:
                        yield STEP_COST
                    index, error, end = result.requested.partition, result.error, result.high_watermark
                    if version >= PREFERRED_READ_REPLICA_FROM:
                        small.append(_PARTITION_11(index, error, end, end, result.start_offset, result.transactions, -1))
                    elif version >= LOG_START_OFFSET_FROM:
                        small.append(_PARTITION_5(index, error, end, end, result.start_offset, result.transactions))
                    else:
                        small.append(_PARTITION_4(index, error, end, end, result.transactions))
                    small.append(_COUNT(result.size + len(result.data)))
                    _put_records(out, small, result)
            out.append(b"".join(small))
        except UNWRITABLE as failure:
            raise unwritable("FetchResponse", version, failure) from failure


def _endpoints(endpoints: list[Endpoint]) -> bytes:
    """The tagged field with the endpoints of leaders."""
    out: list[bytes] = []
    put_compact_count(out, len(endpoints))
    for endpoint in endpoints:
        out.append(_NODE(endpoint.id))
        put_compact_text(out, endpoint.host)
        out.append(_NODE(endpoint.port))
        if endpoint.rack is None:
            out.append(b"\0")
        else:
            put_compact_text(out, endpoint.rack)
        out.append(b"\0")
    data = b"".join(out)
    return b"\1\0" + uvarint_bytes(len(data)) + data


def _put_records(out: list[Part], small: list[bytes], result: PartitionResult) -> None:
    if result.extent is not None:
        out.append(b"".join(small))
        small.clear()
        out.append(result.extent)
    elif result.data:
        small.append(result.data)


def size_of(parts: list[Part]) -> int:
    return sum([len(part) if isinstance(part, bytes) else part.size for part in parts])


class LongFetch:
    """A long reply, read and sent in pieces."""

    __slots__ = ("_extents", "_next_part", "_parts")

    def __init__(self, parts: list[Part]) -> None:
        self._parts = parts
        self._next_part = 0
        self._extents = [part for part in parts if isinstance(part, Extent)]
        for extent in self._extents:
            extent.pin()

    @property
    def ended(self) -> bool:
        return self._next_part == len(self._parts)

    @property
    def held_bytes(self) -> int:
        return 0  # nearly all of it is in files

    def read_piece(self, bytes_max: int) -> list[bytes]:
        pieces: list[bytes] = []
        small: list[bytes] = []
        remaining_bytes = bytes_max
        while remaining_bytes > 0 and self._next_part < len(self._parts):
            part = self._parts[self._next_part]
            if isinstance(part, bytes):
                data = part
                self._next_part += 1
            else:
                data = _read(part, remaining_bytes)
                if not part.size:
                    part.unpin()
                    self._next_part += 1
            remaining_bytes -= len(data)
            if len(data) < JOINED_BYTES:
                small.append(data)
            else:
                if small:
                    pieces.append(b"".join(small))
                    small = []
                pieces.append(data)
        if small:
            pieces.append(b"".join(small))
        return pieces

    def send(self, socket: int, bytes_max: int) -> int:
        sent = 0
        while sent < bytes_max and self._next_part < len(self._parts):
            part = self._parts[self._next_part]
            try:
                if isinstance(part, bytes):
                    size = len(part)
                    accepted = os.write(socket, part)
                    if accepted < size:
                        self._parts[self._next_part] = part[accepted:]
                else:
                    size = part.size
                    file = part.segment.descriptor
                    accepted = os.sendfile(socket, file, part.at, min(size, bytes_max - sent)) if file >= 0 else 0
                    part.skip(accepted)
            except OSError:  # the socket is full, or an error that ordinary writing or reading will report
                break
            if not accepted:
                break
            sent += accepted
            if accepted == size:
                if not isinstance(part, bytes):
                    part.unpin()
                self._next_part += 1
        return sent

    def close(self) -> None:
        for extent in self._extents:
            extent.unpin()
        self._extents = []


def _read(extent: Extent, bytes_max: int) -> bytes:
    try:
        return extent.read(bytes_max)
    except (OSError, DamagedLog) as error:
        raise ReplyLost(f"its reply cannot be read any further: {error}") from error
