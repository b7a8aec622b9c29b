"""Bytes of requests and replies in each version: section 20 of the conformance catalogue.

The bytes are put together here, from Kafka's schemas, without our codec.
"""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest

from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.offset_delete import OffsetDeleteRequest
from protocol.messages.sync_group import SyncGroupRequest
from tests.coordinator.scenarios import row, scenario
from tests.support.group_harness import Harness, Peer
from tests.support.group_requests import joining, stable
from tests.support.headers import encode_request

NO_ARRAY, NO_TAGS, NULL = b"\x01", b"\0", b"\0"  # in flexible versions


def i16(value: int) -> bytes:
    return pack(">h", value)


def i32(value: int) -> bytes:
    return pack(">i", value)


def i64(value: int) -> bytes:
    return pack(">q", value)


def text(value: str | None) -> bytes:
    return i16(-1) if value is None else i16(len(value)) + value.encode()


def blob(value: bytes) -> bytes:
    return i32(len(value)) + value


def short(value: str | bytes) -> bytes:
    """A compact string or compact bytes, of up to 126 bytes."""
    data = value.encode() if isinstance(value, str) else value
    return bytes([len(data) + 1]) + data


class RawPeer(Peer):
    """Bytes in, bytes out."""

    def reply_bytes(self, request: Any, version: int, body: bytes) -> bytes:
        """The body of the reply; `request` starts with the API key and version."""
        self._unanswered.append((0, request, version))
        self.connection.data_received(encode_request(request.API_KEY, version, 7, "client", body))
        self._harness.loop.run()
        self._harness.pass_ms(0)
        return self.body()

    def body(self) -> bytes:
        self._unanswered.popleft()
        size = int.from_bytes(self._received[:4], "big")
        frame, self._received = self._received[4 : 4 + size], self._received[4 + size :]
        assert frame[:4] == i32(7)
        return frame[4:]


@pytest.fixture
def peer(harness: Harness) -> RawPeer:
    return RawPeer(harness)


def join_body(version: int, id: str = "", instance: str | None = None) -> bytes:
    """Group "g", session 10 s, rebalance 20 s, type "consumer", protocol "range" with metadata "m"."""
    if version >= 6:
        instance_bytes = NULL if instance is None else short(instance)
        offers = b"\x02" + short("range") + short("m") + NO_TAGS
        reason = short("why") if version >= 8 else b""
        return short("g") + i32(10_000) + i32(20_000) + short(id) + instance_bytes + short("consumer") + offers + reason + NO_TAGS
    head = text("g") + i32(10_000) + (i32(20_000) if version >= 1 else b"") + text(id)
    return head + (text(instance) if version >= 5 else b"") + text("consumer") + i32(1) + text("range") + blob(b"m")


JOIN = JoinGroupRequest()


@pytest.mark.parametrize("version", [row("VS-01", 0), row("VS-01", 1)])
def test_the_first_versions_of_joining_have_no_throttle_time(peer: RawPeer, version: int) -> None:
    assert peer.reply_bytes(JOIN, version, join_body(version, "me")) == i16(25) + i32(-1) + text("") + text("") + text("me") + i32(0)


@pytest.mark.parametrize("version", [row("VS-02", version) for version in (2, 3, 4, 5)])
def test_later_versions_of_joining_begin_with_the_throttle_time(peer: RawPeer, version: int) -> None:
    assert peer.reply_bytes(JOIN, version, join_body(version, "me")) == i32(0) + i16(25) + i32(-1) + text("") + text("") + text("me") + i32(0)


@scenario("VS-03")
def test_join_version_4_returns_a_member_id_first(peer: RawPeer) -> None:
    assert peer.reply_bytes(JOIN, 4, join_body(4)) == i32(0) + i16(79) + i32(-1) + text("") + text("") + text("client-id-1") + i32(0)


@scenario("VS-04")
def test_join_from_version_7_has_a_protocol_type_and_a_null_protocol(peer: RawPeer) -> None:
    expected = NO_TAGS + i32(0) + i16(79) + i32(-1) + NULL + NULL + short("") + short("client-id-1") + NO_ARRAY + NO_TAGS
    assert peer.reply_bytes(JOIN, 7, join_body(7)) == expected


@scenario("VS-05")
def test_join_version_6_is_flexible_with_an_empty_protocol(peer: RawPeer) -> None:
    expected = NO_TAGS + i32(0) + i16(25) + i32(-1) + short("") + short("") + short("me") + NO_ARRAY + NO_TAGS
    assert peer.reply_bytes(JOIN, 6, join_body(6, "me")) == expected


def gathered(harness: Harness, *versions: int) -> list[RawPeer]:
    """The first member joins without an instance id, the others with; each in its own version, and all get a reply."""
    peers = [RawPeer(harness) for _ in versions]
    for number, (client, version) in enumerate(zip(peers, versions, strict=True)):
        instance = f"i{number}" if number else None
        id = client.ask(joining(), version).member_id if number == 0 and version >= 4 else ""
        client._unanswered.append((0, JOIN, version))
        client.connection.data_received(encode_request(JOIN.API_KEY, version, 7, "client", join_body(version, id, instance)))
    harness.loop.run()
    harness.pass_ms(0)  # the initial delay, and its extension by newcomers
    harness.pass_ms(20_000)
    return peers


@scenario("VS-06")
def test_a_leader_of_version_4_gets_static_members_without_instance_ids(harness: Harness) -> None:
    leader, _ = gathered(harness, 4, 5)
    members = i32(2) + text("i1-id-2") + blob(b"m") + text("client-id-1") + blob(b"m")  # static members first
    assert leader.body() == i32(0) + i16(0) + i32(1) + text("range") + text("client-id-1") + text("client-id-1") + members


@scenario("VS-07")
def test_version_9_tells_the_leader_to_skip_the_assignment(harness: Harness, peer: RawPeer) -> None:
    stable(harness, Peer(harness), "instance")
    members = b"\x02" + short("instance-id-2") + short("instance") + short("m") + NO_TAGS
    head = NO_TAGS + i32(0) + i16(0) + i32(1) + short("consumer") + short("range") + short("instance-id-2")
    assert peer.reply_bytes(JOIN, 9, join_body(9, "", "instance")) == head + b"\x01" + short("instance-id-2") + members + NO_TAGS
    fenced_reply = peer.reply_bytes(JOIN, 9, join_body(9, "me", "instance"))
    assert fenced_reply == NO_TAGS + i32(0) + i16(82) + i32(-1) + NULL + NULL + short("") + b"\0" + short("me") + NO_ARRAY + NO_TAGS


@scenario("VS-07", "SR-08")
def test_a_returning_leader_of_version_8_gets_its_old_id_as_the_leader(harness: Harness, peer: RawPeer) -> None:
    old = stable(harness, Peer(harness), "instance")
    head = NO_TAGS + i32(0) + i16(0) + i32(1) + short("consumer") + short("range") + short(old)
    assert peer.reply_bytes(JOIN, 8, join_body(8, "", "instance")) == head + short("instance-id-2") + NO_ARRAY + NO_TAGS


SYNC = SyncGroupRequest()


def sync_body(version: int, id: str, instance: str | None) -> bytes:
    if version >= 4:
        instance_bytes = NULL if instance is None else short(instance)
        kind = short("consumer") + short("range") if version >= 5 else b""
        return short("g") + i32(1) + short(id) + instance_bytes + kind + b"\x02" + short(id) + short("all") + NO_TAGS + NO_TAGS
    return text("g") + i32(1) + text(id) + (text(instance) if version >= 3 else b"") + i32(1) + text(id) + blob(b"all")


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        row("VS-08", 0, i16(0) + blob(b"all")),
        row("VS-08", 1, i32(0) + i16(0) + blob(b"all")),
        row("VS-08", 2, i32(0) + i16(0) + blob(b"all")),
        row("VS-08", 3, i32(0) + i16(0) + blob(b"all")),
        row("VS-08", 4, NO_TAGS + i32(0) + i16(0) + short(b"all") + NO_TAGS),
        row("VS-08", 5, NO_TAGS + i32(0) + i16(0) + short("consumer") + short("range") + short(b"all") + NO_TAGS),
    ],
)
def test_sync_group_bytes_in_each_version(peer: RawPeer, version: int, expected: bytes) -> None:
    peer.reply_bytes(JOIN, 5, join_body(5, "", "instance"))
    assert peer.reply_bytes(SYNC, version, sync_body(version, "instance-id-1", "instance")) == expected


@pytest.mark.parametrize("version", [row("VS-08", 3), row("VS-08", 4), row("VS-08", 5)])
def test_a_sync_is_fenced_by_its_instance_id(peer: RawPeer, version: int) -> None:
    peer.reply_bytes(JOIN, 5, join_body(5, "", "instance"))
    code = i16(82)
    assert code in peer.reply_bytes(SYNC, version, sync_body(version, "other", "instance"))[:7]


LEAVE = LeaveGroupRequest()


@pytest.mark.parametrize(
    ("version", "body", "expected"),
    [
        row("LV-14", 0, text("g") + text("x"), i16(25)),
        row("LV-14", 1, text("g") + text("x"), i32(0) + i16(25)),
        row("VS-09", 2, text("g") + text("x"), i32(0) + i16(25)),
        row("VS-09", 3, text("g") + i32(1) + text("x") + text(None), i32(0) + i16(0) + i32(1) + text("x") + text(None) + i16(25)),
        row(
            "VS-10",
            4,
            short("g") + b"\x02" + short("x") + short("i") + NO_TAGS + NO_TAGS,
            NO_TAGS + i32(0) + i16(0) + b"\x02" + short("x") + short("i") + i16(25) + NO_TAGS + NO_TAGS,
        ),
        row(
            "VS-10",
            5,
            short("g") + b"\x02" + short("x") + NULL + short("why") + NO_TAGS + NO_TAGS,
            NO_TAGS + i32(0) + i16(0) + b"\x02" + short("x") + NULL + i16(25) + NO_TAGS + NO_TAGS,
        ),
    ],
)
def test_leave_group_bytes_in_each_version(peer: RawPeer, version: int, body: bytes, expected: bytes) -> None:
    assert peer.reply_bytes(LEAVE, version, body) == expected


COMMIT = OffsetCommitRequest()
OLD_TOPIC = i32(1) + text("t") + i32(1) + i32(0) + i64(42)


@pytest.mark.parametrize(
    ("version", "body", "epoch", "retained"),
    [
        row("VS-11", 2, text("g") + i32(-1) + text("") + i64(1_000) + OLD_TOPIC + text("m"), -1, True),
        row("VS-11", 3, text("g") + i32(-1) + text("") + i64(1_000) + OLD_TOPIC + text("m"), -1, True),
        row("VS-11", 4, text("g") + i32(-1) + text("") + i64(-1) + OLD_TOPIC + text("m"), -1, False),
        row("VS-11", 5, text("g") + i32(-1) + text("") + OLD_TOPIC + text("m"), -1, False),
        row("VS-11", 6, text("g") + i32(-1) + text("") + OLD_TOPIC + i32(9) + text("m"), 9, False),
        row("VS-11", 7, text("g") + i32(-1) + text("") + text("i") + OLD_TOPIC + i32(9) + text("m"), 9, False),
        row(
            "VS-11",
            8,
            short("g") + i32(-1) + short("") + NULL + b"\x02" + short("t") + b"\x02" + i32(0) + i64(42) + i32(9) + short("m") + 3 * NO_TAGS,
            9,
            False,
        ),
    ],
)
def test_offset_commit_bytes_in_each_version(harness: Harness, peer: RawPeer, version: int, body: bytes, epoch: int, retained: bool) -> None:
    old = (i32(0) if version >= 3 else b"") + i32(1) + text("t") + i32(1) + i32(0) + i16(0)
    flexible = NO_TAGS + i32(0) + b"\x02" + short("t") + b"\x02" + i32(0) + i16(0) + 3 * NO_TAGS
    assert peer.reply_bytes(COMMIT, version, body) == (flexible if version >= 8 else old)
    value = harness.shards.journal_of("g").shard.groups["g"].offsets["t"].values[0]
    now = i64(harness.clock.now)
    if retained:
        assert value == i16(1) + i64(42) + text("m") + now + i64(harness.clock.now + 1_000)
    else:
        assert value == i16(3) + i64(42) + i32(epoch) + text("m") + now


@scenario("VS-12")
def test_deleting_offsets_has_the_error_before_the_throttle_time(peer: RawPeer) -> None:
    assert peer.reply_bytes(OffsetDeleteRequest(), 0, text("g") + i32(0)) == i16(69) + i32(0) + i32(0)


DESCRIBE = DescribeGroupsRequest()
OLD_MEMBER = text("client") + text("/127.0.0.1") + blob(b"topics") + blob(b"mine")


@pytest.mark.parametrize(
    ("version", "body", "middle", "end"),
    [
        row("VS-13", 2, i32(1) + text("g"), text("instance-id-1") + OLD_MEMBER, b""),
        row("VS-13", 3, i32(1) + text("g") + b"\x01", text("instance-id-1") + OLD_MEMBER, i32(3400)),
        row("VS-13", 4, i32(1) + text("g") + b"\0", text("instance-id-1") + text("instance") + OLD_MEMBER, i32(-(1 << 31))),
    ],
)
def test_describe_groups_bytes_in_each_old_version(harness: Harness, peer: RawPeer, version: int, body: bytes, middle: bytes, end: bytes) -> None:
    stable(harness, Peer(harness), "instance")
    head = i32(0) + i32(1) + i16(0) + text("g") + text("Stable") + text("consumer") + text("range") + i32(1)
    assert peer.reply_bytes(DESCRIBE, version, body) == head + middle + end


@scenario("VS-13")
def test_describe_groups_version_5_is_flexible(harness: Harness, peer: RawPeer) -> None:
    stable(harness, Peer(harness), "instance")
    head = NO_TAGS + i32(0) + b"\x02" + i16(0) + short("g") + short("Stable") + short("consumer") + short("range")
    member = (
        short("instance-id-1") + short("instance") + short("client") + short("/127.0.0.1") + short(b"topics") + short(b"mine") + NO_TAGS
    )
    body = b"\x02" + short("g") + b"\x01" + NO_TAGS
    assert peer.reply_bytes(DESCRIBE, 5, body) == head + b"\x02" + member + i32(3400) + 2 * NO_TAGS


@scenario("VS-14")
def test_members_of_different_versions_share_a_group(harness: Harness) -> None:
    old, middle, new = gathered(harness, 3, 5, 9)
    members = i32(3) + b"".join(text(id) + blob(b"m") for id in ("i1-id-2", "i2-id-3", "client-id-1"))  # static members first
    assert old.body() == i32(0) + i16(0) + i32(1) + text("range") + text("client-id-1") + text("client-id-1") + members
    assert middle.body() == i32(0) + i16(0) + i32(1) + text("range") + text("client-id-1") + text("i1-id-2") + i32(0)
    head = NO_TAGS + i32(0) + i16(0) + i32(1) + short("consumer") + short("range") + short("client-id-1") + b"\0"
    assert new.body() == head + short("i2-id-3") + NO_ARRAY + NO_TAGS


@pytest.mark.parametrize("version", [row("VS-16", 10), row("VS-16", -1)])
def test_unknown_versions_close_the_connection(harness: Harness, version: int) -> None:
    peer = Peer(harness)
    frame = pack(">hhih", JOIN.API_KEY, version, 7, -1) + join_body(9)
    peer.connection.data_received(pack(">i", len(frame)) + frame)
    harness.loop.run()
    assert not peer.open
    assert peer._received == b""
    assert Peer(harness).ask(HeartbeatRequest("g", 1, "nobody"), 4).error_code == 25
