"""Requests with wrong or missing fields, of wrong members or of the wrong type; offsets; deletion; views."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator import GroupConfig, JoinRequest
from coordinator.consumer.config import ConsumerConfig
from coordinator.facts import group_key
from tests.coordinator.consumer.playing import TIMEOUT, Play, error, ok, partitions
from tests.coordinator.consumer.programs import GROUP
from tests.coordinator.scenarios import row, scenario


class Waiter:
    """Receives the reply to a JoinGroup."""

    def __init__(self) -> None:
        self.member_id = ""
        self.reply: Any = None

    def release(self) -> None:
        pass

    def fail(self, error: int) -> None:
        raise AssertionError(error)


def join_classic(play: Play, member: str = "") -> Any:
    waiter = Waiter()
    request = JoinRequest(GROUP, member, None, "consumer", (("range", b"\0\0\0\0\0\0\0\0\0\0"),), 10_000, 10_000, "client", "/127.0.0.1", False)
    play.shard.join(request, waiter, play.now, play.wall)
    play.settle()
    return waiter.reply


JOIN: dict[str, Any] = {"member": "a", "epoch": 0, "timeout": TIMEOUT, "topics": ["t"], "owned": {}}
WRONG: list[tuple[dict[str, Any], int]] = [
    ({"member": ""}, 42),
    ({"member": "", "epoch": -1, "v": 0}, 42),
    ({"member": "", "epoch": 3, "v": 0}, 42),
    ({"group": ""}, 42),
    ({"instance": ""}, 42),
    ({"rack": ""}, 42),
    ({"timeout": -1}, 42),
    ({"owned": None}, 42),
    ({"owned": {"t": [0]}}, 42),
    ({"topics": None}, 42),
    ({"epoch": -2}, 42),
    ({"epoch": -3, "instance": "ia"}, 42),
    ({"assignor": "sticky"}, 112),
    ({"assignor": ""}, 112),
    ({"epoch": 1}, 69),
    ({"epoch": -1}, 69),
    ({"topics": ["x" * 40_000]}, -1),
]


@pytest.mark.parametrize(("fields", "code"), [row("CP-31", *case) for case in WRONG])
def test_a_wrong_field_is_refused_and_leaves_no_group(play: Play, fields: dict[str, Any], code: int) -> None:
    assert play.play({"do": "beat", **JOIN, **fields}) == error(code)
    assert not play.shard.consumers.groups
    assert not play.log


@pytest.mark.parametrize(
    ("member", "epoch", "code"),
    [row("CP-32", "a", 3, 110), row("CP-32", "a", 1, 110), row("CP-32", "x", 2, 25), row("CP-32", "x", -1, 25), row("CP-32", "a", 2, 0)],
)
def test_a_wrong_epoch_or_member_is_refused(play: Play, member: str, epoch: int, code: int) -> None:
    play.join("a", "t")
    assert play.say(member, epoch)["error"] == code


FULL: dict[str, Any] = {"timeout": TIMEOUT, "topics": ["t"], "owned": {"t": [0, 1, 2, 3]}}


@scenario("CP-33")
def test_only_a_heartbeat_that_says_everything_is_told_everything(play: Play) -> None:
    play.join("a", "t")
    assert play.say("a", 2, **FULL) == ok(2, partitions(0, 1, 2, 3))
    for name in FULL:
        assert play.say("a", 2, **{other: value for other, value in FULL.items() if other != name}) == ok(2, None)


def test_a_protocol_that_is_switched_off_is_refused_first() -> None:
    play = Play(GroupConfig(consumer=ConsumerConfig(enabled=False)))
    assert play.play({"do": "beat", **JOIN, "group": ""}) == error(35)


# Offsets.


@scenario("CP-20")
def test_a_member_commits_at_its_epoch_and_at_an_older_one_what_it_kept(play: Play) -> None:
    play.join("a", "t")
    play.join("b", "t")
    kept = play.poll("a")["assigned"]["t"]
    given_up = sorted({0, 1, 2, 3} - set(kept))
    assert play.commit_as("a", 2, partitions(*given_up)) == 0  # its epoch: whatever the partition
    assert play.commit_as("a", 2, {"t": [0], "u": [0]}) == 0
    play.ack("a")
    assert play.epochs["a"] == 3
    assert play.commit_as("a", 2, partitions(*kept)) == 0  # kept since then
    assert play.commit_as("a", 2, partitions(kept[0], given_up[0])) == 113
    assert play.commit_as("a", 1, partitions(*kept)) == 113  # before it got them
    assert play.commit_as("a", 4, partitions(*kept)) == 113
    play.poll("b")
    assert play.commit_as("b", 2, partitions(*given_up)) == 113


@scenario("CP-21")
def test_tools_commit_while_there_are_no_members(play: Play) -> None:
    play.join("a", "t")
    assert play.commit_as("", -1, partitions(0)) == 25
    assert play.commit_as("x", 2, partitions(0)) == 25
    assert play.commit_as("a", -1, partitions(0)) == 113
    assert play.commit_as("a", 2, partitions(0), v=8) == 35
    play.poll("a", -1)
    assert play.commit_as("", -1, partitions(0)) == 0
    assert play.commit_as("", -1, partitions(0), v=8) == 0
    assert play.commit_as("a", 2, partitions(0)) == 25


@scenario("CP-22")
def test_a_commit_does_not_look_at_the_instance_id_and_restarts_no_session(play: Play) -> None:
    play.join("a", "t", instance="ia")
    assert play.commit_as("a", 2, partitions(0), instance="other") == 0
    play.wait(44_000)
    assert play.commit_as("a", 2, partitions(0)) == 0
    play.wait(1_100)
    assert play.commit_as("a", 2, partitions(0)) == 25


@scenario("CP-22")
def test_after_a_static_return_each_older_epoch_passes_for_what_it_has(play: Play) -> None:
    play.join("a", "t", instance="ia")
    play.poll("a", -2)
    assert play.commit_as("a", 2, partitions(0)) == 113
    play.join("a'", "t", instance="ia")
    assert play.commit_as("a", 2, partitions(0)) == 25
    assert play.commit_as("a'", 0, partitions(0)) == 0


@scenario("CP-37")
def test_a_group_with_members_is_not_deleted_nor_the_offsets_that_it_reads(play: Play) -> None:
    play.topic("u", 1)
    play.join("a", "t")
    play.commit_as("a", 2, {"t": [0], "u": [0]})
    assert play.delete() == error(68)
    assert play.delete_offsets({"t": [0], "u": [0]}) == {"error": 0, "codes": [86, 0]}
    play.poll("a", -1)
    assert play.fetch(None, -1)["offsets"] == [["t", 0]]
    play.play({"do": "delete"})
    assert play.look() == {"error": 69, "listed": None}
    assert play.fetch("a", 2) == {"error": 0, "offsets": []}
    assert play.join("a", "t") == ok(2, partitions(0, 1, 2, 3))


def test_offsets_of_an_empty_group_expire_and_the_group_with_them(play: Play) -> None:
    play.join("a", "t")
    play.commit_as("a", 2, {"t": [0], "u": [0]})
    play.restart()  # an opened shard sweeps
    day = 24 * 3_600_000
    play.now += 8 * day
    play.poll("a")
    play.wait(40_000)
    assert play.fetch(None, -1)["offsets"] == [["t", 0]]
    play.poll("a", -1)
    play.wait(day)
    assert GROUP not in play.shard.consumers.groups
    assert not play.fetch(None, -1)["offsets"]


# Classic requests to a group of this protocol, and the reverse.


@scenario("CP-35")
def test_classic_requests_find_no_member_but_remove_one(play: Play) -> None:
    play.join("a", "t")
    play.join("b", "t", instance="ib")
    assert play.classic_beat("a", 2) == error(25)
    assert play.classic_beat("x", 2, "ib") == error(82)
    assert play.shard.describe(GROUP).state == "Dead"
    assert join_classic(play).error == 23
    answer = play.leave([("x", None), ("a", None), ("a", "ib"), ("", "ib")])
    play.settle()
    assert answer == {"codes": [25, 0, 82, 0]}
    assert play.epochs_shown == ("Empty", 4, 4)


@scenario("CP-36")
def test_a_heartbeat_does_not_find_a_classic_group_with_members(play: Play) -> None:
    assert join_classic(play) is None  # parked
    assert play.join("a", "t") == error(69)
    assert play.say("a", 1) == error(69)
    assert play.look()["listed"][0] == "classic"


def test_an_empty_group_changes_its_type_and_keeps_its_offsets(play: Play) -> None:
    assert play.commit_as("", -1, partitions(0)) == 0
    assert play.look()["listed"] == ["classic", "", "Empty"]
    assert play.join("a", "t") == ok(2, partitions(0, 1, 2, 3))
    assert (group_key(GROUP), None) in play.log
    assert play.fetch(None, -1)["offsets"] == [["t", 0]]
    play.poll("a", -1)
    assert join_classic(play, "x").error == 25
    assert play.look()["listed"] == ["consumer", "consumer", "Empty"]
    assert join_classic(play) is None  # parked: a new classic group
    assert play.look()["listed"] == ["classic", "consumer", "PreparingRebalance"]
    assert play.fetch(None, -1)["offsets"] == [["t", 0]]


def test_a_heartbeat_without_news_writes_nothing(play: Play) -> None:
    play.join("a", "t")
    before = len(play.log)
    play.poll("a")
    play.say("a", 2, **FULL)
    assert len(play.log) == before
