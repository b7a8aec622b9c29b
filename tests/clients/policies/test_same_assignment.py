"""Instances get the same partitions after a full stop and start: assignors sort by member id, which begins with the instance id."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.clients.members import KINDS, ClientKind
from tests.clients.membership import TOPIC, Group
from tests.clients.policies.scenarios import close_all
from tests.running import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

SETTINGS = {"group_initial_rebalance_delay_ms": "500", "group_min_session_timeout_ms": "1000"}
EXPECTED = {"range": {"a-1": (0, 1), "a-10": (2, 3), "a-2": (4, 5)}, "roundrobin": {"a-1": (0, 3), "a-10": (1, 4), "a-2": (2, 5)}}


@pytest.mark.parametrize("assignor", EXPECTED)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_instances_get_the_same_partitions_after_a_full_stop_and_start(kind: ClientKind, assignor: str, make_group: Callable[..., Group]) -> None:
    group = make_group(**SETTINGS)
    for instances in (("a-2", "a-1", "a-10"), ("a-10", "a-2", "a-1")):
        members = [group.start(kind, instance, assignor=assignor, session_ms=3_000) for instance in instances]
        group.await_settled(*members)
        assert {member.instance: member.partitions for member in members} == {
            instance: {(TOPIC, partition) for partition in partitions} for instance, partitions in EXPECTED[assignor].items()
        }
        close_all(members)
        wait_until(lambda: group.describe()[0] == "Empty", 20)
