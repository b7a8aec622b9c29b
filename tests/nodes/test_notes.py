"""Notes about groups go to the log before their partition goes to another node: when a node stops in order, and when it is drained."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coordinator import partition_of
from coordinator.notes import ShardChange
from protocol.messages.kinds import NoteKind
from tests.broker.groups.test_damaged_partitions import notes
from tests.nodes.cluster import Nodes
from tests.running import environment, wait_until
from tests.support.restartable import Actor

pytestmark = pytest.mark.once
PARTITIONS = 50  # of __consumer_offsets
STOP_SECONDS = 20.0


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path / "data", 2, "group.initial.rebalance.delay.ms=0")
    yield nodes
    nodes.close()


def stop(nodes: Nodes, id: int) -> None:
    nodes.signal(signal.SIGTERM, id)
    wait_until(lambda: [line for line in nodes.lines if line["event"] == "stopped"], STOP_SECONDS)


def test_history_names_the_node_that_gets_the_group(nodes: Nodes) -> None:
    nodes.start()
    name = next(name for name in (f"group-{number}" for number in range(PARTITIONS)) if nodes.coordinator(name) == 1)
    member = Actor(nodes.port(1), name, "instance")
    assert member.join().error_code == 0
    member.close()
    nodes.drain(1)
    command(nodes, "node", "undrain", "1")
    wait_until(lambda: nodes.coordinator(name) == 1, STOP_SECONDS)
    drained, returned = (line for line in command(nodes, "group", "history", name).splitlines() if "handed this" in line or "stopped" in line)
    assert drained.endswith("the coordinator handed this partition to node 2, because its own node was drained")
    assert returned.endswith("the coordinator handed this partition to node 1")


def command(nodes: Nodes, *words: str) -> str:
    arguments = [sys.executable, "-P", "-m", "tenure", *words, "--bootstrap", nodes.bootstrap]
    return subprocess.run(arguments, env=environment(), capture_output=True, text=True, check=True, timeout=STOP_SECONDS).stdout


@pytest.mark.parametrize("leave", [stop, Nodes.drain])
def test_notes_are_written_before_a_partition_changes_its_node(nodes: Nodes, leave: Callable[[Nodes, int], None]) -> None:
    nodes.start()
    groups = {name for name in (f"group-{number}" for number in range(2 * PARTITIONS)) if nodes.coordinator(name) == 1}
    for name in groups:
        member = Actor(nodes.port(1), name, "instance")
        assert member.join().error_code == 0
        member.close()
    leave(nodes, 1)  # before the node has written the notes that it gathers
    records = notes(nodes.data)
    changes = [
        (partition, body)
        for _, partition, header, body in records
        if header.kind == NoteKind.COORDINATOR and body.what == ShardChange.UNLOADED
    ]
    unloaded = {partition for partition, _ in changes}
    reasons = {(body.to_node, body.drained) for _, body in changes}  # a node that is started again gets its share back
    assert ((-1, False) in reasons, (2, True) in reasons) == (leave is stop, leave is Nodes.drain)
    assert groups
    assert groups <= {group for group, *_ in records}
    assert {partition_of(name, PARTITIONS) for name in groups} <= unloaded
    assert sum(header.dropped for _, _, header, _ in records) == 0
    assert [line for line in nodes.lines if line["event"] == "notes are lost"] == []
