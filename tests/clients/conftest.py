"""One fixture: the clients that are here, each as a function that connects it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from subprocess import Popen

import pytest

from tests.clients.each import Aiokafka, AnyClient, Confluent, Java, KafkaPython, java_probe

Connect = Callable[..., AnyClient]


@pytest.fixture(scope="session")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Popen[str]]:
    with java_probe(tmp_path_factory.mktemp("java")) as probe:
        yield probe


@pytest.fixture(params=[KafkaPython, Aiokafka, Confluent, Java], ids=["kafka-python", "aiokafka", "confluent-kafka", "java"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Connects one kind of client; whatever it connected is closed at the end."""
    client = partial(Java, request.getfixturevalue("jvm")) if request.param is Java else request.param
    with ExitStack() as opened:

        def connect(bootstrap: str, **more: float) -> AnyClient:
            connected: AnyClient = client(bootstrap, **more)
            opened.callback(connected.close)
            return connected

        yield connect
    gc.collect()  # what a client forgot to close is told here, not in the next test
