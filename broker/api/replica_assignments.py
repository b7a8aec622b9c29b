"""Check manual replica assignments: each partition has one replica, on a live broker.

A cluster of nodes places partitions itself: an assignment of a new partition to any live node is accepted, and has no effect.
"""

from __future__ import annotations

from broker.api.refused import Refused
from broker.runtime.node import Node
from broker.topics.leaders import Leaders
from protocol.errors import ErrorCode


def bad_assignment(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def live_brokers(node: Node, leaders: Leaders | None) -> set[int]:
    return {node.id} if leaders is None else leaders.ids() | {node.id}


def check_replicas(brokers: list[int], live: set[int]) -> None:
    """Check the replicas of one partition."""
    if not brokers:
        raise bad_assignment("The manual partition assignment includes an empty replica list.")
    for broker in brokers:
        if broker not in live:
            raise bad_assignment(f"The manual partition assignment includes broker {broker}, but no such broker is registered.")
    if len(set(brokers)) < len(brokers):
        repeated = next(broker for broker in brokers if brokers.count(broker) > 1)
        raise bad_assignment(f"The manual partition assignment includes the broker {repeated} more than once.")
    if len(brokers) > 1:
        raise bad_assignment(f"The manual partition assignment has {len(brokers)} replicas, and each partition is stored once.")
