"""NATS JetStream as the store of one node. Not imported by other brokers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.backends.node_port import NodeHost
from broker.backends.port import Host
from broker.internal_topics import CONSUMER_OFFSETS, REGISTRY_LOG
from broker.logging.logs import log
from broker.net.guarded_transport import GuardedTransport
from broker.runtime.start import ExitCode
from broker.stores.jetstream.group_cleaning import GroupLogCleaner
from broker.stores.jetstream.node_links import NodeLinks, Process
from broker.stores.jetstream.store import JetStreamStore
from broker.stores.jetstream.topic_cleaning import TopicLogCleaner
from broker.stores.jetstream.topic_logs import StreamTopicStore
from storage import NodeInfo, TopicStore

DAMAGED_NAMED: Final = 3
SYNC_UNKNOWN: Final = "whether the engine syncs before it acknowledges is not known: its configuration needs `sync_interval: always`"


class JetStreamStores:
    def __init__(self, host: Host, node: NodeHost) -> None:
        self._host = host
        machine = host.machine
        store = self.store = JetStreamStore(host.config, host.loop, machine.random_bytes, machine.wall_ns, lambda: machine.boot_ns() / 1e9)
        me = Process(host.config.node_id, store.incarnation)
        links = self.channel = NodeLinks(
            store.connection, store.names, me, store.incarnation_of, store.when_current, machine.random_bytes, lambda: node.links.new(host.loop.time())
        )
        store.node_ended, store.engine_changed = links.node_ended, links.engine_changed
        store.on_superseded = lambda: node.ended("another process has taken this node's id", ExitCode.LOCKED)
        store.on_meta_lost = lambda: node.ended("the stream of nodes and owners is gone", ExitCode.LOCKED)
        store.ending_service, store.service_resumed = node.lease_ended, node.lease_regained

    def guard(self, transport: Any) -> GuardedTransport:
        return GuardedTransport(transport, self.store.meta.may_answer)

    async def open(self, me: NodeInfo) -> None:
        store = self.store
        await store.open()
        self.channel.listen()
        await store.join(me)
        log.warning(
            "experimental: logs are kept in NATS JetStream",
            store=store.data_path,
            engine=store.connection.info.get("version", ""),
            replicas=self._host.config.store_replicas,
        )
        log.warning("the engine cannot be asked whether it syncs before it acknowledges", needed="sync_interval: always")

    def topic_store(self) -> TopicStore:
        return StreamTopicStore(self.store)

    def last_use(self) -> int | None:
        last_use = self.store.last_use()
        return last_use if last_use >= 0 else None

    def start_cleaning(self) -> None: ...

    async def stop_cleaning(self) -> None: ...

    def start_upkeep(self) -> None:
        store, host = self.store, self._host
        config = host.config
        self._group_cleaning = GroupLogCleaner(store.engine, lambda: store.logs, lambda: host.clock.wall, host.machine.monotonic)
        self._topic_cleaning = TopicLogCleaner(
            store.engine,
            lambda: host.partitions() if config.log_cleaner_enable else (),
            store.topic_log,
            host.clock.wall_for_deletion,
            host.machine.monotonic,
            config.log_cleaner_backoff_ms / 1000,
            config.log_cleaner_dedupe_buffer_size,
        )

    def stop_upkeep(self) -> None:
        self._group_cleaning.stop()
        self._topic_cleaning.stop()

    def status(self) -> Mapping[str, str]:
        store = self.store
        chains = [owned.chain for owned in store.logs]
        return {
            "status.store.connected": str(store.connection.connected).lower(),
            "status.store.engine": str(store.connection.info.get("version", "")),
            "status.store.lease.left.ms": str(max(round(store.meta.lease_left * 1000), 0)),
            "status.store.appends": str(sum(chain.unanswered for chain in chains)),
            "status.store.oldest.append.ms": str(round(max((chain.oldest_seconds for chain in chains), default=0.0) * 1000)),
            "status.store.quarantined": "\n".join(f"{id}: {reason}" for id, reason in sorted(store.quarantined.items())),
        }

    def health(self, problem: str) -> str:
        store = self.store
        if store.meta.lease_lost or not store.connection.connected:
            no_answer = "the engine does not answer"
            problem = no_answer if problem == "NONE" else f"{problem}; {no_answer}"
        damaged = sorted(store.quarantined)
        if damaged:
            more = f" and {len(damaged) - DAMAGED_NAMED} more" if len(damaged) > DAMAGED_NAMED else ""
            named = f"damaged, and served by no node: {', '.join(map(str, damaged[:DAMAGED_NAMED]))}{more}"
            of_groups = any(id.name in (CONSUMER_OFFSETS, REGISTRY_LOG) for id in damaged)  # as in a directory, damage of a topic leaves the node ready
            problem = named if problem == "NONE" and of_groups else f"{problem}; {named}"
        status = self.status()
        figures = " ".join(f"{name}={status[f'status.store.{name}']}" for name in ("lease.left.ms", "appends", "oldest.append.ms"))
        return f"{problem}; {SYNC_UNKNOWN}; store: {figures} quarantined={len(store.quarantined)}"
