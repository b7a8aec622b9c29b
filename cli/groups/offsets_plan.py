"""What a reset would set: from what is committed, where the logs begin and end, and what was asked for. No cluster here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Key = tuple[str, int]  # topic, partition


class Committed(NamedTuple):
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class Bounds(NamedTuple):
    """Of one log: where it begins, and where its next record goes."""

    earliest: int
    latest: int


class Move(NamedTuple):
    """One partition of a plan."""

    topic: str
    partition: int
    before: int | None  # what is committed
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
    """Partitions without a committed offset, where the plan begins at what is committed."""

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
    """`found`: the first record of that time or later; None: there is none, and the group goes on with what comes next."""
    late = f"no record since {asked}: to the end"
    return [
        move(key, found[key] or Committed(bounds[key].latest), bounds[key], committed, None if found[key] else late) for key in sorted(bounds)
    ]


def to_current(bounds: Mapping[Key, Bounds], committed: Mapping[Key, Committed]) -> list[Move]:
    """What is committed is committed again as it is: its retention starts again."""
    none = "nothing was committed: to the end"
    return [
        move(key, committed.get(key) or Committed(bounds[key].latest), bounds[key], committed, None if key in committed else none)
        for key in sorted(bounds)
    ]


def within(key: Key, wanted: Committed, bounds: Bounds, committed: Mapping[Key, Committed]) -> Move:
    """As kafka-consumer-groups does: what is outside of the log becomes the end of the log that is nearer."""
    if wanted.offset < bounds.earliest:
        return move(key, Committed(bounds.earliest), bounds, committed, f"{wanted.offset} is before the earliest")
    if wanted.offset > bounds.latest:
        return move(key, Committed(bounds.latest), bounds, committed, f"{wanted.offset} is after the latest")
    return move(key, wanted, bounds, committed)


def move(key: Key, after: Committed, bounds: Bounds, committed: Mapping[Key, Committed], remark: str | None = None) -> Move:
    before = committed.get(key)
    return Move(key[0], key[1], None if before is None else before.offset, after, bounds, remark)
