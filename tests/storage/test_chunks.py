"""Compaction, verification and reads have the same result with every chunk size, down to a batch header."""

from __future__ import annotations

from random import Random

import pytest

from protocol.batch import HEADER_BYTES, Record, build
from protocol.compression import Compression
from simulator.disk import SimDisk, data_disk
from storage import Handles, Log, compaction, segment, verifying
from tests.storage.logs import FOLDER, clean, headers, names, overwrite, read, stop

pytestmark = pytest.mark.once  # no dependence on the Python version

PATH = f"/data/{FOLDER}"
SIZES = (HEADER_BYTES, HEADER_BYTES + 1, 97, 150, 400, 1_000)


def written(seed: int, segment_bytes: int = 2_000) -> SimDisk:
    """A log of repeated keys, tombstones, producers and compressed batches."""
    random = Random(seed)
    disk = data_disk()
    log, _ = Log.open(Handles(disk), PATH, segment_bytes, 0, False)
    sequences = [0, 0, 0]
    for _ in range(60):
        records = []
        for number in range(random.randint(1, 4)):
            value = None if random.random() < 0.2 else bytes(random.randint(0, 60))
            records.append(Record(number, 1_000, b"k%d" % random.randint(0, 12), value))
        producer = random.randint(-1, 2)
        codec = random.choice((Compression.NONE, Compression.NONE, Compression.LZ4))
        if producer < 0:
            log.append(build(records, compression=codec), 0)
        else:
            batch = build(records, compression=codec, producer_id=producer, producer_epoch=0, base_sequence=sequences[producer])
            sequences[producer] += len(records)
            log.append(batch, 0)
    log.roll(1 << 20)
    stop(log)
    return disk


def content(disk: SimDisk) -> dict[str, bytes]:
    return {name: read(disk, f"{PATH}/{name}") for name in disk.list(PATH)}


def cleaned(seed: int, now: int) -> dict[str, bytes]:
    disk = written(seed)
    log, _ = Log.open(Handles(disk), PATH, 2_000, 0, True)
    clean(disk, log, now=now, segment_bytes=4_000)
    stop(log)
    return content(disk)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("size", SIZES)
def test_cleaning_is_independent_of_the_chunk_size(monkeypatch: pytest.MonkeyPatch, seed: int, size: int) -> None:
    at_once = cleaned(seed, 10_000)
    monkeypatch.setattr(compaction, "CHUNK_BYTES", size)
    assert cleaned(seed, 10_000) == at_once


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("size", SIZES)
def test_verifying_and_reading_are_independent_of_the_chunk_size(monkeypatch: pytest.MonkeyPatch, seed: int, size: int) -> None:
    disk = written(seed, segment_bytes=1 << 20)
    log, _ = Log.open(Handles(disk), PATH, 1 << 20, 0, False)
    expected = names(log), [(header.base_offset, header.size) for header in headers(log)], log.next_offset
    log.close()
    for module in (verifying, segment):
        if hasattr(module, "CHUNK_BYTES"):
            monkeypatch.setattr(module, "CHUNK_BYTES", size)
    for name in ("LOOKUP_BYTES", "FACT_BYTES"):
        if hasattr(segment, name):
            monkeypatch.setattr(segment, name, size)
    log, truncation = Log.open(Handles(disk), PATH, 1 << 20, 0, False)
    assert truncation.cut_bytes == 0
    assert (names(log), [(header.base_offset, header.size) for header in headers(log)], log.next_offset) == expected
    facts = [key for batch_facts in log.facts() for key, _ in batch_facts if key is not None]
    assert [key.decode() for key in facts] == expected[0]
    for base, _ in expected[1]:
        assert log.read(base, 1)[:8] == base.to_bytes(8, "big")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("cut", [1, 30, HEADER_BYTES, HEADER_BYTES + 1])
def test_finding_a_torn_end_is_independent_of_the_chunk_size(monkeypatch: pytest.MonkeyPatch, size: int, cut: int) -> None:
    disk = written(1, segment_bytes=1 << 20)
    (name,) = [name for name in disk.list(PATH) if name.endswith(".log") and read(disk, f"{PATH}/{name}")]
    data = read(disk, f"{PATH}/{name}")
    log, _ = Log.open(Handles(disk), PATH, 1 << 20, 0, True)
    last = headers(log)[-1]
    log.close()
    for entry in disk.list(PATH):
        if entry.endswith(".log") and entry != name:
            disk.remove(f"{PATH}/{entry}")
    overwrite(disk, f"{PATH}/{name}", data[: len(data) - last.size + cut])
    monkeypatch.setattr(verifying, "CHUNK_BYTES", size)
    log, truncation = Log.open(Handles(disk), PATH, 1 << 20, 0, False)
    assert (log.next_offset, truncation.cut_bytes) == (last.base_offset, cut if cut < last.size else 0)
