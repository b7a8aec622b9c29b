"""Members of groups of the consumer protocol, as requests over a connection to a broker in the loop of the test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest, DescribedGroup
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from protocol.records import with_version
from tests.support.in_loop import AsyncClient, InLoopBroker

TIMEOUT_MS = 30_000
GROUP = "g"
GROUP_TYPE = 32  # of IncrementalAlterConfigs
SET = 0
JOIN_AT_ONCE = 3  # the last version of JoinGroup in which a newcomer joins without first getting a member id

Partitions = Mapping[str, Sequence[int]]  # by topic name


class ConsumerClient:
    """Speaks for the members of one group."""

    def __init__(self, broker: InLoopBroker, client: AsyncClient, group: str = GROUP) -> None:
        self._topics = broker.server.broker.topics
        self.client = client
        self.group = group
        self.names: dict[bytes, str] = {}  # of all topics seen, deleted ones too

    async def topic(self, name: str, partitions: int) -> None:
        reply = await self.client.ask(CreateTopicsRequest([CreatableTopic(name, partitions, 1)], 5_000), 7)
        assert not reply.topics[0].error_code, reply
        self.names[reply.topics[0].topic_id] = name

    def id_of(self, name: str) -> bytes:
        return next(id for id, known in reversed(self.names.items()) if known == name)

    def named(self, partitions: Sequence[Any]) -> dict[str, list[int]]:
        return {self.names[topic.topic_id]: sorted(topic.partitions) for topic in partitions}

    async def say(self, member: str, epoch: int, owned: Partitions | None = None, v: int = 1, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat with exactly these fields."""
        if owned is not None:
            fields["topic_partitions"] = [ConsumerGroupHeartbeatRequestTopicPartitions(self.id_of(name), list(each)) for name, each in owned.items()]
        reply = await self.client.ask(ConsumerGroupHeartbeatRequest(self.group, member, epoch, **fields), v)
        assert isinstance(reply, ConsumerGroupHeartbeatResponse)
        return reply

    async def join(self, member: str, *topics: str, v: int = 1, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        fields = {"rebalance_timeout_ms": TIMEOUT_MS, "subscribed_topic_names": list(topics), **fields}
        return await self.say(member, 0, {}, v, **fields)

    async def join_classic(self, *topics: str) -> None:
        """A member that speaks the classic protocol."""
        metadata = with_version(ConsumerProtocolSubscription(list(topics)), 1)
        request = JoinGroupRequest(self.group, TIMEOUT_MS, TIMEOUT_MS, "", None, "consumer", [JoinGroupRequestProtocol("range", metadata)])
        reply = await self.client.ask(request, JOIN_AT_ONCE)
        assert not reply.error_code, reply

    def assigned(self, reply: ConsumerGroupHeartbeatResponse) -> dict[str, list[int]] | None:
        assert not reply.error_code, (reply.error_code, reply.error_message)
        return None if reply.assignment is None else self.named(reply.assignment.topic_partitions)

    async def describe(self, v: int = 1, *, operations: bool = False) -> DescribedGroup:
        (group,) = (await self.client.ask(ConsumerGroupDescribeRequest([self.group], operations), v)).groups
        assert isinstance(group, DescribedGroup)
        return group

    async def listed(self, **filters: list[str]) -> list[tuple[str, str, str, str]]:
        reply = await self.client.ask(ListGroupsRequest(**filters), 5)
        return [(group.group_id, group.protocol_type, group.group_state, group.group_type) for group in reply.groups]

    async def commit(self, member: str, epoch: int, partitions: Partitions, v: int = 9, instance: str | None = None) -> set[int]:
        """The error codes of the partitions."""
        topics = [OffsetCommitRequestTopic(name, [OffsetCommitRequestPartition(number, 7) for number in each]) for name, each in partitions.items()]
        reply = await self.client.ask(OffsetCommitRequest(self.group, epoch, member, instance, topics=topics), v)
        return {partition.error_code for topic in reply.topics for partition in topic.partitions}

    async def fetch(self, member: str | None, epoch: int, v: int = 9) -> tuple[int, dict[str, dict[int, int]]]:
        """The group's error, and its offsets by topic and partition."""
        (group,) = (await self.client.ask(OffsetFetchRequest([OffsetFetchRequestGroup(self.group, member, epoch, None)]), v)).groups
        offsets = {topic.name: {partition.partition_index: partition.committed_offset for partition in topic.partitions} for topic in group.topics}
        return group.error_code, offsets

    async def configure(self, **values: str) -> tuple[int, str]:
        """Set settings of the group, whose names have underscores in place of dots."""
        configs = [AlterableConfig(name.replace("_", "."), SET, value) for name, value in values.items()]
        reply = await self.client.ask(IncrementalAlterConfigsRequest([AlterConfigsResource(GROUP_TYPE, self.group, configs)]), 1)
        return reply.responses[0].error_code, reply.responses[0].error_message or ""
