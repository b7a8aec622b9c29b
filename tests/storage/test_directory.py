"""The data directory: its ids, its lock, its checkpoints, and foreign directories."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.disk import NothingSurvives, SimDisk
from storage import DataDirectory, DirectoryForeign, DirectoryLocked, DirectoryUnusable, OsDisk
from storage.checkpoints import read_offsets, write_offsets
from storage.directory import check_location
from tests.running import environment
from tests.storage.conftest import DataFolder
from tests.storage.logs import overwrite, read
from tests.storage.node_folders import Ids

NODE = 1


def opened(data_folder: DataFolder, node_id: int = NODE, cluster_id: str = "") -> DataDirectory:
    return DataDirectory.open(data_folder.disk, f"{data_folder.path}/data", node_id, cluster_id, "process 7", Ids())


def stopped(data_folder: DataFolder) -> None:
    directory = opened(data_folder)
    directory.remove_clean_marker()
    directory.checkpoint({("orders", 0): 5})
    directory.mark_clean()
    directory.close()


def snapshot(folder: str) -> dict[str, tuple[int, bytes]]:
    """Names, times and bytes of all files in a folder."""
    contents = {}
    for root, _, files in os.walk(folder):
        contents[root] = (os.stat(root).st_mtime_ns, b"")
        for name in files:
            path = Path(root, name)
            contents[str(path)] = (path.stat().st_mtime_ns, path.read_bytes())
    return contents


def test_the_time_of_last_use_is_stored_and_read_back(data_folder: DataFolder) -> None:
    directory = opened(data_folder)
    assert (directory.is_new, directory.last_use()) == (True, -1)
    directory.note_use(1_700_000_000_123)
    directory.close()
    reopened = opened(data_folder)
    assert (reopened.is_new, reopened.last_use()) == (False, 1_700_000_000_123)


@pytest.mark.parametrize("damage", [b"", b"-5\n", b"17000000000001700000000000\n", b"soon\n", b"\xff\xfe\0", "\u0663\n".encode()])
def test_an_unreadable_time_of_last_use_is_ignored(data_folder: DataFolder, damage: bytes) -> None:
    directory = opened(data_folder)
    directory.note_use(5)
    overwrite(data_folder.disk, f"{data_folder.path}/data/tenure.clock", damage)
    assert directory.last_use() == -1


def test_storing_the_time_of_last_use_never_syncs() -> None:
    disk = SimDisk()
    directory = opened(DataFolder(disk, "/disk"))
    disk.fail_syncs = disk.fail_folder_syncs = 1
    directory.note_use(10**18 - 1)
    assert directory.last_use() == 10**18 - 1
    directory.note_use(10**18)
    assert directory.last_use() == -1


def test_a_directory_is_checked_again_once_its_lock_is_held() -> None:
    disk = SimDisk()
    data_folder = DataFolder(disk, "/disk")
    stopped(data_folder)
    original = disk.lock

    def lock(path: str, holder: str) -> object:
        overwrite(disk, "/disk/data/meta.properties", b"node.id=7\nversion=1\ncluster.id=c\n")
        return original(path, holder)

    disk.lock = lock  # type: ignore[assignment,method-assign]
    with pytest.raises(DirectoryForeign, match="belongs to node 7"):
        opened(data_folder)
    assert disk.locks == {}


def test_an_unchanged_checkpoint_is_not_rewritten() -> None:
    disk = SimDisk()
    data_folder = DataFolder(disk, "/disk")
    points = {("orders", 0): 0, ("orders", 1): 5}
    directory = opened(data_folder)
    directory.checkpoint(points)
    directory.checkpoint_cleaned(points)
    directory.checkpoint_starts(points)
    assert directory.log_starts == points
    directory.close()
    changes = len(disk.changes)
    directory = opened(data_folder)
    directory.checkpoint(points)
    directory.checkpoint_cleaned(points)
    directory.checkpoint_starts(points)
    directory.forget([("notes", 0)])
    assert disk.changes[changes:] == []


def test_the_first_start_generates_ids_and_the_second_keeps_them(data_folder: DataFolder) -> None:
    first = opened(data_folder)
    assert (first.node_id, first.directory_id, first.cluster_id, first.clean) == (1, "id-1", "id-2", False)
    assert first.is_new
    first.remove_clean_marker()
    first.close()
    second = opened(data_folder, cluster_id="id-2")
    assert (second.directory_id, second.cluster_id, second.is_new) == ("id-1", "id-2", False)
    second.close()
    with pytest.raises(DirectoryForeign, match="belongs to cluster id-2, not other"):
        opened(data_folder, cluster_id="other")
    text = data_folder.disk.read_text(f"{data_folder.path}/data/meta.properties")
    assert text == "node.id=1\ndirectory.id=id-1\nversion=1\ncluster.id=id-2\n"
    assert data_folder.disk.read_text(f"{data_folder.path}/data/tenure.format") == "1\n"


def test_a_requested_cluster_id_is_used(data_folder: DataFolder) -> None:
    assert opened(data_folder, cluster_id="mine").cluster_id == "mine"


def test_an_orderly_stop_is_marked_until_the_next_start_begins(data_folder: DataFolder) -> None:
    stopped(data_folder)
    directory = opened(data_folder)
    assert (directory.clean, directory.recovery_points) == (True, {("orders", 0): 5})
    assert data_folder.disk.read_text(f"{data_folder.path}/data/.kafka_cleanshutdown") == '{"version":0,"brokerEpoch":-1}'
    directory.close()
    directory = opened(data_folder)  # reading it changes nothing
    assert directory.clean
    directory.remove_clean_marker()
    directory.close()
    assert not opened(data_folder).clean


def test_recovery_points_of_foreign_logs_are_kept(data_folder: DataFolder) -> None:
    stopped(data_folder)
    directory = opened(data_folder)
    directory.checkpoint({("payments of all", 3): 7})
    directory.close()
    path = f"{data_folder.path}/data/recovery-point-offset-checkpoint"
    assert data_folder.disk.read_text(path) == "0\n2\norders 0 5\npayments of all 3 7\n"
    assert read_offsets(data_folder.disk, path) == {("orders", 0): 5, ("payments of all", 3): 7}


@pytest.mark.parametrize("text", ["", "0", "0\n1\n", "0\nmany\n", "0\n1\norders zero 5\n", "0\n2\norders 0 5\n", "\xff\xfe"])
def test_an_invalid_checkpoint_is_ignored(data_folder: DataFolder, text: str) -> None:
    overwrite(data_folder.disk, f"{data_folder.path}/points", text.encode("latin-1"))
    assert read_offsets(data_folder.disk, f"{data_folder.path}/points") == {}
    write_offsets(data_folder.disk, f"{data_folder.path}/points", {("orders", 0): 1})
    assert read_offsets(data_folder.disk, f"{data_folder.path}/points") == {("orders", 0): 1}


def test_a_locked_directory_names_its_owner(data_folder: DataFolder) -> None:
    first = opened(data_folder)
    with pytest.raises(DirectoryLocked, match="data is in use by process 7"):
        opened(data_folder)
    first.close()
    opened(data_folder).close()


def test_the_lock_ends_with_the_process_that_crashed() -> None:
    disk = SimDisk()
    data_folder = DataFolder(disk, "/disk")
    opened(data_folder)
    disk.crash()
    opened(data_folder).close()


FOREIGN = {
    "tenure.format": [
        ("unfinished-export\n", "is an export that has not finished"),
        ("2\n", "has format 2, that of several nodes of an earlier version: start that version once without --nodes"),
        ("3\n", "has format 3, that of several nodes, which a single broker converts only with its folder nodes; restore the folder"),
        ("9\n", "has format 9 and this version reads up to 3; start the version that wrote it"),
        ("\n", "has format nothing"),
        ("latest", "has format latest"),
        ("\u00b2\n", "has format \u00b2"),
    ],
    "meta.properties": [
        ("node.id=7\nversion=1\ncluster.id=c\n", "belongs to node 7, not 1: set node.id=7"),
        ("version=1\ncluster.id=c\n", "is damaged: it has no readable node.id; restore it from a backup, or write version=1"),
        ("nnde.id=1\nversion=1\ncluster.id=c\n", "is damaged: it has no readable node.id"),
        ("node.id=q\nversion=1\ncluster.id=c\n", "is damaged: it has no readable node.id"),
        ("node.id=1\nversion=1\ncluster.id=theirs\n", "belongs to cluster theirs, not ours"),
        ("node.id=1\nversion=2\ncluster.id=c\n", "is damaged"),
        ("node.id=1\nversion=1\n", "is damaged"),
        ("", "is damaged"),
        ("\0" * 100, "is damaged"),
    ],
}


@pytest.mark.parametrize(("file", "text", "message"), [(file, *case) for file, cases in FOREIGN.items() for case in cases])
def test_a_foreign_directory_is_refused_and_left_untouched(tmp_path: Path, file: str, text: str, message: str) -> None:
    data_folder = DataFolder(OsDisk(), str(tmp_path))
    stopped(data_folder)
    (tmp_path / "data" / file).write_text(text)
    before = snapshot(str(tmp_path))
    with pytest.raises(DirectoryForeign, match=message):
        opened(data_folder, cluster_id="ours" if "theirs" in text else "")
    assert snapshot(str(tmp_path)) == before
    (tmp_path / "data" / file).unlink()
    opened(data_folder).close()  # this succeeds, so the refusal has released the lock


KAFKA_META = b"#\n#Sat Nov 21 09:41:09 UTC 2026\nnode.id=1\nversion=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n"


@pytest.mark.parametrize("writer", ["tenure", "kafka"])
@pytest.mark.parametrize("place", ["orders-0", "nodes/1", "new", "new/data"])
def test_a_folder_inside_a_data_directory_is_no_place_for_another(data_folder: DataFolder, writer: str, place: str) -> None:
    disk, path = data_folder.disk, data_folder.path
    disk.make_folder(f"{path}/data/orders-0")
    disk.make_folder(f"{path}/data/nodes/1")
    if writer == "tenure":
        opened(data_folder).close()
    else:
        overwrite(disk, f"{path}/data/meta.properties", KAFKA_META)
    with pytest.raises(DirectoryForeign, match=f"^data directory {path}/data/{place} lies inside the data directory {path}/data: name that one, or"):
        check_location(disk, f"{path}/data/{place}")
    check_location(disk, f"{path}/data")
    check_location(disk, f"{path}/data-2/{place}")


def test_a_data_directory_that_was_made_inside_another_one_is_still_used(data_folder: DataFolder) -> None:
    disk, path = data_folder.disk, data_folder.path
    inner = f"{path}/data/inner"
    disk.make_folder(inner)
    overwrite(disk, f"{inner}/meta.properties", KAFKA_META)
    opened(data_folder).close()
    check_location(disk, inner)
    disk.make_folder(f"{inner}/new")
    with pytest.raises(DirectoryForeign, match=f"lies inside the data directory {inner}: "):
        check_location(disk, f"{inner}/new")


def test_the_folder_of_a_log_is_no_data_directory_wherever_it_lies(data_folder: DataFolder) -> None:
    disk, path = data_folder.disk, data_folder.path
    disk.make_folder(f"{path}/copies/orders-0")
    disk.make_folder(f"{path}/copies/notes")
    overwrite(disk, f"{path}/copies/orders-0/00000000000000000017.log", b"")
    overwrite(disk, f"{path}/copies/notes/broker.log", b"")
    with pytest.raises(DirectoryForeign, match=f"^data directory {path}/copies/orders-0 is the folder of a log, with segments such as 0{{20}}.log"):
        check_location(disk, f"{path}/copies/orders-0")
    check_location(disk, f"{path}/copies")
    check_location(disk, f"{path}/copies/notes")


def test_files_of_other_programs_make_no_data_directory(data_folder: DataFolder) -> None:
    disk, path = data_folder.disk, data_folder.path
    for text in (b"", b"version=1\n", b"\xff\xfe"):
        overwrite(disk, f"{path}/meta.properties", text)
        check_location(disk, f"{path}/data")


def test_a_link_does_not_hide_where_a_folder_lies(tmp_path: Path) -> None:
    data_folder = DataFolder(OsDisk(), str(tmp_path))
    opened(data_folder).close()
    (tmp_path / "data" / "orders-0").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data" / "orders-0")
    with pytest.raises(DirectoryForeign, match="link lies inside the data directory"):
        check_location(OsDisk(), f"{tmp_path}/link")


def test_a_directory_stopped_by_kafka_keeps_its_ids(data_folder: DataFolder) -> None:
    text = (
        "#\n#Sat Nov 21 09:41:09 UTC 2026\nnode.id=1\ndirectory.id=umQ6PWBacwC-isn-2j2Gkw\nversion=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n"
    )
    data_folder.disk.make_folder(f"{data_folder.path}/data")
    overwrite(data_folder.disk, f"{data_folder.path}/data/meta.properties", text.encode())
    overwrite(data_folder.disk, f"{data_folder.path}/data/.kafka_cleanshutdown", b'{"version":0,"brokerEpoch":13}')
    overwrite(data_folder.disk, f"{data_folder.path}/data/recovery-point-offset-checkpoint", b"0\n1\n__consumer_offsets 0 12\n")
    directory = opened(data_folder)
    assert (directory.cluster_id, directory.directory_id, directory.clean) == ("MkU3OEVBNTcwNTJENDM2Qg", "umQ6PWBacwC-isn-2j2Gkw", True)
    assert directory.recovery_points == {("__consumer_offsets", 0): 12}
    assert data_folder.disk.read_text(f"{data_folder.path}/data/meta.properties") == text


def test_a_kafka_directory_without_directory_ids_is_accepted(data_folder: DataFolder) -> None:
    data_folder.disk.make_folder(f"{data_folder.path}/data")
    overwrite(data_folder.disk, f"{data_folder.path}/data/meta.properties", b"version=0\nbroker.id=1\ncluster.id=c\n")
    directory = opened(data_folder)
    assert (directory.node_id, directory.cluster_id, directory.directory_id) == (1, "c", "")


@pytest.mark.parametrize("step", range(24))
def test_a_crash_while_it_starts_leaves_a_directory_that_starts(step: int) -> None:
    disk = SimDisk()
    disk.random.seed(step)
    data_folder = DataFolder(disk, "/disk")
    disk.changes_until_crash = step
    try:
        stopped(data_folder)
    except BaseException:
        disk.crash()
    disk.changes_until_crash = -1
    directory = opened(data_folder)
    assert directory.cluster_id == "id-2"
    if directory.clean:
        assert directory.recovery_points == {("orders", 0): 5}


def test_a_directory_that_cannot_be_used_is_named_with_the_reason() -> None:
    disk = SimDisk()
    data_folder = DataFolder(disk, "/disk")
    disk.room = 10
    with pytest.raises(DirectoryUnusable, match="data directory /disk/data: No space left on device"):
        opened(data_folder)
    disk.room = None
    stopped(data_folder)
    disk.read_only = True
    with pytest.raises(DirectoryUnusable, match="Read-only file system"):
        opened(data_folder)
    disk.read_only = False
    disk.unreadable = "meta.properties"
    with pytest.raises(DirectoryUnusable, match="Input/output error"):
        opened(data_folder)
    disk.unreadable = ""
    directory = opened(data_folder)
    disk.fail_folder_syncs = 1
    with pytest.raises(DirectoryUnusable, match="Input/output error"):
        directory.remove_clean_marker()
    assert disk.locks == {}  # every failure released the lock
    opened(data_folder).close()


def test_a_file_where_the_directory_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a folder")
    with pytest.raises(DirectoryUnusable, match="data: not a directory"):
        opened(DataFolder(OsDisk(), str(tmp_path)))


def test_a_lock_that_cannot_be_written_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data_folder = DataFolder(OsDisk(), str(tmp_path))

    def full(descriptor: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = len(os.listdir("/dev/fd"))
    monkeypatch.setattr(os, "ftruncate", full)
    with pytest.raises(DirectoryUnusable, match="No space left"):
        opened(data_folder)
    monkeypatch.undo()
    assert len(os.listdir("/dev/fd")) == before
    opened(data_folder).close()


def test_missing_parent_folders_are_created(tmp_path: Path) -> None:
    OsDisk().make_folder(f"{tmp_path}/a/b/c")
    OsDisk().make_folder(f"{tmp_path}/a/b/c")
    assert (tmp_path / "a/b/c").is_dir()


def test_cleaner_and_log_start_checkpoints_are_kafkas(data_folder: DataFolder) -> None:
    directory = opened(data_folder)
    directory.checkpoint_cleaned({("orders", 0): 5})
    directory.checkpoint_cleaned({("orders", 1): 7})
    directory.checkpoint_starts({("notes", 0): 9})
    directory.close()
    assert read(data_folder.disk, f"{data_folder.path}/data/cleaner-offset-checkpoint") == b"0\n2\norders 0 5\norders 1 7\n"
    assert read(data_folder.disk, f"{data_folder.path}/data/log-start-offset-checkpoint") == b"0\n1\nnotes 0 9\n"
    reopened = opened(data_folder)
    assert reopened.cleaner_points == {("orders", 0): 5, ("orders", 1): 7}
    assert (reopened.log_starts, reopened.recovery_points) == ({("notes", 0): 9}, {})
    reopened.close()


def test_a_deleted_partition_is_removed_from_every_checkpoint(data_folder: DataFolder) -> None:
    directory = opened(data_folder)
    points = {("orders", 0): 5, ("orders", 1): 6, ("notes", 0): 7}
    directory.checkpoint(points)
    directory.checkpoint_cleaned(points)
    directory.checkpoint_starts(points)
    directory.forget([("orders", 0), ("orders", 1), ("nobody", 3)])
    offsets = {("notes", 0): 7}
    assert (directory.recovery_points, directory.cleaner_points, directory.log_starts) == (offsets, offsets, offsets)
    directory.close()
    reopened = opened(data_folder)
    assert (reopened.recovery_points, reopened.cleaner_points, reopened.log_starts) == (offsets, offsets, offsets)


def test_only_the_log_start_checkpoint_never_decreases(data_folder: DataFolder) -> None:
    directory = opened(data_folder)
    for points in ({("orders", 0): 5, ("orders", 1): 1}, {("orders", 0): 4, ("orders", 1): 2}):
        directory.checkpoint(points)
        directory.checkpoint_cleaned(points)
        directory.checkpoint_starts(points)
    assert directory.recovery_points == directory.cleaner_points == {("orders", 0): 4, ("orders", 1): 2}
    assert directory.log_starts == {("orders", 0): 5, ("orders", 1): 2}


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        ("0\n2\norders 0 5\nmy topic 1 7\n", {("orders", 0): 5, ("my topic", 1): 7}),
        ("0\n1\norders 0 5\nnotes 1 7\n", {("orders", 0): 5}),
        ("0\n0\n", {}),
        ("0\n2\norders 0 5\n", {}),  # the file ends before its second entry
        ("0\n1\norders 0\n", {}),
        ("0\n", {}),
        ("", {}),
    ],
)
def test_a_checkpoint_has_the_number_of_lines_in_its_header(data_folder: DataFolder, text: str, offsets: dict[tuple[str, int], int]) -> None:
    overwrite(data_folder.disk, f"{data_folder.path}/points", text.encode())
    assert read_offsets(data_folder.disk, f"{data_folder.path}/points") == offsets
    assert read_offsets(data_folder.disk, f"{data_folder.path}/none") == {}
    write_offsets(data_folder.disk, f"{data_folder.path}/points", offsets)
    lines = "".join(f"{topic} {partition} {offset}\n" for (topic, partition), offset in offsets.items())
    assert read(data_folder.disk, f"{data_folder.path}/points").decode() == f"0\n{len(offsets)}\n{lines}"


def test_a_directory_in_use_is_not_clean_after_a_power_failure() -> None:
    disk = SimDisk(NothingSurvives())
    data_folder = DataFolder(disk, "")
    stopped(data_folder)
    directory = opened(data_folder)
    assert directory.clean
    directory.remove_clean_marker()
    disk.crash()
    assert not opened(data_folder).clean


LOCKER = """
import fcntl, sys
file = open(sys.argv[1], "w")
getattr(fcntl, sys.argv[2])(file, fcntl.LOCK_EX)
file.write("process of another kind")
file.flush()
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("locking", ["flock", "lockf"])  # the lock of this broker, and that of Java, which Kafka uses
def test_the_lock_of_another_process_holds_until_it_dies(tmp_path: Path, locking: str) -> None:
    data_folder = DataFolder(OsDisk(), str(tmp_path))
    stopped(data_folder)
    command = [sys.executable, "-c", LOCKER, str(tmp_path / "data/.lock"), locking]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        for _ in range(2):
            with pytest.raises(DirectoryLocked, match="in use by process of another kind"):
                opened(data_folder)
        holder.kill()
    opened(data_folder).close()
