"""A data directory with every kind of log, written by our storage, and helpers for the tests of `tenure log`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import cli
from coordinator.group_partition import partition_of
from coordinator.notes import Cause
from coordinator.states import State
from protocol.batch import Fact, Record, build, build_facts, iterate_headers
from protocol.messages.consumer_offsets import GroupMetadataKey, GroupMetadataValue, MemberMetadata, OffsetCommitKey, OffsetCommitValue
from protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from protocol.messages.coordinator_notes import EndOffsets, NoteHeader, NoteKey, PartitionEnds, StateChange
from protocol.messages.kinds import NoteKind
from protocol.messages.topics_registry import TopicKey, TopicSetting, TopicValue
from protocol.records import with_version, write_note
from storage import DataDirectory, Handles, Log, OsDisk
from tests.running import environment

PARTITIONS = 4
MOMENT = 1_700_000_000_000
TOPIC_ID = bytes(range(16))
OFFSETS, NOTES, TOPICS = "__consumer_offsets", "__coordinator_notes", "__tenure_topics"


def run(*arguments: object) -> int:
    try:
        return cli.main([str(argument) for argument in arguments])
    except SystemExit as end:
        return int(end.code or 0)


def process(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `tenure log` as a process, for tests in which this process holds the lock of the directory, or which need real output streams."""
    command = [sys.executable, "-P", "-m", "tenure", "log", *map(str, arguments)]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=False)


def member(id: str, instance: str | None = None) -> MemberMetadata:
    subscription = with_version(ConsumerProtocolSubscription(["orders"], None), 1)
    assignment = with_version(ConsumerProtocolAssignment([ConsumerProtocolAssignmentTopicPartition("orders", [0, 1, 3])], None), 1)
    return MemberMetadata(id, instance, "client", "/127.0.0.1", 300_000, 45_000, subscription, assignment)


def group_record(group: str, members: Sequence[MemberMetadata], version: int = 3) -> Fact:
    leader = members[0].member_id if members else None
    value = GroupMetadataValue("consumer", 3, "range" if members else None, leader, MOMENT, list(members))
    return with_version(GroupMetadataKey(group), 2), with_version(value, version)


def offset(group: str, partition: int, at: int, topic: str = "orders", metadata: str = "m") -> Fact:
    return with_version(OffsetCommitKey(group, topic, partition), 1), with_version(OffsetCommitValue(at, 7, metadata, MOMENT), 3)


def note(group: str, kind: int, body: Any, seq: int = 0) -> Fact:
    header = NoteHeader(kind, MOMENT, seq, 1, 3, State.PREPARING, 12, 0)
    return with_version(NoteKey(group), 0), write_note(header, body)


def state_change(group: str) -> Fact:
    return note(group, NoteKind.STATE_CHANGE, StateChange(State.STABLE, State.PREPARING, Cause.SESSION_EXPIRED, "gone", None, 2, 1))


def topic(name: str, partitions: int, settings: dict[str, str] | None = None) -> Fact:
    value = TopicValue(TOPIC_ID, partitions, MOMENT, [TopicSetting(key, text) for key, text in (settings or {}).items()])
    return with_version(TopicKey(name), 0), with_version(value, 0)


def groups_of(partition: int, count: int) -> list[str]:
    """Names of groups that live in this partition."""
    names = (name for number in range(10_000) if partition_of(name := f"group-{number}", PARTITIONS) == partition)
    return [next(names) for _ in range(count)]


class Folder:
    """The data directory of a broker that was shut down cleanly."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.group, self.other, self.third = groups_of(0, 3)
        directory = DataDirectory.open(OsDisk(), str(path), 1, "", "process 7", lambda: "id")
        directory.remove_clean_marker()
        self.ends: dict[tuple[str, int], int] = {}
        settings = {"cleanup.policy": "compact"}
        self.append(TOPICS, 0, [topic(OFFSETS, PARTITIONS, settings), topic("orders", 2), topic("gone", 1), (topic("gone", 1)[0], None)])
        self.append(OFFSETS, 0, [group_record(self.group, [member("a", "i1"), member("b")])])
        self.append(OFFSETS, 0, [offset(self.group, 0, 41), offset(self.group, 0, 42), (offset(self.group, 1, 0)[0], None)])
        self.append(OFFSETS, 0, [group_record(self.other, []), (group_record(self.other, [])[0], None)])
        ends = EndOffsets("orders", [PartitionEnds(0, 5, 9)])
        self.append(NOTES, 0, [state_change(self.group), note("", NoteKind.END_OFFSETS, ends)])
        log = self.open("orders", 0, segment_bytes=5_000)
        for number in range(60):
            records = [Record(0, MOMENT + number, b"k%d" % number, b"v" * 200, [(b"h", b"1")]), Record(1, MOMENT + number, None, b"\xff\xfe")]
            log.append(build(records), log.epoch)
        self.close("orders", 0, log)
        directory.checkpoint(self.ends)
        directory.mark_clean()
        directory.close()

    def open(self, name: str, partition: int, segment_bytes: int = 1 << 20) -> Log:
        log, recovery = Log.open(Handles(OsDisk()), str(self.path / f"{name}-{partition}"), segment_bytes, 0, True)
        assert not recovery.cut_bytes
        return log

    def close(self, name: str, partition: int, log: Log) -> None:
        log.flush()
        log.close()
        self.ends[name, partition] = log.next_offset

    def append(self, name: str, partition: int, facts: Sequence[Fact]) -> None:
        log = self.open(name, partition)
        log.append(build_facts(facts, MOMENT + 5), log.epoch)
        self.close(name, partition, log)

    def segment(self, name: str, partition: int = 0, number: int = 0) -> Path:
        return sorted((self.path / f"{name}-{partition}").glob("*.log"))[number]

    def crashed(self) -> None:
        """Remove the mark of a clean shutdown, as after a kill."""
        (self.path / ".kafka_cleanshutdown").unlink()
        (self.path / "recovery-point-offset-checkpoint").unlink()


def first_batch(folder: Folder) -> int:
    """The size of the first batch of topic orders."""
    data = folder.segment("orders").read_bytes()
    return next(iterate_headers(data, 0, len(data))).size


def change(file: Path, at: int, data: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(at, os.SEEK_END if at < 0 else os.SEEK_SET)
        opened.write(data)


def cut(file: Path, size: int) -> None:
    """Truncate the file to `size`; if negative, remove that many bytes from its end."""
    os.truncate(file, size if size >= 0 else file.stat().st_size + size)


def snapshot(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """All properties that a write would change: names, modes, times and bytes."""
    entries = {}
    for path in [folder, *folder.rglob("*")]:
        status = path.lstat()
        entries[str(path)] = (status.st_mode, status.st_mtime_ns, path.read_bytes() if path.is_file() else b"")
    return entries


class Command:
    """Runs `tenure log` in this process, and checks that each run leaves the directory unchanged."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys
        self.errors: list[str] = []

    def run(self, *arguments: object) -> tuple[int, list[str]]:
        before = snapshot(self.folder)
        code = run("log", *arguments)
        output = self._capsys.readouterr()
        assert snapshot(self.folder) == before
        self.errors = output.err.splitlines()
        return code, output.out.splitlines()

    def lines(self, *arguments: object, code: int = 0) -> list[str]:
        exit_code, lines = self.run("dump", *arguments)
        assert exit_code == code, (lines, self.errors)
        return lines

    def records(self, *arguments: object, code: int = 0) -> list[dict[str, Any]]:
        """The JSON lines of the output, without the last one if that reports the error."""
        rows = [json.loads(line) for line in self.lines(*arguments, "--json", code=code)]
        if code:
            assert set(rows.pop()["error"]) == {"code", "message", "hint"}
        return rows

    def verify(self, path: Path | None = None) -> tuple[int, list[dict[str, Any]], dict[str, Any]]:
        """Exit code, problems and summary of verify; the text output must list the same."""
        path = path or self.folder / "data"
        code, lines = self.run("verify", path, "--json")
        *problems, last = [json.loads(line) for line in lines]
        text_code, text = self.run("verify", path)
        assert text_code == code
        lines = [line for line in text if line.startswith(("problem ", "warning ", "and "))]
        assert len(lines) == len(problems)
        for problem, line in zip(problems, lines, strict=True):
            if "what" in problem:
                assert line.startswith(f"{problem['level']} {problem['problem']}: {problem['file']}")
                assert problem["what"] in line
                assert line.endswith(f". To go on: {problem['go_on']}.")
        return code, problems, last["summary"]
