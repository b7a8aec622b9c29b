"""`tenure serve --nodes N`: starts the nodes as child processes, restarts nodes that end, and stops all nodes together.

The supervisor serves no client and opens no file of the data directory. When it ends, the nodes end too: each watches its parent
process, and a pipe on its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from broker.cluster.messages import NodeRequestKind, encode
from broker.logging.logs import log
from broker.machine import RealMachine
from broker.runtime.children import child_command, child_environment
from broker.runtime.contain import contained_task
from broker.runtime.parent import ParentWatch
from broker.runtime.start import SUPERVISOR, ExitCode, StartError
from broker.runtime.stopping import StopRequest, run_until_stopped
from broker.settings.config import Config
from broker.settings.endpoints import format_endpoint
from broker.settings.listeners import Listener
from broker.stores.node_sockets import connect
from protocol.messages.node_requests import NodeRequest
from storage.node_directory import NODES_FOLDER

# A node stops in order within three seconds.
STOP_SECONDS: Final = 6.0
PAUSE_SECONDS_MIN: Final = 0.25  # before a restart; doubles after each short run of a node
PAUSE_SECONDS_MAX: Final = 30.0
STEADY_SECONDS: Final = 2.0  # a node that has served so long restarts after the shortest pause
PROBE_SECONDS: Final = 5.0  # between two probes of a node, and for its reply
PORT_MAX: Final = 65_535
SUPERVISOR_AS_SENDER: Final = -1  # in place of the id of the node that sends a request


def supervise(config: Config, arguments: Sequence[str]) -> int:
    """Run all nodes until SIGTERM, SIGINT or SIGHUP, and return the exit code. `arguments`: options that the command lines of all nodes share.

    Raises StartError when the addresses of the nodes cannot be listened on.
    """
    listeners = [node_listeners(config, node) for node in node_ids(config)]
    check_addresses(config, listeners)
    with asyncio.Runner() as runner:
        supervisor = Supervisor(config, listeners, arguments, runner.get_loop())
        return run_until_stopped(runner, supervisor.run())


def node_ids(config: Config) -> range:
    return range(1, config.cluster_nodes + 1)


def node_listeners(config: Config, node: int) -> list[Listener]:
    """The node's listeners: node 1 has the configured ports, each further node the next ports. Port 0 stays 0: the system chooses a free port."""

    def port_of_node(port: int) -> int:
        return port and port + node - 1

    return [
        replace(listener, port=port_of_node(listener.port), advertised_port=port_of_node(listener.advertised_port))
        for listener in config.listeners
    ]


def check_addresses(config: Config, listeners: Sequence[Sequence[Listener]]) -> None:
    """Raise StartError before any node is started if two nodes would share a port, another process uses it, or it is above 65535."""
    machine = RealMachine()
    opened = []
    node_of: dict[tuple[str, int], int] = {}  # by address
    try:
        for node, listeners_of_node in enumerate(listeners, 1):
            for listener in listeners_of_node:
                if max(listener.port, listener.advertised_port) > PORT_MAX:
                    raise StartError(f"node {node} would listen on port {listener.port}, and {PORT_MAX} is the last one", ExitCode.CONFIG)
                other = node_of.setdefault((listener.host, listener.port), node) if listener.port else node
                if other != node:
                    problem = f"nodes {other} and {node} would both listen on {listener.endpoint}: leave {config.cluster_nodes} ports to each listener"
                    raise StartError(problem, ExitCode.CONFIG)
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
        self.serving_since = 0.0
        self.has_listened = False
        self.pause = PAUSE_SECONDS_MIN

    @property
    def is_serving(self) -> bool:
        return len(self.addresses) == self.listeners

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)


class Supervisor:
    """Keeps the nodes running until a stop signal, or until the first start of a node fails."""

    def __init__(
        self, config: Config, listeners: Sequence[Sequence[Listener]], arguments: Sequence[str], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._config = config
        self.listeners = listeners
        self._nodes_folder = f"{os.path.abspath(config.data_directory)}/{NODES_FOLDER}"
        self._loop = loop
        self._stop = StopRequest(loop, partial(self._signal_all, signal.SIGKILL))
        self._code = int(ExitCode.OK)
        self._problem = ""  # the line that was printed last about a node that could not start
        self.nodes = [
            NodeProcess(id, [*child_command("tenure"), "serve", *arguments, *node_settings(config, id, of_node)], len(of_node))
            for id, of_node in enumerate(listeners, 1)
        ]

    async def run(self) -> int:
        log.warning("several nodes are experimental", nodes=len(self.nodes))
        self._stop.handle_signals()
        parent = ParentWatch(self._loop, self._stop.stop) if self._config.exit_with_parent else None
        runs = [self._loop.create_task(contained_task(self._keep_running, node)) for node in self.nodes]
        probes = [self._loop.create_task(contained_task(self._probe, node)) for node in self.nodes if self._config.cluster_node_timeout_ms]
        try:
            log.info("stopping all nodes", **await self._stop.reason)
            await self._end(runs)
        finally:
            if parent is not None:
                parent.close()
            for task in (*probes, *runs):
                task.cancel()
            self._signal_all(signal.SIGKILL)
        log.info("all nodes are stopped")
        return self._code

    def _signal_all(self, number: signal.Signals) -> None:
        for node in self.nodes:
            node.signal(number)

    async def _end(self, runs: Sequence[asyncio.Task[None]]) -> None:
        """Stop all nodes at the same time; kill those that still run at the deadline."""
        self._signal_all(signal.SIGTERM)
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
        while not self._stop.requested:
            code = await self._run_process(node)
            if self._stop.requested:
                if code:
                    self._code = self._code or exit_code(code)
                return
            if not node.has_listened and code > 0:
                # The node has printed the reason. A cluster with fewer nodes than configured must not run on.
                self._code = code
                self._stop.stop({"reason": f"node {node.id} cannot start", "exit_code": code})
                return
            if node.is_serving and self._loop.time() - node.serving_since >= STEADY_SECONDS:
                node.pause = PAUSE_SECONDS_MIN
            log.warning("node has ended and is started again", node=node.id, ended=describe_end(code), pause_ms=round(node.pause * 1000))
            node.addresses = []
            await asyncio.wait([self._stop.reason], timeout=node.pause)
            node.pause = min(max(2 * node.pause, PAUSE_SECONDS_MIN), PAUSE_SECONDS_MAX)

    async def _run_process(self, node: NodeProcess) -> int:
        """Start a process for the node and wait until it ends; returns its exit code, negative for a signal."""
        node.addresses = []
        environment = child_environment() | {SUPERVISOR: str(os.getpid())}
        try:
            # Its own process session: Ctrl-C on a terminal signals only the supervisor, which stops the nodes.
            process = node.process = await asyncio.create_subprocess_exec(
                *node.command, stdin=PIPE, stdout=PIPE, env=environment, start_new_session=True
            )
        except OSError as error:
            log.error("node cannot be started", node=node.id, reason=error.strerror or str(error))
            return int(ExitCode.PLATFORM)
        log.info("node is started", node=node.id, pid=process.pid)
        if self._stop.requested:
            node.signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdin is not None
        async for line in process.stdout:
            self._read(node, line.decode("utf-8", "replace"))
        code = await process.wait()
        process.stdin.close()
        return code

    def _read(self, node: NodeProcess, line: str) -> None:
        """Print a line of the node's standard output: an address that the node listens on, or why it cannot start."""
        if line.startswith("tenure: "):
            if line != self._problem:
                self._problem = line
                with contextlib.suppress(OSError, ValueError):
                    print(line, end="", file=sys.stderr, flush=True)
            return
        with contextlib.suppress(OSError, ValueError):  # standard output may be closed
            print(line, end="", flush=True)
        if line.startswith("listening "):
            host, _, port = line.split()[-1].rpartition(":")
            node.addresses.append((host.strip("[]"), int(port)))
            node.has_listened = True
            if node.is_serving:
                node.serving_since = self._loop.time()
                self._problem = ""
                log.info("node serves", node=node.id, addresses=", ".join(format_endpoint(*address) for address in node.addresses))

    async def _probe(self, node: NodeProcess) -> None:
        """Kill the node when it has not answered for cluster.node.timeout.ms: while it hangs, other nodes cannot acquire its logs."""
        timeout = self._config.cluster_node_timeout_ms / 1000
        interval = min(PROBE_SECONDS, timeout / 3)
        silent_seconds, probed_pid = 0.0, 0
        while not self._stop.requested:
            await asyncio.sleep(interval)
            process = node.process
            if process is None or not node.is_serving:
                continue
            if process.pid != probed_pid:
                silent_seconds, probed_pid = 0.0, process.pid
            begin = self._loop.time()
            if await answers(self._nodes_folder, node.id, interval):
                silent_seconds = 0.0
            else:  # a probe counts at most `interval`: the supervisor itself may have been suspended
                silent_seconds += interval + min(interval, self._loop.time() - begin)
            if silent_seconds >= timeout and node.process is process and process.returncode is None and not self._stop.requested:
                log.error("node does not answer and is killed", node=node.id, pid=process.pid, seconds=round(silent_seconds))
                node.signal(signal.SIGKILL)
                silent_seconds = 0.0


def node_settings(config: Config, node: int, listeners: Sequence[Listener]) -> list[str]:
    """The options that only this node's command line has."""
    settings = {
        "cluster.nodes": str(config.cluster_nodes),
        "node.id": str(node),
        "listeners": ",".join(f"{listener.name}://{listener.endpoint}" for listener in listeners),
        "advertised.listeners": ",".join(
            f"{listener.name}://{format_endpoint(listener.advertised_host, listener.advertised_port)}" for listener in listeners
        ),
        "log.dirs": config.data_directory,
        "exit.with.parent": "true",
    }
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


def describe_end(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def exit_code(code: int) -> int:
    """The exit code as a shell reports it: 128 and the number of the signal that ended the process."""
    return code if code >= 0 else 128 - code


async def answers(folder: str, node: int, seconds: float) -> bool:
    """Whether a node answers at its socket in the data directory, which no client can occupy."""
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_unix_connection(sock=connect(folder, node))
            try:
                writer.write(encode(NodeRequest(NodeRequestKind.PROBE, SUPERVISOR_AS_SENDER), 1))
                return bool(await reader.read(4))
            finally:
                writer.close()
    except OSError:  # TimeoutError is a subclass
        return False
