"""All supported APIs; each module of this package is named for its API."""

from __future__ import annotations

from typing import Final, Protocol

from broker.api import (
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)
from broker.api.parts import BrokerParts
from broker.net.dispatch import Route


class ApiModule(Protocol):
    def route(self, parts: BrokerParts) -> Route: ...


Modules = tuple[ApiModule, ...]

CLUSTER: Final[Modules] = (api_versions, find_coordinator, describe_cluster)
MEMBERS: Final[Modules] = (join_group, sync_group, heartbeat, leave_group)
CONSUMERS: Final[Modules] = (consumer_group_heartbeat, consumer_group_describe)
OFFSETS: Final[Modules] = (offset_commit, offset_fetch, offset_delete)
GROUPS: Final[Modules] = (describe_groups, list_groups, delete_groups)
TOPICS: Final[Modules] = (metadata, describe_topic_partitions, create_topics, create_partitions, delete_topics, delete_records)
REPLICAS: Final[Modules] = (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    describe_log_dirs,
    describe_quorum,
    elect_leaders,
    list_partition_reassignments,
)
RECORDS: Final[Modules] = (produce, init_producer_id, fetch, list_offsets, offset_for_leader_epoch)
CONFIGS: Final[Modules] = (describe_configs, alter_configs, incremental_alter_configs, list_config_resources)

SERVED: Final = (*CLUSTER, *MEMBERS, *CONSUMERS, *OFFSETS, *GROUPS, *TOPICS, *RECORDS, *REPLICAS, *CONFIGS)


def routes(parts: BrokerParts) -> list[Route]:
    return [module.route(parts) for module in SERVED]
