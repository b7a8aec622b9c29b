"""One JVM for all tests that run Spark in this process, and a shared session of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.history.conftest import play as play


@pytest.fixture(scope="session")
def jvm() -> Iterator[None]:
    pytest.importorskip("pyspark")
    yield
    from tests.spark.session import end_jvm

    end_jvm()


@pytest.fixture(scope="module")
def spark(jvm: None) -> Iterator[Any]:
    """A Spark session in which the data source `koffsets` is registered."""
    from pipeline.session import session
    from pipeline.source import CoordinatorLogs
    from tests.spark.session import SETTINGS

    with session("local[2]", SETTINGS) as started:
        started.dataSource.register(CoordinatorLogs)
        yield started
