"""Judging suites: the output of their runners is read, and compared with the known failures. Nothing is fetched here."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest

from tests.suites.__main__ import SUITES
from tests.suites.known import FOLDER, Expectations, judge, known
from tests.suites.page import PAGE, written
from tests.suites.results import Case, Result, Tests, count, go_json, junit, libtest
from tests.suites.suite import Suite, SuiteError, call, run_suite

PASSED, FAILED, SKIPPED = Case(Result.PASSED, ""), Case(Result.FAILED, "why"), Case(Result.SKIPPED, "")

JUNIT = """<testsuites><testsuite name="pytest">
<testcase classname="test.integration.test_a" name="test_one" time="0.5"/>
<testcase classname="test.integration.test_a" name="test_two[x]" time="1.5"><failure message="AssertionError:&#10; no">long</failure></testcase>
<testcase classname="test.integration.test_a" name="test_three"><skipped message="not here"/></testcase>
<testcase classname="test.integration.test_a" name="test_four"><error message="failed on setup"/></testcase>
<testcase classname="test.integration.test_a" name="test_five"><failure message="no"/></testcase>
<testcase classname="test.integration.test_a" name="test_five"/>
<testcase classname="test.integration.test_a" name="test_six" time="0.000"/>
</testsuite></testsuites>"""


def test_junit_is_read(tmp_path: Path) -> None:
    (tmp_path / "junit.xml").write_text(JUNIT)
    assert junit(tmp_path / "junit.xml") == {
        "integration.test_a::test_one": Case(Result.PASSED, "", 0.5),
        "integration.test_a::test_two[x]": Case(Result.FAILED, "AssertionError: no", 1.5),
        "integration.test_a::test_three": Case(Result.SKIPPED, "not here"),
        "integration.test_a::test_four": Case(Result.FAILED, "failed on setup"),
        "integration.test_a::test_five": Case(Result.FAILED, "no"),
        "integration.test_a::test_six": Case(Result.PASSED, "", 0.0),
    }


def event(test: str, action: str, **more: object) -> str:
    return json.dumps({"Package": "p", "Test": test, "Action": action, **more})


def test_go_test_events_are_read_and_unfinished_tests_fail() -> None:
    lines = [
        "# a word of the compiler",
        '{"Package": "p", "Action": "start"}',
        event("TestA", "run"),
        event("TestA", "output", Output="=== RUN   TestA\n"),
        event("TestA", "output", Output="    a_test.go:7: wrong\n"),
        event("TestA", "fail", Elapsed=0.25),
        event("TestB", "run"),
        event("TestB/one", "run"),
        event("TestB/one", "pass", Elapsed=1.0),
        event("TestC", "run"),
        event("TestC", "skip", Elapsed=0),
    ]
    assert go_json(lines) == {
        "TestA": Case(Result.FAILED, "a_test.go:7: wrong", 0.25),
        "TestB": Case(Result.FAILED, "began and did not end"),
        "TestB/one": Case(Result.PASSED, "", 1.0),
        "TestC": Case(Result.SKIPPED, "", 0),
    }


def test_the_lines_of_cargo_are_read() -> None:
    output = """
running 4 tests
test test_a ... ok
test test_b ... FAILED
test test_c ... ignored, not now
test test_d - should panic ... ok

failures:

---- test_b stdout ----
thread 'test_b' panicked at tests/test_x.rs:5:1:
left is not right

test result: FAILED. 2 passed; 1 failed; 1 ignored;
"""
    assert libtest(output, "test_x") == {
        "test_x::test_a": PASSED,
        "test_x::test_b": Case(Result.FAILED, "left is not right"),
        "test_x::test_c": SKIPPED,
        "test_x::test_d": PASSED,
    }


KNOWN = Expectations(2, {"failing": "a reason"}, {"at times": "another"})


@pytest.mark.parametrize("at_times", [PASSED, FAILED])
def test_a_result_equal_to_the_known_one_passes(at_times: Case) -> None:
    assert judge({"a": PASSED, "b": PASSED, "c": SKIPPED, "failing": FAILED, "at times": at_times}, KNOWN) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"b": FAILED, "d": PASSED}, "b failed and is not listed: why"),
        ({"failing": PASSED}, "failing is listed as failing and passed"),
        ({"failing": SKIPPED}, "failing is listed as failing and skipped"),
        ({"failing": None}, "failing is listed and did not run"),
        ({"at times": None}, "at times is listed and did not run"),
        ({"a": SKIPPED}, "1 passed; at least 2 have to"),
    ],
)
def test_an_unexpected_result_is_reported(change: dict[str, Case | None], problem: str) -> None:
    tests = {"a": PASSED, "b": PASSED, "failing": FAILED, "at times": FAILED, **change}
    (line,) = judge({name: test for name, test in tests.items() if test is not None}, KNOWN)
    assert line.startswith(problem)


QUICK = Expectations(1, quick={"unit_*": "needs no broker"})


@pytest.mark.parametrize("seconds", [0.0, 0.0019])
def test_a_test_that_passes_in_zero_seconds_is_reported_unless_listed(seconds: float) -> None:
    (line,) = judge({"a": Case(Result.PASSED, "", seconds), "unit_a": Case(Result.PASSED, "", seconds)}, QUICK)
    assert line.startswith(f"a passed in {seconds} s: find out whether it did anything")


@pytest.mark.parametrize("case", [Case(Result.PASSED, "", 0.002), Case(Result.PASSED, "", None), Case(Result.SKIPPED, "", 0.0)])
def test_a_pass_of_normal_or_unknown_duration_is_accepted(case: Case) -> None:
    assert judge({"a": case, "b": PASSED}, QUICK) == []


def test_of_a_partial_run_only_executed_tests_are_judged() -> None:
    assert judge({"a": PASSED}, KNOWN, complete_run=False) == []
    assert len(judge({"a": FAILED}, KNOWN, complete_run=False)) == 1


LISTED = """
[passing]
tenure = 3
kafka = 4
[[failing]]
reason = "here"
tests = ["a"]
[[failing]]
with = "kafka"
reason = "there"
tests = ["a", "b"]
[[failing]]
with = "both"
sometimes = true
reason = "chance"
tests = ["c"]
[[failing]]
with = "nodes"
reason = "elsewhere"
tests = ["n"]
[[quick]]
reason = "no broker"
tests = ["d*"]
"""


def test_a_list_of_known_failures_names_its_broker(tmp_path: Path) -> None:
    (tmp_path / "some.toml").write_text(LISTED)
    assert known("some", tmp_path) == Expectations(3, {"a": "here"}, {"c": "chance"}, {"d*": "no broker"})
    assert known("some", tmp_path, kafka=True) == Expectations(4, {"a": "there", "b": "there"}, {"c": "chance"}, {"d*": "no broker"})
    assert known("some", tmp_path, nodes=True) == Expectations(3, {"a": "here", "n": "elsewhere"}, {"c": "chance"}, {"d*": "no broker"})
    (tmp_path / "some.toml").write_text(LISTED.replace("[passing]", "[passing]\nnodes = 2"))
    assert known("some", tmp_path, nodes=True).passing == 2
    assert known("some", tmp_path).passing == 3


@pytest.mark.parametrize(("wrong", "problem"), [('reason = " "\ntests = ["x"]', "no reason"), ('reason = "again"\ntests = ["a"]', "twice")])
def test_a_list_without_reasons_or_with_doubles_is_refused(tmp_path: Path, wrong: str, problem: str) -> None:
    (tmp_path / "some.toml").write_text(f"{LISTED}[[failing]]\n{wrong}\n")
    with pytest.raises(ValueError, match=problem):
        known("some", tmp_path)


@pytest.mark.parametrize("name", SUITES)
def test_every_suite_can_be_named_and_has_its_list(name: str) -> None:
    module, _, attribute = SUITES[name].partition(":")
    suite: Suite = getattr(import_module(f"tests.suites.{module}"), attribute)
    assert suite.name == name
    assert suite.version
    for kafka in (False, True) if suite.nodes == 1 else (False,):  # a suite that needs several nodes does not run against Kafka
        assert known(name, kafka=kafka).passing > 0


def test_every_list_of_known_failures_belongs_to_a_suite() -> None:
    assert {file.stem for file in FOLDER.glob("*.toml")} == set(SUITES)


def test_the_clients_page_has_the_reasons_of_known_failures() -> None:
    assert PAGE.read_text() == written(PAGE.read_text()), "run `python -m tests.suites.page`"


@pytest.mark.once
def test_a_failing_step_is_reported_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="no-such-program is needed and not on PATH"):
        call(["no-such-program"], tmp_path)
    with pytest.raises(SuiteError, match="ended with 3: told"):
        call(["sh", "-c", "echo told; exit 3"], tmp_path)


@pytest.mark.once
def test_a_suite_that_does_not_end_is_killed_with_its_children(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["sh", "-c", "echo begun; (sleep 60; touch late) & wait"]
    run_suite(command, tmp_path, tmp_path / "log", seconds=0.3)
    assert (tmp_path / "log").read_text() == "begun\n"
    assert "did not end" in capsys.readouterr().out


def test_counts_are_of_each_result() -> None:
    tests: Tests = {"a": PASSED, "b": PASSED, "c": FAILED}
    assert count(tests) == {Result.PASSED: 2, Result.FAILED: 1, Result.SKIPPED: 0}
