"""A node that writes logs while faults happen, and the next owner of these logs, which must find the acknowledged entries."""

from __future__ import annotations

import asyncio

from protocol.batch import build_facts
from storage import AppendFailed, LogId
from tests.stores.jetstream_nodes import JetStreamNode, NodesOverJetStream


class Writer:
    """Appends numbers to some logs of one node; after a failure it recovers the log, as a journal does."""

    def __init__(self, node: JetStreamNode, logs: int = 3, value: bytes = b"1") -> None:
        self.node = node
        self.ids = [LogId("__consumer_offsets", number) for number in range(logs)]
        self.logs = {id: node.own(id) for id in self.ids}
        self.acknowledged: dict[LogId, list[bytes]] = {id: [] for id in self.ids}
        self.failures: list[AppendFailed] = []
        self._value = value
        self._count = 0
        self._waiting = 0
        self._recovering: set[LogId] = set()

    def append(self) -> None:
        """Append to each log."""
        self._count += 1
        key = b"%d" % self._count
        for id, log in self.logs.items():
            if log.usable():
                self._waiting += 1
                log.append(build_facts([(key, self._value)], 1), 1, lambda result, id=id: self._done(id, key, result))  # type: ignore[misc]
            elif id not in self._recovering:
                self._recovering.add(id)
                log.recover(lambda failure, id=id: self._recovering.discard(id))  # type: ignore[misc]

    def _done(self, id: LogId, key: bytes, result: int | AppendFailed) -> None:
        self._waiting -= 1
        if isinstance(result, AppendFailed):
            self.failures.append(result)
        else:
            self.acknowledged[id].append(key)

    def append_for(self, seconds: float) -> None:
        """Append 50 times a second, for that long."""
        until = self.node.loop.time() + seconds
        while self.node.loop.time() < until:
            self.append()
            self.node.loop.run_until_complete(asyncio.sleep(0.02))

    def until_all_acknowledge(self) -> None:
        """Append until each log has acknowledged an append again."""
        before = {id: len(keys) for id, keys in self.acknowledged.items()}

        async def appended() -> None:
            async with asyncio.timeout(60):
                while any(len(keys) == before[id] for id, keys in self.acknowledged.items()):
                    self.append()
                    await asyncio.sleep(0.05)

        self.node.loop.run_until_complete(appended())

    def settle(self) -> None:
        self.node.wait(lambda: not self._waiting)

    @property
    def count(self) -> int:
        return sum(len(keys) for keys in self.acknowledged.values())


def check_next_owner(nodes: NodesOverJetStream, writer: Writer, next_owner: JetStreamNode) -> None:
    """Kill the writer, and check that the next owner has everything that was acknowledged, once and in order."""
    writer.settle()
    nodes.end(writer.node, next_owner)
    for id, acknowledged in writer.acknowledged.items():
        found = next_owner.keys(next_owner.own(id))
        assert sorted(set(found), key=int) == found, f"{id}: an entry comes twice, or out of order"
        assert set(acknowledged) <= set(found), f"{id}: an acknowledged entry is gone"
