"""A recreated topic starts empty, whatever was running in the folder of the old topic."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from broker.groups.journal import Journal, owned_or_fail
from broker.internal_topics import REGISTRY_LOG
from broker.runtime.clock import Clock
from broker.runtime.turn import Turn
from broker.settings.load import load_config
from broker.stores import compaction as module
from broker.stores import topic_logs
from broker.stores.compaction import CleaningRules, LogCleaner
from broker.stores.compaction_order import TopicLogs
from broker.stores.compaction_process import run_cleaner
from broker.stores.local import LocalStore
from broker.stores.topic_logs import LocalTopicStore
from broker.topics import partitions as partitions_module
from broker.topics.partition import Partition
from broker.topics.partitions import Partitions
from broker.topics.registry import TopicRegistry
from protocol.batch import Record, build, facts_of, read_header
from storage import HeldBy, OsDisk, OwnedLog, Unreadable
from storage.checkpoints import CLEANER_POINTS, read_offsets
from tests.storage.logs import scan
from tests.support.journals import LATE_MS
from tests.support.topic_broker import REGISTRY
from tests.support.topic_logs import disk_log

COMPACTED = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0"}


class RunningDirectory:
    """A data directory with partitions and their compaction by a cleaner process, in a running event loop."""

    def __init__(self, path: Path) -> None:
        self.path = path
        loop = asyncio.get_running_loop()
        self.disk = OsDisk()
        self.store = LocalStore(load_config(data=[str(path)], settings=["offsets.flush=never"], environ={}), loop, self.disk)
        self.ids = 0
        self.topics = TopicRegistry(self._new_id)

    def _new_id(self) -> bytes:
        self.ids += 1
        return self.ids.to_bytes(16, "big")

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        acquired: list[OwnedLog | HeldBy | Unreadable] = []
        self.store.acquire(REGISTRY, acquired.append)
        await wait_until(lambda: acquired)
        self.registry = Journal(REGISTRY_LOG, self.topics, owned_or_fail("registry", acquired[0]), Turn(loop, Clock()), LATE_MS)
        self.registry.start()
        self.partitions = Partitions(self.topics, self.registry, LocalTopicStore(self.store), loop, {})
        rules = CleaningRules(1 << 20, topics_backoff_seconds=0.02)
        self.cleaning = self.store.cleaning = LogCleaner(loop, self.disk, self.store.directory, rules, lambda: 0, checkpoint_worker=self.store.checkpoint_worker)
        self.partitions.open_all()

    def create(self, name: str, **settings: str) -> None:
        self.partitions.created(self.topics.create(name, 1, settings, 0))
        self.registry.end_turn()

    def delete(self, name: str) -> None:
        self.partitions.deleted(self.topics.delete(name, 0))
        self.registry.end_turn()

    async def served(self, name: str) -> Partition:
        def find() -> bool:
            self.registry.end_turn()
            partition = self.partitions.find(name, 0)
            return partition is not None and not partition.error

        await wait_until(find)
        entry = self.partitions.find(name, 0)
        assert entry is not None
        return entry

    async def stop(self, clean: bool) -> None:
        self.partitions.stop()
        await self.cleaning.stop()
        if clean:
            results: list[str] = []
            self.store.finish(True, results.append)
            await wait_until(lambda: results)
            assert results == [""]
        self.store.close()


async def wait_until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def write(partition: Partition, names: str, count: int) -> None:
    for number in range(count):
        data = bytearray(build([Record(0, 1_000 + number, f"{number % 5}".encode(), f"{names}{number}".encode() + bytes(60_000), [])]))
        partition.append(data, read_header(data, 0))


def values(partition: Partition) -> list[str]:
    log = disk_log(partition)
    return [value.rstrip(b"\0").decode() for chunk in scan(log, log.start_offset) for _, value in facts_of(chunk) if value is not None]


class Held:
    """Replaces one step of a compaction: waits until the topic has been deleted and recreated, then runs the step."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call
        self.reached = threading.Event()
        self.go = threading.Event()

    def __call__(self, *arguments: Any) -> Any:
        if not self.go.is_set():
            self.reached.set()
            assert self.go.wait(20)
        return self.call(*arguments)


class HeldProcess:
    """Like `Held`, for the run of the cleaner process: waits after the process has done its work."""

    def __init__(self, call: Callable[..., Awaitable[Any]]) -> None:
        self.call = call
        self.reached = threading.Event()
        self.go = threading.Event()

    async def __call__(self, *arguments: Any) -> Any:
        report = await self.call(*arguments)
        self.reached.set()
        while not self.go.is_set():
            await asyncio.sleep(0.005)
        return report


STEPS = ("remove_unfinished", "run_cleaner", "promote", "remove_deleted", "checkpoint")


@pytest.mark.plain
@pytest.mark.once
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("step", STEPS)
def test_a_topic_recreated_during_compaction_of_the_old_log_keeps_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, clean: bool
) -> None:
    monkeypatch.setattr(module, "CHECK_SECONDS", 0.02)
    for owner_module in (topic_logs, partitions_module):
        monkeypatch.setattr(owner_module, "BUSY_SECONDS", 0.02)

    async def main() -> None:
        directory = RunningDirectory(tmp_path)
        await directory.start()
        directory.create("orders", **COMPACTED)
        first = await directory.served("orders")
        write(first, "old", 60)
        if step == "checkpoint":
            held: Held | HeldProcess = Held(directory.store.directory.checkpoint_cleaned)
            monkeypatch.setattr(directory.store.directory, "checkpoint_cleaned", held)
        elif step == "run_cleaner":
            held = HeldProcess(run_cleaner)
            monkeypatch.setattr(directory.cleaning, "_run_cleaner", held)
        else:
            held = Held(getattr(module, step))
            monkeypatch.setattr(module, step, held)
        directory.cleaning.clean_topics(TopicLogs(lambda: directory.partitions, directory.store.directory))
        await wait_until(held.reached.is_set)
        directory.delete("orders")
        directory.create("orders", **{"segment.bytes": str(1 << 20)})
        directory.partitions.find("orders", 0)
        await asyncio.sleep(0.1)  # time for a defect to act on the new topic
        held.go.set()
        recreated = await directory.served("orders")
        assert recreated is not first
        write(recreated, "new", 70)
        expected = [f"new{number}" for number in range(70)]
        assert values(recreated) == expected
        await wait_until(lambda: directory.cleaning._compacted is None)
        assert not [name for name in directory.disk.list(disk_log(recreated).folder) if name.endswith((".cleaned", ".swap", ".deleted"))]
        assert ("orders", 0) not in read_offsets(directory.disk, f"{tmp_path}/{CLEANER_POINTS}")
        await directory.stop(clean)
        directory = RunningDirectory(tmp_path)
        await directory.start()
        recreated = await directory.served("orders")
        assert values(recreated) == expected
        assert (recreated.start_offset, recreated.high_watermark) == (0, 70)
        await directory.stop(clean)

    asyncio.run(main())
