"""Reduces millions of rows to the few that a chart shows, before they become Python objects."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.columns import ints

GOOD_STATUSES: Final = ("OK", "UNKNOWN")
STALLED_STATUSES: Final = ("STOP", "STALL", "REWIND", "LOST")
SERIES: Final = ("cluster", "group", "topic", "topic_partition", "ruleset")


def merged_intervals(status: pa.Table) -> pa.Table:
    """Merge adjacent intervals of a partition with the same status and rule (any rule if the status is OK or UNKNOWN).

    `status`: rows sorted as in the table. Intervals with a gap between them, where an offset was removed, stay separate.
    """
    if not status.num_rows:
        return status
    begins = np.zeros(status.num_rows, bool)
    begins[0] = True
    for name in (*SERIES, "status"):
        begins[1:] |= _changes(status[name])
    is_good = np.asarray(pc.is_in(status["status"], pa.array(GOOD_STATUSES, pa.string())))
    begins[1:] |= _changes(status["rule"]) & ~is_good[1:]
    begins[1:] |= ints(status["from_ms"])[1:] != ints(status["to_ms"])[:-1]
    first = np.flatnonzero(begins)
    last = np.append(first[1:], status.num_rows) - 1
    at = status.schema.get_field_index("from_ms")
    return status.take(last).set_column(at, status.schema.field(at), status["from_ms"].take(pa.array(first)))


def _changes(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    values = column.combine_chunks()
    if not pa.types.is_integer(values.type):
        values = values.dictionary_encode().indices
    numbers: NDArray[Any] = np.asarray(values)
    changed: NDArray[np.bool_] = numbers[1:] != numbers[:-1]
    return changed


def highest(lag: pa.Table, from_ms: int, step_ms: int) -> list[tuple[str, int, int, int]]:
    """(topic, partition, step, highest lag) for each partition and time step."""
    step = pc.divide(pc.subtract(lag["minute_ms"], from_ms), step_ms)
    highest_lags = lag.append_column("step", step).group_by(["topic", "topic_partition", "step"]).aggregate([("lag_max", "max")])
    return list(zip(*(highest_lags[name].to_pylist() for name in ("topic", "topic_partition", "step", "lag_max_max")), strict=True))
