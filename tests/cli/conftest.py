"""Fixtures of the command's tests: a sound data directory, its logs, a started broker, a client of it, and the command in this process."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest

import cli
from cli import client
from cli.arguments import addresses
from tenure.testing import Cluster, Process
from tests.cli.admin import Admin, port_of
from tests.cli.log_folders import Command, Folder

NUMBERS = count()


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str


class Tenure(Protocol):
    def __call__(self, *arguments: str, stdin: str | bytes = "") -> CommandResult: ...


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "data")


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path, capsys)


@pytest.fixture(scope="session")
def bootstrap(process: Process) -> Iterator[str]:
    """HOST:PORT of a cluster shared by all tests: each test uses its own group and topic names."""
    with Cluster.make(process.control) as made:
        yield made.bootstrap


@pytest.fixture(scope="module")
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(port_of(bootstrap)) as opened:
        yield opened


@pytest.fixture
def tenure(monkeypatch: pytest.MonkeyPatch) -> Tenure:
    """Run `tenure ARGUMENTS` in this process, with streams that are not a terminal."""

    def run(*arguments: str, stdin: str | bytes = "") -> CommandResult:
        stream = io.TextIOWrapper(io.BytesIO(stdin.encode() if isinstance(stdin, str) else stdin), "utf-8")
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "surrogateescape", newline="", write_through=True) for _ in range(2))
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", stream)
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            try:
                code = cli.main(arguments)
            except SystemExit as end:
                code = int(end.code or 0)
        return CommandResult(code, text_of(out), text_of(err))

    return run


def with_bootstrap(bootstrap: str, tenure: Tenure) -> Tenure:
    """Run `tenure ARGUMENTS --bootstrap BOOTSTRAP`."""
    return lambda *arguments, stdin="": tenure(*arguments, "--bootstrap", bootstrap, stdin=stdin)


@pytest.fixture
def client_command(tenure: Tenure, bootstrap: str) -> Tenure:
    """Run `tenure ARGUMENTS` against the started broker."""
    return with_bootstrap(bootstrap, tenure)


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[client.Cluster]:
    with client.Cluster(addresses(bootstrap), 5) as opened:
        yield opened


@pytest.fixture
def name(bootstrap: str) -> str:
    """An unused name for a topic and a group; no name is part of another."""
    return f"name-{next(NUMBERS)}.{port_of(bootstrap)}"


@pytest.fixture
def topic(client_command: Tenure, name: str) -> str:
    """A topic of two empty partitions."""
    assert client_command("topic", "create", name, "--partitions", "2").code == 0
    return name


def text_of(stream: io.TextIOWrapper) -> str:
    stream.flush()
    written = stream.buffer
    assert isinstance(written, io.BytesIO)
    return written.getvalue().decode("utf-8", "surrogateescape")
