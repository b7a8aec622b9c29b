"""The promise of README about several nodes, with the commands of docs/nodes.md: a node is killed, and a consumer does not notice."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nodes.cluster import Nodes
from tests.project.listings import listings
from tests.running import ROOT, environment, wait_until

pytestmark = [pytest.mark.clients, pytest.mark.once]

README, PAGE = ROOT / "README.md", ROOT / "docs/nodes.md"
ALL_NODES = "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
SECONDS = 60.0


class Terminal:
    """A shell with the command `tenure` beside the folder `data`, for a cluster on other ports than those of the page."""

    def __init__(self, folder: Path, nodes: Nodes) -> None:
        self._folder = folder
        self._nodes = nodes
        command = folder / "tenure"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m tenure "$@"\n')
        command.chmod(0o755)

    def start(self, script: str, output: Path) -> subprocess.Popen[bytes]:
        script = script.replace(ALL_NODES, self._nodes.bootstrap)
        env = environment(TENURE_BOOTSTRAP=f"127.0.0.1:{self._nodes.port(1)}", PATH=f"{self._folder}:{os.environ['PATH']}")
        with output.open("wb") as stream:
            return subprocess.Popen(["sh", "-c", script], cwd=self._folder, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, env=env)

    def run(self, script: str) -> str:
        output = self._folder / "output"
        assert self.start(script, output).wait(SECONDS) == 0, output.read_text()
        return output.read_text()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path / "data", 3)
    yield nodes
    nodes.close()


def shown(*words: str) -> list[str]:
    """The lines of the only listing of the page that has all these words."""
    (listing,) = [listing for listing in listings(PAGE) if all(word in listing.text for word in words)]
    return listing.text.splitlines()


def cluster(output: str) -> dict[str, tuple[str, str]]:
    """The last columns of `tenure cluster`, by node: the number of its offsets partitions, and since when it has them."""
    rows = [line.split() for line in output.splitlines() if "127.0.0.1" in line]
    return {row[0]: (row[-3], row[-1]) for row in rows}


def test_the_commands_of_the_page_show_that_a_killed_node_does_not_matter(tmp_path: Path, nodes: Nodes) -> None:
    assert "tenure serve --nodes 3" in README.read_text()
    assert "docs/nodes.md#how-do-i-see-that-nothing-happens-when-one-is-killed" in README.read_text()
    nodes.start()
    terminal = Terminal(tmp_path, nodes)
    assert not {"payments", "ledger"} & set(re.findall(r"\w+", README.read_text())), "a reader of README has them already"
    create, consume = shown("topic create payments")
    produce, look, kill, look_again, history = shown("kill -9", "seq 1 50")
    assert look == look_again

    terminal.run(create)
    consumed = tmp_path / "consumed"
    consumer = terminal.start(f"exec {consume}", consumed)
    try:
        wait_until(lambda: (group := nodes.described("ledger")) is not None and group.group_state == "Stable", SECONDS, 0.1)
        producer = terminal.start(produce.removesuffix("&"), tmp_path / "produced")
        wait_until(lambda: consumed.read_text().count("\n") > 3, SECONDS)
        before = cluster(terminal.run(look))
        terminal.run(kill)
        nodes.await_settled()
        after = cluster(terminal.run(look))
        assert {id: share for id, (share, _) in after.items()} == {id: share for id, (share, _) in before.items()}
        assert after["2"][1] > before["2"][1], "since when node 2 has its partitions"
        assert producer.wait(SECONDS) == 0, (tmp_path / "produced").read_text()
        wait_until(lambda: consumed.read_text().count("\n") >= 50, SECONDS)
        assert sorted(map(int, consumed.read_text().split())) == list(range(1, 51))
        assert consumer.poll() is None
        assert terminal.run(history).count("rebalance,") == 1
    finally:
        consumer.kill()
        consumer.wait()
