"""Partitions of topics on one of several nodes. The node opens its own logs, and refuses requests for others with NOT_LEADER_OR_FOLLOWER."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from broker.internal_topics import CONSUMER_OFFSETS
from broker.logging.logs import log
from broker.runtime.contain import Contained
from broker.topics.partition import GONE, NOT_SERVED, InternalPartition, Partition
from broker.topics.partitions import Partitions
from broker.topics.registry import Topic
from storage import AppendFailed, Fenced, HeldBy, LogId, Producers, TopicLog, Unreadable

# An opened log waits for a write of the table of owners; logs opened together share that write.
OPEN_CONCURRENCY: Final = 64
BUSY_SECONDS: Final = 0.02  # between two checks whether a log that is to be released is still in use


class PartitionOwnership(Protocol):
    """The logs that this node may open, and callbacks for the results."""

    def may_open(self, log: LogId) -> bool: ...

    def added(self, topic: Topic) -> None:
        """Called when a topic is created or gets partitions."""
        ...

    def deleted(self, logs: list[LogId]) -> None:
        """Called when the topic of these logs is deleted."""
        ...

    def opened(self, log: LogId, result: HeldBy | str) -> None:
        """Called with "" when a log was opened, HeldBy if another node owns it, or the reason of the failure."""
        ...

    def release(self, log: LogId, done: Callable[[], None]) -> None:
        """Close the log, so that other nodes can acquire it."""
        ...

    def release_unopened(self, log: LogId, topic_id: bytes) -> None:
        """Give up a log of this deleted topic that was to be opened, and was not."""
        ...

    def lost(self, log: LogId) -> None:
        """Called when another node has claimed the log."""
        ...

    @property
    def is_controller(self) -> bool:
        """Whether this node is the controller."""
        ...


class SharedPartitions(Partitions):
    """All partitions of the cluster; those that are not open on this node have error 6 (NOT_LEADER_OR_FOLLOWER)."""

    open_concurrency = OPEN_CONCURRENCY
    owners: PartitionOwnership  # set once the logs are placed

    def awaits_deletion(self, id: LogId) -> bool:
        """Whether the log will be opened only when the log of a deleted topic of this name was renamed."""
        return id in self._unreleased_names

    def acquire(self, id: LogId) -> None:
        """Open the log for this node; `PartitionOwnership.opened` gets the result."""
        topic = self._topics.by_name.get(id.name)
        partitions = self.of_topic(topic) if topic is not None else []
        if id.partition >= len(partitions):
            self.owners.opened(id, "the partition does not exist any more")
            return
        partition = partitions[id.partition]
        if partition.opened and not partition.error:
            self.owners.opened(id, "")
            return
        if not partition.opened:
            partition.error = NOT_SERVED
            partition.refusal_reason = ""
        self._request(partition)

    def leave(self, id: LogId, done: Callable[[], None]) -> None:
        """Refuse requests from now on, and release the log once it is no longer used."""
        topic = self._topics.by_name.get(id.name)
        partitions = self.of_topic(topic) if topic is not None else []
        if id.partition >= len(partitions):
            done()
            return
        partition = partitions[id.partition]
        self._requested.pop(partition, None)
        self._queue.pop(partition, None)
        partition.refuse(NOT_SERVED, "")
        self._close(partition, done)

    def _close(self, partition: Partition, done: Callable[[], None]) -> None:
        used = partition in self._opening or partition in self._recovering
        if not used and partition.opened and partition.owned_log.busy:
            partition.owned_log.interrupt()
            used = True
        if used:
            self._loop.call_later(BUSY_SECONDS, Contained(self._close, done), partition, done)
            return
        if partition.error == GONE:  # deleted meanwhile: its folder is being renamed
            done()
            return
        partition.refuse(NOT_SERVED, "")  # again: the partition may have been opened meanwhile
        partition.opened = False
        partition.producers = Producers()
        self.epoch_changed(partition)
        self.owners.release(partition.id, done)

    def refuse_internal(self, id: LogId) -> None:
        """This node no longer owns the log of an internal partition: refuse requests."""
        topic = self._topics.by_name.get(id.name)
        if topic is None or id.partition >= topic.partition_count:
            return
        partition = self.of_topic(topic)[id.partition]
        if partition.opened:
            partition.opened = False
            partition.refuse(NOT_SERVED, "")

    # Another node has claimed the log.

    def append_failed(self, partition: Partition, failure: AppendFailed) -> None:
        if isinstance(failure, Fenced) and partition.error != GONE and not partition.owned_log.usable():
            self._lost(partition, str(failure))
        else:
            super().append_failed(partition, failure)

    def _recovered(self, partition: Partition, failure: AppendFailed | None) -> None:
        if isinstance(failure, Fenced) and partition.error != GONE:
            self._recovering.discard(partition)
            self._lost(partition, str(failure))
        else:
            super()._recovered(partition, failure)

    def _lost(self, partition: Partition, reason: str) -> None:
        if not partition.opened or not self.owners.may_open(partition.id):
            return  # this node is handing the log over
        log.warning("partition was lost", log=str(partition), reason=reason)
        partition.refuse(NOT_SERVED, "")
        partition.opened = False
        partition.producers = Producers()
        self.epoch_changed(partition)
        self.owners.lost(partition.id)

    # Differences from a single broker.

    def created(self, topic: Topic) -> None:
        super().created(topic)
        self.owners.added(topic)

    def partitions_added(self, topic: Topic) -> None:
        super().partitions_added(topic)
        self.owners.added(topic)

    def deleted(self, topic: Topic) -> None:
        super().deleted(topic)
        self.owners.deleted([LogId(topic.name, index) for index in range(topic.partition_count)])

    def _request(self, partition: Partition) -> None:
        id = partition.id
        if isinstance(partition, InternalPartition):
            id = LogId(CONSUMER_OFFSETS, partition.index)  # a partition of __coordinator_notes belongs to the owner of the groups' offsets
        if self.owners.may_open(id):
            super()._request(partition)

    def was_never_written(self, partition: Partition) -> bool:
        return self.owners.may_open(partition.id) and super().was_never_written(partition)

    def open_all(self) -> None:
        """Nothing: logs are opened when this node acquires them."""

    def finish_deletions(self) -> None:
        """Complete the deletions of the previous controller."""
        super().open_all()

    def _existing_logs(self, delay_ms: int) -> set[LogId]:
        return set()

    def _opened(self, partition: Partition, result: TopicLog | HeldBy | Unreadable) -> None:
        if isinstance(result, HeldBy):
            self._opening.discard(partition)
            self.owners.opened(partition.id, result)
            self._open_next()
            return
        super()._opened(partition, result)
        if partition.error == GONE:
            return
        if isinstance(result, Unreadable):
            self.owners.opened(partition.id, result.reason)
        elif not partition.error:
            self.owners.opened(partition.id, "")

    def _opening_failed(self, partition: Partition) -> None:
        super()._opening_failed(partition)
        self.owners.opened(partition.id, "a defect in this version")

    def _refuse(self, partition: Partition, failure: Unreadable) -> None:
        """Log the failure; `PartitionOwnership` tries again, here or on another node."""
        partition.refuse(NOT_SERVED, failure.reason)
        log.error("partition cannot be read", log=str(partition), reason=failure.reason, again="by another node or later")

    # Deleted topics: the owner of a log renames its folder (sets it aside); the controller renames the folders of logs without an owner.

    def _set_folder_aside(self, partition: Partition, topic: Topic, owned: TopicLog | None) -> bool:
        """Returns whether this node has nothing more to do for the folder."""
        if owned is None and not self.owners.is_controller:
            self.owners.release_unopened(partition.id, topic.id)
            return True
        try:
            return super()._set_folder_aside(partition, topic, owned)
        except BlockingIOError:  # another node has its log open, and has not read the deletion yet
            return False
