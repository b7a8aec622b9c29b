"""Flushing many logs with one sync of the file system, and closing many logs."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, cast

import pytest

from broker.stores import bulk_flush
from broker.stores.bulk_flush import SAVE_INDEXES_SECONDS, SYNCFS_LOGS_MIN, THREADS, BulkFlusher, sync_file_system
from broker.stores.owned import Flusher
from storage import AppendFailed, Handles, Log, OsDisk
from tests.support.local_stores import Threads

MANY = SYNCFS_LOGS_MIN


class FakeLog:
    def __init__(self, number: int, size: int = 0) -> None:
        self.folder = f"/data/t-{number}"
        self.usable = True
        self.flushed_offset, self.next_offset = 0, 10
        self.size = size
        self.saved: list[bool] = []
        self.broken = False

    def mark_flushed(self, end: int) -> None:
        self.flushed_offset = end

    def use(self, handles: Handles) -> None: ...

    def close(self, save_indexes: bool) -> None:
        if self.broken:
            raise OSError(5, "Input/output error")
        self.saved.append(save_indexes)


class FakeFlush:
    def __init__(self, log: FakeLog) -> None:
        self.log = log
        self.ran = False

    def run(self) -> None:
        self.ran = True


class FakeFlusher:
    def __init__(self, number: int) -> None:
        self.log = FakeLog(number)
        self.busy = False
        self.flushes: list[FakeFlush] = []
        self.reported: list[AppendFailed | None] = []
        self.results: list[object] = []

    def begin(self, done: Any) -> FakeFlush:
        self.flushes.append(FakeFlush(self.log))
        return self.flushes[-1]

    def flushed(self, flush: FakeFlush, done: Any, result: object) -> None:
        assert flush.ran
        self.results.append(result)
        self.log.flushed_offset = self.log.next_offset
        done(None)

    def report_failure(self, failure: AppendFailed | None) -> None:
        self.reported.append(failure)


class World:
    def __init__(self, flushers: int = MANY, concurrency: int = 1_000) -> None:
        self.threads = Threads()
        self.seconds = 0.0
        self.bulk = BulkFlusher(cast(Any, self.threads), OsDisk(), "/data", concurrency, lambda: self.seconds)
        self.flushers = [FakeFlusher(number) for number in range(flushers)]
        self.done: list[AppendFailed | None] = []

    def flush(self, wait: bool = True) -> None:
        self.bulk.flush(cast(list[Flusher], self.flushers), self.done.append if wait else None)

    @property
    def flushed_alone(self) -> list[int]:
        return [number for number, flusher in enumerate(self.flushers) if flusher.flushes]


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The results of the next syncs of the file system; those that are used are removed."""
    results: list[object] = []
    monkeypatch.setattr(bulk_flush, "sync_file_system", lambda folder: results.pop())
    return results


pytestmark = pytest.mark.plain  # replaces sync_file_system


def test_many_logs_are_flushed_by_one_sync(synced: list[object]) -> None:
    world = World()
    synced.append(True)
    world.flush()
    assert len(world.threads.jobs) == 1
    world.threads.run_all()
    assert world.done == [None] * MANY
    assert world.flushed_alone == []
    assert {flusher.log.flushed_offset for flusher in world.flushers} == {10}


def test_few_logs_are_flushed_each_without_a_sync(synced: list[object]) -> None:
    world = World(MANY - 1)
    world.flush()
    world.threads.run_all()
    assert len(world.done) == len(world.flushed_alone) == MANY - 1


def test_without_the_call_of_linux_each_log_is_flushed(synced: list[object]) -> None:
    world = World()
    synced.append(False)
    world.flush()
    world.threads.run_all()
    assert len(world.done) == len(world.flushed_alone) == MANY


def test_logs_that_a_sync_may_not_count_as_flushed_are_flushed_alone(synced: list[object]) -> None:
    """One is not usable, one is being flushed, one has got records since the sync began."""
    world = World()
    synced.append(True)
    unusable, busy, grown = world.flushers[:3]
    unusable.log.usable = False
    busy.busy = True
    world.flush()
    grown.log.next_offset = 11
    world.threads.run()
    assert [flusher.log.flushed_offset for flusher in world.flushers[:4]] == [0, 0, 10, 10]
    assert world.flushed_alone == [0, 1, 2]
    assert len(world.done) == MANY - 3
    world.threads.run_all()
    assert len(world.done) == MANY


def test_an_unusable_log_is_not_done_though_all_of_it_is_flushed(synced: list[object]) -> None:
    world = World()
    synced.append(True)
    world.flushers[0].log.usable = False
    world.flushers[0].log.flushed_offset = 10
    world.flush()
    world.threads.run()
    assert (world.flushed_alone, len(world.done)) == ([0], MANY - 1)


def test_without_a_waiter_failures_are_reported_to_the_owners(synced: list[object]) -> None:
    world = World()
    synced.append(False)
    world.flush(wait=False)
    world.threads.run_all()
    assert [flusher.reported for flusher in world.flushers] == [[None]] * MANY


def test_flushes_are_shared_among_the_threads_and_limited(synced: list[object]) -> None:
    world = World(30, concurrency=20)
    world.flush()
    assert (len(world.threads.jobs), len(world.flushed_alone)) == (THREADS, 20)
    for _ in range(THREADS):
        world.threads.run()
    assert (len(world.threads.jobs), len(world.flushed_alone)) == (THREADS, 30)
    world.threads.run_all()
    assert len(world.done) == 30


def test_a_sync_of_the_file_system_succeeds_on_linux_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    class Library:
        def syncfs(self, descriptor: int) -> int:
            calls.append("syncfs")
            return 0 if len(calls) == 1 else -1

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    assert sync_file_system(str(tmp_path)) is True
    assert sync_file_system(str(tmp_path)) is False
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert sync_file_system(str(tmp_path)) is False
    assert len(calls) == 2


def close(world: World, logs: list[FakeLog]) -> list[str]:
    problems: list[str] = []
    world.bulk.close_logs(cast(list[Log], logs), problems.append)
    return problems


def test_the_largest_logs_are_closed_first_and_the_last_ones_without_their_indexes() -> None:
    world = World(0)
    logs = [FakeLog(number, size=number) for number in range(2 * THREADS)]
    problems = close(world, logs)
    assert len(world.threads.jobs) == THREADS
    for _ in range(THREADS - 1):
        world.threads.run()
    assert problems == []
    world.seconds = SAVE_INDEXES_SECONDS
    world.threads.run()
    assert problems == [""]
    late = {THREADS, 0}  # the last part has the eighth largest log, and the smallest
    assert [log.saved for log in logs] == [[number not in late] for number in range(2 * THREADS)]


def test_a_log_that_cannot_be_closed_is_the_problem() -> None:
    world = World(0)
    logs = [FakeLog(number, size=number) for number in range(2)]
    logs[0].broken = True
    problems = close(world, logs)
    world.threads.run_all()
    assert problems == ["/data/t-0: Input/output error"]
    assert logs[1].saved == [True]


def test_no_logs_are_closed_at_once() -> None:
    world = World(0)
    assert (close(world, []), world.threads.jobs) == ([""], [])


