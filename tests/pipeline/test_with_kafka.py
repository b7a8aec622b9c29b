"""Logs that Apache Kafka wrote: the pipeline reads the numbers that Kafka's own tools print, from the directory and live."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from pipeline.coverage import merged
from pipeline.jobs import Inputs, Steps
from pipeline.rows import Commit, Coverage, Group, Segment
from pipeline.rows import Record as Row
from pipeline.schema import rows_of
from pipeline.tables import Tables
from tests.cli.kafka_dump import KAFKA_WRITTEN
from tests.kafka_process import kafka_folder, running_kafka
from tests.oracle import run_java
from tests.pipeline.building import ENGINE
from tests.pipeline.decoded import check_stored, decoded
from tests.pipeline.kafka_world import compare, copy

pytestmark = pytest.mark.kafka

CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
FORMATTERS = "org.apache.kafka.tools.consumer"
PARTITIONS = 2
Numbers = Counter[tuple[object, ...]]


def read(out: Path, source: object) -> list[Row]:
    """The records, which the tables have, too."""
    made = Tables.open(out, create=True)
    inputs = Inputs.of([str(source)])
    ENGINE.round(made, inputs, Steps(builds=False))
    rows = decoded(inputs)
    check_stored(made, rows)
    return rows


def test_a_compacted_kafka_directory_equals_its_dump_tools_output(tmp_path: Path) -> None:
    rows = read(tmp_path / "out", KAFKA_WRITTEN)
    count = compare(rows, [segment for segment in sorted(KAFKA_WRITTEN.glob("__consumer_offsets-*/*.log")) if segment.stat().st_size])
    assert count == len([row for row in rows if row.kind != "control"]) == 94
    ranges = merged(rows_of(Coverage, Tables.open(tmp_path / "out").read("coverage")))
    assert {row.why for row in ranges if row.partition == 2} == {"compacted", ""}


@pytest.fixture(scope="module")
def kafka() -> Iterator[tuple[Path, int]]:
    settings = {
        "group_initial_rebalance_delay_ms": "0",
        "offsets_topic_num_partitions": str(PARTITIONS),
        "transaction_state_log_num_partitions": "1",
        "log_roll_ms": "500",
        "log_cleaner_backoff_ms": "200",
        "log_cleaner_min_cleanable_ratio": "0.01",
    }
    with kafka_folder(**settings) as (folder, port), running_kafka(folder, port):
        use(f"127.0.0.1:{port}")
        yield folder, port


def use(bootstrap: str) -> None:
    """Consumers, some of them static, that start, commit, stop and return; transactions with commits and aborts."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(500):
        producer.produce("orders", str(number).encode())
    assert producer.flush(30) == 0
    for turn in range(4):
        for name in ("billing", "shipping", "größe"):
            settings: dict[str, str | int | bool] = {"bootstrap.servers": bootstrap, "group.id": name, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
            if name == "billing":
                settings |= {"group.instance.id": "pod-1", "session.timeout.ms": 6000}  # ends before the logs are read
            consumer = confluent_kafka.Consumer(settings)
            consumer.subscribe(["orders"])
            read = 0
            until = time.monotonic() + 30
            while read < 30 and time.monotonic() < until:
                message = consumer.poll(0.2)
                if message is not None and message.error() is None:
                    consumer.commit(asynchronous=False)
                    read += 1
            assert read, f"{name} got no partition in turn {turn}"
            if name == "shipping":
                transact(bootstrap, consumer, turn % 2 == 0)
            consumer.close()
    for name, commits in (("paid", True), ("unpaid", False)):  # the last records of these groups, so that compaction keeps them
        consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": name})
        transact(bootstrap, consumer, commits)
        consumer.close()


def transact(bootstrap: str, consumer: Any, commits: bool) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "shipping"})
    producer.init_transactions(30)
    producer.begin_transaction()
    offsets = [confluent_kafka.TopicPartition("orders", 0, 277 if commits else 266)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
    (producer.commit_transaction if commits else producer.abort_transaction)(30)


def printed(port: int, formatter: str) -> list[dict[str, Any]]:
    """The committed records in the output of Kafka's console consumer."""
    output = ""
    for partition in range(PARTITIONS):  # read by partition: a consumer group would write to the log that is read
        options = ["--topic", "__consumer_offsets", "--partition", str(partition), "--offset", "earliest", "--timeout-ms", "4000"]
        options += ["--command-property", "isolation.level=read_committed", "--formatter", f"{FORMATTERS}.{formatter}"]
        output += run_java(CONSOLE, "--bootstrap-server", f"127.0.0.1:{port}", *options, timeout=120)
    decode = json.JSONDecoder().raw_decode  # records may follow each other without a newline, with messages of the tool in between
    return [decode(output, match.start())[0] for match in re.finditer(r'\{"key":', output)]


def committed(records: list[dict[str, Any]]) -> Numbers:
    counts: Numbers = Counter()
    for record in records:
        key, value = record["key"]["data"], (record["value"] or {}).get("data", {})
        counts[key["group"], key["topic"], key["partition"], value.get("offset"), value.get("commitTimestamp")] += 1
    return counts


def settled(port: int) -> list[dict[str, Any]]:
    """Wait until two dumps in a row are equal, as the cleaner is done then, or 90 s have passed; returns the last dump."""
    before = printed(port, "OffsetsMessageFormatter")
    until = time.monotonic() + 90
    while True:
        now = printed(port, "OffsetsMessageFormatter")
        if now == before or time.monotonic() > until:
            return now
        before = now


def test_kafka_read_live_and_from_its_directory_equals_its_formatters_output(kafka: tuple[Path, int], tmp_path: Path) -> None:
    folder, port = kafka
    theirs = settled(port)
    live = read(tmp_path / "live", f"kafka://127.0.0.1:{port}")
    copy(folder / "data", tmp_path / "copy")
    here = read(tmp_path / "here", tmp_path / "copy")
    for rows in (live, here):
        ours = [row for row in rows if row.kind == "offset" and not row.tombstone]
        assert Counter((row.group, row.topic, row.topic_partition, row.committed, row.commit_ms) for row in ours) == committed(
            [row for row in theirs if row["value"]]
        )
        assert {row.txn for row in ours if row.group == "paid"} == {True}
        assert not [row for row in rows if row.group == "unpaid" and row.kind == "offset"]
    groups = printed(port, "GroupMetadataMessageFormatter")
    group_records = Counter((row.group, row.tombstone) for row in live if row.kind == "group")
    assert group_records == Counter((group["key"]["data"]["group"], group["value"] is None) for group in groups)
    assert [row[1:-2] for row in live] == [row[1:-2] for row in here]
    segments = rows_of(Segment, Tables.open(tmp_path / "here").read("segments"))
    assert sum(row.records for row in segments) == len(here)
    assert sum(row.missing_offsets for row in segments) > 0  # offsets are missing because the log was compacted
    assert {row.cluster for row in live} == {row.cluster for row in here}
    aborted = {row.path for row in segments if row.aborted}
    compare(here, [path for path in sorted((tmp_path / "copy").glob("__consumer_offsets-*/*.log")) if path.stat().st_size and str(path) not in aborted])


def test_a_kafka_read_live_has_the_lag_of_its_groups(kafka: tuple[Path, int], tmp_path: Path) -> None:
    """Kafka writes no notes with end offsets, so they are requested from the brokers."""
    _, port = kafka
    inputs = Inputs.of([f"kafka://127.0.0.1:{port}"])
    made = Tables.open(tmp_path / "out", create=True)
    ENGINE.round(made, inputs, Steps())
    committed = {row.group: row.committed for row in rows_of(Commit, made.read("commits")) if row.topic == "orders"}
    lags = {row.group: row.lag for row in rows_of(Group, made.read("groups"))}
    for group in ("billing", "größe"):
        assert lags[group] == 500 - (committed[group] or 0)
