"""Checking and truncating a segment, compared with the list of its batches."""

from __future__ import annotations

import pytest
from google_crc32c import value as crc32c

from protocol.batch import read_header
from simulator.disk import SimDisk
from storage import DamagedLog, Handles
from storage.checking import check, cut
from storage.segment import Segment, segment_name
from tests.storage.logs import overwrite, read
from tests.storage.segments import BASE, BATCHES, NEXT, PATH, Batch, batch_at, checked_segment, state_of, write_segment

pytestmark = pytest.mark.once  # no dependence on the Python version


@pytest.mark.parametrize("from_start", [True, False])
def test_checking_a_segment_restores_the_state_of_its_writer(disk: SimDisk, from_start: bool) -> None:
    written = Segment(Handles(disk), PATH, BASE)
    written.handles.file(written.log_path, create=True)
    for batch in BATCHES:
        header = read_header(batch.data, 0)
        written.append(batch.data, batch.base, batch.last, header.max_timestamp, header.leader_epoch)
    reopened = Segment(Handles(disk), PATH, BASE)
    assert check(reopened, from_start) == ""
    log_bytes = b"".join(batch.data for batch in BATCHES)
    assert state_of(reopened) == state_of(written) == (len(log_bytes), NEXT, 3_004, 114)
    assert (reopened.epoch, reopened.epoch_start) == (written.epoch, written.epoch_start) == (2, 115)
    assert read(disk, written.log_path) == log_bytes
    assert (reopened.verified, written.verified) == (from_start, True)


@pytest.mark.parametrize("from_start", [True, False])
def test_a_batch_with_a_wrong_offset_ends_the_valid_part(disk: SimDisk, from_start: bool) -> None:
    good = b"".join(batch.data for batch in BATCHES)
    for wrong, reason in (
        (batch_at(120), "offset 120 where at least 121 is expected"),
        (batch_at(99), "offset 99 where at least 121 is expected"),
        (batch_at(BASE + (1 << 31)), "too far"),
    ):
        segment = write_segment(disk, [*BATCHES, wrong])
        assert reason in check(segment, from_start)
        assert (segment.size, segment.next_offset) == (len(good), NEXT)
    for fine in (batch_at(121), batch_at(BASE + (1 << 31) - 1)):
        segment = write_segment(disk, [*BATCHES, fine])
        assert check(segment, from_start) == ""
        assert segment.next_offset == fine.base + 1
    segment = write_segment(disk, BATCHES, batch_at(121).data[:-1])
    assert "cut short" in check(segment, from_start)
    assert (segment.size, segment.next_offset) == (len(good), NEXT)
    assert check(write_segment(disk, [batch_at(99)]), from_start) == "offset 99 where at least 100 is expected"
    backwards = bytearray(batch_at(130).data)
    backwards[23:27] = b"\xff\xff\xff\xff"  # its last offset is one before its first
    emptied = backwards.copy()
    emptied[57:61] = bytes(4)  # and it has a record count of 0
    for header in (backwards, emptied):
        header[17:21] = crc32c(bytes(header[21:])).to_bytes(4, "big")
        segment = write_segment(disk, BATCHES, bytes(header))
        assert check(segment, from_start)
        assert (segment.size, segment.next_offset) == (len(good), NEXT)


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("count", range(6))
def test_a_truncated_segment_equals_a_segment_without_the_cut_batches(disk: SimDisk, count: int, indexed: bool) -> None:
    padding = 5_000 if indexed else 0  # so that the index has an entry for each of them
    batches = [batch_at(batch.base, batch.last - batch.base + 1, padding, 1_000 * (3 - abs(2 - n))) for n, batch in enumerate(BATCHES)]
    segment = checked_segment(disk, batches)
    for batch in batches:
        segment.read(batch.base, 1, NEXT)  # reader positions are remembered
    surviving = batches[:count]
    position = sum(len(batch.data) for batch in surviving)
    segment.save_index()
    segment.unsynced = False
    cut(segment, position)
    assert segment.unsynced is (count < 5)
    assert disk.list(PATH) == [f"{segment_name(BASE)}.log"]  # no index files: they would name removed batches if the process ended now
    segment.save_index()
    assert len(disk.list(PATH)) == 3
    assert read(disk, segment.log_path) == b"".join(batch.data for batch in surviving)
    fresh = checked_segment(disk, surviving)
    assert state_of(segment) == state_of(fresh)
    assert segment.read(BASE, 1 << 20, NEXT) == b"".join(batch.data for batch in surviving)
    following = [batch_at(offset, padding=50) for offset in range(segment.next_offset, NEXT + 1)]
    for batch in following:
        segment.append(batch.data, batch.base, batch.last, 1_000, 0)
    for batch in reversed(following):  # each read remembers where the next begins
        assert segment.read(batch.base, 1, NEXT + 1) == batch.data
    assert [segment.position_from(batch.base) for batch in surviving] == [fresh.position_from(batch.base) for batch in surviving]


def test_truncation_reads_only_the_headers_of_the_remaining_batches(disk: SimDisk) -> None:
    data = [batch.data for batch in BATCHES]
    segment = checked_segment(disk, BATCHES, False)
    overwrite(disk, segment.log_path, data[0] + data[1][:-1] + b"?" + b"".join(data[2:]))
    cut(segment, segment.size - len(data[4]))
    assert (segment.next_offset, segment.size) == (116, sum(len(batch) for batch in data[:4]))
    overwrite(disk, segment.log_path, data[0] + data[1][:16] + b"?" + data[1][17:] + b"".join(data[2:4]))
    with pytest.raises(DamagedLog, match="magic") as caught:
        cut(segment, segment.size - len(data[3]))
    assert caught.value.position == len(data[0])


@pytest.mark.parametrize("stored", range(7))
def test_an_index_that_lacks_the_end_is_stored_whole_when_the_segment_is_closed(disk: SimDisk, stored: int) -> None:
    batches = [batch_at(BASE + number, padding=5_000 if number < 5 else 0, timestamp=1_000 * number) for number in range(7)]
    segment = checked_segment(disk, batches)
    segment.save_index()
    paths = (segment.index.offset_path, segment.index.time_path)
    index_bytes = [read(disk, path) for path in paths]
    assert [len(data) for data in index_bytes] == [5 * 8, 6 * 12]  # of the last entry only the time
    before = checked_segment(disk, batches[:stored])
    before.save_index()
    segment = write_segment(disk, batches)
    assert check(segment, False) == ""
    segment.save_index()
    assert [read(disk, path) for path in paths] == index_bytes


def test_a_damaged_first_batch_named_by_the_time_index_is_reported(disk: SimDisk) -> None:
    batches = [batch_at(BASE + number, padding=5_000, timestamp=9_000 - number) for number in range(4)]
    checked_segment(disk, batches).save_index()
    segment = write_segment(disk, [Batch(BASE, BASE, batches[0].data[:16] + b"\1" + batches[0].data[17:]), *batches[1:]])
    assert check(segment, False, trust_index=False) == "a batch has magic 1, not 2"


def test_a_read_from_the_start_verifies_every_checksum(disk: SimDisk) -> None:
    batches = [batch_at(BASE + number, padding=5_000) for number in range(4)]
    checked_segment(disk, batches).save_index()
    damaged = Batch(BASE, BASE, batches[0].data[:-1] + b"?")
    assert check(write_segment(disk, [damaged, *batches[1:]]), True) == "a batch's checksum is wrong"
