"""The prediction of a removal, computed from a described group."""

from __future__ import annotations

import pytest

from cli.client import TopicPartition
from cli.groups.described import Group, GroupMember
from cli.groups.removal import RemovalPrediction, predict


def member(id: str, *assigned: int, instance: str | None = None, topics: tuple[str, ...] = ("t",)) -> GroupMember:
    return GroupMember(id, instance, "client", "host", topics, tuple(("t", partition) for partition in assigned))


def group(*members: GroupMember, protocol: str = "range", state: str = "Stable", type: str = "classic") -> Group:
    return Group("g", state, type, "consumer", protocol, 1, members)


def moves(removal: RemovalPrediction) -> dict[TopicPartition, str | None]:
    return {move.partition: move.after.member_id if move.after else "?" if not move.known else None for move in removal.moves}


def test_a_removal_moves_partitions_as_range_does() -> None:
    before = group(member("a", 0, 1), member("b", 2, 3), member("c", 4, 5))
    removal = predict(before, [before.members[0]], {"t": 6})
    assert removal.rebalances
    assert removal.stops_staying_members
    # range gives b partitions 0 to 2 and c 3 to 5, so partition 3 moves from b to c
    assert moves(removal) == {("t", 0): "b", ("t", 1): "b", ("t", 3): "c"}


def test_static_members_come_first_in_javas_order() -> None:
    before = group(member("a", 3), member("z", 0, 1, instance="z1"), member("y", 2, instance="z2"))
    removal = predict(before, [before.members[2]], {"t": 4})
    assert moves(removal) == {("t", 2): "a"}


def test_a_removal_moves_partitions_as_round_robin_does() -> None:
    before = group(member("a", 0, 3), member("b", 1), member("c", 2), protocol="roundrobin")
    removal = predict(before, [before.members[2]], {"t": 4})
    assert moves(removal) == {("t", 2): "a", ("t", 3): "b"}


def test_moves_of_an_unknown_assignor_are_not_predicted() -> None:
    before = group(member("a", 5, 1), member("b", 2, 3), member("c", 4, 0))
    removal = predict(before, [before.members[0]], {"t": 6})
    assert moves(removal) == {("t", 1): "?", ("t", 5): "?"}


def test_moves_of_an_unknown_topic_are_not_predicted() -> None:
    before = group(member("a", 0, 1), member("b", 2, 3))
    assert moves(predict(before, [before.members[0]], {})) == {("t", 0): "b", ("t", 1): "b"}  # the only remaining member must get them
    three = group(member("a", 0), member("b", 1), member("c", 2))
    assert moves(predict(three, [three.members[0]], {})) == {("t", 0): "?"}


def test_the_last_member_gets_only_subscribed_topics() -> None:
    before = group(member("a", 0), member("b", topics=("other",)), protocol="sticky")
    assert moves(predict(before, [before.members[0]], {"t": 1, "other": 1})) == {("t", 0): "?"}


def test_eager_sticky_members_stop_and_cooperative_members_do_not() -> None:
    for protocol, stops in (("sticky", True), ("cooperative-sticky", False)):
        before = group(member("a", 0), member("b", 1), member("c", 2), protocol=protocol)
        removal = predict(before, [before.members[0]], {"t": 3})
        assert removal.stops_staying_members is stops
        assert moves(removal) == {("t", 0): "?"}


def test_groups_of_kip_848_do_not_stop() -> None:
    before = group(member("a", 0), member("b", 1), protocol="uniform", type="consumer")
    removal = predict(before, [before.members[0]], {"t": 2})
    assert not removal.stops_staying_members
    assert moves(removal) == {("t", 0): "b"}


def test_a_group_without_remaining_members_does_not_rebalance() -> None:
    before = group(member("a", 0), member("b", 1))
    removal = predict(before, before.members, {"t": 2})
    assert not removal.rebalances
    assert not removal.stops_staying_members
    assert moves(removal) == {("t", 0): None, ("t", 1): None}


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance"])
def test_moves_of_a_rebalancing_group_are_not_predicted(state: str) -> None:
    before = group(member("a"), member("b"), member("c"), state=state)
    assert moves(predict(before, [before.members[0]], {"t": 3})) == {}


# Standbys (policy target.group.size)


def seats(removal: RemovalPrediction) -> list[tuple[str, str]]:
    return [(seat.removed.member_id, seat.standby.member_id) for seat in removal.take_overs]


def test_the_removal_of_a_standby_causes_no_rebalance() -> None:
    before = group(member("a", 0, 1), member("b", 2, 3), member("s"))
    removal = predict(before, [before.members[2]], {"t": 4}, [before.members[2]])
    assert not removal.rebalances
    assert not removal.stops_staying_members
    assert (removal.moves, removal.take_overs, removal.active) == ([], [], 2)


def test_the_longest_waiting_standby_with_the_same_topics_takes_the_seat() -> None:
    before = group(member("a", 0, 1), member("b", 2, 3), member("s1", topics=("u",)), member("s2"), member("s3"))
    removal = predict(before, [before.members[0]], {"t": 4, "u": 1}, [before.members[2], before.members[4], before.members[3]])
    assert (removal.rebalances, removal.stops_staying_members, seats(removal), removal.full) == (False, False, [("a", "s3")], True)
    assert moves(removal) == {("t", 0): "s3", ("t", 1): "s3"}


def test_seats_go_in_the_order_of_removals_to_standbys_that_are_not_removed() -> None:
    before = group(member("a", 0), member("b", 1), member("s1"), member("s2"), member("s3"))
    a, b, s1, s2, s3 = before.members
    removal = predict(before, [b, s1, a], {"t": 2}, [s1, s2, s3])
    assert (removal.rebalances, seats(removal)) == (False, [("b", "s2"), ("a", "s3")])


def test_too_few_standbys_are_active_after_a_rebalance() -> None:
    before = group(member("a", 0, 1), member("b", 2, 3), member("c", 4, 5), member("s"))
    removal = predict(before, before.members[:2], {"t": 6}, before.members[3:])
    assert removal.rebalances
    assert removal.stops_staying_members
    assert (removal.take_overs, removal.active, removal.full) == ([], 1, False)
    assert moves(removal) == {("t", 0): "c", ("t", 1): "c", ("t", 2): "c", ("t", 3): "s", ("t", 4): "s", ("t", 5): "s"}


def test_a_standby_with_other_topics_is_active_after_a_rebalance() -> None:
    before = group(member("a", 0, 1), member("b", 2, 3), member("s", topics=("t", "u")))
    removal = predict(before, [before.members[0]], {"t": 4, "u": 1}, [before.members[2]])
    assert (removal.rebalances, removal.take_overs, removal.full) == (True, [], True)
    assert moves(removal) == {("t", 0): "b", ("t", 1): "b", ("t", 2): "s", ("t", 3): "s"}


@pytest.mark.parametrize(("state", "leaving", "rebalances"), [("CompletingRebalance", "s", False), ("CompletingRebalance", "a", True), ("PreparingRebalance", "s", True)])
def test_no_standby_takes_a_seat_during_a_rebalance(state: str, leaving: str, rebalances: bool) -> None:
    before = group(member("a"), member("b"), member("s"), state=state)
    removal = predict(before, [one for one in before.members if one.member_id == leaving], {"t": 2}, [before.members[2]])
    assert (removal.rebalances, removal.take_overs) == (rebalances, [])


def test_a_group_without_remaining_members_has_no_take_over() -> None:
    before = group(member("a", 0), member("s"))
    removal = predict(before, before.members, {"t": 1}, [before.members[1]])
    assert (removal.rebalances, removal.take_overs, moves(removal)) == (False, [], {("t", 0): None})
