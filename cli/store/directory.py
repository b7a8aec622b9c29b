"""A data directory as the source of a copy: it is only read, and a broker may use it meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import time
from collections.abc import AsyncIterator
from shlex import quote

from broker.internal_topics import NOTES_LOG, REGISTRY_LOG
from broker.settings.descriptors import raise_limit
from broker.stores.jetstream.store_client import StartMoved
from cli.failure import Exit, Failure
from cli.logs.check import Expected, LogCheck
from cli.logs.directory import meta_problem
from cli.logs.files import lock_holder, logs_of
from cli.store.logs import LogToCopy
from protocol.batch import BatchHeader
from storage import DamagedLog, LogId
from storage.checkpoints import LOG_STARTS, RECOVERY_POINTS, TopicPartition, read_offsets
from storage.directory import (
    CLEAN_SHUTDOWN_FILE,
    FORMAT,
    FORMAT_FILE,
    LOCK_FILE,
    META_FILE,
    OWNERS_FILE,
    SHARED_FORMAT,
    UNFINISHED,
    parse_properties,
)
from storage.disk import Lock, OsDisk, OsFile
from storage.epochs import read_epochs
from storage.log_copy import LogEnd, LogState
from storage.log_files import LogFiles
from storage.node_merge import NODES_FOLDER, log_starts
from storage.owners import OwnerTable
from storage.segment import may_have_segments
from storage.snapshots import read_snapshot, snapshot_offsets

SLICE_BYTES = 1 << 20  # bytes read before other tasks run
SETTLE_SECONDS = 10.0  # how long to wait until a running broker has replaced segments by compacted ones
PAUSE_SECONDS = 0.02
NAMES_SHOWN_MAX = 5
NODE_ID = 1  # node id in the copy of a directory of several nodes, which a single broker may serve


class ReadOnlyDisk(OsDisk):
    """Opens files for reading only, so that it also works without write permission."""

    def open(self, path: str, create: bool = False) -> OsFile:
        return OsFile(self._descriptor(path, os.O_RDONLY))


class DirectorySource:
    """A data directory to copy. Raises Failure if it cannot be copied."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self.path_given = path
        self.disk = ReadOnlyDisk()
        self._lock: Lock | None = None
        self._table: OwnerTable | None = None
        self.used_by: str | None = None
        if not os.path.isdir(path):
            problem = "is no directory" if os.path.lexists(path) else "does not exist"
            raise Failure(Exit.MISSING, f"--from {path} {problem}; name a data directory")
        self._shared = self._format() == SHARED_FORMAT
        meta = self._meta()
        self.cluster_id = meta["cluster.id"]
        self.directory_id = meta.get("directory.id", "")
        self.node_id = NODE_ID if self._shared else int(meta.get("node.id", meta.get("broker.id", str(NODE_ID))))
        self._find_users()
        raise_limit()
        if os.path.lexists(f"{self.path}/{OWNERS_FILE}"):
            with contextlib.suppress(OSError):  # without write permission the table of owners stays unread
                self._table = OwnerTable(OsDisk(), self.path)
        self._recovery_points = read_offsets(self.disk, f"{self.path}/{RECOVERY_POINTS}") if self.used_by is None else {}

    def __str__(self) -> str:
        return self.path_given

    def _format(self) -> int:
        path = f"{self.path}/{FORMAT_FILE}"
        text = self.disk.read_text(path).strip() if os.path.lexists(path) else str(FORMAT)
        if text == UNFINISHED:
            raise Failure(Exit.DAMAGED, f"--from {self}: this export has not finished; repeat the command that made it")
        if text not in (str(FORMAT), str(SHARED_FORMAT)):
            raise Failure(Exit.DAMAGED, f"--from {self}: it has format {text}, and this version reads up to {SHARED_FORMAT}")
        return int(text)

    def _meta(self) -> dict[str, str]:
        path = f"{self.path}/{META_FILE}"
        if not os.path.lexists(path):
            raise Failure(Exit.MISSING, f"--from {self} is no data directory: it has no {META_FILE}")
        if problem := meta_problem(path):
            raise Failure(Exit.DAMAGED, f"{path} is damaged: {problem}")
        return parse_properties(self.disk.read_text(path))

    def _find_users(self) -> None:
        """Lock the directory, so that no broker starts on it, or find the broker that uses it."""
        try:
            lock = OsDisk().lock(f"{self.path}/{LOCK_FILE}", f"process {os.getpid()}, tenure store")
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            self.used_by = lock_holder(self.path)
        else:
            if isinstance(lock, str):
                self.used_by = lock or "another process"
            else:
                self._lock = lock
        if self._shared and self.used_by is None:
            folder = f"{self.path}/{NODES_FOLDER}"
            self.used_by = next((user for name in self.disk.list(folder) if (user := lock_holder(f"{folder}/{name}")) is not None), None)
        if self.used_by is None and (self._shared or not os.path.lexists(f"{self.path}/{CLEAN_SHUTDOWN_FILE}")):
            self.close()
            start = f"start one broker on it (tenure serve --data {quote(str(self))}), and stop it"
            if self._shared:
                raise Failure(Exit.REFUSED, f"--from {self}: several nodes have used it; {start}")
            advice = self._advice_on_unknown_logs()
            raise Failure(Exit.REFUSED, f"--from {self}: it was not stopped in order; {advice}{start}")

    def _advice_on_unknown_logs(self) -> str:
        """The advice to move away the logs of topics that the registry lacks, "" if there are none. No broker checks these after a crash."""
        logs = logs_of(self.path)
        registry = next((log for log in logs if log.name == REGISTRY_LOG), None)
        if registry is None:
            return ""
        topics = LogCheck(registry, Expected(in_use=False, clean=False)).run().topics
        unknown = [log for log in logs if log.name not in (REGISTRY_LOG, NOTES_LOG) and log.partition >= topics.get(log.name, (0, "", ""))[0]]
        unknown = [log for log in unknown if may_have_segments(self.disk, log.path)]
        if not unknown:
            return ""
        names = ", ".join(map(str, unknown[:NAMES_SHOWN_MAX])) + (f" and {len(unknown) - NAMES_SHOWN_MAX} more" if len(unknown) > NAMES_SHOWN_MAX else "")
        return f"move the folders of unknown topics out of it ({names}), which no broker checks after a crash, then "

    def _folder(self, id: LogId) -> str:
        return f"{self.path}/{id}"

    async def _open(self, log: LogToCopy) -> LogFiles | None:
        """Open the log's files, or return None if its folder does not exist. Waits while a running broker replaces segments."""
        folder = self._folder(log.id)
        if not os.path.lexists(folder):
            return None
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            try:
                files = LogFiles.open(self.disk, folder, self.used_by is not None)
            except FileNotFoundError:
                return None
            if files is not None:
                return files
            if self.used_by is None or time.monotonic() > deadline:
                raise Failure(Exit.DAMAGED, f"{folder} has segments of an interrupted compaction; start a broker on it, and stop it")
            await asyncio.sleep(PAUSE_SECONDS)

    async def end_of(self, log: LogToCopy) -> LogEnd | None:
        reached = self._recovery_points.get(log.id, 0)
        epoch = max(self._table.read(log.id).epoch, 0) if self._table is not None else 0  # of its last owner, if several nodes use the directory
        files = await self._open(log)
        if files is None:
            if reached:
                raise DamagedLog(self._folder(log.id), 0, f"it reached offset {reached}, and its folder is missing")
            return LogEnd(0, epoch=epoch) if epoch else None
        with contextlib.closing(files):
            end = max(files.find_end(), self._start_offsets().get(log.id, 0))
        if end < reached:
            raise DamagedLog(self._folder(log.id), 0, f"it ends at offset {end}, and reached {reached}")
        return LogEnd(end, epoch=epoch)

    async def size_of(self, log: LogToCopy) -> int:
        files = await self._open(log)
        if files is None:
            return 0
        with contextlib.closing(files):
            return files.size

    def _start_offsets(self) -> dict[TopicPartition, int]:
        if self._shared:
            return log_starts(self.disk, self.path, self._table) if self._table is not None else {}
        return read_offsets(self.disk, f"{self.path}/{LOG_STARTS}")

    async def read(self, log: LogToCopy, end: LogEnd) -> FolderReading:
        files = await self._open(log)
        if files is None:
            if end.next_offset and self.used_by is not None:
                raise StartMoved(str(log))
            if end.next_offset:
                raise DamagedLog(self._folder(log.id), 0, "its folder is missing")
            files = LogFiles([], False)
        return FolderReading(self.disk, self._folder(log.id), files, log, end, self._start_offsets().get(log.id, 0), self.used_by is not None)

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()
        if self._table is not None:
            self._table.close()


class FolderReading:
    """The `Reading` of one log's folder."""

    def __init__(
        self, disk: OsDisk, folder: str, files: LogFiles, log: LogToCopy, end: LogEnd, start: int, growing: bool
    ) -> None:
        self.first_offset = files.first_offset
        self.state = LogState(max(start, files.first_offset), end.next_offset, end.epoch)
        self._disk = disk
        self._folder = folder
        self._files = files
        self._growing = growing
        self._counts_producers = not log.internal

    async def batches(self) -> AsyncIterator[tuple[int, BatchHeader, bytes]]:
        state = self.state
        state.epochs = [entry for entry in read_epochs(self._disk, self._folder) if entry[1] <= state.next_offset]
        snapshot_offset = self._load_producers() if self._counts_producers else -1
        slice_bytes = 0
        for base, header, batch in self._files.batches():
            if header.base_offset >= state.next_offset:
                break
            state.note_epoch(header.leader_epoch, header.base_offset)
            if 0 <= snapshot_offset <= header.base_offset and header.producer_id >= 0:
                state.producers.note(header, header.base_offset)
            yield base, header, batch
            slice_bytes += header.size
            if slice_bytes >= SLICE_BYTES:
                slice_bytes = 0
                await asyncio.sleep(0)
        # The broker of the copy must serve the log at a newer epoch than any in the log.
        state.epoch = max(state.epoch, state.epochs[-1][0] + 1 if state.epochs else 0)

    def _load_producers(self) -> int:
        """Load the state of producers from the newest usable snapshot. Returns the offset from which on `batches` notes producers: that of the
        snapshot; 0 if none is usable; -1 (never) if a log that does not grow has no snapshot, and thus no producers.
        """
        try:
            offsets = snapshot_offsets(self._disk.list(self._folder))
        except FileNotFoundError:  # the topic was deleted meanwhile
            offsets = []
        for offset in reversed(offsets):
            if self.first_offset <= offset <= self.state.next_offset and read_snapshot(self._disk, self._folder, offset, self.state.producers):
                return offset
        return 0 if offsets or self._growing else -1

    def close(self) -> None:
        self._files.close()
