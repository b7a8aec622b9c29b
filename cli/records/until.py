"""Where `tenure consume --until` stops: in each partition before an offset, before the first record of a time, or at the present end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from cli.groups.offset_formats import time_text
from cli.records.batches import Chunk
from cli.records.positions import EARLIEST_WORDS, StartPosition, checked_offsets, offsets_at, parse_position
from cli.topics.log_offsets import EARLIEST, LATEST, log_offsets

if TYPE_CHECKING:
    from cli.client import Cluster, TopicPartition


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
    """The offsets at which reading stops. Those of a time to come are not known before that time."""

    def __init__(self, cluster: Cluster, until: EndPosition | None, *, committed: bool = False) -> None:
        self._cluster = cluster
        self._until = until
        self._committed = committed
        self._offsets: dict[TopicPartition, int] | None = None
        self._partitions: list[TopicPartition] = []

    @property
    def text(self) -> str:
        return self._until.text if self._until else ""

    @property
    def at_present_end(self) -> bool:
        """Whether records that arrive later are not read."""
        return self._until is not None and self._until.position.kind == "latest"

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Find the ends of these partitions."""
        self._partitions = list(partitions)
        self._offsets = None
        if self._until is not None and not self._until.is_to_come:
            self._offsets = self._find(self._until.position)

    def cut(self, chunk: Chunk) -> Chunk:
        """The chunk without the records from the end on."""
        end = (self._offsets or {}).get((chunk.topic, chunk.partition))
        if end is None or chunk.next_offset <= end:
            return chunk
        return chunk._replace(records=[consumed for consumed in chunk.records if consumed.record.offset < end], next_offset=end)

    def reached(self, positions: Mapping[TopicPartition, int]) -> bool:
        """Whether all partitions were read up to their ends. `positions`: the next offsets."""
        if self._until is None:
            return False
        if self._offsets is None and not self._until.is_to_come:
            self._offsets = self._find(self._until.position)  # that time has come
        return self._offsets is not None and all(positions[tp] >= end for tp, end in self._offsets.items())

    def _find(self, position: StartPosition) -> dict[TopicPartition, int]:
        if not self._partitions:
            return {}
        if position.kind == "offset":
            return dict.fromkeys(self._partitions, position.number)
        ends = offsets_at(self._cluster, self._partitions, LATEST, committed=self._committed)
        if position.kind == "last":
            starts = offsets_at(self._cluster, self._partitions, EARLIEST)
            return {tp: max(starts[tp], end - position.number) for tp, end in ends.items()}
        if position.kind == "time":
            first = checked_offsets(log_offsets(self._cluster, dict.fromkeys(self._partitions, position.number), committed=self._committed))
            return {tp: ends[tp] if offset < 0 else offset for tp, offset in first.items()}
        return ends
