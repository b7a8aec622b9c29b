"""A data directory written by an earlier build of this version: it opens completely, and few files change."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from broker.runtime.start import ExitCode
from tests.running import start
from tests.support.restartable import RestartableBroker
from tests.support.write_directory import WRITTEN, visible_state

pytestmark = pytest.mark.once  # does not depend on the Python version

# The stored directory is old: with these settings no data in it expires.
FOR_EVER = ("offsets.retention.minutes=2147483647", "offsets.retention.check.interval.ms=9000000000000")
BYTES_MAX = 100_000

Snapshot = dict[str, tuple[bytes, int]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return Path(shutil.copytree(WRITTEN / "data", tmp_path / "data"))


def snapshot(folder: Path) -> Snapshot:
    """Every file with its bytes and modification time."""
    return {str(file.relative_to(folder)): (file.read_bytes(), file.stat().st_mtime_ns) for file in folder.rglob("*") if file.is_file()}


def written() -> dict[str, Any]:
    state: dict[str, Any] = json.loads((WRITTEN / "served.json").read_text())
    return state


def test_the_directory_holds_every_kind_of_group_and_is_small() -> None:
    groups = written()["groups"]
    members = [member for group in groups.values() for member in group["members"].values()]
    assert {group["state"] for group in groups.values()} == {"Stable", "Empty"}
    assert {bool(member[0]) for member in members} == {True, False}
    assert {"simple", "expiring", "emptied"} <= groups.keys()
    assert "deleted" not in groups
    assert {"orders", "payments", "__consumer_offsets"} == written()["topics"].keys()
    assert sum(len(data) for data, _ in snapshot(WRITTEN).values()) < BYTES_MAX


@pytest.mark.parametrize("clean", [True, False], ids=["after an orderly stop", "after a crash"])
def test_an_old_directory_serves_the_same_groups_offsets_topics_and_ids(data: Path, clean: bool) -> None:
    if not clean:
        (data / ".kafka_cleanshutdown").unlink()
    with RestartableBroker(data, *FOR_EVER) as restartable:
        assert visible_state(restartable.port) == written()


def test_opening_and_stopping_an_old_directory_rewrites_few_files(data: Path) -> None:
    before = snapshot(data)
    with RestartableBroker(data, *FOR_EVER) as restartable:
        restartable.stop()
    after = snapshot(data)
    assert before.keys() - after.keys() == set()
    changed = {name for name in after if after[name] != before.get(name)}
    # The marker of an orderly stop is written and removed, the lock names its holder, and notes are written about loaded partitions.
    # The older build stored no topic id in the folders of partitions, so `partition.metadata` is added.
    allowed = re.compile(r"\.kafka_cleanshutdown|\.lock|recovery-point-offset-checkpoint|__coordinator_notes-\d/.*|.*/partition\.metadata")
    assert [name for name in sorted(changed) if not allowed.fullmatch(name)] == []
    for name, (stored, _) in before.items():
        if name.startswith("__coordinator_notes") and name.endswith(".log"):
            assert after[name][0].startswith(stored)


@pytest.mark.parametrize("format", ["2", "3", "1000"])
def test_a_directory_of_a_newer_format_is_refused_unchanged(data: Path, format: str) -> None:
    (data / "tenure.format").write_text(f"{format}\n")
    os.utime(data, (0, 0))
    before = snapshot(data)
    process = start("--data", str(data), "--listen", "127.0.0.1:0", "--set", "log.level=error")
    output, errors = process.communicate(timeout=20)
    assert (process.returncode, output) == (ExitCode.DATA, "")
    reason = {
        "2": "has format 2, that of several nodes of an earlier version: start that version once without --nodes, which converts the directory,"
        " and then this one",
        "3": "has format 3, that of several nodes, which a single broker converts only with its folder nodes; restore the folder",
        "1000": "has format 1000 and this version reads up to 3; start the version that wrote it",
    }
    error = f"tenure: data directory {data} {reason[format]}"
    assert errors.splitlines() == [error]
    assert snapshot(data) == before
    assert data.stat().st_mtime == 0
