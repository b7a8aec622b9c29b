"""Finds the groups with committed offsets in a topic: these offsets are lost when the topic is deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

if TYPE_CHECKING:
    from cli.client import Cluster

OFFSET_FETCH: Final = 9
MANY_GROUPS_VERSION: Final = 8
GROUPS_AT_ONCE: Final = 200


def groups_with_offsets(cluster: Cluster, topics: Mapping[str, Sequence[int]]) -> dict[str, list[str]]:
    """For each topic the groups with committed offsets in it, of those groups that this user may list."""
    readers: dict[str, set[str]] = {topic: set() for topic in topics}
    for broker_id, listed in cluster.ask_all_brokers(ListGroupsRequest()).items():
        groups = [group.group_id for group in listed.groups if not group.protocol_type or group.protocol_type == "consumer"]
        batch_size = GROUPS_AT_ONCE if cluster.version(OFFSET_FETCH, broker_id) >= MANY_GROUPS_VERSION else 1
        for at in range(0, len(groups), batch_size):
            for group_id, topics_of_group in topics_with_offsets(cluster, broker_id, groups[at : at + batch_size], topics):
                for topic in topics_of_group:
                    readers[topic].add(group_id)
    return {topic: sorted(groups) for topic, groups in readers.items()}


def topics_with_offsets(cluster: Cluster, broker_id: int, groups: Sequence[str], topics: Mapping[str, Sequence[int]]) -> list[tuple[str, list[str]]]:
    """For each group its name, and the topics in which it has committed offsets."""
    request = OffsetFetchRequest(
        [
            OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics(name, list(partitions)) for name, partitions in topics.items()])
            for group in groups
        ],
        groups[0],
        [OffsetFetchRequestTopic(name, list(partitions)) for name, partitions in topics.items()],
    )
    reply = cluster.send_to_broker(broker_id, request)
    answers = [(group.group_id, group.topics) for group in reply.groups] or [(groups[0], reply.topics)]
    return [
        (group_id, [topic.name for topic in fetched if any(partition.committed_offset >= 0 for partition in topic.partitions)])
        for group_id, fetched in answers
    ]
