"""A process with the test control for each worker, and a cluster in it for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tenure.testing import Cluster, Process
from tests.docker.conftest import image
from tests.running import environment


@pytest.fixture(scope="session")
def process() -> Iterator[Process]:
    """Started with the code under test, which may be a compiled copy."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment())
    try:
        started = Process()
    finally:
        os.environ.clear()
        os.environ.update(before)
    yield started
    assert started.running, "\n".join(started.lines)
    defects = [line for line in started.lines if "inside the broker" in line]
    started.stop()
    assert not defects, "\n".join(defects)


@pytest.fixture
def kafka(process: Process) -> Iterator[Cluster]:
    cluster = Cluster.make(process.control)
    yield cluster
    cluster.close()


__all__ = ["image", "kafka", "process"]
