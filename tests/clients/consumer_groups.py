"""A group of real clients with the consumer protocol (KIP-848), as `membership.Group` has it for the classic protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest, DescribedGroup
from tests.clients.members import ClientKind, Member
from tests.clients.membership import Group, Seats
from tests.running import Client

DESCRIBE_VERSION: Final = 1
HEARTBEAT_MS: Final = "200"  # the default, 5 s, is how long a member may wait for its partitions


class ConsumerGroup(Group):
    """Its generation is the epoch of the group: a target that moved nothing changes it too."""

    def __init__(self, folder: Path, *arguments: Any, **settings: Any) -> None:
        timing = {
            "group_consumer_min_heartbeat_interval_ms": HEARTBEAT_MS,
            "group_consumer_heartbeat_interval_ms": HEARTBEAT_MS,
            "group_consumer_assignment_interval_ms": "0",
        }
        super().__init__(folder, *arguments, **(timing | settings))

    def start(self, kind: ClientKind, instance: str | None = None, alone: bool = False, **settings: object) -> Member:
        return super().start(kind, instance, alone, **({"protocol": "consumer"} | settings))

    def described(self) -> DescribedGroup:
        with Client(self.port) as client:
            (group,) = client.ask(ConsumerGroupDescribeRequest([self.name]), DESCRIBE_VERSION).groups
        assert isinstance(group, DescribedGroup)
        return group

    def describe(self) -> tuple[str, Seats]:
        group = self.described()
        seats: Seats = {}
        for member in group.members:
            partitions = frozenset((topic.topic_name, partition) for topic in member.assignment.topic_partitions for partition in topic.partitions)
            seats[member.instance_id or member.client_id] = (member.member_id, partitions)
        return group.group_state, seats

    def generation(self) -> int:
        return self.described().group_epoch

    def types(self) -> set[int]:
        """The protocols of its members: 0 is classic."""
        return {member.member_type for member in self.described().members}
