"""The replies to clients while nodes failed, and the anomalies in them. Times are read from one clock, before the request and after the reply."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from itertools import pairwise
from typing import NamedTuple


class Write(NamedTuple):
    """A committed offset. The values of a key increase; after a commit without a clear reply its key is not written again."""

    key: Hashable
    value: int
    begun: float
    ended: float
    acknowledged: bool


class Read(NamedTuple):
    key: Hashable
    value: int  # -1: no offset was stored
    begun: float
    ended: float
    node: int


class Generation(NamedTuple):
    """A rebalance that ended with this generation."""

    group: str
    number: int
    begun: float
    ended: float


class Leadership(NamedTuple):
    """A node answered for a log, in this leader epoch."""

    log: Hashable
    epoch: int
    node: int


class Record(NamedTuple):
    """A record as acknowledged to its producer, or as read by a consumer."""

    partition: int
    offset: int
    value: bytes


class History:
    """All writes and reads of the observers, added by several threads."""

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.reads: list[Read] = []
        self.last_reads: list[Read] = []  # reads after all faults have ended
        self.generations: list[Generation] = []
        self.leaderships: set[Leadership] = set()
        self.stored: list[Record] = []  # records acknowledged to their producers
        self.fetched: set[Record] = set()
        self.last_fetched: set[Record] = set()
        self.errors: set[int] = set()  # in replies to commits and produce requests

    def anomalies(self, stale_reads: bool = False) -> list[str]:
        """A description of each violation. `stale_reads`: only the last reads must be up to date, as nodes without a lease check may reply from memory."""
        reads = self.last_reads if stale_reads else [*self.reads, *self.last_reads]
        return [*self._lost(reads), *self._went_back(reads), *self._generations(), *self._owners(), *self._records()]

    def _lost(self, reads: list[Read]) -> list[str]:
        """Reads of less than was acknowledged before they began, or of more than was written by their end."""
        found = []
        writes = defaultdict(list)
        for write in self.writes:
            writes[write.key].append(write)
        for read in reads:
            least = max((write.value for write in writes[read.key] if write.acknowledged and write.ended <= read.begun), default=-1)
            most = max((write.value for write in writes[read.key] if write.begun <= read.ended), default=-1)
            if read.value < least:
                found.append(f"{read} although {least} was acknowledged")
            elif read.value > most:
                found.append(f"{read} although only {most} was written")
        return found

    def _went_back(self, reads: list[Read]) -> list[str]:
        """Reads of less than an earlier read returned."""
        found = []
        newest: dict[Hashable, list[tuple[float, int]]] = defaultdict(list)  # by key: (end of a read, the largest value read by then)
        for read in sorted(reads, key=lambda read: read.ended):
            seen = newest[read.key]
            before = max((value for ended, value in seen if ended <= read.begun), default=-1)
            if read.value < before:
                found.append(f"{read} although {before} was read before")
            if not seen or seen[-1][1] < read.value:
                seen.append((read.ended, read.value))
        return found

    def _generations(self) -> list[str]:
        found = []
        groups = defaultdict(list)
        for generation in self.generations:
            groups[generation.group].append(generation)
        for several in groups.values():
            several.sort(key=lambda generation: generation.ended)
            found += [f"{late} behind {early}" for early, late in pairwise(several) if late.number <= early.number]
        return found

    def _owners(self) -> list[str]:
        owners: dict[tuple[Hashable, int], set[int]] = defaultdict(set)
        for log, epoch, node in self.leaderships:
            owners[log, epoch].add(node)
        return [f"nodes {sorted(nodes)} replied for {log} at epoch {epoch}" for (log, epoch), nodes in owners.items() if len(nodes) > 1]

    def _records(self) -> list[str]:
        found = [f"{record} was acknowledged and is gone" for record in self.stored if record not in self.last_fetched]
        values = {(record.partition, record.offset): record.value for record in self.last_fetched}
        return found + [f"{record} was read, and now {values.get(record[:2])!r} is there" for record in self.fetched if values.get(record[:2]) != record.value]
