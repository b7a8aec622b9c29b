"""`tenure store import --only`: replace damaged logs of a cluster in JetStream by those of an older export, while its nodes are stopped.

A restored log of groups has the committed offsets of the export, so consumers read some records again. A restored log of a topic continues at
the offset at which the damaged log ended: the records since the export are missing, but no offset is used twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from broker.internal_topics import CONSUMER_OFFSETS, REGISTRY_LOG
from broker.settings.config import Config
from broker.stores.jetstream.store_client import StoreClient
from broker.stores.jetstream.stream_copy import StreamCopy
from broker.topics.registry import TopicRegistry
from cli.failure import Exit, Failure
from cli.store.directory import DirectorySource
from cli.store.importing import Import
from cli.store.logs import LogToCopy, logs_of_groups, logs_of_topics, topics_of
from cli.store.progress import Progress
from cli.store.streams import StreamSource, reach
from protocol.batch import Fact, build_facts, facts_of, read_header, stamp
from protocol.messages.consumer_offsets import OffsetCommitKey
from protocol.records import read_offsets_key
from storage.log_copy import LogState


class Restore(Import):
    def __init__(
        self, source: DirectorySource, config_for: Callable[[int], Config], progress: Progress, warn: Callable[[str], None], names: Sequence[str]
    ) -> None:
        """`names`: the logs to replace."""
        super().__init__(source, config_for, progress, warn)
        self._names = names
        self._damaged_ends: dict[str, tuple[int, int]] = {}  # offset and epoch at which each damaged log ended
        self._deleted_topics: set[str] = set()  # names of topics that were deleted since the export

    async def run(self, dry_run: bool) -> dict[str, Any]:
        topics, store_client = await self.prepare()
        try:
            chosen = self._chosen(topics)
            if not await reach(store_client) or not store_client.cluster_id:
                raise Failure(Exit.MISSING, f"there is no cluster {store_client}; name it with --cluster NAME")
            if store_client.cluster_id != self._source.cluster_id:
                raise Failure(Exit.REFUSED, f"--from {self._source} is of cluster {self._source.cluster_id}, and {store_client} is {store_client.cluster_id}")
            await self.check(chosen, store_client.connection.payload_max)
            unfinished = store_client.unfinished_restore(self.import_id)
            current = await topics_of(StreamSource(store_client))
            self._deleted_topics = {name for name, topic in topics.by_name.items() if topic.id not in current.by_id}
            self._damaged_ends = unfinished if unfinished is not None else await self._ends_of_damaged(store_client, chosen)
            if not dry_run:
                if unfinished is None:
                    await store_client.begin_restore(self.import_id, self._damaged_ends)
                for log in chosen:
                    await store_client.delete_unless_imported(store_client.stream_of(log.id, None if log.internal else log.topic_id), self.import_id)
                await self.write(store_client, "restored", chosen, self.import_id)
                await store_client.finish_import()
            return self.document(str(store_client), unfinished is not None)
        finally:
            store_client.close()

    def _chosen(self, topics: TopicRegistry) -> list[LogToCopy]:
        known = {str(log): log for log in (*logs_of_groups(topics), *logs_of_topics(topics))}
        for name in self._names:
            if name.rpartition("-")[0] == REGISTRY_LOG:
                raise Failure(Exit.REFUSED, f"--only {name}: the registry cannot be restored alone; import the complete export as another cluster")
            if name not in known:
                raise Failure(Exit.MISSING, f"--only {name}: there is no such log in {self._source}; a log is named TOPIC-PARTITION")
        return [known[name] for name in dict.fromkeys(self._names)]

    async def _ends_of_damaged(self, store_client: StoreClient, chosen: list[LogToCopy]) -> dict[str, tuple[int, int]]:
        """The ends of the damaged logs. Raises Failure if one of the logs must not be replaced."""
        if nodes := await store_client.live_nodes():
            raise Failure(Exit.REFUSED, f"cluster {store_client}: node {', '.join(map(str, nodes))} runs; stop all nodes first")
        lost: dict[str, tuple[int, int]] = {}
        for log in chosen:
            stream = store_client.stream_of(log.id, None if log.internal else log.topic_id)
            if log.id.name in self._deleted_topics:
                raise Failure(Exit.REFUSED, f"--only {log}: its topic was deleted since the export")
            if not await store_client.damage_of(log.id, stream):
                raise Failure(Exit.REFUSED, f"--only {log}: it is not damaged in {store_client}")
            offset, epoch, certain = await store_client.last_entry_of(log.id, stream)
            if not certain and not log.internal:
                raise Failure(
                    Exit.REFUSED,
                    f"--only {log}: its end is lost, so new records could get offsets that consumers have passed; import the complete export as another cluster",
                )
            lost[str(log)] = offset, epoch
        return lost

    async def complete(self, log: LogToCopy, state: LogState, copy: StreamCopy) -> None:
        offset, epoch = self._damaged_ends[str(log)]
        state.epoch = max(state.epoch, epoch + 1)
        if not log.internal:
            state.next_offset = max(state.next_offset, offset)
            state.producers.clear()  # their sequence numbers are those of the export; a forgotten producer may continue with any sequence
        elif log.id.name == CONSUMER_OFFSETS and (stale := await self._stale_offsets(log)):
            batch = bytearray(build_facts(stale, 0))
            stamp(batch, 0, state.next_offset, state.epoch)
            header = read_header(batch, 0)
            await copy.append(max(copy.segment_base, 0), header, bytes(batch))
            state.next_offset = header.next_offset

    async def _stale_offsets(self, log: LogToCopy) -> list[Fact]:
        """Tombstones for committed offsets of topics deleted since the export. Without these, a new topic of the same name would have the offsets."""
        keys: dict[bytes, None] = {}
        reading = await self._source.read(log, self._ends[str(log)])
        try:
            async for _, _, batch in reading.batches():
                for key, _ in facts_of(batch):
                    match read_offsets_key(key):
                        case OffsetCommitKey(topic=topic) if topic in self._deleted_topics:
                            keys[key] = None
        finally:
            reading.close()
        return [(key, None) for key in keys]
