from __future__ import annotations

import sys
from pathlib import Path

import pytest

from project import test as words
from project.test import Tally

THIS_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
REPORT = '<testsuites><testsuite errors="{errors}" failures="{failures}" skipped="{skipped}" tests="{tests}"><testcase>{body}</testcase></testsuite></testsuites>'

SKIPPED = '<skipped type="pytest.skip" message="needs Java"/><skipped type="pytest.skip" message="needs tc"/>'
WHOLE_FOLDER = '<skipped message="collection skipped">(&apos;/t/__init__.py&apos;, 6, &apos;Skipped: needs lz4&apos;)</skipped>'


def fake_python(folder: Path, says: str, minor: str = "3.12") -> Path:
    folder.mkdir(parents=True)
    python = folder / f"python{minor}"
    python.write_text(f"#!/bin/sh\n{says}\n")
    python.chmod(0o755)
    return python


def test_a_python_that_does_not_run_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_python(tmp_path / "shims", "echo not switched on >&2; exit 127")
    fake_python(tmp_path / "mislabelled", "echo 3.9")
    working = fake_python(tmp_path / "home/.pyenv/versions/3.12.1/bin", "echo 3.12")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'shims'}:{tmp_path / 'mislabelled'}:{tmp_path / 'nowhere'}")
    assert list(words.pythons("3.12")) == [working]
    assert list(words.pythons("3.13")) == []


def test_every_python_gets_a_line_and_the_missing_ones_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    tallies = {"3.11": Tally(7, 0, 2, 0, ("needs Java", "needs Java")), "3.13": Tally(8, 1, 0, 1)}
    monkeypatch.delenv("PYTHONS", raising=False)
    monkeypatch.setattr(words, "environment_of", lambda minor: Path(minor) if minor in tallies else None)
    monkeypatch.setattr(words, "suite", lambda _, minor, __, first: tallies[minor])
    assert words.main([]) == 1
    assert capsys.readouterr().out.splitlines()[-5:] == [
        "Not tested, because not found: Python 3.12, 3.14, 3.15",
        "Skipped with Python 3.11: 2 x needs Java",
        "Tests marked `once` or `alone` ran with Python 3.11 only, those marked clients, drills, install, jetstream, kafka, long and spark by their own make targets",
        "python3.11: 7 passed, 0 failed, 2 skipped",
        "python3.13: 8 passed, 1 failed, 0 skipped",
    ]


def test_pythons_can_be_chosen_by_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    prefixes: list[str] = []
    monkeypatch.setenv("PYTHONS", THIS_VERSION)
    monkeypatch.setattr(words, "suite", lambda environment, minor, _, first: prefixes.append(str(environment)) or Tally(1, 0, 0, 0))  # type: ignore[func-returns-value]
    assert words.main([]) == 0
    assert prefixes == [sys.prefix]
    assert "not found" not in capsys.readouterr().out


def test_the_first_python_and_the_others_are_all_of_them(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = ["3.12", "3.13", "3.15"]
    runs: list[tuple[str, bool]] = []
    monkeypatch.setattr(words, "environment_of", lambda minor: Path(minor) if minor in found else None)
    monkeypatch.setattr(words, "suite", lambda _, minor, __, first: runs.append((minor, first)) or Tally(1, 0, 0, 0))  # type: ignore[func-returns-value]
    for part in ("first", "others"):
        monkeypatch.setenv("PYTHONS", part)
        assert words.main([]) == 0
    assert runs == [("3.12", True), ("3.13", False), ("3.15", False)]
    found[1:] = []
    assert words.main([]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "test: no other Python than 3.12"


@pytest.mark.parametrize("pythons", ["3.10", "3.11 three"])
def test_an_unknown_python_is_refused(pythons: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONS", pythons)
    assert words.main([]) == 2


def test_a_run_without_tests_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONS", THIS_VERSION)
    monkeypatch.setattr(words, "suite", lambda *_, first: Tally(0, 0, 3, 0))
    assert words.main([]) == 1


@pytest.mark.parametrize(
    ("exit_code", "report", "tally"),
    [
        (0, REPORT.format(tests=9, failures=0, errors=0, skipped=2, body=SKIPPED), Tally(7, 0, 2, 0, ("needs Java", "needs tc"))),
        (1, REPORT.format(tests=9, failures=1, errors=1, skipped=2, body=SKIPPED), Tally(5, 2, 2, 1, ("needs Java", "needs tc"))),
        (3, REPORT.format(tests=9, failures=0, errors=0, skipped=0, body=""), Tally(9, 0, 0, 3)),
        (0, REPORT.format(tests=9, failures=0, errors=0, skipped=1, body=WHOLE_FOLDER), Tally(8, 0, 1, 0, ("needs lz4",))),
        (0, REPORT.format(tests=9, failures=1, errors=0, skipped=0, body=""), Tally(8, 1, 0, 1)),
        (4, None, Tally(0, 1, 0, 4)),
        (0, None, Tally(0, 1, 0, 1)),
        (5, None, Tally(0, 0, 0, 0)),
    ],
)
def test_a_tally_combines_the_report_and_the_exit_code(
    exit_code: int, report: str | None, tally: Tally, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = f"""case "$3" in --junitxml=*) printf '%s' '{report}' > "${{3#--junitxml=}}";; esac\n""" if report else ""
    fake_python(tmp_path / "bin", f"{write}exit {exit_code}", "").rename(tmp_path / "bin" / "python")
    monkeypatch.setattr(words, "ROOT", tmp_path)
    (tmp_path / "build").mkdir()
    assert words.run_pytest(tmp_path, "3.12", "together", []) == tally


def test_tests_marked_once_run_on_the_first_python_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marks = {
        "once": "pytest.mark.once  # why",
        "alone": "[\n    pytest.mark.alone,\n]",
        "clients": "pytest.mark.clients",
        "kafka": "[pytest.mark.kafka, pytest.mark.once]",
    }
    (tmp_path / "tests").mkdir()
    for name, mark in marks.items():
        (tmp_path / "tests" / f"test_{name}.py").write_text(f"import pytest\n\npytestmark = {mark}\n")
    (tmp_path / "tests" / "test_some.py").write_text("@pytest.mark.once\n@pytest.mark.alone\ndef test_it(): ...\n")
    runs: list[tuple[str, str, list[str]]] = []

    def noting(_: Path, minor: str, part: str, arguments: list[str]) -> Tally:
        runs.append((minor, arguments[1], [argument.removeprefix("--ignore=tests/test_") for argument in arguments if argument.endswith(".py")]))
        return Tally(1, 0, 0, 0)

    monkeypatch.setattr(words, "run_pytest", noting)
    monkeypatch.setattr(words, "ROOT", tmp_path)
    words.suite(Path("one"), "3.11", [], first=True)
    words.suite(Path("two"), "3.12", [], first=False)
    assert runs == [
        ("3.11", "not alone and not clients and not drills and not install and not jetstream and not kafka and not long and not spark", ["alone.py", "clients.py", "kafka.py"]),
        ("3.11", "alone", ["tests/test_alone.py", "tests/test_some.py"]),
        ("3.12", "not alone and not once and not clients and not drills and not install and not jetstream and not kafka and not long and not spark", ["alone.py", "clients.py", "kafka.py", "once.py"]),
    ]
