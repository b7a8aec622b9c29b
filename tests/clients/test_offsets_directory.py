"""The offsets log changes hands: what a real Kafka wrote we serve, what we wrote a real Kafka serves, and its own tool reads."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.clients.lasting_kafka import LastingKafka
from tests.clients.people import People
from tests.clients.stored import await_coordinator, everything_stored
from tests.oracle import run_java
from tests.running import Client
from tests.support.lasting import LastingBroker

pytestmark = pytest.mark.kafka

DUMP = "org.apache.kafka.tools.DumpLogSegments"
OFFSETS = "__consumer_offsets-*"
# What says how far logs were flushed and replicated: it is of the logs that are exchanged for others.
CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    ".kafka_cleanshutdown",
)


def test_kafkas_tool_reads_every_record_that_we_write(tmp_path: Path) -> None:
    with LastingBroker(tmp_path / "data", "offsets.topic.segment.bytes=2000") as ours:
        people = People(ours.port)
        people.settle()
        people.keep_their_seats()
        people.close()
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


def test_a_directory_that_kafka_wrote_is_served_and_goes_back_to_kafka(tmp_path: Path) -> None:
    with LastingKafka(tmp_path / "kafka") as kafka:
        kafka.start()
        await_coordinator(kafka.port)
        people = People(kafka.port)
        people.settle()
        before = everything_stored(kafka.port)
        kafka.stop()
        shutil.copytree(kafka.data, tmp_path / "taken")
        with LastingBroker(tmp_path / "taken") as ours:
            people.move(ours.port)
            await_groups(ours.port, before)
            assert everything_stored(ours.port) == before
            people.create_topics()
            people.keep_their_seats()
            assert people.commit_alone("ours", [(0, 4711, "first here")]) == [0]
            people.delete("expiring")
            served = everything_stored(ours.port)
            assert served.keys() == (before.keys() | {"ours"}) - {"expiring"}
            ours.stop()
        exchange(tmp_path / "taken", kafka.data)
        kafka.start()
        people.move(kafka.port)
        await_groups(kafka.port, served)
        assert everything_stored(kafka.port) == served
        people.keep_their_seats()
        people.close()
        assert not [line for line in kafka.said().splitlines() if line.startswith(("ERROR", "FATAL"))]


def test_a_kafka_serves_what_we_wrote_until_we_were_killed(tmp_path: Path) -> None:
    with LastingBroker(tmp_path / "data", "offsets.topic.segment.bytes=3000") as ours:
        people = People(ours.port)
        people.settle()
        people.keep_their_seats()
        stored = everything_stored(ours.port)
        ours.kill()
    with LastingKafka(tmp_path / "kafka") as kafka:
        kafka.start()
        await_coordinator(kafka.port)
        kafka.stop()
        exchange(tmp_path / "data", kafka.data)
        kafka.start()
        people.move(kafka.port)
        await_groups(kafka.port, stored)
        assert everything_stored(kafka.port) == stored
        people.create_topics()
        people.keep_their_seats()
        people.close()
        assert not [line for line in kafka.said().splitlines() if line.startswith(("ERROR", "FATAL"))]


def exchange(source: Path, kafka: Path) -> None:
    """Segments of the offsets log from `source` into the folders of a stopped Kafka, which keep the id of their topic."""
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
        found = client.ask(FindCoordinatorRequest(coordinator_keys=list(groups)), 4)
    assert {one.port for one in found.coordinators} == {port}
