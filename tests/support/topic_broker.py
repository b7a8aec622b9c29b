"""The registry of topics and its partitions over a store, without a network."""

from __future__ import annotations

import asyncio
from hashlib import md5
from types import SimpleNamespace
from typing import Any, cast

from broker.api.delete_records import DeleteRecords
from broker.groups.journal import Journal, owned_or_fail
from broker.internal_topics import REGISTRY_LOG
from broker.net.long_requests import run_to_end
from broker.runtime.turn import Turn
from broker.runtime.workers import Workers
from broker.security.authorizer import Authorizer
from broker.settings.load import load_config
from broker.stores.local import LocalStore
from broker.stores.topic_logs import LocalTopicStore
from broker.topics.partition import Partition
from broker.topics.partitions import Partitions
from broker.topics.registry import Topic, TopicRegistry
from broker.topics.retention import Retention
from protocol.batch import Record, build, read_header
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from simulator.disk import SimDisk
from storage import HeldBy, LogId, OsDisk, OwnedLog, Unreadable
from tests.storage.logs import batch
from tests.support.journals import LATE_MS
from tests.support.local_stores import Threads
from tests.support.stepped_loop import SteppedLoop

SETTINGS = {"segment.bytes": str(1 << 20)}


REGISTRY = LogId(REGISTRY_LOG, 0)


class TopicBroker:
    """A store, a registry and the partitions, without a network."""

    def __init__(self, disk: SimDisk | OsDisk, path: str = "/data") -> None:
        self.disk = cast(SimDisk, disk)
        self.path = path
        self.ids = 0
        self.start()

    def _new_id(self) -> bytes:
        self.ids += 1
        return md5(self.ids.to_bytes(16, "big"), usedforsecurity=False).digest()  # hashed, so that ids are spread like random ones, but repeatable

    def start(self) -> None:
        self.loop = SteppedLoop()
        self.threads = Threads()
        loop = cast(asyncio.AbstractEventLoop, self.loop)
        self.store = LocalStore(load_config(data=[self.path], settings=["offsets.flush=never"], environ={}), loop, self.disk)
        self.store.workers = self.store.topic_workers = self.store.bulk_flusher.workers = self.store.checkpoint_worker = cast(Workers, self.threads)
        acquired: list[OwnedLog | HeldBy | Unreadable] = []
        self.store.acquire(REGISTRY, acquired.append)
        self.threads.run_all()
        self.topics = TopicRegistry(self._new_id)
        owned = owned_or_fail("registry", acquired[0])
        self.registry = Journal(REGISTRY_LOG, self.topics, owned, Turn(loop, self.loop.clock()), LATE_MS, replace=self.topics.replace)
        self.registry.start()
        self.partitions = Partitions(self.topics, self.registry, LocalTopicStore(self.store), loop, {})

    def settle(self) -> None:
        """Run turns, threads and immediate callbacks to their end."""
        for _ in range(20):
            self.threads.run_all()
            self.loop.jump(0)

    def pass_seconds(self, seconds: float) -> None:
        self.loop.jump(seconds)
        self.threads.run_all()

    def restart(self, clean_stop: bool = False) -> None:
        """Restart after an orderly stop (`clean_stop`), or after a kill of the process without a power failure."""
        if clean_stop:
            self.partitions.stop()
            problems: list[str] = []
            self.store.finish(True, problems.append)
            self.threads.run_all()
            assert problems == [""]
        self.store.close()
        self.start()

    def restart_and_open(self, clean_stop: bool = False) -> None:
        self.restart(clean_stop)
        self.partitions.open_all()
        self.threads.run_all()

    def create_topic(self, name: str, partitions: int = 1, **settings: str) -> Topic:
        topic_settings = {name.replace("_", "."): value for name, value in settings.items()}
        topic = self.topics.create(name, partitions, SETTINGS | topic_settings, 0)
        self.partitions.created(topic)
        self.registry.turn.call_first_at_turn_end(self.registry)
        return topic

    def written_topic(self, partitions: int = 1, written: int | None = None, **settings: str) -> Topic:
        """The topic `orders` with a record "a" in each partition, or only in the first `written` partitions."""
        topic = self.create_topic("orders", partitions, **settings)
        for index in range(partitions if written is None else written):
            put(self.find("orders", index), "a")
        self.settle()
        return topic

    def delete(self, name: str) -> Topic:
        topic = self.topics.delete(name, 0)
        self.partitions.deleted(topic)
        self.registry.turn.call_first_at_turn_end(self.registry)
        return topic

    def find(self, name: str, index: int = 0) -> Partition:
        partition = self.partitions.find(name, index)
        assert partition is not None
        return partition

    def folders(self, name: str = "") -> list[str]:
        return [folder for folder in self.disk.list(self.path) if folder.startswith(name) and folder[-1].isdigit() and not folder.startswith("__")]

    def set_aside(self, ending: str = "delete") -> list[str]:
        return [folder for folder in self.disk.list(self.path) if folder.endswith(f"-{ending}")]


class DeleteRecordsCall:
    """A DeleteRecords request; `released` is set when its reply is sent."""

    reply: Any = None
    released = False

    def release(self) -> None:
        self.released = True


def delete_records(broker: TopicBroker, call: DeleteRecordsCall, name: str, offset: int) -> None:
    parts = SimpleNamespace(partitions=broker.partitions, authorizer=Authorizer(), topic_store=LocalTopicStore(broker.store))
    request = DeleteRecordsRequest([DeleteRecordsTopic(name, [DeleteRecordsPartition(0, offset)])], 5000)
    response = run_to_end(DeleteRecords(cast(Any, parts)).handle(cast(Any, call), request))
    if response is not None:
        call.reply, call.released = response, True


def put(partition: Partition, name: str, padding: int = 0) -> int:
    data = bytearray(batch(name, padding=padding))
    return partition.append(data, read_header(data, 0))


MINUTE = 60_000


class RetainingBroker(TopicBroker):
    """A broker with retention and compaction, whose time the test sets."""

    def __init__(self, disk: SimDisk, *settings: str) -> None:
        self.settings = settings
        self.now = 0
        super().__init__(disk)

    def start(self) -> None:
        super().start()
        config = load_config(data=["/data"], settings=list(self.settings), environ={})
        self.retention = Retention(config, self.partitions, LocalTopicStore(self.store), cast(asyncio.AbstractEventLoop, self.loop), lambda: self.now)

    def pass_time(self, ms: int) -> None:
        """Advance the time, and run the rounds of retention and compaction that are due, with their threads."""
        self.now += ms
        self.loop.jump(ms / 1000)
        for _ in range(20):
            self.loop.jump(0.01)
            self.threads.run_all()


def write(broker: RetainingBroker, partition: Partition, count: int, size: int = 400_000) -> None:
    """Append records in batches of their own, with the current time; two of this size fill a segment."""
    for _ in range(count):
        data = bytearray(build([Record(0, broker.now, b"k", bytes(size), [])]))
        partition.append(data, read_header(data, 0))


def files(broker: RetainingBroker, ending: str = ".log") -> list[str]:
    return [name for name in broker.disk.list("/data/orders-0") if name.endswith(ending)]
