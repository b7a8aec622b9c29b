"""`tenure log` on the data directory of several nodes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from storage.directory import OWNERS_FILE
from tests.cli.log_folders import TOPICS, cut, process, snapshot
from tests.cli.planted import write_newer_turns
from tests.nodes.cluster import Nodes

pytestmark = pytest.mark.once  # processes do not depend on the Python version


def verify(path: Path) -> tuple[int, list[dict[str, Any]], dict[str, Any]]:
    """Exit code, problems and summary of verify, which changes nothing."""
    before = snapshot(path)
    done = process("verify", path, "--json")
    assert done.stderr == ""
    assert snapshot(path) == before
    *problems, last = [json.loads(line) for line in done.stdout.splitlines()]
    return done.returncode, problems, last["summary"]


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two directories of a cluster of two nodes: after an orderly stop, and a copy made while it ran, as after a crash."""
    path = tmp_path_factory.mktemp("nodes")
    nodes = Nodes(path / "stopped", 2)
    try:
        nodes.start()
        with nodes.client(1) as client:
            reply = client.ask(CreateTopicsRequest([CreatableTopic("orders", 2, 1, [], [])], 5_000, False), 5)
            assert reply.topics[0].error_code == 0
        done = process("verify", path / "stopped", "--json")
        summary = json.loads(done.stdout)["summary"]
        assert (done.returncode, summary["problems"], summary["stopped_in_order"]) == (0, 0, False)
        first, second = summary["in_use_by"].split(" and ")
        assert (first[:16], second[:16]) == ("node 1 (process ", "node 2 (process ")
        dumped = process("dump", path / "stopped", "--kind", "topics", "--json")
        assert (dumped.returncode, dumped.stderr) == (0, "")
        assert "orders" in {json.loads(line)["key"]["name"] for line in dumped.stdout.splitlines()}
        shutil.copytree(path / "stopped", path / "crashed", ignore=shutil.ignore_patterns("*.sock"))
        assert nodes.stop() == 0
    finally:
        nodes.close()
    return {"stopped": path / "stopped", "crashed": path / "crashed"}


@pytest.fixture
def stopped(directories: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(directories["stopped"], tmp_path / "data"))


@pytest.fixture
def crashed(directories: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(directories["crashed"], tmp_path / "data"))


def segment(path: Path) -> Path:
    return next((path / f"{TOPICS}-0").glob("*.log"))


def test_the_directory_of_nodes_that_stopped_in_order_is_sound(stopped: Path) -> None:
    code, problems, summary = verify(stopped)
    assert (code, problems, summary["in_use_by"], summary["stopped_in_order"]) == (0, [], None, True)
    assert summary["logs"] == summary["sound_logs"] >= 1
    log = verify(segment(stopped).parent)[2]
    assert (log["logs"], log["stopped_in_order"]) == (1, True)


@pytest.mark.parametrize("size", [-1, 0])
def test_a_lost_end_of_a_log_that_its_last_writer_flushed_is_reported(stopped: Path, size: int) -> None:
    cut(segment(stopped), size)
    code, problems, _ = verify(stopped)
    assert code == 65
    (ahead,) = [problem for problem in problems if problem["problem"] == "checkpoint-ahead"]
    assert Path(ahead["file"]).parent.parent == stopped / "nodes"
    assert [problem["problem"] for problem in problems if problem["problem"] == "damaged"] == ["damaged"] * (size < 0)


def test_a_torn_end_after_a_crash_is_no_damage(crashed: Path) -> None:
    data = segment(crashed).read_bytes()
    with segment(crashed).open("ab") as file:
        file.write(data[:70])
    code, problems, summary = verify(crashed)
    assert summary["stopped_in_order"] is False
    assert (code, [problem["problem"] for problem in problems]) == (65, ["torn-end"])


def test_damaged_files_of_nodes_are_named(stopped: Path) -> None:
    (stopped / "nodes" / "2" / "recovery-point-offset-checkpoint").write_text("x\n")
    write_newer_turns(stopped / "nodes" / "2")
    (stopped / OWNERS_FILE).unlink()
    kinds = {problem["problem"]: problem["file"] for problem in verify(stopped)[1]}
    assert kinds["checkpoint-damaged"] == str(stopped / "nodes" / "2" / "recovery-point-offset-checkpoint")
    assert kinds["turns-newer"] == str(stopped / "nodes" / "2")
    assert kinds["owners-damaged"] == str(stopped / OWNERS_FILE)
