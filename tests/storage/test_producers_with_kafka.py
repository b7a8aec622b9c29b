"""Idempotent producers, compared with Kafka: the same batches get the same replies, and each reads the snapshots of the other."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from protocol.batch import Record, build, read_header
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from storage import Handles, Log, OsDisk, Producers
from tests.clients.restartable_kafka import RestartableKafka
from tests.oracle import run_java
from tests.running import Client
from tests.storage.logs import DUMP, stop

pytestmark = [pytest.mark.once, pytest.mark.kafka]

TOPIC = "written"
SEQUENCE_MAX = (1 << 31) - 1
Answer = tuple[int, int, int]  # error, base offset, log append time


class Comparison:
    """A Kafka and a log of ours that get the same batches."""

    def __init__(self, kafka: RestartableKafka, folder: Path) -> None:
        self.kafka = kafka
        self.folder = kafka.data / f"{TOPIC}-0"
        self.producers = Producers()
        self.log, _ = Log.open(Handles(OsDisk()), str(folder / f"{TOPIC}-0"), 1 << 20, 0, False, deferred=True, producers=self.producers)
        self.timestamp = int(time.time() * 1000)
        self.answers: list[tuple[tuple[int, int, int, int], Answer, Answer]] = []  # batch, our reply, Kafka's reply

    def batch(self, producer: int, epoch: int, sequence: int, records: int) -> bytes:
        self.timestamp += 1
        records_made = [Record(number, self.timestamp, b"key", b"value") for number in range(records)]
        return build(records_made, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)

    def ask_kafka(self, client: Client, batch: bytes) -> Answer:
        while True:
            request = ProduceRequest(None, -1, 5_000, [TopicProduceData(TOPIC, [PartitionProduceData(0, batch)])])
            (reply,) = client.ask(request, 7).responses[0].partition_responses
            if reply.error_code not in (3, 6):  # no leader yet
                return reply.error_code, reply.base_offset, reply.log_append_time_ms
            time.sleep(0.05)

    def ask_us(self, batch: bytes) -> Answer:
        header = read_header(batch, 0)
        verdict = self.producers.check(header)
        if verdict.error or verdict.offset >= 0:
            return int(verdict.error), verdict.offset, verdict.timestamp
        offset = self.log.append(batch, self.log.epoch)
        self.producers.note(header, offset)
        return 0, offset, -1


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Comparison]:
    kafka = RestartableKafka(tmp_path_factory.mktemp("kafka") / "kafka")
    kafka.start()
    both_brokers = Comparison(kafka, tmp_path_factory.mktemp("ours"))
    with Client(kafka.port) as client:
        client.ask(MetadataRequest([MetadataRequestTopic(name=TOPIC)]), 4)
        for question in questions(Random(1)):
            batch = both_brokers.batch(*question)
            both_brokers.answers.append((question, both_brokers.ask_us(batch), both_brokers.ask_kafka(client, batch)))
    kafka.stop()
    yield both_brokers
    kafka.kill()


def questions(random: Random) -> Iterator[tuple[int, int, int, int]]:
    """Producer, epoch, first sequence and record count: mostly the expected next batch, and every kind of deviation."""
    for producer in range(1, 25):
        epoch = random.choice((0, 0, 3))
        sequence = random.choice((0, 0, 5, SEQUENCE_MAX - 3, SEQUENCE_MAX))
        sent: list[tuple[int, int, int]] = []
        for _ in range(14):
            count = random.randint(1, 4)
            match random.randint(0, 9):
                case 0 | 1 if sent:
                    batch_sent = random.choice(sent[-7:])  # a duplicate: of the newest five, or older
                case 2:
                    batch_sent = (epoch, (sequence + random.choice((1, 2, -1, -2, 7))) % (SEQUENCE_MAX + 1), count)
                case 3:
                    batch_sent = (max(epoch - 1, 0), sequence, count)
                case 4:
                    batch_sent = (epoch + 1, random.choice((0, 0, 1, sequence)), count)
                case 5 if sent:
                    batch_sent = (sent[-1][0], sent[-1][1], sent[-1][2] + 1)  # like a known batch, but longer
                case _:
                    batch_sent = (epoch, sequence, count)
            yield (producer, *batch_sent)
            if batch_sent[0] >= epoch:
                sent.append(batch_sent)
                epoch, sequence = batch_sent[0], (batch_sent[1] + batch_sent[2]) % (SEQUENCE_MAX + 1)


def test_the_same_batches_get_kafkas_replies(comparison: Comparison) -> None:
    for question, ours, kafkas in comparison.answers:
        assert ours == kafkas, question
    assert {ours[0] for _, ours, _ in comparison.answers} == {0, 45, 47}
    assert sum(ours[2] >= 0 for _, ours, _ in comparison.answers) > 10  # replies to duplicates, which have a time


def last_batches(producers: Producers) -> dict[int, tuple[int, int, tuple[int, int, int, int]]]:
    states = {}
    for id in producers:
        producer = producers.get(id)
        assert producer is not None
        states[id] = producer.epoch, producer.last_timestamp, producer.batches[-1]
    return states


def test_producer_state_is_exchanged_with_kafka_in_both_directions(comparison: Comparison, tmp_path: Path) -> None:
    (snapshot,) = comparison.folder.glob("*.snapshot")
    assert int(snapshot.stem) == comparison.log.next_offset
    for name, is_rebuilt in (("orderly", False), ("rebuilt", True)):
        copied = tmp_path / name / f"{TOPIC}-0"
        shutil.copytree(comparison.folder, copied)
        if is_rebuilt:
            (copied / snapshot.name).unlink()
        read = Producers()
        log, _ = Log.open(Handles(OsDisk()), str(copied), 1 << 20, 0, not is_rebuilt, deferred=True, producers=read)
        assert last_batches(read) == last_batches(comparison.producers)
        assert log.next_offset == comparison.log.next_offset

    # A further batch of each producer, and an orderly stop of our log, in Kafka's own folder.
    producers = Producers()
    log, _ = Log.open(Handles(OsDisk()), str(comparison.folder), 1 << 20, 0, True, deferred=True, producers=producers)
    sent: list[tuple[bytes, int]] = []
    for id in producers:
        state = producers.get(id)
        assert state is not None
        batch = comparison.batch(id, state.epoch, (state.last_sequence + 1) % (SEQUENCE_MAX + 1), 2)
        offset = log.append(batch, log.epoch)
        producers.note(read_header(batch, 0), offset)
        sent.append((batch, offset))
    stop(log)
    printed = run_java(DUMP, "--files", comparison.folder / f"{log.next_offset:020d}.snapshot")
    dumped = re.findall(r"producerId: (\d+) producerEpoch: (\d+) .*?lastTimestamp: (\d+) firstSequence: (\d+) lastSequence: (\d+)", printed)
    expected = {id: (epoch, timestamp, batch[0], batch[1]) for id, (epoch, timestamp, batch) in last_batches(producers).items()}
    # Our snapshot has an entry for each of a producer's last five batches; Kafka reads them in order and keeps the last.
    assert {int(line[0]): tuple(map(int, line[1:])) for line in dumped} == expected

    point = comparison.kafka.data / "recovery-point-offset-checkpoint"
    point.write_text(re.sub(rf"(?m)^{TOPIC} 0 \d+$", f"{TOPIC} 0 {log.next_offset}", point.read_text()))
    comparison.kafka.start()
    with Client(comparison.kafka.port) as client:
        for batch, offset in sent:
            assert comparison.ask_kafka(client, batch) == (0, offset, read_header(batch, 0).max_timestamp)
