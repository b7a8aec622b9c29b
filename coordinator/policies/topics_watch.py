"""Policy topics.watch: when the partitions of a subscribed topic change, a rebalance begins at once."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from coordinator.classic.group import Group
from coordinator.classic.rebalance import begin_rebalance
from coordinator.notes import Cause
from coordinator.policies.declaration import Switch, not_in_consumer_groups
from coordinator.policies.hooks import PolicyRules
from coordinator.states import COMPLETING, STABLE
from coordinator.step_output import StepOutput

TOPICS_WATCH: Final = Switch(
    "topics.watch",
    "Whether a change of a subscribed topic's partitions causes a rebalance at once.",
    consumers=not_in_consumer_groups("the coordinator always watches topics there"),
)


class TopicsWatch(PolicyRules):
    declares = (TOPICS_WATCH,)

    def topics_changed(self, out: StepOutput, group: Group, topics: Collection[str]) -> None:
        """Begin a rebalance if members subscribe to one of these topics. In PREPARING the leader will assign with the new metadata anyway."""
        if not TOPICS_WATCH.of(self.values) or (group.state is not STABLE and group.state is not COMPLETING):
            return
        subscribed = group.subscribed
        if subscribed is None:  # unknown, or not a consumer group
            return
        changed = sorted(subscribed.intersection(topics))
        if changed:
            begin_rebalance(out, group, Cause.TOPICS_CHANGED, text=f"topics: {', '.join(changed)}")
