"""Extents: ranges of whole batches that are located without reading them."""

from __future__ import annotations

import pytest

from protocol.batch import iterate_headers
from storage import DamagedLog, Extent, Handles, Log
from storage.segment import LARGE_READ_BYTES, Segment
from storage.swap import remove_deleted
from tests.storage.conftest import DataFolder
from tests.storage.logs import FOLDER, append_all, batch, clean

SEGMENT_BYTES = 20_000


@pytest.fixture
def log(data_folder: DataFolder) -> Log:
    """Thirty batches of one to three records and very different sizes, in several segments."""
    log, _ = Log.open(Handles(data_folder.disk), f"{data_folder.path}/{FOLDER}", SEGMENT_BYTES, 0, False)
    log.claim()
    for number in range(30):
        log.append(batch(f"b{number}", 1 + number % 3, padding=(number * 379) % 2_500), log.epoch)
    assert len(log.closed_segments) == 3
    return log


def extent_of(log: Log, offset: int, bytes_max: int, *, one_at_least: bool = True) -> Extent:
    extent = log.extent(offset, bytes_max, one_at_least=one_at_least)
    assert extent is not None
    return extent


def spans(data: bytes) -> list[tuple[int, int]]:
    return [(header.base_offset, header.next_offset) for header in iterate_headers(data, 0, len(data))]


@pytest.mark.parametrize("bytes_max", [0, 1, 100, 3_000, 9_000, 1 << 20])
@pytest.mark.parametrize("end", [-1, 17, 40])
def test_an_extent_has_the_bytes_of_a_read(log: Log, bytes_max: int, end: int) -> None:
    for offset in range(log.next_offset + 1):
        extent = log.extent(offset, bytes_max, end)
        expected = log.read(offset, bytes_max, end)
        if extent is None:
            assert expected == b"", offset
            continue
        assert extent.size == len(expected)
        parts = [extent.read(1_000)]
        while extent.size:
            parts.append(extent.read(1_000))
        data = b"".join(parts)
        assert data == expected, offset
        assert not data or spans(data)[0][0] <= offset < spans(data)[0][1]


def test_an_oversized_first_batch_is_omitted_unless_one_batch_is_required(log: Log) -> None:
    for offset in range(log.next_offset):
        extent = extent_of(log, offset, 0)
        size = len(extent.read(1 << 20))
        assert log.extent(offset, size - 1, one_at_least=False) is None
        fits = extent_of(log, offset, size, one_at_least=False)
        assert fits.size == size


def test_consecutive_extents_cover_every_batch_once(log: Log) -> None:
    ranges: list[tuple[int, int]] = []
    offset = 0
    while (extent := log.extent(offset, 4_000)) is not None:
        ranges += spans(extent.read(1 << 20))
        offset = ranges[-1][1]
    assert offset == log.next_offset
    assert [before[1] for before in ranges[:-1]] == [following[0] for following in ranges[1:]]


def test_a_large_extent_ends_at_a_batch_that_the_index_names(data_folder: DataFolder) -> None:
    log, _ = Log.open(Handles(data_folder.disk), f"{data_folder.path}/{FOLDER}", 1 << 20, 0, False)
    log.claim()
    append_all(log, 2_000)
    extent = extent_of(log, 3, LARGE_READ_BYTES)
    assert LARGE_READ_BYTES - 2 * 4_096 < extent.size <= LARGE_READ_BYTES
    data = extent.read(1 << 20)
    assert spans(data)[0][0] == 3
    tail = extent_of(log, spans(data)[-1][1], LARGE_READ_BYTES)
    assert tail.at == extent.at


def test_an_extent_says_whether_its_segment_is_closed(log: Log) -> None:
    first, last = extent_of(log, 0, 1 << 20), extent_of(log, log.next_offset - 1, 1 << 20)
    assert (first.closed, last.closed) == (True, False)


@pytest.mark.parametrize("end", ["exchange", "deletion"])
def test_an_extent_that_is_held_survives_the_end_of_its_segment(data_folder: DataFolder, log: Log, end: str) -> None:
    expected = log.read(0, 1 << 20)
    extent = extent_of(log, 0, 1 << 20)
    assert isinstance(extent.segment, Segment)
    extent.unpin()  # without an effect, as the extent is not pinned
    assert extent.segment.readers == 0
    extent.pin()
    if end == "exchange":
        clean(data_folder.disk, log)
    else:
        remove_deleted(data_folder.disk, log.folder, log.drop_old(5_000, 0, 0))
    assert extent.read(1 << 20) == expected
    extent.unpin()
    extent.unpin()
    assert extent.segment.readers == 0


def test_a_shortened_file_is_damage(data_folder: DataFolder, log: Log) -> None:
    extent = extent_of(log, log.next_offset - 1, 1 << 20)
    file = data_folder.disk.open(extent.segment.log_path)
    file.truncate(extent.at + 5)
    file.close()
    with pytest.raises(DamagedLog, match="shorter than it was"):
        extent.read(1 << 20)


def test_an_extent_without_a_batch_is_damage(data_folder: DataFolder, log: Log) -> None:
    position = extent_of(log, 0, 1 << 20)
    file = data_folder.disk.open(position.segment.log_path)
    file.write(0, bytes(200))
    file.close()
    with pytest.raises(DamagedLog):
        log.extent(0, 100)


def test_an_extent_has_the_bytes_available_within_the_limit(data_folder: DataFolder) -> None:
    log, _ = Log.open(Handles(data_folder.disk), f"{data_folder.path}/{FOLDER}", 1 << 20, 0, False)
    log.claim()
    for _ in range(10):
        log.append(batch("b"), log.epoch)
    batch_bytes = log.size // 10

    def extent_batches(offset: int, bytes_max: int, end: int = -1) -> tuple[int, int, int] | None:
        extent = log.extent(offset, bytes_max, end)
        return None if extent is None else (extent.at // batch_bytes, extent.size // batch_bytes, extent.bytes_within_limit)

    assert extent_batches(0, 0) == extent_batches(0, 1) == extent_batches(0, batch_bytes) == (0, 1, batch_bytes)
    assert extent_batches(2, 3 * batch_bytes - 1) == (2, 2, 3 * batch_bytes - 1)
    assert extent_batches(2, 3 * batch_bytes) == (2, 3, 3 * batch_bytes)
    assert extent_batches(2, 3 * batch_bytes + 1) == (2, 3, 3 * batch_bytes + 1)
    assert extent_batches(2, 8 * batch_bytes - 1) == (2, 7, 8 * batch_bytes - 1)
    assert extent_batches(2, 8 * batch_bytes) == extent_batches(2, 8 * batch_bytes + 1) == extent_batches(2, 1 << 30) == (2, 8, 8 * batch_bytes)
    assert extent_batches(2, 1 << 30, 5) == extent_batches(2, 3 * batch_bytes, 5) == (2, 3, 3 * batch_bytes)
    assert extent_batches(2, 3 * batch_bytes - 1, 5) == (2, 2, 3 * batch_bytes - 1)
    assert extent_batches(5, 1 << 30, 5) is None
    assert extent_batches(10, 1 << 30) is None


def test_a_read_past_the_end_leaves_no_reader_position(log: Log) -> None:
    end = log.next_offset + 2
    log.read(log.next_offset - 1, 1 << 20, end)
    log.extent(log.next_offset - 1, 1 << 20, end)
    for number in range(4):
        log.append(batch(f"more{number}"), log.epoch)
    assert spans(log.read(end, 1 << 20))[0] == (end, end + 1)
    extent = extent_of(log, end, 1 << 20)
    assert spans(extent.read(1 << 20))[0] == (end, end + 1)


@pytest.mark.parametrize("limit", [LARGE_READ_BYTES - 1, LARGE_READ_BYTES, LARGE_READ_BYTES + 5_000])
def test_a_large_extent_has_the_bytes_available_if_batches_were_cut(data_folder: DataFolder, limit: int) -> None:
    log, _ = Log.open(Handles(data_folder.disk), f"{data_folder.path}/{FOLDER}", 1 << 20, 0, False)
    append_all(log, 100, padding=1_500)
    extent = extent_of(log, 0, limit)
    assert extent.size < extent.bytes_within_limit == limit
    first = extent_of(log, 0, 10)
    assert (first.size, first.bytes_within_limit) == (log.size // 100, log.size // 100)
