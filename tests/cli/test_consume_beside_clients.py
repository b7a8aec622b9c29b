"""`tenure consume --group` as processes: two of it in one group, and one beside kafka-python."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count

import pytest

from cli.client import Cluster
from cli.records.commits import committed_offsets
from cli.records.membership import Member, Timeouts
from protocol.messages.describe_groups import DescribeGroupsRequest
from tests.cli.conftest import Tenure
from tests.cli.test_consume import consuming

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
NUMBERS = count()
SECONDS = 30
POLL_MS = 1_000  # a shorter poll may end while a SyncGroup is on its way: kafka-python 3.0.12 then stops beating and never joins


@pytest.fixture
def name(tenure: Tenure, bootstrap: str) -> str:
    """A topic of four partitions; also the name of a group of its own."""
    topic = f"beside-{next(NUMBERS)}.{bootstrap.rpartition(':')[2]}"
    assert tenure("topic", "create", topic, "--partitions", "4", "--bootstrap", bootstrap).code == 0
    return topic


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    host, _, port = bootstrap.rpartition(":")
    with Cluster([(host, int(port))], 5) as opened:
        yield opened


def await_members(cluster: Cluster, group: str, members: int) -> object:
    until = time.monotonic() + SECONDS
    while True:
        now = cluster.coordinator(group, DescribeGroupsRequest([group])).groups[0]
        if now.group_state == ("Stable" if members else "Empty") and len(now.members) == members:
            return now
        assert time.monotonic() < until, now
        time.sleep(0.05)


def await_committed(cluster: Cluster, name: str, records: int) -> None:
    until = time.monotonic() + SECONDS
    while sum(committed_offsets(cluster, name, [(name, partition) for partition in range(4)]).values()) < records:
        assert time.monotonic() < until
        time.sleep(0.05)


def produce(tenure: Tenure, bootstrap: str, name: str, values: str) -> None:
    """One record for each partition and value."""
    for partition in range(4):
        lines = "".join(f"{value}-{partition}\n" for value in values)
        assert tenure("produce", name, "--partition", str(partition), "--bootstrap", bootstrap, stdin=lines).code == 0


def end(process: subprocess.Popen[bytes], number: signal.Signals) -> list[tuple[int, int]]:
    """Where the records that it has printed were."""
    process.send_signal(number)
    out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err) == (128 + number, b"")
    return [(record["partition"], record["offset"]) for record in map(json.loads, out.splitlines())]


def test_two_processes_share_a_topic_and_one_takes_over_when_the_other_ends(bootstrap, cluster, tenure, name):
    arguments = (name, "--group", name, "--from-beginning", "--json", "--heartbeat", "0.1")
    with consuming(bootstrap, *arguments) as one, consuming(bootstrap, *arguments) as two:
        await_members(cluster, name, 2)
        produce(tenure, bootstrap, name, "abcde")
        await_committed(cluster, name, 20)
        seen_by_two = end(two, signal.SIGINT)
        await_members(cluster, name, 1)
        produce(tenure, bootstrap, name, "f")
        await_committed(cluster, name, 24)
        seen_by_one = end(one, signal.SIGTERM)
    await_members(cluster, name, 0)
    assert len({partition for partition, _ in seen_by_two}) == 2
    assert Counter(seen_by_one + seen_by_two) == Counter((partition, offset) for partition in range(4) for offset in range(6))


def test_ctrl_c_ends_it_also_while_it_waits_for_other_members(bootstrap, cluster, name):
    sitting = Member(cluster.another(), name, [name], Timeouts(session=60, rebalance=60, heartbeat=10))
    with sitting._cluster:
        sitting.join()
        with consuming(bootstrap, name, "--group", name) as process:
            until = time.monotonic() + SECONDS
            while cluster.coordinator(name, DescribeGroupsRequest([name])).groups[0].group_state != "PreparingRebalance":
                assert time.monotonic() < until
                time.sleep(0.05)
            begin = time.monotonic()
            assert end(process, signal.SIGINT) == []
            assert time.monotonic() - begin < 5
        sitting.leave()


@pytest.mark.parametrize("first", ["tenure", "kafka-python"])
def test_it_shares_a_group_with_kafka_python_whoever_leads(bootstrap, cluster, tenure, name, first):
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.range import RangePartitionAssignor

    seen: list[tuple[int, int]] = []
    stop = threading.Event()

    def consume() -> None:
        consumer = KafkaConsumer(
            name,
            bootstrap_servers=bootstrap,
            group_id=name,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
            auto_commit_interval_ms=100,
            partition_assignment_strategy=(RangePartitionAssignor,),
        )
        while not stop.is_set():
            for records in consumer.poll(POLL_MS).values():
                seen.extend((record.partition, record.offset) for record in records)
        consumer.close()

    theirs = threading.Thread(target=consume, daemon=True)
    if first == "kafka-python":
        theirs.start()
        await_members(cluster, name, 1)
    with consuming(bootstrap, name, "--group", name, "--instance", "desk", "--from-beginning", "--json", "--heartbeat", "0.1") as ours:
        if first == "tenure":
            await_members(cluster, name, 1)
            theirs.start()
        now = await_members(cluster, name, 2)
        assert now.protocol_data == "range"
        produce(tenure, bootstrap, name, "abcde")
        await_committed(cluster, name, 20)
        stop.set()
        theirs.join(SECONDS)
        await_members(cluster, name, 1)
        produce(tenure, bootstrap, name, "f")
        await_committed(cluster, name, 24)
        seen_by_us = end(ours, signal.SIGINT)
    kept = await_members(cluster, name, 1)
    assert [member.group_instance_id for member in kept.members] == ["desk"]
    assert len({partition for partition, _ in seen}) == 2
    assert Counter(seen + seen_by_us) == Counter((partition, offset) for partition in range(4) for offset in range(6))
