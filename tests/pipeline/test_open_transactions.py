"""Open transactions: only their own offsets wait for their end, and the tables do not depend on where a run was cut."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import cli
from pipeline.coverage import CoverageState
from pipeline.inputs import Inputs, LogId
from pipeline.jobs import Steps
from pipeline.reconcile import reconcile
from pipeline.rows import Coverage, Group, Segment
from pipeline.schema import rows_of
from pipeline.tables import Tables
from pipeline.wire import COMMITTED, EARLIEST, LATEST, UNCOMMITTED, Client
from pipeline.wire_reading import WireRead, WireSplit, plan_wire
from tests.pipeline.building import ENGINE, analyzed, difference, tables
from tests.pipeline.fake_cluster import TOPIC, FakeCluster
from tests.pipeline.segments import EPOCH_MS, batch_of, commit, group_record, marker, next_offset, write_segment

pytestmark = pytest.mark.once

LOG = "__consumer_offsets-0"
SECOND_MS = 1_000
DAY_MS = 86_400_000
PRODUCERS = range(1, 5)


def random_log(seed: int, count: int = 40) -> list[bytes]:
    """Transactions of several producers, some without an end, beside ordinary commits of the same and of other groups."""
    rng = random.Random(seed)
    batches: list[bytes] = []
    base, at_ms, offset = 0, EPOCH_MS, 0
    for _ in range(count):
        at_ms += rng.choice([0, SECOND_MS, 20 * SECOND_MS, 90 * SECOND_MS])
        if rng.random() < 0.02:
            at_ms += DAY_MS
        producer, kind = rng.choice(PRODUCERS), rng.random()
        if kind < 0.3:
            batches.append(marker(base, producer, rng.random() < 0.7, at_ms))
        elif kind < 0.4:
            batches.append(batch_of(base, group_record(rng.choice("gh"), 1 + base, rng.sample(["a", "b", "c"], rng.randrange(3))), at_ms=at_ms))
        else:
            pairs = []
            for _ in range(rng.randrange(1, 4)):
                offset += rng.choice([1, 1, 5, -2])
                pairs.append(commit(rng.choice("ghi"), "t", rng.randrange(2), max(offset, 0), at_ms))
            transactional = kind < 0.75
            batches.append(batch_of(base, *pairs, transactional=transactional, producer=producer if transactional else -1, at_ms=at_ms))
        base = next_offset(batches[-1]) + rng.choice([0, 0, 0, 3])
    return batches


def write_log(directory: Path, batches: Sequence[bytes]) -> None:
    """In segments of some ten batches."""
    for number in range(0, len(batches), 10):
        write_segment(directory / LOG, batches[number : number + 10])


def check_equal(found: dict[str, pa.Table], whole: dict[str, pa.Table]) -> None:
    for name, table in whole.items():
        assert found[name].equals(table), difference(name, found[name], table)


def committed(made: Tables) -> list[tuple[str, int]]:
    rows = made.read("commits", columns=["group", "committed"]).to_pylist()
    return [(row["group"], row["committed"]) for row in rows]


def log_with(end: bytes | None) -> list[bytes]:
    batches = [
        batch_of(0, commit("paid", "t", 0, 5, EPOCH_MS), at_ms=EPOCH_MS),
        batch_of(1, commit("paid", "t", 0, 7, EPOCH_MS), commit("paid", "t", 1, 7, EPOCH_MS), transactional=True, producer=1, at_ms=EPOCH_MS),
        batch_of(3, commit("other", "t", 0, 8, EPOCH_MS), at_ms=EPOCH_MS),
        batch_of(4, commit("paid", "t", 1, 9, EPOCH_MS), at_ms=EPOCH_MS),
        batch_of(5, commit("also", "t", 0, 6, EPOCH_MS), transactional=True, producer=2, at_ms=EPOCH_MS),
        marker(6, 2, commits=True),
    ]
    return batches if end is None else [*batches, end, batch_of(8, commit("other", "t", 0, 11, EPOCH_MS), at_ms=EPOCH_MS)]


def test_commits_behind_an_open_transaction_are_used_at_once(tmp_path: Path) -> None:
    write_log(tmp_path / "data", log_with(None))
    made = analyzed(tmp_path / "out", tmp_path / "data", [])
    assert committed(made) == [("also", 6), ("other", 8), ("paid", 5), ("paid", 9)]
    assert [(row.records, row.aborted) for row in rows_of(Segment, made.read("segments"))] == [(5, 0)]
    assert [(row.from_offset, row.to_offset, row.complete) for row in rows_of(Coverage, made.read("coverage"))] == [(0, 6, True)]
    assert all(check.holds for check in reconcile(made, 10))


@pytest.mark.parametrize("commits", [True, False])
def test_its_end_in_a_later_run_makes_the_tables_of_one_run(tmp_path: Path, commits: bool) -> None:
    batches = log_with(marker(7, 1, commits=commits))
    write_log(tmp_path / "data", batches)
    whole = analyzed(tmp_path / "whole", tmp_path / "data", [])
    expected = [("paid", 5), ("paid", 7), ("paid", 7), ("paid", 9)] if commits else [("paid", 5), ("paid", 9)]
    assert sorted(committed(whole)) == [("also", 6), ("other", 8), ("other", 11), *expected]
    cut = analyzed(tmp_path / "cut", tmp_path / "data", [{0: 4}, {0: 7}])
    check_equal(tables(cut), tables(whole))
    for name, number in (("records", 9 if commits else 7), ("aborted", 0 if commits else 2)):
        assert sum(getattr(row, name) for row in rows_of(Segment, cut.read("segments"))) == number
    assert all(check.holds for check in reconcile(cut, 10))
    assert not cut.rows_in(cut.published(), "pending")
    (row,) = rows_of(Group, cut.read("groups", only={"group": "paid"}))
    assert row.commits == len(expected)


@pytest.mark.parametrize("commits", [True, False])
def test_a_cluster_with_nothing_but_an_open_transaction_waits(tmp_path: Path, commits: bool) -> None:
    batches = [batch_of(0, commit("paid", "t", 0, 5, EPOCH_MS), group_record("paid", 1, ["a"]), (None, b""), transactional=True, producer=1), marker(3, 1, commits)]
    write_log(tmp_path / "data", batches)
    whole = analyzed(tmp_path / "whole", tmp_path / "data", [])
    cut = Tables.open(tmp_path / "cut", create=True)
    for bound, name in (({0: 3}, "unknown"), ({}, "another"), ({}, "unknown")):
        ENGINE.round(cut, Inputs.of([str(tmp_path / "data")], until=bound, cluster=name), Steps())
        if name == "unknown" and bound:
            assert (cut.rows_in(cut.published(), "pending"), committed(cut)) == (3, [])
    found = {name: table.filter(pc.equal(table["cluster"], "unknown")) for name, table in tables(cut).items()}
    check_equal({name: table.combine_chunks() for name, table in found.items()}, tables(whole))
    assert all(check.holds for check in reconcile(cut, 10))


def test_an_end_in_the_next_but_one_run_and_a_full_build_make_the_same_tables(tmp_path: Path) -> None:
    write_log(tmp_path / "data", log_with(marker(7, 1, commits=True)))
    whole = tables(analyzed(tmp_path / "whole", tmp_path / "data", []))
    cut = analyzed(tmp_path / "cut", tmp_path / "data", [{0: 3}, {0: 4}, {0: 5}, {0: 6}, {0: 7}])
    check_equal(tables(cut), whole)
    ENGINE.round(cut, None, Steps(reads=False, full=True))
    check_equal(tables(cut), whole)


def test_several_ingests_before_a_build_make_the_same_tables(tmp_path: Path) -> None:
    write_log(tmp_path / "data", log_with(marker(7, 1, commits=True)))
    whole = tables(analyzed(tmp_path / "whole", tmp_path / "data", []))
    for bounds in ([{0: 4}, {}], [{0: 4}, {0: 7}, {}]):
        for built_first in (False, True):
            made = Tables.open(tmp_path / f"cut-{len(bounds)}-{built_first}", create=True)
            for number, bound in enumerate(bounds):
                ENGINE.round(made, Inputs.of([str(tmp_path / "data")], until=bound), Steps(builds=False))
                if built_first and not number:
                    ENGINE.round(made, None, Steps(reads=False))
            ENGINE.round(made, None, Steps(reads=False))
            check_equal(tables(made), whole)


@pytest.mark.parametrize("seed", range(6))
def test_random_transactions_cut_anywhere_make_the_tables_of_one_run(tmp_path: Path, seed: int) -> None:
    batches = random_log(seed)
    write_log(tmp_path / "data", batches)
    whole = analyzed(tmp_path / "whole", tmp_path / "data", [])
    rng = random.Random(seed)
    for number in range(3):
        cuts = sorted(rng.sample(range(1, next_offset(batches[-1])), 4))
        cut = analyzed(tmp_path / f"cut-{number}", tmp_path / "data", [{0: offset} for offset in cuts])
        check_equal(tables(cut), tables(whole))
        assert all(check.holds for check in reconcile(cut, 10))


@pytest.mark.parametrize("seed", range(3))
def test_each_run_over_a_growing_log_has_the_tables_of_a_first_run(tmp_path: Path, seed: int) -> None:
    """Those of one run over what the log contains then, with the same open transactions."""
    batches = random_log(100 + seed)
    growing = Tables.open(tmp_path / "growing", create=True)
    for count in range(7, len(batches) + 1, 11):
        write_log(tmp_path / "data", batches[:count])
        summary = ENGINE.round(growing, Inputs.of([str(tmp_path / "data")]), Steps())
        once = Tables.open(tmp_path / f"once-{count}", create=True)
        assert ENGINE.round(once, Inputs.of([str(tmp_path / "data")]), Steps())["undecided"] == summary["undecided"]
        check_equal(tables(growing), tables(once))


# Live logs


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    started = FakeCluster([batch_of(0, commit("g", "t", 0, 0, EPOCH_MS))])
    yield started
    started.close()


def source(cluster: FakeCluster) -> str:
    return f"kafka://127.0.0.1:{cluster.ports[0]}"


@pytest.mark.parametrize("seed", range(3))
def test_a_live_log_makes_the_same_tables_as_its_directory(tmp_path: Path, cluster: FakeCluster, seed: int) -> None:
    batches = random_log(200 + seed)
    write_log(tmp_path / "data", batches)
    whole = tables(analyzed(tmp_path / "whole", tmp_path / "data", []))
    live = Tables.open(tmp_path / "live", create=True)
    for count in (9, 10, 25, len(batches)):
        cluster.batches = batches[:count]
        ENGINE.round(live, Inputs.of([source(cluster)], cluster="unknown"), Steps())
    found = tables(live)
    for name in ("records",):
        whole[name], found[name] = (table[name].drop_columns(["segment", "file_pos"]) for table in (whole, found))
    check_equal(found, whole)
    assert all(check.holds for check in reconcile(live, 10))


def test_the_end_of_a_live_log_is_taken_between_two_transactions_if_possible(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = {(EARLIEST, UNCOMMITTED): [0], (LATEST, COMMITTED): [4, 6, 9], (LATEST, UNCOMMITTED): [6, 8, 9]}
    monkeypatch.setattr(Client, "offset", lambda self, topic, partition, at, isolation=UNCOMMITTED: offsets[at, isolation].pop(0))
    assert [split.end for split in plan_wire(Inputs.of([source(cluster)]), {})] == [9]
    monkeypatch.setattr("pipeline.wire_reading.TRANSACTIONS_S", 0.1)
    monkeypatch.setattr(Client, "offset", lambda self, topic, partition, at, isolation=UNCOMMITTED: 0 if at == EARLIEST else 5 + (isolation == UNCOMMITTED))
    assert [split.end for split in plan_wire(Inputs.of([source(cluster)]), {})] == [6]
    assert [split.end for split in plan_wire(Inputs.of([source(cluster)]), {}, stable=True)] == [5]


@pytest.mark.parametrize("commits", [True, False])
def test_a_part_of_a_live_stream_is_read_until_its_transactions_have_ended(cluster: FakeCluster, commits: bool) -> None:
    offset = commit("g", "t", 0, 1, EPOCH_MS)
    cluster.batches = [
        batch_of(0, offset, transactional=True, producer=1),
        *(batch_of(at, offset) for at in range(1, 8)),
        batch_of(8, offset, transactional=True, producer=2),
        marker(9, 1, commits),
    ]
    split = WireSplit(LogId("c", "offsets", 0), source(cluster), TOPIC, 0, 2, CoverageState(), "quarantine", whole_batches_only=False)
    rows = [offset for batch in WireRead(split).rows() for offset in batch["offset"].to_pylist() if offset < split.end]
    assert sorted(rows) == ([0, 1] if commits else [1])


# The command


def test_an_open_transaction_does_not_alarm_monitors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its partition commits for an hour behind it, and the groups are healthy."""
    late = EPOCH_MS + 3_600_000
    steady = [batch_of(2 + n, commit("steady", "t", 0, n, EPOCH_MS + n * 60_000), at_ms=EPOCH_MS + n * 60_000) for n in range(61)]
    hanging = batch_of(1, commit("paid", "t", 0, 5, EPOCH_MS), transactional=True, producer=1)
    write_log(tmp_path / "data", [batch_of(0, commit("steady", "t", 0, 0, EPOCH_MS)), hanging, *steady])
    write_segment(tmp_path / "data" / "__consumer_offsets-1", [batch_of(0, commit("elsewhere", "u", 0, 1, late), at_ms=late)])
    out = str(tmp_path / "out")
    assert cli.main(["analyze", "run", "--offsets", str(tmp_path / "data"), "--out", out, "--master", "none"]) == 0
    printed = capsys.readouterr()
    assert "undecided: 1\n" in printed.out
    assert "1 records are part of an open transaction: a later run reads them" in printed.err
    made = Tables.open(Path(out))
    (row,) = rows_of(Group, made.read("groups", only={"group": "steady"}))
    assert (row.commits, row.last_ms) == (62, late - late % 60_000)
    assert not made.read("groups", only={"group": "paid"}).num_rows
    assert cli.main(["analyze", "status", "--out", out, "--fail-on", "ERR"]) == 0
