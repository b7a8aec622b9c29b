"""`tenure analyze advise`, `whatif`, `status`, `reconcile` and `report`: their output, exit codes and usage errors."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import cli
from pipeline.on_demand import advice_for, clusters_of, tables_of
from pipeline.rows import Episode
from pipeline.schema import rows_of
from pipeline.tables import Tables
from pipeline.timeouts import Options
from tests.pipeline.report_rows import with_second_cluster
from tests.pipeline.scenarios import write


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("asked")
    write("rolling restart of dynamic members", folder / "data")
    assert cli.main(["analyze", "run", "--out", str(folder / "out"), "--master", "none", "--quiet", "--offsets", str(folder / "data")]) == 0
    return folder / "out"


def run_words(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = cli.main(["analyze", *map(str, words)])
    return code, *capsys.readouterr()


def test_advice_is_a_sentence_a_setting_and_a_table(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = run_words(capsys, "advise", "--out", out, "--group", "g")
    assert code == 0
    assert text.startswith("g: 6 of 7 rebalances in ")
    assert "\nconfidence: weak, from 3 restarts\n" in text
    assert "\n  session.timeout.ms=30000\n" in text
    code, text, _ = run_words(capsys, "advise", "--out", out, "--group", "g", "--json")
    (cluster,) = json.loads(text)["clusters"]
    assert (code, cluster["advice"][0]["recommended_ms"], cluster["advice"][0]["avoided"]) == (0, 30_000, 6)


def test_advice_without_restarts_has_no_confidence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write("the coordinator is killed, and nothing else happens", tmp_path / "data")
    assert cli.main(["analyze", "run", "--out", str(tmp_path / "out"), "--master", "none", "--quiet", "--offsets", str(tmp_path / "data")]) == 0
    capsys.readouterr()
    code, text, _ = run_words(capsys, "advise", "--out", tmp_path / "out", "--group", "g")
    assert (code, text.splitlines()[0]) == (0, "g: no restart of a member was found, so there is no basis for a session timeout.")
    assert "confidence" not in text


def test_advice_respects_the_limit_for_noticing_a_crash(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = run_words(capsys, "advise", "--out", out, "--group", "g", "--max-detect", "15s", "--json")
    assert (code, json.loads(text)["clusters"][0]["advice"][0]["recommended_ms"]) == (0, 15_000)


def test_whatif_replays_the_history_of_a_group(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = run_words(capsys, "whatif", "--out", out, "--group", "g", "--static", "--session-timeout", "60s")
    assert (code, text.splitlines()) == (
        0,
        [
            "g: 7 rebalances in the logs; 7 when they are replayed through the coordinator",
            "as static members with a session timeout of 60 s: 1, 6 fewer",
        ],
    )
    code, text, _ = run_words(capsys, "whatif", "--out", out, "--group", "g", "--static", "--json")
    (replay,) = json.loads(text)["replays"]
    assert (replay["session_timeout_ms"], replay["as_asked"], replay["saved"]) == (10_000, 7, 0)  # the group's own timeout, which is too short


def test_a_replay_with_a_much_shorter_session_timeout_has_more_rebalances(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = run_words(capsys, "whatif", "--out", out, "--group", "g", "--static", "--session-timeout", "1ms")
    assert code == 0
    assert re.search(r"as static members with a session timeout of 0.001 s: \d+, \d+ more\n$", text), text
    code, text, _ = run_words(capsys, "whatif", "--out", out, "--group", "g", "--static", "--session-timeout", "24d")
    assert (code, text.splitlines()[1]) == (0, "as static members with a session timeout of 2073600 s: 1, 6 fewer")


def test_reconcile_finds_no_contradiction_between_tables(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = run_words(capsys, "reconcile", "--out", out, "--json")
    checks = json.loads(text)
    assert (code, checks["failing"]) == (0, 0)
    assert len(checks["checks"]) > 5


def test_status_shows_all_groups_or_one(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = run_words(capsys, "status", "--out", out, "--json")
    partitions = json.loads(text)["partitions"]
    assert (code, {partition["group"] for partition in partitions}, len(partitions)) == (0, {"g"}, 12)
    assert run_words(capsys, "status", "--out", out, "--group", "g", "--json")[1] == text


@pytest.mark.parametrize("action", ["advise", "whatif", "status"])
def test_analyze_names_an_unknown_group(out: Path, capsys: pytest.CaptureFixture[str], action: str) -> None:
    code, _, error = run_words(capsys, action, "--out", out, "--group", "q")
    assert code == 66
    assert error.startswith("tenure: no group 'q' in ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["advise"], "--group"),
        (["advise", "--group", "g", "--quantile", "1.5"], "is not a share above 0 and up to 1"),
        (["advise", "--group", "g", "--max-detect", "soon"], "is not a time: write 500ms, 45s, 2m or 1h"),
        (["whatif", "--group", "g", "--session-timeout", "60s"], "add --static"),
        (["whatif", "--group", "g", "--static", "--session-timeout", "0s"], "--session-timeout: it must be more than 0: write 500ms, 45s, 2m or 1h"),
        (["advise", "--group", "g", "--max-detect", "0.1ms"], "0.1ms is not between 1ms and 365d"),
        (["whatif", "--group", "g", "--static", "--session-timeout", "999999999d"], "999999999d is not between 1ms and 365d"),
        (["whatif", "--group", "g", "--static", "--session-timeout", "25d"], "--session-timeout: session.timeout.ms is at most 2147483647 (24 days)"),
        (["reconcile", "--sample", "-4"], "is not a whole number"),
        (["reconcile", "--sample", "0"], "a sample of 0 groups checks nothing"),
        (["report"], "name a file to write"),
        (["report", "--html", "-", "--json", "-"], "standard output can have only one of them"),
        (["report", "--html", "-", "--per-group"], "name one in place of -"),
        (["run", "--offsets", "data", "--report", "-"], "standard output has the summary of the run"),
    ],
)
def test_wrong_arguments(out: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    try:
        code, _, error = run_words(capsys, words[0], "--out", out, *words[1:])
    except SystemExit as exit:
        code, error = int(str(exit.code)), capsys.readouterr().err
    assert code == 64
    assert message in error


def test_analyze_reads_a_single_group(out: Path) -> None:
    made = Tables.open(out)
    (cluster,) = clusters_of(made, "g")
    assert clusters_of(made, "q") == []
    assert tables_of(made, made.published(), cluster, "g").episodes == rows_of(Episode, made.read("rebalances"))
    (tables,) = advice_for(made, "g", Options())
    assert len(tables.episodes) == 7


def test_a_report_goes_to_standard_output(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    code, text, _ = run_words(capsys, "report", "--out", out, "--json", "-")
    assert (code, [group["group"] for group in json.loads(text)["groups"]]) == (0, ["g"])
    code, text, _ = run_words(capsys, "report", "--out", out, "--html", "-", "--json", "report.json")
    assert (code, text[:15].lower(), text.rstrip()[-7:]) == (0, "<!doctype html>", "</html>")
    assert run_words(capsys, "report", "--out", out, "--json", "./-") == (0, "-\n", "")
    assert {path.name for path in tmp_path.iterdir()} == {"report.json", "-"}


@pytest.fixture(scope="module")
def of_two_clusters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    write("rolling restart of dynamic members", folder / "data")
    for cluster in ("one", "two"):
        words = ("--out", str(folder / "out"), "--master", "none", "--quiet", "--offsets", str(folder / "data"), "--cluster", cluster)
        assert cli.main(["analyze", "run", *words]) == 0
    return folder / "out"


def test_output_names_each_cluster_and_can_be_limited_to_one(of_two_clusters: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    for words, start, count in (
        (("advise", "--group", "g"), "cluster {}: g: 6 of 7 rebalances in ", 1),
        (("whatif", "--group", "g", "--static"), "cluster {}: g: 7 rebalances in the logs", 1),
        (("status",), "{} ", 12),
    ):
        code, text, _ = run_words(capsys, *words, "--out", of_two_clusters)
        counts = [sum(line.startswith(start.format(cluster)) for line in text.splitlines()) for cluster in ("one", "two")]
        assert (code, counts) == (0, [count, count])
        code, text, _ = run_words(capsys, *words, "--out", of_two_clusters, "--cluster", "two")
        assert code == 0
        assert any(line.startswith(start.format("two")) for line in text.splitlines())
        assert not any(line.startswith(start.format("one")) for line in text.splitlines())
        code, _, error = run_words(capsys, *words, "--out", of_two_clusters, "--cluster", "three")
        assert (code, error) == (66, f"tenure: no cluster 'three' in {of_two_clusters}; it has one, two\n")


def test_a_report_of_one_cluster(of_two_clusters: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def report(*words: str) -> tuple[int, str, str]:
        return run_words(capsys, "report", "--out", of_two_clusters, "--json", "-", *words)

    for words, clusters in (((), ["one", "two"]), (("--cluster", "two"), ["two"])):
        code, text, _ = report(*words, "--groups", "g*")
        content = json.loads(text)
        assert (code, content["clusters"], [row["cluster"] for row in content["groups"]]) == (0, clusters, clusters)
    code, _, error = report("--cluster", "three")
    assert (code, error) == (66, f"tenure: no cluster 'three' in {of_two_clusters}; it has one, two\n")
    code, _, error = report("--cluster", "two", "--groups", "x*")
    assert (code, error) == (66, f"tenure: no group in cluster two of {of_two_clusters} matches 'x*'\n")


def test_a_group_of_another_cluster_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = with_second_cluster(tmp_path / "out").folder
    for action in ("advise", "status"):
        code, _, error = run_words(capsys, action, "--out", out, "--cluster", "elsewhere", "--group", "billing")
        assert (code, error) == (66, f"tenure: no group 'billing' in cluster elsewhere of {out}\n")
