"""Drills: invented additions, each a patch in drills/, touch few files, pass the checks and are seen wherever a user looks for them.

A file counts unless it is a test, a page or generated.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.project.listings import listings
from tests.running import ROOT, environment

pytestmark = [pytest.mark.once, pytest.mark.drills]

DRILLS: Final = Path(__file__).parent / "drills"
FILES_MAX: Final = {"policy": 4, "cause": 3, "removal": 3, "setting": 3, "topic_setting": 3, "record": 4, "assignor": 2}
NOT_COPIED: Final = shutil.ignore_patterns(".git", ".venv*", "build", "dist", "data", ".cache", ".hypothesis", ".pytest_cache", "__pycache__", "*.so")
NOT_COUNTED: Final = re.compile(r"tests/|docs/.*\.md$|protocol/messages/|[A-Z]+\.md$")
MINUTES: Final = 8


@pytest.mark.parametrize("name", FILES_MAX)
def test_an_addition_touches_few_files_and_is_seen_everywhere(name: str, tmp_path: Path) -> None:
    patch = DRILLS / f"{name}.patch"
    touched = {path for path in re.findall(r"^\+\+\+ ([^\s]+)", patch.read_text(), re.MULTILINE) if not NOT_COUNTED.match(path)}
    assert len(touched) <= FILES_MAX[name], touched
    copy = copied(tmp_path)
    run(copy, ["patch", "--quiet", "-p0", "--fuzz=0", "-i", str(patch)])
    run_all(copy, "generate")
    run_all(copy, "check")
    assert {question: answer for question, answer in asked(copy, name).items() if answer is not True} == {}


@pytest.mark.parametrize("name", FILES_MAX)
def test_without_the_addition_each_question_is_answered_no(name: str) -> None:
    answers = asked(ROOT, name)
    assert answers
    assert {question for question, answer in answers.items() if answer is True} == set()


def test_the_page_shows_the_assignor_of_the_drill() -> None:
    page = ROOT / "docs" / "assignors.md"
    (row,) = listings(page, "diff")
    file, _ = listings(page, "python")
    patch = (DRILLS / "assignor.patch").read_text().splitlines(keepends=True)
    assert "".join(line for line in patch if re.match(r"\+(?!\+\+ )", line)) == row.text + re.sub("^", "+", file.text.rstrip("\n"), flags=re.MULTILINE) + "\n"


@pytest.mark.parametrize("name", ["policy", "cause", "removal"])
def test_an_addition_without_its_row_is_noticed(name: str, tmp_path: Path) -> None:
    copy = copied(tmp_path)
    run(copy, ["patch", "--quiet", "-p0", "-i", str(DRILLS / f"{name}.patch")])
    shutil.copy(ROOT / "history" / "causes.py", copy / "history")
    with pytest.raises(AssertionError, match="has no row"):
        run_all(copy, "generate")


def copied(folder: Path) -> Path:
    """A copy of the checkout with mypy's cache, so that mypy checks only what an addition changes."""
    copy = folder / "copy"
    shutil.copytree(ROOT, copy, ignore=NOT_COPIED, symlinks=True)
    return copy


def run_all(folder: Path, word: str) -> None:
    """Run what this word of the Makefile runs."""
    recipe = re.search(rf"^{word}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    binaries = Path(sys.executable).parent
    for line in recipe[1].splitlines():
        run(folder, line.strip().replace("$(BIN)", str(binaries)).split())


def asked(folder: Path, name: str) -> dict[str, Any]:
    answers: dict[str, Any] = json.loads(run(folder, [sys.executable, "-P", "-m", "tests.project.drills.questions", name]).splitlines()[-1])
    return answers


def run(folder: Path, command: Sequence[str]) -> str:
    done = subprocess.run(command, cwd=folder, env=environment(PYTHONPATH=str(folder)), capture_output=True, text=True, timeout=60 * MINUTES, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout
