"""The promises about groups of the consumer protocol: each can be broken, and none is broken by what the protocol allows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

import pytest

from coordinator.consumer.calls import AWAY
from coordinator.consumer.member import STABLE, ConsumerMember, Holding
from simulator.cluster_run import new_run
from simulator.command import plan_for
from simulator.drawing import draw
from simulator.epoch_drawing import ABOUT_FROM, FAULTS, with_epochs
from simulator.epoch_plan import EpochPlan
from simulator.epoch_promises import Epochs, Fences, Holders, Owners, Seat, Seats, Standing, check_fence, may_be_removed
from simulator.explain import reductions
from simulator.world import SECOND, Broken, World
from tests.simulator.test_simulator import at

P, Q = (b"t", 0), (b"t", 1)
READS = (("t",), "", None)
SEAT = Seat("a", 3, frozenset({P, Q}), READS, 10 * SECOND, 0)


def broken(breaks: Callable[[World], None], world: World, name: str) -> None:
    with pytest.raises(Broken) as caught:
        breaks(world)
    assert caught.value.promise.name == name


def epochs(world: World, has_offsets: bool = True) -> Epochs:
    return Epochs(world, lambda group: has_offsets)


@pytest.fixture
def world() -> World:
    return World(0)


# Holders.


@pytest.fixture
def holders(world: World) -> Holders:
    members = {id: ConsumerMember("g", id) for id in ("a", "b")}
    promise = Holders(world, lambda group: members)
    promise.told("g", "a", [P, Q], 2, sure=True)
    return promise


def test_a_partition_that_was_not_given_up_is_not_granted(holders: Holders) -> None:
    holders.owns_only("g", "a", {P})
    holders.told("g", "b", [Q], 3, sure=True)
    with pytest.raises(Broken, match="b gets partition 0"):
        holders.told("g", "b", [P, Q], 3, sure=True)


def test_a_list_that_may_still_arrive_makes_a_holding_uncertain(holders: Holders) -> None:
    holders.told("g", "a", [P], 2, sure=False)
    holders.told("g", "b", [P], 3, sure=True)


def test_a_removed_member_holds_nothing(world: World) -> None:
    members = {id: ConsumerMember("g", id) for id in ("a", "b")}
    promise = Holders(world, lambda group: members)
    promise.told("g", "a", [P], 2, sure=True)
    gone = members.pop("a")
    promise.told("g", "b", [P], 3, sure=True)
    members["a"] = gone
    promise.told("g", "b", [P], 3, sure=True)


def test_a_member_that_a_policy_keeps_holds_its_place_and_not_what_it_was_to_give_up(world: World) -> None:
    members = {id: ConsumerMember("g", id) for id in ("a", "b")}
    promise = Holders(world, lambda group: members)
    promise.told("g", "a", [P, Q], 2, sure=True)
    members["a"].holding = Holding(AWAY, 2, STABLE, {Q[0]: {Q[1]: 2}})
    promise.told("g", "b", [P], 3, sure=True)
    with pytest.raises(Broken, match="b gets partition"):
        promise.told("g", "b", [Q], 3, sure=True)


# Epochs.


BROKEN_EPOCHS: list[Callable[[Epochs], None]] = [
    lambda promise: promise.told("g", "a", 4, 3, SECOND),
    lambda promise: promise.stored("g", 4, 5, {}, False),
    lambda promise: promise.stored("g", 5, 4, {}, False),
    lambda promise: promise.stored("g", 5, 5, {"a": 4}, False),
    lambda promise: promise.stored("g", 6, 5, {}, False),  # without a note
    lambda promise: promise.noted("g", 6, has_cause=False),
    lambda promise: promise.noted("g", 7, has_cause=True),
    lambda promise: promise.joined("g", "b", 4, 2 * SECOND),
]


@pytest.mark.parametrize("number", range(len(BROKEN_EPOCHS)))
def test_epochs_do_not_go_back_and_each_has_a_note(world: World, number: int) -> None:
    promise = epochs(world)
    at(world, 1)
    promise.told("g", "a", 0, 5, SECOND)
    promise.stored("g", 5, 5, {"a": 5}, False)
    at(world, 3)
    with pytest.raises(Broken, match="epochs"):
        BROKEN_EPOCHS[number](promise)


def test_epochs_that_grow_with_notes_are_fine_and_so_is_a_group_that_begins_again(world: World) -> None:
    promise = epochs(world, has_offsets=False)
    promise.stored("g", 5, 5, {"a": 5}, False)
    promise.noted("g", 6, has_cause=True)
    promise.stored("g", 6, 5, {"a": 5}, False)
    promise.told("g", "a", 5, 6, 0)
    promise.stored("g", 8, 8, {"a": 8}, True)
    at(world, 3)
    promise.joined("g", "b", 2, 2 * SECOND)
    promise.told("g", "b", 0, 2, 2 * SECOND)
    promise.stored("g", 2, 2, {"b": 2}, False)


def test_a_stalled_reply_says_nothing_about_a_group_that_has_begun_again(world: World) -> None:
    promise = epochs(world, has_offsets=False)
    promise.told("g", "a", 5, 6, 0)
    at(world, 3)
    promise.joined("g", "b", 2, 2 * SECOND)
    promise.told("g", "a", 6, 7, SECOND)
    promise._surely_has_offsets = lambda group: True
    at(world, 5)
    promise.joined("g", "c", 3, 4 * SECOND)
    promise.told("g", "c", 0, 3, 4 * SECOND)
    at(world, 7)
    with pytest.raises(Broken, match="epochs"):
        promise.joined("g", "d", 2, 6 * SECOND)


# Seats.


def seats(world: World) -> Seats:
    promise = Seats(world)
    promise.goes("g", "i", SEAT)
    promise.is_away("g", "i", 0)
    promise.claimed("g", "i")
    return promise


def test_a_static_member_that_is_back_has_its_partitions(world: World) -> None:
    promise = seats(world)
    seat = promise.certain("g", "i", READS, 0)
    assert seat == SEAT
    promise.returned("g", "b", seat, 3, {P, Q}, (), 0)
    promise.returned("g", "b", seat, 3, set(), (b"t",), 0)
    promise.returned("g", "b", seat, 4, {P}, (), 0)
    broken(lambda world: promise.returned("g", "b", seat, 3, {P}, (), 0), world, "static seats")
    broken(lambda world: promise.refused("g", "b", seat, 111), world, "static seats")
    promise.begun("g", "NEW_MEMBER", ["b"])
    broken(lambda world: promise.returned("g", "b", seat, 4, {P, Q}, (), 0), world, "static seats")


def test_a_seat_is_certain_only_for_the_first_join_within_the_session_and_with_the_same_topics(world: World) -> None:
    promise = seats(world)
    assert promise.certain("g", "i", READS, 14) is None  # loading: nothing was decided
    promise.claimed("g", "i")
    promise.claimed("g", "i")
    assert promise.certain("g", "i", READS, 0) is None
    assert seats(world).certain("g", "i", (("u",), "", None), 0) is None
    late = seats(world)
    at(world, 10)
    assert late.certain("g", "i", READS, 0) is None


# Owners and fences.


def test_only_the_last_member_with_an_instance_id_succeeds(world: World) -> None:
    promise = Owners(world)
    promise.joined("g", "i", "a", 0)
    at(world, 1)
    promise.joined("g", "i", "b", SECOND)
    promise.succeeded("g", "i", "a", SECOND)
    broken(lambda world: promise.succeeded("g", "i", "a", 2 * SECOND), world, "owners of instances")
    at(world, 3)
    promise.joined("g", "i", "a", 2 * SECOND)
    promise.succeeded("g", "i", "a", 4 * SECOND)


STANDING = Standing("g", "a", 10 * SECOND, -1, True, -1, -1)


@pytest.mark.parametrize(
    ("standing", "now", "code", "allowed"),
    [
        (STANDING, 12, 110, False),
        (STANDING, 12, 25, False),
        (STANDING, 16, 25, True),  # the session may have ended
        (STANDING._replace(told_to_revoke=5 * SECOND), 12, 25, True),
        (STANDING._replace(told_to_revoke=9 * SECOND), 12, 25, False),
        (STANDING._replace(removed_at=11 * SECOND), 12, 25, True),
        (STANDING._replace(removed_at=9 * SECOND), 12, 25, False),
        (STANDING._replace(lost_until=10 * SECOND), 12, 110, True),
        (STANDING._replace(sure=False), 12, 110, True),
        (STANDING._replace(sure=False), 12, 25, False),
    ],
)
def test_a_member_is_fenced_only_for_a_reason(standing: Standing, now: int, code: int, allowed: bool) -> None:
    with nullcontext() if allowed else pytest.raises(Broken, match=f"^{Fences.promise.name}"):
        check_fence(standing, 6 * SECOND, 6 * SECOND, now * SECOND, code, "a heartbeat")
    assert may_be_removed(STANDING, 6 * SECOND, 6 * SECOND, 16 * SECOND)


# Runs.


def test_groups_of_the_consumer_protocol_leave_the_other_draws_as_they_are() -> None:
    for seed in (1, 2, 4, 5):
        plan, before = with_epochs(draw(seed)), draw(seed)
        assert plan.epochs is not None
        assert replace(plan, epochs=None, faults=before.faults, broker=before.broker) == before


def test_a_plan_can_be_made_smaller_in_its_groups_of_the_consumer_protocol() -> None:
    plan = plan_for(ABOUT_FROM, None)
    smaller = [each.epochs for each in reductions(plan, "e0") if each.epochs is not None and each.epochs != plan.epochs]
    assert plan.epochs is not None
    assert any(len(each.groups) == 1 for each in smaller)
    assert any(sum(group.static + group.dynamic for group in each.groups) + 1 == members(plan.epochs) for each in smaller)
    without = [each for each in reductions(plan, "g0") if each.epochs is None]
    assert without
    assert not set(FAULTS) & {fault for each in without for fault in each.faults}


def members(plan: EpochPlan) -> int:
    return sum(group.static + group.dynamic for group in plan.groups)


def test_a_run_about_the_consumer_protocol_keeps_every_promise_and_moves_partitions() -> None:
    run = new_run(replace(plan_for(ABOUT_FROM, None), safety_seconds=30))
    run.run()
    assert run.world.counts["ConsumerGroupHeartbeat 111"]
    assert sum("consumes" in line.text for line in run.world.lines) > 20
