"""Gold `commit_rate_1m`: commits of each partition in each minute."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pipeline.columns import MINUTE_MS, firsts, flags, ints, optional, pair, ranks
from pipeline.schema import schema_of


def commit_rate(commits: pa.Table, since_ms: int) -> pa.Table:
    """`commits`: silver rows, all from the minute of `since_ms` on. Rows of that minute and later, in the table's order."""
    at = ints(commits["append_ms"])
    commits = commits.filter(pa.array(at >= since_ms - since_ms % MINUTE_MS))
    (groups,), _ = ranks(commits["group"])
    (topics,), _ = ranks(commits["topic"])
    minute = ints(commits["append_ms"]) // MINUTE_MS * MINUTE_MS
    key = pair(pair(groups, topics), ints(commits["topic_partition"]))
    order = np.lexsort((ints(commits["offset"]), minute, key))
    commits, key, minute = commits.take(pa.array(order)), key[order], minute[order]
    if not len(key):
        return schema_of("commit_rate_1m").empty_table()
    first = np.flatnonzero(firsts(key) | firsts(minute))
    last = np.append(first[1:], len(key)) - 1
    delta = ints(commits["delta"])
    live = ~flags(commits["tombstone"])
    sums = [np.add.reduceat(part.astype(np.int64), first) for part in (live, (delta > 0), flags(commits["rewind"]))]
    named = commits.take(pa.array(last))
    schema = schema_of("commit_rate_1m")
    columns = [named["cluster"], named["group"], named["topic"], named["topic_partition"], pa.array(minute[first])]
    columns += [pa.array(total) for total in sums]
    columns += [optional(ints(commits["committed"])[last])]
    return pa.table(columns, names=schema.names).cast(schema)
