"""The commands of README, run as they are there, in a folder with `.venv/bin/tenure`: what it promises of a static member comes true."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project.listings import listings
from tests.running import ROOT, Broker, broker, environment, wait_until

pytestmark = [pytest.mark.clients, pytest.mark.once]

SECONDS = 60.0


def shown(*words: str) -> str:
    """The only listing of README that has these words."""
    (listing,) = [listing for listing in listings(ROOT / "README.md", "") if all(word in listing.text for word in words)]
    return listing.text


class Terminal:
    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self._environment = environment(TENURE_BOOTSTRAP=f"127.0.0.1:{port}")
        command = folder / ".venv" / "bin" / "tenure"
        command.parent.mkdir(parents=True)
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m tenure "$@"\n')
        command.chmod(0o755)

    def start(self, script: str, output: Path) -> subprocess.Popen[bytes]:
        with output.open("wb") as stream:
            command = ["sh", "-c", f"exec {script}" if "|" not in script else script]
            return subprocess.Popen(command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, env=self._environment)

    def run(self, script: str) -> str:
        output = self._folder / "output"
        assert self.start(script, output).wait(SECONDS) == 0, output.read_text()
        return output.read_text()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Broker]:
    with broker("--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0") as started:  # as `make run` does, on another port
        yield started


def test_the_static_member_of_the_readme_keeps_its_partitions(served: Broker, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, served.port)
    terminal.run(shown("produce orders"))
    consume = shown("consume orders", "--instance")
    first, second = tmp_path / "first", tmp_path / "second"
    started = terminal.start(consume, first)
    wait_until(lambda: {"1", "2", "3"} <= set(first.read_text().split()), SECONDS, state=first.read_text)
    started.kill()
    started.wait()
    again = terminal.start(consume, second)
    try:
        history = ".venv/bin/tenure group history billing"
        wait_until(lambda: "billing-1 returned after" in terminal.run(history), SECONDS, pause=0.5, state=second.read_text)
        text = terminal.run(history)
    finally:
        again.kill()
        again.wait()
    assert f"`{history.rpartition('/')[2]}`" in (ROOT / "README.md").read_text()
    assert text.count("rebalance, generation") == 1
    assert "kept its seat: no rebalance" in text
