"""A data directory of several nodes: its conversion, and the files that each node has for itself."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulator.disk import Crashed, NothingSurvives, SimDisk
from storage import DataDirectory, DirectoryForeign, DirectoryLocked, DirectoryUnusable, LogId, OsDisk
from storage.checkpoints import read_offsets, write_offsets
from storage.node_directory import NodeDirectory
from storage.node_merge import merge_nodes
from storage.owners import FREE, OWNED, SINGLE_BROKER, OwnerTable, Slot, writer_open
from tests.storage.conftest import DataFolder
from tests.storage.logs import overwrite, read
from tests.storage.node_folders import META, ROOT, Ids, files_in, leave_turns, open_node, written_by

A, B = ("a", 0), ("b", 1)
SINGLE = f"{ROOT}/nodes/single"
OF_ONE_PROCESS = (
    "turns.1",
    "turns.22",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "tenure.clock",
    ".kafka_cleanshutdown",
)


def alone(disk: SimDisk, node_id: int = 3) -> DataDirectory:
    return DataDirectory.open(disk, ROOT, node_id, "", "a broker", Ids())


def left_by_one_broker(disk: SimDisk) -> dict[str, bytes]:
    """A directory after an orderly stop of a broker; returns the files that belonged to its process."""
    directory = alone(disk)
    directory.remove_clean_marker()
    directory.close()
    for name in OF_ONE_PROCESS:
        overwrite(disk, f"{ROOT}/{name}", name.encode())
    return {name: name.encode() for name in OF_ONE_PROCESS}


def test_the_first_node_makes_the_directory(data_folder: DataFolder) -> None:
    root = f"{data_folder.path}/data"
    directory = NodeDirectory.open_node(data_folder.disk, root, 2, "", "process 7", Ids())  # type: ignore[arg-type]
    assert (directory.root, directory.path) == (root, f"{root}/nodes/2")
    assert (directory.is_new, directory.clean, directory.last_use()) == (True, False, -1)
    assert directory.log_folder("orders", 4) == f"{root}/orders-4"
    assert data_folder.disk.read_text(f"{root}/tenure.format") == "3\n"
    assert data_folder.disk.read_text(f"{root}/meta.properties") == "node.id=0\ndirectory.id=id-2\nversion=1\ncluster.id=id-1\n"
    assert data_folder.disk.read_text(f"{root}/nodes/2/meta.properties") == "node.id=2\ndirectory.id=id-3\nversion=1\ncluster.id=id-1\n"
    assert directory.cluster_id == "id-1"
    assert not data_folder.disk.exists(f"{root}/nodes/single")
    directory.close()


def test_nodes_share_the_cluster_and_keep_their_own_folders(disk: SimDisk) -> None:
    first, second = open_node(disk, 1, "c"), open_node(disk, 2)
    assert (first.cluster_id, second.cluster_id) == ("c", "c")
    assert first.directory_id != second.directory_id
    first.checkpoint({A: 5})
    first.note_use(17)
    assert (second.recovery_points, second.last_use()) == ({}, -1)
    first.mark_clean()
    first.close()
    reopened = open_node(disk.for_another_process(), 1)
    assert (reopened.is_new, reopened.clean, reopened.recovery_points, reopened.last_use()) == (False, True, {A: 5}, 17)


def test_a_folder_of_a_node_is_opened_once(data_folder: DataFolder) -> None:
    disk = data_folder.disk
    first = NodeDirectory.open_node(disk, data_folder.path, 1, "", "process 7", Ids())  # type: ignore[arg-type]
    with pytest.raises(DirectoryLocked, match=f"^node 1 of data directory {data_folder.path} is already running: process 7$"):
        NodeDirectory.open_node(disk, data_folder.path, 1, "", "process 8", Ids())  # type: ignore[arg-type]
    second = NodeDirectory.open_node(disk, data_folder.path, 2, "", "process 8", Ids())  # type: ignore[arg-type]
    first.close()
    NodeDirectory.open_node(disk, data_folder.path, 1, "", "process 9", Ids()).close()  # type: ignore[arg-type]
    second.close()


@pytest.mark.parametrize(("holder", "named"), [("process 7", "process 7"), ("", "another process")])
def test_a_directory_that_is_being_prepared_is_locked(disk: SimDisk, holder: str, named: str) -> None:
    lock = disk.lock(f"{ROOT}/.lock", holder)
    with pytest.raises(DirectoryLocked, match=f"^data directory {ROOT} is in use by {named}$"):
        open_node(disk)
    assert not isinstance(lock, str)
    lock.release()
    disk.make_folder(f"{ROOT}/nodes/1")
    disk.lock(f"{ROOT}/nodes/1/.lock", holder)
    with pytest.raises(DirectoryLocked, match=f"is already running: {named}$"):
        open_node(disk)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff", "nodes/2/meta.properties is damaged: it has no readable version and cluster.id"),
        (META.encode(), "nodes/2/meta.properties belongs to node 0, not 2"),
        (b"node.id=2\nversion=1\ncluster.id=other\n", "nodes/2/meta.properties belongs to cluster other, not c"),
    ],
)
def test_a_damaged_or_foreign_folder_of_a_node_is_refused(disk: SimDisk, data: bytes, message: str) -> None:
    open_node(disk, 1, "c").close()
    disk.make_folder(f"{ROOT}/nodes/2")
    overwrite(disk, f"{ROOT}/nodes/2/meta.properties", data)
    with pytest.raises(DirectoryForeign, match=message):
        open_node(disk, 2)
    assert disk.locks == {}


def test_a_directory_that_cannot_be_used_is_named_with_the_reason(disk: SimDisk) -> None:
    disk.read_only = True
    with pytest.raises(DirectoryUnusable, match=f"^data directory /new: {os.strerror(errno.EROFS)}$"):
        open_node(disk, root="/new")

    def refuse(path: str, durable: bool = True) -> None:
        raise OSError("the disk is away")

    disk.make_folder = refuse  # type: ignore[method-assign]
    with pytest.raises(DirectoryUnusable, match=r"^data directory /new: the disk is away$"):
        open_node(disk, root="/new")


@pytest.mark.parametrize(
    ("file", "data", "message"),
    [
        ("tenure.format", b"4\n", "has format 4 and this version reads up to 3; start the version that wrote it"),
        ("tenure.format", b"2\n", "has format 2, that of several nodes of an earlier version: start that version once without --nodes"),
        ("tenure.format", b"", "has format nothing and"),
        ("tenure.format", b"-1", "has format -1 and"),
        ("tenure.format", "\u0662".encode(), "has format \u0662 and"),
        ("meta.properties", b"node.id=1\n", f"^{ROOT}/meta.properties is damaged: it has no readable cluster.id; restore it from a backup, "),
        (
            "meta.properties",
            b"cluster.id=other\n",
            f"^{ROOT}/meta.properties belongs to cluster other, not c: leave cluster.id out or use another directory$",
        ),
    ],
)
def test_foreign_directories_are_refused_and_unchanged(disk: SimDisk, file: str, data: bytes, message: str) -> None:
    overwrite(disk, f"{ROOT}/{file}", data)
    with pytest.raises(DirectoryForeign, match=message):
        open_node(disk, cluster_id="c")
    assert files_in(disk) == {file: data}
    assert not disk.exists(f"{ROOT}/nodes")
    assert disk.locks == {}


def test_a_directory_of_one_broker_becomes_that_of_nodes_once(disk: SimDisk) -> None:
    files_before = left_by_one_broker(disk)
    written_by(disk, {LogId(*A): writer_open(1)})
    meta = disk.read_text(f"{ROOT}/meta.properties")
    first = open_node(disk, 1)
    assert first.cluster_id == alone_cluster(meta)
    assert files_in(disk, SINGLE) == files_before
    assert files_in(disk) == {"meta.properties": meta.encode(), "tenure.format": b"3\n"}
    assert (first.clean, first.recovery_points, first.last_use()) == (False, {}, -1)
    table = OwnerTable(disk, ROOT)
    assert table.read(LogId(*A)) == Slot(7, 3, 5, FREE, SINGLE_BROKER)
    table.write(LogId(*A), Slot(1, 4, 5, OWNED, writer_open(1)))
    open_node(disk, 2)
    assert files_in(disk, SINGLE) == files_before
    assert table.read(LogId(*A)) == Slot(1, 4, 5, OWNED, writer_open(1))
    with pytest.raises(DirectoryForeign, match="format 3, that of several nodes"):
        alone(disk.for_another_process())


def alone_cluster(meta: str) -> str:
    return meta.partition("cluster.id=")[2].strip()


def test_leftovers_of_earlier_conversions_are_removed(disk: SimDisk) -> None:
    left_by_one_broker(disk)
    for name in ("single", "merged"):
        disk.make_folder(f"{ROOT}/nodes/{name}")
        overwrite(disk, f"{ROOT}/nodes/{name}/turns.9", b"of another time")
    files_before = left_by_one_broker(disk)
    open_node(disk)
    assert files_in(disk, SINGLE) == files_before
    assert files_in(disk, f"{ROOT}/nodes/merged") == {}


@pytest.mark.parametrize("torn", [False, True])
def test_a_conversion_that_crashed_anywhere_is_completed_by_nodes(torn: bool) -> None:
    for disk in crashed_conversions(torn):
        files_before = left_by_one_broker(SimDisk())
        if disk.exists(SINGLE) and ".kafka_cleanshutdown" in disk.list(SINGLE):
            assert files_in(disk, SINGLE).keys() == files_before.keys(), "the marker is present only with all files"
        node = open_node(disk)
        assert files_in(disk, SINGLE).keys() == files_before.keys()
        assert read_offsets(disk, f"{SINGLE}/log-start-offset-checkpoint") == {A: 5}
        assert disk.read_text(f"{ROOT}/tenure.format") == "3\n"
        assert node.cluster_id == "id-2"
        assert OwnerTable(disk, ROOT).read(LogId(*A)).writer == SINGLE_BROKER


@pytest.mark.parametrize("torn", [False, True])
def test_a_conversion_that_crashed_anywhere_is_undone_by_one_broker(torn: bool) -> None:
    for disk in crashed_conversions(torn):
        merge_nodes(disk, ROOT, 3, "a broker")
        directory = alone(disk)
        assert (directory.recovery_points, directory.log_starts, directory.cluster_id) == ({A: 5}, {A: 5}, "id-2")


def crashed_conversions(torn: bool) -> Iterator[SimDisk]:
    """A directory of one broker, whose conversion to nodes is interrupted at each step; `torn`: by a power failure."""
    steps = 0
    while True:
        disk = SimDisk()
        disk.make_folder(ROOT)
        left_by_one_broker(disk)
        disk.remove(f"{ROOT}/turns.1")
        for name in OF_ONE_PROCESS[2:5]:
            write_offsets(disk, f"{ROOT}/{name}", {A: 5})
        leave_turns(disk, ROOT, "a-0")
        disk.remove(f"{ROOT}/turns.22")
        overwrite(disk, f"{ROOT}/turns.22", b"")
        written_by(disk, {LogId(*A): writer_open(1)})
        disk.write_back()
        disk.random = NothingSurvives()
        disk.changes_until_crash, disk.stays_down = steps, True
        try:
            open_node(disk)
        except Crashed:
            disk.crash() if torn else disk.kill()
            disk.stays_down = False
            yield disk
        else:
            assert steps > 12
            return
        steps += 1


def test_names_are_durable_before_a_later_step_counts_on_them(disk: SimDisk) -> None:
    left_by_one_broker(disk)
    disk.changes.clear()
    open_node(disk)
    counts = disk.changes.index(f"{ROOT}/tenure.format.new")
    assert disk.changes[counts - 1] == ROOT
    moved = disk.changes[disk.changes.index(f"{SINGLE}/.kafka_cleanshutdown") :]
    assert moved[1:3] == [SINGLE, ROOT]
    assert disk.opened == 0


def test_the_same_cluster_id_may_be_set_again(disk: SimDisk) -> None:
    open_node(disk, 1, "c").close()
    assert open_node(disk, 1, "c").cluster_id == "c"


def test_moved_files_are_durable_before_the_meta_properties_are_written(disk: SimDisk) -> None:
    files_before = {"recovery-point-offset-checkpoint": b"x"}
    overwrite(disk, f"{ROOT}/recovery-point-offset-checkpoint", b"x")
    disk.random = NothingSurvives()
    open_node(disk)
    disk.crash()
    assert files_in(disk, SINGLE) == files_before
    assert set(files_in(disk)) == {"tenure.format", "meta.properties"}


def test_nodes_complete_a_conversion_to_one_broker_and_convert_back(disk: SimDisk) -> None:
    """A single broker crashed after it had merged the files of the nodes. Nodes first complete its conversion, then convert back."""
    overwrite(disk, f"{ROOT}/tenure.format", b"3\n")
    overwrite(disk, f"{ROOT}/meta.properties", META.encode())
    written_by(disk, {LogId(*A): writer_open(2)})
    disk.make_folder(f"{ROOT}/nodes/merged")
    write_offsets(disk, f"{ROOT}/nodes/merged/recovery-point-offset-checkpoint", {A: 5})
    overwrite(disk, f"{ROOT}/nodes/merged/complete", b"4\n")
    open_node(disk)
    assert read_offsets(disk, f"{SINGLE}/recovery-point-offset-checkpoint") == {A: 5}
    assert files_in(disk, f"{ROOT}/nodes/merged") == {}
    assert files_in(disk)["tenure.format"] == b"3\n"
    assert OwnerTable(disk, ROOT).read(LogId(*A)).writer == SINGLE_BROKER
    assert "node.id=4\n" in disk.read_text(f"{ROOT}/meta.properties")


def test_nodes_discard_an_unfinished_collection(disk: SimDisk) -> None:
    """A single broker crashed while it was collecting the files of the nodes, so the folders of the nodes are still valid."""
    open_node(disk, 1, "c").close()
    disk.make_folder(f"{ROOT}/nodes/merged")
    write_offsets(disk, f"{ROOT}/nodes/merged/recovery-point-offset-checkpoint", {A: 5})
    written_by(disk, {LogId(*A): writer_open(1)})
    open_node(disk)
    assert not disk.exists(SINGLE)
    assert OwnerTable(disk, ROOT).read(LogId(*A)).writer == writer_open(1)


def test_an_old_merge_marker_in_a_directory_of_one_broker_is_ignored(disk: SimDisk) -> None:
    left_by_one_broker(disk)
    disk.make_folder(f"{ROOT}/nodes/merged")
    overwrite(disk, f"{ROOT}/nodes/merged/complete", b"9\n")
    overwrite(disk, f"{ROOT}/nodes/merged/turns.9", b"old")
    open_node(disk)
    assert "turns.9" not in files_in(disk, SINGLE)


# The changes of a take-over to this node's checkpoints.


def adopting(disk: SimDisk) -> NodeDirectory:
    directory = open_node(disk)
    directory.checkpoint({A: 10, B: 10})
    directory.checkpoint_starts({A: 4, B: 4})
    disk.changes.clear()
    return directory


def test_taking_over_a_log_that_grew_changes_no_checkpoint(disk: SimDisk) -> None:
    directory = adopting(disk)
    directory.adopt({A: (10, 4), ("new", 0): (7, 0)})
    assert disk.changes == []
    assert (directory.recovery_points, directory.log_starts) == ({A: 10, B: 10}, {A: 4, B: 4})


def test_an_adopted_log_whose_records_were_deleted_begins_later(disk: SimDisk) -> None:
    directory = adopting(disk)
    directory.adopt({A: (12, 6), ("new", 0): (7, 3)})
    assert (directory.recovery_points, directory.log_starts) == ({A: 10, B: 10}, {A: 6, B: 4, ("new", 0): 3})
    assert read_offsets(disk, f"{directory.path}/log-start-offset-checkpoint") == directory.log_starts


@pytest.mark.parametrize(("point", "start", "starts"), [(9, 4, {A: 4, B: 4}), (10, 3, {A: 3, B: 4}), (0, 0, {B: 4}), (12, 0, {B: 4})])
def test_an_adopted_log_of_another_topic_with_the_same_name_forgets_the_old_one(
    disk: SimDisk, point: int, start: int, starts: dict[tuple[str, int], int]
) -> None:
    directory = adopting(disk)
    directory.adopt({A: (point, start)})
    assert (directory.recovery_points, directory.log_starts) == ({B: 10}, starts)
    assert read_offsets(disk, f"{directory.path}/recovery-point-offset-checkpoint") == {B: 10}


def test_an_adopted_log_has_no_known_compaction_offset(disk: SimDisk) -> None:
    directory = adopting(disk)
    directory.checkpoint_cleaned({A: 3, B: 3})
    directory.adopt({A: (10, 4), ("new", 0): (7, 0)})
    assert directory.cleaner_points == {B: 3}
    assert directory.recovery_points == {B: 10}
    assert directory.log_starts == {A: 4, B: 4}


def test_adopting_over_the_system_is_the_same(tmp_path: Path) -> None:
    directory = NodeDirectory.open_node(OsDisk(), str(tmp_path), 1, "", "process", Ids())
    directory.checkpoint({A: 10})
    directory.adopt({A: (3, 2)})
    assert (directory.recovery_points, directory.log_starts) == ({}, {A: 2})
    directory.close()


def test_turn_files_move_with_the_other_files(disk: SimDisk) -> None:
    left_by_one_broker(disk)
    leave_turns(disk, ROOT, "a-0")
    data = read(disk, f"{ROOT}/turns.1")
    open_node(disk)
    assert files_in(disk, SINGLE)["turns.1"] == data
