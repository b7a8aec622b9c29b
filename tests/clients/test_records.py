"""kafka-python, aiokafka, confluent-kafka and Kafka's Java clients, unmodified: they read the records that they sent."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from subprocess import Popen

import pytest

from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.clients.each import java_probe
from tests.clients.records import BEGINNING, RECORDS_PROBE, Aiokafka, Confluent, Java, KafkaPython, RecordClient, Sent
from tests.kafka_process import free_ports
from tests.running import Broker, Client, broker

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

Open = Callable[[int], RecordClient]

TEN_MB = 10_000_000
NOW = 1_700_000_000_000


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Popen[str]]:
    with java_probe(tmp_path_factory.mktemp("java"), RECORDS_PROBE) as probe:
        yield probe


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker("--profile", "test", "--data", str(tmp_path_factory.mktemp("data"))) as running:
        yield running


@pytest.fixture(params=[KafkaPython, Aiokafka, Confluent, Java], ids=["kafka-python", "aiokafka", "confluent-kafka", "java"])
def connect(request: pytest.FixtureRequest) -> Iterator[Open]:
    kind = functools.partial(Java, request.getfixturevalue("jvm")) if request.param is Java else request.param
    with ExitStack() as opened:

        def connect(port: int) -> RecordClient:
            client: RecordClient = kind(f"127.0.0.1:{port}")
            opened.callback(client.close)
            return client

        yield connect


@pytest.fixture
def client(connect: Open, serving: Broker) -> RecordClient:
    return connect(serving.port)


def make_topic(port: int, **settings: str) -> str:
    name = f"records-{uuid.uuid4().hex[:8]}"
    configs = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in settings.items()]
    with Client(port) as asking:
        reply = asking.ask(CreateTopicsRequest([CreatableTopic(name, 1, 1, [], configs)], 5_000, False), 5)
    assert reply.topics[0].error_code == 0
    return name


def test_produced_records_are_read_with_every_codec_and_with_sequences(client: RecordClient, serving: Broker) -> None:
    topic = make_topic(serving.port)
    values: list[bytes] = []
    for codec, idempotent in (("none", False), ("gzip", False), ("snappy", True), ("lz4", False), ("zstd", True)):
        more = [f"{codec} {number}".encode() for number in range(200)]
        offsets = client.produce(topic, [Sent(value) for value in more], codec, idempotent)
        assert offsets == list(range(len(values), len(values) + 200))
        values += more
    assert client.consume(topic, BEGINNING, 1000) == list(enumerate(values))
    assert client.consume(topic, 323, 5) == list(enumerate(values))[323:328]
    assert client.bounds(topic) == (0, 1000)


def test_records_of_one_byte_and_of_ten_megabytes(client: RecordClient, serving: Broker) -> None:
    topic = make_topic(serving.port, max_message_bytes="11000000")
    values = [b"a", b"b" * TEN_MB, b"c"]
    assert client.produce(topic, [Sent(value) for value in values]) == [0, 1, 2]
    assert client.consume(topic, BEGINNING, 3) == list(enumerate(values))
    assert client.consume(topic, 2, 1) == [(2, b"c")]


def test_a_record_is_found_by_its_time(client: RecordClient, serving: Broker) -> None:
    topic = make_topic(serving.port, retention_ms="-1")
    client.produce(topic, [Sent(str(number).encode(), NOW + 1000 * number) for number in range(20)])
    offsets = [client.offset_at(topic, NOW + at) for at in (-5, 0, 1, 1000, 18_999, 19_000, 19_001)]
    assert offsets == [0, 0, 1, 1, 19, 19, None]


def test_a_consumer_at_the_end_reads_later_records(client: RecordClient, serving: Broker) -> None:
    topic = make_topic(serving.port)
    client.produce(topic, [Sent(b"early"), Sent(b"earlier")])
    assert client.after_end(topic, b"late") == (2, b"late")


def test_a_paused_partition_delivers_no_records_until_resumed(client: RecordClient, serving: Broker) -> None:
    topic = make_topic(serving.port)
    client.produce(topic, [Sent(str(number).encode()) for number in range(20)])
    assert client.consume_with_a_pause(topic, 20) == (0, 20)


def test_producers_and_consumers_survive_a_restart_and_a_kill(connect: Open, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    arguments = ("--profile", "test", "--listen", f"127.0.0.1:{port}", "--data", str(tmp_path))
    with broker(*arguments) as first:
        client = connect(port)
        topic = make_topic(port)
        assert client.produce(topic, [Sent(b"before")], idempotent=True) == [0]
        assert first.stop() == 0
    with broker(*arguments) as second:
        assert client.consume(topic, 0, 1) == [(0, b"before")]
        assert client.produce(topic, [Sent(b"between")], "lz4", idempotent=True) == [1]
        second.kill()
    with broker(*arguments):
        assert client.produce(topic, [Sent(b"after")]) == [2]
        assert [read.value for read in client.consume(topic, BEGINNING, 3)] == [b"before", b"between", b"after"]
