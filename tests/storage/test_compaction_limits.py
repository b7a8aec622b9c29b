"""Compaction at its boundaries: the dirty offset, the key map, bounded reads and writes, and merged segments."""

from __future__ import annotations

from typing import Any

import pytest
from google_crc32c import value as crc32c

from protocol.batch import BatchHeader, Record, build, iterate_headers, records, stamp_whole
from protocol.compression import Compression
from simulator.disk import SimDisk
from storage import DamagedLog
from storage.compaction import Compaction
from storage.segment import CHUNK_BYTES, segment_name
from storage.swap import ClosedSegment
from tests.storage.logs import FOLDER, overwrite, read

pytestmark = pytest.mark.once  # no dependence on the Python version

PATH = f"/data/{FOLDER}"
FAR = (1 << 31) - 1


@pytest.fixture
def disk() -> SimDisk:
    return empty_folder()


def empty_folder() -> SimDisk:
    """A disk with an empty folder for a log."""
    disk = SimDisk()
    disk.make_folder(PATH)
    return disk


def batch(offset: int, *facts: tuple[bytes | None, bytes | None], codec: Compression = Compression.NONE, **fields: int) -> bytes:
    data = bytearray(build([Record(n, 5_000, key, value) for n, (key, value) in enumerate(facts)], compression=codec, **fields))  # type: ignore[arg-type]
    stamp_whole(data, offset, 0)
    return bytes(data)


def one_record(offset: int, key: bytes = b"a", value: bytes | None = b"v", **fields: Any) -> bytes:
    return batch(offset, (key, value), **fields)


def cleaned(disk: SimDisk, segments: dict[int, list[bytes]], end: int, **settings: Any) -> Compaction:
    """Clean segments of these batches; the swap is still to be done."""
    for base, batches in segments.items():
        overwrite(disk, f"{PATH}/{segment_name(base)}.log", b"".join(batches))
    return clean_again(disk, [ClosedSegment(base, len(b"".join(batches))) for base, batches in segments.items()], end, **settings)


def clean_again(disk: SimDisk, segments: list[ClosedSegment], end: int, **settings: Any) -> Compaction:
    defaults: dict[str, Any] = {"first_dirty": 0, "now": 0, "delete_retention_ms": 1_000, "segment_bytes": 1 << 30, "map_bytes_max": 1 << 20}
    before = disk.opened
    job = Compaction(disk, PATH, segments, end, **defaults | settings)
    try:
        for _ in job.steps():
            pass
    finally:
        assert disk.opened == before
    return job


def cleaned_headers(disk: SimDisk, base: int, token: str = "0") -> list[BatchHeader]:
    data = read(disk, f"{PATH}/{segment_name(base)}.log.{token}.cleaned")
    return list(iterate_headers(data, 0, len(data)))


def offsets(disk: SimDisk, base: int) -> list[int]:
    data = read(disk, f"{PATH}/{segment_name(base)}.log.0.cleaned")
    record_offsets = []
    at = 0
    for header in iterate_headers(data, 0, len(data)):
        record_offsets += [record.offset for record in records(data, at)]
        at += header.size
    return record_offsets


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_the_key_map_is_full_when_the_next_key_exceeds_its_limit(codec: Compression) -> None:
    batches = {0: [batch(0, (b"a", b"1"), (b"bb", b"1"), (b"a", b"2"), codec=codec)], 3: [one_record(3, b"c")], 4: [one_record(4, None)]}  # type: ignore[arg-type]
    first, both = 2 * 180 + 3, 3 * 180 + 4
    for map_bytes_max, clean_to in ((first - 1, 3), (first, 4), (both - 1, 4), (both, 5)):
        assert cleaned(empty_folder(), batches, 5, map_bytes_max=map_bytes_max).clean_to == clean_to


def test_records_after_an_early_end_of_a_compaction_are_kept() -> None:
    keyless = (None, b"x")  # a record without a key, which a cleaning removes
    disk = empty_folder()
    segments = {0: [batch(0, keyless, (b"a", b"1"))], 2: [batch(2, keyless, (b"b", b"1"))]}
    job = cleaned(disk, segments, 4, map_bytes_max=1)
    assert (job.clean_to, offsets(disk, 0)) == (2, [1, 2, 3])
    job = cleaned(disk, segments, 4)
    assert (job.clean_to, offsets(disk, 0)) == (4, [1, 3])


@pytest.mark.parametrize(("first_dirty", "stays"), [(0, [2, 4]), (1, [2, 4]), (2, [2, 4]), (3, [0, 2, 4]), (4, [0, 2, 4]), (5, None), (9, None)])
def test_a_batch_counts_as_dirty_if_its_last_record_is(disk: SimDisk, first_dirty: int, stays: list[int] | None) -> None:
    """Batches that end before `first_dirty` are clean: an earlier compaction left at most one record of each key in them."""
    job = cleaned(disk, {0: [one_record(0), batch(1, (b"b", b"1"), (b"a", b"2"))], 3: [one_record(3, b"b"), one_record(4, b"b")]}, 5, first_dirty=first_dirty)
    assert job.clean_to == 5
    if stays is None:
        assert job.cleaned == [(0, job.bytes_after, 5, (0, 3))]
        assert offsets(disk, 0) == [0, 1, 2, 3, 4]
    else:
        assert offsets(disk, 0) == stays


def test_a_tombstone_gets_its_delete_horizon_at_time_zero_too() -> None:
    segments = {0: [batch(0, (b"a", None), (b"b", b"1"))]}
    for now, retention, expected in ((0, 1_000, 1_000), (0, 0, 0), (1, 0, 1)):
        disk = empty_folder()
        cleaned(disk, segments, 2, now=now, delete_retention_ms=retention)
        (header,) = cleaned_headers(disk, 0)
        assert (header.attributes, header.base_timestamp) == (0x40, expected)
        data = read(disk, f"{PATH}/{segment_name(0)}.log.0.cleaned")
        for cleaning_time, offsets_left in ((expected - 1, [0, 1]), (expected, [1])):
            disk = empty_folder()
            job = cleaned(disk, {0: [data]}, 2, now=cleaning_time)
            assert (offsets(disk, 0) if job.cleaned else [0, 1]) == offsets_left
    assert cleaned(empty_folder(), segments, 2, now=-1).cleaned == []


@pytest.mark.parametrize(("more", "count"), [(0, 1), (-1, 2)])
def test_segments_are_merged_up_to_the_segment_size(more: int, count: int) -> None:
    parts = {0: [one_record(0, b"a"), one_record(1, b"x")], 2: [one_record(2, b"b"), one_record(3, b"x")]}
    first, second = (len(b"".join(batches)) for batches in parts.values())
    assert first == second
    first_bytes = first // 2  # the size of the first segment after cleaning, which removes x
    disk = empty_folder()
    job = cleaned(disk, parts, 4, segment_bytes=first_bytes + second + more)
    assert sum(len(new.replaces) for new in job.cleaned) == (2 if count == 1 else 1)
    assert (len(job.cleaned), job.cleaned[0].replaces) == (1, (0, 2) if count == 1 else (0,))
    assert (job.bytes_before, job.bytes_after) == (first + second, job.cleaned[0].size + (0 if count == 1 else second))


def test_segments_are_merged_up_to_the_largest_relative_offset() -> None:
    for later_offset, replaced in ((FAR, [(0, 5)]), (FAR + 1, [(0,)])):
        disk = empty_folder()
        job = cleaned(disk, {0: [one_record(0, b"x"), one_record(1, b"a")], 5: [one_record(5, b"x"), one_record(later_offset - 1, b"b")]}, later_offset)
        assert [new.replaces for new in job.cleaned] == replaced


def test_small_unchanged_segments_are_merged_too(disk: SimDisk) -> None:
    job = cleaned(disk, {3: [one_record(3, b"a")], 4: [one_record(4, b"b")], 5: [one_record(5, b"c")]}, 6, token="9")
    size = 3 * len(one_record(3, b"a"))
    assert job.cleaned == [(3, size, 6, (3, 4, 5))]
    assert (job.bytes_before, job.bytes_after) == (size, size)
    assert [header.base_offset for header in cleaned_headers(disk, 3, "9")] == [3, 4, 5]
    assert [name for name in disk.list(PATH) if name.startswith(segment_name(3))] == [
        f"{segment_name(3)}{ending}" for ending in (".index.9.cleaned", ".log", ".log.9.cleaned", ".timeindex.9.cleaned")
    ]


def test_a_cleaned_segment_starts_without_state_of_the_previous_segment(disk: SimDisk) -> None:
    """The first segment ends in a batch that is removed, the second is unchanged, and the third changes."""
    parts = {0: [one_record(0, b"a"), one_record(1, b"x")], 2: [one_record(2, b"b"), one_record(3, b"c")], 4: [one_record(4, b"x"), one_record(5, b"x")]}
    job = cleaned(disk, parts, 6, segment_bytes=1)
    assert [(new.base, new.next_offset, new.replaces) for new in job.cleaned] == [(0, 2, (0,)), (4, 6, (4,))]
    assert [(header.base_offset, header.record_count) for header in cleaned_headers(disk, 0)] == [(0, 1), (1, 0)]
    assert [(header.base_offset, header.record_count) for header in cleaned_headers(disk, 4)] == [(5, 1)]
    assert not [name for name in disk.list(PATH) if name.startswith(segment_name(2)) and "cleaned" in name]
    assert job.bytes_after == job.cleaned[0].size + job.cleaned[1].size + len(b"".join(parts[2]))
    # An emptied last batch does not make the next compaction rewrite the segment.
    data = read(disk, f"{PATH}/{segment_name(0)}.log.0.cleaned")
    assert cleaned(empty_folder(), {0: [data]}, 2, segment_bytes=1).cleaned == []


def test_leftovers_of_an_earlier_cleaning_are_overwritten(disk: SimDisk) -> None:
    overwrite(disk, f"{PATH}/{segment_name(0)}.log.0.cleaned", bytes(10_000))
    job = cleaned(disk, {0: [one_record(0), one_record(1)]}, 2)
    assert job.cleaned == [(0, len(one_record(1)), 2, (0,))]
    assert offsets(disk, 0) == [1]


def test_chunks_are_bounded_after_a_large_batch_too(disk: SimDisk) -> None:
    large = one_record(0, b"large", b"x" * (2 * CHUNK_BYTES + 500_000))
    small = [one_record(number, b"%d" % (number % 40), b"y" * 100_000) for number in range(1, 61)]
    data = b"".join([large, *small])
    overwrite(disk, f"{PATH}/{segment_name(0)}.log", data)
    disk.writes.clear()
    job = clean_again(disk, [ClosedSegment(0, len(data))], 61)
    assert {size for _, size in disk.reads if size > CHUNK_BYTES} == {len(large)}
    assert max(disk.writes) < len(large) + CHUNK_BYTES
    assert job.bytes_after == len(large) + sum(map(len, small[20:]))
    assert offsets(disk, 0) == [0, *range(21, 61)]
    assert len([size for size in disk.writes if size >= CHUNK_BYTES]) >= 3


def test_bytes_past_the_size_of_a_segment_are_ignored(disk: SimDisk) -> None:
    data = one_record(0) + one_record(1)
    overwrite(disk, f"{PATH}/{segment_name(0)}.log", data + one_record(2, b"behind"))
    job = clean_again(disk, [ClosedSegment(0, len(data))], 2)
    assert (job.cleaned, offsets(disk, 0)) == ([(0, len(one_record(1)), 2, (0,))], [1])


@pytest.mark.parametrize("bytes_missing", [1, 20, 70])
@pytest.mark.parametrize("segment_number", [0, 2])
def test_a_segment_that_ends_in_the_middle_of_a_batch_is_damaged(segment_number: int, bytes_missing: int) -> None:
    parts = {0: [one_record(0), one_record(1)], 2: [one_record(2), one_record(3)]}
    parts[segment_number] = [parts[segment_number][0], parts[segment_number][1][: -bytes_missing if bytes_missing < 70 else 10]]
    with pytest.raises(DamagedLog, match="cut short") as caught:
        cleaned(empty_folder(), parts, 4)
    assert caught.value.path == f"{PATH}/{segment_name(segment_number)}.log"
    assert caught.value.position == len(one_record(0))


@pytest.mark.parametrize(("offset", "sound"), [(4, False), (5, False), (6, True), (60, True)])
def test_offsets_grow_from_batch_to_batch_and_from_segment_to_segment(offset: int, sound: bool) -> None:
    first = batch(0, *[(b"%d" % number, b"v") for number in range(6)])
    for parts in ({0: [first, one_record(offset)]}, {0: [first], 6: [one_record(offset)]}):
        if sound:
            assert cleaned(empty_folder(), parts, offset + 1).clean_to == offset + 1
        else:
            with pytest.raises(DamagedLog, match=f"offset {offset} after 5"):
                cleaned(empty_folder(), parts, 7)


def test_without_a_list_of_live_producers_every_last_batch_is_kept(disk: SimDisk) -> None:
    batches = [
        one_record(0, producer_id=0, producer_epoch=0, base_sequence=0),
        one_record(1, producer_id=0, producer_epoch=0, base_sequence=1),
        one_record(2, producer_id=5, producer_epoch=0, base_sequence=0),
        one_record(3),
        one_record(4),
    ]
    cleaned(disk, {0: batches}, 5)
    assert [(header.base_offset, header.producer_id, header.record_count) for header in cleaned_headers(disk, 0)] == [(1, 0, 0), (2, 5, 0), (4, -1, 1)]
    for living, remaining in (({}, [4]), ({0: 0}, [0, 4]), ({0: 1}, [1, 4]), ({0: 2}, [4]), ({5: 2, 0: 1}, [1, 2, 4])):
        disk = empty_folder()
        cleaned(disk, {0: batches}, 5, producers=living)
        assert [header.base_offset for header in cleaned_headers(disk, 0)] == remaining


def test_reported_segments_survive_a_crash(disk: SimDisk) -> None:
    """The compaction syncs the bytes and names of cleaned segments before it reports them."""
    job = cleaned(disk, {0: [one_record(0), one_record(1)]}, 2)
    assert job.cleaned
    disk.crash()
    assert {name for name in disk.list(PATH) if name.endswith(".cleaned")} == {
        f"{segment_name(0)}{ending}.0.cleaned" for ending in (".log", ".index", ".timeindex")
    }
    assert offsets(disk, 0) == [1]


@pytest.mark.parametrize("first_dirty", [0, 9])
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(
    ("at", "patch", "reason"),
    [
        (16, b"\1", "a batch has magic 1, not 2"),
        (16, b"\3", "a batch has magic 3, not 2"),
        (8, (48).to_bytes(4, "big"), "a batch's length field says 60 bytes, fewer than a header"),
        (8, (0).to_bytes(4, "big"), "a batch's length field says 12 bytes, fewer than a header"),
        (8, (-100).to_bytes(4, "big", signed=True), "a batch's length field says -88 bytes, fewer than a header"),
        (21, b"\1", "a batch's checksum is wrong"),
    ],
)
def test_a_malformed_batch_is_reported_in_clean_and_dirty_segments(
    at: int, patch: bytes, reason: str, number: int, first_dirty: int
) -> None:
    batches = [one_record(0), one_record(1, b"b")]
    changed = bytearray(batches[number])
    changed[at : at + len(patch)] = patch
    batches[number] = bytes(changed)
    with pytest.raises(DamagedLog, match=reason) as caught:
        cleaned(empty_folder(), {0: batches}, 2, first_dirty=first_dirty)
    assert caught.value.path == f"{PATH}/{segment_name(0)}.log"
    if at != 21:  # for a checksum error, the reported position is that of the chunk that was read
        assert caught.value.position in (0, number * len(one_record(0)))


def test_batches_of_a_producer_without_dirty_batches_are_kept() -> None:
    """Without a list of live producers, the last batch of a producer may have no successor."""
    sent = [one_record(0, producer_id=5, producer_epoch=0, base_sequence=0), one_record(1, producer_id=5, producer_epoch=0, base_sequence=1)]
    for first_dirty, remaining in ((1, [1, 2]), (2, [0, 1, 2])):
        disk = empty_folder()
        cleaned(disk, {0: sent, 2: [one_record(2)]}, 3, first_dirty=first_dirty)
        assert [header.base_offset for header in cleaned_headers(disk, 0)] == remaining


def test_a_segment_without_batches_gets_no_batch_of_the_previous_segment(disk: SimDisk) -> None:
    """The previous segment ends in a batch that is removed."""
    job = cleaned(disk, {0: [one_record(0, b"a"), one_record(1, b"x")], 2: [], 4: [one_record(4, b"x")]}, 5, segment_bytes=1)
    assert [(new.base, new.next_offset, new.replaces) for new in job.cleaned] == [(0, 2, (0,))]
    assert job.bytes_after == job.cleaned[0].size + len(one_record(4, b"x"))


@pytest.mark.parametrize(("delta", "count"), [(0, -1), (0, 2), (-1, 0), (1, 3)])
def test_an_impossible_record_count_is_damage_despite_a_valid_checksum(delta: int, count: int) -> None:
    wrong = bytearray(one_record(1))
    wrong[23:27] = delta.to_bytes(4, "big", signed=True)
    wrong[57:61] = count.to_bytes(4, "big", signed=True)
    wrong[17:21] = crc32c(bytes(wrong[21:])).to_bytes(4, "big")
    with pytest.raises(DamagedLog, match=f"{count} records for {delta + 1} offsets|cut short"):
        cleaned(empty_folder(), {0: [one_record(0, b"b"), bytes(wrong)]}, 3, first_dirty=3)


def test_a_cleaning_verifies_what_it_wrote() -> None:
    disk = empty_folder()
    disk.corrupts = ".log."
    with pytest.raises(DamagedLog, match="checksum"):
        cleaned(disk, {0: [one_record(0), one_record(1)]}, 2)
