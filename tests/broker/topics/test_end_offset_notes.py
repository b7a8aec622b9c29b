"""Notes of partitions' end offsets: written for changes, within the note budget, in short slices."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from broker.groups.group_journal import GroupJournal
from broker.groups.notes import NOTES_QUEUED_MAX
from broker.topics import end_offset_notes as module
from broker.topics.end_offset_notes import BURST_BYTES, PARTITIONS_PER_NOTE_MAX, EndOffsetNotes
from coordinator import partition_of
from history.note_records import read_note_record
from history.story import Story
from protocol.batch import Record, build
from protocol.messages.coordinator_notes import EndOffsets, NoteHeader, NoteKey, PartitionEnds
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import in_newest_version, write_note
from tests.running import Client, broker, environment
from tests.support.group_logs import START_MS
from tests.support.notes import NoteHarness, change, loaded_partition
from tests.support.stepped_loop import SteppedLoop

pytestmark = pytest.mark.once  # does not depend on the Python version

INTERVAL_MS = 10_000
ROOM = 1 << 30


@dataclass
class FakePartition:
    index: int
    high_watermark: int = 0
    start_offset: int = 0
    error: int = 0


@dataclass
class Topic:
    name: str
    parts: list[FakePartition]
    internal: bool = False

    @property
    def id(self) -> bytes:
        return self.name.encode()


@dataclass
class Served:
    """Topics with partitions, and the notes of end offsets that were made about them."""

    room: int = ROOM
    interval_ms: int = INTERVAL_MS
    by_id: dict[bytes, Topic] = field(default_factory=dict)
    noted: list[tuple[int, EndOffsets]] = field(default_factory=list)
    refuses: bool = False
    refuses_first: bool = False

    def __post_init__(self) -> None:
        self.loop = SteppedLoop()
        clock = self.loop.clock()
        parts = cast(Any, self)
        self.notes = EndOffsetNotes(self.interval_ms, self.room, parts, parts, lambda name: cast(GroupJournal, name), self.write_end_offsets, cast(Any, self.loop), clock, lambda: 0.0)

    def topic(self, name: str, *ends: int, internal: bool = False) -> Topic:
        topic = Topic(name, [FakePartition(index, end) for index, end in enumerate(ends)], internal)
        self.by_id[topic.id] = topic
        return topic

    def of_topic(self, topic: Topic) -> list[FakePartition]:
        return topic.parts

    def was_never_written(self, part: FakePartition) -> bool:
        return part.error == -1

    def write_end_offsets(self, journal: GroupJournal, ends: EndOffsets) -> bool:
        assert cast(str, journal) == ends.topic
        if self.refuses or self.refuses_first:
            self.refuses_first = False
            return False
        self.noted.append((round(self.loop.time() * 1000 - START_MS), ends))
        return True

    def pass_intervals(self, intervals: float = 1) -> list[tuple[str, list[tuple[int, int, int]], int]]:
        """Let so many intervals pass; returns the notes made meanwhile, with times since the beginning of the test."""
        self.noted.clear()
        self.loop.pass_ms(intervals * self.interval_ms)
        return [
            (ends.topic, [(part.partition, part.log_start, part.end) for part in ends.partitions], ends.unchanged_ms - START_MS if ends.unchanged_ms >= 0 else -1)
            for _, ends in self.noted
        ]


def test_end_offsets_are_noted_when_changed() -> None:
    served = Served()
    orders = served.topic("orders", 5, 0)
    served.topic("__consumer_offsets", 9, internal=True)
    assert served.pass_intervals() == [("orders", [(0, 0, 5), (1, 0, 0)], -1)]
    assert served.pass_intervals() == []
    assert served.pass_intervals() == []
    orders.parts[1].high_watermark = 3
    assert served.pass_intervals() == [("orders", [(1, 0, 3)], 30_000)]  # 30,000: the last check that found nothing changed
    orders.parts[0].start_offset = 2
    assert served.pass_intervals() == [("orders", [(0, 2, 5)], 40_000)]


def test_an_empty_partition_ends_at_0_and_an_unreadable_one_is_omitted() -> None:
    served = Served()
    orders = served.topic("orders", 5, 7, 8)
    orders.parts[0].error = -1
    orders.parts[1].error = 6
    assert served.pass_intervals() == [("orders", [(0, 0, 0), (2, 0, 8)], -1)]
    assert served.pass_intervals() == []
    orders.parts[1].error = 0
    assert served.pass_intervals() == [("orders", [(1, 0, 7)], -1)]  # the partition was unreadable at earlier checks, so the time of its change is unknown
    orders.parts[1].high_watermark = 9
    assert served.pass_intervals() == [("orders", [(1, 0, 9)], 30_000)]


def test_end_offsets_that_could_not_be_noted_are_noted_later() -> None:
    served = Served()
    orders = served.topic("orders", 5)
    assert len(served.pass_intervals()) == 1
    orders.parts[0].high_watermark = 6
    served.refuses = True
    assert served.pass_intervals() == []
    served.refuses = False
    assert served.pass_intervals() == [("orders", [(0, 0, 6)], 10_000)]  # 10,000: the last check at which its end offset was known to be unchanged


def test_a_topic_with_an_unnoted_part_counts_as_not_visited() -> None:
    served = Served()
    wide = served.topic("wide", *[1] * (PARTITIONS_PER_NOTE_MAX + 1))
    assert len(served.pass_intervals(1.5)) == 2
    for part in wide.parts:
        part.high_watermark = 2
    served.refuses_first = True
    assert [len(parts) for _, parts, _ in served.pass_intervals()] == [1]
    assert [(len(parts), since) for _, parts, since in served.pass_intervals()] == [(PARTITIONS_PER_NOTE_MAX, 10_000)]


def test_a_recreated_topic_is_noted_as_empty() -> None:
    served = Served()
    served.topic("orders", 5)
    served.pass_intervals()
    del served.by_id[b"orders"]
    assert served.pass_intervals() == []
    served.topic("orders", 5)
    assert served.pass_intervals() == [("orders", [(0, 0, 5)], -1)]


def test_many_partitions_share_the_note_budget_in_turn() -> None:
    served = Served(room=64 << 20)
    wide = served.topic("wide", *[1] * 10_000)
    noted: set[int] = set()
    size = 0
    for _ in range(400):
        for _, parts, _ in served.pass_intervals():
            assert len(parts) <= PARTITIONS_PER_NOTE_MAX
            size += 21 * len(parts)
            noted |= {index for index, _, _ in parts}
        for part in wide.parts:
            part.high_watermark += 1  # every partition changes between any two checks
    assert noted == set(range(10_000))
    assert size < BURST_BYTES + PARTITIONS_PER_NOTE_MAX * 21 + 400 * 10 * (64 << 20) / 4 / 86_400


def test_the_loop_runs_between_slices_of_end_offset_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(1_000_000))
    served = Served()
    monkeypatch.setattr(served.notes, "_monotonic", lambda: next(ticks) * module.SLICE_SECONDS / 10)
    wide = served.topic("wide", *[1] * 100)
    served.pass_intervals(1.5)
    assert served.noted[0][0] > INTERVAL_MS + 9 * module.PAUSE_SECONDS * 1_000 - 1
    assert len(served.noted[0][1].partitions) == len(wide.parts)


def test_without_budget_or_interval_no_end_offset_is_noted() -> None:
    for served in (Served(room=0), Served(interval_ms=0)):
        assert not served.loop.timers
    stopped = Served()
    stopped.topic("orders", 5)
    stopped.notes.stop()
    assert stopped.pass_intervals() == []


def test_group_notes_precede_end_offset_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = NoteHarness()
    ends = EndOffsets("orders", [PartitionEnds(0, 0, 5)], 7)
    journal = loaded_partition(3)
    journal.refusal = 0
    assert harness.notes.write_end_offsets(journal, ends)
    for _ in range(NOTES_QUEUED_MAX // 2 - 1):
        harness.tell(change(), partition=3)
    assert not harness.notes.write_end_offsets(journal, ends)
    harness.pass_time(60_000, partitions=4)
    (group, header, body), *_ = harness.written(3)
    assert (group, header.kind, header.generation, header.offsets_log_offset, body) == ("", 8, 0, -1, ends)
    assert harness.notes.write_end_offsets(journal, ends)
    journal.refusal = 14
    assert not harness.notes.write_end_offsets(journal, ends)


def test_history_ignores_end_offset_notes() -> None:
    record = read_note_record(in_newest_version(NoteKey("")), write_note(NoteHeader(8, 5, 0, 0, 0, 0), EndOffsets("orders", [])))
    assert record is not None
    assert not record.concerns("g")
    assert Story("g").add(record) == []


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_broker_notes_the_end_offsets_of_topics(tmp_path: Path, loop: str) -> None:
    settings = ("--data", str(tmp_path), "--profile", "test", "--set", f"event.loop={loop}", "--set", "notes.end.offsets.interval.ms=50")
    with broker(*settings) as served:
        with Client(served.port) as client:
            topics = [CreatableTopic(name="orders", num_partitions=2, replication_factor=-1, assignments=[], configs=[])]
            client.ask(CreateTopicsRequest(topics=topics, timeout_ms=1_000), 5)
            for _ in range(3):
                records = bytes(build([Record(0, 1_700_000_000_000, None, b"v")]))
                data = [TopicProduceData("orders", [PartitionProduceData(0, records)])]
                client.ask(ProduceRequest(None, -1, 1_000, data), 7)
                time.sleep(0.2)
        served.stop()
    dump = [sys.executable, "-P", "-m", "tenure", "log", "dump", "--json", "--kind", "notes", str(tmp_path)]
    lines = subprocess.run(dump, capture_output=True, text=True, env=environment(), check=True).stdout.splitlines()
    ends = [json.loads(line) for line in lines if '"EndOffsets"' in line]
    parts = [part for line in ends for part in line["value"]["body"]["partitions"]]
    assert [part["end"] for part in parts if part["partition"] == 0][-3:] == [1, 2, 3]
    assert [part["end"] for part in parts if part["partition"] == 1] == [0]
    assert {line["partition"] for line in ends} == {partition_of("orders", 50)}
    assert all(line["value"]["body"]["unchanged_ms"] > 0 for line in ends[1:])


def test_end_offset_notes_of_the_longest_topic_name_fit_into_a_batch() -> None:
    parts = [PartitionEnds(index, 1 << 60, 1 << 61) for index in range(PARTITIONS_PER_NOTE_MAX)]
    header = NoteHeader(8, 5, 0, 0, 0, 0)
    assert len(write_note(header, EndOffsets("x" * 249, parts, 1 << 41))) < 16_384


