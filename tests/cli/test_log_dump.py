"""`tenure log dump`: what a log holds, in words and as JSON, and one line for whatever cannot be shown."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.log_files import holder
from coordinator.notes import Cause, Coordinator, How, Kind, Replacement, Round
from coordinator.states import State
from protocol.batch import Record, build, build_facts, iterate
from protocol.compression import Compression
from protocol.messages.coordinator_notes import (
    CommitRefused,
    CoordinatorChange,
    HeartbeatGap,
    Heartbeats,
    MemberGone,
    MemberJoin,
    RoundEnd,
    StateChange,
    StaticReplaced,
)
from protocol.records import NOTES
from tests.cli.log_folders import (
    MOMENT,
    OFFSETS,
    TOPICS,
    Command,
    Folder,
    change,
    cut,
    image,
    member,
    note,
    offset,
)
from tests.cli.log_folders import (
    NOTES as NOTES_LOG,
)
from tests.running import environment

KAFKA_WRITTEN = Path(__file__).parent / "kafka_written"
# spec: one image and one offset in every version, from Kafka's own serializer
GROUP_KEY = "000200026731"
GROUP_VALUES = {
    0: "00000008636f6e73756d657200000003000572616e6765000469312d7800000001000469312d78000163000a2f3132372e302e302e310000afc80000000200010000000102",
    1: "00010008636f6e73756d657200000003000572616e6765000469312d7800000001000469312d78000163000a2f3132372e302e302e31000493e00000afc80000000200010000000102",
    2: "00020008636f6e73756d657200000003000572616e6765000469312d780000018bcfe5680000000001000469312d78000163000a2f3132372e302e302e31000493e00000afc80000000200010000000102",
    3: "00030008636f6e73756d657200000003000572616e6765000469312d780000018bcfe5680000000001000469312d7800026931000163000a2f3132372e302e302e31000493e00000afc80000000200010000000102",
    4: "000409636f6e73756d6572000000030672616e67650569312d780000018bcfe56800020569312d7803693102630b2f3132372e302e302e31000493e00000afc803000102020000",
}
OFFSET_KEY = "00010002673100017400000005"
OFFSET_VALUES = {
    0: "0000000000000000002a00016d0000018bcfe56800",
    1: "0001000000000000002a00016d0000018bcfe568000000018bcfe65260",
    2: "0002000000000000002a00016d0000018bcfe56800",
    3: "0003000000000000002a0000000700016d0000018bcfe56800",
    4: "0004000000000000002a00000007026d0000018bcfe5680000",
}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "data")


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path, capsys)


# In words


def test_a_directory_is_printed_log_by_log_and_segment_by_segment(folder: Folder, command: Command) -> None:
    lines = command.lines(folder.path)
    headings = [line for line in lines if line.startswith("/")]
    assert headings == [
        str(path) for name in (f"{OFFSETS}-0", f"{NOTES_LOG}-0", f"{TOPICS}-0", "orders-0") for path in sorted((folder.path / name).glob("*.log"))
    ]
    assert len(headings) > 6
    offsets = [int(line.split("  ")[0]) for line in lines[lines.index(headings[3]) :] if re.match(r"\d+  ", line)]
    assert offsets == list(range(120))


def test_groups_offsets_and_tombstones_are_in_words(folder: Folder, command: Command) -> None:
    at, group, other = "2023-11-14T22:13:20.005Z", folder.group, folder.other
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
        f"4  {at}  group {other}: generation 3, 0 members, type consumer, state since 2023-11-14T22:13:20.000Z",
        f"5  {at}  group {other}: removed",
    ]


def test_notes_and_topics_are_in_words(folder: Folder, command: Command) -> None:
    at = "2023-11-14T22:13:20.005Z"
    common = "2023-11-14T22:13:20.000Z, generation 3, state PREPARING"
    rest = "seq 0, coordinator_epoch 1, offsets_log_offset 12"
    assert command.lines(folder.path / f"{NOTES_LOG}-0")[1:] == [
        f"0  {at}  note {folder.group}: StateChange at {common}: from_state STABLE, to_state PREPARING, reason SESSION_EXPIRED, "
        f"reason_text gone, members 2, awaiting 1; {rest}",
        f"1  {at}  note of the coordinator: EndOffsets at {common}: topic orders, partitions [{{partition 0, log_start 5, end 9}}]; {rest}",
    ]
    assert command.lines(folder.path / f"{TOPICS}-0")[1:] == [
        f"0  {at}  topic {OFFSETS}: 4 partitions, id AAECAwQFBgcICQoLDA0ODw, created 2023-11-14T22:13:20.000Z, cleanup.policy=compact",
        f"1  {at}  topic orders: 2 partitions, id AAECAwQFBgcICQoLDA0ODw, created 2023-11-14T22:13:20.000Z",
        f"2  {at}  topic gone: 1 partitions, id AAECAwQFBgcICQoLDA0ODw, created 2023-11-14T22:13:20.000Z",
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


def first_batch(folder: Folder) -> int:
    data = folder.segment("orders").read_bytes()
    return next(iterate(data, 0, len(data))).size


# As JSON


@pytest.mark.parametrize("version", GROUP_VALUES)
def test_an_image_is_read_in_every_version(version: int, folder: Folder, command: Command) -> None:
    folder.append(OFFSETS, 0, [(bytes.fromhex(GROUP_KEY), bytes.fromhex(GROUP_VALUES[version]))])
    *_, record = command.records(folder.path / f"{OFFSETS}-0")
    (only,) = record["value"].pop("members")
    assert (record["kind"], record["key"]) == ("group", {"group": "g1"})
    assert record["value"] == {
        "version": version,
        "protocol_type": "consumer",
        "generation": 3,
        "protocol": "range",
        "leader": "i1-x",
        "current_state_timestamp": MOMENT if version >= 2 else -1,
    }
    # Two bytes are no subscription: shown as they are, with the reason.
    assert (only.pop("subscription")["hex"], only.pop("assignment")["hex"]) == ("0001", "02")
    assert only == {
        "member_id": "i1-x",
        "group_instance_id": "i1" if version >= 3 else None,
        "client_id": "c",
        "client_host": "/127.0.0.1",
        "rebalance_timeout": 300_000 if version >= 1 else -1,
        "session_timeout": 45_000,
    }


@pytest.mark.parametrize("version", OFFSET_VALUES)
def test_an_offset_is_read_in_every_version(version: int, folder: Folder, command: Command) -> None:
    folder.append(OFFSETS, 0, [(bytes.fromhex(OFFSET_KEY), bytes.fromhex(OFFSET_VALUES[version]))])
    *_, record = command.records(folder.path / f"{OFFSETS}-0")
    assert (record["log"], record["partition"], record["segment"], record["offset"], record["timestamp"]) == (
        OFFSETS,
        0,
        f"{0:020d}.log",
        6,
        MOMENT + 5,
    )
    assert (record["kind"], record["key"]) == ("offset", {"group": "g1", "topic": "t", "partition": 5})
    assert record["value"] == {
        "version": version,
        "offset": 42,
        "leader_epoch": 7 if version >= 3 else -1,
        "metadata": "m",
        "commit_timestamp": MOMENT,
        "expire_timestamp": MOMENT + 60_000 if version == 1 else -1,
        "topic_id": None,
    }


def test_the_members_subscriptions_and_assignments_are_decoded(folder: Folder, command: Command) -> None:
    first, *_ = command.records(folder.path, "--kind", "groups")
    assert first["value"]["members"][0]["subscription"] == {
        "version": 1,
        "topics": ["orders"],
        "user_data": None,
        "owned_partitions": [],
        "generation_id": -1,
        "rack_id": None,
    }
    assert first["value"]["members"][0]["assignment"] == {
        "version": 1,
        "assigned_partitions": [{"topic": "orders", "partitions": [0, 1, 3]}],
        "user_data": None,
    }


def test_another_protocols_bytes_stay_bytes(folder: Folder, command: Command) -> None:
    key, value = image(folder.third, [member("a")])
    assert value is not None
    folder.append(OFFSETS, 0, [(key, value.replace(b"\0\x08consumer", b"\0\x07connect"))])
    *_, record = command.records(folder.path / f"{OFFSETS}-0")
    assert record["value"]["members"][0]["subscription"]["hex"].startswith("0001")
    assert "subscribes 0x0001" in "\n".join(command.lines(folder.path / f"{OFFSETS}-0"))


BODIES: dict[int, tuple[Any, dict[str, Any]]] = {
    Kind.STATE_CHANGE: (
        StateChange(State.STABLE, State.PREPARING, Cause.MEMBER_LEFT, None, 2, 1),
        {"from_state": "STABLE", "to_state": "PREPARING", "reason": "MEMBER_LEFT", "reason_text": None, "members": 2, "awaiting": 1},
    ),
    Kind.MEMBER_JOIN: (MemberJoin("m", "i", "c", "/h", 1, 2, True, False, -5, "because"), {"member_id": "m", "known_id": True, "subscription_hash": -5}),
    Kind.MEMBER_GONE: (MemberGone("m", None, How.EXPIRED, 3, 4, None), {"how": "EXPIRED", "since_heartbeat_ms": 3}),
    Kind.STATIC_REPLACED: (StaticReplaced("i", "old", "new", "c", "/h", 9, Replacement.NO_REBALANCE), {"outcome": "NO_REBALANCE", "old_id": "old"}),
    Kind.ROUND_END: (RoundEnd(Round.LEADER_LOST, 1, 2, ["slow"]), {"result": "LEADER_LOST", "join_ms": 1, "sync_ms": 2, "laggards": ["slow"]}),
    Kind.HEARTBEATS: (Heartbeats([HeartbeatGap("m", 5, 6)]), {"members": [{"member_key": "m", "max_gap_ms": 5, "count": 6}]}),
    Kind.COMMIT_REFUSED: (CommitRefused(25, "m", None, 3, 4), {"error_code": "UNKNOWN_MEMBER_ID", "count": 3}),
    Kind.COORDINATOR: (CoordinatorChange(Coordinator.SUSPENDED, 1, 2, 3, 4), {"what": "SUSPENDED", "replayed": 4}),
}


@pytest.mark.parametrize("kind", BODIES)
def test_notes_have_kinds_and_enumerations_by_name(kind: int, folder: Folder, command: Command) -> None:
    body, expected = BODIES[kind]
    folder.append(NOTES_LOG, 0, [note(folder.group, kind, body, seq=8)])
    *_, record = command.records(folder.path, "--kind", "notes")
    shown = record["value"]
    assert (shown["kind"], shown["state"], shown["seq"], shown["offsets_log_offset"]) == (type(body).__name__, "PREPARING", 8, 12)
    assert {name: shown["body"][name] for name in expected} == expected


def test_every_kind_of_note_is_tested() -> None:
    assert {*BODIES, Kind.END_OFFSETS} == set(NOTES)


def test_numbers_and_kinds_of_something_newer_stay_numbers(folder: Folder, command: Command) -> None:
    newer = note(folder.group, 77, StateChange(9, 3, 500, None, 0, 0))
    folder.append(NOTES_LOG, 0, [note(folder.group, Kind.STATE_CHANGE, StateChange(9, 3, 500, None, 0, 0)), newer])
    known, unknown = command.records(folder.path, "--kind", "notes")[-2:]
    assert (known["value"]["body"]["from_state"], known["value"]["body"]["to_state"], known["value"]["body"]["reason"]) == (9, "STABLE", 500)
    assert (unknown["value"]["kind"], unknown["value"]["body"], unknown["remark"]) == (
        77,
        {"hex": "090301f400000000000000000000"},
        "a note of kind 77, which this Tenure does not know",
    )


@pytest.mark.parametrize(
    ("log", "key", "value", "kind", "remark", "code"),
    [
        (OFFSETS, "0007ff", "00", "other", "a key of version 7, a kind of record that Tenure does not know and skips", 0),
        (OFFSETS, OFFSET_KEY, "0005ff", "offset", "a value of version 5, newer than version 4, the last that this Tenure reads", 0),
        (OFFSETS, GROUP_KEY, "0005ff", "group", "a value of version 5, newer than version 4, the last that this Tenure reads", 0),
        (TOPICS, "00000001", "0000", "other", "cannot be read: TopicKey v0 is cut short", 65),
        (TOPICS, "0001000161", "0000", "other", "a key of version 1, newer than version 0, the last that this Tenure reads", 0),
        (NOTES_LOG, "0001000161", "0000", "other", "a key of version 1, newer than version 0, the last that this Tenure reads", 0),
        (OFFSETS, OFFSET_KEY, "00030000", "other", "cannot be read: OffsetCommitValue v3 is cut short", 65),
        (OFFSETS, "ffff", "00", "other", "cannot be read: a key of version -1", 65),
        (OFFSETS, "00", "00", "other", "cannot be read: no room for a version", 65),
        (NOTES_LOG, "0000000161", "000001", "other", "cannot be read: NoteHeader v0 is cut short", 65),
    ],
)
def test_what_is_newer_or_cannot_be_read_is_kept_as_bytes_with_the_reason(
    log: str, key: str, value: str, kind: str, remark: str, code: int, folder: Folder, command: Command
) -> None:
    folder.append(log, 0, [(bytes.fromhex(key), bytes.fromhex(value))])
    *_, record = command.records(folder.path / f"{log}-0", code=code)
    assert (record["kind"], record["remark"]) == (kind, remark)
    assert record["value"] in ({"hex": value}, bytes.fromhex(value).decode("latin-1"))
    assert f"({remark})" in command.lines(folder.path / f"{log}-0", code=code)[-1]


def test_batches_come_before_their_records(folder: Folder, command: Command) -> None:
    found = command.records(folder.path / "orders-0", "--batches")
    assert [one["kind"] for one in found[:6]] == ["batch", "record", "record"] * 2
    assert found[3] == {
        "log": "orders",
        "partition": 0,
        "segment": f"{0:020d}.log",
        "kind": "batch",
        "position": first_batch(folder),
        "size": first_batch(folder),
        "base_offset": 2,
        "last_offset": 3,
        "records": 2,
        "leader_epoch": 0,
        "compression": "none",
        "timestamp_type": "CREATE_TIME",
        "base_timestamp": MOMENT + 1,
        "max_timestamp": MOMENT + 1,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "transactional": False,
        "control": False,
        "crc": found[3]["crc"],
    }


@pytest.mark.parametrize("compression", Compression)
def test_compressed_batches_are_opened(compression: Compression, folder: Folder, command: Command) -> None:
    log = folder.open("orders", 1)
    log.append(build([Record(0, 5, b"key", b"x" * 1000)], compression=compression), log.epoch)
    folder.close("orders", 1, log)
    batch, record = command.records(folder.path / "orders-1", "--batches")
    assert (batch["compression"], record["value"]) == (compression.name.lower(), "x" * 1000)


def test_names_cannot_break_a_line_or_the_terminal(folder: Folder, command: Command) -> None:
    folder.append(OFFSETS, 0, [offset("two words\n\x1b[2Jé", 0, 1)])
    assert "offset 'two words\\n\\x1b[2Jé' orders-0: 1" in command.lines(folder.path / f"{OFFSETS}-0")[-1]
    assert command.records(folder.path / f"{OFFSETS}-0")[-1]["key"]["group"] == "two words\n\x1b[2Jé"


def test_long_values_are_shortened_in_words_and_whole_in_json(folder: Folder, command: Command) -> None:
    folder.append("orders", 1, [(b"long", b"x" * 5000), (b"hex", b"\xff" * 5000)])
    _, text, hexadecimal = command.lines(folder.path / "orders-1")
    assert text.endswith("x... (5000 characters)")
    assert len(text) < 1100
    assert hexadecimal.endswith("ff... (5000 bytes)")
    assert len(hexadecimal) < 300
    assert [record["value"] for record in command.records(folder.path / "orders-1")] == ["x" * 5000, {"hex": "ff" * 5000}]


# What to show


def shown(records: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(record["log"], record["offset"]) for record in records]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["--group", "GROUP"], [(OFFSETS, 0), (OFFSETS, 1), (OFFSETS, 2), (OFFSETS, 3), (NOTES_LOG, 0)]),
        (["--group", "GROUP", "--kind", "offsets"], [(OFFSETS, 1), (OFFSETS, 2), (OFFSETS, 3)]),
        (["--group", "GROUP", "--kind", "offsets", "--from-offset", "2"], [(OFFSETS, 2), (OFFSETS, 3)]),
        (["--group", "nobody"], []),
        (["--kind", "groups"], [(OFFSETS, 0), (OFFSETS, 4), (OFFSETS, 5)]),
        (["--kind", "notes"], [(NOTES_LOG, 0), (NOTES_LOG, 1)]),
        (["--kind", "notes", "--topic", "orders"], [(NOTES_LOG, 1)]),
        (["--kind", "topics"], [(TOPICS, 0), (TOPICS, 1), (TOPICS, 2), (TOPICS, 3)]),
        (["--kind", "topics", "--topic", "gone"], [(TOPICS, 2), (TOPICS, 3)]),
        (["--topic", "orders", "--limit", "6"], [(OFFSETS, 1), (OFFSETS, 2), (OFFSETS, 3), (NOTES_LOG, 1), (TOPICS, 1), ("orders", 0)]),
        (["--kind", "records", "--limit", "2"], [("orders", 0), ("orders", 1)]),
        (["--kind", "records", "--from-offset", "118"], [("orders", 118), ("orders", 119)]),
        (["--limit", "0"], []),
        (["--limit", "7"], [*((OFFSETS, number) for number in range(6)), (NOTES_LOG, 0)]),
    ],
)
def test_filters_leave_what_was_asked_for(filters: list[str], expected: list[tuple[str, int]], folder: Folder, command: Command) -> None:
    arguments = [folder.group if word == "GROUP" else word for word in filters]
    assert shown(command.records(folder.path, *arguments)) == expected
    words = [int(found[1]) for line in command.lines(folder.path, *arguments) if (found := re.match(r"(\d+)  ", line))]
    assert words == [offset for _, offset in expected]


def test_a_filter_leaves_out_batches_that_hold_nothing_of_it(folder: Folder, command: Command) -> None:
    found = command.records(folder.path, "--group", folder.group, "--kind", "offsets", "--batches")
    assert [one["kind"] for one in found] == ["batch", "offset", "offset", "offset"]


def test_several_paths_are_printed_in_their_order(folder: Folder, command: Command) -> None:
    records = command.records(folder.path / f"{TOPICS}-0", folder.segment(NOTES_LOG))
    assert [record["log"] for record in records] == [TOPICS] * 4 + [NOTES_LOG] * 2


def test_a_segment_outside_its_folder_can_be_named(folder: Folder, command: Command, tmp_path: Path) -> None:
    copy = tmp_path / "copied"
    copy.write_bytes(folder.segment(OFFSETS).read_bytes())
    assert {record["kind"] for record in command.records(copy)} == {"record"}
    assert [record["kind"] for record in command.records(copy, "--log", OFFSETS)][:2] == ["group", "offset"]


def test_a_relative_path_is_as_good(folder: Folder, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.path / f"{OFFSETS}-0")
    assert len(command.records(f"{0:020d}.log", "--kind", "groups")) == 3
    assert len(command.records(".", "--kind", "groups")) == 3
    monkeypatch.chdir(folder.path)
    assert len(command.records(".", "--kind", "groups")) == 3


def test_what_kafka_wrote_is_shown(command: Command) -> None:
    records = command.records(KAFKA_WRITTEN, "--group", "static", "--kind", "groups")
    assert [(record["value"]["generation"], len(record["value"]["members"])) for record in records] == [(0, 0), (1, 1)]
    (only,) = records[1]["value"]["members"]
    assert (only["group_instance_id"], only["subscription"]["topics"]) == ("i1", ["orders"])
    assert only["assignment"]["assigned_partitions"] == [{"topic": "orders", "partitions": [0, 1, 2]}]
    offsets = command.records(KAFKA_WRITTEN, "--group", "static", "--kind", "offsets")
    assert {(record["value"]["version"], record["value"]["topic_id"]) for record in offsets} == {(4, "RRvgbe0GToapKc4xcjQhAg")}
    marks = [record["key"] for record in command.records(KAFKA_WRITTEN, "--kind", "records") if record["kind"] == "control"]
    assert marks == ["COMMIT", "ABORT"]


# What is not as it should be


def test_a_torn_end_is_one_line_with_position_and_reason(folder: Folder, command: Command) -> None:
    segment = folder.segment(OFFSETS)
    data = segment.read_bytes()
    last = [header.size for header in iterate(data, 0, len(data))][-1]
    cut(segment, -3)
    records = command.records(folder.path / f"{OFFSETS}-0", code=65)
    assert [record["offset"] for record in records] == [0, 1, 2, 3]
    assert command.errors == [
        f"tenure: {segment} is damaged at byte {len(data) - last}: a batch of {last} bytes is cut short after {last - 3}; "
        f"a torn end of {last - 3} bytes, no sound batch follows"
    ]


def test_damage_in_the_middle_leaves_the_rest_to_be_seen(folder: Folder, command: Command) -> None:
    segment, size = folder.segment("orders"), first_batch(folder)
    change(segment, size + 100, b"!")
    records = command.records(folder.path, "--kind", "records", code=65)
    assert [record["offset"] for record in records] == [0, 1, *range(4, 120)]
    assert command.errors == [
        f"tenure: {segment} is damaged at byte {size}: a batch's checksum is wrong; {size} bytes left out, what follows them is sound"
    ]


def test_a_torn_end_of_an_older_segment_is_told_apart(folder: Folder, command: Command) -> None:
    cut(folder.segment("orders"), -3)
    command.lines(folder.path, "--kind", "records", code=65)
    assert command.errors[0].endswith("to the end of the file, which is not the last of its log")


def test_records_that_do_not_parse_in_a_sound_batch_are_one_line(folder: Folder, command: Command) -> None:
    from tests.cli.test_log_verify import records_that_are_none

    records_that_are_none(folder)
    assert len(command.records(folder.path / "orders-0", code=65)) == 120
    (line,) = command.errors
    assert re.search(r"the batch at byte \d+ \(offsets 120 to 120\) cannot be read: ", line)


def nothing(path: Path) -> Path:
    return path / "nowhere"


def empty(path: Path) -> Path:
    (path / "empty").mkdir()
    return path / "empty"


def other(path: Path) -> Path:
    (path / "photos/2024").mkdir(parents=True)
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
        (nothing, "{} does not exist"),
        (empty, "{} is empty"),
        (other, "{} is neither a data directory nor a log: it has no folder NAME-PARTITION and no segment in it"),
        (no_segment, "{} is no segment: it does not begin with a record batch"),
        (an_index, "{} is an index: give the .log beside it, and tenure log verify for both"),
        (a_pipe, "{} is neither a file nor a folder"),
        (no_logs, "{} has no logs yet"),
    ],
)
def test_where_there_is_nothing_to_show_it_says_so(make: Callable[[Path], Path], line: str, folder: Folder, tmp_path: Path) -> None:
    path = make(tmp_path)
    done = tenure("dump", str(path))  # a process of its own: a pipe cannot be compared
    assert (done.returncode, done.stdout, done.stderr) == (66, "", f"tenure: {line.format(path)}\n")


def test_a_missing_path_does_not_hide_the_others(folder: Folder, command: Command) -> None:
    lines = command.lines("/nowhere", folder.path / f"{TOPICS}-0", code=66)
    assert len(lines) == 5
    assert command.errors == ["tenure: /nowhere does not exist"]


def test_an_empty_segment_and_an_empty_log_are_fine(folder: Folder, command: Command) -> None:
    log = folder.path / "orders-1"
    log.mkdir()
    (log / f"{0:020d}.log").touch()
    assert command.lines(log) == []
    assert command.lines(log / f"{0:020d}.log") == []


@pytest.mark.parametrize("text", ["2\n", "soon\n", ""])
def test_a_newer_format_is_refused_and_left_untouched(text: str, folder: Folder, command: Command) -> None:
    (folder.path / "tenure.format").write_text(text)
    for path in (folder.path, folder.path / "orders-0", folder.segment("orders")):
        assert command.lines(path, code=65) == []
        assert command.errors == [
            f"tenure: data directory {folder.path} has format {text.strip() or 'nothing'} and this version reads up to 1; use the version that wrote it"
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
def test_what_cannot_be_understood_is_one_line_and_exit_code_64(arguments: list[str], command: Command) -> None:
    code, lines = command.run(*arguments)
    assert (code, lines) == (64, [])
    assert re.fullmatch(r"tenure: .*--help\)", "\n".join(command.errors))


# As a process


def tenure(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "cli", "log", *arguments], env=environment(), capture_output=True, text=True, timeout=30, check=False, **more
    )


@pytest.mark.parametrize("json", [[], ["--json"]])
def test_a_reader_that_has_seen_enough_ends_it_quietly(json: list[str], folder: Folder) -> None:
    log = folder.open("orders", 1)
    for _ in range(20):
        log.append(build_facts([(b"k", b"v" * 100)] * 500, 1), log.epoch)
    folder.close("orders", 1, log)
    command = [sys.executable, "-P", "-m", "cli", "log", "dump", str(folder.path), *json]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(10) == 0


def test_an_output_that_cannot_be_written_is_one_line(folder: Folder) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-P", "-m", "cli", "log", "dump", str(folder.path)]
        done = subprocess.run(command, env=environment(), stdout=full, stderr=subprocess.PIPE, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (74, "tenure: standard output: No space left on device\n")


def test_without_a_standard_output_it_still_says_by_its_exit_code(folder: Folder) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-P", "-m", "cli", "log", "verify", str(folder.path)],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_terminal_of_few_characters_gets_escapes(folder: Folder) -> None:
    folder.append(OFFSETS, 0, [offset("été", 0, 1)])
    command = [sys.executable, "-P", "-m", "cli", "log", "dump", str(folder.path), "--group", "été"]
    done = subprocess.run(command, env=environment(PYTHONIOENCODING="ascii"), capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0
    assert "offset \\xe9t\\xe9 orders-0" in done.stdout


def test_it_imports_no_broker_and_no_event_loop(folder: Folder) -> None:
    code = (
        "import sys, cli; cli.main(['log', 'verify', sys.argv[1]]); cli.main(['log', 'dump', sys.argv[1], '--limit', '1'])\n"
        "print([name for name in sys.modules if name in ('broker', 'asyncio', 'uvloop', 'structlog', 'logging', 'socket', 'cli.serve')])"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code, str(folder.path)], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.alone
def test_memory_does_not_grow_with_the_log(folder: Folder) -> None:
    def peak_kib() -> int:
        code = (
            "import sys, os, resource, cli; cli.main(['log', 'verify', sys.argv[1]])\n"
            "cli.main(['log', 'dump', sys.argv[1], '--group', 'nobody'])\n"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )
        done = subprocess.run([sys.executable, "-P", "-c", code, str(folder.path)], env=environment(), capture_output=True, text=True, check=True)
        return int(done.stdout.splitlines()[-1])

    before = peak_kib()
    log = folder.open(OFFSETS, 0, segment_bytes=1 << 30)
    batch = build_facts([offset(folder.group, 0, 1, metadata="m" * 1000)] * 100, 1)
    for _ in range(300):
        log.append(batch, log.epoch)
    folder.close(OFFSETS, 0, log)
    assert folder.segment(OFFSETS).stat().st_size > 25_000_000
    assert peak_kib() - before < 12_000


def test_no_lock_is_taken(folder: Folder, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(*arguments: object) -> None:
        raise AssertionError("a lock was taken")

    monkeypatch.setattr("fcntl.flock", taken)
    monkeypatch.setattr("fcntl.lockf", taken)
    assert holder(str(folder.path)) is None
    command.lines(folder.path)
    command.problems(folder.path)


def test_json_lines_are_lines(folder: Folder, command: Command) -> None:
    folder.append("orders", 1, [("\u2028\u0085".encode(), b"\n")])
    output = command.lines(folder.path / "orders-1", "--json")
    assert [json.loads(line)["key"] for line in output] == [{"hex": "e280a8c285"}]
