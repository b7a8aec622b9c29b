"""`tenure analyze run` on a directory of Kafka and on a running Kafka: its numbers equal those of Kafka's tools, and its report is complete."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cli
from pipeline.inputs import Inputs
from pipeline.rows import TABLES, Commit, Coverage, Episode, Replaced, Segment
from pipeline.rows import Record as Row
from pipeline.schema import rows_of
from pipeline.tables import Tables
from project import browser
from tests.pipeline.decoded import check_stored, decoded
from tests.pipeline.kafka_world import HOSTILE, LOGS, Work, compare, kafka_at_work
from tests.running import ROOT

pytestmark = pytest.mark.kafka

SCREENS = ROOT / "build" / "report-screens"
GROUP_COUNT_MIN = 9  # the number of groups with members or commits


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Work]:
    with kafka_at_work(tmp_path_factory.mktemp("kafka")) as world:
        yield world


class Analysed:
    def __init__(self, source: object, out: Path) -> None:
        self.html, self.json = out / "report.html", out / "report.json"
        out.mkdir()
        tables = out / "tables"
        words = ["--offsets", str(source), "--out", str(tables), "--master", "none", "--report", str(self.html), "--quiet"]
        assert cli.main(["analyze", "run", *words]) == 0
        assert cli.main(["analyze", "report", "--out", str(tables), "--json", str(self.json)]) == 0
        assert cli.main(["analyze", "reconcile", "--out", str(tables)]) == 0
        self.document: dict[str, Any] = json.loads(self.json.read_text())
        self.tables = Tables.open(tables)
        self.source = str(source)

    def table(self, name: str, row: Any) -> list[Any]:
        return rows_of(row, self.tables.read(name))

    def group(self, name: str) -> dict[str, Any]:
        (group_document,) = (group for group in self.document["groups"] if group["group"] == name)
        return dict(group_document)


def compare_all(analysed: Analysed, data: Path) -> int:
    """Compare the analysed records with Kafka's dump tool; returns their number. Segments with aborted records, which only the tool shows, are omitted."""
    records = decoded(Inputs.of([analysed.source]))
    check_stored(analysed.tables, records)
    aborted = {row.path for row in analysed.table("segments", Segment) if row.aborted}
    return compare(records, [path for path in sorted(data.glob("__consumer_offsets-*/*.log")) if path.stat().st_size and str(path) not in aborted])


def check_page(analysed: Analysed, name: str) -> None:
    """Open the page in a browser, if one is installed: no console message, and nothing is wider than the page."""
    program = browser.find()
    if program is None:
        return
    for width, dark in ((1200, False), (390, True)):
        with browser.browser(program) as page:
            page.open(analysed.html, width=width, dark=dark)
            page.screenshot(SCREENS / f"kafka-{name}-{width}.png")
            assert page.console_messages == []
            assert page.value("document.documentElement.scrollWidth") <= width


def test_a_directory_copied_from_a_running_kafka_is_analyzed(work: Work, tmp_path: Path) -> None:
    analysed = Analysed(work.whole, tmp_path / "whole")
    assert compare_all(analysed, work.whole) > 800
    assert all(coverage.complete for coverage in analysed.table("coverage", Coverage))
    assert sum(row.aborted for row in analysed.table("segments", Segment)) == 1

    assert analysed.group("static")["saved"] == 6  # three restarts, each of which would cost a dynamic member two rebalances
    assert [replaced.verdict for replaced in analysed.table("replacements", Replaced)] == ["saved"] * 3
    dynamic = [episode for episode in analysed.table("rebalances", Episode) if episode.group == "dynamic"]
    restarts = [episode for episode in dynamic if episode.avoidable == "yes"]
    assert len(restarts) >= 4, [(episode.cause, episode.avoidable, episode.evidence) for episode in dynamic]
    assert {episode.confidence for episode in analysed.table("rebalances", Episode)} <= {"strong", "weak"}  # Kafka keeps no notes

    states = {group["group"]: group["state"] for group in analysed.document["groups"]}
    assert states == {
        **dict.fromkeys(("busy", "crashing", "dynamic", "java-console", "kafka-python", HOSTILE), "empty"),
        **dict.fromkeys(("java-verifiable", "static"), "stable"),  # static members send no LeaveGroup
        **dict.fromkeys(("expiring", "retired", "unpaid"), "deleted"),
        "paid": "unknown",
    }
    assert analysed.group("paid")["lag"] == 110  # a transaction committed offset 7, of 117 records
    assert analysed.group("java-verifiable")["static_members"] == 1
    first = analysed.document["first"][0]
    assert first["title"].startswith("dynamic: make its members static")
    assert first["saves_rebalances"] >= 4
    assert "group.instance.id" in first["how"]
    assert {"dynamic", "crashing"} & {moment["group"] for moment in analysed.document["moments"][:3]}
    check_page(analysed, "whole")


def test_a_compacted_directory_reports_missing_history_and_the_remedy(work: Work, tmp_path: Path) -> None:
    analysed = Analysed(work.compacted, tmp_path / "compacted")
    assert compare_all(analysed, work.compacted) > 20
    coverage_rows = analysed.table("coverage", Coverage)
    assert {coverage.partition for coverage in coverage_rows if coverage.why == "compacted"} == set(range(LOGS))
    assert analysed.group("paid")["lag"] == 110
    text = analysed.html.read_text()
    assert "No change is needed, as far as these compacted logs show: no rebalance" in text
    assert "--follow" in text
    check_page(analysed, "compacted")


def test_a_running_kafka_is_analyzed_over_the_wire_and_from_its_directory(work: Work, tmp_path: Path) -> None:
    """Kafka may compact between the two reads: only records present in both are compared."""
    directory = Analysed(work.data, tmp_path / "directory")
    live = Analysed(f"kafka://127.0.0.1:{work.port}", tmp_path / "live")
    same = 0  # but for the columns of a commit about the one before it
    for name, kind, columns in (("records", Row, slice(4, -2)), ("commits", Commit, slice(0, 8))):
        key = TABLES[name].key
        directory_rows, live_rows = ({tuple(getattr(row, column) for column in key): row for row in each.table(name, kind)} for each in (directory, live))
        both = directory_rows.keys() & live_rows.keys()
        assert all(directory_rows[place][columns] == live_rows[place][columns] for place in both)
        same += len(both)
    assert same >= 20
    assert len(directory.document["groups"]) == len(live.document["groups"]) >= GROUP_COUNT_MIN
    assert directory.document["clusters"] == live.document["clusters"]
    assert not re.search(r"<b onclick|\x1b|\u202e", live.html.read_text())
    check_page(live, "live")
