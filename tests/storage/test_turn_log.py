"""The log of turns: writing it, and restoring logs from it."""

from __future__ import annotations

import errno
from random import Random

import pytest

from protocol.batch import facts_of, read_header
from simulator.disk import SimDisk
from storage import DamagedLog, Handles, Log
from storage.turn_format import FILE_BYTES, StoredBatch, header_of
from storage.turn_log import PREFIX, LeftoverTurns, TurnLog, covered_bytes, is_turn_log
from tests.storage.conftest import DataFolder
from tests.storage.logs import batch, overwrite, read
from tests.storage.turns import keys, stamped_batch, turn_of

FOLDER = "/data"


def opened(disk: SimDisk, name: str = "a-0") -> Log:
    return Log.open(Handles(disk), f"{FOLDER}/{name}", 1 << 20, 0, False)[0]


def keys_of(*batches: bytes) -> list[bytes]:
    return [key for turn_batch in batches for key, _ in facts_of(turn_batch) if key is not None]


def test_a_log_that_lost_everything_is_restored_from_the_turns(disk: SimDisk) -> None:
    first, second, other_log_batch = stamped_batch("x", 0, 2), stamped_batch("y", 2), stamped_batch("z", 0)
    turns = TurnLog(disk, FOLDER, 1)
    turns.write(turn_of(("a-0", first), ("b-0", other_log_batch)))
    turns.write(turn_of(("a-0", second)))
    disk.crash()
    leftover = LeftoverTurns(disk, FOLDER)
    assert leftover.numbers == [1]
    log = opened(disk)
    assert leftover.restore("a-0", log) == 2
    assert (keys(log), log.next_offset, log.flushed_offset) == (keys_of(first, second), 3, 3)
    assert not leftover.can_be_removed
    assert leftover.restore("b-0", opened(disk, "b-0")) == 1
    assert leftover.can_be_removed
    disk.crash()
    assert keys(opened(disk)) == keys_of(first, second)  # it was flushed


@pytest.mark.parametrize("batches_in_log", [1, 2, 3])
def test_a_log_restores_only_the_batches_it_lacks(disk: SimDisk, batches_in_log: int) -> None:
    batches = [stamped_batch(name, number) for number, name in enumerate("xyz")]
    TurnLog(disk, FOLDER, 3).write(turn_of(*[("a-0", part) for part in batches]))
    log = opened(disk)
    for restored in batches[:batches_in_log]:
        assert log.restore(restored)
    size = log.size
    assert LeftoverTurns(disk, FOLDER).restore("a-0", log) == 3 - batches_in_log
    assert keys(log) == keys_of(*batches)
    assert (log.size == size) == (batches_in_log == 3)


def test_a_log_missing_batches_before_a_turn_is_not_opened(disk: SimDisk) -> None:
    TurnLog(disk, FOLDER, 1).write(turn_of(("a-0", stamped_batch("y", 1))))
    log = opened(disk)
    leftover = LeftoverTurns(disk, FOLDER)
    with pytest.raises(DamagedLog, match="a-0 had a batch here that ends before offset 2, but the log now ends before 0"):
        leftover.restore("a-0", log)
    assert (leftover.can_be_removed, log.next_offset) == (False, 0)


def test_a_restored_log_continues_at_a_newer_epoch(disk: SimDisk) -> None:
    TurnLog(disk, FOLDER, 1).write(turn_of(("a-0", stamped_batch("x", 0, epoch=5))))
    log = opened(disk)
    LeftoverTurns(disk, FOLDER).restore("a-0", log)
    assert log.epoch == 6
    log.append(batch("y"), 6)
    assert opened(disk).epoch == 7


def test_later_turn_files_override_batches_of_earlier_files(disk: SimDisk) -> None:
    """An unacknowledged batch was cut off the log, which then continued from there."""
    old = [stamped_batch("x", 0), stamped_batch("cut", 1, 2), stamped_batch("cut too", 3)]
    new = [stamped_batch("y", 1), stamped_batch("z", 2)]
    TurnLog(disk, FOLDER, 9).write(turn_of(*[("a-0", part) for part in old]))
    TurnLog(disk, FOLDER, 10).write(turn_of(*[("a-0", part) for part in new]))
    log = opened(disk)
    assert LeftoverTurns(disk, FOLDER).restore("a-0", log) == 3
    assert keys(log) == keys_of(old[0], *new)


@pytest.mark.parametrize("fault", ["fail_writes", "fail_syncs"])
def test_a_failed_turn_write_leaves_no_bytes(disk: SimDisk, fault: str) -> None:
    turns = TurnLog(disk, FOLDER, 1)
    turns.write(turn_of(("a-0", stamped_batch("x", 0))))
    setattr(disk, fault, 1)
    with pytest.raises(OSError, match="error"):
        turns.write(turn_of(("a-0", stamped_batch("y", 1))))
    assert len(LeftoverTurns(disk, FOLDER).batches_of("a-0")) == 1
    # The next file does not count the failed batch either: it names 1 as the end offset of a-0.
    TurnLog(disk, FOLDER, 2, turns).write(turn_of(("b-0", stamped_batch("z", 0))))
    path = f"{FOLDER}/{PREFIX}1"
    overwrite(disk, path, b"?" * len(read(disk, path)))
    leftover = LeftoverTurns(disk, FOLDER)
    assert leftover.missing_batches("a-0", 1) == []
    with pytest.raises(DamagedLog):
        leftover.missing_batches("a-0", 0)


def test_removing_a_turn_file_syncs_its_folder(disk: SimDisk) -> None:
    turns = TurnLog(disk, FOLDER, 1)
    turns.remove()
    turns.write(turn_of(("a-0", stamped_batch("x", 0))))
    turns.remove()
    assert disk.opened == 0
    disk.crash()
    assert disk.list(FOLDER) == []


@pytest.mark.parametrize("seed", range(12))
def test_written_turns_survive_a_crash_and_removed_files_stay_removed(seed: int) -> None:
    disk = SimDisk(Random(seed))
    disk.make_folder(FOLDER)
    first, second = stamped_batch("x", 0), stamped_batch("y", 1)
    turns = TurnLog(disk, FOLDER, 1)
    turns.write(turn_of(("a-0", first)))
    turns.write(turn_of(("a-0", second)))
    disk.crash()
    assert LeftoverTurns(disk, FOLDER).batches_of("a-0") == [first, second]
    rewritten = TurnLog(disk, FOLDER, 2)
    rewritten.write(turn_of(("a-0", first)))
    rewritten.remove()
    disk.crash()
    assert disk.list(FOLDER) == ["turns.1"]


def test_a_file_is_opened_once_and_closed_once(data_folder: DataFolder) -> None:
    turns = TurnLog(data_folder.disk, data_folder.path, 1)
    for number in range(3):
        turns.write(turn_of(("a-0", stamped_batch("x", number))))
    if isinstance(data_folder.disk, SimDisk):
        assert (data_folder.disk.opened, data_folder.disk.syncs) == (1, 3)
    turns.close()
    turns.close()
    leftover = LeftoverTurns(data_folder.disk, data_folder.path)
    assert [read_header(part, 0).base_offset for part in leftover.batches_of("a-0")] == [0, 1, 2]
    if isinstance(data_folder.disk, SimDisk):
        assert data_folder.disk.opened == 0


def test_a_full_disk_is_reported_even_if_the_partial_write_cannot_be_cut(disk: SimDisk) -> None:
    disk.room, disk.fail_truncates = 3, 1
    with pytest.raises(OSError, match="No space") as refused:
        TurnLog(disk, FOLDER, 1).write(turn_of(("a-0", stamped_batch("x", 0))))
    assert refused.value.errno == errno.ENOSPC


def test_a_file_header_has_number_and_acknowledged_size_of_the_previous_file(disk: SimDisk) -> None:
    first = TurnLog(disk, FOLDER, 1)
    unwritten = TurnLog(disk, FOLDER, 2, first)
    unwritten.write(turn_of(("a-0", stamped_batch("x", 0))))
    assert header_of(read(disk, f"{FOLDER}/turns.2")) == (0, 0)  # the first file was never written
    third = TurnLog(disk, FOLDER, 3, unwritten)
    third.write(turn_of(("a-0", stamped_batch("y", 1))))
    assert header_of(read(disk, f"{FOLDER}/turns.3")) == (2, unwritten.size)
    assert unwritten.size == len(read(disk, f"{FOLDER}/turns.2"))


@pytest.mark.parametrize("number", [0, 1, 12])
def test_the_first_file_may_have_any_number(disk: SimDisk, number: int) -> None:
    TurnLog(disk, FOLDER, number).write(turn_of(("a-0", stamped_batch("x", 0))))
    leftover = LeftoverTurns(disk, FOLDER)
    assert (len(leftover.batches_of("a-0")), leftover.torn, leftover.damage) == (1, [], [])


def test_a_changed_batch_is_damage_for_its_own_log_only(disk: SimDisk) -> None:
    sound, damaged_batch = stamped_batch("x", 0), stamped_batch("y", 0)
    TurnLog(disk, FOLDER, 1).write(turn_of(("a-0", sound), ("b-0", damaged_batch)))
    data = bytearray(read(disk, f"{FOLDER}/turns.1"))
    data[-1] ^= 1
    overwrite(disk, f"{FOLDER}/turns.1", bytes(data))
    leftover = LeftoverTurns(disk, FOLDER)
    assert leftover.damage == [(f"{FOLDER}/turns.1", StoredBatch("b-0", 0, 1, None, len(data) - len(damaged_batch)))]
    for _ in range(2):  # a damaged file is not used up: it stays for the next start
        log, _ = Log.open(Handles(disk), f"{FOLDER}/again/a-0", 1 << 20, 0, False)
        leftover.restore("a-0", log)
        assert keys(log) == keys_of(sound)
        assert (leftover.batches_of("a-0"), leftover.batches_of("b-0"), leftover.can_be_removed) == ([sound], [], False)


def test_a_file_of_which_no_turn_can_be_read_is_not_used_up(disk: SimDisk) -> None:
    TurnLog(disk, FOLDER, 1).write(turn_of(("a-0", stamped_batch("x", 0))))
    data = bytearray(read(disk, f"{FOLDER}/turns.1"))
    data[FILE_BYTES] ^= 1
    overwrite(disk, f"{FOLDER}/turns.1", bytes(data))
    leftover = LeftoverTurns(disk, FOLDER)
    assert (leftover.batches_of("a-0"), len(leftover.damage), leftover.can_be_removed) == ([], 1, False)


def test_a_log_with_another_batch_at_that_offset_lacks_nothing(disk: SimDisk) -> None:
    TurnLog(disk, FOLDER, 1).write(turn_of(("a-0", stamped_batch("cut", 0, 3))))
    log = opened(disk)
    log.restore(stamped_batch("x", 0))
    assert LeftoverTurns(disk, FOLDER).restore("a-0", log) == 0
    assert log.next_offset == 1


def test_a_batch_after_a_replaced_batch_is_restored(disk: SimDisk) -> None:
    """The batch that replaced it is in the log itself, the next batch in the turns file again."""
    later_batch = stamped_batch("behind", 2)
    TurnLog(disk, FOLDER, 1).write(turn_of(("a-0", stamped_batch("cut", 1, 2)), ("a-0", later_batch)))
    log = opened(disk)
    for number, name in enumerate("xy"):
        log.restore(stamped_batch(name, number))
    assert LeftoverTurns(disk, FOLDER).restore("a-0", log) == 1
    assert keys(log)[2:] == keys_of(later_batch)


def test_a_complete_log_is_not_flushed_again(disk: SimDisk) -> None:
    stamped = stamped_batch("x", 0)
    TurnLog(disk, FOLDER, 1).write(turn_of(("a-0", stamped)))
    log = opened(disk)
    log.restore(stamped)
    changes = len(disk.changes)
    assert LeftoverTurns(disk, FOLDER).restore("a-0", log) == 0
    assert len(disk.changes) == changes


@pytest.mark.parametrize("name", ["turns.", "turns", "turns.x", "turns.1.old", "returns.1", "turns-1", "turns.\u0661"])
def test_other_file_names_are_not_turn_files(name: str) -> None:
    assert is_turn_log(f"{PREFIX}12")
    assert not is_turn_log(name)


def test_covered_bytes_counts_only_consecutive_batches() -> None:
    first, second, third = stamped_batch("x", 0), stamped_batch("yy", 1), stamped_batch("zzz", 2)
    assert [covered_bytes([first, second], offset) for offset in range(3)] == [len(first + second), len(second), 0]
    assert covered_bytes([first, third], 0) == len(first)
