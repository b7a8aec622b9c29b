"""The logs of a cluster, and the port to a source of logs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple, Protocol

from broker.internal_topics import CONSUMER_OFFSETS, NOTES_LOG, REGISTRY_LOG
from broker.stores.tokens import id_text
from broker.topics.registry import TopicRegistry
from cli.failure import Exit, Failure
from protocol.batch import BatchHeader, facts_of
from storage import LogId
from storage.log_copy import LogEnd, LogState


class LogToCopy(NamedTuple):
    """A log to copy. `topic_id`: the id of its topic; b"" for the registry of topics."""

    id: LogId
    topic_id: bytes = b""

    @property
    def internal(self) -> bool:
        return self.id.name in (CONSUMER_OFFSETS, NOTES_LOG, REGISTRY_LOG)

    @property
    def topic_id_text(self) -> str:
        return id_text(self.topic_id) if self.topic_id else ""

    def __str__(self) -> str:
        return str(self.id)


REGISTRY = LogToCopy(LogId(REGISTRY_LOG, 0))


class Reading(Protocol):
    """A read of one log up to an end."""

    first_offset: int  # batches begin here or later
    state: LogState  # complete when all batches were read

    def batches(self) -> AsyncIterator[tuple[int, BatchHeader, bytes]]:
        """Each batch, verified, with the base offset of its segment.

        Raises DamagedLog, OSError, or StartMoved: records were deleted meanwhile, so the log must be read again from its start.
        """
        ...

    def close(self) -> None: ...


class Source(Protocol):
    """The cluster to copy, which may be in use."""

    node_id: int  # of the broker that may serve the copy

    @property
    def cluster_id(self) -> str: ...

    async def end_of(self, log: LogToCopy) -> LogEnd | None:
        """The current end of the log; None: the log does not exist. Every record acknowledged before the source was opened is before this end."""
        ...

    async def read(self, log: LogToCopy, end: LogEnd) -> Reading: ...

    async def size_of(self, log: LogToCopy) -> int:
        """The log's approximate size in bytes."""
        ...

    def close(self) -> None: ...


def no_id() -> bytes:
    raise AssertionError("a copy makes no topic")


async def topics_of(source: Source) -> TopicRegistry:
    """Read the current registry."""
    topics = TopicRegistry(no_id)
    end = await source.end_of(REGISTRY)
    if end is not None:
        reading = await source.read(REGISTRY, end)
        try:
            async for _, _, batch in reading.batches():
                topics.replay(facts_of(batch))
        finally:
            reading.close()
    if CONSUMER_OFFSETS not in topics.by_name:
        raise Failure(Exit.MISSING, f"{source} has no registry of topics: no broker of Tenure has run on it yet", hint="start a broker on it once")
    return topics


def logs_of_groups(topics: TopicRegistry) -> list[LogToCopy]:
    """The logs of __consumer_offsets, then those of __coordinator_notes."""
    return [log for name in (CONSUMER_OFFSETS, NOTES_LOG) for log in _partitions(topics, name)]


def logs_of_topics(topics: TopicRegistry) -> list[LogToCopy]:
    return [log for name, topic in sorted(topics.by_name.items()) if not topic.internal for log in _partitions(topics, name)]


def _partitions(topics: TopicRegistry, name: str) -> Iterator[LogToCopy]:
    topic = topics.by_name[name]
    return (LogToCopy(LogId(name, number), topic.id) for number in range(topic.partition_count))
