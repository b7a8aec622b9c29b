from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest

from history.commit_times import CommitTimes
from history.commits import NEVER
from pipeline.commits import BEGINNING, CommitState, DigestedCommits
from pipeline.edges import WAIT_MS
from pipeline.minutes import commit_rate
from pipeline.rows import Commit, CommitMinute, CommitsAround
from pipeline.schema import in_order, joined, rows_of, schema_of
from pipeline.series import series_and_samples
from pipeline.state import CLUSTER
from pipeline.tables import Part, Store
from tests.pipeline.logs import DecodedRecord, digest, random_log, random_slices

pytestmark = pytest.mark.once

Key = tuple[str, str, int]


def all_at_once(log: list[DecodedRecord]) -> DigestedCommits:
    return digest(log)


def in_slices(log: list[DecodedRecord], seed: int) -> tuple[pa.Table, pa.Table]:
    """The commits and edges of a log that is read in slices; between slices the state is saved to tables, loaded again, and pruned."""
    state = CommitState.new()
    commits, settled, open_edges = [], [], joined("edges", [])
    for low, high in random_slices(seed, len(log)):
        done = digest(log[low:high], state, low)
        commits.append(done.commits)
        settled.append(done.edges)
        open_edges = done.open_edges
        state = stored(done.state.trimmed(done.state.newest_ms))
    return in_order("commits", joined("commits", commits)), in_order("edges", joined("edges", [*settled, open_edges]))


def stored(state: CommitState) -> CommitState:
    """The state as the next batch reads it."""
    with TemporaryDirectory() as folder:
        store = Store(folder, {})
        names = ("tails", "waiting", "around", "homes")
        tables = {}
        for name in names:
            table = getattr(state, name)
            with_cluster = table if name == "tails" else table.add_column(0, CLUSTER, pa.repeat("c", len(table)))
            tables[name] = store.load(store.write(name, Part("c", 0), with_cluster)).select(table.schema.names)
        return replace(state, **tables)


def naive_commits(log: list[DecodedRecord]) -> list[Commit]:
    before: dict[Key, DecodedRecord] = {}
    out = []
    for offset, line in enumerate(log):
        if line.topic is None:
            continue
        key = line.group, line.topic, line.partition
        last = before.get(key)
        delta = line.committed - last.committed if last and line.committed is not None and last.committed is not None else None
        prev = last.committed if last else None
        gap = line.at - last.at if last else None
        removed = line.committed is None
        metadata = None if removed else ""
        rewind = delta is not None and delta < 0
        out.append(Commit("c", *key, offset, line.at, line.at, line.committed, prev, delta, gap, rewind, removed, metadata, False))
        if removed:
            before.pop(key, None)
        else:
            before[key] = line
    return sorted(out, key=lambda row: (row.group, row.topic, row.topic_partition, row.offset))


def naive_edges(log: list[DecodedRecord]) -> list[CommitsAround]:
    out = []
    for offset, group_record in enumerate(log):
        if group_record.topic is not None:
            continue
        following = next((o for o, line in enumerate(log) if o > offset and line.topic is None and line.group == group_record.group), len(log))
        keys = sorted({(line.topic, line.partition) for line in log if line.topic is not None and line.group == group_record.group})
        lines = []
        for key in keys:
            sequence = [(o, line) for o, line in enumerate(log) if (line.group, line.topic, line.partition) == (group_record.group, *key)]
            past: list[DecodedRecord] = []
            for o, line in sequence:
                if o < offset:
                    past = [] if line.committed is None else [*past, line]
            later_commits = []
            newest = max(line.at for line in log[: offset + 1] if line.group == group_record.group)
            for o, line in enumerate(log[offset + 1 :], offset + 1):
                if line.group != group_record.group:
                    continue
                newest = max(newest, line.at)
                if newest > group_record.at + WAIT_MS:
                    break
                if (line.topic, line.partition) == key and line.committed is not None:
                    later_commits.append((o, line.at))
            if not past and not (later_commits and later_commits[0][0] < following):
                continue
            gaps = [b.at - a.at for a, b in pairwise(past)][-10:]
            usual = (statistics.median_low(gaps) + statistics.median_high(gaps)) // 2 if gaps else -1
            lines.append((f"{key[0]}-{key[1]}", past[-1].at if past else -1, later_commits[0][1] if later_commits else -1, usual))
        columns = [list(column) for column in zip(*lines, strict=True)] if lines else [[], [], [], []]
        out.append(CommitsAround("c", group_record.group, offset, *columns))
    return sorted(out, key=lambda row: (row.group, row.offset))


@pytest.mark.parametrize("seed", range(12))
def test_each_commit_is_paired_with_its_predecessor(seed: int) -> None:
    log = random_log(seed, 400)
    assert rows_of(Commit, all_at_once(log).commits) == naive_commits(log)


@pytest.mark.parametrize("seed", range(12))
def test_edges_hold_the_commits_around_each_group_metadata_record(seed: int) -> None:
    log = random_log(seed, 300)
    done = all_at_once(log)
    assert rows_of(CommitsAround, in_order("edges", joined("edges", [done.edges, done.open_edges]))) == naive_edges(log)


@pytest.mark.parametrize("seed", range(12))
def test_commits_of_one_group_that_are_read_in_turn_are_those_before_each_record(seed: int) -> None:
    """`tenure group history` reads a single group record by record, and knows the same about the commits before each group record."""
    log = random_log(seed, 300)
    times: defaultdict[str, CommitTimes] = defaultdict(CommitTimes)
    read = {}
    for offset, line in enumerate(log):
        if line.topic is not None:
            times[line.group].add(f"{line.topic}-{line.partition}", line.at, deleted=line.committed is None)
            continue
        nearby = times[line.group].before_now()
        read[line.group, offset] = {name: (at_ms, nearby.usual_gap[name]) for name, at_ms in nearby.last_before.items()}
    assert read == {
        (edge.group, edge.offset): {
            name: (at_ms, gap) for name, at_ms, gap in zip(edge.partitions, edge.last_before_ms, edge.usual_gap_ms, strict=True) if at_ms != NEVER
        }
        for edge in naive_edges(log)
    }


@pytest.mark.parametrize("seed", range(16))
def test_any_slicing_gives_the_same_result(seed: int) -> None:
    log = random_log(seed, 400)
    done = all_at_once(log)
    commits, edges = in_slices(log, seed)
    assert commits.equals(joined("commits", [done.commits]))
    assert edges.equals(in_order("edges", joined("edges", [done.edges, done.open_edges])))


def test_a_settled_edge_is_emitted_once() -> None:
    log = random_log(5, 500)
    state, settled = CommitState.new(), []
    for low in range(0, len(log), 50):
        done = digest(log[low : low + 50], state, low)
        settled += [(row.group, row.offset) for row in rows_of(CommitsAround, done.edges)]
        state = done.state
    assert settled
    assert len(settled) == len(set(settled))


def test_a_group_with_a_changed_edge_is_folded_again() -> None:
    decoded = [DecodedRecord(1_000, "a", "t", 0, 5), DecodedRecord(2_000, "a"), DecodedRecord(2_500, "b")]
    first = digest(decoded)
    assert first.refold == ["a", "b"]
    second = digest([DecodedRecord(9_000, "a", "t", 0, 6)], first.state, 3)
    assert second.refold == ["a"]
    assert rows_of(CommitsAround, second.open_edges)[0] == CommitsAround("c", "a", 1, ["t-0"], [1_000], [9_000], [-1])
    third = digest([DecodedRecord(12_000, "a", "t", 0, 7)], second.state, 4)
    assert third.refold == []
    assert rows_of(CommitsAround, third.open_edges)[0] == CommitsAround("c", "a", 1, ["t-0"], [1_000], [9_000], [-1])


def test_tails_keep_ten_commits_and_the_last_hour() -> None:
    hour = 3_600_000
    old = [DecodedRecord(minute * 60_000, "g", "t", 0, minute) for minute in range(600)]
    state = digest(old).state
    assert len(state.tails) == 600
    assert state.kept_from_ms == BEGINNING
    trimmed = state.trimmed(600 * 60_000)
    assert len(trimmed.tails) == 75 + 61
    much_later = state.trimmed(600 * 60_000 + 5 * hour)
    # With one commit a minute, thinning removes none of the last hour.
    assert [row.committed for row in rows_of(Commit, much_later.tails)] == list(range(539, 600))
    removed = digest([DecodedRecord(601 * 60_000, "g", "t", 0, None)], much_later, 600).state
    assert len(removed.trimmed(610 * 60_000).tails) == 62
    assert len(removed.trimmed(610 * 60_000 + 5 * hour).tails) == 0


@pytest.mark.parametrize("seed", range(8))
def test_minutes_count_commits(seed: int) -> None:
    log = random_log(seed, 300)
    counted: dict[tuple[str, str, int, int], list[Any]] = defaultdict(lambda: [0, 0, 0, None])
    for row in naive_commits(log):
        line = counted[row.group, row.topic, row.topic_partition, row.append_ms // 60_000 * 60_000]
        line[0] += not row.tombstone
        line[1] += row.delta is not None and row.delta > 0
        line[2] += row.rewind
        line[3] = row.committed
    expected = [CommitMinute("c", *key, *line) for key, line in sorted(counted.items())]
    series, _ = series_and_samples(all_at_once(log).commits, schema_of("end_offsets").empty_table())
    assert rows_of(CommitMinute, commit_rate(series, BEGINNING)) == expected
    middle = log[150].at
    later_minutes = [row for row in expected if row.minute_ms >= middle - middle % 60_000]
    assert rows_of(CommitMinute, commit_rate(series, middle)) == later_minutes


def test_a_step_without_records_changes_nothing() -> None:
    done = digest([DecodedRecord(1_000, "a", "t", 0, 5), DecodedRecord(2_000, "a")])
    empty_step = digest([], done.state)
    assert (len(empty_step.commits), len(empty_step.edges), empty_step.refold) == (0, 0, [])
    assert empty_step.open_edges.equals(done.open_edges)
    assert empty_step.state.tails.equals(done.state.tails)


def test_names_of_any_kind_are_distinguished() -> None:
    names = ["", "a", "a-1", "\x00", "😀", "ü", "￿", "<script>"]
    log = [DecodedRecord(1_000 + i, group, topic, 0, i) for i, (group, topic) in enumerate((g, t) for g in names for t in names)]
    rows = rows_of(Commit, all_at_once([*log, *log]).commits)
    assert [(row.group, row.topic) for row in rows[::2]] == sorted((g, t) for g in names for t in names)
    assert sum(row.delta == 0 for row in rows) == len(log)
