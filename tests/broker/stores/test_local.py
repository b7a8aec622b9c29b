"""The local store with a shard on top, on a faulty disk and with threads run by the test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from random import Random
from typing import Any, cast

import pytest

from broker.runtime.start import ExitCode, StartError
from broker.runtime.workers import Workers
from broker.stores.local import LocalStore
from broker.stores.owned import LocalLog
from broker.stores.tokens import fresh_cluster_id
from broker.stores.topic_logs import LocalTopicStore
from broker.stores.turn_flushes import LOGS_MIN
from protocol.batch import build_facts
from protocol.errors import ErrorCode
from simulator.disk import SimDisk
from storage import AppendFailed, HeldBy, LogId, NodeInfo, OwnedLog, Unreadable
from tests.storage.logs import overwrite, read
from tests.support.local_stores import LOG, VALUES, StoreHarness, Threads, config
from tests.support.stepped_loop import SteppedLoop


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(Random(7))


@pytest.fixture(params=["interval", "never"])
def relaxed(request: pytest.FixtureRequest, disk: SimDisk) -> StoreHarness:
    return StoreHarness(disk, request.param)


@pytest.fixture
def always(disk: SimDisk) -> StoreHarness:
    return StoreHarness(disk, "always")


# Replies and flushes


def test_with_always_a_reply_waits_for_its_flush_and_only_one_flush_runs(always: StoreHarness) -> None:
    first = always.put(b"a")
    second, third = always.put(b"b"), always.put(b"c")
    assert (len(always.threads.jobs), first.error) == (1, None)
    always.threads.run()
    assert (first.error, second.error, third.error) == (0, None, None)
    always.loop.run()
    assert len(always.threads.jobs) == 1
    always.threads.run()
    assert (second.error, third.error, always.threads.jobs) == (0, 0, [])
    assert always.restart_after_crash() == {b"a": b"1", b"b": b"1", b"c": b"1"}


@pytest.mark.usefixtures("planted_defect")
@pytest.mark.plain
@pytest.mark.parametrize("raising", ["submit", "start_flush"])
@pytest.mark.parametrize("waits_behind", [False, True], ids=["a flush", "a flush behind another"])
def test_a_flush_that_cannot_begin_fails_and_the_next_is_attempted(
    always: StoreHarness, monkeypatch: pytest.MonkeyPatch, raising: str, waits_behind: bool
) -> None:
    def refuse(*arguments: object) -> None:
        raise RuntimeError("can't start new thread")

    def plant() -> None:
        if raising == "submit":
            monkeypatch.setattr(always.threads, "submit", refuse)
        else:
            monkeypatch.setattr(type(always.owned.log), "start_flush", refuse)

    first = always.put(b"a")
    if waits_behind:
        results: list[int | AppendFailed] = []
        always.owned.append(build_facts([(b"b", b"1")], 2), 1, results.append)
        always.loop.run()
        plant()
        always.threads.run()
        assert isinstance(results[0], AppendFailed)
    else:
        always.threads.run()
        plant()
        assert always.put(b"b").error == ErrorCode.KAFKA_STORAGE_ERROR
    assert first.error == 0
    assert not always.owned.flusher.busy
    monkeypatch.undo()
    always.put(b"c")  # refused, as the log must be repaired
    always.threads.run_all()
    always.retry()
    last = always.put(b"d")
    always.threads.run_all()
    assert last.error == 0
    assert {b"a", b"d"} <= always.restart_after_crash().keys()


def test_few_logs_of_a_turn_are_flushed_in_parallel(always: StoreHarness) -> None:
    logs = always.more_logs(LOGS_MIN - 1)
    results: list[int | AppendFailed] = []
    for log in logs:
        log.append(build_facts([(b"key", b"value")], 1), 1, results.append)
    assert (always.threads.jobs, results) == ([], [])
    always.loop.run()
    assert (len(always.threads.jobs), results) == (len(logs), [])
    always.threads.run_all()
    assert (results, [log.log.flushed_offset for log in logs]) == ([0] * len(logs), [1] * len(logs))


def test_with_interval_and_never_a_reply_waits_only_for_the_write(relaxed: StoreHarness) -> None:
    assert relaxed.put(b"a").error == 0
    assert relaxed.put(b"b").error == 0
    assert relaxed.threads.jobs == []
    assert len(relaxed.loop.timers) == (1 if relaxed.policy == "interval" else 0)
    relaxed.disk.locks.clear()
    relaxed.start()  # a kill of the process leaves the page cache, with all writes
    assert relaxed.shard.values == {b"a": b"1", b"b": b"1"}


def test_with_interval_writes_are_flushed_after_the_interval(disk: SimDisk) -> None:
    harness = StoreHarness(disk, "interval")
    harness.put(b"a")
    assert harness.loop.delays() == [0.1]
    harness.loop.jump(10)
    harness.threads.run_all()
    harness.put(b"b")
    assert len(harness.loop.timers) == 1
    assert b"a" in harness.restart_after_crash()


# Failures


def test_with_always_a_failed_flush_refuses_waiting_appends_and_cuts_them(always: StoreHarness) -> None:
    always.put(b"a")
    always.threads.run()
    refused = always.put(b"b")
    always.disk.fail_syncs = 1
    always.threads.run()
    assert refused.error == 56
    assert not always.journal.writable
    assert always.shard.values == {b"a": b"1"}, "an unflushed batch is readable"
    syncs = always.disk.syncs
    assert not always.owned.usable()
    assert always.disk.syncs == syncs  # a failed flush is not retried: the log needs a repair first
    always.retry()
    assert always.journal.writable
    reply = always.put(b"c")
    always.threads.run()
    assert reply.error == 0
    assert always.restart_after_crash() == {b"a": b"1", b"c": b"1"}


@pytest.mark.parametrize("loses", [True, False])
def test_with_interval_a_failing_flush_in_the_background_suspends_and_loses_nothing(disk: SimDisk, loses: bool) -> None:
    harness = StoreHarness(disk, "interval")
    harness.put(b"a")
    harness.loop.jump(10)
    harness.threads.run_all()
    assert harness.put(b"b").error == 0
    harness.disk.fail_syncs, harness.disk.failed_sync_loses = 1, loses
    harness.loop.jump(10)
    harness.threads.run_all()
    assert not harness.journal.writable
    assert harness.shard.values == {b"a": b"1", b"b": b"1"}
    harness.disk.fail_syncs = 3
    harness.retry()
    assert not harness.journal.writable
    harness.disk.fail_syncs = 0
    harness.retry()
    assert harness.journal.writable
    assert harness.put(b"c").error == 0
    assert harness.restart_after_crash().items() >= {b"a": b"1", b"b": b"1"}.items()


@pytest.mark.parametrize("policy", ["always", "interval", "never"])
def test_a_full_disk_suspends_and_loses_nothing_acknowledged(disk: SimDisk, policy: str) -> None:
    harness = StoreHarness(disk, policy)
    result = harness.put(b"a")
    harness.threads.run_all()
    harness.disk.room = 30
    refused = harness.put(b"b")
    assert (result.error, refused.error) == (0, 56)
    assert (harness.journal.writable, harness.journal.readable) == (False, True)
    harness.disk.room = 60_000  # room for one batch is not enough to resume
    harness.retry()
    assert not harness.journal.writable
    assert harness.shard.values == {b"a": b"1"}
    harness.disk.room = None
    harness.retry()
    assert harness.journal.writable
    reply = harness.put(b"c")
    harness.threads.run_all()
    assert reply.error == 0
    assert not [name for name in disk.list("/data") if "probe" in name]
    disk.locks.clear()
    harness.start()
    assert harness.shard.values == {b"a": b"1", b"c": b"1"}


def test_a_repair_waits_for_the_flush_under_way(disk: SimDisk) -> None:
    harness = StoreHarness(disk, "interval")
    harness.put(b"a")
    harness.loop.jump(10)
    harness.disk.fail_writes = harness.disk.fail_truncates = 1
    assert harness.put(b"b").error == 56
    harness.loop.pass_ms(20_000)
    assert len(harness.threads.jobs) == 1  # the hanging flush
    assert not harness.journal.writable
    harness.threads.run()
    harness.retry()
    assert harness.journal.writable
    assert harness.shard.values == {b"a": b"1"}


def test_any_exception_of_a_flush_is_a_failure(always: StoreHarness) -> None:
    refused = always.put(b"a")
    _, done = always.threads.jobs.pop()
    done([ValueError("not an error of the system")])
    assert refused.error == 56
    assert not always.owned.usable()


def test_appends_that_wait_for_the_next_flush_fail_at_once(always: StoreHarness) -> None:
    failures: list[AppendFailed | None] = []
    always.put(b"a")
    always.owned.flusher.flush(failures.append)
    always.owned.flusher.flush(failures.append)
    always.disk.fail_syncs = 1
    always.threads.run()
    assert [str(failure) for failure in failures] == ["/data/values-0 waits to be repaired"] * 2
    assert always.threads.jobs == []


def test_a_read_error_makes_the_shard_unreadable_until_reads_work(disk: SimDisk) -> None:
    harness = StoreHarness(disk, "always")
    harness.put(b"a")
    harness.threads.run()
    harness.put(b"b")
    harness.disk.fail_syncs, harness.disk.unreadable = 1, ".log"
    harness.threads.run()
    assert (harness.journal.writable, harness.journal.readable) == (False, False)
    harness.retry()
    assert not harness.journal.readable
    harness.disk.unreadable = ""
    harness.retry()
    assert (harness.journal.writable, harness.shard.values) == (True, {b"a": b"1"})


def test_the_former_owner_of_a_released_log_is_fenced(always: StoreHarness) -> None:
    always.owned.release()
    assert not always.owned.usable()
    assert always.put(b"a").error == 56
    assert always.threads.jobs == []


def acquire(harness: StoreHarness, id: LogId = VALUES) -> LocalLog | Unreadable:
    acquired: list[OwnedLog | HeldBy | Unreadable] = []
    harness.store.acquire(id, acquired.append)
    harness.threads.run_all()
    (result,) = acquired
    assert not isinstance(result, HeldBy)
    return cast(LocalLog | Unreadable, result)


def test_a_released_log_can_be_acquired_at_a_newer_epoch(always: StoreHarness) -> None:
    always.put(b"a")
    always.threads.run_all()
    always.owned.release()
    reacquired = acquire(always)
    assert isinstance(reacquired, LocalLog)
    assert reacquired.epoch > always.owned.epoch
    assert (reacquired.usable(), always.owned.usable()) == (True, False)
    assert list(reacquired.replay()) == [[(b"a", b"1")]]
    results: list[int | AppendFailed] = []
    reacquired.append(build_facts([(b"b", b"2")], 0), 1, results.append)
    always.owned.append(build_facts([(b"c", b"3")], 0), 1, results.append)
    always.loop.run()
    always.threads.run_all()
    assert [type(result).__name__ for result in results] == ["Fenced", "int"]
    assert list(reacquired.replay()) == [[(b"a", b"1"), (b"b", b"2")]]


def test_only_one_flush_runs_when_the_owner_of_the_log_changes(disk: SimDisk) -> None:
    harness = StoreHarness(disk, "interval")
    harness.put(b"a")
    harness.loop.jump(10)
    harness.owned.release()
    acquired: list[Any] = []
    harness.store.acquire(VALUES, acquired.append)
    (reacquired,) = acquired
    reacquired.append(build_facts([(b"b", b"2")], 0), 1, lambda result: None)
    harness.loop.jump(10)
    assert len(harness.threads.jobs) == 1
    harness.threads.run_all()
    assert disk.syncs
    assert reacquired.usable()


def test_a_log_released_broken_is_repaired_when_acquired(disk: SimDisk) -> None:
    harness = StoreHarness(disk, "always")
    harness.put(b"a")
    disk.fail_syncs = 1
    harness.threads.run()
    harness.owned.release()
    disk.room = 0
    refused = acquire(harness)
    assert refused == Unreadable("the disk of /data/values-0 is full", False)
    disk.room = None
    reacquired = acquire(harness)
    assert isinstance(reacquired, LocalLog)
    assert reacquired.usable()
    assert list(reacquired.replay()) == []


def test_an_existing_log_is_opened_by_a_worker_and_a_new_log_at_once(always: StoreHarness) -> None:
    always.put(b"a")
    always.threads.run_all()
    always.disk.crash()
    store = LocalStore(config("always"), cast(asyncio.AbstractEventLoop, SteppedLoop()), always.disk)
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
    assert always.disk.opened == 0  # also the log that a worker thread opened


@pytest.mark.parametrize(("fault", "damaged"), [("unreadable", False), ("damaged", True)])
def test_a_log_that_cannot_be_opened_is_reported(always: StoreHarness, fault: str, damaged: bool) -> None:
    always.put(b"a")
    always.threads.run_all()
    assert stop(always) == ""
    if damaged:
        sound = read(always.disk, LOG)
        overwrite(always.disk, LOG, sound[:-1] + bytes([sound[-1] ^ 1]))
        always.disk.remove("/data/.kafka_cleanshutdown")  # after an orderly stop the log would not be read
    else:
        always.disk.unreadable = ".log"
    store = LocalStore(config("always"), cast(asyncio.AbstractEventLoop, SteppedLoop()), always.disk)
    store.workers = cast(Workers, always.threads)
    acquired: list[Any] = []
    store.acquire(VALUES, acquired.append)
    always.threads.run_all()
    assert acquired[0].damaged == damaged
    assert LOG.rpartition("/")[0] in acquired[0].reason


@pytest.mark.parametrize("policy", ["always", "interval", "never"])
@pytest.mark.parametrize("flushed", [False, True])
def test_a_hole_in_the_offsets_log_is_cut_only_with_deferred_flushing_and_past_flushed_data(
    disk: SimDisk, policy: str, flushed: bool
) -> None:
    """The system writes pages back in any order: after a power failure sound batches may follow lost ones."""
    harness = StoreHarness(disk, policy)
    offsets = LogId("__consumer_offsets", 0)
    owned = cast(LocalLog, acquire(harness, offsets))
    batches = [build_facts([(b"k%d" % number, b"v")], 0) for number in range(3)]
    for batch in batches:
        owned.append(batch, 1, lambda result: None)
        harness.loop.run()
        harness.threads.run_all()
    if flushed:
        owned.flusher.flush(lambda failure: None)
        harness.threads.run_all()
        LocalTopicStore(harness.store).save_recovery_points({}, lambda failure: None)
        harness.threads.run_all()
    path = "/data/__consumer_offsets-0/00000000000000000000.log"
    content = bytearray(read(disk, path))
    content[len(batches[0]) + 30] ^= 1
    disk.kill()
    overwrite(disk, path, bytes(content))
    harness.start()
    reacquired = acquire(harness, offsets)
    if policy == "always" or flushed:
        assert isinstance(reacquired, Unreadable)
        assert reacquired.damaged
    else:
        assert isinstance(reacquired, LocalLog)
        assert [key for facts in reacquired.replay() for key, _ in facts] == [b"k0"]
        assert disk.list("/data/set-aside") == ["000001-__consumer_offsets-0"]


def test_a_directory_of_one_process_has_one_node_that_owns_everything(always: StoreHarness) -> None:
    me = NodeInfo(1, (("PLAINTEXT", "here", 9092),))
    always.store.start(me)
    assert always.store.view().nodes() == [me]
    assert always.store.view().owner(VALUES) == me


def test_the_notes_log_has_its_own_flush_policy(always: StoreHarness) -> None:
    notes = acquire(always, LogId("__coordinator_notes", 0))
    assert isinstance(notes, LocalLog)
    results: list[int | AppendFailed] = []
    notes.append(build_facts([(b"k", b"v")], 0), 1, results.append)
    assert results == [0]  # before any flush
    assert always.threads.jobs == []
    assert always.loop.delays() == [5.0]
    assert notes.log.segment_bytes == 1 << 20


# Stopping and starting


def stop(harness: StoreHarness, everything_written: bool = True) -> str:
    """Stop the store; returns the error, or ""."""
    problems: list[str] = []
    harness.store.finish(everything_written, problems.append)
    harness.threads.run_all()
    harness.store.close()
    (problem,) = problems
    return problem


@pytest.mark.parametrize("policy", ["always", "interval", "never"])
def test_an_orderly_stop_is_safe_against_power_loss_and_the_next_start_writes_no_segment(disk: SimDisk, policy: str) -> None:
    harness = StoreHarness(disk, policy)
    harness.put(b"a")
    harness.threads.run_all()
    assert stop(harness) == ""
    assert disk.opened == 0
    before = len(disk.changes)
    harness.start()
    assert harness.shard.values == {b"a": b"1"}
    assert stop(harness) == ""
    assert [path for path in disk.changes[before:] if "/values-0" in path] == []
    assert harness.restart_after_crash() == {b"a": b"1"}


@pytest.mark.parametrize(
    ("fault", "value", "problem"),
    [
        ("fail_syncs", 1, "Input/output error"),  # the flush of a log fails
        ("room", 30, "the disk of /data is full"),  # room for the index files, but not for the marker of a clean stop
        ("room", None, "not everything was written"),  # facts in memory could not be appended
    ],
)
def test_a_stop_that_fails_reports_it_and_is_not_marked_clean(disk: SimDisk, fault: str, value: int | None, problem: str) -> None:
    harness = StoreHarness(disk, "never")
    harness.put(b"a")
    setattr(disk, fault, value)
    assert problem in stop(harness, everything_written=value is not None)
    assert not disk.exists("/data/.kafka_cleanshutdown")


def test_a_log_not_opened_since_a_crash_keeps_the_shutdown_unclean(disk: SimDisk) -> None:
    harness = StoreHarness(disk, "always")
    harness.put(b"a")
    harness.threads.run_all()
    offsets_log = acquire(harness, LogId("__consumer_offsets", 7))
    assert isinstance(offsets_log, LocalLog)
    offsets_log.append(build_facts([(b"k", b"v")], 0), 1, lambda result: None)
    harness.loop.run()
    harness.threads.run_all()
    disk.crash()
    harness.start()
    assert harness.store.unchecked_logs() == [offsets_log.id]
    assert stop(harness) == ""
    assert not disk.exists("/data/.kafka_cleanshutdown")
    disk.locks.clear()
    harness.start()
    acquire(harness, offsets_log.id)
    assert harness.store.unchecked_logs() == []
    assert stop(harness) == ""
    assert disk.exists("/data/.kafka_cleanshutdown")
    disk.locks.clear()
    harness.start()  # logs that are not opened since a clean stop stay clean
    assert harness.store.unchecked_logs() == []
    assert stop(harness) == ""
    assert disk.exists("/data/.kafka_cleanshutdown")


@pytest.mark.parametrize(
    ("name", "is_marked"),
    [("", True), ("partition.metadata", True), ("00000000000000000000.log", False), ("00000000000000000000.log.swap", False)],
)
def test_after_a_crash_folders_that_are_not_opened_keep_the_shutdown_unclean_only_with_segments(disk: SimDisk, name: str, is_marked: bool) -> None:
    disk.make_folder("/data/photos-2")
    if name:
        overwrite(disk, f"/data/photos-2/{name}", b"a batch")
    overwrite(disk, "/data/report-2024", b"a file named like a log")
    harness = StoreHarness(disk, "always")
    harness.put(b"a")
    harness.threads.run_all()
    assert stop(harness) == ""
    assert disk.exists("/data/.kafka_cleanshutdown") == is_marked


def test_a_log_opened_during_the_stop_is_closed_again(disk: SimDisk) -> None:
    harness = StoreHarness(disk, "always")
    harness.put(b"a")
    harness.threads.run_all()
    harness.disk.make_folder("/data/values-1")
    acquired: list[Any] = []
    harness.store.acquire(LogId("values", 1), acquired.append)
    harness.store.finish(True, acquired.append)
    harness.threads.run_all()
    assert acquired == [""]


def test_a_store_without_logs_stops_cleanly(disk: SimDisk) -> None:
    store = LocalStore(config("always"), cast(asyncio.AbstractEventLoop, SteppedLoop()), disk)
    threads = Threads()
    store.checkpoint_worker = threads  # type: ignore[assignment]
    problems: list[str] = []
    store.finish(True, problems.append)
    threads.run_all()
    assert problems == [""]


def make_unusable(disk: SimDisk) -> Iterator[tuple[str, ExitCode, str]]:
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


def test_an_unusable_directory_is_reported_in_one_line_with_an_exit_code(disk: SimDisk) -> None:
    harness = StoreHarness(disk, "always")
    harness.put(b"a")
    harness.threads.run()
    harness.store.close()
    for name, code, message in make_unusable(disk):
        with pytest.raises(StartError) as caught:
            harness.start()
        assert (caught.value.code, message in str(caught.value), "\n" in str(caught.value)) == (code, True, False), (
            name,
            str(caught.value),
        )
        disk.locks.clear()


def test_new_cluster_ids_have_kafkas_format() -> None:
    ids = {fresh_cluster_id() for _ in range(200)}
    assert len(ids) == 200
    assert {len(id) for id in ids} == {22}
    assert not [id for id in ids if id.startswith("-")]


# Threads


@pytest.mark.asyncio
async def test_workers_return_results_and_exceptions_and_end() -> None:
    workers = Workers(asyncio.get_running_loop(), 2)
    results: asyncio.Queue[object] = asyncio.Queue()
    workers.submit(lambda: 7, results.put_nowait)
    workers.submit(lambda: 1 // 0, results.put_nowait)
    returned = [await results.get(), await results.get()]
    workers.close()
    for thread in workers._threads:
        thread.join(5)
        assert not thread.is_alive()
    assert 7 in returned
    assert any(isinstance(result, ZeroDivisionError) for result in returned)


def test_a_job_that_hangs_does_not_delay_the_end_and_gets_no_callback() -> None:
    loop = asyncio.new_event_loop()
    workers = Workers(loop, 1)
    go_on = threading.Event()
    results: list[object] = []
    workers.submit(go_on.wait, results.append)
    workers.submit(lambda: results.append("begun"), results.append)
    workers.close()
    loop.close()
    go_on.set()
    (thread,) = workers._threads
    thread.join(5)
    assert (thread.is_alive(), thread.daemon, results) == (False, True, [])


@pytest.mark.parametrize("policy", ["never", "interval"])
def test_readers_that_wait_learn_of_each_append_that_is_not_flushed_first(disk: SimDisk, policy: str) -> None:
    harness = StoreHarness(disk, policy)
    grown: list[int] = []
    harness.owned.watch_growth(lambda: grown.append(harness.owned.high_watermark))
    harness.put(b"a")
    harness.put(b"b")
    assert grown == [1, 2]


def test_readers_that_wait_learn_of_an_append_when_it_is_flushed(always: StoreHarness) -> None:
    grown: list[int] = []
    always.owned.watch_growth(lambda: grown.append(always.owned.high_watermark))
    always.put(b"a")
    assert grown == []
    always.threads.run()
    assert grown == [1]


@pytest.mark.plain
@pytest.mark.parametrize("fails", [False, True])
def test_the_store_learns_only_of_flushes_that_have_succeeded(always: StoreHarness, fails: bool) -> None:
    """It may roll the log then, to compact it."""
    flushed: list[object] = []
    always.store.flushed = flushed.append  # type: ignore[method-assign,assignment]
    always.disk.fail_syncs = int(fails)
    always.put(b"a")
    always.threads.run()
    assert flushed == ([] if fails else [always.owned.log])
