"""`tenure analyze run`, `ingest` and `build`, without Spark: one process at a time, in tables of this version, and with --follow until Ctrl-C."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import cli
from cli.analyze import opened, run
from pipeline import session, wire
from pipeline.inputs import NoAnswer
from pipeline.jobs import PlainEngine
from pipeline.tables import Batch, Tables, TablesBusy
from tenure.testing import Cluster
from tests.pipeline.fake_cluster import commit_offsets
from tests.pipeline.scenarios import write
from tests.running import ROOT, broker, environment, wait_until
from tests.support.controlled import Controlled, port_of

pytestmark = pytest.mark.once  # files and processes do not depend on the Python version
SECONDS = 60.0


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write("rolling restart of dynamic members", tmp_path / "data")
    return tmp_path / "data"


def command(action: str, out: Path, *more: object) -> list[str]:
    return ["analyze", action, "--out", str(out), "--master", "none", "--quiet", *map(str, more)]


@contextmanager
def used(out: Path) -> Iterator[None]:
    """Work on the tables, as another run does; waits until they are free."""
    until = time.monotonic() + SECONDS
    while True:
        try:
            batch: Batch = Tables.open(out).begin()
            break
        except TablesBusy:
            assert time.monotonic() < until
            time.sleep(0.01)
    yield
    batch.release()


def test_a_second_run_at_once_is_refused(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(command("run", tmp_path / "out", "--offsets", data)) == 0
    capsys.readouterr()
    with used(tmp_path / "out"):
        for action, more in (("run", ("--offsets", data)), ("ingest", ("--offsets", data)), ("build", ()), ("run", ("--offsets", data, "--follow"))):
            assert cli.main(command(action, tmp_path / "out", *more)) == 75
            (line,) = capsys.readouterr().err.splitlines()
            assert "another run uses it (process " in line
    assert cli.main(command("build", tmp_path / "out")) == 0


def test_tables_of_another_version_are_refused(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "warehouse").mkdir()
    (tmp_path / "warehouse" / "CURRENT.json").write_text("{}")
    assert cli.main(command("run", tmp_path / "out", "--offsets", data)) == 0
    monkeypatch.setattr("pipeline.tables.DESCRIPTION", "Tenure 1000")
    for out in (tmp_path / "warehouse", tmp_path / "out"):
        capsys.readouterr()
        for action, more in (("run", ("--offsets", data)), ("build", ()), ("build", ("--full",)), ("status", ())):
            words = command(action, out, *more) if action != "status" else ["analyze", "status", "--out", str(out)]
            assert cli.main(words) == 65
            (line,) = capsys.readouterr().err.splitlines()
            assert "its tables are of another version of Tenure; use another --out" in line


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--every", "5s"], "add --follow, or leave --every out"),
        (["--until-offset", "999=5"], "--until-offset: there is no __consumer_offsets-999 in the input"),
        (["--until-offset", "\u00b2=5"], "write PARTITION=OFFSET"),
    ],
)
def test_options_without_effect_are_refused(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], message: str) -> None:
    assert cli.main(command("run", tmp_path / "out", "--offsets", data, *more)) == 64
    assert message in capsys.readouterr().err


@pytest.fixture
def kafka(controlled: Controlled) -> Cluster:
    """A cluster with three groups, in two partitions."""
    made = controlled(settings={"offsets.topic.num.partitions": 2})
    commit_offsets(port_of(made), 0)
    return made


def test_a_limit_on_a_partition_that_the_broker_does_not_have_is_refused(kafka: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = ("--offsets", f"kafka://{kafka.bootstrap}")
    assert cli.main(command("ingest", tmp_path / "out", *source, "--until-offset", "2=5")) == 64
    assert "there is no __consumer_offsets-2 in the input" in capsys.readouterr().err
    assert cli.main(command("ingest", tmp_path / "out", *source, "--until-offset", "1=0")) == 0


def test_a_missing_pyspark_is_reported_with_the_remedy(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    assert cli.main([*command("run", tmp_path / "out", "--offsets", data), "--master", "local[1]"]) == 76
    assert capsys.readouterr().err == (
        "tenure: Spark needs PySpark, which is not installed: pip install 'tenure[spark]' adds it, in a checkout `make setup-analyze`; "
        "--master none needs neither PySpark nor Java\n"
    )


def without(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """As if these packages were not installed."""
    for module in (opened, run, session):
        monkeypatch.setattr(module, "find_spec", lambda name: None if name in packages else find_spec(name))


def test_what_is_not_installed_is_named_with_its_extra_after_the_arguments_were_checked(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without(monkeypatch, "deltalake", "jinja2", "numpy", "pyarrow", "pyspark")
    for words, code, message in (
        (command("run", tmp_path / "out", "--offsets", tmp_path / "nope"), 65, "nope: "),
        (command("run", tmp_path / "out", "--offsets", data, "--report", tmp_path / "nope" / "report.html"), 74, "there is no such folder"),
        (command("run", data, "--offsets", data), 65, "not the folder of an analysis"),
        (command("build", tmp_path / "out"), 65, "there is no such folder"),
        (command("run", tmp_path / "out", "--offsets", data), 76, "analyses need pyarrow, which is not installed: pip install 'tenure[analyze]' adds it"),
    ):
        assert cli.main(words) == code
        assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_without_pyspark_a_run_is_one_in_this_process(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without(monkeypatch, "pyspark")
    words = ["analyze", "run", "--out", str(tmp_path / "out"), "--quiet", "--offsets", str(data)]
    assert cli.main([*words, "--conf", "spark.driver.memory=2g"]) == 76
    assert "pip install 'tenure[spark]' adds it" in capsys.readouterr().err
    assert cli.main(words) == 0


@pytest.mark.parametrize("master", ["nonee", "", "local[", "None"])
def test_an_invalid_spark_master_is_refused(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], master: str) -> None:
    assert cli.main([*command("run", tmp_path / "out", "--offsets", data), "--master", master]) == 64
    assert f"{master!r} is not a master: write none, local[*], " in capsys.readouterr().err


def test_a_failed_first_run_leaves_nothing(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(wire, "UNKNOWN_S", 0.2)
    (tmp_path / "empty").mkdir()
    for source, code in ((tmp_path / "nope", 65), ("kafka://127.0.0.1:1", 69)):
        for out in (tmp_path / "new" / "out", tmp_path / "empty"):
            assert cli.main(command("run", out, "--offsets", source)) == code
            assert cli.main(command("ingest", out, "--offsets", source, "--follow")) == code
        assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "empty"]
        assert not list((tmp_path / "empty").iterdir())
    assert cli.main(command("ingest", tmp_path / "out", "--offsets", data)) == 0
    assert cli.main(command("run", tmp_path / "out", "--offsets", tmp_path / "nope")) == 65
    assert cli.main(command("build", tmp_path / "out")) == 0


def test_reading_a_broker_creates_nothing_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with broker("--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--set", "offsets.topic.num.partitions=8") as served:
        commit_offsets(served.port, 0)
        assert cli.main(command("run", tmp_path / "out", "--offsets", f"kafka://127.0.0.1:{served.port}")) == 0
        assert served.stop() == 0
    assert not list((tmp_path / "data").glob("__coordinator_notes-*"))


class Following:
    """A started `tenure analyze ... --follow --json`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def line(self) -> dict[str, object]:
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        assert text, self.process.communicate(timeout=SECONDS)[1]
        return dict(json.loads(text))

    def await_line(self, part: str) -> None:
        """Wait until the process has printed a line with `part` to standard error."""
        assert self.process.stderr is not None
        while part not in (line := self.process.stderr.readline()):
            assert line

    def end(self, number: signal.Signals) -> tuple[int, str]:
        self.process.send_signal(number)
        return self.process.wait(SECONDS), self.process.communicate()[1]


@contextmanager
def following(*arguments: str) -> Iterator[Following]:
    started = subprocess.Popen(
        [sys.executable, "-P", "-m", "tenure", *arguments, "--follow", "--every", "100ms", "--json"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    try:
        yield Following(started)
    finally:
        started.kill()
        started.communicate()


def test_following_a_broker_keeps_tables_and_report_up_to_date(kafka: Cluster, tmp_path: Path) -> None:
    """Also after a restart of the broker."""
    out, page = tmp_path / "out", tmp_path / "report.html"
    with following(*command("run", out, "--offsets", f"kafka://{kafka.bootstrap}", "--report", page)) as run:
        assert run.line()["groups"] == 3
        before = page.stat().st_mtime_ns
        kafka.kill()
        commit_offsets(port_of(kafka), 1)
        while run.line()["groups"] != 6:  # one turn of the command may read only a part of the commits
            pass
        assert page.stat().st_mtime_ns > before
        assert len(Tables.open(out).read("groups")) == 6
        assert run.end(signal.SIGINT)[0] == 0


def test_another_command_uses_the_folder_between_two_turns(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with following(*command("ingest", out, "--offsets", data)) as run:
        run.line()
        wait_until(lambda: cli.main(command("build", out)) != 75, SECONDS)
        code, warned = run.end(signal.SIGTERM)
        assert code == 0
        assert all("another run uses it" in line for line in warned.splitlines())  # while `build` ran, a turn of the command may have had to wait


def test_a_failed_follow_turn_is_followed_by_another(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    round_of, turns = PlainEngine.round, iter((None, NoAnswer("kafka://nowhere: its metadata: Connection refused"), None, KeyboardInterrupt()))

    def turn(engine: PlainEngine, *arguments: Any) -> dict[str, object]:
        ended = next(turns)
        if ended is not None:
            raise ended
        return round_of(engine, *arguments)

    monkeypatch.setattr(PlainEngine, "round", turn)
    assert cli.main(command("run", tmp_path / "out", "--offsets", data, "--follow", "--every", "1ms")) == 0
    assert capsys.readouterr().err == "tenure: kafka://nowhere: its metadata: Connection refused; trying again in 0.001 s\n"


def test_a_follow_turn_without_new_records_prints_nothing(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    round_of, turns = PlainEngine.round, iter((True, True, True, False))

    def three_turns(engine: PlainEngine, *arguments: Any) -> dict[str, object]:
        if not next(turns):
            raise KeyboardInterrupt
        return round_of(engine, *arguments)

    monkeypatch.setattr(PlainEngine, "round", three_turns)
    assert cli.main(command("run", tmp_path / "out", "--offsets", data, "--follow", "--every", "1ms")) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("records: ")


@pytest.mark.parametrize("text", ["a", "=a", ""])
@pytest.mark.parametrize("master", ["none", "local[1]"])
def test_a_malformed_setting_of_spark_is_refused(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], master: str, text: str) -> None:
    for action, more in (("run", ("--offsets", data)), ("ingest", ("--offsets", data)), ("build", ())):
        assert cli.main([*command(action, tmp_path / "out", *more), "--master", master, f"--conf={text}"]) == 64
        assert f"{text!r} is not a setting: write NAME=VALUE" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_python_listing_of_the_docs_reads_the_tables(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli.main(command("run", tmp_path / "analysis", "--offsets", data)) == 0
    monkeypatch.chdir(tmp_path)
    (line,) = re.findall(r"^Tables\.open.*", (ROOT / "docs" / "analyze.md").read_text(), re.MULTILINE)
    expression, _, imported = line.partition("# in a checkout: ")
    names: dict[str, Any] = {}
    exec(imported, names)
    assert len(eval(expression.replace(".to_pandas()", ""), names)) == 7  # without pandas, which tests do not need


def test_a_follow_turn_waits_for_a_running_analysis(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with following(*command("run", out, "--offsets", data)) as run:
        run.line()
        with used(out):
            run.await_line("another run uses it")
        assert run.end(signal.SIGINT)[0] == 0
