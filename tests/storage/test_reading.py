"""Reading a log by offset and by time, never past damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.batch import CRC_FROM, iterate_headers
from simulator.disk import SimDisk
from storage import DamagedLog, Log, OsDisk
from tests.storage.conftest import DataFolder, in_memory
from tests.storage.logs import FOLDER, append_all, batch, names, newest_timestamp, overwrite, read, reopen, result_of, scan, stop

COUNT = 200
FIRST_MS = 10_000
STEP_MS = 7


def filled(data_folder: DataFolder, segment_bytes: int = 1 << 20, count: int = COUNT) -> Log:
    """Batches of two records, each STEP_MS later than the previous."""
    log, _ = reopen(data_folder.disk, data_folder.path, segment_bytes=segment_bytes)
    for number in range(count):
        log.append(batch(f"b{number}", 2, padding=100, timestamp=FIRST_MS + STEP_MS * number), log.epoch)
    stop(log)
    return log


def bases(data: bytes) -> list[int]:
    return [header.base_offset for header in iterate_headers(data, 0, len(data))]


def test_a_read_returns_whole_batches_from_that_with_the_offset(data_folder: DataFolder) -> None:
    log = filled(data_folder, count=6)
    batch_bytes = log.size // 6
    assert bases(log.read(0, 1)) == bases(log.read(1, batch_bytes)) == [0]
    assert bases(log.read(3, 3 * batch_bytes - 1)) == [2, 4]
    assert bases(log.read(4, 3 * batch_bytes)) == [4, 6, 8]
    assert bases(log.read(11, 1 << 20)) == [10]
    assert log.read(12, 1 << 20) == log.read(13, 1 << 20) == b""


def test_reads_continue_through_all_segments(data_folder: DataFolder) -> None:
    log = filled(data_folder, segment_bytes=5_000)
    assert len(log._segments) > 5
    bases_read: list[int] = []
    while data := log.read(bases_read[-1] + 2 if bases_read else 0, 1_500):
        assert len(data) <= 1_500
        bases_read += bases(data)
    assert bases_read == list(range(0, 2 * COUNT, 2))


@pytest.mark.parametrize("segment_bytes", [1 << 20, 5_000])
@pytest.mark.parametrize("reopen_clean", [None, True, False])
def test_records_are_found_by_timestamp(data_folder: DataFolder, segment_bytes: int, reopen_clean: bool | None) -> None:
    log = filled(data_folder, segment_bytes)
    if reopen_clean is not None:
        log, _ = reopen(data_folder.disk, data_folder.path, clean=reopen_clean, segment_bytes=segment_bytes)
    for number in range(0, COUNT, 13):
        begin = FIRST_MS + STEP_MS * number
        assert result_of(log.find_time(begin - 3)) == result_of(log.find_time(begin)) == (begin, 2 * number, 0)
        assert result_of(log.find_time(begin + 1)) == (begin + 1, 2 * number + 1, 0)
    assert result_of(log.find_time(0)) == (FIRST_MS, 0, 0)
    assert result_of(log.find_time(FIRST_MS + STEP_MS * COUNT)) is None


@pytest.mark.parametrize("entry", range(4))
def test_a_wrong_time_index_is_not_followed(data_folder: DataFolder, entry: int) -> None:
    filled(data_folder)
    path = f"{data_folder.path}/{FOLDER}/00000000000000000000.timeindex"
    index_bytes = bytearray(read(data_folder.disk, path))
    assert len(index_bytes) > 12 * 5
    index_bytes[12 * entry + 11] += 40  # the entry now names a later batch; the entries stay in order
    index_bytes[12 * entry + 7] += 1
    overwrite(data_folder.disk, path, bytes(index_bytes))
    log, _ = reopen(data_folder.disk, data_folder.path, clean=True)
    for number in range(COUNT):
        begin = FIRST_MS + STEP_MS * number
        assert result_of(log.find_time(begin)) == (begin, 2 * number, 0)


def test_segments_are_held_only_while_they_are_read(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path, segment_bytes=200)
    append_all(log, "abc", padding=100)

    def held() -> list[int]:
        return [segment.readers for segment in log._segments]

    ended, dropped = scan(log), scan(log)
    assert held() == [2, 2, 2]
    assert len(list(ended)) == 3
    assert held() == [1, 1, 1]
    del ended
    next(dropped)
    assert held() == [1, 1, 1]
    del dropped
    assert held() == [0, 0, 0]


def test_a_scan_ends_at_the_end_of_the_log_at_its_start(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path)
    append_all(log, "ab")
    chunks = scan(log)
    log.append(batch("c"), log.epoch)
    assert bases(b"".join(chunks)) == [0, 1]


@pytest.mark.parametrize("number", [0, 57, COUNT - 2])
def test_a_wrong_byte_after_an_orderly_stop_is_damage_after_the_batches_before_it(number: int) -> None:
    disk, data_folder = in_memory()
    filled(data_folder)
    path = f"/data/{FOLDER}/00000000000000000000.log"
    intact = read(disk, path)
    sizes = [header.size for header in iterate_headers(intact, 0, len(intact))]
    position = sum(sizes[:number])
    # The checksum omits the first bytes: a wrong offset shows at the next batch, a wrong epoch not at all.
    for at in (0, 3, 6, 7, 8, 11, 16, CRC_FROM, 60, 70):
        data = bytearray(intact)
        data[position + at] ^= 0x10
        overwrite(disk, path, bytes(data))
        for kind in ("batches", "facts") if at > 6 else ("batches",):
            bases_read: list[int] = []
            with pytest.raises(DamagedLog) as caught:
                read_all(disk, kind, bases_read)
            assert caught.value.path == path
            assert position <= caught.value.position <= position + sizes[number]
            assert bases_read[:number] in ([], list(range(0, 2 * number, 2)))
            assert len(bases_read) <= number + 1


def read_all(disk: SimDisk, kind: str, bases_read: list[int]) -> None:
    log, _ = reopen(disk, "/data", clean=True)
    if kind == "facts":
        facts(log)
        return
    for chunk in scan(log):
        bases_read.extend(bases(chunk))


def test_checksums_are_verified_once_and_in_every_full_scan(data_folder: DataFolder) -> None:
    filled(data_folder)
    log, _ = reopen(data_folder.disk, data_folder.path, clean=True)
    (segment,) = log._segments
    for begin, end in ((COUNT, None), (0, COUNT), (2, None)):
        assert bases(b"".join(scan(log, begin, end)))
        assert not segment.verified
    next(scan(log))
    assert not segment.verified
    assert len(names(log)) == 2 * COUNT
    assert segment.verified
    log, _ = reopen(data_folder.disk, data_folder.path, clean=False)
    assert log._segments[0].verified


def test_a_damaged_segment_does_not_count_as_verified(data_folder: DataFolder) -> None:
    filled(data_folder)
    path = f"{data_folder.path}/{FOLDER}/00000000000000000000.log"
    intact = read(data_folder.disk, path)
    overwrite(data_folder.disk, path, intact[:-1] + b"!")
    log, _ = reopen(data_folder.disk, data_folder.path, clean=True)
    for _ in range(2):
        with pytest.raises(DamagedLog, match="checksum"):
            names(log)


def test_a_long_scan_yields_about_a_mib_at_a_time(tmp_path: Path) -> None:
    log, _ = reopen(OsDisk(), str(tmp_path), segment_bytes=1 << 30)
    append_all(log, 50, padding=100_000)
    sizes = [len(chunk) for chunk in scan(log)]
    assert sum(sizes) == log.size
    assert len(sizes) in (5, 6)
    assert max(sizes) <= 1 << 20


# Facts, which replay reads without a step per batch


def facts(log: Log, end: int | None = None) -> list[bytes]:
    return [key for batch_facts in log.facts(end) for key, _ in batch_facts]


@pytest.mark.parametrize("segment_bytes", [1 << 20, 5_000])
@pytest.mark.parametrize("clean", [True, False])
def test_facts_are_those_of_all_batches_before_the_end(data_folder: DataFolder, segment_bytes: int, clean: bool) -> None:
    filled(data_folder, segment_bytes)
    log, _ = reopen(data_folder.disk, data_folder.path, clean=clean, segment_bytes=segment_bytes)
    keys = [f"b{number}.{record}".encode() for number in range(COUNT) for record in range(2)]
    for end in (0, 1, 2, 77, 2 * COUNT - 1):
        assert facts(log, end) == keys[: end // 2 * 2]
    assert facts(log) == facts(log) == keys


def test_facts_end_at_the_end_of_the_log_at_the_call(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path)
    log.append(batch("a"), log.epoch)
    batches = log.facts()
    log.append(batch("b"), log.epoch)
    assert list(batches) == [[(b"a.0", b"")]]


def test_facts_of_batches_larger_than_a_chunk_are_read(tmp_path: Path) -> None:
    log, _ = reopen(OsDisk(), str(tmp_path), segment_bytes=1 << 30)
    for number in range(12):
        log.append(batch(f"b{number}", padding=100_000 * (number % 4)), log.epoch)
    assert facts(log) == [b"b%d.0" % number for number in range(12)]
    assert all(len(batch_facts) < 12 for batch_facts in log.facts())


def test_reading_facts_verifies_only_unverified_batches(data_folder: DataFolder) -> None:
    filled(data_folder)
    log, _ = reopen(data_folder.disk, data_folder.path, clean=True)
    (segment,) = log._segments
    next(log.facts())
    facts(log, COUNT)
    assert not segment.verified
    facts(log)
    assert segment.verified
    path = f"{data_folder.path}/{FOLDER}/00000000000000000000.log"
    intact = read(data_folder.disk, path)
    overwrite(data_folder.disk, path, intact[:-2] + b"!" + intact[-1:])
    assert len(facts(log)) == 2 * COUNT  # not read as damaged: a verified segment is not checked again, since only this process writes to it
    segment.verified = False
    with pytest.raises(DamagedLog, match="checksum"):
        facts(log)


# The newest timestamp, from which a scan by time continues


@pytest.mark.parametrize("newest_at", [0, 1, 57, 199])
@pytest.mark.parametrize("segment_bytes", [1 << 20, 100_000])
def test_the_newest_timestamp_is_known_after_an_orderly_stop_without_reading_everything(disk: SimDisk, newest_at: int, segment_bytes: int) -> None:
    log, _ = reopen(disk, "/data", segment_bytes=segment_bytes)
    for number in range(200):
        log.append(batch("b", padding=2_000, timestamp=9_999 if number == newest_at else 1_000 + number), log.epoch)
    stop(log)
    disk.reads.clear()
    reopened, _ = reopen(disk, "/data", clean=True, segment_bytes=segment_bytes)
    assert newest_timestamp(reopened) == newest_timestamp(log) == 9_999
    reads = [path for path, _ in disk.reads if path.endswith(".log")]
    assert len(reads) <= 3 * len(reopened._segments)  # a read of the batch that the index names last, and of the batches after it
    assert newest_timestamp(reopen(disk, "/data", segment_bytes=segment_bytes)[0]) == 9_999
