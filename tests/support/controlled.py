"""A process with test control for each worker of pytest, and clusters in it, which take milliseconds: `controlled(topics=..., settings=...)`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tenure.testing import Cluster, Process
from tests.running import environment

Controlled = Callable[..., Cluster]


@contextmanager
def code_under_test() -> Iterator[None]:
    """What the library starts here is the code under test, which may be a compiled copy."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment())
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(scope="session")
def process() -> Iterator[Process]:
    with code_under_test():
        started = Process()
    yield started
    assert started.running, "\n".join(started.lines)
    defects = [line for line in started.lines if "inside the broker" in line]
    started.stop()
    assert not defects, "\n".join(defects)


@pytest.fixture
def controlled(process: Process) -> Iterator[Controlled]:
    """Makes clusters of this test: `controlled(topics={"orders": 6}, settings={"group.max.size": 2})`."""
    with ExitStack() as made:
        yield lambda **has: made.enter_context(Cluster.make(process.control, **has))


def port_of(kafka: Cluster) -> int:
    return int(kafka.bootstrap.rpartition(":")[2])
