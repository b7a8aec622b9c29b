"""The format of turn files: turns, torn ends and damage, to the byte."""

from __future__ import annotations

import google_crc32c
import pytest

from protocol.batch import HEADER_BYTES, LENGTH_FROM
from storage.tearing import SECTOR
from storage.turn_format import FILE_BYTES, HEAD_BYTES, Kept, Lost, file_header, header_of, name_checksum, read_turns, turn_bytes
from storage.turn_log import PREFIX, TurnLog
from tests.storage.logs import read
from tests.storage.turns import FOLDER, OLD, TurnFile, disk_with_turns, first_version, stamped_batch, turn_of

pytestmark = pytest.mark.once  # pure rules: one Python speaks for all


def test_a_header_counts_whole_or_not_at_all() -> None:
    header = file_header(3, 77)
    assert header_of(header) == header_of(header + b"more") == (3, 77)
    for at in range(len(header)):
        assert header_of(header[:at]) is None
        assert header_of(header[:at] + bytes([header[at] ^ 1]) + header[at + 1 :]) is None, at
    another = b"other" + header[5:-4]
    assert header_of(another + google_crc32c.value(another).to_bytes(4, "big")) is None  # its checksum is right


def test_how_much_of_a_torn_turn_there_is_is_told_to_the_byte() -> None:
    written = TurnFile()
    last = written.starts[-2]
    for end in range(FILE_BYTES, len(written.data)):
        start = max(FILE_BYTES, *(one for one in written.starts if one <= end))
        assert read_turns(written.data[:end]).torn_bytes == end - start, end
    for begin in range(last, len(written.data) - 40):
        # From there on nothing was written, though the file has its length: nothing of the turn counts.
        found = read_turns(written.data[:begin] + bytes(len(written.data) - begin))
        assert found.torn_bytes == len(written.data) - last, begin
        assert [one.position for one in found.pieces] == [one.position for one in read_turns(written.data[:last]).pieces], begin
        longer = read_turns(written.data[:begin] + bytes(len(written.data) - begin + 3 * SECTOR))  # the file grew further than the turn
        assert (longer.torn_bytes, longer.pieces) == (len(written.data) - last + 3 * SECTOR, found.pieces), begin
    assert read_turns(written.data).torn_bytes == 0


def test_a_sector_of_zeros_in_the_last_turn_is_torn_and_before_it_or_followed_by_others_it_is_damage() -> None:
    entries = [(f"{number:04d}-0", b"x" * 3_000, 0, 1) for number in range(60)]
    data = file_header(0, 0) + turn_bytes(1, entries, {}) + turn_bytes(2, entries, {})
    second = FILE_BYTES + (len(data) - FILE_BYTES) // 2
    in_directory = (second + HEAD_BYTES) // SECTOR * SECTOR + SECTOR
    for hole, torn in ((SECTOR, False), (second - 3 * SECTOR, False), (in_directory, True), (len(data) - 10 * SECTOR, True)):
        at = hole // SECTOR * SECTOR
        holed = data[:at] + bytes(SECTOR) + data[at + SECTOR :]
        found = read_turns(holed)
        assert found.torn_bytes == (len(data) - second if torn else 0), at
        told = read_turns(holed, len(data))  # a later file says that all of it counts: then nothing is torn
        assert told.torn_bytes == 0
        assert any(not isinstance(one, Kept) or one.batch is None for one in told.pieces)


def test_a_file_that_counts_and_reads_as_zeros_is_damage_and_one_of_which_nobody_says_so_is_torn() -> None:
    written = TurnFile()
    data = file_header(0, 0) + bytes(len(written.data) - FILE_BYTES)
    found = read_turns(data, len(data))
    assert ([(piece.position, piece.size) for piece in found.pieces if not isinstance(piece, Kept)], found.torn_bytes) == (
        [(FILE_BYTES, len(data) - FILE_BYTES)],
        0,
    )
    alone = read_turns(data)
    assert (alone.pieces, alone.torn_bytes) == ([], len(data) - FILE_BYTES)


def test_a_turn_that_stands_there_again_is_damage() -> None:
    """Turns of a file have growing numbers: one that has not does not belong there."""
    first, second, third = (turn_bytes(number, [("a-0", b"batch %d" % number, number, number + 1)], {}) for number in (1, 2, 3))
    for again in (first, second):
        found = read_turns(file_header(0, 0) + first + second + again + third)
        kept = [piece.base for piece in found.pieces if isinstance(piece, Kept)]
        lost = [(piece.position, piece.size, piece.reason) for piece in found.pieces if not isinstance(piece, Kept)]
        assert kept == [1, 2, 3]
        assert lost == [(FILE_BYTES + len(first) + len(second), len(again), "no turn begins there")]


def test_stretches_that_are_lost_one_behind_the_other_are_one() -> None:
    written = TurnFile()
    data = bytearray(written.data)
    for number in (1, 2):
        data[written.starts[number] + HEAD_BYTES + 5] ^= 1  # in the directory
    lost = [piece for piece in read_turns(bytes(data)).pieces if not isinstance(piece, Kept)]
    begin, end = written.starts[1], written.starts[3]
    assert [(piece.position, piece.size, piece.reason) for piece in lost] == [(begin, end - begin, "its directory is not what was written")]
    assert lost[0].ends is not None


def test_a_file_that_is_shorter_than_what_counts_says_how_much_is_missing() -> None:
    written = TurnFile()
    cut = written.starts[2]
    for missing in (0, 1, 50):
        found = read_turns(written.data[:cut], cut + missing)
        lost = [(piece.position, piece.size, piece.reason) for piece in found.pieces if not isinstance(piece, Kept)]
        assert lost == ([(cut, missing, f"{missing} bytes are missing at the end")] if missing else [])
        assert found.torn_bytes == 0


def test_a_byte_that_does_not_belong_there_costs_no_turn_behind_it() -> None:
    written = TurnFile()
    whole = read_turns(written.data)
    for at in written.starts[1:-1]:
        found = read_turns(written.data[:at] + b"?" + written.data[at:])
        lost = [piece for piece in found.pieces if not isinstance(piece, Kept)]
        assert [(piece.position, piece.size) for piece in lost] == [(at, 1)]
        assert [(one.name, one.base) for one in found.pieces if isinstance(one, Kept)] == [(one.name, one.base) for one in whole.pieces if isinstance(one, Kept)]


def test_of_a_file_of_which_nothing_counts_nothing_is_taken() -> None:
    for data in (TurnFile().data, first_version([("a-0", stamped_batch("a-0 0", 0))])):
        found = read_turns(data, 0)
        assert (found.pieces, found.torn_bytes) == ([], 0)


def test_turns_are_read_behind_a_header_that_is_damaged() -> None:
    written = TurnFile()
    whole = read_turns(written.data)
    for at in range(FILE_BYTES):
        data = bytearray(written.data)
        data[at] ^= 0x10
        assert read_turns(bytes(data)) == whole
        data[FILE_BYTES + 1 :] = b""
        found = read_turns(bytes(data))  # and one of them was begun
        assert found.pieces == []
        assert found.torn_bytes in (1, FILE_BYTES + 1)  # without its magic it may be of the first version
    no_turn = read_turns(b"TnTL" + b"?" * 200)
    assert [(piece.position, piece.size) for piece in no_turn.pieces if not isinstance(piece, Kept)] == [(FILE_BYTES, 204 - FILE_BYTES)]


def test_with_what_counts_known_a_file_that_is_cut_anywhere_is_damage_to_its_end() -> None:
    written = TurnFile()
    batches = sum(isinstance(one, Kept) for one in read_turns(written.data).pieces)
    for cut in range(FILE_BYTES, len(written.data), 7):
        found = read_turns(written.data[:cut], len(written.data))
        assert found.torn_bytes == 0
        assert found.pieces[-1] == Lost(cut, len(written.data) - cut, f"{len(written.data) - cut} bytes are missing at the end", None)
        lost = [one for one in found.pieces[:-1] if isinstance(one, Lost)]
        assert sum(one.size for one in lost) in (0, cut - max(FILE_BYTES, *(start for start in written.starts if start <= cut)))
        assert sum(isinstance(one, Kept) for one in found.pieces) <= batches


def test_rubbish_at_the_end_is_torn_while_it_is_shorter_than_a_head_and_zeros_before_it_do_not_count() -> None:
    entries = [("a-0", bytes(range(1, 251)) * 8, 0, 1)]
    first, second = turn_bytes(1, entries, {}), turn_bytes(2, entries, {})
    holed = file_header(0, 0) + first[:200] + bytes(1_500) + first[1_700:]
    assert len(holed) == FILE_BYTES + len(first)
    for behind, torn, lost in ((HEAD_BYTES - 1, HEAD_BYTES - 1, []), (HEAD_BYTES, 0, [(len(holed) + len(second), HEAD_BYTES)])):
        found = read_turns(holed + second + b"?" * behind)
        assert (found.torn_bytes, [(one.position, one.size) for one in found.pieces if isinstance(one, Lost)]) == (torn, lost)
    for changed in (HEAD_BYTES + 5, len(second) - 1):  # in its directory, in its batch
        other = bytearray(second)
        other[changed] ^= 1
        assert read_turns(holed + other).torn_bytes == 0


def test_where_the_logs_in_the_file_before_ended_is_what_its_first_turn_says() -> None:
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
    found = read_turns(file_header(0, 0) + b"".join(turns))
    assert [piece.base if isinstance(piece, Kept) else -piece.size for piece in found.pieces] == [-len(turns[0]), 1]


# Files of the version without a header


def test_what_is_left_of_a_file_without_a_header_is_told_to_the_byte() -> None:
    whole = first_version(*OLD)
    starts = [len(first_version(*OLD[:count])) for count in range(len(OLD) + 1)]
    found = read_turns(whole)
    assert [(one.name, one.base, one.end) for one in found.pieces if isinstance(one, Kept)] == [("a-0", 0, 1), ("b-0", 0, 1), ("b-0", 1, 2), ("a-0", 1, 2)]
    assert all(isinstance(one, Kept) and whole[one.position :].startswith(one.batch or b"?") for one in found.pieces)
    assert (found.torn_bytes, found.before_ends) == (0, None)
    for end in range(starts[2] + 1, starts[3]):
        torn = read_turns(whole[:end])
        assert (torn.pieces, torn.torn_bytes) == (found.pieces[:3], end - starts[2]), end
    holed = read_turns(whole[:-40] + bytes(40))  # the length of it was written, and not the end
    assert (holed.pieces, holed.torn_bytes) == (found.pieces[:3], starts[3] - starts[2])
    for number, pieces in enumerate((found.pieces[2:], [*found.pieces[:2], found.pieces[3]], found.pieces[:3])):
        changed = bytearray(whole)
        changed[starts[number] + 20] ^= 1
        lost = Lost(starts[number], starts[number + 1] - starts[number], "a turn is not what was written", None)
        assert sorted(read_turns(bytes(changed)).pieces, key=lambda one: one.position) == sorted([lost, *pieces], key=lambda one: one.position)
    between = read_turns(whole[: starts[1]] + b"?" + whole[starts[1] :])
    assert [(one.position, one.size) for one in between.pieces if isinstance(one, Lost)] == [(starts[1], 1)]
    assert len(between.pieces) == 5


def test_a_turn_without_a_header_that_makes_no_sense_is_none_though_its_checksum_is_right() -> None:
    sound = stamped_batch("a-0 0", 0)
    other = sound[:16] + b"\1" + sound[17:]  # of another format
    for name, one in (("", sound), ("a-0", other), ("n" * 80, b"\2" * (HEADER_BYTES - 1))):
        data = first_version([(name, one)])
        assert read_turns(data).pieces == [Lost(0, len(data), "a turn is not what was written", None)]
    emptied = sound[:8] + (HEADER_BYTES - LENGTH_FROM).to_bytes(4, "big") + sound[12:HEADER_BYTES]
    assert [isinstance(one, Kept) for one in read_turns(first_version([("a-0", emptied)])).pieces] == [True]
