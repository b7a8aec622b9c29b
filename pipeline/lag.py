"""Gold `lag_1m`: how far behind each partition was in each minute in which a commit or an end offset said something of it."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from pipeline.columns import MINUTE_MS, MISSING, Flags, Floats, Ints, firsts, locate, optional, window_sums
from pipeline.schema import in_order, schema_of
from pipeline.series import LOOKBACK_MS, ORIGINS, connect, moments

# Sums of time times lag have to fit into 64 bits: 60 minutes, each up to 3.6 million milliseconds away.
LAG_MAX: Final = 1 << 35
NEVER: Final = -1


def lag_by_minute(commits: pa.Table, ends: pa.Table, since_ms: int) -> pa.Table:
    """Rows of the minute of `since_ms` and later.

    `commits`: silver rows, all from LOOKBACK_MS before that on, and of each partition the last one before; `State.tails` has them.
    `ends`: `end_offsets` of the topics.
    """
    since_ms -= since_ms % MINUTE_MS
    series, samples = connect(commits, ends)
    seen = moments(series, samples, since_ms - LOOKBACK_MS)
    minute = seen.at // MINUTE_MS
    starts = np.flatnonzero(firsts(seen.series) | firsts(minute))
    schema = schema_of("lag_1m")
    if not len(starts):
        return schema.empty_table()
    last = np.append(starts[1:], len(minute)) - 1
    known = seen.lag != MISSING
    low = np.minimum.reduceat(np.where(known, seen.lag, np.iinfo(np.int64).max), starts)
    high = np.maximum.reduceat(seen.lag, starts)
    low = np.where(high == MISSING, MISSING, low)

    owner, at, lag, committed = seen.series[last], seen.at[last], seen.lag[last], seen.committed[last]
    part = series.parts[owner]
    growth_5, growth_60 = (_growth(owner, minute[last], at, lag, minutes) for minutes in (5, 60))
    passed, at_least = samples.passed_at(part, committed)
    time_lag = np.where(lag == 0, 0, np.where((lag == MISSING) | (passed == MISSING), MISSING, np.maximum(at - passed, 0)))
    origin = pa.array(ORIGINS).take(pa.array(samples.origin_at(part, at), mask=lag == MISSING))
    cluster, group, topic, partition = series.named(owner, "cluster", "group", "topic", "topic_partition")
    columns = {
        "cluster": cluster,
        "group": group,
        "topic": topic,
        "topic_partition": partition,
        "minute_ms": pa.array(minute[last] * MINUTE_MS),
        "committed": optional(committed),
        "end_offset": optional(seen.end[last]),
        "lag_min": optional(low),
        "lag_max": optional(high),
        "lag_last": optional(lag),
        "time_lag_ms": optional(time_lag),
        "time_lag_at_least": pa.array(at_least & (time_lag != MISSING) & (lag != 0)),
        "growth_5m_per_s": optional(*growth_5),
        "growth_60m_per_s": optional(*growth_60),
        "drain_ms": optional(_drain(lag, growth_5, growth_60)),
        "origin": origin,
    }
    table = pa.table([columns[name] for name in schema.names], names=schema.names)
    return in_order("lag_1m", table.filter(pa.array(minute[last] * MINUTE_MS >= since_ms)))


def _growth(series: Ints, minute: Ints, at: Ints, lag: Ints, minutes: int) -> tuple[Floats, Flags]:
    """Records a second, by least squares over the last lag of each of the last minutes; and where there is such a line.

    Of whole numbers, so that sums are the same wherever the rows begin.
    """
    known = lag != MISSING
    since = locate(series, minute, series, minute - (minutes - 1), "left")
    base = at.min()
    t = np.where(known, at - base, 0)
    y = np.where(known, np.minimum(lag, LAG_MAX), 0)
    # Products wrap around 2**64, and so do their sums; what is left of a window after its base is moved is small, and right.
    n, sum_t, sum_y, sum_tt, sum_ty = (window_sums(part, since) for part in (known.astype(np.int64), t, y, t * t, t * y))
    shift = at - base
    sum_tt += shift * (n * shift - 2 * sum_t)
    sum_ty -= shift * sum_y
    sum_t -= n * shift
    count, st, sy = n.astype(np.float64), sum_t.astype(np.float64), sum_y.astype(np.float64)
    spread = count * sum_tt - st * st
    has_line = (n >= 2) & (spread > 0)
    slope = (count * sum_ty - st * sy) / np.where(has_line, spread, 1.0)
    return np.where(has_line, slope * 1000.0, 0.0), has_line & known


def _drain(lag: Ints, growth_5: tuple[Floats, Flags], growth_60: tuple[Floats, Flags]) -> Ints:
    """Until the lag is 0 at the pace of the last minutes."""
    pace = np.where(growth_5[1], growth_5[0], growth_60[0])
    falls = pace < 0
    ms = np.minimum(np.maximum(lag, 0) / np.where(falls, -pace, 1.0) * 1000.0, 9e15)
    drain = np.where(falls, np.round(ms), NEVER).astype(np.int64)
    unknown = (lag == MISSING) | ~(growth_5[1] | growth_60[1])
    return np.where(lag == 0, 0, np.where(unknown, MISSING, drain))
