"""The cleaner in virtual time: at which second it checks, rolls, compacts, tries again and writes recovery points."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.runtime.workers import Workers
from broker.stores import compaction as module
from broker.stores.compaction import (
    BYTES_PER_SECOND_MIN,
    CHECK_SECONDS,
    HOUSEKEEPING_SECONDS,
    NICENESS,
    NICENESS_LATE,
    RETRY_SECONDS_MAX,
    RETRY_SECONDS_MIN,
    ROLL_TRIES,
    ROLL_UNFLUSHED_BYTES_MAX,
    STEP_PAUSE_SECONDS,
    CleaningRules,
    LogCleaner,
)
from protocol.batch import build_facts
from simulator.disk import SimDisk
from storage import AppendFailed, DataDirectory, Handles, Log, LogId
from storage.cleaner import Report
from tests.support.local_stores import Threads
from tests.support.stepped_loop import SteppedLoop

pytestmark = [pytest.mark.once, pytest.mark.plain]  # replaces methods and the log

ORDERS, PAYMENTS = LogId("__consumer_offsets", 0), LogId("__consumer_offsets", 1)
NOTES = LogId("__coordinator_notes", 0)
SEGMENT_BYTES = 1 << 20


def report(clean_to: int = 0) -> Report:
    return Report(json.dumps({"cleaned": [], "clean_to": clean_to, "bytes_before": 1, "bytes_after": 1}).encode())


class World:
    def __init__(self, **rules: Any) -> None:
        self.disk = SimDisk()
        self.disk.make_folder("/data")
        self.directory = DataDirectory.open(self.disk, "/data", 1, "", "a test", lambda: "id")
        self.loop = SteppedLoop(1_000.0)
        self.threads = Threads()
        self.runs: list[tuple[float, str, int, float]] = []  # when, folder, niceness, limit
        self.outcomes: list[Report | Exception] = []
        self.failures: list[AppendFailed] = []
        self.flushes = 0
        self.flushing = True
        self.points: list[tuple[float, dict[Any, int]]] = []
        self.now = 1_000_000
        self.cleaner = LogCleaner(
            cast(asyncio.AbstractEventLoop, self.loop),
            self.disk,
            self.directory,
            CleaningRules(SEGMENT_BYTES, **{"dirty_bytes_min": 1_000} | rules),
            lambda: self.now,
            worker=cast(Workers, self.threads),
            run_cleaner=cast(Any, self._run),
        )
        cast(Any, self.directory).checkpoint = lambda points: self.points.append((self.seconds, dict(points)))

    @property
    def seconds(self) -> float:
        return self.loop.time() - 1_000.0

    async def _run(self, command: tuple[str, ...], folder: str, request: bytes, niceness: int, limit_seconds: float) -> Report:
        self.runs.append((self.seconds, folder, niceness, limit_seconds))
        outcome = self.outcomes.pop(0) if self.outcomes else report()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def open(self, id: LogId, bytes_count: int = 0, watch: bool = True) -> Log:
        log, _ = Log.open(Handles(self.disk), self.directory.log_folder(*id), SEGMENT_BYTES, 0, False)
        write(log, bytes_count)

        def flush(done: Callable[[Any], None]) -> None:
            self.flushes += 1
            if self.flushing:
                log.flush()
                done(None)

        if watch:
            self.cleaner.watch(id, log, flush, self.failures.append)
        return log

    def settle(self) -> None:
        while self.threads.jobs or self.loop.busy:
            self.loop.run()
            self.threads.run_all()

    def pass_seconds(self, seconds: float) -> None:
        """Let the time pass in steps of half a second, and threads end at once."""
        for _ in range(round(2 * seconds)):
            self.loop.pass_ms(500)
            self.settle()


def write(log: Log, bytes_count: int) -> None:
    """Append a batch of so many bytes; the lengths in it take one byte or two."""
    if bytes_count:
        batches = (build_facts([(b"key", bytes(size))], 1_000) for size in range(bytes_count - 80, bytes_count - 60))
        log.append(next(batch for batch in batches if len(batch) == bytes_count), log.epoch)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    logged: list[tuple[str, dict[str, Any]]] = []
    for level in ("info", "warning"):
        monkeypatch.setattr(f"broker.stores.compaction.log.{level}", lambda event, **fields: logged.append((event, fields)))
    return logged


# When.


@pytest.mark.parametrize(("more", "compacted"), [(0, False), (1, True)])
def test_a_log_is_compacted_above_the_bound_and_at_the_next_check(more: int, compacted: bool) -> None:
    world = World()
    log = world.open(ORDERS, 1_000)
    assert log.size == 1_000
    cast(Any, world.cleaner).rules = CleaningRules(SEGMENT_BYTES, dirty_bytes_min=1_000 - more)
    world.pass_seconds(CHECK_SECONDS - 0.5)
    assert world.runs == []
    world.pass_seconds(0.5)
    assert [run[0] for run in world.runs] == ([CHECK_SECONDS] if compacted else [])


@pytest.mark.parametrize(("bound", "niceness"), [(1_000, NICENESS), (999, NICENESS_LATE)])
def test_the_process_is_more_important_above_twice_the_bound(bound: int, niceness: int) -> None:
    world = World(dirty_bytes_min=bound)
    world.open(ORDERS, 2_000)
    world.pass_seconds(CHECK_SECONDS)
    assert world.runs[0][2] == niceness


@pytest.mark.parametrize(("limit", "expected"), [(0.0001, 2_000 / BYTES_PER_SECOND_MIN), (600.0, 600.0)])
def test_a_large_log_has_the_time_to_be_read(limit: float, expected: float) -> None:
    world = World(time_limit_seconds=limit)
    world.open(ORDERS, 2_000)
    world.pass_seconds(CHECK_SECONDS)
    assert world.runs[0][3] == expected


def test_the_dirtiest_usable_log_is_compacted_first() -> None:
    world = World()
    world.open(ORDERS, 1_500)
    world.open(PAYMENTS, 1_600)
    unusable = world.open(LogId("__consumer_offsets", 2), 1_700)
    unusable.usable = False
    world.pass_seconds(CHECK_SECONDS)
    assert world.runs[0][1] == "/data/__consumer_offsets-1"
    unusable.usable = True


def test_a_failed_log_is_tried_again_after_a_doubling_pause(lines: list[Any]) -> None:
    world = World()
    world.open(ORDERS, 2_000)
    world.outcomes = [RuntimeError("no"), RuntimeError(), RuntimeError("no"), report(1)]
    world.pass_seconds(CHECK_SECONDS + RETRY_SECONDS_MIN - 0.5)
    assert len(world.runs) == 1
    world.pass_seconds(7 * RETRY_SECONDS_MIN)
    assert [run[0] for run in world.runs] == [1, 1 + 30, 1 + 30 + 60, 1 + 30 + 60 + 120]
    failed = [fields for event, fields in lines if event == "cleaning a log failed"]
    assert [(fields["reason"], fields["retry_seconds"]) for fields in failed] == [("no", 30), ("RuntimeError()", 60), ("no", 120)]
    assert failed[0]["log"] == "__consumer_offsets-0"
    assert (world.cleaner.failures, world.cleaner.cleanings, world.failures) == (3, 1, [])
    watched = world.cleaner._watched[ORDERS]
    assert watched.failures == 0
    watched.failures = 20
    world.cleaner._retry_later(watched, "no")
    assert watched.not_before == world.loop.time() + RETRY_SECONDS_MAX


def test_a_cleaned_log_is_clean_to_where_the_process_says(lines: list[Any]) -> None:
    world = World()
    log = world.open(ORDERS, 2_000)
    world.outcomes = [report(1)]
    saved: list[dict[LogId, int]] = []
    cast(Any, world.directory).checkpoint_cleaned = saved.append
    world.pass_seconds(5 * CHECK_SECONDS)
    assert (len(world.runs), world.cleaner._watched[ORDERS].clean_to, saved) == (1, 1, [{ORDERS: 1}])
    assert not log.busy
    assert lines == [("log cleaned", {"log": "__consumer_offsets-0", "bytes_before": 1, "bytes_after": 1, "seconds": 0.0})]


# Rolling.


def test_a_log_that_is_always_being_written_is_rolled_with_unflushed_bytes_after_some_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.flushing = False
    world.open(ORDERS, 2_000)
    attempts: list[int] = []
    roll = Log.roll

    def refuse(log: Log, unflushed_bytes_max: int) -> bool:
        attempts.append(unflushed_bytes_max)
        return False

    monkeypatch.setattr(Log, "roll", refuse)
    world.pass_seconds((ROLL_TRIES + 1) * CHECK_SECONDS)
    assert attempts == [0] * ROLL_TRIES + [ROLL_UNFLUSHED_BYTES_MAX]
    assert world.flushes == ROLL_TRIES + 1
    monkeypatch.setattr(Log, "roll", roll)
    world.pass_seconds(CHECK_SECONDS)
    assert len(world.runs) == 1
    attempts.clear()
    monkeypatch.setattr(Log, "roll", refuse)
    world.pass_seconds(CHECK_SECONDS)
    assert attempts == [0]  # the attempts of another compaction are counted anew


@pytest.mark.parametrize("usable", [True, False])
def test_a_log_that_has_failed_is_not_rolled_any_more(monkeypatch: pytest.MonkeyPatch, usable: bool) -> None:
    world = World()
    world.flushing = False
    log = world.open(ORDERS, 2_000)

    def refuse(log: Log, unflushed_bytes_max: int) -> bool:
        log.usable = usable
        return False

    monkeypatch.setattr(Log, "roll", refuse)
    world.pass_seconds(CHECK_SECONDS)
    assert (world.cleaner._rolling is not None) is usable
    assert world.flushes == usable
    log.usable = True


def test_a_log_that_is_forgotten_is_not_rolled_and_any_other_is(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.flushing = False
    world.open(ORDERS, 2_000)
    world.open(PAYMENTS, 100)
    monkeypatch.setattr(Log, "roll", lambda log, unflushed_bytes_max: False)
    world.pass_seconds(CHECK_SECONDS)
    world.cleaner.forget(PAYMENTS)
    assert world.cleaner._rolling is not None
    world.cleaner.forget(ORDERS)
    assert world.cleaner._rolling is None
    world.pass_seconds(5)
    assert world.flushes == 1


# Topics.


class TopicPartition(SimpleNamespace):
    __hash__ = object.__hash__  # type: ignore[assignment]


class Topics:
    """Topic logs of which some are due."""

    def __init__(self) -> None:
        self.due: list[Any] = []
        self.scans: list[float] = []
        self.steps = 1
        self.gone: set[Any] = set()

    def scan(self, now: int, time: float) -> Any:
        self.scans.append(time - 1_000)
        for _ in range(self.steps):
            yield

    def next_due(self, now: int) -> Any:
        return self.due.pop(0) if self.due else None

    def has(self, partition: Any) -> bool:
        return partition not in self.gone


def due(world: World, topics: Topics, name: str) -> Any:
    """A topic's log that is due; returns its state and partition."""
    log = world.open(LogId(name, 0), 500, watch=False)
    log.flush()
    assert log.roll(0)
    settings = SimpleNamespace(segment_bytes=SEGMENT_BYTES, delete_retention_ms=5)
    failures: list[AppendFailed] = []
    producers = SimpleNamespace(last_offsets=dict)
    partition = TopicPartition(id=LogId(name, 0), settings=settings, producers=producers, failed=failures.append, failures=failures)
    state = SimpleNamespace(log=log, clean_to=0, failures=3, not_before=0.0)
    found = SimpleNamespace(partition=partition, state=state, segments=log.closed_segments, end=log.active_base)
    topics.due.append(found)
    return found


def test_topics_are_scanned_in_steps_and_again_after_the_backoff() -> None:
    world, topics = World(), Topics()
    topics.steps = 3
    world.cleaner.clean_topics(cast(Any, topics))
    world.loop.pass_ms(1_000 * CHECK_SECONDS)
    assert world.cleaner._topics_scan is not None
    world.loop.pass_ms(2_999 * STEP_PAUSE_SECONDS)
    assert world.cleaner._topics_scan is not None
    world.loop.pass_ms(1)
    assert world.cleaner._topics_scan is None
    world.pass_seconds(40)
    assert topics.scans == [1, 17, 33]  # a scan ends after its second began, so the next check that is late enough is the 16th


def test_a_scan_ends_with_the_cleaner() -> None:
    world, topics = World(), Topics()
    topics.steps = 3
    world.cleaner.clean_topics(cast(Any, topics))
    world.loop.pass_ms(1_000 * CHECK_SECONDS)
    world.settle()
    assert world.cleaner._topics_scan is not None
    world.loop.create_task(world.cleaner.stop())
    world.settle()
    world.pass_seconds(5)
    assert topics.scans == [1]


def test_due_topics_are_compacted_one_after_the_other(lines: list[Any]) -> None:
    world, topics = World(), Topics()
    first, second = due(world, topics, "a"), due(world, topics, "b")
    world.outcomes = [report(1), report(1)]
    world.cleaner.clean_topics(cast(Any, topics))
    world.pass_seconds(1.5)
    assert [run[1] for run in world.runs] == ["/data/a-0", "/data/b-0"]
    assert [found.state.clean_to for found in (first, second)] == [1, 1]
    assert [found.state.failures for found in (first, second)] == [0, 0]
    assert world.cleaner.cleanings == 2


@pytest.mark.parametrize("gone", [False, True])
def test_a_failed_compaction_of_a_topic_is_repeated_later_unless_the_topic_is_gone(lines: list[Any], gone: bool) -> None:
    world, topics = World(), Topics()
    found, other = due(world, topics, "a"), due(world, topics, "b")
    if gone:
        topics.gone.add(found.partition)
    world.outcomes = [RuntimeError("no"), report(1)]
    world.cleaner.clean_topics(cast(Any, topics))
    world.pass_seconds(1.5)
    assert (found.state.failures, world.cleaner.failures) == ((3, 0) if gone else (4, 1))
    assert [fields["reason"] for event, fields in lines if event == "cleaning a log failed"] == ([] if gone else ["no"])
    assert found.partition.failures == []
    assert other.state.clean_to == 1


def test_a_topic_log_that_must_be_repaired_is_reported_to_its_partition(lines: list[Any]) -> None:
    world, topics = World(), Topics()
    found = due(world, topics, "a")
    world.outcomes = [AppendFailed("half exchanged")]
    world.cleaner.clean_topics(cast(Any, topics))
    world.pass_seconds(1.5)
    assert [str(failure) for failure in found.partition.failures] == ["half exchanged"]
    assert found.state.failures == 4
    assert lines[-1][1]["reason"] == "half exchanged"


def test_an_offsets_log_comes_before_the_next_topic(lines: list[Any]) -> None:
    world, topics = World(), Topics()
    due(world, topics, "a")
    due(world, topics, "b")
    world.cleaner.clean_topics(cast(Any, topics))
    world.loop.pass_ms(1_000 * CHECK_SECONDS)
    world.open(ORDERS, 2_000)
    world.settle()
    world.pass_seconds(1)
    assert [run[1] for run in world.runs][-1] == "/data/__consumer_offsets-0"
    assert len(topics.due) >= 1


# The end of a compaction.


@pytest.mark.parametrize("promoting", [False, True])
def test_files_that_cannot_be_removed_make_a_log_fail_only_if_they_were_renamed_already(monkeypatch: pytest.MonkeyPatch, promoting: bool) -> None:
    """The next opening of the log would use the renamed segments."""
    world = World()
    log = world.open(ORDERS, 2_000)
    calls: list[str] = []

    def fail(disk: object, folder: str) -> None:
        calls.append(folder)
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(module, "remove_unfinished", fail)
    task = world.loop.create_task(world.cleaner._remove_unfinished(log, promoting))
    world.settle()
    assert calls == [log.folder]
    assert log.half_exchanged is promoting
    error = task.exception()
    assert isinstance(error, AppendFailed) if promoting else error is None


def test_a_compaction_whose_log_changed_meanwhile_leaves_its_segments(lines: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    log = world.open(ORDERS, 2_000)
    cleaned = Report(json.dumps({"cleaned": [[0, 500, 1, [0]]], "clean_to": 1, "bytes_before": 1, "bytes_after": 1}).encode())
    exchanged: list[object] = []
    monkeypatch.setattr(Log, "exchange", lambda *arguments: exchanged.append(arguments))
    removed: list[str] = []
    monkeypatch.setattr(module, "remove_unfinished", lambda disk, folder: removed.append(folder))

    def promote(disk: object, folder: str, segments: object, token: str) -> list[object]:
        world.cleaner.cancel(log)
        return []

    monkeypatch.setattr(module, "promote", promote)
    world.outcomes = [cleaned]
    world.pass_seconds(CHECK_SECONDS)
    assert (len(world.runs), exchanged, removed) == (1, [], [log.folder] * 2)
    assert (world.cleaner.cleanings, world.cleaner.failures, log.busy) == (0, 1, False)


# Housekeeping.


def test_recovery_points_are_written_after_a_second_and_then_every_minute() -> None:
    world = World(dirty_bytes_min=1 << 20)
    log, notes = world.open(ORDERS, 500), world.open(NOTES, 400, watch=False)
    world.cleaner.watch_retention(NOTES, notes, -1, world.failures.append)
    log.flush()
    world.pass_seconds(CHECK_SECONDS)
    assert world.points == [(1, {ORDERS: 1, NOTES: 0})]
    notes.flush()
    world.pass_seconds(HOUSEKEEPING_SECONDS - 1)
    assert len(world.points) == 1
    world.pass_seconds(1)
    assert world.points[1:] == [(61, {ORDERS: 1, NOTES: 1})]


def test_a_failed_housekeeping_is_logged_and_repeated(lines: list[Any]) -> None:
    world = World()

    def fail(points: object) -> None:
        raise OSError(28, "No space left on device")

    cast(Any, world.directory).checkpoint = fail
    world.pass_seconds(CHECK_SECONDS)
    assert lines == [("housekeeping failed", {"reason": "[Errno 28] No space left on device"})]
    world.pass_seconds(HOUSEKEEPING_SECONDS)
    assert len(lines) == 2


@pytest.mark.parametrize(("bound", "dropped"), [(-1, 0), (899, 2), (900, 1), (1_200, 0), (1_199, 1)])
def test_the_oldest_segments_of_the_largest_notes_log_are_dropped_down_to_the_limit(lines: list[Any], bound: int, dropped: int) -> None:
    world = World(notes_bytes_max=bound)
    small, large = world.open(NOTES, 300, watch=False), world.open(LogId("__coordinator_notes", 1), 300, watch=False)
    for log, count in ((small, 0), (large, 2)):
        for _ in range(count):
            log.flush()
            assert log.roll(0)
            write(log, 300)
        log.flush()
        world.cleaner.watch_retention(LogId("__coordinator_notes", int(log is large)), log, -1, world.failures.append)
    assert small.size + large.size == 1_200
    starts: list[dict[Any, int]] = []
    cast(Any, world.directory).checkpoint_starts = starts.append
    world.pass_seconds(CHECK_SECONDS)
    assert (small.start_offset, large.start_offset) == (0, dropped)
    assert starts == [{("__coordinator_notes", 1): number} for number in range(1, dropped + 1)]
    assert [fields["start_offset"] for event, fields in lines if event == "old segments dropped"] == list(range(1, dropped + 1))
    assert all(fields["segments"] == 1 for event, fields in lines if event == "old segments dropped")


@pytest.mark.parametrize(("bound", "dropped"), [(300, 0), (299, 1)])
def test_notes_in_one_segment_are_rolled_to_be_dropped(bound: int, dropped: int) -> None:
    world = World(notes_bytes_max=bound)
    log = world.open(NOTES, 300, watch=False)
    world.cleaner.watch_retention(NOTES, log, -1, world.failures.append)
    world.pass_seconds(CHECK_SECONDS)
    assert (log.start_offset, log.size) == (dropped, 300 * (1 - dropped))


def test_a_stopped_cleaner_checks_nothing_more() -> None:
    world = World()
    world.pass_seconds(CHECK_SECONDS)
    world.open(ORDERS, 2_000)
    task = world.loop.create_task(world.cleaner.stop())
    world.settle()
    assert task.done()
    assert task.exception() is None
    world.pass_seconds(10)
    assert (world.runs, world.loop.delays()) == ([], [])
