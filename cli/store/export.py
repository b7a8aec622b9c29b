"""`tenure store export`: copy a cluster into a new data directory.

The cluster may be in use, so the order matters: copy the logs of groups; read the end offset of each topic's partitions; copy the registry
of topics; copy the records up to those ends. Consumers commit offsets of records that they have read, and the ends are read later, so
no copied commit is beyond an end. The registry is copied after that, so it has every producer id in the records before the ends.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from datetime import UTC, datetime
from typing import Any, Final

from broker.stores.jetstream.store_client import StartMoved
from broker.stores.tokens import fresh_cluster_id
from cli.failure import Exit, Failure
from cli.store.journal import JOURNAL, BatchTotals, FinishedLog, Journal, PlannedLog, done
from cli.store.logs import REGISTRY, LogToCopy, Source, logs_of_groups, logs_of_topics, topics_of
from cli.store.progress import Progress
from storage import DamagedLog, DirectoryForeign
from storage.checkpoints import CLEANER_POINTS, LOG_STARTS, RECOVERY_POINTS, write_offsets
from storage.directory import CLEAN_SHUTDOWN_FILE, FORMAT, FORMAT_FILE, LOCK_FILE, META_FILE, UNFINISHED, check_location
from storage.disk import Lock, OsDisk
from storage.log_copy import LogCopy, LogEnd, LogState

ATTEMPTS_MAX: Final = 20
EXPORT_FILES: Final = {LOCK_FILE, JOURNAL, f"{JOURNAL}.new", FORMAT_FILE, f"{FORMAT_FILE}.new"}
PAUSE_SECONDS: Final = 0.1
EMPTY_LOG: Final = LogEnd(0)
CLEAN_SHUTDOWN_TEXT: Final = '{"version":0,"brokerEpoch":-1}'


class Target:
    """The new data directory. Raises Failure if the folder has other contents."""

    def __init__(self, path: str, source: str, cluster_id: str) -> None:
        self.path_given = path
        self.path = os.path.abspath(path)
        self.disk = OsDisk()
        self._source = source
        self._cluster_id = cluster_id
        self._lock: Lock | None = None
        if os.path.lexists(self.path) and not os.path.isdir(self.path):
            raise Failure(Exit.REFUSED, f"--to {path} is no directory")
        try:
            self.journal = Journal(f"{self.path}/{JOURNAL}")
        except NotADirectoryError:
            raise Failure(Exit.REFUSED, f"--to {path}: a folder cannot be inside a file") from None
        self._check()
        try:
            check_location(self.disk, path)
        except DirectoryForeign as foreign:
            raise Failure(Exit.REFUSED, f"--to: {foreign}") from None

    def _check(self) -> None:
        """Raise Failure unless the folder is missing, empty, or from an interrupted export of the same source."""
        if not os.path.lexists(self.path):
            return
        header = self.journal.header
        format = f"{self.path}/{FORMAT_FILE}"
        unfinished = not os.path.lexists(format) or self.disk.read_text(format).strip() == UNFINISHED
        if not header:
            if set(os.listdir(self.path)) - EXPORT_FILES or not unfinished:
                raise Failure(Exit.REFUSED, f"--to {self.path_given} is not empty; name a folder that does not exist, or is empty")
        elif not unfinished:
            raise Failure(Exit.REFUSED, f"--to {self.path_given} has the export of {header['began']}; name a folder that does not exist, or is empty")
        elif (header["source"], header["cluster_id"]) != (self._source, self._cluster_id):
            raise Failure(Exit.REFUSED, f"--to {self.path_given} has the unfinished export of {header['source']}; repeat that one, or name another folder")

    @property
    def continues(self) -> bool:
        """Whether this continues an interrupted export of the same source, whose journal has a plan (the end of each topic's logs)."""
        return self.journal.plan is not None

    def begin(self) -> None:
        """Lock the folder; remove its contents unless this continues an earlier export."""
        self.disk.make_folder(self.path)
        lock = self.disk.lock(f"{self.path}/{LOCK_FILE}", f"process {os.getpid()}, tenure store export")
        if isinstance(lock, str):
            raise Failure(Exit.AGAIN, f"--to {self.path_given} is in use by {lock or 'another process'}", hint="wait for it")
        self._lock = lock
        if not self.continues:
            self.clear()
        self.disk.replace_text(f"{self.path}/{FORMAT_FILE}", f"{UNFINISHED}\n")

    def clear(self) -> None:
        began = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        self.journal.begin(self._source, self._cluster_id, began)
        for name in set(os.listdir(self.path)) - EXPORT_FILES:
            self.remove(name)

    def remove(self, name: str) -> None:
        if os.path.isdir(f"{self.path}/{name}"):
            shutil.rmtree(f"{self.path}/{name}")
        elif os.path.lexists(f"{self.path}/{name}"):
            os.unlink(f"{self.path}/{name}")

    def folder(self, log: LogToCopy) -> str:
        return f"{self.path}/{log}"

    def finish(self, node_id: int) -> None:
        """Write the files that make the folder a data directory, after all logs were copied."""
        logs = {(copied.log.rpartition("-")[0], int(copied.log.rpartition("-")[2])): copied for copied in self.journal.done.values()}
        write_offsets(self.disk, f"{self.path}/{RECOVERY_POINTS}", {id: copied.next for id, copied in logs.items()})
        write_offsets(self.disk, f"{self.path}/{LOG_STARTS}", {id: copied.start for id, copied in logs.items() if copied.start})
        write_offsets(self.disk, f"{self.path}/{CLEANER_POINTS}", {id: copied.compacted_to for id, copied in logs.items() if copied.compacted_to})
        meta = {"node.id": str(node_id), "directory.id": fresh_cluster_id(), "version": "1", "cluster.id": self._cluster_id}
        self.disk.replace_text(f"{self.path}/{META_FILE}", "".join(f"{name}={value}\n" for name, value in meta.items()))
        self.disk.replace_text(f"{self.path}/{CLEAN_SHUTDOWN_FILE}", CLEAN_SHUTDOWN_TEXT)
        self.disk.replace_text(f"{self.path}/{FORMAT_FILE}", f"{FORMAT}\n")

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()


class Export:
    def __init__(self, source: Source, target: Target, progress: Progress) -> None:
        self._source = source
        self._target = target
        self._journal = target.journal
        self._progress = progress

    async def run(self) -> dict[str, Any]:
        self._target.begin()
        if not self._target.continues:
            await self._copy_groups()
        plan = self._journal.plan
        assert plan is not None
        sizes = [await self._source.size_of(planned.log) for planned in plan if str(planned.log) not in self._journal.done]
        self._progress.begin("topics", len(plan), sum(sizes))
        for planned in plan:
            await self._copy(planned.log, planned.end)
        self._progress.end()
        self._target.finish(self._source.node_id)
        return self.document()

    async def _copy_groups(self) -> None:
        """Copy groups, read the ends of topics, and copy the registry.

        Repeat all of it if a topic was deleted meanwhile, since the copied groups may have offsets of that topic.
        """
        for _ in range(ATTEMPTS_MAX):
            before = await topics_of(self._source)
            logs = logs_of_groups(before)
            self._progress.begin("groups", len(logs), 0)
            for log in logs:
                await self._copy(log)
            self._progress.end()
            listed = await topics_of(self._source)
            problem: DamagedLog | None = None
            plan: list[PlannedLog] = []
            try:
                for log in logs_of_topics(listed):
                    plan.append(PlannedLog(log, await self._source.end_of(log) or EMPTY_LOG))  # noqa: PERF401 (the entries before a problem are used)
                await self._copy(REGISTRY)
            except DamagedLog as error:
                problem = error
            after = await topics_of(self._source)
            if not (before.by_id.keys() | listed.by_id.keys()) - after.by_id.keys():
                if problem is not None:
                    raise problem
                self._journal.add_plan(plan)
                return
            self._target.clear()
        raise Failure(Exit.AGAIN, "topics were deleted during each attempt; try again when no topic is being deleted", hint="delete no topics during an export")

    async def _copy(self, log: LogToCopy, end: LogEnd | None = None) -> None:
        """Copy one log up to `end`, by default its current end."""
        if str(log) in self._journal.done:
            self._progress.add_log()
            return
        for attempt in range(ATTEMPTS_MAX):
            copy_end = end if end is not None else await self._source.end_of(log)
            if copy_end is None or copy_end == EMPTY_LOG:
                self._progress.skip_log()
                return
            try:
                self._journal.add_done(await self._copy_once(log, copy_end))
                break
            except StartMoved:
                self._target.remove(str(log))
                if attempt + 1 < ATTEMPTS_MAX:
                    await asyncio.sleep(PAUSE_SECONDS)
                elif end is None:
                    raise Failure(Exit.AGAIN, f"{log} loses old records faster than they are read; try again with less load on the cluster") from None
                else:  # the topic was deleted, or retention is faster than the export: the log's records up to `end` no longer exist
                    self._journal.add_done(self._copy_empty(log, copy_end))
        self._progress.add_log()

    async def _copy_once(self, log: LogToCopy, end: LogEnd) -> FinishedLog:
        copied = BatchTotals()
        reading = await self._source.read(log, end)
        try:
            copy = LogCopy(self._target.disk, self._target.folder(log))
            try:
                async for base, header, batch in reading.batches():
                    copied.add(header, batch)
                    copy.append(base, header, batch)
                    self._progress.add_bytes(header.size)
                copy.finish(reading.state, log.topic_id_text)
            finally:
                copy.close()
        finally:
            reading.close()
        return done(log, reading.state, copied)

    def _copy_empty(self, log: LogToCopy, end: LogEnd) -> FinishedLog:
        """Write an empty log that continues at `end`, so that no offset is used twice."""
        copy = LogCopy(self._target.disk, self._target.folder(log))
        state = LogState(end.next_offset, end.next_offset, end.epoch)
        copy.finish(state, log.topic_id_text)
        copy.close()
        return done(log, state, BatchTotals())

    def document(self) -> dict[str, Any]:
        logs = self._journal.done.values()
        return {
            "source": str(self._source),
            "target": self._target.path_given,
            "cluster_id": self._source.cluster_id,
            "logs": len(logs),
            "batches": sum(log.batches for log in logs),
            "bytes": sum(log.bytes for log in logs),
        }
