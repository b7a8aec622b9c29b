"""A directory of several nodes becomes that of one broker: for each log it uses the files of the log's last writer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from simulator.disk import Crashed, NothingSurvives, SimDisk
from storage import DataDirectory, DirectoryLocked, DirectoryUnusable, LogId
from storage.checkpoints import read_offsets, write_offsets
from storage.node_merge import finish_merge, is_shared, merge_nodes, node_folder, remove_files
from storage.owners import NO_WRITER, SINGLE_BROKER, writer_closed, writer_open
from storage.turn_log import LeftoverTurns
from tests.storage.logs import overwrite, read
from tests.storage.node_folders import META, ROOT, Ids, files_in, leave_turns, open_node, written_by

POINTS, STARTS = "recovery-point-offset-checkpoint", "log-start-offset-checkpoint"
MERGED = f"{ROOT}/nodes/merged"
BY_ONE, BY_TWO, BY_SINGLE, GONE, UNKNOWN, LOST = (LogId(name, 0) for name in ("one", "two", "single", "gone", "unknown", "lost"))
OFFSETS, NOTES = LogId("__consumer_offsets", 4), LogId("__coordinator_notes", 4)
WRITERS = {BY_ONE: writer_open(1), BY_TWO: writer_closed(2), BY_SINGLE: SINGLE_BROKER, GONE: NO_WRITER, OFFSETS: writer_open(2)}
LOGS = (BY_ONE, BY_TWO, BY_SINGLE, GONE, UNKNOWN, OFFSETS, NOTES, LOST)  # UNKNOWN and LOST have no slot in the table of owners, and LOST has no folder
FOUND = {BY_ONE: 1, BY_TWO: 2, BY_SINGLE: 0, UNKNOWN: 0, OFFSETS: 2, NOTES: 2}  # the node whose folder has the files to use; 0: that of the single broker


def names(logs: Sequence[LogId]) -> list[str]:
    return [f"{log.name}-{log.partition}" for log in logs]


def left_by_nodes(disk: SimDisk, turns: bool = True) -> None:
    """The files of nodes 1 and 2, and of a single broker before them. Each folder has an entry of every log."""
    overwrite(disk, f"{ROOT}/meta.properties", META.encode())
    overwrite(disk, f"{ROOT}/tenure.format", b"3\n")
    disk.make_folder(f"{ROOT}/nodes")
    written_by(disk, WRITERS)
    disk.make_folder(f"{ROOT}/{UNKNOWN.name}-{UNKNOWN.partition}")
    for number, name in enumerate(("single", "1", "2")):
        folder = f"{ROOT}/nodes/{name}"
        disk.make_folder(folder)
        write_offsets(disk, f"{folder}/{POINTS}", {(log.name, log.partition): 100 * (number + 1) + at for at, log in enumerate(LOGS)})
        write_offsets(disk, f"{folder}/{STARTS}", {(log.name, log.partition): 10 * (number + 1) + at for at, log in enumerate(LOGS)})
        if turns:
            leave_turns(disk, folder, *names(LOGS))
    disk.write_back()


def merge(disk: SimDisk, node_id: int = 5) -> None:
    merge_nodes(disk, ROOT, node_id, "a broker")


def check_merged(disk: SimDisk, turns: bool = True) -> None:
    assert read_offsets(disk, f"{ROOT}/{POINTS}") == {(log.name, log.partition): 100 * (number + 1) + LOGS.index(log) for log, number in FOUND.items()}
    assert read_offsets(disk, f"{ROOT}/{STARTS}") == {(log.name, log.partition): 10 * (number + 1) + LOGS.index(log) for log, number in FOUND.items()}
    if turns:
        leftover = LeftoverTurns(disk, ROOT)
        assert not leftover.damage
        keys = {name: [key_of(batch) for batch in leftover.batches_of(name)] for name in leftover.names}
        folders = {log: "single" if not number else str(number) for log, number in FOUND.items()}
        assert keys == {name: [f"{ROOT}/nodes/{folders[log]} {name}.0"] for log, name in zip(FOUND, names([*FOUND]), strict=True)}
    assert disk.read_text(f"{ROOT}/tenure.format") == "1\n"
    assert not is_shared(disk, ROOT)
    assert {*files_in(disk, MERGED)} <= {"complete"}  # that file may stay, as a single broker ignores it


def key_of(batch: bytes) -> str:
    at = batch.index(b"/data/nodes")
    return batch[at : batch.index(b".0", at) + 2].decode()


def test_each_log_gets_the_files_of_its_last_writer(disk: SimDisk) -> None:
    left_by_nodes(disk)
    merge(disk)
    check_merged(disk)
    assert files_in(disk, MERGED) == {}
    assert disk.read_text(f"{ROOT}/meta.properties") == META  # the directory began with a single broker, whose directory id is kept
    assert disk.locks == {}
    directory = DataDirectory.open(disk, ROOT, 0, "", "a broker", Ids())
    assert (directory.clean, directory.cluster_id) == (False, "c")


def test_a_directory_created_by_nodes_gets_the_id_of_the_single_broker(disk: SimDisk) -> None:
    open_node(disk, 1, "c").close()
    merge(disk, 5)
    assert disk.read_text(f"{ROOT}/meta.properties") == "node.id=5\ndirectory.id=id-1\nversion=1\ncluster.id=c\n"
    directory = DataDirectory.open(disk, ROOT, 5, "", "a broker", Ids())
    assert (directory.cluster_id, directory.node_id) == ("c", 5)


def test_an_unfinished_directory_gets_no_partial_meta_properties(disk: SimDisk) -> None:
    overwrite(disk, f"{ROOT}/tenure.format", b"3\n")
    disk.make_folder(f"{ROOT}/nodes")
    merge(disk)
    assert not disk.exists(f"{ROOT}/meta.properties")
    assert disk.read_text(f"{ROOT}/tenure.format") == "1\n"


def test_the_latest_time_of_use_is_kept(disk: SimDisk) -> None:
    left_by_nodes(disk)
    for name, time in (("single", b"9\n"), ("1", b"10\n"), ("2", b"08\n")):
        overwrite(disk, f"{ROOT}/nodes/{name}/tenure.clock", time)
    merge(disk)
    assert disk.read_text(f"{ROOT}/tenure.clock") == "10\n"


@pytest.mark.parametrize(("times", "latest"), [((b"12", b"19"), "19\n"), ((b"19", b"12"), "19\n"), ((b"100", b"99"), "100\n")])
def test_times_of_use_are_compared_as_numbers(disk: SimDisk, times: tuple[bytes, bytes], latest: str) -> None:
    left_by_nodes(disk)
    for name, time in zip("12", times, strict=True):
        overwrite(disk, f"{ROOT}/nodes/{name}/tenure.clock", time)
    merge(disk)
    assert disk.read_text(f"{ROOT}/tenure.clock") == latest


def test_files_that_no_node_has_are_not_created(disk: SimDisk) -> None:
    left_by_nodes(disk, turns=False)
    merge(disk)
    check_merged(disk, turns=False)
    assert {*files_in(disk)} == {"meta.properties", "tenure.format", POINTS, STARTS}


def test_a_running_node_locks_out_a_single_broker(disk: SimDisk) -> None:
    left_by_nodes(disk)
    node = open_node(disk, 2)
    second_process = disk.for_another_process()
    second_process.locks = disk.locks
    with pytest.raises(DirectoryLocked, match=r"^data directory /data is in use by several nodes: /data/nodes/2 by process 2$"):
        merge(second_process)
    assert {*disk.locks} == {"/data/nodes/2/.lock"}
    assert disk.read_text(f"{ROOT}/tenure.format") == "3\n"
    node.close()
    merge(second_process)
    assert disk.locks == {}
    check_merged(disk)


def test_an_unnamed_lock_holder_is_called_another_process(disk: SimDisk) -> None:
    left_by_nodes(disk)
    disk.lock(f"{ROOT}/.lock", "")
    with pytest.raises(DirectoryLocked, match=r"several nodes: /data by another process$"):
        merge(disk)


def test_a_directory_of_a_single_broker_is_unchanged(disk: SimDisk) -> None:
    left_by_nodes(disk)
    merge(disk)
    before = files_in(disk)
    overwrite(disk, f"{ROOT}/nodes/1/{POINTS}", b"of another time")
    merge(disk)
    assert files_in(disk) == before


@pytest.mark.parametrize(("format", "nodes", "shared"), [(b"3\n", True, True), (b" 3", True, True), (b"1\n", True, False), (b"3\n", False, False), (None, True, False)])
def test_a_directory_is_shared_by_its_format_and_its_nodes(disk: SimDisk, format: bytes | None, nodes: bool, shared: bool) -> None:
    if format is not None:
        overwrite(disk, f"{ROOT}/tenure.format", format)
    if nodes:
        disk.make_folder(f"{ROOT}/nodes")
    assert is_shared(disk, ROOT) is shared


def test_only_folders_with_the_numbers_of_nodes_are_locked_and_read(disk: SimDisk) -> None:
    left_by_nodes(disk)
    for name in ("1.json", "\u0661", "x"):
        overwrite(disk, f"{ROOT}/nodes/{name}", b"")
    merge(disk)
    check_merged(disk)


def test_damaged_turns_refuse_the_conversion(disk: SimDisk) -> None:
    left_by_nodes(disk)
    data = bytearray(read(disk, f"{ROOT}/nodes/2/turns.1"))
    data[30] ^= 1
    overwrite(disk, f"{ROOT}/nodes/2/turns.1", bytes(data))
    with pytest.raises(DirectoryUnusable, match=r"^/data/nodes/2/turns.1 is damaged: start the nodes again, which know which logs may lack batches"):
        merge(disk)
    assert disk.read_text(f"{ROOT}/tenure.format") == "3\n"
    assert disk.locks == {}
    assert disk.opened == 0
    disk.remove(f"{ROOT}/nodes/2/turns.1")
    merge(disk)


def test_batches_of_a_log_without_a_partition_number_are_ignored(disk: SimDisk) -> None:
    left_by_nodes(disk, turns=False)
    leave_turns(disk, f"{ROOT}/nodes/1", "nonsense", "one-0")
    merge(disk)
    assert LeftoverTurns(disk, ROOT).names == ["one-0"]


def test_a_collection_interrupted_by_a_crash_starts_again(disk: SimDisk) -> None:
    left_by_nodes(disk)
    disk.make_folder(MERGED)
    for name in ("turns.7", "tenure.clock", POINTS):
        overwrite(disk, f"{MERGED}/{name}", b"half")
    merge(disk)
    check_merged(disk)
    assert not disk.exists(f"{ROOT}/turns.7")
    assert not disk.exists(f"{ROOT}/tenure.clock")


def test_a_complete_collection_is_not_repeated(disk: SimDisk) -> None:
    """Some collected files may have been moved already, and the folders of the nodes may be older than the collection."""
    left_by_nodes(disk)
    disk.make_folder(MERGED)
    overwrite(disk, f"{MERGED}/tenure.clock", b"7\n")
    overwrite(disk, f"{MERGED}/complete", b"6\n")
    overwrite(disk, f"{ROOT}/{POINTS}", b"moved before the crash")
    remove_files(disk, f"{ROOT}/nodes/single")
    disk.remove_folder(f"{ROOT}/nodes/single")
    merge(disk, 5)
    assert disk.read_text(f"{ROOT}/tenure.clock") == "7\n"
    assert read(disk, f"{ROOT}/{POINTS}") == b"moved before the crash"
    assert disk.read_text(f"{ROOT}/meta.properties") == META.replace("node.id=0", "node.id=6")


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("then", ["one broker", "nodes"])
def test_a_merge_that_crashed_anywhere_is_completed_by_either_kind_of_start(torn: bool, then: str) -> None:
    steps = 0
    while True:
        disk = SimDisk()
        disk.make_folder(ROOT)
        left_by_nodes(disk)
        disk.random = NothingSurvives()
        disk.changes_until_crash, disk.stays_down = steps, True
        try:
            merge(disk)
        except Crashed:
            if torn:
                disk.crash()
            else:
                disk.kill()
        else:
            assert steps > 12
            disk.crash()  # a power failure after the merge loses nothing
            check_merged(disk)
            return
        disk.stays_down = False
        if then == "nodes":
            open_node(disk).close()
        merge(disk)
        check_merged(disk)
        steps += 1


def test_finishing_a_merge_keeps_all_other_files(disk: SimDisk) -> None:
    left_by_nodes(disk)
    overwrite(disk, f"{ROOT}/orders-0", b"a log")
    disk.make_folder(MERGED)
    overwrite(disk, f"{MERGED}/complete", b"0\n")
    finish_merge(disk, ROOT)
    assert read(disk, f"{ROOT}/orders-0") == b"a log"
    assert disk.read_text(f"{ROOT}/tenure.format") == "1\n"


def test_names_are_durable_before_the_format_counts_on_them(disk: SimDisk) -> None:
    left_by_nodes(disk)
    disk.changes.clear()
    merge(disk)
    moved = disk.changes.index(f"{ROOT}/{STARTS}")
    assert {ROOT, MERGED} <= {*disk.changes[moved : disk.changes.index(f"{ROOT}/tenure.format.new")]}
    assert disk.opened == 0


def test_a_directory_without_nodes_is_unchanged(disk: SimDisk) -> None:
    overwrite(disk, f"{ROOT}/tenure.format", b"3\n")
    merge(disk)
    assert files_in(disk) == {"tenure.format": b"3\n"}
    assert disk.locks == {}


def test_removing_the_files_of_a_folder_is_durable(disk: SimDisk) -> None:
    overwrite(disk, f"{ROOT}/a", b"")
    overwrite(disk, f"{ROOT}/b", b"")
    disk.random = NothingSurvives()
    remove_files(disk, ROOT)
    disk.crash()
    assert disk.list(ROOT) == []


def test_the_folder_of_a_node() -> None:
    assert (node_folder("/data", 3), node_folder("/data", "single")) == ("/data/nodes/3", "/data/nodes/single")
