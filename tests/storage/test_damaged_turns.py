"""Damaged turn files: a log recovers every batch, or is not opened."""

from __future__ import annotations

import google_crc32c
import pytest

from simulator.disk import SimDisk
from storage import DamagedLog, Handles, Log
from storage.turn_format import FILE_BYTES, NewerTurns, file_header
from storage.turn_log import PREFIX, LeftoverTurns, TurnLog
from tests.storage.logs import overwrite, read
from tests.storage.turns import FOLDER, LOGS, OLD, TURNS, TurnFile, disk_with_turns, first_version, keys, stamped_batch, turn_of

pytestmark = pytest.mark.once  # no dependence on the Python version


def outcome(disk: SimDisk, name: str, batches_in_log: int = 0) -> list[bytes] | None:
    """Restore a log that has only its first batches from the turn files; returns the keys that it has then, or None if that is refused."""
    log, _ = Log.open(Handles(disk), f"{FOLDER}/{name}-{batches_in_log}/x-0", 1 << 20, 0, False)
    for number in range(batches_in_log):
        assert log.restore(stamped_batch(f"{name} {number}", number))
    try:
        LeftoverTurns(disk, FOLDER).restore(name, log)
    except DamagedLog as damaged:
        return None if f"{FOLDER}/{PREFIX}" in str(damaged) and name in str(damaged) else [str(damaged).encode()]
    return keys(log)


def test_a_flipped_bit_refuses_exactly_the_logs_that_need_the_hidden_batches() -> None:
    written = TurnFile()
    refused: dict[int, int] = dict.fromkeys(range(len(TURNS)), 0)
    for at in range(len(written.data)):
        data = bytearray(written.data)
        data[at] ^= 1 << at % 8
        disk = disk_with_turns(bytes(data))
        turn = max(number for number, start in enumerate(written.starts) if start <= at)
        for name in LOGS:
            record_keys = outcome(disk, name)
            assert record_keys is None or record_keys == written.keys(name), (at, name)
            if at < FILE_BYTES or (name not in TURNS[turn] and turn + 1 < len(TURNS)):
                assert record_keys == written.keys(name), (at, name)
            refused[turn] += record_keys is None
            # A log with all its batches opens if it is certain that none is missing. If the last turn is damaged, this is certain only
            # if the turn's directory (list of batches) is readable.
            undamaged = outcome(disk, name, written.acknowledged[-1][name])
            assert undamaged in (written.keys(name), None)
            if turn + 1 < len(TURNS):
                assert undamaged == written.keys(name)
        leftover = LeftoverTurns(disk, FOLDER)
        assert bool(leftover.damage) == (at >= FILE_BYTES), at
        assert not leftover.can_be_removed
    assert min(refused.values()) > 20


@pytest.mark.parametrize("counts", [False, True])
def test_a_cut_file_ends_in_a_torn_turn_unless_a_later_file_counts_more(counts: bool) -> None:
    written = TurnFile()
    next_file = [file_header(1, len(written.data))] if counts else []
    for end in range(len(written.data)):
        disk = disk_with_turns(written.data[:end], *next_file)
        last_turn = max(number for number, start in enumerate(written.starts) if start <= max(end, 0))
        leftover = LeftoverTurns(disk, FOLDER)
        assert bool(leftover.damage) == counts
        for name in LOGS:
            record_keys = outcome(disk, name)
            if counts:
                assert record_keys is None
            else:
                assert record_keys == written.keys(name)[: written.acknowledged[last_turn][name]]


def test_zeros_at_any_position_are_a_torn_end_or_damage() -> None:
    written = TurnFile()
    size = len(written.data)
    last = written.starts[-2]
    for begin in range(FILE_BYTES, size, 5):
        for length in (1, 8, 40, 200, size):
            data = bytearray(written.data)
            data[begin : begin + length] = bytes(len(data[begin : begin + length]))
            if data == written.data:
                continue
            disk = disk_with_turns(bytes(data))
            torn = bool(LeftoverTurns(disk, FOLDER).torn)
            for name in LOGS:
                record_keys = outcome(disk, name)
                if record_keys is not None and record_keys != written.keys(name):
                    # The last turn, or zeros up to the end of the file: the power failed during the write.
                    assert torn
                    assert begin + length >= size or begin >= last
                    assert record_keys == written.keys(name)[: len(record_keys)]
                    written_before = [count[name] for count, start in zip(written.acknowledged, written.starts, strict=True) if start <= begin < start + size]
                    assert len(record_keys) >= min(written_before)


def test_a_tail_of_zeros_is_a_torn_end() -> None:
    written = TurnFile()
    for zeros in (1, 31, 32, 5_000):
        disk = disk_with_turns(written.data + bytes(zeros))
        leftover = LeftoverTurns(disk, FOLDER)
        assert (leftover.damage, leftover.torn) == ([], [(f"{FOLDER}/{PREFIX}1", zeros)])
        assert [outcome(disk, name) for name in LOGS] == [written.keys(name) for name in LOGS]


def test_lost_turns_are_described_by_the_next_readable_turn() -> None:
    written = TurnFile((("a-0", "b-0"), ("a-0",), ("c-0",), ("b-0",), ("d-0",)))
    data = bytearray(written.data)
    for at in range(written.starts[1], written.starts[4]):
        data[at] = 0x55
    disk = disk_with_turns(bytes(data))
    assert [outcome(disk, name) for name in LOGS] == [None, None, None]
    assert [outcome(disk, name, written.acknowledged[-1][name]) for name in LOGS] == [written.keys(name) for name in LOGS]
    assert outcome(disk, "d-0") == [b"d-0 0.0"]
    assert outcome(disk, "e-0") == []  # no turn had a batch of it


def test_a_log_with_a_later_batch_is_not_affected_by_unreadable_turns() -> None:
    intact = first_version([("a-0", stamped_batch("a-0 0", 0))], [("a-0", stamped_batch("a-0 1", 1))], [("b-0", stamped_batch("b-0 0", 0))])
    data = bytearray(intact)
    data[20] ^= 1
    disk = disk_with_turns(bytes(data))
    assert outcome(disk, "a-0", 1) == [b"a-0 0.0", b"a-0 1.0"]  # the next readable batch begins where the log ends
    assert outcome(disk, "a-0") is None
    assert outcome(disk, "b-0") == [b"b-0 0.0"]  # its first batch is in a later turn
    assert outcome(disk, "c-0") is None
    leftover = LeftoverTurns(disk, FOLDER)
    for name, batches_in_log in (("a-0", 1), ("b-0", 0)):
        log, _ = Log.open(Handles(disk), f"{FOLDER}/again/{name}", 1 << 20, 0, False)
        for number in range(batches_in_log):
            log.restore(stamped_batch(f"{name} {number}", number))
        leftover.restore(name, log)
    assert not leftover.can_be_removed  # the file is damaged, and stays


def test_bytes_past_the_counted_length_are_no_part_of_a_file() -> None:
    written = TurnFile()
    counted = written.starts[2]
    disk = disk_with_turns(written.data, file_header(1, counted))
    assert LeftoverTurns(disk, FOLDER).damage == []
    assert [outcome(disk, name) for name in LOGS] == [written.keys(name)[: written.acknowledged[2][name]] for name in LOGS]


def test_a_later_file_names_the_logs_at_the_end_of_the_previous_file() -> None:
    disk = disk_with_turns()
    first = TurnLog(disk, FOLDER, 1)
    first.write(turn_of(("a-0", stamped_batch("a-0 0", 0)), ("b-0", stamped_batch("b-0 0", 0))))
    second = TurnLog(disk, FOLDER, 2, first)
    second.write(turn_of(("b-0", stamped_batch("b-0 1", 1))))
    data = bytearray(read(disk, f"{FOLDER}/{PREFIX}1"))
    data[FILE_BYTES + 3] ^= 1
    overwrite(disk, f"{FOLDER}/{PREFIX}1", bytes(data))
    assert [outcome(disk, name) for name in ("a-0", "b-0", "c-0")] == [None, None, []]
    assert outcome(disk, "a-0", 1) == [b"a-0 0.0"]
    assert outcome(disk, "b-0", 1) == [b"b-0 0.0", b"b-0 1.0"]


def test_a_batch_that_was_cut_off_and_replaced_is_no_damage() -> None:
    disk = disk_with_turns()
    TurnLog(disk, FOLDER, 1).write(turn_of(("a-0", stamped_batch("cut", 1, 2)), ("a-0", stamped_batch("cut too", 3))))
    log, _ = Log.open(Handles(disk), f"{FOLDER}/a-0", 1 << 20, 0, False)
    for number in range(2):
        log.restore(stamped_batch(f"a-0 {number}", number))
    assert LeftoverTurns(disk, FOLDER).restore("a-0", log) == 0
    assert keys(log) == [b"a-0 0.0", b"a-0 1.0"]


def test_a_file_of_a_newer_version_is_refused() -> None:
    header = bytearray(file_header(0, 0))
    header[5] += 1
    header[-4:] = google_crc32c.value(bytes(header[:-4])).to_bytes(4, "big")
    with pytest.raises(NewerTurns, match="version 2 and this version reads up to 1"):
        LeftoverTurns(disk_with_turns(bytes(header)), FOLDER)


# Files of the version without a header


def test_files_without_a_header_are_still_read_whole_and_torn() -> None:
    intact = first_version(*OLD)
    ends = [len(first_version(*OLD[:count])) for count in range(len(OLD) + 1)]
    for end in range(len(intact) + 1):
        disk = disk_with_turns(intact[:end])
        turns = sum(limit <= end for limit in ends) - 1
        assert LeftoverTurns(disk, FOLDER).damage == []
        assert outcome(disk, "a-0") == [b"a-0 0.0", b"a-0 1.0"][: (turns > 0) + (turns > 2)]
        assert outcome(disk, "b-0") == [b"b-0 0.0", b"b-0 1.0"][: (turns > 0) + (turns > 1)]


def test_damage_in_a_file_without_a_header_refuses_the_logs_that_it_may_concern() -> None:
    intact = first_version(*OLD)
    for at in range(len(intact)):
        data = bytearray(intact)
        data[at] ^= 1 << at % 8
        disk = disk_with_turns(bytes(data))
        for name, expected in (("a-0", [b"a-0 0.0", b"a-0 1.0"]), ("b-0", [b"b-0 0.0", b"b-0 1.0"])):
            record_keys = outcome(disk, name)
            assert record_keys is None or record_keys == expected, (at, name)
        assert LeftoverTurns(disk, FOLDER).damage
