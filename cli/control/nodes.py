"""`tenure serve --nodes N --test-control HOST:PORT`: nodes that a test kills, freezes, drains and starts again, and what can be asked of them.

The nodes are real processes over a directory, so nothing stands between them and their clients: verbs that need that are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

from broker.control import table
from broker.control.fields import TEXT, WHOLE, Field, Refused
from broker.control.host import HistoryReader, make_topics
from broker.control.ports import Ports
from broker.control.service import DEFAULT, Service
from broker.control.verb import Call, Verb
from broker.control.verbs import faults
from broker.control.verbs.broker import AWAY_MS_MAX
from broker.logging.logs import log
from broker.runtime.contain import Contained
from broker.runtime.start import ExitCode, StartError
from broker.runtime.stopping import run_until_stopped
from broker.settings.config import Config
from broker.settings.endpoints import format_endpoint
from broker.settings.listeners import Listener
from broker.supervisor import NodeProcess, Supervisor, check_addresses, node_ids, node_listeners
from cli.arguments import addresses
from cli.client import Cluster as Client
from cli.client import Failure
from cli.control.node_cluster import FAULTS, NodeCluster
from cli.nodes import await_moved, checked_node, send

CALL_SECONDS: Final = 15.0
START_SECONDS: Final = 20.0
POLL_SECONDS: Final = 0.005
PARTITIONS: Final = "offsets.topic.num.partitions"
PARTITIONS_OF_NODE: Final = 2  # few: each takes time to make
CALLS_MAX: Final = 64  # calls that wait at the same time
PATH: Final = "/v1/clusters/{cluster}"
NODE: Final = Field("node", WHOLE, "the node's id", required=True, least=1)
PLACED: Final = "nodes place partitions and coordinators themselves"
DRAIN: Final = "drain the node that has it: another one takes it over"
ONE_NODE: Final = "use a cluster of one node"
CLOCK: Final = "its nodes have the clock of the machine"
# Calls that nodes refuse: why, and the remedy.
REFUSED: Final = {
    "POST /v1/clusters": ("the cluster is that of these nodes", "start another broker"),
    f"DELETE {PATH}": ("the cluster ends with the process", "end the process"),
    f"POST {PATH}/reset": ("the nodes keep their data in a directory", "start another broker, or purge what has a prefix"),
    f"POST {PATH}/advertise": ("each node has an address of its own", "start them with --advertise"),
    f"POST {PATH}/groups/expire": (CLOCK, "kill the member, or give it a short session"),
    f"POST {PATH}/coordinator/forget": (PLACED, DRAIN),
    f"POST {PATH}/coordinator/move": (PLACED, DRAIN),
    f"POST {PATH}/coordinator/leader": (PLACED, DRAIN),
    f"POST {PATH}/broker/refuse": (FAULTS, "let a node be away for a while"),
    f"GET {PATH}/versions": (FAULTS, ONE_NODE),
    f"POST {PATH}/versions": (FAULTS, ONE_NODE),
    f"GET {PATH}/connections": (FAULTS, ONE_NODE),
    f"POST {PATH}/connections/close": (FAULTS, "kill the node"),
    f"POST {PATH}/time/advance": (CLOCK, ONE_NODE),
    f"GET {PATH}/requests": (FAULTS, ONE_NODE),
    f"GET {PATH}/log": ("the nodes write to the standard error of the process", "read it there"),
    **{f"{verb.method} {verb.path}": (FAULTS, ONE_NODE) for verb in faults.VERBS},
}


class ControlledNodes(Supervisor):
    """The supervisor, and the control of its nodes."""

    def __init__(
        self, config: Config, listeners: Sequence[Sequence[Listener]], arguments: Sequence[str], loop: asyncio.AbstractEventLoop, read_history: HistoryReader
    ) -> None:
        super().__init__(config, listeners, arguments, loop)
        self.read_history = read_history
        self.clusters: Mapping[str, Any] = {DEFAULT: self}
        self._threads = ThreadPoolExecutor(CALLS_MAX, "tenure-call")

    async def run_controlled(self, host: str, port: int, token: str, *, anywhere: bool, version: str) -> int:
        service = Service(self, verbs(), token, anywhere=anywhere, version=version)  # type: ignore[arg-type]
        try:
            listened = await service.listen(host, port)
        except OSError as error:
            raise StartError(f"--test-control {format_endpoint(host, port)}: {error.strerror}", ExitCode.LISTEN) from error
        announced = self._loop.create_task(self._announce(f"http://{format_endpoint(host, listened)}", token))
        try:
            return await self.run()
        finally:
            announced.cancel()
            await service.close()
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _announce(self, url: str, token: str) -> None:
        await self._all_serve()
        with contextlib.suppress(OSError):
            print(f"control {url} {token}", flush=True)
        log.warning("this broker does what a test tells it", control=url)

    async def _all_serve(self) -> None:
        while not all(node.is_serving for node in self.nodes):
            await asyncio.sleep(POLL_SECONDS)
        await self.in_thread(lambda cluster: cluster.wait_for_nodes(len(self.nodes)))

    @property
    def bootstrap(self) -> str:
        """The first address of each node; of a node that is away the one that it had."""
        return ",".join(format_endpoint(listeners[0].host or "127.0.0.1", listeners[0].port) for listeners in self.listeners)

    def node(self, id: int) -> NodeProcess:
        if id not in node_ids(self._config):
            raise Refused(404, f"there is no node {id}", f"nodes: 1 to {len(self.nodes)}")
        return self.nodes[id - 1]

    async def in_thread(self, work: Any) -> Any:
        """Call it with a client of the nodes, in a thread: the supervisor's loop waits for no node."""

        def connected() -> Any:
            try:
                with Client(addresses(self.bootstrap), CALL_SECONDS) as client:
                    return work(OneCall(client, self.bootstrap))
            except Failure as failure:
                raise Refused(409, failure.line, failure.hint or "") from failure

        return await self._loop.run_in_executor(self._threads, connected)

    async def restart(self, id: int, how: signal.Signals, away_ms: int) -> None:
        """End the node's process, and wait until the next one serves."""
        node = self.node(id)
        before = node.process
        node.pause = away_ms / 1000
        node.signal(signal.SIGCONT)
        node.signal(how)
        deadline = self._loop.time() + away_ms / 1000 + START_SECONDS
        while node.process is before or not node.is_serving:
            if self._loop.time() > deadline:
                raise Refused(409, f"node {id} does not serve after {START_SECONDS:g} s")
            await asyncio.sleep(POLL_SECONDS)

    def freeze(self, id: int, ms: int) -> None:
        node = self.node(id)
        process = node.process
        node.signal(signal.SIGSTOP)
        self._loop.call_later(ms / 1000, Contained(lambda: node.signal(signal.SIGCONT) if node.process is process else None))

    def shown(self) -> dict[str, Any]:
        return {
            "id": DEFAULT,
            "bootstrap": self.bootstrap,
            "running": True,
            "in_memory": False,
            "nodes": [
                {"node": node.id, "pid": node.process.pid if node.process is not None else None, "address": self.bootstrap.split(",")[node.id - 1], "serving": node.is_serving}
                for node in self.nodes
            ],
        }

    # What verbs use of the host.

    async def make_topics(self, cluster: Any, topics: Mapping[str, Any]) -> None:
        await make_topics(cluster, topics)


class OneCall(NodeCluster):
    """The nodes as one call sees them."""

    def wait_for_nodes(self, count: int) -> None:
        """Wait until all know each other and a group has a coordinator, so that the first client waits for nothing."""
        wait = self._client.wait()
        while len(self._client.brokers) < count:
            if not wait.again():
                raise Refused(409, f"{len(self._client.brokers)} of {count} nodes know each other")
            self._client.close()
            self._client = self._client.separate_client()
        self._client.coordinators(["tenure"])

    def drain(self, node: int, drained: bool) -> dict[str, Any]:
        checked_node(self._client, node, drained)
        send(self._client, node, drained)
        return {"node": node, **await_moved(self._client, node, drained).document()}


def verbs() -> tuple[Verb, ...]:
    """The verbs of `table.VERBS` that nodes have, those that they refuse, and their own."""
    own = {(verb.method, verb.path) for verb in NODE_VERBS}
    return (*NODE_VERBS, *(refused(verb) or threaded(verb) for verb in table.VERBS if (verb.method, verb.path) not in own))


def refused(verb: Verb) -> Verb | None:
    """The same verb as a refusal; None: nodes have it."""
    found = REFUSED.get(f"{verb.method} {verb.path}")
    if found is None:
        return None
    why, remedy = found

    async def refuse(call: Call) -> Any:
        raise Refused(409, f"several nodes do not have this: {why}", remedy)

    return verb._replace(run=refuse)


def threaded(verb: Verb) -> Verb:
    """The same verb, against the nodes as one of their clients."""

    async def run(call: Call) -> Any:
        nodes: ControlledNodes = call.host  # type: ignore[assignment]
        return await nodes.in_thread(lambda cluster: asyncio.run(verb.run(call._replace(cluster=cluster))))  # type: ignore[arg-type]

    return verb._replace(run=run)


def nodes_of(call: Call) -> ControlledNodes:
    return call.host  # type: ignore[return-value]


async def list_all(call: Call) -> Any:
    return {"clusters": [nodes_of(call).shown()]}


async def show(call: Call) -> Any:
    return nodes_of(call).shown()


async def restart(call: Call) -> Any:
    how = signal.SIGKILL if call.fields["how"] == "kill" else signal.SIGTERM
    await nodes_of(call).restart(call.fields["node"], how, call.fields["away_ms"])
    return nodes_of(call).shown()


async def pause(call: Call) -> Any:
    nodes_of(call).freeze(call.fields["node"], call.fields["ms"])
    return {"node": call.fields["node"], "paused_ms": call.fields["ms"]}


async def drain(call: Call) -> Any:
    nodes_of(call).node(call.fields["node"])
    return await nodes_of(call).in_thread(lambda cluster: cluster.drain(call.fields["node"], not call.fields["undo"]))


async def leaders(call: Call) -> Any:
    return {"leaders": await nodes_of(call).in_thread(lambda cluster: cluster.leaders(call.fields["topic"]))}


NODE_VERBS: Final = (
    Verb("GET", "/v1/clusters", "list the clusters", list_all),
    Verb("GET", PATH, "show the nodes", show),
    Verb(
        "POST", PATH + "/broker/restart", "end a node, and wait until it serves again at the same address", restart,
        (
            NODE,
            Field("how", TEXT, "stop: in order; kill: at once, as kill -9", "stop", choices=("stop", "kill")),
            Field("away_ms", WHOLE, "how long it is away", 0, least=0, most=AWAY_MS_MAX),
        ),
        {"node": 2, "how": "kill", "away_ms": 2000},
    ),
    Verb("POST", PATH + "/broker/pause", "freeze the process of a node", pause, (NODE, Field("ms", WHOLE, "for how many milliseconds", required=True, least=0, most=AWAY_MS_MAX)), {"node": 2, "ms": 3000}),
    Verb("POST", PATH + "/broker/drain", "have a node hand over its logs, or get its share again", drain, (NODE, Field("undo", "boolean", "give it its share again", False)), {"node": 2}),
    Verb("GET", PATH + "/topics/leaders", "the node that leads each partition of a topic", leaders, (Field("topic", TEXT, "the topic's name", required=True),)),
)  # fmt: skip


def serve_nodes(config: Config, arguments: Sequence[str], host: str, port: int, token: str, read_history: HistoryReader, *, anywhere: bool, version: str) -> int:
    """Run the nodes and their control until a signal. Raises StartError."""
    if PARTITIONS not in config.given:
        arguments = ["--set", f"{PARTITIONS}={PARTITIONS_OF_NODE * config.cluster_nodes}", *arguments]
    ports = Ports()  # held, so that a node that starts again has the same
    try:
        listeners = [[with_port(ports, listener, node) for listener in of_node] for node, of_node in zip(node_ids(config), (node_listeners(config, id) for id in node_ids(config)), strict=True)]
        check_addresses(config, listeners)
        with asyncio.Runner() as runner:
            nodes = ControlledNodes(config, listeners, arguments, runner.get_loop(), read_history)
            return run_until_stopped(runner, nodes.run_controlled(host, port, token, anywhere=anywhere, version=version))
    finally:
        ports.close()


def with_port(ports: Ports, listener: Listener, node: int) -> Listener:
    """The listener with a port in place of 0."""
    if listener.port:
        return listener
    port = ports.hold(replace(listener, name=f"{listener.name}-{node}"))
    return replace(listener, port=port, advertised_port=listener.advertised_port or port)
