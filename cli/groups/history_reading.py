"""Fetches the notes of a group, and its records in `__consumer_offsets`.

Notes are a Tenure broker's records of each event of a group. They are in `__coordinator_notes`, in the partition with the number of the
group's partition in `__consumer_offsets`. A cluster without that topic is not Tenure: then only the group's records that compaction has
left are read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from cli.client import Exit, Failure, check, failure
from coordinator.facts import group_key
from coordinator.group_partition import partition_of
from history.commit_times import CommitTimes
from history.commits import NearbyCommits
from history.newer import NewerRecord, beside_newer, newer_group, newer_kind, read_newer_record
from history.note_records import GroupRecord, NoteRecord, read_group_record, read_note_record
from history.recorded import SHORT_RUN
from protocol.batch import CONTROL, BatchHeader, iterate_headers, records
from protocol.batch_record import Record
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages.consumer_offsets import OffsetCommitKey
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.records import read_offsets_key

if TYPE_CHECKING:
    from cli.client import Cluster

NOTES: Final = "__coordinator_notes"
OFFSETS: Final = "__consumer_offsets"
EARLIEST: Final = -2
READ_BYTES: Final = 4 << 20
COMPRESSED: Final = 7  # mask of a batch's attributes
WAIT_MS: Final = 500


MAY_NOT_READ: Final = "this user may not read __consumer_offsets, which has the history of groups"
HOW_TO_ALLOW: Final = "allow Read on it: kafka-acls.sh --add --allow-principal User:NAME --operation Read --topic __consumer_offsets"


class Batches(NamedTuple):
    data: bytes
    end: int  # of the log


class GroupLogReader:
    """Reads the notes and the records of one group, each in log order. Each read continues where the last one ended."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self.group = group
        self._cluster = cluster
        topics = cluster.topics([NOTES, OFFSETS])
        notes, offsets = topics[NOTES], topics[OFFSETS]
        self.has_notes = not notes.error and notes.internal
        if not self.has_notes and offsets.error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise may_not_read()
        if not self.has_notes and (offsets.error or not offsets.internal):
            raise Failure(Exit.UNSUPPORTED, "this cluster has no history of groups: neither notes nor __consumer_offsets")
        self._ids = {NOTES: notes.id or bytes(16), OFFSETS: offsets.id or bytes(16)}
        self.partition = partition_of(group, len((notes if self.has_notes else offsets).partitions))
        self.notes_offset = -1
        self.records_complete = False  # whether the log still has all records, since compaction has removed none
        self.records_problem: Failure | None = None  # why the group's records were not read to their end, although the cluster has notes
        self.commits: dict[int, NearbyCommits] = {}  # by offset of a group record
        self.epochs_ms: dict[int, int] = {}  # when the first record of each coordinator epoch was appended, by any group
        self.newer: list[NewerRecord] = []  # in a newer protocol, since the last group record
        self._untold: list[NewerRecord] = []  # in a newer protocol, since the last call of `newer_records`
        self._commit_times = CommitTimes()
        self._holes: list[tuple[int, int]] = []  # ranges of offsets with missing records
        self._records_offset = -1
        self._collected: list[GroupRecord] = []  # read before a failure, and not handed on yet
        self._name = group_key(group)[2:]  # the group as each key has it after its version

    def begin(self, since_ms: int | None) -> None:
        """Start at the first note at or after this time (at the log end if there is none); None: at the oldest note."""
        if not self.has_notes:
            return
        offset = -1 if since_ms is None else self._list_offset(NOTES, max(since_ms, 0))
        if since_ms is not None and offset < 0:  # there is no note since then: start at the log end
            offset = self._list_offset(NOTES, -1)
        self.notes_offset = offset if offset >= 0 else self._list_offset(NOTES, EARLIEST)

    def _list_offset(self, topic: str, timestamp: int) -> int:
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(topic, [ListOffsetsPartition(self.partition, timestamp=timestamp)])])
        wait = self._cluster.wait()
        while True:
            partition = self._cluster.send_to_leader(topic, self.partition, request, oldest=1).topics[0].partitions[0]
            if partition.error_code != ErrorCode.KAFKA_STORAGE_ERROR or not wait.again():
                check(partition.error_code, f"{topic}-{self.partition}")
                return int(partition.offset)

    def read(self) -> Iterator[NoteRecord]:
        """Read to the current end of both logs."""
        while self.has_notes:
            before = self.notes_offset
            batches = self._fetch(NOTES, self.notes_offset, READ_BYTES, 0)
            yield from self._read_notes(batches)
            if self.notes_offset >= batches.end or self.notes_offset == before:
                return

    def wait(self) -> list[NoteRecord]:
        """Wait briefly for new notes."""
        if not self.has_notes:
            time.sleep(WAIT_MS / 1000)
            return []
        return list(self._read_notes(self._fetch(NOTES, self.notes_offset, READ_BYTES, WAIT_MS)))

    def _read_notes(self, batches: Batches) -> Iterator[NoteRecord]:
        data = batches.data
        for at, header in positions_and_headers(data):
            if header.next_offset <= self.notes_offset:
                continue
            for record in records(data, at):
                if record.offset < self.notes_offset:
                    continue
                try:
                    note_record = read_note_record(record.key, record.value)
                except ProtocolError:
                    continue  # a record of a newer version
                if note_record is not None and note_record.concerns(self.group):
                    yield note_record
            self.notes_offset = header.next_offset

    def _fetch(self, topic: str, offset: int, bytes_max: int, wait_ms: int) -> Batches:
        part = FetchPartition(self.partition, fetch_offset=offset, partition_max_bytes=bytes_max)
        topic_request = FetchTopic(self._ids[topic], topic, [part])
        request = FetchRequest(
            max_wait_ms=wait_ms, min_bytes=1, max_bytes=max(bytes_max, 1), session_id=0, session_epoch=-1, topics=[topic_request]
        )
        deadline = time.monotonic() + self._cluster.timeout
        wait = self._cluster.wait()
        while True:
            reply = self._cluster.send_to_leader(topic, self.partition, request)
            check(reply.error_code, topic)
            fetched = reply.responses[0].partitions[0]
            if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                part.fetch_offset = self._list_offset(topic, EARLIEST)  # retention deleted the oldest notes meanwhile
                if topic == NOTES:
                    self.notes_offset = part.fetch_offset
            elif fetched.error_code != ErrorCode.KAFKA_STORAGE_ERROR:
                check(fetched.error_code, f"{topic}-{self.partition}")
                batches = Batches(bytes(fetched.records or b""), fetched.high_watermark)
                # An empty reply before the log end: the broker still reads older records from its store, so fetch again, and wait. If
                # waiting does not help, compaction has removed the last records; notes are not compacted.
                if batches.data or batches.end <= part.fetch_offset or (topic == OFFSETS and request.max_wait_ms):
                    return batches
                if time.monotonic() >= deadline:
                    raise Failure(Exit.AGAIN, f"{topic}-{self.partition}: the broker has not read its records from the store yet; try again")
                request.max_wait_ms = WAIT_MS
                continue
            if not wait.again():
                raise failure(fetched.error_code, f"{topic}-{self.partition}")

    # Records

    def whole(self, first: int, last: int) -> bool:
        """Whether no record is missing between these offsets of the group's records."""
        return not any(begin < last and end > first for begin, end in self._holes)

    def group_records(self) -> list[GroupRecord]:
        """New records of the group since the last call. On a cluster with notes, which alone also make a history, most errors only end the read early."""
        collected = self._new_group_records()
        with_newer = beside_newer(collected, self.newer)
        if collected:
            self.newer = [record for record in self.newer if record.offset > collected[-1].offset]
        return with_newer

    def newer_records(self) -> list[NewerRecord]:
        """New records of the group in a newer protocol since the last call."""
        untold, self._untold = self._untold, []
        return untold

    def topic_names(self) -> dict[bytes, str]:
        return {topic.id: name for name, topic in self._cluster.topics(None).items() if topic.id}

    def _new_group_records(self) -> list[GroupRecord]:
        collected = self._collected
        try:
            if self._records_offset < 0:
                self._records_offset = self._list_offset(OFFSETS, EARLIEST)
                self.records_complete = self._records_offset == 0
            while True:
                before = self._records_offset
                batches = self._fetch(OFFSETS, before, READ_BYTES, 0)
                self._read_group_records(batches.data, collected)
                if self._records_offset >= batches.end or self._records_offset == before:
                    break
        except Failure as trouble:
            problem = may_not_read() if trouble.exit_code == Exit.FORBIDDEN else trouble
            if not self.has_notes or trouble.exit_code in (Exit.UNREACHABLE, Exit.UNSUPPORTED):
                raise problem from trouble
            self.records_problem = problem
        self._collected = []
        return collected

    def _read_group_records(self, data: bytes, collected: list[GroupRecord]) -> None:
        for at, header in positions_and_headers(data):
            if header.next_offset <= self._records_offset:
                continue
            if header.base_offset > self._records_offset or header.record_count != header.last_offset_delta + 1:
                self.records_complete = False  # compaction removed records
                self._add_hole(self._records_offset, header.next_offset - 1 if header.record_count <= header.last_offset_delta else header.base_offset - 1)
            self._records_offset = header.next_offset
            self.epochs_ms.setdefault(header.leader_epoch, header.base_timestamp)
            raw = data[at : at + header.size]
            if not header.attributes & CONTROL and (header.attributes & COMPRESSED or self._name in raw):
                for record in records(data, at):
                    self._read_group_record(record, header.leader_epoch, collected)

    def _add_hole(self, first: int, last: int) -> None:
        if self._holes and first - self._holes[-1][1] <= SHORT_RUN:
            first = self._holes.pop()[0]
        self._holes.append((first, last))

    def _read_group_record(self, record: Record, epoch: int, collected: list[GroupRecord]) -> None:
        try:
            if record.key is None:
                return
            kind = newer_kind(record.key)
            if kind is not None:
                if newer_group(record.key) == self.group:
                    self.newer.append(read_newer_record(kind, record.offset, record.timestamp, epoch, record.key, record.value))
                    self._untold.append(self.newer[-1])
                    self.commits[record.offset] = self._commit_times.before_now()
                return
            key = read_offsets_key(record.key)
            if isinstance(key, OffsetCommitKey):
                if key.group == self.group:
                    self._commit_times.add(f"{key.topic}-{key.partition}", record.timestamp, deleted=record.value is None)
                return
            group_record = read_group_record(self.group, record.offset, record.timestamp, epoch, record.key, record.value)
        except ProtocolError:
            return  # a record of a newer version
        if group_record is not None:
            self.commits[record.offset] = self._commit_times.before_now()
            collected.append(group_record)


def may_not_read() -> Failure:
    return Failure(Exit.FORBIDDEN, f"{MAY_NOT_READ}; {HOW_TO_ALLOW}", hint=HOW_TO_ALLOW)


def positions_and_headers(data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    at = 0
    for header in iterate_headers(data, 0, len(data)):
        yield at, header
        at += header.size
