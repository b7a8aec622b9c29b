"""Replaying facts: bulk replay gives the same state as replaying one by one."""

from __future__ import annotations

from random import Random

import pytest

from coordinator import Commit, GroupConfig, read_offset
from coordinator.classic.group import Group
from coordinator.committed import TopicOffsets
from coordinator.consumer.changes import GONE, Change, EpochChange, HoldingChange, ProfileChange, TargetChange, TargetEpochChange
from coordinator.consumer.facts import fact_of
from coordinator.consumer.member import STABLE, Holding, Profile
from coordinator.facts import group_key, offset_key, offset_key_prefix, offset_value
from coordinator.hold import Fact
from coordinator.replay import Replay
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages.consumer_offsets import GroupMetadataValue, MemberMetadata
from protocol.messages.offset_commit import OffsetCommitRequestPartition
from protocol.records import with_version
from simulator.truths import replayed

pytestmark = pytest.mark.once  # no dependence on the Python version

MS = 1_700_000_000_000
OLD_PREFIX = b"\0\0"  # version 0 of an offset's key, which old Kafka brokers wrote; it means the same as version 1


def folded(facts: list[Fact]) -> dict[tuple[str, str, int], int]:
    shard = replayed(facts, MS, GroupConfig())
    return {
        (group.id, topic, partition): read_offset(value).offset
        for group in shard.groups.values()
        for topic, stored in group.offsets.items()
        for partition, value in stored.values.items()
    }


def an_offset(group: str, topic: str, partition: int, offset: int | None, metadata: bytes = b"") -> Fact:
    value = None if offset is None else offset_value(offset, -1, metadata, MS)
    return offset_key(offset_key_prefix(group, topic), partition), value


@pytest.mark.parametrize("seed", range(20))
def test_bulk_replay_keeps_the_newest_offset_of_each_partition(seed: int) -> None:
    random = Random(seed)
    expected: dict[tuple[str, str, int], int] = {}
    facts: list[Fact] = []
    group, topic = "g", "t"
    for number in range(1_000):
        if random.random() < 0.2:
            group, topic = random.choice(["g", "h", "longer"]), random.choice(["t", "u", "topic"])
        partition = random.choice([0, 1, 2, 3, 255, 1 << 20])
        offset = None if random.random() < 0.1 else number
        key, value = an_offset(group, topic, partition, offset, b"m" * random.choice([0, 0, 0, 1, 300]))
        facts.append((OLD_PREFIX + key[2:] if random.random() < 0.1 else key, value))
        if offset is None:
            expected.pop((group, topic, partition), None)
        else:
            expected[group, topic, partition] = number
    assert folded(facts) == expected


def test_a_group_that_ended_between_two_of_its_offsets_is_a_new_group() -> None:
    erased = [an_offset("g", "t", number, None) for number in (1, 2)]
    facts = [an_offset("g", "t", 1, 10), an_offset("g", "t", 2, 20), *erased, (group_key("g"), None), an_offset("g", "t", 2, 21)]
    assert folded(facts) == {("g", "t", 2): 21}
    old = [(OLD_PREFIX + key[2:], value) if key != group_key("g") else (key, value) for key, value in facts]
    assert folded(old) == {("g", "t", 2): 21}


def test_a_tombstone_of_an_unknown_group_has_no_effect() -> None:
    """Compaction may have removed all other records of the group."""
    groups: dict[str, Group] = {}
    orphaned_offsets: dict[str, dict[str, TopicOffsets]] = {}
    Replay(groups, {}, orphaned_offsets).fold([(group_key("g"), None), an_offset("g", "t", 1, None), an_offset("h", "t", 1, 10), (group_key("g"), None)])
    assert (list(groups), orphaned_offsets) == (["h"], {})


def test_offsets_of_a_deleted_group_are_kept_and_return_to_a_group_of_its_name() -> None:
    groups: dict[str, Group] = {}
    orphaned_offsets: dict[str, dict[str, TopicOffsets]] = {}
    replay = Replay(groups, {}, orphaned_offsets)
    replay.fold([an_offset("g", "t", 1, 10), an_offset("h", "t", 1, 10), an_offset("h", "t", 1, None), (group_key("g"), None), (group_key("h"), None)])
    assert (groups, list(orphaned_offsets), list(orphaned_offsets["g"]["t"].values)) == ({}, ["g"], [1])
    replay.fold([an_offset("g", "t", 2, 20)])
    assert (list(groups), sorted(groups["g"].offsets["t"].values), orphaned_offsets) == (["g"], [1, 2], {})


def test_a_stored_member_without_a_protocol_offers_no_protocols() -> None:
    """No coordinator writes such a member, but a log that has one must be readable."""
    member = MemberMetadata("m", None, "c", "/here", 60_000, 10_000, b"subscription", b"assignment")
    group_record = with_version(GroupMetadataValue("consumer", 3, None, "m", MS, [member]), 3)
    shard = replayed([(group_key("g"), group_record)], MS, GroupConfig())
    group = shard.groups["g"]
    assert group.members["m"].protocols == (("", b"subscription"),)
    assert [member.metadata for member in shard.describe("g").members] == [b""]


@pytest.mark.parametrize("key", [b"\0\x09ab", b"\0\x09", b"\0\x09a", b"\0\x09abcdefgh"])
def test_a_key_of_an_unknown_kind_does_not_affect_its_neighbours(key: bytes) -> None:
    facts = [(key, b"v" * 24), (key, b""), an_offset("g", "t", 1, 10), (key, b""), (key, b""), an_offset("g", "t", 2, 20), (key, None), an_offset("g", "t", 1, 11)]
    assert folded(facts) == {("g", "t", 1): 11, ("g", "t", 2): 20}


@pytest.mark.parametrize("key", [b"", b"\0", b"\xff\xff\0", b"\0\1", b"\0\1\0"])
def test_an_empty_key_is_refused_at_any_position(key: bytes) -> None:
    for before in ([], [an_offset("g", "t", 1, 10)]):
        with pytest.raises(ProtocolError):
            folded([*before, (key, b"v")])


@pytest.mark.parametrize("is_last", [False, True])
def test_an_unreadable_value_is_refused_at_any_position(is_last: bool) -> None:
    (key, value) = an_offset("g", "t", 1, 10, b"metadata")
    assert value is not None
    before = [an_offset("g", "t", 0, 1)] if is_last else []
    plain = value[:14] + b"\0\0" + value[-8:]  # without metadata
    unknown = [version + stored[2:] for version in (b"\0\2", b"\0\4", b"\0\x63") for stored in (value, plain)]
    for wrong in (value[:-1], value[:20], value[:3], b"", *unknown, value[:14] + b"\0\x09" + value[16:]):
        with pytest.raises(ProtocolError):
            Replay({}, {}, {}).fold([*before, (key, wrong)])


def test_replay_counts_known_and_unknown_records_over_all_parts_of_a_log() -> None:
    replay = Replay({}, {}, {})
    assert (replay.facts, replay.unknown) == (0, 0)
    replay.fold([an_offset("g", "t", 1, 10), (b"\0\x09", b"v"), an_offset("g", "t", 1, 11), (b"\0\x09abcd", b"v" * 24)])
    assert (replay.facts, replay.unknown) == (4, 2)
    replay.fold([an_offset("g", "t", 1, 12), an_offset("g", "t", 1, None), (group_key("g"), None)])
    assert (replay.facts, replay.unknown) == (7, 2)


def test_a_refused_commit_keeps_the_offsets_of_an_ended_group() -> None:
    """Compaction may leave offsets followed by the tombstone of their group; a new group of this name gets these offsets."""
    shard = replayed([an_offset("g", "t", 1, 10), (group_key("g"), None)], MS, GroupConfig(offset_metadata_max_bytes=4_000, batch_bytes_max=1_000))

    def commit(metadata: str) -> int:
        return shard.commit(Commit("g", -1, "", None, [("u", [OffsetCommitRequestPartition(0, 5, -1, metadata)])]), 1, MS)

    assert commit("m" * 2_000) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert not shard.groups
    assert commit("") == ErrorCode.NONE
    assert {topic: list(stored.values) for topic, stored in shard.groups["g"].offsets.items()} == {"t": [1], "u": [0]}


# Records of the consumer protocol without their group


def consumer_facts(group: str, *changes: Change) -> list[Fact]:
    return [fact_of(group, change) for change in changes]


PROFILE = ProfileChange("m", Profile())
ASSIGNED = (TargetEpochChange(3, MS), TargetChange("m", {b"t" * 16: [0]}), HoldingChange("m", Holding(3, 2, STABLE, {b"t" * 16: {0: 3}})))


def test_assignments_without_a_member_or_an_epoch_are_ignored_and_named() -> None:
    offsets = [an_offset("lost", "t", 1, 10)]
    shard = replayed([*consumer_facts("lost", *ASSIGNED), *offsets, *consumer_facts("gone", *ASSIGNED)], MS, GroupConfig())
    assert (shard.unfounded, list(shard.consumers.groups)) == (["lost", "gone"], [])
    assert (list(shard.groups), sorted(shard.groups["lost"].offsets["t"].values)) == (["lost"], [1])


@pytest.mark.parametrize("founding", [PROFILE, EpochChange(3, 0)])
@pytest.mark.parametrize("first", [False, True])
def test_a_group_of_which_an_epoch_or_a_member_is_stored_is_sound(founding: Change, first: bool) -> None:
    """Members that subscribe to an expression which matches nothing yet have no epoch record, as in Kafka; compaction may put the record last."""
    changes = (founding, *ASSIGNED) if first else (*ASSIGNED, founding)
    shard = replayed(consumer_facts("g", *changes), MS, GroupConfig())
    assert (shard.unfounded, list(shard.consumers.groups)) == ([], ["g"])


def test_a_deleted_group_does_not_make_later_assignments_of_its_name_sound() -> None:
    deleted = consumer_facts("g", PROFILE, EpochChange(3, 0), ProfileChange("m", None), EpochChange(GONE))
    shard = replayed([*deleted, *consumer_facts("g", *ASSIGNED)], MS, GroupConfig())
    assert (shard.unfounded, list(shard.consumers.groups), list(shard.groups)) == (["g"], [], [])
