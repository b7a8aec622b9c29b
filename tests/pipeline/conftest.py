"""One JVM for all tests that run a Spark in this process, and a session of it for those that do not care which."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def jvm() -> Iterator[None]:
    pytest.importorskip("pyspark")
    yield
    from tests.spark.session import end_jvm

    end_jvm()


@pytest.fixture(scope="module")
def spark(jvm: None) -> Iterator[Any]:
    """It knows the data source `koffsets`."""
    from pipeline.session import session
    from pipeline.source import CoordinatorLogs
    from tests.spark.session import SETTINGS

    with session("local[2]", SETTINGS) as started:
        started.dataSource.register(CoordinatorLogs)
        yield started
