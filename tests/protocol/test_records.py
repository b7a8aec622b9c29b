"""The records of internal topics, against bytes from Kafka's own serializers."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.errors import ProtocolError
from protocol.messages import coordinator_notes as notes
from protocol.messages.consumer_offsets import GroupMetadataKey, GroupMetadataValue, MemberMetadata, OffsetCommitKey, OffsetCommitValue
from protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from protocol.messages.kinds import NOTES
from protocol.messages.topics_registry import TopicKey, TopicSetting, TopicValue
from protocol.records import read_assignment, read_note, read_offsets_key, read_record, read_subscription, with_version, write_note

NOW = 1_700_000_000_000

MEMBER = "0000000469312d78"  # the member id "i1-x" with the bytes around it in the values below
GROUP_VALUES = [
    "00000008636f6e73756d657200000003000572616e6765000469312d7800000001000469312d78000163000a2f3132372e302e302e310000afc8"
    "0000000200010000000102",
    "00010008636f6e73756d657200000003000572616e6765000469312d7800000001000469312d78000163000a2f3132372e302e302e31000493e0"
    "0000afc80000000200010000000102",
    "00020008636f6e73756d657200000003000572616e6765000469312d780000018bcfe5680000000001000469312d78000163000a2f3132372e30"
    "2e302e31000493e00000afc80000000200010000000102",
    "00030008636f6e73756d657200000003000572616e6765000469312d780000018bcfe5680000000001000469312d7800026931000163000a2f31"
    "32372e302e302e31000493e00000afc80000000200010000000102",
    "000409636f6e73756d6572000000030672616e67650569312d780000018bcfe56800020569312d7803693102630b2f3132372e302e302e310004"
    "93e00000afc803000102020000",
]
OFFSET_VALUES = [
    "0000000000000000002a00016d0000018bcfe56800",
    "0001000000000000002a00016d0000018bcfe568000000018bcfe65260",
    "0002000000000000002a00016d0000018bcfe56800",
    "0003000000000000002a0000000700016d0000018bcfe56800",
    "0004000000000000002a00000007026d0000018bcfe5680000",
]


def group(version: int) -> GroupMetadataValue:
    """The group that a value of this version stores."""
    member = MemberMetadata("i1-x", "i1", "c", "/127.0.0.1", 300_000, 45_000, b"\0\1", b"\2")
    if version < 3:
        member.group_instance_id = None
    if version < 1:
        member.rebalance_timeout = -1
    return GroupMetadataValue("consumer", 3, "range", "i1-x", NOW if version >= 2 else -1, [member])


def offset(version: int) -> OffsetCommitValue:
    return OffsetCommitValue(42, 7 if version >= 3 else -1, "m", NOW, NOW + 60_000 if version == 1 else -1)


@pytest.mark.parametrize("version", range(5))
def test_group_metadata_is_kafkas_bytes_in_every_version(version: int) -> None:
    data = bytes.fromhex(GROUP_VALUES[version])
    assert with_version(group(3), version) == data
    assert read_record(GroupMetadataValue, data) == group(version)


@pytest.mark.parametrize("version", range(5))
def test_committed_offsets_are_kafkas_bytes_in_every_version(version: int) -> None:
    data = bytes.fromhex(OFFSET_VALUES[version])
    value = OffsetCommitValue(42, 7, "m", NOW, NOW + 60_000)
    assert with_version(value, version) == data
    assert read_record(OffsetCommitValue, data) == offset(version)


def test_the_group_record_of_a_new_and_of_an_emptied_group() -> None:
    created = GroupMetadataValue("", 0, None, None, NOW)
    assert with_version(created, 3).hex() == "0003000000000000ffffffff0000018bcfe5680000000000"
    emptied = GroupMetadataValue("consumer", 4, None, None, NOW)
    assert with_version(emptied, 3).hex() == "00030008636f6e73756d657200000004ffffffff0000018bcfe5680000000000"


def test_the_topic_id_of_version_4_is_a_tagged_field() -> None:
    topic_id = bytes(range(16))
    value = OffsetCommitValue(42, 7, "m", NOW, topic_id=topic_id)
    data = bytes.fromhex(OFFSET_VALUES[4][:-2] + "01 00 10" + topic_id.hex())
    assert with_version(value, 4) == data
    assert read_record(OffsetCommitValue, data) == value


def test_record_keys_have_a_kind() -> None:
    commit = OffsetCommitKey("g1", "t", 5)
    assert with_version(commit, 1).hex() == "00010002673100017400000005"
    assert read_offsets_key(with_version(commit, 1)) == commit
    assert read_offsets_key(with_version(commit, 0)) == commit
    assert with_version(GroupMetadataKey("g1"), 2).hex() == "000200026731"
    assert read_offsets_key(bytes.fromhex("000200026731")) == GroupMetadataKey("g1")
    assert read_offsets_key(bytes.fromhex("0003000267310000")) is None


@pytest.mark.parametrize("data", ["", "00", "ffff0000", "0001", "000100026731000174000000", "0002000567"])
def test_a_malformed_key_is_refused(data: str) -> None:
    with pytest.raises(ProtocolError):
        read_offsets_key(bytes.fromhex(data))


@pytest.mark.parametrize("data", ["", "0005", "ffff"])
def test_a_value_of_an_unknown_version_is_refused(data: str) -> None:
    with pytest.raises(ProtocolError):
        read_record(OffsetCommitValue, bytes.fromhex(data))


def test_a_topic_of_the_registry() -> None:
    assert with_version(TopicKey("orders"), 0).hex() == "000000066f7264657273"
    value = TopicValue(bytes(range(16)), 3, NOW, [TopicSetting("cleanup.policy", "compact")])
    data = with_version(value, 0)
    expected = "0000000102030405060708090a0b0c0d0e0f 00000003 0000018bcfe56800 02 0f 636c65616e75702e706f6c696379 08 636f6d70616374 00 00"
    assert data == bytes.fromhex(expected)
    assert read_record(TopicValue, data) == value
    newer = data[:-1] + bytes.fromhex("01 05 01 aa")  # with a tagged field of a later release
    assert read_record(TopicValue, newer) == value


SUBSCRIPTION = ConsumerProtocolSubscription(["a", "b"], b"user", [ConsumerProtocolSubscriptionTopicPartition("a", [0, 1])], 5, "rack")


@pytest.mark.parametrize("version", range(4))
def test_a_subscription_is_read_with_the_fields_of_its_version(version: int) -> None:
    subscription = read_subscription(with_version(SUBSCRIPTION, version))
    assert (subscription.topics, subscription.user_data) == (["a", "b"], b"user")
    assert subscription.owned_partitions == (SUBSCRIPTION.owned_partitions if version >= 1 else [])
    assert subscription.generation_id == (5 if version >= 2 else -1)
    assert subscription.rack_id == ("rack" if version >= 3 else None)


def test_a_newer_subscription_version_is_read_as_the_newest_known_version() -> None:
    newer = b"\x00\x09" + SUBSCRIPTION.encode(3) + b"what version 9 added"
    assert read_subscription(newer) == SUBSCRIPTION
    assignment = ConsumerProtocolAssignment([ConsumerProtocolAssignmentTopicPartition("a", [1, 2])], None)
    assert read_assignment(b"\x00\x09" + assignment.encode(3)) == assignment
    with pytest.raises(ProtocolError):
        read_subscription(b"\xff\xff" + SUBSCRIPTION.encode(3))


HEADER = notes.NoteHeader(0, NOW, 7, 2, 5, 3, 99, 0)
COUNTED = notes.NoteHeader(9, NOW, 7, 2, 5, 3, 99, 0, NOW - 5, 12)
BODIES: dict[int, Any] = {
    1: notes.StateChange(3, 1, 4, "m-1", "left", 2, 1),
    2: notes.MemberJoin("m", "i", "c", "/127.0.0.1", 45_000, 300_000, True, False, -(1 << 60), "reason"),
    3: notes.MemberGone("m", None, 1, 45_001, 45_000, None),
    4: notes.StaticReplaced("i", "old", "new", "c", "/::1", 1200, 0),
    5: notes.RoundEnd(0, 3000, 20, ["m1", "m2"]),
    6: notes.Heartbeats([notes.HeartbeatGap("m", 20_000, 3, 30_000)]),
    7: notes.CommitRefused(25, "m", None, 12, 10_000),
    8: notes.EndOffsets("orders", [notes.PartitionEnds(0, 5, 1 << 40)], 1_700_000_000_000),
    9: notes.CoordinatorChange(0, 2, 150, 10, 5000),
    10: notes.MemberAway("m", "i", True, 12_000, 45_000),
    11: notes.JoinRefused(None, "c", "/::1", "a, b"),
    12: notes.StandbyChange("m", None, 1, "b", "i", 12_000),
    13: notes.EpochNote(1, 4, ["m1", "m2"], 7, 1 << 40),
}


@pytest.mark.parametrize("kind", sorted(NOTES))
def test_every_kind_of_note_reads_back(kind: int) -> None:
    HEADER.kind = kind
    header, body = read_note(write_note(HEADER, BODIES[kind]))
    assert (header, body) == (HEADER, BODIES[kind])
    assert type(body) is NOTES[kind]


def test_a_note_is_a_version_a_fixed_header_and_a_body() -> None:
    HEADER.kind = 9
    data = write_note(HEADER, BODIES[9])
    header = "09 0000018bcfe56800 0000000000000007 00000002 00000005 03 0000000000000063 00000000"
    body = "00 00000002 0000000000000096 0000000a 0000000000001388 00"
    assert data == bytes.fromhex("0000" + header + body)
    assert with_version(notes.NoteKey("g"), 0).hex() == "0000000167"


def test_a_hand_over_is_in_tagged_fields_that_older_versions_skip() -> None:
    HEADER.kind = 9
    handed_over = notes.CoordinatorChange(1, 2, 0, 10, 0, to_node=3, drained=True)
    data = write_note(HEADER, handed_over)
    assert data.endswith(bytes.fromhex("01 00000002 0000000000000000 0000000a 0000000000000000 02 00 04 00000003 01 01 01"))
    assert read_note(data) == (HEADER, handed_over)
    older = write_note(HEADER, notes.CoordinatorChange(1, 2, 0, 10, 0))
    _, body = read_note(older)
    assert isinstance(body, notes.CoordinatorChange)
    assert (body.to_node, body.drained) == (-1, False)


def test_a_note_of_an_unknown_kind_or_version_keeps_its_body_as_bytes() -> None:
    HEADER.kind = 77
    header, body = read_note(write_note(HEADER, BODIES[9]))
    assert (header.kind, body) == (77, BODIES[9].encode(0))
    HEADER.kind = 9
    newer = b"\x00\x02" + write_note(COUNTED, BODIES[9])[2:]
    assert read_note(newer) == (COUNTED, BODIES[9].encode(0))


def test_a_note_with_a_count_has_version_1() -> None:
    assert read_note(write_note(COUNTED, BODIES[9])) == (COUNTED, BODIES[9])
    assert write_note(COUNTED, BODIES[9])[:2] == b"\x00\x01"
    assert write_note(HEADER, BODIES[9])[:2] == b"\x00\x00"


def test_a_note_with_a_tagged_field_of_a_later_release_is_read() -> None:
    HEADER.kind = 9
    newer = write_note(HEADER, BODIES[9])[:-1] + bytes.fromhex("01 02 02 beef")
    assert read_note(newer)[1] == BODIES[9]
