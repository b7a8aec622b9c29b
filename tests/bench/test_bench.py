"""The bench: a short measurement of `kgfloor`, a minimal server, and the tables of results."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from bench import native, rows, table
from bench.data import FLOOR_TOPIC, summary
from bench.load import KEPT_FIELDS, LoadError, compared, generate, is_warm, ratios, without_groups
from bench.native import BuildError, Tools, tools
from bench.servers import ServerError, floor, served_versions
from tests.bench.one_topic import OneTopicServer


@pytest.fixture(scope="module")
def built() -> Tools:
    try:
        return tools()
    except BuildError as error:
        pytest.skip(str(error))


def row_named(name: str) -> rows.LoadRow:
    return next(row for row in rows.LOAD_ROWS if row.name == name)


@pytest.mark.parametrize("name", [row.name for row in rows.LOAD_ROWS])
def test_the_floor_answers_every_row_in_a_shape_that_the_generator_accepts(built: Tools, name: str) -> None:
    row = row_named(name)
    with floor(built.kgfloor, None) as server:
        sample = generate(built.kgload, None, server, (*without_groups(row.arguments), "-W", "0", "--topic", "kgload-topic"), 0.1)
    assert sample["requests"] > 0
    assert sample["errors"] == sample["lost_conns"] == sample["malformed"] == 0
    assert {metric.field for metric in row.metrics} <= sample.keys()


@pytest.mark.parametrize("row", [row for row in rows.DATA_ROWS if row.on_floor], ids=lambda row: row.name)
def test_the_floor_answers_rows_of_data_too(built: Tools, row: rows.DataRow) -> None:
    arguments = (*row.arguments, "--topic", FLOOR_TOPIC, "--parts", "1", "--no-preflight", "-W", "0")
    with floor(built.kgfloor, None) as server:
        sample = generate(built.kgdata, None, server, arguments, 0.1)
    assert sample["requests"] > 0
    assert sample["errors"] == sample["malformed"] == 0
    assert all(sample[figure.field] > 0 for figure in row.figures)


def test_a_second_on_the_floor_gives_every_figure_that_is_compared(built: Tools) -> None:
    row = row_named("api-versions")
    with floor(built.kgfloor, None) as server:
        sample = generate(built.kgload, None, server, without_groups(row.arguments), 1.0)
    assert sample["secs"] >= 1.0
    assert sample["rps"] == pytest.approx(sample["requests"] / sample["secs"], rel=0.01)
    assert 0 < sample["p50_us"] <= sample["p99_us"] <= sample["p999_us"] <= sample["max_us"]
    assert 0 < sample["srv_us_per_req"] < 1000
    result = compared(row, {"floor": [sample], "ours": [sample]})
    assert result["metrics"][0]["ours"]["median"] == 1.0
    assert result["floor_spread"] == 0.0


def test_every_connection_is_counted_in_the_handshake(built: Tools) -> None:
    with floor(built.kgfloor, None) as server:
        sample = generate(built.kgload, None, server, ("-c", "100", "--handshake"), 0)
    assert sample["requests"] == 100
    assert 0 < sample["secs"] < 10


def test_a_broker_that_answers_an_error_or_not_at_all_is_a_failure(built: Tools) -> None:
    with floor(built.kgfloor, None) as server:
        pass
    with pytest.raises(LoadError, match="connect"):
        generate(built.kgload, None, server, ("-w", "api_versions"), 0.1)
    with floor(built.kgfloor, None) as server, pytest.raises(LoadError, match="FindCoordinator"):
        generate(built.kgload, None, server, ("--quiet",), 0.1)


def test_an_unreadable_reply_is_a_failure_too(built: Tools) -> None:
    with floor(built.kgfloor, None) as server, pytest.raises(ServerError, match="ApiVersions"):
        served_versions(server.port)  # asks for ApiVersions version 0, which kgfloor does not support


# The verdict of kgdata, a load generator that checks replies, on made-up replies with one error each.


@pytest.mark.parametrize(
    ("work", "answer", "refusal"),
    [
        ("produce", {}, None),
        ("produce", {"error": 7}, "Produce: error 7"),
        ("produce", {"step": 0}, "Produce: offset 0 after"),
        ("produce", {"step": 2}, r"\d+ records in the offsets 1 to \d+ of partition 0"),
        ("produce", {"partition": 1}, "a malformed answer to Produce"),
        ("fetch", {}, None),
        ("fetch", {"error": 1}, "Fetch: error 1"),
        ("fetch", {"batch": lambda batch: b""}, "no records though there are some"),
        ("fetch", {"batch": lambda batch: batch[:-1] + b"?"}, "a batch with another checksum"),
        ("fetch", {"batch": lambda batch: batch[:-5]}, "no records though there are some"),
        ("fetch", {"batch": lambda batch: batch + batch}, "a batch at another offset"),
        ("fetch", {"batch": lambda batch: (7).to_bytes(8, "big") + batch[8:]}, "a batch at another offset"),
        ("fetch", {"batch": lambda batch: batch[:16] + b"\1" + batch[17:]}, "no batch of format 2"),
        ("fetch", {"topic_id": b"?" * 16}, "a malformed answer to Fetch"),
        ("long-poll", {}, None),
        ("long-poll", {"at_once": True}, "Fetch: answered without a record"),
    ],
)
def test_every_reply_about_records_is_checked(built: Tools, work: str, answer: dict[str, Any], refusal: str | None) -> None:
    with OneTopicServer(**answer) as server:
        arguments = ("-w", work, "-W", "0")
        if refusal is None:
            assert generate(built.kgdata, None, server, arguments, 0.05)["requests"] > 0
        else:
            with pytest.raises(LoadError, match=refusal):
                generate(built.kgdata, None, server, arguments, 0.05)


def test_partitions_are_awaited_until_each_has_its_record(built: Tools) -> None:
    with OneTopicServer() as server:
        assert generate(built.kgdata, None, server, ("-w", "fill"), 0)["errors"] == 0
        assert generate(built.kgdata, None, server, ("-w", "await"), 0)["served_s"] > 0
        with pytest.raises(LoadError, match="has 1 records"):
            generate(built.kgdata, None, server, ("-w", "await", "--fill", "2"), 0)


def test_without_a_compiler_there_is_a_one_line_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(native, "BUILD", tmp_path)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(BuildError, match="no C compiler found") as raised:
        tools()
    assert "\n" not in str(raised.value)


def test_a_row_needs_the_apis_that_it_sends() -> None:
    heartbeat = row_named("heartbeat-200")
    all_served = dict.fromkeys(rows.NAMES, (0, 20))
    assert heartbeat.missing(all_served) == []
    assert heartbeat.missing(all_served | {12: (0, 3)}) == ["Heartbeat v4"]
    assert heartbeat.missing({18: (0, 4)}) == ["FindCoordinator v4", "JoinGroup v9", "SyncGroup v5", "Heartbeat v4"]


def test_a_row_is_chosen_by_its_name_or_a_prefix() -> None:
    assert rows.chosen([]) == set(rows.ALL_NAMES)
    assert rows.chosen(["connect"]) == {"connect"}
    assert rows.chosen(["commit", "start"]) == {"commit-1", "commit-10", "commit-100", "commit-turns", "start"}
    with pytest.raises(ValueError, match="no row is called 'commits'"):
        rows.chosen(["commits"])


def test_a_disturbed_round_does_not_affect_the_ratio_of_minima() -> None:
    row = next(row for row in rows.LOAD_ROWS if row.name == "commit-1")
    field = dict.fromkeys(KEPT_FIELDS, 1.0)
    samples = {
        "floor": [field | {"srv_us_per_req": cost} for cost in (5.0, 9.0, 6.0)],
        "ours": [field | {"srv_us_per_req": cost} for cost in (40.0, 12.0, 13.0)],
    }
    (metric,) = compared(row, samples)["metrics"]
    assert metric["ours"]["least"] == 12.0 / 5.0


def test_kafka_is_warm_when_two_laps_get_no_cheaper() -> None:
    assert not is_warm([1.0, 0.9], 100.0)
    assert not is_warm([1.0, 0.8, 0.7, 0.6], 100.0)
    assert not is_warm([1.0, 0.8, 0.79, 0.8], 10.0)  # two laps without a gain, but too little time
    assert is_warm([1.0, 0.8, 0.79, 0.8], 100.0)
    assert is_warm([1.0, 0.8, 0.6, 0.4], 1_000.0)  # the time limit ends the warm-up


def test_both_builds_are_compared_with_kafka_in_one_run() -> None:
    row = row_named("heartbeat-200")
    costs = {"floor": 2.0, "ours": 3.5, "compiled": 2.5, "kafka": 6.0}
    result = {"status": "measured", **compared(row, {name: [sample(cost)] for name, cost in costs.items()})}
    assert table.missed_targets(report(heartbeat_200=result)) == ["heartbeat-200 CPU, compiled: 0.42 of Kafka's, at most 0.4"]
    lines = table.compared_with_kafka(report(heartbeat_200=result))
    assert lines[1].split()[-8:] == ["1.25", "1.5", "ok", "3.00", "0.58", "ok", "0.42", "OVER"]
    near_floor = {"status": "measured", **compared(row, {name: [sample(cost)] for name, cost in (costs | {"compiled": 2.25, "kafka": 4.0, "ours": 2.2}).items()})}
    assert table.missed_targets(report(heartbeat_200=near_floor)) == []


def test_compiled_produce_and_fetch_have_targets_relative_to_kafka() -> None:
    row = rows.PRODUCE_SMALL
    rates = {"ours": 50_000.0, "compiled": 70_000.0, "kafka": 50_000.0}
    result = summary(row, {name: [{figure.field: rate for figure in row.figures}] for name, rate in rates.items()})
    assert table.missed_targets(report(produce_small={"status": "measured", **result})) == ["produce-small CPU, compiled: 1.40 times Kafka's, at least 1.5"]
    assert "OVER" in "\n".join(table.data_lines(report(produce_small={"status": "measured", **result})))


def test_ratios_are_taken_round_by_round() -> None:
    row = ratios([{"x": 4.0}, {"x": 30.0}, {"x": 3.0}], [{"x": 2.0}, {"x": 10.0}, {"x": 3.0}], "x")
    assert (row["median"], row["min"], row["max"]) == (2.0, 1.0, 3.0)


def sample(cost: float) -> dict[str, float]:
    return {"requests": 9, "rps": 9, "p50_us": 9, "p99_us": 9, "p999_us": 9, "srv_us_per_req": cost, "srv_util": 1, "gen_util": 1, "srv_rss_mb": 1}


def report(**results: Any) -> dict[str, Any]:
    return {
        "machine": {"system": "Linux", "processor": "a processor", "cores": 2, "python": "3.11.0"},
        "cores": "not pinned",
        "compiled": False,
        "settings": [],
        "rounds": 1,
        "seconds": 1.0,
        "noise": {"load_before": 0.0, "steal": 0.0, "floor_spread": 0.01, "busy": 1.0, "witness_worst": 2.0},
        "rows": {name.replace("_", "-"): result for name, result in results.items()},
        "took_s": 1.0,
    }


def test_a_missed_target_is_marked_and_named() -> None:
    row = row_named("heartbeat-200")
    slow = {"status": "measured", **compared(row, {"floor": [sample(2.0)], "ours": [sample(5.0)]})}
    fast = {"status": "measured", **compared(row, {"floor": [sample(2.0)], "ours": [sample(3.0)]})}
    assert table.missed_targets(report(heartbeat_200=slow)) == ["heartbeat-200 CPU: 2.50, at most 1.9"]
    assert "OVER" in table.text(report(heartbeat_200=slow))
    assert table.missed_targets(report(heartbeat_200=fast)) == []
    assert table.missed_targets(report(heartbeat_200=fast) | {"compiled": True}) == []
    assert "OVER" not in table.text(report(heartbeat_200=fast))


@pytest.mark.parametrize(
    ("row", "api", "cells"),
    [
        ("commit-10", "OffsetCommit v8", "commit, 10 partitions CPU - - not served yet - - 5 2.8 2 8.1 - - -"),
        ("fetch-1mb", "Fetch v17", "fetch of the same CPU MB/CPU s - not served yet - >= 600 -"),
    ],
)
def test_an_unserved_row_has_targets_but_no_figure(row: str, api: str, cells: str) -> None:
    results = report(**{row.replace("-", "_"): {"status": "not served yet", "missing": [api]}})
    page_text = table.text(results)
    assert cells.split() in [line.split() for line in page_text.splitlines()]
    assert f"{row}: not served yet (the broker does not offer {api})" in page_text
    assert table.missed_targets(results) == []


@pytest.mark.parametrize(
    ("measure", "figure", "noise"),
    [
        ("load_before", 3.0, "3.0 tasks ran before the measurement"),
        ("steal", 0.1, "10 % of the time went to other virtual machines"),
        ("floor_spread", 0.5, "the floor's own cost differed by 50 % between rounds"),
        ("busy", 0.4, "the broker was only 40 % busy"),
    ],
)
def test_a_noisy_machine_is_distinguished_from_a_quiet_one(measure: str, figure: float, noise: str) -> None:
    results = report()
    assert "NOISY" not in table.text(results)
    results["noise"][measure] = figure
    page_text = table.text(results)
    assert "NOISY" in page_text
    assert noise in page_text


def test_the_cost_of_flushing_is_compared_within_a_round() -> None:
    row = row_named("commit-1")
    samples = {"floor": [sample(1.0)] * 2, "ours": [sample(2.0), sample(4.0)], "always": [sample(5.0), sample(6.0)]}
    result = {"status": "measured", **compared(row, samples)}
    assert result["always_to_interval"]["rounds"] == [2.5, 1.5]
    page_text = table.text(report(commit_1=result))
    line = page_text[page_text.index("offsets.flush=always / interval") :].splitlines()[1]
    assert line.split() == ["commit,", "1", "partition", "CPU", "3.00", "5.50", "2.00", "1.50..2.50", "2", "ok"]
    dear = {"status": "measured", **compared(row, samples | {"always": [sample(9.0), sample(9.0)]})}
    assert "commit-1 with offsets.flush=always: 3.38 times the cost, at most 2" in table.missed_targets(report(commit_1=dear))
    assert "always / interval" not in table.text(report(commit_1={"status": "measured", **compared(row, {"floor": [sample(1.0)], "ours": [sample(2.0)]})}))


def test_rows_without_calm_rounds_are_named_and_skipped_rounds_counted() -> None:
    row = row_named("heartbeat-200")
    result = {"status": "measured", **compared(row, {"floor": [sample(2.0)], "ours": [sample(3.0)]})}
    page_text = table.text(report(heartbeat_200=result | {"rounds": {"calm": 5, "taken": 9, "calm_enough": True}}))
    assert "NOISY" not in page_text
    assert "a fixed piece of Python took up to 2.0 times its best; 4 rounds left out" in page_text
    page_text = table.text(report(heartbeat_200=result | {"rounds": {"calm": 1, "taken": 9, "calm_enough": False}}))
    assert "NOISY" in page_text
    assert "too often to leave out such rounds in heartbeat-200" in page_text


def data_report(**costs: float) -> dict[str, Any]:
    samples = {name: [{"mb_per_cpu_s": cost, "mb_per_s": cost / 2, "srv_us_per_req": 1.0}] for name, cost in costs.items()}
    return report(produce_1mb={"status": "measured", **summary(rows.PRODUCE_1MB, samples)})


def test_a_data_figure_has_a_minimum_target() -> None:
    slow, fast = data_report(floor=5000, ours=250, kafka=500), data_report(floor=5000, ours=350, kafka=500)
    assert table.missed_targets(slow) == ["produce-1mb CPU: 250 MB/CPU s, to be >= 300"]
    assert table.missed_targets(fast) == []
    cpu, rate = (line for line in table.text(slow).splitlines() if line.startswith("produce, batches"))
    assert cpu.split()[-11:] == ["CPU", "MB/CPU", "s", "5000", "250", "250..250", ">=", "300", "OVER", "0.05", "500", "0.50"][-11:]
    assert rate.split()[-9:] == ["rate", "MB/s", "2500", "125", "125..125", "-", "0.05", "250", "0.50"]
    assert "OVER" not in table.text(fast)


def test_a_failed_row_has_a_reason() -> None:
    page_text = table.text(report(metadata={"status": "failed", "reason": "3 lost_conns"}))
    assert "metadata: failed: 3 lost_conns" in page_text
    assert "FAILED: metadata" in page_text
    assert "the machine was quiet" in page_text
