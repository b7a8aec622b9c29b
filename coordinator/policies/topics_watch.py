"""Policy topics.watch: when the partitions of a subscribed topic change, a rebalance begins at once."""

from __future__ import annotations

from collections.abc import Collection

from coordinator.classic.group import Group
from coordinator.classic.rebalance import begin_rebalance
from coordinator.notes import Cause
from coordinator.states import COMPLETING, STABLE
from coordinator.step_output import StepOutput


def topics_changed(out: StepOutput, group: Group, topics: Collection[str]) -> None:
    """Begin a rebalance if members subscribe to one of these topics. In PREPARING the leader will assign with the new metadata anyway."""
    policy = group.policy_state
    if policy is None or not policy.policies.topics_watch:
        return
    if group.state is not STABLE and group.state is not COMPLETING:
        return
    subscribed = group.subscribed
    if subscribed is None:  # unknown, or not a consumer group
        return
    changed = sorted(subscribed.intersection(topics))
    if changed:
        begin_rebalance(out, group, Cause.TOPICS_CHANGED, text=f"topics: {', '.join(changed)}")
