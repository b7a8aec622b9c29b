"""A Spark session and a broker for all tests; each test has its own topics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.running import Broker, broker
from tests.spark import packages
from tests.spark.outside import KafkaClient
from tests.spark.session import SparkTopics, session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    jars = packages.find()
    if isinstance(jars, str):
        pytest.skip(jars)
    with session(jars, tmp_path_factory.mktemp("spark")) as started:
        yield started


@pytest.fixture(scope="session")
def served(spark: Any) -> Iterator[Broker]:
    settings = ("--set", "num.partitions=3", "--set", "log.cleaner.backoff.ms=100")
    with broker("--profile", "test", "--listen", "127.0.0.1:0", *settings) as started:
        yield started


@pytest.fixture
def kafka(spark: Any, served: Broker) -> SparkTopics:
    return SparkTopics(spark, f"127.0.0.1:{served.port}")


@pytest.fixture
def outside(kafka: SparkTopics) -> KafkaClient:
    return KafkaClient(kafka.bootstrap)


@pytest.fixture
def topic(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An unused topic name."""
    return tmp_path.name
