"""Warm standbys with real clients: a crash costs no generation, and the standby reads on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.clients.members import KINDS, ClientKind
from tests.clients.membership import Group

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

SETTINGS = {"group_policy_target_group_size": "2", "group_min_session_timeout_ms": "2000"}
SESSION_MS = 3_000


@pytest.mark.parametrize("crashes", [0, 1], ids=["leader", "follower"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_standby_reads_what_a_crashed_member_read_without_a_new_generation(
    kind: ClientKind, crashes: int, make_group: Callable[..., Group]
) -> None:
    group = make_group(**SETTINGS)
    options: dict[str, Any] = {"session_ms": SESSION_MS, "assignor": "cooperative-sticky" if kind.cooperative and crashes else "range"}
    members = [group.start(kind, f"c-{number}", alone=number == crashes, **options) for number in range(2)]
    group.await_settled(*members)
    standby = group.start(kind, "c-2", **options)
    group.await_settled(*members, standby)
    assert not standby.partitions
    generation, rebalances = group.generation(), group.rebalances()
    group.feed.send_some(60)
    group.await_consumed()
    crashed, survivor = members[crashes], members[1 - crashes]
    partitions = set(crashed.partitions)
    partitions_before = set(survivor.partitions)
    crashed.kill()
    group.feed.send_some(60)
    group.await_consumed()
    group.await_settled(survivor, standby)
    assert (standby.partitions, survivor.partitions) == (partitions, partitions_before)
    assert (group.generation(), group.rebalances()) == (generation, rebalances)
    assert (group.lost(), group.seen_twice()) == (set(), set())
    # The crashed member returns as a standby.
    returned = group.start(kind, f"c-{crashes}", **options)
    group.await_settled(survivor, standby, returned)
    assert not returned.partitions
    assert (group.generation(), group.rebalances()) == (generation, rebalances)
