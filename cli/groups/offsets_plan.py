"""Plans an offset reset from committed offsets, log start and end, and the arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cli.client import TopicPartition


class Committed(NamedTuple):
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class Bounds(NamedTuple):
    """The start and end offset of one log."""

    earliest: int
    latest: int


class OffsetChange(NamedTuple):
    """The planned change of one partition's committed offset."""

    topic: str
    partition: int
    before: int | None  # the committed offset
    after: Committed
    bounds: Bounds | None  # None: they are not known, nor needed
    remark: str | None = None  # why `after` is not the requested offset

    @property
    def difference(self) -> int | None:
        return None if self.before is None else self.after.offset - self.before

    def document(self) -> dict[str, object]:
        """The JSON object, which `offsets reset --from-file` can read."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "from_offset": self.before,
            "to_offset": self.after.offset,
            "difference": self.difference,
            "earliest_offset": None if self.bounds is None else self.bounds.earliest,
            "latest_offset": None if self.bounds is None else self.bounds.latest,
            "leader_epoch": None if self.after.leader_epoch < 0 else self.after.leader_epoch,
            "metadata": self.after.metadata,
            "warning": self.remark,
        }


def unplanned_document(tp: TopicPartition, before: Committed | None) -> dict[str, object]:
    """The JSON object of a partition whose target is unknown: that of an OffsetChange, with nulls."""
    change = OffsetChange(*tp, None if before is None else before.offset, Committed(0), None)
    return change.document() | {"to_offset": None, "difference": None, "metadata": None}


class NotCommitted(Exception):
    """The plan shifts committed offsets, but these partitions have none."""

    def __init__(self, partitions: list[TopicPartition]) -> None:
        super().__init__(partitions)
        self.partitions = partitions


def to_bound(earliest: bool, bounds: Mapping[TopicPartition, Bounds], committed: Mapping[TopicPartition, Committed]) -> list[OffsetChange]:
    return [
        move(tp, Committed(bounds[tp].earliest if earliest else bounds[tp].latest), bounds[tp], committed) for tp in sorted(bounds)
    ]


def to_offset(offset: int, bounds: Mapping[TopicPartition, Bounds], committed: Mapping[TopicPartition, Committed]) -> list[OffsetChange]:
    return to_wanted(dict.fromkeys(bounds, Committed(offset)), bounds, committed)


def to_wanted(
    wanted: Mapping[TopicPartition, Committed], bounds: Mapping[TopicPartition, Bounds], committed: Mapping[TopicPartition, Committed]
) -> list[OffsetChange]:
    """Move each partition to its wanted offset, or to the nearest offset within its log."""
    return [clamped(tp, wanted[tp], bounds[tp], committed) for tp in sorted(bounds)]


def shifted(by: int, bounds: Mapping[TopicPartition, Bounds], committed: Mapping[TopicPartition, Committed]) -> list[OffsetChange]:
    if not_committed := sorted(bounds.keys() - committed.keys()):
        raise NotCommitted(not_committed)
    return [clamped(tp, Committed(committed[tp].offset + by), bounds[tp], committed) for tp in sorted(bounds)]


def to_time(
    first_offsets: Mapping[TopicPartition, Committed | None],
    time_text: str,
    bounds: Mapping[TopicPartition, Bounds],
    committed: Mapping[TopicPartition, Committed],
) -> list[OffsetChange]:
    """Move the partitions of `first_offsets` to their first record at or after a time. None: no such record; move to the log end."""
    remark = f"no record since {time_text}: to the end"
    return [
        move(tp, first or Committed(bounds[tp].latest), bounds[tp], committed, None if first else remark) for tp, first in sorted(first_offsets.items())
    ]


def to_current(
    partitions: Iterable[TopicPartition], bounds: Mapping[TopicPartition, Bounds], committed: Mapping[TopicPartition, Committed]
) -> list[OffsetChange]:
    """Commit the same offsets again, which restarts their retention; without a committed offset, move to the log end, which must be in `bounds`."""
    remark = "nothing was committed: to the end"
    return [
        move(tp, committed.get(tp) or Committed(bounds[tp].latest), bounds.get(tp), committed, None if tp in committed else remark)
        for tp in sorted(partitions)
    ]


def clamped(tp: TopicPartition, wanted: Committed, bounds: Bounds, committed: Mapping[TopicPartition, Committed]) -> OffsetChange:
    """Clamp the offset to the log, as kafka-consumer-groups does."""
    if wanted.offset < bounds.earliest:
        return move(tp, Committed(bounds.earliest), bounds, committed, f"{wanted.offset} is before the earliest")
    if wanted.offset > bounds.latest:
        return move(tp, Committed(bounds.latest), bounds, committed, f"{wanted.offset} is after the latest")
    return move(tp, wanted, bounds, committed)


def move(tp: TopicPartition, after: Committed, bounds: Bounds | None, committed: Mapping[TopicPartition, Committed], remark: str | None = None) -> OffsetChange:
    before = committed.get(tp)
    return OffsetChange(tp[0], tp[1], None if before is None else before.offset, after, bounds, remark)
