"""`tenure log dump`: the contents of a log as text and as JSON, and one line for each unreadable part."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.batch import iterate_headers
from protocol.messages.consumer_offsets import OffsetCommitValue
from protocol.records import with_version
from tests.cli.log_folders import MOMENT, NOTES, OFFSETS, TOPICS, Command, Folder, change, cut, first_batch, offset, process

pytestmark = pytest.mark.once  # no dependence on the Python version

KAFKA_WRITTEN = Path(__file__).parent / "kafka_written"

# As text


def test_a_directory_is_printed_log_by_log_and_segment_by_segment(folder: Folder, command: Command) -> None:
    lines = command.lines(folder.path)
    headings = [line for line in lines if line.startswith("/")]
    assert headings == [
        str(path) for name in (f"{OFFSETS}-0", f"{NOTES}-0", f"{TOPICS}-0", "orders-0") for path in sorted((folder.path / name).glob("*.log"))
    ]
    assert len(headings) > 6
    offsets = [int(line.split("  ")[0]) for line in lines[lines.index(headings[3]) :] if re.match(r"\d+  ", line)]
    assert offsets == list(range(120))


def test_groups_offsets_and_tombstones_are_printed_decoded(folder: Folder, command: Command) -> None:
    at, group, other_group = "2023-11-14T22:13:20.005Z", folder.group, folder.other
    assert command.lines(folder.path / f"{OFFSETS}-0") == [
        str(folder.segment(OFFSETS)),
        f"0  {at}  group {group}: generation 3, 2 members, type consumer, protocol range, leader a, state since 2023-11-14T22:13:20.000Z",
        "    member a, instance i1: client client at /127.0.0.1, session timeout 45000 ms, rebalance timeout 300000 ms",
        "        subscribes orders",
        "        assigned orders: 0-1 3",
        "    member b: client client at /127.0.0.1, session timeout 45000 ms, rebalance timeout 300000 ms",
        "        subscribes orders",
        "        assigned orders: 0-1 3",
        f"1  {at}  offset {group} orders-0: 41, committed 2023-11-14T22:13:20.000Z, epoch 7, metadata m",
        f"2  {at}  offset {group} orders-0: 42, committed 2023-11-14T22:13:20.000Z, epoch 7, metadata m",
        f"3  {at}  offset {group} orders-1: removed",
        f"4  {at}  group {other_group}: generation 3, 0 members, type consumer, state since 2023-11-14T22:13:20.000Z",
        f"5  {at}  group {other_group}: removed",
    ]


def test_fields_missing_from_older_offset_records_are_omitted(folder: Folder, command: Command) -> None:
    key, _ = offset(folder.group, 0, 1)
    folder.append(OFFSETS, 0, [(key, with_version(OffsetCommitValue(5, commit_timestamp=MOMENT), 0))])
    assert command.lines(folder.path / f"{OFFSETS}-0")[-1].endswith("orders-0: 5, committed 2023-11-14T22:13:20.000Z")


def test_notes_and_topics_are_printed_decoded(folder: Folder, command: Command) -> None:
    at = "2023-11-14T22:13:20.005Z"
    common = "2023-11-14T22:13:20.000Z, generation 3, state PREPARING"
    note_fields = "seq 0, coordinator_epoch 1, offsets_log_offset 12"
    assert command.lines(folder.path / f"{NOTES}-0")[1:] == [
        f"0  {at}  note {folder.group}: StateChange at {common}: from_state STABLE, to_state PREPARING, reason SESSION_EXPIRED, "
        f"member gone, text -, members 2, awaiting 1; {note_fields}",
        f"1  {at}  note of the coordinator: EndOffsets at {common}: topic orders, partitions [{{partition 0, log_start 5, end 9}}], unchanged_ms -1; {note_fields}",
    ]
    assert command.lines(folder.path / f"{TOPICS}-0")[1:] == [
        f"0  {at}  topic {OFFSETS}: 4 partitions, id AAECAwQFBgcICQoLDA0ODw, created 2023-11-14T22:13:20.000Z, cleanup.policy=compact",
        f"1  {at}  topic orders: 2 partitions, id AAECAwQFBgcICQoLDA0ODw, created 2023-11-14T22:13:20.000Z",
        f"2  {at}  topic gone: 1 partition, id AAECAwQFBgcICQoLDA0ODw, created 2023-11-14T22:13:20.000Z",
        f"3  {at}  topic gone: removed",
    ]


def test_other_records_are_text_or_hex(folder: Folder, command: Command) -> None:
    lines = command.lines(folder.path / "orders-0", "--limit", 2, "--batches")
    assert lines == [
        str(folder.segment("orders")),
        f"batch at byte 0: {first_batch(folder)} bytes, offsets 0 to 1, 2 records, epoch 0, none, 2023-11-14T22:13:20.000Z",
        f"0  2023-11-14T22:13:20.000Z  k0 = {'v' * 200}  headers h=1",
        "1  2023-11-14T22:13:20.000Z  - = 0xfffe",
    ]


# Filters and paths


def places_of(records: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(record["log"], record["offset"]) for record in records]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["--group", "GROUP"], [(OFFSETS, 0), (OFFSETS, 1), (OFFSETS, 2), (OFFSETS, 3), (NOTES, 0)]),
        (["--group", "GROUP", "--kind", "offsets"], [(OFFSETS, 1), (OFFSETS, 2), (OFFSETS, 3)]),
        (["--group", "GROUP", "--kind", "offsets", "--from-offset", "2"], [(OFFSETS, 2), (OFFSETS, 3)]),
        (["--group", "nobody"], []),
        (["--kind", "groups"], [(OFFSETS, 0), (OFFSETS, 4), (OFFSETS, 5)]),
        (["--kind", "notes"], [(NOTES, 0), (NOTES, 1)]),
        (["--kind", "notes", "--topic", "orders"], [(NOTES, 1)]),
        (["--kind", "topics"], [(TOPICS, 0), (TOPICS, 1), (TOPICS, 2), (TOPICS, 3)]),
        (["--kind", "topics", "--topic", "gone"], [(TOPICS, 2), (TOPICS, 3)]),
        (["--topic", "orders", "--limit", "6"], [(OFFSETS, 1), (OFFSETS, 2), (OFFSETS, 3), (NOTES, 1), (TOPICS, 1), ("orders", 0)]),
        (["--kind", "records", "--limit", "2"], [("orders", 0), ("orders", 1)]),
        (["--kind", "records", "--from-offset", "118"], [("orders", 118), ("orders", 119)]),
        (["--limit", "0"], []),
        (["--limit", "7"], [*((OFFSETS, number) for number in range(6)), (NOTES, 0)]),
    ],
)
def test_filters_keep_matching_records(filters: list[str], expected: list[tuple[str, int]], folder: Folder, command: Command) -> None:
    arguments = [folder.group if word == "GROUP" else word for word in filters]
    assert places_of(command.records(folder.path, *arguments)) == expected
    words = [int(match[1]) for line in command.lines(folder.path, *arguments) if (match := re.match(r"(\d+)  ", line))]
    assert words == [offset for _, offset in expected]


def test_a_filter_omits_batches_without_matches(folder: Folder, command: Command) -> None:
    rows = command.records(folder.path, "--group", folder.group, "--kind", "offsets", "--batches")
    assert [row["kind"] for row in rows] == ["batch", "offset", "offset", "offset"]


def test_several_paths_are_printed_in_their_order(folder: Folder, command: Command) -> None:
    records = command.records(folder.path / f"{TOPICS}-0", folder.segment(NOTES))
    assert [record["log"] for record in records] == [TOPICS] * 4 + [NOTES] * 2


def test_a_segment_outside_its_folder_can_be_named(folder: Folder, command: Command, tmp_path: Path) -> None:
    copy = tmp_path / "copied"
    copy.write_bytes(folder.segment(OFFSETS).read_bytes())
    assert {record["kind"] for record in command.records(copy)} == {"record"}
    assert [record["kind"] for record in command.records(copy, "--log", OFFSETS)][:2] == ["group", "offset"]
    assert command.records(copy, "--log", f"{OFFSETS}-3") == command.records(copy, "--log", OFFSETS)


def test_a_relative_path_is_accepted(folder: Folder, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.path / f"{OFFSETS}-0")
    assert len(command.records(f"{0:020d}.log", "--kind", "groups")) == 3
    assert len(command.records(".", "--kind", "groups")) == 3
    monkeypatch.chdir(folder.path)
    assert len(command.records(".", "--kind", "groups")) == 3


def test_a_segment_written_by_kafka_is_printed(command: Command) -> None:
    records = command.records(KAFKA_WRITTEN, "--group", "static", "--kind", "groups")
    assert [(record["value"]["generation"], len(record["value"]["members"])) for record in records] == [(0, 0), (1, 1)]
    (only,) = records[1]["value"]["members"]
    assert (only["group_instance_id"], only["subscription"]["topics"]) == ("i1", ["orders"])
    assert only["assignment"]["assigned_partitions"] == [{"topic": "orders", "partitions": [0, 1, 2]}]
    offsets = command.records(KAFKA_WRITTEN, "--group", "static", "--kind", "offsets")
    assert {(record["value"]["version"], record["value"]["topic_id"]) for record in offsets} == {(4, "RRvgbe0GToapKc4xcjQhAg")}
    marks = [record["key"] for record in command.records(KAFKA_WRITTEN, "--kind", "records") if record["kind"] == "control"]
    assert marks == ["COMMIT", "ABORT"]


# Damage and other problems


def test_a_torn_end_is_reported_in_one_line_with_position_and_reason(folder: Folder, command: Command) -> None:
    segment = folder.segment(OFFSETS)
    data = segment.read_bytes()
    last = [header.size for header in iterate_headers(data, 0, len(data))][-1]
    cut(segment, -3)
    records = command.records(folder.path / f"{OFFSETS}-0", code=65)
    assert [record["offset"] for record in records] == [0, 1, 2, 3]
    assert command.errors == [
        f"tenure: {segment} is damaged at byte {len(data) - last}: a batch of {last} bytes is cut short after {last - 3}; "
        f"a torn end of {last - 3} bytes, no sound batch follows"
    ]


def test_records_after_damage_are_printed(folder: Folder, command: Command) -> None:
    segment, size = folder.segment("orders"), first_batch(folder)
    change(segment, size + 100, b"!")
    records = command.records(folder.path, "--kind", "records", code=65)
    assert [record["offset"] for record in records] == [0, 1, *range(4, 120)]
    assert command.errors == [
        f"tenure: {segment} is damaged at byte {size}: a batch's checksum is wrong; {size} bytes are skipped, sound batches follow"
    ]


def test_a_torn_end_of_an_older_segment_is_reported_as_such(folder: Folder, command: Command) -> None:
    cut(folder.segment("orders"), -3)
    command.lines(folder.path, "--kind", "records", code=65)
    assert command.errors[0].endswith("to the end of the file, which is not the last of its log")


def test_records_that_do_not_parse_in_a_sound_batch_are_reported_in_one_line(folder: Folder, command: Command) -> None:
    from tests.cli.planted import records_that_do_not_parse

    records_that_do_not_parse(folder)
    assert len(command.records(folder.path / "orders-0", code=65)) == 120
    (line,) = command.errors
    assert re.search(r"the batch at byte \d+ \(offsets 120 to 120\) cannot be read: ", line)


def missing_path(path: Path) -> Path:
    return path / "nowhere"


def empty(path: Path) -> Path:
    (path / "empty").mkdir()
    return path / "empty"


def unrelated_folder(path: Path) -> Path:
    (path / "photos/2024").mkdir(parents=True)
    return path / "photos"


def unrelated_folders_with_numbers(path: Path) -> Path:
    (path / "photos/trip-2").mkdir(parents=True)
    return path / "photos"


def no_segment(path: Path) -> Path:
    (path / "letter.txt").write_text("Dear all,\n" * 10)
    return path / "letter.txt"


def an_index(path: Path) -> Path:
    return next((path / "data").rglob("*.index"))


def a_pipe(path: Path) -> Path:
    os.mkfifo(path / "pipe")
    return path / "pipe"


def no_logs(path: Path) -> Path:
    (path / "new").mkdir()
    (path / "new/meta.properties").write_text("version=1\n")
    return path / "new"


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (missing_path, "{} does not exist"),
        (empty, "{} is empty"),
        (unrelated_folder, "{} is neither a data directory nor a log: it contains no segment, and no folder NAME-PARTITION with segments"),
        (unrelated_folders_with_numbers, "{} is neither a data directory nor a log: it contains no segment, and no folder NAME-PARTITION with segments"),
        (no_segment, "{} is no segment: it does not begin with a record batch"),
        (an_index, "{} is an index: name its .log file, or run tenure log verify on the folder"),
        (a_pipe, "{} is neither a file nor a folder"),
        (no_logs, "{} has no logs yet"),
    ],
)
def test_a_path_without_logs_is_reported(make: Callable[[Path], Path], line: str, folder: Folder, tmp_path: Path) -> None:
    path = make(tmp_path)
    done = process("dump", path)
    assert (done.returncode, done.stdout, done.stderr) == (66, "", f"tenure: {line.format(path)}\n")


def test_a_missing_path_does_not_hide_the_others(folder: Folder, command: Command) -> None:
    lines = command.lines("/nowhere", folder.path / f"{TOPICS}-0", code=66)
    assert len(lines) == 5
    assert command.errors == ["tenure: /nowhere does not exist"]


def test_an_empty_segment_and_an_empty_log_are_printed(folder: Folder, command: Command) -> None:
    log = folder.path / "orders-1"
    log.mkdir()
    (log / f"{0:020d}.log").touch()
    assert command.lines(log) == []
    assert command.lines(log / f"{0:020d}.log") == []


@pytest.mark.parametrize("text", ["4\n", "soon\n", ""])
def test_a_newer_format_is_refused_and_left_untouched(text: str, folder: Folder, command: Command) -> None:
    (folder.path / "tenure.format").write_text(text)
    for path in (folder.path, folder.path / "orders-0", folder.segment("orders")):
        assert command.lines(path, code=65) == []
        assert command.errors == [
            f"tenure: data directory {folder.path} has format {text.strip() or 'nothing'} and this version reads up to 3; use the version that wrote it"
        ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["dump"],
        ["verify"],
        ["verify", "a", "b"],
        ["dump", "x", "--kind", "members"],
        ["dump", "x", "--limit", "-1"],
        ["dump", "x", "--limit", "many"],
        ["dump", "x", "--from-offset", "1.5"],
        ["dump", "x", "--lim", "1"],
        ["repair", "x"],
        [],
    ],
)
def test_a_usage_error_is_reported_in_one_line_with_exit_code_64(arguments: list[str], command: Command) -> None:
    code, lines = command.run(*arguments)
    assert (code, lines) == (64, [])
    assert re.fullmatch(r"tenure: .*--help\)", "\n".join(command.errors))


def test_a_filter_without_matches_is_reported(folder: Folder, command: Command) -> None:
    assert (command.lines(folder.path, "--group", "nobody"), command.errors) == ([], ["tenure: no record matches"])
    assert command.lines(folder.path, "--group", folder.group, "--limit", "1")
    assert command.errors == []
