"""The made-up week is a sound data directory, and what it says is what happened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coordinator import read_offset
from history import Rebalance, read_image, read_told, story_of
from pipeline.demo import write_world
from pipeline.demo.commits import write_commits
from protocol.batch import facts_of, iterate
from tests.cli.log_folders import Command

pytestmark = pytest.mark.once  # bytes and disks



@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path, capsys)


def batches(directory: Path, log: str) -> list[tuple[int, int, int, tuple[bytes, bytes | None]]]:
    """Offset, time, epoch and fact of each record, partition after partition."""
    found = []
    for file in sorted(directory.glob(f"{log}-*/*.log")):
        data = file.read_bytes()
        at = 0
        for header in iterate(data, 0, len(data)):
            for number, fact in enumerate(facts_of(data[at : at + header.size])):
                found.append((header.base_offset + number, header.max_timestamp, header.leader_epoch, fact))
            at += header.size
    return found


def test_a_reader_of_the_logs_finds_what_happened(tmp_path: Path) -> None:
    truth = write_world(tmp_path / "world", days=1)
    assert json.loads((tmp_path / "world" / "truth.json").read_text()) == truth
    notes = [told for _, _, _, fact in batches(tmp_path / "world", "__coordinator_notes") if (told := read_told(*fact)) is not None]
    records = batches(tmp_path / "world", "__consumer_offsets")
    for group, known in truth["groups"].items():
        images = [image for offset, at, epoch, fact in records if (image := read_image(group, offset, at, epoch, *fact)) is not None]
        told = [(one.began_ms, one.to_generation) for one in story_of(group, notes, images) if isinstance(one, Rebalance)]
        assert told == [(one["start_ms"], one["to_generation"]) for one in known["episodes"]]


@pytest.mark.parametrize("ours", [True, False])
def test_the_directory_is_sound(tmp_path: Path, command: Command, ours: bool) -> None:
    write_world(command.folder / "data", days=1, notes=ours)
    code, problems, summary = command.problems()
    assert (code, problems, summary["warnings"], summary["stopped_in_order"]) == (0, [], 0, True)


def test_commits_made_of_templates_are_sound(tmp_path: Path, command: Command) -> None:
    data = command.folder / "data"
    written = write_commits(data, records=1_000, groups=7, per_batch=3, partitions=2)
    code, problems, summary = command.problems()
    assert (code, [one["problem"] for one in problems]) == (0, ["meta-missing"])
    assert summary["records"] == written >= 1_000
    commits = [(key, read_offset(value)) for _, _, _, (key, value) in batches(data, "__consumer_offsets") if key[:2] == b"\0\1" and value is not None]
    assert len(set(commits)) == written - 7  # each is another one
