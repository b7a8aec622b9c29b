"""Kafka's own serializers write the same bytes: of every message and version, and of the records that kio lacks."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import google_crc32c
import pytest

from protocol.generator.model import Field, Struct
from protocol.messages.consumer_offsets import GroupMetadataKey, GroupMetadataValue, MemberMetadata, OffsetCommitKey, OffsetCommitValue
from protocol.records import with_version
from tests.oracle import KAFKA_VERSION, NEWEST_VERSION, run_java
from tests.protocol.foreign import MESSAGES, cases, kio_class, lacking, ours, random_instance, random_message

pytestmark = pytest.mark.kafka

DEPTH = int(os.environ.get("TEST_DEPTH", "0"))
KAFKA_BYTES = Path(__file__).parent / "KafkaBytes.java"
RECORDS = "org.apache.kafka.coordinator.group.generated"
COMMON = "org.apache.kafka.common.message"
OTHER_NAMES = {  # of fields, in Kafka, by message and version
    ("ConsumerGroupRegularExpressionValue", 0, "metadata_version"): "version",  # which is a variable of the generated code
    ("TxnOffsetCommitRequest", 6, "generation_id"): "generationIdOrMemberEpoch",
    **{(name, version, "group"): "groupId" for name, version in lacking() if name.endswith("Key")},
}


def as_json(struct: Struct, message: Any, version: int) -> dict[str, Any]:
    """The message as JSON for Kafka's converters: the fields of this version, under their names in Kafka."""
    present = [item for item in struct.fields if item.versions[0] <= version <= item.versions[1]]
    return {
        OTHER_NAMES.get((struct.name, version, item.name), camel(item.name)): json_value(item, getattr(message, item.name), version)
        for item in present
        if item.tag is None or (item.kind == "struct" and item.nullable) or getattr(message, item.name) != (None if item.kind == "struct" else item.default)
    }


def kafka_class(name: str) -> str:
    if name.endswith(("Request", "Response")):
        return f"{COMMON}.{name}Data"
    return f"{RECORDS if name.startswith('ConsumerGroup') else COMMON}.{name}"


def camel(name: str) -> str:
    first, *parts = name.split("_")
    return first + "".join(word.capitalize() for word in parts)


def json_value(item: Field, value: Any, version: int) -> Any:
    if isinstance(value, list):
        return [as_json(item.struct, part, version) if item.struct else part for part in value]
    if item.struct is not None and value is not None:
        return as_json(item.struct, value, version)
    if item.kind == "uuid":
        return base64.urlsafe_b64encode(value).decode().rstrip("=")
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def encoded_by_kafka(lines: list[tuple[str, int, Any]], folder: Path, kafka: str = KAFKA_VERSION) -> Iterator[bytes]:
    """Kafka's bytes for (class, version, json)."""
    file = folder / "messages.txt"
    file.write_text("".join(f"{name} {version} {json.dumps(body)}\n" for name, version, body in lines))
    for line in run_java(KAFKA_BYTES, file, version=kafka).splitlines():
        yield bytes.fromhex(line)


def test_every_message_and_version_is_kafkas_bytes(tmp_path: Path) -> None:
    listed = [
        (name, version, ours(name, random_instance(kio_class(name, version), Random(f"java {name} {version} {n}"))))
        for name, version in cases()
        for n in range(1 + DEPTH // 12)
    ]
    lines = [(kafka_class(name), v, as_json(MESSAGES[name][1].struct, message, v)) for name, v, message in listed]
    for (name, version, message), data in zip(listed, encoded_by_kafka(lines, tmp_path), strict=True):
        assert message.encode(version) == data, (name, version)
        assert type(message).decode(data, 0, version) == (message, len(data))


def test_every_message_that_kio_lacks_is_kafkas_bytes(tmp_path: Path) -> None:
    listed = [
        (name, version, random_message(name, version, Random(f"lacking {name} {version} {n}"))) for name, version in lacking() for n in range(8 + DEPTH)
    ]
    # Kafka's keys have the kind of their record outside of the message, whose own version is 0.
    lines = [
        (kafka_class(name), 0 if name.endswith("Key") else v, as_json(MESSAGES[name][1].struct, message, v)) for name, v, message in listed
    ]
    for (name, version, message), data in zip(listed, encoded_by_kafka(lines, tmp_path, NEWEST_VERSION), strict=True):
        assert message.encode(version) == data, (name, version)
        assert type(message).decode(data, 0, version) == (message, len(data))


def offsets(random: Random) -> OffsetCommitValue:
    topic_id = random.choice((bytes(16), random.randbytes(16)))
    return OffsetCommitValue(random.randrange(1 << 62), random.randrange(-1, 99), random.choice(("", "m", "é" * 90)), 17, 18, topic_id)


def group(random: Random) -> GroupMetadataValue:
    members = [
        MemberMetadata(f"m{n}", random.choice((None, f"i{n}")), "c", "/::1", 5, 6, random.randbytes(200), random.randbytes(n))
        for n in range(random.randrange(4))
    ]
    protocol = random.choice((None, "range"))
    return GroupMetadataValue(random.choice(("", "consumer")), random.randrange(99), protocol, protocol and "m0", 1_700_000_000_000, members)


def test_records_of_consumer_offsets_are_kafkas_bytes(tmp_path: Path) -> None:
    random = Random("records")
    listed = [
        (name, v, make(random)) for name, make in (("OffsetCommitValue", offsets), ("GroupMetadataValue", group)) for v in range(5)
    ] * 3
    lines = [(f"{RECORDS}.{name}", v, as_json(MESSAGES[name][1].struct, message, v)) for name, v, message in listed]
    for (name, version, message), data in zip(listed, encoded_by_kafka(lines, tmp_path), strict=True):
        assert message.encode(version) == data, (name, version)


def varint(value: int) -> bytes:
    value = value << 1 ^ value >> 63
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def segment(records: list[tuple[bytes, bytes | None]]) -> bytes:
    """One record batch, built by hand."""
    body = b""
    for n, (key, value) in enumerate(records):
        sized = varint(-1) if value is None else varint(len(value)) + value
        record = b"\0\0" + varint(n) + varint(len(key)) + key + sized + b"\0"
        body += varint(len(record)) + record
    last, count = (len(records) - 1).to_bytes(4, "big"), len(records).to_bytes(4, "big")
    checked_part = b"\0\0" + last + bytes(8) + bytes(8) + b"\xff" * 14 + count + body
    crc = int(google_crc32c.value(checked_part)).to_bytes(4, "big")
    return bytes(8) + (len(checked_part) + 9).to_bytes(4, "big") + b"\xff" * 4 + b"\2" + crc + checked_part


@pytest.mark.parametrize("version", [3, 4])
def test_kafkas_dump_tool_reads_our_records(tmp_path: Path, version: int) -> None:
    member = MemberMetadata("i1-x", "i1", "client", "/127.0.0.1", 300_000, 45_000, b"\0\1\0\0\0\0\xff\xff\xff\xff\0\0\0\0", b"")
    group = GroupMetadataValue("consumer", 3, "range", "i1-x", 1_700_000_000_000, [member])
    offset = OffsetCommitValue(42, 7, "note", 1_700_000_000_000)
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(
        segment(
            [
                (with_version(GroupMetadataKey("orders"), 2), with_version(group, version)),
                (with_version(OffsetCommitKey("orders", "topic", 5), 1), with_version(offset, version)),
                (with_version(OffsetCommitKey("orders", "gone", 0), 1), None),
            ]
        )
    )
    printed = run_java("org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", log)
    assert "isvalid: true" in printed
    payloads = [line.partition("key: ")[2] for line in printed.splitlines() if "payload: " in line]
    keys, values = zip(*(line.split(" payload: ") for line in payloads), strict=True)
    assert [json.loads(key)["data"] for key in keys] == [
        {"group": "orders"},
        {"group": "orders", "topic": "topic", "partition": 5},
        {"group": "orders", "topic": "gone", "partition": 0},
    ]
    assert json.loads(values[0])["data"]["members"][0]["groupInstanceId"] == "i1"
    assert json.loads(values[0])["data"]["leader"] == "i1-x"
    assert {"offset": 42, "leaderEpoch": 7, "metadata": "note"}.items() <= json.loads(values[1])["data"].items()
    assert values[2] == "<DELETE>"
