"""Nodes over one set of logs, whose loops and threads run step by step; a class of nodes for each store."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Protocol, TypeVar, cast

from broker.cluster.store import ClusterStore, SharedView
from broker.runtime.workers import Workers
from broker.settings.load import load_config
from broker.stores.port import BrokerStore
from broker.stores.shared import SharedStore, SharedTopicStore
from protocol.batch import build_facts
from simulator.disk import SimDisk
from storage import (
    AppendFailed,
    Disk,
    HeldBy,
    LogId,
    NodeInfo,
    OsDisk,
    OwnedLog,
    Producers,
    ServedLog,
    SharedDisk,
    TopicInfo,
    TopicLog,
    TopicStore,
    Unreadable,
)
from tests.support.local_stores import Threads
from tests.support.stepped_loop import SteppedLoop

TOPIC_ID = bytes(range(16))
T = TypeVar("T")


class Store(BrokerStore, ClusterStore, Protocol):
    """The interface of a store that these tests use: that of the broker, and some methods more."""

    def view(self) -> SharedView: ...

    def owned_log(self, id: LogId) -> ServedLog | None: ...


class Node(ABC):
    """A node process over a store."""

    store: Store
    topics: TopicStore

    @abstractmethod
    def run(self) -> None:
        """Run until no work is pending."""

    @abstractmethod
    def wait(self, condition: Callable[[], T]) -> T:
        """Run until the condition is true."""

    @abstractmethod
    def keys(self, log: OwnedLog) -> list[bytes]:
        """The keys of all records, by a replay."""

    def acquire(self, id: LogId) -> OwnedLog | HeldBy | Unreadable:
        return self.acquire_all([id])[0]

    def acquire_all(self, ids: list[LogId]) -> list[OwnedLog | HeldBy | Unreadable]:
        results: list[Any] = [None] * len(ids)
        for number, id in enumerate(ids):
            self.store.acquire(id, partial(results.__setitem__, number))
        self.wait(lambda: None not in results)
        self.run()
        assert None not in results
        return results

    def own(self, id: LogId) -> OwnedLog:
        owned = self.acquire(id)
        assert not isinstance(owned, HeldBy | Unreadable), owned
        return owned

    def acquire_topic(self, id: LogId, topic_id: bytes = TOPIC_ID) -> TopicLog | HeldBy | Unreadable:
        results: list[TopicLog | HeldBy | Unreadable] = []
        self.topics.open_topic_log(id, TopicInfo(topic_id, 1 << 20, Producers(), 0, lambda folder: None), results.append)
        self.wait(lambda: results)
        self.run()
        return results[0]

    def acquired_topic(self, id: LogId, topic_id: bytes = TOPIC_ID) -> TopicLog:
        owned = self.acquire_topic(id, topic_id)
        assert not isinstance(owned, HeldBy | Unreadable), owned
        return owned

    @abstractmethod
    def release(self, id: LogId) -> None: ...

    def stop(self) -> None:
        """Stop in order."""
        problems: list[str] = []
        self.store.finish(True, problems.append)
        self.wait(lambda: problems)
        assert problems == [""]
        self.store.close()


class NoNodeFiles:
    """A stand-in for `NodeFiles` that never reports the end of a node: tests do that themselves."""

    def __init__(self, folder: str, node_id: int, noticed: Callable[[], None]) -> None: ...

    def enter(self) -> bool:
        return True

    def publish(self, me: NodeInfo) -> None: ...

    def changed(self) -> bool:
        return False

    def find_changes(self) -> Iterator[tuple[int, NodeInfo | None]]:
        yield from ()

    def close(self) -> None: ...


class DirectoryNode(Node):
    """A node process over a shared directory."""

    store: SharedStore
    topics: SharedTopicStore

    def __init__(self, id: int, disk: Disk, root: str, flush: str) -> None:
        self.id = id
        self.disk = disk
        self.loop = SteppedLoop()
        self.threads = Threads()
        config = load_config(data=[root], settings=[f"offsets.flush={flush}", f"node.id={id}", "cluster.nodes=3"], environ={})
        workers = cast(Callable[[asyncio.AbstractEventLoop, int, bool], Workers], lambda loop, count, yielding: self.threads)
        self.store = SharedStore(
            config,
            cast(asyncio.AbstractEventLoop, self.loop),
            cast(SharedDisk, disk),
            new_workers=workers,
            new_live_nodes=NoNodeFiles,
        )
        self.topics = SharedTopicStore(self.store)

    def run(self) -> None:
        """Run the loop and the threads until they are idle."""
        while self.loop.busy or self.threads.jobs:
            self.loop.run()
            if self.threads.jobs:
                self.threads.run()

    def wait(self, condition: Callable[[], T]) -> T:
        self.run()
        return condition()

    def release(self, id: LogId) -> None:
        released: list[bool] = []
        self.store.release(id, lambda: released.append(True))
        self.run()
        while not released:
            self.loop.jump(0.05)
            self.run()

    def keys(self, log: OwnedLog) -> list[bytes]:
        return keys(log)


class Nodes(Protocol):
    """Starts and kills the nodes of one store."""

    def start(self, id: int, flush: str = "always") -> Node: ...

    def kill(self, node: Node) -> None:
        """End the node without an orderly stop."""
        ...


class NodesOverSimDisk:
    """The store in a shared directory, on a simulated disk."""

    def __init__(self, seed: int = 0) -> None:
        self.disk = SimDisk(Random(seed))
        self.disk.make_folder("/data")
        self.disk.recording = False

    def start(self, id: int, flush: str = "always") -> DirectoryNode:
        return DirectoryNode(id, self.disk.for_another_process(), "/data", flush)

    def kill(self, node: Node) -> None:
        assert isinstance(node, DirectoryNode)
        assert isinstance(node.disk, SimDisk)
        node.disk.kill()

    def lose_power(self) -> None:
        self.disk.crash()


class NodesOverOsDisk:
    """The store in a shared directory, on the disk of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def start(self, id: int, flush: str = "always") -> DirectoryNode:
        return DirectoryNode(id, OsDisk(), str(self._folder), flush)

    def kill(self, node: Node) -> None:
        assert isinstance(node, DirectoryNode)
        node.store.close()  # releases the node's locks, and leaves its logs as they are


def append(node: Node, log: OwnedLog, key: bytes, value: bytes = b"1") -> int | AppendFailed:
    results: list[int | AppendFailed] = []
    log.append(build_facts([(key, value)], 1), 1, results.append)
    node.wait(lambda: results)
    return results[0]


def append_to_topic(node: Node, log: TopicLog, key: bytes) -> int | AppendFailed:
    results: list[int | AppendFailed] = []
    offset = log.append(bytearray(build_facts([(key, b"1")], 1)), results.append)
    return offset if log.assigns_offsets_at_once else node.wait(lambda: results)[0]


def delete_before(node: Node, id: LogId, log: TopicLog, offset: int) -> None:
    """Delete the records before the offset, and store the new log start offset."""
    log.delete_before(offset)
    saved: list[Exception | None] = []
    node.topics.save_start_offsets({id: offset}, saved.append)
    assert node.wait(lambda: saved) == [None]


def delete_topic(node: Node, id: LogId, topic_id: bytes, log: TopicLog) -> None:
    node.topics.set_aside(id, topic_id, log, False, 0)
    forgotten: list[Exception | None] = []
    node.topics.forget_topics([id], forgotten.append)
    assert node.wait(lambda: forgotten) == [None]


def keys(log: OwnedLog) -> list[bytes]:
    return [fact[0] for facts in log.replay() for fact in facts]
