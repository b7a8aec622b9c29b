"""Changes of consumer groups as records: what is written is read back, in Kafka's bytes."""

from __future__ import annotations

import pytest

from coordinator.classic.kept import KeptBytes
from coordinator.consumer.changes import (
    GONE,
    Change,
    EpochChange,
    ExpressionChange,
    HoldingChange,
    OldTopicsChange,
    ProfileChange,
    Resolved,
    TargetChange,
    TargetEpochChange,
)
from coordinator.consumer.facts import change_of, fact_of
from coordinator.consumer.group import ConsumerGroup
from coordinator.consumer.member import UNKNOWN, UNREVOKED, ClassicPart, Holding, MemberState, Profile
from protocol.messages.consumer_offsets import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    CurrentTopicPartitions,
)
from protocol.messages.kinds import CONSUMER_OFFSETS
from protocol.records import in_newest_version, read_key

T, U = b"t" * 16, b"u" * 16
PROFILE = Profile("i", "r", "client", "/127.0.0.1", ("t", "u"), "t.*", 30_000, "range", ClassicPart(10_000, (("range", b"\0\1"),)))
CHANGES: list[Change] = [
    EpochChange(7, -5),
    EpochChange(7),
    ProfileChange("m", PROFILE),
    ProfileChange("m", Profile()),
    TargetEpochChange(7, 1_700_000_000_000),
    TargetEpochChange(7),
    TargetChange("m", {T: [0, 2], U: [1]}),
    TargetChange("m", {}),
    HoldingChange("m", Holding(7, 6, UNREVOKED, {T: {0: 5, 1: 7}}, {U: {0: 3}})),
    ExpressionChange("t.*", Resolved(("t", "tt"), 12, 1_700_000_000_000)),
]
TOMBSTONES: list[Change] = [
    EpochChange(GONE),
    ProfileChange("m", None),
    TargetEpochChange(GONE),
    TargetChange("m", None),
    HoldingChange("m", None),
    ExpressionChange("t.*", None),
]


@pytest.mark.parametrize("change", [*CHANGES, *TOMBSTONES])
def test_a_change_is_read_as_it_was_written(change: Change) -> None:
    key, value = fact_of("g", change)
    assert (value is None) == (change in TOMBSTONES)
    message = read_key(CONSUMER_OFFSETS, key)
    assert message is not None
    assert change_of(message, value) == change


# Kind, group, and the value: version, fields, tags. What Kafka leaves out, the hash and the time when they are 0, is left out.
BYTES = {
    "epoch": (EpochChange(7), "0003 0001 67", "0000 00000007 00"),
    "epoch and hash": (EpochChange(7, 1), "0003 0001 67", "0000 00000007 01 00 08 0000000000000001"),
    "target epoch": (TargetEpochChange(7), "0006 0001 67", "0000 00000007 00"),
    "target": (TargetChange("m", {T: (0,)}), "0007 0001 67 0001 6d", "0000 02" + T.hex() + "02 00000000 00 00"),
    "old topics": (OldTopicsChange(), "0004 0001 67", None),
}


@pytest.mark.parametrize("name", BYTES)
def test_the_bytes_are_kafkas(name: str) -> None:
    change, key, value = BYTES[name]
    assert isinstance(change, Change)
    assert fact_of("g", change) == (bytes.fromhex(key), None if value is None else bytes.fromhex(value))


def test_partitions_without_assignment_epochs_have_the_epoch_of_the_member() -> None:
    stored = ConsumerGroupCurrentMemberAssignmentValue(7, 6, 0, [CurrentTopicPartitions(T, [0, 1])], [])
    change = change_of(ConsumerGroupCurrentMemberAssignmentKey("g", "m"), in_newest_version(stored))
    assert change == HoldingChange("m", Holding(7, 6, MemberState.STABLE, {T: {0: 7, 1: 7}}))


def test_a_state_of_a_newer_coordinator_is_unknown() -> None:
    stored = ConsumerGroupCurrentMemberAssignmentValue(7, 6, 9, [], [])
    change = change_of(ConsumerGroupCurrentMemberAssignmentKey("g", "m"), in_newest_version(stored))
    assert isinstance(change, HoldingChange)
    assert change.holding is not None
    assert change.holding.state is UNKNOWN


def test_a_partition_stays_with_its_newest_holder_in_a_compacted_log() -> None:
    group = ConsumerGroup("g", KeptBytes())
    for member, assigned in (("a", {T: {0: 2}}), ("b", {T: {0: 3}}), ("a", {})):  # the record in which a gave it up is gone
        group.apply(HoldingChange(member, Holding(3, 2, MemberState.STABLE, assigned)))
    assert group.holders == {T: {0: "b"}}


@pytest.mark.parametrize(
    ("classic", "tags"),
    [(None, "01 00 01 00"), (ClassicPart(5, ()), "01 00 07 01 00 00 00 05 01 00"), (ClassicPart(5, (("range", b"\1"),)), "01 00 10 01 00 00 00 05 02 06 72 61 6e 67 65 02 01 00 00")],
)
def test_a_member_without_a_classic_part_says_so_as_in_kafka(classic: ClassicPart | None, tags: str) -> None:
    """Kafka reads an absent part as an empty one: as a member that speaks the classic protocol. The bytes are those of its own classes."""
    key, value = fact_of("g", ProfileChange("m", Profile(classic=classic)))
    head = bytes.fromhex("00 00 00 00 01 01 01 01 ff ff ff ff 00")
    assert value == head + bytes.fromhex(tags)
    message = read_key(CONSUMER_OFFSETS, key)
    assert message is not None
    assert change_of(message, value) == ProfileChange("m", Profile(classic=classic))
