"""kafka-python, aiokafka, confluent-kafka and Kafka's Java clients, unmodified: each finds this broker and its topics."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.each import AnyClient, Cluster, FoundTopic, NameRefused, NotReached, TopicExists
from tests.kafka_process import free_ports
from tests.running import Broker, broker
from tests.support.peers import has_ipv6

# kafka-python does not close the sockets of refused connections.
pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

Connect = Callable[..., AnyClient]

SETTINGS = {"retention.ms": "3600000", "cleanup.policy": "compact"}


def with_retries(work: Callable[[], Cluster]) -> Cluster:
    """Retry like an application: kafka-python and aiokafka report a lost connection, and reconnect at the next call."""
    until = time.monotonic() + 10
    while True:
        try:
            return work()
        except NotReached:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def without_ids(topics: dict[str, FoundTopic]) -> dict[str, int]:
    return {name: topic.partitions for name, topic in topics.items()}


def more_listeners(running: Broker, count: int) -> dict[str, int]:
    """The ports of the listeners that are announced after the first."""
    assert running.process.stdout is not None
    lines = [running.process.stdout.readline() for _ in range(count)]
    return {name: int(address.rpartition(":")[2]) for _, name, address in map(str.split, lines)}


def test_a_topic_is_made_once_and_found_after_a_restart_and_after_kill_9(connect: Connect, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    arguments = ("--listen", f"127.0.0.1:{port}", "--data", str(tmp_path))
    with broker(*arguments) as first:
        client = connect(f"127.0.0.1:{port}")
        cluster = client.cluster()
        assert (len(cluster.id), cluster.controller, cluster.brokers) == (22, 1, {1: ("127.0.0.1", port)})
        client.create("orders", 3, SETTINGS)
        with pytest.raises(TopicExists):
            client.create("orders", 3, SETTINGS)
        with pytest.raises(NameRefused):
            client.create("no spaces", 1, SETTINGS)
        topics = client.topics()
        assert without_ids(topics) == {"__consumer_offsets": 50, "orders": 3}
        assert first.stop() == 0
    with broker(*arguments) as second:
        assert (with_retries(client.cluster), client.topics()) == (cluster, topics)  # with the client that was connected to the first broker
        client.create("payments", 2, SETTINGS)
        topics = client.topics()
        second.kill()
    with broker(*arguments):
        newcomer = connect(f"127.0.0.1:{port}")
        assert newcomer.cluster() == with_retries(client.cluster) == cluster
        assert newcomer.topics() == client.topics() == topics
        assert without_ids(topics) == {"__consumer_offsets": 50, "orders": 3, "payments": 2}


def test_requesting_a_missing_topic_creates_it_for_producers(connect: Connect) -> None:
    with broker("--profile", "test", "--set", "num.partitions=4") as running:
        client = connect(f"127.0.0.1:{running.port}")
        assert client.partitions_as_producer("automatic") == 4
        assert without_ids(client.topics())["automatic"] == 4


def test_a_client_gets_the_address_of_its_listener(connect: Connect) -> None:
    if not has_ipv6():
        pytest.skip("this machine has no ::1")
    listeners = "listeners=V4://127.0.0.1:0,V6://[::1]:0,NAMED://localhost:0"
    protocols = "listener.security.protocol.map=V4:PLAINTEXT,V6:PLAINTEXT,NAMED:PLAINTEXT"
    with broker("--profile", "test", "--set", listeners, "--set", protocols) as running:
        ports = {"V4": running.port, **more_listeners(running, 2)}
        clients = {
            "V4": connect(f"127.0.0.1:{ports['V4']}"),
            "V6": connect(f"[::1]:{ports['V6']}"),
            "NAMED": connect(f"localhost:{ports['NAMED']}"),
        }
        clients["V4"].create("shared", 2, SETTINGS)
        for name, host in {"V4": "127.0.0.1", "V6": "::1", "NAMED": "localhost"}.items():
            assert clients[name].cluster() == Cluster(clients["V4"].cluster().id, 1, {1: (host, ports[name])})
            assert "shared" in clients[name].topics()
            assert clients[name].partitions_as_producer("shared") == 2


def test_an_unreachable_broker_is_a_timely_client_error(connect: Connect) -> None:
    (port,) = free_ports(1)
    begin = time.monotonic()
    with pytest.raises(NotReached):
        connect(f"127.0.0.1:{port}", seconds=1.0).cluster()
    assert time.monotonic() - begin < 20  # the client gives up after a second; a JVM takes longer to start
