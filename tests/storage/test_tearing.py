"""The end of a log after a crash: a torn end is cut, a damaged one is kept."""

from __future__ import annotations

import pytest

from protocol.batch import Record, batch_end, build, read_header, rewrite, stamp_whole
from simulator.disk import NothingSurvives, SimDisk
from storage import DamagedLog, Handles, Log, Truncation
from storage.aside import BYTES_MAX, ENTRIES_MAX, copy_cut_bytes
from storage.tearing import BATCH_BYTES_MAX, CHUNK_BYTES, SECTOR, find_sound_batch, has_unwritten, is_torn
from tests.storage.conftest import DataFolder
from tests.storage.logs import FOLDER, append_flushed, batch, names, overwrite, read, stop
from tests.support.batch_bytes import patched

pytestmark = pytest.mark.once  # no dependence on the Python version

LOG = f"/data/{FOLDER}/{0:020}.log"
COUNT = 3


def reopened(
    disk: SimDisk, deferred: bool = False, twice: list[bytes] | None = None, segment_bytes: int = 1 << 20, point: int = 0
) -> tuple[Log, Truncation]:
    return Log.open(Handles(disk), f"/data/{FOLDER}", segment_bytes, point, False, deferred=deferred, batch_copies=lambda: twice or [])


def written(disk: SimDisk, padding: int = 0, segment_bytes: int = 1 << 20, count: int = COUNT) -> list[bytes]:
    """A log of a few batches, and the bytes of each in its file."""
    log, _ = reopened(disk, segment_bytes=segment_bytes, deferred=True)
    for number in range(count):
        log.append(build([Record(0, 1_000, f"b{number}.0".encode(), b"\7" * padding, [])]), 0)
    stop(log)
    data = b"".join(read(disk, f"/data/{FOLDER}/{name}") for name in disk.list(f"/data/{FOLDER}") if name.endswith(".log"))
    ends = [0]
    while ends[-1] < len(data):
        ends.append(batch_end(data, ends[-1]))
    return [data[ends[number] : ends[number + 1]] for number in range(count)]


def unprotected(at: int) -> bool:
    """In Kafka's format the checksum covers neither the offset nor the epoch of a batch."""
    return at < 8 or 12 <= at < 16


@pytest.mark.parametrize("damaged", [1, COUNT - 1])
def test_a_flipped_bit_refuses_the_log_unless_turn_files_have_its_batches(disk: SimDisk, damaged: int) -> None:
    batches = written(disk)
    before = len(b"".join(batches[:damaged]))
    log_bytes = b"".join(batches)
    for at in range(len(batches[damaged])):
        for bit in (0x01, 0x80):
            if unprotected(at):
                continue
            data = bytearray(log_bytes)
            data[before + at] ^= bit
            for twice in ([], batches[:damaged], batches[damaged : damaged + 1] if damaged + 1 < COUNT else []):
                overwrite(disk, LOG, bytes(data))
                with pytest.raises(DamagedLog, match=f"{LOG} .* byte {before}:") as caught:
                    reopened(disk, twice=twice, point=damaged + bit % 2)  # on both sides of the recovery point
                assert caught.value.position == before
                assert read(disk, LOG) == bytes(data)
            log, truncation = reopened(disk, twice=batches)
            assert names(log) == [f"b{number}.0" for number in range(damaged)]
            copies = disk.list(truncation.kept)
            assert [read(disk, f"{truncation.kept}/{copy}") for copy in copies] == [bytes(data[before:])]
            assert truncation.position == before


def test_a_deferred_log_cuts_damage_and_copies_it_with_later_segments(disk: SimDisk) -> None:
    batches = written(disk, segment_bytes=200, count=6)
    folder = f"/data/{FOLDER}"
    logs = [name for name in disk.list(folder) if name.endswith(".log")]
    assert len(logs) == 3
    first, second, third = (read(disk, f"{folder}/{name}") for name in logs)
    data = bytearray(second)
    data[-1] ^= 1
    overwrite(disk, f"{folder}/{logs[1]}", bytes(data))
    log, truncation = reopened(disk, deferred=True)
    assert names(log) == ["b0.0", "b1.0", "b2.0"]
    assert truncation.cut_bytes == len(batches[3]) + len(third)
    copies = {name: read(disk, f"{truncation.kept}/{name}") for name in disk.list(truncation.kept)}
    assert copies == {f"{logs[1]}.from-{len(batches[2])}": bytes(data[len(batches[2]) :]), f"{logs[2]}.from-0": third}
    disk.crash()
    assert disk.list(truncation.kept) == sorted(copies)  # it survives a crash
    assert first


def test_segments_after_a_torn_end_are_copied_but_not_the_torn_end(disk: SimDisk) -> None:
    written(disk, segment_bytes=200, count=6)
    folder = f"/data/{FOLDER}"
    logs = [name for name in disk.list(folder) if name.endswith(".log")]
    second, third = (read(disk, f"{folder}/{name}") for name in logs[1:])
    overwrite(disk, f"{folder}/{logs[1]}", second[:-1])
    _, truncation = reopened(disk, deferred=True)
    assert [read(disk, f"{truncation.kept}/{name}") for name in disk.list(truncation.kept)] == [third]


@pytest.mark.parametrize("deferred", [False, True])
def test_a_torn_write_is_cut_without_a_copy(disk: SimDisk, deferred: bool) -> None:
    batches = written(disk, padding=2_000)
    log_bytes = b"".join(batches)
    start = len(log_bytes) - len(batches[-1])
    sector = -start % SECTOR + start
    ends = [
        log_bytes[:-1],
        log_bytes[: start + 5],
        log_bytes[: start + 70],
        log_bytes + bytes(1),
        log_bytes + bytes(5_000),
        log_bytes[: start + 100] + bytes(len(log_bytes) - start - 100),
        log_bytes[:sector] + bytes(SECTOR) + log_bytes[sector + SECTOR :],
        log_bytes[: start + 700] + bytes(9_000),
    ]
    for data in ends:
        overwrite(disk, LOG, data)
        log, truncation = reopened(disk, deferred=deferred)
        assert names(log)[:2] == ["b0.0", "b1.0"]
        assert truncation.cut_bytes > 0
        assert truncation.kept == ""
    assert not disk.exists("/data/set-aside")


def test_zeros_followed_by_sound_batches_are_damage(disk: SimDisk) -> None:
    batches = written(disk, padding=2_000)
    data = bytearray(b"".join(batches))
    data[len(batches[0]) : len(batches[0]) + 1_500] = bytes(1_500)
    overwrite(disk, LOG, bytes(data))
    with pytest.raises(DamagedLog):
        reopened(disk)
    log, truncation = reopened(disk, deferred=True)
    assert names(log) == ["b0.0"]
    assert truncation.kept


def test_nothing_is_cut_without_room_for_a_copy(disk: SimDisk) -> None:
    batches = written(disk)
    data = bytearray(b"".join(batches))
    data[-1] ^= 1
    overwrite(disk, LOG, bytes(data))
    for room in range(len(batches[-1])):
        disk.room = room
        with pytest.raises(OSError, match="No space left"):
            reopened(disk, deferred=True)
        assert read(disk, LOG) == bytes(data)
        assert disk.list("/data/set-aside") == []
    disk.room = None
    assert reopened(disk, deferred=True)[1].kept


def test_a_repair_keeps_a_copy_of_the_whole_batches_that_it_cuts(disk: SimDisk) -> None:
    log, _ = reopened(disk)
    append_flushed(log, batch("flushed"))
    log.append(batch("not flushed"), 0)
    cut = read(disk, LOG)[log._flushed_size :]
    disk.failed_sync_loses = False
    disk.fail_syncs = 1
    with pytest.raises(Exception, match="Input/output error"):
        log.flush()
    repair = log.start_repair(1)
    repair.run()
    log.finish_repair(repair)
    assert names(log) == ["flushed.0"]
    truncation = repair.truncation
    assert (truncation.path, truncation.position, truncation.cut_bytes) == (LOG, log.size, len(cut))
    assert truncation.reason == "it was not acknowledged"
    assert [read(disk, f"{truncation.kept}/{name}") for name in disk.list(truncation.kept)] == [cut]


@pytest.mark.parametrize("name", ["orders-0", "t" * 249 + "-99999"])
def test_the_newest_copies_are_kept(data_folder: DataFolder, name: str) -> None:
    folder = f"{data_folder.path}/{name}"
    data_folder.disk.make_folder(folder)
    around = f"{data_folder.path}/set-aside"
    foreign_names = {"notes of the operator", "notes-of the operator", "\u0661-notes", "99"}
    for name_of_another in foreign_names:
        data_folder.disk.make_folder(f"{around}/{name_of_another}")
    for number in range(ENTRIES_MAX + 3):
        overwrite(data_folder.disk, f"{folder}/x.log", b"%d" % number)
        copy_folder = copy_cut_bytes(data_folder.disk, folder, [(f"{folder}/x.log", 0)])
        assert read(data_folder.disk, f"{copy_folder}/x.log.from-0") == b"%d" % number
        assert len(copy_folder.rpartition("/")[2]) == min(len("000001-") + len(name), 255)
    set_aside = [entry for entry in data_folder.disk.list(around) if entry not in foreign_names]
    assert [int(entry[:6]) for entry in set_aside] == list(range(4, ENTRIES_MAX + 4))
    assert ENTRIES_MAX == 10
    assert foreign_names <= set(data_folder.disk.list(around))


def test_a_copy_is_durable_even_if_older_copies_cannot_be_removed() -> None:
    disk = SimDisk(NothingSurvives())
    disk.make_folder(f"/data/{FOLDER}")
    original = disk.remove

    def refuse(path: str) -> None:
        raise OSError(5, "Input/output error")

    disk.remove = refuse  # type: ignore[method-assign]
    overwrite(disk, LOG, b"12345")
    copies = [copy_cut_bytes(disk, f"/data/{FOLDER}", [(LOG, 2)]) for _ in range(ENTRIES_MAX + 2)]
    disk.room = 1
    with pytest.raises(OSError, match="No space left"):  # and an older copy cannot be removed either
        copy_cut_bytes(disk, f"/data/{FOLDER}", [(LOG, 0)])
    disk.crash()
    disk.remove = original  # type: ignore[method-assign]
    assert [read(disk, f"{copy_folder}/{0:020}.log.from-2") for copy_folder in copies] == [b"345"] * len(copies)
    assert disk.opened == 0


@pytest.mark.plain
def test_copies_are_limited_in_bytes_except_for_the_newest(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.aside.BYTES_MAX", 1_000)
    assert BYTES_MAX == 64 << 20
    disk.make_folder(f"/data/{FOLDER}")
    listings = []
    for size in (400, 400, 400, 200, 2_000, 10):
        overwrite(disk, LOG, bytes(size))
        copy_cut_bytes(disk, f"/data/{FOLDER}", [(LOG, 0)])
        listings.append([int(entry[:6]) for entry in disk.list("/data/set-aside")])
    assert listings == [[1], [1, 2], [2, 3], [2, 3, 4], [5], [6]]
    assert disk.opened == 0


def test_zeros_mark_sectors_that_were_never_written() -> None:
    payload = b"\1" * 2_000
    assert not has_unwritten(payload, 0)
    assert not has_unwritten(payload + bytes(31), 7)
    assert has_unwritten(payload + bytes(32), 7)
    assert has_unwritten(bytes(3), 7)
    for position in (0, 1, 511, 512, 700):
        sector = -position % SECTOR
        assert has_unwritten(payload[:sector] + bytes(SECTOR) + payload, position)
        assert not has_unwritten(payload[: sector + 1] + bytes(SECTOR) + payload, position)


# Finding the next sound batch, and telling a torn end from damage


class Bytes:
    """A read-only file."""

    descriptor = -1

    def __init__(self, data: bytes, refuse_more_than: int = 1 << 30) -> None:
        self._data = data
        self._most = refuse_more_than
        self.reads: list[int] = []

    def read(self, at: int, size: int) -> bytes:
        assert 0 <= size <= self._most
        self.reads.append(size)
        return self._data[at : at + size]

    def size(self) -> int:
        return len(self._data)

    def write(self, at: int, data: bytes | bytearray) -> None:
        raise AssertionError

    def truncate(self, size: int) -> None:
        raise AssertionError

    def sync(self) -> None:
        raise AssertionError

    def close(self) -> None:
        raise AssertionError


def sound(offset: int, padding: int = 0, count: int = 1) -> bytes:
    data = bytearray(build([Record(n, 1_000, b"k", b"\2" * padding, []) for n in range(count)]))
    stamp_whole(data, offset, 0)
    return bytes(data)


def emptied(offset: int) -> bytes:
    return rewrite(read_header(sound(offset), 0), [])


@pytest.mark.parametrize("before", [0, 1, 16, 60, 61, CHUNK_BYTES - 61, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES + 40])
def test_a_sound_batch_is_found_at_any_position_between_any_bytes(before: int) -> None:
    filler = b"\2" if before < 100 else b"\xff"  # each 2 looks like the magic byte of a batch
    for batch_bytes, trailing_bytes in ((sound(7, padding=100), 0), (sound(7), 5), (emptied(7), 0), (emptied(7), 1)):
        data = filler * before + batch_bytes + filler * trailing_bytes
        assert find_sound_batch(Bytes(data), 0, len(data), 7) == before
        assert find_sound_batch(Bytes(data), before, len(data), 7) == before
        assert find_sound_batch(Bytes(data), before + 1, len(data), 7) == len(data)
        assert find_sound_batch(Bytes(data), 0, before + len(batch_bytes), 7) == before
        assert find_sound_batch(Bytes(data), 0, before + len(batch_bytes) - 1, 7) == before + len(batch_bytes) - 1


def test_a_sound_batch_has_an_offset_of_this_segment() -> None:
    far = (1 << 31) - 1
    data = sound(1_000)
    for lowest, is_sound in ((0, True), (1_000, True), (1_001, False)):
        assert (find_sound_batch(Bytes(data), 0, len(data), lowest) == 0) is is_sound
    for offset, is_sound in ((5 + far, True), (6 + far, False)):
        data = sound(offset)
        assert (find_sound_batch(Bytes(data), 0, len(data), 5) == 0) is is_sound


def test_the_first_of_two_sound_batches_is_found() -> None:
    data = b"\1" * 10 + sound(3) + sound(4)
    assert find_sound_batch(Bytes(data), 0, len(data), 0) == 10
    assert find_sound_batch(Bytes(data), 0, len(data), 4) == 10 + len(sound(3))


@pytest.mark.parametrize(
    ("at", "patch", "is_sound"),
    [
        (57, (0).to_bytes(4, "big"), True),  # compacted to an empty batch
        (57, (2).to_bytes(4, "big"), True),
        (57, (3).to_bytes(4, "big"), False),  # more records than offsets
        (57, (-1).to_bytes(4, "big", signed=True), False),
        (21, (0x78 | 0x04).to_bytes(2, "big"), True),  # each attribute that Kafka defines
        (21, (0x80).to_bytes(2, "big"), False),
        (21, (0x05).to_bytes(2, "big"), False),  # an unknown compression
        (21, (0x4000).to_bytes(2, "big"), False),
    ],
)
def test_an_impossible_header_is_not_sound_though_its_checksum_is_right(at: int, patch: bytes, is_sound: bool) -> None:
    data = patched(sound(7, count=2), at, patch)
    assert (find_sound_batch(Bytes(data), 0, len(data), 0) == 0) is is_sound


def test_an_impossible_header_is_rejected_before_its_body_is_read() -> None:
    batch_bytes = sound(7, padding=1_000)
    for at, patch in ((8, (1 << 30).to_bytes(4, "big")), (0, (1 << 40).to_bytes(8, "big")), (57, (9).to_bytes(4, "big")), (21, b"\7\0")):
        changed = bytearray(batch_bytes)
        changed[at : at + len(patch)] = patch
        file = Bytes(bytes(changed))
        assert find_sound_batch(file, 0, len(changed), 0) == len(changed)
        assert len(file.reads) == 1


def test_a_batch_whose_epoch_looks_like_a_magic_byte_is_found() -> None:
    data = bytearray(sound(7))
    stamp_whole(data, 7, 2)
    data = bytearray(b"\1") + data
    assert find_sound_batch(Bytes(bytes(data)), 0, len(data), 0) == 1


def test_a_search_for_batches_uses_bounded_reads_and_no_batch_exceeds_a_request() -> None:
    large = b"\xff" * (3 * CHUNK_BYTES) + sound(7)
    assert find_sound_batch(Bytes(large, CHUNK_BYTES + 61), 0, len(large), 0) == 3 * CHUNK_BYTES
    for size, read_whole in ((BATCH_BYTES_MAX, True), (BATCH_BYTES_MAX + 1, False)):
        header = bytearray(sound(7))
        header[17] ^= 1
        header[8:12] = (size - 12).to_bytes(4, "big")
        file = Bytes(bytes(header))
        assert find_sound_batch(file, 0, size, 0) == size
        assert (size in file.reads) is read_whole
        header[8:12] = (1 << 30).to_bytes(4, "big")
        file = Bytes(bytes(header))
        assert is_torn(file, 0, size, 0)
        assert (size in file.reads) is read_whole


def torn(data: bytes, at: int = 0) -> bool:
    verdict = is_torn(Bytes(data + b"\1" * 9), at, len(data), 0)  # bytes past the end are ignored
    assert isinstance(verdict, bool)
    return verdict


def test_the_bytes_of_an_incomplete_header_are_always_torn() -> None:
    for size in (1, 60):
        assert torn(b"\1" * size)
        assert torn(sound(3) + b"\1" * size, len(sound(3)))
    assert not torn(b"\1" * 61)
    assert not torn(emptied(3)[:60] + b"\1")


def test_a_batch_that_is_cut_short_is_torn_unless_its_length_alone_is_wrong() -> None:
    batch_bytes = sound(3, padding=200)
    for size in (61, 62, 100, len(batch_bytes) - 1):
        assert torn(batch_bytes[:size])
        assert torn(sound(2) + batch_bytes[:size], len(sound(2)))
    longer = bytearray(batch_bytes)
    longer[8:12] = (len(batch_bytes) - 12 + 1).to_bytes(4, "big")
    assert not torn(bytes(longer))
    assert not torn(sound(2) + bytes(longer), len(sound(2)))
    assert torn(bytes(longer[:-1]))
    assert not torn(batch_bytes[:100] + sound(4))  # followed by a sound batch
    assert not torn(b"\1" + sound(4))


@pytest.mark.parametrize("size", [1_500, CHUNK_BYTES, CHUNK_BYTES + 3_000, 2 * CHUNK_BYTES + 3_000])
def test_a_batch_with_a_wrong_checksum_is_torn_if_it_has_an_unwritten_block(size: int) -> None:
    data = bytearray(build([Record(0, 1_000, b"k", b"\1" * size, [])]))
    data[17] ^= 1
    assert not torn(bytes(data))
    for prefix in (b"", sound(2)):
        last = (len(prefix) + len(data)) // SECTOR - 1
        at_chunk = CHUNK_BYTES // SECTOR
        for block in {1, last // 2, last, at_chunk - 1, at_chunk} & set(range(1, last + 1)):
            holed = bytearray(prefix + data + b"\1" * 70)
            holed[block * SECTOR : (block + 1) * SECTOR] = bytes(SECTOR)
            assert torn(bytes(holed), len(prefix))
            holed[block * SECTOR] = 1
            assert not torn(bytes(holed), len(prefix))
        ending = prefix + bytes(data[:-32]) + bytes(32)
        assert torn(ending, len(prefix))
        assert not torn(ending[:-32] + b"\1" + bytes(31), len(prefix))


def test_zeros_after_the_last_whole_batch_are_torn() -> None:
    for size in (61, 1_000, CHUNK_BYTES + 1):
        assert torn(bytes(size))
