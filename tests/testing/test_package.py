"""The wheel of pytest-tenure: the plugin, the library for tests, and nothing else."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest

from tenure import __version__
from tests.project.archives import plugin_wheel
from tests.running import ROOT

pytestmark = pytest.mark.once


def test_the_wheel_has_the_plugin_and_the_library(tmp_path: Path) -> None:
    wheel = plugin_wheel(tmp_path)
    with ZipFile(wheel) as opened:
        names = [name for name in opened.namelist() if ".dist-info/" not in name]
        (points,) = [name for name in opened.namelist() if name.endswith("entry_points.txt")]
        assert "tenure = pytest_tenure.plugin" in opened.read(points).decode()
        (version,) = [name.split("-")[1] for name in opened.namelist() if name.endswith("/METADATA")]
    assert version.removesuffix(".dist") == __version__, "a release raises both"
    library = sorted(path.name for path in (ROOT / "tenure" / "testing").glob("*.py"))
    assert sorted(names) == sorted(["pytest_tenure/__init__.py", "pytest_tenure/plugin.py", *(f"pytest_tenure/_testing/{name}" for name in library)])
    assert not (tmp_path / "pytest-tenure" / "build").exists()
