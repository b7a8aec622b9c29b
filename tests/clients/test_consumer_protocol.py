"""Real clients with `group.protocol=consumer` (KIP-848), whose partitions the coordinator assigns."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from tests.clients.consumer_groups import ConsumerGroup
from tests.clients.members import CONFLUENT, JAVA_CLIENT, ClientKind
from tests.clients.membership import Group

pytestmark = [pytest.mark.clients]

KINDS = (CONFLUENT, JAVA_CLIENT)
CLASSIC, CONSUMER = 0, 1


@pytest.fixture
def group(make_group: Callable[..., Group]) -> ConsumerGroup:
    return cast(ConsumerGroup, make_group(ConsumerGroup))


@pytest.mark.parametrize("assignor", ["uniform", "range"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_members_come_and_go_and_no_record_is_lost_or_read_after_its_commit(kind: ClientKind, assignor: str, group: ConsumerGroup) -> None:
    group.feed.begin()
    first, second = group.start(kind, assignor=assignor), group.start(kind, "second", assignor=assignor)
    group.await_settled(first, second)
    third = group.start(kind, "third", assignor=assignor)
    group.await_settled(first, second, third)
    assert [len(member.partitions) for member in (first, second, third)] == [2, 2, 2]
    first.close()
    group.await_settled(second, third)
    second.await_progress()
    group.feed.end()
    group.await_consumed()
    assert (group.lost(), group.seen_twice_without_need()) == (set(), set())
    assert group.described().assignor_name == assignor


@pytest.mark.parametrize("end", [Group.stop_broker, Group.kill_broker], ids=["stopped", "killed"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_members_keep_their_partitions_when_the_broker_returns(kind: ClientKind, end: Callable[[Group], None], group: ConsumerGroup) -> None:
    members = [group.start(kind, "static"), group.start(kind, "other"), group.start(kind)]
    group.await_settled(*members)
    epoch, partitions = group.generation(), [set(member.partitions) for member in members]
    group.go_through_restarts(members, end)
    assert ([member.partitions for member in members], group.generation()) == (partitions, epoch)
    assert (group.lost(), group.seen_twice(), group.disturbances()) == (set(), set(), {})


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_static_member_that_returns_has_its_partitions(kind: ClientKind, group: ConsumerGroup) -> None:
    stays, leaves = group.start(kind, "stays"), group.start(kind, "leaves")
    group.await_settled(stays, leaves)
    epoch = group.generation()
    leaves.close()
    returned = group.start(kind, "leaves")
    group.await_settled(stays, returned)
    group.feed.send_some(60)
    group.await_consumed()
    assert (returned.partitions, group.generation()) == (leaves.partitions or returned.partitions, epoch)
    assert (group.lost(), group.seen_twice(), group.disturbances()) == (set(), set(), {})


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_group_moves_to_the_consumer_protocol_and_back_without_a_stop(kind: ClientKind, group: ConsumerGroup) -> None:
    group.feed.begin()
    one = group.start(kind, protocol="classic", assignor="cooperative-sticky")
    two = group.start(kind, "two", protocol="consumer", assignor="uniform")
    group.await_settled(one, two)
    assert group.types() == {CLASSIC, CONSUMER}
    one.close()
    group.await_settled(two)
    assert group.types() == {CONSUMER}
    three = group.start(kind, "three", protocol="classic", assignor="cooperative-sticky")
    group.await_settled(two, three)
    assert group.types() == {CLASSIC, CONSUMER}
    three.await_progress()
    group.feed.end()
    group.await_consumed()
    # A commit may be refused while its partition moves: then the next holder reads the record too.
    assert (group.lost(), group.seen_twice_without_need()) == (set(), set())


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_regular_expression_is_resolved_by_the_broker(kind: ClientKind, group: ConsumerGroup) -> None:
    member = group.start(kind, topics=[], pattern="ord(er|al)s$", assignor="uniform")
    group.await_settled(member)
    assert member.partitions == group.partitions
    (described,) = group.described().members
    assert described.subscribed_topic_regex
    assert described.subscribed_topic_names == []
