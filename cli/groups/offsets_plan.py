"""Plans an offset reset from committed offsets, log start and end, and the arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Key = tuple[str, int]  # topic, partition


class Committed(NamedTuple):
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class Bounds(NamedTuple):
    """The start and end offset of one log."""

    earliest: int
    latest: int


class Move(NamedTuple):
    """One partition of a plan."""

    topic: str
    partition: int
    before: int | None  # the committed offset
    after: Committed
    bounds: Bounds
    remark: str | None = None  # why it is not the requested offset

    @property
    def difference(self) -> int | None:
        return None if self.before is None else self.after.offset - self.before

    def document(self) -> dict[str, object]:
        """For --json; `offsets reset --from-file` can read it."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "from_offset": self.before,
            "to_offset": self.after.offset,
            "difference": self.difference,
            "earliest_offset": self.bounds.earliest,
            "latest_offset": self.bounds.latest,
            "leader_epoch": None if self.after.leader_epoch < 0 else self.after.leader_epoch,
            "metadata": self.after.metadata,
            "warning": self.remark,
        }


class NotCommitted(Exception):
    """Partitions without a committed offset, for a plan that starts from committed offsets."""

    def __init__(self, keys: list[Key]) -> None:
        super().__init__(keys)
        self.keys = keys


def to_bound(earliest: bool, bounds: Mapping[Key, Bounds], committed: Mapping[Key, Committed]) -> list[Move]:
    return [
        move(key, Committed(bounds[key].earliest if earliest else bounds[key].latest), bounds[key], committed) for key in sorted(bounds)
    ]


def to_offset(offset: int, bounds: Mapping[Key, Bounds], committed: Mapping[Key, Committed]) -> list[Move]:
    return to_wanted(dict.fromkeys(bounds, Committed(offset)), bounds, committed)


def to_wanted(wanted: Mapping[Key, Committed], bounds: Mapping[Key, Bounds], committed: Mapping[Key, Committed]) -> list[Move]:
    """To an offset for each partition, clamped to its log."""
    return [clamped(key, wanted[key], bounds[key], committed) for key in sorted(bounds)]


def shifted(by: int, bounds: Mapping[Key, Bounds], committed: Mapping[Key, Committed]) -> list[Move]:
    if not_committed := sorted(bounds.keys() - committed.keys()):
        raise NotCommitted(not_committed)
    return [clamped(key, Committed(committed[key].offset + by), bounds[key], committed) for key in sorted(bounds)]


def to_time(
    first_offsets: Mapping[Key, Committed | None], time_text: str, bounds: Mapping[Key, Bounds], committed: Mapping[Key, Committed]
) -> list[Move]:
    """To the first record at or after a time; None in `first_offsets`: no such record, to the end of the log."""
    remark = f"no record since {time_text}: to the end"
    return [
        move(key, first_offsets[key] or Committed(bounds[key].latest), bounds[key], committed, None if first_offsets[key] else remark) for key in sorted(bounds)
    ]


def to_current(bounds: Mapping[Key, Bounds], committed: Mapping[Key, Committed]) -> list[Move]:
    """To the committed offset again, which restarts its retention."""
    remark = "nothing was committed: to the end"
    return [
        move(key, committed.get(key) or Committed(bounds[key].latest), bounds[key], committed, None if key in committed else remark)
        for key in sorted(bounds)
    ]


def clamped(key: Key, wanted: Committed, bounds: Bounds, committed: Mapping[Key, Committed]) -> Move:
    """Clamp the offset to the log, as kafka-consumer-groups does."""
    if wanted.offset < bounds.earliest:
        return move(key, Committed(bounds.earliest), bounds, committed, f"{wanted.offset} is before the earliest")
    if wanted.offset > bounds.latest:
        return move(key, Committed(bounds.latest), bounds, committed, f"{wanted.offset} is after the latest")
    return move(key, wanted, bounds, committed)


def move(key: Key, after: Committed, bounds: Bounds, committed: Mapping[Key, Committed], remark: str | None = None) -> Move:
    before = committed.get(key)
    return Move(key[0], key[1], None if before is None else before.offset, after, bounds, remark)
