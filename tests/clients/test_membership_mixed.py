"""Members of every kind of client in one group, and cooperative-sticky for those that support it."""

from __future__ import annotations

import pytest

from tests.clients.members import KINDS, ClientKind, Member, TopicPartition
from tests.clients.membership import Group

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

COOPERATIVE = [kind for kind in KINDS if kind.cooperative]


def test_members_of_every_kind_join_and_leave_and_each_kind_leads_once(group: Group) -> None:
    """Members leave in the order in which they joined, so a member of each kind is the oldest, and leads, at some time."""
    present: list[Member] = []
    group.feed.begin()
    for kind in KINDS:
        present.append(group.start(kind))
        group.await_settled(*present)
    for kind in KINDS:
        present.pop(0).close()
        group.await_settled(*present)
        present.append(group.start(kind))
        group.await_settled(*present)
    for member in present:
        member.await_progress()
    group.feed.end()
    group.await_consumed()
    assert (group.lost(), group.seen_twice()) == (set(), set())


def test_static_members_of_every_kind_in_one_group_restart_and_survive_the_broker_without_a_rebalance(group: Group) -> None:
    members = [group.start(kind, f"seat-of-{kind}") for kind in KINDS]
    group.await_settled(*members)
    generation, rebalances = group.generation(), group.rebalances()
    group.feed.begin()
    for number, kind in enumerate(KINDS):
        partitions = set(members[number].partitions)
        members[number].close()
        members[number] = group.start(kind, f"seat-of-{kind}")
        members[number].await_progress()
        assert members[number].partitions == partitions
    group.kill_broker()
    group.start_broker()
    for member in members:
        member.await_progress()
    group.feed.end()
    group.await_consumed()
    assert (group.generation(), group.rebalances()) == (generation, rebalances)
    assert (group.lost(), group.seen_twice(), group.disturbances()) == (set(), set(), {})


def test_an_instance_id_moves_from_one_kind_of_client_to_another(group: Group) -> None:
    """As when an application is rewritten with another client: the instance keeps its partitions and offsets."""
    member = group.start(KINDS[0], "seat")
    group.await_settled(member)
    before = group.generation(), group.rebalances()
    for kind in KINDS[1:]:
        group.feed.send_some(30)
        group.await_consumed()
        member.close()
        member = group.start(kind, "seat")
    group.feed.send_some(30)
    group.await_consumed()
    assert (group.generation(), group.rebalances()) == before, group.state_changes()
    assert (group.lost(), group.seen_twice()) == (set(), set())


def revoked(member: Member, since: int) -> set[TopicPartition]:
    return {(topic, partition) for event in member.events_named("revoked", "lost", since=since) for topic, partition in event["partitions"]}


def test_cooperative_members_keep_the_partitions_that_do_not_move(cooperative_kinds: tuple[ClientKind, ClientKind, ClientKind], group: Group) -> None:
    """Three of six partitions move to the second member, then one from each to the third; a static restart moves none."""
    first_kind, second_kind, third_kind = cooperative_kinds
    group.feed.begin()
    first = group.start(first_kind, "first", assignor="cooperative-sticky")
    group.await_settled(first)
    before = len(first.events)
    second = group.start(second_kind, "second", assignor="cooperative-sticky")
    group.await_settled(first, second)
    assert revoked(first, before) == second.partitions
    assert len(second.partitions) == 3
    marks = [(member, len(member.events), set(member.partitions)) for member in (first, second)]
    third = group.start(third_kind, assignor="cooperative-sticky")
    group.await_settled(first, second, third)
    for member, before, held in marks:
        assert len(held & member.partitions) == 2
        assert revoked(member, before) == held - member.partitions
    assert third.partitions == group.partitions - first.partitions - second.partitions
    generation, rebalances = group.generation(), group.rebalances()
    partitions = set(second.partitions)
    second.await_progress()
    second.close()
    second = group.start(second_kind, "second", assignor="cooperative-sticky")
    second.await_progress()
    assert second.partitions == partitions
    assert (group.generation(), group.rebalances()) == (generation, rebalances)
    partitions_before = set(first.partitions)
    before = len(first.events)
    third.close()
    group.await_settled(first, second)
    assert partitions_before <= first.partitions
    assert revoked(first, before) == set()
    group.feed.end()
    group.await_consumed()
    assert (group.lost(), group.seen_twice_without_need()) == (set(), set())


@pytest.fixture(params=[*[(kind, kind, kind) for kind in COOPERATIVE], tuple(COOPERATIVE)], ids=[*map(str, COOPERATIVE), "together"])
def cooperative_kinds(request: pytest.FixtureRequest) -> tuple[ClientKind, ClientKind, ClientKind]:
    kinds: tuple[ClientKind, ClientKind, ClientKind] = request.param
    return kinds
