"""The ports for stores of logs: a broker acquires a log from its LogStore and appends through the OwnedLog that it gets.

The ports do not use asyncio: a store calls its callbacks in the caller's thread. Safety does not depend on clocks or leases: the
log itself refuses appends at an older epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final, NamedTuple, Protocol

from protocol.batch import Fact
from storage.errors import AppendFailed
from storage.extents import Extent
from storage.producers import Producers
from storage.times import SearchStep


class LogId(NamedTuple):
    name: str
    partition: int

    def __str__(self) -> str:
        return f"{self.name}-{self.partition}"


class HeldBy(NamedTuple):
    """Another node owns the log."""

    holder: str  # the owner, as text for messages


class Unreadable(NamedTuple):
    """The log cannot be opened: if `damaged`, until an operator intervenes; otherwise until the disk can be read."""

    reason: str
    damaged: bool


class NodeInfo(NamedTuple):
    """A live node, and its addresses for clients: (listener, host, port)."""

    id: int
    addresses: tuple[tuple[str, str, int], ...]
    rack: str | None = None


class ClusterView(Protocol):
    """The live nodes and the owner of each log, from memory: its methods do no I/O."""

    def nodes(self) -> list[NodeInfo]: ...

    def owner(self, log: LogId) -> NodeInfo | None: ...


NOT_YET: Final[list[Fact]] = []  # in a replay: the next records have not arrived yet


class OwnedLog(Protocol):
    """A log that this node may write, until another node claims it at a newer epoch."""

    epoch: int

    def usable(self) -> bool:
        """Whether the log accepts appends. Cheap: checked before every reply that depends on the log."""
        ...

    def replay(self) -> Iterator[list[Fact]]:
        """Key and value of every durable record, in order, in lists.

        NOT_YET instead of a list: the next records have not arrived from a remote server, and the caller asks again a little later.
        """
        ...

    def append(self, batch: bytes | bytearray, records: int, done: Callable[[int | AppendFailed], None]) -> None:
        """Append in order. `done` gets the offset of the first record when the batch is as durable as configured, or the failure."""
        ...

    def watch(self, failed: Callable[[AppendFailed], None]) -> None:
        """`failed` is called when the log fails outside of an append, for example in a later flush.

        If another node can claim the log at any time: also at once, if the log has failed before this call.
        """
        ...

    def recover(self, done: Callable[[AppendFailed | None], None]) -> None:
        """After a failure: cut records that were not acknowledged, and test whether the log can be written again."""
        ...

    def release(self) -> None: ...


class Readable(Protocol):
    """The records of a topic's log. Clients read up to the high watermark."""

    epoch: int  # leader epoch of appends
    start_offset: int  # records before it are deleted

    @property
    def next_offset(self) -> int:
        """The end offset: one after the last record."""
        ...

    @property
    def high_watermark(self) -> int:
        """One after the last committed record."""
        ...

    @property
    def size(self) -> int: ...

    def read(self, offset: int, bytes_max: int, end: int = -1) -> bytes:
        """Whole batches from the one that contains `offset` up to offset `end` (-1: the end of the log).

        About as many as fit into `bytes_max`, at least one. Raises OSError and DamagedLog.
        """
        ...

    def extent(self, offset: int, bytes_max: int, end: int = -1, one_at_least: bool = True) -> Extent | None:
        """Locate the batches that `read` would return; None at the end, or if no batch fits and not `one_at_least`."""
        ...

    def find_time(self, timestamp: int) -> Iterator[SearchStep]:
        """Search in steps for the first record at or after `timestamp`, which is yielded last, if any."""
        ...

    def latest_record(self) -> Iterator[SearchStep]:
        """Search for the record with the newest timestamp, in steps as `find_time`."""
        ...

    def epoch_at(self, offset: int) -> int: ...

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The newest leader epoch not above `epoch`, and its end offset; (-1, -1) if unknown."""
        ...


class RetentionLimits(NamedTuple):
    """Retention of a topic's log; -1: no limit."""

    retention_ms: int
    retention_bytes: int
    delete_delay_ms: int  # from the deletion of a segment to the removal of its files


class ServedLog(Protocol):
    """A log that clients may read."""

    id: LogId
    epoch: int

    @property
    def records(self) -> Readable: ...

    @property
    def high_watermark(self) -> int:
        """Records before it are committed, and clients may read them."""
        ...

    def watch_growth(self, on_growth: Callable[[], None]) -> None:
        """`on_growth` is called when the high watermark may have advanced."""
        ...


class TopicLog(ServedLog, Protocol):
    """The log of one partition of a topic, which this node may write at one epoch."""

    assigns_offsets_at_once: bool  # `append` returns the offset, instead of passing it to `done` later

    @property
    def batch_bytes_max(self) -> int:
        """The size of the largest batch that the log accepts."""
        ...

    @property
    def durable_offset(self) -> int:
        """Records before it survive a power failure."""
        ...

    @property
    def busy(self) -> bool:
        """Whether a flush or compaction uses the log's files; `interrupt` cancels a compaction."""
        ...

    def usable(self) -> bool: ...

    def append(self, batch: bytearray, done: Callable[[int | AppendFailed], None]) -> int:
        """Stamp offsets and epoch into one batch, and write it.

        A log that `assigns_offsets_at_once` returns the offset of the first record, or raises AppendFailed and has written nothing. Any
        other log returns -1, and `done` gets the offset when the batch is committed, or the failure.
        """
        ...

    def watch(self, failed: Callable[[AppendFailed], None]) -> None:
        """As `OwnedLog.watch`."""
        ...

    def recover(self, done: Callable[[AppendFailed | None], None]) -> None:
        """As `OwnedLog.recover`."""
        ...

    def interrupt(self) -> None: ...

    def set_segment_limits(self, segment_bytes: int, segment_ms: int) -> None:
        """Set the size and age at which a segment is closed."""
        ...

    def apply_retention(self, now: int, monotonic: int, limits: RetentionLimits) -> int:
        """Delete segments over the limits; return their number. Raises AppendFailed and OSError.

        `now` below 0: the wall time is unknown, so no segment is deleted for its age.
        """
        ...

    def delete_before(self, offset: int) -> None:
        """Delete records before `offset`; `TopicStore.save_start_offsets` makes the deletion durable."""
        ...


class TopicInfo(NamedTuple):
    """Parameters for opening the log of a topic's partition."""

    topic_id: bytes
    segment_bytes: int
    producers: Producers  # filled from the log
    last_deletion: int  # the newest deletion of a topic that the caller knows; a shared store opens no log for a caller behind it
    strayed: Callable[[str], None]  # if another topic's folder had the log's name and was moved away: gets its new path


class TopicStore(Protocol):
    """Stores the logs of topics."""

    @property
    def durable_starts(self) -> dict[tuple[str, int], int]:
        """The log start offsets that survive a crash."""
        ...

    def open_topic_log(self, id: LogId, topic: TopicInfo, done: Callable[[TopicLog | HeldBy | Unreadable], None]) -> None:
        """`done` is called at once or later; with HeldBy if another node owns the log.

        If the folder with the log's name belongs to another topic, that folder is moved away.
        """
        ...

    def served_log(self, id: LogId) -> ServedLog | None:
        """The log if it is open, including logs of groups and notes."""
        ...

    def list_existing_logs(self, delete_delay_ms: int) -> list[LogId]:
        """All logs of topics. Also schedules the removal, after the delay, of logs that an earlier process has set aside."""
        ...

    def exists(self, id: LogId) -> bool: ...

    def set_aside(self, id: LogId, topic_id: bytes, opened: TopicLog | None, claimed: bool, delete_delay_ms: int) -> None:
        """Rename the log of a deleted topic, and remove it after the delay. Raises OSError.

        `opened`: the log, if it was open. `claimed`: a new topic has this name; a folder without a topic id then belongs to the new topic.
        """
        ...

    def forget_topics(self, ids: Collection[LogId], done: Callable[[Exception | None], None]) -> None:
        """Remove these logs from all checkpoints; then call `done`."""
        ...

    def save_start_offsets(self, offsets: dict[tuple[str, int], int], done: Callable[[Exception | None], None]) -> None:
        """Save log start offsets; call `done` when they are durable."""
        ...

    def save_recovery_points(self, offsets: dict[tuple[str, int], int], done: Callable[[Exception | None], None]) -> None:
        """Save the offsets up to which logs are flushed, for the next start."""
        ...


Acquired = Callable[[OwnedLog | HeldBy | Unreadable], None]


class LogStore(Protocol):
    """Acquires logs, and has a view of the nodes."""

    def view(self) -> ClusterView: ...

    def acquire(self, log: LogId, done: Acquired) -> None:
        """Acquire the ownership of the log. `done` is called at once or later, in the caller's thread."""
        ...

    def close(self) -> None: ...
