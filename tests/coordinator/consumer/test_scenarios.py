"""Scenarios of the protocol, as Apache Kafka 4.4.0 plays them: joins, hand-overs, lost answers, assignors, timers."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator import GroupConfig
from coordinator.consumer.config import ConsumerConfig
from tests.coordinator.consumer.playing import TIMEOUT, Play, error, ok, partitions
from tests.coordinator.scenarios import row, scenario


def with_config(**config: Any) -> Play:
    play = Play(GroupConfig(consumer=ConsumerConfig(**{"assignment_interval_ms": 0, **config})))
    play.topic("t", 4)
    return play


def two_settled(play: Play) -> None:
    """a and b share the four partitions, at epoch 3."""
    play.join("a", "t")
    play.join("b", "t")
    play.settle_members("a", "b")
    assert play.epochs_shown == ("Stable", 3, 3)


@scenario("CP-01")
def test_one_member_joins_beats_and_leaves(play: Play) -> None:
    assert play.join("a", "t") == ok(2, partitions(0, 1, 2, 3))
    assert play.poll("a", owned=partitions(0, 1, 2, 3)) == ok(2, None)
    assert play.poll("a") == ok(2, None)
    assert play.epochs_shown == ("Stable", 2, 2)
    assert play.poll("a", -1) == ok(-1, None, interval=0)
    assert play.epochs_shown == ("Empty", 3, 3)


@scenario("CP-02")
def test_before_v1_the_coordinator_gives_the_member_id(play: Play) -> None:
    assert play.join("", "t", v=0)["member"] == "________T_-P_wAAAAAAAQ"
    assert play.join("", "t") == error(42)


@scenario("CP-03")
def test_a_newcomer_gets_partitions_when_their_holder_has_given_them_up(play: Play) -> None:
    play.join("a", "t")
    assert play.join("b", "t") == ok(3, {}, "b")
    told = play.poll("a")
    assert (told["epoch"], len(told["assigned"]["t"])) == (2, 2)
    assert play.poll("b") == ok(3, None, "b")  # not given up yet
    assert play.ack("a") == ok(3, None)
    given = play.poll("b")
    assert sorted(given["assigned"]["t"] + told["assigned"]["t"]) == [0, 1, 2, 3]
    assert play.epochs_shown == ("Stable", 3, 3)


@scenario("CP-04")
def test_each_leave_is_one_epoch_and_the_others_take_over(play: Play) -> None:
    two_settled(play)
    play.poll("b", -1)
    assert play.epochs_shown == ("Assigning", 4, 3)
    assert play.ack("a") == ok(4, partitions(0, 1, 2, 3))


@scenario("CP-05")
def test_a_partition_is_granted_back_to_the_member_that_still_gives_it_up(play: Play) -> None:
    play.join("a", "t")
    play.join("b", "t")
    play.poll("a")
    play.poll("b", -1)
    assert play.poll("a") == ok(2, None)  # still at its old epoch, and has not acknowledged
    assert play.ack("a") == ok(4, partitions(0, 1, 2, 3))
    assert play.join("c", "t") == ok(5, {}, "c")
    assert play.poll("c") == ok(5, None, "c")


@pytest.mark.parametrize(("state", "epoch"), [row("CP-06", "STABLE", 3), row("CP-07", "UNREVOKED", 3), row("CP-08", "UNRELEASED", 3)])
def test_a_member_joins_again_in_every_state_without_a_new_epoch(play: Play, state: str, epoch: int) -> None:
    play.join("a", "t")
    member = "b" if state == "UNRELEASED" else "a"
    play.join("b", "t")
    if state == "UNREVOKED":
        play.poll("a")
    elif state == "STABLE":
        play.settle_members("a", "b")
    assert play.group.members[member].holding.state.name == state
    again = play.join(member, "t")
    assert (again["error"], again["epoch"]) == (0, epoch)
    assert again["assigned"] == ({} if member == "b" else play.shown("a")["target"])
    assert play.group.epoch == 3


@scenario("CP-09")
def test_static_members_that_return_with_another_assignor_are_one_epoch_when_the_majority_has_it(play: Play) -> None:
    for member in ("a", "b", "c"):
        play.join(member, "t", instance=f"i{member}")
    play.settle_members("a", "b", "c")
    epochs = []
    for member in ("a", "b", "c"):
        play.poll(member, -2)
        play.join(f"{member}'", "t", instance=f"i{member}", assignor="range")
        epochs.append((play.group.epoch, play.look()["assignor"]))
    assert epochs == [(5, "range"), (5, "range"), (5, "range")]


@scenario("CP-10")
def test_an_emptied_group_has_the_target_of_its_epoch(play: Play) -> None:
    play.join("a", "t")
    play.poll("a", -1)
    assert play.epochs_shown == ("Empty", 3, 3)
    assert play.join("b", "t") == ok(4, partitions(0, 1, 2, 3), "b")


@scenario("CP-11")
def test_a_fetch_of_offsets_names_a_member_and_its_epoch(play: Play) -> None:
    play.join("a", "t")
    assert [play.fetch(member, epoch)["error"] for member, epoch in (("a", 2), ("a", 1), ("a", 3), ("x", 2), (None, -1), ("", 2), (None, 2))] == [
        0,
        113,
        113,
        25,
        0,
        25,
        -1,
    ]


@pytest.mark.parametrize(
    ("owned", "code"), [row("CP-12", [0, 1, 2, 3], 0), row("CP-12", [], 0), row("CP-12", [0, 1, 2, 3, 4], 110), row("CP-12", None, 110)]
)
def test_the_epoch_before_is_accepted_from_a_member_that_owns_no_more(play: Play, owned: list[int] | None, code: int) -> None:
    play.join("a", "t")
    play.join("x", "nowhere")
    play.poll("a")
    assert play.epochs["a"] == 3
    answer = play.say("a", 2, owned=None if owned is None else partitions(*owned))
    assert answer == (error(code) if code else ok(3, None))


@scenario("CP-34")
def test_the_majority_chooses_the_assignor_and_each_other_choice_is_an_epoch(play: Play) -> None:
    play.join("a", "t", assignor="uniform")
    play.join("b", "t", assignor="range")
    assert (play.look()["assignor"], play.group.epoch) == ("uniform", 3)
    for _ in range(2):  # a tie bumps nothing
        play.settle_members("a", "b")
    assert play.group.epoch == 3
    play.join("c", "t", assignor="range")
    assert (play.look()["assignor"], play.group.epoch) == ("range", 4)
    play.poll("b", assignor="uniform")
    assert (play.look()["assignor"], play.group.epoch) == ("uniform", 5)


@scenario("CP-51")
def test_a_full_group_refuses_newcomers_and_nobody_else() -> None:
    play = with_config(max_size=2)
    play.join("a", "t", instance="ia")
    play.join("b", "t")
    assert play.join("c", "t") == error(81)
    assert play.join("b", "t")["error"] == 0
    play.poll("a", -2)
    assert play.join("a'", "t", instance="ia")["error"] == 0
    assert play.join("c", "t", instance="ic") == error(81)


@scenario("CP-52")
def test_within_the_interval_the_last_target_stands() -> None:
    play = with_config(assignment_interval_ms=1_000)
    play.join("a", "t")
    assert play.join("b", "t") == ok(2, {}, "b")
    assert play.epochs_shown == ("Assigning", 3, 2)
    assert play.poll("a") == ok(2, None)
    play.wait(1_000)
    assert play.epochs_shown == ("Assigning", 3, 2)  # nothing fires by itself
    play.poll("b")
    assert play.epochs_shown == ("Reconciling", 3, 3)
    play.poll("a", -1)
    play.poll("b", -1)
    assert play.epochs_shown == ("Empty", 5, 5)
    assert play.join("c", "t") == ok(6, partitions(0, 1, 2, 3), "c")  # an emptied group waits for nothing


@scenario("CP-53")
def test_a_hand_over_goes_on_under_another_coordinator(play: Play) -> None:
    play.join("a", "t")
    play.join("b", "t")
    told = play.poll("a")["assigned"]
    play.restart()
    assert play.poll("a") == ok(2, None)
    assert play.poll("b") == ok(3, None, "b")
    assert play.ack("a") == ok(3, None)
    assert sorted(play.poll("b")["assigned"]["t"] + told["t"]) == [0, 1, 2, 3]
    assert play.group.epoch == 3


@scenario("CP-60")
def test_a_member_whose_session_ends_is_removed(play: Play) -> None:
    play.join("a", "t")
    play.wait(44_990)
    assert play.poll("a")["error"] == 0
    play.wait(44_990)
    assert play.poll("a")["error"] == 0
    play.wait(45_000)
    assert play.epochs_shown == ("Empty", 3, 3)
    assert play.poll("a") == error(25)


@pytest.mark.parametrize("waits", [row("CP-61", 1_000), row("CP-62", 900)])
def test_a_member_has_its_rebalance_timeout_to_give_up_partitions(play: Play, waits: int) -> None:
    play.join("a", "t", timeout=1_000)
    play.join("b", "t")
    play.poll("a")
    play.wait(500)
    play.poll("a")  # another heartbeat gives it no more time
    play.wait(waits - 500)
    if waits < 1_000:
        assert play.ack("a") == ok(3, None)
        play.wait(10_000)
        assert play.epochs_shown[1:] == (3, 3)
    else:
        assert play.ack("a") == error(25)
        assert play.poll("b") == ok(4, partitions(0, 1, 2, 3), "b")


@scenario("CP-61")
def test_a_member_that_is_told_to_give_up_more_gets_a_new_time(play: Play) -> None:
    play.join("a", "t", timeout=1_000)
    play.join("b", "t")
    play.poll("a")
    play.wait(800)
    play.say("x", 0, timeout=TIMEOUT, topics=["t"], owned={})
    play.say("y", 0, timeout=TIMEOUT, topics=["t"], owned={})
    assert play.ack("a")["epoch"] == 2  # acknowledged, and told to give up another
    play.wait(800)
    assert play.ack("a")["epoch"] == 5


@scenario("CP-63")
def test_a_static_member_that_stays_away_is_removed_at_the_end_of_its_session(play: Play) -> None:
    play.join("a", "t", instance="ia")
    play.join("b", "t")
    play.settle_members("a", "b")
    kept = play.shown("a")["assigned"]
    play.wait(10_000)
    play.poll("a", -2)
    assert play.shown("a")["assigned"] == kept
    assert play.ack("b") == ok(3, None, "b")  # what it has assigned stays its own
    play.wait(30_000)
    assert play.ack("b") == ok(3, None, "b")
    play.wait(6_000)
    assert play.ack("b") == ok(4, partitions(0, 1, 2, 3), "b")


@scenario("CP-64")
def test_waiting_has_no_timeout_of_its_own(play: Play) -> None:
    play.join("a", "t", timeout=40_000)
    play.join("b", "t", timeout=1_000)
    play.poll("a")
    play.wait(20_000)
    assert play.poll("b") == ok(3, None, "b")
    play.ack("a")
    assert play.poll("b")["assigned"]


def test_an_assignor_that_fails_changes_nothing(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> Any:
        raise ZeroDivisionError

    play.join("a", "t")
    before = play.look(), list(play.log)
    monkeypatch.setitem(play.assignors, "uniform", fails)
    assert play.join("b", "t") == error(-1)
    assert (play.look(), list(play.log)) == before
    monkeypatch.undo()
    assert play.join("b", "t") == ok(3, {}, "b")


def test_a_target_that_fills_several_batches_is_stored_in_several() -> None:
    config = GroupConfig(batch_bytes_max=1_100, consumer=ConsumerConfig(assignment_interval_ms=0))
    play = Play(config)
    play.topic("t", 100)
    for number in range(30):
        play.join(f"member-{number}", "t", timeout=TIMEOUT)
    play.settle_members(*[f"member-{number}" for number in range(30)])
    assert play.epochs_shown == ("Stable", 31, 31)


def test_while_requests_cannot_be_read_a_session_is_extended_once(play: Play) -> None:
    play.join("a", "t")
    play.shard.deadlines.extends = True
    play.wait(45_000)
    assert "a" in play.group.members
    play.wait(45_000)
    assert not play.group.members
