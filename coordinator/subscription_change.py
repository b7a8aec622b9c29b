"""Policy subscription.change: a static member that returns with other topics gets the rebalance it needs (KAFKA-12759)."""

from __future__ import annotations

from coordinator.calls import JoinRequest
from coordinator.group import CONSUMER, Group
from coordinator.member import Member
from coordinator.subscription import other_topics


def wants_rebalance(group: Group, old: Member, request: JoinRequest) -> bool:
    """Whether the return of `old` with this request changes its topics and the group's policy is `rebalance`."""
    policy = group.policy
    if policy is None or not policy.policies.subscription_change or group.protocol_type != CONSUMER:
        return False
    name = group.protocol_name
    new = next((metadata for offered, metadata in request.protocols if offered == name), None)
    return new is not None and other_topics(old.metadata(name), new)
