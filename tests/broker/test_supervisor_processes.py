"""The supervisor's processes: how they are started, probed, killed and stopped, and which addresses are refused before the first start."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import PIPE
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker import supervisor as module
from broker.cluster.messages import NodeRequestKind, encode
from broker.runtime.start import SUPERVISOR, ExitCode, StartError
from broker.settings.config import Config
from broker.settings.listeners import Listener
from broker.settings.load import load_config
from broker.stores.node_sockets import listen
from broker.supervisor import PORT_MAX, Supervisor, answers, check_addresses, node_ids, node_listeners, node_settings, supervise
from protocol.messages.node_requests import NodeRequest

pytestmark = pytest.mark.plain  # replaces functions of the supervisor, and the log

SECONDS = 20


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The log lines."""
    logged: list[dict[str, Any]] = []
    for level in ("info", "warning", "error"):
        monkeypatch.setattr(f"broker.supervisor.log.{level}", lambda event, level=level, **fields: logged.append({"level": level, "event": event} | fields))
    return logged


def configured(*settings: str) -> Config:
    return load_config(settings=["cluster.nodes=3", *settings], environ={})


def supervisor_of(*settings: str) -> Supervisor:
    config = configured("cluster.nodes=2", "listeners=A://127.0.0.1:0", *settings)
    return Supervisor(config, [node_listeners(config, node) for node in (1, 2)], ["--shared"], asyncio.get_running_loop())


class Process:
    """A child process that ends when it gets one of the signals in `ends_by`."""

    def __init__(self, pid: int, ends_by: Sequence[int] = (signal.SIGTERM, signal.SIGKILL)) -> None:
        self.pid = pid
        self.ends_by = ends_by
        self.returncode: int | None = None
        self.signals: list[int] = []
        self.stdin = SimpleNamespace(closed=False)
        self.stdin.close = lambda: setattr(self.stdin, "closed", True)
        self.stdout = asyncio.StreamReader()
        self.arguments: tuple[str, ...] = ()
        self.options: dict[str, Any] = {}

    def send_signal(self, number: int) -> None:
        self.signals.append(number)
        if number in self.ends_by:
            self.end(0 if number == signal.SIGTERM else -number)

    def end(self, code: int) -> None:
        self.returncode = code
        self.stdout.feed_eof()

    async def wait(self) -> int:
        assert self.returncode is not None
        return self.returncode


class Children:
    """Stands in for the start of child processes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started: list[Process] = []
        self.failure: OSError | None = None
        self.on_start: Callable[[Process], object] = lambda process: process.stdout.feed_data(b"listening A 127.0.0.1:9092\n")
        monkeypatch.setattr("broker.supervisor.asyncio.create_subprocess_exec", self.start)

    async def start(self, *arguments: str, **options: Any) -> Process:
        if self.failure is not None:
            raise self.failure
        process = Process(100 + len(self.started))
        process.arguments, process.options = arguments, options
        self.started.append(process)
        self.on_start(process)
        return process


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> Children:
    return Children(monkeypatch)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(SECONDS):
        while not holds():
            await asyncio.sleep(0)


def running(supervisor: Supervisor) -> asyncio.Task[int]:
    cast(Any, supervisor._stop).handle_signals = lambda: None
    return asyncio.create_task(supervisor.run())


# Starting and stopping.


@pytest.mark.asyncio
async def test_all_nodes_are_started_and_stopped_together(children: Children, lines: list[dict[str, Any]]) -> None:
    supervisor = supervisor_of()
    handled: list[bool] = []
    run = running(supervisor)
    cast(Any, supervisor._stop).handle_signals = lambda: handled.append(True)
    await until(lambda: all(node.is_serving for node in supervisor.nodes))
    assert handled == [True]
    assert [process.arguments for process in children.started] == [tuple(node.command) for node in supervisor.nodes]
    assert all("serve" in process.arguments and "--shared" in process.arguments for process in children.started)
    for process in children.started:
        assert (process.options["stdin"], process.options["stdout"], process.options["start_new_session"]) == (PIPE, PIPE, True)
        assert process.options["env"][SUPERVISOR] == str(os.getpid())
        assert (process.signals, process.stdin.closed) == ([], False)
    supervisor._stop.stop({"signal": "SIGTERM"})
    async with asyncio.timeout(SECONDS):
        assert await run == 0
    assert [process.signals for process in children.started] == [[signal.SIGTERM]] * 2
    assert all(process.stdin.closed for process in children.started)
    events = [line["event"] for line in lines]
    assert events == ["several nodes are experimental", *["node is started", "node serves"] * 2, "stopping all nodes", "all nodes are stopped"]
    assert (lines[0]["nodes"], lines[-2]["signal"]) == (2, "SIGTERM")
    assert [(line["node"], line["pid"]) for line in lines if line["event"] == "node is started"] == [(1, 100), (2, 101)]


@pytest.mark.asyncio
async def test_the_supervisor_ends_with_the_code_of_a_node_that_had_to_be_killed(
    children: Children, lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STOP_SECONDS", 0.02)
    supervisor = supervisor_of()
    run = running(supervisor)
    await until(lambda: all(node.is_serving for node in supervisor.nodes))
    children.started[1].ends_by = [signal.SIGKILL]
    supervisor._stop.stop({})
    async with asyncio.timeout(SECONDS):
        assert await run == 128 + signal.SIGKILL
    assert [process.signals for process in children.started] == [[signal.SIGTERM], [signal.SIGTERM, signal.SIGKILL]]
    assert [line["node"] for line in lines if line["event"] == "node does not stop and is killed"] == [2]


@pytest.mark.asyncio
async def test_no_node_outlives_a_supervisor_that_is_cancelled(children: Children, lines: list[dict[str, Any]]) -> None:
    supervisor = supervisor_of()
    before = asyncio.all_tasks()
    run = running(supervisor)
    await until(lambda: all(node.is_serving for node in supervisor.nodes))
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert [process.signals for process in children.started] == [[signal.SIGKILL]] * 2
    await until(lambda: asyncio.all_tasks() == before)


@pytest.mark.asyncio
@pytest.mark.parametrize("watches", [True, False])
async def test_the_supervisor_ends_with_its_parent_if_it_shall(
    children: Children, lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, watches: bool
) -> None:
    watchers: list[Any] = []

    class Parent:
        def __init__(self, loop: asyncio.AbstractEventLoop, stop: Callable[[dict[str, object]], None]) -> None:
            self.stop = stop
            self.closed = False
            watchers.append(self)

        def close(self) -> None:
            self.closed = True

    monkeypatch.setattr(module, "ParentWatch", Parent)
    supervisor = supervisor_of(f"exit.with.parent={str(watches).lower()}")
    run = running(supervisor)
    await until(lambda: all(node.is_serving for node in supervisor.nodes))
    assert len(watchers) == watches
    (watchers[0].stop if watches else supervisor._stop.stop)({"reason": "the parent has ended"})
    async with asyncio.timeout(SECONDS):
        assert await run == 0
    assert all(watcher.closed for watcher in watchers)


@pytest.mark.asyncio
async def test_a_node_whose_program_cannot_be_run_ends_the_supervisor(children: Children, lines: list[dict[str, Any]]) -> None:
    children.failure = OSError(8, "Exec format error")
    async with asyncio.timeout(SECONDS):
        assert await running(supervisor_of()) == ExitCode.PLATFORM
    errors = [line for line in lines if line["level"] == "error"]
    assert errors[0] == {"level": "error", "event": "node cannot be started", "node": 1, "reason": "Exec format error"}
    stopping = next(line for line in lines if line["event"] == "stopping all nodes")
    assert (stopping["reason"], stopping["exit_code"]) == ("node 1 cannot start", ExitCode.PLATFORM)


@pytest.mark.asyncio
async def test_the_reason_of_a_failed_start_is_never_empty(children: Children, lines: list[dict[str, Any]]) -> None:
    children.failure = OSError("no number")
    supervisor = supervisor_of()
    assert await supervisor._run_process(supervisor.nodes[0]) == ExitCode.PLATFORM
    assert lines[-1]["reason"] == "no number"


@pytest.mark.asyncio
async def test_a_process_that_starts_while_the_supervisor_stops_is_stopped(children: Children, lines: list[dict[str, Any]]) -> None:
    supervisor = supervisor_of()
    children.on_start = lambda process: supervisor._stop.stop({})
    assert await supervisor._run_process(supervisor.nodes[0]) == 0
    assert children.started[0].signals == [signal.SIGTERM]


@pytest.mark.asyncio
async def test_lines_that_are_no_text_are_printed_too(children: Children, lines: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    def write(process: Process) -> None:
        process.stdout.feed_data(b"a \xff line\n")
        process.end(3)

    children.on_start = write
    supervisor = supervisor_of()
    assert await supervisor._run_process(supervisor.nodes[0]) == 3
    assert capsys.readouterr().out == "a � line\n"


@pytest.mark.asyncio
async def test_a_closed_output_does_not_keep_a_node_from_serving(children: Children, lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """The program that read it has ended."""

    def closed(*arguments: object, **options: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("builtins.print", closed)
    supervisor = supervisor_of()
    for line in ("tenure: no room\n", "another line\n", "listening A 127.0.0.1:9092\n"):
        supervisor._read(supervisor.nodes[0], line)
    assert supervisor.nodes[0].is_serving


@pytest.mark.asyncio
async def test_a_node_does_not_serve_between_two_processes(children: Children, lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """A new process has other addresses (port 0), and a probe of an ended one means nothing."""
    supervisor = supervisor_of()
    node = supervisor.nodes[0]
    serving: list[bool] = []
    pauses: list[float] = []

    async def pause(waited: list[asyncio.Future[Any]], timeout: float) -> None:
        serving.append(node.is_serving)
        pauses.append(timeout)
        assert waited == [supervisor._stop.reason]
        if len(pauses) == 2:
            supervisor._stop.stop({})

    monkeypatch.setattr("broker.supervisor.asyncio.wait", pause)

    def serve_and_die(process: Process) -> None:
        process.stdout.feed_data(b"listening A 127.0.0.1:9092\n")
        process.end(-9)

    children.on_start = serve_and_die
    await supervisor._keep_running(node)
    assert (serving, pauses) == ([False, False], [0.25, 0.5])
    node.addresses = [("127.0.0.1", 1)]
    children.on_start = lambda process: process.end(0)
    await supervisor._run_process(node)
    assert node.addresses == []


@pytest.mark.asyncio
async def test_a_signal_to_a_process_that_has_just_ended_is_lost() -> None:
    supervisor = supervisor_of()

    def gone(number: int) -> None:
        raise ProcessLookupError

    process = Process(1)
    cast(Any, process).send_signal = gone
    supervisor.nodes[0].process = cast(Any, process)
    supervisor.nodes[1].process = other = cast(Any, Process(2))
    supervisor._signal_all(signal.SIGKILL)
    assert other.signals == [signal.SIGKILL]


@pytest.mark.asyncio
async def test_a_second_signal_kills_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.runtime.stopping.os._exit", lambda code: None)
    supervisor = supervisor_of()
    supervisor.nodes[0].process = process = cast(Any, Process(1))
    supervisor._stop.signalled(signal.SIGTERM)
    assert process.signals == []
    supervisor._stop.signalled(signal.SIGTERM)
    assert process.signals == [signal.SIGKILL]


def test_addresses_are_checked_before_any_node_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[Any] = []
    config = configured("listeners=A://127.0.0.1:9000")
    monkeypatch.setattr(module, "check_addresses", lambda config, listeners: steps.append([ports(of_node) for of_node in listeners]))

    def run(runner: asyncio.Runner, main: Any) -> int:
        main.close()
        steps.append(runner.get_loop().is_closed())
        return 7

    monkeypatch.setattr(module, "run_until_stopped", run)
    assert supervise(config, []) == 7
    assert steps == [[[(9000, 9000)], [(9001, 9001)], [(9002, 9002)]], False]


# Probes.


class Probed:
    """The supervisor while it probes node 1, in virtual time; a step of the script sets whether the node answers, and after how long."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, timeout_ms: int = 1_500) -> None:
        self.supervisor = supervisor_of(f"cluster.node.timeout.ms={timeout_ms}", "log.dirs=/srv/tenure")
        self.node = self.supervisor.nodes[0]
        self.now = 100.0
        self.slept: list[float] = []
        self.asked: list[tuple[str, int, float]] = []
        self.steps: list[tuple[bool, float]] = []
        self.during: Callable[[], object] = lambda: None
        self.process = self.start(1)
        cast(Any, self.supervisor)._loop = SimpleNamespace(time=lambda: self.now)
        monkeypatch.setattr("broker.supervisor.asyncio.sleep", self.sleep)
        monkeypatch.setattr(module, "answers", self.answers)

    def start(self, pid: int) -> Process:
        process = Process(pid, ends_by=())
        self.node.process = cast(Any, process)
        self.node.addresses = [("127.0.0.1", 9092)]
        return process

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        if not self.steps:
            raise asyncio.CancelledError

    async def answers(self, folder: str, node: int, seconds: float) -> bool:
        self.asked.append((folder, node, seconds))
        answered, after = self.steps.pop(0)
        self.now += after
        self.during()
        return answered

    async def probe(self, *steps: tuple[bool, float]) -> None:
        """Probes of one run of the supervisor's loop, which ends after the last step."""
        self.steps = list(steps)
        with pytest.raises(asyncio.CancelledError):
            await self.supervisor._probe(self.node)


REFUSED, SILENT, ANSWERED = (False, 0.0), (False, 0.5), (True, 0.1)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("steps", "killed_at", "seconds"),
    [
        ([REFUSED, REFUSED], None, 0),
        ([REFUSED, REFUSED, REFUSED], 101.5, 2),
        ([SILENT], None, 0),
        ([SILENT, SILENT], 102.0, 2),
        ([REFUSED, REFUSED, ANSWERED, REFUSED, REFUSED], None, 0),
        ([(False, 100.0)], None, 0),  # the supervisor itself was suspended
        ([(False, 100.0), (False, 100.0)], 301.0, 2),
    ],
)
async def test_a_node_is_killed_after_a_whole_timeout_of_silence(
    monkeypatch: pytest.MonkeyPatch, lines: list[dict[str, Any]], steps: list[tuple[bool, float]], killed_at: float | None, seconds: int
) -> None:
    probed = Probed(monkeypatch)
    await probed.probe(*steps)
    assert probed.process.signals == ([] if killed_at is None else [signal.SIGKILL])
    if killed_at is not None:
        assert probed.now - 0.5 == killed_at
        assert lines == [{"level": "error", "event": "node does not answer and is killed", "node": 1, "pid": 1, "seconds": seconds}]


@pytest.mark.asyncio
async def test_a_killed_process_gets_another_timeout_to_end(monkeypatch: pytest.MonkeyPatch, lines: list[dict[str, Any]]) -> None:
    for probes, kills in ((5, 1), (6, 2)):
        probed = Probed(monkeypatch)
        await probed.probe(*[REFUSED] * probes)
        assert len(probed.process.signals) == kills


@pytest.mark.asyncio
@pytest.mark.parametrize(("timeout_ms", "interval"), [(1_500, 0.5), (15_000, 5.0), (60_000, 5.0)])
async def test_a_node_is_probed_three_times_in_a_timeout_and_every_five_seconds_at_least(
    monkeypatch: pytest.MonkeyPatch, timeout_ms: int, interval: float
) -> None:
    probed = Probed(monkeypatch, timeout_ms)
    await probed.probe(ANSWERED, ANSWERED)
    assert probed.slept == [interval] * 3
    assert probed.asked == [("/srv/tenure/nodes", 1, interval)] * 2


@pytest.mark.asyncio
async def test_a_new_process_does_not_inherit_the_silence_of_the_one_before_it(monkeypatch: pytest.MonkeyPatch, lines: list[dict[str, Any]]) -> None:
    probed = Probed(monkeypatch)
    later: list[Process] = []

    def restart() -> None:
        if len(probed.asked) == 2:
            later.append(probed.start(2))

    probed.during = restart
    await probed.probe(*[REFUSED] * 4)
    assert (probed.process.signals, later[0].signals) == ([], [])
    probed = Probed(monkeypatch)
    probed.during = restart
    await probed.probe(*[REFUSED] * 5)
    assert (probed.process.signals, later[1].signals) == ([], [signal.SIGKILL])


@pytest.mark.asyncio
async def test_only_a_node_that_serves_is_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    probed = Probed(monkeypatch)
    naps = iter(range(4))

    async def sleep(seconds: float) -> None:
        nap = next(naps, None)
        if nap is None:
            raise asyncio.CancelledError
        probed.node.process = cast(Any, None if nap == 0 else probed.process)
        probed.node.addresses = [("127.0.0.1", 9092)] if nap in (0, 3) else []

    monkeypatch.setattr("broker.supervisor.asyncio.sleep", sleep)
    await probed.probe(ANSWERED)
    assert len(probed.asked) == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("meanwhile", ["replaced", "ended", "stopping"])
async def test_a_process_that_ends_during_its_last_probe_is_not_killed(monkeypatch: pytest.MonkeyPatch, lines: list[dict[str, Any]], meanwhile: str) -> None:
    probed = Probed(monkeypatch)
    others: list[Process] = []

    def change() -> None:
        if len(probed.asked) < 3:
            return
        if meanwhile == "replaced":
            others.append(probed.start(2))
        elif meanwhile == "ended":
            probed.process.returncode = 1
        else:
            probed.supervisor._stop.stop({})

    probed.during = change
    if meanwhile == "stopping":
        probed.steps = [REFUSED] * 3
        await probed.supervisor._probe(probed.node)
    else:
        await probed.probe(*[REFUSED] * 3)
    assert [process.signals for process in (probed.process, *others)] == [[]] * (1 + len(others))
    assert lines == []


@pytest.mark.asyncio
@pytest.mark.parametrize(("timeout_ms", "probed"), [(0, []), (1_500, [1, 2])])
async def test_nodes_are_probed_unless_the_timeout_is_off(children: Children, lines: list[dict[str, Any]], timeout_ms: int, probed: list[int]) -> None:
    supervisor = supervisor_of(f"cluster.node.timeout.ms={timeout_ms}")
    nodes: list[int] = []

    async def probe(node: Any) -> None:
        nodes.append(node.id)

    cast(Any, supervisor)._probe = probe
    run = running(supervisor)
    await until(lambda: all(node.is_serving for node in supervisor.nodes))
    supervisor._stop.stop({})
    async with asyncio.timeout(SECONDS):
        await run
    assert nodes == probed


@pytest.mark.asyncio
@pytest.mark.parametrize("behaviour", ["answers", "closes", "silent", "absent"])
async def test_a_node_answers_a_probe_at_its_socket(tmp_path: Path, behaviour: str) -> None:
    received: list[bytes] = []
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big")))
        if behaviour == "answers":
            writer.write(b"\0\0\0\x04")
        if behaviour != "closes":
            await reader.read()  # until the probe closes its connection
        writer.close()
        ended.set()

    if behaviour == "absent":
        assert not await answers(str(tmp_path), 1, 5.0)
        return
    server = await asyncio.start_unix_server(serve, sock=listen(str(tmp_path), 1))
    async with server, asyncio.timeout(SECONDS):
        assert await answers(str(tmp_path), 1, 0.05 if behaviour == "silent" else 5.0) is (behaviour == "answers")
        await ended.wait()
    assert received == [encode(NodeRequest(NodeRequestKind.PROBE, -1), 1)[4:]]  # -1: no node has this id


# Addresses.


def ports(listeners: Sequence[Listener]) -> list[tuple[int, int]]:
    return [(listener.port, listener.advertised_port) for listener in listeners]


def test_each_node_has_the_next_port_of_each_listener() -> None:
    config = configured("listeners=A://127.0.0.1:9000,B://127.0.0.1:0", "advertised.listeners=A://kafka:7000")
    assert [ports(node_listeners(config, node)) for node in node_ids(config)] == [
        [(9000, 7000), (0, 0)],
        [(9001, 7001), (0, 0)],
        [(9002, 7002), (0, 0)],
    ]


def test_a_nodes_command_line_gives_the_same_settings_with_its_own_addresses() -> None:
    config = configured("listeners=A://127.0.0.1:9000", "advertised.listeners=A://kafka:7000", "log.dirs=/srv/tenure")
    words = node_settings(config, 2, node_listeners(config, 2))
    assert set(words[::2]) == {"--set"}
    node = load_config(settings=words[1::2], environ={})
    assert (node.node_id, node.cluster_nodes, node.data_directory, node.exit_with_parent) == (2, 3, "/srv/tenure", True)
    assert node.listeners[0].endpoint == "127.0.0.1:9001"
    assert (node.listeners[0].advertised_host, node.listeners[0].advertised_port) == ("kafka", 7001)


class Machine:
    """Opens sockets that only note whether they are closed."""

    def __init__(self) -> None:
        self.opened: list[tuple[int, int]] = []  # port and backlog
        self.closed = 0
        self.in_use = -1

    def open_sockets(self, listener: Listener, backlog: int) -> tuple[list[Any], int]:
        if listener.port == self.in_use:
            raise StartError(f"cannot listen on {listener.endpoint}: Address already in use", ExitCode.LISTEN)
        self.opened.append((listener.port, backlog))
        return [SimpleNamespace(close=self._close)], listener.port

    def _close(self) -> None:
        self.closed += 1


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(module, "RealMachine", lambda: machine)
    return machine


def check(*settings: str) -> None:
    config = configured(*settings)
    check_addresses(config, [node_listeners(config, node) for node in node_ids(config)])


def test_every_address_is_opened_once_and_closed_again(machine: Machine) -> None:
    check("listeners=A://127.0.0.1:9000,B://127.0.0.1:0")
    assert machine.opened == [(9000, 1), (0, 1), (9001, 1), (0, 1), (9002, 1), (0, 1)]
    assert machine.closed == 6


def test_an_address_in_use_is_reported_with_its_node(machine: Machine) -> None:
    machine.in_use = 9001
    with pytest.raises(StartError, match=r"^node 2 cannot listen on 127.0.0.1:9001: Address already in use$") as refused:
        check("listeners=A://127.0.0.1:9000")
    assert refused.value.code == ExitCode.LISTEN
    assert (machine.opened, machine.closed) == ([(9000, 1)], 1)


def test_two_nodes_on_one_port_are_refused(machine: Machine) -> None:
    with pytest.raises(StartError, match=r"nodes 1 and 3 would both listen on 127.0.0.1:9002: leave 3 ports to each listener") as refused:
        check("listeners=A://127.0.0.1:9000,B://127.0.0.1:9002")
    assert refused.value.code == ExitCode.CONFIG
    check("listeners=A://127.0.0.1:9000,B://127.0.0.2:9002")  # the same port of another address


@pytest.mark.parametrize(
    ("setting", "node"), [(f"listeners=A://127.0.0.1:{PORT_MAX - 1}", 3), (f"listeners=A://127.0.0.1:{PORT_MAX}", 2)],
)
def test_a_port_above_the_last_one_is_refused(machine: Machine, setting: str, node: int) -> None:
    with pytest.raises(StartError, match=rf"^node {node} would listen on port 65536, and 65535 is the last one$") as refused:
        check(setting)
    assert refused.value.code == ExitCode.CONFIG
    assert machine.closed == len(machine.opened) == node - 1


def test_the_last_port_is_a_port(machine: Machine) -> None:
    check(f"listeners=A://127.0.0.1:{PORT_MAX - 2}")
    assert machine.opened[-1] == (PORT_MAX, 1)
    with pytest.raises(StartError, match="node 3"):
        check("listeners=A://127.0.0.1:9000", f"advertised.listeners=A://kafka:{PORT_MAX - 1}")
