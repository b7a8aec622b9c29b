"""What the handlers of topics work with, and what they have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from broker.groups.journal import Journal
from broker.internal_topics import CONSUMER_OFFSETS
from broker.net.dispatch import Call
from broker.runtime.node import Node
from broker.security.authorizer import CLUSTER_NAME, Authorizer, Operation, Resource, may
from broker.topics.deletions import Deletions
from broker.topics.partition import Partition
from broker.topics.partitions import Partitions
from broker.topics.registry import Topic, Topics
from broker.topics.setting_sources import SettingSources
from protocol.errors import ErrorCode

MESSAGE_CHARACTERS_MAX = 1000  # a message may name what the client sent, which may be longer than a reply can hold
PARTITIONS_PER_REQUEST_MAX = 10_000  # Kafka's own: an accident with one digit too many is no request

SUSPENDED = "The registry of topics cannot be written at present."


class Refused(Exception):
    """This topic or resource is left as it is; the rest of the request goes on."""

    def __init__(self, error: ErrorCode, message: str | None = None) -> None:
        super().__init__(message)
        self.error = error
        self.message = None if message is None else short(message)


@dataclass(frozen=True, slots=True)
class Serving:
    node: Node
    topics: Topics
    registry: Journal
    partitions: Partitions
    deletions: Deletions
    settings: SettingSources
    authorizer: Authorizer
    num_partitions: int
    partitions_max: int

    def may(self, call: Call, operation: Operation, topic: str) -> bool:
        return may(self.authorizer, call, operation, Resource.TOPIC, topic)

    def may_all(self, call: Call, operation: Operation) -> bool:
        """Of the cluster as a whole."""
        return may(self.authorizer, call, operation, Resource.CLUSTER, CLUSTER_NAME)

    def partitions_of(self, topic: Topic) -> list[Partition]:
        """As far as they are open; none is opened for that."""
        found = self.partitions.of(topic)
        if topic.name == CONSUMER_OFFSETS:  # its logs are opened by its groups
            for partition in found:
                if not partition.opened:
                    self.partitions.find(topic.name, partition.index)
        return found

    def leader_epoch(self, partition: Partition) -> int:
        """-1 while it is not known; a log that is still to be made begins with 0."""
        if not partition.opened and not partition.topic.internal and self.partitions.has_nothing(partition):
            return 0
        return partition.leader_epoch

    def check_writable(self) -> None:
        if not self.registry.writable:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, SUSPENDED)

    def check_room(self, more: int) -> None:
        there = self.topics.partitions
        if there + more > self.partitions_max:
            raise Refused(
                ErrorCode.POLICY_VIOLATION,
                f"{there} partitions exist and {more} more would be over {self.partitions_max} (partitions.max)",
            )

    def check_replicas(self, brokers: list[int]) -> None:
        """One partition's, as somebody assigned them."""
        if not brokers:
            raise bad_assignment("The manual partition assignment includes an empty replica list.")
        for broker in brokers:
            if broker != self.node.id:
                raise bad_assignment(f"The manual partition assignment includes broker {broker}, but no such broker is registered.")
        if len(brokers) > 1:
            raise bad_assignment(f"The manual partition assignment includes the broker {brokers[0]} more than once.")


def bad_assignment(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def short(message: str) -> str:
    return message if len(message) <= MESSAGE_CHARACTERS_MAX else f"{message[:MESSAGE_CHARACTERS_MAX]}..."


def repeated(names: Iterable[str]) -> dict[str, None]:
    """Those that come more than once, in order."""
    return {name: None for name, times in Counter(names).items() if times > 1}
