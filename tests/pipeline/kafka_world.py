"""Events at a real Kafka for the pipeline to analyse: its own clients and two other kinds join, crash, restart and leave.

`python -m tests.pipeline.kafka_world FOLDER` starts a Kafka, runs the events, and leaves two copies of its directory: `whole`, taken while it
runs, and `compacted`. Then it waits for the end of its input.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from pipeline.rows import Record as Row
from protocol.messages.consumer_offsets import GroupMetadataValue
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.records import read_record
from tests.cli.kafka_dump import DUMP, RECORD
from tests.kafka_process import kafka_folder, running_kafka
from tests.oracle import run_java
from tests.running import Client, wait_until

TOPIC = "orders"
PARTITIONS = 6
LOGS = 3
TIMEOUT_S = 60.0
SESSION_MS = 300_000  # a static member keeps its seat until the directories are copied, however slow the machine
HOSTILE = "</script><b onclick=x>\x1b[31m\u202e'\"&{{7*7}}"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
VERIFIABLE = "org.apache.kafka.tools.VerifiableConsumer"
SETTINGS: dict[str, Any] = {
    "group_initial_rebalance_delay_ms": "0",
    "group_min_session_timeout_ms": "100",
    "offsets_topic_num_partitions": str(LOGS),
    "log_roll_ms": "2000",
    "transaction_state_log_num_partitions": "1",
    "log_cleaner_min_compaction_lag_ms": "3600000",
    "offsets_retention_check_interval_ms": "1000",
}
CLEANING = """
log.cleaner.min.compaction.lag.ms=0
log.cleaner.backoff.ms=300
log.cleaner.min.cleanable.ratio=0.01
"""
CRASHING = """
import sys, confluent_kafka
settings = {"bootstrap.servers": sys.argv[1], "group.id": "crashing", "client.id": "pod-b", "auto.offset.reset": "earliest", "session.timeout.ms": 2000,
    "heartbeat.interval.ms": 500}
consumer = confluent_kafka.Consumer(settings)
consumer.subscribe(["orders"])
while True:
    message = consumer.poll(0.2)
    if message is not None and message.error() is None:
        consumer.commit(asynchronous=False)
        print("read", flush=True)
"""

KAFKA_PYTHON = """
import sys
from kafka import KafkaConsumer
settings = {"bootstrap_servers": sys.argv[1], "group_id": "kafka-python", "client_id": "py", "auto_offset_reset": "earliest", "enable_auto_commit": False}
member = KafkaConsumer("orders", **settings)
for _ in zip(range(10), member):
    member.commit()
member.close()
"""


class Work(NamedTuple):
    port: int
    data: Path  # the directory of the running Kafka
    whole: Path  # a copy made before Kafka's log cleaner was allowed to work
    compacted: Path


@contextmanager
def kafka_at_work(target: Path) -> Iterator[Work]:
    """A running Kafka after all events; it was killed once, and has compacted its logs since."""
    with kafka_folder(**SETTINGS) as (folder, port):
        work = Work(port, folder / "data", target / "whole", target / "compacted")
        with running_kafka(folder, port):
            run_workload(f"127.0.0.1:{port}")
            copy(work.data, work.whole)
        with (folder / "server.properties").open("a") as properties:
            properties.write(CLEANING)
        with running_kafka(folder, port):
            await_cleaned(work.data, size(work.whole))
            copy(work.data, work.compacted)
            yield work


def copy(data: Path, target: Path) -> None:
    """Copy from a running broker; repeat if a file was replaced during the copy."""
    until = time.monotonic() + TIMEOUT_S
    while True:
        try:
            shutil.copytree(data, target, ignore=shutil.ignore_patterns("*.tmp", "*.cleaned", "*.swap", "*.deleted", "__cluster_metadata-*"))
            return
        except shutil.Error:
            assert time.monotonic() < until
            shutil.rmtree(target)


def await_cleaned(data: Path, before: int) -> None:
    """Wait until the log cleaner has compacted each log that has records, and the directory is smaller than `before` bytes."""
    until = time.monotonic() + 2 * TIMEOUT_S
    while size(data) >= before or (data / "cleaner-offset-checkpoint").read_text().count("__consumer_offsets") < LOGS:
        assert time.monotonic() < until, (data / "cleaner-offset-checkpoint").read_text()
        time.sleep(0.5)


def size(data: Path) -> int:
    return sum(path.stat().st_size for path in data.glob("__consumer_offsets-*/*.log"))


def run_workload(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(TIMEOUT_S)
    produce(bootstrap, 600)
    for group in ("retired", "expiring", HOSTILE):
        consume_once(bootstrap, group)
    admin.delete_consumer_groups(["retired"])["retired"].result(TIMEOUT_S)
    commit_expiring(bootstrap, "expiring")
    rolling(bootstrap, "dynamic", static=False)
    rolling(bootstrap, "static", static=True)
    crash(bootstrap)
    run_kafka_python(bootstrap)
    run_java_consumers(bootstrap)
    for commits in (True, False):
        transact(bootstrap, commits)
    consume_once(bootstrap, "busy", 700)  # so much that segments are full and the cleaner has work
    produce(bootstrap, 100)  # no consumer reads these: a lag
    await_forgotten(admin, "expiring", "unpaid")


def produce(bootstrap: str, count: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(TOPIC, b"order", partition=number % PARTITIONS)
    assert producer.flush(TIMEOUT_S) == 0


def consumer(bootstrap: str, group: str, **settings: Any) -> Any:
    new_consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        | {name.replace("_", "."): value for name, value in settings.items()}
    )
    new_consumer.subscribe([TOPIC])
    return new_consumer


def poll(members: list[Any], count: int) -> None:
    """Poll until the members have read and committed `count` messages, or all have partitions and no message is left."""
    until = time.monotonic() + TIMEOUT_S
    read = idle = 0
    while read < count and idle < 10:
        assert time.monotonic() < until, f"{read} of {count} messages were read"
        idle += 1
        for member in members:
            message = member.poll(0.05)
            if message is not None:
                assert message.error() is None, message.error()
                member.commit(message, asynchronous=False)
                read, idle = read + 1, 0
        if not all(member.assignment() for member in members):
            idle = 0  # they are still rebalancing


def consume_once(bootstrap: str, group: str, count: int = 5) -> None:
    member = consumer(bootstrap, group)
    if count <= 5:
        poll([member], count)
    else:
        poll([member], 1)
        for number in range(count):
            member.commit(offsets=[confluent_kafka.TopicPartition(TOPIC, number % PARTITIONS, number % 90)], asynchronous=False)
    member.close()


def rolling(bootstrap: str, group: str, static: bool) -> None:
    """Restart each of three members once; then close all."""

    def member(number: int) -> Any:
        instance_option = {"group_instance_id": f"pod-{number}"} if static else {}
        return consumer(bootstrap, group, client_id=f"pod-{number}", session_timeout_ms=SESSION_MS, heartbeat_interval_ms=500, **instance_option)

    members = [member(number) for number in range(3)]
    settle(members)
    for number in range(3):
        poll(members, 30)
        members.pop(number).close()
        if not static:
            settle(members)
        poll(members, 10)
        members.insert(number, member(number))
        settle(members)
    poll(members, 30)
    for group_member in members:
        group_member.close()


def settle(members: list[Any]) -> None:
    """Wait until each member has an equal share of the partitions; commit records that are read meanwhile."""
    until = time.monotonic() + TIMEOUT_S
    while {len(member.assignment()) for member in members} != {PARTITIONS // len(members)}:
        assert time.monotonic() < until, [member.assignment() for member in members]
        for member in members:
            message = member.poll(0.05)
            if message is not None and message.error() is None:
                member.commit(message, asynchronous=False)


def crash(bootstrap: str) -> None:
    """One of two members is killed; the other gets its partitions when the session has expired."""
    stays = consumer(bootstrap, "crashing", client_id="pod-a", session_timeout_ms=2_000, heartbeat_interval_ms=500)
    killed = subprocess.Popen([sys.executable, "-c", CRASHING, bootstrap], stdout=subprocess.PIPE)
    try:
        until = time.monotonic() + TIMEOUT_S
        while not 0 < len(stays.assignment()) < PARTITIONS:  # both have some
            stays.poll(0.1)
            assert time.monotonic() < until
        poll_few(stays, 5)
        assert killed.stdout is not None
        assert killed.stdout.readline() == b"read\n"
    finally:
        killed.send_signal(signal.SIGKILL)
        killed.communicate(timeout=TIMEOUT_S)
    while len(stays.assignment()) < PARTITIONS:
        stays.poll(0.1)
        assert time.monotonic() < until
    poll_few(stays, 5)
    stays.close()


def poll_few(member: Any, count: int) -> None:
    until = time.monotonic() + TIMEOUT_S
    while count:
        message = member.poll(0.1)
        if message is not None and message.error() is None:
            member.commit(message, asynchronous=False)
            count -= 1
        assert time.monotonic() < until


def run_kafka_python(bootstrap: str) -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", KAFKA_PYTHON, bootstrap], check=True, timeout=2 * TIMEOUT_S)


def run_java_consumers(bootstrap: str) -> None:
    options = ["--bootstrap-server", bootstrap, "--topic", TOPIC, "--group", "java-console", "--from-beginning"]
    run_java(CONSOLE, *options, "--max-messages", "30", "--timeout-ms", "30000", "--command-property", "client.id=console", timeout=120)
    options = ["--bootstrap-server", bootstrap, "--topic", TOPIC, "--group-id", "java-verifiable", "--group-instance-id", "one"]
    run_java(VERIFIABLE, *options, "--session-timeout", str(SESSION_MS), "--max-messages", "30", "--reset-policy", "earliest", timeout=120)


def transact(bootstrap: str, commits: bool) -> None:
    group = "paid" if commits else "unpaid"
    member = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": group})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.send_offsets_to_transaction([confluent_kafka.TopicPartition(TOPIC, 0, 7)], member.consumer_group_metadata(), TIMEOUT_S)
    (producer.commit_transaction if commits else producer.abort_transaction)(TIMEOUT_S)
    member.close()


def commit_expiring(bootstrap: str, group: str) -> None:
    """Commit each partition again, with a retention of one millisecond. Other groups have Kafka's retention of a week, so they never expire here."""
    partitions = [OffsetCommitRequestPartition(number, 5) for number in range(PARTITIONS)]
    request = OffsetCommitRequest(group, retention_time_ms=1, topics=[OffsetCommitRequestTopic(TOPIC, partitions)])
    with Client(int(bootstrap.rpartition(":")[2])) as client:
        (reply,) = client.ask(request, 4).topics
    assert {partition.error_code for partition in reply.partitions} == {0}


def await_forgotten(admin: AdminClient, *groups: str) -> None:
    """Wait until Kafka has removed these groups, which have neither members nor offsets."""
    wait_until(lambda: not {listed.group_id for listed in admin.list_consumer_groups().result(TIMEOUT_S).valid} & set(groups), TIMEOUT_S, 0.2)


def main() -> None:
    with kafka_at_work(Path(sys.argv[1])) as work:
        print(f"kafka://127.0.0.1:{work.port} {work.data}", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()


def compare(rows: list[Row], segments: list[Path]) -> int:
    """Compare these rows with the output of Kafka's dump tool for these segments, from one start of Java; returns the number of records."""
    printed = run_java(DUMP, "--files", ",".join(map(str, segments)), "--offsets-decoder")
    each = re.split(r"^Dumping .+\n", printed, flags=re.MULTILINE)[1:]
    return sum(compare_segment(rows, segment, lines.splitlines()) for segment, lines in zip(segments, each, strict=True))


def compare_segment(rows: list[Row], segment: Path, printed: list[str]) -> int:
    theirs = [match.groups() for line in printed if (match := RECORD.match(line))]
    name = f"{segment.parent.name}/{segment.name}"
    ours = [row for row in rows if row.segment == name and row.kind != "control"]
    for row, (offset, at_ms, key, payload) in zip(ours, theirs, strict=True):
        assert (row.offset, row.append_ms) == (int(offset), int(at_ms))
        key_document = json.loads(key)
        assert row.key_version == int(key_document["type"])
        assert row.group == key_document["data"]["group"]
        if not payload.startswith("{"):
            assert row.tombstone
            continue
        value = json.loads(payload)
        data = value["data"]
        assert row.value_version == int(value["version"])
        if row.kind == "offset":
            assert (row.topic, row.topic_partition) == (key_document["data"]["topic"], key_document["data"]["partition"])
            assert (row.committed, row.metadata, row.commit_ms) == (data["offset"], data["metadata"], data["commitTimestamp"])
            epoch = data.get("leaderEpoch", -1)  # a value with an expiry timestamp has no leader epoch
            assert row.commit_leader_epoch == (epoch if epoch >= 0 else None)
        else:
            assert row.kind == "group"
            assert row.value_raw is not None
            stored = read_record(GroupMetadataValue, row.value_raw)
            assert (stored.generation, stored.leader, stored.protocol) == (data["generation"], data["leader"], data["protocol"])
            members = [(member.member_id, member.group_instance_id, member.client_id, member.client_host) for member in stored.members]
            assert members == [(member["memberId"], member["groupInstanceId"], member["clientId"], member["clientHost"]) for member in data["members"]]
    return len(theirs)
