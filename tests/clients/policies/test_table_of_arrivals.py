"""The table of arrivals in docs/policies.md with real members: the first arrival counts, and all newcomers join at once. 5 s take 10 s here."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

import pytest

from tests.clients.members import KINDS, ClientKind
from tests.clients.membership import Group
from tests.clients.policies.scenarios import CLOCKS_APART_SECONDS, await_status, set_policies

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

TIMEOUT_SECONDS = 10.0
START_SECONDS = 2.0  # the longest time from a member's start to its JoinGroup
LATE_SECONDS = 1.0


def arrival(group: Group, instance: str) -> float:
    return await_status(group.port, group.name, "status.waiting", instance)


def rebalances(group: Group) -> list[float]:
    """The times of the rebalances that `expansion.timeout.ms` began."""
    return [datetime.fromisoformat(line["time"]).timestamp() for line in group.state_changes() if line["to"] == "preparing" and line["cause"] == "expansion"]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_newcomers_join_together_after_the_timeout_of_the_first(kind: ClientKind, make_group: Callable[..., Group]) -> None:
    group = make_group(group_initial_rebalance_delay_ms="500")
    set_policies(group.port, group.name, {"expansion.timeout.ms": f"{TIMEOUT_SECONDS * 1000:.0f}"})
    leader = group.start(kind, "leader")
    group.await_settled(leader)
    generation = group.generation()
    a = group.start(kind, "a")
    first = arrival(group, "a")
    time.sleep(first + TIMEOUT_SECONDS * 3 / 5 - START_SECONDS - time.time())  # B arrives at 0:03
    b = group.start(kind, "b")
    assert first < arrival(group, "b") < first + TIMEOUT_SECONDS
    group.await_settled(leader, a, b)
    (at,) = rebalances(group)
    assert -CLOCKS_APART_SECONDS <= at - (first + TIMEOUT_SECONDS) <= LATE_SECONDS
    assert group.generation() == generation + 1
    c = group.start(kind, "c")
    third = arrival(group, "c")
    group.await_settled(leader, a, b, c)
    _, at = rebalances(group)
    assert -CLOCKS_APART_SECONDS <= at - (third + TIMEOUT_SECONDS) <= LATE_SECONDS
    assert group.generation() == generation + 2
