"""The table of owners: its contents as the nodes of a directory read them, and its layout in the file."""

from __future__ import annotations

import errno
from struct import Struct

import pytest

from simulator.disk import NothingSurvives, SimDisk
from storage import LogId
from storage.directory import OWNERS_FILE
from storage.owners import (
    FREE,
    GONE,
    LOCKS_FILE,
    NO_SLOT,
    NO_TOPIC,
    NO_WRITER,
    OWNED,
    SINGLE_BROKER,
    SLOTS,
    TABLE_BYTES,
    UNUSED,
    OwnerTable,
    Slot,
    lock_byte_of,
    writer_closed,
    writer_open,
)
from tests.storage.conftest import DataFolder
from tests.storage.logs import overwrite, read

LOG = LogId("orders", 3)
OTHER = LogId("orders", 4)
SLOT = Slot(2, 7, 1_700_000_000_123, OWNED, writer_open(2), bytes(range(16)))
HEADER_BYTES = 4096
ON_DISK = Struct("<QiIqIi16s")


def table(data_folder: DataFolder) -> OwnerTable:
    return OwnerTable(data_folder.disk, data_folder.path)  # type: ignore[arg-type]


def position(key: int) -> int:
    return HEADER_BYTES + ON_DISK.size * (key % SLOTS)


def on_disk(disk: SimDisk, *slots: tuple[int, tuple[object, ...]]) -> OwnerTable:
    """A table whose file has these slots, each with its number."""
    data = bytearray(TABLE_BYTES)
    for number, slot in slots:
        ON_DISK.pack_into(data, HEADER_BYTES + ON_DISK.size * number, *slot)
    overwrite(disk, f"/data/{OWNERS_FILE}", bytes(data))
    return table(DataFolder(disk, "/data"))


def test_the_byte_of_a_log_and_the_format_never_change() -> None:
    """During an upgrade, nodes of different versions share a directory."""
    assert lock_byte_of(LOG) == 450165056607674485
    assert lock_byte_of(LogId("__consumer_offsets", 49)) == 2741116486996581825
    assert (TABLE_BYTES, SLOTS, ON_DISK.size) == (4096 + 65536 * 48 + 8, 65536, 48)
    assert (UNUSED, OWNED, FREE, GONE, SINGLE_BROKER, NO_WRITER) == (0, 1, 2, 3, 0, -(1 << 31))
    assert (writer_open(0), writer_open(5), writer_closed(0), writer_closed(5)) == (1, 6, -1, -6)
    assert (OWNERS_FILE, LOCKS_FILE) == ("log-owners", "locks")
    assert tuple(NO_SLOT) == (-1, -1, 0, UNUSED, SINGLE_BROKER, bytes(16))


@pytest.mark.parametrize("name", [f"topic-{number}" for number in range(32)])
def test_the_byte_of_a_log_is_odd_and_below_the_probe_of_locks(name: str) -> None:
    assert lock_byte_of(LogId(name, 0)) % 2 == 1
    assert lock_byte_of(LogId(name, 0)) < 1 << 62


def test_the_position_of_a_slot_never_changes(disk: SimDisk) -> None:
    table(DataFolder(disk, "/data")).write(LOG, SLOT)
    data = read(disk, f"/data/{OWNERS_FILE}")
    at = position(lock_byte_of(LOG))
    assert len(data) == TABLE_BYTES
    assert ON_DISK.unpack_from(data, at) == (lock_byte_of(LOG), *SLOT)
    assert not any(data[:at])
    assert not any(data[at + ON_DISK.size :])


def test_each_log_has_its_own_slot(data_folder: DataFolder) -> None:
    first, second = table(data_folder), table(data_folder)
    assert (first.read(LOG), second.read(OTHER)) == (NO_SLOT, NO_SLOT)
    other_slot = Slot(3, 1, 5, FREE, NO_WRITER)
    first.write(LOG, SLOT)
    second.write(OTHER, other_slot)
    for owners in (first, second, table(data_folder)):
        assert (owners.read(LOG), owners.read(OTHER)) == (SLOT, other_slot)
        assert isinstance(owners.read(LOG), Slot)


def test_the_owner_is_the_node_that_has_the_log(data_folder: DataFolder) -> None:
    owners = table(data_folder)
    assert owners.owner(LOG) == -1
    for slot, owner in ((SLOT, 2), (SLOT._replace(node=0), 0), (SLOT._replace(state=FREE), -1), (SLOT._replace(state=UNUSED), -1)):
        owners.write(LOG, slot)
        assert owners.owner(LOG) == owner


def test_a_slot_is_overwritten_in_place(disk: SimDisk) -> None:
    owners = table(DataFolder(disk, "/data"))
    for epoch in range(3):
        owners.write(LOG, SLOT._replace(epoch=epoch))
        assert owners.read(LOG).epoch == epoch
    assert read(disk, f"/data/{OWNERS_FILE}").count(lock_byte_of(LOG).to_bytes(8, "little")) == 1


def test_a_log_whose_slot_is_occupied_gets_the_next_free_slot(disk: SimDisk) -> None:
    index = lock_byte_of(LOG) % SLOTS
    owners = on_disk(disk, (index, (lock_byte_of(LOG) + (1 << 20), *SLOT)), (index + 1, (lock_byte_of(LOG) + (1 << 21), *SLOT)))
    assert owners.read(LOG) == NO_SLOT
    owners.write(LOG, SLOT._replace(epoch=9))
    assert owners.read(LOG).epoch == 9
    data = read(disk, f"/data/{OWNERS_FILE}")
    assert [ON_DISK.unpack_from(data, HEADER_BYTES + ON_DISK.size * (index + n))[2] for n in range(4)] == [7, 7, 9, 0]
    assert table(DataFolder(disk, "/data")).read(LOG).epoch == 9


def test_probing_wraps_around_after_the_last_slot(disk: SimDisk) -> None:
    index = lock_byte_of(LOG) % SLOTS
    foreign_slots = [(number, (2 * number + 2, *SLOT)) for number in range(index, SLOTS)]
    owners = on_disk(disk, *foreign_slots)
    owners.write(LOG, SLOT)
    assert ON_DISK.unpack_from(read(disk, f"/data/{OWNERS_FILE}"), HEADER_BYTES) == (lock_byte_of(LOG), *SLOT)
    assert table(DataFolder(disk, "/data")).read(LOG) == SLOT


def test_a_full_table_refuses_new_logs_and_keeps_its_logs(disk: SimDisk) -> None:
    free = (lock_byte_of(LOG) - 1) % SLOTS  # the slot that the search for this log reaches last
    owners = on_disk(disk, *[(number, (2 * number + 2, *SLOT)) for number in range(SLOTS) if number != free])
    owners.write(LOG, SLOT)
    assert table(DataFolder(disk, "/data")).read(LOG) == SLOT
    assert owners.read(OTHER) == NO_SLOT
    with pytest.raises(OSError, match="more logs than the table of owners has slots") as raised:
        owners.write(OTHER, SLOT)
    assert raised.value.errno == errno.ENOSPC
    owners.write(LOG, SLOT._replace(epoch=8))
    assert owners.read(LOG).epoch == 8
    owners.free(lock_byte_of(OTHER), 2)
    owners.free(lock_byte_of(LOG), 2)
    assert owners.read(LOG).state == FREE


def neighbours(disk: SimDisk, *slots: Slot) -> tuple[OwnerTable, list[int]]:
    """A table in which the slot of LOG and the following ones belong to other logs; returns also the keys of these logs."""
    index = lock_byte_of(LOG) % SLOTS
    keys = [lock_byte_of(LOG) + (number << 20) for number in range(1, len(slots) + 1)]
    return on_disk(disk, *[(index + number, (key, *slot)) for number, (key, slot) in enumerate(zip(keys, slots, strict=True))]), keys


def keys_from(disk: SimDisk, count: int) -> list[int]:
    data = read(disk, f"/data/{OWNERS_FILE}")
    index = lock_byte_of(LOG) % SLOTS
    return [ON_DISK.unpack_from(data, HEADER_BYTES + ON_DISK.size * (index + number))[0] for number in range(count)]


def test_a_new_log_gets_the_first_slot_of_a_deleted_log_in_probe_order(disk: SimDisk) -> None:
    gone_slot = SLOT._replace(state=GONE, writer=NO_WRITER)
    owners, keys = neighbours(disk, SLOT, gone_slot, gone_slot, SLOT._replace(state=FREE, writer=NO_WRITER))
    owners.write(LOG, SLOT._replace(epoch=1))
    assert keys_from(disk, 5) == [keys[0], lock_byte_of(LOG), keys[2], keys[3], 0]
    assert table(DataFolder(disk, "/data")).read(LOG) == SLOT._replace(epoch=1)


def test_a_log_that_is_created_again_keeps_its_slot_and_its_epoch(disk: SimDisk) -> None:
    gone_slot = SLOT._replace(state=GONE, writer=NO_WRITER)
    owners, keys = neighbours(disk, SLOT)
    owners.write(LOG, gone_slot)
    overwrite_slot(disk, lock_byte_of(LOG) % SLOTS, (keys[0], *gone_slot))
    assert owners.read(LOG) == gone_slot
    owners.write(LOG, SLOT._replace(epoch=8))
    assert keys_from(disk, 3) == [keys[0], lock_byte_of(LOG), 0]


def test_a_full_table_has_room_where_a_topic_was_deleted(disk: SimDisk) -> None:
    gone_slot = (lock_byte_of(LOG) - 1) % SLOTS  # the slot that the search for this log reaches last
    slots = [(number, (2 * number + 2, *SLOT._replace(state=GONE if number == gone_slot else OWNED))) for number in range(SLOTS)]
    owners = on_disk(disk, *slots)
    owners.write(LOG, SLOT)
    assert table(DataFolder(disk, "/data")).read(LOG) == SLOT


def test_a_log_has_no_slot_once_another_log_got_it(disk: SimDisk) -> None:
    owners, second = table(DataFolder(disk, "/data")), table(DataFolder(disk, "/data"))
    owners.write(LOG, SLOT)
    assert second.read(LOG) == SLOT
    owners.write(LOG, SLOT._replace(state=GONE, writer=NO_WRITER))
    overwrite_slot(disk, lock_byte_of(LOG) % SLOTS, (lock_byte_of(LOG) + (1 << 20), *SLOT))
    for slots in (owners, second):
        assert (slots.read(LOG), slots.owner(LOG)) == (NO_SLOT, -1)
    second.write(LOG, SLOT._replace(epoch=0))
    assert keys_from(disk, 2) == [lock_byte_of(LOG) + (1 << 20), lock_byte_of(LOG)]
    assert owners.read(LOG).epoch == 0


@pytest.mark.parametrize(("before", "after"), [(GONE, OWNED), (OWNED, GONE)])
def test_no_other_node_assigns_slots_while_a_topic_is_deleted_or_created_again(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch, before: int, after: int
) -> None:
    owners = table(DataFolder(disk, "/data"))
    owners.write(LOG, SLOT._replace(state=before))
    entered: list[bool] = []

    class Exclusive:
        def __enter__(self) -> None:
            entered.append(True)

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(owners._bytes, "exclusive", Exclusive)
    owners.write(LOG, SLOT._replace(state=after))
    assert entered == [True]


def test_slots_of_new_logs_are_assigned_by_one_node_at_a_time(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes must not assign one slot to two logs: the search for a slot is repeated under the lock."""
    owners, second = table(DataFolder(disk, "/data")), table(DataFolder(disk, "/data"))
    slot_number = lock_byte_of(LOG) % SLOTS

    class Exclusive:
        def __enter__(self) -> None:
            overwrite_slot(disk, slot_number, (lock_byte_of(OTHER), *SLOT))

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(owners._bytes, "exclusive", Exclusive)
    owners.write(LOG, SLOT._replace(epoch=9))
    assert ON_DISK.unpack_from(read(disk, f"/data/{OWNERS_FILE}"), HEADER_BYTES + ON_DISK.size * slot_number)[0] == lock_byte_of(OTHER)
    assert second.read(LOG).epoch == 9
    monkeypatch.setattr(owners._bytes, "exclusive", lambda: pytest.fail("a slot that is there is not looked for"))
    owners.write(LOG, SLOT)


def overwrite_slot(disk: SimDisk, number: int, slot: tuple[object, ...]) -> None:
    data = bytearray(read(disk, f"/data/{OWNERS_FILE}"))
    ON_DISK.pack_into(data, HEADER_BYTES + ON_DISK.size * number, *slot)
    file = disk.open(f"/data/{OWNERS_FILE}")
    file.write(0, data)


def test_the_position_of_a_log_is_cached(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    owners = table(DataFolder(disk, "/data"))
    owners.write(LOG, SLOT)
    owners.read(LOG)
    read_bytes = owners._bytes.read
    reads: list[tuple[int, int]] = []

    def read_noted(at: int, size: int) -> bytes:
        reads.append((at, size))
        return read_bytes(at, size)

    monkeypatch.setattr(owners._bytes, "read", read_noted)
    owners.read(LOG)
    assert reads == [(position(lock_byte_of(LOG)), ON_DISK.size)]


def test_a_log_that_had_no_slot_is_found_once_another_node_has_written_one(data_folder: DataFolder) -> None:
    first, second = table(data_folder), table(data_folder)
    assert first.read(LOG) == NO_SLOT
    second.write(LOG, SLOT)
    assert first.read(LOG) == SLOT


def test_logs_of_a_node_are_those_that_it_owns(data_folder: DataFolder) -> None:
    owners = table(data_folder)
    logs = [LogId("t", number) for number in range(5)]
    for id, node, state in zip(logs, (1, 2, 1, 1, 0), (OWNED, OWNED, FREE, OWNED, OWNED), strict=True):
        owners.write(id, Slot(node, 1, 0, state, writer_open(node)))
    assert sorted(owners.logs_of(1)) == sorted([lock_byte_of(logs[0]), lock_byte_of(logs[3])])
    assert (owners.logs_of(2), owners.logs_of(0), owners.logs_of(3)) == ([lock_byte_of(logs[1])], [lock_byte_of(logs[4])], [])


def test_the_logs_in_the_first_and_the_last_slot_are_among_those_of_their_node(disk: SimDisk) -> None:
    owners = on_disk(disk, (0, (3, *SLOT)), (SLOTS - 1, (5, *SLOT)))
    assert owners.logs_of(2) == [3, 5]


def test_a_log_is_freed_if_the_node_was_its_owner(data_folder: DataFolder) -> None:
    owners = table(data_folder)
    owners.write(LOG, SLOT)
    owners.free(lock_byte_of(LOG), 3)
    assert owners.read(LOG) == SLOT
    owners.free(lock_byte_of(LOG), 2)
    assert owners.read(LOG) == SLOT._replace(state=FREE)
    owners.free(lock_byte_of(LOG), 2)
    assert owners.read(LOG) == SLOT._replace(state=FREE)
    owners.write(LOG, SLOT._replace(state=UNUSED))
    owners.free(lock_byte_of(LOG), 2)
    assert owners.read(LOG).state == UNUSED


def test_each_change_of_a_node_changes_the_version_for_all(data_folder: DataFolder) -> None:
    first, second = table(data_folder), table(data_folder)
    versions = [second.version]
    for node in (1, 1, 2, 511, 512, 513):
        first.count_change(node)
        assert first.version == second.version
        assert second.version not in versions
        versions.append(second.version)
    counters = Struct("<512Q").unpack(second.version)
    assert (counters[0], counters[1], counters[2], counters[511], sum(counters)) == (1, 3, 1, 1, 6)
    for _ in range(300):
        first.count_change(7)
    assert Struct("<512Q").unpack(second.version)[7] == 300


def test_a_counter_has_eight_bytes(disk: SimDisk) -> None:
    overwrite(disk, f"/data/{OWNERS_FILE}", ((1 << 56) - 1).to_bytes(8, "little") * 2)
    owners = table(DataFolder(disk, "/data"))
    owners.count_change(0)
    owners.count_change(0)
    assert Struct("<512Q").unpack(owners.version)[:3] == ((1 << 56) + 1, (1 << 56) - 1, 0)


def test_forgetting_writers_invalidates_the_files_of_nodes(disk: SimDisk) -> None:
    logs = [LogId("t", number) for number in range(5)]
    owners = table(DataFolder(disk, "/data"))
    slots = [
        SLOT,
        Slot(3, 4, 9, FREE, writer_closed(3)),
        Slot(1, 5, 8, FREE, NO_WRITER),
        Slot(1, 6, 7, OWNED, SINGLE_BROKER),
        Slot(1, 5, 8, GONE, NO_WRITER),
    ]
    for id, slot in zip(logs, slots, strict=True):
        owners.write(id, slot)
    owners.sync()
    disk.sync_folder("/data")
    disk.random = NothingSurvives()
    owners.forget_writers()
    disk.crash()
    reopened = table(DataFolder(disk, "/data"))
    assert [reopened.read(id) for id in logs[:3]] == [slot._replace(state=FREE, writer=SINGLE_BROKER, topic_id=NO_TOPIC) for slot in slots[:3]]
    assert reopened.read(logs[3]) == slots[3]
    assert reopened.read(logs[4]) == slots[4]._replace(writer=SINGLE_BROKER, topic_id=NO_TOPIC)
    assert reopened.read(LogId("t", 5)) == NO_SLOT


def test_forgetting_writers_includes_the_first_and_the_last_slot(disk: SimDisk) -> None:
    owners = on_disk(disk, (0, (3, *SLOT)), (SLOTS - 1, (5, *SLOT)))
    owners.forget_writers()
    data = read(disk, f"/data/{OWNERS_FILE}")
    for number, key in ((0, 3), (SLOTS - 1, 5)):
        slot = ON_DISK.unpack_from(data, HEADER_BYTES + ON_DISK.size * number)
        assert slot == (key, *SLOT._replace(state=FREE, writer=SINGLE_BROKER, topic_id=NO_TOPIC))


def test_forgetting_writers_leaves_unused_slots_unused(disk: SimDisk) -> None:
    owners = on_disk(disk, (1, (0, 0, 0, 0, 0, 9, NO_TOPIC)))
    owners.forget_writers()
    assert ON_DISK.unpack_from(read(disk, f"/data/{OWNERS_FILE}"), HEADER_BYTES + ON_DISK.size) == (0, 0, 0, 0, 0, 9, NO_TOPIC)


def test_a_synced_slot_survives_a_power_failure(disk: SimDisk) -> None:
    owners = table(DataFolder(disk, "/data"))
    disk.sync_folder("/data")
    owners.write(LOG, SLOT)
    owners.sync()
    owners.write(OTHER, SLOT)
    disk.random = NothingSurvives()
    disk.crash()
    reopened = table(DataFolder(disk, "/data"))
    assert (reopened.read(LOG), reopened.read(OTHER)) == (SLOT, NO_SLOT)


def test_a_closed_table_has_no_open_file(disk: SimDisk) -> None:
    owners = table(DataFolder(disk, "/data"))
    opened = disk.opened
    owners.close()
    assert disk.opened == opened - 1


def test_the_number_of_the_last_deletion_is_seen_by_all_nodes_and_touches_no_slot(disk: SimDisk) -> None:
    first, second = table(DataFolder(disk, "/data")), table(DataFolder(disk, "/data"))
    last = on_disk(disk, (SLOTS - 1, (5, *SLOT)))
    assert (first.last_deletion, second.last_deletion) == (0, 0)
    first = table(DataFolder(disk, "/data"))
    first.set_last_deletion(7)
    assert last.last_deletion == 7
    data = read(disk, f"/data/{OWNERS_FILE}")
    assert data[TABLE_BYTES - 8 :] == (7).to_bytes(8, "little")
    assert ON_DISK.unpack_from(data, HEADER_BYTES + ON_DISK.size * (SLOTS - 1)) == (5, *SLOT)
