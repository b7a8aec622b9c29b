"""The cluster of a test, the image of a broker, and a project that uses the plugin."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure.testing import Cluster
from tests.docker.conftest import image
from tests.support.controlled import Controlled
from tests.testing.project import Project


@pytest.fixture
def kafka(controlled: Controlled) -> Cluster:
    return controlled()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


__all__ = ["image", "kafka", "project"]
