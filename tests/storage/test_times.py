"""Time lookups agree with a full read, in small steps, while segments change."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from protocol.batch import HEADER_BYTES, Compression, Record, TimestampType, build, iterate_headers, read_header, records, rewrite
from protocol.batch_times import UNPACKED_AT_ONCE_MAX, UnpackedBatch
from simulator.disk import SimDisk
from storage import DamagedLog, FoundRecord, Handles, Log
from storage.segment import LOOKUP_BYTES
from storage.times import STEP_BYTES, STEP_RECORDS, SearchStep
from tests.storage.logs import FOLDER, append_flushed, batch, clean, overwrite, read, reopen, result_of, scan, stop

pytestmark = pytest.mark.once  # no dependence on the Python version

LATEST = None


def readable(log: Log) -> list[FoundRecord]:
    """Every record from the log start on."""
    records_kept: list[FoundRecord] = []
    for chunk in scan(log):
        at = 0
        for header in iterate_headers(chunk, 0, len(chunk)):
            records_kept += [FoundRecord(record.timestamp, record.offset, header.leader_epoch) for record in records(chunk, at) if record.offset >= log.start_offset]
            at += header.size
    return records_kept


def expected(stored: list[FoundRecord], timestamp: int | None) -> FoundRecord | None:
    if timestamp is None:
        return max(stored, key=lambda record: (record.timestamp, -record.offset), default=None)
    return next((record for record in stored if record.timestamp >= timestamp), None)


def lookup(log: Log, timestamp: int | None) -> Iterator[SearchStep]:
    return log.latest_record() if timestamp is None else log.find_time(timestamp)


class RandomLog:
    """A log of random batches, compacted and truncated at random times."""

    def __init__(self, seed: int, disk: SimDisk) -> None:
        self.random = random = Random(seed)
        self.disk = disk
        self.now = 1_000
        self.in_order = random.random() < 0.4
        self.segment_bytes = random.choice((3_000, 20_000, 1 << 20))
        self.log, _ = reopen(disk, "/data", segment_bytes=self.segment_bytes)

    def take_random_step(self) -> None:
        random = self.random
        match random.randrange(40):
            case 0:
                self.log.delete_before(random.randrange(self.log.start_offset, self.log.next_offset + 1))
            case 1 if len(self.log.closed_segments) > 1:
                clean(self.disk, self.log, now=self.now, segment_bytes=random.choice((5_000, 1 << 20)))
            case 2:
                self.log.apply_retention(0, 0, -1, self.log.size // 2)
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
        batch_records = [
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
        self.log.append(build(batch_records, compression=random.choice(list(Compression)), timestamp_type=kind), self.log.epoch)


@pytest.mark.parametrize("seed", range(30))
def test_a_time_lookup_agrees_with_a_full_read(disk: SimDisk, seed: int) -> None:
    written = RandomLog(seed, disk)
    for number in range(150):
        written.take_random_step()
        if number % 10 == 9:
            log = written.log
            stored = readable(log)
            for timestamp in (LATEST, 0, 999, 2_001, written.now, *(written.random.randrange(900, 2_600) for _ in range(6))):
                assert result_of(lookup(log, timestamp)) == expected(stored, timestamp), timestamp


@pytest.mark.parametrize("seed", range(15))
def test_a_time_lookup_survives_segments_replaced_between_its_steps(disk: SimDisk, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.times.STEP_READS", 1)
    written = RandomLog(seed, disk)
    written.segment_bytes = written.log.segment_bytes = 20_000
    for _ in range(60):
        written.append()
    log = written.log
    stored = readable(log)
    for timestamp in (LATEST, *(written.random.randrange(1_000, 2_000) for _ in range(5))):
        before = expected(stored, timestamp)
        steps = lookup(log, timestamp)
        result = next(steps, None)
        while result is None:
            match written.random.randrange(4):
                case 0 if len(log.closed_segments) > 1:
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
        assert not any(segment.readers or segment.kept_file for segment in log._segments)
        stored = after


def bytes_of_steps(disk: SimDisk, steps: Iterator[SearchStep]) -> list[int]:
    """The bytes that each step reads."""
    step_bytes = []
    disk.reads.clear()
    for _ in steps:
        step_bytes.append(sum(size for _, size in disk.reads))
        disk.reads.clear()
    return step_bytes


@pytest.mark.parametrize("timestamp", [LATEST, 5_000])
@pytest.mark.parametrize("padding", [0, 3_000, 20_000])
def test_each_lookup_step_reads_little_when_the_newest_time_was_deleted(disk: SimDisk, timestamp: int | None, padding: int) -> None:
    log, _ = reopen(disk, "/data", segment_bytes=1 << 30)
    log.append(batch("newest", timestamp=9_000), log.epoch)
    for number in range(4_000 if padding < 20_000 else 400):
        log.append(batch("b", timestamp=1_000 + number % 7, padding=padding), log.epoch)
    log.delete_before(1)
    step_bytes = bytes_of_steps(disk, lookup(log, timestamp))
    assert len(step_bytes) > 2
    assert max(step_bytes) <= STEP_BYTES + 8 * LOOKUP_BYTES  # and the lookup in an index
    # Most large batches are skipped after their header.
    assert sum(step_bytes) <= min(log.size, 401 * LOOKUP_BYTES if padding == 20_000 else log.size) + 3 * STEP_BYTES


def test_an_indexed_time_lookup_reads_a_few_kib(disk: SimDisk) -> None:
    log, _ = reopen(disk, "/data", segment_bytes=1 << 30)
    for number in range(9_000):
        log.append(batch("b", timestamp=1_000 + number), log.epoch)
    assert sum(bytes_of_steps(disk, log.find_time(9_000))) < 6 * LOOKUP_BYTES
    log.delete_before(8_900)
    disk.reads.clear()
    assert result_of(log.find_time(1_500)) == (9_900, 8_900, 0)
    assert sum(size for _, size in disk.reads) < 6 * LOOKUP_BYTES
    assert result_of(log.latest_record()) == (9_999, 8_999, 0)


def test_a_lookup_without_an_index_reads_in_bounded_steps(disk: SimDisk) -> None:
    log, _ = reopen(disk, "/data", segment_bytes=1 << 30)
    for number in range(9_000):
        append_flushed(log, batch("b", timestamp=1_000 + number), log.epoch)
    for segment in log._segments:
        segment.save_index()
        disk.remove(segment.index.time_path)
        disk.remove(segment.index.offset_path)
    step_bytes = bytes_of_steps(disk, steps := log.find_time(9_999))
    assert max(step_bytes) <= STEP_BYTES + 8 * LOOKUP_BYTES
    assert len(step_bytes) > 8
    assert next(steps, None) is None
    assert result_of(log.find_time(9_999)) == (9_999, 8_999, 0)


# Bytes that a lookup does not read, and damage in the bytes that it reads.


def filled(disk: SimDisk, times: list[int], per_segment: int = 1 << 20) -> Log:
    """Batches of one record and one size; `per_segment` of them in a segment."""
    log, _ = reopen(disk, "/data", segment_bytes=per_segment * len(batch("b", timestamp=times[0])))
    for timestamp in times:
        append_flushed(log, batch("b", timestamp=timestamp))
    return log


@pytest.mark.parametrize("latest", [False, True])
@pytest.mark.parametrize(
    ("at", "patch", "reason"),
    [
        (16, b"\1", "magic 1"),
        (8, (48).to_bytes(4, "big"), "a batch's length field says 60 bytes, fewer than a header"),
        (8, b"\xff\xff\xff\xff", "a batch's length field says 11 bytes, fewer than a header"),
        (8, (1 << 20).to_bytes(4, "big"), "a batch is cut short"),
    ],
)
def test_damage_met_by_a_time_lookup_is_reported_at_its_position(disk: SimDisk, at: int, patch: bytes, reason: str, latest: bool) -> None:
    log = filled(disk, [9_000, *[1_000 + number for number in range(9)]])
    log.delete_before(1)
    segment = log._segments[0]
    data = read(disk, segment.log_path)
    begin = 5 * len(data) // 10
    overwrite(disk, segment.log_path, data[: begin + at] + patch + data[begin + at + len(patch) :])
    with pytest.raises(DamagedLog, match=reason) as caught:
        result_of(log.latest_record() if latest else log.find_time(1_008))
    assert caught.value.position == begin


@pytest.mark.parametrize("latest", [False, True])
def test_a_truncated_header_is_damage(disk: SimDisk, latest: bool) -> None:
    log = filled(disk, [9_000, *[1_000 + number for number in range(9)]])
    log.delete_before(1)
    segment = log._segments[0]
    data = read(disk, segment.log_path)
    size = len(data) // 10
    begin = 8 * size  # the last batch but one gets a length that ends ten bytes before the end of the file
    overwrite(disk, segment.log_path, data[: begin + 8] + (2 * size - 12 - 10).to_bytes(4, "big") + data[begin + 12 :])
    with pytest.raises(DamagedLog, match="a batch header is cut short"):
        result_of(log.latest_record() if latest else log.find_time(5_000))


def test_unreadable_records_are_damage(disk: SimDisk) -> None:
    log = filled(disk, [9_000, 1_000, 2_000, 1_500])
    log.delete_before(1)
    segment = log._segments[0]
    data = read(disk, segment.log_path)
    size = len(data) // 4
    overwrite(disk, segment.log_path, data[: 2 * size + 61] + b"\xff" * (size - 61) + data[3 * size :])
    for looking in (log.latest_record(), log.find_time(2_000)):
        with pytest.raises(DamagedLog) as caught:
            result_of(looking)
        assert caught.value.position == 2 * size


def test_segments_before_the_timestamp_are_not_read(disk: SimDisk) -> None:
    log = filled(disk, [1_000, 1_001, 5_000, 5_001, 2_000, 2_001, 5_001, 5_001], per_segment=2)
    assert log.segment_count == 4
    first, second, third, last = (segment.log_path for segment in log._segments)
    for path in (first, third, last):
        disk.unreadable = path
        assert result_of(log.find_time(3_000)) == FoundRecord(5_000, 2, 0)
    for path in (third, last):  # the newest record is in the second segment: later ones are not read
        disk.unreadable = path
        assert result_of(log.latest_record()) == FoundRecord(5_001, 3, 0)
    disk.unreadable = second
    with pytest.raises(OSError, match="Input/output"):
        result_of(log.latest_record())


@pytest.mark.parametrize("start", [0, 1])
def test_a_time_lookup_yields_one_answer_and_ends(disk: SimDisk, start: int) -> None:
    log = filled(disk, [7_000, 1_000, 5_000, 2_000, 6_000, 6_000, 3_000], per_segment=2)
    log.delete_before(start)
    assert [record for record in log.find_time(4_500) if record is not None] == [FoundRecord(5_000, 2, 0) if start else FoundRecord(7_000, 0, 0)]
    assert [record for record in log.latest_record() if record is not None] == [FoundRecord(6_000, 4, 0) if start else FoundRecord(7_000, 0, 0)]
    assert [record for record in log.find_time(7_001) if record is not None] == []


def test_the_newest_remaining_record_is_found_after_the_newest_was_deleted(disk: SimDisk) -> None:
    """In the same or in a later segment; among records at the log start and before it."""
    log = filled(disk, [9_000, 4_000, 4_001, 4_001, 4_000, 4_001], per_segment=4)
    for start, expected in ((1, 2), (2, 2), (3, 3), (4, 5), (5, 5)):
        log.delete_before(start)
        assert result_of(log.latest_record()) == FoundRecord(4_001, expected, 0)
    log.delete_before(6)
    assert result_of(log.latest_record()) is None


@pytest.mark.parametrize("latest", [False, True])
def test_a_batch_of_many_records_takes_a_few_steps(disk: SimDisk, latest: bool) -> None:
    log, _ = reopen(disk, "/data")
    count = 5 * STEP_RECORDS
    log.append(build([Record(n, 9_000 if n == 0 else n % 100, None, b"") for n in range(count)]), 0)
    log.delete_before(1)
    steps = list(log.latest_record() if latest else log.find_time(99))
    answers = [step for step in steps if step is not None]
    assert answers == [FoundRecord(99, 99, 0)]
    if latest:  # the latest record is found only by reading all records
        assert 11 <= len(steps) <= 20  # a search for the newest time in the index, which was deleted, then one for the newest remaining time


def test_an_index_time_of_another_batch_hides_no_record(disk: SimDisk) -> None:
    log, _ = reopen(disk, "/data")
    for number in range(60):
        log.append(batch("b", timestamp=1_000 + number, padding=1_500), 0)
    index = log._segments[0].index
    for entry in range(2, len(index.times) - 1):
        time_offset = index.time_offsets[entry]
        index.time_offsets[entry] = time_offset + 2
        assert result_of(log.find_time(1_000 + time_offset + 1)) == FoundRecord(1_001 + time_offset, time_offset + 1, 0)
        index.time_offsets[entry] = time_offset


@pytest.mark.parametrize(("last", "expected"), [(6_000, FoundRecord(6_000, 5, 0)), (4_500, FoundRecord(5_000, 1, 0))])
def test_an_index_with_a_too_large_timestamp_does_not_hide_the_newest_record(disk: SimDisk, last: int, expected: FoundRecord) -> None:
    log = filled(disk, [1_000, 5_000, 2_000, 3_000, 4_000, last], per_segment=2)
    for segment in log._segments[1:]:
        segment.max_timestamp = 9_000  # the time of a batch whose records a compaction removed, as older versions kept it
    assert result_of(log.latest_record()) == expected


def test_a_batch_without_records_is_not_found_by_time(disk: SimDisk) -> None:
    """Compaction leaves such a batch for its producer."""
    log = filled(disk, [5_000])
    path = log._segments[0].log_path
    log.close()
    overwrite(disk, path, rewrite(read_header(read(disk, path), 0), []))
    log, _ = reopen(disk, "/data")
    assert (log.next_offset, log.size) == (1, HEADER_BYTES)
    assert (result_of(log.latest_record()), result_of(log.find_time(-1))) == (None, None)


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize("latest", [False, True])
@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
def test_a_large_batch_is_decompressed_where_the_caller_wants_it(disk: SimDisk, codec: Compression, latest: bool, in_thread: bool) -> None:
    log, _ = reopen(disk, "/data")
    log.append(build([Record(n, 1_000 + n, None, b"small") for n in range(3)], compression=codec), 0)
    log.append(build([Record(n, 2_000 + n, None, bytes(UNPACKED_AT_ONCE_MAX // 4)) for n in range(6)], compression=codec), 0)
    log.append(build([Record(n, 2_100 + n, None, b"small") for n in range(3)], compression=codec), 0)
    found: list[FoundRecord] = []
    large: list[UnpackedBatch] = []
    for step in log.find_time(2_005) if not latest else log.latest_record():
        if isinstance(step, FoundRecord):
            found.append(step)
        elif step is not None:
            large.append(step)
            if in_thread:
                step.run()
                assert not step.is_large
    assert found == [FoundRecord(2_102, 11, 0) if latest else FoundRecord(2_005, 8, 0)]
    assert len(large) == (0 if latest else 1), "the newest record of all is in a small batch"


@pytest.mark.parametrize("in_thread", [False, True])
def test_damage_far_inside_a_large_batch_is_found_by_the_search(disk: SimDisk, in_thread: bool) -> None:
    log, _ = reopen(disk, "/data")
    log.append(build([Record(n, 2_000 + n, None, bytes(UNPACKED_AT_ONCE_MAX // 4)) for n in range(6)], compression=Compression.LZ4), 0)
    path = log._segments[0].log_path
    stored = bytearray(read(disk, path))
    stored[-300:-4] = b"\xff" * 296
    overwrite(disk, path, bytes(stored))
    steps = log.find_time(2_005)
    large = next(step for step in steps if isinstance(step, UnpackedBatch))
    if in_thread:
        large.run()
    with pytest.raises(DamagedLog):
        list(steps)
