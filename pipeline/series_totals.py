"""Totals of each partition of each group over all settled rows, so that a build reads only the newest rows.

A row summarizes all rows of `commit_rate_1m`, `lag_1m` and `status` of one series up to some time; later rows can be added.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.columns import MISSING, Ints, dictionary_column, distinct, flags, ints, optional, pair, ranks
from pipeline.status_rules import LOST, SEVERITY

NAMES: Final = ("group", "topic", "topic_partition")
SERIES_TOTALS: Final = pa.schema(
    [
        ("group", pa.string()),
        ("topic", pa.string()),
        ("topic_partition", pa.int64()),
        ("commits", pa.int64()),
        ("first_ms", pa.int64()),  # first and last minute with commits
        ("last_ms", pa.int64()),
        ("lag_ms", pa.int64()),  # the last minute with a known lag, and that lag
        ("lag", pa.int64()),
        ("time_lag_ms", pa.int64()),  # at the end of the analysis; null if unknown, and in totals of settled rows
        ("status", pa.string()),  # the current one of ruleset tenure; null if the offset was removed
        ("lost_ms", pa.int64()),  # when records were last deleted before they were read
    ]
)


def updated_totals(before: pa.Table, gold: Mapping[str, pa.Table], time_lag: pa.Table | None = None) -> pa.Table:
    """Add rows to totals. `before`: a table of SERIES_TOTALS; `gold`: newer rows, in time order within a series; `time_lag`: see `lag.current_time_lag`."""
    rates, lag, status = (gold[name] for name in ("commit_rate_1m", "lag_1m", "status"))
    lag = lag.filter(pc.is_valid(lag["lag_last"]))
    status = status.filter(pc.equal(status["ruleset"], "tenure"))
    time_lag = time_lag if time_lag is not None else before.slice(0, 0)
    (of_before, of_rates, of_lag, of_status, of_time_lag), names = _series((before, rates, lag, status, time_lag))
    count = len(names)
    lost = np.asarray(pc.equal(status["status"], LOST[0]).to_numpy(zero_copy_only=False), np.bool_)

    commits = np.zeros(count, np.int64)
    np.add.at(commits, of_before, ints(before["commits"]))
    np.add.at(commits, of_rates, ints(rates["commits"]))
    minutes = ints(rates["minute_ms"])
    first = np.full(count, np.iinfo(np.int64).max)
    known = ints(before["first_ms"]) != MISSING
    np.minimum.at(first, of_before[known], ints(before["first_ms"])[known])
    np.minimum.at(first, of_rates, minutes)
    newest = _last_rows(count, (of_before, ints(before["lag_ms"])), (of_lag, ints(lag["minute_ms"])))
    is_open = ~flags(status["final"])  # one interval of each offset that is not removed, always in the newest rows
    current = np.full(count, MISSING)
    current[of_status[is_open]] = _severities(status["status"])[is_open]
    columns: dict[str, Ints] = {
        "commits": commits,
        "first_ms": np.where(first == np.iinfo(np.int64).max, MISSING, first),
        "last_ms": _maxima(count, (of_before, ints(before["last_ms"])), (of_rates, minutes)),
        "lag_ms": _values_at(newest, ints(before["lag_ms"]), ints(lag["minute_ms"])),
        "lag": _values_at(newest, ints(before["lag"]), ints(lag["lag_last"])),
        "time_lag_ms": _maxima(count, (of_time_lag, ints(time_lag["time_lag_ms"]))),
        "lost_ms": _maxima(count, (of_before, ints(before["lost_ms"])), (of_status[lost], ints(status["from_ms"])[lost])),
    }
    arrays = {name: optional(values) for name, values in columns.items()}
    arrays["status"] = dictionary_column(np.maximum(current, -1), SEVERITY).cast(pa.string())
    arrays |= {name: names[name] for name in NAMES}
    return pa.table([arrays[name] for name in SERIES_TOTALS.names], schema=SERIES_TOTALS)


def _series(tables: tuple[pa.Table, ...]) -> tuple[list[Ints], pa.Table]:
    """For each row of each table the index of its series, and the names of all series in order."""
    groups, of_groups = ranks(*(table["group"] for table in tables))
    topics, of_topics = ranks(*(table["topic"] for table in tables))
    group, topic = np.concatenate(groups), np.concatenate(topics)
    partition = np.concatenate([ints(table["topic_partition"]) for table in tables])
    known, places = distinct(pair(pair(group, topic), partition))
    representative = np.empty(len(known), np.int64)
    representative[places] = np.arange(len(places))
    names = pa.table({"group": of_groups.take(pa.array(group[representative])), "topic": of_topics.take(pa.array(topic[representative])), "topic_partition": partition[representative]})
    return np.split(places, np.cumsum([len(table) for table in tables])[:-1]), names


def _last_rows(count: int, *parts: tuple[Ints, Ints]) -> Ints:
    """For each series the last row with a time, in all parts concatenated; -1: none."""
    series, at = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    rows = np.flatnonzero(at != MISSING)
    last_rows = np.full(count, -1)
    last_rows[series[rows]] = rows  # the last one of each series stays
    return last_rows


def _values_at(rows: Ints, *parts: Ints) -> Ints:
    values = np.append(np.concatenate(parts), MISSING)
    return values[rows]


def _maxima(count: int, *parts: tuple[Ints, Ints]) -> Ints:
    maxima = np.full(count, MISSING)
    for series, values in parts:
        np.maximum.at(maxima, series, values)
    return maxima


def _severities(column: pa.ChunkedArray) -> Ints:
    return ints(pc.index_in(column, pa.array(SEVERITY)).cast(pa.int64()))
