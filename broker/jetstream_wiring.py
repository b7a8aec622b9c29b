"""Build the parts of one node whose store is NATS JetStream. Not imported by other brokers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.cluster_wiring import ClusterBroker, NodeStore
from broker.internal_topics import CONSUMER_OFFSETS, REGISTRY_LOG
from broker.logging.logs import log
from broker.net.guarded_transport import GuardedTransport
from broker.runtime.node import Address
from broker.runtime.start import ExitCode
from broker.stores.jetstream.group_cleaning import GroupLogCleaner
from broker.stores.jetstream.node_links import NodeLinks, Process
from broker.stores.jetstream.store import JetStreamStore
from broker.stores.jetstream.topic_cleaning import TopicLogCleaner
from broker.stores.jetstream.topic_logs import StreamTopicStore
from broker.stores.port import BrokerStore
from storage import NodeInfo, TopicStore

DAMAGED_NAMED: Final = 3
SYNC_UNKNOWN: Final = "whether the engine syncs before it acknowledges is not known: its configuration needs `sync_interval: always`"


class JetStreamBroker(ClusterBroker):
    """All parts of one node."""

    _channel: NodeLinks

    def new_store(self, log_files_max: int) -> BrokerStore:
        machine = self._machine
        store = JetStreamStore(self.config, self._loop, machine.random_bytes, machine.wall_ns, lambda: machine.boot_ns() / 1e9)
        me = Process(self.config.node_id, store.incarnation)
        links = self._channel = NodeLinks(
            store.connection, store.names, me, store.incarnation_of, store.when_current, machine.random_bytes, lambda: self._links.new(self._loop.time())
        )
        store.node_ended, store.engine_changed = links.node_ended, links.engine_changed
        return store

    async def open(self, store: BrokerStore, addresses: list[Address]) -> None:
        streams = self._store = self._jetstream_store(store)
        streams.on_superseded = self._on_superseded
        streams.on_meta_lost = self._on_meta_lost
        streams.ending_service = self._drop_unsent
        for context in (self._connection_context, self._node_context):
            context.guard = lambda transport: GuardedTransport(transport, streams.meta.may_answer)
        await streams.open()
        self._channel.listen()
        await streams.join(NodeInfo(self.config.node_id, tuple((address.name, address.host, address.port) for address in addresses), None))
        log.warning(
            "experimental: logs are kept in NATS JetStream",
            store=store.data_path,
            engine=streams.connection.info.get("version", ""),
            replicas=self.config.store_replicas,
        )
        log.warning("the engine cannot be asked whether it syncs before it acknowledges", needed="sync_interval: always")
        await super().open(store, addresses)
        streams.service_resumed = self._late_node.lease_regained

    def _status(self) -> Mapping[str, str]:
        return {**super()._status(), **self._store_status()}

    def _store_status(self) -> dict[str, str]:
        store = self._store
        chains = [owned.chain for owned in store.logs]
        return {
            "status.store.connected": str(store.connection.connected).lower(),
            "status.store.engine": str(store.connection.info.get("version", "")),
            "status.store.lease.left.ms": str(max(round(store.meta.lease_left * 1000), 0)),
            "status.store.appends": str(sum(chain.unanswered for chain in chains)),
            "status.store.oldest.append.ms": str(round(max((chain.oldest_seconds for chain in chains), default=0.0) * 1000)),
            "status.store.quarantined": "\n".join(f"{id}: {reason}" for id, reason in sorted(store.quarantined.items())),
        }

    def _health(self) -> str:
        problem = super()._health()
        if self._store.meta.lease_lost or not self._store.connection.connected:
            no_answer = "the engine does not answer"
            problem = no_answer if problem == "NONE" else f"{problem}; {no_answer}"
        damaged = sorted(self._store.quarantined)
        if damaged:
            more = f" and {len(damaged) - DAMAGED_NAMED} more" if len(damaged) > DAMAGED_NAMED else ""
            named = f"damaged, and served by no node: {', '.join(map(str, damaged[:DAMAGED_NAMED]))}{more}"
            of_groups = any(id.name in (CONSUMER_OFFSETS, REGISTRY_LOG) for id in damaged)  # as in a directory, damage of a topic leaves the node ready
            problem = named if problem == "NONE" and of_groups else f"{problem}; {named}"
        status = self._store_status()
        figures = " ".join(f"{name}={status[f'status.store.{name}']}" for name in ("lease.left.ms", "appends", "oldest.append.ms"))
        return f"{problem}; {SYNC_UNKNOWN}; store: {figures} quarantined={len(self._store.quarantined)}"

    def _drop_unsent(self) -> None:
        """Called when this node's lease has ended: close the connections whose replies are not sent yet, since another node may own the logs."""
        for connection in [connection for connection in self.live_connections() if connection.has_unsent_reply]:
            connection.abort("its reply was not sent before the lease of this node was over")

    def _on_superseded(self) -> None:
        self.ended("another process has taken this node's id", ExitCode.LOCKED)

    def _on_meta_lost(self) -> None:
        self.ended("the stream of nodes and owners is gone", ExitCode.LOCKED)

    def _jetstream_store(self, store: BrokerStore) -> JetStreamStore:
        assert isinstance(store, JetStreamStore)
        return store

    def _cluster_store(self, store: BrokerStore) -> NodeStore:
        return self._jetstream_store(store)

    def _topic_store(self, store: BrokerStore) -> TopicStore:
        return StreamTopicStore(self._jetstream_store(store))

    # These steps differ because the store has no data directory.

    def _start_clock(self, store: BrokerStore) -> None:
        last_use = self._jetstream_store(store).last_use()
        if last_use >= 0:
            self.clock.start_after(last_use)

    def _start_cleaning(self, store: BrokerStore) -> None: ...

    def _start_upkeep(self, store: BrokerStore) -> None:
        streams = self._jetstream_store(store)
        config = self.config
        self.group_cleaning = GroupLogCleaner(streams.engine, lambda: streams.logs, lambda: self.clock.wall, self._machine.monotonic)
        self.topic_cleaning = TopicLogCleaner(
            streams.engine,
            lambda: self.partitions if config.log_cleaner_enable else (),
            streams.topic_log,
            self.clock.wall_for_deletion,
            self._machine.monotonic,
            config.log_cleaner_backoff_ms / 1000,
            config.log_cleaner_dedupe_buffer_size,
        )

    def _stop_upkeep(self) -> None:
        self.group_cleaning.stop()
        self.topic_cleaning.stop()

    async def stop_cleaning(self) -> None: ...
