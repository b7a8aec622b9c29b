"""Real clients behind one small interface, so that a test is written once and run with each of them."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import uuid
import warnings
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import aiokafka.admin
import aiokafka.client
import aiokafka.errors
import confluent_kafka
import confluent_kafka.admin

from tests.oracle import JAVA, kafka_jars

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas through importlib.resources.read_text
    import kafka as kafka
    import kafka.admin
    import kafka.errors

ADMIN_PROBE = Path(__file__).parent / "java" / "AdminProbe.java"
SECONDS = 10.0
Result = TypeVar("Result")


class TopicExists(Exception):
    pass


class NameRefused(Exception):
    pass


class NotReached(Exception):
    """No broker replied in time, or the connection was lost before the reply."""


class Cluster(NamedTuple):
    id: str
    controller: int
    brokers: dict[int, tuple[str, int]]


class FoundTopic(NamedTuple):
    partitions: int
    id: bytes | None  # None: the client does not report topic ids


class AnyClient(Protocol):
    def cluster(self) -> Cluster: ...
    def topics(self) -> dict[str, FoundTopic]: ...
    def create(self, name: str, partitions: int, settings: Mapping[str, str]) -> None: ...
    def partitions_as_producer(self, name: str) -> int:
        """The number of partitions of a topic, requested as a producer does before it sends: a missing topic is created."""

    def close(self) -> None: ...


class KafkaPython:
    """kafka-python: KafkaAdminClient, and KafkaConsumer for topics created on demand."""

    def __init__(self, bootstrap: str, seconds: float = SECONDS) -> None:
        timeout_ms = int(seconds * 1000)
        self._settings: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "request_timeout_ms": timeout_ms,
            "bootstrap_timeout_ms": timeout_ms,
        }
        try:
            self.admin = kafka.KafkaAdminClient(**self._settings)
        except kafka.errors.KafkaTimeoutError as error:
            raise NotReached from error

    def cluster(self) -> Cluster:
        try:
            described = self.admin.describe_cluster()
        except (kafka.errors.NodeNotReadyError, kafka.errors.KafkaConnectionError) as error:
            raise NotReached from error
        brokers = {broker["broker_id"]: (broker["host"], broker["port"]) for broker in described["brokers"]}
        return Cluster(described["cluster_id"], described["controller_id"], brokers)

    def topics(self) -> dict[str, FoundTopic]:
        described = self.admin.describe_topics()
        assert {topic["name"] for topic in described} == set(self.admin.list_topics())
        return {topic["name"]: FoundTopic(len(topic["partitions"]), uuid.UUID(str(topic["topic_id"])).bytes) for topic in described}

    def create(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        new_topics = {name: {"num_partitions": partitions, "replication_factor": 1, "configs": dict(settings)}}
        try:
            created = self.admin.create_topics(new_topics)["topics"][0]
        except kafka.errors.TopicAlreadyExistsError as error:
            raise TopicExists from error
        except kafka.errors.InvalidTopicError as error:
            raise NameRefused from error
        assert created["num_partitions"] == partitions
        assert {name: created["configs"][name]["value"] for name in settings} == settings

    def partitions_as_producer(self, name: str) -> int:
        producer = kafka.KafkaProducer(**self._settings, enable_idempotence=False)
        try:
            return len(producer.partitions_for(name))
        finally:
            producer.close(timeout=1)

    def close(self) -> None:
        self.admin.close()


class Aiokafka:
    """aiokafka: AIOKafkaAdminClient and AIOKafkaClient, on a loop that runs during each call."""

    def __init__(self, bootstrap: str, seconds: float = SECONDS) -> None:
        self._settings: dict[str, Any] = {"bootstrap_servers": bootstrap, "request_timeout_ms": int(seconds * 1000)}
        self._loop = asyncio.new_event_loop()
        self.admin = self._run(self._admin())
        try:
            self._run(self.admin.start())
        except NotReached:
            self.close()
            raise

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        try:
            return self._loop.run_until_complete(work)
        except aiokafka.errors.KafkaConnectionError as error:
            raise NotReached from error

    async def _admin(self) -> aiokafka.admin.AIOKafkaAdminClient:
        return aiokafka.admin.AIOKafkaAdminClient(**self._settings)

    def cluster(self) -> Cluster:
        described = self._run(self.admin.describe_cluster())
        brokers = {broker["node_id"]: (broker["host"], broker["port"]) for broker in described["brokers"]}
        return Cluster(described["cluster_id"], described["controller_id"], brokers)

    def topics(self) -> dict[str, FoundTopic]:
        names = self._run(self.admin.list_topics())
        return {topic["topic"]: FoundTopic(len(topic["partitions"]), None) for topic in self._run(self.admin.describe_topics(names))}

    def create(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        topic = aiokafka.admin.NewTopic(name, partitions, 1, topic_configs=dict(settings))
        ((_, error, message),) = self._run(self.admin.create_topics([topic])).topic_errors
        raise_for(error, message)

    def partitions_as_producer(self, name: str) -> int:
        return self._run(self._partitions(name))

    async def _partitions(self, name: str) -> int:
        client = aiokafka.client.AIOKafkaClient(**self._settings)
        await client.bootstrap()
        try:
            await client.add_topic(name)
            return len(client.cluster.partitions_for_topic(name) or ())
        finally:
            await client.close()

    def close(self) -> None:
        self._run(self.admin.close())
        self._loop.close()


class Confluent:
    """confluent-kafka: AdminClient of librdkafka, and its Producer for topics created on demand."""

    def __init__(self, bootstrap: str, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        # Without librdkafka's log lines about refused connections.
        self._settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "reconnect.backoff.max.ms": 200,
        }
        self.admin = confluent_kafka.admin.AdminClient(self._settings)
        self._answer(lambda: self.admin.list_topics(timeout=seconds))

    def _answer(self, work: Callable[[], Result]) -> Result:
        try:
            return work()
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() in (confluent_kafka.KafkaError._TRANSPORT, confluent_kafka.KafkaError._TIMED_OUT):
                raise NotReached from error
            raise_for(error.args[0].code(), str(error))
            raise

    def cluster(self) -> Cluster:
        described = self._answer(lambda: self.admin.describe_cluster(request_timeout=self._seconds).result())
        listed = self._answer(lambda: self.admin.list_topics(timeout=self._seconds))
        assert listed.cluster_id == described.cluster_id
        assert {broker.id: (broker.host, broker.port) for broker in listed.brokers.values()} == {
            node.id: (node.host, node.port) for node in described.nodes
        }
        return Cluster(described.cluster_id, described.controller.id, {node.id: (node.host, node.port) for node in described.nodes})

    def topics(self) -> dict[str, FoundTopic]:
        names = list(self._answer(lambda: self.admin.list_topics(timeout=self._seconds)).topics)
        collection = confluent_kafka.TopicCollection(names)
        described = [self._answer(topic.result) for topic in self.admin.describe_topics(collection, request_timeout=self._seconds).values()]
        return {topic.name: FoundTopic(len(topic.partitions), kafka_id(str(topic.topic_id))) for topic in described}

    def create(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        topic = confluent_kafka.admin.NewTopic(name, partitions, 1, config=dict(settings))
        self._answer(self.admin.create_topics([topic], request_timeout=self._seconds)[name].result)

    def partitions_as_producer(self, name: str) -> int:
        producer = confluent_kafka.Producer(self._settings)
        return len(producer.list_topics(name, timeout=self._seconds).topics[name].partitions)

    def close(self) -> None:
        del self.admin


class Java:
    """Kafka's own Admin and KafkaProducer, in a JVM that reads commands from its standard input."""

    def __init__(self, probe: subprocess.Popen[str], bootstrap: str, seconds: float = SECONDS) -> None:
        self._probe = probe
        self._name = uuid.uuid4().hex
        self._do("open", bootstrap, str(int(seconds * 1000)))

    def _do(self, word: str, *arguments: str) -> list[str]:
        assert self._probe.stdin is not None
        assert self._probe.stdout is not None
        self._probe.stdin.write("\t".join((word, self._name, *arguments)) + "\n")
        self._probe.stdin.flush()
        line = self._probe.stdout.readline()
        assert line, f"the JVM ended with {self._probe.wait(SECONDS)}"
        outcome, *values = line.rstrip("\n").split("\t")
        if outcome == "ok":
            return values
        raise {"TopicExistsException": TopicExists, "InvalidTopicException": NameRefused, "TimeoutException": NotReached}.get(
            values[0], AssertionError
        )(line)

    def cluster(self) -> Cluster:
        id, controller, *nodes = self._do("cluster")
        return Cluster(id, int(controller), {int(nodes[at]): (nodes[at + 1], int(nodes[at + 2])) for at in range(0, len(nodes), 3)})

    def topics(self) -> dict[str, FoundTopic]:
        words = self._do("topics")
        return {words[at]: FoundTopic(int(words[at + 1]), kafka_id(words[at + 2])) for at in range(0, len(words), 3)}

    def create(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        answer = self._do("create", name, str(partitions), *(word for pair in settings.items() for word in pair))
        assert answer[0] == str(partitions)
        assert answer[2] == settings["retention.ms"]

    def partitions_as_producer(self, name: str) -> int:
        return int(self._do("partitions", name)[0])

    def close(self) -> None:
        self._do("close")


def kafka_id(text: str) -> bytes:
    """A topic id as Kafka writes it."""
    return base64.urlsafe_b64decode(text + "==")


def raise_for(error: int, message: str) -> None:
    if error == 36:
        raise TopicExists(message)
    if error == 17:
        raise NameRefused(message)
    assert not error, (error, message)


@contextmanager
def java_probe(folder: Path, source: Path = ADMIN_PROBE) -> Iterator[subprocess.Popen[str]]:
    """Start a JVM that runs `source`, which reads commands from its standard input. Skips the test if Kafka's jars are not available."""
    logging = folder / "log4j2.properties"
    logging.write_text("rootLogger.level=off\n")
    command = [*JAVA, "-XX:+UseSerialGC", f"-Dlog4j2.configurationFile={logging}", "-cp", f"{kafka_jars()}/*", str(source)]
    with (folder / "errors").open("w") as errors:
        probe = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            yield probe
        finally:
            probe.kill()
            probe.communicate()
