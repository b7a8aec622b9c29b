"""When the cleaner begins, repeats and gives up compactions, with a cleaner process that the test plays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio

from broker.stores import compaction as module
from broker.stores.compaction import CANCELLED, NICENESS, NICENESS_LATE, CleaningRules, LogCleaner
from broker.stores.compaction_process import REPORT_BYTES_MAX, CleaningFailed
from protocol.batch import build_facts
from storage import AppendFailed, DataDirectory, Handles, Log, LogId, OsDisk
from storage.cleaner import Report

pytestmark = [pytest.mark.once, pytest.mark.asyncio, pytest.mark.plain]  # replaces constants

ORDERS, PAYMENTS = LogId("__consumer_offsets", 0), LogId("__consumer_offsets", 1)
SEGMENT_BYTES = 1 << 20
BOUND = 20_000
LIMIT_SECONDS = 20.0


def report(clean_to: int) -> Report:
    return Report(json.dumps({"cleaned": [], "clean_to": clean_to, "bytes_before": 1, "bytes_after": 1}).encode())


class CleaningRun:
    """One run of the cleaner process."""

    def __init__(self, folder: str, request: dict[str, Any], niceness: int, limit_seconds: float) -> None:
        self.folder = folder
        self.request = request
        self.niceness = niceness
        self.limit_seconds = limit_seconds
        self.ended: asyncio.Future[Report] = asyncio.get_running_loop().create_future()


class World:
    def __init__(self, path: Path) -> None:
        self.disk = OsDisk()
        self.directory = DataDirectory.open(self.disk, str(path), 1, "", "a test", lambda: "id")
        self.runs: list[CleaningRun] = []
        self.failures: list[AppendFailed] = []
        self.flushes = 0
        self.now = 1_000_000
        rules = CleaningRules(SEGMENT_BYTES, dirty_bytes_min=BOUND)
        self.cleaner = LogCleaner(asyncio.get_running_loop(), self.disk, self.directory, rules, lambda: self.now, run_cleaner=self._run)

    async def _run(self, command: tuple[str, ...], folder: str, request: bytes, niceness: int, limit_seconds: float) -> Report:
        self.runs.append(CleaningRun(folder, json.loads(request), niceness, limit_seconds))
        return await self.runs[-1].ended

    def open(self, id: LogId, watch: bool = True) -> Log:
        log, _ = Log.open(Handles(self.disk), self.directory.log_folder(*id), SEGMENT_BYTES, 0, False)
        if watch:
            self.watch(id, log)
        return log

    def watch(self, id: LogId, log: Log) -> None:
        def flush(done: Callable[[Any], None]) -> None:
            self.flushes += 1
            log.flush()
            self.cleaner.flushed(log)
            done(None)

        self.cleaner.watch(id, log, flush, self.failures.append)

    async def run(self, number: int) -> CleaningRun:
        await wait_until(lambda: len(self.runs) > number)
        return self.runs[number]


def write(log: Log, bytes_count: int) -> None:
    end = log.size + bytes_count
    while log.size < end:
        log.append(build_facts([(b"key", bytes(900))], 1_000), log.epoch)


async def wait_until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while not condition():
            await asyncio.sleep(0.002)


async def some_checks() -> None:
    await asyncio.sleep(10 * module.CHECK_SECONDS)


@pytest_asyncio.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(module, "CHECK_SECONDS", 0.005)
    monkeypatch.setattr(module, "RETRY_SECONDS_MIN", 0.01)
    world = World(tmp_path)
    yield world
    await world.cleaner.stop()
    world.directory.close()


def pauses(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The reasons of the logged failures, and the pauses until the next attempt."""
    logged: list[tuple[str, int]] = []
    monkeypatch.setattr("broker.stores.compaction.log.warning", lambda event, **fields: logged.append((fields["reason"], fields["retry_seconds"])))
    return logged


async def test_the_settings_of_kafka_are_the_defaults() -> None:
    rules = CleaningRules(SEGMENT_BYTES)
    assert (rules.delete_retention_ms, rules.map_bytes_max, rules.topics_backoff_seconds, rules.topics_enable) == (86_400_000, 134_217_728, 15.0, True)
    assert (rules.dirty_bytes_min, rules.time_limit_seconds, rules.notes_bytes_max) == (33_554_432, 600.0, -1)
    assert (module.HOUSEKEEPING_SECONDS, REPORT_BYTES_MAX) == (60.0, 16 << 20)


async def test_the_process_gets_the_closed_segments_and_the_rules(world: World) -> None:
    log = world.open(ORDERS)
    write(log, BOUND + 1_000)
    run = await world.run(0)
    request = run.request
    assert (run.folder, run.niceness, run.limit_seconds) == (log.folder, NICENESS, 600.0)
    assert (request["now"], request["delete_retention_ms"], request["segment_bytes"], request["map_bytes_max"]) == (1_000_000, 86_400_000, SEGMENT_BYTES, 134_217_728)
    run.ended.set_result(report(log.active_base))
    await wait_until(lambda: world.cleaner.cleanings)
    assert world.directory.cleaner_points == {ORDERS: log.active_base}
    assert world.cleaner.dirty_bytes == log.bytes_since(log.active_base)
    assert not log.busy


async def test_above_twice_the_bound_the_process_is_more_important(world: World) -> None:
    write(world.open(ORDERS), 2 * BOUND + 2_000)
    assert (await world.run(0)).niceness == NICENESS_LATE


async def test_each_failure_doubles_the_pause_until_a_success(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS_MIN", 1.0)
    monkeypatch.setattr(module, "RETRY_SECONDS_MAX", 3.0)
    logged = pauses(monkeypatch)
    log = world.open(ORDERS)
    watched = world.cleaner._watched[ORDERS]
    write(log, BOUND + 1_000)
    for number in range(5):
        run = await world.run(number)
        if number == 3:
            run.ended.set_result(report(log.active_base))
            await wait_until(lambda: world.cleaner.cleanings)
            write(log, 3 * BOUND)
            continue
        run.ended.set_exception(CleaningFailed(f"no {number}"))
        await wait_until(lambda number=number: len(logged) == number + (number < 3))  # type: ignore[misc]
        assert watched.not_before > asyncio.get_running_loop().time()
        await some_checks()
        assert len(world.runs) == number + 1, "the log has to wait"
        watched.not_before = 0.0
        write(log, 1_000)
    assert logged == [("no 0", 1), ("no 1", 2), ("no 2", 3), ("no 4", 1)]
    assert world.cleaner.failures == 4


async def test_another_log_is_compacted_while_one_waits(world: World) -> None:
    first, second = world.open(ORDERS), world.open(PAYMENTS)
    write(first, BOUND)
    write(second, BOUND // 2)
    run = await world.run(0)
    assert run.folder == first.folder, "the log with more dirty bytes comes first"
    world.cleaner._watched[ORDERS].not_before = asyncio.get_running_loop().time() + 100
    run.ended.set_exception(CleaningFailed("no"))
    assert (await world.run(1)).folder == second.folder


async def test_one_log_is_compacted_at_a_time(world: World) -> None:
    write(world.open(ORDERS), BOUND + 1_000)
    await world.run(0)
    write(world.open(PAYMENTS), 3 * BOUND)
    await some_checks()
    assert len(world.runs) == 1


async def test_a_log_that_is_watched_again_is_clean_as_far_as_before(world: World) -> None:
    log = world.open(ORDERS)
    write(log, BOUND + 1_000)
    (await world.run(0)).ended.set_result(report(log.active_base))
    await wait_until(lambda: world.cleaner.cleanings)
    world.directory.cleaner_points.clear()
    world.watch(ORDERS, log)
    assert world.cleaner.dirty_bytes == log.bytes_since(log.active_base) < BOUND
    world.cleaner.forget(ORDERS)
    world.watch(ORDERS, log)
    assert world.cleaner.dirty_bytes == log.size


async def test_a_checkpoint_beyond_the_end_of_the_log_counts_to_its_end(world: World) -> None:
    log = world.open(ORDERS, watch=False)
    write(log, 5_000)
    world.directory.cleaner_points[ORDERS] = 1_000_000
    world.watch(ORDERS, log)
    assert world.cleaner._watched[ORDERS].clean_to == log.next_offset


@pytest.mark.parametrize("how", ["forgotten", "cancelled"])
async def test_a_log_that_is_given_away_is_not_compacted_any_more(world: World, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    logged = pauses(monkeypatch)
    log = world.open(ORDERS)
    write(log, BOUND + 1_000)
    await world.run(0)
    if how == "forgotten":
        world.cleaner.forget(ORDERS)
        world.cleaner.forget(PAYMENTS)  # not watched
    else:
        world.cleaner.cancel(log)
    await wait_until(lambda: not log.busy)
    assert [reason for reason, _ in logged] == [CANCELLED]
    assert (world.cleaner.cleanings, world.failures) == (0, [])
    if how == "forgotten":
        await some_checks()
        assert len(world.runs) == 1
    else:
        await world.run(1)


async def test_a_compaction_of_another_log_goes_on(world: World) -> None:
    log, other = world.open(ORDERS), world.open(PAYMENTS)
    write(log, BOUND + 1_000)
    run = await world.run(0)
    world.cleaner.cancel(other)
    world.cleaner.forget(PAYMENTS)
    run.ended.set_result(report(log.active_base))
    await wait_until(lambda: world.cleaner.cleanings)


async def test_a_compaction_cancelled_before_its_process_starts_does_not_start_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    logged = pauses(monkeypatch)
    log = world.open(ORDERS)
    removed = asyncio.Event()
    in_worker = world.cleaner._in_worker

    async def slow(work: Any, workers: Any = None) -> Any:
        await removed.wait()
        return await in_worker(work, workers)

    monkeypatch.setattr(world.cleaner, "_in_worker", slow)
    write(log, BOUND + 1_000)
    await wait_until(lambda: log.busy)
    world.cleaner.cancel(log)
    removed.set()
    await wait_until(lambda: logged)
    assert (world.runs, logged[0][0]) == ([], CANCELLED)


@pytest.mark.parametrize("usable", [True, False])
async def test_a_log_that_cannot_be_rolled_is_tried_later_and_repaired_if_it_has_failed(world: World, monkeypatch: pytest.MonkeyPatch, usable: bool) -> None:
    logged = pauses(monkeypatch)
    log = world.open(ORDERS)
    roll = Log.roll

    def refuse(log: Log, unflushed_bytes_max: int) -> bool:
        log.usable = usable
        raise AppendFailed("no room")

    monkeypatch.setattr(Log, "roll", refuse)
    write(log, BOUND + 1_000)
    await wait_until(lambda: logged)
    assert logged[0][0] == "no room"
    assert [str(failure) for failure in world.failures[:1]] == ([] if usable else ["no room"])
    assert (world.cleaner._rolling, world.runs) == (None, [])
    monkeypatch.setattr(Log, "roll", roll)
    if usable:
        (await world.run(0)).ended.set_result(report(log.active_base))
        await wait_until(lambda: world.cleaner.cleanings)
    else:
        await some_checks()
        assert world.runs == []


async def test_a_failed_append_to_the_checkpoint_changes_nothing_in_the_log(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    logged = pauses(monkeypatch)
    log = world.open(ORDERS)

    def refuse(points: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(world.directory, "checkpoint_cleaned", refuse)
    write(log, BOUND + 1_000)
    (await world.run(0)).ended.set_result(report(log.active_base))
    await wait_until(lambda: logged)
    assert "No space left" in logged[0][0]
    assert (world.cleaner.cleanings, log.usable, world.failures) == (0, True, [])
    assert not log.busy


@pytest.mark.parametrize(("now", "retention_ms", "usable", "dropped"), [(100_000, 0, True, True), (0, 0, True, False), (-1, 0, True, False), (100_000, -1, True, False), (100_000, 0, False, False)])
async def test_notes_are_dropped_by_time_only_with_a_trusted_clock_and_a_limit(world: World, now: int, retention_ms: int, usable: bool, dropped: bool) -> None:
    log = world.open(ORDERS, watch=False)
    write(log, 1_000)
    log.flush()
    assert log.roll(0)
    log.usable = usable
    world.now = now
    world.cleaner.watch_retention(ORDERS, log, retention_ms, world.failures.append)
    await world.cleaner._housekeep()
    assert bool(log.start_offset) is dropped
    assert world.failures == []
    log.usable = True


async def test_stopping_waits_for_work_in_a_thread(world: World) -> None:
    done: list[bool] = []
    begun, go = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        loop.call_soon_threadsafe(begun.set)
        asyncio.run_coroutine_threadsafe(go.wait(), loop).result()
        done.append(True)

    task = loop.create_task(world.cleaner._in_worker(work))
    await begun.wait()
    task.cancel()
    loop.call_soon(go.set)
    with pytest.raises(asyncio.CancelledError):
        await task
    await wait_until(lambda: done)


class FakeTopics:
    """Counts scans; has nothing to compact."""

    def __init__(self) -> None:
        self.scans: list[float] = []
        self.fails = False

    def scan(self, now: int, time: float) -> Any:
        self.scans.append(time)
        yield
        if self.fails:
            raise RuntimeError("a defect")

    def next_due(self, now: int) -> None:
        return None


async def test_topic_logs_are_scanned_again_after_a_pause(world: World) -> None:
    topics = FakeTopics()
    world.cleaner.clean_topics(cast(Any, topics))
    await wait_until(lambda: topics.scans)
    await some_checks()
    assert len(topics.scans) == 1
    assert 10 < world.cleaner._topics_at - topics.scans[0] < 20
    world.cleaner._topics_at = 0.0
    await wait_until(lambda: len(topics.scans) == 2)


@pytest.mark.parametrize("reason", ["disabled", "an offsets log is due"])
async def test_topic_logs_are_not_scanned(world: World, reason: str) -> None:
    topics = FakeTopics()
    if reason == "disabled":
        world.cleaner.rules = CleaningRules(SEGMENT_BYTES, topics_enable=False)
    else:
        write(world.open(ORDERS), BOUND + 1_000)
        await world.run(0)
    world.cleaner.clean_topics(cast(Any, topics))
    await some_checks()
    assert topics.scans == []
