"""An offset that was removed (with its group, its topic, by an administrator or by expiry) has no status and no lag until it is committed again."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import cli
from coordinator import Commit
from pipeline.report import write_report
from pipeline.rows import Group
from pipeline.schema import rows_of
from pipeline.tables import Tables
from pipeline.virtual import World
from protocol.messages.offset_commit import OffsetCommitRequestPartition
from tests.pipeline.building import analyzed
from tests.pipeline.scenarios import GROUP, MINUTE_MS, write_script
from tests.pipeline.stopped import PARTITIONS, note_ends, record_count, stopped_group

pytestmark = pytest.mark.once  # no dependence on the Python version

def group_deleted(world: World) -> None:
    assert world.delete_group(GROUP) == 0


def offsets_deleted(world: World) -> None:
    assert world.delete_offsets(GROUP, [("t", number) for number in range(PARTITIONS)]) == 0


def failing(capsys: pytest.CaptureFixture[str], out: Path, ruleset: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = cli.main(["analyze", "status", "--out", str(out), "--ruleset", ruleset, "--fail-on", "ERR", "--json"])
    return code, json.loads(capsys.readouterr().out)


def the_group(made: Tables) -> Group:
    (row,) = rows_of(Group, made.read("groups"))
    return row


@pytest.mark.parametrize("sliced", [False, True], ids=["one run", "two runs"])
@pytest.mark.parametrize("remove", [group_deleted, offsets_deleted])
def test_a_removed_offset_has_no_status_and_no_lag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], remove: Callable[[World], None], sliced: bool
) -> None:
    def before(world: World) -> None:
        stopped_group(world)

    def after(world: World) -> None:
        stopped_group(world)
        remove(world)
        world.run(5 * MINUTE_MS)
        note_ends(world, 1_000_001)

    for name, script in (("before", before), ("after", after)):
        write_script(script, tmp_path / name)
    out = tmp_path / "out"
    until: Sequence[dict[int, int]] = [{0: record_count(tmp_path / "before")}] if sliced else []
    if sliced:
        made = analyzed(out, tmp_path / "after", until, finish=False)
        code, document = failing(capsys, out, "burrow")
        assert (code, {row["status"] for row in document["partitions"]}) == (2, {"STOP"})
        assert the_group(made).lag is not None
    made = analyzed(out, tmp_path / "after", [])
    for ruleset in ("burrow", "tenure"):
        assert failing(capsys, out, ruleset) == (0, {"ruleset": ruleset, "partitions": [], "failing": 0})
    assert made.read("status").num_rows  # its history remains
    row = the_group(made)
    assert (row.worst_status, row.lag, row.time_lag_ms, row.commits > 0) == (None, None, None, True)
    write_report(made, tmp_path / "report.html", tmp_path / "report.json", version="9.9")
    report = json.loads((tmp_path / "report.json").read_text())
    assert [change for change in report["first"] if "stalled" in change["title"] or "deleted before" in change["title"]] == []
    assert not any("stalled partitions" in sentence for sentence in report["summary"]["sentences"])


@pytest.mark.parametrize("cut", [None, 0, 1], ids=["one run", "a run before the removal", "a run before the new commit"])
def test_an_offset_that_is_committed_again_has_a_status_again(tmp_path: Path, capsys: pytest.CaptureFixture[str], cut: int | None) -> None:
    def script(world: World, steps: int = 2) -> None:
        stopped_group(world)
        if steps > 0:
            assert world.delete_offsets(GROUP, [("t", 0), ("t", 1)]) == 0
            world.run(MINUTE_MS)
        if steps > 1:
            commit = Commit(GROUP, -1, "", None, [("t", [OffsetCommitRequestPartition(1, 5, -1, "")])])
            assert world.commit(commit) == 0
            note_ends(world, 1_000_002)

    for steps in (0, 1, 2):
        write_script(lambda world, steps=steps: script(world, steps), tmp_path / f"{steps}")  # type: ignore[misc]
    until = [] if cut is None else [{0: record_count(tmp_path / f"{cut}")}]
    out = tmp_path / "out"
    analyzed(out, tmp_path / "2", until)
    _, document = failing(capsys, out, "tenure")
    assert [row["topic_partition"] for row in document["partitions"]] == list(range(1, PARTITIONS))
    (row,) = [row for row in document["partitions"] if row["topic_partition"] == 1]
    assert row["lag"] == 1_000_002 - 5
