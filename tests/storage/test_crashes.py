"""Power failures, full disks and write errors of a log, on the faulty disk."""

from __future__ import annotations

import errno
from random import Random

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.batch import CorruptBatch, validate
from simulator.disk import Crashed, Folder, SimDisk, data_disk
from storage import AppendFailed, DamagedLog, Handles, Log, Truncation
from storage.flush import failed_flushes, flushed_before_failure, mark_flush_failed
from storage.index import RELATIVE_OFFSET_MAX
from storage.opening import probe_path
from tests.depth import DEPTH
from tests.storage.conftest import DataFolder
from tests.storage.logs import FOLDER, CrashAt, append_all, append_flushed, batch, fail_flush, names, overwrite, read, recover, reopen

pytestmark = pytest.mark.once  # no dependence on the Python version

LOG = f"/data/{FOLDER}/00000000000000000000.log"


def filled(disk: SimDisk, count: int = 3, segment_bytes: int = 1 << 20) -> Log:
    log, _ = reopen(disk, "/data", segment_bytes=segment_bytes)
    append_all(log, count)
    log.flush()
    return log


# Torn ends and damage


def test_a_log_cut_at_any_byte_opens_with_its_whole_batches(data_folder: DataFolder) -> None:
    log, _ = reopen(data_folder.disk, data_folder.path)
    ends = [0]
    for name in "abc":
        log.append(batch(name), 0)
        ends.append(log.size)
    log.flush()
    path = f"{data_folder.path}/{FOLDER}/00000000000000000000.log"
    intact = read(data_folder.disk, path)
    step = 1 if isinstance(data_folder.disk, SimDisk) else 7
    for length in range(0, len(intact) + 1, step):
        overwrite(data_folder.disk, path, intact[:length])
        log, truncation = reopen(data_folder.disk, data_folder.path)
        batches_whole = sum(end <= length for end in ends[1:])
        assert names(log) == ["a.0", "b.0", "c.0"][:batches_whole]
        assert truncation.cut_bytes == length - ends[batches_whole]
        assert truncation.position == (ends[batches_whole] if truncation.cut_bytes else 0)
        assert bool(truncation.reason) == bool(truncation.cut_bytes)
        log.append(batch("new"), log.epoch)
        assert names(log)[batches_whole:] == ["new.0"]


@pytest.mark.parametrize("clean", [False, True])
def test_a_flipped_byte_in_a_segment_before_the_last_is_damage_found_when_it_is_read(disk: SimDisk, clean: bool) -> None:
    log = filled(disk, 6, segment_bytes=200)
    log.close()
    path = next(f"/data/{FOLDER}/{name}" for name in disk.list(f"/data/{FOLDER}") if name.endswith("2.log"))
    changed = bytearray(read(disk, path))
    changed[-3] ^= 1
    overwrite(disk, path, bytes(changed))
    log, _ = reopen(disk, "/data", clean=clean)
    with pytest.raises(DamagedLog, match="checksum") as caught:
        names(log)
    assert (caught.value.path, caught.value.position) == (path, len(changed) // 2)


def test_a_segment_before_the_last_that_is_cut_short_is_damage(disk: SimDisk) -> None:
    filled(disk, 6, segment_bytes=200).close()
    intact = read(disk, LOG)
    for length in (len(intact) - 1, len(intact) // 2 + 5):
        overwrite(disk, LOG, intact[:length])
        with pytest.raises(DamagedLog, match="cut short"):
            reopen(disk, "/data")


def test_bytes_that_changed_under_an_open_log_are_damage(disk: SimDisk) -> None:
    log = filled(disk)
    overwrite(disk, LOG, read(disk, LOG)[: log.size // 2])
    with pytest.raises(DamagedLog, match="shorter than it was"):
        names(log)


# The process dies, and then the power fails


@pytest.mark.parametrize("seed", range(8))
def test_batches_read_while_opening_survive_the_next_crash(seed: int) -> None:
    disk = data_disk(seed)
    log, _ = reopen(disk, "/data")
    append_all(log, 3)
    log, _ = reopen(disk, "/data")  # kill -9: the written bytes are in the page cache
    assert names(log) == ["b0.0", "b1.0", "b2.0"]
    assert log.flushed_offset == 3
    disk.crash()
    assert names(reopen(disk, "/data")[0]) == ["b0.0", "b1.0", "b2.0"]


@pytest.mark.parametrize("seed", range(8))
def test_an_unsynced_folder_name_is_synced_by_the_next_flush(seed: int) -> None:
    disk = data_disk(seed)
    disk.folder("/data").change(put=FOLDER, content=Folder())
    log, _ = reopen(disk, "/data")
    append_flushed(log, batch("a"))
    disk.crash()
    assert names(reopen(disk, "/data")[0]) == ["a.0"]


def test_files_of_an_interrupted_repair_are_removed(disk: SimDisk) -> None:
    filled(disk)
    overwrite(disk, f"{LOG}.rewriting", b"half of it")
    overwrite(disk, probe_path(f"/data/{FOLDER}"), b"")
    reopen(disk, "/data")
    assert sorted(disk.list(f"/data/{FOLDER}")) == ["00000000000000000000.log", "leader-epoch-checkpoint"]
    assert disk.list("/data") == [FOLDER]


# Any events, and a power failure at any time

Step = tuple[str, int]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 400)),
        st.tuples(st.just("flush"), st.just(0)),
        st.tuples(st.just("fail flush and recover"), st.integers(0, 1)),
        st.tuples(st.just("fail append"), st.integers(0, 1)),
        st.tuples(st.just("stop"), st.just(0)),
        st.tuples(st.just("crash"), st.integers(0, 12)),
    ),
    max_size=30,
)


class Run:
    """A log and the expected state: names in the order of their offsets, of which some are flushed."""

    def __init__(self, seed: int, segment_bytes: int) -> None:
        self.disk = data_disk(seed)
        self.segment_bytes = segment_bytes
        self.kept: list[str] = []
        self.flushed = 0
        self.number = 0
        self.clean = False
        self.log, _ = self.opened()

    def opened(self) -> tuple[Log, Truncation]:
        return reopen(self.disk, "/data", segment_bytes=self.segment_bytes, recovery_point=self.flushed, clean=self.clean)

    def take(self, step: str, size: int) -> None:
        if step == "append":
            self.append(size)
        elif step == "flush":
            self.flushed = self.log.flush()
        elif step == "fail flush and recover":
            self.fail_flush(bool(size))
        elif step == "fail append":
            self.disk.fail_writes, self.disk.fail_truncates = 1, size
            with pytest.raises(AppendFailed):
                self.append(1)
            self.kept.pop()
            self.disk.fail_writes = self.disk.fail_truncates = 0
            if not self.log.usable:
                recover(self.log, keep_unflushed=True)
        elif step == "stop":
            self.flushed = self.log.flush()
            self.log.close()
            self.clean = True
            self.log, _ = self.opened()
            self.clean = False
            assert names(self.log) == self.kept
        else:
            self.disk.changes_until_crash = size

    def append(self, size: int) -> None:
        self.number += 1
        self.kept.append(f"n{self.number}.0")
        assert self.log.append(batch(f"n{self.number}", padding=size), self.log.epoch) == len(self.kept) - 1
        self.flushed = max(self.flushed, self.log.flushed_offset)

    def fail_flush(self, keep: bool) -> None:
        self.log.append(batch("dirt"), self.log.epoch)
        self.kept.append("dirt.0")
        self.flushed = max(self.flushed, self.log.flushed_offset)
        self.disk.fail_syncs = 1
        self.disk.failed_sync_loses = self.disk.random.random() < 0.7
        with pytest.raises(AppendFailed):
            self.log.flush()
        assert not self.log.usable
        recover(self.log, keep_unflushed=keep)
        if not keep:
            del self.kept[self.flushed :]
        assert names(self.log) == self.kept
        self.flushed = self.log.flushed_offset
        assert self.flushed == len(self.kept)

    def check_after_crash(self) -> None:
        self.disk.crash()
        self.clean = False
        self.log, _ = self.opened()
        names_read = names(self.log)
        assert names_read == self.kept[: len(names_read)]
        assert len(names_read) >= self.flushed
        self.kept = names_read
        self.flushed = self.log.flushed_offset
        assert self.flushed == len(names_read)
        assert names(reopen(self.disk, "/data")[0]) == names_read


@settings(max_examples=25 * DEPTH)
@given(seed=st.integers(0, 1 << 32), segment_bytes=st.sampled_from([150, 600, 1 << 20]), steps=STEPS)
def test_a_crashed_log_opens_with_a_prefix_that_holds_everything_flushed(seed: int, segment_bytes: int, steps: list[Step]) -> None:
    run = Run(seed, segment_bytes)
    for step, size in [*steps, ("crash", 0)]:
        try:
            run.take(step, size)
        except Crashed:
            run.check_after_crash()
    run.check_after_crash()


@pytest.mark.parametrize("flushed", [0, 2])
@pytest.mark.parametrize("loses", [True, False])
def test_a_crash_at_any_step_of_a_repair_loses_no_acknowledged_batch(flushed: int, loses: bool) -> None:
    for step in range(60):
        disk = data_disk(step)
        log, _ = reopen(disk, "/data")
        for number in range(4):
            log.append(batch(f"b{number}"), 0)
            if number + 1 == flushed:
                log.flush()
        disk.fail_syncs, disk.failed_sync_loses = 1, loses
        with pytest.raises(AppendFailed):
            log.flush()
        with CrashAt(disk, step) as crash:
            recover(log, keep_unflushed=True)
        if crash.happened:
            disk.crash()
            log, _ = reopen(disk, "/data", recovery_point=flushed)
            names_read = names(log)
            assert names_read == [f"b{number}.0" for number in range(len(names_read))]
            assert len(names_read) >= flushed
            log.append(batch("new"), log.epoch)
            continue
        disk.crash()
        log, _ = reopen(disk, "/data")
        assert names(log) == ["b0.0", "b1.0", "b2.0", "b3.0"]
        assert not [name for name in disk.list(f"/data/{FOLDER}") if name.endswith("rewriting")]
        assert step > 8
        return
    raise AssertionError("a fault was planted in the last step too: raise the number of steps")


def test_a_repair_that_fails_at_any_step_can_be_repeated(disk: SimDisk) -> None:
    for point in range(1, 6):
        disk = data_disk()
        log = filled(disk, 2)
        log.append(batch("b2"), log.epoch)
        fail_flush(disk, log)
        for attempt in range(point):
            disk.fail_syncs = 1 if attempt % 2 else 2 - attempt % 2
            disk.fail_folder_syncs = attempt % 3
            repair = log.start_repair(log.next_offset)
            with pytest.raises(OSError, match="error"):
                repair.run()
            assert not log.usable
        disk.fail_syncs = disk.fail_folder_syncs = 0
        recover(log, keep_unflushed=True)
        assert names(log) == ["b0.0", "b1.0", "b2.0"]
        disk.crash()
        assert names(reopen(disk, "/data")[0]) == ["b0.0", "b1.0", "b2.0"]


def test_a_repair_that_misses_an_acknowledged_batch_is_damage(disk: SimDisk) -> None:
    log = filled(disk)
    disk.fail_syncs = 1
    log.append(batch("b3"), log.epoch)
    with pytest.raises(AppendFailed):
        log.flush()
    overwrite(disk, LOG, read(disk, LOG)[:-5])
    with pytest.raises(DamagedLog, match="ends before offset 4"):
        recover(log, keep_unflushed=True)
    assert not log.usable
    recover(log, keep_unflushed=False)
    assert names(log) == ["b0.0", "b1.0", "b2.0"]


# A full or failing disk


def test_a_full_disk_leaves_the_log_unchanged_and_later_appends_work(disk: SimDisk) -> None:
    log = filled(disk)
    before = read(disk, LOG)
    for room in (0, 1, 40, len(before) // 3 - 1):
        disk.room = room
        with pytest.raises(AppendFailed, match=r"the disk of .* is full"):
            log.append(batch("lost"), log.epoch)
        assert log.usable
        assert (read(disk, LOG), log.next_offset) == (before, 3)
    disk.room = None
    assert log.append(batch("b3"), log.epoch) == 3
    log.flush()
    disk.crash()
    assert names(reopen(disk, "/data")[0]) == ["b0.0", "b1.0", "b2.0", "b3.0"]


def test_a_full_disk_at_the_first_append_or_a_roll_leaves_the_log_usable(disk: SimDisk) -> None:
    for size in range(0, 400, 9):
        disk = data_disk(size)
        log, _ = reopen(disk, "/data", segment_bytes=200)
        disk.room = size
        appended = []
        for number in range(6):
            try:
                log.append(batch(f"b{number}"), 0)
                appended.append(f"b{number}.0")
            except AppendFailed:
                assert log.usable
        assert names(log) == appended
        disk.room = None
        append_flushed(log, batch("new"))
        disk.crash()
        assert names(reopen(disk, "/data")[0]) == [*appended, "new.0"]


def test_a_half_written_batch_that_cannot_be_cut_makes_the_log_unusable_until_repaired(disk: SimDisk) -> None:
    log = filled(disk)
    disk.fail_writes = disk.fail_truncates = 1
    with pytest.raises(AppendFailed):
        log.append(batch("lost"), log.epoch)
    assert not log.usable
    with pytest.raises(AppendFailed, match="repaired"):
        log.append(batch("lost"), log.epoch)
    with pytest.raises(AppendFailed, match="repaired"):
        log.start_flush()
    assert names(log) == ["b0.0", "b1.0", "b2.0"]
    recover(log, keep_unflushed=True)
    assert log.append(batch("b3"), log.epoch) == 3


@pytest.mark.parametrize("fails", ["fail_syncs", "fail_folder_syncs"])
def test_a_roll_that_fails_halfway_loses_nothing(disk: SimDisk, fails: str) -> None:
    log, _ = reopen(disk, "/data", segment_bytes=100)
    log.append(batch("b0"), 0)
    setattr(disk, fails, 1)
    with pytest.raises(AppendFailed):
        log.append(batch("b1"), 0)
    assert log.usable == (fails == "fail_folder_syncs")
    if not log.usable:
        recover(log, keep_unflushed=True)
    assert log.append(batch("b1"), 0) == 1
    log.flush()
    disk.crash()
    assert names(reopen(disk, "/data")[0]) == ["b0.0", "b1.0"]


def test_a_flush_without_a_free_descriptor_fails(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(disk)
    log.append(batch("b3"), log.epoch)

    def refuse(path: str, create: bool) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    log._handles.forget(LOG)  # close the file of the log, as if other files had needed its handle
    monkeypatch.setattr(disk, "open", refuse)
    with pytest.raises(AppendFailed, match="Too many open files"):
        log.flush()
    monkeypatch.undo()
    assert not log.usable
    recover(log, keep_unflushed=True)
    assert names(log) == ["b0.0", "b1.0", "b2.0", "b3.0"]


def test_a_read_error_is_not_an_empty_log(disk: SimDisk) -> None:
    log = filled(disk)
    disk.unreadable = ".log"
    with pytest.raises(OSError, match="Input/output"):
        names(log)
    with pytest.raises(OSError, match="Input/output"):
        reopen(disk, "/data")
    disk.unreadable = ""
    assert names(reopen(disk, "/data")[0]) == ["b0.0", "b1.0", "b2.0"]


def test_a_log_on_a_read_only_disk_does_not_open(disk: SimDisk) -> None:
    log = filled(disk)
    disk.read_only = True
    with pytest.raises(AppendFailed, match="Read-only"):
        log.append(batch("lost"), log.epoch)
    with pytest.raises(OSError, match="Read-only"):
        reopen(disk, "/data")


def test_every_descriptor_is_released_after_failures(disk: SimDisk) -> None:
    handles = Handles(disk)
    log, _ = Log.open(handles, f"/data/{FOLDER}", 200, 0, False)
    append_all(log, 5)
    fail_flush(disk, log)
    disk.fail_syncs = 1
    with pytest.raises(OSError, match="error"):
        recover(log, keep_unflushed=True)
    recover(log, keep_unflushed=True)
    log.close()
    handles.close()
    assert disk.opened == 0


# An impossible header under a valid checksum: opening refuses the headers that `validate` refuses


def test_opening_refuses_the_batches_that_validate_refuses() -> None:
    for seed in range(300):
        refused_like_validate(Random(seed))


def refused_like_validate(random: Random) -> None:
    disk = data_disk()
    filled(disk)
    changed = bytearray(read(disk, LOG))
    batch_bytes = len(changed) // 3
    at = batch_bytes + random.choice([*range(12), *range(16, 17), *range(21, 27), *range(57, 61)])
    changed[at] = random.choice([0, 1, 5, 0x80, 0xFF, changed[at] ^ 1 << random.randrange(8)])
    changed[batch_bytes + 17 : batch_bytes + 21] = google_crc32c.value(bytes(changed[batch_bytes + 21 : 2 * batch_bytes])).to_bytes(4, "big")
    overwrite(disk, LOG, bytes(changed))
    try:
        header = validate(bytes(changed), batch_bytes, len(changed))
        sound = header.size == batch_bytes and header.base_offset >= 1 and header.last_offset <= RELATIVE_OFFSET_MAX
    except CorruptBatch:
        sound = False
    try:
        position = reopen(disk, "/data")[1].position
    except DamagedLog as damaged:
        position = damaged.position
    assert (position == batch_bytes) != sound


def test_a_log_uses_the_handles_of_its_latest_opening(disk: SimDisk) -> None:
    filled(disk, 6, segment_bytes=200).close()
    elsewhere = Handles(disk)
    log, _ = Log.open(elsewhere, f"/data/{FOLDER}", 200, 0, False)
    log.use(Handles(disk))
    elsewhere.close()
    elsewhere.disk = SimDisk()  # the next look-up finds no file
    append_flushed(log, batch("new"), log.epoch)
    assert names(log) == [*(f"b{number}.0" for number in range(6)), "new.0"]


def open_log(disk: SimDisk, deferred: bool = False) -> Log:
    return Log.open(Handles(disk), f"/data/{FOLDER}", 1 << 20, 0, False, deferred=deferred)[0]


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("readable", [False, True])
def test_the_end_of_a_log_is_rewritten_after_a_failed_flush_and_a_restart(deferred: bool, readable: bool) -> None:
    """The new process reads the records from the page cache; the disk never got them, but the system counts their pages as written."""
    disk = data_disk()
    log = open_log(disk, deferred)
    append_all(log, "ab")
    log.flush()
    append_all(log, "cd")
    disk.unreadable = "" if readable else FOLDER
    fail_flush(disk, log)
    disk.unreadable = ""
    disk.kill()
    log = open_log(disk, deferred)
    assert names(log) == ["a.0", "b.0", "c.0", "d.0"]
    log.flush()
    disk.crash()
    assert names(open_log(disk, deferred)) == ["a.0", "b.0", "c.0", "d.0"]
    assert not failed_flushes(disk, f"/data/{FOLDER}")


def test_the_end_of_a_log_is_rewritten_after_an_opening_whose_sync_failed() -> None:
    disk = data_disk()
    log = open_log(disk)
    append_all(log, "ab")
    log.flush()
    append_all(log, "cd")
    disk.kill()
    disk.fail_syncs = 1
    with pytest.raises(OSError, match="Input/output"):
        open_log(disk)
    disk.kill()
    assert names(open_log(disk)) == ["a.0", "b.0", "c.0", "d.0"]
    disk.crash()
    assert names(open_log(disk)) == ["a.0", "b.0", "c.0", "d.0"]
    assert not failed_flushes(disk, f"/data/{FOLDER}")


def test_of_several_failed_flushes_the_first_counts_and_the_repair_forgets_them_all() -> None:
    disk = data_disk()
    log = open_log(disk)
    append_flushed(log, batch("a"), log.epoch)
    for offset in (10, 9, 11):
        mark_flush_failed(disk, f"/data/{FOLDER}", offset)
    assert flushed_before_failure(disk, f"/data/{FOLDER}") == 9
    disk.kill()
    open_log(disk)
    assert not failed_flushes(disk, f"/data/{FOLDER}")


@pytest.mark.parametrize("fails", [False, True])
def test_a_cut_whose_sync_failed_is_repeated(fails: bool) -> None:
    """In the log of a topic, the bytes after the cut must not reappear."""
    disk = data_disk()
    log = open_log(disk, True)
    append_all(log, "ab")
    log.flush()
    append_all(log, "cd")
    file = disk.open(LOG)
    file.truncate(file.size() - 5)
    disk.kill()
    disk.fail_syncs = int(fails)
    if fails:
        with pytest.raises(OSError, match="Input/output"):
            open_log(disk, True)
        assert failed_flushes(disk, f"/data/{FOLDER}")
        disk.kill()
    assert names(open_log(disk, True)) == ["a.0", "b.0", "c.0"]
    assert not failed_flushes(disk, f"/data/{FOLDER}")


@pytest.mark.parametrize("failures", [1, 2])
def test_data_lost_by_a_failed_flush_is_cut_with_the_appends_after_it(failures: int) -> None:
    """An append may arrive between the failure of a flush and the end of its thread; a power failure then leaves a hole before that append.

    With two failures, the next sync of another file fails too.
    """
    disk = data_disk()

    def open_log() -> tuple[Log, Truncation]:
        return Log.open(Handles(disk), f"/data/{FOLDER}", 1 << 20, 0, False)

    log, _ = open_log()
    append_all(log, "ab")
    log.flush()
    append_all(log, "cd")
    flush = log.start_flush()
    disk.fail_syncs = failures
    with pytest.raises(OSError, match="Input/output"):
        flush.run()
    append_all(log, "e")
    disk.kill()
    disk.write_back()
    disk.crash()
    log, truncation = open_log()
    assert names(log) == ["a.0", "b.0"]
    assert truncation.kept
    assert not failed_flushes(disk, f"/data/{FOLDER}")
    append_flushed(log, batch("f"), log.epoch)
    disk.crash()
    assert names(open_log()[0]) == ["a.0", "b.0", "f.0"]


def test_a_failed_flush_does_not_excuse_damage_of_flushed_data() -> None:
    disk = data_disk()
    log = Log.open(Handles(disk), f"/data/{FOLDER}", 1 << 20, 0, False)[0]
    append_all(log, "ab")
    log.flush()
    append_all(log, "cd")
    fail_flush(disk, log)
    disk.kill()
    file = disk.open(LOG)
    file.write(20, b"damage")
    file.close()
    with pytest.raises(DamagedLog, match="does not look like an interrupted write"):
        Log.open(Handles(disk), f"/data/{FOLDER}", 1 << 20, 0, False)
