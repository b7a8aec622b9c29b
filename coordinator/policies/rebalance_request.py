"""Policy rebalance.request: an operator makes all members of a group rejoin once."""

from __future__ import annotations

from coordinator.classic.group import Group
from coordinator.classic.rebalance import begin_rebalance
from coordinator.notes import Cause
from coordinator.states import COMPLETING, STABLE
from coordinator.step_output import StepOutput


def request_rebalance(out: StepOutput, group: Group, text: str) -> None:
    """Begin a rebalance. EMPTY has no members to rejoin, and in PREPARING they rejoin already."""
    if group.state is STABLE or group.state is COMPLETING:
        begin_rebalance(out, group, Cause.REQUESTED, text=text)
