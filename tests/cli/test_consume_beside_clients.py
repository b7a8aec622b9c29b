"""`tenure consume --group` as processes: two in one group, and one in a group with kafka-python."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter

import pytest

from cli.client import Cluster
from cli.records.membership import Member, Timeouts
from tests.cli.conftest import Tenure
from tests.cli.consumers import SECONDS, await_committed, await_members, consuming, described, stop
from tests.running import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
POLL_MS = 1_000  # if a poll ends while a SyncGroup is in flight, kafka-python 3.0.12 stops its heartbeats and never joins


@pytest.fixture
def topic(client_command: Tenure, name: str) -> str:
    """A topic of four partitions; also the name of its group."""
    assert client_command("topic", "create", name, "--partitions", "4").code == 0
    return name


def produce(client_command: Tenure, topic: str, values: str) -> None:
    """Write one record for each partition and value."""
    for partition in range(4):
        lines = "".join(f"{value}-{partition}\n" for value in values)
        assert client_command("produce", topic, "--partition", str(partition), stdin=lines).code == 0


def test_two_processes_share_a_topic_and_one_takes_over_when_the_other_ends(bootstrap: str, cluster: Cluster, client_command: Tenure, topic: str) -> None:
    arguments = (topic, "--group", topic, "--from-beginning", "--json", "--heartbeat", "0.1")
    with consuming(bootstrap, *arguments) as first, consuming(bootstrap, *arguments) as second:
        await_members(cluster, topic, 2)
        produce(client_command, topic, "abcde")
        await_committed(cluster, topic, topic, 20)
        seen_by_two = stop(second, signal.SIGINT)
        await_members(cluster, topic, 1)
        produce(client_command, topic, "f")
        await_committed(cluster, topic, topic, 24)
        seen_by_one = stop(first, signal.SIGTERM)
    await_members(cluster, topic, 0)
    assert len({partition for partition, _ in seen_by_two}) == 2
    assert Counter(seen_by_one + seen_by_two) == Counter((partition, offset) for partition in range(4) for offset in range(6))


def test_ctrl_c_ends_a_member_waiting_in_a_join_phase(bootstrap: str, cluster: Cluster, topic: str) -> None:
    sitting = Member(cluster.separate_client(), topic, [topic], Timeouts(session=60, rebalance=60, heartbeat=10))
    with sitting._cluster:
        sitting.join()
        with consuming(bootstrap, topic, "--group", topic) as process:
            wait_until(lambda: described(cluster, topic).group_state == "PreparingRebalance")
            begin = time.monotonic()
            assert stop(process, signal.SIGINT) == []
            assert time.monotonic() - begin < 5
        sitting.leave()


@pytest.mark.parametrize("first", ["tenure", "kafka-python"])
def test_tenure_consume_shares_a_group_with_kafka_python_as_leader_and_follower(
    bootstrap: str, cluster: Cluster, client_command: Tenure, topic: str, first: str
) -> None:
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.range import RangePartitionAssignor

    positions: list[tuple[int, int]] = []
    ended = threading.Event()

    def consume() -> None:
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
            auto_commit_interval_ms=100,
            partition_assignment_strategy=(RangePartitionAssignor,),
        )
        while not ended.is_set():
            for records in consumer.poll(POLL_MS).values():
                positions.extend((record.partition, record.offset) for record in records)
        consumer.close()

    theirs = threading.Thread(target=consume, daemon=True)
    if first == "kafka-python":
        theirs.start()
        await_members(cluster, topic, 1)
    with consuming(bootstrap, topic, "--group", topic, "--instance", "desk", "--from-beginning", "--json", "--heartbeat", "0.1") as ours:
        if first == "tenure":
            await_members(cluster, topic, 1)
            theirs.start()
        now = await_members(cluster, topic, 2)
        assert now.protocol_data == "range"
        produce(client_command, topic, "abcde")
        await_committed(cluster, topic, topic, 20)
        ended.set()
        theirs.join(SECONDS)
        await_members(cluster, topic, 1)
        produce(client_command, topic, "f")
        await_committed(cluster, topic, topic, 24)
        seen_by_us = stop(ours, signal.SIGINT)
    group = await_members(cluster, topic, 1)
    assert [member.group_instance_id for member in group.members] == ["desk"]
    assert len({partition for partition, _ in positions}) == 2
    assert Counter(positions + seen_by_us) == Counter((partition, offset) for partition in range(4) for offset in range(6))
