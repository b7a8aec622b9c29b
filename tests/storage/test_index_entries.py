"""The index of a segment, compared with a plain list of its entries."""

from __future__ import annotations

from random import Random
from struct import pack

import pytest

from simulator.disk import SimDisk
from storage import Handles
from storage.index import BLOCK_ENTRIES, CHECKED_BYTES, INTERVAL_BYTES, MEMORY_ENTRIES, Index
from tests.storage.logs import overwrite, read

pytestmark = pytest.mark.once  # no dependence on the Python version

BASE = 1_000
PATH = "/data/segment"


def index_on(disk: SimDisk) -> Index:
    return Index(Handles(disk), PATH, "", BASE)


class ReferenceIndex:
    """A plain list of every index entry, with which the index must agree."""

    def __init__(self) -> None:
        self.offsets: list[tuple[int, int]] = []  # last offset, position
        self.times: list[tuple[int, int]] = []  # timestamp, offset
        self.last_position = 0

    def add(self, offset: int, position: int, timestamp: int, timestamp_offset: int) -> None:
        if position >= self.last_position + INTERVAL_BYTES:
            self.last_position = position
            self.offsets.append((offset, position))
            self.add_time(timestamp, timestamp_offset)

    def add_time(self, timestamp: int, offset: int) -> None:
        if timestamp > (self.times[-1][0] if self.times else 0):
            self.times.append((timestamp, offset))

    def cut(self, position: int) -> None:
        self.offsets = [offset for offset in self.offsets if offset[1] < position]
        last = self.offsets[-1][0] if self.offsets else BASE - 1
        self.times = [time for time in self.times if time[1] <= last]
        self.last_position = self.offsets[-1][1] if self.offsets else 0


def agree(index: Index, reference: ReferenceIndex, random: Random) -> None:
    for _ in range(12):
        offset, position = random.choice(reference.offsets or [(BASE, 0)])
        for target in (offset - 1, offset, offset + 1):
            at = [(position, last) for last, position in reference.offsets if last <= target]
            assert index.entry_for(target) == (at[-1] if at else (0, -1))
        for target in (position - 1, position, position + 1):
            at = [(position, last) for last, position in reference.offsets if position <= target]
            assert index.before(target) == (at[-1] if at else (0, -1))
        timestamp, _ = random.choice(reference.times or [(0, 0)])
        for target in (timestamp - 1, timestamp, timestamp + 1):
            earlier = [time for time in reference.times if time[0] < target]
            assert index.time_before(target) == (earlier[-1] if earlier else (-1, BASE))
    last = reference.offsets[-1][::-1] if reference.offsets else (0, -1)
    assert index.last_entry() == last
    assert index.last_record_time() == (reference.times[-1] if reference.times else (-1, BASE))
    assert (index.last_position, index.last_time) == (reference.last_position, reference.times[-1][0] if reference.times else 0)


@pytest.mark.parametrize("seed", range(6))
def test_an_index_agrees_with_a_plain_list_of_its_entries(disk: SimDisk, seed: int) -> None:
    random = Random(seed)
    index, reference = index_on(disk), ReferenceIndex()
    offset, position, timestamp, time_offset = BASE - 1, 0, 0, BASE
    for _ in range(25):
        for _ in range(random.choice((1, 5, 60))):
            offset += random.randint(1, 5)
            newest = timestamp + random.choice((-3, 0, 1, 10))
            timestamp = max(timestamp, newest)
            time_offset = max(time_offset, offset - random.randint(0, 3))
            index.add(offset, position, timestamp, time_offset)
            reference.add(offset, position, timestamp, time_offset)
            position += random.choice((100, INTERVAL_BYTES - 1, INTERVAL_BYTES, 3 * INTERVAL_BYTES))
        action = random.randint(0, 4)
        if action == 0:
            index.save()
        elif action == 1:
            timestamp += 1
            time_offset = offset
            index.add_time(timestamp, offset)
            reference.add_time(timestamp, offset)
        elif action == 2:
            index.save()
            index = index_on(disk)
            assert index.load(position) == bool(reference.times or not reference.offsets)
            if not reference.offsets:
                index.last_position = reference.last_position = 0
        elif action == 3 and reference.offsets:
            cut = random.choice(reference.offsets)[1] + random.choice((-1, 0, 1))
            index.cut(cut)
            reference.cut(cut)
            offset = reference.offsets[-1][0] if reference.offsets else BASE - 1
            position = reference.last_position + 100
            time_offset = max([BASE, *[position for _, position in reference.times]])
            timestamp = reference.times[-1][0] if reference.times else 0
        agree(index, reference, random)
    index.save()
    assert read(disk, f"{PATH}.index") == b"".join(pack(">ii", last - BASE, position) for last, position in reference.offsets)
    assert read(disk, f"{PATH}.timeindex") == b"".join(pack(">qi", moment, position - BASE) for moment, position in reference.times)


def filled(disk: SimDisk, entries: int) -> Index:
    index = index_on(disk)
    for number in range(1, entries + 1):
        index.add(BASE + number, number * INTERVAL_BYTES, number, BASE + number)
    return index


@pytest.mark.parametrize("entries", [MEMORY_ENTRIES - 1, MEMORY_ENTRIES, MEMORY_ENTRIES + 1, 2 * MEMORY_ENTRIES])
def test_memory_holds_a_thousand_entries_and_no_more(disk: SimDisk, entries: int) -> None:
    index = filled(disk, entries)
    stored = entries // MEMORY_ENTRIES * MEMORY_ENTRIES
    assert (index.stored_offsets, index.stored_times) == (stored, stored)
    assert (len(index.offsets), len(index.positions), len(index.times), len(index.time_offsets)) == (entries - stored,) * 4


def test_entries_that_the_disk_refuses_stay_in_memory(disk: SimDisk) -> None:
    disk.room = 0
    index = filled(disk, MEMORY_ENTRIES + 3)
    assert (index.stored_offsets, len(index.offsets)) == (0, MEMORY_ENTRIES + 3)
    disk.room = None
    assert index.entry_for(BASE + 5) == (5 * INTERVAL_BYTES, BASE + 5)
    index.save()
    assert len(read(disk, f"{PATH}.index")) == 8 * (MEMORY_ENTRIES + 3)


@pytest.mark.parametrize("entries", [1, BLOCK_ENTRIES, BLOCK_ENTRIES + 1, 4 * BLOCK_ENTRIES + 3])
def test_every_entry_is_found_in_the_files(disk: SimDisk, entries: int) -> None:
    filled(disk, entries).save()
    index = index_on(disk)
    assert index.load((entries + 1) * INTERVAL_BYTES)
    assert index.entry_for(BASE) == (0, -1)
    assert index.before(INTERVAL_BYTES - 1) == (0, -1)
    assert index.time_before(1) == index.newest_before(BASE + 1) == (-1, BASE)
    for number in range(1, entries + 1):
        assert index.entry_for(BASE + number) == (number * INTERVAL_BYTES, BASE + number)
        assert index.before(number * INTERVAL_BYTES) == (number * INTERVAL_BYTES, BASE + number)
        assert index.time_before(number + 1) == index.newest_before(BASE + number + 1) == (number, BASE + number)


# Entries that are ignored.


def entries_of(disk: SimDisk, offsets: list[tuple[int, int]], times: list[tuple[int, int]], more: bytes = b"") -> None:
    overwrite(disk, f"{PATH}.index", b"".join(pack(">ii", *offset) for offset in offsets) + more)
    overwrite(disk, f"{PATH}.timeindex", b"".join(pack(">qi", *time) for time in times))


GOOD = [(1, 5_000), (2, 10_000)], [(7, 1), (8, 2)]


@pytest.mark.parametrize(
    ("offsets", "times", "log_bytes", "is_loaded"),
    [
        (*GOOD, 10_001, True),
        (*GOOD, 10_000, False),  # the last entry points to the end of the log, where no batch begins
        ([(0, 1)], [(1, 0)], 10_001, True),
        ([(5, 0)], [(1, 0)], 10_001, False),  # position 0: the first batch never has an entry
        ([(-1, 5_000)], [(1, 0)], 10_001, False),
        ([(0, 5_000)], [(0, 0)], 10_001, False),  # a stored time must be above 0, which stands for no time
        ([(0, 5_000)], [(1, -1)], 10_001, False),
        ([(2, 5_000), (2, 6_000)], GOOD[1], 10_001, False),
        ([(1, 5_000), (2, 5_000)], GOOD[1], 10_001, False),
        (GOOD[0], [(7, 1), (7, 2)], 10_001, False),
        (GOOD[0], [(7, 2), (8, 2)], 10_001, True),  # two times for the same offset are allowed
        (GOOD[0], [(7, 2), (8, 1)], 10_001, False),
        ([], [], 10_001, True),
        ([], [(7, 1)], 10_001, True),
        (GOOD[0], [], 10_001, False),  # without time entries the newest timestamp would be unknown
    ],
)
def test_an_inconsistent_index_is_ignored(
    disk: SimDisk, offsets: list[tuple[int, int]], times: list[tuple[int, int]], log_bytes: int, is_loaded: bool
) -> None:
    entries_of(disk, offsets, times)
    index = index_on(disk)
    assert index.load(log_bytes) == is_loaded
    assert (index.stored_offsets, index.stored_times) == ((len(offsets), len(times)) if is_loaded else (0, 0))


@pytest.mark.parametrize("missing", ["index", "timeindex"])
def test_an_index_with_one_missing_file_is_ignored(disk: SimDisk, missing: str) -> None:
    entries_of(disk, *GOOD)
    disk.remove(f"{PATH}.{missing}")
    assert not index_on(disk).load(10_001)


@pytest.mark.parametrize(("more", "is_loaded"), [(b"\0" * 8, True), (b"\0" * 80, True), (b"\0" * 7, False), (b"\1", False)])
def test_preallocated_zeros_are_ignored_and_half_an_entry_is_refused(disk: SimDisk, more: bytes, is_loaded: bool) -> None:
    entries_of(disk, *GOOD, more)
    index = index_on(disk)
    assert index.load(10_001) == is_loaded
    assert index.stored_offsets == (2 if is_loaded else 0)


@pytest.mark.parametrize(("at", "is_loaded"), [(0, False), (BLOCK_ENTRIES - 1, False), (BLOCK_ENTRIES + 5, True), (-2, False), (-1, False)])
def test_a_long_index_is_checked_at_its_beginning_and_end(disk: SimDisk, at: int, is_loaded: bool) -> None:
    count = CHECKED_BYTES // 8 + 10
    offsets = [(number, number * INTERVAL_BYTES) for number in range(1, count + 1)]
    times = [(number, number) for number in range(1, count + 1)]
    entries_of(disk, offsets, times)
    assert index_on(disk).load((count + 1) * INTERVAL_BYTES)
    offsets[at] = (0 if at else -1, offsets[at][1])
    entries_of(disk, offsets, times)
    assert index_on(disk).load((count + 1) * INTERVAL_BYTES) == is_loaded


def test_unreadable_index_files_count_as_missing(disk: SimDisk) -> None:
    filled(disk, 3).save()
    index = index_on(disk)
    assert index.load(5 * INTERVAL_BYTES)
    index.add(BASE + 4, 4 * INTERVAL_BYTES, 4, BASE + 4)
    disk.unreadable = "segment"
    index.forget()
    assert index.entry_for(BASE + 3) == (0, -1)
    assert index.entry_for(BASE + 4) == (4 * INTERVAL_BYTES, BASE + 4)
    index.cut(4 * INTERVAL_BYTES)
    assert (index.last_entry(), index.last_record_time(), index.last_position, index.last_time) == ((0, -1), (-1, BASE), 0, 0)


def test_a_shorter_index_replaces_a_longer_one(disk: SimDisk) -> None:
    index = filled(disk, 10)
    index.save()
    index.cut(3 * INTERVAL_BYTES)
    index.save()
    assert len(read(disk, f"{PATH}.index")) == 2 * 8
    assert len(read(disk, f"{PATH}.timeindex")) == 2 * 12
    changes = len(disk.changes)
    index.save()  # nothing has changed, so nothing is written
    assert len(disk.changes) == changes


def test_saving_an_index_never_syncs(disk: SimDisk) -> None:
    filled(disk, 3).save()
    assert disk.syncs == 0
    assert disk.opened == 0


@pytest.mark.parametrize("more", [0, 1, 2])
def test_preallocated_zeros_are_cut_off_when_an_index_is_saved(disk: SimDisk, more: int) -> None:
    """Entries that were added after the loading stand where the zeros were."""
    index = filled(disk, 3 + more)
    index.save()
    expected = [read(disk, path) for path in (index.offset_path, index.time_path)]
    index = filled(disk, 3)
    index.save()
    for path in (index.offset_path, index.time_path):
        overwrite(disk, path, read(disk, path) + bytes(240))
    reopened = Index(index.handles, index.path, "", index.base)
    assert reopened.load(1 << 20)
    assert disk.opened == 0
    for number in range(4, 4 + more):
        reopened.add(BASE + number, number * INTERVAL_BYTES, number, BASE + number)
    reopened.save()
    assert [read(disk, path) for path in (index.offset_path, index.time_path)] == expected


def test_the_newest_time_before_an_offset_is_found_in_the_file(disk: SimDisk) -> None:
    entries_of(disk, *GOOD)
    index = index_on(disk)
    assert index.load(1 << 20)
    newest = [index.newest_before(BASE + offset) for offset in range(5)]
    assert newest == [(-1, BASE), (-1, BASE), (7, BASE + 1), (8, BASE + 2), (8, BASE + 2)]
