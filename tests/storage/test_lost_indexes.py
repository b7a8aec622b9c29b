"""Index files are never flushed: reads are correct whatever a power failure left of them."""

from __future__ import annotations

from random import Random
from struct import pack, unpack_from

import pytest

from protocol.batch import Record, build, records
from simulator.disk import SimDisk
from storage import Handles, Log, Producers
from storage.index import INTERVAL_BYTES
from tests.storage.logs import append_flushed, newest_timestamp, overwrite, read, result_of

pytestmark = pytest.mark.once  # no dependence on the Python version

FOLDER = "/data/orders-0"
SEGMENT_BYTES = 60_000


def opened(disk: SimDisk, recovery_point: int = 0, clean: bool = False) -> Log:
    log, _ = Log.open(Handles(disk), FOLDER, SEGMENT_BYTES, recovery_point, clean, deferred=True, producers=Producers())
    return log


def times(random: Random, course: str, count: int) -> list[int]:
    match course:
        case "in order":
            return [1_000 + 7 * number for number in range(count)]
        case "newest first":
            return [1_000_000 - 7 * number for number in range(count)]
        case "one from the future":
            return [10_000_000 if number % 40 == 11 else 1_000 + 7 * number for number in range(count)]
        case _:
            return [random.randrange(1_000, 100_000) for _ in range(count)]


def written(disk: SimDisk, stamps: list[int]) -> tuple[Log, list[tuple[int, int]]]:
    """A flushed log of several segments with records at these times, and the offset and time of each record."""
    disk.make_folder("/data")
    log = opened(disk)
    for number, stamp in enumerate(stamps):
        append_flushed(log, build([Record(0, stamp, b"k%d" % number, b"\7" * 1_000, [])]))
    return log, list(enumerate(stamps))


def check(log: Log, expected: list[tuple[int, int]], random: Random) -> None:
    newest = max(stamp for _, stamp in expected)
    assert newest_timestamp(log) == newest
    for segment in log._segments:
        within = [stamp for offset, stamp in expected if segment.base <= offset < segment.next_offset]
        assert segment.max_timestamp == max(within, default=-1)
    for stamp in [0, newest, newest + 1, *(random.choice(expected)[1] + random.choice((-1, 0, 1)) for _ in range(25))]:
        hit = result_of(log.find_time(stamp))
        first = next(((offset, at) for offset, at in expected if at >= stamp), None)
        assert ((hit.offset, hit.timestamp) if hit is not None else None) == first, stamp
    for offset, stamp in random.sample(expected, 25):
        record = records(log.read(offset, 1), 0)[0]
        assert (record.offset, record.timestamp) == (offset, stamp)


@pytest.mark.parametrize("course", ["in order", "newest first", "one from the future", "any"])
@pytest.mark.parametrize("seed", range(12))
def test_reads_are_unchanged_after_a_crash_lost_any_index(seed: int, course: str) -> None:
    random = Random(f"{seed} {course}")
    disk = SimDisk(random)
    log, expected = written(disk, times(random, course, 260))
    assert len(log.closed_segments) >= 4
    assert 4 * INTERVAL_BYTES < 60_000
    log.close()
    disk.crash()
    # Every checksum of the last segment is verified. The others end before the recovery point, and their indexes are trusted.
    check(opened(disk, len(expected)), expected, random)


@pytest.mark.parametrize("lost", ["index", "timeindex"])
@pytest.mark.parametrize("zeros", [False, True])
def test_a_truncated_or_zero_filled_index_file_gives_correct_lookups(lost: str, zeros: bool) -> None:
    random = Random(5)
    disk = SimDisk(random)
    log, expected = written(disk, times(random, "in order", 130))
    log.close()
    path = f"{FOLDER}/{0:020}.{lost}"
    intact = read(disk, path)
    assert len(intact) > 80
    for length in range(0, len(intact), 3):
        overwrite(disk, path, intact[:length] + bytes(len(intact) - length if zeros else 0))
        check(opened(disk, len(expected)), expected, random)


def test_zeros_in_the_middle_of_an_index_file_give_correct_lookups() -> None:
    random = Random(5)
    for course in ("in order", "any"):
        disk = SimDisk(random)
        log, expected = written(disk, times(random, course, 130))
        log.close()
        for ending in ("index", "timeindex"):
            path = f"{FOLDER}/{0:020}.{ending}"
            intact = read(disk, path)
            for begin in range(0, len(intact), 5):
                data = bytearray(intact)
                data[begin : begin + 30] = bytes(len(data[begin : begin + 30]))
                overwrite(disk, path, bytes(data))
                check(opened(disk, len(expected)), expected, random)
            overwrite(disk, path, intact)


@pytest.mark.parametrize("course", ["in order", "one from the future"])
@pytest.mark.parametrize("more", [-1, 1])
def test_an_index_time_that_its_batch_lacks_is_ignored(more: int, course: str) -> None:
    random = Random(5)
    disk = SimDisk(random)
    log, expected = written(disk, times(random, course, 130))
    log.close()
    path = f"{FOLDER}/{0:020}.timeindex"
    intact = read(disk, path)
    assert len(intact) >= 24
    for at in range(0, len(intact), 12):
        overwrite(disk, path, intact[:at] + pack(">q", unpack_from(">q", intact, at)[0] + more) + intact[at + 8 :])
        reopened = opened(disk, len(expected))
        check(reopened, expected, random)
        reopened.close()
        check(opened(disk, clean=True), expected, random)  # this start trusts the index
