"""How long the supervisor pauses before it starts a node again, what it prints of a node, and with which code it ends."""

from __future__ import annotations

import asyncio
import signal
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker import supervisor as module
from broker.settings.load import load_config
from broker.supervisor import NodeProcess, Supervisor, describe_end, exit_code, node_listeners

pytestmark = [pytest.mark.plain, pytest.mark.asyncio]  # replaces constants and the log

Run = tuple[float, int]  # how long a process served, in seconds, below 0: it did not listen; and its exit code


class Loop:
    """The time of the supervisor's loop."""

    def __init__(self) -> None:
        self.now = 100.0

    def time(self) -> float:
        return self.now


class World:
    def __init__(self, *settings: str) -> None:
        config = load_config(settings=["cluster.nodes=2", "listeners=A://127.0.0.1:0,B://127.0.0.1:0", *settings])
        listeners = [node_listeners(config, node) for node in (1, 2)]
        self.supervisor = Supervisor(config, listeners, [], asyncio.get_running_loop())
        self.loop = Loop()
        cast(Any, self.supervisor)._loop = self.loop
        self.node = self.supervisor.nodes[0]
        self.runs: list[Run] = []
        self.begun = 0
        cast(Any, self.supervisor)._run_process = self._run

    async def _run(self, node: NodeProcess) -> int:
        self.begun += 1
        seconds, code = self.runs.pop(0)
        node.addresses = []
        if seconds >= 0:
            for name, port in (("A", 1), ("B", 2)):
                self.supervisor._read(node, f"listening {name} 127.0.0.1:{port}\n")
            self.loop.now += seconds
        if not self.runs:
            self.supervisor._stop.stop({"reason": "the end of the test"})
        return code

    async def keep_running(self, *runs: Run) -> None:
        self.runs = list(runs)
        async with asyncio.timeout(20):
            await self.supervisor._keep_running(self.node)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The logged pauses, in milliseconds; a hundredth of them is waited."""
    logged: list[int] = []
    warned: list[str] = []

    def warning(event: str, **fields: Any) -> None:
        warned.append(event)
        logged.append(fields["pause_ms"])

    monkeypatch.setattr("broker.supervisor.log.warning", warning)
    wait = asyncio.wait

    async def short_wait(waited: Any, timeout: float) -> Any:
        return await wait(waited, timeout=timeout / 1_000)

    monkeypatch.setattr("broker.supervisor.asyncio.wait", short_wait)
    return logged


async def test_the_pause_doubles_after_each_short_run_up_to_half_a_minute(pauses: list[int]) -> None:
    world = World()
    await world.keep_running(*[(1.9, 1)] * 10)
    assert pauses == [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]
    assert world.begun == 10


@pytest.mark.parametrize(("seconds", "pause"), [(2.0, 250), (1.9, 1_000)])
async def test_a_node_that_has_served_for_two_seconds_starts_again_soon(pauses: list[int], seconds: float, pause: int) -> None:
    world = World()
    await world.keep_running((0.0, 1), (0.0, 1), (seconds, -9), (0.0, 0))
    assert pauses == [250, 500, pause]


async def test_a_node_that_never_listened_again_is_not_steady(pauses: list[int]) -> None:
    world = World()
    await world.keep_running((0.0, 1), (-1, 1), (-1, 1), (-1, 1))
    assert pauses == [250, 500, 1_000]


@pytest.mark.parametrize(("code", "restarts"), [(3, 0), (0, 1), (-9, 1)])
async def test_all_nodes_are_stopped_only_if_the_first_start_of_one_is_refused(pauses: list[int], code: int, restarts: int) -> None:
    """A process that was killed, or asked to end, has not said that it cannot start."""
    world = World()
    await world.keep_running((-1, code), (-1, 0))
    assert len(pauses) == restarts
    assert world.supervisor._code == (code if not restarts else 0)
    assert world.supervisor._stop.requested
    assert world.begun == 1 + restarts


async def test_the_first_code_of_a_node_that_does_not_stop_in_order_is_the_supervisors(pauses: list[int]) -> None:
    world = World()
    world.supervisor._stop.stop({})
    for code in (0, -9, 5):
        world.supervisor._stop = cast(Any, SimpleNamespace(requested=False, stop=lambda reason: None))

        async def run(node: NodeProcess, code: int = code) -> int:
            world.supervisor._stop.requested = True  # type: ignore[misc]
            return code

        cast(Any, world.supervisor)._run_process = run
        await world.supervisor._keep_running(world.node)
    assert (world.supervisor._code, pauses) == (137, [])


async def test_a_node_serves_once_it_listens_at_all_addresses(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    logged: list[dict[str, Any]] = []
    monkeypatch.setattr("broker.supervisor.log.info", lambda event, **fields: logged.append({"event": event, **fields}))
    node = world.node
    world.supervisor._read(node, "listening A [::1]:9092\n")
    assert (node.is_serving, node.has_listened, logged) == (False, True, [])
    world.loop.now = 123.0
    world.supervisor._read(node, "listening B 127.0.0.1:9093\n")
    assert (node.is_serving, node.serving_since) == (True, 123.0)
    assert node.addresses == [("::1", 9092), ("127.0.0.1", 9093)]
    assert logged == [{"event": "node serves", "node": 1, "addresses": "[::1]:9092, 127.0.0.1:9093"}]
    assert capsys.readouterr().out == "listening A [::1]:9092\nlistening B 127.0.0.1:9093\n"


async def test_a_problem_is_printed_once_until_the_node_serves(capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    first, second = "tenure: no room\n", "tenure: no right\n"
    for line in (first, first, second, second, first):
        world.supervisor._read(world.node, line)
    assert capsys.readouterr().err == first + second + first
    for name in ("A", "B"):
        world.supervisor._read(world.node, f"listening {name} 127.0.0.1:1\n")
    world.supervisor._read(world.node, first)
    assert capsys.readouterr().err == first
    world.supervisor._read(world.node, "another line\n")
    shown = capsys.readouterr()
    assert (shown.out.endswith("another line\n"), shown.err) == (True, "")


class FakeProcess:
    def __init__(self, returncode: int | None = None) -> None:
        self.returncode = returncode
        self.signals: list[int] = []

    def send_signal(self, number: int) -> None:
        self.signals.append(number)
        if self.returncode == 99:
            raise ProcessLookupError


async def test_only_running_processes_get_signals() -> None:
    world = World()
    running, ended = FakeProcess(), FakeProcess(0)
    world.supervisor.nodes[0].process, world.supervisor.nodes[1].process = cast(Any, running), cast(Any, ended)
    world.supervisor._signal_all(signal.SIGTERM)
    assert (running.signals, ended.signals) == ([signal.SIGTERM], [])
    world.node.process = None
    world.node.signal(signal.SIGTERM)


@pytest.mark.parametrize("late", [False, True])
async def test_nodes_that_do_not_stop_in_time_are_killed(monkeypatch: pytest.MonkeyPatch, late: bool) -> None:
    monkeypatch.setattr(module, "STOP_SECONDS", 0.05)
    errors: list[dict[str, Any]] = []
    monkeypatch.setattr("broker.supervisor.log.error", lambda event, **fields: errors.append({"event": event, **fields}))
    world = World()
    hanging = FakeProcess(None if late else 0)
    world.supervisor.nodes[0].process, world.supervisor.nodes[1].process = cast(Any, hanging), cast(Any, FakeProcess(0))

    async def run() -> None:
        while late and signal.SIGKILL not in hanging.signals:
            await asyncio.sleep(0.001)

    runs = [asyncio.create_task(run()), asyncio.create_task(asyncio.sleep(0))]
    await world.supervisor._end(cast(Any, runs))
    assert hanging.signals == ([signal.SIGTERM, signal.SIGKILL] if late else [])
    assert errors == ([{"event": "node does not stop and is killed", "node": 1}] if late else [])
    assert all(run.done() for run in runs)


async def test_ends_are_described_and_reported_as_a_shell_does() -> None:
    assert [describe_end(code) for code in (0, 3, -9, -15)] == ["exit code 0", "exit code 3", "SIGKILL", "SIGTERM"]
    assert [exit_code(code) for code in (0, 3, -9, -15)] == [0, 3, 137, 143]


async def test_the_command_of_each_node_has_its_own_settings() -> None:
    world = World()
    first, second = (node.command for node in world.supervisor.nodes)
    assert "node.id=1" in first
    assert "node.id=2" in second
    assert [node.listeners for node in world.supervisor.nodes] == [2, 2]
    assert "exit.with.parent=true" in first
