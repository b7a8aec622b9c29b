from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest

from pipeline.columns import Ints
from pipeline.commits import BEGINNING, CommitState
from pipeline.grace import clock_of, excused_intervals
from pipeline.rows import TABLES, EndOffset, Generation, Member, Status
from pipeline.schema import joined, schema_of, table_of
from pipeline.series import LOOKBACK_MS, affected_since
from pipeline.status import recompute_since
from tests.pipeline.ends import PartitionSamples, ends_of
from tests.pipeline.logs import DecodedRecord, commits_of, digest, ends_table, open_ended_slices, random_log, random_slices
from tests.pipeline.plain_status import Stored, View, burrow, tenure, window_of
from tests.pipeline.statuses import Ranges, no_rows, statuses, updated

pytestmark = pytest.mark.once  # no dependence on the Python version

S = 1_000
MINUTE = 60 * S
T0 = 1_700_000_040_000


def status_intervals(rows: list[Status], ruleset: str = "tenure") -> list[tuple[int, int, str]]:
    """The intervals as (start, end, status), in seconds."""
    return [((row.from_ms - T0) // S, (row.to_ms - T0) // S, row.status) for row in rows if row.ruleset == ruleset]


def sample(seconds: int, end: int, start: int | None = None) -> EndOffset:
    return EndOffset("c", "t", 0, T0 + seconds * S, end, start, "notes", None)


def commit(seconds: int, committed: int | None) -> DecodedRecord:
    return DecodedRecord(T0 + seconds * S, "g", "t", 0, committed)


def generation(seconds: int, offset: int, members: int) -> Generation:
    at = T0 + seconds * S
    return Generation("c", "g", 1, offset, at, None, None, "consumer", "range", None, members, 0, None, not members, False, False)


def member(offset: int, name: str, *assigned: str) -> Member:
    return Member("c", "g", 1, offset, f"{name}-id", name, "client", "/h", 45_000, 300_000, ["t"], list(assigned), 0, 0)


def test_burrow_sees_a_consumer_stop() -> None:
    log = [commit(10 * n, n) for n in range(10)]
    rows = status_intervals(statuses(log, [sample(-10, 2), sample(45, 100)], T0 + 1_000 * S), "burrow")
    assert rows[:2] == [(0, 1, "STALL"), (1, 10, "STOP")]
    assert {status for *_, status in rows[2:]} == {"OK"}  # one commit in the window has no lag: while it stays there, Burrow never reports STOP
    lagging = statuses(log, [sample(-10, 50)], T0 + 1_000 * S)
    assert status_intervals(lagging, "burrow") == [(0, 1, "STALL"), (1, 10, "STOP"), (10, 181, "OK"), (181, 1_000, "STOP")]
    assert lagging[-1].ruleset == "tenure"


def test_the_tenure_status_waits_ten_minutes_and_excuses_rebalances() -> None:
    log = [commit(15 * n, n) for n in range(60)]
    ends = [sample(-10, 100)]
    last = 15 * 59
    assert status_intervals(statuses(log, ends, T0 + 9_000 * S))[-1] == (last + 600, 9_000, "STOP")
    graces = {"g": [(T0 + 900 * S, T0 + 1_000 * S), (T0 + 1_200 * S, T0 + 1_300 * S), (T0 + 1_250 * S, T0 + 1_310 * S)]}
    assert status_intervals(statuses(log, ends, T0 + 9_000 * S, graces=graces))[-1] == (last + 600 + 210, 9_000, "STOP")


def test_a_partition_without_new_records_is_not_stopped() -> None:
    log = [commit(15 * n, n) for n in range(60)]
    ends = [sample(-10, 59), sample(8_000, 59), sample(8_010, 60)]
    rows = statuses(log, ends, T0 + 9_000 * S)
    assert status_intervals(rows)[-1] == (8_000 + 600, 9_000, "STOP")
    assert all(status in ("OK", "STOP") for *_, status in status_intervals(rows))
    assert status_intervals(rows, "burrow")[-1] == (8_010, 9_000, "OK")  # at its last commit the group had read everything


def test_records_deleted_before_they_were_read_are_lost() -> None:
    rows = statuses([commit(0, 10), commit(30, 12)], [sample(-10, 50, 0), sample(20, 50, 11), sample(40, 50, 12)], T0 + 50 * S)
    assert status_intervals(rows) == [(0, 20, "OK"), (20, 30, "LOST"), (30, 50, "OK")]


def test_an_unassigned_partition_has_its_own_status() -> None:
    log = [commit(0, 10), DecodedRecord(T0 + 5 * S, "g"), DecodedRecord(T0 + 20 * S, "g"), DecodedRecord(T0 + 40 * S, "g")]
    generations = [generation(5, 1, 1), generation(20, 2, 1), generation(40, 3, 0)]
    members = [member(1, "a", "t-0", "t-1"), member(2, "a", "t-1")]
    rows = [row for row in statuses(log, [sample(-10, 50)], T0 + 60 * S, generations, members) if row.ruleset == "tenure"]
    assert status_intervals(rows) == [(0, 20, "OK"), (20, 60, "UNOWNED")]
    assert [row.owner for row in rows] == ["a", None]
    caught_up = statuses(log, [sample(-10, 10)], T0 + 60 * S, generations, members)
    assert status_intervals(caught_up) == [(0, 60, "OK")]


def test_a_group_that_has_caught_up_before_and_after_a_record_of_its_members() -> None:
    """The group lags between two commits that reach the end of the log; the group record between them makes the lag visible."""
    log = [commit(0, 0), DecodedRecord(T0 + 2 * S, "g"), commit(4, 40), commit(5, 50)]
    ends = [sample(0, 0), sample(10, 100)]
    rows = [row for row in statuses(log, ends, T0 + 6 * S, [generation(2, 1, 1)], [member(1, "a", "t-0")]) if row.ruleset == "tenure"]
    assert [((row.from_ms - T0) // S, row.rule) for row in rows] == [(0, "no-lag"), (2, "few-commits"), (4, "no-lag")]


def test_without_a_known_assignment_a_partition_is_not_unowned() -> None:
    log, ends, now = [commit(0, 10)], [sample(-10, 50)], T0 + 60 * S
    ours = member(2, "a", "t-1")
    unread = [generation(5, 1, 1)]  # a generation whose assignments cannot be read
    assert status_intervals(statuses(log, ends, now, unread, [member(1, "a")])) == [(0, 60, "OK")]
    never = [generation(5, 1, 0)]  # a group without members, used only to commit offsets
    assert status_intervals(statuses(log, ends, now, never)) == [(0, 60, "OK")]
    connect_group = [generation(5, 2, 1)._replace(protocol_type="connect")]
    assert status_intervals(statuses(log, ends, now, connect_group, [ours])) == [(0, 60, "OK")]
    deleted = [generation(5, 2, 1), generation(20, 3, 0)._replace(tombstone=True)]
    assert status_intervals(statuses(log, ends, now, deleted, [ours])) == [(0, 5, "OK"), (5, 20, "UNOWNED"), (20, 60, "OK")]
    assert status_intervals(statuses(log, ends, now, [generation(5, 2, 1)], [ours])) == [(0, 5, "OK"), (5, 60, "UNOWNED")]


def test_a_rebalance_is_excused_for_five_minutes_and_no_longer() -> None:
    empty_row = {field.name: None for field in schema_of("rebalances")}
    starts = [(T0, T0 + 7, T0 + 30 * S), (None, T0 + 40 * S, None), (T0 + 900 * S, None, T0 + 9_000 * S), (None, None, T0)]
    starts += [(T0 + 10_000 * S, T0 + 99_000 * S, T0 + 99_010 * S)]  # the group had been empty for a day
    rows = [empty_row | {"group": "g", "start_lo_ms": lo, "start_hi_ms": hi, "end_ms": end} for lo, hi, end in starts]
    rebalances = pa.table({name: [row[name] for row in rows] for name in ("group", "start_lo_ms", "start_hi_ms", "end_ms")})
    rebalances = rebalances.cast(pa.schema([("group", pa.string()), *((name, pa.int64()) for name in rebalances.column_names[1:])]))
    intervals = excused_intervals({"g": 0}, rebalances, no_rows("notes"), T0 + 100 * S)
    assert intervals == {"g": [(T0, T0 + 30 * S), (T0 + 40 * S, T0 + 100 * S), (T0 + 900 * S, T0 + 1_200 * S), (T0 + 98_700 * S, T0 + 99_000 * S)]}


def test_new_rows_of_a_time_slot_replace_all_of_it() -> None:
    log = [commit(2, 5), commit(16, 4), commit(24, 9)]
    ends = ends_table([sample(-10, 50)])
    none = no_rows("generations"), no_rows("members")
    before = updated(commits_of(log[:2]), ends, *none, {}, no_rows("status"), BEGINNING, T0 + 22 * S)
    after = updated(commits_of(log), ends, *none, {}, before, log[2].at, log[2].at)
    assert "REWIND" in before.filter(pa.compute.equal(before["ruleset"], "tenure"))["status"].to_pylist()
    assert after.equals(updated(commits_of(log), ends, *none, {}, no_rows("status"), BEGINNING, log[2].at))


def test_without_end_offsets_the_tenure_status_is_unknown_and_burrow_has_none() -> None:
    rows = statuses([commit(0, 10)], [], T0 + 60 * S)
    assert [(row.ruleset, row.status, row.rule, row.lag, row.final) for row in rows] == [("tenure", "UNKNOWN", "no-end-offset", None, False)]


def test_a_removed_offset_ends_its_status() -> None:
    rows = statuses([commit(0, 10), commit(30, None), commit(60, 11)], [sample(-10, 50)], T0 + 90 * S)
    assert status_intervals(rows) == [(0, 30, "OK"), (60, 90, "OK")]
    assert [row.final for row in rows if row.ruleset == "tenure"] == [True, False]


def test_coordinator_downtime_is_excused() -> None:
    notes = [(0, 3), (100, 2), (150, 2), (200, 3), (300, 1)]
    rows = [("c", 0, offset, T0 + at * S, "", 9, "coordinator", 0, 0, 0, 0, -1, 0, f'{{"what":{change}}}') for offset, (at, change) in enumerate(notes)]
    excuses = excused_intervals({"g": 0, "elsewhere": 1}, no_rows("rebalances"), table_of("notes", rows), T0 + 400 * S)
    assert excuses == {"g": [(T0 + 100 * S, T0 + 200 * S), (T0 + 300 * S, T0 + 400 * S)], "elsewhere": []}


def test_excused_time_does_not_count() -> None:
    clock = clock_of(["a", "b", "c"], {"a": [(10, 20), (15, 30), (40, 50)], "c": [(5, 6)]})
    draw = random.Random(1)
    for group, ranges in enumerate([[(10, 30), (40, 50)], [], [(5, 6)]]):
        for _ in range(100):
            at = draw.randrange(60)
            clock_time = at - sum(max(0, min(at, until) - since) for since, until in ranges)
            place, moment = places(group), places(at)
            assert clock.clock_time(place, moment)[0] == clock_time
            first = next(t for t in range(200) if t - sum(max(0, min(t, until) - since) for since, until in ranges) == clock_time)
            assert clock.first_moment(place, places(clock_time))[0] == first


def places(*values: int) -> Ints:
    return np.array(values, np.int64)


class Naive:
    """The status of one partition of one group, computed directly from the rules."""

    def __init__(self, log: list[DecodedRecord], ends: list[EndOffset], key: tuple[str, str, int], graces: Ranges) -> None:
        self.part = PartitionSamples(ends, key[1], key[2])
        self.graces = graces.get(key[0], ())
        self.own: list[tuple[int, int | None, int]] = []
        newest = 0
        for line in log:
            if (line.group, line.topic, line.partition) == key:
                newest = max(newest, line.at)
                self.own.append((newest, line.committed, line.at))

    def sequence(self, at: int) -> list[tuple[int, int, int, bool]]:
        """The commits up to `at`, each with whether it is the last in its 15 s slot; commits after `at` count there too."""
        out: list[tuple[int, int, int, bool]] = []
        for (moment, committed, commit_ms), (next_ms, after, _) in zip(self.own, [*self.own[1:], (0, None, 0)], strict=True):
            if moment <= at:
                out = [] if committed is None else [*out, (moment, committed, commit_ms, after is None or next_ms // 15_000 != moment // 15_000)]
        return out

    def burrow(self, at: int) -> tuple[str, str] | None:
        stored = []
        for moment, committed, commit_ms, _ in self.sequence(at):
            end_sample = self.part.sample(moment)
            if end_sample is not None:
                stored.append(Stored(committed, commit_ms, max(0, end_sample.end_offset - committed)))
        now = self.part.sample(at)
        if not stored or now is None:
            return None
        return burrow(stored[-10:], max(0, now.end_offset - self.sequence(at)[-1][1]), at)

    def tenure(self, at: int) -> tuple[str, str] | None:
        sequence = self.sequence(at)
        if not sequence:
            return None
        stored = [Stored(committed, moment, self.part.lag(moment, committed)) for moment, committed, _, is_last in sequence if is_last]
        last, committed, *_ = sequence[-1]
        start = self.part.sample(at)
        idle = [t for t in self.moments() if t <= at and self.no_lag(t)]
        since = max([last, *idle])
        quiet = at - since - sum(max(0, min(at, until) - max(since, begin)) for begin, until in self.graces)
        view = View(window_of(stored), committed, self.part.lag(at, committed), start.log_start if start else None, None, quiet)
        return tenure(view)

    def moments(self) -> list[int]:
        first = self.own[0][0]
        return sorted({moment for moment, _, _ in self.own} | {row.at_ms for row in self.part.samples if row.at_ms >= first})

    def no_lag(self, at: int) -> bool:
        sequence = self.sequence(at)
        return bool(sequence) and self.part.lag(at, sequence[-1][1]) == 0


def random_graces(log: list[DecodedRecord], seed: int) -> dict[str, list[tuple[int, int]]]:
    draw = random.Random(seed)
    out = {}
    for group in ("g0", "g1"):
        starts = sorted(draw.choice(log).at for _ in range(4))
        out[group] = [(since, min(since + draw.choice([5_000, 300_000]), after)) for since, after in zip(starts, [*starts[1:], 1 << 50], strict=True)]
    return out


@pytest.mark.parametrize("seed", range(12))
def test_status_intervals_equal_the_rules_at_every_moment(seed: int) -> None:
    log = random_log(seed, 150)
    ends = ends_of(log, seed)
    graces = random_graces(log, seed)
    now = max(line.at for line in log) + 2 * 3_600_000
    rows = statuses(log, ends, now, graces=graces)
    for key in sorted({(line.group, line.topic, line.partition) for line in log if line.topic is not None}):
        naive = Naive(log, ends, key, graces)
        for ruleset, verdict in (("burrow", naive.burrow), ("tenure", naive.tenure)):
            series = [row for row in rows if (row.group, row.topic, row.topic_partition, row.ruleset) == (*key, ruleset)]
            assert all(row.to_ms <= following.from_ms for row, following in pairwise(series))
            for at in sorted({*naive.moments(), *(row.from_ms for row in series), *(row.to_ms for row in series), now}):
                verdicts = [(row.status, row.rule) for row in series if row.from_ms <= at < row.to_ms or (not row.final and at == row.to_ms)]
                assert verdicts == [found for found in [verdict(at)] if found is not None], (key, ruleset, at)


@pytest.mark.parametrize("seed", range(16))
def test_any_slicing_gives_the_same_result(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    log = random_log(seed, 250)
    ends = ends_of(log, seed)
    arriving = sorted(ends, key=lambda row: row.at_ms + random.Random(row.end_offset).choice([0, 0, 400_000]))
    none = no_rows("generations"), no_rows("members")
    now = max(line.at for line in log)
    at_once = updated(commits_of(log), ends_table(ends), *none, {}, no_rows("status"), BEGINNING, now)
    monkeypatch.setattr("pipeline.series.MOMENTS_PER_VIEW", 100)
    state, commits, rows, ends_read = CommitState.new(), joined("commits", []), no_rows("status"), 0
    for (low, high), (_, until) in zip(random_slices(seed, len(log), 6), open_ended_slices(seed, len(ends), 6), strict=False):
        high, until = (len(log), len(ends)) if until is None else (high, until)
        done = digest(log[low:high], state, low)
        commits = joined("commits", [commits, done.commits])
        new, old = ends_table(arriving[ends_read:until]), ends_table(arriving[:ends_read])
        since = affected_since(done.commits, new, old)
        ends_read, state = until, done.state
        now_so_far = max((line.at for line in log[:high]), default=0)
        since = recompute_since(rows, since if since is not None else now_so_far)
        enough = since - LOOKBACK_MS >= state.kept_from_ms
        rows = updated(state.tails if enough else commits, joined("end_offsets", [old, new]), *none, {}, rows, since, now_so_far)
        state = state.trimmed(state.newest_ms)
    assert rows.equals(at_once)


def test_rows_have_the_key_of_their_table() -> None:
    rows = statuses(random_log(3, 200), ends_of(random_log(3, 200), 3), T0 + 90 * 86_400 * S)
    keys = [tuple(getattr(row, name) for name in TABLES["status"].key) for row in rows]
    assert keys == sorted(keys)
    assert len(keys) == len(set(keys))
