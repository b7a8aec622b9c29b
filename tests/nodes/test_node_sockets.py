"""The sockets at which started nodes reach each other."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from broker.runtime.start import ExitCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.nodes.cluster import Nodes
from tests.nodes.test_supervisor import refused

pytestmark = pytest.mark.once

PROBED_SECONDS = 4.0  # several times the time after which the supervisor kills a silent node


@pytest.mark.parametrize("folder", ["short", "long-" + "x" * 150])
def test_nodes_reach_each_other_in_any_directory_and_after_a_kill(tmp_path: Path, folder: str) -> None:
    data = tmp_path / folder
    nodes = Nodes(data, 2, "cluster.node.timeout.ms=1000")
    try:
        nodes.start()
        follower = next(id for id in nodes.ids if id != nodes.controller())
        path = data / "nodes" / f"{follower}.sock"
        inode = path.stat().st_ino
        nodes.kill(follower)  # leaves its socket
        nodes.await_settled(follower)
        nodes.await_settled()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.stat().st_ino != inode or path.is_socket()
        pids = [nodes.pid(id) for id in nodes.ids]
        time.sleep(PROBED_SECONDS)
        assert [nodes.pid(id) for id in nodes.ids] == pids
        for id in nodes.ids:
            with nodes.client(id) as client:
                reply = client.ask(CreateTopicsRequest([CreatableTopic(f"by-{id}", 1, 1)], 5_000), 7)
                assert [topic.error_code for topic in reply.topics] == [0]
        assert nodes.stop() == 0
        assert not list((data / "nodes").glob("*.sock"))
    finally:
        nodes.close()


def test_a_directory_without_unix_sockets_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "nodes" / "1.sock").mkdir(parents=True)  # a socket cannot be made there
    code, lines = refused("--nodes", "2", "--listen", "127.0.0.1:0", "--data", str(tmp_path))
    assert code == ExitCode.DIRECTORY
    (line,) = lines
    assert line.startswith(f"tenure: data directory {os.path.abspath(tmp_path)}: several nodes need Unix sockets in it, and nodes/1.sock cannot be made: ")
