"""When offsets expire follows from the cluster's offsets.retention.minutes: asked from a broker, given, or assumed, which the finding says."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

import cli
from pipeline.inputs import Inputs
from pipeline.jobs import PlainEngine, Steps
from pipeline.progress import Progress
from pipeline.rows import Hygiene
from pipeline.schema import rows_of
from pipeline.tables import Tables
from tests import running
from tests.pipeline.fake_cluster import FakeCluster, commit_offsets
from tests.pipeline.segments import EPOCH_MS, batch_of, commit, write_segment

pytestmark = pytest.mark.once  # no dependence on the Python version

DAY_MS = 86_400_000
ASSUMED = "the default (the logs do not tell"


def analyzed(out: Path, inputs: Inputs, output: io.StringIO | None = None) -> Tables:
    made = Tables.open(out, create=True)
    PlainEngine(Progress(output)).round(made, inputs, Steps())
    return made


def retention(made: Tables) -> dict[str, int]:
    return dict(made.published().content["retention_ms"])


def expiring(made: Tables) -> list[str]:
    return [row.detail for row in rows_of(Hygiene, made.read("hygiene")) if row.kind == "offsets_about_to_expire"]


def test_a_live_cluster_is_asked_unless_the_option_is_given(tmp_path: Path) -> None:
    with running.broker(
        "--profile", "test", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"), "--set", "offsets.retention.minutes=90"
    ) as broker:
        source = f"kafka://127.0.0.1:{broker.port}"
        commit_offsets(broker.port, 0)
        made = analyzed(tmp_path / "out", Inputs.of([source], cluster="ours"))
        assert retention(made) == {"ours": 90 * 60_000}
        details = expiring(made)
        assert len(details) == 60
        assert all(detail.startswith("in 1 hours") and ASSUMED not in detail for detail in details)
        # A new value is used by the next build, although there are no new records.
        made = analyzed(tmp_path / "out", Inputs.of([source], cluster="ours", offsets_retention_ms=30 * DAY_MS))
        assert retention(made) == {"ours": 30 * DAY_MS}
        assert expiring(made) == []


def test_without_an_answer_of_the_broker_the_default_is_assumed(tmp_path: Path) -> None:
    late_ms = EPOCH_MS + 6 * DAY_MS + 1
    cluster = FakeCluster([batch_of(0, commit("g", "t", 0, 1, EPOCH_MS)), batch_of(1, commit("h", "t", 0, 1, late_ms), at_ms=late_ms)])
    try:
        source = f"kafka://127.0.0.1:{cluster.ports[0]}"
        made = analyzed(tmp_path / "out", Inputs.of([source]), output := io.StringIO())
        assert retention(made) == {}
        assert "offsets.retention.minutes is not known, and its default is assumed" in output.getvalue()
        assert [ASSUMED in detail for detail in expiring(made)] == [True]
        made = analyzed(tmp_path / "given", Inputs.of([source], offsets_retention_ms=30 * DAY_MS))
        assert retention(made) == {"fake": 30 * DAY_MS}
        assert expiring(made) == []
    finally:
        cluster.close()


@pytest.mark.parametrize(("words", "count", "assumed"), [((), 1, True), (("--offsets-retention", "6d"), 1, False), (("--offsets-retention", "30d"), 0, False)])
def test_of_a_directory_the_option_or_the_default_counts(
    tmp_path: Path, words: tuple[str, ...], count: int, assumed: bool
) -> None:
    late_ms = EPOCH_MS + 6 * DAY_MS + 1
    write_segment(
        tmp_path / "data" / "__consumer_offsets-0", [batch_of(0, commit("g", "t", 0, 1, EPOCH_MS)), batch_of(1, commit("h", "t", 0, 1, late_ms), at_ms=late_ms)]
    )
    out = tmp_path / "out"
    assert cli.main(["analyze", "run", "--master", "none", "--quiet", "--offsets", str(tmp_path / "data"), "--out", str(out), *words]) == 0
    details = expiring(Tables.open(out))
    assert [ASSUMED in detail for detail in details] == [assumed] * count
