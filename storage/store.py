"""Who may write which log. A broker asks its LogStore for a log and appends through the OwnedLog that it gets.

No asyncio in it: stores call back in the thread of whoever drives them. Safety never rests on clocks or leases: the log
itself refuses an older epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final, NamedTuple, Protocol

from protocol.batch import Fact
from storage.errors import AppendFailed
from storage.extents import Extent
from storage.producers import Producers
from storage.times import Found


class LogId(NamedTuple):
    name: str
    partition: int

    def __str__(self) -> str:
        return f"{self.name}-{self.partition}"


class HeldBy(NamedTuple):
    """Somebody else owns the log."""

    who: str


class Unreadable(NamedTuple):
    """The log cannot be opened: `damaged` until a human decides what to do, or until the disk reads again."""

    reason: str
    damaged: bool


class NodeInfo(NamedTuple):
    """A live node, and where its clients find it: (listener, host, port)."""

    id: int
    addresses: tuple[tuple[str, str, int], ...]
    rack: str | None = None


class ClusterView(Protocol):
    """Who is there and who owns which log; cached, no I/O."""

    def nodes(self) -> list[NodeInfo]: ...

    def owner(self, log: LogId) -> NodeInfo | None: ...


NOT_YET: Final[list[Fact]] = []  # in a replay: the next records are on their way


class OwnedLog(Protocol):
    """A log that is ours to write, until somebody claims it at a newer epoch."""

    epoch: int

    def usable(self) -> bool:
        """Cheap; asked before every answer that rests on the log."""
        ...

    def replay(self) -> Iterator[list[Fact]]:
        """Key and value of every record, in order, as far as they are safe; some at a time, and the caller paces it.

        NOT_YET instead of facts: they have to come from elsewhere, so the caller asks again a little later.
        """
        ...

    def append(self, batch: bytes | bytearray, records: int, done: Callable[[int | AppendFailed], None]) -> None:
        """In order; `done` hears the offset of the first record when the batch is as safe as asked for, or that it is not there."""
        ...

    def watch(self, failed: Callable[[AppendFailed], None]) -> None:
        """`failed` hears of what breaks the log while nobody waits for it: a flush behind the replies."""
        ...

    def recover(self, done: Callable[[AppendFailed | None], None]) -> None:
        """After a failure: cut off what was not acknowledged and find out whether writing works again."""
        ...

    def release(self) -> None: ...


class Readable(Protocol):
    """What a log of a topic holds. Readers see what lies before the high watermark."""

    epoch: int  # of what is appended now
    start_offset: int  # records before it are given up

    @property
    def next_offset(self) -> int:
        """Behind the last record."""
        ...

    @property
    def high_watermark(self) -> int:
        """Behind the last record that is committed."""
        ...

    @property
    def size(self) -> int: ...

    def read(self, offset: int, bytes_max: int, end: int = -1) -> bytes:
        """Whole batches from the one that holds `offset` on, as many as fit but at least one. Raises OSError and DamagedLog."""
        ...

    def extent(self, offset: int, bytes_max: int, end: int = -1, one_at_least: bool = True) -> Extent | None:
        """The same, found without being read."""
        ...

    def find_time(self, timestamp: int) -> Iterator[Found | None]:
        """The first record of that time or later, searched in steps; None after each step that found none."""
        ...

    def latest_record(self) -> Iterator[Found | None]:
        """The record with the newest time, likewise."""
        ...

    def epoch_at(self, offset: int) -> int: ...

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The newest epoch up to this one, and where it ended; -1 where that is not known."""
        ...


class Limits(NamedTuple):
    """How long and how much a log of a topic keeps; -1: no limit."""

    retention_ms: int
    retention_bytes: int
    delete_delay_ms: int  # until files that hold nothing any more are removed


class ServedLog(Protocol):
    """A log that clients may read."""

    id: LogId
    epoch: int

    @property
    def records(self) -> Readable: ...

    @property
    def high_watermark(self) -> int:
        """What lies before it is committed, and may be read."""
        ...

    def watch_growth(self, grown: Callable[[], None]) -> None:
        """`grown` is called when there may be more to read."""
        ...


class TopicLog(ServedLog, Protocol):
    """The log of one partition of a topic, ours to write at one epoch."""

    immediate: bool  # `append` knows the offset at once

    @property
    def durable_offset(self) -> int:
        """What lies before it survives a power failure."""
        ...

    @property
    def busy(self) -> bool:
        """Something is at work in its files; `interrupt` ends that soon."""
        ...

    def usable(self) -> bool: ...

    def append(self, batch: bytearray, done: Callable[[int | AppendFailed], None]) -> int:
        """Stamp and write one batch; the offset of its first record.

        An immediate log returns the offset or raises AppendFailed; then nothing was written. Any other log returns -1, and
        `done` hears the offset once the batch is committed, or why it is not there.
        """
        ...

    def watch(self, failed: Callable[[AppendFailed], None]) -> None:
        """`failed` hears of what breaks the log while nobody waits for it."""
        ...

    def recover(self, done: Callable[[AppendFailed | None], None]) -> None:
        """After a failure: cut off what was not acknowledged and find out whether writing works again."""
        ...

    def interrupt(self) -> None: ...

    def set_segment_limits(self, segment_bytes: int, segment_ms: int) -> None:
        """From now on a segment is closed when it is so large or so old."""
        ...

    def retain(self, now: int, monotonic: int, limits: Limits) -> int:
        """Give up what is too old or too much; how many segments. Below 0 `now` is not known. Raises AppendFailed and OSError."""
        ...

    def delete_before(self, offset: int) -> None:
        """Records before it are given up; `TopicStore.save_start_offsets` makes that durable."""
        ...


class TopicInfo(NamedTuple):
    """What has to be known to open the log of a topic's partition."""

    topic_id: bytes
    segment_bytes: int
    producers: Producers  # filled from the log
    strayed: Callable[[str], None]  # hears where a folder of another topic was moved that stood in the way


class TopicStore(Protocol):
    """Keeps the logs of topics."""

    @property
    def durable_starts(self) -> dict[tuple[str, int], int]:
        """Where logs begin, as far as that survives a crash."""
        ...

    def open_topic_log(self, id: LogId, topic: TopicInfo, done: Callable[[TopicLog | HeldBy | Unreadable], None]) -> None:
        """`done` is called at once or later; with HeldBy when another node owns the log. What is left of another topic of that name is moved out of the way."""
        ...

    def served_log(self, id: LogId) -> ServedLog | None:
        """The log, if it is open; also one of groups or notes."""
        ...

    def existing(self, delete_delay_ms: int) -> list[LogId]:
        """All logs that there are, but for the broker's own; what is set aside already goes after that time."""
        ...

    def exists(self, id: LogId) -> bool: ...

    def set_aside(self, id: LogId, topic_id: bytes, opened: TopicLog | None, claimed: bool, delete_delay_ms: int) -> None:
        """The topic was deleted: its log gives up the name, and goes after that time. Raises OSError.

        `opened`: the log, where it was open. `claimed`: a topic of this name exists, so a log without an id is that one's.
        """
        ...

    def forget_topics(self, ids: Collection[LogId], done: Callable[[Exception | None], None]) -> None:
        """No checkpoint names these logs any more when `done` is called."""
        ...

    def save_start_offsets(self, offsets: dict[tuple[str, int], int], done: Callable[[Exception | None], None]) -> None:
        """Where logs begin, durable when `done` is called."""
        ...

    def save_recovery_points(self, offsets: dict[tuple[str, int], int], done: Callable[[Exception | None], None]) -> None:
        """Up to where logs are on the disk, for the next start."""
        ...


Acquired = Callable[[OwnedLog | HeldBy | Unreadable], None]


class LogStore(Protocol):
    """Hands out logs and tells who else is there."""

    def view(self) -> ClusterView: ...

    def acquire(self, log: LogId, done: Acquired) -> None:
        """Own the log from now on. `done` is called at once or later, in the thread of whoever drives the store."""
        ...

    def close(self) -> None: ...
