"""Policy rebalance.request: an operator makes all members of a group rejoin once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from coordinator.classic.group import Group
from coordinator.classic.rebalance import begin_rebalance
from coordinator.notes import Cause
from coordinator.policies.declaration import InConsumerGroups, Request
from coordinator.policies.hooks import PolicyRules
from coordinator.states import COMPLETING, STABLE
from coordinator.step_output import StepOutput

REBALANCE_REQUEST: Final = Request(
    "rebalance.request",
    "Why an administrator last asked for a rebalance. Each set makes all members rejoin once.",
    consumers=InConsumerGroups(True, "the group gets a new epoch and a new assignment; its members do not rejoin"),
)


class RebalanceRequest(PolicyRules):
    declares = (REBALANCE_REQUEST,)
    explained = True

    def __init__(self) -> None:
        self._requested: str | None = None

    def changed(self, out: StepOutput, group: Group, named: Mapping[str, str], stored: dict[bytes, bytes]) -> None:
        self._requested = named.get(REBALANCE_REQUEST.name)

    def settled(self, out: StepOutput, group: Group) -> None:
        """Begin a rebalance. EMPTY has no members to rejoin, and in PREPARING they rejoin already."""
        requested, self._requested = self._requested, None
        if requested is not None and (group.state is STABLE or group.state is COMPLETING):
            begin_rebalance(out, group, Cause.REQUESTED, text=requested)

    @staticmethod
    def epoch_reason(named: Mapping[str, str]) -> str:
        return named.get(REBALANCE_REQUEST.name, "")
