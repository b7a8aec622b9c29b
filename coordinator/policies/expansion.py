"""Policy expansion.timeout.ms: newcomers to a formed group wait, and one rebalance admits all of them (`classic/waiting.py`)."""

from __future__ import annotations

from typing import Final

from coordinator.calls import JoinRequest
from coordinator.classic.group import Group
from coordinator.policies.declaration import Timeout, not_in_consumer_groups
from coordinator.policies.hooks import PolicyRules, Wait

EXPANSION_TIMEOUT: Final = Timeout(
    "expansion.timeout.ms",
    "How long new members wait for further new members, so that one rebalance includes all of them.",
    consumers=not_in_consumer_groups("new members stop nobody there, and consumer.assignment.interval.ms is how long their assignment waits for others"),
)


class Expansion(PolicyRules):
    declares = (EXPANSION_TIMEOUT,)
    explained = True

    def wait(self, group: Group, request: JoinRequest | None) -> Wait | None:
        timeout_ms = EXPANSION_TIMEOUT.of(self.values)
        return None if request is None or timeout_ms is None else Wait(timeout_ms)
