"""`tenure log verify`: every kind of problem is planted and found, and no file is ever written."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.logs import check, derived_files
from cli.logs.check import Expected, LogCheck
from cli.logs.files import SegmentFile, log_folder, segments_of
from cli.logs.problems import REMEDIES, SHOWN_MAX, WARNINGS
from protocol.batch import Record, build, build_facts, iterate_headers
from tests.cli.log_folders import NOTES, OFFSETS, PARTITIONS, TOPICS, Command, Folder, change, group_record, groups_of, member, offset
from tests.cli.planted import (
    PLANTED,
    Plant,
    an_instance_twice,
    damage_in_an_older_segment,
    remove_indexes,
    removed_segment,
    sealed,
    torn_end,
)

pytestmark = pytest.mark.once  # bytes and disks do not depend on the Python version

KAFKA_WRITTEN = Path(__file__).parent / "kafka_written"
ROOT = Path(__file__).parents[2]


def test_a_directory_written_by_tenure_is_sound(folder: Folder, command: Command) -> None:
    code, problems, summary = command.verify()
    assert (code, problems) == (0, [])
    assert (summary["logs"], summary["sound_logs"], summary["problems"], summary["warnings"]) == (4, 4, 0, 0)
    assert (summary["batches"], summary["records"]) == (65, 132)
    assert (summary["in_use_by"], summary["stopped_in_order"]) == (None, True)
    assert summary["bytes"] == sum(path.stat().st_size for path in folder.path.rglob("*.log"))
    assert summary["segments"] == len(list(folder.path.rglob("*.log"))) > 6
    code, lines = command.run("verify", folder.path)
    assert lines == [
        f"4 of 4 logs sound: {summary['segments']} segments with {summary['bytes']} bytes, 65 batches, 132 records read; 0 problems, 0 warnings"
    ]


def test_a_directory_that_kafka_wrote_and_compacted_is_sound(command: Command) -> None:
    data = command.folder / "data"
    shutil.copytree(KAFKA_WRITTEN, data)
    for partition in (0, 1, 4):  # verify checks the partitions of groups only if all folders exist
        (data / f"{OFFSETS}-{partition}").mkdir()
    code, problems, summary = command.verify()
    assert (code, problems) == (0, [])
    assert (summary["logs"], summary["segments"], summary["stopped_in_order"]) == (6, 5, False)
    (data / f"{OFFSETS}-4").rename(data / f"{OFFSETS}-5")
    (data / f"{OFFSETS}-3").rename(data / f"{OFFSETS}-4")
    (data / f"{OFFSETS}-5").rename(data / f"{OFFSETS}-3")
    code, problems, _ = command.verify()
    assert (code, {problem["problem"] for problem in problems}) == (65, {"wrong-partition"})


def test_a_single_log_can_be_verified(folder: Folder, command: Command) -> None:
    code, problems, summary = command.verify(folder.path / "orders-0")
    assert (code, problems, summary["logs"]) == (0, [], 1)


@pytest.mark.parametrize(("kind", "name", "plant", "reason"), PLANTED, ids=[f"{damage.kind}, {damage.name}" for damage in PLANTED])
def test_every_planted_problem_is_found(kind: str, name: str, plant: Plant, reason: str, folder: Folder, command: Command) -> None:
    file = plant(folder)
    code, problems, summary = command.verify()
    matching = [problem for problem in problems if problem["problem"] == kind]
    assert matching, problems
    assert matching[0]["file"] == str(file)
    assert re.search(reason, matching[0]["what"]), matching[0]["what"]
    assert matching[0]["level"] == ("warning" if kind in WARNINGS else "problem")
    assert code == (0 if all(problem["level"] == "warning" for problem in problems) else 74 if kind == "read-failed" else 65)
    assert summary["problems"] + summary["warnings"] == len(problems)


def test_every_kind_of_problem_is_planted_and_explained() -> None:
    planted = {damage.kind for damage in PLANTED}
    assert planted == set(REMEDIES) - {"being-written"}  # "being-written" needs a running broker: test_log_live.py
    page = (ROOT / "docs/logs.md").read_text().partition("## What did verify find")[2]
    rows = re.findall(r"^\| `([a-z-]+)`( \(a warning\))? \|", page, re.MULTILINE)
    assert {kind for kind, _ in rows} == set(REMEDIES)
    assert {kind for kind, warning in rows if warning} == WARNINGS


@pytest.mark.parametrize(
    ("plant", "kind", "log"),
    [(torn_end, "torn-end", OFFSETS), (damage_in_an_older_segment, "damaged", "orders"), (removed_segment, "offsets-missing", "orders")],
)
def test_a_problem_is_reported_once_and_the_other_logs_stay_sound(plant: Plant, kind: str, log: str, folder: Folder, command: Command) -> None:
    plant(folder)
    _, problems, summary = command.verify()
    assert [(problem["problem"], Path(problem["file"]).parent.name.rpartition("-")[0]) for problem in problems] == [(kind, log)]
    assert (summary["sound_logs"], summary["problems"]) == (3, 1)


def test_a_torn_end_past_the_recovery_point_is_no_loss(folder: Folder, command: Command) -> None:
    (folder.path / ".kafka_cleanshutdown").unlink()
    with folder.segment(OFFSETS).open("ab") as file:
        file.write(folder.segment(OFFSETS).read_bytes()[:70])
    _, problems, _ = command.verify()
    assert [problem["problem"] for problem in problems] == ["torn-end"]


def test_the_reported_position_is_that_of_the_damaged_batch(folder: Folder, command: Command) -> None:
    segment = folder.segment("orders")
    data = segment.read_bytes()
    second = next(iterate_headers(data, 0, len(data))).size
    change(segment, second + 100, b"!")
    _, (problem,), _ = command.verify()
    assert problem["position"] == second


def test_damage_anywhere_in_a_segment_is_found(folder: Folder, command: Command) -> None:
    """Change each byte in turn. Bytes that no checksum covers show as a wrong order, a wrong epoch, or a conflict with the next segment."""
    segment = folder.segment(OFFSETS)
    data = segment.read_bytes()
    first = next(iterate_headers(data, 0, len(data))).size
    for at in range(first, first + 80):
        segment.write_bytes(data)
        change(segment, at, bytes([data[at] ^ 0x55]))
        code, problems, _ = command.verify()
        assert code == 65, at
        assert problems, at


def test_a_compacted_log_may_have_gaps(folder: Folder, command: Command) -> None:
    """As the cleaner leaves it: closed segments with fewer batches, and batches with fewer records than offsets, even none."""
    log = folder.open(OFFSETS, 1, segment_bytes=1)
    groups = groups_of(1, 7)
    for group in groups:
        log.append(build_facts([offset(group, 0, 1), offset(group, 0, 2)], 1), log.epoch)
    folder.close(OFFSETS, 1, log)
    segments = sorted((folder.path / f"{OFFSETS}-1").glob("*.log"))
    for segment in (*segments[1:3], segments[5]):
        segment.write_bytes(b"")
    batch = build([Record(7, 1, *offset(groups[3], 0, 2))], base_offset=6)
    segments[3].write_bytes(batch)
    empty = bytearray(build([Record(9, 1, b"", b"")], base_offset=8)[:61])
    empty[8:12] = (49).to_bytes(4, "big")
    empty[57:61] = bytes(4)
    segments[4].write_bytes(sealed(empty))
    for segment in segments:
        remove_indexes(segment)
    code, problems, _ = command.verify()
    assert (code, problems) == (0, [])


@pytest.mark.parametrize("in_use", [False, True])
def test_an_index_may_be_ahead_of_a_segment_that_grows(in_use: bool, folder: Folder) -> None:
    """A running Kafka adds index entries, so some are for batches that were appended after verify had read the segment's size."""
    index = folder.segment("orders", 0, -1).with_suffix(".index")
    with index.open("ab") as file:
        file.write(b"\0\0\7\0\0\1\0\0")
    log_check = LogCheck(log_folder(str(folder.path / "orders-0")), Expected(in_use=in_use)).run()
    assert [problem.kind for problem in log_check.problems.shown] == ([] if in_use else ["index-wrong"])


@pytest.mark.parametrize("in_use", [False, True])
def test_a_segment_may_be_removed_while_a_log_in_use_is_read(in_use: bool, folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker deletes old segments meanwhile, so the segments that are read need not be adjacent."""

    def listed_before_one_went(path: str) -> list[SegmentFile]:
        segments = segments_of(path)
        Path(segments[1].path).unlink()
        return segments

    monkeypatch.setattr(check, "segments_of", listed_before_one_went)
    log_check = LogCheck(log_folder(str(folder.path / "orders-0")), Expected(in_use=in_use)).run()
    kinds = {problem.kind for problem in log_check.problems.shown} - {"unknown-name"}
    assert kinds == (set() if in_use else {"read-failed"})


@pytest.mark.parametrize("module", [check, derived_files], ids=["after the segment was opened", "before the index is opened"])
@pytest.mark.parametrize("in_use", [False, True])
def test_a_segment_and_its_index_may_be_removed_while_it_is_read(in_use: bool, module: Any, folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_folder(str(folder.path / "orders-0"))
    segment = Path(segments_of(log.path)[0].path)
    open_for_reading = module.open_for_reading

    def open_and_remove(path: str) -> Any:
        if path.endswith(".log"):
            file = open_for_reading(path)
        segment.unlink(missing_ok=True)
        segment.with_suffix(".index").unlink(missing_ok=True)
        return file if path.endswith(".log") else open_for_reading(path)

    monkeypatch.setattr(module, "open_for_reading", open_and_remove)
    kinds = {problem.kind for problem in LogCheck(log, Expected(in_use=in_use)).run().problems.shown} - {"unknown-name"}
    assert kinds == (set() if in_use else {"index-missing"})


def test_a_superseded_invalid_group_record_is_no_problem(folder: Folder, command: Command) -> None:
    an_instance_twice(folder)
    folder.append(OFFSETS, 0, [group_record(folder.third, [member("a", "i")])])
    code, problems, _ = command.verify()
    assert (code, problems) == (0, [])


def test_the_first_problems_of_a_kind_are_shown_and_the_others_counted(folder: Folder, command: Command) -> None:
    key, _ = offset(folder.group, 0, 1)
    folder.append(OFFSETS, 0, [(key, b"\0\3")] * (SHOWN_MAX + 7))
    code, problems, summary = command.verify()
    assert (code, len(problems), summary["problems"]) == (65, SHOWN_MAX + 1, SHOWN_MAX + 7)
    assert problems[-1] == {"more": 7, "problem": "record-unreadable", "file": str(folder.segment(OFFSETS))}
    _, lines = command.run("verify", folder.path)
    assert f"and 7 more record-unreadable in {folder.segment(OFFSETS)}" in lines


def test_verify_reports_how_the_last_run_ended(folder: Folder, command: Command) -> None:
    folder.crashed()
    code, lines = command.run("verify", folder.path)
    assert code == 0
    assert lines[-1].endswith("; it was not stopped in order, so the next start reads the end of each log")
    (folder.path / "turns.3").write_bytes(b"")
    _, lines = command.run("verify", folder.path)
    assert lines[-1].endswith("reads the end of each log, and completes logs from turns.3")


@pytest.mark.parametrize("partition_missing", [False, True])
def test_without_a_registry_the_folders_give_the_number_of_partitions(folder: Folder, command: Command, partition_missing: bool) -> None:
    shutil.rmtree(folder.path / f"{TOPICS}-0")
    for partition in range(1, PARTITIONS):
        (folder.path / f"{OFFSETS}-{partition}").mkdir()
    folder.append(OFFSETS, 2, [offset(groups_of(3, 1)[0], 0, 1)])
    if partition_missing:
        (folder.path / f"{OFFSETS}-1").rmdir()
    _, problems, _ = command.verify()
    wrong = [problem for problem in problems if problem["problem"] == "wrong-partition"]
    assert len(wrong) == (0 if partition_missing else 1)


def test_notes_are_looked_for_in_the_partition_of_their_group(folder: Folder, command: Command) -> None:
    os.rename(folder.path / f"{NOTES}-0", folder.path / f"{NOTES}-1")
    _, problems, _ = command.verify()
    wrong = [problem for problem in problems if problem["problem"] == "wrong-partition"]
    assert [f"group {folder.group} belongs to partition 0" in problem["what"] for problem in wrong] == [True]


def with_log_file(name: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        (path / name).parent.mkdir(parents=True)
        (path / name).write_text("started\n")

    return make


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.mkdir(), "is empty"),
        (lambda path: path.write_text("x"), "is a file; verify accepts a data directory or the folder of one log"),
        (lambda path: (path / "other").mkdir(parents=True), "is neither a data directory nor a log"),
        (lambda path: (path / "foo-1").mkdir(parents=True), "is neither a data directory nor a log"),
        (with_log_file("foo-1/app.log"), "is neither a data directory nor a log"),
    ],
)
def test_verify_reports_a_path_without_logs(make: Callable[[Path], object], line: str, tmp_path: Path, command: Command) -> None:
    make(tmp_path / "data")
    code, lines = command.run("verify", tmp_path / "data")
    assert (code, lines, len(command.errors)) == (66, [], 1)
    assert command.errors[0].startswith(f"tenure: {tmp_path / 'data'} {line}")


def test_a_folder_with_log_files_of_other_programs_is_not_a_log(tmp_path: Path, command: Command) -> None:
    with_log_file("web-1/access.log")(tmp_path)
    code, lines = command.run("verify", tmp_path / "web-1")
    assert (code, lines, len(command.errors)) == (66, [], 1)


def test_empty_logs_count_only_in_a_data_directory(folder: Folder, tmp_path: Path, command: Command) -> None:
    (folder.path / "photos-2").mkdir()
    logs = [path for path in folder.path.iterdir() if path.name.rpartition("-")[2].isdigit()]
    assert f"{len(logs)} of {len(logs)} logs sound" in command.run("verify", folder.path)[1][-1]
    (folder.path / "meta.properties").unlink()
    (folder.path / "tenure.format").unlink()
    assert f"{len(logs) - 1} of {len(logs) - 1} logs sound" in command.run("verify", folder.path)[1][-1]
