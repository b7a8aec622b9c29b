"""Totals of each partition of each group over all settled rows, so that a build reads only the newest rows.

A row is one series; it is the sum of all rows of `commit_rate_1m`, `lag_1m` and `status` of that series up to some moment, and
can be added to by rows of later ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.columns import MISSING, Ints, coded, distinct, ints, optional, pair, ranks
from pipeline.status_rules import LOST, SEVERITY

NAMES: Final = ("group", "topic", "topic_partition")
STANDING: Final = pa.schema(
    [
        ("group", pa.string()),
        ("topic", pa.string()),
        ("topic_partition", pa.int64()),
        ("commits", pa.int64()),
        ("first_ms", pa.int64()),  # minutes with commits
        ("last_ms", pa.int64()),
        ("lag_ms", pa.int64()),  # the last minute with a known lag, and that lag
        ("lag", pa.int64()),
        ("time_lag_ms", pa.int64()),
        ("status_ms", pa.int64()),  # by our own rules: how far its last stretch goes
        ("status", pa.string()),
        ("lost_ms", pa.int64()),  # when records were last deleted before they were read
    ]
)


def standing_of(before: pa.Table, gold: Mapping[str, pa.Table]) -> pa.Table:
    """`before`: STANDING, perhaps empty; `gold`: rows that it does not include yet, in time order within a series."""
    rates, lag, status = (gold[name] for name in ("commit_rate_1m", "lag_1m", "status"))
    lag = lag.filter(pc.is_valid(lag["lag_last"]))
    status = status.filter(pc.equal(status["ruleset"], "tenure"))
    of_before, of_rates, of_lag, of_status, names = _series((before, rates, lag, status))
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
    newest = _last(count, (of_before, ints(before["lag_ms"])), (of_lag, ints(lag["minute_ms"])))
    until = _last(count, (of_before, ints(before["status_ms"])), (of_status, ints(status["to_ms"])))
    verdicts = np.array([_severity(text) for text in _texts(before["status"])], np.int64), _severities(status["status"])
    columns: dict[str, Ints] = {
        "commits": commits,
        "first_ms": np.where(first == np.iinfo(np.int64).max, MISSING, first),
        "last_ms": _most(count, (of_before, ints(before["last_ms"])), (of_rates, minutes)),
        "lag_ms": _of(newest, ints(before["lag_ms"]), ints(lag["minute_ms"])),
        "lag": _of(newest, ints(before["lag"]), ints(lag["lag_last"])),
        "time_lag_ms": _of(newest, ints(before["time_lag_ms"]), ints(lag["time_lag_ms"])),
        "status_ms": _of(until, ints(before["status_ms"]), ints(status["to_ms"])),
        "lost_ms": _most(count, (of_before, ints(before["lost_ms"])), (of_status[lost], ints(status["from_ms"])[lost])),
    }
    arrays = {name: optional(values) for name, values in columns.items()}
    arrays["status"] = coded(np.maximum(_of(until, *verdicts), -1), SEVERITY).cast(pa.string())
    arrays |= {name: names[name] for name in NAMES}
    return pa.table([arrays[name] for name in STANDING.names], schema=STANDING)


def _series(tables: tuple[pa.Table, ...]) -> tuple[Ints, Ints, Ints, Ints, pa.Table]:
    """For each row of each table the place of its series, and the names of all series in order."""
    groups, of_groups = ranks(*(table["group"] for table in tables))
    topics, of_topics = ranks(*(table["topic"] for table in tables))
    group, topic = np.concatenate(groups), np.concatenate(topics)
    partition = np.concatenate([ints(table["topic_partition"]) for table in tables])
    known, places = distinct(pair(pair(group, topic), partition))
    one = np.empty(len(known), np.int64)
    one[places] = np.arange(len(places))
    names = pa.table({"group": of_groups.take(pa.array(group[one])), "topic": of_topics.take(pa.array(topic[one])), "topic_partition": partition[one]})
    a, b, c, d = np.split(places, np.cumsum([len(table) for table in tables])[:-1])
    return a, b, c, d, names


def _last(count: int, *parts: tuple[Ints, Ints]) -> Ints:
    """For each series the last row with a time, in all parts concatenated; -1: none."""
    series, at = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    rows = np.flatnonzero(at != MISSING)
    found = np.full(count, -1)
    found[series[rows]] = rows  # the last of many stays
    return found


def _of(rows: Ints, *parts: Ints) -> Ints:
    values = np.append(np.concatenate(parts), MISSING)
    return values[rows]


def _most(count: int, *parts: tuple[Ints, Ints]) -> Ints:
    found = np.full(count, MISSING)
    for series, values in parts:
        np.maximum.at(found, series, values)
    return found


def _severity(status: str | None) -> int:
    return MISSING if status is None else SEVERITY.index(status)


def _severities(column: pa.ChunkedArray) -> Ints:
    return ints(pc.index_in(column, pa.array(SEVERITY)).cast(pa.int64()))


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    found: list[str | None] = column.to_pylist()
    return found
