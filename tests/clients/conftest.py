"""The installed clients, each as a function that connects it, and groups of their members."""

from __future__ import annotations

import gc
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from subprocess import Popen
from typing import Any, NamedTuple

import pytest

from tests.clients.each import Aiokafka, AnyClient, Confluent, Java, KafkaPython, java_probe
from tests.clients.java_tools import Tools, java_tools
from tests.clients.members import MemberProcess, compiled_probe, java_host
from tests.clients.membership import Group
from tests.oracle import kafka_jars

Connect = Callable[..., AnyClient]


def open_sockets() -> list[socket.socket]:
    return [candidate for candidate in gc.get_objects() if type(candidate) is socket.socket and candidate.family != socket.AF_UNIX and candidate.fileno() >= 0]


@pytest.fixture(autouse=True)
def close_leaked_sockets() -> Iterator[None]:
    """Close sockets that a client library left open (kafka-python: refused connections): a later test would fail with their ResourceWarning."""
    before = {id(open_socket) for open_socket in open_sockets()}
    yield
    for open_socket in open_sockets():
        if id(open_socket) not in before:
            open_socket.close()


@pytest.fixture(scope="session")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Popen[str]]:
    with java_probe(tmp_path_factory.mktemp("java")) as probe:
        yield probe


@pytest.fixture(params=[KafkaPython, Aiokafka, Confluent, Java], ids=["kafka-python", "aiokafka", "confluent-kafka", "java"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Connects one kind of client; its connections are closed at the end."""
    client = partial(Java, request.getfixturevalue("jvm")) if request.param is Java else request.param
    with ExitStack() as opened:

        def connect(bootstrap: str, **more: float) -> AnyClient:
            connected: AnyClient = client(bootstrap, **more)
            opened.callback(connected.close)
            return connected

        yield connect


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    with java_tools(tmp_path_factory.mktemp("tools")) as started:
        yield started


class JavaMembers(NamedTuple):
    """The class path of Java members, and the JVM that they share unless they run alone."""

    jars: Path
    classes: Path
    shared: MemberProcess


@pytest.fixture(scope="session")
def member_probe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaMembers]:
    jars = kafka_jars()
    if shutil.which("javac") is None:
        pytest.skip("members by Kafka's Java client need javac, which is not on PATH")
    classes = compiled_probe(jars)
    shared = java_host(jars, classes, tmp_path_factory.mktemp("member-probe") / "errors")
    yield JavaMembers(jars, classes, shared)
    shared.kill()


@pytest.fixture
def make_group(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Group]]:
    """Creates groups, each on a separate broker; groups and members end with the test."""

    def jvm(alone: bool) -> MemberProcess:
        members: JavaMembers = request.getfixturevalue("member_probe")
        return java_host(members.jars, members.classes, tmp_path / "errors-of-java") if alone else members.shared

    with ExitStack() as stack:

        def make_group(kind: type[Group] = Group, **settings: Any) -> Group:
            group = kind(tmp_path, jvm, **settings)
            stack.callback(group.close)
            return group

        yield make_group


@pytest.fixture
def group(make_group: Callable[..., Group]) -> Group:
    return make_group()
