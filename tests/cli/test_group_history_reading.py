"""Notes and group records in batches, from a scripted broker: cut, moved, missing or unreadable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cli.arguments import addresses
from cli.client import Cluster, Exit, Failure
from cli.groups.history_reading import NOTES, OFFSETS, WAIT_MS, GroupLogReader
from coordinator.facts import group_key
from protocol.batch import build
from protocol.batch_record import Record
from protocol.messages.consumer_offsets import GroupMetadataValue
from protocol.messages.coordinator_notes import NoteHeader, NoteKey, RoundEnd
from protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from protocol.messages.kinds import NoteKind
from protocol.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopicResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponsePartition, MetadataResponseTopic
from protocol.records import with_version, write_note
from tests.cli.fake_brokers import FakeBroker, metadata_of

pytestmark = pytest.mark.once

IDS = {NOTES: b"n" * 16, OFFSETS: b"o" * 16}
NAMES = {id: name for name, id in IDS.items()}


class FakeNotesBroker:
    """A broker with one partition of each topic; `batches` and `errors` are the results of fetches, in order."""

    def __init__(self) -> None:
        self.broker = FakeBroker()
        self.batches: list[bytes] = []
        self.errors: list[int] = []
        self.internal = True
        self.is_unread = False  # whether the end offset is beyond the last batch
        self.fetches: list[tuple[str, int]] = []
        self.waits: list[int] = []
        self.broker.answers |= {
            MetadataRequest.API_KEY: metadata_of(self.broker, topics=self._topics),
            FetchRequest.API_KEY: self._fetch,
            ListOffsetsRequest.API_KEY: self._list,
        }

    def _topics(self, request: Any) -> list[MetadataResponseTopic]:
        partitions = [MetadataResponsePartition(0, 0, 0, 0, [0], [0], [])]
        return [MetadataResponseTopic(0, topic.name, IDS[topic.name], self.internal, partitions) for topic in request.topics or []]

    def _list(self, request: Any, version: int) -> ListOffsetsResponse:
        topic = request.topics[0]
        offset = {-2: 5, -1: 9}.get(topic.partitions[0].timestamp, -1)
        return ListOffsetsResponse(0, [ListOffsetsTopicResponse(topic.name, [ListOffsetsPartitionResponse(0, offset=offset)])])

    def _fetch(self, request: Any, version: int) -> FetchResponse:
        requested = request.topics[0]
        name = NAMES[requested.topic_id]
        self.fetches.append((name, requested.partitions[0].fetch_offset))
        error = self.errors.pop(0) if self.errors else 0
        records = b"" if error or not self.batches else self.batches.pop(0)
        end = 9 if records or self.is_unread else requested.partitions[0].fetch_offset
        self.waits.append(request.max_wait_ms)
        data = PartitionData(0, error, end, end, 0, aborted_transactions=[], records=records)
        return FetchResponse(0, 0, 0, [FetchableTopicResponse(requested.topic_id, name, [data])])


@pytest.fixture
def fake() -> Iterator[FakeNotesBroker]:
    fake = FakeNotesBroker()
    with fake.broker:
        yield fake


@pytest.fixture
def reader(fake: FakeNotesBroker) -> Iterator[GroupLogReader]:
    with Cluster(addresses(fake.broker.address), 1) as cluster:
        yield GroupLogReader(cluster, "g")


def batch(base: int, *records: tuple[bytes, bytes | None]) -> bytes:
    data = bytearray(build([Record(number, 0, key, value, []) for number, (key, value) in enumerate(records)]))
    data[:8] = base.to_bytes(8, "big")
    return bytes(data)


def note(group: str, generation: int, kind: int = NoteKind.ROUND_END) -> tuple[bytes, bytes]:
    header = NoteHeader(kind, 1_000, 0, 0, generation, 3, -1, 0)
    return with_version(NoteKey(group), 0), write_note(header, RoundEnd(0, 1, 1, []))


def group_record(generation: int, group: str = "g") -> tuple[bytes, bytes]:
    return group_key(group), with_version(GroupMetadataValue("consumer", generation, "range", None, -1, []), 3)


def test_notes_of_a_group_are_read_from_the_last_position(fake: FakeNotesBroker, reader: GroupLogReader) -> None:
    fake.batches = [batch(5, note("g", 1), note("other", 7), note("g", 2)), batch(8, note("g", 3))]
    reader.begin(None)
    assert [note.header.generation for note in reader.read()] == [1, 2, 3]
    assert reader.notes_offset == 9
    assert fake.fetches == [(NOTES, 5), (NOTES, 8)]


def test_records_before_the_position_in_a_batch_are_not_read_twice(fake: FakeNotesBroker, reader: GroupLogReader) -> None:
    fake.batches = [batch(5, note("g", 1), note("g", 2), note("g", 3), note("g", 4))]
    reader.notes_offset = 7
    assert [note.header.generation for note in reader.read()] == [3, 4]


def test_unknown_kinds_and_malformed_notes_are_skipped(fake: FakeNotesBroker, reader: GroupLogReader) -> None:
    fake.batches = [batch(5, note("g", 1, kind=99), (b"\0\0", b"\1"), note("g", 2), (b"", None))]
    reader.begin(None)
    assert [note.header.generation for note in reader.read()] == [2]


def test_an_opening_partition_is_retried(fake: FakeNotesBroker, reader: GroupLogReader) -> None:
    fake.errors = [6, 6]
    fake.batches = [batch(5, note("g", 1))]
    reader.begin(None)
    assert len(list(reader.read())) == 1


@pytest.mark.parametrize("first", [note("g", 1), None])
def test_notes_that_the_broker_has_to_read_from_its_store_are_waited_for(fake: FakeNotesBroker, reader: GroupLogReader, first: tuple[bytes, bytes] | None) -> None:
    reader.notes_offset = 5
    fake.is_unread = True
    fake.batches = [*([batch(5, first)] if first else []), b"", batch(6, note("g", 2), note("g", 3), note("g", 4))]
    assert [note.header.generation for note in reader.read()][-3:] == [2, 3, 4]
    assert fake.waits[-2:] == [0, WAIT_MS]  # a fetch that does not wait, then one that waits for the rest


def test_notes_that_the_broker_cannot_read_are_a_retriable_failure(fake: FakeNotesBroker, reader: GroupLogReader) -> None:
    reader.notes_offset = 5
    fake.is_unread = True
    with pytest.raises(Failure) as raised:
        list(reader.read())
    assert raised.value.exit_code == Exit.AGAIN


def test_records_that_compaction_removed_from_the_end_are_not_waited_for(fake: FakeNotesBroker, reader: GroupLogReader) -> None:
    fake.is_unread = True
    assert reader.group_records() == []
    assert fake.waits == [0, WAIT_MS]  # waits only once


def test_notes_deleted_while_reading_are_skipped(fake: FakeNotesBroker, reader: GroupLogReader) -> None:
    fake.errors = [1]
    fake.batches = [batch(5, note("g", 1))]
    reader.notes_offset = 2
    assert len(list(reader.read())) == 1
    assert [offset for _, offset in fake.fetches][:2] == [2, 5]


def test_a_partition_that_does_not_open_is_reported_within_the_timeout(fake: FakeNotesBroker, reader: GroupLogReader) -> None:
    fake.errors = [56] * 50
    reader.begin(None)
    with pytest.raises(Failure) as raised:
        list(reader.read())
    assert raised.value.exit_code == Exit.AGAIN
    assert raised.value.line.startswith(f"{NOTES}-0: ")


def test_since_a_later_time_begins_at_the_end(fake: FakeNotesBroker, reader: GroupLogReader) -> None:
    reader.begin(5_000_000)
    assert reader.notes_offset == 9


def test_records_of_a_group_are_read_once_and_gaps_are_found(fake: FakeNotesBroker, reader: GroupLogReader) -> None:
    fake.batches = [batch(5, group_record(1), group_record(2), group_record(3, "other")), batch(8, group_record(4))]
    assert [(record.offset, record.generation) for record in reader.group_records()] == [(5, 1), (6, 2), (8, 4)]
    assert not reader.records_complete  # the log starts at offset 5, so earlier records are gone
    fake.batches = [batch(9, (group_key("g"), None))]
    assert [(record.offset, record.stored) for record in reader.group_records()] == [(9, None)]
    assert fake.fetches == [(OFFSETS, 5), (OFFSETS, 8), (OFFSETS, 9)]


def test_beside_notes_unauthorized_records_are_absent_and_a_problem(fake: FakeNotesBroker, reader: GroupLogReader) -> None:
    fake.errors = [29]
    assert reader.group_records() == []
    assert reader.records_problem is not None
    assert reader.records_problem.exit_code == Exit.FORBIDDEN


def test_an_ordinary_topic_named_like_the_notes_topic_is_not_read(fake: FakeNotesBroker) -> None:
    fake.internal = False
    with Cluster(addresses(fake.broker.address), 1) as cluster, pytest.raises(Failure) as raised:
        GroupLogReader(cluster, "g")
    assert raised.value.exit_code == Exit.UNSUPPORTED
