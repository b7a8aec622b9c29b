"""Topics that come, grow and go, and subscriptions by name and by expression that change."""

from __future__ import annotations

import pytest

from coordinator.consumer.calls import Resolution
from tests.coordinator.consumer.playing import Play, error, ok, partitions
from tests.coordinator.consumer.programs import GROUP
from tests.coordinator.scenarios import row, scenario


@scenario("CP-23")
def test_a_topic_that_is_created_or_grows_is_one_epoch_at_the_next_heartbeat_of_any_member(play: Play) -> None:
    play.join("a", "t", "u")
    play.join("b", "t", "u")
    play.settle_members("a", "b")
    play.topic("u", 1)
    assert play.epochs_shown == ("Stable", 3, 3)
    play.poll("b")
    assert play.group.epoch == 4
    play.topic("u", 2)
    play.poll("a")
    assert play.group.epoch == 5
    play.settle_members("a", "b")
    assert play.epochs_shown == ("Stable", 5, 5)
    play.topic("other", 1)
    play.poll("a")
    assert play.group.epoch == 5


@scenario("CP-24")
def test_the_partitions_of_a_deleted_topic_are_given_up_and_a_new_topic_of_the_name_is_another(play: Play) -> None:
    play.join("a", "t")
    play.drop("t")
    assert play.poll("a") == ok(2, {})  # told to give all up, at the old epoch
    assert play.poll("a", owned={}) == ok(3, None)
    play.topic("t", 2)
    assert play.poll("a") == ok(4, partitions(0, 1))


@pytest.mark.parametrize("assignor", ["uniform", "range"])
@pytest.mark.parametrize("others", [[], ["u"]])
def test_partitions_that_the_view_of_topics_does_not_have_are_given_up(play: Play, assignor: str, others: list[str]) -> None:
    """After a failover to a node that has not heard yet that the topic grew."""
    play.topic("u", 1)
    play.join("a", "t", assignor=assignor)
    play.join("b", "t", *others, assignor=assignor)
    play.settle_members("a", "b")
    play.topic("t", 2)
    play.settle_members("a", "b")
    assert sorted(number for member in "ab" for number in play.owned[member].get("t", [])) == [0, 1]
    play.topic("t", 4)
    play.settle_members("a", "b")
    assert sorted(number for member in "ab" for number in play.owned[member]["t"]) == [0, 1, 2, 3]


@scenario("CP-25")
def test_an_expression_is_resolved_after_its_heartbeat_and_sees_later_topics_ten_seconds_later(play: Play) -> None:
    play.topic("t2", 1)
    assert play.join("a", topics=None, regex="t.*") == ok(1, {})
    assert play.epochs_shown == ("Assigning", 2, 1)
    assert play.poll("a", owned={}) == ok(2, {"t": [0, 1, 2, 3], "t2": [0]})
    play.wait(1_000)
    play.topic("t3", 1)
    play.poll("a")
    assert play.group.epoch == 2
    play.wait(9_100)
    play.poll("a")  # starts the resolution
    assert play.poll("a") == ok(3, {"t": [0, 1, 2, 3], "t2": [0], "t3": [0]})


@scenario("CP-26")
@pytest.mark.parametrize("regex", [row("CP-26", "("), row("CP-26", "["), row("CP-26", "a(?=x)"), row("CP-26", r"(a)\1")])
def test_an_expression_that_is_not_valid_is_refused_and_changes_nothing(play: Play, regex: str) -> None:
    assert play.join("a", topics=None, regex=regex) == error(128)
    assert GROUP not in play.shard.consumers.groups
    play.join("a", "t")
    assert play.poll("a", regex=regex) == error(128)
    assert play.shown("a")["regex"] == ""


@scenario("CP-27")
def test_the_last_member_with_an_expression_takes_it_along(play: Play) -> None:
    play.join("a", topics=None, regex="t.*")
    play.join("b", topics=[], regex="t.*")
    play.settle_members("a", "b")
    epoch = play.group.epoch
    assert play.poll("b", regex="")["epoch"] < epoch + 1  # told to give up what it has
    assert play.group.epoch == epoch + 1
    assert list(play.group.resolved) == ["t.*"]
    play.poll("a", -1)
    assert list(play.group.resolved) == []


@scenario("CP-27")
def test_a_change_to_a_new_expression_gives_up_what_it_does_not_match_yet(play: Play) -> None:
    play.topic("u", 1)
    play.join("a", topics=None, regex="t.*")
    play.poll("a", owned={})
    play.wait(11_000)
    assert play.poll("a", regex="u.*") == ok(2, {})
    assert play.epochs_shown[1:] == (3, 2)  # by the result
    assert play.poll("a", owned={})["assigned"] == {"u": [0]}


@scenario("CP-27")
def test_a_change_to_an_expression_that_another_member_has_is_an_epoch_at_once(play: Play) -> None:
    play.join("a", topics=None, regex="t.*")
    play.join("b", "x")
    play.settle_members("a", "b")
    epoch = play.group.epoch
    play.poll("b", regex="t.*")
    assert play.group.epoch == epoch + 1


@scenario("CP-28")
def test_names_and_an_expression_are_read_together(play: Play) -> None:
    play.topic("u", 1)
    play.join("a", "u", regex="t.*")
    play.poll("a")
    assert play.poll("a", owned={"u": [0]})["error"] == 0
    assert play.shown("a")["assigned"] == {"t": [0, 1, 2, 3], "u": [0]}


@pytest.mark.plain
def test_only_topics_that_the_asker_may_see_are_matched(play: Play) -> None:
    play.topic("secret", 1)
    play.shard.consumers.take_resolutions = list  # type: ignore[method-assign] # the test carries it out
    play.join("a", topics=None, regex=".*")
    (resolution,) = play.shard.consumers.resolutions
    assert resolution == Resolution(GROUP, None)
    play.shard.consumers.resolve(resolution, play.now, play.wall, lambda name: name != "secret")
    play.settle()
    assert play.group.resolved[".*"].topics == ("t",)


def test_the_result_of_a_resolution_for_a_group_that_is_gone_changes_nothing(play: Play) -> None:
    play.join("a", topics=None, regex="t.*")
    play.poll("a", -1)
    play.delete()
    play.shard.consumers.resolve(Resolution(GROUP, None), play.now, play.wall)
    play.settle()
    assert GROUP not in play.shard.consumers.groups


@scenario("CP-29")
def test_a_member_that_unsubscribes_gives_up_everything_at_its_old_epoch(play: Play) -> None:
    play.join("a", "t")
    assert play.poll("a", topics=[]) == ok(2, {})
    assert play.group.epoch == 3
    assert play.poll("a", owned={}) == ok(3, None)


@scenario("CP-30")
def test_a_member_that_reads_less_while_it_gives_up_must_give_up_more(play: Play) -> None:
    play.topic("u", 1)
    play.join("a", "t", "u")
    play.join("b", "t")
    told = play.poll("a")["assigned"]
    assert set(told) == {"t", "u"}
    less = play.poll("a", topics=["t"])
    assert less["assigned"] == {"t": told["t"]}
    assert less["epoch"] == 2
    member = play.group.members["a"]
    assert {play.names[topic_id] for topic_id in member.holding.pending} == {"t", "u"}


def test_the_order_of_names_and_their_repeats_are_no_change(play: Play) -> None:
    play.join("a", "t", "u")
    play.poll("a", topics=["u", "t", "u"])
    assert play.group.epoch == 2


def test_a_member_that_reads_nothing_is_in_a_new_group_at_epoch_1(play: Play) -> None:
    assert play.join("a") == ok(1, {})
    assert play.epochs_shown == ("Stable", 1, 1)
