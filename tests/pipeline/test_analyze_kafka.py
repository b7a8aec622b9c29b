"""`tenure analyze run` on a directory of Kafka and on a running Kafka: its numbers equal those of Kafka's tools, and its report is complete."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cli
from pipeline.rows import Coverage, Episode, Replaced, Segment
from pipeline.rows import Record as Row
from pipeline.schema import rows_of
from pipeline.warehouse import Warehouse
from tests.pipeline import browser
from tests.pipeline.kafka_world import HOSTILE, LOGS, Work, compare, kafka_at_work
from tests.running import ROOT

pytestmark = pytest.mark.kafka

SCREENS = ROOT / "build" / "report-screens"
MADE = 10  # groups that did something


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Work]:
    with kafka_at_work(tmp_path_factory.mktemp("kafka")) as happened:
        yield happened


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
        self._tables = Warehouse.open(tables)

    def table(self, name: str, row: Any) -> list[Any]:
        return rows_of(row, self._tables.read(name))

    def group(self, name: str) -> dict[str, Any]:
        (found,) = (group for group in self.document["groups"] if group["group"] == name)
        return dict(found)


def compare_all(analysed: Analysed, data: Path) -> int:
    """How many records Kafka's dump tool prints as they were read. Of a segment in which a transaction was aborted it prints that, too."""
    records = analysed.table("records", Row)
    aborted = {row.path for row in analysed.table("segments", Segment) if row.aborted}
    chosen = [path for path in sorted(data.glob("__consumer_offsets-*/*.log")) if path.stat().st_size and str(path) not in aborted]
    return sum(compare(records, path) for path in chosen)


def look(analysed: Analysed, name: str) -> None:
    """In a browser, if there is one: no console message, and nothing wider than the page."""
    program = browser.find()
    if program is None:
        return
    for width, dark in ((1200, False), (390, True)):
        with browser.browser(program) as page:
            page.open(analysed.html, width=width, dark=dark)
            page.screenshot(SCREENS / f"kafka-{name}-{width}.png")
            assert page.complaints == []
            assert page.value("document.documentElement.scrollWidth") <= width


def test_a_directory_copied_from_a_running_kafka_is_analyzed(work: Work, tmp_path: Path) -> None:
    found = Analysed(work.whole, tmp_path / "whole")
    assert compare_all(found, work.whole) > 800
    assert all(one.complete for one in found.table("coverage", Coverage))
    assert sum(row.aborted for row in found.table("segments", Segment)) == 1

    assert found.group("static")["saved"] == 6  # a restart of a dynamic member is two rebalances
    assert [one.verdict for one in found.table("replacements", Replaced)] == ["saved"] * 3
    dynamic = [one for one in found.table("rebalances", Episode) if one.group == "dynamic"]
    restarts = [one for one in dynamic if one.avoidable == "yes"]
    assert len(restarts) >= 4, [(one.cause, one.avoidable, one.evidence) for one in dynamic]
    assert {one.confidence for one in found.table("rebalances", Episode)} <= {"strong", "weak"}  # Kafka keeps no notes

    states = {group["group"]: group["state"] for group in found.document["groups"]}
    assert len(states) == MADE + 1
    assert states["retired"] == "deleted"
    assert states["dynamic"] == states[HOSTILE] == "empty"
    assert states["static"] in ("stable", "empty")  # static members do not say that they go
    assert found.group("paid")["lag"] == 110  # committed by a transaction, at 7 of 117
    assert found.group("java-verifiable")["static_members"] == 1
    first = found.document["first"][0]
    assert first["title"].startswith("dynamic: make its members static")
    assert first["saves_rebalances"] >= 4
    assert "group.instance.id" in first["how"]
    assert {"dynamic", "crashing"} & {moment["group"] for moment in found.document["moments"][:3]}
    look(found, "whole")


def test_a_compacted_directory_reports_missing_history_and_the_remedy(work: Work, tmp_path: Path) -> None:
    found = Analysed(work.compacted, tmp_path / "compacted")
    assert compare_all(found, work.compacted) > 20
    stretches = found.table("coverage", Coverage)
    assert {stretch.partition for stretch in stretches if stretch.why == "compacted"} == set(range(LOGS))
    assert found.group("paid")["lag"] == 110
    text = found.html.read_text()
    assert "Nothing that these logs still show" in text
    assert "--follow" in text
    look(found, "compacted")


def test_a_running_kafka_is_analyzed_over_the_wire_and_from_its_directory(work: Work, tmp_path: Path) -> None:
    """It may compact in between: then each of the two has read the records present."""
    here = Analysed(work.data, tmp_path / "here")
    live = Analysed(f"kafka://127.0.0.1:{work.port}", tmp_path / "live")
    both = {row[:4]: row for row in here.table("records", Row)}
    other = {row[:4]: row for row in live.table("records", Row)}
    same = both.keys() & other.keys()
    assert len(same) >= 20
    assert all(both[key][4:-2] == other[key][4:-2] for key in same)
    assert len(here.document["groups"]) == len(live.document["groups"]) >= MADE
    assert here.document["clusters"] == live.document["clusters"]
    assert not re.search(r"<b onclick|\x1b|\u202e", live.html.read_text())
    look(live, "live")
