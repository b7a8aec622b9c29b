"""Extents: ranges of whole batches that are located without reading them."""

from __future__ import annotations

import pytest

from protocol.batch import iterate
from storage import DamagedLog, Handles, Log
from storage.segment import LARGE_READ_BYTES, Segment
from storage.swap import remove_deleted
from tests.storage.conftest import Place
from tests.storage.logs import FOLDER, append_all, batch, clean

SEGMENT_BYTES = 20_000


@pytest.fixture
def log(place: Place) -> Log:
    """Thirty batches of one to three records and very different sizes, in several segments."""
    log, _ = Log.open(Handles(place.disk), f"{place.path}/{FOLDER}", SEGMENT_BYTES, 0, False)
    log.claim()
    for number in range(30):
        log.append(batch(f"b{number}", 1 + number % 3, padding=(number * 379) % 2_500), log.epoch)
    assert len(log.closed) == 3
    return log


def spans(data: bytes) -> list[tuple[int, int]]:
    return [(header.base_offset, header.next_offset) for header in iterate(data, 0, len(data))]


@pytest.mark.parametrize("bytes_max", [0, 1, 100, 3_000, 9_000, 1 << 20])
@pytest.mark.parametrize("end", [-1, 17, 40])
def test_an_extent_is_what_a_read_gives(log: Log, bytes_max: int, end: int) -> None:
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
        found = b"".join(parts)
        assert found == expected, offset
        assert not found or spans(found)[0][0] <= offset < spans(found)[0][1]


def test_an_oversized_first_batch_is_omitted_unless_one_batch_is_required(log: Log) -> None:
    for offset in range(log.next_offset):
        whole = log.extent(offset, 0)
        assert whole is not None
        size = len(whole.read(1 << 20))
        assert log.extent(offset, size - 1, one_at_least=False) is None
        fits = log.extent(offset, size, one_at_least=False)
        assert fits is not None
        assert fits.size == size


def test_consecutive_extents_cover_every_batch_once(log: Log) -> None:
    seen: list[tuple[int, int]] = []
    offset = 0
    while (extent := log.extent(offset, 4_000)) is not None:
        seen += spans(extent.read(1 << 20))
        offset = seen[-1][1]
    assert offset == log.next_offset
    assert [before[1] for before in seen[:-1]] == [behind[0] for behind in seen[1:]]


def test_a_large_extent_ends_at_a_batch_that_the_index_names(place: Place) -> None:
    log, _ = Log.open(Handles(place.disk), f"{place.path}/{FOLDER}", 1 << 20, 0, False)
    log.claim()
    append_all(log, 2_000)
    extent = log.extent(3, LARGE_READ_BYTES)
    assert extent is not None
    assert LARGE_READ_BYTES - 2 * 4_096 < extent.size <= LARGE_READ_BYTES
    data = extent.read(1 << 20)
    assert spans(data)[0][0] == 3
    behind = log.extent(spans(data)[-1][1], LARGE_READ_BYTES)
    assert behind is not None
    assert behind.at == extent.at


def test_an_extent_says_whether_its_segment_is_closed(log: Log) -> None:
    first, last = log.extent(0, 1 << 20), log.extent(log.next_offset - 1, 1 << 20)
    assert first is not None
    assert last is not None
    assert (first.closed, last.closed) == (True, False)


def test_an_extent_that_is_held_survives_the_exchange_of_its_segment(place: Place, log: Log) -> None:
    expected = log.read(0, 1 << 20)
    extent = log.extent(0, 1 << 20)
    assert extent is not None
    assert isinstance(extent.segment, Segment)
    extent.unhold()  # an extent that was never held
    assert extent.segment.readers == 0
    extent.hold()
    clean(place.disk, log)
    assert extent.read(1 << 20) == expected
    extent.unhold()
    extent.unhold()
    assert extent.segment.readers == 0


def test_an_extent_that_is_held_survives_the_end_of_its_segment(place: Place, log: Log) -> None:
    expected = log.read(0, 1 << 20)
    extent = log.extent(0, 1 << 20)
    assert extent is not None
    extent.hold()
    remove_deleted(place.disk, log.folder, log.drop_old(5_000, 0, 0))
    assert extent.read(1 << 20) == expected
    extent.unhold()


def test_a_shortened_file_is_damage(place: Place, log: Log) -> None:
    extent = log.extent(log.next_offset - 1, 1 << 20)
    assert extent is not None
    file = place.disk.open(extent.segment.log_path)
    file.truncate(extent.at + 5)
    file.close()
    with pytest.raises(DamagedLog, match="shorter than it was"):
        extent.read(1 << 20)


def test_an_extent_without_a_batch_is_damage(place: Place, log: Log) -> None:
    position = log.extent(0, 1 << 20)
    assert position is not None
    file = place.disk.open(position.segment.log_path)
    file.write(0, bytes(200))
    file.close()
    with pytest.raises(DamagedLog):
        log.extent(0, 100)


def test_an_extent_has_the_bytes_available_within_the_limit(place: Place) -> None:
    log, _ = Log.open(Handles(place.disk), f"{place.path}/{FOLDER}", 1 << 20, 0, False)
    log.claim()
    for _ in range(10):
        log.append(batch("b"), log.epoch)
    one = log.size // 10

    def found(offset: int, bytes_max: int, end: int = -1) -> tuple[int, int, int] | None:
        extent = log.extent(offset, bytes_max, end)
        return None if extent is None else (extent.at // one, extent.size // one, extent.limit_bytes)

    assert found(0, 0) == found(0, 1) == found(0, one) == (0, 1, one)
    assert found(2, 3 * one - 1) == (2, 2, 3 * one - 1)
    assert found(2, 3 * one) == (2, 3, 3 * one)
    assert found(2, 3 * one + 1) == (2, 3, 3 * one + 1)
    assert found(2, 8 * one - 1) == (2, 7, 8 * one - 1)
    assert found(2, 8 * one) == found(2, 8 * one + 1) == found(2, 1 << 30) == (2, 8, 8 * one)
    assert found(2, 1 << 30, 5) == found(2, 3 * one, 5) == (2, 3, 3 * one)
    assert found(2, 3 * one - 1, 5) == (2, 2, 3 * one - 1)
    assert found(5, 1 << 30, 5) is None
    assert found(10, 1 << 30) is None


def test_a_read_past_the_end_leaves_no_reader_position(log: Log) -> None:
    end = log.next_offset + 2
    log.read(log.next_offset - 1, 1 << 20, end)
    log.extent(log.next_offset - 1, 1 << 20, end)
    for number in range(4):
        log.append(batch(f"more{number}"), log.epoch)
    assert spans(log.read(end, 1 << 20))[0] == (end, end + 1)
    extent = log.extent(end, 1 << 20)
    assert extent is not None
    assert spans(extent.read(1 << 20))[0] == (end, end + 1)


@pytest.mark.parametrize("limit", [LARGE_READ_BYTES - 1, LARGE_READ_BYTES, LARGE_READ_BYTES + 5_000])
def test_a_large_extent_has_the_bytes_available_if_batches_were_cut(place: Place, limit: int) -> None:
    log, _ = Log.open(Handles(place.disk), f"{place.path}/{FOLDER}", 1 << 20, 0, False)
    append_all(log, 100, padding=1_500)
    extent = log.extent(0, limit)
    assert extent is not None
    assert extent.size < extent.limit_bytes == limit
    first = log.extent(0, 10)
    assert first is not None
    assert (first.size, first.limit_bytes) == (log.size // 100, log.size // 100)
