"""`tenure group list`, `describe` and `members` against a Tenure broker, with groups in various states."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cli.admin import Admin
from tests.cli.conftest import Tenure
from tests.cli.group_members import GroupMembers, group_members

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def orders(bootstrap: str, admin: Admin) -> Iterator[GroupMembers]:
    """Topic `described` with three partitions; one static and one dynamic member, and an unassigned partition."""
    admin.create_topic("described", counts=(10, 10, 10), begins={})
    admin.commit("orders", {("described", 0): 10, ("described", 1): 4, ("described", 2): 7})
    admin.commit("alone", {("described", 0): 3})
    with group_members(bootstrap, "orders", ["described"]) as members:
        yield members.settle({"worker-1": {"described": [0]}, "adhoc": {"described": [1]}}, static=["worker-1"])


def test_groups_are_listed_with_state_and_members(orders: GroupMembers, bootstrap: str, client_command: Tenure) -> None:
    done = client_command("group", "list")
    assert done.code == 0
    head, *rows = [line.split() for line in done.out.splitlines()]
    assert head == ["GROUP", "STATE", "TYPE", "PROTOCOL", "MEMBERS", "STATIC", "COORDINATOR"]
    assert ["orders", "Stable", "classic", "range", "2", "1", "1", f"({bootstrap})"] in rows
    assert ["alone", "Empty", "classic", "-", "0", "0", "1", f"({bootstrap})"] in rows


def test_groups_that_a_broker_cannot_read_are_reported_as_missing(bootstrap: str, client_command: Tenure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.health.probe", lambda *_: (2, "is not ready: partition 9 (cannot be read: damaged)"))
    done = client_command("group", "list")
    assert done.code == 75
    assert done.err == f"tenure: {bootstrap} is not ready: partition 9 (cannot be read: damaged): its groups are missing here\n"


def test_groups_are_listed_as_json(orders: GroupMembers, client_command: Tenure) -> None:
    listed = json.loads(client_command("group", "list", "--json").out)["groups"]
    assert {
        "group": "orders",
        "state": "Stable",
        "type": "classic",
        "protocol_type": "consumer",
        "protocol": "range",
        "coordinator": 1,
        "members": 2,
        "static_members": 1,
        "error": None,
    } in listed


@pytest.mark.parametrize(("filters", "listed"), [(["stable"], True), (["Empty", "STABLE"], True), (["Empty"], False)])
def test_groups_of_a_state_are_listed(orders: GroupMembers, client_command: Tenure, filters: list[str], listed: bool) -> None:
    state_options = [word for state in filters for word in ("--state", state)]
    done = client_command("group", "list", *state_options, "--json")
    assert ("orders" in {group["group"] for group in json.loads(done.out)["groups"]}) is listed


def test_groups_of_a_type_are_listed(orders: GroupMembers, client_command: Tenure) -> None:
    assert "orders" in client_command("group", "list", "--type", "Classic").out
    assert client_command("group", "list", "--type", "share").out == "no group has this state and type\n"


@pytest.mark.parametrize(("option", "value", "hint"), [("--state", "bogus", "PreparingRebalance"), ("--type", "bogus", "streams")])
def test_an_unknown_state_or_type_is_refused_with_the_valid_names(tenure: Tenure, option: str, value: str, hint: str) -> None:
    done = tenure("group", "list", "--bootstrap", "127.0.0.1:1", option, value)
    assert (done.code, done.out) == (64, "")
    assert "'bogus'" in done.err
    assert hint in done.err


def test_a_group_is_described_with_the_lag_of_each_partition(orders: GroupMembers, bootstrap: str, client_command: Tenure) -> None:
    done = client_command("group", "describe", "orders")
    lines = done.out.splitlines()
    assert lines[0] == f"orders: Stable, type classic, protocol range, coordinator 1 ({bootstrap})"
    assert lines[1] == "2 members (1 static, 1 dynamic); 3 partitions, lag 9"
    assert lines[3].split() == ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "INSTANCE", "MEMBER", "CLIENT", "HOST"]
    static, dynamic = orders.ids["worker-1"], orders.ids["adhoc"]
    assert lines[4].split() == ["described", "0", "10", "10", "0", "worker-1", static, "worker-1", "127.0.0.1"]
    assert lines[5].split() == ["described", "1", "4", "10", "6", "-", dynamic, "adhoc", "127.0.0.1"]
    assert lines[6].split() == ["described", "2", "7", "10", "3", "-", "-", "-", "-"]
    assert lines[7:] == ["without a reader: described 2"]


def test_a_group_is_described_as_json(orders: GroupMembers, client_command: Tenure) -> None:
    (group,) = json.loads(client_command("group", "describe", "orders", "--json").out)["groups"]
    assert (group["members"], group["static_members"], group["lag"], group["state"]) == (2, 1, 9, "Stable")
    assert group["unread"] == [{"topic": "described", "partitions": [2]}]
    assert group["partitions"][1] == {
        "topic": "described",
        "partition": 1,
        "committed_offset": 4,
        "end_offset": 10,
        "lag": 6,
        "member_id": orders.ids["adhoc"],
        "instance_id": None,
        "client_id": "adhoc",
        "host": "127.0.0.1",
        "note": None,
    }


def test_a_group_without_members_is_described(orders: GroupMembers, client_command: Tenure) -> None:
    lines = client_command("group", "describe", "alone").out.splitlines()
    assert lines[0].startswith("alone: Empty, type classic, coordinator 1")
    assert lines[1] == "no members; 1 partition, lag 7"
    assert lines[3].split() == ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG"]
    assert len(lines) == 5


def test_a_group_without_commits_is_described(bootstrap: str, client_command: Tenure) -> None:
    with group_members(bootstrap, "fresh", ["described"]) as members:
        members.settle({"a": {}})
        done = client_command("group", "describe", "fresh")
    assert done.out.splitlines()[1:] == ["1 member (dynamic); nothing committed", f"without a partition: {members.ids['a'][:10]}"]


def test_unknown_groups_are_named_and_the_others_described(orders: GroupMembers, client_command: Tenure) -> None:
    done = client_command("group", "describe", "nope", "alone")
    assert done.code == 66
    assert done.err == "tenure: there is no group nope\n"
    assert done.out.startswith("alone: ")
    alone = client_command("group", "describe", "nope")
    assert (alone.code, alone.out) == (66, "")
    assert alone.err == "tenure: there is no group nope (tenure group list lists all groups)\n"


def test_the_members_of_a_group_are_shown(orders: GroupMembers, client_command: Tenure) -> None:
    done = client_command("group", "members", "orders")
    assert [line.split() for line in done.out.splitlines()] == [
        ["INSTANCE", "MEMBER", "CLIENT", "HOST", "TOPICS", "COUNT", "PARTITIONS"],
        ["worker-1", orders.ids["worker-1"], "worker-1", "127.0.0.1", "described", "1", "described", "0"],
        ["-", orders.ids["adhoc"], "adhoc", "127.0.0.1", "described", "1", "described", "1"],
    ]


def test_the_members_of_a_group_are_shown_as_json(orders: GroupMembers, client_command: Tenure) -> None:
    described = json.loads(client_command("group", "members", "orders", "--json").out)
    assert (described["state"], described["protocol"]) == ("Stable", "range")
    assert described["members"][0] == {
        "member_id": orders.ids["worker-1"],
        "instance_id": "worker-1",
        "client_id": "worker-1",
        "host": "127.0.0.1",
        "subscribed_topics": ["described"],
        "assigned": [{"topic": "described", "partitions": [0]}],
        "owned": None,
        "target": None,
        "epoch": None,
        "away": None,
        "gives_up": None,
        "waits_for": None,
        "speaks": None,
    }


def test_an_empty_and_an_unknown_group_are_reported(orders: GroupMembers, client_command: Tenure) -> None:
    assert client_command("group", "members", "alone").out == "group alone has no members (state Empty)\n"
    assert client_command("group", "members", "nope").code == 66


@pytest.mark.usefixtures("orders")  # for its topic
def test_control_characters_in_names_are_escaped(admin: Admin, client_command: Tenure) -> None:
    admin.commit("red\x1b[31m", {("described", 0): 1})
    for command in (("list",), ("describe", "red\x1b[31m")):
        done = client_command("group", *command)
        assert "\x1b" not in done.out
        assert "red\\x1b[31m" in done.out
