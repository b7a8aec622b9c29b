"""Policy topics.watch: a change of the partitions of a topic that members list causes the rebalance at once."""

from __future__ import annotations

from collections.abc import Collection

from coordinator.group import Group
from coordinator.notes import ABOUT_CHARS_MAX, Cause
from coordinator.outcome import Outcome
from coordinator.rebalance import prepare
from coordinator.states import COMPLETING, STABLE


def topics_changed(out: Outcome, group: Group, topics: Collection[str]) -> None:
    """Begin a rebalance if members list one of these topics. In PREPARING the leader will assign with fresh metadata."""
    policy = group.policy
    if policy is None or not policy.policies.topics_watch:
        return
    if group.state is not STABLE and group.state is not COMPLETING:
        return
    subscribed = group.subscribed
    if subscribed is None:  # unknown, or not a group of consumers
        return
    changed = sorted(subscribed.intersection(topics))
    if changed:
        prepare(out, group, Cause.TOPICS_CHANGED, f"topics: {', '.join(changed)}"[:ABOUT_CHARS_MAX])
