"""The made-up week is a sound data directory, and its records match its events."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

import cli
from coordinator import read_offset
from history import NotesMissing, Rebalance, RebalancesMissing, read_group_record, read_note_record, story_of
from pipeline.demo import write_world
from pipeline.demo.cast import HOSTILE_GROUP
from pipeline.demo.commits import write_commits
from pipeline.demo.topics import DAY_MS
from pipeline.demo.world import TRUTH
from project.live_members import living
from protocol.batch import facts_of, iterate_headers
from protocol.messages.coordinator_notes import EndOffsets
from protocol.records import read_note
from storage import OsDisk
from storage.checkpoints import RECOVERY_POINTS, read_offsets
from tests.cli.log_folders import Command
from tests.running import broker, wait_until

pytestmark = pytest.mark.once  # bytes and disks do not depend on the Python version


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path, capsys)


def batches(directory: Path, log: str) -> list[tuple[int, int, int, tuple[bytes, bytes | None]]]:
    """Offset, time, epoch and fact of each record, log after log."""
    facts = []
    for file in sorted(directory.glob(f"{log}/*.log")):
        data = file.read_bytes()
        at = 0
        for header in iterate_headers(data, 0, len(data)):
            for number, fact in enumerate(facts_of(data[at : at + header.size])):
                facts.append((header.base_offset + number, header.max_timestamp, header.leader_epoch, fact))
            at += header.size
    return facts


@pytest.fixture(scope="module")
def log_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first day of the made-up week until the afternoon, dated yesterday, so that a broker deletes nothing as too old."""
    directory = tmp_path_factory.mktemp("world")
    write_world(directory / "data", days=0.7, start_ms=int(time.time() * 1000) - DAY_MS, hostile=True)
    return directory


@pytest.fixture(scope="module")
def truth(log_folder: Path) -> dict[str, Any]:
    truth_document: dict[str, Any] = json.loads((log_folder / "data" / TRUTH).read_text())
    return truth_document


def test_the_logs_of_the_demo_have_its_events(log_folder: Path, truth: dict[str, Any]) -> None:
    for group, group_truth in truth["groups"].items():
        records = batches(log_folder / "data", f"__consumer_offsets-{group_truth['partition']}")
        noted = [read_note_record(*fact) for _, _, _, fact in batches(log_folder / "data", f"__coordinator_notes-{group_truth['partition']}")]
        notes = [note for note in noted if note is not None]
        group_records = [group_record for offset, at, epoch, fact in records if (group_record := read_group_record(group, offset, at, epoch, *fact)) is not None]
        story = story_of(group, notes, group_records)
        assert not [entry for entry in story if isinstance(entry, (RebalancesMissing, NotesMissing))]
        rebalances = [(entry.began_ms, entry.to_generation) for entry in story if isinstance(entry, Rebalance)]
        assert rebalances == [(episode["start_ms"], episode["to_generation"]) for episode in group_truth["episodes"]]


def test_the_truth_file_of_the_demo_names_avoidable_rebalances(truth: dict[str, Any]) -> None:
    hostile = truth["groups"][HOSTILE_GROUP]
    assert (len(hostile["episodes"]), hostile["avoidable"], hostile["rebalances_if_static"]) == (5, 4, 1)
    (deploy,) = [deploy for deploy in truth["deploys"] if deploy["group"] == "search-indexer"]
    assert deploy["static"]
    assert deploy["rebalances"] == 2 * deploy["restarted"] == 16  # although static: the session is too short for the restarts


def test_notes_of_end_offsets_match_the_ends_of_the_logs(log_folder: Path, truth: dict[str, Any]) -> None:
    noted: dict[str, dict[int, int]] = {}
    for _, _, _, (_, value) in batches(log_folder / "data", "__coordinator_notes-*"):
        body = read_note(value or b"")[1]
        if isinstance(body, EndOffsets):
            noted.setdefault(body.topic, {}).update({partition.partition: partition.end for partition in body.partitions})
    assert set(noted) == set(truth["topics"])
    for (topic, partition), end in read_offsets(OsDisk(), str(log_folder / "data" / RECOVERY_POINTS)).items():
        if not topic.startswith("__"):
            assert truth["topics"][topic][partition]["end"] == end
            assert 0 <= end - noted[topic][partition] < 120_000


def test_the_demo_directory_is_sound(log_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, problems, summary = Command(log_folder, capsys).verify()
    assert (code, problems, summary["warnings"], summary["stopped_in_order"]) == (0, [], 0, True)


def test_a_directory_of_kafka_has_no_notes(tmp_path: Path, command: Command) -> None:
    write_world(command.folder / "data", days=0.05, notes=False, hostile=True)
    code, problems, _ = command.verify()
    assert (code, problems) == (0, [])
    names = {path.name for path in (command.folder / "data").iterdir()}
    assert not [name for name in names if "notes" in name or "tenure" in name]
    assert "replication-offset-checkpoint" in names


def test_a_broker_serves_the_demo_directory(log_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(log_folder / "data", tmp_path / "data")
    with broker("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")) as started:
        assert cli.main(["group", "history", "search-indexer", "--bootstrap", f"127.0.0.1:{started.port}", "--limit", "0"]) == 0
        history = capsys.readouterr().out
        assert cli.main(["group", "list", "--bootstrap", f"127.0.0.1:{started.port}", "--json"]) == 0
        listed = {group["group"] for group in json.loads(capsys.readouterr().out)["groups"]}
    assert history.count("rebalance, generation") == 17
    assert {HOSTILE_GROUP, "checkout", "payments"} <= listed


@contextmanager
def living_members(truth: dict[str, Any], port: int) -> Iterator[list[str]]:
    """Run the members of the demo in a thread; yields the ids of those that are gone."""
    gone: list[str] = []
    started: Queue[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Queue()

    async def run() -> None:
        ended = asyncio.Event()
        tasks = [asyncio.create_task(member.run("127.0.0.1", port, lambda member, code: gone.append(member.member_id))) for member in living(truth)]
        started.put((asyncio.get_running_loop(), ended))
        await ended.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(asyncio.run, run())
        loop, ended = started.get(timeout=10)
        try:
            yield gone
        finally:
            loop.call_soon_threadsafe(ended.set)
            running.result(30)


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    cli.main([*words, "--json"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def members_of(truth: dict[str, Any], group: str) -> list[str]:
    return sorted(member["member"] for member in truth["groups"][group]["members"])


def test_the_members_of_the_demo_rejoin_as_they_are(log_folder: Path, truth: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(log_folder / "data", tmp_path / "data")
    group = "checkout"
    with broker("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")) as started, living_members(truth, started.port) as gone:
        address = f"127.0.0.1:{started.port}"
        assert asked(capsys, "group", "rebalance", group, "--reason", "a look", "--yes", "--bootstrap", address).get("error") is None

        def last() -> dict[str, Any]:
            entries = asked(capsys, "group", "history", group, "--bootstrap", address)["entries"]
            rebalance: dict[str, Any] = [entry for entry in entries if entry["kind"] == "rebalance"][-1]
            return rebalance

        wait_until(lambda: (last()["cause"], last()["end"]) == ("requested", "stable"), 60)
        rebalance = last()
        described = asked(capsys, "group", "members", group, "--bootstrap", address)
    assert (rebalance["members_before"], rebalance["members_after"], rebalance["gone"], gone) == (20, 20, [], [])
    assert sorted(member["member_id"] for member in described["members"]) == members_of(truth, group)


@pytest.mark.clients  # waits for a session
def test_the_groups_of_the_demo_live_while_it_serves(log_folder: Path, truth: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(log_folder / "data", tmp_path / "data")
    group = "search-indexer"
    session_ms = max(member["session_ms"] for member in truth["groups"][group]["members"])
    with broker("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")) as started, living_members(truth, started.port) as gone:
        time.sleep(1.5 * session_ms / 1000)
        described = asked(capsys, "group", "members", group, "--bootstrap", f"127.0.0.1:{started.port}")
    assert sorted(member["member_id"] for member in described["members"]) == members_of(truth, group)
    assert len(members_of(truth, group)) == 8
    assert not gone


def test_hostile_names_are_in_the_demo_only_when_asked_for(tmp_path: Path) -> None:
    assert HOSTILE_GROUP not in write_world(tmp_path / "data", days=0.01)["groups"]


def test_commits_made_of_templates_are_sound(tmp_path: Path, command: Command) -> None:
    data = command.folder / "data"
    written = write_commits(data, records=1_000, groups=7, per_batch=3, partitions=2)
    code, problems, summary = command.verify()
    assert (code, [problem["problem"] for problem in problems]) == (0, ["meta-missing"])
    assert summary["records"] == written >= 1_000
    commits = [(key, read_offset(value)) for _, _, _, (key, value) in batches(data, "__consumer_offsets-*") if key[:2] == b"\0\1" and value is not None]
    assert len(set(commits)) == written - 7  # each record but seven is a commit, and no two are equal
