"""What the tests of `tenure log` share: a sound data directory, and the command beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.log_folders import Command, Folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "data")


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path, capsys)
