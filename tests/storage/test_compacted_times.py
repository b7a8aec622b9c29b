"""Timestamps of a compacted log: the newest record is readable, and the time index names no emptied batch."""

from __future__ import annotations

from pathlib import Path
from random import Random
from struct import iter_unpack
from typing import NamedTuple

import pytest

from protocol.batch import Compression, Record, build, iterate_headers, read_header, records, rewrite
from simulator.disk import SimDisk, data_disk
from storage import Disk, Handles, Log, OsDisk, Producers
from tests.oracle import run_java
from tests.storage.conftest import DataFolder
from tests.storage.logs import DUMP, FOLDER, clean, headers, newest_timestamp, overwrite, read, result_of, scan, stop

pytestmark = pytest.mark.once  # no dependence on the Python version

COUNT = 60


class Stamp(NamedTuple):
    timestamp: int
    offset: int


def opened(disk: Disk, folder: str, is_clean: bool = True) -> tuple[Log, Producers]:
    producers = Producers()
    log, _ = Log.open(Handles(disk), folder, 6_000, 0, is_clean, deferred=True, producers=producers)
    return log, producers


def write(log: Log, producers: Producers, random: Random, count: int = COUNT) -> None:
    """Times go up and down, some batches are large enough for an index entry, and producers end, so that their last batches are emptied later."""
    first = len(producers)
    begin = random.choice((1_000, 50_000, 100_000))  # a later round may have older times
    for _ in range(count):
        batch_records = []
        for number in range(random.randint(1, 3)):
            timestamp = begin + random.randint(1, 9_000)
            value = None if random.random() < 0.1 else bytes(random.choice((1, 900)))
            batch_records.append(Record(number, timestamp, b"k%d" % random.randint(0, 20), value))
        producer = random.choice((-1, first, first + 1))
        state = producers.get(producer) if producer >= 0 else None
        sequence = -1 if producer < 0 else state.batches[-1][1] + 1 if state is not None else 0
        codec, epoch = random.choice((Compression.NONE, Compression.LZ4)), min(producer, 0)
        data = build(batch_records, compression=codec, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        offset = log.append(data, log.epoch)
        if producer >= 0:
            producers.note(read_header(data, 0), offset)


def all_records(log: Log) -> list[Stamp]:
    stamps = []
    for chunk in scan(log, log.start_offset):
        at = 0
        for header in iterate_headers(chunk, 0, len(chunk)):
            stamps += [Stamp(record.timestamp, record.offset) for record in records(chunk, at) if record.offset >= log.start_offset]
            at += header.size
    return stamps


def check(log: Log) -> None:
    """Compare time lookups with a read of the whole log."""
    stored_records = all_records(log)
    newest = result_of(log.latest_record())
    assert (newest and newest.timestamp) == max((record.timestamp for record in stored_records), default=None)
    assert newest is None or Stamp(newest.timestamp, newest.offset) in stored_records
    for timestamp in range(0, 120_000, 7_003):
        expected = next((record for record in stored_records if record.timestamp >= timestamp), None)
        first = result_of(log.find_time(timestamp))
        assert (first and Stamp(first.timestamp, first.offset)) == expected


def check_time_index(disk: Disk, log: Log) -> int:
    """Check that each entry has the newest time of the records in the batch that ends at its offset; returns the number of entries."""
    times = {header.last_offset: header.max_timestamp for header in headers(log) if header.record_count}
    entries = 0
    for name in disk.list(log.folder):
        if name.endswith(".timeindex"):
            for timestamp, offset in iter_unpack(">qi", read(disk, f"{log.folder}/{name}")):
                entries += 1
                assert times[int(name[:20]) + offset] == timestamp
    return entries


@pytest.mark.parametrize("seed", range(15))
def test_times_of_a_log_that_is_compacted_again_and_again(seed: int) -> None:
    random = Random(seed)
    disk = data_disk()
    folder = f"/data/{FOLDER}"
    log, producers = opened(disk, folder)
    for _ in range(4):
        write(log, producers, random)
        if random.random() < 0.5:
            log.delete_before(random.randint(log.start_offset, log.next_offset))
        log.roll(0)
        clean(disk, log, now=random.choice((0, 1 << 40)), segment_bytes=random.choice((6_000, 1 << 20)), producers=producers.last_offsets())
        check(log)
        stop(log)
        assert check_time_index(disk, log)
        log, producers = opened(disk, folder, random.random() < 0.5)
        check(log)


def emptied(data_folder: DataFolder) -> Log:
    """The batch with the largest time remains only for its producer."""
    log, producers = opened(data_folder.disk, f"{data_folder.path}/{FOLDER}")
    for number in range(9):
        log.append(build([Record(0, 1_000 + number, b"k%d" % number, bytes(900))]), log.epoch)
    data = build([Record(0, 9_000, b"k", b"old")], producer_id=7, producer_epoch=0, base_sequence=0)
    producers.note(read_header(data, 0), log.append(data, log.epoch))
    assert log.roll(0)
    log.append(build([Record(0, 500, b"k", b"new")]), log.epoch)
    assert log.roll(0)
    clean(data_folder.disk, log, producers=producers.last_offsets())
    assert [header.record_count for header in headers(log)] == [1] * 9 + [0, 1]
    return log


def test_the_newest_record_is_found_despite_an_emptied_newer_batch(data_folder: DataFolder) -> None:
    log = emptied(data_folder)
    for _ in range(2):
        newest = result_of(log.latest_record())
        assert newest is not None
        assert (newest.timestamp, newest.offset) == (1_008, 8)
        stop(log)
        log, _ = opened(data_folder.disk, log.folder)


def test_a_time_index_that_names_an_emptied_batch_does_not_hide_the_newest_record(data_folder: DataFolder) -> None:
    """Kafka's cleaner writes such a time index."""
    log = emptied(data_folder)
    stop(log)
    path = f"{log.folder}/{0:020}.timeindex"
    overwrite(data_folder.disk, path, read(data_folder.disk, path)[:12] + (9_000).to_bytes(8, "big") + (9).to_bytes(4, "big"))
    log, _ = opened(data_folder.disk, log.folder)
    newest = result_of(log.latest_record())
    assert newest is not None
    assert (newest.timestamp, newest.offset) == (1_008, 8)


def test_consecutive_equal_emptied_batches_have_no_time(data_folder: DataFolder) -> None:
    empty_batch = rewrite(read_header(build([Record(0, 500, b"k", b"v")]), 0), [])
    data_read = bytearray(empty_batch)
    for number in range(1, 200):
        data = build([Record(number, 500 + number, b"k", b"v")], base_offset=number)
        data_read += rewrite(read_header(data, 0), [])
    data_read += build([Record(200, 7, b"k", b"v")], base_offset=200)
    folder = f"{data_folder.path}/{FOLDER}"
    data_folder.disk.make_folder(folder)
    overwrite(data_folder.disk, f"{folder}/{0:020}.log", bytes(data_read))
    log, _ = opened(data_folder.disk, folder, False)
    assert (log.next_offset, newest_timestamp(log)) == (201, 7)
    assert [header.max_timestamp for header in headers(log)][-2:] == [699, 7]


def test_a_segment_of_only_emptied_batches_keeps_the_age_of_its_records(disk: SimDisk) -> None:
    log, producers = opened(disk, f"/data/{FOLDER}")
    data = build([Record(0, 9_000, b"k", b"old")], producer_id=7, producer_epoch=0, base_sequence=0)
    producers.note(read_header(data, 0), log.append(data, log.epoch))
    assert log.roll(0)
    log.append(build([Record(0, 50_000, b"k", b"new")]), log.epoch)
    assert log.roll(0)
    clean(disk, log, segment_bytes=1, producers=producers.last_offsets())
    assert [header.record_count for header in headers(log)] == [0, 1]
    disk.time = 1 << 40  # the compacted file has a recent modification time, which must not make its records look new
    assert log.apply_retention(20_000, 0, 11_000, -1) == []
    assert log.apply_retention(20_001, 0, 11_000, -1) == [0]


@pytest.mark.kafka
def test_kafkas_dump_tool_accepts_compacted_directories(tmp_path: Path) -> None:
    files: list[Path] = []
    batches = emptied = 0
    for seed in range(12):
        random = Random(seed)
        log, producers = opened(OsDisk(), str(tmp_path / f"orders-{seed}"))
        for _ in range(3):
            write(log, producers, random)
            log.roll(0)
            clean(OsDisk(), log, now=random.choice((0, 1 << 40)), segment_bytes=random.choice((6_000, 1 << 20)), producers=producers.last_offsets())
        stop(log)
        batches += len(headers(log))
        emptied += sum(not header.record_count for header in headers(log))
        files += sorted(path for path in Path(log.folder).iterdir() if path.suffix in (".log", ".index", ".timeindex"))
    assert emptied > 12
    printed = run_java(DUMP, "--files", ",".join(map(str, files)))
    assert printed.count("isvalid: true") == batches
    assert [line for line in printed.splitlines() if "ound " in line or "ismatch" in line] == []
