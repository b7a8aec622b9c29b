"""Check manual replica assignments: each partition has one replica, on this broker."""

from __future__ import annotations

from broker.api.refused import Refused
from protocol.errors import ErrorCode


def bad_assignment(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def check_replicas(brokers: list[int], node_id: int) -> None:
    """Check the replicas of one partition."""
    if not brokers:
        raise bad_assignment("The manual partition assignment includes an empty replica list.")
    for broker in brokers:
        if broker != node_id:
            raise bad_assignment(f"The manual partition assignment includes broker {broker}, but no such broker is registered.")
    if len(brokers) > 1:
        raise bad_assignment(f"The manual partition assignment includes the broker {brokers[0]} more than once.")
