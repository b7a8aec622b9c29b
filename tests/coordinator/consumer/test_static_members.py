"""Static members: away and back, under a new member id or the old one; doubles, and members of an instance that went for good."""

from __future__ import annotations

from tests.coordinator.consumer.playing import Play, error, ok, partitions
from tests.coordinator.scenarios import scenario


def settled(play: Play) -> None:
    """The static a and the dynamic b share the partitions, at epoch 3."""
    play.join("a", "t", instance="ia")
    play.join("b", "t")
    play.settle_members("a", "b")
    assert play.epochs_shown == ("Stable", 3, 3)


@scenario("CP-13")
def test_a_member_that_is_back_under_a_new_id_gets_its_partitions_without_a_new_epoch(play: Play) -> None:
    settled(play)
    before = play.shown("a")
    assert play.poll("a", -2) == ok(-2, None, interval=0)
    assert play.epochs_shown == ("Reconciling", 3, 3)
    assert play.join("a'", "t", instance="ia") == ok(3, before["assigned"], "a'")
    assert play.epochs_shown == ("Stable", 3, 3)
    assert (play.poll("a"), play.say("a", 3)) == (error(82), error(25))
    assert play.shown("a'") == before


@scenario("CP-14")
def test_a_member_that_is_back_under_its_old_id_too(play: Play) -> None:
    settled(play)
    before = play.shown("a")["assigned"]
    play.poll("a", -2)
    assert play.poll("a") == error(110)  # while it is away
    assert play.join("a", "t", instance="ia") == ok(3, before)


@scenario("CP-15")
def test_a_member_that_is_back_with_other_topics_is_a_new_epoch(play: Play) -> None:
    play.topic("u", 2)
    settled(play)
    play.poll("a", -2)
    play.join("a'", "t", "u", instance="ia")
    assert play.group.epoch == 4


@scenario("CP-16")
def test_the_double_of_a_member_that_has_not_left_is_refused_also_under_the_same_id(play: Play) -> None:
    settled(play)
    assert play.join("x", "t", instance="ia") == error(111)
    assert play.join("a", "t", instance="ia") == error(111)
    assert play.say("x", 3, instance="ia") == error(82)
    assert play.say("x", -1, instance="ia") == error(82)
    assert play.say("x", -2, instance="ia") == error(82)
    assert play.poll("a") == ok(3, None)


@scenario("CP-17")
def test_only_a_member_with_an_instance_id_can_go_and_be_back(play: Play) -> None:
    settled(play)
    assert play.say("a", -2) == error(42)
    assert play.say("a", -3, instance="ia") == error(42)
    assert play.poll("a") == ok(3, None)


@scenario("CP-18")
def test_a_static_member_that_leaves_is_removed(play: Play) -> None:
    settled(play)
    assert play.poll("a", -1) == ok(-1, None, interval=0)
    assert play.group.epoch == 4
    assert play.say("a", -2, instance="ia") == error(25)
    play.join("a", "t", instance="ia")
    assert play.say("a", -1)["error"] == 0  # also without its instance id
    assert play.group.epoch == 6


@scenario("CP-19")
def test_a_member_that_is_away_keeps_its_target_when_another_comes(play: Play) -> None:
    settled(play)
    kept = play.shown("a")["assigned"]
    play.poll("a", -2)
    play.join("c", "t")
    play.settle_members("b", "c")
    assert play.shown("a")["assigned"] == kept
    assert play.shown("a")["target"] != {}
    assert play.epochs_shown == ("Reconciling", 4, 4)


@scenario("CP-19")
def test_a_member_that_goes_away_frees_what_it_was_told_to_give_up(play: Play) -> None:
    play.join("a", "t", instance="ia")
    play.join("b", "t")
    play.poll("a")
    play.poll("a", -2)
    assert sorted(play.poll("b")["assigned"]["t"]) == sorted(set(range(4)) - set(play.shown("a")["assigned"]["t"]))


def test_a_dynamic_member_joins_again_as_a_static_one(play: Play) -> None:
    play.join("a", "t")
    assert play.join("a", "t", instance="ia") == ok(2, partitions(0, 1, 2, 3))
    assert play.group.epoch == 2
    assert play.shown("a")["instance"] == "ia"


def test_a_static_member_joins_again_without_its_instance_id(play: Play) -> None:
    settled(play)
    assert play.say("a", 0, timeout=1_000, topics=["t"], owned={}) == ok(3, play.shown("a")["assigned"])
    assert play.shown("a")["instance"] == "ia"
