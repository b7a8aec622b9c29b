"""Each promise of policy_promises.py, with events that break it and events that do not."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace as Some
from typing import Any

import pytest

from coordinator.notes import Cause
from coordinator.policies.declaration import GroupPolicies
from coordinator.states import STABLE
from simulator.policy_promises import Absences, Arrivals, RebalanceRequests, Roster, Seats, SubscriptionChanges, WithoutPolicy
from simulator.policy_settings import APPEND, DELETE, SET, SUBTRACT, Change, PolicySettings, policies_after
from simulator.policy_watch import PolicyWatch
from simulator.promises import Sessions
from simulator.world import SECOND, Broken, World

pytestmark = pytest.mark.once


class PolicySetup:
    """A world in which the group "g" has policies."""

    def __init__(self) -> None:
        self.world = World(1)
        self.settings = PolicySettings(self.world, GroupPolicies())

    def at(self, seconds: float) -> int:
        self.world.now = round(seconds * SECOND)
        return self.world.now

    def set(self, **values: str) -> None:
        changes = [Change(name.replace("_", "."), SET, value) for name, value in values.items()]
        self.settings.acknowledged(self.settings.send("g", changes))
        self.world.now += SECOND


@pytest.fixture
def policy_setup() -> PolicySetup:
    return PolicySetup()


def away(policy_setup: PolicySetup, *since: float) -> Absences:
    """Members m0, m1, ... have been away since these moments; registration.timeout.ms is 10 s."""
    policy_setup.set(registration_timeout_ms="10000")
    absences = Absences(policy_setup.world, policy_setup.settings)
    for number, seconds in enumerate(since):
        moment = policy_setup.at(seconds)
        absences.went_away("g", f"m{number}", f"i{number}", moment, moment)
    return absences


def an_absence_that_ends_early(policy_setup: PolicySetup) -> None:
    away(policy_setup, 10).removed("g", "m0", policy_setup.at(19.9), True, -1, 0)


def an_absence_that_ends_soon_after_a_load(policy_setup: PolicySetup) -> None:
    away(policy_setup, 10).removed("g", "m0", policy_setup.at(21), True, policy_setup.at(16), 6 * SECOND)


def absences_that_end_one_by_one(policy_setup: PolicySetup) -> None:
    absences = away(policy_setup, 10, 15)
    absences.removed("g", "m0", policy_setup.at(20), True, -1, 0)
    absences.other_note("g", policy_setup.at(20))


def an_absence_that_ends_late(policy_setup: PolicySetup) -> None:
    absences = away(policy_setup, 10, 18)
    policy_setup.at(21)
    absences.check("g", 0)
    policy_setup.at(22)
    absences.check("g", 0)


def an_absence_that_begins_again(policy_setup: PolicySetup) -> None:
    absences = away(policy_setup, 10)
    absences.forget()
    absences.went_away("g", "m0", "i0", policy_setup.at(15), policy_setup.at(15))


def a_removal_at_the_end_of_the_session(policy_setup: PolicySetup) -> None:
    away(policy_setup).expired("g", "m0", policy_setup.at(10))


def two_rebalances_for_newcomers(policy_setup: PolicySetup) -> None:
    policy_setup.set(expansion_timeout_ms="5000")
    arrivals = Arrivals(policy_setup.world, policy_setup.settings)
    arrivals.rebalance("g", Cause.EXPANSION, policy_setup.at(10), 0, 60 * SECOND)
    arrivals.rebalance("g", Cause.EXPANSION, policy_setup.at(15), 0, 60 * SECOND)
    arrivals.rebalance("g", Cause.EXPANSION, policy_setup.at(17), 0, 60 * SECOND)


def a_wait_that_did_not_begin_again(policy_setup: PolicySetup) -> None:
    policy_setup.set(expansion_timeout_ms="5000")
    arrivals = Arrivals(policy_setup.world, policy_setup.settings)
    arrivals.rebalance("g", Cause.EXPANSION, policy_setup.at(12), policy_setup.at(8), 60 * SECOND)


def a_newcomer_that_waits_too_long(policy_setup: PolicySetup) -> None:
    policy_setup.set(expansion_timeout_ms="5000")
    arrivals = Arrivals(policy_setup.world, policy_setup.settings)
    arrivals.newcomer_waits("g", "c", 10 * SECOND, policy_setup.at(15.9))
    arrivals.newcomer_waits("g", "c", 10 * SECOND, policy_setup.at(16.1))


def more_seats_than_the_target(policy_setup: PolicySetup) -> None:
    policy_setup.set(target_group_size="2")
    seats = Seats(policy_setup.world, policy_setup.settings)
    seats.listed("g", 2, policy_setup.at(10))
    seats.listed("g", 3, policy_setup.at(10))


def two_holders_of_a_seat(policy_setup: PolicySetup) -> None:
    seats = Seats(policy_setup.world, policy_setup.settings)
    policy_setup.at(10)
    seats.held("g", 1, b"seat", "a", 9 * SECOND, -1)
    seats.succeeded("g", "a", 11 * SECOND, "Heartbeat")
    policy_setup.at(12)
    seats.held("g", 1, b"seat", "b", 11 * SECOND, -1)
    seats.succeeded("g", "a", 11 * SECOND, "Heartbeat")  # allowed, as it was sent before b was told that it holds the seat
    seats.succeeded("g", "a", 13 * SECOND, "Heartbeat")


def a_holder_that_is_not_fenced_yet(policy_setup: PolicySetup) -> None:
    seats = Seats(policy_setup.world, policy_setup.settings)
    policy_setup.at(10)
    seats.held("g", 1, b"seat", "a", 9 * SECOND, -1)
    seats.succeeded("g", "a", 15 * SECOND, "Heartbeat")
    policy_setup.at(16)
    seats.held("g", 1, b"seat", "b", 15 * SECOND, 14 * SECOND)


def a_rebalance_although_a_standby_is_free(policy_setup: PolicySetup) -> None:
    seats = Seats(policy_setup.world, policy_setup.settings)
    seats.set_free_standbys("g", ["b"])
    seats.rebalance("g", Cause.SESSION_EXPIRED, 2, True)
    seats.set_free_standbys("g", ["b"])
    seats.rebalance("g", Cause.SESSION_EXPIRED, 1, True)


def a_target_that_has_not_changed(policy_setup: PolicySetup) -> None:
    policy_setup.set(target_group_size="2")
    seats = Seats(policy_setup.world, policy_setup.settings)
    seats.rebalance("g", Cause.TARGET_CHANGED, 0, True)
    policy_setup.at(10)
    seats.assigned("g")
    seats.rebalance("g", Cause.TARGET_CHANGED, 0, True)


def an_unlisted_member(policy_setup: PolicySetup) -> None:
    policy_setup.set(instance_ids="i[0-1]", roster_strict="true")
    roster = Roster(policy_setup.world, policy_setup.settings)
    roster.succeeded("g", "c", "i1", policy_setup.world.now, "Heartbeat")
    roster.succeeded("g", "c", None, 0, "Heartbeat")  # allowed, as it was sent before the list became strict
    roster.succeeded("g", "c", None, policy_setup.world.now, "Heartbeat")


def a_listed_member_refused(policy_setup: PolicySetup) -> None:
    policy_setup.set(instance_ids="i[0-1]", roster_strict="true")
    roster = Roster(policy_setup.world, policy_setup.settings)
    roster.refused("g", "c", "i2", policy_setup.world.now)
    roster.refused("g", "c", "i1", policy_setup.world.now)


def a_request_that_acts_twice(policy_setup: PolicySetup) -> None:
    requests = RebalanceRequests(policy_setup.world)
    requests.send("g", [Change("rebalance.request", SET, "grown")])
    requests.rejoin_noted("g", "grown")
    requests.acknowledged("g", [Change("rebalance.request", SET, "grown")], 0, True)
    requests.rejoin_noted("g", "grown")


def a_request_that_does_not_act(policy_setup: PolicySetup) -> None:
    requests = RebalanceRequests(policy_setup.world)
    change = Change("rebalance.request", SET, "grown")
    requests.send("g", [change])
    requests.acknowledged("g", [change], policy_setup.at(1), False)
    requests.acknowledged("g", [change], policy_setup.at(1), True)


def other_topics_without_a_rebalance(policy_setup: PolicySetup) -> None:
    returns = SubscriptionChanges(policy_setup.world, policy_setup.settings)
    returns.returned_without_rebalance("g", "m", policy_setup.world.now)
    policy_setup.set(subscription_change="rebalance")
    returns.returned_without_rebalance("g", "m", policy_setup.world.now)


def a_policy_that_was_never_set(policy_setup: PolicySetup) -> None:
    without_policy = WithoutPolicy(policy_setup.settings)
    policy_setup.set(roster_timeout_ms="1000", instance_ids="a")
    without_policy.shows("g", "EXPANSION", "expansion.timeout.ms", "roster.timeout.ms")
    without_policy.shows("g", "an absence", "registration.timeout.ms")


def a_lost_policy(policy_setup: PolicySetup) -> None:
    policy_setup.set(pending_release="true")
    policy_setup.settings.used("g", {"pending.release": "true"})
    policy_setup.settings.used("g", {})


def a_read_that_does_not_know_what_was_read_before(policy_setup: PolicySetup) -> None:
    sent = policy_setup.settings.send("g", [Change("pending.release", SET, "true")])
    policy_setup.settings.used("g", {})
    policy_setup.settings.unknown(sent)
    policy_setup.settings.read("g", {"pending.release": "true"})
    policy_setup.settings.read("g", {})


@pytest.mark.parametrize(
    "break_it",
    [
        an_absence_that_ends_early,
        an_absence_that_ends_soon_after_a_load,
        absences_that_end_one_by_one,
        an_absence_that_ends_late,
        an_absence_that_begins_again,
        a_removal_at_the_end_of_the_session,
        two_rebalances_for_newcomers,
        a_wait_that_did_not_begin_again,
        a_newcomer_that_waits_too_long,
        more_seats_than_the_target,
        two_holders_of_a_seat,
        a_holder_that_is_not_fenced_yet,
        a_rebalance_although_a_standby_is_free,
        a_target_that_has_not_changed,
        an_unlisted_member,
        a_listed_member_refused,
        a_request_that_acts_twice,
        a_request_that_does_not_act,
        other_topics_without_a_rebalance,
        a_policy_that_was_never_set,
        a_lost_policy,
        a_read_that_does_not_know_what_was_read_before,
    ],
)
def test_a_broken_promise_is_noticed_at_its_last_step(policy_setup: PolicySetup, break_it: Callable[[PolicySetup], None]) -> None:
    with pytest.raises(Broken) as broken:
        break_it(policy_setup)
    code = break_it.__code__
    assert broken.traceback[1].lineno + 1 == max(line for _, _, line in code.co_lines() if line is not None)


def test_a_standby_may_be_removed_at_the_end_of_its_session_until_a_rebalance_without_a_target_ends(policy_setup: PolicySetup) -> None:
    absences = away(policy_setup)
    policy_setup.set(target_group_size="1")
    policy_setup.settings.acknowledged(policy_setup.settings.send("g", [Change("target.group.size", DELETE, None)]))
    absences.expired("g", "m0", policy_setup.at(100))
    absences.rebalance_ended("g", policy_setup.at(110))
    with pytest.raises(Broken, match="instead of being away"):
        absences.expired("g", "m0", policy_setup.at(180))



def test_absences_that_end_in_time_and_together_keep_the_promise(policy_setup: PolicySetup) -> None:
    absences = away(policy_setup, 10, 15)
    absences.removed("g", "m0", policy_setup.at(20), True, policy_setup.at(10), 6 * SECOND)
    absences.removed("g", "m1", policy_setup.at(20), True, policy_setup.at(10), 6 * SECOND)
    absences.other_note("g", policy_setup.at(20))
    policy_setup.at(60)
    absences.check("g", 0)


@pytest.mark.parametrize("durable", [3, 2])
def test_a_request_is_held_against_a_group_only_when_the_notes_of_its_last_step_are_known(policy_setup: PolicySetup, durable: int) -> None:
    hold = Some(durable=durable, emitted=3, held=[])
    shard = Some(groups={"g": Some(state=STABLE)}, hold=hold)
    node = Some(serving=True, broker=Some(shards=Some(journal_of=lambda group: Some(shard=shard))))
    plan: Any = Some(broker={}, policies=None, nodes=1)
    course: Any = Some(node=node)
    coordinators: Any = Some(served_since=lambda group, moment: True)
    watch = PolicyWatch(policy_setup.world, plan, course, coordinators, [], Sessions(policy_setup.world))
    request = [Change("rebalance.request", SET, "grown")]
    if durable == 3:
        with pytest.raises(Broken):
            watch.request_acknowledged("g", request, policy_setup.at(1))
    else:
        watch.request_acknowledged("g", request, policy_setup.at(1))


def test_a_power_failure_lifts_the_promise_of_policies_for_its_last_moments(policy_setup: PolicySetup) -> None:
    policy_setup.set(pending_release="true")
    policy_setup.at(10)
    policy_setup.set(pending_release="false")
    policy_setup.settings.lost_since(9 * SECOND)
    policy_setup.settings.used("g", {"pending.release": "true"})
    with pytest.raises(Broken):
        policy_setup.settings.used("g", {})


def test_an_operator_knows_the_effects_of_its_changes() -> None:
    texts = policies_after((), [Change("instance.ids", SET, "i[0-2]"), Change("roster.strict", SET, "true")])
    texts = policies_after(texts, [Change("instance.ids", SUBTRACT, "i1"), Change("instance.ids", APPEND, "x")])
    assert dict(texts)["instance.ids"].split(",") == ["i0", "i2", "x"]
    assert policies_after(texts, [Change("instance.ids", SUBTRACT, "i0,i2,x"), Change("roster.strict", DELETE, None)]) == ()
