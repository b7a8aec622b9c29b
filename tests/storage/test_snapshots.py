"""Producer snapshots: Kafka's format, and how an opening uses them."""

from __future__ import annotations

from struct import pack

import google_crc32c
import pytest

from protocol.batch import Record, build, read_header, rewrite
from simulator.disk import SimDisk
from storage import DamagedLog, Handles, Log, Producers
from storage.producers import NEWEST_BATCHES, SEQUENCE_MAX, Producer
from storage.segment import CHUNK_BYTES
from storage.snapshots import parse_snapshot, read_snapshot, snapshot_bytes, snapshot_offsets, write_snapshot
from storage.swap import remove_deleted
from tests.storage.conftest import DataFolder, in_memory
from tests.storage.logs import FOLDER, append_flushed, overwrite, read, stop

Entry = tuple[int, int, int, int, int, int, int, int]


def stored(*entries: Entry) -> bytes:
    """A snapshot as Kafka's ProducerStateManager writes it."""
    body = pack(">i", len(entries)) + b"".join(pack(">qhiqiqiq", *entry) for entry in entries)
    return pack(">hI", 1, google_crc32c.value(body)) + body


def test_a_snapshot_is_written_byte_for_byte_as_kafka_does() -> None:
    producers = Producers()
    producers.put(9, Producer(3, 77, 5, 12))  # as Kafka stores a producer whose batches are all gone
    producer = Producer(4, 1_500, 6, 30)
    producer.batches = [(SEQUENCE_MAX, 1, 20, 1_100), (2, 2, 30, 1_200)]
    producers.put(7, producer)
    assert snapshot_bytes(producers) == stored(
        (9, 3, -1, -1, 0, 77, 5, 12),
        (7, 4, 1, 22, 2, 1_100, 6, -1),
        (7, 4, 2, 30, 0, 1_500, 6, 30),
    )
    assert snapshot_bytes(Producers()) == stored()


def test_entries_of_one_producer_are_its_batches_of_its_newest_epoch() -> None:
    producers = Producers()
    producers.put(1, Producer())  # a snapshot replaces all earlier state
    old = [(7, 3, 5 + number, 5 + number, 0, 900, 0, -1) for number in range(2)]
    new = [(7, 4, 2 * number + 1, 100 + 2 * number + 1, 1, 1_000 + number, 0, -1) for number in range(NEWEST_BATCHES + 2)]
    other_producers = [(8, 0, 1, 1, 1, 500, 2, 0), (9, 0, 0, 60, 2, 600, 2, 9), (10, 0, -1, -1, 0, 700, 3, -1)]
    for count in (1, NEWEST_BATCHES - 1, NEWEST_BATCHES, NEWEST_BATCHES + 2):
        assert parse_snapshot(stored(*old, *new[:count], *other_producers), producers)
        states = {id: state for id in producers if (state := producers.get(id)) is not None}
        assert list(states) == [7, 8, 9, 10]
        assert (states[7].epoch, states[7].last_timestamp) == (4, 999 + count)
        numbers = range(max(count - NEWEST_BATCHES, 0), count)
        assert states[7].batches == [(2 * number, 2 * number + 1, 100 + 2 * number, 1_000 + number) for number in numbers]
    assert (states[8].batches, states[8].transaction_offset, states[8].coordinator_epoch) == ([(0, 1, 0, 500)], 0, 2)
    assert states[9].batches == [(SEQUENCE_MAX - 1, 0, 58, 600)]
    assert (states[10].batches, states[10].last_timestamp) == ([], 700)


def test_a_snapshot_of_another_version_is_refused_though_its_checksum_is_right() -> None:
    data = stored((7, 0, 0, 0, 0, 1_000, 0, -1))
    assert parse_snapshot(data, Producers())
    for version in (0, 2):
        assert parse_snapshot(pack(">h", version) + data[2:], Producers()) is False
    body = pack(">i", 2) + data[10:]  # the count is two, the file has one
    assert parse_snapshot(pack(">hI", 1, google_crc32c.value(body)) + body, Producers()) is False
    assert parse_snapshot(b"", Producers()) is False


def test_only_files_that_are_named_by_an_offset_are_snapshots() -> None:
    names = [f"{20:020}.snapshot", f"{3:020}.snapshot", "3.snapshot", f"{4:021}.snapshot", f"{5:020}.snapshot.deleted", f"{6:020}.log", "x" * 20 + ".snapshot"]
    assert snapshot_offsets([*names, "\u0661" * 20 + ".snapshot"]) == [3, 20]


@pytest.mark.parametrize("before", [b"", b"?", b"longer than a snapshot can be " * 20, None])
def test_a_snapshot_replaces_a_wrong_file_and_keeps_an_equal_one(before: bytes | None) -> None:
    disk = SimDisk()
    producers = Producers()
    producers.note_batch(7, 0, 0, 0, 10, 1_000, 0)
    data = snapshot_bytes(producers)
    path = f"/{11:020}.snapshot"
    overwrite(disk, path, before if before is not None else data[:-1] + b"?")
    write_snapshot(disk, "", 11, producers)
    assert read(disk, path) == data
    changes = len(disk.changes)
    write_snapshot(disk, "", 11, producers)
    assert len(disk.changes) == changes
    assert disk.opened == 0
    restored = Producers()
    assert read_snapshot(disk, "", 11, restored)
    assert disk.opened == 0
    assert snapshot_bytes(restored) == data
    disk.unreadable = path
    assert read_snapshot(disk, "", 11, restored) is False
    assert read_snapshot(disk, "", 12, restored) is False
    assert disk.opened == 0


# An opening that reads the batches


def batch(producer: int, sequence: int, padding: int = 0) -> bytes:
    return build([Record(0, 1_000, b"key", bytes(padding))], producer_id=producer, producer_epoch=0, base_sequence=sequence)


def opened(data_folder: DataFolder, clean: bool) -> tuple[Log, Producers]:
    producers = Producers()
    log, _ = Log.open(Handles(data_folder.disk), f"{data_folder.path}/{FOLDER}", 1 << 24, 0, clean, deferred=True, producers=producers)
    return log, producers


def stopped(data_folder: DataFolder, *batches: bytes) -> tuple[str, bytes]:
    """A log closed in order whose snapshot was then torn; its file and contents."""
    log, producers = opened(data_folder, False)
    for appended in batches:
        log.append(appended, log.epoch)
    producers.note_batch(1, 0, 0, 0, 0, 0, 0)  # so that there is a snapshot
    stop(log)
    folder = f"{data_folder.path}/{FOLDER}"
    for name in data_folder.disk.list(folder):
        if name.endswith(".snapshot"):
            overwrite(data_folder.disk, f"{folder}/{name}", b"")
    path = f"{folder}/{0:020}.log"
    return path, read(data_folder.disk, path)


def test_batches_of_any_size_with_a_producer_id_are_noted(data_folder: DataFolder) -> None:
    stopped(data_folder, batch(0, 0), batch(-1, -1), batch(7, 0, CHUNK_BYTES - 200), batch(7, 1, CHUNK_BYTES), batch(7, 2), batch(8, 5, 3 * CHUNK_BYTES))
    _, restored = opened(data_folder, True)
    assert sorted(restored) == [0, 7, 8]
    assert {id: producer.last_offset for id in restored if (producer := restored.get(id)) is not None} == {0: 0, 7: 4, 8: 5}
    seven = restored.get(7)
    assert seven is not None
    assert [(first, base) for first, _, base, _ in seven.batches] == [(0, 2), (1, 3), (2, 4)]


@pytest.mark.parametrize(("at", "patch"), [(16, b"\1"), (8, b"\0\0\0\x30"), (8, b"\0\0\0\x10"), (8, b"\xff\xff\xff\xff"), (8, b"\0\1\0\0")])
def test_a_malformed_batch_is_reported_with_its_position(at: int, patch: bytes) -> None:
    disk, data_folder = in_memory()
    # The index has the position of the last batch, so an opening after an orderly stop reads the other batches only for producer state.
    path, data = stopped(data_folder, *[batch(7, number, 5_000) for number in range(5)])
    size = len(data) // 5
    begin = 2 * size + at
    overwrite(disk, path, data[:begin] + patch + data[begin + len(patch) :])
    Log.open(Handles(disk), f"{data_folder.path}/{FOLDER}", 1 << 24, 0, True, deferred=True)
    with pytest.raises(DamagedLog, match=f"{FOLDER}/{0:020}.log is damaged at byte {2 * size}"):
        opened(data_folder, True)


def test_producer_state_is_read_from_the_header_of_an_emptied_batch(data_folder: DataFolder) -> None:
    log, _ = opened(data_folder, False)
    log.append(batch(8, 0), log.epoch)
    append_flushed(log, rewrite(read_header(batch(7, 3), 0), []), log.epoch)
    producers = Producers()
    producers.put(9, Producer())  # from before
    Log.open(Handles(data_folder.disk), log.folder, 1 << 24, 0, False, deferred=True, producers=producers)
    assert {id: state.last_sequence for id in producers if (state := producers.get(id)) is not None} == {8: 0, 7: 3}


def test_expired_producers_do_not_return_from_an_older_snapshot(data_folder: DataFolder) -> None:
    log, producers = opened(data_folder, False)
    appended = batch(7, 0)
    producers.note(read_header(appended, 0), log.append(appended, log.epoch))
    stop(log)
    log, producers = opened(data_folder, True)
    assert list(producers) == [7]
    append_flushed(log, batch(-1, -1), log.epoch)
    assert [producers.expire(moment, 10) for moment in (0, 10)] == [0, 1]
    log.close()
    assert list(opened(data_folder, True)[1]) == []


def test_only_batches_after_a_snapshot_are_read(data_folder: DataFolder) -> None:
    """A producer expired before the snapshot stays expired."""
    log, producers = opened(data_folder, False)
    for producer, sequence in ((8, 0), (7, 0), (7, 1)):
        appended = batch(producer, sequence)
        producers.note(read_header(appended, 0), log.append(appended, log.epoch))
    assert [producers.expire(moment, 10) for moment in (0, 5)] == [0, 0]
    appended = batch(7, 2)
    producers.note(read_header(appended, 0), log.append(appended, log.epoch))
    assert producers.expire(12, 10) == 1
    stop(log)
    log, _ = opened(data_folder, True)
    append_flushed(log, batch(7, 3), log.epoch)
    producers = Producers()
    producers.put(9, Producer())  # from before
    Log.open(Handles(data_folder.disk), log.folder, 1 << 24, 0, False, deferred=True, producers=producers)
    assert list(producers) == [7]
    seven = producers.get(7)
    assert seven is not None
    assert seven.batches == [(number, number, number + 1, 1_000) for number in range(4)]


def test_a_snapshot_at_the_log_start_has_the_producers_of_deleted_segments(data_folder: DataFolder) -> None:
    producers = Producers()
    log, _ = Log.open(Handles(data_folder.disk), f"{data_folder.path}/{FOLDER}", 1 << 24, 0, False, deferred=True, producers=producers)
    for number in range(3):
        appended = batch(7 + number, 0)
        producers.note(read_header(appended, 0), log.append(appended, log.epoch))
        assert log.roll(0)
    log.delete_before(1)
    remove_deleted(data_folder.disk, log.folder, log.apply_retention(0, 0, -1, -1))
    log.flush()
    for offset in (2, 3):  # later snapshots, which have all producers too
        data_folder.disk.remove(f"{log.folder}/{offset:020}.snapshot")
    _, restored = opened(data_folder, False)
    assert sorted(restored) == [7, 8, 9]


def test_an_old_snapshot_that_cannot_be_removed_stays() -> None:
    disk, data_folder = in_memory()
    log, producers = opened(data_folder, False)
    for number in range(3):
        appended = batch(7, number)
        producers.note(read_header(appended, 0), log.append(appended, log.epoch))
        write_snapshot(disk, log.folder, number + 1, producers)
    log.flush()
    original = disk.remove

    def refuse(path: str) -> None:
        if path.endswith(".snapshot"):
            raise OSError(5, "error")
        original(path)

    disk.remove = refuse  # type: ignore[method-assign]
    _, restored = opened(data_folder, False)
    assert list(restored) == [7]
    disk.remove = original  # type: ignore[method-assign]
    opened(data_folder, False)
    assert snapshot_offsets(disk.list(log.folder)) == [3]


def test_a_snapshot_from_before_the_log_start_is_ignored(data_folder: DataFolder) -> None:
    """The log lacks the batches between the snapshot and its start, so the next batches of these producers would be refused."""
    log, producers = opened(data_folder, False)
    for sequence in range(4):
        sent = batch(7, sequence)
        log.append(sent, log.epoch)
        producers.note(read_header(sent, 0), sequence)
        assert log.roll(1 << 20)
    stop(log)
    folder = f"{data_folder.path}/{FOLDER}"
    for base in (0, 1, 2, 3):
        data_folder.disk.remove(f"{folder}/{base:020}.log")
    for offset in (2, 3, 4):
        data_folder.disk.remove(f"{folder}/{offset:020}.snapshot")
    for clean in (True, False):
        log, producers = opened(data_folder, clean)
        assert (log.start_offset, list(producers)) == (4, [])
