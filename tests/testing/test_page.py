"""The tests of docs/control.md pass as they stand there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.project.listings import listing_named
from tests.running import ROOT
from tests.testing.test_plugin import Project

pytestmark = pytest.mark.once


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    pytest.importorskip("kafka", reason="kafka-python is not installed for this Python")
    project = Project(tmp_path)
    (tmp_path / "test_billing.py").write_text(listing_named(ROOT / "docs/control.md", "test_billing.py"))
    done = project.run("-W", "default", seconds=300)
    assert "3 passed" in done.stdout, done.stdout + done.stderr
