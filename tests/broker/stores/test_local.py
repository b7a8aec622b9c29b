"""The local store with a shard on top, on a disk that fails when the test says so and threads that wait for the test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from random import Random
from typing import Any, cast

import pytest

from broker.runtime.start import ExitCode, StartError
from broker.runtime.workers import Workers
from broker.stores.local import LocalStore, new_id
from broker.stores.owned import LocalLog
from broker.stores.turn_flushes import LOGS_MIN
from protocol.batch import build_facts
from protocol.errors import ErrorCode
from storage import AppendFailed, HeldBy, LogId, NodeInfo, OwnedLog, Unreadable
from tests.storage.faulty_disk import FaultyDisk
from tests.storage.logs import overwrite, read
from tests.support.fake_loop import FakeLoop
from tests.support.local_stores import LOG, VALUES, StoreBench, Threads, config


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk(Random(7))


@pytest.fixture(params=["interval", "never"])
def relaxed(request: pytest.FixtureRequest, disk: FaultyDisk) -> StoreBench:
    return StoreBench(disk, request.param)


@pytest.fixture
def always(disk: FaultyDisk) -> StoreBench:
    return StoreBench(disk, "always")


# Who waits for what


def test_with_always_a_reply_waits_for_its_flush_and_one_flush_is_in_flight(always: StoreBench) -> None:
    first = always.put(b"a")
    second, third = always.put(b"b"), always.put(b"c")
    assert (len(always.threads.jobs), first.error) == (1, None)
    always.threads.run()
    assert (first.error, second.error, third.error) == (0, None, None)
    always.end_turn()
    assert len(always.threads.jobs) == 1
    always.threads.run()
    assert (second.error, third.error, always.threads.jobs) == (0, 0, [])
    assert always.restart_after_crash() == {b"a": b"1", b"b": b"1", b"c": b"1"}


@pytest.mark.parametrize("raising", ["submit", "start_flush"])
@pytest.mark.parametrize("behind", [False, True], ids=["a flush", "a flush behind another"])
def test_a_flush_that_cannot_begin_fails_and_the_next_one_is_tried(
    always: StoreBench, monkeypatch: pytest.MonkeyPatch, raising: str, behind: bool
) -> None:
    def refuse(*arguments: object) -> None:
        raise RuntimeError("can't start new thread")

    def plant() -> None:
        if raising == "submit":
            monkeypatch.setattr(always.threads, "submit", refuse)
        else:
            monkeypatch.setattr(type(always.owned.log), "start_flush", refuse)

    first = always.put(b"a")
    if behind:
        told: list[int | AppendFailed] = []
        always.owned.append(build_facts([(b"b", b"1")], 2), 1, told.append)
        always.loop.turn()
        plant()
        always.threads.run()
        assert isinstance(told[0], AppendFailed)
    else:
        always.threads.run()
        plant()
        assert always.put(b"b").error == ErrorCode.KAFKA_STORAGE_ERROR
    assert first.error == 0
    assert not always.owned.flusher.busy
    monkeypatch.undo()
    always.put(b"c")  # refused, where the log has to be repaired
    always.threads.run_all()
    always.retry()
    last = always.put(b"d")
    always.threads.run_all()
    assert last.error == 0
    assert {b"a", b"d"} <= always.restart_after_crash().keys()


def test_flushes_of_few_logs_in_one_turn_are_side_by_side(always: StoreBench) -> None:
    logs = always.more_logs(LOGS_MIN - 1)
    told: list[int | AppendFailed] = []
    for log in logs:
        log.append(build_facts([(b"key", b"value")], 1), 1, told.append)
    assert (always.threads.jobs, told) == ([], [])
    always.loop.turn()
    assert (len(always.threads.jobs), told) == (len(logs), [])
    always.threads.run_all()
    assert (told, [log.log.flushed_offset for log in logs]) == ([0] * len(logs), [1] * len(logs))


def test_with_interval_and_never_a_reply_waits_for_the_write_alone(relaxed: StoreBench) -> None:
    assert relaxed.put(b"a").error == 0
    assert relaxed.put(b"b").error == 0
    assert relaxed.threads.jobs == []
    assert len(relaxed.loop.timers) == (1 if relaxed.policy == "interval" else 0)
    relaxed.disk.locks.clear()
    relaxed.start()  # kill -9 takes nothing from the system's cache
    assert relaxed.shard.values == {b"a": b"1", b"b": b"1"}


def test_with_interval_what_was_written_is_flushed_when_the_interval_is_over(disk: FaultyDisk) -> None:
    machine = StoreBench(disk, "interval")
    machine.put(b"a")
    assert machine.loop.delays() == [0.1]
    machine.loop.jump(10)
    machine.threads.run_all()
    machine.put(b"b")
    assert len(machine.loop.timers) == 1
    assert b"a" in machine.restart_after_crash()


def test_with_always_what_is_not_flushed_is_not_shown_after_a_failure(always: StoreBench) -> None:
    always.put(b"a")
    always.threads.run()
    always.put(b"b")
    always.disk.fail_syncs = 1
    always.threads.run()
    assert always.shard.values == {b"a": b"1"}


# Failures


def test_with_always_a_failed_flush_refuses_what_waited_and_is_cut_away(always: StoreBench) -> None:
    always.put(b"a")
    always.threads.run()
    refused = always.put(b"b")
    always.disk.fail_syncs = 1
    always.threads.run()
    assert refused.error == 56
    assert not always.journal.writable
    syncs = always.disk.syncs
    assert not always.owned.usable()
    assert always.disk.syncs == syncs  # and nobody tries it again before the log is repaired
    always.retry()
    assert always.journal.writable
    reply = always.put(b"c")
    always.threads.run()
    assert reply.error == 0
    assert always.restart_after_crash() == {b"a": b"1", b"c": b"1"}


@pytest.mark.parametrize("loses", [True, False])
def test_with_interval_a_failing_flush_in_the_background_suspends_and_loses_nothing(disk: FaultyDisk, loses: bool) -> None:
    machine = StoreBench(disk, "interval")
    machine.put(b"a")
    machine.loop.jump(10)
    machine.threads.run_all()
    assert machine.put(b"b").error == 0
    machine.disk.fail_syncs, machine.disk.failed_sync_loses = 1, loses
    machine.loop.jump(10)
    machine.threads.run_all()
    assert not machine.journal.writable
    assert machine.shard.values == {b"a": b"1", b"b": b"1"}
    machine.disk.fail_syncs = 3
    machine.retry()
    assert not machine.journal.writable
    machine.disk.fail_syncs = 0
    machine.retry()
    assert machine.journal.writable
    assert machine.put(b"c").error == 0
    assert machine.restart_after_crash().items() >= {b"a": b"1", b"b": b"1"}.items()


@pytest.mark.parametrize("policy", ["always", "interval", "never"])
def test_a_full_disk_suspends_and_what_was_told_is_there_when_there_is_room_again(disk: FaultyDisk, policy: str) -> None:
    machine = StoreBench(disk, policy)
    told = machine.put(b"a")
    machine.threads.run_all()
    machine.disk.room = 30
    refused = machine.put(b"b")
    assert (told.error, refused.error) == (0, 56)
    assert (machine.journal.writable, machine.journal.readable) == (False, True)
    machine.disk.room = 60_000  # room for a batch is not room enough to go on
    machine.retry()
    assert not machine.journal.writable
    assert machine.shard.values == {b"a": b"1"}
    machine.disk.room = None
    machine.retry()
    assert machine.journal.writable
    reply = machine.put(b"c")
    machine.threads.run_all()
    assert reply.error == 0
    assert not [name for name in disk.list("/data") if "probe" in name]
    disk.locks.clear()
    machine.start()
    assert machine.shard.values == {b"a": b"1", b"c": b"1"}


def test_a_repair_waits_for_the_flush_under_way(disk: FaultyDisk) -> None:
    machine = StoreBench(disk, "interval")
    machine.put(b"a")
    machine.loop.jump(10)
    machine.disk.fail_writes = machine.disk.fail_truncates = 1
    assert machine.put(b"b").error == 56
    machine.seconds += 20
    machine.journal.advance(machine.clock.tick())
    assert len(machine.threads.jobs) == 1  # the flush, which hangs
    assert not machine.journal.writable
    machine.threads.run()
    machine.retry()
    assert machine.journal.writable
    assert machine.shard.values == {b"a": b"1"}


def test_any_exception_of_a_flush_is_a_failure(always: StoreBench) -> None:
    refused = always.put(b"a")
    _, done = always.threads.jobs.pop()
    done([ValueError("not an error of the system")])
    assert refused.error == 56
    assert not always.owned.usable()


def test_whoever_waits_for_the_next_flush_hears_of_a_failure_at_once(always: StoreBench) -> None:
    heard: list[AppendFailed | None] = []
    always.put(b"a")
    always.owned.flusher.flush(heard.append)
    always.owned.flusher.flush(heard.append)
    always.disk.fail_syncs = 1
    always.threads.run()
    assert [str(failure) for failure in heard] == ["/data/values-0 waits to be repaired"] * 2
    assert always.threads.jobs == []


def test_a_disk_that_does_not_read_makes_the_shard_unreadable_until_it_does(disk: FaultyDisk) -> None:
    machine = StoreBench(disk, "always")
    machine.put(b"a")
    machine.threads.run()
    machine.put(b"b")
    machine.disk.fail_syncs, machine.disk.unreadable = 1, ".log"
    machine.threads.run()
    assert (machine.journal.writable, machine.journal.readable) == (False, False)
    machine.retry()
    assert not machine.journal.readable
    machine.disk.unreadable = ""
    machine.retry()
    assert (machine.journal.writable, machine.shard.values) == (True, {b"a": b"1"})


def test_whoever_released_a_log_is_fenced(always: StoreBench) -> None:
    always.owned.release()
    assert not always.owned.usable()
    assert always.put(b"a").error == 56
    assert always.threads.jobs == []


def acquire(machine: StoreBench, id: LogId = VALUES) -> LocalLog | Unreadable:
    acquired: list[OwnedLog | HeldBy | Unreadable] = []
    machine.store.acquire(id, acquired.append)
    machine.threads.run_all()
    (result,) = acquired
    assert not isinstance(result, HeldBy)
    return cast(LocalLog | Unreadable, result)


def test_a_log_that_was_given_back_can_be_had_again_at_a_newer_epoch(always: StoreBench) -> None:
    always.put(b"a")
    always.threads.run_all()
    always.owned.release()
    again = acquire(always)
    assert isinstance(again, LocalLog)
    assert again.epoch > always.owned.epoch
    assert (again.usable(), always.owned.usable()) == (True, False)
    assert list(again.replay()) == [[(b"a", b"1")]]
    told: list[int | AppendFailed] = []
    again.append(build_facts([(b"b", b"2")], 0), 1, told.append)
    always.owned.append(build_facts([(b"c", b"3")], 0), 1, told.append)
    always.loop.turn()
    always.threads.run_all()
    assert [type(result).__name__ for result in told] == ["Fenced", "int"]
    assert list(again.replay()) == [[(b"a", b"1"), (b"b", b"2")]]


def test_one_flush_is_in_flight_whoever_owns_the_log(disk: FaultyDisk) -> None:
    machine = StoreBench(disk, "interval")
    machine.put(b"a")
    machine.loop.jump(10)
    machine.owned.release()
    acquired: list[Any] = []
    machine.store.acquire(VALUES, acquired.append)
    (again,) = acquired
    again.append(build_facts([(b"b", b"2")], 0), 1, lambda result: None)
    machine.loop.jump(10)
    assert len(machine.threads.jobs) == 1
    machine.threads.run_all()
    assert disk.syncs
    assert again.usable()


def test_a_log_that_was_given_back_broken_is_repaired_first(disk: FaultyDisk) -> None:
    machine = StoreBench(disk, "always")
    machine.put(b"a")
    disk.fail_syncs = 1
    machine.threads.run()
    machine.owned.release()
    disk.room = 0
    refused = acquire(machine)
    assert refused == Unreadable("the disk of /data/values-0 is full", False)
    disk.room = None
    again = acquire(machine)
    assert isinstance(again, LocalLog)
    assert again.usable()
    assert list(again.replay()) == []


def test_a_log_that_exists_is_opened_by_a_worker_and_a_new_one_at_once(always: StoreBench) -> None:
    always.put(b"a")
    always.threads.run_all()
    always.disk.crash()
    store = LocalStore(config("always"), cast(asyncio.AbstractEventLoop, FakeLoop()), always.disk)
    store.workers = cast(Workers, always.threads)
    acquired: list[Any] = []
    store.acquire(VALUES, acquired.append)
    assert acquired == []
    store.acquire(LogId("values", 1), acquired.append)
    assert [owned.id.partition for owned in acquired] == [1]
    always.threads.run()
    assert [owned.id.partition for owned in acquired] == [1, 0]
    assert list(acquired[1].replay()) == [[(b"a", b"1")]]
    assert always.disk.opened > 0
    store.handles.close()
    assert always.disk.opened == 0  # what the worker had opened is closed, what was read since was read by the store


@pytest.mark.parametrize(("what", "damaged"), [("unreadable", False), ("damaged", True)])
def test_a_log_that_cannot_be_opened_is_said_to_be(always: StoreBench, what: str, damaged: bool) -> None:
    always.put(b"a")
    always.threads.run_all()
    assert stop(always) == ""
    if damaged:
        sound = read(always.disk, LOG)
        overwrite(always.disk, LOG, sound[:-1] + bytes([sound[-1] ^ 1]))
        always.disk.remove("/data/.kafka_cleanshutdown")  # so that it is read
    else:
        always.disk.unreadable = ".log"
    store = LocalStore(config("always"), cast(asyncio.AbstractEventLoop, FakeLoop()), always.disk)
    store.workers = cast(Workers, always.threads)
    acquired: list[Any] = []
    store.acquire(VALUES, acquired.append)
    always.threads.run_all()
    assert acquired[0].damaged == damaged
    assert LOG.rpartition("/")[0] in acquired[0].reason


def test_a_directory_of_one_process_has_one_node_that_owns_everything(always: StoreBench) -> None:
    me = NodeInfo(1, (("PLAINTEXT", "here", 9092),))
    always.store.start(me)
    assert always.store.view().nodes() == [me]
    assert always.store.view().owner(VALUES) == me


def test_notes_are_written_by_rules_of_their_own(always: StoreBench) -> None:
    notes = acquire(always, LogId("__coordinator_notes", 0))
    assert isinstance(notes, LocalLog)
    told: list[int | AppendFailed] = []
    notes.append(build_facts([(b"k", b"v")], 0), 1, told.append)
    assert told == [0]  # before any flush
    assert always.threads.jobs == []
    assert always.loop.delays() == [5.0]
    assert notes.log.segment_bytes == 1 << 20


# Stopping and starting


def stop(machine: StoreBench) -> str:
    """What went wrong, or nothing."""
    told: list[str] = []
    machine.store.finish(True, told.append)
    machine.threads.run_all()
    machine.store.close()
    (problem,) = told
    return problem


@pytest.mark.parametrize("policy", ["always", "interval", "never"])
def test_an_orderly_stop_is_safe_against_power_loss_and_the_next_start_writes_no_segment(disk: FaultyDisk, policy: str) -> None:
    machine = StoreBench(disk, policy)
    machine.put(b"a")
    machine.threads.run_all()
    assert stop(machine) == ""
    assert disk.opened == 0
    before = len(disk.changes)
    machine.start()
    assert machine.shard.values == {b"a": b"1"}
    assert stop(machine) == ""
    assert [path for path in disk.changes[before:] if "/values-0" in path] == []
    assert machine.restart_after_crash() == {b"a": b"1"}


def test_a_stop_whose_flush_fails_is_not_marked(disk: FaultyDisk) -> None:
    machine = StoreBench(disk, "never")
    machine.put(b"a")
    disk.fail_syncs = 1
    assert stop(machine) != ""
    assert not disk.exists("/data/.kafka_cleanshutdown")


def test_a_stop_that_cannot_be_marked_is_one_line(disk: FaultyDisk) -> None:
    machine = StoreBench(disk, "never")
    machine.put(b"a")
    disk.room = 0
    assert stop(machine) == "the disk of /data is full"


def test_a_stop_with_something_unwritten_flushes_and_is_not_marked(disk: FaultyDisk) -> None:
    machine = StoreBench(disk, "never")
    machine.put(b"a")
    told: list[str] = []
    machine.store.finish(False, told.append)
    machine.threads.run_all()
    assert told == ["not everything was written"]
    assert not disk.exists("/data/.kafka_cleanshutdown")


def test_a_log_that_nobody_looked_at_since_a_crash_keeps_the_next_start_from_trusting_it(disk: FaultyDisk) -> None:
    machine = StoreBench(disk, "always")
    machine.put(b"a")
    machine.threads.run_all()
    other = acquire(machine, LogId("__consumer_offsets", 7))
    assert isinstance(other, LocalLog)
    other.append(build_facts([(b"k", b"v")], 0), 1, lambda result: None)
    machine.loop.turn()
    machine.threads.run_all()
    disk.crash()
    machine.start()
    assert machine.store.unchecked() == [other.id]
    assert stop(machine) == ""
    assert not disk.exists("/data/.kafka_cleanshutdown")
    disk.locks.clear()
    machine.start()
    acquire(machine, other.id)
    assert machine.store.unchecked() == []
    assert stop(machine) == ""
    assert disk.exists("/data/.kafka_cleanshutdown")
    disk.locks.clear()
    machine.start()  # now that all were in order, who opens only some of them leaves them so
    assert machine.store.unchecked() == []
    assert stop(machine) == ""
    assert disk.exists("/data/.kafka_cleanshutdown")


def test_what_is_opened_after_the_end_has_begun_is_nobodys(disk: FaultyDisk) -> None:
    machine = StoreBench(disk, "always")
    machine.put(b"a")
    machine.threads.run_all()
    machine.disk.make_folder("/data/values-1")
    acquired: list[Any] = []
    machine.store.acquire(LogId("values", 1), acquired.append)
    machine.store.finish(True, acquired.append)
    machine.threads.run_all()
    assert acquired == [""]


def test_a_store_of_no_logs_is_closed_in_order(disk: FaultyDisk) -> None:
    store = LocalStore(config("always"), cast(asyncio.AbstractEventLoop, FakeLoop()), disk)
    threads = Threads()
    store.checkpoint_worker = threads  # type: ignore[assignment]
    told: list[str] = []
    store.finish(True, told.append)
    threads.run_all()
    assert told == [""]


def unusable(disk: FaultyDisk) -> Iterator[tuple[str, ExitCode, str]]:
    disk.read_only = True
    yield "read-only", ExitCode.DIRECTORY, "data directory /data: Read-only file system"
    disk.read_only = False
    disk.unreadable = ".log"
    yield "unreadable log", ExitCode.DISK, "/data/values-0: Input/output error"
    disk.unreadable = ""
    disk.locks["/data/.lock"] = "process 7"
    yield "locked", ExitCode.LOCKED, "data directory /data is in use by process 7"
    disk.locks.clear()
    sound = read(disk, LOG)
    overwrite(disk, LOG, sound[:-1] + bytes([sound[-1] ^ 1]))
    overwrite(disk, "/data/.kafka_cleanshutdown", b"{}")
    yield "damaged", ExitCode.DATA, f"{LOG} is damaged at byte 0: a batch's checksum is wrong"
    overwrite(disk, LOG, sound[:-1])
    overwrite(disk, "/data/.kafka_cleanshutdown", b"{}")
    yield "cut", ExitCode.DATA, f"{LOG} is damaged at byte 0: a batch is cut short"
    overwrite(disk, LOG, sound)
    overwrite(disk, "/data/tenure.format", b"2\n")
    yield "newer", ExitCode.DATA, "data directory /data has format 2"


def test_a_directory_that_cannot_be_used_is_one_line_and_an_exit_code(disk: FaultyDisk) -> None:
    machine = StoreBench(disk, "always")
    machine.put(b"a")
    machine.threads.run()
    machine.store.close()
    for name, code, message in unusable(disk):
        with pytest.raises(StartError) as caught:
            machine.start()
        assert (caught.value.code, message in str(caught.value), "\n" in str(caught.value)) == (code, True, False), (
            name,
            str(caught.value),
        )
        disk.locks.clear()


def test_a_torn_tail_is_cut_when_it_starts(always: StoreBench) -> None:
    always.put(b"a")
    always.threads.run()
    overwrite(always.disk, LOG, read(always.disk, LOG) + b"torn")
    assert always.restart_after_crash() == {b"a": b"1"}


def test_new_ids_look_like_kafkas() -> None:
    ids = {new_id() for _ in range(200)}
    assert len(ids) == 200
    assert {len(id) for id in ids} == {22}
    assert not [id for id in ids if id.startswith("-")]


# Threads


@pytest.mark.asyncio
async def test_workers_bring_results_and_exceptions_back_and_end() -> None:
    workers = Workers(asyncio.get_running_loop(), 2)
    results: asyncio.Queue[object] = asyncio.Queue()
    workers.submit(lambda: 7, results.put_nowait)
    workers.submit(lambda: 1 // 0, results.put_nowait)
    found = [await results.get(), await results.get()]
    workers.close()
    for thread in workers._threads:
        thread.join(5)
        assert not thread.is_alive()
    assert 7 in found
    assert any(isinstance(result, ZeroDivisionError) for result in found)


def test_a_job_that_hangs_keeps_nobody_and_hears_nothing_when_the_loop_is_closed() -> None:
    loop = asyncio.new_event_loop()
    workers = Workers(loop, 1)
    go_on = threading.Event()
    heard: list[object] = []
    workers.submit(go_on.wait, heard.append)
    workers.submit(lambda: heard.append("begun"), heard.append)
    workers.close()
    loop.close()
    go_on.set()
    (thread,) = workers._threads
    thread.join(5)
    assert (thread.is_alive(), thread.daemon, heard) == (False, True, [])
