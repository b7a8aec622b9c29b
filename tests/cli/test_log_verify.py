"""`tenure log verify`: every kind of problem is planted and found, and nothing is ever written."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.log_problems import GO_ON, SHOWN_MAX, WARNINGS
from protocol.batch import Record, build, build_facts, iterate, stamp
from tests.cli.log_folders import NOTES, OFFSETS, PARTITIONS, TOPICS, Command, Folder, change, cut, groups_of, image, member, offset, topic

KAFKA_WRITTEN = Path(__file__).parent / "kafka_written"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "data")


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path / "data", capsys)


def test_a_directory_that_our_storage_wrote_is_sound(folder: Folder, command: Command) -> None:
    code, problems, summary = command.problems()
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
    shutil.copytree(KAFKA_WRITTEN, command.folder)
    for partition in (0, 1, 4):  # the partitions of groups can only be checked when all are there
        (command.folder / f"{OFFSETS}-{partition}").mkdir()
    code, problems, summary = command.problems()
    assert (code, problems) == (0, [])
    assert (summary["logs"], summary["segments"], summary["stopped_in_order"]) == (6, 5, False)
    (command.folder / f"{OFFSETS}-4").rename(command.folder / f"{OFFSETS}-5")
    (command.folder / f"{OFFSETS}-3").rename(command.folder / f"{OFFSETS}-4")
    (command.folder / f"{OFFSETS}-5").rename(command.folder / f"{OFFSETS}-3")
    code, problems, _ = command.problems()
    assert (code, {problem["problem"] for problem in problems}) == (65, {"wrong-partition"})


def test_one_log_alone_can_be_checked(folder: Folder, command: Command) -> None:
    code, problems, summary = command.problems(folder.path / "orders-0")
    assert (code, problems, summary["logs"]) == (0, [], 1)


# Each plants one problem and returns the file that must be named.


def torn_end(folder: Folder) -> Path:
    folder.crashed()
    cut(folder.segment(OFFSETS), -3)
    return folder.segment(OFFSETS)


def torn_end_of_zeros(folder: Folder) -> Path:
    folder.crashed()
    with folder.segment(OFFSETS).open("ab") as file:
        file.write(bytes(5_000))
    return folder.segment(OFFSETS)


def damaged_in_the_last_segment(folder: Folder) -> Path:
    folder.crashed()
    change(folder.segment(OFFSETS), 70, b"!")
    return folder.segment(OFFSETS)


def damaged_in_an_older_segment(folder: Folder) -> Path:
    change(folder.segment("orders"), 100, b"!")
    return folder.segment("orders")


def damaged_length(folder: Folder) -> Path:
    change(folder.segment("orders"), 8, b"\x7f\xff\xff\xff")
    return folder.segment("orders")


def damaged_magic(folder: Folder) -> Path:
    change(folder.segment("orders"), 16, b"\x01")
    return folder.segment("orders")


def damaged_at_the_end_of_an_older_segment(folder: Folder) -> Path:
    cut(folder.segment("orders"), -10)
    return folder.segment("orders")


def flushed_once_and_gone(folder: Folder) -> Path:
    (folder.path / ".kafka_cleanshutdown").unlink()
    cut(folder.segment(OFFSETS), -3)
    return folder.segment(OFFSETS)


def torn_after_an_orderly_stop(folder: Folder) -> Path:
    (folder.path / "recovery-point-offset-checkpoint").unlink()
    cut(folder.segment(OFFSETS), -3)
    return folder.segment(OFFSETS)


def a_batch_twice(folder: Folder) -> Path:
    segment = folder.segment("orders")
    data = segment.read_bytes()
    first = next(iterate(data, 0, len(data))).size
    segment.write_bytes(data[:first] + data)
    remove_indexes(segment)
    return segment


def remove_indexes(segment: Path) -> None:
    for ending in (".index", ".timeindex"):
        segment.with_suffix(ending).write_bytes(b"")


def segments_that_overlap(folder: Folder) -> Path:
    first, second = folder.segment("orders"), folder.segment("orders", 0, 1)
    data = bytearray(second.read_bytes())
    header = next(iterate(bytes(data), 0, len(data)))
    with first.open("ab") as file:
        file.write(data[: header.size])
    return first


def a_segment_that_is_gone(folder: Folder) -> Path:
    segment = folder.segment("orders", 0, 1)
    for ending in (".log", ".index", ".timeindex"):
        segment.with_suffix(ending).unlink()
    return folder.segment("orders", 0, 1)


def a_batch_that_is_gone(folder: Folder) -> Path:
    segment = folder.segment("orders")
    data = segment.read_bytes()
    sizes = [header.size for header in iterate(data, 0, len(data))]
    segment.write_bytes(data[: sizes[0]] + data[sizes[0] + sizes[1] :])
    remove_indexes(segment)
    return segment


def a_batch_that_is_gone_where_nothing_was_compacted(folder: Folder) -> Path:
    segment = folder.segment(OFFSETS)
    data = segment.read_bytes()
    sizes = [header.size for header in iterate(data, 0, len(data))]
    segment.write_bytes(data[: sizes[0]] + data[sizes[0] + sizes[1] :])
    return segment


def offsets_skipped_in_a_log_that_nobody_knows(folder: Folder) -> Path:
    shutil.rmtree(folder.path / f"{TOPICS}-0")
    return a_batch_that_is_gone(folder)


def an_index_that_leads_nowhere(folder: Folder) -> Path:
    index = folder.segment("orders").with_suffix(".index")
    assert index.stat().st_size
    change(index, 7, bytes([index.read_bytes()[7] ^ 1]))
    return index


def an_index_with_a_wrong_offset(folder: Folder) -> Path:
    index = folder.segment("orders").with_suffix(".index")
    change(index, 3, bytes([index.read_bytes()[3] - 1]))
    return index


def an_index_behind_the_end(folder: Folder) -> Path:
    index = folder.segment("orders").with_suffix(".index")
    with index.open("ab") as file:
        file.write(b"\0\0\7\0\0\1\0\0")
    return index


def an_index_out_of_order(folder: Folder) -> Path:
    index = folder.segment("orders").with_suffix(".index")
    index.write_bytes(index.read_bytes() + index.read_bytes()[-8:])
    return index


def an_index_of_half_an_entry(folder: Folder) -> Path:
    index = folder.segment("orders").with_suffix(".index")
    with index.open("ab") as file:
        file.write(b"123")
    return index


def a_time_index_with_a_wrong_time(folder: Folder) -> Path:
    index = folder.segment("orders").with_suffix(".timeindex")
    change(index, 7, bytes([index.read_bytes()[7] - 1]))
    return index


def a_time_index_behind_the_end(folder: Folder) -> Path:
    index = folder.segment("orders").with_suffix(".timeindex")
    change(index, -2, b"\7\0")
    return index


def an_index_that_is_missing(folder: Folder) -> Path:
    index = folder.segment("orders").with_suffix(".index")
    index.unlink()
    return index


def epochs_of_another_log(folder: Folder) -> Path:
    path = folder.path / f"{OFFSETS}-0/leader-epoch-checkpoint"
    path.write_text("0\n3\n0 0\n1 2\n2 4\n")
    return path


def epochs_that_make_no_sense(folder: Folder) -> Path:
    path = folder.path / f"{OFFSETS}-0/leader-epoch-checkpoint"
    path.write_text("0\n2\n3 0\n1 9\n")
    return path


def epochs_that_did_not_survive(folder: Folder) -> Path:
    path = folder.path / f"{OFFSETS}-0/leader-epoch-checkpoint"
    path.write_text("0\n1\n0 0\n")
    return path


def no_epochs_at_all(folder: Folder) -> Path:
    path = folder.path / f"{OFFSETS}-0/leader-epoch-checkpoint"
    path.unlink()
    return path


def epochs_out_of_order(folder: Folder) -> Path:
    segment = folder.segment(OFFSETS)
    data = bytearray(segment.read_bytes())
    stamp(data, 0, 0, 9)  # outside of the checksum
    segment.write_bytes(data)
    return segment


def a_meta_file_of_nobody(folder: Folder) -> Path:
    (folder.path / "meta.properties").write_text("node.id=1\nversion=1\n")
    return folder.path / "meta.properties"


def no_meta_file(folder: Folder) -> Path:
    (folder.path / "meta.properties").unlink()
    return folder.path / "meta.properties"


def a_newer_format(folder: Folder) -> Path:
    (folder.path / "tenure.format").write_text("2\n")
    return folder.path / "tenure.format"


def a_checkpoint_that_makes_no_sense(folder: Folder) -> Path:
    (folder.path / "recovery-point-offset-checkpoint").write_text("0\n2\norders 0 5\n")
    return folder.path / "recovery-point-offset-checkpoint"


def a_log_that_lost_its_last_segment(folder: Folder) -> Path:
    segment = folder.segment("orders", 0, -1)
    for ending in (".log", ".index", ".timeindex"):
        segment.with_suffix(ending).unlink()
    return folder.path / "recovery-point-offset-checkpoint"


def a_log_that_is_missing(folder: Folder) -> Path:
    shutil.rmtree(folder.path / f"{OFFSETS}-0")
    return folder.path / "recovery-point-offset-checkpoint"


def a_folder_of_no_topic(folder: Folder) -> Path:
    (folder.path / "orders-2").mkdir()
    return folder.path / "orders-2"


def an_interrupted_repair(folder: Folder) -> Path:
    path = folder.path / "orders-0/00000000000000000010.log.rewriting"
    path.write_bytes(b"half")
    return path


def a_segment_of_no_name(folder: Folder) -> Path:
    path = folder.path / "orders-0/copy of it.log"
    path.write_bytes(b"")
    return path


def records_that_are_none(folder: Folder) -> Path:
    log = folder.open("orders", 0)
    batch = bytearray(build([Record(0, 1, b"key", b"value")]))
    batch[57:61] = (1).to_bytes(4, "big")
    batch[61] = 126  # the record's length: longer than the batch
    log.append(with_checksum(batch), log.epoch)
    folder.close("orders", 0, log)
    return folder.segment("orders", 0, -1)


def with_checksum(batch: bytearray) -> bytes:
    import google_crc32c

    batch[17:21] = google_crc32c.value(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


def a_value_that_is_cut_short(folder: Folder) -> Path:
    key, value = offset(folder.group, 0, 1)
    assert value is not None
    folder.append(OFFSETS, 0, [(key, value[:-4])])
    return folder.segment(OFFSETS)


def a_value_of_a_newer_version(folder: Folder) -> Path:
    key, value = offset(folder.group, 0, 1)
    assert value is not None
    folder.append(OFFSETS, 0, [(key, b"\0\5" + value[2:])])
    return folder.segment(OFFSETS)


def a_topic_of_a_newer_version(folder: Folder) -> Path:
    folder.append(TOPICS, 0, [(b"\0\1" + topic("later", 1)[0][2:], b"\0\0")])
    return folder.segment(TOPICS)


def a_kind_of_record_that_nobody_knows(folder: Folder) -> Path:
    folder.append(OFFSETS, 0, [(b"\0\7key", b"\0\0")])
    return folder.segment(OFFSETS)


def a_group_in_the_wrong_partition(folder: Folder) -> Path:
    folder.append(OFFSETS, 0, [offset(groups_of(1, 1)[0], 0, 1)])
    return folder.segment(OFFSETS)


def an_instance_twice(folder: Folder) -> Path:
    folder.append(OFFSETS, 0, [image(folder.third, [member("a", "i"), member("b"), member("c", "i")])])
    return folder.segment(OFFSETS)


def a_file_that_nobody_may_read(folder: Folder) -> Path:
    segment = folder.segment("orders")
    segment.unlink()
    segment.symlink_to(folder.path / "nowhere")
    return segment


PLANTED: list[tuple[str, Callable[[Folder], Path], str]] = [
    ("torn-end", torn_end, r"a batch of \d+ bytes is cut short after \d+ \(\d+ bytes\)"),
    ("torn-end", torn_end_of_zeros, r"zeros where a batch must be \(5000 bytes\)"),
    ("damaged-end", damaged_in_the_last_segment, r"checksum is wrong \(\d+ bytes, sound batches follow\)"),
    ("damaged", damaged_in_an_older_segment, r"checksum is wrong \(\d+ bytes, sound batches follow\)"),
    ("damaged", damaged_length, r"a batch of 2147483659 bytes, more than a request can bring \(\d+ bytes, sound batches follow\)"),
    ("damaged", damaged_magic, r"a batch of magic 1 \(\d+ bytes, sound batches follow\)"),
    ("damaged", damaged_at_the_end_of_an_older_segment, r"is cut short after \d+ \(\d+ bytes to the end of the segment, which is not the last\)"),
    ("damaged", flushed_once_and_gone, r"everything before offset 6 was on the disk once, and from 4 on it is not"),
    ("damaged", torn_after_an_orderly_stop, r"the broker had stopped in order, so this came later"),
    ("damaged", a_batch_twice, r"offset 0 where at least 2 must be"),
    ("segment-overlap", segments_that_overlap, r"offset \d+, but 0{18}\d\d\.log begins at \d+"),
    ("offsets-missing", a_segment_that_is_gone, r"offsets \d+ to \d+ are not there"),
    ("offsets-missing", a_batch_that_is_gone, r"offsets 2 to 3 are not there"),
    ("offsets-missing", a_batch_that_is_gone_where_nothing_was_compacted, r"offsets 1 to 3 are not there, and this segment was never compacted"),
    ("offsets-skipped", offsets_skipped_in_a_log_that_nobody_knows, r"offsets 2 to 3 are not there"),
    ("index-wrong", an_index_that_leads_nowhere, r"it leads to byte \d+, where no batch begins"),
    ("index-wrong", an_index_with_a_wrong_offset, r"it names offset \d+, but the batch that it leads to ends in \d+"),
    ("index-wrong", an_index_behind_the_end, r"behind the end of the segment|which the segment does not have"),
    ("index-wrong", an_index_out_of_order, r"out of order"),
    ("index-wrong", an_index_of_half_an_entry, r"it ends in 3 bytes that are no entry"),
    ("index-wrong", a_time_index_with_a_wrong_time, r"it has \d+ as the largest time up to offset \d+, where the batch has \d+"),
    ("index-wrong", a_time_index_behind_the_end, r"it names offset \d+, which the segment does not have"),
    ("index-missing", an_index_that_is_missing, r"there is no such file"),
    ("epochs-wrong", epochs_of_another_log, r"offsets 1 to 1 are of epoch 1, and it says epoch 0 there"),
    ("epochs-damaged", epochs_that_make_no_sense, r"epochs and offsets do not grow"),
    ("epochs-behind", epochs_that_did_not_survive, r"it does not have epoch 1, which begins at offset 1"),
    ("epochs-behind", no_epochs_at_all, r"there is no such file"),
    ("epoch-order", epochs_out_of_order, r"offset 1 is of epoch 1, written behind epoch 9"),
    ("meta-damaged", a_meta_file_of_nobody, r"it has no cluster\.id"),
    ("meta-missing", no_meta_file, r"there is no such file"),
    ("format-newer", a_newer_format, r"has format 2 and this version reads up to 1"),
    ("checkpoint-damaged", a_checkpoint_that_makes_no_sense, r"it does not have as many lines as it says"),
    ("checkpoint-ahead", a_log_that_lost_its_last_segment, r"orders-0 reached offset 120 and now ends at \d+"),
    ("log-missing", a_log_that_is_missing, rf"{OFFSETS}-0 reached offset 6 and has no folder"),
    ("folder-unknown", a_folder_of_no_topic, r"the registry of topics does not have this partition"),
    ("leftover", an_interrupted_repair, r"left behind by work that was interrupted"),
    ("unknown-name", a_segment_of_no_name, r"a segment is named by twenty digits"),
    ("batch-unreadable", records_that_are_none, r"offsets 120 to 120: "),
    ("record-unreadable", a_value_that_is_cut_short, r"offset 6: cannot be read: OffsetCommitValue v3 is cut short"),
    ("record-newer", a_value_of_a_newer_version, r"offset 6: a value of version 5, newer than version 4"),
    ("record-newer", a_topic_of_a_newer_version, r"offset 4: a key of version 1, newer than version 0"),
    ("record-unknown", a_kind_of_record_that_nobody_knows, r"offset 6: a key of version 7"),
    ("wrong-partition", a_group_in_the_wrong_partition, rf"offset 6: group group-\d+ belongs to partition 1 of {PARTITIONS}"),
    ("instance-twice", an_instance_twice, r"offset 6: members a and c of group group-\d+ both are instance i"),
    ("read-failed", a_file_that_nobody_may_read, r"No such file or directory"),
]


@pytest.mark.parametrize(("kind", "plant", "what"), PLANTED, ids=[plant.__name__ for _, plant, _ in PLANTED])
def test_what_is_planted_is_found(kind: str, plant: Callable[[Folder], Path], what: str, folder: Folder, command: Command) -> None:
    file = plant(folder)
    code, problems, summary = command.problems()
    found = [problem for problem in problems if problem["problem"] == kind]
    assert found, problems
    assert found[0]["file"] == str(file)
    assert re.search(what, found[0]["what"]), found[0]["what"]
    assert found[0]["level"] == ("warning" if kind in WARNINGS else "problem")
    assert code == (0 if all(problem["level"] == "warning" for problem in problems) else 74 if kind == "read-failed" else 65)
    assert summary["problems"] + summary["warnings"] == len(problems)


def test_every_kind_of_problem_is_planted_and_explained() -> None:
    planted = {kind for kind, _, _ in PLANTED}
    assert planted == set(GO_ON) - {"being-written"}  # which needs a broker: test_log_live.py
    page = (ROOT / "docs/logs.md").read_text().partition("## What verify finds")[2]
    rows = re.findall(r"^\| `([a-z-]+)`( \(a warning\))? \|", page, re.MULTILINE)
    assert {kind for kind, _ in rows} == set(GO_ON)
    assert {kind for kind, warning in rows if warning} == WARNINGS


ALONE = {
    torn_end: [("torn-end", OFFSETS)],
    damaged_in_an_older_segment: [("damaged", "orders")],
    a_segment_that_is_gone: [("offsets-missing", "orders")],
}


@pytest.mark.parametrize("plant", ALONE, ids=lambda plant: plant.__name__)
def test_one_problem_is_told_once_and_the_others_logs_stay_sound(plant: Callable[[Folder], Path], folder: Folder, command: Command) -> None:
    plant(folder)
    _, problems, summary = command.problems()
    assert [(problem["problem"], Path(problem["file"]).parent.name.rpartition("-")[0]) for problem in problems] == ALONE[plant]
    assert (summary["sound_logs"], summary["problems"]) == (3, 1)


def test_a_position_leads_to_the_damage(folder: Folder, command: Command) -> None:
    segment = folder.segment("orders")
    data = segment.read_bytes()
    second = next(iterate(data, 0, len(data))).size
    change(segment, second + 100, b"!")
    _, (problem,), _ = command.problems()
    assert problem["position"] == second


def test_damage_anywhere_in_a_segment_is_found(folder: Folder, command: Command) -> None:
    """One byte after the other: what the checksum does not cover, order, epochs and the next segment give away."""
    segment = folder.segment(OFFSETS)
    data = segment.read_bytes()
    first = next(iterate(data, 0, len(data))).size
    for at in range(first, first + 80):
        segment.write_bytes(data)
        change(segment, at, bytes([data[at] ^ 0x55]))
        code, problems, _ = command.problems()
        assert code == 65, at
        assert problems, at


def test_a_compacted_log_may_have_holes(folder: Folder, command: Command) -> None:
    """As the cleaner leaves it: closed segments with fewer batches, and batches with fewer records than offsets, even none."""
    log = folder.open(OFFSETS, 1, segment_bytes=1)
    groups = groups_of(1, 6)
    for group in groups:
        log.append(build_facts([offset(group, 0, 1), offset(group, 0, 2)], 1), log.epoch)
    folder.close(OFFSETS, 1, log)
    segments = sorted((folder.path / f"{OFFSETS}-1").glob("*.log"))
    for segment in segments[1:3]:
        segment.write_bytes(b"")
    kept = build([Record(7, 1, *offset(groups[3], 0, 2))], base_offset=6)
    segments[3].write_bytes(kept)
    empty = bytearray(build([Record(9, 1, b"", b"")], base_offset=8)[:61])
    empty[8:12] = (49).to_bytes(4, "big")
    empty[57:61] = bytes(4)
    segments[4].write_bytes(with_checksum(empty))
    for segment in segments:
        remove_indexes(segment)
    code, problems, _ = command.problems()
    assert (code, problems) == (0, [])


def test_an_image_that_was_replaced_is_no_problem_any_more(folder: Folder, command: Command) -> None:
    an_instance_twice(folder)
    folder.append(OFFSETS, 0, [image(folder.third, [member("a", "i")])])
    code, problems, _ = command.problems()
    assert (code, problems) == (0, [])


def test_of_many_problems_of_one_kind_the_first_are_told_and_the_others_counted(folder: Folder, command: Command) -> None:
    key, _ = offset(folder.group, 0, 1)
    folder.append(OFFSETS, 0, [(key, b"\0\3")] * (SHOWN_MAX + 7))
    code, problems, summary = command.problems()
    assert (code, len(problems), summary["problems"]) == (65, SHOWN_MAX + 1, SHOWN_MAX + 7)
    assert problems[-1] == {"more": 7, "problem": "record-unreadable", "file": str(folder.segment(OFFSETS))}
    _, lines = command.run("verify", folder.path)
    assert f"and 7 more record-unreadable in {folder.segment(OFFSETS)}" in lines


def test_what_happened_to_the_last_stop_is_said(folder: Folder, command: Command) -> None:
    folder.crashed()
    code, lines = command.run("verify", folder.path)
    assert code == 0
    assert lines[-1].endswith("; it was not stopped in order, so the next start reads the end of each log")


@pytest.mark.parametrize("partition_missing", [False, True])
def test_without_a_registry_the_folders_say_how_many_partitions_there_are(folder: Folder, command: Command, partition_missing: bool) -> None:
    shutil.rmtree(folder.path / f"{TOPICS}-0")
    for partition in range(1, PARTITIONS):
        (folder.path / f"{OFFSETS}-{partition}").mkdir()
    folder.append(OFFSETS, 2, [offset(groups_of(3, 1)[0], 0, 1)])
    if partition_missing:
        (folder.path / f"{OFFSETS}-1").rmdir()
    _, problems, _ = command.problems()
    wrong = [problem for problem in problems if problem["problem"] == "wrong-partition"]
    assert len(wrong) == (0 if partition_missing else 1)


def test_notes_are_looked_for_in_the_partition_of_their_group(folder: Folder, command: Command) -> None:
    os.rename(folder.path / f"{NOTES}-0", folder.path / f"{NOTES}-1")
    _, problems, _ = command.problems()
    wrong = [problem for problem in problems if problem["problem"] == "wrong-partition"]
    assert [f"group {folder.group} belongs to partition 0" in problem["what"] for problem in wrong] == [True]


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.mkdir(), "is empty"),
        (lambda path: path.write_text("x"), "is a file; verify takes a data directory or the folder of one log"),
        (lambda path: (path / "other").mkdir(parents=True), "is neither a data directory nor a log"),
    ],
)
def test_where_there_is_nothing_to_check_it_says_so(
    make: Callable[[Path], object], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "data")
    command = Command(tmp_path, capsys)
    code, lines = command.run("verify", tmp_path / "data")
    assert (code, lines, len(command.errors)) == (66, [], 1)
    assert command.errors[0].startswith(f"tenure: {tmp_path / 'data'} {line}")
