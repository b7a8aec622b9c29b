"""Index files have Kafka's format, and a log reads the same without them."""

from __future__ import annotations

from struct import pack, unpack_from

import pytest

from protocol.batch import BatchHeader, iterate_headers
from simulator.disk import SimDisk
from storage import Handles, Log
from storage.checking import cut
from storage.index import INTERVAL_BYTES, MEMORY_ENTRIES, Index
from tests.storage.conftest import DataFolder
from tests.storage.logs import (
    FOLDER,
    append_all,
    batch,
    headers,
    names,
    newest_timestamp,
    overwrite,
    read,
    recover,
    reopen,
    result_of,
    stop,
)

BASE = "00000000000000000000"
COUNT = 40
PADDING = 1500


def written(data_folder: DataFolder) -> Log:
    """A closed log of batches of two records; the index has an entry for every third batch."""
    log, _ = reopen(data_folder.disk, data_folder.path)
    for number in range(COUNT):
        log.append(batch(f"b{number}", 2, padding=PADDING // 2, timestamp=1_000 * (number + 1)), 0)
    stop(log)
    return log


def index_files(data_folder: DataFolder) -> tuple[bytes, bytes]:
    path = f"{data_folder.path}/{FOLDER}/{BASE}"
    return read(data_folder.disk, f"{path}.index"), read(data_folder.disk, f"{path}.timeindex")


def test_the_offset_index_has_relative_last_offset_and_position_for_every_four_kib(data_folder: DataFolder) -> None:
    log = written(data_folder)
    indexed, position, last = [], 0, 0
    for number, header in enumerate(headers(log)):
        if position - last >= INTERVAL_BYTES:
            indexed.append((number, position))
            last = position
        position += header.size
    offsets, times = index_files(data_folder)
    assert offsets == b"".join(pack(">ii", 2 * number + 1, position) for number, position in indexed)
    entries = [pack(">qi", 1_000 * (number + 1) + 1, 2 * number + 1) for number, _ in indexed]
    newest = pack(">qi", 1_000 * COUNT + 1, 2 * COUNT - 1)
    assert times == b"".join(entries if newest in entries else [*entries, newest])


@pytest.mark.parametrize("offset", [0, 1, 2, 7, 8, 40, 41, 78, 79])
def test_reading_begins_at_the_batch_that_holds_the_offset(data_folder: DataFolder, offset: int) -> None:
    written(data_folder)
    log, _ = reopen(data_folder.disk, data_folder.path, clean=True)
    assert names(log, offset) == [f"b{number}.{record}" for number in range(offset // 2, COUNT) for record in range(2)]


def broken(stored: bytes) -> list[bytes]:
    """An index as left by crashes, by Kafka and by bad memory."""
    middle = len(stored) // 2
    return [
        b"",
        stored + bytes(10_000 * 24),
        bytes(len(stored)),
        stored[:-3],
        stored[: 24 * (len(stored) // 48)],
        stored[:middle] + bytes([stored[middle] ^ 1]) + stored[middle + 1 :],
        stored[:-1] + bytes([stored[-1] ^ 1]),
        stored[::-1],
        b"\xff" * len(stored),
    ]


@pytest.mark.parametrize("number", range(9))
@pytest.mark.parametrize("ending", ["index", "timeindex"])
def test_reads_do_not_depend_on_a_correct_index(data_folder: DataFolder, ending: str, number: int) -> None:
    written(data_folder)
    path = f"{data_folder.path}/{FOLDER}/{BASE}.{ending}"
    overwrite(data_folder.disk, path, broken(read(data_folder.disk, path))[number])
    for _ in range(2):
        log, _ = reopen(data_folder.disk, data_folder.path, clean=True)
        for offset in (0, 9, 30, 55, 79):
            assert names(log, offset) == [f"b{n}.{record}" for n in range(offset // 2, COUNT) for record in range(2)]
        assert log.next_offset == 2 * COUNT
        log.close()


@pytest.mark.parametrize("endings", [("index",), ("timeindex",), ("index", "timeindex")])
def test_a_missing_index_is_rebuilt(data_folder: DataFolder, endings: tuple[str, ...]) -> None:
    written(data_folder)
    before = index_files(data_folder)
    for ending in endings:
        data_folder.disk.remove(f"{data_folder.path}/{FOLDER}/{BASE}.{ending}")
    log, _ = reopen(data_folder.disk, data_folder.path, clean=True)
    log.close()
    assert index_files(data_folder) == before


@pytest.mark.parametrize("shift", [1, -1, 500, None])
def test_an_index_entry_with_a_wrong_position_is_ignored(data_folder: DataFolder, shift: int | None) -> None:
    sizes = {header.last_offset: header.size for header in headers(written(data_folder))}
    path = f"{data_folder.path}/{FOLDER}/{BASE}.index"
    entries = bytearray(read(data_folder.disk, path))
    middle = len(entries) // 16 * 8
    offset, position = unpack_from(">ii", entries, middle)
    entries[middle : middle + 8] = pack(">ii", offset, position + (sizes[offset] if shift is None else shift))
    overwrite(data_folder.disk, path, bytes(entries))
    log, _ = reopen(data_folder.disk, data_folder.path, clean=True)
    assert names(log, offset)[:2] == [f"b{offset // 2}.0", f"b{offset // 2}.1"]


def test_preallocated_zeros_are_not_index_entries(data_folder: DataFolder) -> None:
    written(data_folder)
    path = f"{data_folder.path}/{FOLDER}/{BASE}"
    offsets, times = index_files(data_folder)
    for stored in ((offsets, times), (b"", b"")):
        overwrite(data_folder.disk, f"{path}.index", stored[0] + bytes(8 * 1000))
        overwrite(data_folder.disk, f"{path}.timeindex", stored[1] + bytes(12 * 1000))
        index = Index(Handles(data_folder.disk), path, "", 0)
        assert index.load(1 << 20)
        assert (index.stored_offsets, index.stored_times) == (len(stored[0]) // 8, len(stored[1]) // 12)
        index.cut(1 << 20)  # loads all entries into memory
        assert (index.offset_bytes(), index.time_bytes()) == stored


def test_index_entries_not_in_memory_are_found_in_the_files(data_folder: DataFolder) -> None:
    index = Index(Handles(data_folder.disk), f"{data_folder.path}/{BASE}", "", 100)
    count = 3 * MEMORY_ENTRIES + 7
    for number in range(count):
        index.add(100 + 3 * number, INTERVAL_BYTES * (number + 1), 10 * (number + 1), 100 + 3 * number)
    assert len(index.positions) == 7
    reopened = Index(Handles(data_folder.disk), f"{data_folder.path}/{BASE}", "", 100)
    index.save()
    assert reopened.load(1 << 31)
    assert (reopened.stored_offsets, reopened.last_position, reopened.last_time) == (count, INTERVAL_BYTES * count, 10 * count)
    for opened in (index, reopened):
        for number in (0, 1, 62, 63, 64, 65, 1000, MEMORY_ENTRIES, 2 * MEMORY_ENTRIES + 1, count - 2, count - 1):
            place_of, offset, timestamp = INTERVAL_BYTES * (number + 1), 100 + 3 * number, 10 * (number + 1)
            assert opened.entry_for(offset) == opened.entry_for(offset + 2) == (place_of, offset)
            assert opened.before(place_of) == opened.before(place_of + INTERVAL_BYTES - 1) == (place_of, offset)
            assert opened.time_before(timestamp + 1) == opened.time_before(timestamp + 10) == (timestamp, offset)
        assert opened.entry_for(99) == opened.before(INTERVAL_BYTES - 1) == (0, -1)
        assert opened.time_before(10) == (-1, 100)
        assert opened.last_entry() == (INTERVAL_BYTES * count, 100 + 3 * (count - 1))
        assert opened.last_record_time() == (10 * count, 100 + 3 * (count - 1))


def test_a_long_segment_is_read_at_any_offset_and_cut_anywhere(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path, segment_bytes=1 << 30)
    count = 2 * MEMORY_ENTRIES + 300
    for number in range(count):
        log.append(batch(f"b{number}", padding=4_100, timestamp=1_000 + number), 0)
    (segment,) = log._segments
    assert 0 < len(segment.index.positions) < MEMORY_ENTRIES
    stop(log)
    for opened_log in (log, reopen(data_folder.disk, data_folder.path, clean=True)[0], reopen(data_folder.disk, data_folder.path)[0]):
        for number in (0, 1, 500, MEMORY_ENTRIES, count - 1):
            assert headers_of(opened_log.read(number, 10))[0].base_offset == number
            assert result_of(opened_log.find_time(1_000 + number)) == (1_000 + number, number, 0)
        data = headers_of(opened_log.read(1, 1_000_000))
        assert [header.base_offset for header in data] == list(range(1, len(data) + 1))
        assert 990_000 < sum(header.size for header in data) <= 1_000_000
    for number in (count - 5, MEMORY_ENTRIES + 3, 9):
        cut(segment, segment.position_from(number))
        assert (segment.next_offset, newest_timestamp(log)) == (number, 1_000 + number - 1)
        assert headers_of(log.read(number - 1, 10))[0].base_offset == number - 1


def headers_of(data: bytes) -> list[BatchHeader]:
    return list(iterate_headers(data, 0, len(data)))


def test_an_index_of_a_closed_segment_is_read_and_not_the_segment(disk: SimDisk) -> None:
    log, _ = reopen(disk, "/data", segment_bytes=20_000)
    append_all(log, 100, padding=1000)
    stop(log)
    before = len(disk.changes)
    log, _ = reopen(disk, "/data", clean=True)
    log.close()
    assert disk.changes[before:] == []
    assert names(log, 99) == ["b99.0"]


def test_truncating_a_log_truncates_its_index(disk: SimDisk) -> None:
    log, _ = reopen(disk, "/data")
    for number in range(40):
        log.append(batch(f"b{number}", padding=1000, timestamp=1000 + number), 0)
        if number == 19:
            log.flush()
    recover(log, keep_unflushed=False)
    assert (log.next_offset, newest_timestamp(log)) == (20, 1019)
    segment = log._segments[0]
    assert max(segment.index.positions) < log.size
    assert max(segment.index.time_offsets) < 20
    for number in range(20, 40):
        log.append(batch(f"n{number}", padding=1000, timestamp=1000 + number), 0)
    assert names(log, 18) == ["b18.0", "b19.0", *(f"n{number}.0" for number in range(20, 40))]


@pytest.mark.parametrize("batches_left", [0, 7])
def test_index_files_have_no_entry_for_batches_cut_while_opening(data_folder: DataFolder, batches_left: int) -> None:
    log = written(data_folder)
    at = sum(header.size for header in headers(log)[:batches_left])
    path = f"{data_folder.path}/{FOLDER}/{BASE}.log"
    data = bytearray(read(data_folder.disk, path))
    data[at + 16] ^= 2
    overwrite(data_folder.disk, path, bytes(data))
    cut, truncation = Log.open(Handles(data_folder.disk), f"{data_folder.path}/{FOLDER}", 1 << 20, 0, False, deferred=True)
    assert truncation.cut_bytes == len(data) - at
    cut.close()
    stored = [read(data_folder.disk, file) if data_folder.disk.exists(file) else b"" for file in (f"{path[:-4]}.index", f"{path[:-4]}.timeindex")]
    for entries, form, field in zip(stored, (">ii", ">qi"), (0, 1), strict=True):
        entry_values = [unpack_from(form, entries, at)[field] for at in range(0, len(entries), 8 + 4 * field)]
        assert all(offset < 2 * batches_left for offset in entry_values)


def test_after_an_orderly_stop_the_index_files_are_those_of_the_log(data_folder: DataFolder) -> None:
    """Whatever happened to the log before: batches past the indexed part, truncated batches."""
    log = written(data_folder)
    log, _ = reopen(data_folder.disk, data_folder.path, clean=True)
    log.append(batch("newest", padding=10, timestamp=10_000_000), log.epoch)  # too small for an index entry of its own
    stop(log)
    check_index_files(data_folder, 10_000_000)
    log, _ = reopen(data_folder.disk, data_folder.path, clean=True)
    log.append(batch("unflushed", timestamp=20_000_000), log.epoch)
    recover(log, keep_unflushed=False)
    log.close()
    check_index_files(data_folder, 10_000_000)
    path = f"{data_folder.path}/{FOLDER}/{BASE}.log"
    overwrite(data_folder.disk, path, read(data_folder.disk, path) + batch("torn")[:70])
    log, truncation = reopen(data_folder.disk, data_folder.path)
    assert truncation.cut_bytes == 70
    log.close()
    check_index_files(data_folder, 10_000_000)


def check_index_files(data_folder: DataFolder, newest: int) -> None:
    files = index_files(data_folder)
    assert unpack_from(">q", files[1], len(files[1]) - 12)[0] == newest
    for ending in ("index", "timeindex"):
        data_folder.disk.remove(f"{data_folder.path}/{FOLDER}/{BASE}.{ending}")
    reopen(data_folder.disk, data_folder.path, clean=True)[0].close()
    assert index_files(data_folder) == files
