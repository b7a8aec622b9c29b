"""Gold `commit_rate_1m`: commits of each partition in each minute."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pipeline.columns import MINUTE_MS, by_key_and_time, flags, mark_firsts, optional
from pipeline.schema import schema_of
from pipeline.series import Series


def commit_rate(series: Series, since_ms: int) -> pa.Table:
    """Rows of `commit_rate_1m` from the minute of `since_ms` on, in the table's sort order."""
    at = series.column("append_ms")
    recent = np.flatnonzero(at >= since_ms - since_ms % MINUTE_MS)
    key, minute = series.series[recent], at[recent] // MINUTE_MS * MINUTE_MS
    order = by_key_and_time(key, minute)
    rows, key, minute = recent[order], key[order], minute[order]
    schema = schema_of("commit_rate_1m")
    if not len(key):
        return schema.empty_table()
    first = np.flatnonzero(mark_firsts(key) | mark_firsts(minute))
    last = np.append(first[1:], len(key)) - 1
    flags_to_sum = ~series.removed[rows], series.column("delta")[rows] > 0, flags(series.commits["rewind"])[series.rows[rows]]
    sums = [pa.array(np.add.reduceat(part.astype(np.int64), first)) for part in flags_to_sum]
    names = series.named(key[first], "cluster", "group", "topic", "topic_partition")
    columns = [*names, pa.array(minute[first]), *sums, optional(series.committed[rows[last]])]
    return pa.table(columns, names=schema.names)
