"""Policy subscription.change: the return of a static member with other topics causes a rebalance (KAFKA-12759)."""

from __future__ import annotations

from typing import Final

from coordinator.calls import JoinRequest
from coordinator.classic.group import CONSUMER, Group
from coordinator.classic.member import Member
from coordinator.classic.subscription import topics_differ
from coordinator.policies.declaration import Choice, not_in_consumer_groups
from coordinator.policies.hooks import PolicyRules

SUBSCRIPTION_CHANGE: Final = Choice(
    "subscription.change",
    "keep",
    "rebalance",
    "Whether a static member that returns with other topics causes a rebalance: keep or rebalance.",
    consumers=not_in_consumer_groups("a member that returns with other topics always gets a new assignment there"),
)


class SubscriptionChange(PolicyRules):
    declares = (SUBSCRIPTION_CHANGE,)

    def return_rebalances(self, group: Group, old: Member, request: JoinRequest) -> bool:
        """Not for members without a seat: they have no partitions of the topics."""
        if not SUBSCRIPTION_CHANGE.of(self.values) or group.protocol_type != CONSUMER:
            return False
        name = group.protocol_name
        new = next((metadata for offered, metadata in request.protocols if offered == name), None)
        if new is None or not topics_differ(old.metadata(name), new):
            return False
        return group.policies is None or old.id not in group.policies.without_seat()
