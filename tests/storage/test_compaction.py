"""The records that compaction keeps, compared with a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.batch import Record, build, records
from protocol.compression import Compression
from simulator.disk import SimDisk, data_disk
from storage import DamagedLog, Handles, Log
from tests.depth import DEPTH
from tests.storage.conftest import DataFolder
from tests.storage.logs import (
    FOLDER,
    all_records,
    append_flushed,
    clean,
    compaction,
    flush_and_roll,
    headers,
    keyed_batch,
    names,
    overwrite,
    read,
    records_by_offset,
    reopen,
    scan,
    stop,
    values_by_key,
)

pytestmark = pytest.mark.once  # bytes and disks do not depend on the Python version

RETENTION = 1_000


def test_compaction_keeps_the_newest_record_of_each_key_at_its_offset(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path)
    for facts in ([("a", "1")], [("b", "1"), ("a", "2"), ("c", "1")], [("b", "2")], [("d", "1")]):
        log.append(keyed_batch(*facts), 0)
    flush_and_roll(log)
    log.append(keyed_batch(("d", "2")), 0)  # in the active segment, which is not cleaned
    log.flush()
    before, last = log.size, len(keyed_batch(("d", "2")))
    job = clean(data_folder.disk, log)
    expected = {2: ("a", "2"), 3: ("c", "1"), 4: ("b", "2"), 5: ("d", "1"), 6: ("d", "2")}
    assert records_by_offset(log) == expected
    assert (log.next_offset, log.start_offset, job.clean_to) == (7, 0, 6)
    assert (job.bytes_before, job.bytes_after) == (before - last, log.size - last)
    for clean_stop in (False, True):
        log.close()
        log, truncation = reopen(data_folder.disk, data_folder.path, clean=clean_stop)
        assert (records_by_offset(log), log.next_offset, truncation.cut_bytes) == (expected, 7, 0)
    assert log.append(keyed_batch(("e", "1")), log.epoch) == 7
    assert sorted(name for name in data_folder.disk.list(f"{data_folder.path}/{FOLDER}") if name.endswith((".cleaned", ".swap", ".deleted"))) == []


def test_a_fetch_of_a_compacted_offset_returns_the_next_record(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path)
    for number in range(100):
        log.append(keyed_batch((f"k{number % 7}", "x" * 500)), 0)
    clean(data_folder.disk, flush_and_roll(log))
    offsets = sorted(records_by_offset(log))
    assert offsets == list(range(93, 100))
    for offset in range(101):
        expected = [read_offset for read_offset in offsets if read_offset >= offset]
        assert [record.offset for chunk in scan(log, offset) for record in records(chunk, 0)][:1] == expected[:1]


def test_small_cleaned_segments_are_merged(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path, segment_bytes=1_000)
    for number in range(100):
        log.append(keyed_batch((f"k{number % 10}", "x" * 100)), 0)
    assert len(flush_and_roll(log).closed_segments) > 15
    job = clean(data_folder.disk, log, segment_bytes=1_000)
    # The last closed segment is kept as it is: no record in it has a newer value.
    assert (len(job.cleaned), len(log.closed_segments)) == (1, 2)
    assert all(segment.size <= 1_000 for segment in log.closed_segments)
    assert len(records_by_offset(log)) == 10
    assert [name for name in data_folder.disk.list(f"{data_folder.path}/{FOLDER}") if name.endswith(".log")] == [
        f"{base:020d}.log" for base in [*(segment.base for segment in log.closed_segments), log.active_base]
    ]


def test_a_segment_that_loses_nothing_is_not_rewritten(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path)
    for number in range(10):
        log.append(keyed_batch((f"k{number}", "1")), 0)
    job = clean(data_folder.disk, flush_and_roll(log))
    assert (job.cleaned, job.clean_to, job.bytes_after) == ([], 10, log.size)
    assert len(records_by_offset(log)) == 10
    assert not [name for name in data_folder.disk.list(f"{data_folder.path}/{FOLDER}") if "cleaned" in name]


def test_a_cleaned_segment_is_not_rewritten_without_need(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path)
    for key in ("a", "b", "a", "b", "b", "a", "c"):
        log.append(keyed_batch((key, "1")), 0)
    flush_and_roll(log).append(keyed_batch(("c", "2")), 0)
    flush_and_roll(log)
    assert clean(data_folder.disk, log).cleaned
    assert list(records_by_offset(log)) == [4, 5, 7]
    assert clean(data_folder.disk, log).cleaned == []


def test_waiting_tombstones_and_emptied_batches_are_not_rewritten(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path)
    log.append(build([Record(0, 5_000, b"a", b"1")], producer_id=7, producer_epoch=0, base_sequence=0), 0)
    log.append(keyed_batch(("a", None), ("b", "1")), 0)
    flush_and_roll(log)
    assert clean(data_folder.disk, log, now=10_000).cleaned
    assert [(header.producer_id, header.record_count) for header in headers(log)] == [(7, 0), (-1, 2)]
    assert clean(data_folder.disk, log, now=10_500).cleaned == []
    assert clean(data_folder.disk, log, now=10_999).cleaned == []
    assert clean(data_folder.disk, log, now=11_000).cleaned
    assert clean(data_folder.disk, log, now=11_000).cleaned == []
    assert records_by_offset(log) == {2: ("b", "1")}


@pytest.mark.parametrize("codec", list(Compression))
def test_a_tombstone_is_removed_by_the_first_cleaning_after_its_delete_horizon(data_folder: DataFolder, codec: Compression) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path)
    log.append(keyed_batch(("a", "1"), ("b", "1")), 0)
    log.append(keyed_batch(("c", "1"), ("a", None), timestamp=6_000, codec=codec), 0)
    flush_and_roll(log)
    for now, expected in (
        (10_000, {1: ("b", "1"), 2: ("c", "1"), 3: ("a", None)}),
        (10_999, {1: ("b", "1"), 2: ("c", "1"), 3: ("a", None)}),
        (11_000, {1: ("b", "1"), 2: ("c", "1")}),
        (12_000, {1: ("b", "1"), 2: ("c", "1")}),
    ):
        clean(data_folder.disk, log, now=now, delete_retention_ms=RETENTION)
        assert records_by_offset(log) == expected
        last = headers(log)[-1]
        assert (last.attributes, last.base_timestamp) == (0x40 | codec, 11_000)
        assert (last.last_offset, log.next_offset, last.compression) == (3, 4, codec)
        times = {record.offset: record.timestamp for record in all_records(log)}
        assert times[2] == 6_000


def test_an_untrusted_clock_removes_no_tombstone_and_sets_no_delete_horizon(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path)
    log.append(keyed_batch(("a", "1"), ("b", "1")), 0)
    log.append(keyed_batch(("c", "1"), ("a", None)), 0)
    flush_and_roll(log)
    expected = {1: ("b", "1"), 2: ("c", "1"), 3: ("a", None)}
    clean(data_folder.disk, log, now=-1, delete_retention_ms=1_000)
    assert records_by_offset(log) == expected
    assert not any(header.attributes for header in headers(log))
    clean(data_folder.disk, log, now=10_000, delete_retention_ms=1_000)
    assert headers(log)[-1].base_timestamp == 11_000
    clean(data_folder.disk, log, now=-1, delete_retention_ms=1_000)
    assert (records_by_offset(log), headers(log)[-1].base_timestamp) == (expected, 11_000)
    clean(data_folder.disk, log, now=11_000, delete_retention_ms=1_000)
    assert 3 not in records_by_offset(log)


def test_an_emptied_segment_keeps_its_end_offset(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path)
    log.append(keyed_batch(("a", "1"), ("b", "1")), 0)
    flush_and_roll(log)
    log.append(keyed_batch(("b", None), ("a", None)), 0)
    flush_and_roll(log)
    clean(data_folder.disk, log, now=10_000, delete_retention_ms=0)
    clean(data_folder.disk, log, now=10_000, delete_retention_ms=0)
    assert (records_by_offset(log), log.next_offset) == ({}, 4)
    assert [(header.base_offset, header.last_offset, header.record_count) for header in headers(log)] == [(2, 3, 0)]
    log.close()
    log, _ = reopen(data_folder.disk, data_folder.path)
    assert log.append(keyed_batch(("a", "2")), log.epoch) == 4
    assert clean(data_folder.disk, flush_and_roll(log)).cleaned
    assert (records_by_offset(log), len(headers(log))) == ({4: ("a", "2")}, 1)


def test_control_and_transactional_batches_are_kept_and_supersede_no_record(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path)
    transaction = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    log.append(keyed_batch(("a", "1"), ("b", "1")), 0)
    log.append(keyed_batch(("a", "2")), 0)
    log.append(build([Record(0, 5_000, b"a", b"aborted")], base_sequence=0, **transaction), 0)  # type: ignore[arg-type]
    log.append(build([Record(0, 5_000, b"\0\0\0\0", b"\0\0\0\0\0\0")], control=True, **transaction), 0)  # type: ignore[arg-type]
    log.append(keyed_batch(("b", "2")), 0)
    clean(data_folder.disk, flush_and_roll(log))
    assert records_by_offset(log) == {2: ("a", "2"), 3: ("a", "aborted"), 5: ("b", "2")}
    assert [(header.base_offset, header.is_control) for header in headers(log)] == [(2, False), (3, False), (4, True), (5, False)]


def test_the_last_batch_of_a_producer_stays_without_its_records(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path)
    for sequence in range(2):
        log.append(build([Record(0, 5_000, b"a", b"1")], producer_id=7, producer_epoch=0, base_sequence=sequence), 0)
    log.append(build([Record(0, 5_000, b"a", b"2")], producer_id=8, producer_epoch=0, base_sequence=0), 0)
    log.append(keyed_batch(("a", "3")), 0)
    clean(data_folder.disk, flush_and_roll(log))
    for _ in range(2):
        stored = [(header.base_offset, header.producer_id, header.base_sequence, header.record_count) for header in headers(log)]
        assert stored == [(1, 7, 1, 0), (2, 8, 0, 0), (3, -1, -1, 1)]
        clean(data_folder.disk, log, first_dirty=4)


def test_only_live_producers_keep_their_last_batch(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path)
    for producer, sequence in ((7, 0), (7, 1), (8, 0), (9, 0)):
        batch_records = [Record(0, 5_000 + producer, b"a", b"1")]
        log.append(build(batch_records, producer_id=producer, producer_epoch=0, base_sequence=sequence, compression=Compression.ZSTD), 0)
    log.append(keyed_batch(("a", "3")), 0)
    clean(data_folder.disk, flush_and_roll(log), producers={7: 1, 9: 3, 10: 2})
    for _ in range(2):
        stored = [(header.base_offset, header.producer_id, header.max_timestamp, header.record_count) for header in headers(log)]
        assert stored == [(1, 7, 5_007, 0), (3, 9, 5_009, 0), (4, -1, 5_000, 1)]
        clean(data_folder.disk, log, first_dirty=5, producers={7: 1, 9: 3})
    clean(data_folder.disk, log, first_dirty=5, producers={9: 3})
    assert [header.base_offset for header in headers(log)] == [3, 4]


def test_segments_younger_than_the_compaction_lag_are_not_cleaned(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path)
    for timestamp in (1_000, 3_000, 2_000, 4_000):
        log.append(keyed_batch(("a", "1"), timestamp=timestamp), 0)
        flush_and_roll(log)
    log.append(keyed_batch(("a", "1"), timestamp=1_000), 0)
    closed = log.closed_segments
    expected = {999: 0, 1_000: 1, 2_999: 1, 3_000: 3, 4_000: 4, 9_000: 4}
    assert {timestamp: log.closed_before(timestamp) for timestamp in expected} == {
        timestamp: (closed[:count], count) for timestamp, count in expected.items()
    }
    assert [log.first_timestamp_since(offset) for offset in (0, 1, 4, 5)] == [1_000, 3_000, 1_000, -1]


def test_compaction_removes_records_without_a_key(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path)
    log.append(build([Record(0, 1, None, b"x"), Record(1, 1, b"", b"y")]), 0)
    log.append(build([Record(0, 1, None, b"x")]), 0)
    log.append(keyed_batch(("a", "1")), 0)
    clean(data_folder.disk, flush_and_roll(log))
    assert records_by_offset(log) == {1: ("", "y"), 3: ("a", "1")}


def test_a_full_key_map_ends_a_cleaning_and_the_next_continues_there(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path)
    for number in range(12):
        log.append(keyed_batch(*((f"k{number % 3}-{n}", "x" * 500) for n in range(800))), 0)
    flush_and_roll(log)
    first_dirty = 0
    ends = []
    for _ in range(20):
        job = clean(data_folder.disk, log, first_dirty=first_dirty, map_bytes_max=300_000)
        assert job.clean_to > first_dirty
        first_dirty = job.clean_to
        ends.append(first_dirty)
        if first_dirty == log.active_base:
            break
    assert len(ends) > 2
    assert sorted(records_by_offset(log)) == list(range(7_200, 9_600))


def test_damage_ends_the_cleaning_and_is_not_copied(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path)
    for key in "abcabc":
        log.append(keyed_batch((key, "1")), 0)
    flush_and_roll(log)
    path = f"{data_folder.path}/{FOLDER}/00000000000000000000.log"
    intact = read(data_folder.disk, path)
    batch_bytes = len(intact) // 6
    for at in range(0, len(intact), 3):
        if at % batch_bytes < 8 or 12 <= at % batch_bytes < 16:
            continue
        overwrite(data_folder.disk, path, intact[:at] + bytes([intact[at] ^ 0x10]) + intact[at + 1 :])
        with pytest.raises(DamagedLog):
            clean(data_folder.disk, log)
    overwrite(data_folder.disk, path, intact)
    clean(data_folder.disk, log)
    assert list(records_by_offset(log)) == [3, 4, 5]


def test_a_reader_of_the_old_segments_reads_on(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path, segment_bytes=2_000)
    for number in range(60):
        append_flushed(log, keyed_batch((f"k{number % 5}", "x" * 100)))
    reader = log.facts()
    facts_read = next(reader)
    clean(data_folder.disk, log, segment_bytes=2_000)
    cleaned_facts = log.facts()
    for more in reader:
        facts_read += more
    assert len(facts_read) == 60
    final = {key: value for batch_facts in cleaned_facts for key, value in batch_facts}
    assert final == dict(facts_read)
    assert all(segment.kept_file is None for segment in log._segments)


def test_replaced_segments_are_closed_when_their_readers_are_gone(disk: SimDisk) -> None:
    log, _ = reopen(disk, "/data", segment_bytes=2_000)
    for number in range(60):
        append_flushed(log, keyed_batch((f"k{number % 5}", "x" * 100)))
    readers: list[Iterator[object]] = [log.facts(), scan(log), log.facts()]
    for reader in readers:
        next(reader)
    log.close()
    clean(disk, log, segment_bytes=2_000)
    assert disk.opened > 3
    del reader, readers
    log.close()
    assert disk.opened == 0


# Any log, cleaned any number of times

KEYS = "abcde"
FACT = st.tuples(st.sampled_from(KEYS), st.one_of(st.none(), st.sampled_from(["", "v", "w" * 90])))
CODECS = st.sampled_from([Compression.NONE, Compression.NONE, Compression.LZ4])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(FACT, min_size=1, max_size=4), CODECS),
        st.tuples(st.just("append"), st.lists(FACT, min_size=1, max_size=1), CODECS),
        st.tuples(st.just("roll"), st.just([]), st.just(Compression.NONE)),
        st.tuples(st.just("clean"), st.just([]), st.just(Compression.NONE)),
        st.tuples(st.just("reopen"), st.just([]), st.just(Compression.NONE)),
    ),
    max_size=40,
)


@dataclass
class ExpectedRecord:
    key: str
    value: str | None
    first_cleaned: int = -1


@settings(max_examples=16 * DEPTH)
@given(steps=STEPS, segment_bytes=st.sampled_from([200, 700, 1 << 20]), stops_clean=st.booleans())
def test_a_cleaned_log_equals_its_model(
    steps: list[tuple[str, list[tuple[str, str | None]], Compression]], segment_bytes: int, stops_clean: bool
) -> None:
    disk = data_disk()
    log, _ = reopen(disk, "/data", segment_bytes=segment_bytes)
    expected_records: dict[int, ExpectedRecord] = {}
    now, first_dirty = 10_000, 0
    for step, facts, codec in [*steps, ("roll", [], Compression.NONE), ("clean", [], Compression.NONE)]:
        now += 400
        if step == "append":
            base = log.append(keyed_batch(*facts, timestamp=now, codec=codec), log.epoch)
            expected_records |= {base + n: ExpectedRecord(*fact) for n, fact in enumerate(facts)}
        elif step == "roll":
            flush_and_roll(log)
        elif step == "reopen":
            stop(log)
            log, _ = reopen(disk, "/data", clean=stops_clean, segment_bytes=segment_bytes)
        else:
            end = log.next_offset
            log.flush()
            job = clean(
                disk,
                log,
                now=now,
                first_dirty=first_dirty,
                delete_retention_ms=RETENTION,
                segment_bytes=segment_bytes,
                map_bytes_max=1 << 20,
            )
            clean_expected(expected_records, log.active_base, now)
            first_dirty = job.clean_to
            assert (log.next_offset, log.start_offset) == (end, 0)
        assert records_by_offset(log) == {offset: (record.key, record.value) for offset, record in sorted(expected_records.items())}
    assert values_by_key(log) == {record.key: record.value for record in expected_records.values() if record.value is not None}


def clean_expected(expected_records: dict[int, ExpectedRecord], end: int, now: int) -> None:
    newest = {record.key: offset for offset, record in expected_records.items() if offset < end}
    batches_expired = {offset for offset, record in expected_records.items() if record.first_cleaned >= 0 and now >= record.first_cleaned + RETENTION}
    for offset in [offset for offset in expected_records if offset < end]:
        record = expected_records[offset]
        if newest[record.key] != offset or (record.value is None and offset in batches_expired):
            del expected_records[offset]
        elif record.value is None and record.first_cleaned < 0:
            record.first_cleaned = now


def test_compaction_reads_only_its_input_segments(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path)
    for key in "aabb":
        log.append(keyed_batch((key, "1")), 0)
    flush_and_roll(log)
    job = compaction(data_folder.disk, log)
    log.append(keyed_batch(("a", "2")), 0)  # while it runs
    steps = sum(1 for _ in job.steps())
    assert steps == 2
    assert names(log) == ["a", "a", "b", "b", "a"]
    reopened, _ = Log.open(Handles(data_folder.disk), log.folder, 1 << 20, 0, False)  # kill -9 before anything was promoted
    assert names(reopened) == ["a", "a", "b", "b", "a"]
    assert not [name for name in data_folder.disk.list(log.folder) if "cleaned" in name]
