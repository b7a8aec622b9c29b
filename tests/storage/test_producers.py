"""Producer state: new batches, duplicates, expiry and snapshots."""

from __future__ import annotations

import pytest

from protocol.batch import CONTROL, TRANSACTIONAL, BatchHeader, Record, build, read_header
from protocol.errors import ErrorCode
from storage import Handles, Log, Producers
from storage.producers import Producer
from storage.snapshots import parse_snapshot, snapshot_bytes
from storage.swap import remove_deleted
from tests.storage.conftest import DataFolder, in_memory
from tests.storage.logs import FOLDER, overwrite, read, stop

SEQUENCE_MAX = (1 << 31) - 1
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
OLD_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH


def batch(producer: int, sequence: int, records: int = 1, epoch: int = 0, timestamp: int = 1_000, padding: int = 0) -> bytes:
    records_made = [Record(number, timestamp, b"key %d" % number, bytes(padding)) for number in range(records)]
    return build(records_made, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def header(producer: int, sequence: int, records: int = 1, epoch: int = 0, timestamp: int = 1_000) -> BatchHeader:
    return read_header(batch(producer, sequence, records, epoch, timestamp), 0)


def error_and_offset(producers: Producers, header: BatchHeader) -> tuple[ErrorCode, int]:
    verdict = producers.check(header)
    return verdict.error, verdict.offset


def test_the_next_sequence_is_accepted_and_any_other_refused() -> None:
    producers = Producers()
    producers.note(header(7, 0, 3), 100)
    assert error_and_offset(producers, header(7, 3)) == (ErrorCode.NONE, -1)
    for sequence in (1, 2, 4, 50):
        assert error_and_offset(producers, header(7, sequence)) == (OUT_OF_ORDER, -1)
    assert error_and_offset(producers, header(8, 50)) == (ErrorCode.NONE, -1)  # the producer's earlier batches are unknown


def test_a_duplicate_of_the_newest_five_batches_gets_its_first_offset() -> None:
    producers = Producers()
    for number in range(7):
        producers.note(header(7, 2 * number, 2, timestamp=1_000 + number), 100 + 2 * number)
    for number in (2, 3, 4, 5, 6):
        verdict = producers.check(header(7, 2 * number, 2, timestamp=9_999))
        assert (verdict.error, verdict.offset, verdict.timestamp) == (ErrorCode.NONE, 100 + 2 * number, 1_000 + number)
    for number in (0, 1):
        assert error_and_offset(producers, header(7, 2 * number, 2)) == (OUT_OF_ORDER, -1)
    assert error_and_offset(producers, header(7, 12, 1)) == (OUT_OF_ORDER, -1)  # begins like a known batch, but differs


def test_a_new_epoch_begins_at_sequence_0_and_ends_the_old_one() -> None:
    producers = Producers()
    producers.note(header(7, 0, 2), 10)
    assert error_and_offset(producers, header(7, 2, epoch=1)) == (OUT_OF_ORDER, -1)
    assert error_and_offset(producers, header(7, 0, epoch=1)) == (ErrorCode.NONE, -1)
    producers.note(header(7, 0, epoch=1), 12)
    assert error_and_offset(producers, header(7, 2, epoch=0)) == (OLD_EPOCH, -1)
    assert error_and_offset(producers, header(7, 0, 2, epoch=0)) == (OLD_EPOCH, -1)  # its batches no longer count as duplicates
    assert error_and_offset(producers, header(7, 0, epoch=1)) == (ErrorCode.NONE, 12)


def test_a_producer_without_an_epoch_may_continue_with_any_sequence() -> None:
    producers = Producers()
    producers.note(header(7, 0, 2, epoch=-1), 10)
    assert error_and_offset(producers, header(7, 50, epoch=-1)) == (ErrorCode.NONE, -1)
    assert error_and_offset(producers, header(7, 0, 2, epoch=-1)) == (ErrorCode.NONE, 10)
    assert error_and_offset(producers, header(7, 50, epoch=3)) == (ErrorCode.NONE, -1)


def test_an_idle_producer_expires() -> None:
    producers = Producers()
    producers.note(header(7, 0), 0)
    producers.note(header(8, 0), 1)
    assert producers.expire(1_000, 2_000) == 0  # the idle time of both producers counts from this first check
    producers.note(header(8, 1), 2)
    assert producers.expire(2_999, 2_000) == 0
    assert producers.expire(3_000, 2_000) == 1
    assert list(producers) == [8]
    assert error_and_offset(producers, header(7, 40)) == (ErrorCode.NONE, -1)
    assert producers.expire(4_998, 2_000) == 0
    assert producers.expire(4_999, 2_000) == 1


@pytest.mark.parametrize("timestamp", [-1, 0, 1 << 60])
def test_a_producer_of_old_records_is_remembered(timestamp: int) -> None:
    """The timestamps of its records do not count as its idle time; after a restart, that counts from the first check."""
    producers = Producers()
    producers.note(header(7, 0, timestamp=timestamp), 0)
    for _ in range(2):
        assert producers.expire(1_700_000_000_000, 86_400_000) == 0
        assert producers.expire(1_700_000_000_000 + 86_399_999, 86_400_000) == 0
        assert error_and_offset(producers, header(7, 0, timestamp=timestamp)) == (ErrorCode.NONE, 0)
        data = snapshot_bytes(producers)
        producers = Producers()
        assert parse_snapshot(data, producers)
    assert producers.expire(5, 86_400_000) == 0
    assert producers.expire(5 + 86_400_000, 86_400_000) == 1


def test_a_snapshot_has_the_newest_batches_of_each() -> None:
    producers = Producers()
    for number in range(6):
        producers.note(header(7, 2 * number, 2, epoch=4, timestamp=1_000 + number), 10 * number)
    producers.note(header(8, SEQUENCE_MAX, 2), 50)
    data = snapshot_bytes(producers)
    parsed = Producers()
    assert parse_snapshot(data, parsed)
    assert list(parsed) == [7, 8]
    for number in range(1, 6):
        assert error_and_offset(parsed, header(7, 2 * number, 2, epoch=4)) == (ErrorCode.NONE, 10 * number)
        assert parsed.check(header(7, 2 * number, 2, epoch=4)).timestamp == 1_000 + number
    assert error_and_offset(parsed, header(7, 0, 2, epoch=4)) == (OUT_OF_ORDER, -1)
    assert error_and_offset(parsed, header(7, 12, 2, epoch=4)) == (ErrorCode.NONE, -1)
    assert error_and_offset(parsed, header(8, SEQUENCE_MAX, 2)) == (ErrorCode.NONE, 50)
    assert [parsed.get(id).last_timestamp for id in parsed] == [1_005, 1_000]  # type: ignore[union-attr]
    for at in range(len(data)):
        assert not parse_snapshot(data[:at], Producers())
        assert not parse_snapshot(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], Producers())


# With a log


def opened(data_folder: DataFolder, clean: bool = False, segment_bytes: int = 1 << 20) -> tuple[Log, Producers]:
    producers = Producers()
    log, _ = Log.open(Handles(data_folder.disk), f"{data_folder.path}/{FOLDER}", segment_bytes, 0, clean, deferred=True, producers=producers)
    return log, producers


def append(log: Log, producers: Producers, data: bytes) -> int:
    offset = log.append(data, log.epoch)
    producers.note(read_header(data, 0), offset)
    return offset


def snapshots(data_folder: DataFolder) -> list[int]:
    return [int(name[:20]) for name in data_folder.disk.list(f"{data_folder.path}/{FOLDER}") if name.endswith(".snapshot")]


@pytest.mark.parametrize("clean", [False, True])
def test_an_opened_log_knows_its_producers(data_folder: DataFolder, clean: bool) -> None:
    log, producers = opened(data_folder, segment_bytes=2_000)
    for number in range(40):
        append(log, producers, batch(number % 3, number // 3, padding=200))
    if clean:
        stop(log)
        assert snapshots(data_folder)[-1] == 40
    reopened, producers_read = opened(data_folder, clean, segment_bytes=2_000)
    assert reopened.next_offset == 40
    for number in (37, 38, 39):  # the last batch of each producer
        assert error_and_offset(producers_read, header(number % 3, number // 3)) == (ErrorCode.NONE, number)
        assert error_and_offset(producers_read, header(number % 3, number // 3 + 1)) == (ErrorCode.NONE, -1)
        assert error_and_offset(producers_read, header(number % 3, number // 3 + 2)) == (OUT_OF_ORDER, -1)


def test_opening_after_a_crash_reads_only_past_the_newest_snapshot() -> None:
    disk, data_folder = in_memory()
    log, producers = opened(data_folder, segment_bytes=20_000)
    for number in range(100):
        append(log, producers, batch(7, number, padding=1_000))
    disk.reads.clear()
    log.flush()
    last, *before = (f"{segment.base:020d}.log" for segment in reversed(log._segments))
    producers = Producers()
    Log.open(Handles(disk), log.folder, 20_000, log.active_base, False, deferred=True, producers=producers)
    assert error_and_offset(producers, header(7, 99)) == (ErrorCode.NONE, 99)
    read = [path.rpartition("/")[2] for path, _ in disk.reads]
    assert last in read
    assert all(read.count(name) <= 4 for name in before)  # a read of their ends, and of the newest time in the index


def test_a_torn_snapshot_is_skipped(data_folder: DataFolder) -> None:
    log, producers = opened(data_folder, segment_bytes=2_000)
    for number in range(40):
        append(log, producers, batch(7, number, padding=200))
    assert len(snapshots(data_folder)) > 2
    newest = f"{data_folder.path}/{FOLDER}/{snapshots(data_folder)[-1]:020d}.snapshot"
    overwrite(data_folder.disk, newest, read(data_folder.disk, newest)[:-1])
    _, producers_read = opened(data_folder, segment_bytes=2_000)
    assert error_and_offset(producers_read, header(7, 39)) == (ErrorCode.NONE, 39)
    assert not data_folder.disk.exists(newest)


def test_snapshots_past_a_truncation_are_removed() -> None:
    disk, data_folder = in_memory()
    log, producers = opened(data_folder)
    for number in range(10):
        append(log, producers, batch(7, number))
    stop(log)
    path = f"/data/{FOLDER}/00000000000000000000.log"
    intact = read(disk, path)
    overwrite(disk, path, intact[: len(intact) // 2])
    log, producers = opened(data_folder)
    assert (log.next_offset, snapshots(data_folder)) == (5, [])
    assert error_and_offset(producers, header(7, 5)) == (ErrorCode.NONE, -1)
    for number in range(5):
        append(log, producers, batch(8, number))
    _, producers = opened(data_folder, clean=True)
    assert sorted(producers) == []  # the log was not stopped in order, so `clean` is wrong, and no snapshot names a producer
    _, producers = opened(data_folder)
    assert sorted(producers) == [7, 8]


def test_a_log_without_producer_ids_has_no_snapshot(data_folder: DataFolder) -> None:
    log, _ = opened(data_folder, segment_bytes=2_000)
    for _ in range(20):
        log.append(batch(-1, -1, padding=200), log.epoch)
    stop(log)
    assert snapshots(data_folder) == []


def test_snapshots_are_removed_with_their_segments(data_folder: DataFolder) -> None:
    log, producers = opened(data_folder, segment_bytes=2_000)
    for number in range(40):
        append(log, producers, batch(7, number, padding=200))
    before = snapshots(data_folder)
    assert before == [segment.base for segment in log._segments[1:]]
    log.delete_before(20)
    remove_deleted(data_folder.disk, log.folder, log.apply_retention(0, 0, -1, -1))
    assert snapshots(data_folder) == [base for base in before if base >= log._segments[0].base]
    stop(log)
    log, producers = opened(data_folder, clean=True, segment_bytes=2_000)
    append(log, producers, batch(7, 40))
    stop(log)
    opened(data_folder, clean=True)
    assert snapshots(data_folder) == [*(segment.base for segment in log._segments), 41]  # the snapshot of the previous stop is gone


def test_a_full_disk_at_a_roll_costs_a_snapshot_and_no_append() -> None:
    disk, data_folder = in_memory()
    log, producers = opened(data_folder, segment_bytes=2_000)
    for number in range(7):
        append(log, producers, batch(7, number, padding=200))
    original = disk.open

    def refuse(path: str, create: bool = False) -> object:
        if path.endswith(".snapshot"):
            raise OSError(28, "full")
        return original(path, create)

    disk.open = refuse  # type: ignore[method-assign,assignment]
    for number in range(7, 12):
        assert append(log, producers, batch(7, number, padding=200)) == number
    assert snapshots(data_folder) == []
    disk.open = original  # type: ignore[method-assign]
    _, producers_read = opened(data_folder)
    assert error_and_offset(producers_read, header(7, 11)) == (ErrorCode.NONE, 11)


@pytest.mark.parametrize("older", [False, True])
def test_a_snapshot_that_was_torn_while_it_was_written_is_written_again_by_the_stop(older: bool) -> None:
    disk, data_folder = in_memory()
    log, producers = opened(data_folder)
    for number in range(6):
        append(log, producers, batch(7, number))
        if older and number == 2:
            assert log.roll(0)
    log.flush()
    original = disk.open

    def tear(path: str, create: bool = False) -> object:
        disk.fail_writes = int(path.endswith(".snapshot"))
        return original(path, create)

    disk.open = tear  # type: ignore[method-assign,assignment]
    assert log.roll(0)
    disk.open = original  # type: ignore[method-assign]
    disk.fail_writes = 0
    assert snapshots(data_folder)[-1] == 6
    stop(log)
    _, producers_read = opened(data_folder, clean=True)
    assert error_and_offset(producers_read, header(7, 5)) == (ErrorCode.NONE, 5)
    assert error_and_offset(producers_read, header(7, 6)) == (ErrorCode.NONE, -1)
    assert snapshots(data_folder)[-1] == 6


def test_an_orderly_start_without_a_valid_snapshot_reads_the_log(data_folder: DataFolder) -> None:
    log, producers = opened(data_folder, segment_bytes=2_000)
    for number in range(20):
        append(log, producers, batch(7, number, padding=200))
    stop(log)
    for offset in snapshots(data_folder):
        overwrite(data_folder.disk, f"{data_folder.path}/{FOLDER}/{offset:020d}.snapshot", b"")
    _, producers_read = opened(data_folder, clean=True, segment_bytes=2_000)
    assert error_and_offset(producers_read, header(7, 19)) == (ErrorCode.NONE, 19)


def test_the_snapshot_of_a_stop_omits_expired_producers(data_folder: DataFolder) -> None:
    log, producers = opened(data_folder)
    append(log, producers, batch(7, 0))
    producers.expire(10_000, 30_000)
    append(log, producers, batch(8, 0))
    assert log.roll(0)
    producers.expire(40_000, 30_000)
    stop(log)
    _, producers_read = opened(data_folder, clean=True)
    assert sorted(producers_read) == [8]


def test_a_new_batch_renews_a_producer_and_a_new_epoch_has_its_own_batches() -> None:
    producers = Producers()
    producers.note(header(7, 0, 3, epoch=2, timestamp=1_000), 10)
    producers.note(header(7, 3, 1, epoch=2, timestamp=5_000), 13)
    state = producers.get(7)
    assert state is not None
    assert (state.epoch, state.last_timestamp, state.last_sequence, state.batches) == (2, 5_000, 3, [(0, 2, 10, 1_000), (3, 3, 13, 5_000)])
    assert error_and_offset(producers, header(7, 0, epoch=3)) == (ErrorCode.NONE, -1)
    assert error_and_offset(producers, header(7, 1, epoch=3)) == (OUT_OF_ORDER, -1)
    assert error_and_offset(producers, header(7, 4, epoch=3)) == (OUT_OF_ORDER, -1)
    assert error_and_offset(producers, header(7, 4, epoch=1)) == (OLD_EPOCH, -1)
    producers.note(header(7, 0, 2, epoch=3, timestamp=6_000), 14)
    assert (state.epoch, state.batches) == (3, [(0, 1, 14, 6_000)])
    assert producers.last_offsets() == {7: 14}


def test_a_producer_without_an_epoch_may_send_any_sequence() -> None:
    """Kafka's snapshots have such entries for producers whose batches are gone."""
    producers = Producers()
    producers.put(7, Producer())
    assert error_and_offset(producers, header(7, 50, epoch=0)) == (ErrorCode.NONE, -1)
    assert error_and_offset(producers, header(7, 0, epoch=4)) == (ErrorCode.NONE, -1)
    assert producers.last_offsets() == {}
    producers.clear()
    assert (len(producers), producers.get(7)) == (0, None)


@pytest.mark.parametrize(("sequence", "delta", "last"), [(5, 0, 5), (5, 3, 8), (SEQUENCE_MAX, 0, SEQUENCE_MAX), (SEQUENCE_MAX, 1, 0), (SEQUENCE_MAX - 2, 5, 2)])
def test_the_last_sequence_of_a_batch_is_counted_over_the_largest(sequence: int, delta: int, last: int) -> None:
    producers = Producers()
    producers.note_batch(7, 0, sequence, delta, 100, 1_000, 0)
    state = producers.get(7)
    assert state is not None
    assert (state.last_sequence, state.batches) == (last, [(sequence, last, 100, 1_000)])
    repeated = header(7, sequence, delta + 1)
    assert error_and_offset(producers, repeated) == (ErrorCode.NONE, 100)
    if last != SEQUENCE_MAX:
        assert error_and_offset(producers, header(7, last + 1)) == (ErrorCode.NONE, -1)
        assert error_and_offset(producers, header(7, last + 2)) == (OUT_OF_ORDER, -1)


@pytest.mark.parametrize("begin", [0, 100])
def test_a_transaction_that_is_open_keeps_its_producer_and_its_end_has_no_sequence(begin: int) -> None:
    producers = Producers()
    producers.note_batch(7, 0, 0, 1, begin, 1_000, TRANSACTIONAL)
    producers.note_batch(7, 0, 2, 0, begin + 2, 1_100, TRANSACTIONAL)
    state = producers.get(7)
    assert state is not None
    assert state.transaction_offset == begin
    assert [producers.expire(moment, 1) for moment in (0, 1 << 40)] == [0, 0]
    producers.note_batch(7, 0, -1, 0, begin + 3, 1_200, TRANSACTIONAL | CONTROL)
    assert (state.transaction_offset, state.last_sequence, state.last_timestamp) == (-1, 2, 1_200)
    assert len(state.batches) == 2
    assert [producers.expire(moment, 60_000) for moment in (1_200, 59_999, 60_000)] == [0, 0, 1]


def test_a_producer_known_only_by_epoch_begins_at_sequence_0_and_expires() -> None:
    producers = Producers()
    producers.put(7, Producer(2))
    assert error_and_offset(producers, header(7, 0, epoch=2)) == (ErrorCode.NONE, -1)
    assert error_and_offset(producers, header(7, 5, epoch=2)) == (OUT_OF_ORDER, -1)
    assert error_and_offset(producers, header(7, 0, epoch=1)) == (OLD_EPOCH, -1)
    assert [producers.expire(moment, 10) for moment in (1_000, 1_009, 1_010)] == [0, 0, 1]


@pytest.mark.parametrize(("epoch", "error"), [(0, ErrorCode.NONE), (-1, ErrorCode.NONE), (-2, OLD_EPOCH)])
def test_an_unknown_producer_may_have_any_valid_epoch(epoch: int, error: ErrorCode) -> None:
    assert error_and_offset(Producers(), header(7, 5, epoch=epoch)) == (error, -1)
