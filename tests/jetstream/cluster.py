"""A cluster of node processes whose logs are in JetStream, on three NATS servers; the test restarts the nodes that it killed."""

from __future__ import annotations

import json
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.nodes.cluster import Line, Nodes
from tests.running import Broker
from tests.support.nats_engine import NatsEngine

CLUSTER = "campaign"


class StreamNodes(Nodes):
    def __init__(self, data: Path, count: int, *settings: str, servers: int = 3, path: str = "") -> None:
        """`servers`: the number of NATS servers; `path`: the PYTHONPATH of the node processes."""
        super().__init__(data, count)
        self.engine = NatsEngine(data, servers)
        self.urls: dict[int, str] = {}  # by node id: the address at which the node reaches NATS, if not the usual one
        self.reached_at: dict[int, int] = {}  # by node id: the port at which clients reach it, if not its own
        self._environment = {"PYTHONPATH": path} if path else {}
        self._processes: dict[int, Broker] = {}
        self._ended: list[str] = []
        self._settings = [f"cluster.nodes={count}", "offsets.topic.num.partitions=12", f"store.replicas={servers}", *settings]

    def start(self) -> None:
        with ThreadPoolExecutor() as together:
            list(together.map(self.start_node, self.ids))
        self.await_settled()

    def start_node(self, id: int) -> None:
        settings = [word for setting in self._settings for word in ("--set", setting)]
        place = ("--store", self.urls.get(id, self.engine.url), "--cluster", CLUSTER, "--node-id", str(id))
        addresses = ("--listen", f"127.0.0.1:{super().port(id)}", "--advertise", f"127.0.0.1:{self.port(id)}")
        self._processes[id] = Broker(*place, *addresses, *settings, **self._environment)  # type: ignore[arg-type]

    def port(self, id: int) -> int:
        return self.reached_at.get(id) or super().port(id)

    def end_node(self, id: int, number: signal.Signals = signal.SIGKILL) -> None:
        broker = self._processes.pop(id)
        broker.signal(number)
        broker.wait(20)
        self._ended.append(broker.errors())
        broker.kill()

    @property
    def lines(self) -> list[Line]:
        texts = [*self._ended, *(broker.errors() for broker in self._processes.values())]
        return [json.loads(line) for text in texts for line in text.split("\n") if line.startswith("{")]

    def pid(self, id: int) -> int:
        return self._processes[id].pid

    def stop(self) -> int:
        codes = [broker.stop() for broker in self._processes.values()]
        return max(codes)

    def close(self) -> None:
        for broker in self._processes.values():
            broker.kill()
        self.engine.stop()
