"""A client that appends records and commits their end offsets without a pause, and checks of an export made during this load."""

from __future__ import annotations

import threading
import time
from typing import Self

from coordinator.group_partition import partition_of
from protocol.batch import Record, build, facts_of, read_header
from protocol.messages.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.kinds import TOPICS_REGISTRY
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.topics_registry import ProducerIdsKey, ProducerIdsValue
from protocol.records import read_key, read_offsets_key, read_record
from tests.cli.cluster_folders import Content
from tests.running import Client, wait_until

TOPIC = "load"
GROUPS = [f"loaded-{number}" for number in range(6)]
BATCH = 3


class Load:
    """A thread of rounds: each produces one batch with a producer id, and commits the batch's end offset for one group."""

    def __init__(self, port: int) -> None:
        self.committed: dict[str, int] = {}  # the newest acknowledged commit of each group
        self.rounds = 0
        self._port = port
        self._ended = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        with Client(self._port) as client:
            client.ask(CreateTopicsRequest([CreatableTopic(TOPIC, 1, 1)], 10_000), 5)
        self._thread.start()
        wait_until(lambda: len(self.committed) == len(GROUPS), 60)
        return self

    def __exit__(self, *error: object) -> None:
        self._ended = True
        self._thread.join(30)

    def _run(self) -> None:
        with Client(self._port) as client:
            while not self._ended:
                self._round(client)

    def _round(self, client: Client) -> None:
        """Produce and commit once. Every third round takes a new producer id, so that blocks of ids are used up."""
        if self.rounds % 3 == 0:
            self._producer, self._sequence = client.ask(InitProducerIdRequest(None, 60_000), 1).producer_id, 0
        records = [Record(number, 1, b"k", b"%d" % self.rounds) for number in range(BATCH)]
        batch = build(records, producer_id=self._producer, producer_epoch=0, base_sequence=self._sequence)
        data = [TopicProduceData(TOPIC, [PartitionProduceData(0, batch)])]
        reply = client.ask(ProduceRequest(None, -1, 10_000, data), 7).responses[0].partition_responses[0]
        if reply.error_code:
            time.sleep(0.05)
            return
        self._sequence += BATCH
        end = reply.base_offset + BATCH
        group = GROUPS[self.rounds % len(GROUPS)]
        commit = OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic(TOPIC, partitions=[OffsetCommitRequestPartition(0, end, -1, "")])])
        answer = client.ask(commit, 6).topics[0].partitions[0]
        if not answer.error_code:
            self.committed[group] = end
        self.rounds += 1


def check_commits(copied: dict[str, Content], promised: dict[str, int]) -> dict[str, int]:
    """Check that the copy has every commit in `promised`, and none beyond the end of the records; returns its committed offsets."""
    end = copied[f"{TOPIC}-0"].end
    offsets: dict[str, int] = {}
    partitions = sum(name.startswith("__consumer_offsets-") for name in copied)
    for name, content in copied.items():
        if not name.startswith("__consumer_offsets-"):
            continue
        for key, value in facts_of(content.batches):
            match read_offsets_key(key):
                case OffsetCommitKey(group=group, topic=topic) if value is not None and topic == TOPIC:
                    assert name == f"__consumer_offsets-{partition_of(group, partitions)}"
                    offsets[group] = read_record(OffsetCommitValue, value).offset
    assert {group: offsets.get(group, -1) for group, offset in promised.items() if offsets.get(group, -1) < offset} == {}
    assert {group: offset for group, offset in offsets.items() if offset > end} == {}
    return offsets


def check_producer_ids(copied: dict[str, Content]) -> None:
    """Check that the copied registry will assign no producer id that a copied record has."""
    ids = [
        read_record(ProducerIdsValue, value).next_id
        for key, value in facts_of(copied["__tenure_topics-0"].batches)
        if isinstance(read_key(TOPICS_REGISTRY, key), ProducerIdsKey) and value is not None
    ]
    assert max(copied[f"{TOPIC}-0"].producers) < ids[-1]
    data = copied[f"{TOPIC}-0"].batches
    assert read_header(data, 0).producer_id in copied[f"{TOPIC}-0"].producers
