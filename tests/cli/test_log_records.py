"""`tenure log dump --json`: records of every kind and version, and unreadable records."""

from __future__ import annotations

from enum import IntEnum
from pkgutil import resolve_name
from typing import Any

import pytest

from coordinator.facts import deletions_fact
from coordinator.notes import Cause, EpochStep, Removal, Replacement, RoundResult, ShardChange, StandbyStep
from coordinator.policies.door import policies_key, policies_value
from coordinator.policies.registration import away_key, away_value
from coordinator.policies.target_size import seats_key
from coordinator.states import State
from protocol.batch import Record, build
from protocol.compression import Compression
from protocol.messages.consumer_offsets import SeatsValue
from protocol.messages.coordinator_notes import (
    CommitRefused,
    CoordinatorChange,
    EpochNote,
    HeartbeatGap,
    Heartbeats,
    JoinRefused,
    MemberAway,
    MemberGone,
    MemberJoin,
    RoundEnd,
    StandbyChange,
    StateChange,
    StaticReplaced,
)
from protocol.messages.kinds import ENUMS, NoteKind
from protocol.messages.kinds import NOTES as KINDS_OF_NOTES
from protocol.messages.topics_registry import (
    DeletedTopicKey,
    DeletedTopicValue,
    DeletionNumberKey,
    DeletionNumberValue,
    ProducerIdsKey,
    ProducerIdsValue,
)
from protocol.records import with_version
from tests.cli.log_folders import MOMENT, NOTES, OFFSETS, TOPICS, Command, Folder, first_batch, group_record, member, note, offset
from tests.support.kafka_records import GROUP_KEY, GROUP_VALUES, OFFSET_KEY, OFFSET_VALUES

pytestmark = pytest.mark.once  # does not depend on the Python version


@pytest.mark.parametrize("version", GROUP_VALUES)
def test_a_group_record_is_read_in_every_version(version: int, folder: Folder, command: Command) -> None:
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
    # Two bytes are no valid subscription, so they are shown as hex, with the reason.
    assert (only.pop("subscription")["hex"], only.pop("assignment")["hex"]) == ("0001", "02")
    assert only == {
        "member_id": "i1-x",
        "group_instance_id": "i1" if version >= 3 else None,
        "client_id": "c",
        "client_host": "/127.0.0.1",
        "rebalance_timeout": 300_000 if version >= 1 else -1,
        "session_timeout": 45_000,
    }


def test_every_enum_that_the_schema_names_exists() -> None:
    names = {name for fields in ENUMS.values() for name in fields.values()}
    assert all(issubclass(resolve_name(name), IntEnum) for name in names)


POLICY_RECORDS = [
    (policies_key("g1"), policies_value({"roster.strict": "true"}), "policies", {"policies": [{"name": "roster.strict", "text": "true"}]}),
    (away_key("g1", "i1"), away_value("i1-x", MOMENT), "away", {"member_id": "i1-x", "since_ms": MOMENT}),
    (seats_key("g1"), with_version(SeatsValue(3, [], []), 0), "seats", {"generation": 3, "standbys": [], "take_overs": []}),
]


@pytest.mark.parametrize(("key", "value", "kind", "fields"), POLICY_RECORDS, ids=[kind for _, _, kind, _ in POLICY_RECORDS])
def test_a_record_of_policies_is_read_and_sound(key: bytes, value: bytes, kind: str, fields: dict[str, Any], folder: Folder, command: Command) -> None:
    folder.append(OFFSETS, 0, [(key, value)])
    *_, record = command.records(folder.path / f"{OFFSETS}-0")
    assert (record["kind"], record["key"]["group"]) == (kind, "g1")
    assert record["value"] == {"version": 0, **fields}
    assert "remark" not in record
    assert any(f" {kind} " in line for line in command.lines(folder.path / f"{OFFSETS}-0"))


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


def test_metadata_of_other_protocols_is_shown_as_bytes(folder: Folder, command: Command) -> None:
    key, value = group_record(folder.third, [member("a")])
    assert value is not None
    folder.append(OFFSETS, 0, [(key, value.replace(b"\0\x08consumer", b"\0\x07connect"))])
    *_, record = command.records(folder.path / f"{OFFSETS}-0")
    assert record["value"]["members"][0]["subscription"]["hex"].startswith("0001")
    assert "subscribes 0x0001" in "\n".join(command.lines(folder.path / f"{OFFSETS}-0"))


BODIES: dict[int, tuple[Any, dict[str, Any]]] = {
    NoteKind.STATE_CHANGE: (
        StateChange(State.STABLE, State.PREPARING, Cause.MEMBER_LEFT, None, None, 2, 1),
        {"from_state": "STABLE", "to_state": "PREPARING", "reason": "MEMBER_LEFT", "member": None, "text": None, "members": 2, "awaiting": 1},
    ),
    NoteKind.MEMBER_JOIN: (
        MemberJoin("m", "i", "c", "/h", 1, 2, True, False, -5, "because"),
        {"member_id": "m", "known_id": True, "subscription_hash": -5},
    ),
    NoteKind.MEMBER_GONE: (MemberGone("m", None, Removal.EXPIRED, 3, 4, None), {"how": "EXPIRED", "since_heartbeat_ms": 3}),
    NoteKind.STATIC_REPLACED: (
        StaticReplaced("i", "old", "new", "c", "/h", 9, Replacement.NO_REBALANCE),
        {"outcome": "NO_REBALANCE", "old_id": "old"},
    ),
    NoteKind.ROUND_END: (
        RoundEnd(RoundResult.LEADER_LOST, 1, 2, ["slow"]),
        {"result": "LEADER_LOST", "join_ms": 1, "sync_ms": 2, "laggards": ["slow"]},
    ),
    NoteKind.HEARTBEATS: (
        Heartbeats([HeartbeatGap("m", 5, 6, 12)]),
        {"members": [{"member_key": "m", "max_gap_ms": 5, "count": 6, "session_ms": 12}]},
    ),
    NoteKind.COMMIT_REFUSED: (CommitRefused(25, "m", None, 3, 4), {"error_code": "UNKNOWN_MEMBER_ID", "count": 3}),
    NoteKind.MEMBER_AWAY: (MemberAway("m", "i", True, 5, 6), {"member_id": "m", "instance_id": "i", "back": True, "away_ms": 5}),
    NoteKind.JOIN_REFUSED: (JoinRefused("i", "c", "/h", "a, b"), {"instance_id": "i", "listed": "a, b"}),
    NoteKind.STANDBY: (
        StandbyChange("m", "i", StandbyStep.TAKES_OVER, "b", None, 7),
        {"step": "TAKES_OVER", "instance_id": "i", "from_member_id": "b", "from_instance_id": None, "after_ms": 7},
    ),
    NoteKind.EPOCH: (
        EpochNote(EpochStep.COMPUTED, Cause.NEW_MEMBER, ["m"], 3, 40),
        {"step": "COMPUTED", "cause": "NEW_MEMBER", "members": ["m"], "moved": 3, "took_ms": 40},
    ),
    NoteKind.COORDINATOR: (CoordinatorChange(ShardChange.SUSPENDED, 1, 2, 3, 4), {"what": "SUSPENDED", "replayed": 4}),
}


@pytest.mark.parametrize("kind", BODIES)
def test_notes_have_kinds_and_enumerations_by_name(kind: int, folder: Folder, command: Command) -> None:
    body, expected = BODIES[kind]
    folder.append(NOTES, 0, [note(folder.group, kind, body, seq=8)])
    *_, record = command.records(folder.path, "--kind", "notes")
    note_value = record["value"]
    assert (note_value["kind"], note_value["state"], note_value["seq"], note_value["offsets_log_offset"]) == (type(body).__name__, "PREPARING", 8, 12)
    assert {name: note_value["body"][name] for name in expected} == expected


def test_every_kind_of_note_is_tested() -> None:
    assert {*BODIES, NoteKind.END_OFFSETS} == set(KINDS_OF_NOTES)


def test_unknown_enumeration_values_stay_numbers(folder: Folder, command: Command) -> None:
    newer = note(folder.group, 77, StateChange(9, 3, 500, None, None, 0, 0))
    folder.append(NOTES, 0, [note(folder.group, NoteKind.STATE_CHANGE, StateChange(9, 3, 500, None, None, 0, 0)), newer])
    readable, unknown = command.records(folder.path, "--kind", "notes")[-2:]
    assert (readable["value"]["body"]["from_state"], readable["value"]["body"]["to_state"], readable["value"]["body"]["reason"]) == (9, "STABLE", 500)
    assert (unknown["value"]["kind"], unknown["value"]["body"], unknown["remark"]) == (
        77,
        {"hex": "090301f40000000000000000000000"},
        "a note of kind 77, which this version of Tenure does not know",
    )


@pytest.mark.parametrize(
    ("log", "key", "value", "kind", "remark", "code"),
    [
        (OFFSETS, "000bff", "00", "other", "a key of version 11, a kind of record that Tenure does not know and skips", 0),
        (OFFSETS, OFFSET_KEY, "0005ff", "offset", "a value of version 5; this version of Tenure reads up to version 4", 0),
        (OFFSETS, GROUP_KEY, "0005ff", "group", "a value of version 5; this version of Tenure reads up to version 4", 0),
        (TOPICS, "00000001", "0000", "other", "cannot be read: TopicKey v0 is cut short", 65),
        (TOPICS, "0004000161", "0000", "other", "a key of version 4; this version of Tenure reads up to version 3", 0),
        (TOPICS, "ffff", "00", "other", "cannot be read: a key of version -1", 65),
        (NOTES, "0001000161", "0000", "other", "a key of version 1; this version of Tenure reads up to version 0", 0),
        (OFFSETS, OFFSET_KEY, "00030000", "other", "cannot be read: OffsetCommitValue v3 is cut short", 65),
        (OFFSETS, "ffff", "00", "other", "cannot be read: a key of version -1", 65),
        (OFFSETS, "00", "00", "other", "cannot be read: too short for a version", 65),
        (NOTES, "0000000161", "000001", "other", "cannot be read: NoteHeader v0 is cut short", 65),
    ],
)
def test_newer_or_unreadable_records_are_kept_as_bytes_with_the_reason(
    log: str, key: str, value: str, kind: str, remark: str, code: int, folder: Folder, command: Command
) -> None:
    folder.append(log, 0, [(bytes.fromhex(key), bytes.fromhex(value))])
    *_, record = command.records(folder.path / f"{log}-0", code=code)
    assert (record["kind"], record["remark"]) == (kind, remark)
    assert record["value"] in ({"hex": value}, bytes.fromhex(value).decode("latin-1"))
    assert f"({remark})" in command.lines(folder.path / f"{log}-0", code=code)[-1]


def test_batches_come_before_their_records(folder: Folder, command: Command) -> None:
    rows = command.records(folder.path / "orders-0", "--batches")
    assert [row["kind"] for row in rows[:6]] == ["batch", "record", "record"] * 2
    assert rows[3] == {
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
        "crc": rows[3]["crc"],
    }


@pytest.mark.parametrize("compression", Compression)
def test_compressed_batches_are_opened(compression: Compression, folder: Folder, command: Command) -> None:
    log = folder.open("orders", 1)
    log.append(build([Record(0, 5, b"key", b"x" * 1000)], compression=compression), log.epoch)
    folder.close("orders", 1, log)
    batch, record = command.records(folder.path / "orders-1", "--batches")
    assert (batch["compression"], record["value"]) == (compression.name.lower(), "x" * 1000)


def test_control_characters_in_names_are_escaped_in_dumps(folder: Folder, command: Command) -> None:
    folder.append(OFFSETS, 0, [offset("two words\n\x1b[2Jé", 0, 1)])
    assert "offset 'two words\\n\\x1b[2Jé' orders-0: 1" in command.lines(folder.path / f"{OFFSETS}-0")[-1]
    assert command.records(folder.path / f"{OFFSETS}-0")[-1]["key"]["group"] == "two words\n\x1b[2Jé"


def test_long_values_are_shortened_in_text_and_whole_in_json(folder: Folder, command: Command) -> None:
    folder.append("orders", 1, [(b"long", b"x" * 5000), (b"hex", b"\xff" * 5000)])
    _, text, hexadecimal = command.lines(folder.path / "orders-1")
    assert text.endswith("x... (5000 characters)")
    assert len(text) < 1100
    assert hexadecimal.endswith("ff... (5000 bytes)")
    assert len(hexadecimal) < 300
    assert [record["value"] for record in command.records(folder.path / "orders-1")] == ["x" * 5000, {"hex": "ff" * 5000}]


def test_deleted_topics_and_producer_ids_of_the_registry_are_decoded(folder: Folder, command: Command) -> None:
    key = with_version(DeletedTopicKey(bytes(range(16))), 2)
    folder.append(
        TOPICS,
        0,
        [
            (with_version(ProducerIdsKey(0), 1), with_version(ProducerIdsValue(3000), 0)),
            (key, with_version(DeletedTopicValue("orders", 3, 1_700_000_000_000), 0)),
            (key, None),
        ],
    )
    ids, deleted, tombstone = command.records(folder.path / f"{TOPICS}-0")[-3:]
    assert (ids["kind"], ids["key"], ids["value"]) == ("producer-ids", {"scope": 0}, {"version": 0, "next_id": 3000})
    assert (deleted["kind"], deleted["key"]) == ("deleted-topic", {"topic_id": "AAECAwQFBgcICQoLDA0ODw"})
    assert deleted["value"] == {"version": 0, "name": "orders", "partitions": 3, "deleted_ms": 1_700_000_000_000, "number": 0}
    assert tombstone["value"] is None
    lines = command.lines(folder.path / f"{TOPICS}-0")[-3:]
    assert "producer ids below 3000 are allocated" in lines[0]
    assert "deleted topic of id AAECAwQFBgcICQoLDA0ODw: orders, 3 partitions, deleted 2023-11-14" in lines[1]
    assert "its folders are renamed" in lines[2]


def test_the_numbers_of_deletions_are_decoded(folder: Folder, command: Command) -> None:
    folder.append(TOPICS, 0, [(with_version(DeletionNumberKey(0), 3), with_version(DeletionNumberValue(7), 0))])
    folder.append(OFFSETS, 0, [deletions_fact(5)])
    last, applied = command.records(folder.path / f"{TOPICS}-0")[-1], command.records(folder.path / f"{OFFSETS}-0")[-1]
    assert (last["kind"], last["key"], last["value"]) == ("deletion-number", {"scope": 0}, {"version": 0, "last": 7})
    assert (applied["kind"], applied["key"], applied["value"]) == ("deletions", {"scope": 0}, {"version": 0, "number": 5})
    assert "deletions of topics are numbered up to 7" in command.lines(folder.path / f"{TOPICS}-0")[-1]
    assert "the offsets of topics deleted up to number 5 are removed" in command.lines(folder.path / f"{OFFSETS}-0")[-1]
