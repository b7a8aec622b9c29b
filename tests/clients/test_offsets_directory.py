"""Exchanging the offsets log: we serve a directory of Kafka, Kafka serves ours, and its tool reads it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from protocol.messages import incremental_alter_configs
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.clients.restartable_kafka import RestartableKafka
from tests.clients.sample_groups import SampleGroups
from tests.clients.stored import await_coordinator, everything_stored
from tests.oracle import run_java
from tests.running import Client, wait_until
from tests.support.restartable import Actor, RestartableBroker, settle

pytestmark = pytest.mark.kafka

GROUP_RESOURCE = 32  # the resource type
SET = 0
DUMP = "org.apache.kafka.tools.DumpLogSegments"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
FORMATTERS = ("GroupMetadataMessageFormatter", "OffsetsMessageFormatter")
OFFSETS = "__consumer_offsets-*"
# Checkpoints that describe the exchanged logs, and must be exchanged with them.
CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    ".kafka_cleanshutdown",
)


def test_kafkas_tool_reads_every_record_that_we_write(tmp_path: Path) -> None:
    with RestartableBroker(tmp_path / "data", "offsets.topic.segment.bytes=2000") as ours:
        sample_groups = SampleGroups(ours.port)
        sample_groups.settle()
        sample_groups.check_seats_kept()
        sample_groups.close()
        stored = everything_stored(ours.port)
        ours.stop()
    segments = sorted((tmp_path / "data").glob(f"{OFFSETS}/*.log"))
    assert len(segments) > 3
    printed = run_java(DUMP, "--offsets-decoder", "--files", ",".join(map(str, segments)))
    assert "isvalid: false" not in printed
    assert not re.search(r"exception|could not|unknown|corrupt|unable", printed, re.IGNORECASE), printed
    payloads = [line for line in printed.splitlines() if line.startswith("| ")]
    assert len(payloads) == sum(int(count) for count in re.findall(r"^baseOffset.* count: (\d+) ", printed, re.MULTILINE))
    for line in payloads:
        assert re.search(r' key: \{"type":"[12]","data":', line), line
        assert re.search(r' payload: (\{"version":"[13]","data":|<DELETE>|null)', line), line
    for group, (_, _, _, members, offsets) in stored.items():
        for topic, partition in offsets:
            assert any(f'"group":"{group}","topic":"{topic}","partition":{partition}' in line for line in payloads)
        for member, (instance, *_) in members.items():
            static = f'"groupInstanceId":"{instance}"' if instance else '"groupInstanceId":null'
            assert any(f'"memberId":"{member}",{static}' in line for line in payloads)


def test_a_directory_of_kafka_is_served_and_then_served_by_kafka(tmp_path: Path) -> None:
    with RestartableKafka(tmp_path / "kafka") as kafka:
        kafka.start()
        await_coordinator(kafka.port)
        sample_groups = SampleGroups(kafka.port)
        sample_groups.settle()
        before = everything_stored(kafka.port)
        kafka.stop()
        shutil.copytree(kafka.data, tmp_path / "taken")
        with RestartableBroker(tmp_path / "taken") as ours:
            sample_groups.move(ours.port)
            await_groups(ours.port, before)
            assert everything_stored(ours.port) == before
            sample_groups.create_topics()
            sample_groups.check_seats_kept()
            assert sample_groups.commit_alone("ours", [(0, 4711, "first here")]) == [0]
            sample_groups.delete("expiring")
            served = everything_stored(ours.port)
            assert served.keys() == (before.keys() | {"ours"}) - {"expiring"}
            ours.stop()
        replace_segments(tmp_path / "taken", kafka.data)
        kafka.start()
        sample_groups.move(kafka.port)
        await_groups(kafka.port, served)
        assert everything_stored(kafka.port) == served
        sample_groups.check_seats_kept()
        sample_groups.close()
        assert not [line for line in kafka.output().splitlines() if line.startswith(("ERROR", "FATAL"))]


def test_kafka_serves_a_directory_of_a_killed_tenure(tmp_path: Path) -> None:
    with RestartableBroker(tmp_path / "data", "offsets.topic.segment.bytes=3000") as ours:
        sample_groups = SampleGroups(ours.port)
        sample_groups.settle()
        sample_groups.check_seats_kept()
        stored = everything_stored(ours.port)
        ours.kill()
    with kafka_over(tmp_path, sample_groups) as kafka:
        await_groups(kafka.port, stored)
        assert everything_stored(kafka.port) == stored


def test_a_kafka_opens_a_directory_with_policies_and_its_tools_skip_their_records(tmp_path: Path) -> None:
    with RestartableBroker(tmp_path / "data", "offsets.topic.segment.bytes=3000") as ours:
        sample_groups = SampleGroups(ours.port)
        sample_groups.settle()
        for group in ("absent", "later"):
            set_policies(ours.port, group, registration_timeout_ms="60000", rebalance_request="tried")
        absent = Actor(ours.port, "absent", "i", session_ms=6_000)
        settle(absent)
        wait_until(lambda: has_absent_member(ours.port, "absent"))
        active, standby = (Actor(ours.port, "standby", name, protocol_type="consumer") for name in "ab")
        set_policies(ours.port, "standby", target_group_size="1")
        settle(active)
        assert standby.join().error_code == 0
        assert standby.sync().assignment == bytes.fromhex("0000 00000000 ffffffff")
        stored = everything_stored(ours.port)
        for formatter in FORMATTERS:
            check_console(ours.port, formatter)
        for actor in (absent, active, standby):
            actor.close()
        ours.kill()
    segments = sorted((tmp_path / "data").glob(f"{OFFSETS}/*.log"))
    printed = run_java(DUMP, "--offsets-decoder", "--files", ",".join(map(str, segments)))
    assert "isvalid: false" not in printed
    assert not re.search(r"exception|could not|corrupt|unable", printed, re.IGNORECASE), printed
    assert {int(kind) for kind in re.findall(r"Unknown record type (\d+) at offset \d+, skipping", printed)} == {30_000, 30_001, 30_002}
    with kafka_over(tmp_path, sample_groups) as kafka:
        await_groups(kafka.port, stored)
        stored_now = everything_stored(kafka.port)
        assert {group: stored_now[group] for group in stored} == stored
        for formatter in FORMATTERS:
            check_console(kafka.port, formatter)


@contextmanager
def kafka_over(tmp_path: Path, sample_groups: SampleGroups) -> Iterator[RestartableKafka]:
    """Kafka with the segments of our offsets log. The members of `sample_groups` reconnect to it, and must keep their seats."""
    with RestartableKafka(tmp_path / "kafka") as kafka:
        kafka.start()
        await_coordinator(kafka.port)
        kafka.stop()
        replace_segments(tmp_path / "data", kafka.data)
        kafka.start()
        sample_groups.move(kafka.port)
        yield kafka
        sample_groups.create_topics()
        sample_groups.check_seats_kept()
        sample_groups.close()
        assert not [line for line in kafka.output().splitlines() if line.startswith(("ERROR", "FATAL"))]


def check_console(port: int, formatter: str) -> None:
    """Read the whole topic with one of Kafka's formatters, which fail at a malformed record."""
    printed = run_java(
        CONSOLE, "--bootstrap-server", f"127.0.0.1:{port}", "--topic", "__consumer_offsets", "--from-beginning", "--timeout-ms", "4000",
        "--formatter", f"org.apache.kafka.tools.consumer.{formatter}",
    )  # fmt: skip
    assert '"group":"statics"' in printed or '"group":"mixed"' in printed


def set_policies(port: int, group: str, **policies: str) -> None:
    settings = [incremental_alter_configs.AlterableConfig(name.replace("_", "."), SET, value) for name, value in policies.items()]
    with Client(port) as client:
        reply = client.ask(IncrementalAlterConfigsRequest([incremental_alter_configs.AlterConfigsResource(GROUP_RESOURCE, group, settings)]), 1)
    assert [response.error_code for response in reply.responses] == [0], reply


def has_absent_member(port: int, group: str) -> bool:
    with Client(port) as client:
        reply = client.ask(DescribeConfigsRequest([DescribeConfigsResource(GROUP_RESOURCE, group, ["status.away"])]), 4)
    return bool(reply.results[0].configs)


def replace_segments(source: Path, kafka: Path) -> None:
    """Replace the segments of a stopped Kafka's offsets topic by those in `source`; the folders keep their topic id."""
    for folder in kafka.glob(OFFSETS):
        for file in folder.iterdir():
            if file.name != "partition.metadata":
                file.unlink()
        for segment in source.glob(f"{folder.name}/*.log"):
            shutil.copy(segment, folder)
    for name in CHECKPOINTS:
        (kafka / name).unlink(missing_ok=True)


def await_groups(port: int, groups: object) -> None:
    assert isinstance(groups, dict)
    for group in groups:
        await_coordinator(port, group)
    with Client(port) as client:
        reply = client.ask(FindCoordinatorRequest(coordinator_keys=list(groups)), 4)
    assert {coordinator.port for coordinator in reply.coordinators} == {port}
