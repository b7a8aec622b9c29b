"""The cost of reading and opening, counted in file reads and bytes of memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from protocol.batch import iterate_headers
from simulator.disk import SimDisk
from storage import Handles, Log, OsDisk, Producers
from storage.index import MEMORY_ENTRIES
from tests.storage.logs import FOLDER, append_all, batch, stop

COUNT = 2_000
LOG_BYTES_MAX = 10_000  # memory of one open log; the target is 40 MiB for 2,000 logs


def reads_since(disk: SimDisk) -> int:
    """The number of file reads since the last call."""
    counted = len(disk.reads)
    disk.reads.clear()
    return counted


def opened(disk: SimDisk, clean: bool = False) -> Log:
    log, _ = Log.open(Handles(disk), f"/data/{FOLDER}", 1 << 30, 0, clean, deferred=True, producers=Producers())
    return log


@pytest.fixture
def log(disk: SimDisk) -> Log:
    log = opened(disk)
    append_all(log, COUNT, padding=900)
    return log


def test_a_reader_at_the_end_gets_new_batches_with_one_read(disk: SimDisk, log: Log) -> None:
    assert log.read(log.next_offset - 1, 1 << 20)
    reads_since(disk)
    for number in range(30):
        for _ in range(number % 3 + 1):
            log.append(batch("more"), log.epoch)
        offset = log.next_offset - number % 3 - 1
        batches = log.read(offset, 1 << 20)
        assert [header.base_offset for header in iterate_headers(batches, 0, len(batches))] == list(range(offset, log.next_offset))
        assert reads_since(disk) == 1


def test_several_readers_at_their_own_places_read_once_each_time(disk: SimDisk, log: Log) -> None:
    places = {number: 150 * number for number in range(10)}
    for turn in range(5):
        for reader, offset in places.items():
            reads_since(disk)
            data = log.read(offset, 5_000)
            assert turn == 0 or reads_since(disk) == 1
            headers = list(iterate_headers(data, 0, len(data)))
            assert headers[0].base_offset == offset
            places[reader] = headers[-1].next_offset


def test_a_large_part_is_read_once_after_its_batch_boundaries_are_found(disk: SimDisk, log: Log) -> None:
    offset = 3
    reads_since(disk)
    data = log.read(offset, 1 << 20)
    assert len(data) > (1 << 20) - 2 * 4_096
    assert reads_since(disk) <= 4  # a read at its begin, a read at its end, and the part itself
    last = list(iterate_headers(data, 0, len(data)))[-1]
    next_read = log.read(last.next_offset, 1 << 19)
    assert next(iter(iterate_headers(next_read, 0, len(next_read)))).base_offset == last.next_offset
    assert reads_since(disk) <= 2


def test_after_an_orderly_stop_only_the_ends_of_logs_are_read(disk: SimDisk, log: Log) -> None:
    stop(log)
    reads_since(disk)
    reopened = opened(disk, clean=True)
    assert reopened.next_offset == COUNT
    assert reads_since(disk) <= 14


def test_an_open_log_is_small_in_memory_however_large_it_is(disk: SimDisk) -> None:
    log = opened(disk)
    large = batch("large", padding=6_000)
    for _ in range(3 * MEMORY_ENTRIES // 2):
        log.append(large, log.epoch)
    assert len(log._segments[0].index.positions) < MEMORY_ENTRIES
    stop(log)
    tracemalloc.start()
    try:
        logs = [opened(disk, clean=True) for _ in range(20)]
        for segment in logs:
            assert segment.read(700, 100)
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert used / len(logs) < LOG_BYTES_MAX


def test_a_thousand_logs_need_few_descriptors(tmp_path: Path) -> None:
    handles = Handles(OsDisk(), 16)
    logs = []
    for number in range(200):
        log, _ = Log.open(handles, str(tmp_path / f"orders-{number}"), 1 << 20, 0, False, deferred=True)
        log.append(batch(f"b{number}"), log.epoch)
        logs.append(log)
        assert len(handles._files) <= 16
    for number, log in enumerate(logs):
        assert f"b{number}.0".encode() in log.read(0, 1000)
