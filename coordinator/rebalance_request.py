"""Policy rebalance.request: an operator makes all members of a group rejoin once."""

from __future__ import annotations

from coordinator.group import Group
from coordinator.notes import ABOUT_CHARS_MAX, Cause
from coordinator.outcome import Outcome
from coordinator.rebalance import prepare
from coordinator.states import COMPLETING, STABLE


def request_rebalance(out: Outcome, group: Group, text: str) -> None:
    """Begin a rebalance. EMPTY has no members to rejoin, and in PREPARING they rejoin already."""
    if group.state is STABLE or group.state is COMPLETING:
        prepare(out, group, Cause.REQUESTED, text[:ABOUT_CHARS_MAX])
