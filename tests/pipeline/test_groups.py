from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pipeline.groups import group_rows
from pipeline.rows import Episode, Generation, Group
from pipeline.series_totals import SERIES_TOTALS

pytestmark = pytest.mark.once  # no dependence on the Python version

MINUTE = 60_000
T0 = 1_700_000_040_000  # a whole minute


def generation(offset: int, at: int, *, tombstone: bool = False) -> Generation:
    members = 0 if tombstone else 1
    return Generation("c", "g", 1, offset, at, None, None, "consumer", "range", None, members, 0, None, not members, tombstone, False)


def partition(number: int, last_commit_ms: int, lag: int, status: str | None = "OK") -> dict[str, object]:
    """A partition whose newest known lag is `lag` records and as many seconds."""
    empty: dict[str, object] = dict.fromkeys(SERIES_TOTALS.names)
    fields = {"group": "g", "topic": "t", "topic_partition": number, "commits": 1, "first_ms": T0, "last_ms": last_commit_ms}
    return empty | fields | {"lag_ms": last_commit_ms, "lag": lag, "time_lag_ms": lag * 1000, "status": status}


def group(generations: list[Generation], *partitions: dict[str, object]) -> Group:
    (row,) = group_rows("c", generations, [], {}, set(), pa.Table.from_pylist(list(partitions), schema=SERIES_TOTALS), {})
    return row


def test_lag_is_the_sum_of_the_partitions_and_time_lag_their_maximum() -> None:
    row = group([generation(0, T0)], partition(0, T0, 5), partition(1, T0, 7))
    assert (row.state, row.lag, row.time_lag_ms) == ("stable", 12, 7000)


def test_the_time_in_rebalances_is_unknown_unless_their_starts_are_known() -> None:
    def unstable_ms(*starts: tuple[int, int]) -> int | None:
        empty: dict[str, Any] = dict.fromkeys(Episode._fields)
        rows = [Episode(**(empty | {"group": "g", "missing": 0, "start_lo_ms": lo, "start_hi_ms": hi, "end_ms": T0 + 9_000})) for lo, hi in starts]
        (row,) = group_rows("c", [], rows, {}, set(), pa.Table.from_pylist([], schema=SERIES_TOTALS), {})
        return row.unstable_ms

    assert unstable_ms((T0, T0), (T0 + 5_000, T0 + 5_000)) == 13_000
    assert unstable_ms((T0, T0), (T0 + 5_000, T0 + 8_999)) is None  # without notes: only the end of the join phase is known


def test_a_deleted_group_has_no_lag() -> None:
    row = group([generation(0, T0), generation(1, T0 + 30_000, tombstone=True)], partition(0, T0, 5))
    assert (row.state, row.lag, row.time_lag_ms, row.worst_status, row.commits) == ("deleted", None, None, None, 1)


def test_a_partition_whose_offset_was_removed_has_no_lag_and_no_status() -> None:
    row = group([generation(0, T0)], partition(0, T0, 5), partition(1, T0, 7, status=None))
    assert (row.lag, row.time_lag_ms, row.worst_status, row.commits) == (5, 5000, "OK", 2)
    row = group([generation(0, T0)], partition(0, T0, 5, status=None))
    assert (row.lag, row.time_lag_ms, row.worst_status) == (None, None, None)


def test_a_recreated_group_has_only_the_lag_of_partitions_committed_since() -> None:
    records = [generation(0, T0), generation(1, T0 + MINUTE, tombstone=True), generation(2, T0 + MINUTE + 1)]
    row = group(records, partition(0, T0, 5), partition(1, T0 + MINUTE, 7))
    assert (row.state, row.lag, row.time_lag_ms) == ("stable", 7, 7000)


def test_commits_without_members_after_a_deletion_have_lag() -> None:
    row = group([generation(0, T0), generation(1, T0, tombstone=True)], partition(0, T0 + MINUTE, 5))
    assert (row.state, row.lag) == ("deleted", 5)
