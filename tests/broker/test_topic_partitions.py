"""Partitions of topics in one process: opened, written, read, suspended and served again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from broker.config import load_config
from broker.partitions import FAILED, GONE, OPENING, Partition, Partitions
from broker.stores.local import LocalStore
from broker.topics import Topic, Topics
from broker.workers import Workers
from protocol.batch import read_header
from storage import AppendFailed
from tests.broker.test_store import Threads
from tests.storage.faulty_disk import FaultyDisk
from tests.storage.logs import batch

SETTINGS = {"segment.bytes": str(1 << 20)}


class Loop:
    """A loop whose time passes when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.later: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Callable[..., None], *given: Any) -> None:
        self.later.append((self.now + seconds, call, given))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        due = [one for one in self.later if one[0] <= self.now]
        self.later = [one for one in self.later if one[0] > self.now]
        for _, call, given in due:
            call(*given)


class Broker:
    """A store, a registry and the partitions, without a network."""

    def __init__(self, disk: FaultyDisk) -> None:
        self.disk = disk
        self.ids = 0
        self.topics = Topics(self._new_id)
        self.start()

    def _new_id(self) -> bytes:
        self.ids += 1
        return self.ids.to_bytes(16, "big")

    def start(self) -> None:
        self.loop = Loop()
        self.threads = Threads()
        self.store = LocalStore(load_config(data=["/data"], environ={}), cast(asyncio.AbstractEventLoop, self.loop), self.disk)
        self.store.workers = self.store.openers = cast(Workers, self.threads)
        self.partitions = Partitions(self.topics, self.store, cast(asyncio.AbstractEventLoop, self.loop), {})

    def restart(self) -> None:
        """After an orderly stop, or after the process alone was killed."""
        self.store.close()
        self.start()

    def topic(self, name: str, partitions: int = 1) -> Topic:
        topic = self.topics.create(name, partitions, SETTINGS, 0)
        self.partitions.created(topic)
        return topic

    def find(self, name: str, index: int = 0) -> Partition:
        found = self.partitions.find(name, index)
        assert found is not None
        return found


@pytest.fixture
def broker() -> Broker:
    return Broker(FaultyDisk(7))


class Listener:
    def __init__(self) -> None:
        self.heard = 0

    def grown(self, partition: Partition) -> None:
        self.heard += 1


def put(partition: Partition, name: str, padding: int = 0) -> int:
    data = bytearray(batch(name, padding=padding))
    return partition.append(data, read_header(data, 0))


def test_a_new_topic_serves_at_once_and_touches_no_disk_before_its_first_append(broker: Broker) -> None:
    broker.topic("orders", 3)
    assert broker.find("orders", 1).error == 0
    assert not [name for name in broker.disk.list("/data") if name.startswith("orders")]
    assert put(broker.find("orders", 1), "a") == 0
    assert put(broker.find("orders", 1), "b") == 1
    assert broker.find("orders", 1).end_offset == 2
    assert broker.disk.exists("/data/orders-1")
    assert not broker.disk.exists("/data/orders-0")


def test_what_there_is_not_is_not_found(broker: Broker) -> None:
    topic = broker.topic("orders", 3)
    assert broker.partitions.find("orders", 3) is None
    assert broker.partitions.find("orders", -1) is None
    assert broker.partitions.find("others", 0) is None
    assert broker.partitions.find_by_id(topic.id, 2) is broker.find("orders", 2)
    assert broker.partitions.find_by_id(bytes(16), 0) is None


def test_an_append_wakes_who_waits_for_it(broker: Broker) -> None:
    broker.topic("orders")
    partition = broker.find("orders")
    listener = Listener()
    partition.waiters[listener] = None
    put(partition, "a")
    assert listener.heard == 1


def test_what_somebody_asks_for_is_opened_first(broker: Broker) -> None:
    broker.topic("orders", 20)
    for index in range(20):
        put(broker.find("orders", index), "a")
    broker.restart()
    broker.partitions.open_all()
    assert broker.find("orders", 19).error == OPENING
    for _ in range(4):
        broker.threads.run()
    assert broker.find("orders", 19).error == 0
    assert broker.find("orders", 12).error == OPENING
    broker.threads.run_all()
    assert [partition.error for partition in broker.partitions.of(broker.topics.by_name["orders"])] == [0] * 20


def test_a_failed_roll_suspends_one_partition_alone_until_writing_works_again(broker: Broker) -> None:
    broker.topic("orders", 2)
    partition, other = broker.find("orders", 0), broker.find("orders", 1)
    put(partition, "a", 800_000)
    put(other, "a")
    broker.disk.fail_syncs = 100
    listener = Listener()
    partition.waiters[listener] = None
    with pytest.raises(AppendFailed):
        put(partition, "b", 800_000)
    assert (partition.error, other.error, listener.heard) == (FAILED, 0, 1)
    put(other, "b")
    broker.loop.pass_time(1)
    broker.threads.run_all()
    assert partition.error == FAILED
    broker.disk.fail_syncs = 0
    broker.loop.pass_time(60)
    broker.threads.run_all()
    assert (partition.error, partition.end_offset) == (0, 1)
    assert put(partition, "c") == 1


def test_a_full_disk_refuses_appends_alone_and_the_next_one_finds_the_room_that_came(broker: Broker) -> None:
    broker.topic("orders")
    partition = broker.find("orders")
    put(partition, "a")
    broker.disk.room = 10
    with pytest.raises(AppendFailed):
        put(partition, "b")
    assert partition.error == 0
    assert partition.read(0, 1000)
    broker.disk.room = 1 << 20
    assert put(partition, "b") == 1


def test_the_partitions_of_a_deleted_topic_tell_who_waits(broker: Broker) -> None:
    topic = broker.topic("orders")
    partition = broker.find("orders")
    listener = Listener()
    partition.waiters[listener] = None
    broker.partitions.deleted(topic)
    assert (partition.error, listener.heard) == (GONE, 1)
