"""Verifying the last segment after a crash, where equal batches are checked many at a time."""

from __future__ import annotations

from random import Random

import google_crc32c
import pytest

from protocol.batch import Record, build, stamp
from simulator.disk import SimDisk
from storage import Handles
from storage.checking import check
from storage.index import INTERVAL_BYTES, RELATIVE_OFFSET_MAX
from storage.segment import CHUNK_BYTES, Segment
from tests.storage.logs import FOLDER, batch, overwrite, reopen

pytestmark = pytest.mark.once  # no dependence on the Python version

PATH = "/data"
LOG = f"{PATH}/{FOLDER}/{0:020}.log"


def stored(data: bytes) -> SimDisk:
    disk = SimDisk()
    disk.make_folder(PATH)
    disk.make_folder(f"{PATH}/{FOLDER}")
    overwrite(disk, LOG, data)
    return disk


def knowledge(segment: Segment) -> dict[str, object]:
    index = segment.index
    names = ("size", "next_offset", "max_timestamp", "max_timestamp_offset", "epoch", "epoch_start")
    return {name: getattr(segment, name) for name in names} | {"offsets": index.offset_bytes(), "times": index.time_bytes()}


def checked(disk: SimDisk) -> tuple[Segment, str]:
    segment = Segment(Handles(disk), f"{PATH}/{FOLDER}", 0)
    return segment, check(segment, from_start=True)


@pytest.mark.parametrize("seed", range(40))
def test_verifying_restores_the_state_of_appending(seed: int) -> None:
    """Timestamps that increase, repeat and decrease; equal sizes, gaps, and sometimes a new epoch."""
    random = Random(seed)
    disk = stored(b"")
    by_hand = Segment(Handles(disk), f"{PATH}/{FOLDER}", 0)
    timestamp, records, padding, epoch, offset = 1_000, 1, 20, 0, 0
    for _ in range(random.choice([30, 300, 900])):
        if random.random() < 0.02:
            records, padding = random.choice([1, 1, 1, 2, 3]), random.choice([20, 20, 60, 500, INTERVAL_BYTES, 9_000])
        timestamp += random.choice([0, 0, 1, 5, -7])
        if random.random() < 0.01:
            epoch += 1
        if random.random() < 0.01:
            offset += random.randrange(1, 5)
        stamped_batch = bytearray(build([Record(n, timestamp + n, b"key", bytes(padding)) for n in range(records)]))
        stamp(stamped_batch, 0, offset, epoch)
        by_hand.append(stamped_batch, offset, offset + records - 1, timestamp + records - 1, epoch)
        offset += records
    segment, reason = checked(disk)
    assert not reason
    by_hand.index.add_time(by_hand.max_timestamp, by_hand.max_timestamp_offset)
    assert knowledge(segment) == knowledge(by_hand)


@pytest.mark.parametrize("first", range(0, 200, 25))
def test_a_wrong_byte_is_found_in_any_batch_of_a_run(first: int) -> None:
    for seed in range(first, first + 25):
        check_wrong_byte(Random(seed), seed)


def check_wrong_byte(random: Random, seed: int) -> None:
    disk = stored(b"")
    log, _ = reopen(disk, PATH)
    count, padding = 60, random.choice([0, 30])
    for _ in range(count):
        log.append(batch("name", 1, padding), 0)
    size = log.size // count
    data = bytearray(disk.open(LOG).read(0, log.size))
    changed, at = random.randrange(1, count), random.randrange(size)
    data[changed * size + at] ^= 1 << random.randrange(8)
    if seed % 2:
        data[changed * size + 17 : changed * size + 21] = google_crc32c.value(bytes(data[changed * size + 21 : (changed + 1) * size])).to_bytes(4, "big")
    disk = stored(bytes(data))
    segment, reason = checked(disk)

    # The expected result: each batch is checked in a file of its own, and not together with equal batches.
    ends = 0
    said = ""
    for number in range(count):
        alone = Segment(Handles(stored(bytes(data[number * size : (number + 1) * size]))), f"{PATH}/{FOLDER}", 0)
        alone.next_offset = ends
        said = check(alone, from_start=True)
        if said:
            break
        ends = alone.next_offset
    assert bool(reason) == bool(said)
    if said:
        assert (segment.size, segment.next_offset) == (number * size, ends)
        assert reason == said or "cut short" in said  # alone, the batch is followed by the end of the file
    else:
        assert segment.size == len(data)


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("records", [1, 3])
def test_a_segment_ends_at_the_largest_indexable_offset(records: int, clean: bool) -> None:
    """The checksum does not cover offsets, so a flipped bit may cause any offset."""
    stamped_batch = bytearray(batch("name", records))
    data = bytearray()
    for number in range(20):
        stamp(stamped_batch, 0, RELATIVE_OFFSET_MAX - 12 * records + number * records, 0)
        data += stamped_batch
    segment = Segment(Handles(stored(bytes(data))), f"{PATH}/{FOLDER}", 0)
    reason = check(segment, from_start=not clean)
    offset_delta = 13 if records == 1 else 12
    last = RELATIVE_OFFSET_MAX - 12 * records + (offset_delta + 1) * records - 1
    assert (segment.size, reason) == (offset_delta * len(stamped_batch), f"offset {last} is too far from the segment's first, 0")


@pytest.mark.parametrize("length", [-12, 0, 48])
def test_a_batch_length_below_the_header_size_is_refused(length: int) -> None:
    stamped_batch = bytearray(batch("name"))
    stamp(stamped_batch, 0, 0, 0)
    short = bytearray(stamped_batch)
    stamp(short, 0, 1, 0)
    short[8:12] = length.to_bytes(4, "big", signed=True)
    short[17:21] = google_crc32c.value(bytes(short[21 : max(12 + length, 21)])).to_bytes(4, "big")
    segment, reason = checked(stored(bytes(stamped_batch + short)))
    assert (reason, segment.size, segment.next_offset) == (f"a batch's length field says {12 + length} bytes, fewer than a header", len(stamped_batch), 1)


@pytest.mark.parametrize("sizes", [(1_024,), (1_000, 1_048)])  # batches all of one size, or alternating between two sizes
def test_every_index_interval_has_an_index_entry(sizes: tuple[int, ...]) -> None:
    data = bytearray()
    for number in range(64):
        size = sizes[number % len(sizes)]
        stamped_batch = next(padded for padding in range(size) if len(padded := bytearray(batch("name", 1, padding))) == size)
        stamp(stamped_batch, 0, number, 0)
        data += stamped_batch
    segment, reason = checked(stored(bytes(data)))
    assert not reason
    assert list(segment.index.positions) == list(range(INTERVAL_BYTES, len(data), INTERVAL_BYTES))
    assert list(segment.index.offsets) == list(range(4, 64, 4))


def test_an_unknown_compression_is_damage_despite_a_valid_checksum() -> None:
    for codec in range(8):
        stamped_batch = bytearray(batch("name"))
        stamped_batch[22] = codec
        stamped_batch[17:21] = google_crc32c.value(bytes(stamped_batch[21:])).to_bytes(4, "big")
        stamp(stamped_batch, 0, 0, 0)
        assert checked(stored(bytes(stamped_batch)))[1] == ("" if codec <= 4 else f"unknown compression {codec}")


@pytest.mark.parametrize("missing", [0, 1])
def test_a_last_batch_larger_than_a_chunk_is_read_whole(missing: int) -> None:
    data = bytearray()
    for number, padding in enumerate((10, 2 * CHUNK_BYTES)):
        stamped_batch = bytearray(batch("name", 1, padding))
        stamp(stamped_batch, 0, number, 0)
        data += stamped_batch
    segment, reason = checked(stored(bytes(data[: len(data) - missing])))
    assert (segment.next_offset, reason) == ((2, "") if not missing else (1, "a batch is cut short"))
