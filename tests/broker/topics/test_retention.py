"""Segments past retention are dropped, idle ones rolled, and checkpoints written."""

from __future__ import annotations

import pytest

from protocol.batch import Record, build, read_header
from simulator.disk import SimDisk
from storage.checkpoints import LOG_STARTS, RECOVERY_POINTS, read_offsets
from tests.support.topic_broker import MINUTE, RetainingBroker, files, put, write
from tests.support.topic_logs import disk_log


@pytest.fixture
def broker() -> RetainingBroker:
    return RetainingBroker(SimDisk(), "log.retention.check.interval.ms=1000")


def test_expired_segments_are_dropped_and_their_files_removed_later(broker: RetainingBroker) -> None:
    broker.create_topic("orders", retention_ms=str(5 * MINUTE), file_delete_delay_ms=str(MINUTE))
    partition = broker.find("orders")
    write(broker, partition, 4)
    broker.now += 4 * MINUTE
    write(broker, partition, 1)
    broker.pass_time(MINUTE)
    assert partition.start_offset == 0
    broker.pass_time(1000)
    assert (partition.start_offset, partition.high_watermark) == (4, 5)
    assert len(files(broker)) == 1
    assert len(files(broker, ".deleted")) == 2
    broker.pass_time(MINUTE)
    assert not files(broker, ".deleted")


def test_an_expired_active_segment_is_dropped_too(broker: RetainingBroker) -> None:
    broker.create_topic("orders", retention_ms=str(MINUTE))
    partition = broker.find("orders")
    write(broker, partition, 1, 10)
    broker.pass_time(2 * MINUTE)
    assert (partition.start_offset, partition.high_watermark) == (1, 1)
    write(broker, partition, 1, 10)
    assert partition.high_watermark == 2


@pytest.mark.parametrize("trusted", [True, False])
def test_a_log_over_retention_bytes_loses_its_oldest_segments_whatever_the_clock_says(broker: RetainingBroker, trusted: bool) -> None:
    broker.create_topic("orders", retention_bytes="900000")
    partition = broker.find("orders")
    write(broker, partition, 8)
    if not trusted:
        broker.retention._now = lambda: -1
    broker.pass_time(2000)
    assert partition.start_offset == 4
    assert partition.log.size >= 900_000


def test_retention_does_not_apply_to_compacted_topics(broker: RetainingBroker) -> None:
    broker.create_topic("orders", retention_ms="1", retention_bytes="1", cleanup_policy="compact")
    partition = broker.find("orders")
    write(broker, partition, 4)
    broker.pass_time(MINUTE)
    assert partition.start_offset == 0


def test_deleted_records_are_removed_under_every_policy(broker: RetainingBroker) -> None:
    broker.create_topic("orders", cleanup_policy="compact")
    partition = broker.find("orders")
    write(broker, partition, 5)
    disk_log(partition).delete_before(3)
    broker.pass_time(1000)
    assert partition.start_offset == 3
    assert len(files(broker)) == 2


def test_a_change_of_settings_applies_to_the_next_round(broker: RetainingBroker) -> None:
    broker.create_topic("orders")
    partition = broker.find("orders")
    write(broker, partition, 4)
    broker.pass_time(MINUTE)
    assert partition.start_offset == 0
    broker.partitions.altered(broker.topics.alter("orders", {"retention.ms": "1000"}))
    broker.pass_time(1000)
    assert partition.start_offset == 4


def test_an_idle_segment_is_rolled_after_segment_ms(broker: RetainingBroker) -> None:
    broker.create_topic("orders", segment_ms=str(MINUTE))
    partition = broker.find("orders")
    write(broker, partition, 1, 10)
    broker.pass_time(1000)
    broker.pass_time(MINUTE - 2000)
    assert len(files(broker)) == 1
    broker.pass_time(3000)
    assert len(files(broker)) == 2
    assert disk_log(broker.find("orders")).flushed_offset == 1


def test_no_segment_expires_while_the_clock_is_untrusted(broker: RetainingBroker) -> None:
    broker.create_topic("orders", retention_ms=str(10 * MINUTE), segment_ms=str(MINUTE))
    partition = broker.find("orders")
    write(broker, partition, 9)
    segments = files(broker)
    broker.now = -1
    broker.retention._now = lambda: -1
    for _ in range(20):
        broker.pass_time(MINUTE)
    assert set(segments) <= set(files(broker))
    assert partition.start_offset == 0
    broker.retention._now = lambda: 11 * MINUTE
    broker.pass_time(MINUTE)
    assert partition.start_offset == 9


def test_idle_producers_expire(broker: RetainingBroker) -> None:
    broker.create_topic("orders")
    partition = broker.find("orders")
    data = bytearray(build([Record(0, 0, b"k", b"v", [])]))
    header = read_header(data, 0)
    header.producer_id, header.producer_epoch, header.base_sequence = 7, 0, 0
    partition.append(data, header)
    broker.pass_time(30_000)  # the first round
    broker.pass_time(86_400_000 - 600_000)
    assert len(partition.producers) == 1
    broker.pass_time(600_000)
    assert len(partition.producers) == 0


def test_checkpoints_have_log_starts_and_recovery_points(broker: RetainingBroker) -> None:
    broker.create_topic("orders", retention_bytes="900000")
    partition = broker.find("orders")
    write(broker, partition, 9)
    broker.pass_time(2000)
    broker.pass_time(60_000)
    assert read_offsets(broker.disk, f"/data/{RECOVERY_POINTS}")["orders", 0] == 8
    assert read_offsets(broker.disk, f"/data/{LOG_STARTS}")["orders", 0] == 6
    broker.settle()
    broker.restart_and_open()
    assert broker.find("orders").start_offset == 6


def test_log_starts_survive_a_kill(broker: RetainingBroker) -> None:
    broker.create_topic("orders")
    write(broker, broker.find("orders"), 2, 10)
    disk_log(broker.find("orders")).delete_before(1)
    broker.settle()
    broker.pass_time(60_000)
    broker.restart_and_open()
    assert broker.find("orders").start_offset == 1


def test_a_disk_error_suspends_the_partition_and_the_next_round_continues(broker: RetainingBroker) -> None:
    broker.create_topic("orders", retention_ms=str(MINUTE))
    broker.settle()
    partition = broker.find("orders")
    write(broker, partition, 4)
    broker.disk.read_only = True
    broker.pass_time(2 * MINUTE)
    assert partition.error
    broker.disk.read_only = False
    broker.pass_time(MINUTE)
    broker.pass_time(MINUTE)
    assert not partition.error
    assert partition.start_offset == 4


def test_retention_ignores_a_deleted_topic(broker: RetainingBroker) -> None:
    broker.create_topic("orders", retention_ms="1000")
    write(broker, broker.find("orders"), 4)
    broker.settle()
    broker.delete("orders")
    broker.create_topic("others")
    put(broker.find("others"), "a")
    broker.settle()
    broker.pass_time(MINUTE)
    assert broker.folders() == ["others-0"]
