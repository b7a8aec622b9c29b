"""The hash of a group's topics is Kafka's."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from coordinator.consumer.topic_hash import hash_of_topic, hash_of_topics
from coordinator.consumer.xxh3 import xxh3_64
from tests.oracle import NEWEST_VERSION, run_java

PROGRAM = Path(__file__).parent / "KafkaTopicHashes.java"
# By the reference implementation in C (xxhash 0.8), of the bytes below: each way of the algorithm, and the edges between them.
HASHES = {
    0: 0x2D06800538D394C2, 1: 0xC44BDFF4074EECDB, 2: 0x9093381C8763D62E, 3: 0xC3489259E968AD9E, 4: 0xD3D60C1519014E89, 5: 0x559935C0F3F7327F,
    8: 0xB88DEE77F6BF6980, 9: 0x3688DCAD730D826, 12: 0x305C5BAE3681D0E0, 16: 0x9DA23836ADF2BE1E, 17: 0xF34C3C9CF5A112D1, 32: 0x99CB9AD0F1A11FBE,
    33: 0xC077B45492D29CDE, 64: 0xFAECD52EFFBB854F, 96: 0x8F8A0C940D32E958, 128: 0x4C659B745F435148, 129: 0xB85222B83902B6E5,
    160: 0x7B45DA4714C3419F, 239: 0x6B9D88F6418559A4, 240: 0xD6DFBF67B0675B54, 241: 0xC614C8C3575348C1, 255: 0x7170BA88ECC1B4D7,
    256: 0xF4186DC163A3283C, 320: 0xFFFE25B1B9C2E812, 1023: 0x540C9523214A845B, 1024: 0xF22EF3DC84FF47EA, 1025: 0x43F869A83769A435,
    1088: 0x40D71F037CD0C530, 2048: 0x3D2649F662A2E191, 2049: 0x4583128AFA3A2985, 5000: 0xCE29A19460EE1BFC,
}  # fmt: skip


@pytest.mark.parametrize("size", HASHES)
def test_the_hash_is_xxh3_of_any_length(size: int) -> None:
    assert xxh3_64(bytes(at * 7 % 251 for at in range(size))) == HASHES[size]


def id_of(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")


def test_kafkas_hash_of_a_group_with_one_topic_and_with_two() -> None:
    first = hash_of_topic(id_of("f47pz-Y3SLWALisTIGSA2A"), "k8a", 4)
    second = hash_of_topic(id_of("Q_txJKmhTKmodsPdJ_sgag"), "k8b", 2)
    assert hash_of_topics([first]) == 1259372908694990727
    assert hash_of_topics([first, second]) == -6082162431708212605
    assert hash_of_topics([]) == 0


def test_each_part_of_a_topic_is_in_its_hash() -> None:
    hashes = {
        hash_of_topic(id, name, partitions, racks)
        for id in (bytes(16), b"\1" + bytes(15), bytes(15) + b"\1")
        for name in ("a", "b")
        for partitions in (1, 2)
        for racks in ({}, {0: ["r"]}, {0: ["r", "s"]})
    }
    assert len(hashes) == 36
    assert hash_of_topic(bytes(16), "a", 2, {0: ["r", "s"]}) == hash_of_topic(bytes(16), "a", 2, {0: ["s", "r"]})


def random_topic(random: Random) -> dict[str, Any]:
    racks = [[random.choice(("r1", "rack-b", "é")) for _ in range(random.randrange(3))] for _ in range(random.choice((1, 2, 30, 200)))]
    return {
        "name": "".join(random.choices("abcdefgh.-_é", k=random.choice((1, 3, 40)))),
        "most": random.randrange(-(1 << 63), 1 << 63),
        "least": random.randrange(-(1 << 63), 1 << 63),
        "racks": racks if random.random() < 0.5 else [[] for _ in racks],
    }


@pytest.mark.kafka
def test_random_topics_have_kafkas_hashes(tmp_path: Path) -> None:
    random = Random(8)
    groups = [[random_topic(random) for _ in range(random.choice((1, 2, 9)))] for _ in range(200)]
    file = tmp_path / "groups"
    file.write_text("".join(json.dumps(group) + "\n" for group in groups))
    for group, line in zip(groups, run_java(PROGRAM, file, version=NEWEST_VERSION).splitlines(), strict=True):
        *topics, whole = map(int, line.split())
        ours = {}
        for topic, kafkas in zip(group, topics, strict=True):
            id = topic["most"].to_bytes(8, "big", signed=True) + topic["least"].to_bytes(8, "big", signed=True)
            ours[topic["name"]] = hash_of_topic(id, topic["name"], len(topic["racks"]), dict(enumerate(topic["racks"])))
            assert ours[topic["name"]] == kafkas or sum(one["name"] == topic["name"] for one in group) > 1
        assert hash_of_topics(ours[name] for name in sorted(ours)) == whole
