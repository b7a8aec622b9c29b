from __future__ import annotations

from pathlib import Path

import pytest

from tests.project.archives import built


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what is built from this checkout."""
    return built(tmp_path_factory.mktemp("checkout") / "tenure", tmp_path_factory.mktemp("dist"))
