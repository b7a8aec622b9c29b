"""ARCHITECTURE's table of changes stays short: a change whose row grows touches too many files."""

from __future__ import annotations

import re

import pytest

from tests.running import ROOT

pytestmark = pytest.mark.once


def test_the_table_of_changes_is_short_and_its_files_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text.partition("## What do I change for ...")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    assert len(rows) > 20
    assert len(table) < 6_600
    assert max(len(cell) for row in rows for cell in row) <= 300
    paths = {name for name in re.findall(r"`([a-z_]+/[\w./]+\.(?:py|toml))`", table) if "NAME" not in name}
    assert len(paths) > 20
    # Some are named from their package on: classic/join.py.
    assert [name for name in paths if not (ROOT / name).exists() and not (ROOT / "coordinator" / name).exists()] == []
