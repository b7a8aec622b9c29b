"""Retention of a topic's log by age, size and deletion, and rolling by time."""

from __future__ import annotations

import pytest

from protocol.batch import Record, TimestampType, build
from simulator.disk import SimDisk
from storage import AppendFailed, DamagedLog, Handles, Log, Truncation, folders_set_aside, remove_folder
from storage.swap import remove_deleted
from tests.storage.conftest import DataFolder, in_memory
from tests.storage.logs import FOLDER, bases, batch, names, overwrite, read, recover, result_of, scan

ONE = len(batch("b00", padding=100))


def opened(
    data_folder: DataFolder, *, clean: bool = False, recovery_point: int = 0, start_offset: int = 0, per_segment: int = 4
) -> tuple[Log, Truncation]:
    return Log.open(
        Handles(data_folder.disk),
        f"{data_folder.path}/{FOLDER}",
        per_segment * ONE,
        recovery_point,
        clean,
        "iRZ7lAlfQrWo7gLtEdup9A",
        deferred=True,
        start_offset=start_offset,
    )


def filled(data_folder: DataFolder, count: int = 18) -> Log:
    """Segments of four batches of one record, each a second later than the previous."""
    log, _ = opened(data_folder)
    for number in range(count):
        log.append(batch(f"b{number:02}", padding=100, timestamp=1_000 * number), log.epoch)
    return log


def bases_on_disk(data_folder: DataFolder) -> list[int]:
    return sorted(int(name[:20]) for name in data_folder.disk.list(f"{data_folder.path}/{FOLDER}") if name.endswith(".log"))


def test_segments_older_than_retention_ms_are_deleted(data_folder: DataFolder) -> None:
    log = filled(data_folder)
    assert bases(log) == [0, 4, 8, 12, 16]
    assert log.apply_retention(13_000, 0, 10_000, -1) == []  # the last record of the first segment is exactly ten seconds old
    assert log.apply_retention(13_001, 0, 10_000, -1) == [0]
    assert log.apply_retention(21_000, 0, 10_000, -1) == [4]
    assert (bases(log), log.start_offset, bases_on_disk(data_folder)) == ([8, 12, 16], 8, [8, 12, 16])
    assert names(log)[0] == "b08.0"


def test_the_active_segment_is_deleted_when_all_segments_are_too_old(data_folder: DataFolder) -> None:
    log = filled(data_folder)
    assert log.apply_retention(27_001, 0, 10_000, -1) == [0, 4, 8, 12, 16]
    assert (bases(log), log.start_offset, log.next_offset, log.size) == ([18], 18, 18, 0)
    assert log.apply_retention(10**9, 0, 0, 0) == []  # an empty segment stays
    assert log.append(batch("new"), log.epoch) == 18
    remove_deleted(data_folder.disk, log.folder, [0, 4, 8, 12, 16])
    log, _ = opened(data_folder)
    assert (log.start_offset, names(log)) == (18, ["new.0"])


def test_a_segment_without_timestamps_is_as_old_as_its_file(disk: SimDisk) -> None:
    log, _ = opened(DataFolder(disk, "/data"))
    log.append(batch("b", timestamp=-1), log.epoch)
    disk.time = 5_000
    assert log.apply_retention(6_000, 0, 1_000, -1) == []
    assert log.apply_retention(6_001, 0, 1_000, -1) == [0]


@pytest.mark.parametrize("closed_only", [False, True])
def test_an_old_segment_stays_while_an_earlier_one_is_young(data_folder: DataFolder, closed_only: bool) -> None:
    log, _ = opened(data_folder, per_segment=1)
    for timestamp in (1_000, 9_000, 2_000, 3_000, 4_000):
        log.append(batch("b00", padding=100, timestamp=timestamp), log.epoch)
    assert bases(log) == [0, 1, 2, 3, 4]
    for now, dropped in ((12_000, [0]), (18_999, []), (19_001, [1, 2, 3] if closed_only else [1, 2, 3, 4])):
        assert (log.drop_old(now, 0, 10_000) if closed_only else log.apply_retention(now, 0, 10_000, -1)) == dropped


FUTURE = 1 << 50


@pytest.mark.parametrize("closed_only", [False, True])
def test_a_segment_with_future_timestamps_ages_from_when_it_was_seen(data_folder: DataFolder, closed_only: bool) -> None:
    log = filled(data_folder, 4)
    for number in range(4, 9):
        log.append(batch(f"b{number:02}", padding=100, timestamp=FUTURE + number), log.epoch)
    assert bases(log) == [0, 4, 8]

    def old(now: int, monotonic: int) -> list[int]:
        return log.drop_old(now, monotonic, 10_000) if closed_only else log.apply_retention(now, monotonic, 10_000, -1)

    assert old(5_000, 100) == []
    log.append(batch("b09", padding=100, timestamp=FUTURE), log.epoch)
    assert old(6_000, 5_000) == []  # the last segment has grown: it ages from this call on
    assert old(13_001, 10_100) == [0]
    assert old(14_000, 10_100) == []
    assert old(14_000, 10_101) == [4]  # it has aged since the first call, not since the removal of segment 0
    assert old(14_000, 15_000) == []
    if closed_only:
        assert old(1 << 40, 1 << 40) == []  # the last segment stays
    else:
        assert old(14_000, 15_001) == [8]
    assert log.next_offset == 10


def test_a_segment_with_future_timestamps_has_the_age_of_its_records_after_that_time(data_folder: DataFolder) -> None:
    log = filled(data_folder, 8)
    assert log.apply_retention(-200_000, 0, 10_000, -1) == []
    assert log.apply_retention(13_000, 10_000_000, 10_000, -1) == []
    assert log.apply_retention(13_001, 0, 10_000, -1) == [0]


def test_timestamps_slightly_ahead_of_the_clock_are_accepted(data_folder: DataFolder) -> None:
    """Timestamps up to two minutes ahead are trusted. The age of a segment further ahead counts from the first call that finds it ahead."""
    log = filled(data_folder, 4)
    assert log.apply_retention(3_000 - 120_000, 0, 1_000, -1) == []
    assert log.apply_retention(3_000 - 120_000, 1 << 40, 1_000, -1) == []
    assert log.apply_retention(3_000 - 120_001, 0, 1_000, -1) == []
    assert log.apply_retention(3_000 - 120_001, 1_001, 1_000, -1) == [0]


def test_a_file_from_the_future_ages_from_when_it_was_seen(disk: SimDisk) -> None:
    log, _ = opened(DataFolder(disk, "/data"))
    disk.time = FUTURE
    log.append(batch("b", timestamp=-1), log.epoch)
    assert log.apply_retention(6_000, 500, 1_000, -1) == []
    assert log.apply_retention(6_000, 1_500, 1_000, -1) == []
    assert log.apply_retention(6_000, 1_501, 1_000, -1) == [0]


def test_the_oldest_segments_are_deleted_down_to_retention_bytes(data_folder: DataFolder) -> None:
    log = filled(data_folder)
    assert log.apply_retention(0, 0, -1, 14 * ONE + 1) == []
    assert log.apply_retention(0, 0, -1, 14 * ONE) == [0]
    assert log.apply_retention(0, 0, -1, 7 * ONE) == [4]  # four of ten removed leave six
    assert log.apply_retention(0, 0, -1, 6 * ONE) == [8]
    assert log.apply_retention(0, 0, -1, 0) == [12, 16]
    assert (bases(log), log.size) == ([18], 0)


def test_deleted_records_are_not_readable_and_are_removed_in_whole_segments(data_folder: DataFolder) -> None:
    log = filled(data_folder)
    log.delete_before(9)
    assert (log.start_offset, result_of(log.find_time(0))) == (9, (9_000, 9, 0))
    assert log.apply_retention(0, 0, -1, -1) == [0, 4]
    assert (bases(log), log.start_offset) == ([8, 12, 16], 9)
    log.delete_before(3)  # the log start offset never decreases
    log.delete_before(50)  # and never exceeds the end offset
    assert log.start_offset == 18
    assert log.apply_retention(0, 0, -1, -1) == [8, 12]  # the last epoch has no successor that ends it
    assert (result_of(log.find_time(0)), result_of(log.latest_record())) == (None, None)
    for start, expected in ((13, 16), (17, 17), (18, 18)):
        reopened, _ = opened(data_folder, clean=True, start_offset=start)
        assert (reopened.start_offset, reopened.next_offset, bases(reopened)) == (expected, 18, [16])


def test_deleted_offsets_are_never_assigned_again(data_folder: DataFolder) -> None:
    filled(data_folder)
    log, _ = opened(data_folder, start_offset=20)  # the checkpointed start offset is past the end of the log, which was lost
    assert (log.start_offset, log.next_offset, log.size, bases_on_disk(data_folder)) == (20, 20, 0, [])
    assert (log.read(20, 100), result_of(log.latest_record()), log.active_base) == (b"", None, 20)
    assert log.append(batch("new"), log.epoch) == 20
    log, _ = opened(data_folder, start_offset=20)
    assert (names(log), log.next_offset, log.epoch_at(20), log.epoch_at(19)) == (["new.0"], 21, 1, -1)


def test_an_epoch_starting_past_the_end_is_dropped_and_not_reused(data_folder: DataFolder) -> None:
    for name in "abc":
        log, _ = opened(data_folder)
        log.append(batch(name, padding=100), log.epoch)
    path = f"{data_folder.path}/{FOLDER}/{0:020d}.log"
    overwrite(data_folder.disk, path, read(data_folder.disk, path)[:-5])
    log, _ = opened(data_folder)
    assert (log.next_offset, log.epoch) == (2, 3)
    assert (log.epoch_at(1), log.epoch_at(2)) == (1, 1)
    assert [log.epoch_end(epoch) for epoch in range(4)] == [(0, 1), (1, 2), (1, 2), (3, 2)]


def test_a_failure_while_segments_are_set_aside_loses_no_remaining_segment() -> None:
    for step in range(40):
        disk, data_folder = in_memory()
        log = filled(data_folder)
        log.flush()
        disk.changes_until_refusal = step
        try:
            log.apply_retention(21_001, 0, 10_000, -1)
        except AppendFailed:
            disk.changes_until_refusal = -1
            assert not log.usable
            recover(log, keep_unflushed=True)
            assert log.start_offset == bases(log)[0]
        else:
            assert step > 5
            assert bases(log) == [12, 16]
            break
        assert names(log)[-6:] == [f"b{number}.0" for number in range(12, 18)]
        assert log.apply_retention(21_001, 0, 10_000, -1) in ([0, 4, 8], [4, 8], [8], [])
        assert log.start_offset == 12


# The latest record


def test_the_latest_record_is_the_first_of_those_with_the_largest_timestamp(data_folder: DataFolder) -> None:
    log, _ = opened(data_folder, per_segment=2)
    assert result_of(log.latest_record()) is None
    times = ((1, 2), (9, 7), (3, 9), (4, 9), (5,))
    for stamps in times:
        log.append(build([Record(n, stamp, b"k", bytes(100)) for n, stamp in enumerate(stamps)]), log.epoch)
    assert result_of(log.latest_record()) == (9, 2, 0)
    log.delete_before(3)
    assert result_of(log.latest_record()) == (9, 5, 0)
    log.delete_before(6)
    assert result_of(log.latest_record()) == (9, 7, 0)
    log.delete_before(8)
    assert result_of(log.latest_record()) == (5, 8, 0)


def test_with_append_time_the_latest_is_the_first_record_of_its_batch(data_folder: DataFolder) -> None:
    log, _ = opened(data_folder)
    log.append(build([Record(n, 50, b"k", b"") for n in range(3)]), log.epoch)
    records = [Record(n, 60 + n, b"k", b"") for n in range(3)]
    log.append(build(records, timestamp_type=TimestampType.LOG_APPEND_TIME), log.epoch)
    assert result_of(log.latest_record()) == (62, 3, 0)


# Epochs


def test_epoch_lookups_answer_as_kafka_does(data_folder: DataFolder) -> None:
    log, _ = opened(data_folder)
    assert (log.epoch_at(0), log.epoch_end(0), log.epoch_end(1)) == (-1, (0, 0), (-1, -1))
    for epoch, count in ((0, 3), (2, 2), (5, 4)):
        while log.epoch < epoch:
            log.claim()
        for _ in range(count):
            log.append(batch("b", padding=100), epoch)
    assert [log.epoch_at(offset) for offset in range(10)] == [0, 0, 0, 2, 2, 5, 5, 5, 5, 5]
    assert [log.epoch_end(epoch) for epoch in range(-1, 7)] == [(-1, -1), (0, 3), (0, 3), (2, 5), (2, 5), (2, 5), (5, 9), (-1, -1)]
    log.claim()
    assert (log.epoch_end(5), log.epoch_end(6), log.epoch_end(7)) == ((5, 9), (6, 9), (-1, -1))
    log.delete_before(4)
    assert [log.epoch_end(epoch) for epoch in (0, 1, 2)] == [(0, 4), (1, 4), (2, 5)]
    assert (log.epoch_at(3), log.epoch_at(4)) == (-1, 2)


# Flushing is left to the operating system


@pytest.mark.parametrize("torn", [0, 1, 2, 3, 4])
def test_after_a_crash_a_log_ends_at_the_first_torn_batch_past_the_recovery_point(data_folder: DataFolder, torn: int) -> None:
    filled(data_folder)
    path = f"{data_folder.path}/{FOLDER}/{4 * torn:020d}.log"
    intact = read(data_folder.disk, path)
    overwrite(data_folder.disk, path, intact[: ONE + 10])
    if torn < 2:
        with pytest.raises(DamagedLog, match="cut short"):
            opened(data_folder, recovery_point=8)
        return
    log, truncation = opened(data_folder, recovery_point=8)
    assert log.next_offset == 4 * torn + 1
    assert names(log) == [f"b{number:02}.0" for number in range(4 * torn + 1)]
    assert (truncation.path, truncation.position) == (path, ONE)
    assert truncation.cut_bytes == 10 + max(14 - 4 * torn, 0) * ONE
    assert (bases(log), bases_on_disk(data_folder)) == ([4 * n for n in range(torn + 1)],) * 2
    assert log.append(batch("new"), log.epoch) == 4 * torn + 1


@pytest.mark.parametrize("point", [0, 16])
def test_opening_after_a_kill_syncs_nothing(disk: SimDisk, point: int) -> None:
    filled(DataFolder(disk, "/data")).flush()
    before = disk.syncs
    log, _ = opened(DataFolder(disk, "/data"), recovery_point=point)
    assert (disk.syncs, log.flushed_offset) == (before, point)
    assert log.flush() == 18


# The folder itself


def test_a_deleted_folder_is_renamed_as_kafka_renames_it(data_folder: DataFolder) -> None:
    log = filled(data_folder)
    token = "0123456789abcdef" * 2
    reader = scan(log)
    moved = log.set_folder_aside(token)
    assert moved == f"{data_folder.path}/orders-0.{token}-delete"
    assert folders_set_aside(data_folder.disk, data_folder.path) == [moved]
    with pytest.raises(AppendFailed):
        log.append(batch("b"), log.epoch)
    assert len(b"".join(reader)) == 18 * ONE  # an open reader reads on
    reopened, _ = opened(data_folder)
    assert reopened.append(batch("new"), reopened.epoch) == 0
    remove_folder(data_folder.disk, moved)
    assert folders_set_aside(data_folder.disk, data_folder.path) == []
    assert names(opened(data_folder)[0]) == ["new.0"]


def test_the_name_of_a_folder_set_aside_is_no_longer_than_names_may_be(data_folder: DataFolder) -> None:
    log, _ = Log.open(Handles(data_folder.disk), f"{data_folder.path}/{'t' * 240}-17", 1000, 0, False)
    log.append(batch("b"), 0)
    name = log.set_folder_aside("0" * 32).rpartition("/")[2]
    assert len(name) == 255
    assert name.endswith(f"t-17.{'0' * 32}-delete")


def test_a_log_without_a_folder_has_nothing_to_set_aside(data_folder: DataFolder) -> None:
    log, _ = opened(data_folder)
    assert log.set_folder_aside("0" * 32) == ""
    with pytest.raises(AppendFailed):
        log.append(batch("b"), log.epoch)


def test_a_bytearray_is_stamped_in_place(data_folder: DataFolder) -> None:
    log, _ = Log.open(Handles(data_folder.disk), f"{data_folder.path}/{FOLDER}", 1000, 0, False)
    log.append(batch("a", 3), 0)
    data = bytearray(batch("b"))
    log.append(data, 0)
    assert data == log.read(3, 1000)


def test_a_segment_that_is_ahead_of_the_clock_again_ages_from_then(data_folder: DataFolder) -> None:
    log = filled(data_folder, 4)
    ahead, level = 3_000 - 120_001, 3_000
    assert log.apply_retention(ahead, 0, 1_000, -1) == []
    assert log.apply_retention(level, 900, 1 << 40, -1) == []  # at this time of the clock no timestamp is ahead
    assert log.apply_retention(ahead, 2_000, 1_000, -1) == []
    assert log.apply_retention(ahead, 3_000, 1_000, -1) == []
    assert log.apply_retention(ahead, 3_001, 1_000, -1) == [0]
