"""The tests in other languages of docs/languages.md pass as they stand there, with their clients; a language that is not installed is skipped."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.project.listings import listing_named
from tests.running import ROOT, environment

pytestmark = [pytest.mark.once, pytest.mark.clients]

SECONDS = 110  # a test may take 120
PAGE = ROOT / "docs/languages.md"
HELPER_LINES_MAX = 40


class Language(NamedTuple):
    """`helper` and `files`: the page's listings, by the folders where they belong. `fetch`: its packages; what they need is cached for the next run."""

    helper: str
    files: dict[str, str]
    fetch: list[str]
    test: list[str]
    passed: str  # in its output


SOURCES = "src/test/java"
LANGUAGES = {
    "java": Language(
        "Tenure.java",
        {"pom.xml": ".", "Tenure.java": SOURCES, "BillingTest.java": SOURCES, "BillingContainerTest.java": SOURCES},
        ["mvn", "-q", "-B", "test-compile"],
        ["mvn", "-B", "test"],
        "Failures: 0, Errors: 0",
    ),
    "go": Language("tenure_test.go", {"tenure_test.go": ".", "billing_test.go": "."}, ["go", "get", "github.com/twmb/franz-go/pkg/kgo@v1.20.5"], ["go", "test", "-count=1", "."], "ok "),
    "node": Language("tenure.mjs", {"tenure.mjs": ".", "billing.test.mjs": "."}, ["npm", "install", "--silent", "kafkajs@2.2.4"], ["node", "--test"], "pass 1"),
}


def launcher(folder: Path) -> dict[str, str]:
    """The environment of a user who has `tenure` on PATH: the one under test."""
    inherited = environment()
    folder.mkdir()
    script = folder / "tenure"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={inherited["PYTHONPATH"]} exec {sys.executable} -P -m tenure "$@"\n')
    script.chmod(0o755)
    return inherited | {"PATH": f"{folder}{os.pathsep}{inherited['PATH']}"}


@pytest.mark.parametrize("name", LANGUAGES)
def test_a_page_s_test_passes(tmp_path: Path, name: str) -> None:
    language = LANGUAGES[name]
    if shutil.which(language.test[0]) is None:
        pytest.skip(f"{language.test[0]} is not installed")
    inherited = launcher(tmp_path / "bin")
    project = tmp_path / "project"
    for listing, folder in language.files.items():
        (project / folder).mkdir(parents=True, exist_ok=True)
        (project / folder / listing).write_text(listing_named(PAGE, listing))
    if name == "go":
        (project / "go.mod").write_text("module billing\n\ngo 1.24\n")
    outputs = []
    for command in (language.fetch, language.test):
        try:
            done = subprocess.run(command, cwd=project, env=inherited, capture_output=True, text=True, timeout=SECONDS, check=False, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            pytest.skip(f"{' '.join(command)} had not ended after {SECONDS} s: the first time it fetches or compiles packages; run it once more")
        if done.returncode != 0 and command is language.fetch:
            pytest.skip(f"{' '.join(command)} failed: {(done.stderr or done.stdout).strip()[:200]}")
        outputs.append(done.stdout + done.stderr)
        assert done.returncode == 0, outputs[-1]
    assert language.passed in outputs[-1], outputs[-1]


@pytest.mark.parametrize("name", LANGUAGES)
def test_a_helper_is_short(name: str) -> None:
    text = listing_named(PAGE, LANGUAGES[name].helper)
    lines = [line for line in text.splitlines() if line.strip() and not re.match(r"import |\s+\"|package |//|\)|import \(", line)]
    assert len(lines) <= HELPER_LINES_MAX, len(lines)
