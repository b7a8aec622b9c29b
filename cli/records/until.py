"""Where `tenure consume --until` stops: in each partition before an offset, before the first record of a time, or at the present end."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from cli.groups.offset_formats import time_text
from cli.records.batches import Chunk
from cli.records.positions import EARLIEST_WORDS, Known, StartPosition, known_positions, parse_position
from cli.topics.log_offsets import ATTEMPT_SECONDS

if TYPE_CHECKING:
    from cli.client import Cluster, TopicPartition


AGAIN_SECONDS: Final = 1.0  # until a leader that has not told the end of its log is asked again


class EndPosition(NamedTuple):
    """The position of the first record that is not printed."""

    position: StartPosition

    @property
    def text(self) -> str:
        match self.position.kind:
            case "latest":
                return ""
            case "offset":
                return f", until offset {self.position.number}"
            case "time":
                return f", until {time_text(self.position.number)}"
        return f", without the last {self.position.number}"

    @property
    def is_to_come(self) -> bool:
        return self.position.kind == "time" and self.position.number > time.time_ns() // 1_000_000


def parse_until(text: str | None) -> EndPosition | None:
    """Parse --until. ValueError for an invalid position."""
    if text is None:
        return None
    if text.lower() in EARLIEST_WORDS or (position := parse_position(text)).kind == "earliest":
        raise ValueError(f"{text!r} would print nothing: write end, an offset, or a time")
    return EndPosition(position)


class Ends:
    """The offsets at which reading stops. Those of a time to come are not known before that time, nor those of logs whose leaders do not answer."""

    def __init__(self, cluster: Cluster, until: EndPosition | None, *, committed: bool = False) -> None:
        self._cluster = cluster
        self._until = until
        self._committed = committed
        self._offsets: dict[TopicPartition, int] = {}
        self._unknown: set[TopicPartition] = set()  # partitions whose end is not known yet
        self._again_at = 0.0

    @property
    def text(self) -> str:
        return self._until.text if self._until else ""

    @property
    def at_present_end(self) -> bool:
        """Whether records that arrive later are not read."""
        return self._until is not None and self._until.position.kind == "latest"

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Find the ends of these partitions, and forget all others. Raises Failure for one whose leader does not answer within --timeout."""
        self._offsets = {}
        self._unknown = set()
        check_known(self.add(partitions, timeout=None))

    def add(self, partitions: Iterable[TopicPartition], timeout: float | None) -> dict[TopicPartition, int]:
        """Find the ends of these partitions too; return the error codes of those whose leaders do not answer. `timeout`: as of `known_offsets`."""
        if self._until is None:
            return {}
        added = list(partitions)
        self._unknown |= set(added)
        if self._until.is_to_come:
            return {}
        known = self._find(added, self._until.position, timeout)
        self._offsets |= known.offsets
        self._unknown -= known.offsets.keys()
        return known.errors

    def cut(self, chunk: Chunk) -> Chunk:
        """The chunk without the records from the end on."""
        end = self._offsets.get((chunk.topic, chunk.partition))
        if end is None or chunk.next_offset <= end:
            return chunk
        return chunk._replace(records=[consumed for consumed in chunk.records if consumed.record.offset < end], next_offset=end)

    def reached(self, positions: Mapping[TopicPartition, int], lost: Container[TopicPartition] = ()) -> bool:
        """Whether all partitions were read up to their ends, except for those of `lost`. `positions`: the next offsets."""
        if self._until is None or self._until.is_to_come:
            return False
        if self._unknown and time.monotonic() >= self._again_at:
            asked = [tp for tp in self._unknown if tp not in lost]
            self._cluster.topics(sorted({topic for topic, _ in asked}), refresh=True)
            self.add(asked, ATTEMPT_SECONDS)
            self._again_at = time.monotonic() + AGAIN_SECONDS
        return all(tp in lost for tp in self._unknown) and all(tp in lost or positions[tp] >= end for tp, end in self._offsets.items())

    def behind(self, positions: Mapping[TopicPartition, int], lost: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those of `lost` that were not read up to their ends."""
        return [tp for tp in lost if tp not in self._offsets or positions[tp] < self._offsets[tp]]

    def _find(self, partitions: list[TopicPartition], position: StartPosition, timeout: float | None) -> Known:
        if not partitions:
            return Known({}, {})
        if position.kind == "offset":
            return Known(dict.fromkeys(partitions, position.number), {})
        return known_positions(self._cluster, partitions, position, committed=self._committed, timeout=timeout)


def check_known(errors: Mapping[TopicPartition, int]) -> None:
    Known({}, dict(errors)).checked()
