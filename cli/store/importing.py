"""`tenure store import`: copy a data directory into JetStream, as a new cluster.

An import first reads and verifies all logs. Then it writes the logs of groups, those of topics, and last the registry. Nodes do not start on
the cluster until the import is complete.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping
from shlex import quote
from typing import Any, Final

from broker.internal_topics import CONSUMER_OFFSETS, NOTES_LOG
from broker.settings.config import Config
from broker.stores.jetstream.store import notes_stream
from broker.stores.jetstream.store_client import StoreClient
from broker.stores.jetstream.stream_copy import HEADER_BYTES_MAX, StreamCopy
from broker.topics.registry import TopicRegistry
from cli.failure import Exit, Failure
from cli.store.directory import DirectorySource
from cli.store.journal import JOURNAL, BatchTotals, FinishedLog, Journal, done
from cli.store.logs import REGISTRY, LogToCopy, logs_of_groups, logs_of_topics, topics_of
from cli.store.progress import Progress
from cli.store.streams import reach
from storage import DamagedLog
from storage.log_copy import LogEnd, LogState

CONCURRENT_LOGS: Final = 8  # logs written at the same time
PROBLEMS_SHOWN_MAX: Final = 20


class Import:
    def __init__(self, source: DirectorySource, config_for: Callable[[int], Config], progress: Progress, warn: Callable[[str], None]) -> None:
        """`config_for`: returns a node's settings for this number of partitions of __consumer_offsets."""
        self._source = source
        self._config_for = config_for
        self._progress = progress
        self._warn = warn
        self._exported = Journal(f"{source.path}/{JOURNAL}").done  # the checksums, if the directory is an export
        self._ends: dict[str, LogEnd] = {}
        self._checked: dict[str, FinishedLog] = {}
        self._notes: Mapping[str, Any] = {}

    async def run(self, dry_run: bool) -> dict[str, Any]:
        topics, store_client = await self.prepare()
        try:
            exists = await reach(store_client)
            groups, topic_logs = logs_of_groups(topics), logs_of_topics(topics)
            await self.check([*groups, *topic_logs, REGISTRY], store_client.connection.payload_max)
            import_id = self.import_id
            if dry_run:
                await store_client.check_empty(import_id)
            else:
                await store_client.begin_import(self._source.cluster_id, import_id)
                await self.write(store_client, "groups", groups, import_id)
                await self.write(store_client, "topics", topic_logs, import_id)
                await self.write(store_client, "registry", [REGISTRY], import_id)
                await store_client.finish_import()
            return self.document(str(store_client), exists)
        finally:
            store_client.close()

    async def prepare(self) -> tuple[TopicRegistry, StoreClient]:
        """Return the topics of the directory, and a client of the cluster, not yet connected. Raises Failure if a broker uses the directory."""
        if self._source.used_by is not None:
            raise Failure(
                Exit.REFUSED,
                f"--from {self._source} is in use by {self._source.used_by}: stop it, or import an export of it (tenure store export --from {quote(str(self._source))})",
            )
        topics = await topics_of(self._source)
        config = self._config_for(topics.by_name[CONSUMER_OFFSETS].partition_count)
        self._notes = notes_stream(config)
        return topics, StoreClient(config)

    async def check(self, logs: list[LogToCopy], payload_max: int) -> None:
        """Read and verify these logs. Raises Failure if any cannot be imported."""
        problems: list[str] = []
        self._progress.begin("verified", len(logs), sum([await self._source.size_of(log) for log in logs]))
        for log in logs:
            try:
                await self._check_log(log, payload_max - HEADER_BYTES_MAX, problems)
            except DamagedLog as error:
                problems.append(f"{error.path} is damaged at {error.UNIT} {error.position}: {error.reason}")
        self._progress.end()
        if problems:
            for problem in problems[:PROBLEMS_SHOWN_MAX]:
                self._warn(problem)
            more = f"; {len(problems) - PROBLEMS_SHOWN_MAX} more are not shown" if len(problems) > PROBLEMS_SHOWN_MAX else ""
            raise Failure(Exit.DAMAGED, f"nothing was imported: {len(problems)} logs cannot be{more}" if len(problems) > 1 else "nothing was imported")

    async def _check_log(self, log: LogToCopy, batch_bytes_max: int, problems: list[str]) -> None:
        end = await self._source.end_of(log)
        exported = self._exported.get(str(log))
        if end is None:
            self._progress.skip_log()
            if exported is not None:
                problems.append(f"{log}: the export had {exported.batches} batches of it, and its folder is missing")
            return
        self._ends[str(log)] = end
        totals = BatchTotals()
        reading = await self._source.read(log, end)
        try:
            async for _, header, batch in reading.batches():
                totals.add(header, batch)
                self._progress.add_bytes(header.size)
                if header.size > batch_bytes_max:
                    problems.append(
                        f"{log}: the batch at offset {header.base_offset} has {header.size} bytes, and max_payload of the engine allows {batch_bytes_max}"
                    )
                    return
        finally:
            reading.close()
        checked = done(log, reading.state, totals)
        if exported is not None and (exported.next, exported.start) == (checked.next, checked.start) and exported.crc32c != checked.crc32c:
            problems.append(f"{log}: its batches are not the exported ones")
        self._checked[str(log)] = checked
        self._progress.add_log()

    @property
    def import_id(self) -> str:
        """An id of the imported content, by which a repeated import of the same directory continues the first."""
        text = "\n".join(map(str, [self._source.cluster_id, *sorted(self._checked.values())]))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    async def write(self, store_client: StoreClient, stage: str, logs: list[LogToCopy], import_id: str) -> None:
        copied = [log for log in logs if str(log) in self._checked]
        self._progress.begin(stage, len(copied), sum(self._checked[str(log)].bytes for log in copied))
        room = asyncio.Semaphore(CONCURRENT_LOGS)

        async def write(log: LogToCopy) -> None:
            async with room:
                await self.write_log(store_client, log, import_id)
                self._progress.add_log()

        async with asyncio.TaskGroup() as tasks:
            for log in copied:
                tasks.create_task(write(log))
        self._progress.end()

    async def write_log(self, store_client: StoreClient, log: LogToCopy, import_id: str) -> None:
        """Write one log into its stream, then publish its end to the nodes."""
        stream = store_client.stream_of(log.id, None if log.internal else log.topic_id)
        reading = await self._source.read(log, self._ends[str(log)])
        try:
            copy = StreamCopy(store_client, stream, import_id, self._notes if log.id.name == NOTES_LOG else {})
            await copy.open(reading.first_offset)
            async for base, header, batch in reading.batches():
                await copy.append(base, header, batch)
                self._progress.add_bytes(header.size)
            await self.complete(log, reading.state, copy)
            seq = await copy.finish(reading.state, not log.internal)
            await store_client.publish_end(log.id, stream, seq, copy.epoch, time.time_ns() // 1_000_000)
        finally:
            reading.close()

    async def complete(self, log: LogToCopy, state: LogState, copy: StreamCopy) -> None:
        """Append batches that must follow the copied ones. An import has none; `Restore` overrides this."""

    def document(self, target: str, continued: bool) -> dict[str, Any]:
        checked = self._checked.values()
        return {
            "source": str(self._source),
            "target": target,
            "store": target.rpartition("/")[0],
            "cluster_id": self._source.cluster_id,
            "continued": continued,
            "logs": len(checked),
            "batches": sum(log.batches for log in checked),
            "bytes": sum(log.bytes for log in checked),
        }
