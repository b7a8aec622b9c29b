"""The report as a document and as a page; names in it are hostile."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest

from history.inferred import MAX_POLL_INTERVAL
from pipeline.report import json_schema, write_report
from pipeline.report.charts import SHADES, _shade, heat_key
from pipeline.report.document import STATUS_MAX, document
from pipeline.report.first import recommendations
from pipeline.report.page import _marked, membership, page
from pipeline.report.savings import Saving, static_savings
from pipeline.report.stretches import highest, merged_intervals
from pipeline.report.tables import ReportTables
from pipeline.report.words import brief, counted, day, interval, plain, ranges, short_time
from pipeline.rows import Episode, Gap, Hygiene, LagMinute, Status
from pipeline.schema import rows_of, table_of
from pipeline.tables import Tables
from project import browser
from tests.pipeline.report_rows import BEGAN, NOW, filled, with_second_cluster
from tests.running import ROOT

pytestmark = pytest.mark.once  # one page of HTML

SCREENS = ROOT / "build" / "report-screens"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return filled(tmp_path_factory.mktemp("report") / "out")


@pytest.fixture(scope="module")
def written(made: Tables, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    write_report(made, folder / "report.html", folder / "report.json", version="9.9", per_group=True)
    return folder


class Parsed(HTMLParser):
    """A page's tags that are open at the end, event handlers and wrong end tags (`wrong`), and attributes that would fetch a resource."""

    VOID = frozenset({"meta", "link", "input", "br", "img", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.links: list[str] = []
        self.scripts = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "action", "data", "poster")]
        self.wrong += [name for name, _ in attrs if name.startswith("on")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}>")


def test_the_page_is_one_file_that_fetches_nothing(written: Path) -> None:
    for path in [written / "report.html", *(written / "report-groups").iterdir()]:
        text = path.read_text()
        parsed = Parsed(text)
        assert (parsed.open, parsed.wrong, parsed.scripts) == ([], [], 1)
        assert [link for link in parsed.links if not link.startswith(("#", "data:,", "report-groups/"))] == []
        assert "http" not in re.sub(r"http-equiv", "", text)
    assert (written / "report.html").stat().st_size < 5 << 20


def test_hostile_names_are_shown_as_text(written: Path) -> None:
    for path in [written / "report.html", *(written / "report-groups").iterdir()]:
        text = path.read_text()
        assert "<script>alert" not in text
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "49" not in re.findall(r"&amp;(\S{2,6}?)w{5}", text)  # {{7*7}} is not computed


def test_the_first_screen_names_the_change_its_savings_and_the_commands(written: Path) -> None:
    text = (written / "report.html").read_text()
    first = text[text.index("What to change first</h2>") : text.index("<h2>Timeline")]
    assert "session.timeout.ms=60000" in first
    assert re.search(r"Saves 1\d to 28 rebalances and ", first)  # without those that are only likely, and with them
    assert "tenure group describe billing" in first


def test_findings_about_lost_data_precede_those_about_time(made: Tables) -> None:
    tables = ReportTables(made)
    advices = recommendations(tables, static_savings(tables))
    assert [advice["urgency"] for advice in advices] == sorted((advice["urgency"] for advice in advices), reverse=True)
    assert "about to expire" in advices[0]["title"]
    assert advices[1]["group"] == "billing"


@pytest.mark.parametrize(
    "late", [{"cause_detail": 'app: "consumer poll timeout has expired."'}, {"evidence": f"silent for {MAX_POLL_INTERVAL}", "confidence": "weak"}]
)
def test_members_that_poll_too_late_are_not_advised_to_be_static(tmp_path: Path, late: dict[str, Any]) -> None:
    made = filled(tmp_path / "out")

    tables = ReportTables(made)
    key = ("c", "checkout")
    assert any("make its members static" in recommendation["title"] for recommendation in recommendations(tables, static_savings(tables)) if recommendation["group"] == "checkout")
    tables.episodes[key] = [episode._replace(**late) for episode in tables.episodes[key]]
    titles = [recommendation["title"] for recommendation in recommendations(tables, static_savings(tables)) if recommendation["group"] == "checkout"]
    assert not any("static" in title for title in titles)
    assert any("max.poll.interval.ms" in title for title in titles)


def test_the_headline_the_tables_and_the_cards_show_one_number(tmp_path: Path) -> None:
    tables = ReportTables(filled(tmp_path / "out"))
    rows = [episode._replace(confidence="exact", stalled_lo_ms=30_000) for episode in tables.episodes["c", "checkout"]]
    tables.episodes["c", "checkout"] = rows
    bridged = [episode.episode for episode in rows if episode.avoidable == "yes"]
    gap = Gap("c", "checkout", "m", BEGAN, 5_000, 5_000, "dynamic_pair", True, 3, bridged[:3], "weak")
    tables.gaps["c", "checkout"] = [gap]
    tables.advice["c", "checkout"] = tables.advice["c", "checkout"]._replace(avoided=len(bridged) - 1)
    low, high = len(bridged) - 4, len(bridged) - 1
    lost = (len(bridged) - 3) * 30.0, len(bridged) * 36.0
    assert static_savings(tables) == {("c", "checkout"): Saving(low, high, *lost, "strong")}
    report = document(tables, version="9.9")
    numbers = {number["label"]: number for number in report["summary"]["numbers"]}
    number = numbers["avoidable with static membership"]
    assert (number["low"], number["value"], number["confidence"]) == (low, high, "strong")
    (card,) = (each for each in report["first"] if "static" in each["title"])
    assert (card["saves_rebalances_min"], card["saves_rebalances"], card["saves_partition_s_min"], card["saves_partition_s"]) == (low, high, *lost)
    assert f"{low} to {high} of them were restarts" in " ".join(report["summary"]["sentences"])
    text = page(report)
    assert f"<b>{low} to {high}</b><span>avoidable" in text
    assert text.count(f'<td class="n" data-v="{high}">{low} to {high}</td>') == 2  # all groups; static membership
    assert f"rebalances, {low} to {high} avoidable" in text


def test_advice_that_is_not_given_counts_nowhere(tmp_path: Path) -> None:
    tables = ReportTables(filled(tmp_path / "out"))
    key = ("c", "checkout")
    tables.episodes[key] = [episode._replace(cause_detail="consumer poll timeout has expired.") for episode in tables.episodes[key]]
    report = document(tables, version="9.9")
    assert report["savings"] == []
    assert [number["value"] for number in report["summary"]["numbers"] if number["label"].startswith("avoidable")] == [0]
    assert not re.search(r"rebalances, [1-9].* avoidable", page(report))


def scaling(tables: ReportTables, notes: str, apart_ms: int, **more: Any) -> list[dict[str, Any]]:
    """The recommendations for a group that admits three pairs of members and lets them go."""
    example = next(episode for rows in tables.episodes.values() for episode in rows)
    rows: list[Episode] = []
    for number in range(6):
        moved: dict[str, Any] = {"joined": [f"m{number}"], "cause": "new_member"} if number < 3 else {"left": [f"m{number}"], "cause": "member_left"}
        at = BEGAN + number * apart_ms
        rows.append(example._replace(group="elastic", episode=number, start_lo_ms=at, end_ms=at + 3_000, moved_partitions=10, confidence="exact")._replace(**(moved | {"avoidable": "no"} | more)))
    tables.groups = [tables.groups[0]._replace(group="elastic", notes=notes, partitions=40)]
    tables.episodes["c", "elastic"] = rows
    return [each for each in recommendations(tables, {}) if each["group"] == "elastic"]


def test_a_group_that_scales_up_and_down_is_advised_another_protocol(tmp_path: Path) -> None:
    tables = ReportTables(filled(tmp_path / "out"))
    (card,) = scaling(tables, "exact", 300_000)
    assert "CooperativeStickyAssignor" in card["how"]
    assert "group.protocol" not in card["why"]  # Tenure has no KIP-848
    assert (card["saves_partition_s_min"], card["saves_partition_s"]) == (6 * 36 * 0.75, 6 * 36)  # a quarter of the partitions moved
    (card,) = scaling(tables, "none", 300_000)
    assert "group.protocol=consumer (KIP-848)" in card["why"]
    (card,) = scaling(tables, "none", 300_000, cooperative=True)
    assert card["how"] == "group.protocol=consumer"
    assert scaling(tables, "exact", 300_000, cooperative=True) == []
    assert scaling(tables, "exact", 300_000, avoidable="yes") == []


def test_members_that_arrive_in_quick_succession_are_admitted_together(tmp_path: Path) -> None:
    tables = ReportTables(filled(tmp_path / "out"))
    *_, card = scaling(tables, "exact", 20_000)
    assert card["how"] == "tenure group policy set elastic expansion.timeout.ms=25000"
    assert (card["saves_rebalances_min"], card["saves_rebalances"]) == (0, 2)
    assert not [each for each in scaling(tables, "none", 20_000) if "expansion" in each["how"]]  # only Tenure has policies


def test_the_trigger_of_the_worst_moment_is_on_the_second_screen(made: Tables, written: Path) -> None:
    worst, *_ = json.loads((written / "report.json").read_text())["moments"]
    text = (written / "report.html").read_text()
    second = text[text.index("When it was worst</h2>") : text.index("<h2>Timeline")]
    assert second.index(day(worst["from_ms"])) < second.index(worst["who"] if worst["restarted"] is None else "a deploy")
    assert 'href="report-groups/' in second


def test_every_link_of_the_page_has_a_target(made: Tables, tmp_path: Path) -> None:
    (path,) = write_report(made, tmp_path / "report.html", version="9.9")
    text = path.read_text()
    targets = set(re.findall(r'href="#([^"]+)"', text))
    assert targets <= set(re.findall(r'id="([^"]+)"', text))
    assert {f"group-{number}" for number in range(6)} <= targets


def test_groups_with_equal_names_in_two_clusters_are_distinguished(made: Tables, tmp_path: Path) -> None:
    content = document(ReportTables(made), version="9.9")
    for name in ("groups", "details", "first", "moments"):
        twins = [row | {"cluster": "elsewhere"} for row in content[name] if row["group"] == "checkout"]
        content[name] += twins
    content["clusters"].append("elsewhere")
    content["hygiene"].append({"cluster": "elsewhere", "group": "checkout", "topic": None, "topic_partition": None, "kind": "duplicate_instance", "detail": "x", "at_ms": NOW})
    text = page(content, links={("c", "checkout"): "here.html", ("elsewhere", "checkout"): "there.html"})
    rows = [line for line in text[text.index('id="groups"') :].splitlines() if "checkout" in line][:2]
    assert [re.findall(r'href="(\S+)">checkout</a><br><span class="soft">cluster (\w+)<', row) for row in rows] == [[("here.html", "c")], [("there.html", "elsewhere")]]
    assert ["replace each other" in row for row in rows] == [False, True]
    assert [link for link in Parsed(text[text.index("<svg") : text.index("</svg>")]).links if link.endswith(".html")] == ["here.html", "there.html"]
    assert "checkout in c<" in text
    assert "checkout in elsewh…<" in text
    for (cluster, group), title in (("c", "checkout"), "in cluster c"), (("elsewhere", "checkout"), "in cluster elsewhere"):
        detail = next(each for each in content["details"] if (each["cluster"], each["group"]) == (cluster, group))
        assert title in page(content, only=detail)


def test_the_report_of_one_of_two_clusters(tmp_path: Path) -> None:
    made = with_second_cluster(tmp_path / "out")
    both, one, other = (document(ReportTables(made, cluster=name), version="9.9") for name in (None, "c", "elsewhere"))
    assert both["clusters"] == ["c", "elsewhere"]
    assert (both["to_ms"], one["to_ms"], other["to_ms"]) == (NOW + 1, NOW, NOW + 1)
    for name in ("groups", "details", "first", "moments", "coverage", "hygiene"):
        assert one[name], name
        assert {row["cluster"] for row in one[name]} == {"c"}, name
        assert [row for row in both[name] if row["cluster"] == "elsewhere"] == other[name], name
    assert one["inputs"]["segments"] == 1
    assert other["inputs"]["segments"] == 0
    assert "in cluster" not in page(one)
    assert "in cluster elsewhere" in page(both)


def test_groups_with_equal_names_in_two_clusters_have_separate_page_files(tmp_path: Path) -> None:
    made = with_second_cluster(tmp_path / "out")
    write_report(made, tmp_path / "r.html", version="9.9", per_group=True)
    text = (tmp_path / "r.html").read_text()
    pages = re.findall(r'href="(r-groups/\d+-checkout.html)">checkout</a><br><span class="soft">cluster (\w+)<', text)
    assert {cluster for _, cluster in pages} == {"c", "elsewhere"}
    for name, cluster in pages:
        assert f"in cluster {cluster}" in (tmp_path / name).read_text()


def test_the_page_names_the_remedy_for_history_lost_to_compaction(tmp_path: Path) -> None:
    tables = ReportTables(filled(tmp_path / "out"))
    for name in ("episodes", "status", "hygiene", "deploys", "replacements"):
        getattr(tables, name).clear()
    tables.advice.clear()
    html = page(document(tables, version="9.9"))
    assert "No change is needed, as far as these compacted logs show: no rebalance" in html
    assert "tenure analyze run --offsets kafka://HOST:9092 --out analysis --report report.html --follow" in html
    assert 'href="#worst"' not in html
    tables.coverage = [row for row in tables.coverage if row.complete]
    html = page(document(tables, version="9.9"))
    assert "No change is needed, as far as these logs show: no rebalance" in html
    assert "--follow" not in html


def test_a_deleted_group_is_not_shown_as_lagging(tmp_path: Path) -> None:
    tables = ReportTables(filled(tmp_path / "out"))
    tables.groups = [group._replace(state="deleted", lag=None, time_lag_ms=None, worst_status=None) for group in tables.groups if group.group == "billing"]
    assert '<td class="n" data-v="-1"></td><td class="n" data-v="-1"></td><td></td><td>notes</td></tr>' in page(document(tables, version="9.9"))


def test_findings_of_many_partitions_are_reported_in_one_line(tmp_path: Path) -> None:
    tables = ReportTables(filled(tmp_path / "out"))
    tables.hygiene["c", "quiet-1"] = [
        Hygiene("c", "quiet-1", "orders", partition, "offsets_about_to_expire", "in 2 hours, unless a member joins or an offset is committed", NOW) for partition in (0, 1, 2, 3, 7)
    ]
    html = page(document(tables, version="9.9"))
    assert "<td>0-3, 7</td>" in html
    assert html.count("in 2 hours, unless a member") == 3  # the change, its group, the findings
    assert "committed offsets of 5 partitions are about to expire" in html


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "stopped partitions for 58.2 minutes in total."),
        ({"stalled_lo_ms": 10}, "stopped partitions for 1 seconds to 58.2 minutes in total."),
        ({"stalled_hi_ms": None, "partition_seconds_lost": None}, "stopped partitions for 0 seconds in total, and 97 of them for an unknown time."),
    ],
)
def test_the_time_lost_is_an_upper_bound_unless_it_is_exact(tmp_path: Path, more: dict[str, Any], words: str) -> None:
    tables = ReportTables(filled(tmp_path / "out"))
    tables.episodes = {key: [episode._replace(**more) for episode in rows] for key, rows in tables.episodes.items()}
    sentence = document(tables, version="9.9")["summary"]["sentences"][0]
    assert sentence.endswith(words), sentence


def test_several_stalled_partitions_are_in_the_plural(tmp_path: Path) -> None:
    tables = ReportTables(filled(tmp_path / "out"))
    (key, statuses), *_ = ((key, rows) for key, rows in tables.status.items() if any(row.status == "STOP" for row in rows))
    stopped = next(row for row in statuses if row.status == "STOP")._replace(final=False)
    for count, words in ((1, "0 is stalled"), (2, "0 and 1 more are stalled")):
        tables.status[key] = [stopped._replace(topic_partition=0)] * count
        assert any(recommendation["title"].endswith(words) for recommendation in recommendations(tables, static_savings(tables)) if recommendation["group"] == key[1])


def test_a_short_session_timeout_is_not_called_outside_of_the_limits_of_the_broker(tmp_path: Path) -> None:
    tables = ReportTables(filled(tmp_path / "out"))
    tables.hygiene["c", "quiet-1"] = [Hygiene("c", "quiet-1", None, None, "session_out_of_policy", "session.timeout.ms=6000 of a is not between 10000 and 600000", NOW)]
    (row,) = (recommendation for recommendation in recommendations(tables, static_savings(tables)) if recommendation["group"] == "quiet-1")
    assert row["title"] == "quiet-1: a session timeout is very short or very long"


def test_adjacent_equal_intervals_are_merged() -> None:
    def row(topic: str, at: int, status: str, rule: str, lag: int = 0) -> Status:
        return Status("c", "g", topic, 0, "tenure", at, at + 1, status, rule, lag, 1.0, None, at % 2 == 0)

    rows = [row("t", 0, "OK", "a"), row("t", 1, "OK", "b", 7), row("t", 2, "STOP", "a"), row("t", 3, "STOP", "b"), row("t", 4, "STOP", "b"), row("t", 5, "OK", "b")]
    other_rows = [row("u", 6, "OK", "b"), row("u", 7, "UNKNOWN", "b")]
    intervals = rows_of(Status, merged_intervals(table_of("status", rows + other_rows)))
    assert [(row.topic, row.from_ms, row.to_ms, row.status, row.rule) for row in intervals] == [
        ("t", 0, 2, "OK", "b"), ("t", 2, 3, "STOP", "a"), ("t", 3, 5, "STOP", "b"), ("t", 5, 6, "OK", "b"), ("u", 6, 7, "OK", "b"), ("u", 7, 8, "UNKNOWN", "b")
    ]  # fmt: skip
    assert intervals[0] == rows[1]._replace(from_ms=0)
    assert merged_intervals(table_of("status", [])).num_rows == 0
    removed_between = [row("t", 0, "OK", "a"), row("t", 5, "OK", "a")]
    assert merged_intervals(table_of("status", removed_between)).num_rows == 2


def test_an_unhealthy_partition_is_shown_among_many_healthy_ones(tmp_path: Path) -> None:
    tables = ReportTables(filled(tmp_path / "out"))
    flapping = [Status("c", "billing", "u", at, "tenure", turn * 60, turn * 60 + 60, ("OK", "UNKNOWN")[turn % 2], "x", 0, 1.0, None, True) for at in range(2) for turn in range(300)]
    bad = Status("c", "billing", "z", 1, "tenure", BEGAN, NOW, "LOST", "deleted-before-read", 9, 1.0, None, True)
    tables.status["c", "billing"] = [*flapping, bad]
    (status,) = (detail["status"] for detail in document(tables, version="9.9")["details"] if detail["group"] == "billing")
    assert status["count"] == 601
    assert len(status["rows"]) == STATUS_MAX
    assert status["rows"][0] == bad._asdict()


def test_a_group_without_members_is_described_by_its_last_members(tmp_path: Path) -> None:
    tables = ReportTables(filled(tmp_path / "out"))
    for state in ("empty", "deleted"):
        for share, text in ((1.0, "static"), (0.5, "mixed"), (0.0, "dynamic")):
            tables.groups = [group._replace(state=state, members=0, static_members=0) for group in tables.groups if group.group == "checkout"]
            tables.advice["c", "checkout"] = tables.advice["c", "checkout"]._replace(static_share=share)
            report = document(tables, version="9.9")
            assert membership(report["details"][0]) == text
            assert f'checkout</a></td><td>{text}</td><td class="n"' in page(report)
    tables.spells.clear()
    assert membership(document(tables, version="9.9")["details"][0]) == "unknown"
    tables.groups = [tables.groups[0]._replace(state="stable", members=4, static_members=4)]
    assert membership(document(tables, version="9.9")["details"][0]) == "static"


def test_the_heat_map_shows_the_highest_lag_of_each_step() -> None:
    minutes = [(0, 5), (60_000, 9), (120_000, 4), (180_000, 1)]
    rows = [LagMinute("c", "g", "t", part, at, 0, lag, lag, lag * (part + 1), lag, 0, False, None, None, None, "notes") for part in (0, 1) for at, lag in minutes]
    assert sorted(highest(table_of("lag_1m", rows), 0, 120_000)) == [("t", 0, 0, 9), ("t", 0, 1, 4), ("t", 1, 0, 18), ("t", 1, 1, 8)]


@pytest.mark.parametrize("lag_max", [0, 1, 7, 80, 81, 98_765])
def test_the_legend_of_the_heat_map_names_each_shade_in_use_once(lag_max: int) -> None:
    key = str(heat_key({"partitions": [{"lag": [0, lag_max]}]}))
    marks = [(int(shade), int(lag.replace(",", ""))) for shade, lag in re.findall(r'class="heat-(\d)".*?<title>up to ([\d,]+) records? behind</title>', key)]
    highest_lags: dict[int, int] = {}
    for lag in range(lag_max + 1):
        highest_lags[_shade(lag, lag_max)] = lag
    assert marks == list(highest_lags.items())
    assert len(marks) == min(SHADES + 1, len(highest_lags))
    assert key.endswith("1 record behind" if lag_max == 1 else f"{lag_max:,} records behind")


def test_a_count_of_1_has_a_singular_noun(tmp_path: Path) -> None:
    tables = ReportTables(filled(tmp_path / "out"))
    tables.groups = [group._replace(partitions=1, rebalances=1, members=1) for group in tables.groups if group.group == "billing"]
    tables.segments = [segment._replace(records=1, batches=1, torn_bytes=1, quarantined_bytes=1, damaged_batches=1) for segment in tables.segments]
    text = " ".join(re.sub(r"<[^>]*>", " ", page(document(tables, version="9.9"))).split())
    for part in ("1 incomplete range ", "1 interval with a problem", "1 partition · 1 rebalance,", "1 record in 1 batch of 1 segment.", "1 byte at the end of a log was", "1 damaged byte was"):
        assert part in text
    assert re.findall(r"(?<![\d,.])1 (?:\w+ )?(?:groups|ranges|intervals|partitions|rebalances|records|batches|bytes|members|segments)\b", text) == []


def test_settings_in_a_sentence_are_highlighted_and_text_is_escaped() -> None:
    assert _marked("a `b<c>` d`e") == "a <code>b&lt;c&gt;</code> d`e"


def test_the_json_report_matches_its_schema(written: Path) -> None:
    assert json_schema.FILE.read_text() == json_schema.schema_text(), "python -m pipeline.report.json_schema"
    schema = json.loads(json_schema.FILE.read_text())
    document = json.loads((written / "report.json").read_text())
    validate: Any = fastjsonschema.compile(schema)
    validate(document)
    changes: list[dict[str, object]] = [{"format": 2}, {"first": [{}]}, {"groups": [{"group": 1}]}]
    for change in changes:
        with pytest.raises(fastjsonschema.JsonSchemaException):
            validate(document | change)


def test_numbers_of_the_page_are_those_of_the_tables(made: Tables, written: Path) -> None:
    document = json.loads((written / "report.json").read_text())
    episodes = made.read("rebalances")
    numbers = {number["label"]: number["value"] for number in document["summary"]["numbers"]}
    assert numbers["rebalances"] == episodes.num_rows
    assert numbers["avoidable with static membership"] == sum(made.read("timeout_advice")["avoided"].to_pylist())
    assert sum(document["summary"]["causes"].values()) == episodes.num_rows
    assert {detail["group"]: detail["episodes"]["count"] for detail in document["details"]} == {
        name: episodes["group"].to_pylist().count(name) for name in set(episodes["group"].to_pylist())
    }
    assert f"<b>{episodes.num_rows}</b>" in (written / "report.html").read_text()


def test_without_any_group_there_is_still_a_page(tmp_path: Path) -> None:
    (page,) = write_report(Tables.open(tmp_path / "out", create=True), tmp_path / "empty.html", version="9.9")
    assert "These logs contain no consumer group." in page.read_text()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (plain("a\x1b\u202eb\u200b\n"), "a\\u001b\\u202eb\\u200b\\u000a"),
        (plain("größe 日本"), "größe 日本"),
        (brief("x" * 80, 40), "x" * 19 + "…" + "x" * 20),
        (short_time(None), "unknown"),
        (short_time(-1), "never"),
        (short_time(0), "0 s"),
        (short_time(950), "950 ms"),
        (short_time(41_000), "41 s"),
        (short_time(90_000), "90 s"),
        (short_time(150_000), "2.5 min"),
        (ranges([3, 1, 2, 7, 7]), "1-3, 7"),
        (ranges([]), ""),
        (counted(1, "group"), "1 group"),
        (counted(0, "batch", "batches"), "0 batches"),
        (counted(1_200, "group"), "1,200 groups"),
        (day(1_790_000_000_000), "Mon 2026-09-21 14:13"),
        (day(1 << 62), "4611686018427387904 ms"),
        (day(None), "unknown"),
        (interval(None, 5_000), "at most 5 s"),
        (interval(5_000, 5_000), "5 s"),
        (interval(1_000, 5_000), "1 s to 5 s"),
        (interval(None, None), "unknown"),
    ],
)
def test_numbers_and_durations_are_formatted_for_readers(text: str, expected: str) -> None:
    assert text == expected


@pytest.mark.spark  # with the other programs that are not ours
class TestInABrowser:
    @pytest.fixture
    def program(self) -> str:
        path = browser.find()
        if path is None:
            pytest.skip("no Chromium on PATH (Debian: apt install chromium)")
        return path

    @pytest.mark.parametrize(
        ("name", "width", "dark"), [("light", 1200, False), ("dark", 1200, True), ("phone", 390, False), ("phone-dark", 390, True)]
    )
    def test_the_page_has_no_console_messages_fetches_nothing_and_fits(self, program: str, written: Path, name: str, width: int, dark: bool) -> None:
        with browser.browser(program) as page:
            page.open(written / "report.html", width=width, dark=dark)
            page.screenshot(SCREENS / f"report-{name}.png")
            assert page.console_messages == []
            assert [url for url in page.fetched if not url.startswith(("file://", "data:"))] == []
            assert page.value("document.documentElement.scrollWidth") <= width
            assert page.value("getComputedStyle(document.body).backgroundColor") == ("rgb(20, 23, 28)" if dark else "rgb(251, 251, 250)")

    def test_the_printed_page_is_light_and_as_wide_as_the_paper(self, program: str, written: Path) -> None:
        with browser.browser(program) as page:
            page.open(written / "report.html", width=794)
            page.ask("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
            assert page.value("document.documentElement.scrollWidth") <= 794
            assert page.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
            assert page.value("getComputedStyle(document.body).color") == "rgb(29, 33, 41)"

    def test_every_control_of_the_page_works(self, program: str, written: Path) -> None:
        with browser.browser(program) as page:
            page.open(written / "report.html")
            column = "[...document.querySelectorAll('#groups tbody tr')].map((row) => row.cells[8].dataset.v).map(Number)"
            page.value("document.querySelectorAll('#groups th')[8].click()")
            assert page.value(column) == sorted(page.value(column), reverse=True)
            page.value("document.querySelectorAll('#groups th')[8].click()")
            assert page.value(column) == sorted(page.value(column))
            page.value("{ const f = document.querySelector('#filter'); f.value = 'bill'; f.dispatchEvent(new Event('input')); }")
            assert page.value("[...document.querySelectorAll('#groups tbody tr')].filter((row) => !row.hidden).length") == 1
            page.value("document.querySelectorAll('button.copy').forEach((button) => button.click())")
            assert page.console_messages == []

    def test_every_group_page_has_no_console_messages_and_prints(self, program: str, written: Path) -> None:
        for path in sorted((written / "report-groups").iterdir())[:3]:
            with browser.browser(program) as page:
                page.open(path)
                assert page.console_messages == []
                page.print(SCREENS / f"{path.stem[:12]}.pdf")
                assert (SCREENS / f"{path.stem[:12]}.pdf").stat().st_size > 10_000

    def test_a_console_message_is_noticed(self, program: str, tmp_path: Path) -> None:
        for script in ("console.log('x')", "throw Error('x')", "fetch('https://example.org/')"):
            (tmp_path / "page.html").write_text(f"<!doctype html><script>{script}</script>")
            with browser.browser(program) as page:
                page.open(tmp_path / "page.html")
                assert page.console_messages or len(page.fetched) > 1
