"""One log of a store: its flushes one after the other, its owner's view at one epoch, and its repair; over a scripted log."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.stores.owned import Flusher, FlushRules, LocalLog, OpenLog, log_truncation, run_all
from broker.stores.topic_logs import LocalTopicLog
from storage import AppendFailed, LogId, RetentionLimits
from tests.support.local_stores import Threads

pytestmark = pytest.mark.plain  # replaces the log

ID = LogId("orders", 0)


class Flush:
    def __init__(self, closed: bool) -> None:
        self.closed = closed
        self.runs = 0
        self.error: Exception | None = None

    def run(self) -> None:
        self.runs += 1
        if self.error is not None:
            raise self.error


class ScriptedLog:
    """A log whose flushes, appends and repairs are recorded."""

    def __init__(self) -> None:
        self.flushes: list[Flush] = []
        self.finished: list[Exception | None] = []
        self.refusal: Exception | None = None
        self.finish_failure: Exception | None = None
        self.usable, self.busy, self.epoch = True, False, 4
        self.folder = "/data/orders-0"
        self.next_offset, self.flushed_offset, self.active_base = 5, 2, 0
        self.appended: list[tuple[bytes, int]] = []
        self.repairs: list[tuple[int, Any]] = []
        self.repaired = 0
        self.truncation: Any = SimpleNamespace(kept="", cut_bytes=0)
        self.claims = 0
        self.folder_users = 0
        self.segment_bytes = self.segment_ms = 0
        self.calls: list[tuple[Any, ...]] = []

    def start_flush(self, closed: bool) -> Flush:
        if self.refusal is not None:
            raise self.refusal
        self.flushes.append(Flush(closed))
        return self.flushes[-1]

    def finish_flush(self, flush: Flush, failure: Exception | None) -> None:
        self.finished.append(failure)
        if self.finish_failure is not None:
            raise self.finish_failure
        if failure is not None:
            raise AppendFailed(str(failure))

    def append(self, batch: bytearray, epoch: int) -> int:
        if self.refusal is not None:
            raise self.refusal
        self.appended.append((bytes(batch), epoch))
        self.next_offset += 1
        return self.next_offset - 1

    def start_repair(self, offset: int, copies: Any) -> Any:
        self.repairs.append((offset, copies))
        return SimpleNamespace(run=lambda: None, truncation=self.truncation)

    def finish_repair(self, repair: Any) -> None:
        self.repaired += 1

    def claim(self) -> None:
        self.claims += 1

    def facts(self, end: int) -> Any:
        return iter([[("end", end)]])

    def roll_if_old(self, monotonic: int, segment_ms: int) -> None:
        self.calls.append(("roll_if_old", monotonic, segment_ms))

    def apply_retention(self, *arguments: Any) -> list[int]:
        self.calls.append(("apply_retention", *arguments))
        return [0, 3]

    def delete_before(self, offset: int) -> None:
        self.calls.append(("delete_before", offset))


class Store:
    def __init__(self) -> None:
        self.flushed_logs: list[Any] = []
        self.scheduled: list[tuple[Any, float]] = []
        self.turn: list[tuple[Any, bytes, int, Callable[[AppendFailed | None], None]]] = []
        self.forgotten: list[LogId] = []
        self.cancelled: list[Any] = []
        self.later: list[tuple[float, Any, tuple[Any, ...]]] = []
        self.loop = SimpleNamespace(call_later=lambda seconds, call, *arguments: self.later.append((seconds, call, arguments)))
        self.topic_workers = Threads()
        self.owned: Any = None
        self.disk = "disk"

    def flushed(self, log: Any) -> None:
        self.flushed_logs.append(log)

    def schedule_flush(self, flusher: Any, seconds: float) -> None:
        self.scheduled.append((flusher, seconds))

    def flush_at_turn_end(self, flusher: Any, batch: bytearray, offset: int, done: Any) -> None:
        self.turn.append((flusher, bytes(batch), offset, done))

    def batch_copies(self, id: LogId) -> list[bytes]:
        return [str(id).encode()]

    def forget(self, id: LogId) -> None:
        self.forgotten.append(id)

    def cancel_compaction(self, log: Any) -> None:
        self.cancelled.append(log)

    def owned_log(self, id: LogId) -> Any:
        return self.owned


class World:
    def __init__(self) -> None:
        self.log, self.store, self.threads = ScriptedLog(), Store(), Threads()
        self.flusher = Flusher(cast(Any, self.store), cast(Any, self.threads), cast(Any, self.log))
        self.done: list[tuple[str, str]] = []

    def flush(self, name: str, closed: bool = False) -> None:
        self.flusher.flush(lambda failure: self.done.append((name, str(failure or ""))), closed)

    def open(self, policy: str) -> LocalLog:
        rules = FlushRules(policy, 2.5)
        return LocalLog(cast(Any, self.store), cast(Any, self.threads), ID, self.flusher, 4, rules)


@pytest.fixture
def world() -> World:
    return World()


# Flushes.


@pytest.mark.parametrize("flags", [[True, True], [True, False], [False, True], [False]])
def test_one_flush_runs_and_the_next_covers_what_all_its_waiters_need(world: World, flags: list[bool]) -> None:
    world.flush("first", closed=True)
    for number, closed in enumerate(flags):
        world.flush(f"waiter {number}", closed)
    assert (len(world.log.flushes), world.flusher.busy, world.done) == (1, True, [])
    world.threads.run()
    assert world.done == [("first", "")]
    assert [flush.closed for flush in world.log.flushes] == [True, all(flags)]
    world.flush("later", closed=True)  # the flags of earlier waiters are not those of later ones
    world.threads.run()
    assert world.done[1:] == [(f"waiter {number}", "") for number in range(len(flags))]
    world.threads.run()
    assert world.log.flushes[2].closed
    assert (world.done[-1], world.flusher.busy, world.threads.jobs) == (("later", ""), False, [])


def test_a_flush_of_closed_segments_alone_says_so(world: World) -> None:
    world.flush("closed", closed=True)
    world.threads.run()
    world.flush("all")
    world.threads.run()
    assert [flush.closed for flush in world.log.flushes] == [True, False]
    assert world.store.flushed_logs == [world.log, world.log]


def test_a_failed_flush_is_told_to_its_waiter_and_not_to_the_store(world: World) -> None:
    grown: list[bool] = []
    world.flusher.on_growth = lambda: grown.append(True)
    world.flush("first")
    world.log.flushes[0].error = OSError("no disk")
    world.threads.run()
    assert (world.done, world.store.flushed_logs, world.flusher.busy, grown) == ([("first", "no disk")], [], False, [True])
    assert isinstance(world.log.finished[0], OSError)
    world.flush("second")
    world.threads.run()
    assert world.done[1:] == [("second", "")]
    assert world.log.finished[1] is None


def test_a_flush_that_may_not_begin_fails_at_once(world: World) -> None:
    world.log.refusal = AppendFailed("the log must be repaired")
    world.flush("first")
    assert (world.done, world.flusher.busy, world.threads.jobs) == ([("first", "the log must be repaired")], False, [])


@pytest.mark.parametrize("where", ["begin", "finish", "submit"])
def test_a_defect_in_a_flush_fails_it_alone(world: World, where: str, planted_defect: None) -> None:
    if where == "begin":
        world.log.refusal = ValueError("a defect")
    elif where == "finish":
        world.log.finish_failure = ValueError("a defect")
    else:
        def refuse(*arguments: Any) -> None:
            raise RuntimeError("can't start new thread")

        cast(Any, world.threads).submit = refuse
    world.flush("first")
    world.threads.run_all()
    assert world.done == [("first", "can't start new thread" if where == "submit" else "a defect in this version")]
    assert (world.flusher.busy, world.store.flushed_logs) == (False, [])


def test_flushes_that_run_together_have_a_result_each() -> None:
    first, second, third = Flush(False), Flush(False), Flush(False)
    second.error = OSError("no disk")
    results = run_all(cast(Any, [first, second, third]))
    assert results == [None, second.error, None]
    assert [flush.runs for flush in (first, second, third)] == [1, 1, 1]


def test_a_failure_in_the_background_reaches_the_owner(world: World) -> None:
    failures: list[AppendFailed] = []
    log = world.open("interval")
    log.watch(failures.append)
    world.flusher.report_failure(None)
    assert failures == []
    failure = AppendFailed("no disk")
    world.flusher.report_failure(failure)
    assert failures == [failure]


# The owner's view.


def test_a_log_is_usable_at_its_own_epoch(world: World) -> None:
    log = world.open("never")
    assert log.usable()
    world.log.epoch = 5
    assert not log.usable()
    world.log.epoch, world.log.usable = 4, False
    assert not log.usable()


@pytest.mark.parametrize(("policy", "watermark"), [("always", 2), ("interval", 5), ("never", 5)])
def test_readers_see_what_may_have_been_acknowledged(world: World, policy: str, watermark: int) -> None:
    log = world.open(policy)
    assert log.high_watermark == watermark
    assert list(cast(Any, log.replay())) == [[("end", watermark)]]
    world.flusher.safe_offset = 4  # in the file of a turn
    assert log.high_watermark == max(watermark, 4)


@pytest.mark.parametrize("policy", ["always", "interval", "never"])
def test_an_append_is_acknowledged_as_the_policy_says(world: World, policy: str) -> None:
    log = world.open(policy)
    grown: list[bool] = []
    log.watch_growth(lambda: grown.append(True))
    done: list[Any] = []
    log.append(b"batch", 1, done.append)
    assert world.log.appended == [(b"batch", 4)]
    if policy == "always":
        assert (done, grown) == ([], [])
        ((flusher, batch, offset, flushed),) = world.store.turn
        assert (flusher, batch, offset) == (world.flusher, b"batch", 5)
        flushed(None)
        assert done == [5]
        failure = AppendFailed("no disk")
        flushed(failure)
        assert done == [5, failure]
        return
    assert (done, grown, world.store.turn) == ([5], [True], [])
    assert world.store.scheduled == ([(world.flusher, 2.5)] if policy == "interval" else [])
    world.flusher.scheduled = True
    log.append(bytearray(b"batch"), 1, done.append)
    assert (done, len(world.store.scheduled)) == ([5, 6], int(policy == "interval"))


def test_a_refused_append_is_not_acknowledged(world: World) -> None:
    for policy in ("always", "interval", "never"):
        world.log.refusal = AppendFailed("fenced")
        done: list[Any] = []
        world.open(policy).append(b"batch", 1, done.append)
        assert done == [world.log.refusal]
    assert (world.store.turn, world.store.scheduled) == ([], [])


def test_a_released_log_is_forgotten_and_fenced(world: World) -> None:
    world.open("never").release()
    assert (world.store.forgotten, world.log.claims) == ([ID], 1)


# Repairs.


def test_a_repair_keeps_all_that_readers_may_have_seen(world: World) -> None:
    done: list[Any] = []
    log = world.open("always")
    world.flusher.safe_offset = 4
    log.recover(done.append)
    ((offset, copies),) = world.log.repairs
    assert (offset, copies(), done, world.log.repaired) == (4, [str(ID).encode()], [], 0)
    world.threads.run()
    assert (done, world.log.repaired) == ([None], 1)


def test_a_log_in_use_is_not_repaired(world: World) -> None:
    world.log.busy = True
    done: list[Any] = []
    world.open("always").recover(done.append)
    assert str(done[0]) == "a flush or a compaction is still in progress"
    assert (world.store.cancelled, world.log.repairs, world.threads.jobs) == ([world.log], [], [])


def test_a_failed_repair_is_told_with_its_reason(world: World) -> None:
    done: list[Any] = []
    world.open("always").recover(done.append)
    _, repaired = world.threads.jobs.pop()
    repaired(OSError(28, "No space left on device"))
    assert str(done[0]) == "the disk of /data/orders-0 is full"
    assert world.log.repaired == 0


def test_a_defect_in_a_repair_fails_it(world: World, planted_defect: None) -> None:
    def fail(repair: Any) -> None:
        raise ValueError("a defect")

    cast(Any, world.log).finish_repair = fail
    done: list[Any] = []
    world.open("always").recover(done.append)
    world.threads.run()
    assert [str(failure) for failure in done] == ["a defect in this version"]


@pytest.mark.parametrize(("kept", "cut", "level"), [("/data/kept", 9, "error"), ("", 9, "warning"), ("", 0, "")])
def test_the_bytes_that_were_cut_off_are_logged(world: World, monkeypatch: pytest.MonkeyPatch, kept: str, cut: int, level: str) -> None:
    lines: list[tuple[str, dict[str, Any]]] = []
    for name in ("error", "warning"):
        monkeypatch.setattr(f"broker.stores.owned.log.{name}", lambda event, name=name, **fields: lines.append((name, fields)))
    truncation = cast(Any, SimpleNamespace(kept=kept, cut_bytes=cut, path="/data/a.log", position=100, reason="torn"))
    log_truncation(truncation)
    expected: dict[str, Any] = {"file": "/data/a.log", "position": 100, "bytes": 9, "reason": "torn"} | ({"kept": kept} if kept else {})
    assert lines == ([(level, expected)] if level else [])
    world.log.truncation = truncation
    lines.clear()
    world.open("always").recover(lambda failure: None)
    world.threads.run()
    assert len(lines) == bool(kept)


# Logs of topics.


def topic_log(world: World) -> LocalTopicLog:
    log = LocalTopicLog(cast(Any, world.store), ID, cast(Any, world.log))
    world.store.owned = log
    return log


@pytest.mark.parametrize(("base", "flushed", "flushes"), [(0, 0, 0), (5, 5, 0), (5, 4, 1), (4, 4, 0)])
def test_an_append_that_begins_a_segment_flushes_the_closed_ones(world: World, base: int, flushed: int, flushes: int) -> None:
    log = topic_log(world)
    world.log.active_base, world.log.flushed_offset = base, flushed
    done: list[Any] = []
    assert log.append(bytearray(b"batch"), done.append) == 5
    assert ([flush.closed for flush in world.log.flushes], done) == ([True] * flushes, [])


def test_a_failed_flush_of_closed_segments_reaches_the_partition(world: World) -> None:
    log = topic_log(world)
    failures: list[AppendFailed] = []
    log.watch(failures.append)
    world.log.active_base, world.log.flushed_offset = 5, 4
    log.append(bytearray(b"batch"), lambda result: None)
    world.log.flushes[0].error = OSError("no disk")
    world.store.topic_workers.run()
    assert [str(failure) for failure in failures] == ["no disk"]


def test_a_topic_log_shows_its_log(world: World) -> None:
    log = topic_log(world)
    assert (log.high_watermark, log.durable_offset, log.busy, log.epoch) == (5, 2, False, 4)
    world.log.busy = True
    assert log.busy
    log.interrupt()
    assert world.store.cancelled == [world.log]
    log.set_segment_limits(100, 200)
    assert (world.log.segment_bytes, world.log.segment_ms) == (100, 200)
    log.delete_before(3)
    assert world.log.calls == [("delete_before", 3)]


@pytest.mark.parametrize(("now", "age"), [(1_000, 77), (0, 77), (-1, -1)])
def test_retention_by_time_needs_a_trusted_clock(world: World, now: int, age: int) -> None:
    log = topic_log(world)
    world.log.segment_ms = 9
    limits = cast(RetentionLimits, SimpleNamespace(retention_ms=77, retention_bytes=88, delete_delay_ms=2_500))
    assert log.apply_retention(now, 50, limits) == 2
    assert world.log.calls == [("roll_if_old", 50, 9), ("apply_retention", now, 50, age, 88)]
    ((seconds, _, arguments),) = world.store.later
    assert (seconds, arguments) == (2.5, ([0, 3],))
    assert world.log.flushes == []


def test_a_segment_that_was_closed_by_age_is_flushed(world: World) -> None:
    log = topic_log(world)

    def roll(monotonic: int, segment_ms: int) -> None:
        world.log.active_base = 5

    cast(Any, world.log).roll_if_old = roll
    cast(Any, world.log).apply_retention = lambda *arguments: []
    limits = cast(RetentionLimits, SimpleNamespace(retention_ms=77, retention_bytes=88, delete_delay_ms=2_500))
    assert log.apply_retention(1, 50, limits) == 0
    assert ([flush.closed for flush in world.log.flushes], world.store.later) == ([True], [])


def test_old_files_are_removed_later_unless_the_log_is_another_one_by_then(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[tuple[Any, ...]] = []

    def remove(*arguments: Any) -> None:
        removed.append(arguments)
        if arguments[2] == [0]:
            raise OSError("removed by a compaction")

    monkeypatch.setattr("broker.stores.topic_logs.remove_deleted", remove)
    log = topic_log(world)
    log._remove([0, 3])
    assert world.log.folder_users == 1
    world.store.topic_workers.run()
    assert removed == [("disk", "/data/orders-0", [0]), ("disk", "/data/orders-0", [3])]
    assert world.log.folder_users == 0
    world.store.owned = None
    log._remove([0])
    assert (world.store.topic_workers.jobs, world.log.folder_users) == ([], 0)


def test_an_open_log_has_no_watermark_of_its_own(world: World) -> None:
    log = OpenLog(cast(Any, world.store), cast(Any, world.threads), ID, world.flusher, 4, FlushRules("never"))
    with pytest.raises(NotImplementedError):
        _ = log.high_watermark
