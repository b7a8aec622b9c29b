"""Nodes whose logs are in a started NATS. All share the loop of the test, which runs it until a condition is true."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import TypeVar

from broker.settings.load import load_config
from broker.stores.jetstream.logs import GroupLog
from broker.stores.jetstream.store import JetStreamStore
from broker.stores.jetstream.topic_logs import StreamTopicStore
from storage import NOT_YET, LogId, NodeInfo, OwnedLog
from tests.stores.nodes import Node
from tests.support.nats_engine import NatsEngine

WAIT_SECONDS = 60.0  # time for elections of NATS on a busy machine
LEASE_MS = 2_000
T = TypeVar("T")
_clusters = count()


class JetStreamNode(Node):
    store: JetStreamStore

    def __init__(self, nodes: NodesOverJetStream, id: int, flush: str) -> None:
        self.id = id
        self._nodes = nodes
        self.loop = nodes.loop
        config = load_config(
            settings=[
                f"store={nodes.urls.get(id, nodes.url)}", f"cluster.name={nodes.cluster}", f"node.id={id}", f"store.replicas={nodes.replicas}",
                f"store.lease.ms={nodes.lease_ms}", f"offsets.flush={flush}",
            ],
            environ={},
        )
        self.store = JetStreamStore(config, self.loop, wall_ns=nodes.wall_ns)
        self.loop.run_until_complete(self.store.open())
        self.loop.run_until_complete(self.store.join(NodeInfo(id, (("PLAINTEXT", "127.0.0.1", 9000 + id),))))
        self.topics = StreamTopicStore(self.store)

    def wait(self, condition: Callable[[], T]) -> T:
        return self._nodes.wait(condition)

    def run(self) -> None:
        """Let every node read the messages that all nodes have sent."""
        self._nodes.settle()

    def own(self, id: LogId) -> GroupLog:
        log = super().own(id)
        assert isinstance(log, GroupLog)
        return log

    def release(self, id: LogId) -> None:
        released: list[bool] = []
        self.store.release(id, lambda: released.append(True))
        self.wait(lambda: released)
        self.run()

    def stop(self) -> None:
        super().stop()
        self._nodes.gone(self)

    def keys(self, log: OwnedLog) -> list[bytes]:
        found = []
        for facts in log.replay():
            if facts is NOT_YET:
                self.loop.run_until_complete(asyncio.sleep(0.001))
            found += [fact[0] for fact in facts]
        return found


class NodesOverJetStream:
    """The nodes of a separate cluster, over the NATS servers that all tests share."""

    def __init__(self, engine: NatsEngine, cluster: str, loop: asyncio.AbstractEventLoop) -> None:
        self.engine = engine
        self.url = engine.url
        self.cluster = cluster
        self.replicas = len(engine.servers)
        self.loop = loop
        self.urls: dict[int, str] = {}  # by node id: the address at which the node reaches NATS, if not the usual one
        self.lease_ms = LEASE_MS
        self.wall_ns: Callable[[], int] = time.time_ns
        self._live: list[JetStreamNode] = []

    def start(self, id: int, flush: str = "always") -> JetStreamNode:
        node = JetStreamNode(self, id, flush)
        self._live.append(node)
        self.settle()
        ids = {node.id for node in self._live}
        self.wait(lambda: node.store.view().live.keys() <= ids)  # until nodes that were killed do not count as live: their last messages may be recent
        return node

    def wait(self, found: Callable[[], T]) -> T:
        async def poll() -> T:
            async with asyncio.timeout(WAIT_SECONDS):
                while not (value := found()):
                    await asyncio.sleep(0.001)
                return value

        return self.loop.run_until_complete(poll())

    def settle(self) -> None:
        reads: list[bool] = []
        live_stores = [node for node in self._live if not node.store.meta.closed]
        for node in live_stores:
            node.store.meta.refresh(reads.append)
        self.wait(lambda: len(reads) == len(live_stores))

    def end(self, node: JetStreamNode, next_owner: JetStreamNode) -> None:
        """Kill a node, and tell the next owner at once, so that the test need not wait for the lease."""
        node.store.close()
        self._live.remove(node)
        current: list[bool] = []
        next_owner.store.meta.when_current(lambda: current.append(True))  # also the last heartbeat of the killed node
        self.wait(lambda: current)
        if node.id in next_owner.store.view().live:
            next_owner.store.meta._remove_node(node.id)

    def gone(self, node: JetStreamNode) -> None:
        self._live.remove(node)
        self.wait(lambda: all(node.id not in other.store.view().live for other in self._live))

    def kill(self, node: Node) -> None:
        """Kill a node; the others notice when its lease has ended."""
        assert isinstance(node, JetStreamNode)
        node.store.close()
        self.gone(node)

    def close(self) -> None:
        for node in self._live:
            node.store.close()
        self.loop.run_until_complete(asyncio.sleep(0.01))


def over_jetstream(engine: NatsEngine, lease_ms: int = LEASE_MS) -> Iterator[NodesOverJetStream]:
    loop = asyncio.new_event_loop()
    nodes = NodesOverJetStream(engine, f"c{next(_clusters)}", loop)
    nodes.lease_ms = lease_ms
    try:
        yield nodes
    finally:
        nodes.close()
        loop.close()
