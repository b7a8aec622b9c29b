"""Partitions of topics in one process: opened, written, read, suspended and served again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import cast

import pytest

from broker.groups.journal import owned_or_fail
from broker.internal_topics import CONSUMER_OFFSETS
from broker.runtime.contain import DEFECTS
from broker.runtime.workers import Workers
from broker.settings.config import load_config
from broker.stores import bulk_flush
from broker.stores.local import LocalStore
from broker.stores.topic_logs import LocalTopicStore
from broker.topics.partitions import FAILED, GONE, OPENING, Partition, Partitions
from storage import AppendFailed, HeldBy, LogId, OsDisk, OwnedLog, Unreadable
from tests.storage.faulty_disk import FaultyDisk
from tests.storage.logs import batch, overwrite, read
from tests.support.topic_broker import REGISTRY, TopicBroker, put
from tests.support.topic_logs import disk_log


@pytest.fixture
def broker() -> TopicBroker:
    return TopicBroker(FaultyDisk(Random(7)))


class Listener:
    def __init__(self) -> None:
        self.heard = 0

    def grown(self, partition: Partition) -> None:
        self.heard += 1


def test_a_new_topic_serves_at_once_and_touches_no_disk_before_its_first_append(broker: TopicBroker) -> None:
    broker.topic("orders", 3)
    assert broker.find("orders", 1).error == 0
    assert not [name for name in broker.disk.list("/data") if name.startswith("orders")]
    assert put(broker.find("orders", 1), "a") == 0
    assert put(broker.find("orders", 1), "b") == 1
    assert broker.find("orders", 1).end_offset == 2
    assert broker.disk.exists("/data/orders-1")
    assert not broker.disk.exists("/data/orders-0")


def test_what_there_is_not_is_not_found(broker: TopicBroker) -> None:
    broker.topic("orders", 3)
    assert broker.partitions.find("orders", 3) is None
    assert broker.partitions.find("orders", -1) is None
    assert broker.partitions.find("others", 0) is None


def test_an_append_wakes_who_waits_for_it(broker: TopicBroker) -> None:
    broker.topic("orders")
    partition = broker.find("orders")
    listener = Listener()
    partition.waiters[listener] = None
    put(partition, "a")
    assert listener.heard == 1


def test_what_somebody_asks_for_is_opened_first(broker: TopicBroker) -> None:
    broker.topic("orders", 20)
    for index in range(20):
        put(broker.find("orders", index), "a")
    broker.settle()
    broker.restart()
    broker.partitions.open_all()
    assert broker.find("orders", 19).error == OPENING
    for _ in range(4):
        broker.threads.run()
    assert broker.find("orders", 19).error == 0
    assert broker.find("orders", 12).error == OPENING
    broker.threads.run_all()
    assert [partition.error for partition in broker.partitions.of(broker.topics.by_name["orders"])] == [0] * 20


def test_a_failed_flush_suspends_one_partition_alone_until_writing_works_again(broker: TopicBroker) -> None:
    broker.topic("orders", 2)
    partition, other = broker.find("orders", 0), broker.find("orders", 1)
    put(partition, "a", 800_000)
    put(other, "a")
    listener = Listener()
    partition.waiters[listener] = None
    put(partition, "b", 800_000)  # in a segment of its own: the first one is flushed behind the append
    assert len(broker.threads.jobs) == 1
    broker.disk.fail_syncs = 100
    broker.threads.run_all()
    assert (partition.error, other.error, listener.heard) == (FAILED, 0, 2)
    with pytest.raises(AppendFailed):
        put(partition, "c")
    put(other, "b")
    broker.loop.jump(1)
    broker.threads.run_all()
    assert partition.error == FAILED
    broker.disk.fail_syncs = 0
    broker.loop.jump(60)
    broker.threads.run_all()
    assert (partition.error, partition.end_offset, listener.heard) == (0, 2, 3)
    assert put(partition, "c") == 2


def test_a_full_disk_refuses_appends_alone_and_the_next_one_finds_the_room_that_came(broker: TopicBroker) -> None:
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


def test_what_was_written_is_there_after_a_kill_and_after_a_stop(broker: TopicBroker) -> None:
    broker.topic("orders")
    put(broker.find("orders"), "a")
    broker.settle()
    for clean in (False, True, True):
        broker.restart(clean)
        broker.partitions.open_all()
        broker.threads.run_all()
        partition = broker.find("orders")
        before = partition.end_offset
        assert put(partition, "b") == before
    assert partition.end_offset == 4
    assert partition.leader_epoch == 3


def test_a_deleted_topic_gives_up_its_folders_when_that_is_durable_and_its_files_later(broker: TopicBroker) -> None:
    broker.topic("orders", 2, file_delete_delay_ms="60000")
    put(broker.find("orders"), "a")
    broker.settle()
    broker.delete("orders")
    assert broker.partitions.find("orders", 0) is None
    assert broker.folders() == ["orders-0"]
    broker.settle()
    assert broker.folders() == []
    (folder,) = broker.set_aside()
    assert folder.startswith("orders-0.")
    broker.loop.jump(59)
    broker.threads.run_all()
    assert broker.set_aside()
    broker.loop.jump(1)
    broker.threads.run_all()
    assert not broker.set_aside()


def test_a_topic_of_the_same_name_begins_anew(broker: TopicBroker) -> None:
    broker.topic("orders")
    put(broker.find("orders"), "a")
    put(broker.find("orders"), "b")
    broker.settle()
    broker.store.directory.checkpoint({("orders", 0): 2})
    broker.store.directory.checkpoint_starts({("orders", 0): 1})
    broker.delete("orders")
    broker.topic("orders")
    assert broker.find("orders").error == OPENING  # until the folder of the other one is out of the way
    broker.settle()
    assert put(broker.find("orders"), "c") == 0
    broker.settle()
    broker.restart()
    broker.partitions.open_all()
    broker.threads.run_all()
    partition = broker.find("orders")
    assert (partition.start_offset, partition.end_offset) == (0, 1)


def test_a_deletion_that_the_registry_could_not_write_did_not_happen(broker: TopicBroker) -> None:
    broker.topic("orders")
    put(broker.find("orders"), "a")
    broker.settle()
    broker.disk.room = 0
    broker.delete("orders")
    broker.settle()
    broker.disk.room = None
    assert broker.folders() == ["orders-0"]
    assert broker.find("orders").error == 0
    assert put(broker.find("orders"), "b") == 1


@pytest.mark.parametrize("again", [False, True])
def test_a_broker_that_was_killed_while_it_deleted_goes_on_at_the_next_start(broker: TopicBroker, again: bool) -> None:
    old = broker.topic("orders", 2)
    put(broker.find("orders", 0), "a")
    put(broker.find("orders", 1), "a")
    broker.settle()
    broker.topics.delete("orders", 0)
    if again:
        broker.topic("orders", 2)
    broker.registry.end_turn()
    broker.restart()
    assert broker.folders() == ["orders-0", "orders-1"]
    broker.partitions.open_all()
    assert broker.folders() == []
    assert len(broker.set_aside()) == 2
    assert old.id in broker.topics.deleted  # for its offsets
    broker.settle()
    broker.topics.offsets_gone(old.id)
    assert not broker.topics.deleted
    if again:
        assert put(broker.find("orders", 1), "b") == 0
    broker.loop.jump(60)
    broker.threads.run_all()
    assert not broker.set_aside()


def test_folders_of_another_topic_are_kept_but_not_in_the_way_of_ours(broker: TopicBroker) -> None:
    broker.topic("orders")
    put(broker.find("orders"), "theirs")
    broker.settle()
    broker.store.directory.checkpoint_starts({("orders", 0): 1})
    broker.store.close()
    for name in ("__tenure_topics-0",):  # the directory as a Kafka would have written it
        for file in broker.disk.list(f"/data/{name}"):
            broker.disk.remove(f"/data/{name}/{file}")
    broker.ids = 100
    broker.start()
    broker.partitions.open_all()
    assert broker.folders() == ["orders-0"]
    broker.topic("orders")
    broker.find("orders")
    broker.settle()
    for number in range(3):
        assert put(broker.find("orders"), "ours") == number
    assert len(broker.set_aside("stray")) == 1
    assert not broker.set_aside("delete")
    broker.settle()
    broker.restart()
    broker.partitions.open_all()
    broker.threads.run_all()
    assert broker.find("orders").start_offset == 0


def test_a_new_partition_count_and_new_settings_apply_at_once(broker: TopicBroker) -> None:
    topic = broker.topic("orders")
    partition = broker.find("orders")
    put(partition, "a")
    broker.partitions.grown(broker.topics.add_partitions("orders", 3), 1)
    assert broker.partitions.find("orders", 2) is not None
    broker.partitions.altered(broker.topics.alter("orders", {"segment.bytes": "2000000", "segment.ms": "5", "max.message.bytes": "7"}))
    assert broker.find("orders") is partition
    assert (disk_log(partition).segment_bytes, disk_log(partition).segment_ms, partition.settings.max_message_bytes) == (2_000_000, 5, 7)
    assert partition.topic.id == topic.id


def test_what_the_registry_refused_is_not_served(broker: TopicBroker) -> None:
    broker.topic("orders")
    broker.settle()
    broker.disk.room = 0
    broker.partitions.grown(broker.topics.add_partitions("orders", 3), 1)
    broker.partitions.altered(broker.topics.alter("orders", {"retention.ms": "5"}))
    broker.touched.append(broker.registry)
    broker.settle()
    broker.disk.room = None
    assert broker.partitions.find("orders", 2) is None
    assert broker.find("orders").settings.retention_ms == 604_800_000


def test_the_partitions_of_a_deleted_topic_tell_who_waits(broker: TopicBroker) -> None:
    topic = broker.topic("orders")
    partition = broker.find("orders")
    listener = Listener()
    partition.waiters[listener] = None
    broker.partitions.deleted(topic)
    assert (partition.error, listener.heard) == (GONE, 1)


def test_the_log_of_groups_is_read_as_far_as_it_is_durable(broker: TopicBroker) -> None:
    config = load_config(data=["/other"], settings=["offsets.flush=always"], environ={})
    store = LocalStore(config, cast(asyncio.AbstractEventLoop, broker.loop), broker.disk)
    store.workers = cast(Workers, broker.threads)
    partitions = Partitions(broker.topics, broker.registry, LocalTopicStore(store), cast(asyncio.AbstractEventLoop, broker.loop), {})
    broker.topic(CONSUMER_OFFSETS)
    partition = partitions.find(CONSUMER_OFFSETS, 0)
    assert partition is not None
    assert partition.error == OPENING
    acquired: list[OwnedLog | HeldBy | Unreadable] = []
    store.acquire(LogId(CONSUMER_OFFSETS, 0), acquired.append)
    owned = owned_or_fail("offsets", acquired[0])
    assert partitions.find(CONSUMER_OFFSETS, 0) is partition
    listener = Listener()
    partition.waiters[listener] = None
    owned.append(batch("a"), 1, lambda result: None)
    assert (partition.error, partition.end_offset, partition.read(0, 1000), listener.heard) == (0, 0, b"", 0)
    broker.loop.jump(0)
    broker.threads.run_all()
    assert (partition.end_offset, listener.heard) == (1, 1)
    assert partition.read(0, 1000)
    with pytest.raises(AssertionError):
        put(partition, "b")


def test_a_damaged_log_refuses_alone(broker: TopicBroker) -> None:
    broker.topic("orders", 2)
    for index in range(2):
        put(broker.find("orders", index), "a")
    broker.settle()
    broker.restart(clean=True)
    broker.store.close()
    overwrite(broker.disk, "/data/orders-0/00000000000000000000.log", bytes(200))
    broker.start()
    broker.partitions.open_all()
    broker.threads.run_all()
    assert (broker.find("orders", 0).error, broker.find("orders", 1).error) == (FAILED, 0)
    assert "damaged" in broker.find("orders", 0).trouble
    assert put(broker.find("orders", 1), "b") == 1


def test_a_log_that_cannot_be_read_is_tried_again(broker: TopicBroker) -> None:
    broker.topic("orders")
    put(broker.find("orders"), "a")
    broker.settle()
    broker.restart()
    broker.disk.unreadable = "orders-0/0"
    broker.partitions.open_all()
    broker.threads.run_all()
    assert broker.find("orders").error == FAILED
    broker.disk.unreadable = ""
    broker.loop.jump(15)
    broker.threads.run_all()
    assert broker.find("orders").error == 0
    assert broker.find("orders").end_offset == 1


def test_a_topic_deleted_while_it_is_opened_leaves_nothing(broker: TopicBroker) -> None:
    broker.topic("orders", 4)
    for index in range(4):
        put(broker.find("orders", index), "a")
    broker.settle()
    broker.restart()
    broker.partitions.open_all()
    broker.delete("orders")
    broker.registry.end_turn()
    broker.loop.jump(0)
    assert len(broker.folders()) == 3  # those that a thread is at work on
    for _ in range(5):
        broker.settle()
        broker.loop.jump(1)
    assert broker.folders() == []
    assert not broker.store.owned(LogId("orders", 0))


def test_many_logs_are_flushed_together_by_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_flush, "SYNCFS_LOGS_MIN", 3)
    broker = TopicBroker(OsDisk(), str(tmp_path))
    broker.topic("orders", 5)
    for index in range(5):
        put(broker.find("orders", index), "a")
    broker.settle()
    broker.restart(clean=True)
    assert broker.store.directory.clean
    broker.partitions.open_all()
    broker.threads.run_all()
    assert [disk_log(broker.find("orders", index)).flushed_offset for index in range(5)] == [1] * 5


@pytest.mark.parametrize("seed", range(12))
def test_a_power_failure_behind_a_flush_leaves_a_folder_that_belongs_to_its_topic(seed: int) -> None:
    broker = TopicBroker(FaultyDisk(Random(seed)))
    broker.topic("orders")
    put(broker.find("orders"), "a")
    broker.settle()
    disk_log(broker.find("orders")).flush()
    registry = broker.store.owned(REGISTRY)
    assert registry is not None
    registry.log.flush()
    broker.disk.crash()
    broker.restart()
    broker.partitions.open_all()
    broker.threads.run_all()
    assert broker.find("orders").end_offset == 1
    assert not broker.set_aside("stray")


@pytest.mark.parametrize("at", [10, 15, 21, 30, 42])
@pytest.mark.parametrize("bit", [0, 3, 6])
def test_a_flipped_bit_in_a_topic_id_does_not_take_the_log_away(broker: TopicBroker, at: int, bit: int) -> None:
    broker.topic("orders")
    put(broker.find("orders"), "a")
    broker.settle()
    broker.restart(clean=True)  # which makes the file safe
    path = "/data/orders-0/partition.metadata"
    sound = broker.disk.read_text(path)
    damaged = bytearray(sound.encode())
    damaged[at] ^= 1 << bit
    overwrite(broker.disk, path, bytes(damaged))
    broker.restart(clean=True)
    broker.partitions.open_all()
    broker.threads.run_all()
    assert broker.find("orders").end_offset == 1
    assert not broker.set_aside("stray")
    assert broker.disk.read_text(path).endswith(sound[-22:])


def test_a_topic_id_that_was_torn_belongs_to_no_other_topic(broker: TopicBroker) -> None:
    broker.topic("orders")
    put(broker.find("orders"), "a")
    broker.settle()
    path = "/data/orders-0/partition.metadata"
    whole = read(broker.disk, path)
    for size in (0, len(whole) - 5):
        overwrite(broker.disk, path, whole[:size])
        broker.restart()
        broker.partitions.open_all()
        broker.threads.run_all()
        assert broker.find("orders").end_offset == 1
        assert read(broker.disk, path) == whole


def test_settings_that_change_while_a_log_is_opened_apply_to_it(broker: TopicBroker) -> None:
    broker.topic("orders")
    put(broker.find("orders"), "a")
    broker.settle()
    broker.restart()
    broker.partitions.open_all()
    partition = broker.find("orders")
    assert partition.error == OPENING
    broker.threads.jobs, opening = [], broker.threads.jobs
    broker.partitions.altered(broker.topics.alter("orders", {"segment.bytes": "2000000", "segment.ms": "5", "retention.ms": "7"}))
    broker.settle()
    broker.threads.jobs = opening
    broker.threads.run_all()
    assert broker.find("orders") is partition
    assert (disk_log(partition).segment_bytes, disk_log(partition).segment_ms, partition.settings.retention_ms) == (2_000_000, 5, 7)


def test_two_thousand_partitions_without_a_folder_open_when_they_are_asked_for_while_others_open(broker: TopicBroker) -> None:
    broker.topic("orders", 2_000)
    for index in range(5):
        put(broker.find("orders", index), "a")
    broker.settle()
    defects = DEFECTS.count
    broker.restart()
    broker.partitions.open_all()
    wanted = [broker.find("orders", index) for index in range(2_000)]
    assert wanted[-1].error == OPENING
    broker.settle()
    for _ in range(100):
        broker.loop.jump(0)
    assert DEFECTS.count == defects
    assert {partition.error for partition in wanted} == {0}
