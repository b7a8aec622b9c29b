"""The parts of a running broker. Each API handler keeps the parts that it uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from broker.api.node_drain import NodeDrain
from broker.groups.journal import Journal
from broker.groups.shards import Shards
from broker.net.dispatch import Route
from broker.net.long_requests import LongRequests
from broker.runtime.clock import Clock
from broker.runtime.node import Node
from broker.security.authorizer import Authorizer
from broker.settings.config import Config
from broker.topics.append import CheckTimeBudget
from broker.topics.appender import Appender
from broker.topics.batch_queues import BatchQueues
from broker.topics.deletions import Deletions
from broker.topics.leaders import Leaders
from broker.topics.partitions import Partitions
from broker.topics.producer_ids import ProducerIds
from broker.topics.registry import TopicRegistry
from broker.topics.setting_sources import SettingSources
from broker.topics.transactions import TransactionRefusals
from broker.topics.waiting_fetches import ParkedFetches
from coordinator import GroupConfig
from storage import ClusterView, TopicStore


@dataclass(frozen=True, slots=True)
class BrokerParts:
    config: Config
    node: Node
    clock: Clock
    authorizer: Authorizer
    cluster_view: ClusterView
    leaders: Leaders | None  # None: this node is the only one
    status: Callable[[], Mapping[str, str]]  # the broker's `status.*` entries, by name; empty for a single broker
    drain: NodeDrain | None  # None: this node is the only one
    routes: Mapping[int, Route]  # by API key; filled after the handlers are built
    health: Callable[[], str]  # the status line of `tenure health`; "NONE" when all is well

    groups: GroupConfig
    shards: Shards

    topics: TopicRegistry
    registry_journal: Journal  # of the topics
    producer_ids: ProducerIds
    setting_sources: SettingSources
    partitions: Partitions
    deletions: Deletions
    transaction_refusals: TransactionRefusals
    topic_store: TopicStore
    data_path: str

    check_budget: CheckTimeBudget
    appender: Appender
    batch_queues: BatchQueues
    fetches: ParkedFetches
    long_requests: LongRequests  # of requests that search logs, answered in steps
