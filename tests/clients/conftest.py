"""One fixture: the clients that are here, each as a function that connects it."""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from subprocess import Popen

import pytest

from tests.clients.each import Aiokafka, AnyClient, Confluent, Java, KafkaPython, java_probe

Connect = Callable[..., AnyClient]


def open_sockets() -> list[socket.socket]:
    return [thing for thing in gc.get_objects() if type(thing) is socket.socket and thing.family != socket.AF_UNIX and thing.fileno() >= 0]


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Close what a client library forgot (kafka-python the sockets of refused connects), else a later test is blamed for it."""
    before = {id(one) for one in open_sockets()}
    yield
    for one in open_sockets():
        if id(one) not in before:
            one.close()


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
