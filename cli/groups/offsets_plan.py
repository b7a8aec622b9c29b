"""Plan an offset reset from committed offsets, log start and end, and the arguments. Without network."""

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
    remark: str | None = None  # why it is not the offset that was asked for

    @property
    def difference(self) -> int | None:
        return None if self.before is None else self.after.offset - self.before

    def document(self) -> dict[str, object]:
        """For --json; `offsets reset --from-file` reads it again."""
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


class Lacking(Exception):
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
    """Each its own offset, of a file say; none outside its log."""
    return [within(key, wanted[key], bounds[key], committed) for key in sorted(bounds)]


def shifted(by: int, bounds: Mapping[Key, Bounds], committed: Mapping[Key, Committed]) -> list[Move]:
    if lacking := sorted(bounds.keys() - committed.keys()):
        raise Lacking(lacking)
    return [within(key, Committed(committed[key].offset + by), bounds[key], committed) for key in sorted(bounds)]


def to_time(
    found: Mapping[Key, Committed | None], asked: str, bounds: Mapping[Key, Bounds], committed: Mapping[Key, Committed]
) -> list[Move]:
    """`found`: the first record of that time or later; None: there is none, and the group continues at the end."""
    late = f"no record since {asked}: to the end"
    return [
        move(key, found[key] or Committed(bounds[key].latest), bounds[key], committed, None if found[key] else late) for key in sorted(bounds)
    ]


def to_current(bounds: Mapping[Key, Bounds], committed: Mapping[Key, Committed]) -> list[Move]:
    """Commit the same offset again, which restarts its retention."""
    none = "nothing was committed: to the end"
    return [
        move(key, committed.get(key) or Committed(bounds[key].latest), bounds[key], committed, None if key in committed else none)
        for key in sorted(bounds)
    ]


def within(key: Key, wanted: Committed, bounds: Bounds, committed: Mapping[Key, Committed]) -> Move:
    """Clamp the offset to the log, as kafka-consumer-groups does."""
    if wanted.offset < bounds.earliest:
        return move(key, Committed(bounds.earliest), bounds, committed, f"{wanted.offset} is before the earliest")
    if wanted.offset > bounds.latest:
        return move(key, Committed(bounds.latest), bounds, committed, f"{wanted.offset} is after the latest")
    return move(key, wanted, bounds, committed)


def move(key: Key, after: Committed, bounds: Bounds, committed: Mapping[Key, Committed], remark: str | None = None) -> Move:
    before = committed.get(key)
    return Move(key[0], key[1], None if before is None else before.offset, after, bounds, remark)
