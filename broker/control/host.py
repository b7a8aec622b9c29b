"""The process that serves controlled clusters: the default one, those that tests make, and the HTTP port that reaches them."""

from __future__ import annotations

import asyncio
import gc
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any, Final

from broker.control import table
from broker.control.asking import check
from broker.control.cluster import Cluster
from broker.control.fields import Refused
from broker.control.life import DATA
from broker.control.loop import CURRENT
from broker.control.service import DEFAULT, Service
from broker.logging import logs
from broker.logging.logs import log
from broker.runtime.contain import Contained, handle_loop_exception
from broker.runtime.parent import ParentWatch
from broker.runtime.start import ExitCode, StartError
from broker.runtime.stopping import StopRequest, run_until_stopped
from broker.server import choose_loop
from broker.settings.config import Config
from broker.settings.descriptors import divide_descriptors, memory_bytes, open_files_limit, raise_limit, with_connections
from broker.settings.endpoints import format_endpoint, is_loopback
from broker.settings.load import ConfigError, load_config
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from storage import OsDisk

# Settings of clusters in memory: partitions of groups take time to make, and tests want no pause.
SETTINGS: Final = {"offsets.topic.num.partitions": 3, "connections.max.idle.ms": -1}
TOPIC_MS: Final = 10_000
CLUSTERS_MAX: Final = 2_000

# Reads the history of a group: bootstrap, group, since when in milliseconds; returns what the control answers.
HistoryReader = Callable[[str, str, "int | None"], dict[str, Any]]


class Host:
    def __init__(self, config: Config, token: str, read_history: HistoryReader, *, in_memory: bool, anywhere: bool, version: str, token_is_drawn: bool = False) -> None:
        """`config`: of the default cluster. `anywhere`: the control may listen on addresses that are not loopback. `token_is_drawn`: only standard output tells it."""
        self.config = config
        self.token = token
        self.read_history = read_history
        self.clusters: dict[str, Cluster] = {}
        self._in_memory = in_memory
        self._anywhere = anywhere
        self._token_is_drawn = token_is_drawn
        self._numbers = count(1)
        self._configs: dict[tuple[tuple[str, str], ...], Config] = {}
        self._service = Service(self, table.VERBS, token, anywhere=anywhere, version=version)
        self._port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def serve(self, host: str, port: int) -> int:
        """Serve until a signal, and return the exit code. Raises StartError."""
        if not (is_loopback(host) or self._anywhere):
            raise StartError(
                f"--test-control {format_endpoint(host, port)}: whoever reaches it controls the broker; on an address that is not loopback it needs --test-control-anywhere",
                ExitCode.CONFIG,
            )
        raise_limit()
        loop_factory, _ = choose_loop(self.config.event_loop)
        log.connect(sorted_by_cluster(log.sink), log.level_name)
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return run_until_stopped(runner, self._run_process(runner.get_loop(), host, port))

    async def _run_process(self, loop: asyncio.AbstractEventLoop, host: str, port: int) -> int:
        """Run as the whole process: with its signals, its parent, its garbage collector and its standard output."""
        stop = StopRequest(loop)
        stop.handle_signals()
        parent = ParentWatch(loop, stop.stop) if self.config.exit_with_parent else None

        def serving(url: str) -> None:
            gc.freeze()  # what a start makes stays; the collector was off until now (`cli/serve.py`)
            gc.enable()
            if not self._announce(url) and self._token_is_drawn and self.config.exit_with_parent:
                # The parent ended before this process could see who it was (broker/runtime/parent.py), and nobody else can know the token.
                stop.stop({"reason": "the process that started this one has closed standard output"})

        try:
            await self.run(loop, host, port, serving, stop.reason)
        finally:
            if parent is not None:
                parent.close()
        return ExitCode.OK

    async def run(
        self, loop: asyncio.AbstractEventLoop, host: str, port: int, serving: Callable[[str], None], stopped: Awaitable[Mapping[str, object]]
    ) -> None:
        """Run in a loop, which may be a thread's, until `stopped`. `serving` is called with the address of the control. Raises StartError."""
        loop.set_exception_handler(handle_loop_exception)
        self._descriptors = divide_descriptors(open_files_limit(), len(self.config.listeners) * 2 + 2)
        self.config = with_connections(self.config, self._descriptors, memory_bytes())
        try:
            config = in_memory(self.config) if self._in_memory else self.config
            await self._new_cluster(DEFAULT, config).start()
            try:
                self._port = await self._service.listen(host, port)
            except OSError as error:
                raise StartError(f"--test-control {format_endpoint(host, port)}: {error.strerror}", ExitCode.LISTEN) from error
            serving(f"http://{format_endpoint(host, self._port)}")
            log.info("stopping", **await stopped)
        finally:
            await self._service.close()
            for cluster in list(self.clusters.values()):
                if not cluster.in_memory:
                    await cluster.stop()
                await cluster.close()

    @property
    def default(self) -> Cluster:
        return self.clusters[DEFAULT]

    def _announce(self, url: str) -> bool:
        """Print the addresses and the token; returns whether standard output was open."""
        heard = True
        try:
            for address in self.default.addresses:
                print(f"listening {address.name} {format_endpoint(address.listen_host, address.listen_port)}", flush=True)
            print(f"control {url} {self.token}", flush=True)
        except OSError:
            heard = False
        log.warning("this broker does what a test tells it", control=url)
        logs.started()
        return heard

    # Clusters.

    def _new_cluster(self, id: str, config: Config) -> Cluster:
        disk = None if self._in_memory or id != DEFAULT else OsDisk()
        cluster = self.clusters[id] = Cluster(id, config, self._descriptors, False, disk)
        return cluster

    async def make(self, settings: Mapping[str, Any]) -> Cluster:
        if len(self.clusters) >= CLUSTERS_MAX:
            raise Refused(409, f"there are {CLUSTERS_MAX} clusters", "delete those that are not used any more")
        config = self._config_of(settings)
        cluster = self._new_cluster(f"c{next(self._numbers)}", config)
        try:
            await cluster.start()
        except StartError as error:
            del self.clusters[cluster.id]
            raise Refused(409, str(error)) from error
        return cluster

    def _config_of(self, settings: Mapping[str, Any]) -> Config:
        texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()}
        key = tuple(sorted(texts.items()))
        config = self._configs.get(key)
        if config is None:
            for name in ("log.dirs", "store", "cluster.nodes", "node.id", "listeners"):
                if name in texts:
                    raise Refused(400, f"settings: {name} is the control's to choose")
            given = [f"{name}={value}" for name, value in (SETTINGS | texts).items()]
            try:
                config = load_config(listen=["127.0.0.1:0"], data=[DATA], profile="test", settings=given)
            except ConfigError as error:
                raise Refused(400, f"settings: {error.problems[0]}", "; ".join(error.problems[1:])) from error
            config = self._configs[key] = with_connections(config, self._descriptors, memory_bytes())
        return config

    async def make_topics(self, cluster: Cluster, topics: Mapping[str, Any]) -> None:
        await make_topics(cluster, topics)

    async def remove(self, id: str) -> None:
        cluster = self.clusters.pop(id)
        await cluster.close()

    async def sleep(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000)

    def later(self, ms: int, callback: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(ms / 1000, Contained(callback))


def in_memory(config: Config) -> Config:
    """The default cluster in memory, like every other cluster, where nothing else is given."""
    more = {name: value for name, value in SETTINGS.items() if name not in config.given}
    given = {**config.given, **{name: str(value) for name, value in more.items()}}
    fields: dict[str, Any] = {name.replace(".", "_"): value for name, value in more.items()}
    return replace(config, data_directory=DATA, given=given, **fields)


async def make_topics(cluster: Any, topics: Mapping[str, Any]) -> None:
    """Make topics, each given by its number of partitions, or with settings."""
    wanted = [creatable(name, value) for name, value in topics.items()]
    if not wanted:
        return
    reply = await cluster.request(CreateTopicsRequest(wanted, TOPIC_MS))
    for topic in reply.topics:
        check(topic.error_code, f"topic {topic.name}", topic.error_message)


def creatable(name: str, value: Any) -> CreatableTopic:
    given = value if isinstance(value, dict) else {"partitions": value}
    unknown = set(given) - {"partitions", "config"}
    partitions, config = given.get("partitions", 1), given.get("config") or {}
    if unknown or not isinstance(partitions, int) or isinstance(partitions, bool) or not isinstance(config, dict):
        raise Refused(400, f"topics: {name}: {value!r}", 'a number of partitions, or {"partitions": 6, "config": {"cleanup.policy": "compact"}}')
    configs = [CreatableTopicConfig(key, str(setting).lower() if isinstance(setting, bool) else str(setting)) for key, setting in config.items()]
    return CreatableTopic(name, partitions, 1, [], configs)


def new_token() -> str:
    return secrets.token_urlsafe(18)


def sorted_by_cluster(write: logs.Write) -> logs.Write:
    """Keep the last warnings and errors of each cluster, and name it in its lines."""

    def sorted_write(level: str, event: str, details: Mapping[str, Any]) -> None:
        cluster = CURRENT.get()
        if cluster is not None:
            cluster.keep(level, event, details)
            if cluster.id != DEFAULT:
                if level == "info" and not logs.debug_enabled():
                    return  # a test that wants to know asks for the history
                details = {**details, "test_cluster": cluster.id}
        write(level, event, details)

    return sorted_write
