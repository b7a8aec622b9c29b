"""Policy subscription.change: the return of a static member with other topics causes a rebalance (KAFKA-12759)."""

from __future__ import annotations

from coordinator.calls import JoinRequest
from coordinator.classic.group import CONSUMER, Group
from coordinator.classic.member import Member
from coordinator.classic.subscription import topics_differ


def wants_rebalance(group: Group, old: Member, request: JoinRequest) -> bool:
    """Whether the returning member `old` subscribes to other topics and the group's policy is `rebalance`."""
    policy = group.policy_state
    if policy is None or not policy.policies.subscription_change or group.protocol_type != CONSUMER:
        return False
    name = group.protocol_name
    new = next((metadata for offered, metadata in request.protocols if offered == name), None)
    return new is not None and topics_differ(old.metadata(name), new)
