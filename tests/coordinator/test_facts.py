"""Facts, byte by byte: Kafka's serialization of a group and an offset, partition numbers, protocol votes, subscriptions."""

from __future__ import annotations

import pytest

from coordinator import GroupConfig, StoredOffset, partition_of, read_offset
from coordinator.classic.group import Group
from coordinator.classic.member import Member
from coordinator.classic.subscription import subscribed_topics, topics_of
from coordinator.classic.voting import first_in_java_order, vote
from coordinator.facts import (
    expiring_offset_value,
    group_key,
    group_value,
    offset_key,
    offset_key_prefix,
    offset_value,
    read_group,
    storable,
    update_static_ids,
)
from coordinator.group_partition import java_hash
from coordinator.replay import open_group
from protocol.errors import ProtocolError
from protocol.records import with_version
from simulator.truths import replayed
from tests.coordinator.scenarios import scenario
from tests.support.kafka_records import GROUP_KEY, GROUP_VALUES, OFFSET_KEY, OFFSET_VALUES

pytestmark = pytest.mark.once  # no dependence on the Python version

MS = 1_700_000_000_000

NEW_GROUP = "0003000000000000ffffffff0000018bcfe5680000000000"
EMPTY_AGAIN = "00030008636f6e73756d657200000004ffffffff0000018bcfe5680000000000"

def the_group() -> Group:
    group = Group("g1", MS, MS)
    group.protocol_type, group.generation, group.protocol_name, group.state_ms = "consumer", 3, "range", MS
    group.add(Member("g1", "i1-x", "i1", "c", "/127.0.0.1", 300_000, 45_000, (("range", b"\0\1"),), b"\2"))
    return group


def test_a_group_is_stored_as_kafka_stores_it() -> None:
    group = the_group()
    assert group_key("g1") == bytes.fromhex(GROUP_KEY)
    assert group_value(group, group.members.values(), group.leader, group.protocol_name) == bytes.fromhex(GROUP_VALUES[3])


def test_new_assignments_are_stored_in_place_of_the_members_current_assignments() -> None:
    group = the_group()
    group.members["i1-x"].assignment = b"old"
    group_record = group_value(group, group.members.values(), group.leader, group.protocol_name, {"i1-x": b"\2"})
    assert group_record == bytes.fromhex(GROUP_VALUES[3])


def test_new_and_empty_groups_are_stored_as_kafka_stores_them() -> None:
    assert group_value(Group("g1", MS, MS), (), None, None) == bytes.fromhex(NEW_GROUP)
    group = the_group()
    group.generation = 4
    assert group_value(group, (), None, None) == bytes.fromhex(EMPTY_AGAIN)


@pytest.mark.parametrize("version", GROUP_VALUES)
def test_a_group_of_any_version_is_read(version: int) -> None:
    group = Group("g1", 0, -1)
    group.last_record = bytes.fromhex(GROUP_VALUES[version])
    open_group(group, str)
    (member,) = group.members.values()
    assert (group.protocol_type, group.generation, group.protocol_name, group.leader) == ("consumer", 3, "range", "i1-x")
    assert group.state_ms == (MS if version >= 2 else -1)
    assert (member.id, member.client_id, member.client_host, member.session_timeout_ms) == ("i1-x", "c", "/127.0.0.1", 45_000)
    assert member.instance_id == ("i1" if version >= 3 else None)
    assert member.rebalance_timeout_ms == (300_000 if version >= 1 else 45_000)
    assert (member.protocols, member.assignment, member.is_new) == ((("range", b"\0\1"),), b"\2", False)


@pytest.mark.parametrize("leader", [None, "", "nobody"])
def test_a_group_whose_stored_leader_is_no_member_is_led_by_its_first(leader: str | None) -> None:
    group_record = read_group(bytes.fromhex(GROUP_VALUES[3]))
    group_record.leader = leader
    group = Group("g1", 0, -1)
    group.last_record = with_version(group_record, 3)
    open_group(group, str)
    assert group.leader == "i1-x"


def test_an_offset_is_stored_as_kafka_stores_it() -> None:
    assert offset_key(offset_key_prefix("g1", "t"), 5) == bytes.fromhex(OFFSET_KEY)
    assert offset_value(42, 7, b"m", MS) == bytes.fromhex(OFFSET_VALUES[3])
    assert expiring_offset_value(42, b"m", MS, MS + 60_000) == bytes.fromhex(OFFSET_VALUES[1])


@pytest.mark.parametrize("version", OFFSET_VALUES)
def test_an_offset_of_any_version_is_read(version: int) -> None:
    stored = read_offset(bytes.fromhex(OFFSET_VALUES[version]))
    assert stored == StoredOffset(42, 7 if version >= 3 else -1, "m", MS, MS + 60_000 if version == 1 else -1)


@pytest.mark.parametrize("version", OFFSET_VALUES)
def test_an_offset_of_any_version_is_replayed(version: int) -> None:
    shard = replayed([(bytes.fromhex(OFFSET_KEY), bytes.fromhex(OFFSET_VALUES[version]))], MS, GroupConfig())
    assert read_offset(shard.groups["g1"].offsets["t"].values[5]).offset == 42


@pytest.mark.parametrize("version", OFFSET_VALUES)
def test_an_offset_that_is_cut_short_is_refused(version: int) -> None:
    value = bytes.fromhex(OFFSET_VALUES[version])
    for size in range(len(value)):
        with pytest.raises(ProtocolError):
            read_offset(value[:size])


@pytest.mark.parametrize("version", GROUP_VALUES)
def test_a_group_that_is_cut_short_is_refused(version: int) -> None:
    value = bytes.fromhex(GROUP_VALUES[version])
    for size in range(len(value)):
        with pytest.raises(ProtocolError):
            read_group(value[:size])


def test_texts_too_long_for_a_record_are_recognized() -> None:
    assert storable("a" * 32_767, None, "")
    assert not storable("a" * 32_768)
    assert storable("\u20ac" * 10_922)
    assert not storable("\u20ac" * 10_923)
    assert not storable("a", "a" * 32_768)  # one text that is too long is enough
    assert not storable("a" * 32_768, "a", None)


def test_a_member_missing_from_the_assignments_gets_an_empty_assignment() -> None:
    group = the_group()
    group_record = read_group(group_value(group, group.members.values(), group.leader, group.protocol_name, {}))
    assert [member.assignment for member in group_record.members] == [b""]


def test_a_group_record_gets_the_ids_that_instances_have_now_and_its_leader_with_them() -> None:
    group = the_group()
    group.add(Member("g1", "d-1", None, "c", "/127.0.0.1", 300_000, 45_000, (("range", b""),), b""))
    group_record = group_value(group, group.members.values(), "i1-x", "range")
    assert update_static_ids(group_record, {"i1": "i1-x"}) is None
    assert update_static_ids(group_record, {}) is None
    changed = update_static_ids(group_record, {"i1": "i1-y"})
    assert changed is not None
    assert (read_group(changed).leader, [member.member_id for member in read_group(changed).members]) == ("i1-y", ["i1-y", "d-1"])


@pytest.mark.parametrize("metadata", [b"", b"m", b"a longer text, of more than a few bytes", b"\xff\xfe"])
def test_metadata_of_any_bytes_is_read(metadata: bytes) -> None:
    """Another writer may have stored bytes that are not UTF-8."""
    stored = read_offset(offset_value(42, 7, metadata, MS))
    assert stored == StoredOffset(42, 7, metadata.decode("utf-8", "replace"), MS, -1)


def test_an_offset_whose_metadata_has_no_length_is_refused() -> None:
    value = bytearray(offset_value(42, 7, b"m", MS))
    value[14:16] = b"\xff\xff"
    with pytest.raises(ProtocolError):
        read_offset(bytes(value))


# Partitions.


@pytest.mark.parametrize(
    ("group", "code"),
    [
        ("", 0),
        ("g", 103),
        ("my-group", -1906497762),
        ("test-group", 627841412),
        ("connect-cluster", 1440343063),
        ("polygenelubricants", -(1 << 31)),
        ("été", 227742),
        ("😀", 1772899),
        ("\ud800", 0xD800),  # half a character
    ],
)
def test_strings_are_hashed_as_java_does(group: str, code: int) -> None:
    assert java_hash(group) == code


@scenario("FC-01", "FC-02", "FC-03")
@pytest.mark.parametrize(
    ("group", "partition"),
    [
        ("", 0),
        ("g", 3),
        ("my-group", 12),
        ("test-group", 12),
        ("connect-cluster", 13),
        ("console-consumer-12345", 6),
        ("group-1", 49),
        ("group-2", 0),
        ("polygenelubricants", 0),
        ("été", 42),
        ("😀", 49),
    ],
)
def test_groups_have_the_partition_that_kafka_gives_them(group: str, partition: int) -> None:
    assert partition_of(group, 50) == partition


@pytest.mark.parametrize("size", [511, 512, 513, 514, 700, 1_999, 2_000])
def test_a_long_string_is_hashed_as_its_definition_says(size: int) -> None:
    text = "".join(chr(33 + number % 90) for number in range(size))
    code = 0
    for letter in text:
        code = (31 * code + ord(letter)) & 0xFFFFFFFF
    assert java_hash(text) & 0xFFFFFFFF == code


# Votes.


def test_names_have_the_order_of_a_java_map() -> None:
    unsorted = ["c-1", "c-2", "b-9", "zz", "aa", "member-10", "member-11"]
    names = list(unsorted)
    walked = []
    while unsorted:
        first = first_in_java_order(names, unsorted)
        unsorted.remove(first)
        walked.append(first)
    assert walked == ["zz", "aa", "c-1", "c-2", "member-11", "member-10", "b-9"]


@pytest.mark.parametrize(
    ("first", "second", "chosen"),
    [
        ("range", "roundrobin", "range"),
        ("range", "sticky", "sticky"),
        ("range", "cooperative-sticky", "range"),
        ("sticky", "cooperative-sticky", "sticky"),
        ("roundrobin", "sticky", "sticky"),
        ("roundrobin", "cooperative-sticky", "roundrobin"),
        ("a", "b", "a"),
    ],
)
def test_a_tie_is_broken_as_kafka_breaks_it(first: str, second: str, chosen: str) -> None:
    assert vote([[(first, b""), (second, b"")], [(second, b""), (first, b"")]]) == chosen
    assert vote([[(second, b""), (first, b"")], [(first, b""), (second, b"")]]) == chosen


def test_only_protocols_that_all_members_support_get_votes() -> None:
    offers = [["range", "sticky", "roundrobin"], ["roundrobin", "sticky"], ["sticky", "roundrobin"]]
    assert vote([[(name, b"") for name in offer] for offer in offers]) == "sticky"


# Subscriptions.


@pytest.mark.parametrize(
    "metadata",
    [
        # A field of fixed size is cut off; in the last case, the length of the user data.
        "",
        "00",
        "0000",
        "000000000000",
        "0000000000010003616263",
        # A count or length is negative, or exceeds the remaining bytes. Kafka raises an exception in the middle of completing the rebalance.
        "000000000001",
        "00000000000100036162",
        "000000000001ffff",
        "0000000003e8",
        "0000ffffffff",
        "000000000001000361626300000009",
        "000000000000fffffffe",
        "0000ffffffff00000000",
        "000000000001ffffffffffff",
        "000000000001000a616263ffffffffff",
    ],
)
def test_a_subscription_that_cannot_be_read_is_unknown(metadata: str) -> None:
    assert subscribed_topics(bytes.fromhex(metadata)) is None
    assert topics_of([bytes.fromhex("000000000000ffffffff"), bytes.fromhex(metadata)]) is None


@pytest.mark.parametrize(
    ("metadata", "topics"),
    [
        ("000000000000ffffffff", []),
        ("00000000000000000000", []),
        ("0000000000010003616263ffffffff", ["abc"]),
        ("0003000000010003616263ffffffff", ["abc"]),  # version 3, and as next a subscription with user data, are read alike
        ("000000000001000361626300000002beefcafe", ["abc"]),
        ("00000000000200016100016200000000", ["a", "b"]),
        ("0000000000020000000162ffffffff", ["", "b"]),
        ("0000000000010002c328ffffffff", ["\ufffd("]),  # not UTF-8
    ],
)
def test_a_subscription_is_read_as_version_0(metadata: str, topics: list[str]) -> None:
    assert subscribed_topics(bytes.fromhex(metadata)) == topics


def test_a_truncated_subscription_is_not_read() -> None:
    subscription = bytes.fromhex("000000000002000161000362c3bc00000003757365")
    for size in range(len(subscription)):
        assert subscribed_topics(subscription[:size]) is None
    assert subscribed_topics(subscription) == subscribed_topics(subscription + b"more") == ["a", "bü"]
