"""Live logs over the wire: the same rows as from the directory, through failures of brokers."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline import live_ends, wire, wire_reading
from pipeline.coverage import merged
from pipeline.inputs import BadInput, Inputs, LogId, NoAnswer
from pipeline.jobs import Steps
from pipeline.resuming import Cursor
from pipeline.rows import Coverage, EndOffset, Segment
from pipeline.rows import Record as Row
from pipeline.schema import rows_of
from pipeline.tables import Tables
from pipeline.wire import Client
from pipeline.wire_reading import WireRead, plan_wire
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from tests import running
from tests.pipeline.building import ENGINE, QUIET
from tests.pipeline.fake_cluster import FakeCluster, commit_offsets
from tests.pipeline.segments import batch_of, commit, marker, random_batches, reference, write_segment

pytestmark = pytest.mark.once


@pytest.fixture(autouse=True)
def shorten_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_reading, "TIMEOUT_S", 10)
    monkeypatch.setattr(live_ends, "TIMEOUT_S", 2)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    started = FakeCluster(random_batches(1, 40))
    yield started
    started.close()


def source(cluster: FakeCluster) -> str:
    return f"kafka://127.0.0.1:{cluster.ports[0]},127.0.0.1:{cluster.ports[1]}"


def read(cluster: FakeCluster, **options: Any) -> tuple[list[Row], list[Segment], list[Coverage], Cursor]:
    (split,) = plan_wire(Inputs.of([source(cluster)], **options), {}, 5)
    reading = WireRead(split)
    rows = [row for batch in reading.rows() for row in rows_of(Row, batch)]
    segments, covered, cursor = reading.finish()
    return rows, segments, covered, cursor


def record_rows(rows: list[Row]) -> list[tuple[object, ...]]:
    """The rows without the columns that name their file and position."""
    return [row[1:-2] for row in rows]


def written(cluster: FakeCluster, folder: Path) -> list[Row]:
    write_segment(folder / "__consumer_offsets-0", cluster.batches)
    return reference(folder / "__consumer_offsets-0")


def test_a_log_read_live_equals_its_segments(cluster: FakeCluster, tmp_path: Path) -> None:
    rows, (segment,), _, cursor = read(cluster)
    assert record_rows(rows) == record_rows(written(cluster, tmp_path))
    assert {row.cluster for row in rows} == {"fake"}
    assert segment.records == len(rows)
    assert cursor.next_offset == cluster.end


def test_reading_continues_at_a_new_leader(cluster: FakeCluster, tmp_path: Path) -> None:
    fetches = 0

    def move(number: int, request: Any) -> int:
        nonlocal fetches
        if isinstance(request, FetchRequest):
            fetches += 1
            if fetches % 4 == 2:
                cluster.leader = 1 - cluster.leader
        return 0

    cluster.reply_error = move
    rows, *_ = read(cluster)
    assert record_rows(rows) == record_rows(written(cluster, tmp_path))
    assert {number for number, name in cluster.requests if name == "Fetch"} == {0, 1}


@pytest.mark.parametrize("reply_error", [None, int(ErrorCode.KAFKA_STORAGE_ERROR), int(ErrorCode.UNKNOWN_TOPIC_ID), int(ErrorCode.FENCED_LEADER_EPOCH)])
def test_transient_errors_are_retried(cluster: FakeCluster, tmp_path: Path, reply_error: int | None) -> None:
    data_requests = 0

    def fail(number: int, request: Any) -> int | None:
        nonlocal data_requests
        data_requests += isinstance(request, FetchRequest | ListOffsetsRequest)
        return reply_error if data_requests % 3 == 2 and isinstance(request, FetchRequest | ListOffsetsRequest) else 0

    cluster.reply_error = fail
    rows, *_ = read(cluster)
    assert record_rows(rows) == record_rows(written(cluster, tmp_path))


def test_permanent_errors_are_reported_in_one_line(cluster: FakeCluster) -> None:
    cluster.reply_error = lambda number, request: int(ErrorCode.TOPIC_AUTHORIZATION_FAILED) if isinstance(request, FetchRequest) else 0
    with pytest.raises(BadInput, match="the broker refuses with TOPIC_AUTHORIZATION_FAILED"):
        read(cluster)


def test_offsets_removed_by_retention_end_a_range_of_coverage(cluster: FakeCluster) -> None:
    cluster.batches = [batch_of(at, commit("g", "t", 0, at, at)) for at in range(50)]
    cluster.start = 20
    rows, _, covered, _ = read(cluster)
    assert [row.offset for row in rows] == list(range(20, 50))
    assert [(row.from_offset, row.to_offset, row.why) for row in covered] == [(0, 19, "retention"), (20, 49, "")]


def test_retention_overtaking_the_reader_is_reported(cluster: FakeCluster) -> None:
    cluster.batches = [batch_of(at, commit("g", "t", 0, at, at)) for at in range(50)]
    (split,) = plan_wire(Inputs.of([source(cluster)]), {}, 5)
    reading = WireRead(split)
    rows = reading.rows()
    next(rows)
    cluster.start = 30
    for _ in rows:
        pass
    _, covered, _ = reading.finish()
    assert [(row.from_offset, row.to_offset, row.why) for row in covered] == [(0, 2, ""), (3, 29, "retention"), (30, 49, "")]


def test_offsets_removed_by_compaction_end_a_range_of_coverage(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.batches = [batch_of(at, commit("g", "t", 0, at, at)) for at in [3, *range(100, 200), 300]]
    rows, _, covered, _ = read(cluster)
    assert record_rows(rows) == record_rows(written(cluster, tmp_path))
    assert [(row.from_offset, row.to_offset, row.why) for row in covered] == [
        (0, 99, "compacted"), (100, 199, ""), (200, 299, "compacted"), (300, 300, ""),
    ]  # fmt: skip


def test_aborted_transactions_are_skipped_and_counted(cluster: FakeCluster) -> None:
    record = commit("g", "t", 0, 1, 2)
    cluster.batches = [
        batch_of(0, record, transactional=True, producer=1),
        batch_of(1, record, record, transactional=True, producer=2),
        marker(3, 1, commits=True),
        marker(4, 2, commits=False),
        batch_of(5, record, transactional=True, producer=2),
        marker(6, 2, commits=True),
    ]
    cluster.aborted = [(2, 1)]
    rows, (segment,), covered, _ = read(cluster)
    assert [(row.offset, row.kind) for row in rows] == [(0, "offset"), (3, "control"), (4, "control"), (5, "offset"), (6, "control")]
    assert segment.aborted == 2
    assert [row.complete for row in covered] == [True]


def test_a_damaged_batch_is_counted_or_refused(cluster: FakeCluster) -> None:
    cluster.batches = [batch_of(at, commit("g", "t", 0, at, at)) for at in range(5)]
    cluster.batches[2] = cluster.batches[2][:-1] + b"\7"
    rows, (segment,), covered, _ = read(cluster)
    assert [row.offset for row in rows] == [0, 1, 3, 4]
    assert (segment.damaged_batches, segment.quarantined_bytes) == (1, len(cluster.batches[2]))
    assert [(row.from_offset, row.why) for row in covered] == [(0, ""), (2, "damaged"), (3, "")]
    with pytest.raises(BadInput, match="a damaged batch"):
        read(cluster, on_corrupt="fail")


def test_unreachable_addresses_are_reported_in_one_line() -> None:
    for text in ("kafka://", "kafka://host:port", "kafka://host:99999"):
        with pytest.raises(BadInput, match="write kafka://HOST:PORT"):
            Client(text)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(BadInput, match=rf"kafka://127.0.0.1:{port}: its metadata: .*refused"):
        plan_wire(Inputs.of([f"kafka://127.0.0.1:{port}"]), {}, 0.3)


def test_the_timeout_is_longer_for_a_cluster_that_has_answered_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "UNKNOWN_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        inputs = Inputs.of([f"kafka://127.0.0.1:{closed.getsockname()[1]}"])
    for cursors, tried in (({}, 0), ({LogId("c", "offsets", 0): Cursor(5)}, 1)):
        with pytest.raises(NoAnswer, match=f"tried for {tried} s"):
            plan_wire(inputs, cursors, 1)


def test_a_bound_within_a_batch_excludes_the_whole_batch(cluster: FakeCluster) -> None:
    cluster.batches = [batch_of(at, *[commit("g", "t", 0, at, at)] * 5) for at in range(0, 50, 5)]
    rows, _, _, cursor = read(cluster, until={0: 12})
    assert (rows[-1].offset, cursor.next_offset) == (9, 10)


# Our own broker


def test_a_tenure_broker_read_live_equals_its_directory(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running.broker("--profile", "test", "--listen", "127.0.0.1:0", "--data", str(data), "--set", "offsets.topic.num.partitions=3") as broker:
        live, beside = (Tables.open(tmp_path / name, create=True) for name in ("out", "beside"))
        for turn in range(3):
            commit_offsets(broker.port, turn)
            ENGINE.round(live, Inputs.of([f"kafka://127.0.0.1:{broker.port}"]), Steps(builds=False))
        commits = live.read("commits")
        assert set(commits["group"].to_pylist()) == {f"group-{number}" for number in range(9)}
        assert all(row.complete for row in merged(rows_of(Coverage, live.read("coverage"))))
        ENGINE.round(beside, Inputs.of([str(data)]), Steps(builds=False))
        assert commits.equals(beside.read("commits"))
        assert [row[:-2] for row in rows_of(Row, live.read("records"))] == [row[:-2] for row in rows_of(Row, beside.read("records"))]


def test_end_offsets_are_requested_in_each_turn(tmp_path: Path) -> None:
    """Each run requests end offsets and stores them only if they changed; stored ones survive a full build."""
    with running.broker("--profile", "test", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")) as broker:
        tables = Tables.open(tmp_path / "out", create=True)
        inputs = Inputs.of([f"kafka://127.0.0.1:{broker.port}"], cluster="ours")
        commit_offsets(broker.port, 0)
        before_ms = time.time_ns() // 1_000_000
        for _ in range(2):
            ENGINE.round(tables, inputs, Steps())
    first = live_rows(tables)
    assert [row[:3] for row in first] == [("ours", "orders", number) for number in range(20)]
    assert {(row.log_start, row.end_offset, row.origin) for row in first} == {(0, 0, "live")}
    assert all(before_ms <= row.at_ms <= time.time_ns() // 1_000_000 for row in first)
    assert live_ends.live_ends(inputs, {"ours": ["orders"]}, {}, QUIET) == []  # the broker is down: this warns and does not fail
    ENGINE.round(tables, None, Steps(reads=False, full=True))
    assert live_rows(tables) == first
    lags = tables.read("groups", columns=["group", "lag"]).to_pylist()
    assert {lag["lag"] for lag in lags if lag["group"].startswith("group-")} == {0}  # not negative: the committed 100 is beyond the end offset


def live_rows(tables: Tables) -> list[EndOffset]:
    return [row for row in rows_of(EndOffset, tables.read("end_offsets")) if row.origin == "live"]
