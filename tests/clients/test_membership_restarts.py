"""The broker restarts under active consumers, separately for each client library: they keep their partitions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.clients.members import KINDS, ClientKind
from tests.clients.membership import Group

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]


@pytest.mark.parametrize("end", [Group.stop_broker, Group.kill_broker], ids=["stopped", "killed"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_members_keep_their_seats_when_the_broker_returns(kind: ClientKind, end: Callable[[Group], None], group: Group) -> None:
    """Messages are sent all the while. None is lost or read twice: members keep their own positions and retry commits."""
    members = [group.start(kind, "static"), group.start(kind, "other"), group.start(kind)]
    group.await_settled(*members)
    generation, rebalances = group.generation(), group.rebalances()
    partitions = [set(member.partitions) for member in members]
    group.go_through_restarts(members, end)
    assert [member.partitions for member in members] == partitions
    assert (group.generation(), group.rebalances()) == (generation, rebalances)
    assert (group.lost(), group.seen_twice(), group.disturbances()) == (set(), set(), {})


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_static_member_that_restarts_while_the_broker_is_away_has_its_seat(kind: ClientKind, group: Group) -> None:
    """This includes a member that was killed, which continues at its committed offsets."""
    stays, leaves = group.start(kind, "stays"), group.start(kind, "leaves", alone=True)
    group.await_settled(stays, leaves)
    generation, rebalances = group.generation(), group.rebalances()
    group.feed.send_some(60)
    group.await_consumed()
    group.kill_broker()
    leaves.kill()
    group.start_broker()
    returned = group.start(kind, "leaves")
    group.feed.send_some(60)
    group.await_consumed()
    assert returned.partitions == leaves.partitions
    assert (group.generation(), group.rebalances()) == (generation, rebalances)
    assert (group.lost(), group.seen_twice(), group.disturbances()) == (set(), set(), {})
