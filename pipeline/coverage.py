"""The offset ranges of a log that are complete, and the ranges with missing records.

A short run of records between two holes belongs to the incomplete range. Whether a run is short is known only at the next hole, perhaps
in a later slice of the log: an incomplete range of a later slice may overlap a complete one of an earlier slice, and takes precedence.
The result of `merged` does not depend on the slices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from history.recorded import SHORT_RUN
from pipeline.inputs import LogId
from pipeline.rows import Coverage

COMPACTED: Final = "compacted"
TORN: Final = "torn"
DAMAGED: Final = "damaged"
RETENTION: Final = "retention"
MISSING_SEGMENT: Final = "missing-segment"


class Hole(NamedTuple):
    first: int
    last: int
    why: str


class CoverageState(NamedTuple):
    """The end of the last incomplete range in earlier input, its reason, and the newest time."""

    end: int = -2
    why: str = ""
    ms: int = -1


def coverage(id: LogId, start: int, batches: NDArray[Any], holes: list[Hole], last: CoverageState) -> tuple[list[Coverage], CoverageState]:
    """The coverage of these batches from offset `start` on; `holes` are in order, and contain no complete batch."""
    rows: list[Coverage] = []
    clocks = np.maximum.accumulate(np.concatenate([[last.ms], batches["max_ms"]]))
    bases = batches["base"]

    def before(offset: int) -> int | None:
        """The newest time before this offset."""
        ms = int(clocks[np.searchsorted(bases, offset)])
        return ms if ms >= 0 else None

    def after(offset: int) -> int | None:
        at = int(np.searchsorted(bases, offset, "right"))
        return int(batches["first_ms"][at]) if at < len(batches) else None

    def add(first: int, end: int, complete: bool, reason: str) -> None:
        if first > end:
            return
        if complete:
            at = int(np.searchsorted(bases, first))
            from_ms = int(batches["first_ms"][at]) if at < len(batches) else None
            rows.append(Coverage(*id, first, end, from_ms, before(end + 1), True, ""))
        else:
            rows.append(Coverage(*id, first, end, before(first), after(end), False, reason))

    at = start
    gap: Hole | None = None
    gap_end, gap_reason = last.end, last.why
    for hole in holes:
        if gap is not None and (hole.why == gap.why and hole.first - gap.last <= SHORT_RUN):
            gap = Hole(gap.first, hole.last, hole.why)
            continue
        if gap is not None:
            add(gap.first, gap.last, False, gap.why)
            at = gap.last + 1
            gap = None
        elif gap_end >= -1 and hole.why == gap_reason and hole.first - gap_end <= SHORT_RUN:
            gap = Hole(gap_end + 1, hole.last, hole.why)
            continue
        add(at, hole.first - 1, True, "")
        gap = hole
    if gap is not None:
        add(gap.first, gap.last, False, gap.why)
        at, gap_end, gap_reason = gap.last + 1, gap.last, gap.why
    end = int(batches["last"][-1]) if len(batches) else at - 1
    add(at, end, True, "")
    return rows, CoverageState(gap_end, gap_reason, int(clocks[-1]))


def unreadable_coverage(id: LogId, holes: Iterable[Hole], planned_rows: Iterable[Coverage]) -> list[Coverage]:
    """Rows for ranges that were planned as complete and are unreadable; they take precedence over the planned rows."""
    rows = [row for row in planned_rows if (row.cluster, row.log, row.partition) == id]
    lost = []
    for hole in holes:
        planned = next((row for row in rows if row.from_offset <= hole.first <= row.to_offset), None)
        from_ms, to_ms = (planned.from_ms, planned.to_ms) if planned is not None else (None, None)
        lost.append(Coverage(*id, hole.first, hole.last, from_ms, to_ms, False, hole.why))
    return lost


def merged(rows: Iterable[Coverage]) -> list[Coverage]:
    """Disjoint ranges in order; incomplete ranges take precedence."""
    result: list[Coverage] = []
    for _, of_log in groupby(sorted(rows, key=_by_offset), key=lambda row: row[:3]):
        log_rows = list(of_log)
        gaps = _joined(row for row in log_rows if not row.complete)
        complete = _joined(row for row in log_rows if row.complete)
        result += sorted([*gaps, *_outside_gaps(complete, gaps)], key=_by_offset)
    return result


def by_partition(rows: Iterable[Coverage]) -> dict[int, list[Coverage]]:
    """The merged ranges of both logs of each partition of one cluster."""
    ranges: dict[int, list[Coverage]] = {}
    for row in merged(rows):
        ranges.setdefault(row.partition, []).append(row)
    return ranges


def _by_offset(row: Coverage) -> tuple[str, str, int, int, int]:
    return row.cluster, row.log, row.partition, row.from_offset, row.to_offset


def _joined(rows: Iterable[Coverage]) -> list[Coverage]:
    """Join adjacent rows with equal values; the rows are in order."""
    result: list[Coverage] = []
    for row in rows:
        before = result[-1] if result else None
        if before is None or before.why != row.why or row.from_offset > before.to_offset + 1:
            result.append(row)
        elif row.to_offset > before.to_offset:
            result[-1] = before._replace(to_offset=row.to_offset, to_ms=row.to_ms)
    return result


def _outside_gaps(complete: list[Coverage], gaps: list[Coverage]) -> Iterator[Coverage]:
    """The parts of the complete ranges outside the gaps."""
    number = 0
    for row in complete:
        first, from_ms = row.from_offset, row.from_ms
        while number and gaps[number - 1].to_offset >= first:
            number -= 1
        while number < len(gaps) and gaps[number].from_offset <= row.to_offset:
            gap = gaps[number]
            number += 1
            if gap.to_offset < first:
                continue
            if gap.from_offset > first:
                yield row._replace(from_offset=first, from_ms=from_ms, to_offset=gap.from_offset - 1, to_ms=gap.from_ms)
            first, from_ms = gap.to_offset + 1, gap.to_ms
        if first <= row.to_offset:
            yield row._replace(from_offset=first, from_ms=from_ms)
