"""Which logs are flushed together and when a file of turns is removed, and what a stop flushes and closes; over scripted logs."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.stores import bulk_flush, turn_flushes
from broker.stores.bulk_flush import SAVE_INDEXES_SECONDS, SYNCFS_LOGS_MIN, THREADS, BulkFlusher, flush_in_parts
from broker.stores.last_use import INTERVAL_SECONDS, LastUse
from broker.stores.turn_flushes import LOGS_MIN, RETRY_SECONDS, TurnFlushes, UnflushedBatch
from simulator.disk import SimDisk
from storage import AppendFailed, OsDisk
from tests.support.local_stores import Threads
from tests.support.stepped_loop import SteppedLoop

pytestmark = pytest.mark.plain  # replaces files and handles


class TurnFile:
    """A `turns.N` file."""

    def __init__(self, disk: object, folder: str, number: int, previous: object = None) -> None:
        self.number = number
        self.writes: list[list[Any]] = []
        self.size = 0
        self.failure: OSError | None = None
        self.removed = self.closed = 0

    def write(self, turn: list[Any]) -> None:
        if self.failure is not None:
            raise self.failure
        self.writes.append(turn)

    def remove(self) -> None:
        self.removed += 1

    def close(self) -> None:
        self.closed += 1


class World:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, left_over: tuple[int, ...] = ()) -> None:
        self.files: list[TurnFile] = []
        self.leftover = SimpleNamespace(numbers=list(left_over), can_be_removed=False)

        def new_file(*arguments: Any) -> TurnFile:
            self.files.append(TurnFile(*arguments))
            return self.files[-1]

        monkeypatch.setattr(turn_flushes, "TurnLog", new_file)
        monkeypatch.setattr(turn_flushes, "LeftoverTurns", lambda disk, folder: self.leftover)
        self.threads = Threads()
        self.each: list[str] = []
        self.background: list[tuple[list[Any], Callable[[AppendFailed | None], None]]] = []
        self.now = 100.0
        self.done: list[tuple[str, object]] = []
        self.flushers: dict[str, Any] = {}
        self.turns = TurnFlushes(
            SimDisk(), "/data", cast(Any, self.threads), self._each, lambda flushers, done: self.background.append((flushers, done)), lambda: self.now
        )

    def _each(self, appended: list[UnflushedBatch]) -> None:
        self.each += [append.flusher.log.folder[6:] for append in appended]

    def batch(self, name: str, offset: int = 0) -> UnflushedBatch:
        if name not in self.flushers:
            self.flushers[name] = SimpleFlusher(name)
        flusher = self.flushers[name]
        return UnflushedBatch(flusher, bytearray(name.encode()), offset, offset + 1, lambda failure: self.done.append((name, failure)))

    def add(self, *names: str, offset: int = 0) -> None:
        self.turns.add([self.batch(name, offset) for name in names])


class SimpleFlusher:
    def __init__(self, name: str) -> None:
        self.log = SimpleNamespace(folder=f"/data/{name}", flushed_offset=0)
        self.queued_offset = self.safe_offset = 0


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


MANY = tuple("abcd")


def test_a_few_logs_are_flushed_each_and_many_by_one_write(world: World) -> None:
    assert len(MANY) == LOGS_MIN
    world.add(*MANY[1:])
    assert (world.each, world.threads.jobs) == (list(MANY[1:]), [])
    world.add(*MANY)
    assert (world.each, world.done) == (list(MANY[1:]), [])
    assert [world.flushers[name].queued_offset for name in MANY] == [1] * 4
    world.threads.run_all()
    assert world.files[0].writes == [[(name, bytearray(name.encode()), 0, 1) for name in MANY]]
    assert world.done == [(name, None) for name in MANY]
    assert [world.flushers[name].safe_offset for name in MANY] == [1] * 4
    assert world.files[0].number == 1


def test_appends_during_a_write_are_written_next_however_few_they_are(world: World) -> None:
    world.add(*MANY)
    world.add("a", offset=1)
    world.add("b", offset=1)
    assert (len(world.threads.jobs), world.each) == (1, [])
    world.threads.run()
    assert world.done == [(name, None) for name in MANY]
    world.threads.run()
    assert [turn[0] for turn in world.files[0].writes[1]] == ["a", "b"]
    assert world.done[4:] == [("a", None), ("b", None)]
    world.add("a", offset=2)
    assert world.each == ["a"]


def test_a_batch_behind_a_gap_is_flushed_with_its_log(world: World) -> None:
    """Its copy could not be used after a crash that lost the records before it."""
    world.batch("a")
    world.flushers["a"].log.flushed_offset = 5
    for offset, together in ((5, True), (6, False)):
        world.each.clear()
        world.turns.add([world.batch("a", offset), *[world.batch(name) for name in "bcde"]])
        assert world.each == ([] if together else ["a"])
        world.threads.run_all()
        world.flushers["a"].queued_offset = 0


def test_a_file_that_cannot_be_written_is_left_alone_for_a_while(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[dict[str, Any]] = []
    monkeypatch.setattr("broker.stores.turn_flushes.log.warning", lambda event, **fields: lines.append(fields))
    world.files[0].failure = OSError(28, "No space left on device")
    world.add(*MANY)
    world.add("e")
    world.threads.run_all()
    assert world.each == [*MANY, "e"]
    assert world.done == []
    assert [world.flushers[name].queued_offset for name in (*MANY, "e")] == [0] * 5
    assert lines == [{"reason": "the disk of /data is full", "retry_s": RETRY_SECONDS}]
    assert [file.number for file in world.files] == [1, 2]
    world.threads.run_all()
    assert world.files[0].removed == 1  # no log needs it
    world.now += RETRY_SECONDS - 0.001
    world.add(*MANY)
    assert (len(world.each), world.threads.jobs) == (9, [])
    world.now += 0.001
    world.add(*MANY)
    world.threads.run_all()
    assert len(world.files[1].writes) == 1


@pytest.mark.parametrize(("size", "full"), [(100, False), (101, True)])
def test_a_full_file_is_removed_once_its_logs_are_flushed(world: World, size: int, full: bool) -> None:
    world.turns.bytes_max = 100
    world.files[0].size = size
    world.add(*MANY)
    world.threads.run_all()
    assert len(world.background) == full
    if full:
        flushers, flushed = world.background[0]
        assert flushers == [world.flushers[name] for name in MANY]
        for number in range(4):
            world.threads.run_all()
            assert (world.files[0].removed, number < 4) == (0, True)
            flushed(None)
        world.threads.run_all()
        assert (world.files[0].removed, world.files[0].closed) == (1, 0)
        world.add(*MANY, offset=1)
        world.threads.run_all()
        assert len(world.files[1].writes) == 1


@pytest.mark.parametrize("failed", [0, 3])
def test_a_file_whose_logs_cannot_be_flushed_stays_until_the_stop(world: World, failed: int) -> None:
    world.turns.bytes_max = 0
    world.files[0].size = 1
    world.add(*MANY)
    world.threads.run_all()
    for number in range(4):
        assert world.files[0].closed == 0
        world.background[0][1](AppendFailed("no disk") if number == failed else None)
    world.threads.run_all()
    assert (world.files[0].removed, world.files[0].closed) == (0, 1)
    world.turns.remove_all()
    assert [file.removed for file in world.files] == [0, 0]  # an earlier process has left files too
    world.leftover.can_be_removed = True
    world.turns.remove_all()
    assert [file.removed for file in world.files] == [1, 1]


def test_a_log_that_left_keeps_no_file(world: World) -> None:
    world.turns.bytes_max = 0
    world.add(*MANY)
    world.threads.run_all()
    world.files[0].size = 1
    world.turns.forget(world.flushers["b"])
    world.turns.forget(cast(Any, object()))
    world.add(*MANY[2:], "e", "f", offset=0)
    world.threads.run_all()
    assert sorted(flusher.log.folder[-1] for flusher in world.background[0][0]) == ["a", "c", "d", "e", "f"]


def test_the_files_of_an_earlier_process_are_removed_when_no_log_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, (3, 5))
    assert [file.number for file in world.files] == [3, 5, 6]
    world.turns.remove_restored_files()
    world.threads.run_all()
    assert [file.removed for file in world.files] == [0, 0, 0]
    world.leftover.can_be_removed = True
    for _ in range(2):
        world.turns.remove_restored_files()
        world.threads.run_all()
        assert [file.removed for file in world.files] == [1, 1, 0]
    world.turns.close()
    assert [file.closed for file in world.files] == [0, 0, 1]


# Flushes of many logs.


class Flusher:
    """A log's flusher; its flush begins unless `begins` is false."""

    def __init__(self, begins: bool = True) -> None:
        self.begins = begins
        self.runs = 0
        self.results: list[object] = []
        self.busy = False
        self.begun = 0
        self.reported: list[object] = []
        self.log = SimpleNamespace(next_offset=5, flushed_offset=2, usable=True, marked=[])
        self.log.mark_flushed = self._mark

    def _mark(self, end: int) -> None:
        self.log.marked.append(end)
        self.log.flushed_offset = end

    def begin(self, done: Any) -> Any:
        self.begun += 1
        return self if self.begins else None

    def run(self) -> None:
        self.runs += 1

    def flushed(self, flush: Any, done: Callable[[Any], None], result: Any) -> None:
        self.results.append(result)
        done(result)

    def report_failure(self, failure: object) -> None:
        self.reported.append(failure)


def test_flushes_are_split_among_threads_and_bounded() -> None:
    threads = Threads()
    flushers = [Flusher(begins=number != 1) for number in range(9)]
    done: list[int] = []
    flushes: list[Any] = [(flusher, lambda failure, number=number: done.append(number)) for number, flusher in enumerate(flushers)]
    flush_in_parts(cast(Any, threads), 3, flushes, 4)
    assert [flusher.begun for flusher in flushers] == [1] * 5 + [0] * 4
    assert len(threads.jobs) == 3
    threads.run()
    assert done == [0, 4]
    threads.run()
    assert flushers[5].begun == 0
    threads.run()
    assert done == [0, 4, 2, 3]
    assert [flusher.begun for flusher in flushers] == [1] * 9
    threads.run_all()
    assert sorted(done) == [0, 2, 3, 4, 5, 6, 7, 8]
    assert [flusher.runs for flusher in flushers] == [1, 0, *[1] * 7]
    flush_in_parts(cast(Any, threads), 3, [], 4)
    assert threads.jobs == []


def test_flushes_that_no_thread_can_run_fail(planted_defect: None) -> None:
    error = RuntimeError("can't start new thread")

    def refuse(*arguments: object) -> None:
        raise error

    flushers = [Flusher() for _ in range(5)]
    done: list[object] = []
    flush_in_parts(cast(Any, SimpleNamespace(submit=refuse)), 2, [(cast(Any, flusher), done.append) for flusher in flushers], 3)
    assert done == [error] * 5


def bulk(monkeypatch: pytest.MonkeyPatch, synced: object = True, disk: Any = None) -> tuple[BulkFlusher, Threads, list[str]]:
    threads = Threads()
    calls: list[str] = []

    def sync(folder: str) -> Any:
        calls.append(folder)
        if isinstance(synced, Exception):
            raise synced
        return synced

    monkeypatch.setattr(bulk_flush, "sync_file_system", sync)
    return BulkFlusher(cast(Any, threads), disk or OsDisk(), "/data", 1_000), threads, calls


@pytest.mark.parametrize(("count", "simulated", "at_once"), [(SYNCFS_LOGS_MIN, False, True), (SYNCFS_LOGS_MIN - 1, False, False), (SYNCFS_LOGS_MIN, True, False)])
def test_many_logs_are_flushed_with_the_whole_file_system(monkeypatch: pytest.MonkeyPatch, count: int, simulated: bool, at_once: bool) -> None:
    flusher, threads, calls = bulk(monkeypatch, disk=SimDisk() if simulated else None)
    flushers = [Flusher() for _ in range(count)]
    done: list[object] = []
    flusher.flush(cast(Any, flushers), done.append)
    threads.run_all()
    assert calls == (["/data"] if at_once else [])
    assert sum(each.runs for each in flushers) == (0 if at_once else count)
    assert done == [None] * count
    assert all(each.log.marked == ([5] if at_once else []) for each in flushers)


def test_logs_that_the_sync_does_not_cover_are_flushed_each(monkeypatch: pytest.MonkeyPatch) -> None:
    flusher, threads, _ = bulk(monkeypatch)
    flushers = [Flusher() for _ in range(SYNCFS_LOGS_MIN)]
    done: list[object] = []
    flusher.flush(cast(Any, flushers), done.append)
    flushers[0].log.next_offset = 6  # appended since
    flushers[1].busy = True
    flushers[2].log.usable = False
    threads.run_all()
    assert [each.runs for each in flushers[:4]] == [1, 1, 1, 0]
    assert [each.log.marked for each in flushers[:4]] == [[5], [], [], [5]]
    assert done == [None] * SYNCFS_LOGS_MIN


@pytest.mark.parametrize("synced", [False, OSError(5, "Input/output error")])
def test_a_sync_that_is_not_confirmed_counts_for_no_log(monkeypatch: pytest.MonkeyPatch, synced: object) -> None:
    flusher, threads, _ = bulk(monkeypatch, synced)
    flushers = [Flusher() for _ in range(SYNCFS_LOGS_MIN)]
    flusher.flush(cast(Any, flushers), None)
    threads.run_all()
    assert all((each.runs, each.log.marked, each.reported) == (1, [], [None]) for each in flushers)


class ClosableLog:
    def __init__(self, size: int, closes: list[tuple[int, bool]], failure: OSError | None = None) -> None:
        self.size, self.closes, self.failure = size, closes, failure
        self.folder = f"/data/{size}"
        self.handles: Any = None

    def use(self, handles: Any) -> None:
        self.handles = handles

    def close(self, save_index: bool) -> None:
        self.closes.append((self.size, save_index))
        if self.failure is not None:
            raise self.failure


def test_logs_are_closed_by_size_and_with_their_indexes_while_there_is_time() -> None:
    threads, now, closes = Threads(), [100.0], []  # type: ignore[var-annotated]
    flusher = BulkFlusher(cast(Any, threads), SimDisk(), "/data", 10, lambda: now[0])
    problems: list[str] = []
    logs = [ClosableLog(size, closes) for size in range(2 * THREADS)]
    flusher.close_logs(cast(Any, logs), problems.append)
    assert (len(threads.jobs), problems) == (THREADS, [])
    threads.run()
    assert closes == [(15, True), (7, True)]
    assert logs[15].handles is logs[7].handles
    now[0] += SAVE_INDEXES_SECONDS
    threads.run()
    assert closes[2:] == [(14, False), (6, False)]
    assert logs[14].handles is not logs[15].handles
    threads.run_all()
    assert problems == [""]
    assert len(closes) == 2 * THREADS
    flusher.close_logs([], problems.append)
    assert problems == ["", ""]


def test_the_first_problem_of_a_close_is_reported_after_all_logs() -> None:
    threads = Threads()
    flusher = BulkFlusher(cast(Any, threads), SimDisk(), "/data", 10, lambda: 0.0)
    problems: list[str] = []
    closes: list[tuple[int, bool]] = []
    logs = [ClosableLog(size, closes, OSError(28, "No space left") if size in (1, 2) else None) for size in range(4)]
    flusher.close_logs(cast(Any, logs), problems.append)
    threads.run_all()
    assert (problems, len(closes)) == (["the disk of /data/2 is full"], 4)


# The last use of a directory.


def test_the_time_of_the_last_use_is_stored_periodically_while_the_clock_is_trusted() -> None:
    loop, threads = SteppedLoop(), Threads()
    stored: list[int] = []
    now = [1_000]
    store = SimpleNamespace(checkpoint_worker=threads, directory=SimpleNamespace(note_use=stored.append))
    last_use = LastUse(cast(Any, store), cast(Any, loop), lambda: now[0])
    threads.run_all()
    assert stored == [1_000]
    for time, expected in ((2_000, [1_000, 2_000]), (-1, [1_000, 2_000]), (0, [1_000, 2_000, 0])):
        now[0] = time
        loop.pass_ms(INTERVAL_SECONDS * 1_000)
        threads.run_all()
        assert stored == expected
    now[0] = -1
    last_use.stop()
    assert (stored[3:], loop.delays()) == ([], [])
    now[0] = 5
    last_use.stop()
    assert stored[3:] == [5]
