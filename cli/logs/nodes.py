"""A data directory of several nodes, read without writing: which nodes run, and which node wrote each log last. That node's
folder has the checkpoints and turn logs (`turns.N`) for the log.
"""

from __future__ import annotations

import os
from functools import partial

from cli.logs.files import LogFolder, lock_holder
from storage.checkpoints import TopicPartition
from storage.directory import CLEAN_SHUTDOWN_FILE, OWNERS_FILE
from storage.disk import OsDisk, OsSharedBytes
from storage.node_merge import NODES_FOLDER, NOTES, last_writer, node_folder, writer_names
from storage.owners import NO_WRITER, TABLE_BYTES, OwnerTable
from storage.store import LogId


class TableCopy(OsSharedBytes):
    """A copy of the file with the owner of each log, made when it is read; zeros if there is no such file."""

    def __init__(self, path: str, size: int) -> None:
        try:
            with open(path, "rb") as file:
                data = file.read(size)
        except OSError:
            data = b""
        self._copy = data.ljust(size, b"\0")

    def read(self, at: int, size: int) -> bytes:
        return self._copy[at : at + size]

    def close(self) -> None:
        pass


class CopyingDisk(OsDisk):
    def shared_bytes(self, path: str, size: int) -> OsSharedBytes:
        return TableCopy(path, size)


class NodesDirectory:
    def __init__(self, path: str) -> None:
        self.path = path
        self._disk = CopyingDisk()
        self._table = OwnerTable(self._disk, path)
        self.names = writer_names(self._disk, path) if os.path.isdir(os.path.join(path, NODES_FOLDER)) else []
        self.last_writer = partial(last_writer, self._disk, path, self._table)

    def folder(self, name: str) -> str:
        return node_folder(self.path, name)

    def used_by(self) -> str | None:
        """The running nodes as their lock files describe them, or else the process that has locked the directory; None if there is none."""
        holders = [(name, lock_holder(self.folder(name))) for name in self.names]
        running = [f"node {name} ({holder})" for name, holder in holders if holder is not None]
        return " and ".join(running) or lock_holder(self.path)

    def table_problem(self) -> str:
        """Why the last writer of each log is unknown; "" if it is known."""
        path = os.path.join(self.path, OWNERS_FILE)
        if not os.path.lexists(path):
            return "there is no such file"
        return "" if os.path.getsize(path) >= TABLE_BYTES else f"it has {os.path.getsize(path)} bytes, and should have {TABLE_BYTES}"

    def is_writer(self, name: str, id: TopicPartition) -> bool:
        return self.last_writer(LogId(*id)) == name

    def is_clean(self, log: LogFolder) -> bool:
        """Whether the node that wrote the log last has flushed it, since it stopped in order or handed the log over."""
        id = LogId(log.name, log.partition)
        if os.path.lexists(os.path.join(self.folder(self.last_writer(id)), CLEAN_SHUTDOWN_FILE)):
            return True
        # The file of owners has a slot for each log, except for logs of notes.
        return log.name != NOTES and NO_WRITER < self._table.read(id).writer < 0
