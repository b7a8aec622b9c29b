"""Short forms of `make soak ARGS="--only control"`, and what its checks find."""

from __future__ import annotations

import gc
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tenure.testing import Broker, Cluster
from tests.running import environment
from tests.soak.control import GROWTH_KIB_MAX, SERVE, brokers_leave_something, growth_of_clusters, open_ports, processes_with

pytestmark = [pytest.mark.once, pytest.mark.skipif(sys.platform != "linux", reason="processes and memory are read from /proc")]


ORPHAN = (
    "import os, subprocess, sys\n"
    "broker = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)\n"
    "print(broker.pid, flush=True)\n"
    "os._exit(0)\n"
)


def tell(line: str) -> None:
    print(line, flush=True)


def test_brokers_that_end_at_any_moment_leave_nothing() -> None:
    assert brokers_leave_something(10, 7, tell) == []


def test_a_broker_whose_parent_ended_before_it_could_look_ends() -> None:
    """Its parent is init then, and its pipe is closed: the address and the token are told to nobody."""
    command = [sys.executable, "-P", "-c", ORPHAN, sys.executable, *SERVE]
    pid = int(subprocess.run(command, env=environment(), stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout)
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_clusters_made_and_deleted_leave_no_memory() -> None:
    assert growth_of_clusters(500, tell) <= GROWTH_KIB_MAX


def test_a_deleted_cluster_leaves_no_object() -> None:
    """What each cluster leaves behind is too little to be seen in the memory of 500."""

    def objects_after(clusters: int) -> int:
        for _ in range(clusters):
            Cluster.make(kafka.control, topics={"orders": 2}).close()
        gc.collect()
        return len(gc.get_objects())

    with Broker(in_process=True) as kafka:
        before = objects_after(50)
        assert objects_after(100) - before < 150  # caches, as that of urllib; three objects for each cluster would be 300


def test_what_is_left_is_found(tmp_path: Path) -> None:
    left = subprocess.Popen([sys.executable, "-c", "input()"], env=environment() | {"TMPDIR": str(tmp_path)}, stdin=subprocess.PIPE)
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port: int = server.getsockname()[1]
            assert open_ports({port}) == [f"port {port}"]
        assert open_ports({port}) == []
        assert [line.split(":")[0] for line in processes_with(str(tmp_path))] == [f"process {left.pid}"]
    finally:
        left.communicate(b"\n", timeout=30)
    assert processes_with(str(tmp_path)) == []
