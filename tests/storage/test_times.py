"""Records are found by their time as if all were read, in steps that read little, whatever becomes of their segments in between."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from protocol.batch import BatchHeader, Compression, Record, TimestampType, build, iterate, records
from storage import DamagedLog, Found, Handles, Log
from storage.segment import LOOK_BYTES
from storage.times import STEP_BYTES, STEP_RECORDS
from tests.storage.faulty_disk import FaultyDisk, FaultyFile
from tests.storage.logs import FOLDER, batch, clean, found, reopen, stop

LATEST = None


def readable(log: Log) -> list[Found]:
    """Every record from the start of the log on."""
    kept: list[Found] = []
    for chunk in log.scan():
        at = 0
        for header in iterate(chunk, 0, len(chunk)):
            kept += [Found(one.timestamp, one.offset, header.leader_epoch) for one in records(chunk, at) if one.offset >= log.start_offset]
            at += header.size
    return kept


def expected(kept: list[Found], timestamp: int | None) -> Found | None:
    if timestamp is None:
        return max(kept, key=lambda one: (one.timestamp, -one.offset), default=None)
    return next((one for one in kept if one.timestamp >= timestamp), None)


def look(log: Log, timestamp: int | None) -> Iterator[Found | None]:
    return log.latest_record() if timestamp is None else log.find_time(timestamp)


class Written:
    """A log of any batches, compacted and deleted from at any time."""

    def __init__(self, seed: int, disk: FaultyDisk) -> None:
        self.random = random = Random(seed)
        self.disk = disk
        self.now = 1_000
        self.in_order = random.random() < 0.4
        self.segment_bytes = random.choice((3_000, 20_000, 1 << 20))
        self.log, _ = reopen(disk, "/data", segment_bytes=self.segment_bytes)

    def go_on(self) -> None:
        random = self.random
        match random.randrange(40):
            case 0:
                self.log.delete_before(random.randrange(self.log.start_offset, self.log.next_offset + 1))
            case 1 if len(self.log.closed) > 1:
                clean(self.disk, self.log, now=self.now, segment_bytes=random.choice((5_000, 1 << 20)))
            case 2:
                self.log.retain(0, 0, -1, self.log.size // 2)
            case 3:
                self.log.roll(1 << 30)
            case 4:
                stop(self.log)
                start = self.log.start_offset
                self.log, _ = Log.open(Handles(self.disk), f"/data/{FOLDER}", self.segment_bytes, 0, random.random() < 0.5, start_offset=start)
            case _:
                self.append()

    def append(self) -> None:
        random = self.random
        self.now += random.randrange(20)
        made = [
            Record(
                number,
                self.now + number if self.in_order else random.randrange(1_000, 2_000),
                b"key %d" % random.randrange(30),
                bytes(random.choice((0, 10, 1_000))),
                [],
            )
            for number in range(random.randrange(1, 8))
        ]
        kind = TimestampType.LOG_APPEND_TIME if random.random() < 0.2 else TimestampType.CREATE_TIME
        self.log.append(build(made, compression=random.choice(list(Compression)), timestamp_type=kind), self.log.epoch)


@pytest.mark.parametrize("seed", range(30))
def test_what_is_found_is_what_reading_everything_finds(disk: FaultyDisk, seed: int) -> None:
    written = Written(seed, disk)
    for number in range(150):
        written.go_on()
        if number % 10 == 9:
            log = written.log
            kept = readable(log)
            for timestamp in (LATEST, 0, 999, 2_001, written.now, *(written.random.randrange(900, 2_600) for _ in range(6))):
                assert found(look(log, timestamp)) == expected(kept, timestamp), timestamp


@pytest.mark.parametrize("seed", range(15))
def test_segments_that_give_way_between_two_steps_are_read_on(disk: FaultyDisk, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.times.STEP_READS", 1)
    written = Written(seed, disk)
    written.segment_bytes = written.log.segment_bytes = 20_000
    for _ in range(60):
        written.append()
    log = written.log
    kept = readable(log)
    for timestamp in (LATEST, *(written.random.randrange(1_000, 2_000) for _ in range(5))):
        before = expected(kept, timestamp)
        steps = look(log, timestamp)
        result = next(steps, None)
        while result is None:
            match written.random.randrange(4):
                case 0 if len(log.closed) > 1:
                    clean(disk, log, now=written.now)
                case 1:
                    log.drop_old(written.random.randrange(1_000, 1_500), 0, 0)
                case 2:
                    written.append()
            try:
                result = next(steps)
            except StopIteration:
                break
        del steps
        after = readable(log)
        assert result in (before, expected(after, timestamp)), timestamp
        assert not any(segment.readers or segment.kept for segment in log._segments)
        kept = after


class Reads:
    """How much each step reads, and how many records are looked at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        plain = FaultyFile.read

        def read(file: FaultyFile, at: int, size: int) -> bytes:
            self.bytes += size
            return plain(file, at, size)

        monkeypatch.setattr(FaultyFile, "read", read)

    def of_steps(self, steps: Iterator[Found | None]) -> list[int]:
        """Of each."""
        each = []
        self.bytes = 0
        for _ in steps:
            each.append(self.bytes)
            self.bytes = 0
        return each


@pytest.mark.parametrize("timestamp", [LATEST, 5_000])
@pytest.mark.parametrize("padding", [0, 3_000, 20_000])
def test_where_the_newest_time_was_deleted_each_step_reads_little(
    disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch, timestamp: int | None, padding: int
) -> None:
    log, _ = reopen(disk, "/data", segment_bytes=1 << 30)
    log.append(batch("newest", timestamp=9_000), log.epoch)
    for number in range(4_000 if padding < 20_000 else 400):
        log.append(batch("b", timestamp=1_000 + number % 7, padding=padding), log.epoch)
    log.delete_before(1)
    each = Reads(monkeypatch).of_steps(look(log, timestamp))
    assert len(each) > 2
    assert max(each) <= STEP_BYTES + 8 * LOOK_BYTES  # and an index
    # Only headers are read of batches that are not late enough.
    assert sum(each) <= min(log.size, 401 * LOOK_BYTES if padding == 20_000 else log.size) + 3 * STEP_BYTES


def test_a_batch_of_many_records_is_looked_at_in_steps(disk: FaultyDisk) -> None:
    log, _ = reopen(disk, "/data")
    count = 5 * STEP_RECORDS
    log.append(build([Record(n, n, None, b"", []) for n in range(count)], compression=Compression.GZIP), log.epoch)
    steps = list(log.find_time(count - 1))
    assert steps == [None] * (len(steps) - 1) + [Found(count - 1, count - 1, 0)]
    assert len(steps) >= 5


def test_with_its_index_a_look_reads_a_few_kib_wherever_the_log_begins(disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = reopen(disk, "/data", segment_bytes=1 << 30)
    for number in range(9_000):
        log.append(batch("b", timestamp=1_000 + number), log.epoch)
    reads = Reads(monkeypatch)
    assert sum(reads.of_steps(log.find_time(9_000))) < 6 * LOOK_BYTES
    log.delete_before(8_900)
    reads.bytes = 0
    assert found(log.find_time(1_500)) == (9_900, 8_900, 0)
    assert reads.bytes < 6 * LOOK_BYTES
    assert found(log.latest_record()) == (9_999, 8_999, 0)


def test_an_index_that_is_gone_costs_steps_and_not_one_long_read(disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = reopen(disk, "/data", segment_bytes=1 << 30)
    for number in range(9_000):
        log.append(batch("b", timestamp=1_000 + number), log.epoch)
    log.flush()
    for segment in log._segments:
        segment.save_index()
        disk.remove(segment.index.time_path)
        disk.remove(segment.index.offset_path)
    each = Reads(monkeypatch).of_steps(steps := log.find_time(9_999))
    assert max(each) <= STEP_BYTES + 8 * LOOK_BYTES
    assert len(each) > 8
    assert next(steps, None) is None
    assert found(log.find_time(9_999)) == (9_999, 8_999, 0)


def test_a_batch_that_is_cut_short_is_damage(disk: FaultyDisk) -> None:
    log, _ = reopen(disk, "/data")
    for number in range(300):
        log.append(batch("b", timestamp=1_000 - number, padding=200), log.epoch)
    header: BatchHeader = next(header for chunk in log.scan() for header in iterate(chunk, 0, len(chunk)))
    file = disk.open(log._segments[0].log_path)
    file.write(header.size * 100 + 8, b"\0\0\0\1")
    assert found(log.find_time(999)) == (1_000, 0, 0)
    log.delete_before(1)
    with pytest.raises(DamagedLog, match="is damaged at byte"):
        found(log.find_time(1_000))
