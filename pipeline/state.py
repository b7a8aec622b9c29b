"""What one batch leaves to the next: tables that no user needs, for each chunk of groups, and the little that concerns all groups."""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa

from pipeline.edges import AROUND, HOMES, WAITING
from pipeline.rows import BY_CHUNK
from pipeline.schema import schema_of
from pipeline.series_totals import SERIES_TOTALS

CLUSTER: Final = pa.field("cluster", pa.string())


class State(NamedTuple):
    schema: pa.Schema
    parts: tuple[str, ...] = BY_CHUNK


STATES: Final = {
    "tails": State(schema_of("commits")),  # see `commits.py`
    "waiting": State(pa.schema([CLUSTER, *WAITING])),
    "around": State(pa.schema([CLUSTER, *AROUND])),
    "homes": State(pa.schema([CLUSTER, *HOMES])),
    "pending": State(schema_of("records")),  # records of open transactions
    "standing": State(pa.schema([CLUSTER, *SERIES_TOTALS])),  # totals of all settled rows: see `series_totals.py`
    # `tails` has all commits since `kept_from_ms`; the time series are settled before `settled_ms`; the tables were built at `built_ms` (-1: build all).
    "chunks": State(pa.schema([CLUSTER, ("kept_from_ms", pa.int64()), ("settled_ms", pa.int64()), ("built_ms", pa.int64())])),
    # The first record of each coordinator epoch in each partition of __consumer_offsets.
    "epochs": State(pa.schema([CLUSTER, ("partition", pa.int64()), ("epoch", pa.int64()), ("offset", pa.int64()), ("append_ms", pa.int64())]), ()),
}
