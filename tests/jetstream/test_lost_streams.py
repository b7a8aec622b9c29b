"""A node whose streams are deleted, made anew or purged while it serves, and whose engine answers nothing: every request gets its reply."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator

import pytest

from broker.settings.servers import parse_servers
from broker.stores.jetstream.connection import Connection
from broker.stores.jetstream.engine import Engine
from cli.health import NOT_READY, READY, probe
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.running import Broker, Client, broker, wait_until
from tests.support.nats_engine import NatsEngine
from tests.support.produce_batches import plain_batch

pytestmark = pytest.mark.jetstream

SECONDS = 30.0
TIMEOUT_MS = 4_000
CLUSTER = "lost"


def place(engine: NatsEngine) -> list[str]:
    """The arguments of the node."""
    settings = ("store.replicas=1", "offsets.topic.num.partitions=2", "offsets.commit.timeout.ms=2000", "log.format=json")
    words = [word for setting in settings for word in ("--set", setting)]
    return ["--store", engine.url, "--cluster", CLUSTER, "--node-id", "1", "--listen", "127.0.0.1:0", *words]


@pytest.fixture
def node(own_server: NatsEngine) -> Iterator[Broker]:
    with broker(*place(own_server)) as node:
        wait_until(lambda: probe("127.0.0.1", node.port, 5)[0] == READY, SECONDS, 0.1)
        with Client(node.port) as client:
            topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("orders", "other")]
            client.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 5)
        for topic in ("orders", "other"):
            wait_until(lambda: produce(node, topic)[0] == 0, SECONDS, 0.1)  # noqa: B023
        wait_until(lambda: commit(node, "g") == 0, SECONDS, 0.1)
        yield node


def produce(node: Broker, topic: str, timeout_ms: int = TIMEOUT_MS) -> tuple[int, float]:
    """The error of a Produce, and the seconds until its reply."""
    begun = time.monotonic()
    with Client(node.port) as client:
        reply = client.ask(ProduceRequest(None, -1, timeout_ms, [TopicProduceData(topic, [PartitionProduceData(0, plain_batch())])]), 9)
    return reply.responses[0].partition_responses[0].error_code, time.monotonic() - begun


def commit(node: Broker, group: str) -> int:
    with Client(node.port) as client:
        topic = OffsetCommitRequestTopic("orders", [OffsetCommitRequestPartition(0, committed_offset=1)])
        reply = client.ask(OffsetCommitRequest(group, topics=[topic]), 8)
    return int(reply.topics[0].partitions[0].error_code)


def fetched(node: Broker, topic: str) -> tuple[int, bytes]:
    with Client(node.port) as client:
        part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        reply = client.ask(FetchRequest(max_wait_ms=100, min_bytes=0, topics=[FetchTopic(topic=topic, partitions=[part])]), 11)
    found = reply.responses[0].partitions[0]
    return found.error_code, bytes(found.records or b"")


def streams(engine: NatsEngine, of: str) -> list[str]:
    """Names of the cluster's streams of a kind, such as `topic`."""
    found = engine.servers[0].streams()["account_details"][0]["stream_detail"]
    return [stream["name"] for stream in found if stream["name"].startswith(f"TENURE-{CLUSTER}-{of}")]


def end_of(engine: NatsEngine, name: str) -> int:
    (info,) = call(engine, (f"STREAM.INFO.{name}", {}))
    assert isinstance(info, dict)
    return int(info["state"]["last_seq"])


def call(engine: NatsEngine, *requests: tuple[str, dict[str, object]]) -> list[object]:
    """Send requests to JetStream's API."""

    async def send() -> list[object]:
        loop = asyncio.get_running_loop()
        connection = Connection(loop, parse_servers(engine.url), "_INBOX.test", lambda connected: None)
        await connection.open()
        replies: list[object] = []
        for api, body in requests:
            answered: asyncio.Future[object] = loop.create_future()
            Engine(connection).call(api, body, answered.set_result)
            replies.append(await answered)
        connection.close()
        return replies

    return asyncio.run(send())


def remade(engine: NatsEngine, kind: str, partition: str = "0") -> None:
    """Delete the streams of this kind, and make them anew, empty."""
    for name in streams(engine, kind):
        (info,) = call(engine, (f"STREAM.INFO.{name}", {}))
        assert isinstance(info, dict)
        call(engine, (f"STREAM.DELETE.{name}", {}), (f"STREAM.CREATE.{name}", info["config"]))


def says(node: Broker, code: int, text: str) -> None:
    wait_until(lambda: (said := probe("127.0.0.1", node.port, 5))[0] == code and text in said[1], SECONDS, 0.1, lambda: probe("127.0.0.1", node.port, 5))


@pytest.mark.parametrize("fate", ["deleted", "remade", "purged"])
def test_a_topics_stream_is_lost(own_server: NatsEngine, node: Broker, fate: str) -> None:
    victim, spared = "orders", "other"
    produce(node, victim)
    ends = {name: end_of(own_server, name) for name in streams(own_server, "topic")}
    lost = max(ends, key=lambda name: ends[name])
    (info,) = call(own_server, (f"STREAM.INFO.{lost}", {}))
    assert isinstance(info, dict)
    api = "PURGE" if fate == "purged" else "DELETE"
    call(own_server, (f"STREAM.{api}.{lost}", {}))
    if fate == "remade":
        call(own_server, (f"STREAM.CREATE.{lost}", info["config"]))
    error, seconds = produce(node, victim)
    assert seconds < TIMEOUT_MS / 1000 + 1
    assert error or fate == "purged"
    says(node, READY, f"damaged, and served by no node: {victim}-0")
    assert produce(node, victim)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetched(node, victim) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")
    assert produce(node, spared)[0] == 0
    assert "log is damaged, and no node serves it" in node.errors()


def test_streams_of_groups_are_made_anew(own_server: NatsEngine, node: Broker) -> None:
    remade(own_server, "groups")
    wait_until(lambda: commit(node, "g") == ErrorCode.NOT_COORDINATOR, SECONDS, 0.1)
    says(node, NOT_READY, "damaged, and served by no node: __consumer_offsets-0, __consumer_offsets-1")
    with Client(node.port) as client:
        reply = client.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", None)]), 8)
        assert reply.groups[0].error_code == ErrorCode.NOT_COORDINATOR
    assert produce(node, "orders")[0] == 0


def test_the_registry_of_topics_is_made_anew(own_server: NatsEngine, node: Broker) -> None:
    remade(own_server, "registry")

    def create(name: str) -> int:
        with Client(node.port) as client:
            topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1)]
            return int(client.ask(CreateTopicsRequest(topics=topics, timeout_ms=2_000), 5).topics[0].error_code)

    assert create("late")
    says(node, NOT_READY, "damaged, and served by no node: __tenure_topics-0")
    assert create("later")
    assert produce(node, "orders")[0] == 0, "a topic that was known before is served on"


def test_an_engine_that_answers_nothing(own_server: NatsEngine, node: Broker) -> None:
    own_server.servers[0].signal(signal.SIGSTOP)
    try:
        error, seconds = produce(node, "orders", 2_000)
        assert error == ErrorCode.REQUEST_TIMED_OUT
        assert 1.9 < seconds < 3.5
        begun = time.monotonic()
        assert commit(node, "g") == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert time.monotonic() - begun < 4.0
    finally:
        own_server.servers[0].signal(signal.SIGCONT)
    wait_until(lambda: produce(node, "orders")[0] == 0, SECONDS, 0.1)


@pytest.mark.parametrize("fate", ["deleted", "remade", "purged"])
def test_the_stream_of_nodes_and_owners_is_lost(own_server: NatsEngine, node: Broker, fate: str) -> None:
    name = f"TENURE-{CLUSTER}-meta"
    (info,) = call(own_server, (f"STREAM.INFO.{name}", {}))
    assert isinstance(info, dict)
    call(own_server, (f"STREAM.PURGE.{name}" if fate == "purged" else f"STREAM.DELETE.{name}", {}))
    if fate == "remade":
        call(own_server, (f"STREAM.CREATE.{name}", info["config"]))
    assert node.wait(SECONDS) == 75
    assert "the stream of nodes and owners is gone" in node.errors()
    arguments = place(own_server)
    with pytest.raises(AssertionError, match=f"stream {name} is gone or empty"):
        Broker(*arguments)
    with broker(*arguments, "--set", "cluster.id=again") as again:
        wait_until(lambda: probe("127.0.0.1", again.port, 5)[0] == READY, SECONDS, 0.1)
        wait_until(lambda: produce(again, "orders")[0] == 0, SECONDS, 0.1)
