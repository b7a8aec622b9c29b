"""A cluster of several nodes as the verbs use it: through the ordinary protocol, as any client sees it. For one call, in a thread of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, NamedTuple

from broker.control import asking
from broker.control.fields import Refused
from cli.client import Cluster as Client
from cli.client import TopicPartition
from cli.groups.described import Group, describe
from cli.groups.everywhere import list_everywhere
from cli.records.commits import committed_offsets
from cli.topics.log_offsets import log_bounds
from coordinator.group_partition import partition_of
from protocol.batch import Record
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceData, TopicProduceResponse

OFFSETS: Final = "__consumer_offsets"
INTERNAL: Final = "__"
POLL_SECONDS: Final = 0.02
FAULTS: Final = "faults stand between clients and the one broker of a process"


class State(NamedTuple):
    shown: str


class SeenMember(NamedTuple):
    id: str
    instance_id: str | None


class SeenGroup:
    """A group as its coordinator describes it. The protocol does not tell its generation: the history does."""

    generation = -1

    def __init__(self, described: Group) -> None:
        self.described = described
        self.id = described.id
        self.state = State(described.state)
        self.members = {member.member_id: SeenMember(member.member_id, member.instance_id) for member in described.members}
        self.static_members = {member.instance_id: id for id, member in self.members.items() if member.instance_id is not None}


class WallClock:
    """The clock of the machine: that of several processes cannot be moved."""

    advanced_ns = 0
    wall_ns = staticmethod(time.time_ns)


class NodeCluster:
    id = "default"
    clock = WallClock()

    def __init__(self, client: Client, bootstrap: str) -> None:
        self._client = client
        self.local_bootstrap = bootstrap

    def running_or_refuse(self) -> None: ...

    def topic_name(self, id: bytes) -> str | None:
        return None  # of faults, which there are none

    @property
    def traffic(self) -> Any:
        raise Refused(409, f"with several nodes no request is seen: {FAULTS}", "wait for a group or a commit")

    async def until(self, condition: Callable[[], bool], timeout_ms: int) -> bool:
        deadline = time.monotonic() + timeout_ms / 1000
        while not condition():
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(POLL_SECONDS)
        return True

    async def request(self, request: Any) -> Any:
        match request:
            case CreateTopicsRequest() | DeleteTopicsRequest():
                return self._client.send_to_controller(request)
            case LeaveGroupRequest():
                return self._client.send_to_coordinator(request.group_id, request)
            case DeleteGroupsRequest():
                return self._client.send_to_coordinator(request.groups_names[0], request)
            case ProduceRequest():
                return self._produce(request)
        raise AssertionError(type(request))

    def _produce(self, request: ProduceRequest) -> ProduceResponse:
        """Each partition at its leader."""
        (topic,) = request.topic_data
        answered: list[PartitionProduceResponse] = []
        for part in topic.partition_data:
            one = ProduceRequest(None, -1, request.timeout_ms, [TopicProduceData(topic.name, [part], topic.topic_id)])
            answered += self._client.send_to_leader(topic.name, part.index, one).responses[0].partition_responses
        return ProduceResponse([TopicProduceResponse(topic.name, answered)])

    # Groups.

    def groups(self) -> dict[str, SeenGroup]:
        names = [group.group_id for group in list_everywhere(self._client).groups]
        return {name: SeenGroup(group) for name, group in describe(self._client, names).items() if group is not None} if names else {}

    def group(self, id: str) -> SeenGroup | None:
        described = describe(self._client, [id])[id]
        return SeenGroup(described) if described is not None and described.state != "Dead" else None

    def group_document(self, group: SeenGroup) -> dict[str, Any]:
        described = group.described
        return {
            "group": group.id,
            "state": described.state,
            "generation": group.generation,
            "protocol": described.protocol,
            "coordinator": described.coordinator,
            "members": [
                {
                    "member": member.member_id,
                    "instance": member.instance_id,
                    "client_id": member.client_id,
                    "host": member.host,
                    "partitions": None if member.assigned is None else by_topic(member.assigned),
                }
                for member in described.members
            ],
        }

    async def rebalance(self, group: SeenGroup) -> None:
        async def ask(request: Any) -> Any:
            return self._client.send_to_broker(group.described.coordinator, request)

        await asking.rebalance(ask, group.id)

    async def settle(self) -> None: ...

    async def empty_and_delete(self, group: SeenGroup) -> None:
        await asking.empty_and_delete(self.request, group.id, group.members)

    def committed(self, group_id: str, topic: str, partition: int) -> int:
        return committed_offsets(self._client, group_id, [(topic, partition)]).get((topic, partition), -1)

    async def lag(self, group: SeenGroup) -> dict[str, dict[str, int]]:
        """Of the partitions that its members have."""
        partitions = [each for member in group.described.members for each in member.assigned or ()]
        starts, ends = log_bounds(self._client, partitions)
        committed = committed_offsets(self._client, group.id, partitions)
        found: dict[str, dict[str, int]] = {}
        for each in sorted(partitions):
            found.setdefault(each[0], {})[str(each[1])] = max(0, ends[each].offset - committed.get(each, starts[each].offset))
        return found

    # Topics and records.

    def topics(self) -> dict[str, int]:
        return {name: len(info.partitions) for name, info in sorted(self._client.topics(None, refresh=True).items()) if not (info.internal or name.startswith(INTERNAL))}

    def topic_id(self, name: str) -> bytes:
        return self._client.topics([name])[name].id or bytes(16)

    def leaders(self, topic: str) -> dict[str, int]:
        """The node that leads each partition."""
        count = self.topics().get(topic)
        if count is None:
            raise Refused(404, f"there is no topic {topic!r}", f"topics: {', '.join(self.topics()) or 'none'}")
        return {str(partition): self._client.leader(topic, partition) for partition in range(count)}

    def log_start(self, topic: str, partition: int) -> int:
        each: TopicPartition = (topic, partition)
        return log_bounds(self._client, [each])[0][each].offset

    def read(self, topic: str, partition: int, offset: int) -> AsyncIterator[Record]:
        async def ask(request: Any) -> Any:
            return self._client.send_to_leader(topic, partition, request)

        return asking.read(ask, self.topic_id(topic), topic, partition, offset)

    def commits(self, group_id: str, topic: str) -> AsyncIterator[tuple[int, int]]:
        count = len(self._client.topics([OFFSETS])[OFFSETS].partitions)
        return asking.commits(self.read(OFFSETS, partition_of(group_id, count), 0), group_id, topic)


def by_topic(partitions: tuple[TopicPartition, ...]) -> Mapping[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return found
