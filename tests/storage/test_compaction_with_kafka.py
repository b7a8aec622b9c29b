"""One log compacted by Kafka and by us: the same records remain, in the same batches."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from protocol.batch import DELETE_HORIZON, Compression, Record, build, iterate_headers, records
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from storage import Handles, Log, OsDisk, Producers
from tests.clients.restartable_kafka import RestartableKafka
from tests.running import Client
from tests.storage.logs import clean, headers, scan

pytestmark = [pytest.mark.once, pytest.mark.kafka]

TOPIC = "compacted"
COUNT = 120
SETTINGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "1.0",  # Kafka cleans only after the test has lowered this
    "segment.ms": "10000",
    "delete.retention.ms": "600000",
}
SECONDS = 30


def batches(now: int) -> Iterator[bytes]:
    """Batches of all codecs, with tombstones, with and without producers; by their timestamps, every ten fill a segment."""
    random = Random(5)
    sequences = dict.fromkeys(range(1, 7), 0)
    for number in range(COUNT):
        batch_records = []
        for record in range(random.randint(1, 4)):
            value = None if random.random() < 0.15 else b"%d." % number * random.randint(1, 30)
            headers = ((b"h", b"%d" % record),) if random.random() < 0.2 else ()
            batch_records.append(Record(record, now + 1_100 * number + record, b"key %d" % random.randint(0, 25), value, headers))
        producer = random.choice((-1, -1, *sequences)) if number < 60 else -1
        sequence = -1
        if producer > 0:
            sequence = sequences[producer]
            sequences[producer] += len(batch_records)
        yield build(
            batch_records,
            compression=random.choice(list(Compression)),
            producer_id=producer,
            producer_epoch=min(producer, 0),
            base_sequence=sequence,
        )


def stored(log: Log) -> list[tuple[Any, ...]]:
    """All fields except delete horizons, which depend on the time of the cleaning."""
    stored_batches = []
    for chunk in scan(log):
        at = 0
        for header in iterate_headers(chunk, 0, len(chunk)):
            record_fields = [(record.offset, record.timestamp, record.key, record.value, record.headers) for record in records(chunk, at)]
            of_producer = header.producer_id, header.producer_epoch, header.base_sequence
            stored_batches.append((header.base_offset, header.last_offset, header.attributes, header.max_timestamp, of_producer, record_fields))
            at += header.size
    return stored_batches


def opened(folder: Path) -> tuple[Log, Producers]:
    producers = Producers()
    log, _ = Log.open(Handles(OsDisk()), str(folder), 1 << 20, 0, True, deferred=True, producers=producers)
    return log, producers


def test_compaction_keeps_the_same_records_as_kafka(tmp_path: Path) -> None:
    kafka = RestartableKafka(tmp_path / "kafka", log_cleaner_backoff_ms="100", log_initial_task_delay_ms="500")
    folder = kafka.data / f"{TOPIC}-0"
    try:
        kafka.start()
        with Client(kafka.port) as client:
            configs = [CreatableTopicConfig(name, value) for name, value in SETTINGS.items()]
            client.ask(CreateTopicsRequest([CreatableTopic(TOPIC, 1, 1, [], configs)], 5_000), 4)
            for batch in batches(int(time.time() * 1000) - 1_100 * COUNT):
                request = ProduceRequest(None, -1, 5_000, [TopicProduceData(TOPIC, [PartitionProduceData(0, batch)])])
                while (reply := client.ask(request, 7).responses[0].partition_responses[0]).error_code in (3, 6):
                    time.sleep(0.05)
                assert reply.error_code == 0
        kafka.stop()
        shutil.copytree(folder, tmp_path / "ours" / f"{TOPIC}-0")
        kafka.start()
        with Client(kafka.port) as client:
            now = AlterConfigsResource(2, TOPIC, [AlterableConfig("min.cleanable.dirty.ratio", 0, "0.0")])
            client.ask(IncrementalAlterConfigsRequest([now], False), 0)
            cleaned_to = kafka.data / "cleaner-offset-checkpoint"
            until = time.monotonic() + SECONDS
            while not (cleaned_to.exists() and f"{TOPIC} 0 " in cleaned_to.read_text()):
                assert time.monotonic() < until, "Kafka does not clean"
                time.sleep(0.1)
        kafka.stop()
    finally:
        kafka.kill()
    theirs, _ = opened(folder)
    ours, producers = opened(tmp_path / "ours" / f"{TOPIC}-0")
    before = stored(ours)
    assert len(ours.closed_segments) > 8
    clean(OsDisk(), ours, segment_bytes=1 << 20, producers=producers.last_offsets())
    expected, actual = stored(theirs), stored(ours)
    assert len(expected) < len(before) - 20
    assert sum(not batch[5] for batch in expected) > 3  # batches without records, kept as the last ones of their producers
    assert any(batch[2] & DELETE_HORIZON for batch in expected)
    assert actual == expected
    assert {header.compression for header in headers(ours)} == set(Compression)
