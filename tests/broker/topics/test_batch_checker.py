"""The processes that check batches: their results equal those of a check in the loop, and they may be killed at any time."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from broker.topics import batch_checker as checker
from broker.topics.batch_checker import Checker, Job
from broker.topics.batch_checker_process import CheckFailed, CheckResult, outcome_of, result_bytes
from broker.topics.batch_checks import UNLIMITED, BatchRefused, Checked, TooMuchWork, check
from broker.topics.settings import LogSettings, log_settings
from protocol.batch import DECOMPRESSED_BYTES_MAX
from protocol.compression import compress
from tests.protocol.nasty_batches import LAYOUTS, body
from tests.support.produce_batches import THEN, batch, record, varint

pytestmark = pytest.mark.once  # does not depend on the Python version, and kills processes

COUNT = 5_000
WAIT_SECONDS = 30


def settings(**values: str) -> LogSettings:
    return log_settings({name.replace("_", "."): value for name, value in values.items()}, {})


PLAIN = settings()


def batch_with_count(raw: bytes, count: int, codec: int = 0, **fields: int) -> bytes:
    return batch(raw=compress(raw, codec), attributes=codec, record_count=count, last_offset_delta=count - 1, **fields)


def edge_case_batches() -> dict[str, tuple[bytes, LogSettings]]:
    batches = {}
    for codec in range(5):
        for name, layout in LAYOUTS.items():
            batches[f"{name}, codec {codec}"] = (batch_with_count(body(layout, COUNT), COUNT, codec), PLAIN)
    tiny = body(LAYOUTS["tiny"], COUNT)
    batches |= {
        "a count too large": (batch_with_count(tiny, COUNT + 1, 4), PLAIN),
        "a count too small": (batch_with_count(tiny, COUNT - 1, 4), PLAIN),
        "cut short": (batch_with_count(tiny[:-3], COUNT, 4), PLAIN),
        "a wrong checksum": (batch_with_count(tiny, COUNT, 4, crc=1), PLAIN),
        "too large": (batch_with_count(tiny, COUNT), settings(max_message_bytes="1000")),
        "too large when unpacked": (batch_with_count(tiny, COUNT, 4), settings(max_message_bytes="1000", compression_type="uncompressed")),
        "repacked": (batch_with_count(tiny, COUNT, 4), settings(compression_type="gzip")),
        "without keys": (batch_with_count(tiny, COUNT, 4), settings(cleanup_policy="compact")),
        "out of time": (batch_with_count(tiny, COUNT), settings(message_timestamp_after_max_ms="1000")),
        "many headers": (batch_with_count(record(headers=varint(9_000) + b"\0\1" * 9_000), 1), PLAIN),
        "zeros": (batch_with_count(record(value=bytes(20 << 20)), 1, 4), PLAIN),
        "more zeros than allowed": (batch_with_count(record(value=bytes(DECOMPRESSED_BYTES_MAX)), 1, 4), PLAIN),
        "empty parts of gzip": (batch(raw=b"".join([batch_with_count(b"", 1, 1)[61:]] * 3_000), attributes=1, record_count=1, last_offset_delta=0), PLAIN),
    }
    return batches


def fields_of(outcome: CheckResult) -> tuple[Any, ...]:
    if isinstance(outcome, BatchRefused):
        return outcome.error, outcome.message, outcome.records, outcome.with_start
    return tuple(outcome) if isinstance(outcome, Checked) else (type(outcome), str(outcome))


def checked_in_process(data: bytes, log_config: LogSettings, now: int) -> CheckResult:
    try:
        return check(data, 0, len(data), log_config, now, "t-0", UNLIMITED)
    except (BatchRefused, TooMuchWork) as outcome:
        return outcome


class Checks:
    """Jobs and their results, in the order of completion."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker
        self.ended: list[tuple[str, CheckResult]] = []
        self._changed = asyncio.Event()

    def submit(self, data: bytes, name: str = "t-0", log_config: LogSettings = PLAIN, connection: object = 0, is_needed: bool = True) -> None:
        def done(outcome: CheckResult) -> None:
            self.ended.append((name, outcome))
            self._changed.set()

        self.checker.submit(Job(connection, data, log_config, THEN, "t-0", done, lambda: is_needed))

    async def await_ended(self, count: int) -> list[tuple[str, CheckResult]]:
        async with asyncio.timeout(WAIT_SECONDS):
            while len(self.ended) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.ended

    async def await_pids(self, count: int) -> list[int]:
        async with asyncio.timeout(WAIT_SECONDS):
            while len(self.checker.pids) < count:
                await asyncio.sleep(0.005)
        return self.checker.pids


NewLoop = Callable[[], asyncio.AbstractEventLoop]


def with_checker(
    play: Callable[[Checks], Awaitable[None]], command: tuple[str, ...] = checker.COMMAND, new_loop: NewLoop = uvloop.new_event_loop
) -> None:
    async def run() -> None:
        batch_checker = Checker(asyncio.get_running_loop(), command)
        try:
            await play(Checks(batch_checker))
        finally:
            await batch_checker.stop()
        assert batch_checker.pids == []

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())


def test_the_checker_process_has_the_result_of_a_check_in_process() -> None:
    batches = edge_case_batches()

    async def play(checks: Checks) -> None:
        for name, (data, log_config) in batches.items():
            checks.submit(data, name, log_config, connection=name)
        for name, outcome in await checks.await_ended(len(batches)):
            assert fields_of(outcome) == fields_of(checked_in_process(*batches[name], THEN)), name

    with_checker(play)


def test_every_outcome_is_returned_from_the_checker_process() -> None:
    outcomes = [checked_in_process(data, log_config, THEN) for data, log_config in edge_case_batches().values()]
    for outcome in (*outcomes, TooMuchWork(), CheckFailed("why")):
        assert fields_of(outcome_of(result_bytes(outcome)[8:])) == fields_of(outcome)


LONG = batch_with_count(body(LAYOUTS["keys null and empty in turn"], 300_000), 300_000, 4)
SHORT = batch_with_count(body(LAYOUTS["keys null and empty in turn"], COUNT), COUNT, 4)


def test_a_slow_batch_check_does_not_delay_others() -> None:
    async def play(checks: Checks) -> None:
        checks.submit(LONG, "long", connection=1)
        for number in range(3):
            checks.submit(SHORT, f"short {number}", connection=2)
        assert [name for name, _ in await checks.await_ended(4)] == ["short 0", "short 1", "short 2", "long"]
        assert len(checks.checker.pids) == 2

    with_checker(play)


def test_batch_checks_alternate_between_connections() -> None:
    async def play(checks: Checks) -> None:
        for number in range(3):
            checks.submit(SHORT, f"many {number}", connection=1)
        checks.submit(SHORT, "one", connection=2)
        assert [name for name, _ in await checks.await_ended(4)] == ["many 0", "one", "many 1", "many 2"]

    with_checker(play)


def test_a_batch_of_a_closed_connection_is_not_checked() -> None:
    async def play(checks: Checks) -> None:
        checks.submit(SHORT, is_needed=False)
        ((_, outcome),) = await checks.await_ended(1)
        assert isinstance(outcome, CheckFailed)
        assert checks.checker.pids == []

    with_checker(play)


def test_a_killed_checker_process_is_replaced_and_its_batch_checked_again() -> None:
    async def play(checks: Checks) -> None:
        checks.submit(LONG, "long")
        before = await checks.await_pids(2)
        os.kill(before[1], signal.SIGKILL)
        ((_, outcome),) = await checks.await_ended(1)
        assert fields_of(outcome) == fields_of(checked_in_process(LONG, PLAIN, THEN))
        after = checks.checker.pids
        assert after[0] == before[0]
        assert after[1] != before[1]

    with_checker(play)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_an_idle_checker_process_that_was_killed_is_replaced(new_loop: NewLoop) -> None:
    async def play(checks: Checks) -> None:
        checks.submit(SHORT)
        await checks.await_ended(1)
        os.kill(checks.checker.pids[0], signal.SIGKILL)
        await asyncio.sleep(0.2)  # until the loop has noticed the end of the process
        checks.submit(SHORT)
        assert isinstance((await checks.await_ended(2))[1][1], Checked)

    with_checker(play, new_loop=new_loop)


@pytest.mark.usefixtures("planted_defect")
def test_a_defect_fails_one_batch_and_the_next_gets_a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    timeout = asyncio.timeout

    def broken_timeout(seconds: float) -> asyncio.Timeout:
        if seconds == checker.JOB_SECONDS + checker.GRACE_SECONDS:
            raise LookupError("planted")
        return timeout(seconds)

    async def play(checks: Checks) -> None:
        with monkeypatch.context() as broken:
            broken.setattr(asyncio, "timeout", broken_timeout)
            checks.submit(SHORT)
            ((_, outcome),) = await checks.await_ended(1)
        assert str(outcome) == "a defect of the broker"
        assert checks.checker.pids == []
        checks.submit(SHORT)
        assert isinstance((await checks.await_ended(2))[1][1], Checked)

    with_checker(play)


@pytest.mark.parametrize("command", [(sys.executable, "-c", "pass"), ("/nowhere/at/all",), (sys.executable, "-c", "print('x' * 99)")])
def test_a_failing_checker_process_fails_the_batch_and_is_started_again(command: tuple[str, ...]) -> None:
    async def play(checks: Checks) -> None:
        for number in range(2):
            checks.submit(SHORT, str(number))
        for _, outcome in await checks.await_ended(2):
            assert isinstance(outcome, CheckFailed)

    with_checker(play, command)


def test_a_hanging_checker_process_is_killed_after_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(checks: Checks) -> None:
        checks.submit(SHORT)
        await checks.await_ended(1)
        (pid,) = checks.checker.pids
        os.kill(pid, signal.SIGSTOP)
        with monkeypatch.context() as hasty:
            hasty.setattr(checker, "JOB_SECONDS", 0.2)
            hasty.setattr(checker, "GRACE_SECONDS", 0.1)
            checks.submit(SHORT)
            _, (_, outcome) = await checks.await_ended(2)
            assert "longer than 0.2 s" in str(outcome)
        assert checks.checker.pids == []
        checks.submit(SHORT)
        assert isinstance((await checks.await_ended(3))[-1][1], Checked)

    with_checker(play)


def test_idle_checker_processes_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "IDLE_SECONDS", 0.01)

    async def play(checks: Checks) -> None:
        for count in (1, 2):
            checks.submit(SHORT)
            await checks.await_ended(count)
            async with asyncio.timeout(WAIT_SECONDS):
                while checks.checker.pids:
                    await asyncio.sleep(0.005)

    with_checker(play)


def test_a_stop_ends_busy_checker_processes() -> None:
    pids: list[int] = []

    async def play(checks: Checks) -> None:
        checks.submit(LONG, "long")
        pids.extend(await checks.await_pids(2))
        await checks.checker.stop()
        checks.submit(SHORT)
        assert checks.ended == []

    with_checker(play)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
