"""The format of turn files: turns, torn ends and damage, to the byte."""

from __future__ import annotations

import google_crc32c
import pytest

from protocol.batch import HEADER_BYTES, LENGTH_FROM
from storage.tearing import SECTOR
from storage.turn_format import (
    FILE_BYTES,
    HEAD_BYTES,
    LostTurns,
    StoredBatch,
    file_header,
    header_of,
    name_checksum,
    read_turns,
    turn_bytes,
)
from storage.turn_log import PREFIX, TurnLog
from tests.storage.logs import read
from tests.storage.turns import FOLDER, OLD, TurnFile, disk_with_turns, first_version, stamped_batch, turn_of

pytestmark = pytest.mark.once  # no dependence on the Python version


def test_a_partial_file_header_is_ignored() -> None:
    header = file_header(3, 77)
    assert header_of(header) == header_of(header + b"more") == (3, 77)
    for at in range(len(header)):
        assert header_of(header[:at]) is None
        assert header_of(header[:at] + bytes([header[at] ^ 1]) + header[at + 1 :]) is None, at
    another = b"other" + header[5:-4]
    assert header_of(another + google_crc32c.value(another).to_bytes(4, "big")) is None  # its checksum is right


def test_the_length_of_a_torn_turn_is_exact_to_the_byte() -> None:
    written = TurnFile()
    last = written.starts[-2]
    for end in range(FILE_BYTES, len(written.data)):
        start = max(FILE_BYTES, *(start for start in written.starts if start <= end))
        assert read_turns(written.data[:end]).torn_bytes == end - start, end
    for begin in range(last, len(written.data) - 40):
        # No byte was written from there on, though the file has its full length: the turn does not count.
        turns_read = read_turns(written.data[:begin] + bytes(len(written.data) - begin))
        assert turns_read.torn_bytes == len(written.data) - last, begin
        assert [piece.position for piece in turns_read.pieces] == [piece.position for piece in read_turns(written.data[:last]).pieces], begin
        longer = read_turns(written.data[:begin] + bytes(len(written.data) - begin + 3 * SECTOR))  # the file grew further than the turn
        assert (longer.torn_bytes, longer.pieces) == (len(written.data) - last + 3 * SECTOR, turns_read.pieces), begin
    assert read_turns(written.data).torn_bytes == 0


def test_a_zero_sector_is_torn_in_the_last_turn_and_damage_before_it() -> None:
    entries = [(f"{number:04d}-0", b"x" * 3_000, 0, 1) for number in range(60)]
    data = file_header(0, 0) + turn_bytes(1, entries, {}) + turn_bytes(2, entries, {})
    second = FILE_BYTES + (len(data) - FILE_BYTES) // 2
    in_directory = (second + HEAD_BYTES) // SECTOR * SECTOR + SECTOR
    for hole, torn in ((SECTOR, False), (second - 3 * SECTOR, False), (in_directory, True), (len(data) - 10 * SECTOR, True)):
        at = hole // SECTOR * SECTOR
        holed = data[:at] + bytes(SECTOR) + data[at + SECTOR :]
        turns_read = read_turns(holed)
        assert turns_read.torn_bytes == (len(data) - second if torn else 0), at
        turns = read_turns(holed, len(data))  # the next file says that all these bytes were acknowledged, so nothing is torn
        assert turns.torn_bytes == 0
        assert any(not isinstance(piece, StoredBatch) or piece.batch is None for piece in turns.pieces)


def test_a_file_of_zeros_is_damage_if_a_later_file_counts_it_else_torn() -> None:
    written = TurnFile()
    data = file_header(0, 0) + bytes(len(written.data) - FILE_BYTES)
    turns_read = read_turns(data, len(data))
    assert ([(piece.position, piece.size) for piece in turns_read.pieces if not isinstance(piece, StoredBatch)], turns_read.torn_bytes) == (
        [(FILE_BYTES, len(data) - FILE_BYTES)],
        0,
    )
    alone = read_turns(data)
    assert (alone.pieces, alone.torn_bytes) == ([], len(data) - FILE_BYTES)


def test_a_repeated_turn_is_damage() -> None:
    """Turns of a file have increasing numbers: any other number is damage."""
    first, second, third = (turn_bytes(number, [("a-0", b"batch %d" % number, number, number + 1)], {}) for number in (1, 2, 3))
    for appended_twice in (first, second):
        turns_read = read_turns(file_header(0, 0) + first + second + appended_twice + third)
        bases = [piece.base for piece in turns_read.pieces if isinstance(piece, StoredBatch)]
        lost = [(piece.position, piece.size, piece.reason) for piece in turns_read.pieces if not isinstance(piece, StoredBatch)]
        assert bases == [1, 2, 3]
        assert lost == [(FILE_BYTES + len(first) + len(second), len(appended_twice), "no turn begins there")]


def test_adjacent_lost_parts_are_one_part() -> None:
    written = TurnFile()
    data = bytearray(written.data)
    for number in (1, 2):
        data[written.starts[number] + HEAD_BYTES + 5] ^= 1  # in the directory
    lost = [piece for piece in read_turns(bytes(data)).pieces if not isinstance(piece, StoredBatch)]
    begin, end = written.starts[1], written.starts[3]
    assert [(piece.position, piece.size, piece.reason) for piece in lost] == [(begin, end - begin, "its directory has a wrong checksum")]
    assert lost[0].ends is not None


def test_a_file_shorter_than_its_counted_length_reports_the_missing_bytes() -> None:
    written = TurnFile()
    cut = written.starts[2]
    for missing in (0, 1, 50):
        turns_read = read_turns(written.data[:cut], cut + missing)
        lost = [(piece.position, piece.size, piece.reason) for piece in turns_read.pieces if not isinstance(piece, StoredBatch)]
        assert lost == ([(cut, missing, f"{missing} bytes are missing at the end")] if missing else [])
        assert turns_read.torn_bytes == 0


def test_an_inserted_byte_loses_no_later_turn() -> None:
    written = TurnFile()
    intact = read_turns(written.data)
    for at in written.starts[1:-1]:
        turns_read = read_turns(written.data[:at] + b"?" + written.data[at:])
        lost = [piece for piece in turns_read.pieces if not isinstance(piece, StoredBatch)]
        assert [(piece.position, piece.size) for piece in lost] == [(at, 1)]
        read, expected = ([(piece.name, piece.base) for piece in turns.pieces if isinstance(piece, StoredBatch)] for turns in (turns_read, intact))
        assert read == expected


def test_a_file_with_counted_length_0_yields_nothing() -> None:
    for data in (TurnFile().data, first_version([("a-0", stamped_batch("a-0 0", 0))])):
        turns_read = read_turns(data, 0)
        assert (turns_read.pieces, turns_read.torn_bytes) == ([], 0)


def test_turns_are_read_after_a_damaged_file_header() -> None:
    written = TurnFile()
    intact = read_turns(written.data)
    for at in range(FILE_BYTES):
        data = bytearray(written.data)
        data[at] ^= 0x10
        assert read_turns(bytes(data)) == intact
        data[FILE_BYTES + 1 :] = b""
        turns_read = read_turns(bytes(data))  # and the next turn is incomplete
        assert turns_read.pieces == []
        assert turns_read.torn_bytes in (1, FILE_BYTES + 1)  # without its magic, the file header is read as a torn turn of the first format
    no_turn = read_turns(b"TnTL" + b"?" * 200)
    assert [(piece.position, piece.size) for piece in no_turn.pieces if not isinstance(piece, StoredBatch)] == [(FILE_BYTES, 204 - FILE_BYTES)]


def test_a_cut_file_with_a_known_length_is_damaged_to_its_end() -> None:
    written = TurnFile()
    batches = sum(isinstance(piece, StoredBatch) for piece in read_turns(written.data).pieces)
    for cut in range(FILE_BYTES, len(written.data), 7):
        turns_read = read_turns(written.data[:cut], len(written.data))
        assert turns_read.torn_bytes == 0
        assert turns_read.pieces[-1] == LostTurns(cut, len(written.data) - cut, f"{len(written.data) - cut} bytes are missing at the end", None)
        lost = [piece for piece in turns_read.pieces[:-1] if isinstance(piece, LostTurns)]
        assert sum(piece.size for piece in lost) in (0, cut - max(FILE_BYTES, *(start for start in written.starts if start <= cut)))
        assert sum(isinstance(piece, StoredBatch) for piece in turns_read.pieces) <= batches


def test_trailing_garbage_shorter_than_a_turn_header_is_torn() -> None:
    entries = [("a-0", bytes(range(1, 251)) * 8, 0, 1)]
    first, second = turn_bytes(1, entries, {}), turn_bytes(2, entries, {})
    holed = file_header(0, 0) + first[:200] + bytes(1_500) + first[1_700:]
    assert len(holed) == FILE_BYTES + len(first)
    for trailing_bytes, torn, lost in ((HEAD_BYTES - 1, HEAD_BYTES - 1, []), (HEAD_BYTES, 0, [(len(holed) + len(second), HEAD_BYTES)])):
        turns_read = read_turns(holed + second + b"?" * trailing_bytes)
        assert (turns_read.torn_bytes, [(piece.position, piece.size) for piece in turns_read.pieces if isinstance(piece, LostTurns)]) == (torn, lost)
    for changed in (HEAD_BYTES + 5, len(second) - 1):  # in its directory, in its batch
        third_turn = bytearray(second)
        third_turn[changed] ^= 1
        assert read_turns(holed + third_turn).torn_bytes == 0


def test_the_first_turn_has_the_log_ends_of_the_previous_file() -> None:
    disk = disk_with_turns()
    first = TurnLog(disk, FOLDER, 1)
    first.write(turn_of(("a-0", stamped_batch("a-0 0", 0)), ("b-0", stamped_batch("b-0 0", 0))))
    second = TurnLog(disk, FOLDER, 2, first)
    for number in (1, 2):
        second.write(turn_of(("b-0", stamped_batch(f"b-0 {number}", number))))
    assert read_turns(read(disk, f"{FOLDER}/{PREFIX}2")).before_ends == {name_checksum("a-0"): 1, name_checksum("b-0"): 1}
    assert read_turns(read(disk, f"{FOLDER}/{PREFIX}1")).before_ends == {}


def test_turns_are_counted_from_1() -> None:
    turns = [turn_bytes(number, [("a-0", b"batch", number, number + 1)], {}) for number in (0, 1)]
    turns_read = read_turns(file_header(0, 0) + b"".join(turns))
    assert [piece.base if isinstance(piece, StoredBatch) else -piece.size for piece in turns_read.pieces] == [-len(turns[0]), 1]


# Files of the first format, without a header


def test_the_remainder_of_a_file_without_a_header_is_exact_to_the_byte() -> None:
    data = first_version(*OLD)
    starts = [len(first_version(*OLD[:count])) for count in range(len(OLD) + 1)]
    turns_read = read_turns(data)
    batches = [(piece.name, piece.base, piece.end) for piece in turns_read.pieces if isinstance(piece, StoredBatch)]
    assert batches == [("a-0", 0, 1), ("b-0", 0, 1), ("b-0", 1, 2), ("a-0", 1, 2)]
    assert all(isinstance(piece, StoredBatch) and data[piece.position :].startswith(piece.batch or b"?") for piece in turns_read.pieces)
    assert (turns_read.torn_bytes, turns_read.before_ends) == (0, None)
    for end in range(starts[2] + 1, starts[3]):
        torn = read_turns(data[:end])
        assert (torn.pieces, torn.torn_bytes) == (turns_read.pieces[:3], end - starts[2]), end
    holed = read_turns(data[:-40] + bytes(40))  # the file grew by its length, but the end was not written
    assert (holed.pieces, holed.torn_bytes) == (turns_read.pieces[:3], starts[3] - starts[2])
    for number, pieces in enumerate((turns_read.pieces[2:], [*turns_read.pieces[:2], turns_read.pieces[3]], turns_read.pieces[:3])):
        changed = bytearray(data)
        changed[starts[number] + 20] ^= 1
        lost = LostTurns(starts[number], starts[number + 1] - starts[number], "a turn has a wrong checksum", None)
        assert sorted(read_turns(bytes(changed)).pieces, key=lambda piece: piece.position) == sorted([lost, *pieces], key=lambda piece: piece.position)
    between = read_turns(data[: starts[1]] + b"?" + data[starts[1] :])
    assert [(piece.position, piece.size) for piece in between.pieces if isinstance(piece, LostTurns)] == [(starts[1], 1)]
    assert len(between.pieces) == 5


def test_an_impossible_turn_in_a_file_without_header_is_refused_despite_its_checksum() -> None:
    sound = stamped_batch("a-0 0", 0)
    unknown_format = sound[:16] + b"\1" + sound[17:]  # another batch format
    for name, batch in (("", sound), ("a-0", unknown_format), ("n" * 80, b"\2" * (HEADER_BYTES - 1))):
        data = first_version([(name, batch)])
        assert read_turns(data).pieces == [LostTurns(0, len(data), "a turn has a wrong checksum", None)]
    emptied = sound[:8] + (HEADER_BYTES - LENGTH_FROM).to_bytes(4, "big") + sound[12:HEADER_BYTES]
    assert [isinstance(piece, StoredBatch) for piece in read_turns(first_version([("a-0", emptied)])).pieces] == [True]
