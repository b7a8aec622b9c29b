"""The order in which topic logs are compacted, and that the cleaner process keeps the newest record of each key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from broker.runtime.contain import DEFECTS
from broker.stores import compaction as module
from broker.stores.compaction import CleaningRules, LogCleaner
from broker.stores.compaction_order import LOG_COST, STEP_COST, Due, TopicLogs
from broker.topics.partition import Partition
from broker.topics.registry import Topic
from broker.topics.settings import log_settings
from protocol.batch import Record, build, read_header
from simulator.disk import SimDisk
from storage import AppendFailed, DataDirectory, Handles, Log, OsDisk
from storage.checkpoints import CLEANER_POINTS, read_offsets
from tests.support.fetch_harness import ImmediateLog
from tests.support.topic_logs import disk_log

HOUR = 3_600_000


class Keeper:
    def __init__(self) -> None:
        self.failures: list[AppendFailed] = []

    def append_failed(self, partition: Partition, failure: AppendFailed) -> None:
        self.failures.append(failure)


class Logs:
    """Partitions of compacted topics, each record in its own batch with its own time."""

    def __init__(self, disk: SimDisk | OsDisk, path: str) -> None:
        self.disk = disk
        self.directory = DataDirectory.open(disk, path, 1, "", "a test", lambda: "id")
        self.partitions: list[Partition] = []
        self.topics = TopicLogs(lambda: self.partitions, self.directory)
        self.keeper = Keeper()

    def add(self, name: str, **settings: str) -> Partition:
        topic_settings = {"cleanup.policy": "compact"} | {key.replace("_", "."): value for key, value in settings.items()}
        partition = Partition(Topic(name, name.encode().ljust(16), 1, 0, topic_settings), 0, log_settings(topic_settings, {}), self.keeper)
        log, _ = Log.open(Handles(self.disk), self.directory.log_folder(name, 0), 2_000, 0, False, deferred=True, producers=partition.producers)
        partition.use_log(cast(Any, ImmediateLog(log)))
        self.partitions.append(partition)
        return partition

    def most_urgent(self, now: int, time: float) -> Due | None:
        """Scan all logs; returns the one to compact next."""
        for _ in self.topics.scan(now, time):
            pass
        return self.topics.next_due(now)

    def due(self, now: int = 0) -> str:
        due = self.most_urgent(now, 0.0)
        return due.partition.id.name if due is not None else ""


def write(partition: Partition, count: int, keys: int = 3, timestamp: int = 0, producer_id: int = -1) -> None:
    """Append batches of some 200 bytes; nine fill a segment."""
    for number in range(count):
        record = Record(0, timestamp, b"k%d" % (number % keys), b"%d" % partition.high_watermark + bytes(130), [])
        data = bytearray(build([record], producer_id=producer_id, producer_epoch=0, base_sequence=number))
        partition.append(data, read_header(data, 0))


@pytest.fixture
def logs() -> Logs:
    return Logs(SimDisk(), "/data")


def test_the_log_with_the_largest_dirty_ratio_is_compacted_first(logs: Logs) -> None:
    large, small = logs.add("large"), logs.add("small")
    write(large, 100)
    write(small, 20)
    due = logs.most_urgent(0, 0.0)
    assert due is not None
    assert due.urgency == 1.0
    due.state.clean_to = due.end
    write(large, 20)
    write(small, 20)
    assert logs.due() == "small"


def test_only_closed_segments_count_as_dirty(logs: Logs) -> None:
    partition = logs.add("orders")
    write(partition, 5)
    assert logs.due() == ""
    write(partition, 10)
    assert logs.due() == "orders"


def test_a_log_that_is_not_to_be_compacted_or_cannot_be_used_never_is(logs: Logs) -> None:
    write(logs.add("orders", cleanup_policy="delete"), 50)
    broken = logs.add("payments")
    write(broken, 50)
    broken.error = 56
    assert logs.due() == ""


def test_the_dirty_ratio_must_exceed_the_minimum(logs: Logs) -> None:
    partition = logs.add("orders", min_cleanable_dirty_ratio="0.8")
    write(partition, 60)
    due = logs.most_urgent(0, 0.0)
    assert due is not None
    due.state.clean_to = disk_log(partition).closed_segments[3].base
    assert logs.due() == ""
    due.state.clean_to = disk_log(partition).closed_segments[1].base
    assert logs.due() == "orders"


def test_segments_younger_than_the_lag_are_not_compacted(logs: Logs) -> None:
    partition = logs.add("orders", min_compaction_lag_ms=str(HOUR))
    write(partition, 20, timestamp=1)
    write(partition, 20, timestamp=HOUR)
    assert logs.due(HOUR) == ""
    due = logs.most_urgent(HOUR + 1, 0.0)
    assert due is not None
    assert 0 < due.end <= 20
    next_log = logs.most_urgent(2 * HOUR, 0.0)
    assert next_log is not None
    assert next_log.end == disk_log(partition).active_base


def test_segments_older_than_the_maximum_lag_are_compacted_at_any_ratio(logs: Logs) -> None:
    partition = logs.add("orders", min_cleanable_dirty_ratio="1", max_compaction_lag_ms=str(HOUR))
    write(partition, 20, timestamp=1)
    assert logs.due(HOUR) == ""
    assert logs.due(HOUR + 2) == "orders"


def test_a_failed_log_is_skipped_for_a_while(logs: Logs) -> None:
    write(logs.add("orders"), 20)
    due = logs.most_urgent(0, 0.0)
    assert due is not None
    due.state.not_before = 5.0
    assert logs.most_urgent(0, 4.9) is None
    assert logs.most_urgent(0, 5.0) is not None


def test_offsets_compacted_before_the_start_are_known(logs: Logs) -> None:
    partition = logs.add("orders")
    write(partition, 40)
    logs.directory.checkpoint_cleaned({("orders", 0): disk_log(partition).active_base})
    assert logs.due() == ""


def test_a_scan_over_many_logs_runs_in_steps(logs: Logs) -> None:
    scanned: list[int] = []
    logs.add("orders")
    write(logs.partitions[0], 50)
    plain = logs.add("plain", cleanup_policy="delete")

    def many() -> Iterator[Partition]:
        for number in range(10 * STEP_COST):
            scanned.append(number)
            yield logs.partitions[0] if number % 2 else plain

    logs.topics = TopicLogs(many, logs.directory)
    scans_per_step = []
    for _ in logs.topics.scan(0, 0.0):
        scans_per_step.append(len(scanned))
        scanned.clear()
    assert 10 < len(scans_per_step) < 10 * (LOG_COST + 10)
    assert max(scans_per_step) <= 2 * STEP_COST / (LOG_COST + 2)


def test_due_logs_are_compacted_one_by_one_while_still_due(logs: Logs) -> None:
    for name, count in (("small", 20), ("large", 100), ("gone", 100), ("broken", 100), ("kept", 100), ("again", 100)):
        write(logs.add(name, max_compaction_lag_ms=str(HOUR)), count)
    first = logs.most_urgent(2 * HOUR, 0.0)
    assert first is not None
    by_name = {partition.topic.name: partition for partition in logs.partitions}
    by_name["gone"].error = 3
    disk_log(by_name["broken"]).usable = False
    by_name["kept"].settings = log_settings({"cleanup.policy": "delete"}, {})
    reopened, _ = Log.open(Handles(logs.disk), disk_log(by_name["again"]).folder, 2_000, 0, False, deferred=True)
    by_name["again"].use_log(cast(Any, ImmediateLog(reopened)))
    next_logs = []
    while (due := logs.topics.next_due(2 * HOUR)) is not None:
        next_logs.append(due.partition.id.name)
    assert {first.partition.id.name, *next_logs} - {"gone", "broken", "kept", "again"} == {"small", "large"}
    assert not {"gone", "broken", "kept", "again"} & set(next_logs)


async def wait_until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.once
@pytest.mark.asyncio
async def test_compacting_keeps_the_newest_record_of_each_key_and_the_last_batch_of_each_producer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECK_SECONDS", 0.02)
    logs = Logs(OsDisk(), str(tmp_path))
    partition = logs.add("orders")
    write(partition, 3, producer_id=7)
    write(partition, 40)
    cleaning = LogCleaner(asyncio.get_running_loop(), logs.disk, logs.directory, CleaningRules(1 << 20), lambda: HOUR)
    cleaning.clean_topics(logs.topics)
    await wait_until(lambda: cleaning.cleanings)
    await cleaning.stop()
    log = disk_log(partition)
    keys = [key for facts in log.facts(log.active_base) for key, _ in facts if key is not None]
    assert sorted(keys) == [b"k0", b"k1", b"k2"]
    assert log.next_offset == 43
    assert log.read(2, 1000)[:8] == (2).to_bytes(8, "big")
    points = read_offsets(logs.disk, f"{tmp_path}/{CLEANER_POINTS}")
    assert points["orders", 0] == log.active_base
    assert not logs.keeper.failures


@pytest.mark.once
@pytest.mark.asyncio
async def test_due_logs_are_cleaned_without_a_pause_between_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECK_SECONDS", 0.02)
    logs = Logs(OsDisk(), str(tmp_path))
    for name in "abcd":
        write(logs.add(name), 20)
    cleaning = LogCleaner(asyncio.get_running_loop(), logs.disk, logs.directory, CleaningRules(1 << 20), lambda: HOUR)
    monkeypatch.setattr(module, "CHECK_SECONDS", 3_600)  # no second scan during this test
    cleaning.clean_topics(logs.topics)
    await wait_until(lambda: cleaning.cleanings == 4)
    await cleaning.stop()


class Scans:
    """The logs of topics, scanned in several steps; the first scan fails."""

    def __init__(self) -> None:
        self.scans = 0
        self.passes = 0  # passes of the event loop so far
        self.step_passes: list[int] = []  # the pass of the loop in which each step ran
        self.stopped = False

    def tick(self) -> None:
        self.passes += 1
        if not self.stopped:
            asyncio.get_running_loop().call_soon(self.tick)

    def scan(self, now: int, time: float) -> Iterator[None]:
        self.scans += 1
        if self.scans == 1:
            raise RuntimeError("a defect")
        for _ in range(5):
            self.step_passes.append(self.passes)
            yield

    def next_due(self, now: int) -> None: ...


@pytest.mark.asyncio
async def test_the_loop_runs_between_steps_and_a_failed_scan_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECK_SECONDS", 0.02)
    logs = Logs(OsDisk(), str(tmp_path))
    defects = DEFECTS.count
    cleaning = LogCleaner(asyncio.get_running_loop(), logs.disk, logs.directory, CleaningRules(1 << 20), lambda: HOUR)
    scans = Scans()
    scans.tick()
    cleaning.clean_topics(cast(TopicLogs, scans))
    await wait_until(lambda: len(scans.step_passes) == 5)
    await cleaning.stop()
    scans.stopped = True
    assert DEFECTS.count == defects + 1
    assert len(set(scans.step_passes)) == 5
