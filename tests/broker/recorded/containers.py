"""Hand-made containers of records, and what Apache Kafka's LogValidator and its consumer say of them.

`python -m tests.broker.recorded.containers` asks Kafka's classes (needs Java) and writes containers.json, to which the broker's
verdicts are compared. The cases are the same in each run.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import cramjam

from protocol.compression import Compression, compress
from tests.oracle import JAVA, kafka_jars
from tests.support.containers import (
    BLOCK_CHECKSUM,
    CONTENT_CHECKSUM,
    CONTENT_SIZE,
    INDEPENDENT,
    SKIPPABLE,
    batch,
    encoded_records,
    lz4_frame,
    packed_block,
    stored_block,
    xxh32,
)

ANSWERS: Final = Path(__file__).with_name("containers.json")
PROGRAM: Final = Path(__file__).with_name("Validator.java")
INT64_MAX: Final = (1 << 63) - 1
INT64_MIN: Final = -(1 << 63)
COUNT: Final = 3
MUTATIONS: Final = 120  # of each codec's container
LOG_APPEND_TIME: Final = 8
PRODUCER: Final = "producer"


class Case(NamedTuple):
    name: str
    timestamp_type: str
    compression: str  # of the topic
    data: bytes


def gzip(data: bytes) -> bytes:
    return bytes(cramjam.gzip.compress(data))


def zstd(data: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data))


def snappy(data: bytes) -> bytes:
    return compress(data, Compression.SNAPPY)


def lz4_containers(body: bytes) -> Iterator[tuple[str, bytes]]:
    block = packed_block(body)
    plain = lz4_frame([block])
    yield "plain", plain
    yield "the records in two frames", lz4_frame([packed_block(body[:10])]) + lz4_frame([packed_block(body[10:])])
    yield "a second frame", plain + plain
    yield "bytes after the frame", plain + b"garbage!"
    yield "an empty frame first", lz4_frame([]) + plain
    for kind, empty in (("stored", stored_block(b"")), ("compressed", packed_block(b""))):
        yield f"an empty {kind} block first", lz4_frame([empty, block])
        yield f"an empty {kind} block last", lz4_frame([block, empty])
        yield f"an empty {kind} block in the middle", lz4_frame([packed_block(body[:10]), empty, packed_block(body[10:])])
    yield "no end mark", lz4_frame([block], end=b"")
    yield "half an end mark", lz4_frame([block], end=b"\0\0")
    yield "content checksum", lz4_frame([block], INDEPENDENT | CONTENT_CHECKSUM, content_checksum=xxh32(body))
    yield "wrong content checksum", lz4_frame([block], INDEPENDENT | CONTENT_CHECKSUM)
    yield "missing content checksum", lz4_frame([block], INDEPENDENT | CONTENT_CHECKSUM)[:-4]
    yield "content size", lz4_frame([block], INDEPENDENT | CONTENT_SIZE, size=len(body))
    yield "wrong content size", lz4_frame([block], INDEPENDENT | CONTENT_SIZE, size=7)
    yield "content size cut", lz4_frame([], INDEPENDENT | CONTENT_SIZE, end=b"")[:9]
    yield "block checksums", lz4_frame([block], INDEPENDENT | BLOCK_CHECKSUM)
    yield "wrong block checksum", lz4_frame([block], INDEPENDENT | BLOCK_CHECKSUM)[:-5] + b"\xee\0\0\0\0"
    yield "all flags", lz4_frame([block], 0x7C, size=len(body), content_checksum=xxh32(body))
    for flags in (0x40, 0x61, 0x62, 0x20, 0xA0, 0xE0, 0x00):
        yield f"flags {flags:x}", lz4_frame([block], flags)
    for size in (0x00, 0x10, 0x30, 0x40, 0x50, 0x60, 0x70, 0x41, 0x4F, 0xC0, 0x80):
        yield f"block size {size:x}", lz4_frame([block], block_size=size)
    yield "wrong header checksum", lz4_frame([block], header_checksum=0)
    yield "legacy frame", lz4_frame([block], magic=b"\x02\x21\x4c\x18")
    yield "skippable frame first", SKIPPABLE + plain
    yield "skippable frame last", plain + SKIPPABLE
    yield "a block that unpacks to more than its maximum", lz4_frame([packed_block(body + bytes(70_000))])
    yield "a stored block above its maximum", lz4_frame([stored_block(body + bytes(70_000))])
    yield "stored block", lz4_frame([stored_block(body)])
    yield "stored and compressed blocks", lz4_frame([stored_block(body[:5]), packed_block(body[5:])])
    yield "no bytes", b""
    yield "two bytes", b"\4\x22"
    yield "a byte more", lz4_frame([packed_block(body + b"z")])
    yield "a byte fewer", lz4_frame([packed_block(body[:-1])])
    yield "a byte more in a block of its own, no end mark", lz4_frame([block, packed_block(b"z")], end=b"")
    yield "a cut block", lz4_frame([block])[:-8]
    yield "a block size of 2 GB", lz4_frame([struct.pack("<I", 0x7FFFFFFF)])
    yield "a stored block size of 2 GB", lz4_frame([struct.pack("<I", 0xFFFFFFFF)])
    yield "an unsound block", lz4_frame([struct.pack("<I", 5) + b"\xff\xff\xff\xff\xff"])


def gzip_containers(body: bytes) -> Iterator[tuple[str, bytes]]:
    plain = gzip(body)
    head = plain[:10]

    def flagged(flags: int, extra: bytes = b"") -> bytes:
        return head[:3] + bytes([flags]) + head[4:] + extra + plain[10:]

    yield "plain", plain
    yield "the records in two members", gzip(body[:10]) + gzip(body[10:])
    for count in (1, 2, 17, 18, 19, 40):
        yield f"{count} zero bytes after the member", plain + bytes(count)
        yield f"{count} bytes after the member", plain + b"g" * count
    for flags in (0x20, 0x40, 0x80, 0xE0, 0x01):
        yield f"flags {flags:x}", flagged(flags)
    checked = head[:3] + b"\2" + head[4:]
    yield "header checksum", flagged(2, struct.pack("<H", zlib.crc32(checked) & 0xFFFF))
    yield "wrong header checksum", flagged(2, b"\0\0")
    yield "extra field", flagged(4, struct.pack("<H", 3) + b"abc")
    yield "extra field cut", head[:3] + b"\4" + head[4:] + b"\xff\xff"
    yield "name and comment", flagged(0x18, b"name\0comment\0")
    yield "name without end", head[:3] + b"\x08" + head[4:] + b"name"
    yield "method 7", plain[:2] + b"\7" + plain[3:]
    yield "wrong magic", b"\x1f\x8c" + plain[2:]
    yield "wrong checksum", plain[:-8] + b"\1\2\3\4" + plain[-4:]
    yield "wrong size", plain[:-4] + b"\1\0\0\0"
    for cut in (1, 3, 8, 9, 12):
        yield f"cut by {cut}", plain[:-cut]
    yield "an empty member first", gzip(b"") + plain
    yield "an empty member last", plain + gzip(b"")
    yield "two empty members in the middle", gzip(body[:10]) + gzip(b"") * 2 + gzip(body[10:])
    yield "an unsound second member", plain + head + b"\xff" * 40
    yield "a second member with a wrong method", plain + plain[:2] + b"\7" + plain[3:]
    yield "a second member with reserved flags", gzip(body[:10]) + gzip(body[10:])[:3] + b"\x20" + gzip(body[10:])[4:]
    yield "a cut second member", gzip(body[:10]) + gzip(body[10:])[:-5]
    yield "only an empty member", gzip(b"")
    yield "no bytes", b""
    yield "nine bytes", plain[:9]
    yield "a byte fewer", gzip(body[:-1])
    yield "a byte more", gzip(body + b"z")
    yield "a byte more in a second member", plain + gzip(b"z")


def snappy_containers(body: bytes) -> Iterator[tuple[str, bytes]]:
    plain = snappy(body)
    head = snappy(b"")
    raw = bytes(cramjam.snappy.compress_raw(body))
    yield "plain", plain
    yield "raw block", raw
    yield "raw block with bytes after it", raw + b"zz"
    yield "the records in two streams", snappy(body[:10]) + snappy(body[10:])
    yield "an empty stream first", head + plain
    yield "an empty stream last", plain + head
    yield "two empty streams last", plain + head + head
    yield "a second stream's header is cut", plain + head[:9]
    for version, compatible in ((0, 0), (0, 1), (1, 0), (1, 2), (2, 1), (2, 2), (-1, 1)):
        versions = struct.pack(">ii", version, compatible)
        yield f"version {version} {compatible}", plain[:8] + versions + plain[16:]
        yield f"version {version} {compatible} of the second stream", snappy(body[:10]) + plain[:8] + versions + snappy(body[10:])[16:]
    yield "a second stream with another magic", plain + b"\x82SNAXXX\0" + head[8:]
    yield "a block of no bytes first", plain[:16] + struct.pack(">i", 1) + b"\0" + plain[16:]
    yield "a block size of 0 first", plain[:16] + struct.pack(">i", 0) + plain[16:]
    yield "a block size of 0 last", plain + struct.pack(">i", 0)
    yield "a block of no bytes last", plain + struct.pack(">i", 1) + b"\0"
    for tail in (b"\0", b"\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", struct.pack(">i", 4) + b"abc"):
        yield f"{tail.hex()} after the stream", plain + tail
    yield "no bytes", b""
    yield "one byte", b"\0"
    yield "only a header", head
    yield "a header cut", head[:12]
    yield "a magic cut", head[:6]
    yield "a byte more", snappy(body + b"z")
    yield "a byte fewer", snappy(body[:-1])
    yield "an unsound block", plain[:16] + struct.pack(">i", 5) + b"\x05\xff\xff\xff\xff"


def zstd_containers(body: bytes) -> Iterator[tuple[str, bytes]]:
    plain = zstd(body)
    yield "plain", plain
    yield "the records in two frames", zstd(body[:10]) + zstd(body[10:])
    for tail in (b"g", b"gar", b"garbage", plain[:4], plain[:-1], SKIPPABLE[:-1], b"\0" * 8):
        yield f"{tail.hex()} after the frame", plain + tail
    yield "skippable frame first", SKIPPABLE + plain
    yield "skippable frame last", plain + SKIPPABLE
    yield "an empty frame first", zstd(b"") + plain
    yield "an empty frame last", plain + zstd(b"")
    yield "no bytes", b""
    yield "only an empty frame", zstd(b"")
    yield "only a skippable frame", SKIPPABLE
    for cut in (1, 4, 9):
        yield f"cut by {cut}", plain[:-cut]
    yield "a byte fewer", zstd(body[:-1])
    yield "a byte more", zstd(body + b"z")
    yield "a byte more in a second frame", plain + zstd(b"z")


CONTAINERS: Final = {
    Compression.GZIP: gzip_containers,
    Compression.SNAPPY: snappy_containers,
    Compression.LZ4: lz4_containers,
    Compression.ZSTD: zstd_containers,
}


def container_cases() -> Iterator[Case]:
    body = encoded_records(COUNT)
    for codec, containers in CONTAINERS.items():
        for name, payload in containers(body):
            yield Case(f"{codec.name} {name}", "CreateTime", PRODUCER, batch(payload, COUNT, codec))
            if name == "plain":
                for count in (COUNT - 1, COUNT + 1):
                    yield Case(f"{codec.name} {count} records declared", "CreateTime", PRODUCER, batch(payload, count, codec))
    yield Case("codec 5", "CreateTime", PRODUCER, batch(body, COUNT, 5))


def mutated_cases() -> Iterator[Case]:
    """Containers with one byte changed, cut, or repeated."""
    body = encoded_records(COUNT, value=b"a value that is repeated, that is repeated, that is repeated")
    for codec in CONTAINERS:
        payload = compress(body, codec)
        random = Random(f"mutations of {codec}")
        for number in range(MUTATIONS):
            changed = bytearray(payload)
            for _ in range(random.choice((1, 1, 2))):
                changed[random.randrange(len(changed))] = random.randrange(256)
            if random.random() < 0.15:
                del changed[random.randrange(len(changed)) :]
            if random.random() < 0.15:
                changed += changed[: random.randrange(len(changed) + 1)]
            yield Case(f"{codec.name} mutation {number}", "CreateTime", PRODUCER, batch(bytes(changed), COUNT, codec))


def time_cases() -> Iterator[Case]:
    """Times that overflow, and times set by the broker."""
    times = ((INT64_MAX, 1), (INT64_MAX, 0), (INT64_MAX - 1, 5), (INT64_MIN, -1), (-5, 0), (-1, 0), (INT64_MAX, INT64_MAX), (1_000, INT64_MAX), (0, INT64_MIN))
    for first, delta in times:
        body = encoded_records(COUNT, delta)
        for kind in ("CreateTime", "LogAppendTime"):
            for attributes, compression in ((0, PRODUCER), (1, PRODUCER), (0, "lz4"), (1, "uncompressed"), (LOG_APPEND_TIME, PRODUCER), (LOG_APPEND_TIME | 1, PRODUCER)):
                payload = gzip(body) if attributes & 1 else body
                name = f"times {first} + {delta}, {kind}, attributes {attributes}, {compression}"
                yield Case(name, kind, compression, batch(payload, COUNT, attributes, first, 5))


def producer_cases() -> Iterator[Case]:
    body = encoded_records(COUNT)
    for producer in ((5, -1, 7), (5, -1, 0), (5, 0, -1), (5, -1, -1), (-1, -1, 5), (-1, 3, 5), (-2, 0, 0), (5, -5, 1), (0, 0, 0), (5, 3, 1 << 30)):
        yield Case(f"producer {producer}", "CreateTime", PRODUCER, batch(body, COUNT, 0, producer=producer))


def every_case() -> list[Case]:
    return [*container_cases(), *mutated_cases(), *time_cases(), *producer_cases()]


def ask_kafka(cases: list[Case]) -> list[str]:
    """Kafka's verdicts. Needs Java with its compiler."""
    jars = f"{kafka_jars()}/*"
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["javac", "-cp", jars, "-d", folder, str(PROGRAM)], check=True, timeout=120)
        lines = "".join(f"{case.timestamp_type} {case.compression} {case.data.hex()}\n" for case in cases)
        done = subprocess.run([*JAVA, "-cp", f"{folder}:{jars}", "Validator"], input=lines, capture_output=True, text=True, timeout=300, check=True)
    verdicts = done.stdout.splitlines()
    assert len(verdicts) == len(cases), done.stderr
    return verdicts


def main() -> int:
    cases = every_case()
    verdicts = {case.name: " ".join(verdict.split()[: None if verdict.startswith("0 ") else 1]) for case, verdict in zip(cases, ask_kafka(cases), strict=True)}
    assert len(verdicts) == len(cases), "two cases have one name"
    ANSWERS.write_text(json.dumps(verdicts, indent=0) + "\n")
    print(f"{len(verdicts)} verdicts")
    return 0


if __name__ == "__main__":
    sys.exit(main())
