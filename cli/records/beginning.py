"""Where `tenure consume` begins in each partition. A partition whose leader does not answer is asked again while the others are read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from cli.records.positions import Known, StartPosition, known_begin_offsets
from cli.topics.log_offsets import ATTEMPT_SECONDS, RETRIABLE

if TYPE_CHECKING:
    from cli.client import Cluster, TopicPartition
    from cli.records.until import Ends

AGAIN_SECONDS: Final = 1.0


class Beginnings:
    """`errors`: of partitions that are not read yet, as it is not known where to begin."""

    def __init__(self, cluster: Cluster, ends: Ends, warn: Callable[[str], None], *, committed: bool) -> None:
        self.errors: dict[TopicPartition, int] = {}
        self._cluster = cluster
        self._ends = ends
        self._warn = warn
        self._committed = committed
        self._begins: dict[TopicPartition, StartPosition] = {}
        self._started_ms = time.time_ns() // 1_000_000
        self._since = time.monotonic()
        self._again_at = 0.0

    def add(self, partitions: Iterable[TopicPartition], begin: StartPosition) -> None:
        if not self._begins:
            self._since = time.monotonic() - self._cluster.patience.spent
        self._begins |= dict.fromkeys(partitions, begin)
        self._again_at = 0.0

    def given_up(self, seconds: float) -> bool:
        """Whether to wait no longer for those that are not read yet."""
        return time.monotonic() - self._since >= seconds or all(error not in RETRIABLE for error in self.errors.values())

    def next(self, *, patient: bool = False) -> dict[TopicPartition, int]:
        """Where reading begins in the partitions whose leaders tell now. `patient`: wait for them within --timeout; raises Failure if there are none."""
        if not self._begins or (time.monotonic() < self._again_at and not patient):
            return {}
        timeout = None if patient else ATTEMPT_SECONDS
        if self.errors:
            self._cluster.topics(sorted({topic for topic, _ in self._begins}), refresh=True)
        found: dict[TopicPartition, int] = {}
        errors: dict[TopicPartition, int] = {}
        for begin in dict.fromkeys(self._begins.values()):
            partitions = [tp for tp, wanted in self._begins.items() if wanted == begin]
            known = known_begin_offsets(self._cluster, partitions, begin, self._warn, committed=self._committed, timeout=timeout)
            errors |= known.errors | self._ends.add(known.offsets, timeout)
            found |= known.offsets
        found = {tp: offset for tp, offset in found.items() if tp not in errors}
        if patient and not found:
            Known({}, errors).checked()
        # What is written after the start is new, also where the end at the start was not known.
        late = StartPosition("time", self._started_ms)
        self._begins = {tp: late if begin.kind == "latest" else begin for tp, begin in self._begins.items() if tp not in found}
        self.errors = errors
        self._again_at = time.monotonic() + AGAIN_SECONDS
        return found
