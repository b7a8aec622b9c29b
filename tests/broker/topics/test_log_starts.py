"""An acknowledged DeleteRecords holds: no retention round, kill or recreated topic brings records back."""

from __future__ import annotations

from random import Random

import pytest

from broker.topics import retention
from protocol.errors import ErrorCode
from simulator.disk import Crashed, SimDisk
from storage.checkpoints import LOG_STARTS, read_offsets
from tests.support.topic_broker import REGISTRY, DeleteRecordsCall, RetainingBroker, delete_records, write
from tests.support.topic_logs import disk_log

SETTINGS = ("log.flush.start.offset.checkpoint.interval.ms=1000",)
NAMES = ("orders", "payments", "visits")


def delete(broker: RetainingBroker, name: str, offset: int) -> DeleteRecordsCall:
    call = DeleteRecordsCall()
    delete_records(broker, call, name, offset)
    return call


def low_watermark(call: DeleteRecordsCall) -> int:
    (result,) = call.reply.topics[0].partitions
    assert (call.released, result.error_code) == (True, 0)
    return int(result.low_watermark)


def stored(broker: RetainingBroker) -> dict[tuple[str, int], int]:
    return read_offsets(broker.disk, f"/data/{LOG_STARTS}")


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> RetainingBroker:
    monkeypatch.setattr(retention, "SLICE_SECONDS", -1.0)  # a round of retention pauses after each partition
    broker = RetainingBroker(SimDisk(), *SETTINGS)
    for name in NAMES:
        broker.create_topic(name)
        write(broker, broker.find(name), 10, 10)
    broker.settle()
    return broker


def reopened(broker: RetainingBroker) -> None:
    broker.restart_and_open()


def test_a_retention_round_does_not_undo_a_concurrent_delete_records(broker: RetainingBroker) -> None:
    before = delete(broker, "orders", 4)
    broker.threads.run_all()
    assert low_watermark(before) == 4
    broker.loop.jump(1)  # the round begins, and visits the first topic
    call = delete(broker, "orders", 5)
    broker.threads.run_all()
    assert low_watermark(call) == 5
    for _ in range(10):
        broker.loop.jump(0.01)
        broker.threads.run_all()
    assert stored(broker)["orders", 0] == 5
    reopened(broker)
    assert broker.find("orders").start_offset == 5


def test_a_repeated_deletion_waits_for_the_disk_too(broker: RetainingBroker) -> None:
    first = delete(broker, "orders", 5)
    second, lower = delete(broker, "orders", 5), delete(broker, "orders", 3)
    assert [call.released for call in (first, second, lower)] == [False] * 3
    broker.threads.run_all()
    assert [low_watermark(call) for call in (first, second, lower)] == [5, 5, 5]


def test_a_log_start_that_could_not_be_written_is_written_by_the_next_deletion(broker: RetainingBroker) -> None:
    broker.disk.read_only = True
    call = delete(broker, "orders", 5)
    broker.threads.run_all()
    assert call.reply.topics[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    broker.disk.read_only = False
    call = delete(broker, "orders", 5)
    assert not call.released
    broker.threads.run_all()
    assert low_watermark(call) == 5
    assert stored(broker)["orders", 0] == 5
    assert delete(broker, "orders", 5).released  # this start offset is already durable, so the reply is immediate


def test_a_log_start_never_moves_back_unless_its_log_is_forgotten(broker: RetainingBroker) -> None:
    directory = broker.store.directory
    directory.checkpoint_starts({("orders", 0): 7, ("payments", 0): 1})
    directory.checkpoint_starts({("orders", 0): 6, ("payments", 0): 2})
    assert stored(broker) == directory.log_starts == {("orders", 0): 7, ("payments", 0): 2}
    directory.forget([("orders", 0)])
    directory.checkpoint_starts({("orders", 0): 1})
    assert stored(broker)["orders", 0] == 1


@pytest.mark.parametrize("seed", range(40))
def test_acknowledged_log_starts_survive_power_failures_at_any_step(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(retention, "SLICE_SECONDS", -1.0)
    chance = Random(seed)
    broker = RetainingBroker(SimDisk(chance), *SETTINGS)
    for name in NAMES:
        broker.create_topic(name)
        write(broker, broker.find(name), 30, 10)
        broker.settle()
        disk_log(broker.find(name)).flush()
    registry = broker.store.owned_log(REGISTRY)
    assert registry is not None
    registry.log.flush()
    acknowledged = dict.fromkeys(NAMES, 0)
    waiting: list[tuple[str, DeleteRecordsCall]] = []
    broker.disk.changes_until_crash = chance.randint(0, 60)
    try:
        for _ in range(60):
            action = chance.randint(0, 3)
            if action == 0:
                name = chance.choice(NAMES)
                waiting.append((name, delete(broker, name, chance.randint(0, 30))))
            elif action == 1 and broker.threads.jobs:
                broker.threads.run()
            else:
                broker.now += 1
                broker.loop.jump(chance.choice((0.005, 1)))
            for name, call in waiting:
                if call.released and call.reply.topics[0].partitions[0].error_code == 0:
                    acknowledged[name] = max(acknowledged[name], low_watermark(call))
    except Crashed:
        pass
    broker.disk.crash()
    reopened(broker)
    for name in NAMES:
        assert broker.find(name).start_offset >= acknowledged[name]
