"""The broker as a process: put together, started, told to stop, and ended in order."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import uuid
from collections.abc import Callable
from functools import partial
from typing import Final

from broker.api.parts import Parts
from broker.api.table import routes
from broker.groups.journal import Journal, owned_or_fail
from broker.groups.notes import Notes
from broker.groups.shards import Shards
from broker.internal_topics import CONSUMER_OFFSETS, NOTES_LOG, REGISTRY_LOG
from broker.logging import logs
from broker.net.acceptor import Acceptor
from broker.net.connection import Host
from broker.net.connections import Connections
from broker.net.dispatch import Call, Dispatch
from broker.net.long_requests import Looks
from broker.net.sockets import open_sockets
from broker.runtime.build import build
from broker.runtime.clock import Clock, boot_clock
from broker.runtime.collector import Collector
from broker.runtime.contain import DEFECTS, uncontained
from broker.runtime.node import Address, Node
from broker.runtime.parent import ParentWatch
from broker.runtime.start import ExitCode, StartError, asked_to_stop
from broker.runtime.turn import Turn
from broker.security.authorizer import AllowAll
from broker.settings.config import Config
from broker.settings.descriptors import Descriptors, memory_bytes, raise_limit, shared_out, with_connections
from broker.settings.listeners import format_endpoint
from broker.settings.report import tell_settings
from broker.stores.compaction import Cleaning, CleaningRules
from broker.stores.compaction_order import TopicLogs
from broker.stores.last_use import LastUse
from broker.stores.local import LocalStore, id_text
from broker.stores.topic_logs import LocalTopicStore
from broker.topics.append import Allowance
from broker.topics.appender import Appender
from broker.topics.batch_checker import Checker
from broker.topics.deletions import Deletions
from broker.topics.end_offset_notes import EndOffsetNotes
from broker.topics.late_batches import LateBatches
from broker.topics.partitions import Partitions
from broker.topics.registry import Topics
from broker.topics.retention import Retention
from broker.topics.setting_sources import SettingSources
from broker.topics.settings import broker_defaults
from broker.topics.transactions import Transactions
from broker.topics.waiting_fetches import Fetches
from coordinator import GroupConfig
from storage import HeldBy, LogId, NodeInfo, OsDisk, OwnedLog, Unreadable

log = logs.get_logger("broker.server")

# An orderly stop takes at most three seconds. What is on its way to the log gets the first part, what clients have not
# yet read the second; then everything is flushed, for which there is what these have left. The rest is for the last log
# lines (half a second) and the process.
SETTLE_SECONDS = 0.8
DRAIN_SECONDS = 0.4
NOTES_SECONDS = 0.2
FLUSH_SECONDS = 0.8

ADDRESSES_OF_A_LISTENER = 2  # `localhost` and an empty host are mostly IPv4 and IPv6

TOPIC_REGISTRY = LogId(REGISTRY_LOG, 0)
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def serve(config: Config) -> int:
    """Serve until SIGTERM or SIGINT; the exit code. Raises StartError when it cannot start."""
    descriptors = shared_out(raise_limit(), len(config.listeners) * ADDRESSES_OF_A_LISTENER)
    config = with_connections(config, descriptors, memory_bytes())
    loop_factory, buffered = choose_loop(config.event_loop)
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        server = Server(config, runner.get_loop(), descriptors, buffered)
        # uvloop hears of a signal as soon as it runs, and so would the handler of before: one signal must not count as two.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            return runner.run(server.run())
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def choose_loop(wanted: str) -> tuple[Callable[[], asyncio.AbstractEventLoop], bool]:
    """The loop to run on, and whether it reads through a buffer of ours (the standard library's does)."""
    if wanted != "asyncio":
        try:
            import uvloop
        except ImportError:
            if wanted == "uvloop":
                raise StartError("event.loop=uvloop, but uvloop is not installed", ExitCode.CONFIG) from None
        else:
            return uvloop.new_event_loop, False
    return asyncio.new_event_loop, True


class Server:
    """Everything of one broker, wired."""

    def __init__(self, config: Config, loop: asyncio.AbstractEventLoop, descriptors: Descriptors, buffered: bool) -> None:
        self.config = config
        self._descriptors = descriptors
        self._loop = loop
        self._stop: asyncio.Future[dict[str, object]] = loop.create_future()  # why, as the log has it
        self._signals = 0
        self.clock = Clock(boot_ns=boot_clock(), settle_ms=config.clock_settle_ms)
        self.turn = Turn(loop, self.clock)
        self.dispatch = Dispatch(config.request_elements_max)
        self.topics = Topics(lambda: uuid.uuid4().bytes)
        self.connections = Connections(self.clock, config.connections_max_idle_ms)
        host = Host(
            self.clock,
            self.turn,
            self.dispatch,
            self.connections.ended,
            config.socket_request_max_bytes,
            config.connection_unread_replies_max_bytes,
            config.connection_waiting_requests_max_bytes,
            trace if logs.debug_enabled() else None,
            config.connections_partial_requests_max_bytes,
        )
        overrides = dict(config.max_connections_per_ip_overrides)
        self.acceptor = Acceptor(
            loop,
            host,
            self.connections,
            config.max_connections,
            lambda peer: overrides.get(peer, config.max_connections_per_ip),
            descriptors.reserve_from,
            buffered,
        )
        self.journals: list[Journal] = []

    async def run(self) -> int:
        for number in STOP_SIGNALS:
            self._loop.add_signal_handler(number, self._signalled, number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        if asked_to_stop:
            self._signalled(signal.Signals(asked_to_stop.pop()))
        self._loop.set_exception_handler(uncontained)
        gc.disable()  # nothing made while starting is garbage
        parent = ParentWatch(self._loop, self._left_alone) if self.config.exit_with_parent else None
        try:
            return await self._run()
        finally:
            if parent is not None:
                parent.close()
            self.acceptor.close()

    async def _run(self) -> int:
        addresses = self._listen()
        store = LocalStore(self.config, self._loop, log_files_max=self._descriptors.logs)
        try:
            if not store.directory.is_new:
                self.clock.start_after(store.directory.last_use())
            node = Node(self.config.node_id, store.cluster_id)
            store.start(NodeInfo(node.id, tuple((address.name, address.host, address.port) for address, _, _ in addresses), node.rack))
            self.cleaning = store.cleaning = Cleaning(
                self._loop, OsDisk(), store.directory, cleaning_rules(self.config), self.clock.deletion_ms, clerk=store.clerk
            )
            await self._open_registry(store)
            tell_settings(self.config)
            self._open_shards(store)
            topic_logs = LocalTopicStore(store)
            self.partitions = Partitions(self.topics, self.registry, topic_logs, self._loop, broker_defaults(self.config), self.notes.open)
            self._serve(node, store, topic_logs)
            self.turn.attend(self.connections)
            self.shards.load_all()
            self.partitions.open_all()
            self.cleaning.clean_topics(TopicLogs(lambda: self.partitions, store.directory))
            self.retention = Retention(self.config, self.partitions, topic_logs, self._loop, self.clock.deletion_ms)
            self.last_use = LastUse(store, self._loop, self.clock.deletion_ms)
            self.end_offsets = self._note_end_offsets()
            self.acceptor.start()
            self._announce(addresses)
            log.info("stopping", **await self._stop)
            return await self._end(store)
        finally:
            store.close()

    def _listen(self) -> list[tuple[Address, int, str]]:
        """Open every listener; what clients are told needs the real ports."""
        opened = []
        for listener in self.config.listeners:
            sockets, port = open_sockets(listener, self.config.socket_listen_backlog_size)
            address = Address(listener.name, listener.advertised_host, listener.advertised_port or port)
            self.acceptor.adopt(sockets, address)
            opened.append((address, port, listener.host))
        return opened

    async def _open_registry(self, store: LocalStore) -> None:
        opened: asyncio.Future[OwnedLog | HeldBy | Unreadable] = self._loop.create_future()
        store.acquire(TOPIC_REGISTRY, opened.set_result)
        owned = owned_or_fail("the registry of topics", await opened)
        journal = Journal(REGISTRY_LOG, self.topics, owned, self.turn, self.config.offsets_commit_timeout_ms)
        journal.start()
        self.journals.append(journal)
        self.turn.attend(journal)
        self.registry = journal
        if CONSUMER_OFFSETS not in self.topics.by_name:
            # It exists from the first start, with an id and a number of partitions that stay.
            self.topics.create(CONSUMER_OFFSETS, self.config.offsets_topic_num_partitions, {"cleanup.policy": "compact"}, self.clock.wall)
            self.turn.touch(journal)

    def _open_shards(self, store: LocalStore) -> None:
        config = self.config
        topic = self.topics.by_name[CONSUMER_OFFSETS]
        store.topic_ids[topic.name] = id_text(topic.id)
        partitions = topic.partitions
        if partitions != config.offsets_topic_num_partitions:
            log.warning(
                "offsets.topic.num.partitions is ignored: the data directory was made with another number, and groups live by it",
                configured=config.offsets_topic_num_partitions,
                used=partitions,
            )
        self.groups = group_config(config)
        self.notes = Notes(store, self._loop, self.clock)
        self.collector = Collector(self._loop, lambda: self.shards.members)
        self.shards = Shards(
            partitions,
            self.groups,
            store,
            self.turn,
            self._loop,
            config.offsets_commit_timeout_ms,
            self.notes,
            partial(self._loaded, store),
            loading=self.collector.pause,
        )

    def _loaded(self, store: LocalStore) -> None:
        self.collector.go_on()
        self.notes.check([id.partition for id in store.unchecked() if id.name == NOTES_LOG])

    def _serve(self, node: Node, store: LocalStore, topic_logs: LocalTopicStore) -> None:
        config = self.config
        deletions = Deletions(self.topics, self.registry, self.shards, self.partitions, self._loop)
        deletions.resume(self.topics.deleted.values())
        fetches = Fetches(self.turn, self.clock)
        self.turn.attend(fetches)
        allowance = Allowance(self.turn, self.clock.monotonic_ns)
        appender = Appender(self.clock, allowance)
        self.checker = Checker(self._loop)
        self.late_batches = LateBatches(self.checker, appender, self.turn, self.clock)
        parts = Parts(
            config=config,
            node=node,
            clock=self.clock,
            authorizer=AllowAll(),
            cluster_view=store.view(),
            routes=self.dispatch.routes,
            health=self._health,
            groups=self.groups,
            shards=self.shards,
            topics=self.topics,
            registry=self.registry,
            setting_sources=SettingSources(config, node.id, store.directory.path),
            partitions=self.partitions,
            deletions=deletions,
            transactions=Transactions(),
            topic_store=topic_logs,
            data_path=store.directory.path,
            allowance=allowance,
            appender=appender,
            late_batches=self.late_batches,
            fetches=fetches,
            looks=Looks(self.turn),
        )
        self.dispatch.serve(*routes(parts))

    def _note_end_offsets(self) -> EndOffsetNotes:
        config = self.config
        return EndOffsetNotes(
            config.notes_end_offsets_interval_ms,
            config.notes_retention_bytes,
            self.topics,
            self.partitions,
            self.shards.of,
            self.notes.tell_ends,
            self._loop,
            self.clock,
        )

    def _health(self) -> str:
        """What the operator should know, for `tenure health`: what does not serve yet, and what is wrong though it serves."""
        return "; ".join(filter(None, (self.shards.progress or "NONE", self.clock.trouble, DEFECTS.text)))

    def _announce(self, opened: list[tuple[Address, int, str]]) -> None:
        for address, port, host in opened:
            with contextlib.suppress(OSError):  # nobody has to read this
                print(f"listening {address.name} {format_endpoint(host, port)}", flush=True)
            log.info("listening", listener=address.name, port=port, advertised=format_endpoint(address.host, address.port), build=build())

    def _signalled(self, number: signal.Signals) -> None:
        self._signals += 1
        if self._signals > 1:
            os._exit(128 + number)  # asked twice: at once
        if not self._stop.done():
            self._stop.set_result({"signal": number.name})

    def _left_alone(self, why: dict[str, object]) -> None:
        """A test run was killed, and nobody is there to stop its broker."""
        if not self._stop.done():
            self._stop.set_result(why)

    async def _end(self, store: LocalStore) -> int:
        """No new connections; what is durable is answered; logs are flushed; the marker says that all is well."""
        until = self._loop.time() + SETTLE_SECONDS + DRAIN_SECONDS + NOTES_SECONDS + FLUSH_SECONDS
        self.acceptor.close()
        for connection in list(self.connections.live):
            connection.begin_nothing_more()
        self.late_batches.stop()
        self.shards.stop()
        self.retention.stop()
        self.last_use.stop()
        self.end_offsets.stop()
        self.partitions.stop()
        self.collector.close()
        store.flush_topics()  # most of them then have little left when everything is flushed
        cleaned = asyncio.gather(self.cleaning.stop(), self.checker.stop())
        settled = await self._settle()
        self.turn.close()
        noted: asyncio.Future[None] = self._loop.create_future()
        self.notes.close(partial(noted.set_result, None))
        await self._drain()
        await cleaned
        await asyncio.wait([noted], timeout=NOTES_SECONDS)
        closed: asyncio.Future[str] = self._loop.create_future()
        store.finish(settled and all(journal.writable for journal in self.journals), closed.set_result)
        await asyncio.wait([closed], timeout=max(until - self._loop.time(), FLUSH_SECONDS))
        problem = closed.result() if closed.done() else "the disk does not answer"
        if problem:
            raise StartError(f"stopped, but {problem}; the next start checks the logs", ExitCode.DISK)
        log.info("stopped")
        return ExitCode.OK

    async def _drain(self) -> None:
        """Close each connection once its replies are out; whoever does not read them is cut off in the end."""
        deadline = self._loop.time() + DRAIN_SECONDS
        while self.connections.live and self._loop.time() < deadline:
            await asyncio.sleep(0.01)  # what clients have sent meanwhile is read, and dropped
            for connection in list(self.connections.live):
                connection.close_when_sent()
        for connection in list(self.connections.live):
            connection.abort("")
        await asyncio.sleep(0)

    async def _settle(self) -> bool:
        waits = []
        for journal in self.journals:
            if not journal.writable:
                continue
            done: asyncio.Future[None] = self._loop.create_future()
            journal.when_settled(partial(done.set_result, None))
            waits.append(done)
        for shard in self.shards.journals:
            left: asyncio.Future[None] = self._loop.create_future()
            shard.unload(partial(left.set_result, None))
            waits.append(left)
        if not waits:
            return True
        _, late = await asyncio.wait(waits, timeout=SETTLE_SECONDS)
        for shard in self.shards.journals:
            shard.leave()
        await asyncio.sleep(0)  # the turn that writes the last replies
        return not late


def cleaning_rules(config: Config) -> CleaningRules:
    return CleaningRules(
        config.offsets_topic_segment_bytes,
        config.log_cleaner_delete_retention_ms,
        map_bytes_max=config.log_cleaner_dedupe_buffer_size,
        topics_enable=config.log_cleaner_enable,
        topics_backoff_seconds=config.log_cleaner_backoff_ms / 1000,
        notes_bytes_max=config.notes_retention_bytes,
    )


def group_config(config: Config) -> GroupConfig:
    """What the core is told of the settings."""
    return GroupConfig(
        config.group_min_session_timeout_ms,
        config.group_max_session_timeout_ms,
        config.group_initial_rebalance_delay_ms,
        config.group_max_size,
        config.offset_metadata_max_bytes,
        config.offsets_retention_minutes * 60_000,
        config.offsets_retention_check_interval_ms,
        config.message_max_bytes,
    )


def trace(direction: str, call: Call, message: object) -> None:
    """A decoded frame, payloads shortened."""
    shown = repr(message)
    logs.get_logger("broker.frames").debug(
        direction,
        api=call.route.api.name,
        version=call.version,
        correlation_id=call.correlation_id,
        peer=call.connection.peer,
        message=shown if len(shown) <= 500 else f"{shown[:500]}... ({len(shown)} characters)",
    )
