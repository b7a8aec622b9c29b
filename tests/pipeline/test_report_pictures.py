"""What the charts of the report show: storms by their height, one time axis for all charts of a group, red only for trouble; and what is closed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pipeline.report import charts
from pipeline.report.document import document
from pipeline.report.page import page
from pipeline.report.tables import ReportTables
from pipeline.rows import Status
from project import browser
from tests.pipeline.report_rows import BEGAN, DAY, HOUR, MINUTE, NOW, episode, filled

pytestmark = pytest.mark.once  # one page of HTML


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return document(ReportTables(filled(tmp_path_factory.mktemp("pictures") / "out")), version="9.9")


def lane(group: str, moments: list[int], **more: object) -> dict[str, Any]:
    rows = [episode(group, number, at, "new_member" if number % 2 else "member_left", **more)._asdict() for number, at in enumerate(moments)]
    return {"cluster": "c", "group": group, "deploys": {"rows": []}, "episodes": {"rows": rows}}


def bars(svg: str) -> list[tuple[float, float, float]]:
    """x, width and height of each bar, all of its parts together."""
    found: dict[tuple[float, float, int], float] = {}
    for x, y, width, height in re.findall(r'class="bar[^"]*" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', svg):
        if float(height) > 3:
            at = float(x), float(width), int(float(y) + float(height) - 7) // 36  # the lane
            found[at] = found.get(at, 0.0) + float(height)
    return [(x, width, height) for (x, width, _), height in found.items()]


def test_a_storm_is_higher_than_two_rebalances_and_has_its_number() -> None:
    storm = [BEGAN + DAY + number * 8_000 for number in range(258)]
    svg = str(charts.timeline([lane("storm", storm), lane("calm", [BEGAN + DAY, BEGAN + DAY + 8_000])], BEGAN, NOW))
    (_, _, high), (_, _, low) = sorted(bars(svg), key=lambda bar: -bar[2])
    assert high > 3 * low
    assert re.findall(r'<text class="value"[^>]*>([\d,]+)</text>', svg) == ["258"]
    assert "129 rebalances until" in svg


def test_the_bars_of_one_storm_have_one_number_which_stays_in_the_picture() -> None:
    hours = [NOW - 8 * HOUR + number * 5 * MINUTE for number in range(96)]
    svg = str(charts.timeline([lane("storm", hours)], BEGAN, NOW))
    assert len(bars(svg)) > 3
    (label,) = re.findall(r'<text class="value before" x="([\d.]+)"[^>]*>96</text>', svg)
    assert float(label) < charts.RIGHT


def test_a_rebalance_that_lasts_long_has_a_line_as_long() -> None:
    svg = str(charts.timeline([lane("slow", [BEGAN + DAY], end_ms=BEGAN + 2 * DAY)], BEGAN, NOW))
    width = max(float(width) for width in re.findall(r'class="bar[^"]*"[^>]* width="([\d.]+)" height="3"', svg))
    assert width == pytest.approx((charts.RIGHT - charts.LEFT) / 7, abs=0.2)


def grid(svg: str) -> set[str]:
    return set(re.findall(r'<line class="grid" x1="([\d.]+)" x2="\1"', svg)) | set(re.findall(r'<text class="tick[^"]*" x="([\d.]+)"', svg))


def test_the_charts_of_a_group_have_one_axis(report: dict[str, Any]) -> None:
    detail = next(each for each in report["details"] if each["group"] == "billing")
    late = detail["lag"] | {"from_ms": BEGAN + 3 * DAY}  # the lag is known later than the rebalances
    time_charts = [
        charts.timeline([detail], BEGAN, NOW),
        charts.generations(detail["episodes"]["rows"], BEGAN, NOW),
        charts.heat_map(late, [], BEGAN, NOW),
        charts.status_strip(detail["status"]["rows"], BEGAN, NOW),
    ]
    ticks = [grid(str(svg)) for svg in time_charts]
    assert len(ticks[0]) > 5
    assert ticks == ticks[:1] * 4
    heat = [float(x) for x in re.findall(r'class="heat [^"]*" x="([\d.]+)"', str(time_charts[2]))]
    assert min(heat) == pytest.approx(charts.LEFT + (charts.RIGHT - charts.LEFT) * 3 / 7, abs=0.2)


def test_the_charts_of_the_session_timeout_have_one_axis(report: dict[str, Any]) -> None:
    detail = next(each for each in report["details"] if each["group"] == "checkout")
    curve = charts.timeout_curve(detail["curve"], detail["advice"])
    gaps = charts.distribution(detail["gaps"]["rows"], detail["curve"], detail["advice"])
    assert grid(str(curve)) == grid(str(gaps)) != set()
    rules = [re.findall(r'class="rule \w+" d="M([\d.]+)', str(svg)) for svg in (curve, gaps)]
    assert rules[0] == rules[1] != []


def test_lag_is_red_only_while_the_partition_is_not_healthy() -> None:
    lag = {"from_ms": BEGAN, "step_ms": HOUR, "partitions": [{"topic": "t", "partition": 0, "lag": [500] * 10}, {"topic": "t", "partition": 1, "lag": [500] * 10}]}
    status = [
        Status("c", "g", "t", 0, "tenure", BEGAN, BEGAN + 4 * HOUR, "OK", "no-lag", 1, 1.0, None, True)._asdict(),
        Status("c", "g", "t", 0, "tenure", BEGAN + 4 * HOUR, BEGAN + 5 * HOUR + 1, "STOP", "commits-stopped", 1, 1.0, None, True)._asdict(),
    ]
    svg = str(charts.heat_map(lag, status, BEGAN, BEGAN + 10 * HOUR))
    cells = [(kind, round((float(x) - charts.LEFT) / (charts.RIGHT - charts.LEFT) * 10)) for kind, x in re.findall(r'class="(heat [^"]*)" x="([\d.]+)"', svg)]
    assert cells == [("heat heat-9", 0), ("heat heat-9 bad", 4), ("heat heat-9", 6), ("heat heat-9", 0)]
    style = (Path(charts.__file__).parent / "style.css").read_text()
    for normal, bad in re.findall(r"--heat: (\d+), \d+, \d+; --heat-bad: (\d+),", style):
        assert int(normal) < int(bad)  # less red


def groups_of(text: str) -> dict[str, bool]:
    """The groups of the page, and whether they are open."""
    found = re.findall(r'<details class="group" id="group-\d+"( open)?>\n<summary><h2 title="([^"]*)"', text)
    return {name: bool(opened) for opened, name in found}


def test_healthy_groups_are_closed_and_their_own_pages_open(report: dict[str, Any]) -> None:
    opened = groups_of(page(report))
    assert {name for name, is_open in opened.items() if not is_open} == {"quiet-1", "quiet-2"}
    assert {name for name, is_open in opened.items() if is_open} >= {"checkout", "billing", "quiet-0"}  # quiet-0 has slow members
    quiet = next(detail for detail in report["details"] if detail["group"] == "quiet-1")
    assert groups_of(page(report, only=quiet)) == {"quiet-1": True}


def test_the_contents_name_every_group_and_mark_those_that_need_a_change(report: dict[str, Any]) -> None:
    text = page(report)
    contents = text[text.index('<nav id="contents"') : text.index("</nav>")]
    links = re.findall(r'<a href="#group-\d+"( class="attention"[^>]*)?>([^<]*)</a>', contents)
    assert len(links) == len(report["details"])
    assert {name for attention, name in links if attention} >= {"checkout", "billing"}
    assert {name for attention, name in links if not attention} == {"quiet-1", "quiet-2"}
    assert 'href="#all"' in contents


@pytest.fixture
def program() -> str:
    path = browser.find()
    if path is None:
        pytest.skip("no Chromium on PATH (Debian: apt install chromium)")
    return path


@pytest.mark.spark  # with the other programs that are not ours
@pytest.mark.parametrize("width", [400, 1280])
def test_a_chart_shows_its_names_and_its_newest_part_at_any_width(report: dict[str, Any], tmp_path: Path, program: str, width: int) -> None:
    (tmp_path / "report.html").write_text(page(report))
    with browser.browser(program) as shown:
        shown.open(tmp_path / "report.html", width=width)
        card, plot, names = (f"document.querySelector('#timeline {part}').getBoundingClientRect()" for part in (".newest", "svg.plot", "svg.names"))
        assert shown.value(f"{plot}.right") <= shown.value(f"{card}.right")
        if width < 640:
            assert shown.value(f"{plot}.left") < 0
            assert shown.value(f"{names}.left") >= shown.value(f"{card}.left")
            assert shown.value(f"{names}.width") > 100
        else:
            assert shown.value(f"{plot}.left") > shown.value(f"{card}.left")
            assert shown.value(f"{names}.width") == 0


@pytest.mark.spark
def test_a_link_to_a_closed_group_opens_it(report: dict[str, Any], tmp_path: Path, program: str) -> None:
    (tmp_path / "report.html").write_text(page(report))
    with browser.browser(program) as shown:
        shown.open(tmp_path / "report.html")
        link = "[...document.querySelectorAll('#contents a')].find((link) => link.textContent === 'quiet-1')"
        target = f"document.querySelector({link}.getAttribute('href'))"
        assert shown.value(f"{target}.open") is False
        shown.value(f"{link}.click()")
        shown.value("new Promise((done) => setTimeout(done, 50))")
        assert shown.value(f"{target}.open") is True
        assert shown.console_messages == []
