"""Reading arbitrary bytes ends soon, with a message or a ProtocolError."""

from __future__ import annotations

from typing import Any, cast

import pytest

from protocol.errors import EncodeError, ProtocolError
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.fetch import FetchRequest, FetchTopic
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.metadata import MetadataRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.offset_fetch import OffsetFetchRequest

pytestmark = pytest.mark.once  # no dependence on the Python version


@pytest.mark.parametrize(
    ("cls", "version", "data"),
    [
        (MetadataRequest, 0, "7fffffff" + "00" * 16),
        (MetadataRequest, 9, "ffffffff07" + "00" * 15),
        (OffsetFetchRequest, 1, "0001 67 7fffffff" + "00" * 12),
        (OffsetFetchRequest, 9, "02 0267 00 ffffffff ffffffff07" + "00" * 6),
        (OffsetCommitRequest, 9, "0267 00000001 026d 00 ffffffff07" + "00" * 6),
        (JoinGroupRequest, 9, "0267 0000afc8 0000afc8 01 00 0263 ffffffff07"),
        (CreateTopicsRequest, 7, "ffffffff07" + "01" * 15),
        (FetchRequest, 12, "ffffffff 00000000 00000000 00000000 00 00000000 00000000 ffffffff07"),
    ],
)
def test_an_array_of_two_billion_in_a_short_frame_is_refused_before_it_is_read(cls: Any, version: int, data: str) -> None:
    with pytest.raises(ProtocolError, match=r"an array of 214748364[67] elements with"):
        cls.decode(bytes.fromhex(data), 0, version)


@pytest.mark.parametrize(
    ("version", "data"),
    [(9, "0267 0000afc8 0000afc8 01 00 01 02 0263 ffffffff07 00"), (0, "0001 67 0000afc8 0000 0000 00000001 0001 63 7fffffff 00")],
)
def test_two_gigabytes_in_a_short_frame_are_refused(version: int, data: str) -> None:
    with pytest.raises(ProtocolError, match=r"a length of 214748364[67] with"):
        JoinGroupRequest.decode(bytes.fromhex(data), 0, version)


def heartbeat(tail: str) -> bytes:
    return bytes.fromhex("0267 00000001 026d 00" + tail)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (bytes.fromhex("00 00000001 026d 00 00"), "null instead of a string"),
        (bytes.fromhex("80808080801f00"), "longer than five bytes"),
        (bytes.fromhex("ffffffff7f") + bytes(60), "larger than an int32"),
        (bytes.fromhex("8080808008") + bytes(60), "larger than an int32"),
        (bytes.fromhex("818002") + bytes(40_000), "a string of 32768 bytes"),
        (heartbeat("05"), "5 tagged fields"),
        (heartbeat("01 09 05 00"), "a tagged field of 5 bytes"),
        (b"", "cut short"),
    ],
)
def test_a_malformed_heartbeat_is_refused_with_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        HeartbeatRequest.decode(data, 0, 4)


def test_a_null_in_a_legacy_string_that_cannot_be_null_is_refused() -> None:
    with pytest.raises(ProtocolError, match="null instead of a string"):
        HeartbeatRequest.decode(bytes.fromhex("ffff 00000001 0001 6d"), 0, 0)


def test_any_negative_length_of_something_nullable_is_null_as_in_kafka() -> None:
    message, _ = HeartbeatRequest.decode(bytes.fromhex("0001 67 00000001 0001 6d fffe"), 0, 3)
    assert message.group_instance_id is None
    request, _ = MetadataRequest.decode(bytes.fromhex("fffffffe"), 0, 1)
    assert request.topics is None


def test_a_null_array_is_refused_where_the_version_has_none() -> None:
    with pytest.raises(ProtocolError, match="null is not allowed for topics"):
        MetadataRequest.decode(bytes.fromhex("ffffffff"), 0, 0)
    assert MetadataRequest.decode(bytes.fromhex("ffffffff"), 0, 1)[0].topics is None


def test_a_needlessly_long_varint_is_read_as_kafka_reads_it() -> None:
    message, end = HeartbeatRequest.decode(bytes.fromhex("8200 67 00000001 8280808000 6d 8000 00"), 0, 4)
    assert (message.group_id, message.member_id, message.group_instance_id, end) == ("g", "m", None, 16)


def test_unknown_tagged_fields_are_skipped() -> None:
    sound, _ = HeartbeatRequest.decode(heartbeat("00"), 0, 4)
    data = heartbeat("03 00 00 07 02 6162 ffffffff07 01 63")
    assert HeartbeatRequest.decode(data, 0, 4) == (sound, len(data))


FETCH = "ffffffff 00000000 00000000 00000000 00 00000000 00000000 01 01 01"


@pytest.mark.parametrize(
    ("tags", "cluster_id"),
    [
        ("01 00 03 036364", "cd"),
        ("02 00 02 0261 00 02 0262", "b"),  # a tagged field that occurs twice: the later one counts, as in Kafka
        ("02 05 01 00 00 02 0261", "a"),  # tags in descending order
        ("01 00 01 00", None),  # null
    ],
)
def test_tagged_fields_have_any_order_and_the_last_one_counts(tags: str, cluster_id: str | None) -> None:
    data = bytes.fromhex(FETCH + tags)
    message, end = FetchRequest.decode(data, 0, 12)
    assert (message.cluster_id, end) == (cluster_id, len(data))


@pytest.mark.parametrize("tags", ["01 00 04 0363 64 00", "01 00 02 0363 64", "01 00 00 0261"])
def test_a_tagged_field_with_a_wrong_size_is_refused(tags: str) -> None:
    with pytest.raises(ProtocolError, match="does not have the size"):
        FetchRequest.decode(bytes.fromhex(FETCH + tags), 0, 12)


def test_any_byte_but_zero_is_true() -> None:
    message, _ = MetadataRequest.decode(bytes.fromhex("00000000 7f"), 0, 4)
    assert message.allow_auto_topic_creation is True


def test_bytes_that_are_not_utf8_are_replaced() -> None:
    message, _ = HeartbeatRequest.decode(bytes.fromhex("03 67ff 00000001 026d 00 00"), 0, 4)
    assert message.group_id == "g\ufffd"
    legacy, _ = HeartbeatRequest.decode(bytes.fromhex("0002 67ff 00000001 0001 6d"), 0, 0)
    assert legacy.group_id == "g\ufffd"


def test_decoding_leaves_trailing_bytes_to_the_caller() -> None:
    data = heartbeat("00") + b"more"
    assert HeartbeatRequest.decode(data, 0, 4)[1] == len(data) - 4


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (HeartbeatRequest("g" * 32768), 4),
        (HeartbeatRequest("g" * 32768), 0),
        (HeartbeatRequest("é" * 16384), 4),
        (HeartbeatRequest("g", 1 << 31), 4),
        (HeartbeatRequest("g", -(1 << 31) - 1), 0),
        (HeartbeatRequest("\ud800"), 4),
        (HeartbeatResponse(0, 40_000), 4),
        (FetchRequest(isolation_level=128), 12),
        (CreateTopicsRequest(timeout_ms=1 << 40), 7),
        (FetchRequest(topics=[FetchTopic(topic_id=b"short")]), 13),
    ],
)
def test_a_value_that_does_not_fit_cannot_be_encoded(message: Any, version: int) -> None:
    with pytest.raises(EncodeError):
        message.encode(version)


def test_null_instead_of_a_string_cannot_be_encoded() -> None:
    def encode_null() -> bytes:
        message = HeartbeatRequest()
        message.group_id = cast(str, None)
        return message.encode(4)

    with pytest.raises((EncodeError, TypeError)):  # TypeError: in compiled code the assignment fails already
        encode_null()


def test_the_longest_string_can_be_sent_and_read() -> None:
    for version in (0, 4):
        message = HeartbeatRequest("g" * 32767)
        assert HeartbeatRequest.decode(message.encode(version), 0, version)[0] == message


def test_ten_thousand_protocols_are_read() -> None:
    protocols = [JoinGroupRequestProtocol(f"p{n}", b"x") for n in range(10_000)]
    message = JoinGroupRequest("g", protocols=protocols)
    for version in (0, 9):
        assert JoinGroupRequest.decode(message.encode(version), 0, version)[0].protocols == protocols
