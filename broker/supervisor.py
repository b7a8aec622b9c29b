"""`tenure serve --nodes N`: starts the nodes as child processes, starts those that end again, and stops all of them together.

The supervisor serves no client and opens no file of the data directory. Nodes end with it: each watches its parent process, and a pipe
on its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from broker.logging.logs import log
from broker.machine import RealMachine
from broker.runtime.children import child_command, child_environment
from broker.runtime.contain import contained_task
from broker.runtime.parent import ParentWatch
from broker.runtime.start import SUPERVISOR, ExitCode, StartError, asked_to_stop
from broker.settings.config import Config
from broker.settings.listeners import Listener, format_endpoint
from protocol.headers import encode_request
from protocol.messages.api_versions import ApiVersionsRequest

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
# A node stops in order within three seconds.
STOP_SECONDS: Final = 6.0
PAUSE_SECONDS_MIN: Final = 0.25  # before a restart; doubles with each run of a node that was short
PAUSE_SECONDS_MAX: Final = 30.0
STEADY_SECONDS: Final = 2.0  # a node that has served so long starts again after the shortest pause
PROBE_SECONDS: Final = 5.0  # between two probes of a node, and for its answer
PORT_MAX: Final = 65_535


def supervise(config: Config, arguments: Sequence[str]) -> int:
    """Run all nodes until SIGTERM or SIGINT and return the exit code. `arguments`: options that the command lines of all nodes share.

    Raises StartError when the addresses of the nodes cannot be listened on.
    """
    listeners = [node_listeners(config, node) for node in node_ids(config)]
    check_addresses(config, listeners)
    with asyncio.Runner() as runner:
        supervisor = Supervisor(config, listeners, arguments, runner.get_loop())
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            return runner.run(supervisor.run())
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def node_ids(config: Config) -> range:
    return range(1, config.cluster_nodes + 1)


def node_listeners(config: Config, node: int) -> list[Listener]:
    """The node's listeners: node 1 has the ports of the settings, each further node the next ones. Port 0 stays a free port."""
    return [
        replace(one, port=one.port and one.port + node - 1, advertised_port=one.advertised_port and one.advertised_port + node - 1)
        for one in config.listeners
    ]


def check_addresses(config: Config, listeners: Sequence[Sequence[Listener]]) -> None:
    """Refuse ports that two nodes would share, or that another process has: no node is started then."""
    machine = RealMachine()
    opened = []
    users: dict[tuple[str, int], int] = {}
    try:
        for node, of_node in enumerate(listeners, 1):
            for listener in of_node:
                if max(listener.port, listener.advertised_port) > PORT_MAX:
                    raise StartError(f"node {node} would listen on port {listener.port}, and {PORT_MAX} is the last one", ExitCode.CONFIG)
                other = users.setdefault((listener.host, listener.port), node) if listener.port else node
                if other != node:
                    line = f"nodes {other} and {node} would both listen on {listener.endpoint}: leave {config.cluster_nodes} ports to each listener"
                    raise StartError(line, ExitCode.CONFIG)
                try:
                    sockets, _ = machine.open_sockets(listener, 1)
                except StartError as error:
                    raise StartError(f"node {node} {error}", error.code) from None
                opened += sockets
    finally:
        for sock in opened:
            sock.close()


class NodeProcess:
    """One node: its command line, its current process, and the pause before the next restart."""

    def __init__(self, id: int, command: Sequence[str], listeners: int) -> None:
        self.id = id
        self.command = command
        self.listeners = listeners
        self.process: Process | None = None
        self.addresses: list[tuple[str, int]] = []  # where the current process listens
        self.serves_since = 0.0
        self.has_listened = False
        self.pause = PAUSE_SECONDS_MIN

    @property
    def serves(self) -> bool:
        return len(self.addresses) == self.listeners

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)


class Supervisor:
    """Keeps the nodes running until a stop signal, or until a node cannot start the first time."""

    def __init__(
        self, config: Config, listeners: Sequence[Sequence[Listener]], arguments: Sequence[str], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._config = config
        self._loop = loop
        self._stop: asyncio.Future[dict[str, object]] = loop.create_future()
        self._code = int(ExitCode.OK)
        self._signals = 0
        self.nodes = [
            NodeProcess(id, [*child_command("tenure"), "serve", *arguments, *node_settings(config, id, of_node)], len(of_node))
            for id, of_node in enumerate(listeners, 1)
        ]

    async def run(self) -> int:
        log.warning("several nodes are experimental", nodes=len(self.nodes))
        for number in STOP_SIGNALS:
            self._loop.add_signal_handler(number, self._signalled, number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        if asked_to_stop:
            self._signalled(signal.Signals(asked_to_stop.pop()))
        parent = ParentWatch(self._loop, self.stop) if self._config.exit_with_parent else None
        runs = [self._loop.create_task(contained_task(self._keep_running, node)) for node in self.nodes]
        probes = [self._loop.create_task(contained_task(self._probe, node)) for node in self.nodes if self._config.cluster_node_timeout_ms]
        try:
            log.info("stopping all nodes", **await self._stop)
            await self._end(runs)
        finally:
            if parent is not None:
                parent.close()
            for task in (*probes, *runs):
                task.cancel()
            for node in self.nodes:
                node.signal(signal.SIGKILL)
        log.info("all nodes are stopped")
        return self._code

    def _signalled(self, number: signal.Signals) -> None:
        self._signals += 1
        if self._signals > 1:
            for node in self.nodes:
                node.signal(signal.SIGKILL)
            os._exit(128 + number)  # the second signal ends all processes at once
        self.stop({"signal": number.name})

    def stop(self, reason: dict[str, object]) -> None:
        if not self._stop.done():
            self._stop.set_result(reason)

    async def _end(self, runs: Sequence[asyncio.Task[None]]) -> None:
        """Stop all nodes in order at the same time; kill what is left at the deadline."""
        for node in self.nodes:
            node.signal(signal.SIGTERM)
        _, late = await asyncio.wait(runs, timeout=STOP_SECONDS)
        if late:
            for node in self.nodes:
                if node.process is not None and node.process.returncode is None:
                    log.error("node does not stop and is killed", node=node.id)
                    node.signal(signal.SIGKILL)
            await asyncio.wait(late, timeout=1.0)

    # One node.

    async def _keep_running(self, node: NodeProcess) -> None:
        """Run the node until the supervisor stops; restart its process when it ends."""
        while not self._stop.done():
            code = await self._run_process(node)
            if self._stop.done():
                if code:
                    self._code = self._code or exit_code(code)
                return
            if not node.has_listened and code > 0:
                # The node has printed the reason. A smaller cluster than the user asked for must not run on.
                self._code = code
                self.stop({"reason": f"node {node.id} cannot start", "exit_code": code})
                return
            if node.serves and self._loop.time() - node.serves_since >= STEADY_SECONDS:
                node.pause = PAUSE_SECONDS_MIN
            log.warning("node has ended and is started again", node=node.id, ended=how_ended(code), pause_ms=round(node.pause * 1000))
            node.addresses = []
            await asyncio.wait([self._stop], timeout=node.pause)
            node.pause = min(2 * node.pause, PAUSE_SECONDS_MAX)

    async def _run_process(self, node: NodeProcess) -> int:
        """Start a process for the node and wait until it ends; returns its exit code, negative for a signal."""
        node.addresses = []
        environment = child_environment() | {SUPERVISOR: str(os.getpid())}
        try:
            # A session of its own: Ctrl-C on a terminal is for the supervisor, which stops the nodes.
            process = node.process = await asyncio.create_subprocess_exec(
                *node.command, stdin=PIPE, stdout=PIPE, env=environment, start_new_session=True
            )
        except OSError as error:
            log.error("node cannot be started", node=node.id, reason=error.strerror or str(error))
            return int(ExitCode.PLATFORM)
        log.info("node is started", node=node.id, pid=process.pid)
        if self._stop.done():
            node.signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdin is not None
        async for line in process.stdout:
            self._read(node, line.decode("utf-8", "replace"))
        code = await process.wait()
        process.stdin.close()
        return code

    def _read(self, node: NodeProcess, line: str) -> None:
        """A line of the node's standard output: where it listens."""
        with contextlib.suppress(OSError, ValueError):  # standard output may be closed
            print(line, end="", flush=True)
        if line.startswith("listening "):
            host, _, port = line.split()[-1].rpartition(":")
            node.addresses.append((host.strip("[]"), int(port)))
            node.has_listened = True
            if node.serves:
                node.serves_since = self._loop.time()
                log.info("node serves", node=node.id, addresses=", ".join(format_endpoint(*address) for address in node.addresses))

    async def _probe(self, node: NodeProcess) -> None:
        """Kill the node when it has not answered for cluster.node.timeout.ms: while it hangs, other nodes cannot get its logs."""
        limit = self._config.cluster_node_timeout_ms / 1000
        every = min(PROBE_SECONDS, limit / 3)
        silent, silent_process = 0.0, 0
        while not self._stop.done():
            await asyncio.sleep(every)
            process = node.process
            if process is None or not node.serves:
                continue
            if process.pid != silent_process:
                silent, silent_process = 0.0, process.pid
            began = self._loop.time()
            # A probe counts no more than its own time: the supervisor itself may have been suspended.
            silent = 0.0 if await answers(*node.addresses[0], every) else silent + every + min(every, self._loop.time() - began)
            if silent >= limit and node.process is process and process.returncode is None and not self._stop.done():
                log.error("node does not answer and is killed", node=node.id, pid=process.pid, seconds=round(silent))
                node.signal(signal.SIGKILL)
                silent = 0.0


def node_settings(config: Config, node: int, listeners: Sequence[Listener]) -> list[str]:
    """The options that only this node's command line has."""
    settings = {
        "cluster.nodes": str(config.cluster_nodes),
        "node.id": str(node),
        "listeners": ",".join(f"{one.name}://{one.endpoint}" for one in listeners),
        "advertised.listeners": ",".join(f"{one.name}://{format_endpoint(one.advertised_host, one.advertised_port)}" for one in listeners),
        "log.dirs": config.data_directory,
        "exit.with.parent": "true",
    }
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


def how_ended(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def exit_code(code: int) -> int:
    """As a shell shows it: a process that a signal ended has 128 and its number."""
    return code if code >= 0 else 128 - code


async def answers(host: str, port: int, seconds: float) -> bool:
    """Whether a node answers ApiVersions."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    request = ApiVersionsRequest("tenure-supervisor", "1")
    frame = encode_request(request.API_KEY, 0, False, 1, "tenure-supervisor", request.encode(0))
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(frame)
                return bool(await reader.read(4))
            finally:
                writer.close()
    except OSError:  # a timeout is one too
        return False
