"""The notes of a group, and what it stored at each rebalance, read from a Tenure broker as any client would: by Fetch.

Notes are in the partition of `__coordinator_notes` that the group's offsets have in `__consumer_offsets`. Each names the place in
the latter where its operation ended: there stands the group's image, with who got which partition, until compaction takes it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from cli.client import EXIT, Failure, check, failure
from coordinator.placement import partition_of
from history.told import Told, read_told
from protocol.batch import BatchHeader, iterate, records
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages.consumer_offsets import GroupMetadataKey, GroupMetadataValue
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.records import read_offsets_key, read_record

if TYPE_CHECKING:
    from cli.client import Cluster

NOTES: Final = "__coordinator_notes"
OFFSETS: Final = "__consumer_offsets"
EARLIEST: Final = -2
READ_BYTES: Final = 4 << 20
IMAGE_BYTES: Final = 1  # the batch that holds the place, however large it is
WAIT_MS: Final = 500
PAUSE_SECONDS: Final = 0.1
OPENING = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.LEADER_NOT_AVAILABLE)


class Batches(NamedTuple):
    data: bytes
    end: int  # of the log


class Notes:
    """The notes of one group, in the order of their log; `read` goes on where it was."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self.group = group
        self._cluster = cluster
        topics = cluster.topics([NOTES, OFFSETS])
        notes = topics[NOTES]
        if notes.error or not notes.internal:
            raise Failure(
                EXIT.LACKING,
                "this cluster keeps no notes of what happens to groups: Tenure's do, an Apache Kafka tells it in its brokers' logs alone, if at all",
            )
        self._ids = {NOTES: notes.id or bytes(16), OFFSETS: topics[OFFSETS].id or bytes(16)}
        self.partition = partition_of(group, len(notes.partitions))
        self.offset = -1

    def begin(self, since_ms: int | None) -> None:
        """From the first note of that time on, or the oldest there is."""
        offset = -1 if since_ms is None else self._list(max(since_ms, 0))
        if since_ms is not None and offset < 0:  # nothing since then
            offset = self._list(-1)
        self.offset = offset if offset >= 0 else self._list(EARLIEST)

    def _list(self, timestamp: int) -> int:
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(NOTES, [ListOffsetsPartition(self.partition, timestamp=timestamp)])])
        until = time.monotonic() + self._cluster.timeout
        while True:
            found = self._cluster.node(self._cluster.leader(NOTES, self.partition), request, oldest=1).topics[0].partitions[0]
            if found.error_code not in OPENING or time.monotonic() + PAUSE_SECONDS >= until:
                check(found.error_code, f"{NOTES}-{self.partition}")
                return int(found.offset)
            time.sleep(PAUSE_SECONDS)

    def read(self) -> Iterator[Told]:
        """What there is now."""
        while True:
            before = self.offset
            batches = self._fetch(NOTES, self.offset, READ_BYTES, 0)
            yield from self._take(batches)
            if self.offset >= batches.end or self.offset == before:
                return

    def wait(self) -> list[Told]:
        """What comes next, if anything does within a moment."""
        return list(self._take(self._fetch(NOTES, self.offset, READ_BYTES, WAIT_MS)))

    def _take(self, batches: Batches) -> Iterator[Told]:
        data = batches.data
        for at, header in placed(data):
            if header.next_offset <= self.offset:
                continue
            for record in records(data, at):
                if record.offset < self.offset:
                    continue
                try:
                    told = read_told(record.key, record.value)
                except ProtocolError:
                    continue  # nothing that this command can tell
                if told is not None and told.group in (self.group, ""):
                    yield told
            self.offset = header.next_offset

    def _fetch(self, topic: str, offset: int, bytes_max: int, wait_ms: int) -> Batches:
        part = FetchPartition(self.partition, fetch_offset=offset, partition_max_bytes=bytes_max)
        wanted = FetchTopic(self._ids[topic], topic, [part])
        request = FetchRequest(
            max_wait_ms=wait_ms, min_bytes=1, max_bytes=max(bytes_max, 1), session_id=0, session_epoch=-1, topics=[wanted]
        )
        until = time.monotonic() + self._cluster.timeout
        while True:
            reply = self._cluster.node(self._cluster.leader(topic, self.partition), request)
            check(reply.error_code, topic)
            found = reply.responses[0].partitions[0]
            if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and topic == NOTES:
                part.fetch_offset = self.offset = self._list(EARLIEST)  # the oldest were deleted meanwhile
            elif found.error_code not in OPENING:
                check(found.error_code, f"{topic}-{self.partition}")
                return Batches(bytes(found.records or b""), found.high_watermark)
            if time.monotonic() + PAUSE_SECONDS >= until:
                raise failure(found.error_code, f"{topic}-{self.partition}")
            time.sleep(0 if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE else PAUSE_SECONDS)

    # Images

    def image(self, offset: int) -> GroupMetadataValue | None:
        """What the group stored there, if compaction has left it."""
        if offset < 0:
            return None
        try:
            data = self._fetch(OFFSETS, offset, IMAGE_BYTES, 0).data
        except Failure as trouble:
            if trouble.code in (EXIT.UNREACHABLE, EXIT.LACKING):
                raise
            return None  # who tells of partitions may not be allowed to, and the story is worth telling without
        for at, _ in placed(data):
            for record in records(data, at):
                if record.offset == offset and record.key is not None and record.value is not None:
                    key = read_offsets_key(record.key)
                    if isinstance(key, GroupMetadataKey) and key.group == self.group:
                        return read_record(GroupMetadataValue, record.value)
        return None


def placed(data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    at = 0
    for header in iterate(data, 0, len(data)):
        yield at, header
        at += header.size
