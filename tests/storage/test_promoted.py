"""Promoted segments found while opening: swapped in if they belong to the log, removed if they belong to a former log of its name."""

from __future__ import annotations

import pytest

from protocol.batch import DELETE_HORIZON, Record, build, read_header, records, rewrite, stamp_whole
from simulator.disk import SimDisk, data_disk
from storage import Handles, Log
from storage.checking import check
from storage.promoted import PromotedVerdict, judge
from storage.segment import Segment, segment_name
from storage.swap import promote
from tests.storage.conftest import DataFolder
from tests.storage.logs import (
    FOLDER,
    CrashAt,
    append_flushed,
    clean,
    clean_and_promote,
    compaction,
    headers,
    keyed_batch,
    overwrite,
    read,
    records_by_offset,
    reopen,
    stop,
    values_by_key,
)
from tests.storage.small_segments import COUNT, KEYS, SEGMENT_BYTES, filled, left_over
from tests.support.batch_bytes import patched

pytestmark = pytest.mark.once  # no dependence on the Python version


def later_log(disk: SimDisk, count: int, segment_bytes: int = SEGMENT_BYTES) -> Log:
    """A log created later in a folder of the same name, with the same keys."""
    log, _ = reopen(disk, "/data", segment_bytes=segment_bytes)
    for number in range(count):
        log.append(keyed_batch((f"k{number % KEYS}", f"v{number}"), timestamp=9_000), log.epoch)
    stop(log)
    return log


def left_by_late_compaction(disk: SimDisk, segment_bytes: int) -> dict[str, bytes]:
    """A segment promoted by a compaction that ended after the log was replaced."""
    log = filled(disk)
    _, _ = clean_and_promote(disk, log, segment_bytes=segment_bytes)
    return {name: read(disk, f"/data/{FOLDER}/{name}") for name in left_over(disk)}


@pytest.mark.parametrize("clean_stop", [False, True])
@pytest.mark.parametrize("own_bytes", [SEGMENT_BYTES, 1 << 20])
@pytest.mark.parametrize("bytes_of_theirs", [SEGMENT_BYTES, 1_000, 1 << 20])
@pytest.mark.parametrize("count", [1, 3, COUNT // 2, COUNT - 1, COUNT, COUNT + 20])
def test_a_promoted_segment_of_a_former_log_of_the_name_replaces_nothing(
    count: int, bytes_of_theirs: int, own_bytes: int, clean_stop: bool
) -> None:
    leftovers = left_by_late_compaction(data_disk(), bytes_of_theirs)
    assert any(name.endswith(".log.swap") for name in leftovers)
    disk = data_disk()
    log = later_log(disk, count, own_bytes)
    expected = records_by_offset(log)
    for name, data in leftovers.items():
        overwrite(disk, f"/data/{FOLDER}/{name}", data)
    reopened, _ = reopen(disk, "/data", clean=clean_stop, segment_bytes=own_bytes)
    assert records_by_offset(reopened) == expected
    assert (reopened.start_offset, reopened.next_offset) == (0, count)
    assert left_over(disk) == []


def test_an_emptied_batch_with_another_timestamp_belongs_to_another_log(disk: SimDisk) -> None:
    old, _ = reopen(disk, "/data", segment_bytes=1)
    for key, timestamp in (("a", 1_000), ("a", 2_000), ("b", 3_000)):
        old.append(keyed_batch((key, "v"), timestamp=timestamp), 0)
    old.flush()
    _, _ = clean_and_promote(disk, old, segment_bytes=1)
    (swap_name, *_) = (name for name in left_over(disk) if name.endswith(".log.swap"))
    data = read(disk, f"{old.folder}/{swap_name}")
    disk = data_disk()
    log, _ = reopen(disk, "/data", segment_bytes=1)
    for key, timestamp in (("a", 1_001), ("b", 2_000), ("c", 3_000)):
        append_flushed(log, keyed_batch((key, "v"), timestamp=timestamp))
    expected = records_by_offset(log)
    log.close()
    overwrite(disk, f"{log.folder}/{swap_name}", data)
    assert records_by_offset(reopen(disk, "/data")[0]) == expected


@pytest.mark.parametrize("count", [1, 5])
def test_a_promoted_segment_past_the_end_belongs_to_another_log(count: int) -> None:
    leftovers = left_by_late_compaction(data_disk(), 200)
    disk = data_disk()
    log = later_log(disk, count)
    expected = records_by_offset(log)
    for name, data in leftovers.items():
        if int(name[:20]) > count:
            overwrite(disk, f"{log.folder}/{name}", data)
    assert any(name.endswith(".log.swap") for name in left_over(disk))
    reopened, _ = reopen(disk, "/data")
    assert records_by_offset(reopened) == expected
    assert reopened.next_offset == count


def test_a_promoted_segment_inside_a_batch_belongs_to_another_log(disk: SimDisk) -> None:
    old, _ = reopen(disk, "/data")
    for _ in range(2):
        old.append(keyed_batch(*[("a", "v")] * 5), 0)
    old.flush()
    data = read(disk, f"{old.folder}/{segment_name(0)}.log")
    disk = data_disk()
    log, _ = reopen(disk, "/data")
    append_flushed(log, keyed_batch(*[("b", "v")] * 10))
    assert log.roll(0)
    expected = records_by_offset(log)
    log.close()
    overwrite(disk, f"{log.folder}/{segment_name(5)}.log.swap", data[len(data) // 2 :])
    assert records_by_offset(reopen(disk, "/data")[0]) == expected


def test_a_promoted_segment_whose_sources_are_gone_is_finished(disk: SimDisk) -> None:
    """Kafka leaves such files if it is killed in the middle of a swap."""
    log = filled(disk)
    expected = values_by_key(log)
    job, _ = clean_and_promote(disk, log, segment_bytes=1_000)
    log.close()
    for base in job.cleaned[0].replaces:
        disk.remove(f"{log.folder}/{segment_name(base)}.log")
    reopened, _ = reopen(disk, "/data", segment_bytes=SEGMENT_BYTES)
    assert values_by_key(reopened) == expected
    assert left_over(disk) == []


@pytest.mark.parametrize("forgotten", [0, 3, 9])
@pytest.mark.parametrize("segment_bytes", [SEGMENT_BYTES, 1_000, 1 << 20])
def test_a_half_finished_swap_with_a_leftover_cleaned_file_loses_nothing(segment_bytes: int, forgotten: int) -> None:
    expected = values_by_key(filled(data_disk(), 20))
    for step in range(1, 200):
        disk = data_disk()
        log = filled(disk, 20)
        folder = log.folder
        job = compaction(disk, log, segment_bytes=segment_bytes)
        assert list(job.steps())
        promoted = promote(disk, folder, job.cleaned, "0")
        overwrite(disk, f"{folder}/{segment_name(forgotten)}.log.1.cleaned", b"forgotten")
        with CrashAt(disk, step) as crash:
            log.exchange(job.cleaned, promoted)
        reopened, _ = reopen(disk, "/data", recovery_point=COUNT, segment_bytes=SEGMENT_BYTES)
        assert values_by_key(reopened) == expected
        assert reopened.next_offset == COUNT
        assert left_over(disk) == []
        if not crash.happened:
            assert step > 3
            return
    raise AssertionError("a fault was planted in the last step too: raise the number of steps")


@pytest.mark.parametrize(("value", "timestamp"), [("w", 5_000), ("v", 4_999), ("v", 5_001)])
def test_a_rewritten_segment_is_not_replaced_by_its_former_content(disk: SimDisk, value: str, timestamp: int) -> None:
    """The segment was rewritten with as many bytes but other records: the promoted one belongs to an earlier state of the log."""
    log = filled(disk)
    _, _ = clean_and_promote(disk, log, segment_bytes=SEGMENT_BYTES)
    last = log.closed_segments[-1]
    path = f"{log.folder}/{segment_name(last.base)}.log"
    changed = b""
    for number in range(last.base, log.active_base):
        data = bytearray(keyed_batch((f"k{number % KEYS}", None if number % 7 == 0 else f"{value}{number}"), timestamp=timestamp))
        stamp_whole(data, number, 0)
        changed += data
    assert len(changed) == last.size
    overwrite(disk, path, changed)
    log.close()
    reopened, _ = reopen(disk, "/data", segment_bytes=SEGMENT_BYTES)
    assert records_by_offset(reopened)[last.base + 2] == ("k2", f"{value}22")
    assert 1 in records_by_offset(reopened)


def test_a_promoted_segment_with_delete_horizons_and_fewer_records_is_swapped_in(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path, segment_bytes=SEGMENT_BYTES)
    for number in range(COUNT):
        append_flushed(log, keyed_batch((f"k{number % 20}", None if number % 3 == 0 else "v"), ("other", "v")), log.epoch)
    expected = values_by_key(log)
    clean(data_folder.disk, log, segment_bytes=1 << 20)
    assert any(header.attributes & DELETE_HORIZON for header in headers(log))
    append_flushed(log, keyed_batch(("k5", "new")), log.epoch)
    assert log.roll(0)
    expected = values_by_key(log)
    _, _ = clean_and_promote(data_folder.disk, log, segment_bytes=1 << 20)
    log.close()
    before = sum(header.record_count for header in headers(log))
    reopened, _ = reopen(data_folder.disk, data_folder.path, segment_bytes=SEGMENT_BYTES)
    assert values_by_key(reopened) == expected
    assert sum(header.record_count for header in headers(reopened)) < before


# Verdicts over hand-made folders

Offsets = list[int]


def numbered_batch(offset: int, value: str = "", records: int = 1, epoch: int = 3, **producer_fields: int) -> bytes:
    """A batch of `records` offsets from `offset` on."""
    made_of = [Record(n, 1_000 + n, b"k%d" % n, (value or f"v{offset}").encode()) for n in range(records)]
    data = bytearray(build(made_of, **{"producer_id": 7, "producer_epoch": 1, "base_sequence": 5, **producer_fields}))  # type: ignore[arg-type]
    stamp_whole(data, offset, epoch)
    return bytes(data)


def lay_out(disk: SimDisk, base: int, ending: str, data: bytes) -> None:
    overwrite(disk, f"/data/{FOLDER}/{segment_name(base)}.log{ending}", data)


def verdict_of(disk: SimDisk, base: int) -> PromotedVerdict:
    handles = Handles(disk)
    promoted = Segment(handles, f"/data/{FOLDER}", base, ".swap")
    assert check(promoted, from_start=True) == ""
    handles.close()
    verdict = judge(disk, f"/data/{FOLDER}", promoted)
    handles.close()
    assert disk.opened == 0
    return verdict


def verdict_on(standing: dict[int, Offsets], aside: dict[int, Offsets], base: int, offsets: Offsets) -> PromotedVerdict:
    disk = data_disk()
    disk.make_folder(f"/data/{FOLDER}")
    for segments_of_kind, ending in ((standing, ""), (aside, ".deleted"), ({base: offsets}, ".swap")):
        for begin, held in segments_of_kind.items():
            lay_out(disk, begin, ending, b"".join(numbered_batch(offset) for offset in held))
    for name in ("notes.log.deleted", "x" * 20 + ".log.deleted", "\N{ARABIC-INDIC DIGIT ZERO}" * 20 + ".log.deleted", "0" * 21 + ".log.deleted", "0" * 19 + "1.log.1.clean"):
        overwrite(disk, f"/data/{FOLDER}/{name}", b"")
    return verdict_of(disk, base)


@pytest.mark.parametrize(
    ("standing", "aside", "base", "offsets", "expected"),
    [
        # The promoted segment is empty.
        ({0: [0], 1: [1]}, {}, 0, [], PromotedVerdict.COVERED),
        ({1: [1]}, {}, 0, [], PromotedVerdict.NEEDED),
        # Its source segments are still there.
        ({0: [0, 1], 2: [2, 3], 4: [4]}, {}, 0, [1, 3], PromotedVerdict.COVERED),
        ({0: [0, 1], 2: [2, 3], 4: [4]}, {}, 2, [3], PromotedVerdict.COVERED),
        ({0: [0, 1, 2, 3], 4: [4]}, {}, 2, [2, 3], PromotedVerdict.COVERED),
        # A segment set aside is not among its sources: it lies before the promoted segment, or right after it.
        ({1: [1, 2], 3: [3]}, {0: [0]}, 1, [2], PromotedVerdict.COVERED),
        ({0: [0, 1], 2: [2, 3], 5: [5]}, {4: [4]}, 0, [1, 3], PromotedVerdict.COVERED),
        # All or some sources of the promoted segment are set aside.
        ({4: [4]}, {0: [0, 1], 2: [2, 3]}, 0, [1, 3], PromotedVerdict.NEEDED),
        ({4: [4]}, {0: [0, 1, 2, 3]}, 0, [0, 3], PromotedVerdict.NEEDED),
        ({0: [0, 1], 4: [4]}, {2: [2, 3]}, 0, [1, 3], PromotedVerdict.NEEDED),
        ({0: [0, 1], 4: [4]}, {2: [2, 3], 9: [9]}, 0, [1, 3], PromotedVerdict.NEEDED),
        # A source is gone.
        ({4: [4]}, {}, 0, [0, 1, 3], PromotedVerdict.NEEDED),
        ({0: [0, 1], 4: [4]}, {}, 2, [2, 3], PromotedVerdict.NEEDED),
        ({0: [0, 1], 5: [5]}, {}, 2, [3], PromotedVerdict.NEEDED),
        # One source is gone although another one is in place: no swap leaves that.
        ({0: [0], 4: [4]}, {}, 0, [0, 3], PromotedVerdict.FOREIGN),
        ({2: [2], 4: [4]}, {}, 0, [1, 2], PromotedVerdict.FOREIGN),
        ({3: [3], 4: [4]}, {}, 0, [1, 3], PromotedVerdict.FOREIGN),
        # No segment follows: a compaction leaves the last segment alone.
        ({}, {}, 0, [0, 1], PromotedVerdict.FOREIGN),
        ({0: [0]}, {}, 1, [1], PromotedVerdict.FOREIGN),
        ({0: [0], 3: [3]}, {}, 1, [1, 3], PromotedVerdict.FOREIGN),
        # The promoted segment has an offset that its sources lack.
        ({4: [4]}, {0: [0, 2]}, 0, [1, 2], PromotedVerdict.FOREIGN),
        ({0: [0, 2], 4: [4]}, {}, 0, [1, 2], PromotedVerdict.FOREIGN),
        ({4: [4]}, {0: [0, 2, 3]}, 0, [0, 1, 3], PromotedVerdict.FOREIGN),
    ],
)
def test_a_promoted_segment_is_compared_with_current_and_set_aside_segments(
    standing: dict[int, Offsets], aside: dict[int, Offsets], base: int, offsets: Offsets, expected: PromotedVerdict
) -> None:
    assert verdict_on(standing, aside, base, offsets) is expected


def test_a_base_offset_inside_a_batch_belongs_to_another_log() -> None:
    for base, expected in ((1, PromotedVerdict.FOREIGN), (2, PromotedVerdict.FOREIGN), (3, PromotedVerdict.NEEDED)):
        disk = data_disk()
        disk.make_folder(f"/data/{FOLDER}")
        lay_out(disk, 0, "", numbered_batch(0, records=3))
        lay_out(disk, 4, "", numbered_batch(4))
        lay_out(disk, base, ".swap", numbered_batch(base, records=4 - base))
        assert verdict_of(disk, base) is expected


def without(data: bytes, *removed_offsets: int, horizon: int = -1, max_timestamp: int = -1) -> bytes:
    """The batch as a compaction writes it after removing these records."""
    new = rewrite(read_header(data, 0), [record for record in records(data, 0) if record.offset not in removed_offsets], horizon)
    return patched(new, 35, max_timestamp.to_bytes(8, "big")) if max_timestamp >= 0 else new


OLD = numbered_batch(0, "same", records=4)


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (OLD, PromotedVerdict.COVERED),
        (without(OLD, 0), PromotedVerdict.COVERED),
        (without(OLD, 3), PromotedVerdict.COVERED),
        (without(OLD, 0, 1, 2, horizon=9_000), PromotedVerdict.COVERED),
        (without(OLD, 1, 2, 3), PromotedVerdict.COVERED),
        (without(OLD, 0, max_timestamp=1_004), PromotedVerdict.FOREIGN),
        (without(OLD, 0, 1, 2, 3), PromotedVerdict.COVERED),
        (without(numbered_batch(0, "other", records=4), 0), PromotedVerdict.FOREIGN),
        (without(numbered_batch(0, "same", records=5), 0), PromotedVerdict.FOREIGN),
        (without(numbered_batch(0, "same", records=3), 0), PromotedVerdict.FOREIGN),
        (without(numbered_batch(0, "same", records=4, epoch=4), 0), PromotedVerdict.FOREIGN),
        (without(numbered_batch(0, "same", records=4, producer_id=8), 0), PromotedVerdict.FOREIGN),
        (without(numbered_batch(0, "same", records=4, producer_epoch=2), 0), PromotedVerdict.FOREIGN),
        (without(numbered_batch(0, "same", records=4, base_sequence=6), 0), PromotedVerdict.FOREIGN),
        (without(OLD, 0, 1, 2, 3, max_timestamp=1_002), PromotedVerdict.FOREIGN),
        (without(OLD, 0, 1, 2, 3, max_timestamp=1_004), PromotedVerdict.FOREIGN),
    ],
)
def test_a_compacted_batch_is_identified_by_its_unchanged_fields(disk: SimDisk, new: bytes, expected: PromotedVerdict) -> None:
    disk.make_folder(f"/data/{FOLDER}")
    lay_out(disk, 0, "", OLD)
    lay_out(disk, 9, "", numbered_batch(9))
    lay_out(disk, 0, ".swap", new)
    assert verdict_of(disk, 0) is expected


def test_an_unchanged_batch_matches_even_if_its_records_are_unreadable() -> None:
    unreadable = patched(numbered_batch(2), 21, (1).to_bytes(2, "big"))  # the header names gzip
    for last in (b"", numbered_batch(3)):
        disk = data_disk()
        disk.make_folder(f"/data/{FOLDER}")
        lay_out(disk, 0, "", numbered_batch(0) + numbered_batch(1) + unreadable + last)
        lay_out(disk, 4, "", numbered_batch(4))
        lay_out(disk, 0, ".swap", numbered_batch(1) + unreadable)
        assert verdict_of(disk, 0) is PromotedVerdict.COVERED


def test_the_whole_batches_of_a_torn_segment_are_compared() -> None:
    wrong_checksum = numbered_batch(1)[:17] + bytes(4) + numbered_batch(1)[21:]
    for torn, expected in (
        (numbered_batch(2)[:-1], PromotedVerdict.COVERED),
        (b"\1" * 100, PromotedVerdict.COVERED),
        (numbered_batch(1)[:-1], PromotedVerdict.FOREIGN),
        (wrong_checksum, PromotedVerdict.FOREIGN),
    ):
        disk = data_disk()
        disk.make_folder(f"/data/{FOLDER}")
        lay_out(disk, 0, "", numbered_batch(0) + (b"" if expected is PromotedVerdict.FOREIGN else numbered_batch(1)) + torn)
        lay_out(disk, 4, "", numbered_batch(4))
        lay_out(disk, 0, ".swap", numbered_batch(0) + numbered_batch(1))
        assert verdict_of(disk, 0) is expected
