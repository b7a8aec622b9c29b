"""The table of test tools in docs/compared.md: what Tenure has is shown by a test, and what it lacks says so."""

from __future__ import annotations

import re

import pytest

from tests.running import ROOT

pytestmark = pytest.mark.once

HEADING = "## Which test tool can do what to a group?"
TESTS = {
    name: file
    for folder in ("testing", "project")
    for file in (ROOT / "tests" / folder).glob("test_*.py")
    for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)
}


def rows() -> list[list[str]]:
    section = (ROOT / "docs/compared.md").read_text().split(HEADING)[1].split("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("| ")][1:]


def test_the_table_is_whole() -> None:
    assert len(rows()) > 25
    assert {len(row) for row in rows()} == {7}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_what_tenure_has_is_shown_by_a_test(row: list[str]) -> None:
    _, ours, shown_by, *others = row
    if ours == "no":
        assert not shown_by
        assert set(others) != {"no"}, "a row that no tool has"
        return
    names = re.findall(r"`(test_\w+)`", shown_by)
    assert names
    assert set(names) <= TESTS.keys()
