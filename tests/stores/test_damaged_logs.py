"""If one node cannot read a log of a shared directory, another node tries to."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage import LogId
from tests.stores.nodes import NodesOverOsDisk, NodesOverSimDisk, append

LOG = LogId("__consumer_offsets", 3)


@pytest.fixture(params=["simulated disk", "directory"])
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> NodesOverSimDisk | NodesOverOsDisk:
    return NodesOverSimDisk() if request.param == "simulated disk" else NodesOverOsDisk(tmp_path)


def test_an_unreadable_log_is_released(nodes: NodesOverSimDisk | NodesOverOsDisk) -> None:
    first, second = nodes.start(1), nodes.start(2)
    log = first.own(LOG)
    append(first, log, b"a")
    append(first, log, b"b")
    first.release(LOG)
    folder = first.store.directory.log_folder(*LOG)
    path = f"{folder}/00000000000000000000.log"
    file = first.disk.open(path)
    good = file.read(0, file.size())
    file.write(20, bytes(8))
    file.close()
    second.acquire(LOG)
    first.acquire(LOG)
    file = first.disk.open(path)
    file.truncate(0)
    file.write(0, good)
    file.close()
    nodes.kill(first)
    assert second.keys(second.own(LOG)) == [b"a", b"b"]
