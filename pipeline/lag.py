"""Gold `lag_1m`: the lag of each partition in each minute with a commit or an end offset sample; and the time lag at the end of the analysis."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from pipeline.columns import MINUTE_MS, MISSING, Flags, Floats, Ints, SortedRows, dictionary_column, mark_firsts, optional
from pipeline.schema import schema_of
from pipeline.series import LOOKBACK_MS, ORIGINS, LagView, Moments, Samples, value_at
from pipeline.series_totals import NAMES

# A larger lag counts as LAG_MAX in slopes, so that sums of time * lag fit into 64 bits: 60 minutes, each with a time up to 3.6 million milliseconds.
LAG_MAX: Final = 1 << 35
NEVER: Final = -1


def lag_by_minute(view: LagView, since_ms: int) -> pa.Table:
    """Rows since the minute of `since_ms`, in table order.

    The view must begin at least LOOKBACK_MS before that minute, and must also have each partition's last commit before its first moment.
    """
    since_ms -= since_ms % MINUTE_MS
    series, samples, moments = view
    if len(moments.at_ms) and since_ms - LOOKBACK_MS > moments.at_ms.min():
        moments = Moments(*(column[moments.at_ms >= since_ms - LOOKBACK_MS] for column in moments))
    minute = moments.at_ms // MINUTE_MS
    starts = np.flatnonzero(mark_firsts(moments.series) | mark_firsts(minute))
    schema = schema_of("lag_1m")
    if not len(starts):
        return schema.empty_table()
    last = np.append(starts[1:], len(minute)) - 1
    low = np.minimum.reduceat(np.where(moments.lag != MISSING, moments.lag, np.iinfo(np.int64).max), starts)
    high = np.maximum.reduceat(moments.lag, starts)
    low = np.where(high == MISSING, MISSING, low)

    owner, at, lag, minute = moments.series[last], moments.at_ms[last], moments.lag[last], minute[last]
    window = SortedRows(owner, minute)
    slope = Slope(at, lag)
    growth_5, growth_60 = (slope.since(window.find(owner, minute - (minutes - 1), "left")) for minutes in (5, 60))
    drain = _drain(lag, growth_5, growth_60)
    time_lag, at_least = _time_lag(series.partition_ids[owner], samples, at, lag, moments.committed[last])
    origin = np.where(lag == MISSING, MISSING, samples.origin_of(moments.sample[last]))
    columns = {
        "minute_ms": minute * MINUTE_MS,
        "committed": moments.committed[last],
        "end_offset": moments.end[last],
        "lag_min": low,
        "lag_max": high,
        "lag_last": lag,
        "time_lag_ms": time_lag,
        "time_lag_at_least": at_least,
        "growth_5m_per_s": growth_5[0],
        "growth_60m_per_s": growth_60[0],
        "drain_ms": drain,
    }
    is_recent = minute * MINUTE_MS >= since_ms
    known = {"growth_5m_per_s": growth_5[1][is_recent], "growth_60m_per_s": growth_60[1][is_recent]}
    names = ("cluster", "group", "topic", "topic_partition")
    arrays: dict[str, pa.Array] = dict(zip(names, series.named(owner[is_recent], *names), strict=True))
    arrays |= {name: optional(values[is_recent], known.get(name)) for name, values in columns.items()}
    arrays["origin"] = dictionary_column(origin[is_recent], ORIGINS)
    return pa.table([arrays[name] for name in schema.names], names=schema.names)


def current_time_lag(view: LagView, now_ms: int) -> pa.Table:
    """The time lag of each partition at `now_ms`, or at its newest sample if that is later.

    A record that was waiting at the newest sample is still waiting, however old that sample is: a later commit would be in the log.
    """
    series, samples = view.series, view.samples
    every = np.arange(len(series.heads))
    newest = samples.end(series.partition_ids) - 1
    has_samples = (newest >= 0) & (value_at(samples.partition_ids, newest) == series.partition_ids)
    at = np.maximum(now_ms, np.where(has_samples, value_at(samples.at, newest), MISSING))
    moments = view.at(every, at)
    waiting = (moments.committed != MISSING) & (samples.sampled(moments.sample) > moments.committed)
    passed, _ = samples.passing_times(series.partition_ids[waiting], moments.committed[waiting])
    time_lag = np.where(moments.lag == 0, 0, MISSING)
    time_lag[waiting] = np.where(passed == MISSING, MISSING, np.maximum(at[waiting] - passed, 0))
    return pa.table([*series.named(every, "group", "topic", "topic_partition"), optional(time_lag)], names=[*NAMES, "time_lag_ms"])


def _time_lag(partition_ids: Ints, samples: Samples, at: Ints, lag: Ints, committed: Ints) -> tuple[Ints, Flags]:
    """The time since the log end passed the committed offset, and whether that is only a lower bound."""
    lagging = np.flatnonzero((lag != 0) & (lag != MISSING))
    passed, since_first = samples.passing_times(partition_ids[lagging], committed[lagging])
    time_lag = np.where(lag == 0, 0, MISSING)
    time_lag[lagging] = np.where(passed == MISSING, MISSING, np.maximum(at[lagging] - passed, 0))
    at_least = np.zeros(len(lag), np.bool_)
    at_least[lagging] = since_first & (passed != MISSING)
    return time_lag, at_least


class Slope:
    """The growth of lag in records per second, by least squares over the last lag of each minute. Sums are of integers, so that the result does
    not depend on the first row.
    """

    def __init__(self, at: Ints, lag: Ints) -> None:
        self._known = lag != MISSING
        self._at = at - at.min()
        t = np.where(self._known, self._at, 0)
        y = np.where(self._known, np.minimum(lag, LAG_MAX), 0)
        # Products and sums wrap around at 2**64; differences within a window are small, so exact.
        self._totals = [np.concatenate((np.zeros(1, np.int64), np.cumsum(part, dtype=np.int64))) for part in (self._known, t, y, t * t, t * y)]

    def since(self, row: Ints) -> tuple[Floats, Flags]:
        """For each row the slope over the rows from its entry in `row` up to itself, and whether the slope is defined."""
        n, sum_t, sum_y, sum_tt, sum_ty = (total[1:] - total[row] for total in self._totals)
        shift = self._at
        sum_tt += shift * (n * shift - 2 * sum_t)
        sum_ty -= shift * sum_y
        sum_t -= n * shift
        count, st, sy = n.astype(np.float64), sum_t.astype(np.float64), sum_y.astype(np.float64)
        spread = count * sum_tt - st * st
        has_line = (n >= 2) & (spread > 0)
        slope = (count * sum_ty - st * sy) / np.where(has_line, spread, 1.0)
        return np.where(has_line, slope * 1000.0, 0.0), has_line & self._known


def _drain(lag: Ints, growth_5: tuple[Floats, Flags], growth_60: tuple[Floats, Flags]) -> Ints:
    """The time until the lag is 0, at the rate of the last minutes."""
    pace = np.where(growth_5[1], growth_5[0], growth_60[0])
    falls = pace < 0
    ms = np.minimum(np.maximum(lag, 0) / np.where(falls, -pace, 1.0) * 1000.0, 9e15)
    drain = np.where(falls, np.round(ms), NEVER).astype(np.int64)
    unknown = (lag == MISSING) | ~(growth_5[1] | growth_60[1])
    return np.where(lag == 0, 0, np.where(unknown, MISSING, drain))
