"""A data directory as the store of a broker that is alone."""

from __future__ import annotations

from collections.abc import Mapping

from broker.backends.port import Host
from broker.settings.config import Config
from broker.stores.compaction import CleaningRules, LogCleaner
from broker.stores.compaction_order import TopicLogs
from broker.stores.last_use import LastUse
from broker.stores.local import LocalStore
from broker.stores.topic_logs import LocalTopicStore
from storage import TopicStore


class DirectoryUpkeep:
    """The work on a data directory, also of one of several nodes."""

    def __init__(self, host: Host, local: LocalStore) -> None:
        self._host = host
        self._local = local

    def last_use(self) -> int | None:
        directory = self._local.directory
        return None if directory.is_new else directory.last_use()

    def start_cleaning(self) -> None:
        host, local = self._host, self._local
        self.cleaning = local.cleaning = LogCleaner(
            host.loop,
            local.disk,
            local.directory,
            cleaning_rules(host.config),
            host.clock.wall_for_deletion,
            checkpoint_worker=local.checkpoint_worker,
            worker=host.machine.workers(host.loop, 1),
            fresh_token=local.fresh_token,
            run_cleaner=host.machine.run_cleaner,
        )

    async def stop_cleaning(self) -> None:
        await self.cleaning.stop()

    def start_upkeep(self) -> None:
        self.cleaning.clean_topics(TopicLogs(self._host.partitions, self._local.directory))
        self._last_use = LastUse(self._local, self._host.loop, self._host.clock.wall_for_deletion)

    def stop_upkeep(self) -> None:
        self._last_use.stop()

    def status(self) -> Mapping[str, str]:
        return {}

    def health(self, problem: str) -> str:
        return problem


class DirectoryStores(DirectoryUpkeep):
    def __init__(self, host: Host) -> None:
        machine = host.machine
        self.store = LocalStore(
            host.config, host.loop, machine.disk, host.log_files_max, machine.workers, machine.random_bytes, machine.monotonic
        )
        super().__init__(host, self.store)

    def topic_store(self) -> TopicStore:
        return LocalTopicStore(self.store)


def cleaning_rules(config: Config) -> CleaningRules:
    return CleaningRules(
        config.offsets_topic_segment_bytes,
        config.log_cleaner_delete_retention_ms,
        map_bytes_max=config.log_cleaner_dedupe_buffer_size,
        topics_enable=config.log_cleaner_enable,
        topics_backoff_seconds=config.log_cleaner_backoff_ms / 1000,
        notes_bytes_max=config.notes_retention_bytes,
    )
