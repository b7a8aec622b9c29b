"""What the tests of the command share: a sound data directory and the logs beside it, a started broker, and the command in this process."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest

import cli
from tests.cli.log_folders import Command, Folder
from tests.running import broker


class Result(NamedTuple):
    code: int
    out: str
    err: str


class Tenure(Protocol):
    def __call__(self, *arguments: str, stdin: str | bytes = "") -> Result: ...


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "data")


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path, capsys)


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    """HOST:PORT of one broker for all: names of groups and topics are the tests' own."""
    with broker("--profile", "test") as started:
        yield f"127.0.0.1:{started.port}"


@pytest.fixture
def tenure(monkeypatch: pytest.MonkeyPatch) -> Tenure:
    """`tenure ARGUMENTS` in this process, not on a terminal."""

    def run(*arguments: str, stdin: str | bytes = "") -> Result:
        given = io.TextIOWrapper(io.BytesIO(stdin.encode() if isinstance(stdin, str) else stdin), "utf-8")
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "surrogateescape", newline="", write_through=True) for _ in range(2))
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", given)
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            try:
                code = cli.main(arguments)
            except SystemExit as end:
                code = int(end.code or 0)
        return Result(code, text_of(out), text_of(err))

    return run


def text_of(stream: io.TextIOWrapper) -> str:
    stream.flush()
    written = stream.buffer
    assert isinstance(written, io.BytesIO)
    return written.getvalue().decode("utf-8", "surrogateescape")
