"""Made-up end offsets for the commits of a made-up log, and the results that lookups of them must have, computed slowly."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from pipeline.rows import EndOffset
from pipeline.series import AHEAD_MS, HOLD_MS, ORIGINS
from tests.pipeline.logs import DecodedRecord


def ends_of(log: Sequence[DecodedRecord], seed: int) -> list[EndOffset]:
    """End offsets for most partitions, from one source or two, mostly ahead of the commits by a random amount, sometimes behind them."""
    draw = random.Random(seed)
    out: dict[tuple[str, int, int, str], EndOffset] = {}
    keys = sorted({(line.topic, line.partition) for line in log if line.topic is not None})
    for topic, partition in keys:
        if draw.random() < 0.15:
            continue
        origins = draw.sample(ORIGINS, draw.choice([1, 1, 2]))
        end = draw.choice([0, 0, 100])
        looked_ms: int | None = None  # when the end offset was last looked up and found unchanged, so that no record was written
        for line in log:
            if line.topic == topic and line.partition == partition and line.committed is not None and draw.random() < 0.9:
                end = max(end, line.committed + draw.choice([0, 0, 0, 3, 50]))
            if draw.random() < 0.3:
                origin = draw.choice(origins)
                if draw.random() < 0.01:
                    end = 0
                at = max(0, line.at + draw.choice([-2_000, 0, 0, 1_500]))
                unchanged_ms = looked_ms if origin == "notes" else None
                out[topic, partition, at, origin] = EndOffset("c", topic, partition, at, end, draw.choice([None, 0, end // 2]), origin, unchanged_ms)
                looked_ms = at + draw.choice([0, 10_000]) if draw.random() < 0.7 else None
    return [row for _, row in sorted(out.items())]


class PartitionSamples:
    """The end offsets of one partition, by origin and time."""

    def __init__(self, ends: Sequence[EndOffset], topic: str, partition: int) -> None:
        samples = [row for row in ends if (row.topic, row.topic_partition) == (topic, partition)]
        for rank, origin in enumerate(ORIGINS):
            times = [row.at_ms for row in samples if row.origin == origin]
            if times:
                last = math.inf if origin == "notes" else max(times)
                samples = [row for row in samples if ORIGINS.index(row.origin) <= rank or not min(times) <= row.at_ms <= last]
        self.samples = sorted(samples, key=lambda row: row.at_ms)

    def sample(self, at: int) -> EndOffset | None:
        return next((row for row in reversed(self.samples) if row.at_ms <= at), None)

    def unchanged_until(self, index: int) -> int:
        before, row = self.samples[index - 1].at_ms, self.samples[index]
        if row.unchanged_ms is None or row.origin != "notes":
            return before
        return min(max(row.unchanged_ms, before), row.at_ms)

    def end(self, at: int) -> tuple[int | None, int]:
        row = self.sample(at)
        if row is None:
            return None, 0
        index = self.samples.index(row)
        if index + 1 == len(self.samples):
            age = at - row.at_ms
            return (row.end_offset, age) if age <= HOLD_MS or row.origin == "notes" else (None, age)
        following = self.samples[index + 1]
        since = self.unchanged_until(index + 1)
        if following.end_offset <= row.end_offset or at <= since:
            return row.end_offset, 0
        share = (at - since) / max(following.at_ms - since, 1)
        return row.end_offset + math.floor((following.end_offset - row.end_offset) * share), 0

    def lag(self, at: int, committed: int) -> int | None:
        end, age = self.end(at)
        if end is None or (committed > end and age > AHEAD_MS):
            return None
        return max(0, end - committed)

    def passed(self, committed: int) -> tuple[int | None, bool]:
        top = -1
        for index, row in enumerate(self.samples):
            if row.end_offset > committed:
                if index == 0:
                    return row.at_ms, True
                since = self.unchanged_until(index)
                share = (committed - top) / (row.end_offset - top)
                return since + math.floor((row.at_ms - since) * min(share, 1.0)), False
            top = max(top, row.end_offset)
        return None, False
