"""Build the parts of one of several nodes over one store. Not imported by a single broker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from broker.api.metadata import TOPIC_IDS_FROM
from broker.api.node_drain import NodeDrain
from broker.api.parts import BrokerParts
from broker.backends.node_port import NewNodeStores, NodeHost, NodeStores
from broker.backends.table import load
from broker.cluster.channel import FORWARDING_BYTES, AcceptedLinks
from broker.cluster.cluster import Cluster
from broker.cluster.deletions import SharedDeletions
from broker.cluster.forwarding import Forwarding
from broker.cluster.late_node import LateNode
from broker.cluster.partitions import SharedPartitions
from broker.cluster.propagation import RegistryJournal
from broker.cluster.status import status
from broker.groups.journal import NO_LOG
from broker.internal_topics import CONSUMER_OFFSETS, REGISTRY_LOG
from broker.machine import Machine
from broker.net.connection import Connection
from broker.net.connections import Connections
from broker.net.dispatch import Dispatch, Route
from broker.runtime.node import Address
from broker.settings.config import Config
from broker.settings.descriptors import Descriptors, accepted_links_max
from broker.stores.port import BrokerStore
from broker.topics.deletions import Deletions
from broker.topics.producer_ids import ProducerIds
from broker.topics.settings import broker_defaults
from broker.wiring import Broker
from coordinator import partition_of
from storage import LogId, NodeInfo, TopicStore

# An opened log waits for a write of the table of owners; logs opened together share that write.
ACQUIRE_CONCURRENCY = 16
NODES_EXPECTED = 8  # started by hand, perhaps, besides those of cluster.nodes
NEVER_IDLE = -1


class ClusterBroker(Broker):
    """All parts of one node."""

    cluster: Cluster
    stores: NodeStores
    partitions: SharedPartitions
    registry_journal: RegistryJournal

    def __init__(
        self, config: Config, loop: asyncio.AbstractEventLoop, descriptors: Descriptors, buffered_protocol: bool, machine: Machine
    ) -> None:
        super().__init__(config, loop, descriptors, buffered_protocol, machine)
        self._buffered_protocol = buffered_protocol
        self._late_node: LateNode | None = None
        self._node_dispatch = Dispatch(config.request_elements_max, self._thread_for_long_requests)
        self._node_connections = Connections(self.clock, NEVER_IDLE)
        self._node_context = self._new_connection_context(self._node_dispatch, self._node_connections, FORWARDING_BYTES)
        self._links = AcceptedLinks(self._node_context, self._node_connections, accepted_links_max(max(config.cluster_nodes, NODES_EXPECTED)))

    def new_store(self, log_files_max: int) -> BrokerStore:
        node = NodeHost(
            self._links, self._buffered_protocol, lambda reason, code: self.ended(reason, code), self._drop_unsent, self._lease_regained
        )
        new_stores: NewNodeStores = load(self.config.store.backend.several)
        self.stores = new_stores(self._store_host(log_files_max), node)
        return self.stores.store

    async def open(self, store: BrokerStore, addresses: list[Address]) -> None:
        self._addresses = {address.name: address for address in addresses}
        for context in (self.connection_context, self._node_context):
            context.guard = self.stores.guard
        await self.stores.open(NodeInfo(self.config.node_id, tuple((address.name, address.host, address.port) for address in addresses), None))
        await super().open(store, addresses)
        self.cluster.start()
        self._late_node = LateNode(self.stores.store, self.topics, self.live_connections, self.cluster.when_up_to_date)
        self.clock.moved = self._late_node.check
        self.stores.channel.start()

    def _drop_unsent(self) -> None:
        """Close the connections whose replies are not sent yet, since another node may own the logs."""
        for connection in [connection for connection in self.live_connections() if connection.has_unsent_reply]:
            connection.abort("its reply was not sent before the lease of this node was over")

    def _lease_regained(self) -> None:
        if self._late_node is not None:
            self._late_node.lease_regained()

    async def _open_registry(self, store: BrokerStore) -> None:
        shared = self.stores.store
        journal = RegistryJournal(REGISTRY_LOG, self.topics, NO_LOG, self.turn, self.config.offsets_commit_timeout_ms, replace=self.topics.replace)
        journal.writable = False
        self.registry_journal = journal
        self.journals.append(journal)
        self.turn.add_deadline_handler(journal)
        incarnation = int.from_bytes(self._machine.random_bytes(7), "big")
        cluster = self.cluster = Cluster(
            self.config.node_id,
            incarnation,
            shared,
            self._loop,
            self.turn,
            self.topics,
            journal,
            self.stores.channel.connect,
            max(self.config.socket_request_max_bytes, self.config.socket_response_max_bytes) + FORWARDING_BYTES,
            self.config.cluster_nodes,
        )
        journal.propagation = cluster.propagation
        self._leaders = cluster.routing
        self._load_ended = cluster.load_ended
        self._acquire_concurrency = ACQUIRE_CONCURRENCY
        self._node_dispatch.add_routes(cluster.route())
        await cluster.open_registry(shared.owned_log, self.stop_requested)
        if CONSUMER_OFFSETS not in self.topics.by_name and journal.writable:
            self.topics.create(CONSUMER_OFFSETS, self.config.offsets_topic_num_partitions, {"cleanup.policy": "compact"}, self.clock.wall)
            self.turn.call_first_at_turn_end(journal)

    def _new_partitions(self, topic_logs: TopicStore) -> SharedPartitions:
        partitions = SharedPartitions(
            self.topics, self.registry_journal, topic_logs, self._loop, broker_defaults(self.config), self.notes.open, self._machine.monotonic
        )
        partitions.owners = self.cluster
        return partitions

    def _new_deletions(self) -> Deletions:
        deletions = SharedDeletions(self.topics, self.registry_journal, self.shards, self.partitions, self._loop, self._machine.monotonic)
        deletions.report = self.cluster.deletion_reports.report
        deletions.publish = self.cluster.publish_deletion
        self.cluster.deletions = self.cluster.deletion_reports.deletions = deletions
        return deletions

    def _routes(self, parts: BrokerParts) -> list[Route]:
        routes = super()._routes(parts)
        cluster = self.cluster
        cluster.shards, cluster.notes = self.shards, self.notes
        cluster.partitions = self.partitions
        cluster.forwarding = Forwarding(
            self.config.node_id,
            self._loop,
            cluster.peers,
            self.connection_context,
            self._address,
            lambda: cluster.acting_controller,
            self._coordinator,
            lambda: cluster.live_nodes,
            cluster.follow,
            self._may_create_topics,
            self.registry_journal.await_deletions,
        )
        cluster.forwarding.wrap(routes)
        return routes

    def _status(self) -> Mapping[str, str]:
        return {**status(self.cluster, self.clock), **super()._status()}

    def _drain(self) -> NodeDrain:
        return self.cluster

    def _address(self, listener: str) -> Address:
        """This node's address on the listener through which the client reached another node."""
        return self._addresses.get(listener) or next(iter(self._addresses.values()))

    def _coordinator(self, group_id: str) -> int:
        return self.cluster.routing.leader(LogId(CONSUMER_OFFSETS, partition_of(group_id, len(self.shards.journals))))

    def _may_create_topics(self, request: Any, version: int) -> bool:
        """Whether a Metadata request names missing topics that would be created."""
        if not self.config.auto_create_topics_enable or (version >= 4 and not request.allow_auto_topic_creation):
            return False
        by_name = self.topics.by_name
        return any(topic.name and topic.name not in by_name for topic in request.topics or [] if version < TOPIC_IDS_FROM or topic.name)

    def _new_producer_ids(self) -> ProducerIds:
        return self.cluster.producer_ids

    def _open_logs(self) -> None:
        """Nothing: this node opens logs as it acquires them (`Cluster.start`)."""

    def live_connections(self) -> list[Connection]:
        return [*super().live_connections(), *self._node_connections.live]

    def close_channel(self) -> None:
        for connection in list(self._node_connections.live):
            connection.abort("")
        self.stores.channel.close()

    def stop(self) -> None:
        self.cluster.stop()
        self.stores.channel.close()
        super().stop()
