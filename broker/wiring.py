"""Build the parts of one broker, in the order of their dependencies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from broker.api.node_drain import NodeDrain
from broker.api.parts import BrokerParts
from broker.api.table import routes
from broker.backends.port import Host, NewStores
from broker.backends.table import load
from broker.groups.group_journal import GroupJournal
from broker.groups.journal import Journal, owned_or_fail
from broker.groups.notes import NotesLogs
from broker.groups.shards import FreshIds, Shards
from broker.internal_topics import CONSUMER_OFFSETS, NOTES_LOG, REGISTRY_LOG, REGISTRY_LOG_ID
from broker.logging import logs
from broker.logging.logs import log
from broker.machine import Machine
from broker.net.acceptor import Acceptor
from broker.net.connection import Connection, ConnectionContext
from broker.net.connections import Connections
from broker.net.dispatch import Call, Dispatch, Route
from broker.net.long_requests import LongRequests
from broker.runtime.clock import Clock
from broker.runtime.collector import Collector
from broker.runtime.contain import DEFECTS
from broker.runtime.node import Address, Node
from broker.runtime.start import ExitCode
from broker.runtime.turn import Turn
from broker.security.authorizer import Authorizer
from broker.settings.config import ASSIGNOR_CLASSES, Config
from broker.settings.descriptors import Descriptors
from broker.settings.report import log_settings
from broker.stores.port import BrokerStore
from broker.stores.tokens import fresh_id, id_text
from broker.topics.append import CheckTimeBudget
from broker.topics.appender import Appender
from broker.topics.batch_queues import BatchQueues
from broker.topics.deletions import Deletions
from broker.topics.end_offset_notes import EndOffsetNotes
from broker.topics.leaders import Leaders
from broker.topics.partitions import Partitions
from broker.topics.producer_ids import ProducerIds, RegistryProducerIds
from broker.topics.registry import TopicRegistry
from broker.topics.retention import Retention
from broker.topics.setting_sources import SettingSources
from broker.topics.settings import broker_defaults
from broker.topics.transactions import TransactionRefusals
from broker.topics.waiting_fetches import ParkedFetches
from coordinator import GroupConfig
from coordinator.consumer.config import ConsumerConfig, MigrationPolicy
from coordinator.policies.door import resolve
from storage import HeldBy, NodeInfo, OwnedLog, TopicStore, Unreadable


class Broker:
    """All parts of one broker. Built without a disk, then opened over a store."""

    def __init__(
        self, config: Config, loop: asyncio.AbstractEventLoop, descriptors: Descriptors, buffered_protocol: bool, machine: Machine
    ) -> None:
        self.config = config
        self._machine = machine
        self._loop = loop
        self.clock = Clock(machine.wall_ns, machine.monotonic_ns, machine.boot_ns, config.clock_settle_ms)
        self.turn = Turn(loop, self.clock)
        self._thread_for_long_requests = machine.workers(loop, 1)
        self.dispatch = Dispatch(config.request_elements_max, self._thread_for_long_requests)
        self.topics = TopicRegistry(partial(fresh_id, machine.random_bytes))
        self.connections = Connections(self.clock, config.connections_max_idle_ms)
        context = self._new_connection_context(self.dispatch, self.connections, 0)
        overrides = dict(config.max_connections_per_ip_overrides)
        self.acceptor = Acceptor(
            loop,
            context,
            self.connections,
            config.max_connections,
            lambda peer: overrides.get(peer, config.max_connections_per_ip),
            descriptors.reserve_from,
            buffered_protocol,
        )
        self.journals: list[Journal] = []
        self.connection_context = context
        # Set by a node of a cluster (cluster_wiring.py).
        self._leaders: Leaders | None = None
        self._load_ended: Callable[[GroupJournal, HeldBy | str], None] | None = None
        self.ended: Callable[[str, ExitCode], None] = lambda reason, code: None  # stops the server; set before `open`
        # Done when a stop is requested; replaced by the server before `open`.
        self.stop_requested: asyncio.Future[dict[str, object]] = loop.create_future()
        self._acquire_concurrency = 1

    def new_store(self, log_files_max: int) -> BrokerStore:
        """Open the store; raises StartError when it cannot be used."""
        new_stores: NewStores = load(self.config.store.backend.single)
        self.stores = new_stores(self._store_host(log_files_max))
        return self.stores.store

    def _store_host(self, log_files_max: int) -> Host:
        return Host(self.config, self._loop, self._machine, self.clock, lambda: self.partitions, log_files_max)

    async def open(self, store: BrokerStore, addresses: list[Address]) -> None:
        """Open the registry and start every part except the acceptor; groups and topic logs load in the background."""
        self._start_clock()
        node = Node(self.config.node_id, store.cluster_id)
        store.start(NodeInfo(node.id, tuple((address.name, address.host, address.port) for address in addresses), node.rack))
        self.stores.start_cleaning()
        await self._open_registry(store)
        log_settings(self.config)
        self._open_shards(store)
        topic_logs = self.stores.topic_store()
        self.partitions = self._new_partitions(topic_logs)
        self._serve(node, store, topic_logs)
        self.turn.add_deadline_handler(self.connections)
        self._open_logs()
        self.retention = Retention(self.config, self.partitions, topic_logs, self._loop, self.clock.wall_for_deletion, self._machine.monotonic)
        self.stores.start_upkeep()
        self.end_offsets = self._new_end_offset_notes()

    def _start_clock(self) -> None:
        """Suspend deletion by time if the clock is far from the time of the store's last use, or that time is unknown."""
        last_use = self.stores.last_use()
        if last_use is not None:
            self.clock.start_after(last_use)

    # A node of a cluster overrides these steps.

    def _new_partitions(self, topic_logs: TopicStore) -> Partitions:
        return Partitions(
            self.topics, self.registry_journal, topic_logs, self._loop, broker_defaults(self.config), self.notes.open, self._machine.monotonic
        )

    def _new_deletions(self) -> Deletions:
        return Deletions(self.topics, self.registry_journal, self.shards, self.partitions, self._loop, self._machine.monotonic)

    def _new_producer_ids(self) -> ProducerIds:
        return RegistryProducerIds(self.topics, self.registry_journal)

    def _open_logs(self) -> None:
        """Open the logs of groups and topics in the background."""
        self.deletions.resume(self.topics.deleted.values())
        self.shards.load_all()
        self.partitions.open_all()

    async def _open_registry(self, store: BrokerStore) -> None:
        opened: asyncio.Future[OwnedLog | HeldBy | Unreadable] = self._loop.create_future()
        store.acquire(REGISTRY_LOG_ID, opened.set_result)
        owned = owned_or_fail("the registry of topics", await opened)
        journal = Journal(REGISTRY_LOG, self.topics, owned, self.turn, self.config.offsets_commit_timeout_ms, replace=self.topics.replace)
        journal.start()
        self.journals.append(journal)
        self.turn.add_deadline_handler(journal)
        self.registry_journal = journal
        if CONSUMER_OFFSETS not in self.topics.by_name:
            # Created at the first start; its id and number of partitions never change.
            self.topics.create(CONSUMER_OFFSETS, self.config.offsets_topic_num_partitions, {"cleanup.policy": "compact"}, self.clock.wall)
            self.turn.call_first_at_turn_end(journal)

    def _open_shards(self, store: BrokerStore) -> None:
        config = self.config
        topic = self.topics.by_name[CONSUMER_OFFSETS]
        store.topic_ids[topic.name] = id_text(topic.id)
        partitions = topic.partition_count
        if partitions != config.offsets_topic_num_partitions:
            log.warning(
                "offsets.topic.num.partitions is ignored: the data directory was created with another number, which places its groups",
                configured=config.offsets_topic_num_partitions,
                used=partitions,
            )
        self.groups = group_config(config)
        self.notes = NotesLogs(store, self._loop, self.clock)
        self.collector = Collector(self._loop, lambda: self.shards.member_count, self._machine.garbage)
        self.dispatch.before_long_request = self.collector.postpone
        self.shards = Shards(
            partitions,
            self.groups,
            store,
            self.turn,
            self._loop,
            config.offsets_commit_timeout_ms,
            self.notes,
            partial(self._loaded, store),
            FreshIds(self._machine.random_bytes),
            self._machine.monotonic,
            self.collector.pause,
            self._load_ended,
            self._acquire_concurrency,
            self.topics.seen_by_groups,
        )
        self.shards.see_topics(self.topics.by_name)
        self.topics.partitions_changed = self.shards.topic_changed

    def _loaded(self, store: BrokerStore) -> None:
        self.collector.resume()
        self.notes.open_unchecked([id.partition for id in store.unchecked_logs() if id.name == NOTES_LOG])

    def _serve(self, node: Node, store: BrokerStore, topic_logs: TopicStore) -> None:
        config = self.config
        deletions = self.deletions = self._new_deletions()
        fetches = ParkedFetches(self.turn, self.clock)
        self.turn.add_deadline_handler(fetches)
        check_budget = CheckTimeBudget(self.turn, self.clock.monotonic_ns)
        appender = Appender(self.clock, check_budget)
        self.checker = self._machine.batch_checker(self._loop)
        self.batch_queues = BatchQueues(self.checker, appender, self.turn, self.clock)
        parts = BrokerParts(
            config=config,
            node=node,
            clock=self.clock,
            authorizer=Authorizer(),
            cluster_view=store.view(),
            leaders=self._leaders,
            status=self._status,
            drain=self._drain(),
            routes=self.dispatch.routes,
            health=self._health,
            groups=self.groups,
            shards=self.shards,
            topics=self.topics,
            registry_journal=self.registry_journal,
            producer_ids=self._new_producer_ids(),
            setting_sources=SettingSources(config, node.id, store.data_path),
            partitions=self.partitions,
            deletions=deletions,
            transaction_refusals=TransactionRefusals(),
            topic_store=topic_logs,
            data_path=store.data_path,
            check_budget=check_budget,
            appender=appender,
            batch_queues=self.batch_queues,
            fetches=fetches,
            long_requests=LongRequests(self.turn, self._thread_for_long_requests),
        )
        self.dispatch.add_routes(*self._routes(parts))

    def _routes(self, parts: BrokerParts) -> list[Route]:
        return routes(parts)

    def _status(self) -> Mapping[str, str]:
        """Additional entries of this node in DescribeConfigs."""
        return self.stores.status()

    def _drain(self) -> NodeDrain | None:
        return None

    def _new_end_offset_notes(self) -> EndOffsetNotes:
        config = self.config
        return EndOffsetNotes(
            config.notes_end_offsets_interval_ms,
            config.notes_retention_bytes,
            self.topics,
            self.partitions,
            self.shards.journal_of,
            self.notes.write_end_offsets,
            self._loop,
            self.clock,
            self._machine.monotonic,
        )

    def _health(self) -> str:
        """The status that `tenure health` shows.

        First the partitions that load or do not serve, or "NONE" if there are none; then a problem of the clock, defects, and what the store says.
        """
        return self.stores.health("; ".join(filter(None, (self.shards.progress or "NONE", self.clock.problem, DEFECTS.text))))

    def _new_connection_context(self, dispatch: Dispatch, connections: Connections, more_bytes: int) -> ConnectionContext:
        """`more_bytes`: how much longer than the settings allow requests and replies may be."""
        config = self.config
        return ConnectionContext(
            self.clock,
            self.turn,
            dispatch,
            connections.ended,
            config.socket_request_max_bytes + more_bytes,
            config.connection_unread_replies_max_bytes,
            config.connection_waiting_requests_max_bytes,
            log_frame if logs.debug_enabled() else None,
            config.connections_partial_requests_max_bytes,
            self._machine.sockets,
            config.socket_response_max_bytes + more_bytes,
            config.connections_unread_replies_max_bytes,
        )

    def live_connections(self) -> list[Connection]:
        """The connections of clients and other nodes."""
        return list(self.connections.live)

    def close_channel(self) -> None:
        """Called last, before the store is closed."""

    def stop(self) -> None:
        """Stop accepting connections and requests and all background work; appends in progress continue."""
        self.acceptor.close()
        for connection in self.live_connections():
            connection.stop_requests()
        self.batch_queues.stop()
        self.shards.stop()
        self.retention.stop()
        self.stores.stop_upkeep()
        self.end_offsets.stop()
        self.partitions.stop()
        self.collector.close()
        self._thread_for_long_requests.close()


def group_config(config: Config) -> GroupConfig:
    """Each field is the setting of its name, but for these."""
    others: dict[str, Any] = {
        "offsets_retention_ms": config.offsets_retention_minutes * 60_000,
        "batch_bytes_max": config.message_max_bytes,
        "default_policies": resolve(config.group_policies),
        "consumer": consumer_config(config),
    }
    return GroupConfig(*[others[name] if name in others else getattr(config, name) for name in GroupConfig._fields])


def consumer_config(config: Config) -> ConsumerConfig:
    others: dict[str, Any] = {
        "enabled": "consumer" in config.group_coordinator_rebalance_protocols,
        "migration_policy": MigrationPolicy(config.group_consumer_migration_policy),
        "assignors": tuple(dict.fromkeys(ASSIGNOR_CLASSES.get(name, name) for name in config.group_consumer_assignors)),
    }
    return ConsumerConfig(*[others[name] if name in others else getattr(config, f"group_consumer_{name}") for name in ConsumerConfig._fields])


def log_frame(direction: str, call: Call, message: object) -> None:
    """Log a decoded frame, shortened."""
    text = repr(message)
    log.debug(
        direction,
        api=call.route.api.name,
        version=call.version,
        correlation_id=call.correlation_id,
        peer=call.connection.peer,
        message=text if len(text) <= 500 else f"{text[:500]}... ({len(text)} characters)",
    )
