"""Policies of groups of the consumer protocol: those that apply, and those that are refused or without effect."""

from __future__ import annotations

import pytest

from coordinator import GroupConfig
from coordinator.consumer.config import ConsumerConfig
from coordinator.notes import Cause, Note
from coordinator.policies.door import ORDER, POLICIES, resolve
from coordinator.policies.hooks import PolicyRules
from history.causes import CAUSES
from protocol.messages.coordinator_notes import EpochNote
from tests.coordinator.consumer.playing import Play, error, ok, partitions
from tests.coordinator.consumer.programs import GROUP

SESSION = 45_000
KEPT = {"registration.timeout.ms": "60000"}


@pytest.fixture
def play() -> Play:
    """A group with room for members of both protocols, and a topic with four partitions."""
    play = Play(GroupConfig(group_initial_rebalance_delay_ms=0, group_min_session_timeout_ms=100, consumer=ConsumerConfig(assignment_interval_ms=0)))
    play.topic("t", 4)
    return play


def set_policies(play: Play, values: dict[str, str], named: dict[str, str] | None = None) -> list[str]:
    play.now += 1
    problems = play.shard.policies.replace(GROUP, values, values if named is None else named, play.now, play.wall)
    play.settle()
    return problems


def status(play: Play) -> dict[str, str]:
    return play.shard.policies.status(GROUP)


def seat_is_kept(play: Play) -> None:
    """Static member `a` has everything, `b` nothing, and `a` has not been heard for a session."""
    assert not set_policies(play, KEPT)
    play.join("a", "t", instance="seat")
    play.wait(10_000)
    play.join("b", "t", instance="other")
    for _ in range(2):
        play.wait(20_000)
        play.poll("b")


def test_a_policy_applies_if_it_has_a_hook_of_consumer_groups() -> None:
    hooks = ("kept_ms", "epoch_reason")
    with_hook = {policy.name for rules in ORDER for policy in rules.declares if any(getattr(rules, hook) is not getattr(PolicyRules, hook) for hook in hooks)}
    assert with_hook == {name for name, policy in POLICIES.items() if policy.consumers.applies} == {"registration.timeout.ms", "rebalance.request"}


def test_without_the_policy_a_silent_static_member_is_removed_with_its_session(play: Play) -> None:
    play.join("a", "t", instance="seat")
    play.wait(SESSION)
    assert not play.group.members


def test_a_silent_static_member_is_kept_and_its_instance_may_return(play: Play) -> None:
    seat_is_kept(play)
    epoch = play.group.epoch
    assert play.shown("a")["epoch"] == -2
    assert status(play)["status.away"].startswith("seat since ")
    assert play.poll("a") == error(110)
    assert play.join("a2", "t", instance="seat")["assigned"] == partitions(0, 1), "its target, as b came meanwhile"
    assert (play.group.epoch, status(play)) == (epoch, {})


def test_a_dynamic_member_is_not_kept(play: Play) -> None:
    set_policies(play, KEPT)
    play.join("a", "t")
    play.wait(SESSION)
    assert not play.group.members


def test_members_that_stay_away_go_together_in_one_epoch(play: Play) -> None:
    set_policies(play, KEPT)
    for number in range(3):
        play.join(f"m{number}", "t", instance=f"i{number}")
        play.wait(1_000)
    play.join("here", "t")
    epoch = play.group.epoch
    for _ in range(5):
        play.wait(20_000)
        play.poll("here")
    assert len(play.group.members) == 4
    noted: list[Note] = []
    play.shard._note_sink = lambda notes, fact_number: noted.extend(notes)
    play.wait(10_000)
    assert (set(play.group.members), play.group.epoch) == ({play.identities.id_of("here")}, epoch + 1)
    (begun,) = [note.body for note in noted if isinstance(note.body, EpochNote)]
    assert (begun.cause, len(begun.members)) == (Cause.ABSENCES_ENDED, 3)


def test_a_member_that_was_silent_for_both_times_while_nothing_was_done_is_removed(play: Play) -> None:
    """The process was stopped: its session and the time after it end at once."""
    set_policies(play, KEPT)
    play.join("a", "t", instance="seat")
    epoch = play.group.epoch
    play.now += SESSION + 60_001
    play.shard.advance(play.now, play.wall, play.wall)
    play.settle()
    assert (play.group.members, play.group.epoch) == ({}, epoch + 1)


def test_one_that_said_that_it_will_be_back_is_kept_from_the_end_of_its_session(play: Play) -> None:
    set_policies(play, KEPT)
    play.join("a", "t", instance="seat")
    assert play.poll("a", epoch=-2)["error"] == 0
    play.wait(SESSION + 59_000)
    assert play.shown("a")["epoch"] == -2
    play.wait(2_000)
    assert not play.group.members


def test_after_a_failover_the_time_begins_again(play: Play) -> None:
    seat_is_kept(play)
    play.restart()
    play.wait(SESSION + 59_000)
    assert "a" in play.look()["members"]
    play.wait(2_000)
    assert not play.group.members


def test_unset_while_members_are_away_they_go(play: Play) -> None:
    seat_is_kept(play)
    epoch = play.group.epoch
    assert not set_policies(play, {})
    assert (play.look()["members"].keys(), play.group.epoch) == ({"b"}, epoch + 1)


def test_a_shorter_time_counts_from_the_end_of_the_session(play: Play) -> None:
    seat_is_kept(play)
    assert not set_policies(play, {"registration.timeout.ms": "7000"})
    play.wait(1_000)
    assert "a" in play.look()["members"]
    play.wait(4_000)
    assert "a" not in play.look()["members"]


def test_a_silent_member_of_the_classic_protocol_is_kept_too(play: Play) -> None:
    set_policies(play, KEPT)
    play.join("a", "t", instance="seat")
    play.play({"do": "classic_join", "name": "c", "topics": ["t"], "new": True, "instance": "classic", "session": 10_000, "v": 5, "timeout": 200_000})
    play.play({"do": "classic_sync", "name": "c", "generation": 3, "instance": "classic", "type": None, "protocol": None})
    play.wait(40_000)
    assert "c" in play.look()["members"]
    play.poll("a")
    play.wait(31_000)
    assert "c" not in play.look()["members"]


def test_a_requested_rebalance_is_a_new_epoch_with_its_cause(play: Play) -> None:
    play.join("a", "t")
    before = play.epochs_shown
    noted: list[Note] = []
    play.shard._note_sink = lambda notes, fact_number: noted.extend(notes)
    assert not set_policies(play, {}, {"rebalance.request": "orders has grown"})
    assert [(note.body.cause, note.body.text) for note in noted if isinstance(note.body, EpochNote)] == [(Cause.REQUESTED, "orders has grown")]
    assert before == ("Stable", 2, 2)
    assert play.epochs_shown == ("Assigning", 3, 2)
    assert play.poll("a") == ok(3, None)


def test_a_request_for_an_empty_or_missing_group_does_nothing(play: Play) -> None:
    assert not set_policies(play, {}, {"rebalance.request": "why"})
    play.join("a", "t")
    play.poll("a", epoch=-1)
    epoch = play.group.epoch
    assert not set_policies(play, {}, {"rebalance.request": "why"})
    assert play.group.epoch == epoch


@pytest.mark.parametrize("name", [name for name, policy in POLICIES.items() if not policy.consumers.applies])
def test_a_policy_that_does_not_apply_is_refused_with_the_reason(play: Play, name: str) -> None:
    play.join("a", "t")
    value = (*POLICIES[name].samples, "seat")[0]
    (problem,) = set_policies(play, {name: value})
    assert problem.startswith(f"{name}: group g is of the consumer protocol, to which the policy does not apply: ")
    assert problem.endswith(POLICIES[name].consumers.words)
    assert not play.shard.policies.texts(GROUP)


def test_policies_from_before_stay_without_effect_and_are_named(play: Play) -> None:
    early = {"instance.ids": "x", "expansion.timeout.ms": "2000"}
    assert not set_policies(play, early)
    assert status(play) == {}
    play.join("a", "t")
    assert status(play) == {"status.ignored": "instance.ids, expansion.timeout.ms"}
    assert not set_policies(play, {**early, **KEPT}), "what it has already is no reason to refuse the rest"
    assert set_policies(play, {**early, "expansion.timeout.ms": "3000"})
    assert not set_policies(play, {"expansion.timeout.ms": "none"})
    assert play.shard.policies.of(GROUP) == resolve({})


def test_a_cause_of_absences_is_one_of_consumer_groups_too() -> None:
    assert CAUSES[Cause.ABSENCES_ENDED].consumer
    assert CAUSES[Cause.REGISTRATION_UNSET].consumer
