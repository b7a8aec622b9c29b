from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.commits import BEGINNING, CommitState
from pipeline.lag import current_time_lag, lag_by_minute
from pipeline.rows import EndOffset, Group, LagMinute
from pipeline.schema import in_order, joined, rows_of, table_of
from pipeline.series import LOOKBACK_MS, ORIGINS, affected_since, lag_view_of, series_and_samples
from pipeline.virtual import World
from tests.pipeline.building import analyzed
from tests.pipeline.ends import PartitionSamples, ends_of
from tests.pipeline.logs import DecodedRecord, commits_of, digest, ends_table, open_ended_slices, random_log, random_slices
from tests.pipeline.scenarios import BEGIN_MS, HOUR_MS, write_script
from tests.pipeline.stopped import note_ends, record_count, stopped_group

pytestmark = pytest.mark.once  # no dependence on the Python version

MINUTE = 60_000
T0 = 1_700_000_040_000  # a whole minute


def sample(at: int, end: int, origin: str = "live", unchanged: int | None = None) -> EndOffset:
    return EndOffset("c", "t", 0, at, end, None, origin, unchanged)


def by_minute(commits: pa.Table, ends: pa.Table, since_ms: int) -> pa.Table:
    rows = lag_by_minute(lag_view_of(*series_and_samples(commits, ends), since_ms - LOOKBACK_MS - MINUTE), since_ms)
    return in_order("lag_1m", rows)


def minutes(log: list[DecodedRecord], ends: list[EndOffset]) -> list[LagMinute]:
    return rows_of(LagMinute, by_minute(commits_of(log), ends_table(ends), BEGINNING))


def test_end_offsets_are_interpolated_between_samples() -> None:
    (row,) = minutes([DecodedRecord(T0 + 15_000, "g", "t", 0, 10)], [sample(T0, 100), sample(T0 + 30_000, 160)])[:1]
    assert (row.lag_min, row.lag_max, row.lag_last) == (120, 150, 150)
    assert row.end_offset == 160


def test_an_end_offset_note_has_the_time_of_no_change_before_it() -> None:
    quiet = [sample(T0 - 600_000, 100, "notes"), sample(T0 + 30_000, 160, "notes", T0 + 20_000)]
    (row,) = minutes([DecodedRecord(T0 + 15_000, "g", "t", 0, 100)], quiet)
    assert (row.lag_min, row.lag_max) == (0, 60)
    assert row.time_lag_ms == 10_000


def test_without_end_offsets_lag_is_unknown() -> None:
    (row,) = minutes([DecodedRecord(T0, "g", "t", 0, 10)], [])
    assert (row.committed, row.end_offset, row.lag_last, row.time_lag_ms, row.drain_ms, row.origin) == (10, None, None, None, None, None)


def test_lag_is_unknown_before_the_first_and_long_after_the_last_sample() -> None:
    log = [DecodedRecord(T0 + minute * MINUTE, "g", "t", 0, minute) for minute in range(12)]
    rows = minutes(log, [sample(T0 + 3 * MINUTE, 50), sample(T0 + 5 * MINUTE, 50)])
    assert [row.lag_last for row in rows] == [None, None, None, 47, 46, 45, 44, 43, 42, 41, 40, None]
    assert [row.lag_last for row in minutes(log, [sample(T0 + 3 * MINUTE, 50, "notes")])] == [None] * 3 + list(range(47, 38, -1))


def test_a_commit_far_ahead_of_a_sample_invalidates_it() -> None:
    log = [DecodedRecord(T0 + 30_000, "g", "t", 0, 120), DecodedRecord(T0 + 4 * MINUTE, "g", "t", 0, 500)]
    assert [row.lag_last for row in minutes(log, [sample(T0, 100, "notes")])] == [0, None]


def test_better_sample_origins_win_and_others_fill_gaps() -> None:
    log = [DecodedRecord(T0 - 10 * MINUTE, "g", "t", 0, 0)]
    ends = [
        sample(T0 - 5 * MINUTE, 10, "checkpoint"),
        sample(T0, 100, "live"),
        sample(T0 + MINUTE, 7, "segments"),
        sample(T0 + 2 * MINUTE, 200, "live"),
        sample(T0 + 3 * MINUTE, 300, "segments"),
    ]
    rows = minutes(log, ends)
    assert [(row.end_offset, row.origin) for row in rows[1:]] == [(10, "checkpoint"), (100, "live"), (200, "live"), (300, "segments")]


def test_growth_is_the_slope_of_lag_and_drain_its_duration() -> None:
    ends = [sample(T0 + minute * MINUTE, 1_000) for minute in range(70)]
    shrinking = [DecodedRecord(T0 + minute * MINUTE, "g", "t", 0, 6 * minute) for minute in range(70)]
    row = minutes(shrinking, ends)[-1]
    assert row.growth_5m_per_s == pytest.approx(-0.1)
    assert row.growth_60m_per_s == pytest.approx(-0.1)
    assert row.drain_ms == pytest.approx((1_000 - 6 * 69) * 10_000)
    stuck = minutes([DecodedRecord(T0, "g", "t", 0, 5)], [sample(T0 + minute * MINUTE, 10 * (minute + 1)) for minute in range(10)])
    assert [row.drain_ms for row in stuck] == [None] + [-1] * 9
    assert stuck[-1].growth_5m_per_s == pytest.approx(10 / 60)
    assert (stuck[-1].time_lag_ms, stuck[-1].time_lag_at_least) == (9 * MINUTE, True)


def test_a_removed_offset_has_no_lag() -> None:
    log = [DecodedRecord(T0, "g", "t", 0, 5), DecodedRecord(T0 + MINUTE, "g", "t", 0, None), DecodedRecord(T0 + 3 * MINUTE, "g", "t", 0, 7)]
    ends = [sample(T0 + minute * MINUTE, 10) for minute in range(5)]
    assert [(row.minute_ms - T0) // MINUTE for row in minutes(log, ends)] == [0, 3, 4]


def time_lag_at(now_ms: int, log: list[DecodedRecord], ends: list[EndOffset]) -> list[int | None]:
    """The time lag of each partition at `now_ms`."""
    lags: list[int | None] = current_time_lag(lag_view_of(*series_and_samples(commits_of(log), ends_table(ends)), BEGINNING), now_ms)["time_lag_ms"].to_pylist()
    return lags


def test_the_time_lag_of_a_stopped_group_grows_until_the_end_of_the_analysis() -> None:
    log = [DecodedRecord(T0, "g", "t", 0, 3)]
    for origin in ORIGINS:  # also long after the last sample
        ends = [sample(T0 - 1_000, 3, origin), sample(T0 + 9_000, 13, origin)]
        assert minutes(log, ends)[-1].time_lag_ms == 10_000
        assert [time_lag_at(T0 + at, log, ends) for at in (9_000, 79_000, 3_600_000)] == [[10_000], [80_000], [3_601_000]]
        assert time_lag_at(T0 + 2_000, log, ends) == [10_000]  # a sample newer than the newest record


def test_the_current_time_lag_is_unknown_if_no_newer_end_offset_shows_a_waiting_record() -> None:
    log = [DecodedRecord(T0, "g", "t", 0, 3)]
    caught_up = [sample(T0 - 1_000, 3)]
    assert [time_lag_at(T0 + at, log, caught_up) for at in (0, 4 * MINUTE, 6 * MINUTE)] == [[0], [0], [None]]
    assert time_lag_at(T0 + 60 * MINUTE, log, [sample(T0 - 1_000, 3, "notes")]) == [0]  # a broker notes each change
    assert time_lag_at(T0 + 3 * MINUTE, log, [sample(T0 - 1_000, 9), sample(T0 + MINUTE, 1)]) == [None]  # the topic was created again
    assert time_lag_at(T0, log, []) == [None]
    assert time_lag_at(T0 + MINUTE, [*log, DecodedRecord(T0 + 1_000, "g", "t", 0, None)], [sample(T0, 9)]) == [None]


@pytest.mark.parametrize("sliced", [False, True], ids=["one run", "two runs"])
def test_the_time_lag_of_a_stopped_group_counts_to_the_newest_record(tmp_path: Path, sliced: bool) -> None:
    def script(world: World) -> None:
        stopped_group(world)
        world.run(6 * HOUR_MS)
        note_ends(world, 1, "other")

    write_script(script, tmp_path / "data")
    made = analyzed(tmp_path / "out", tmp_path / "data", [{0: record_count(tmp_path / "data") // 2}] if sliced else [])
    (group,) = rows_of(Group, made.read("groups"))
    (newest_ms,) = made.published().now_ms.values()
    assert group.time_lag_ms == newest_ms - BEGIN_MS > 7 * HOUR_MS  # the end offset passed the commits at the beginning


def naive(log: list[DecodedRecord], ends: list[EndOffset]) -> dict[tuple[str, str, int, int], tuple[object, ...]]:
    out: dict[tuple[str, str, int, int], tuple[object, ...]] = {}
    for key in sorted({(line.group, line.topic, line.partition) for line in log if line.topic is not None}):
        group, topic, partition = key
        part = PartitionSamples(ends, topic, partition)
        own_commits, newest = [], 0
        for line in log:
            if (line.group, line.topic, line.partition) == key:
                newest = max(newest, line.at)
                own_commits.append((newest, line.committed))
        times = sorted({at for at, _ in own_commits} | {row.at_ms for row in part.samples if row.at_ms >= own_commits[0][0]})
        by_minute: dict[int, list[tuple[int, int, int | None]]] = defaultdict(list)
        for at in times:
            committed = [committed for moment, committed in own_commits if moment <= at][-1]
            if committed is not None:
                by_minute[at // MINUTE * MINUTE].append((at, committed, part.lag(at, committed)))
        for minute, points in by_minute.items():
            lags = [lag for _, _, lag in points if lag is not None]
            at, committed, lag = points[-1]
            passed, at_least = part.passed(committed)
            time_lag = None if lag is None else 0 if not lag else None if passed is None else max(0, at - passed)
            slopes = [slope(by_minute, minute, width) if lag is not None else None for width in (5, 60)]
            out[group, topic, partition, minute] = (
                committed,
                min(lags, default=None),
                max(lags, default=None),
                lag,
                time_lag,
                bool(lag) and time_lag is not None and at_least,
                *slopes,
            )
    return out


def slope(by_minute: dict[int, list[tuple[int, int, int | None]]], minute: int, width: int) -> float | None:
    window = [points[-1] for at, points in by_minute.items() if minute - width * MINUTE < at <= minute]
    points = [(at, lag) for at, _, lag in window if lag is not None]
    if len(points) < 2:
        return None
    mean_t = sum(t for t, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((t - mean_t) ** 2 for t, _ in points)
    return sum((t - mean_t) * (y - mean_y) for t, y in points) / spread * 1_000 if spread else None


@pytest.mark.parametrize("seed", range(8))
def test_lag_equals_a_naive_computation(seed: int) -> None:
    log = random_log(seed, 150)
    ends = ends_of(log, seed)
    expected = naive(log, ends)
    rows = minutes(log, ends)
    assert [row[1:5] for row in rows] == list(expected)
    for row in rows:
        *exact, growth_5, growth_60 = expected[row[1:5]]
        assert [row.committed, row.lag_min, row.lag_max, row.lag_last, row.time_lag_ms, row.time_lag_at_least] == exact
        assert row.growth_5m_per_s == pytest.approx(growth_5, abs=1e-9)
        assert row.growth_60m_per_s == pytest.approx(growth_60, abs=1e-9)


@pytest.mark.parametrize("seed", range(16))
def test_any_slicing_gives_the_same_result(seed: int) -> None:
    log = random_log(seed, 300)
    ends = ends_of(log, seed)
    arriving = sorted(ends, key=lambda row: row.at_ms + random.Random(row.end_offset).choice([0, 0, 400_000]))
    at_once = by_minute(commits_of(log), ends_table(ends), BEGINNING)
    state, commits, table, ends_read = CommitState.new(), joined("commits", []), joined("lag_1m", []), 0
    for (low, high), (_, until) in zip(random_slices(seed, len(log), 6), open_ended_slices(seed, len(ends), 6), strict=False):
        high = len(log) if until is None else high
        until = len(ends) if until is None else until
        done = digest(log[low:high], state, low)
        commits = joined("commits", [commits, done.commits])
        new, old = ends_table(arriving[ends_read:until]), ends_table(arriving[:ends_read])
        since = affected_since(done.commits, new, old)
        ends_read = until
        state = done.state
        if since is not None:
            since -= since % MINUTE
            enough = since - LOOKBACK_MS >= state.kept_from_ms
            rows = by_minute(state.tails if enough else commits, joined("end_offsets", [old, new]), since)
            earlier = [row for row in rows_of(LagMinute, table) if row.minute_ms < since]
            table = in_order("lag_1m", joined("lag_1m", [table_of("lag_1m", earlier), rows]))
        state = state.trimmed(state.newest_ms)
    assert table.equals(at_once)
