"""What the records of a group tell about a rebalance without notes: the cause, as a conclusion from the records before and after it.

`infer` gets the records that the story names; the last record of the old generation may be another one, and records may be missing in between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from history.conclusion import Inferred
from history.episodes import Rebalance, RebalancesMissing
from history.inferred import InferenceCache, is_replacement, last_stable_record
from history.note_records import GroupRecord

SHORT_RUN: Final = 64  # offsets: a run of records between two holes of a log that is no longer than this counts as a part of the hole


class RecordedGenerations:
    """The group records so far, each with those that store the same generation again."""

    def __init__(self) -> None:
        self._same: dict[int, tuple[list[GroupRecord], int]] = {}  # by offset: the records of its generation, and its index among them
        self._newest: list[GroupRecord] = []

    def add(self, record: GroupRecord) -> None:
        if not (self._newest and is_replacement(self._newest[-1], record)):
            self._newest = []
        self._newest.append(record)
        self._same[record.offset] = self._newest, len(self._newest) - 1

    def repeats(self, record: GroupRecord) -> bool:
        """Whether it stores the generation of the record before it again."""
        return self._same[record.offset][1] > 0

    def last_stable(self, before: GroupRecord, after: GroupRecord | None) -> GroupRecord:
        """The last record of the generation of `before` that was stored before the rebalance that ended with `after`."""
        same, number = self._same[before.offset]
        return last_stable_record(same, number, after) if after is not None else same[0]


class RecordedCauses:
    """`whole(first, last)`: whether no record is missing between two offsets."""

    def __init__(self, cache: InferenceCache, whole: Callable[[int, int], bool]) -> None:
        self.generations = RecordedGenerations()
        self._cache = cache
        self._whole = whole

    def infer(self, before: GroupRecord | None, after: GroupRecord | None, from_generation: int) -> Inferred | None:
        """The rebalance between two records; None if they do not tell, as the group before it is unknown."""
        if after is None or after.stored is None or ((before is None or before.stored is None) and from_generation != 0):
            return None
        whole = before is None or self._whole(before.offset, after.offset)
        inferred = self._cache.infer(self.generations.last_stable(before, after) if before is not None else None, after)
        return inferred if whole else inferred._replace(strong=False, evidence=f"{inferred.evidence}; records between them are missing")

    def of(self, entry: Rebalance | RebalancesMissing) -> Inferred | None:
        """The inferred cause of an entry whose notes do not have it; None if they have it, or the records do not tell."""
        if isinstance(entry, Rebalance):
            if entry.told is not None:
                return entry.told if entry.cause is None else None
            return self.infer(entry.before, entry.after, entry.from_generation) if not entry.all_noted else None
        if not entry.is_one:
            return None
        return self.infer(entry.before, entry.after, entry.from_generation)
