"""A log on a working disk: append, flush, roll, read and reopen."""

from __future__ import annotations

import pytest

from simulator.disk import NothingSurvives, SimDisk, data_disk
from storage import DamagedLog, Fenced, Handles, Log
from storage.epochs import read_epochs
from storage.flush import METADATA, belongs_to_other_topic, read_topic_id
from tests.storage.conftest import DataFolder
from tests.storage.logs import FOLDER, append_all, append_flushed, batch, headers, names, newest_timestamp, overwrite, read, reopen, stop
from tests.support.batch_bytes import holed

FIRST = "00000000000000000000"


def test_a_folder_is_made_by_the_first_append(data_folder: DataFolder) -> None:
    log, truncation = reopen(data_folder.disk, data_folder.path)
    assert (log.next_offset, log.start_offset, log.size, truncation.cut_bytes) == (0, 0, 0, 0)
    assert log.flush() == 0
    assert not data_folder.disk.exists(f"{data_folder.path}/{FOLDER}")
    assert log.append(batch("a", 3), 0) == 0
    assert data_folder.disk.exists(f"{data_folder.path}/{FOLDER}/{FIRST}.log")


def test_an_empty_folder_is_an_empty_log(data_folder: DataFolder) -> None:
    data_folder.disk.make_folder(f"{data_folder.path}/{FOLDER}")
    log, _ = reopen(data_folder.disk, data_folder.path)
    assert (log.next_offset, names(log)) == (0, [])
    log.append(batch("a"), 0)
    assert names(log) == ["a.0"]


def test_an_appended_batch_is_read_with_its_offset_and_leader_epoch(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path)
    assert [log.append(batch(name, 2), 0) for name in "abc"] == [0, 2, 4]
    assert names(log) == ["a.0", "a.1", "b.0", "b.1", "c.0", "c.1"]
    assert [(header.base_offset, header.leader_epoch) for header in headers(log)] == [(0, 0), (2, 0), (4, 0)]


def test_a_scan_begins_with_the_batch_that_holds_the_offset_and_ends_before_the_end(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path)
    append_all(log, "abcd", 2)
    assert names(log, 3) == ["b.0", "b.1", "c.0", "c.1", "d.0", "d.1"]
    assert names(log, 2, 5) == ["b.0", "b.1"]
    assert names(log, 8) == []


def test_a_log_rolls_when_a_batch_does_not_fit_and_a_huge_batch_gets_its_own_segment(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path, segment_bytes=1000)
    for number, padding in enumerate((10, 800, 5000, 10, 10)):
        log.append(batch(f"b{number}", padding=padding), 0)
    files = [name for name in data_folder.disk.list(f"{data_folder.path}/{FOLDER}") if name.endswith(".log")]
    assert [int(name[:20]) for name in files] == [0, 2, 3]
    assert names(log) == [f"b{number}.0" for number in range(5)]
    assert names(log, 2) == ["b2.0", "b3.0", "b4.0"]


def test_offsets_may_leave_holes(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path)
    log.append(holed(batch("a"), 9), 0)
    assert log.append(batch("b"), 0) == 10
    log.flush()
    log, _ = reopen(data_folder.disk, data_folder.path)
    assert (names(log, 5), names(log, 10), log.next_offset) == (["a.0", "b.0"], ["b.0"], 11)


@pytest.mark.parametrize("clean", [False, True])
def test_a_reopened_log_appends_at_the_next_offset(data_folder: DataFolder, clean: bool) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path, segment_bytes=5000)
    append_all(log, 20, 2, padding=500)
    stop(log)
    log, truncation = reopen(data_folder.disk, data_folder.path, clean=clean, segment_bytes=5000)
    assert (truncation.cut_bytes, log.next_offset, log.flushed_offset, log.epoch) == (0, 40, 40, 1)
    assert log.append(batch("new"), 1) == 40
    assert names(log) == [f"b{number}.{record}" for number in range(20) for record in range(2)] + ["new.0"]
    assert newest_timestamp(log) == 1001


def test_each_owners_epoch_is_in_the_leader_epoch_checkpoint(data_folder: DataFolder) -> None:
    folder = f"{data_folder.path}/{FOLDER}"
    for start in (0, 1, 2):
        log, _ = reopen(data_folder.disk, data_folder.path)
        assert log.append(batch("a"), log.epoch) == start
        log.flush()
    assert data_folder.disk.read_text(f"{folder}/leader-epoch-checkpoint") == "0\n3\n0 0\n1 1\n2 2\n"
    reopen(data_folder.disk, data_folder.path)
    assert read_epochs(data_folder.disk, folder) == [(0, 0), (1, 1), (2, 2)]  # an owner without appends leaves no epoch


def test_no_epoch_is_used_twice_even_if_its_checkpoint_is_lost(data_folder: DataFolder) -> None:
    for epoch in (0, 1, 2):
        log, _ = reopen(data_folder.disk, data_folder.path)
        assert log.epoch == epoch
        append_flushed(log, batch("a"), epoch)
        data_folder.disk.remove(f"{data_folder.path}/{FOLDER}/leader-epoch-checkpoint")


@pytest.mark.parametrize("text", ["", "0\n", "0\nx\n", "0\n5\n0 0\n", "0\n1\none two\n", "1\n1\n7\n"])
def test_an_invalid_epoch_checkpoint_is_ignored(data_folder: DataFolder, text: str) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path)
    append_flushed(log, batch("a"))
    overwrite(data_folder.disk, f"{data_folder.path}/{FOLDER}/leader-epoch-checkpoint", text.encode())
    log, _ = reopen(data_folder.disk, data_folder.path)
    log.append(batch("b"), log.epoch)
    assert names(log) == ["a.0", "b.0"]


def test_an_append_with_an_old_epoch_is_fenced(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path)
    log.append(batch("a"), 0)
    assert log.claim() == 1
    with pytest.raises(Fenced, match="owned at epoch 1, no longer at 0"):
        log.append(batch("b"), 0)
    assert log.append(batch("c"), 1) == 1
    assert [header.leader_epoch for header in headers(log)] == [0, 1]


def test_other_files_in_a_log_folder_are_not_touched(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path)
    append_flushed(log, batch("a"))
    for name in (
        "notes.log",
        "0000000000000000000x.log",
        "\u0660" * 20 + ".log",
        f"{FIRST}.log.deleted",
        f"{FIRST}.snapshot",
        "partition.metadata",
    ):
        overwrite(data_folder.disk, f"{data_folder.path}/{FOLDER}/{name}", b"whatever")
    log, _ = reopen(data_folder.disk, data_folder.path)
    assert names(log) == ["a.0"]
    assert read(data_folder.disk, f"{data_folder.path}/{FOLDER}/notes.log") == b"whatever"


def test_segments_that_overlap_are_refused(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path)
    append_all(log, "abc")
    log.flush()
    batch_bytes = len(batch("a"))
    data = read(data_folder.disk, f"{data_folder.path}/{FOLDER}/{FIRST}.log")
    overwrite(data_folder.disk, f"{data_folder.path}/{FOLDER}/{1:020d}.log", data[batch_bytes : 2 * batch_bytes])
    for clean in (True, False):  # the second segment overlaps the first, but ends before it, so it cannot replace the end of the first
        with pytest.raises(DamagedLog, match=FIRST):
            reopen(data_folder.disk, data_folder.path, clean=clean)


def test_descriptors_are_released(data_folder: DataFolder) -> None:
    handles = Handles(data_folder.disk)
    log, _ = Log.open(handles, f"{data_folder.path}/{FOLDER}", 300, 0, False)
    append_all(log, 10, padding=100)
    stop(log)
    assert handles._files == {}
    assert handles._pins == {}


def test_the_folder_of_a_partition_has_its_topic_id(data_folder: DataFolder) -> None:
    path = f"{data_folder.path}/{FOLDER}"
    metadata = f"{path}/partition.metadata"
    log, _ = Log.open(Handles(data_folder.disk), path, 1 << 20, 0, False, "iRZ7lAlfQrWo7gLtEdup9A")
    assert not data_folder.disk.exists(path)  # nothing appended yet
    append_flushed(log, batch("a"), log.epoch)
    assert read(data_folder.disk, metadata) == b"version: 0\ntopic_id: iRZ7lAlfQrWo7gLtEdup9A"
    Log.open(Handles(data_folder.disk), path, 1 << 20, 0, False, "another")
    assert read(data_folder.disk, metadata).endswith(b"iRZ7lAlfQrWo7gLtEdup9A")
    data_folder.disk.remove(metadata)  # an older version wrote no topic id
    reopen(data_folder.disk, data_folder.path)
    assert not data_folder.disk.exists(metadata)
    Log.open(Handles(data_folder.disk), path, 1 << 20, 0, True, "iRZ7lAlfQrWo7gLtEdup9A")
    assert data_folder.disk.exists(metadata)


def test_a_folders_topic_id_is_written_durably_once_and_never_overwritten() -> None:
    id, other_id = "iRZ7lAlfQrWo7gLtEdup9A", "AAAAAAAAAAAAAAAAAAAAAA"
    disk = data_disk(NothingSurvives())
    path, metadata = f"/data/{FOLDER}", f"/data/{FOLDER}/{METADATA}"

    def opened(topic_id: str, clean: bool) -> Log:
        return Log.open(Handles(disk), path, 1 << 20, 0, clean, topic_id, deferred=True)[0]

    log = opened("", False)  # an older version wrote no topic id
    append_flushed(log, batch("a"), log.epoch)
    opened(id, True)
    disk.crash()
    assert read_topic_id(disk, path) == id
    log = opened(other_id, False)
    append_flushed(log, batch("b"), log.epoch)
    assert read_topic_id(disk, path) == id
    disk.remove(metadata)
    log = opened(id, False)
    append_flushed(log, batch("c"), log.epoch)
    assert log.roll(0)
    append_flushed(log, batch("d"), log.epoch)
    written = disk.changes.count(f"{metadata}.new")
    assert log.roll(0)
    log.flush()
    assert disk.changes.count(f"{metadata}.new") == written


def test_a_topic_id_that_shares_half_its_characters_counts_as_damaged_not_foreign() -> None:
    disk = SimDisk()
    id = "iRZ7lAlfQrWo7gLtEdup9A"
    for equal_chars in range(23):
        overwrite(disk, f"/{METADATA}", f"version: 0\ntopic_id: {id[:equal_chars]}{'_' * (22 - equal_chars)}".encode())
        assert belongs_to_other_topic(disk, "", id) is (equal_chars < 11)
        assert not belongs_to_other_topic(disk, "/elsewhere", id)


def test_other_lines_of_partition_metadata_are_ignored(data_folder: DataFolder) -> None:
    id = "iRZ7lAlfQrWo7gLtEdup9A"
    overwrite(data_folder.disk, f"{data_folder.path}/{METADATA}", f"# by hand: a note: of somebody\n\nversion: 0\ntopic_id: {id}\n".encode())
    assert read_topic_id(data_folder.disk, data_folder.path) == id
    for text in ("version: 0\n", f"topic_id: {id[:-1]}\n", f"topic_id: {id}A\n", f"topic_id: {id[:-1]}?\n"):
        overwrite(data_folder.disk, f"{data_folder.path}/{METADATA}", text.encode())
        assert read_topic_id(data_folder.disk, data_folder.path) == ""


def test_a_closed_segment_has_its_index_files_on_disk(disk: SimDisk) -> None:
    """Then a process killed later leaves no index to rebuild."""
    log, _ = reopen(disk, "/data", segment_bytes=20_000)
    append_all(log, 5, padding=5_000)
    assert log.segment_count == 2
    assert [len(read(disk, f"/data/{FOLDER}/{FIRST}.{ending}")) for ending in ("index", "timeindex")] == [2 * 8, 12]
