"""When logs are compacted, and that a failed, hanging or killed cleaner leaves no traces."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from broker.stores import compaction as module
from broker.stores.compaction import CleaningRules, LogCleaner
from broker.stores.compaction_process import CleaningFailed, run_cleaner
from protocol.batch import build_facts
from storage import AppendFailed, DataDirectory, Handles, Log, LogId, OsDisk
from storage.checkpoints import read_offsets
from tests.storage.logs import recover

pytestmark = pytest.mark.once  # no dependence on the Python version

ORDERS, PAYMENTS = LogId("__consumer_offsets", 0), LogId("__consumer_offsets", 1)
SEGMENT_BYTES = 1 << 20
BOUND = 50_000
CLEANER = (sys.executable, "-P", "-m", "storage.cleaner")
LIMIT_SECONDS = 30.0


class CompactionHarness:
    """A data directory with logs, and their compaction; flushes are immediate."""

    def __init__(self, path: Path, command: tuple[str, ...] = CLEANER, time_limit_seconds: float = 60.0) -> None:
        self.disk = OsDisk()
        self.directory = DataDirectory.open(self.disk, str(path), 1, "", "a test", lambda: "id")
        self.logs: dict[LogId, Log] = {}
        self.failures: list[AppendFailed] = []
        self.now = 1_000_000
        rules = CleaningRules(SEGMENT_BYTES, dirty_bytes_min=BOUND, time_limit_seconds=time_limit_seconds)
        self.cleaning = LogCleaner(asyncio.get_running_loop(), self.disk, self.directory, rules, lambda: self.now, command)

    def open(self, id: LogId, watch: bool = True) -> Log:
        log, _ = Log.open(Handles(self.disk), self.directory.log_folder(*id), SEGMENT_BYTES, 0, False)
        self.logs[id] = log

        def flush(done: Callable[[Any], None]) -> None:
            log.flush()
            self.cleaning.flushed(log)
            done(None)

        if watch:
            self.cleaning.watch(id, log, flush, self.failures.append)
        return log

    async def end(self) -> None:
        await self.cleaning.stop()
        self.directory.close()


def write(log: Log, count: int, keys: int = 10) -> None:
    for number in range(count):
        log.append(build_facts([(b"k%d" % (number % keys), b"v%d" % number + bytes(200))], 1_000 + number), log.epoch)


def state(log: Log) -> dict[bytes, bytes | None]:
    return {key: value for facts in log.facts() for key, value in facts}


def reopened(log: Log) -> Log:
    return Log.open(Handles(OsDisk()), log.folder, SEGMENT_BYTES, 0, False)[0]


async def wait_until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECK_SECONDS", 0.02)
    monkeypatch.setattr(module, "RETRY_SECONDS_MIN", 0.1)
    monkeypatch.setattr(module, "HOUSEKEEPING_SECONDS", 0.05)


Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run_on_both(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine, once on asyncio's event loop and once on uvloop: they handle child processes differently."""

    def run(main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(main)

    return run


def test_above_the_bound_the_dirtiest_log_is_rolled_and_cleaned(tmp_path: Path, run_on_both: Run) -> None:
    async def main() -> None:
        harness = CompactionHarness(tmp_path)
        cleaning = harness.cleaning
        small, large = harness.open(ORDERS), harness.open(PAYMENTS)
        write(small, 50)
        write(large, 120)
        await asyncio.sleep(0.1)
        assert (cleaning.cleanings, large.closed_segments) == (0, [])  # the log has too little to clean
        write(large, 200)
        expected = state(large)
        await wait_until(lambda: cleaning.cleanings)
        assert (state(large), state(reopened(large))) == (expected, expected)
        assert (len(large.closed_segments), small.closed_segments) == (1, [])
        assert large.size < 10 * 300
        assert (cleaning.live_bytes, cleaning.dirty_bytes) == (large.size, small.size)
        assert read_offsets(harness.disk, f"{tmp_path}/cleaner-offset-checkpoint") == {PAYMENTS: 320}
        assert not [name for name in os.listdir(large.folder) if name.endswith((".cleaned", ".swap", ".deleted"))]
        await harness.end()
        assert (cleaning.cleanings, cleaning.failures, harness.failures) == (1, 0, [])

    run_on_both(main())


@pytest.mark.asyncio
async def test_the_allowed_dirty_bytes_grow_with_the_live_bytes(tmp_path: Path) -> None:
    harness = CompactionHarness(tmp_path)
    log = harness.open(ORDERS)
    write(log, 1_000, keys=1_000)
    await wait_until(lambda: harness.cleaning.cleanings)
    live = harness.cleaning.live_bytes
    assert live > 4 * BOUND
    write(log, 500)
    assert harness.cleaning.dirty_bytes > 2 * BOUND
    await asyncio.sleep(0.1)
    assert harness.cleaning.cleanings == 1
    write(log, 700)
    await wait_until(lambda: harness.cleaning.cleanings == 2)
    assert harness.cleaning.live_bytes < live + 10 * 300
    await harness.end()


@pytest.mark.asyncio
async def test_cleaned_offsets_are_known_after_a_restart(tmp_path: Path) -> None:
    harness = CompactionHarness(tmp_path)
    write(harness.open(ORDERS), 400, keys=400)
    await wait_until(lambda: harness.cleaning.cleanings)
    live = harness.cleaning.live_bytes
    await harness.end()
    harness = CompactionHarness(tmp_path)
    harness.open(ORDERS)
    assert (harness.cleaning.live_bytes, harness.cleaning.dirty_bytes) == (live, 0)
    await harness.end()


@pytest.mark.parametrize(
    ("code", "limit", "reason"),
    [
        ("sys.exit('no room')", 60.0, "no room"),
        ("sys.exit(5)", 60.0, "exit code 5"),
        ("os.kill(os.getpid(), 9)", 60.0, "killed by signal 9"),
        ("time.sleep(60)", 0.2, "longer than"),
        ("print('nonsense')", 60.0, "Expecting value"),
        ("print('{}')", 60.0, "not a report"),
        ('print(\'{"cleaned": [[0, 9, 9, [0]]], "clean_to": 1, "bytes_before": 1, "bytes_after": 1}\')', 60.0, "No such file"),
    ],
)
def test_a_failed_cleaner_changes_nothing_and_is_retried(
    tmp_path: Path, run_on_both: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: str, limit: float, reason: str
) -> None:
    async def main() -> None:
        harness = CompactionHarness(tmp_path, (sys.executable, "-c", f"import os, sys, time; sys.stdin.readline(); {code}"), limit)
        log = harness.open(ORDERS)
        write(log, 400)
        expected = state(log)
        reasons: list[str] = []
        with monkeypatch.context() as patched:
            patched.setattr("broker.stores.compaction.log.warning", lambda event, **fields: reasons.append(fields["reason"]))
            await wait_until(lambda: harness.cleaning.failures >= 2)
        assert all(reason in warning for warning in reasons), reasons
        assert (state(log), state(reopened(log))) == (expected, expected)
        assert (log.bytes_since(0), harness.cleaning.cleanings, harness.failures) == (log.size, 0, [])
        write(log, 1)
        harness.cleaning._command = CLEANER
        harness.cleaning.rules = CleaningRules(SEGMENT_BYTES, dirty_bytes_min=BOUND)
        await wait_until(lambda: harness.cleaning.cleanings)
        assert len(state(log)) == 10
        await harness.end()

    run_on_both(main())


def test_a_cleaner_killed_before_its_request_has_failed(run_on_both: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    start = asyncio.create_subprocess_exec

    async def start_and_kill(*command: str, **pipes: Any) -> asyncio.subprocess.Process:
        process = await start(*command, **pipes)
        process.kill()
        await process.wait()
        await asyncio.sleep(0.1)  # meanwhile the loop closes the standard input of the killed process
        return process

    async def main() -> None:
        monkeypatch.setattr(asyncio, "create_subprocess_exec", start_and_kill)
        with pytest.raises(CleaningFailed, match="killed by signal 9"):
            await run_cleaner(CLEANER, "/nowhere", b"{}", 0, 60.0)

    run_on_both(main())


def test_a_missing_cleaner_program_is_a_failed_cleaning(tmp_path: Path, run_on_both: Run) -> None:
    async def main() -> None:
        harness = CompactionHarness(tmp_path, ("/nowhere/python",))
        write(harness.open(ORDERS), 400)
        await wait_until(lambda: harness.cleaning.failures)
        await harness.end()

    run_on_both(main())


# A cleaner that writes its pid, and starts its work when the file `go` appears.
WAITING = (
    sys.executable,
    "-c",
    "import os, sys, time, storage.cleaner\n"
    "folder = os.path.dirname(sys.argv[1])\n"
    "while not os.nice(0): time.sleep(0.01)\n"
    "open(folder + '/pid.new', 'w').write(str(os.getpid()))\n"
    "os.rename(folder + '/pid.new', folder + '/pid')\n"
    "while not os.path.exists(folder + '/go'): time.sleep(0.01)\n"
    "sys.exit(storage.cleaner.main())",
)


def test_stopping_ends_the_cleaner(tmp_path: Path, run_on_both: Run) -> None:
    async def main() -> None:
        harness = CompactionHarness(tmp_path, WAITING)
        log = harness.open(ORDERS)
        write(log, 400)
        expected = state(log)
        await wait_until(lambda: (tmp_path / "pid").exists())  # the cleaner runs
        begun = asyncio.get_running_loop().time()
        await harness.end()
        assert asyncio.get_running_loop().time() - begun < 3  # the cleaner would wait for ever; on a busy machine its end takes a while
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), 0)
        assert state(log) == state(reopened(log)) == expected
        assert harness.cleaning.failures == 0

    run_on_both(main())


@pytest.mark.parametrize("change", ["repaired", "unusable", "given away", "appended to", "read"])
@pytest.mark.asyncio
async def test_a_log_that_changes_while_it_is_cleaned_loses_nothing(tmp_path: Path, change: str) -> None:
    harness = CompactionHarness(tmp_path, WAITING)
    cleaning = harness.cleaning
    log = harness.open(ORDERS)
    write(log, 400)
    reader = log.facts()
    await wait_until(lambda: (tmp_path / "pid").exists())
    if change == "repaired":
        with pytest.raises(AssertionError):
            log.start_repair(log.next_offset)
        cleaning.cancel(log)
        await wait_until(lambda: not log.busy)
        recover(log, keep_unflushed=True)
    elif change == "unusable":
        log.usable = False
    elif change == "given away":
        cleaning.forget(ORDERS)
    elif change == "appended to":
        write(log, 30)
    else:
        next(reader)
    expected = state(log)
    (tmp_path / "go").touch()
    if change in ("unusable", "given away"):
        await wait_until(lambda: cleaning.failures)
        assert not [name for name in os.listdir(log.folder) if name.endswith((".cleaned", ".swap", ".deleted"))]
        if change == "unusable":
            recover(log, keep_unflushed=True)
            await wait_until(lambda: cleaning.cleanings)
    else:
        await wait_until(lambda: cleaning.cleanings)
    assert state(log) == expected
    read_state = {key: value for facts in reader for key, value in facts}
    assert read_state.items() <= expected.items() or change == "appended to"
    log.append(build_facts([(b"new", b"1")], 5_000), log.epoch)
    log.flush()
    await harness.end()
    assert state(reopened(log)) == expected | {b"new": b"1"}


@pytest.mark.asyncio
async def test_a_failed_segment_swap_is_reported_to_the_owner_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = CompactionHarness(tmp_path)
    log = harness.open(ORDERS)
    write(log, 400)
    expected = state(log)
    renames = 0
    rename = OsDisk.rename

    def refuse(disk: OsDisk, old: str, new: str) -> None:
        nonlocal renames
        renames += 1
        if renames == 5:  # the swap has begun: three renames promote the new segment, the fourth sets the old log aside
            raise OSError(5, "Input/output error")
        rename(disk, old, new)

    monkeypatch.setattr(OsDisk, "rename", refuse)
    await wait_until(lambda: harness.failures)
    assert not log.usable
    assert "Input/output error" in str(harness.failures[0])
    recover(log, keep_unflushed=True)
    assert state(log) == expected
    assert log.size < 10 * 300  # the repair finished the swap to the promoted segment
    await harness.end()


@pytest.mark.asyncio
async def test_a_log_without_flushes_is_rolled_for_compaction_too(tmp_path: Path) -> None:
    harness = CompactionHarness(tmp_path)
    log = harness.open(ORDERS)

    def flush(done: Callable[[Any], None]) -> None:
        """A flush during which an append arrives, so that the log is never fully flushed."""
        flush = log.start_flush()
        write(log, 1)
        flush.run()
        log.finish_flush(flush, None)
        harness.cleaning.flushed(log)
        done(None)

    harness.cleaning.watch(ORDERS, log, flush, harness.failures.append)
    write(log, 400)
    await wait_until(lambda: harness.cleaning.cleanings)
    await harness.end()


@pytest.mark.asyncio
async def test_logs_with_time_retention_share_a_size_limit(tmp_path: Path) -> None:
    harness = CompactionHarness(tmp_path)
    cleaning = harness.cleaning
    cleaning.rules = CleaningRules(SEGMENT_BYTES, notes_bytes_max=60_000)
    large, small, smallest = [harness.open(LogId("notes", number), watch=False) for number in range(3)]
    for log, count in ((large, 500), (small, 30), (smallest, 3)):
        log.segment_bytes = 20_000
        write(log, count)
        log.flush()
        cleaning.watch_retention(LogId("notes", [large, small, smallest].index(log)), log, -1, harness.failures.append)
    small_bytes = sum(log.size for log in (small, smallest))
    harness.now = -1  # size retention applies whatever the clock says
    await wait_until(lambda: large.size + small_bytes <= 60_000)
    assert large.size + small_bytes > 39_000
    assert (small.start_offset, smallest.start_offset) == (0, 0)
    assert state(large)[b"k9"] == b"v499" + bytes(200)  # the newest notes are kept
    cleaning.rules = CleaningRules(SEGMENT_BYTES, notes_bytes_max=0)
    await wait_until(lambda: not sum(log.size for log in (large, small, smallest)))  # a limit of 0 removes even the active segments
    await harness.end()
    assert (harness.failures, reopened(large).start_offset) == ([], 500)


@pytest.mark.asyncio
async def test_a_log_with_time_retention_loses_older_segments(tmp_path: Path) -> None:
    harness = CompactionHarness(tmp_path)
    log = harness.open(ORDERS, watch=False)
    for number in range(3):
        write(log, 10)
        log.append(build_facts([(b"day", b"%d" % number)], 100_000 * number), log.epoch)
        log.flush()
        assert log.roll(0)
    harness.cleaning.watch_retention(ORDERS, log, 900_000, harness.failures.append)
    await asyncio.sleep(0.1)
    assert log.start_offset == 11
    harness.now += 1
    await wait_until(lambda: log.start_offset == 22)
    starts = f"{tmp_path}/log-start-offset-checkpoint"
    await wait_until(lambda: read_offsets(harness.disk, starts) == {ORDERS: 22})
    assert not [name for name in os.listdir(log.folder) if name.endswith(".deleted")]
    await harness.end()
    assert reopened(log).start_offset == 22


@pytest.mark.asyncio
async def test_recovery_points_are_written_while_it_runs(tmp_path: Path) -> None:
    harness = CompactionHarness(tmp_path)
    log = harness.open(ORDERS)
    path = f"{tmp_path}/recovery-point-offset-checkpoint"
    write(log, 5)
    log.flush()
    await wait_until(lambda: read_offsets(harness.disk, path) == {ORDERS: 5})
    write(log, 5)
    await asyncio.sleep(0.15)
    assert read_offsets(harness.disk, path) == {ORDERS: 5}
    log.flush()
    await wait_until(lambda: read_offsets(harness.disk, path) == {ORDERS: 10})
    await harness.end()
