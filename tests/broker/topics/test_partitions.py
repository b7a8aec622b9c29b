"""Partitions of topics in one process: opened, written, read, suspended and served again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import cast
from unittest.mock import Mock

import pytest

from broker.groups.journal import owned_or_fail
from broker.internal_topics import CONSUMER_OFFSETS
from broker.runtime.contain import DEFECTS
from broker.runtime.workers import Workers
from broker.settings.load import load_config
from broker.stores import bulk_flush
from broker.stores.local import LocalStore
from broker.stores.topic_logs import LocalTopicStore
from broker.topics.partitions import FAILED, GONE, NOT_SERVED, Partition, Partitions
from simulator.disk import SimDisk
from storage import AppendFailed, HeldBy, LogId, OsDisk, OwnedLog, Unreadable
from tests.storage.logs import batch, overwrite, read
from tests.support.topic_broker import REGISTRY, TopicBroker, put
from tests.support.topic_logs import disk_log


@pytest.fixture
def broker() -> TopicBroker:
    return TopicBroker(SimDisk(Random(7)))


class Listener:
    def __init__(self) -> None:
        self.calls = 0

    def grown(self, partition: Partition) -> None:
        self.calls += 1


def test_a_new_topic_serves_at_once_and_touches_no_disk_before_its_first_append(broker: TopicBroker) -> None:
    broker.create_topic("orders", 3)
    assert broker.find("orders", 1).error == 0
    assert not [name for name in broker.disk.list("/data") if name.startswith("orders")]
    assert put(broker.find("orders", 1), "a") == 0
    assert put(broker.find("orders", 1), "b") == 1
    assert broker.find("orders", 1).high_watermark == 2
    assert broker.disk.exists("/data/orders-1")
    assert not broker.disk.exists("/data/orders-0")


def test_unknown_topics_and_partitions_are_not_found(broker: TopicBroker) -> None:
    broker.create_topic("orders", 3)
    assert broker.partitions.find("orders", 3) is None
    assert broker.partitions.find("orders", -1) is None
    assert broker.partitions.find("others", 0) is None


def test_an_append_wakes_its_waiters(broker: TopicBroker) -> None:
    broker.create_topic("orders")
    partition = broker.find("orders")
    listener = Listener()
    partition.waiters[listener] = None
    put(partition, "a")
    assert listener.calls == 1


def test_a_requested_partition_is_opened_first(broker: TopicBroker) -> None:
    broker.written_topic(20)
    broker.restart()
    broker.partitions.open_all()
    assert broker.find("orders", 19).error == NOT_SERVED
    for _ in range(4):
        broker.threads.run()
    assert broker.find("orders", 19).error == 0
    assert broker.find("orders", 12).error == NOT_SERVED
    broker.threads.run_all()
    assert [partition.error for partition in broker.partitions.of_topic(broker.topics.by_name["orders"])] == [0] * 20


def test_a_failed_flush_suspends_only_its_partition_until_writes_work(broker: TopicBroker) -> None:
    broker.create_topic("orders", 2)
    partition, healthy = broker.find("orders", 0), broker.find("orders", 1)
    put(partition, "a", 800_000)
    put(healthy, "a")
    listener = Listener()
    partition.waiters[listener] = None
    put(partition, "b", 800_000)  # begins a second segment: the first one is flushed after the append
    assert len(broker.threads.jobs) == 1
    broker.disk.fail_syncs = 100
    broker.threads.run_all()
    assert (partition.error, healthy.error, listener.calls) == (FAILED, 0, 2)
    with pytest.raises(AppendFailed):
        put(partition, "c")
    put(healthy, "b")
    broker.pass_seconds(1)
    assert partition.error == FAILED
    broker.disk.fail_syncs = 0
    broker.pass_seconds(60)
    assert (partition.error, partition.high_watermark, listener.calls) == (0, 2, 3)
    assert put(partition, "c") == 2


def test_a_full_disk_refuses_only_the_append_and_the_next_succeeds(broker: TopicBroker) -> None:
    broker.create_topic("orders")
    partition = broker.find("orders")
    put(partition, "a")
    broker.disk.room = 10
    with pytest.raises(AppendFailed):
        put(partition, "b")
    assert partition.error == 0
    assert partition.read(0, 1000)
    broker.disk.room = 1 << 20
    assert put(partition, "b") == 1


def test_written_records_survive_a_kill_and_a_stop(broker: TopicBroker) -> None:
    broker.written_topic()
    for clean in (False, True, True):
        broker.restart_and_open(clean)
        partition = broker.find("orders")
        before = partition.high_watermark
        assert put(partition, "b") == before
    assert partition.high_watermark == 4
    assert partition.leader_epoch == 3


def test_folders_of_a_deleted_topic_are_set_aside_when_durable_and_removed_later(broker: TopicBroker) -> None:
    broker.written_topic(2, 1, file_delete_delay_ms="60000")
    broker.delete("orders")
    assert broker.partitions.find("orders", 0) is None
    assert broker.folders() == ["orders-0"]
    broker.settle()
    assert broker.folders() == []
    (folder,) = broker.set_aside()
    assert folder.startswith("orders-0.")
    broker.pass_seconds(59)
    assert broker.set_aside()
    broker.pass_seconds(1)
    assert not broker.set_aside()


def test_a_new_topic_of_the_same_name_is_empty(broker: TopicBroker) -> None:
    broker.create_topic("orders")
    put(broker.find("orders"), "a")
    put(broker.find("orders"), "b")
    broker.settle()
    broker.store.directory.checkpoint({("orders", 0): 2})
    broker.store.directory.checkpoint_starts({("orders", 0): 1})
    broker.delete("orders")
    broker.create_topic("orders")
    assert broker.find("orders").error == NOT_SERVED  # until the deleted topic's folder of this name has been set aside
    broker.settle()
    assert put(broker.find("orders"), "c") == 0
    broker.settle()
    broker.restart_and_open()
    partition = broker.find("orders")
    assert (partition.start_offset, partition.high_watermark) == (0, 1)


def test_a_deletion_the_registry_could_not_write_is_reverted(broker: TopicBroker) -> None:
    broker.written_topic()
    broker.disk.room = 0
    broker.delete("orders")
    broker.settle()
    broker.disk.room = None
    assert broker.folders() == ["orders-0"]
    assert broker.find("orders").error == 0
    assert put(broker.find("orders"), "b") == 1


@pytest.mark.parametrize("recreated", [False, True])
def test_an_interrupted_deletion_continues_at_the_next_start(broker: TopicBroker, recreated: bool) -> None:
    old = broker.written_topic(2)
    broker.topics.delete("orders", 0)
    if recreated:
        broker.create_topic("orders", 2)
    broker.registry.end_turn()
    broker.restart()
    assert broker.folders() == ["orders-0", "orders-1"]
    broker.partitions.open_all()
    assert broker.folders() == []
    assert len(broker.set_aside()) == 2
    assert old.id in broker.topics.deleted  # the deletion is kept until the committed offsets of the topic are removed
    broker.settle()
    broker.topics.offsets_gone(old.id)
    assert not broker.topics.deleted
    if recreated:
        assert put(broker.find("orders", 1), "b") == 0
    broker.pass_seconds(60)
    assert not broker.set_aside()


def test_folders_of_a_foreign_topic_are_kept_under_another_name(broker: TopicBroker) -> None:
    broker.create_topic("orders")
    put(broker.find("orders"), "theirs")
    broker.settle()
    broker.store.directory.checkpoint_starts({("orders", 0): 1})
    broker.store.close()
    for name in ("__tenure_topics-0",):  # remove the topic registry, which a directory of Kafka does not have
        for file in broker.disk.list(f"/data/{name}"):
            broker.disk.remove(f"/data/{name}/{file}")
    broker.ids = 100
    broker.start()
    broker.partitions.open_all()
    assert broker.folders() == ["orders-0"]
    broker.create_topic("orders")
    broker.find("orders")
    broker.settle()
    for number in range(3):
        assert put(broker.find("orders"), "ours") == number
    assert len(broker.set_aside("stray")) == 1
    assert not broker.set_aside("delete")
    broker.settle()
    broker.restart_and_open()
    assert broker.find("orders").start_offset == 0


def test_a_new_partition_count_and_new_settings_apply_at_once(broker: TopicBroker) -> None:
    topic = broker.create_topic("orders")
    partition = broker.find("orders")
    put(partition, "a")
    broker.partitions.partitions_added(broker.topics.add_partitions("orders", 3))
    assert broker.partitions.find("orders", 2) is not None
    broker.partitions.altered(broker.topics.alter("orders", {"segment.bytes": "2000000", "segment.ms": "5", "max.message.bytes": "7"}))
    assert broker.find("orders") is partition
    assert (disk_log(partition).segment_bytes, disk_log(partition).segment_ms, partition.settings.max_message_bytes) == (2_000_000, 5, 7)
    assert partition.topic.id == topic.id


def test_topics_refused_by_the_registry_are_not_served(broker: TopicBroker) -> None:
    broker.create_topic("orders")
    broker.settle()
    broker.disk.room = 0
    broker.partitions.partitions_added(broker.topics.add_partitions("orders", 3))
    broker.partitions.altered(broker.topics.alter("orders", {"retention.ms": "5"}))
    broker.registry.turn.call_first_at_turn_end(broker.registry)
    broker.settle()
    broker.disk.room = None
    assert broker.partitions.find("orders", 2) is None
    assert broker.find("orders").settings.retention_ms == 604_800_000


def test_the_partitions_of_a_deleted_topic_wake_their_waiters(broker: TopicBroker) -> None:
    topic = broker.create_topic("orders")
    partition = broker.find("orders")
    listener = Listener()
    partition.waiters[listener] = None
    broker.partitions.deleted(topic)
    assert (partition.error, listener.calls) == (GONE, 1)


def test_the_offsets_topic_is_readable_up_to_its_durable_offset(broker: TopicBroker) -> None:
    config = load_config(data=["/other"], settings=["offsets.flush=always"], environ={})
    store = LocalStore(config, cast(asyncio.AbstractEventLoop, broker.loop), broker.disk)
    store.workers = cast(Workers, broker.threads)
    partitions = Partitions(broker.topics, broker.registry, LocalTopicStore(store), cast(asyncio.AbstractEventLoop, broker.loop), {})
    broker.create_topic(CONSUMER_OFFSETS)
    partition = partitions.find(CONSUMER_OFFSETS, 0)
    assert partition is not None
    assert partition.error == NOT_SERVED
    acquired: list[OwnedLog | HeldBy | Unreadable] = []
    store.acquire(LogId(CONSUMER_OFFSETS, 0), acquired.append)
    owned = owned_or_fail("offsets", acquired[0])
    assert partitions.find(CONSUMER_OFFSETS, 0) is partition
    listener = Listener()
    partition.waiters[listener] = None
    owned.append(batch("a"), 1, lambda result: None)
    assert (partition.error, partition.high_watermark, partition.read(0, 1000), listener.calls) == (0, 0, b"", 0)
    broker.pass_seconds(0)
    assert (partition.high_watermark, listener.calls) == (1, 1)
    assert partition.read(0, 1000)
    with pytest.raises(AssertionError):
        put(partition, "b")


def test_a_damaged_log_does_not_affect_other_partitions(broker: TopicBroker) -> None:
    broker.written_topic(2)
    broker.restart(clean_stop=True)
    broker.store.close()
    overwrite(broker.disk, "/data/orders-0/00000000000000000000.log", bytes(200))
    broker.start()
    broker.partitions.open_all()
    broker.threads.run_all()
    assert (broker.find("orders", 0).error, broker.find("orders", 1).error) == (FAILED, 0)
    assert "damaged" in broker.find("orders", 0).refusal_reason
    assert put(broker.find("orders", 1), "b") == 1


def test_an_unreadable_log_is_opened_again_later(broker: TopicBroker) -> None:
    broker.written_topic()
    broker.restart()
    broker.disk.unreadable = "orders-0/0"
    broker.partitions.open_all()
    broker.threads.run_all()
    assert broker.find("orders").error == FAILED
    broker.disk.unreadable = ""
    broker.pass_seconds(15)
    assert broker.find("orders").error == 0
    assert broker.find("orders").high_watermark == 1


@pytest.mark.plain  # replaces methods
def test_a_log_is_opened_again_after_defects_too(broker: TopicBroker, monkeypatch: pytest.MonkeyPatch, planted_defect: None) -> None:
    broker.written_topic()
    broker.restart()
    broker.disk.unreadable = "orders-0/0"
    broker.partitions.open_all()
    broker.threads.run_all()
    broker.disk.unreadable = ""
    (partition,) = [partition for partition in broker.partitions if partition.id.name == "orders"]
    with monkeypatch.context() as patched:
        patched.setattr(broker.partitions, "_request", Mock(side_effect=RuntimeError("a defect")))
        for _ in range(3):
            broker.pass_seconds(15)
        assert (partition.error, partition.refusal_reason) == (FAILED, "there is a defect in this version")
    broker.pass_seconds(15)
    assert partition.error == 0


@pytest.mark.plain  # replaces methods
def test_an_interrupted_deletion_continues_after_several_defects(
    broker: TopicBroker, monkeypatch: pytest.MonkeyPatch, planted_defect: None
) -> None:
    broker.written_topic()
    broker.delete("orders")
    broker.registry.end_turn()
    broker.restart()
    finish = broker.partitions._folders.finish_deletion
    answers = [([LogId("orders", 0)], OSError("busy")), RuntimeError("a defect"), RuntimeError("a defect"), RuntimeError("a defect")]
    fake = Mock(side_effect=lambda *arguments: finish(*arguments) if not answers else raised(answers.pop(0)))
    monkeypatch.setattr(broker.partitions._folders, "finish_deletion", fake)
    broker.partitions.open_all()
    for _ in range(6):
        broker.pass_seconds(15)
    assert fake.call_count == 5
    assert broker.folders() == []


def raised(answer: object) -> object:
    if isinstance(answer, Exception):
        raise answer
    return answer


def test_a_topic_deleted_while_opening_leaves_no_files(broker: TopicBroker) -> None:
    broker.written_topic(4)
    broker.restart()
    broker.partitions.open_all()
    broker.delete("orders")
    broker.registry.end_turn()
    broker.loop.jump(0)
    assert len(broker.folders()) == 3  # the folders of logs that a thread is opening stay until it has finished
    for _ in range(5):
        broker.settle()
        broker.loop.jump(1)
    assert broker.folders() == []
    assert not broker.store.owned_log(LogId("orders", 0))


def test_many_logs_are_flushed_together_by_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_flush, "SYNCFS_LOGS_MIN", 3)
    broker = TopicBroker(OsDisk(), str(tmp_path))
    broker.written_topic(5)
    broker.restart(clean_stop=True)
    assert broker.store.directory.clean
    broker.partitions.open_all()
    broker.threads.run_all()
    assert [disk_log(broker.find("orders", index)).flushed_offset for index in range(5)] == [1] * 5


@pytest.mark.parametrize("seed", range(12))
def test_a_folder_keeps_its_topic_id_in_a_power_failure_after_a_flush(seed: int) -> None:
    broker = TopicBroker(SimDisk(Random(seed)))
    broker.written_topic()
    disk_log(broker.find("orders")).flush()
    registry = broker.store.owned_log(REGISTRY)
    assert registry is not None
    registry.log.flush()
    broker.disk.crash()
    broker.restart_and_open()
    assert broker.find("orders").high_watermark == 1
    assert not broker.set_aside("stray")


@pytest.mark.parametrize("at", [10, 15, 21, 30, 42])
@pytest.mark.parametrize("bit", [0, 3, 6])
def test_a_flipped_bit_in_a_topic_id_does_not_lose_the_log(broker: TopicBroker, at: int, bit: int) -> None:
    broker.written_topic()
    broker.restart(clean_stop=True)  # the orderly stop makes partition.metadata durable
    path = "/data/orders-0/partition.metadata"
    sound = broker.disk.read_text(path)
    damaged = bytearray(sound.encode())
    damaged[at] ^= 1 << bit
    overwrite(broker.disk, path, bytes(damaged))
    broker.restart_and_open(clean_stop=True)
    assert broker.find("orders").high_watermark == 1
    assert not broker.set_aside("stray")
    assert broker.disk.read_text(path).endswith(sound[-22:])


def test_a_topic_id_that_was_torn_belongs_to_no_other_topic(broker: TopicBroker) -> None:
    broker.written_topic()
    path = "/data/orders-0/partition.metadata"
    sound = read(broker.disk, path)
    for size in (0, len(sound) - 5):
        overwrite(broker.disk, path, sound[:size])
        broker.restart_and_open()
        assert broker.find("orders").high_watermark == 1
        assert read(broker.disk, path) == sound


def test_settings_that_change_while_a_log_is_opened_apply_to_it(broker: TopicBroker) -> None:
    broker.written_topic()
    broker.restart()
    broker.partitions.open_all()
    partition = broker.find("orders")
    assert partition.error == NOT_SERVED
    broker.threads.jobs, opening = [], broker.threads.jobs
    broker.partitions.altered(broker.topics.alter("orders", {"segment.bytes": "2000000", "segment.ms": "5", "retention.ms": "7"}))
    broker.settle()
    broker.threads.jobs = opening
    broker.threads.run_all()
    assert broker.find("orders") is partition
    assert (disk_log(partition).segment_bytes, disk_log(partition).segment_ms, partition.settings.retention_ms) == (2_000_000, 5, 7)


def test_requested_partitions_open_first_among_two_thousand(broker: TopicBroker) -> None:
    broker.written_topic(2_000, 5)
    defects = DEFECTS.count
    broker.restart()
    broker.partitions.open_all()
    partitions = [broker.find("orders", index) for index in range(2_000)]
    assert partitions[-1].error == NOT_SERVED
    broker.settle()
    for _ in range(100):
        broker.loop.jump(0)
    assert DEFECTS.count == defects
    assert {partition.error for partition in partitions} == {0}
