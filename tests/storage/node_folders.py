"""Data directories as nodes leave them, for the tests of conversions."""

from __future__ import annotations

from simulator.disk import SimDisk
from storage import Disk, LogId
from storage.directory import OWNERS_FILE
from storage.node_directory import NodeDirectory
from storage.owners import FREE, OwnerTable, Slot
from storage.turn_log import TurnLog
from tests.storage.logs import read
from tests.storage.turns import stamped_batch, turn_of

ROOT = "/data"
META = "node.id=0\ndirectory.id=id-1\nversion=1\ncluster.id=c\n"


class Ids:
    """Predictable ids."""

    def __init__(self) -> None:
        self.given = 0

    def __call__(self) -> str:
        self.given += 1
        return f"id-{self.given}"


def open_node(disk: SimDisk, node_id: int = 1, cluster_id: str = "", root: str = ROOT) -> NodeDirectory:
    return NodeDirectory.open_node(disk, root, node_id, cluster_id, f"process {node_id}", Ids())


def written_by(disk: SimDisk, writers: dict[LogId, int]) -> None:
    """The table of owners names these writers."""
    table = OwnerTable(disk, ROOT)
    for log, writer in writers.items():
        table.write(log, Slot(7, 3, 5, FREE, writer))
    table.sync()
    table.close()


def leave_turns(disk: Disk, folder: str, *names: str) -> None:
    """Write the turn log `turns.1` with a batch for each of these logs."""
    turns = TurnLog(disk, folder, 1)
    turns.write(turn_of(*[(name, stamped_batch(f"{folder} {name}", 0)) for name in names]))
    turns.close()


def files_in(disk: SimDisk, folder: str = ROOT) -> dict[str, bytes]:
    """The files of a folder, without its locks and the folders of logs."""
    names = [name for name in disk.list(folder) if name not in (".lock", "nodes", OWNERS_FILE, "locks", "unknown-0")]
    return {name: read(disk, f"{folder}/{name}") for name in names}
