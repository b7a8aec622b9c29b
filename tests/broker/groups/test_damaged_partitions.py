"""A started broker with damaged or suspended offsets partitions, or another number of them than configured."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from coordinator import partition_of
from coordinator.notes import Cause
from coordinator.states import State
from protocol.batch import iterate_headers, records
from protocol.messages.consumer_offsets import GroupMetadataKey
from protocol.messages.coordinator_notes import NoteHeader, NoteKey
from protocol.messages.kinds import NoteKind
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.records import read_note, read_offsets_key, read_record
from tests.running import ANSWER_SECONDS, ROOT, Broker, Client, environment
from tests.support.restartable import (
    Actor,
    RestartableBroker,
    await_loaded,
    create_topic,
    described,
    fetch_code,
    list_code,
    settle,
    stored_offsets,
)
from tests.support.small_disk import fill

pytestmark = pytest.mark.once

MakeActor = Callable[..., Actor]

PARTITIONS = 3  # as RestartableBroker has it
FIRST_SEGMENT = "00000000000000000000.log"


@pytest.fixture
def restartable(tmp_path: Path) -> Iterator[RestartableBroker]:
    """A broker that is not started yet."""
    restartable = RestartableBroker(tmp_path / "data")
    yield restartable
    restartable.__exit__()


@pytest.fixture
def actor() -> Iterator[MakeActor]:
    with ExitStack() as stack:

        def make(*arguments: Any) -> Actor:
            new_actor = Actor(*arguments)
            stack.callback(new_actor.close)
            return new_actor

        yield make


def group_in(partition: int) -> str:
    return next(name for name in (f"group-{number}" for number in range(100)) if partition_of(name, PARTITIONS) == partition)


def health(port: int) -> tuple[int, str]:
    command = [sys.executable, "-P", "-m", "tenure", "health", f"127.0.0.1:{port}"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=20, check=False, cwd=ROOT)
    return done.returncode, done.stdout.strip().partition(" ")[2]


def entries(broker: Broker, event: str) -> list[dict[str, Any]]:
    return [entry for line in list(broker.lines) if (entry := json.loads(line))["event"] == event]


def facts(log: Path) -> list[tuple[int, bytes, bytes | None]]:
    """Offset, key and value of every record of a log."""
    data = b"".join(segment.read_bytes() for segment in sorted(log.glob("*.log")))
    facts = []
    at = 0
    for header in iterate_headers(data, 0, len(data)):
        facts += [(header.base_offset + number, record.key or b"", record.value) for number, record in enumerate(records(data, at))]
        at += header.size
    return facts


def notes(data: Path) -> list[tuple[str, int, NoteHeader, Any]]:
    """Group, partition, header and body of every note."""
    return [
        (read_record(NoteKey, key).group, int(folder.name.rpartition("-")[2]), *read_note(value or b""))
        for folder in sorted(data.glob("__coordinator_notes-*"))
        for _, key, value in facts(folder)
    ]


def test_only_the_damaged_partition_refuses_requests_and_the_log_names_the_remedy(restartable: RestartableBroker, actor: MakeActor) -> None:
    damaged, sound = group_in(1), group_in(2)
    restartable.start()
    create_topic(restartable.port, "t")
    for group in (damaged, sound):
        member = actor(restartable.port, group)
        for offset in range(5):
            assert member.commit("t", 0, offset) == 0
    assert health(restartable.port) == (0, "is ready")
    restartable.kill()
    file = restartable.data / "__consumer_offsets-1" / FIRST_SEGMENT
    data = bytearray(file.read_bytes())
    data[30] ^= 1  # damage in the first batch; as sound batches follow, it does not look like a torn end
    file.write_bytes(data)
    (restartable.data / "recovery-point-offset-checkpoint").write_text("0\n1\n__consumer_offsets 1 5\n")
    broker = restartable.start(loaded=False)
    until = time.monotonic() + ANSWER_SECONDS
    while fetch_code(restartable.port, sound):
        assert time.monotonic() < until
    assert stored_offsets(restartable.port, sound) == {("t", 0): (4, "")}
    assert fetch_code(restartable.port, damaged) == 16
    assert actor(restartable.port, damaged, "i").join().error_code == 16
    code, line = health(restartable.port)
    assert (code, line.partition(":")[0]) == (2, "is not ready")
    assert line.startswith(f"is not ready: partition 1 (cannot be read: {FIRST_SEGMENT} is damaged at byte 0: ")
    logged = broker.await_line("partition of groups cannot be read")
    assert f"{file} is damaged at byte 0: " in logged
    assert "restore the file from a backup" in logged
    restartable.stop()
    # No marker of a clean stop: one log was not opened since the kill, so the next start must check it.
    assert not (restartable.data / ".kafka_cleanshutdown").exists()
    data[30] ^= 1
    file.write_bytes(data)
    for _ in range(20):  # until a run was long enough to open all logs: those of notes are opened last
        restartable.start()
        assert stored_offsets(restartable.port, damaged) == {("t", 0): (4, "")}
        time.sleep(0.1)
        restartable.stop()
        if (restartable.data / ".kafka_cleanshutdown").exists():
            return
    raise AssertionError("never marked as clean again")


@pytest.mark.parametrize("flush", ["always", "interval"])
def test_on_a_full_disk_groups_are_suspended_and_serve_again(small_disk: Path, actor: MakeActor, flush: str) -> None:
    restartable = RestartableBroker(small_disk / "data", f"offsets.flush={flush}", "group.max.session.timeout.ms=1800000")
    try:
        broker = restartable.start()
        create_topic(restartable.port, "t")
        member = actor(restartable.port, "g", "i")
        settle(member)
        assert member.commit("t", 0, 1) == 0
        newest = 1
        filler = fill(small_disk)
        until = time.monotonic() + ANSWER_SECONDS
        while not (code := member.commit("t", 0, newest + 1)):
            newest += 1
            assert time.monotonic() < until
        assert code == 16
        assert member.heartbeat() == 15
        assert fetch_code(restartable.port, "g") == 16
        assert list_code(restartable.port) == 15
        assert actor(restartable.port, "g", "j").join().error_code == 15
        partition = partition_of("g", PARTITIONS)
        assert health(restartable.port) == (2, f"is suspended: partition {partition} (the disk of __consumer_offsets-{partition} is full)")
        filler.unlink()
        broker.await_line("log serves again")
        await_loaded(restartable.port)
        assert health(restartable.port) == (0, "is ready")
        assert stored_offsets(restartable.port, "g") == {("t", 0): (newest, "")}
        assert member.heartbeat() == 0
        assert member.commit("t", 0, 1_000_000) == 0
        assert described(restartable.port, "g").group_state == "Stable"
        restartable.kill()
        restartable.start()
        assert stored_offsets(restartable.port, "g") == {("t", 0): (1_000_000, "")}
    finally:
        restartable.__exit__()


def test_the_partition_count_of_the_offsets_topic_is_fixed_by_the_directory(restartable: RestartableBroker, actor: MakeActor) -> None:
    restartable.start()
    settle(actor(restartable.port, "orders", "i"))
    restartable.stop()
    broker = restartable.start("offsets.topic.num.partitions=7")
    assert described(restartable.port, "orders").group_state == "Stable"
    ignored = "offsets.topic.num.partitions is ignored: the data directory was created with another number, which places its groups"
    broker.await_line(ignored)  # a thread writes log lines, perhaps after the first replies
    (line,) = entries(broker, ignored)
    assert (line["configured"], line["used"]) == (7, PARTITIONS)
    restartable.stop()
    assert sorted(folder.name for folder in restartable.data.glob("__consumer_offsets-*")) == [
        f"__consumer_offsets-{partition_of('orders', PARTITIONS)}"
    ]


def test_offsets_partitions_store_their_topic_id_as_kafka_does(restartable: RestartableBroker, actor: MakeActor) -> None:
    restartable.start()
    settle(actor(restartable.port, "orders", "i"))
    with Client(restartable.port) as client:
        (topic,) = client.ask(MetadataRequest([MetadataRequestTopic(name="__consumer_offsets")], False), 12).topics
    restartable.stop()
    (file,) = restartable.data.glob("__consumer_offsets-*/partition.metadata")
    assert file.read_text() == f"version: 0\ntopic_id: {base64.urlsafe_b64encode(topic.topic_id).decode().rstrip('=')}"


def test_notes_name_events_and_offsets_of_their_records(restartable: RestartableBroker, actor: MakeActor) -> None:
    broker = restartable.start()
    settle(actor(restartable.port, "orders", "a"), actor(restartable.port, "orders", "b"))
    restartable.stop()
    logged = [entry for entry in entries(broker, "group") if entry["group"] == "orders"]
    assert [entry["to"] for entry in logged][-2:] == ["completing", "stable"]
    restartable.start()
    restartable.kill()
    partition = partition_of("orders", PARTITIONS)
    log = {offset: read_offsets_key(key) for offset, key, _ in facts(restartable.data / f"__consumer_offsets-{partition}")}
    notes_read = notes(restartable.data)
    assert {partition for _, partition, _, _ in notes_read} == {partition}
    changes = [(header, body) for group, _, header, body in notes_read if header.kind == NoteKind.STATE_CHANGE]
    assert [body.to_state for _, body in changes][-2:] == [State.COMPLETING, State.STABLE]
    assert [State(body.from_state).name.lower() for _, body in changes] == [entry["from"] for entry in logged]
    header, body = changes[-1]
    assert (body.reason, body.members) == (Cause.ASSIGNED, 2)
    assert log[header.offsets_log_offset] == GroupMetadataKey("orders")
    assert header.offsets_log_offset == max(log)
    epochs = {header.coordinator_epoch for _, _, header, _ in notes_read}
    for epoch in epochs:
        numbers = [header.seq for _, _, header, _ in notes_read if header.coordinator_epoch == epoch]
        assert numbers == list(range(len(numbers)))
    assert notes_read[-1][0] == ""


def test_no_reply_waits_for_the_notes_log(restartable: RestartableBroker, actor: MakeActor) -> None:
    restartable.data.mkdir()
    for partition in range(PARTITIONS):
        (restartable.data / f"__coordinator_notes-{partition}").write_text("a file where a folder should be")
    broker = restartable.start()
    settle(actor(restartable.port, "orders", "a"))
    broker.await_line("notes are lost")
    assert described(restartable.port, "orders").group_state == "Stable"
    assert health(restartable.port) == (0, "is ready")
    restartable.stop()
