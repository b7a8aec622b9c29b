"""tenure group policy and tenure group rebalance, on a broker of ours."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from cli.groups.described import Group, GroupMember
from cli.groups.policy_effects import EFFECTS, effects
from cli.groups.policy_status import readable_status, status_document
from coordinator.policies.door import ORDER
from tests.cli.admin import Admin
from tests.cli.conftest import Tenure
from tests.cli.group_history import entries_of
from tests.cli.group_members import assignment, group_members
from tests.running import wait_until

pytestmark = pytest.mark.once

REBALANCE_IN_PROGRESS = 27
TIMEOUT = "registration.timeout.ms"
ISO_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z"


@pytest.fixture(scope="module")
def admin(admin: Admin) -> Admin:
    admin.create_topic("ruled", counts=(1, 1), begins={})
    return admin


def shown_policies(client_command: Tenure, group: str) -> Any:
    return json.loads(client_command("group", "policy", "show", group, "--json").out)


def own_values(client_command: Tenure, group: str) -> dict[str, str]:
    return {policy["name"]: policy["value"] for policy in shown_policies(client_command, group)["policies"]}


def test_policies_are_set_shown_listed_and_unset(client_command: Tenure) -> None:
    done = client_command("group", "policy", "set", "kept", f"{TIMEOUT}=60000", "subscription.change=rebalance")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [f"group kept: {TIMEOUT} is 60000", "group kept: subscription.change is rebalance"]
    lines = client_command("group", "policy", "show", "kept").out.splitlines()
    assert [line.split() for line in lines] == [
        ["POLICY", "VALUE", "FROM"],
        [TIMEOUT, "60000", "group"],
        ["subscription.change", "rebalance", "group"],
    ]
    assert ["kept", TIMEOUT, "60000"] in [line.split() for line in client_command("group", "policy", "list").out.splitlines()]
    assert client_command("group", "policy", "unset", "kept", TIMEOUT).out == f"group kept: {TIMEOUT} is unset\n"
    assert own_values(client_command, "kept") == {"subscription.change": "rebalance"}
    assert client_command("group", "policy", "unset", "kept", "--all").code == 0
    assert client_command("group", "policy", "show", "kept").out == "group kept has no policies\n"
    assert "kept" not in client_command("group", "policy", "list").out


def test_an_already_set_policy_is_left_unchanged(client_command: Tenure) -> None:
    client_command("group", "policy", "set", "same", f"{TIMEOUT}=60000")
    assert client_command("group", "policy", "set", "same", f"{TIMEOUT}=60000").out == "same: every policy has this value already\n"
    assert client_command("group", "policy", "unset", "same", "pending.release").out == "group same: pending.release is not set\n"
    done = client_command("group", "policy", "unset", "unruled", "--all")
    assert (done.code, done.out) == (0, "group unruled has no policies\n")


def test_names_that_are_not_in_the_list_of_instances_are_not_reported_as_removed(client_command: Tenure) -> None:
    removing = ("group", "policy", "set", "listed", "--remove-instances")
    done = client_command(*removing, "w-9")
    assert (done.code, done.out) == (0, "group listed: not in instance.ids: w-9\n")
    client_command("group", "policy", "set", "listed", "instance.ids=w-[1-3]", "roster.timeout.ms=60000", "roster.strict=true")
    assert client_command(*removing, "w-3,w-9").out.splitlines() == ["group listed: removed from instance.ids: w-3", "group listed: not in instance.ids: w-9"]
    assert client_command("group", "policy", "set", "listed", "--add-instances", "w-1").out == "group listed: already in instance.ids: w-1\n"
    assert own_values(client_command, "listed")["instance.ids"] == "w-1,w-2"


def test_a_repeated_name_is_set_once_and_reported(client_command: Tenure) -> None:
    setting = ("group", "policy", "set", "twice")
    assert client_command(*setting, "instance.ids=a-1,b,a-1").out.splitlines() == [
        "group twice: instance.ids is a-1,b",
        "group twice: more than once in instance.ids, and stored once: a-1",
    ]
    assert own_values(client_command, "twice") == {"instance.ids": "a-1,b"}
    assert client_command(*setting, "instance.ids=a-1,b,a-1").out == "twice: every policy has this value already\n"
    assert client_command(*setting, "--add-instances", "c,c").out == "group twice: added to instance.ids: c\n"


def test_a_refused_policy_change_names_the_remedy_and_changes_nothing(client_command: Tenure) -> None:
    done = client_command("group", "policy", "set", "wrong", f"{TIMEOUT}=5")
    assert done.code == 1
    assert "write milliseconds from 1000" in done.err
    assert own_values(client_command, "wrong") == {}
    client_command("group", "policy", "set", "wrong", f"{TIMEOUT}=60000")
    for change in (("set", "wrong", "nosuch=1"), ("unset", "wrong", "nosuch"), ("unset", "wrong", TIMEOUT, "nosuch")):
        done = client_command("group", "policy", *change)
        assert (done.code, done.out) == (1, "")
        assert "there is no policy nosuch (the policies of a group are registration.timeout.ms," in done.err
    for action in ("set", "unset"):
        done = client_command("group", "policy", action, "wrong", "registration.timeout" + ("=1" if action == "set" else ""))
        assert "there is no policy registration.timeout; did you mean registration.timeout.ms? (" in done.err
    listed = done.err.partition("the policies of a group are ")[2].rstrip(")\n").split(", ")
    assert listed == re.findall(r"^  ([a-z.]+): ", client_command("group", "policy", "set", "--help").out, re.MULTILINE)
    assert own_values(client_command, "wrong") == {TIMEOUT: "60000"}


@pytest.mark.parametrize(
    "arguments",
    [("set", "g"), ("set", "g", "a=1", "a=2"), ("set", "g", "instance.ids=a", "--add-instances", "b"), ("unset", "g"), ("unset", "g", "a", "--all")],
)
def test_an_empty_or_contradictory_policy_command_line_is_refused(client_command: Tenure, arguments: tuple[str, ...]) -> None:
    assert client_command("group", "policy", *arguments).code == 64


def test_a_dry_run_shows_the_effect_on_members_and_changes_nothing(admin: Admin, bootstrap: str, client_command: Tenure) -> None:
    with group_members(bootstrap, "dryly", ["ruled"]) as members:
        members.settle({"a": {"ruled": [0]}, "b": {"ruled": [1]}}, static=["a"])
        done = client_command("group", "policy", "set", "dryly", f"{TIMEOUT}=60000", "--dry-run")
        assert done.out.splitlines() == [
            "1 static member would keep its partitions for up to 1 min 0 s after the session ended",
            "1 dynamic member would be removed at the end of the session, as now",
            "dry run: nothing was changed",
        ]
        planned = client_command("group", "rebalance", "dryly", "--reason", "why not", "--dry-run", "--json")
        assert json.loads(planned.out)["messages"][0] == "2 members would rejoin once; no member would be removed"
        assert own_values(client_command, "dryly") == {}
        assert members.heartbeat("a") == 0


def test_a_requested_rebalance_makes_all_members_rejoin_and_shows_in_the_history(admin: Admin, bootstrap: str, client_command: Tenure) -> None:
    placed = {"a": {"ruled": [0]}, "b": {"ruled": [1]}}
    with group_members(bootstrap, "asked", ["ruled"]) as members:
        members.settle(placed, static=["a"])
        for _ in range(2):  # a second request with the same reason causes a rebalance too
            done = client_command("group", "rebalance", "asked", "--reason", "moved racks")
            assert (done.code, done.out) == (0, "group asked rebalances: moved racks\n")
            assert members.heartbeat("a") == REBALANCE_IN_PROGRESS
            members.settle(placed, static=["a"])
        assert own_values(client_command, "asked") == {"rebalance.request": "moved racks"}
    entries = entries_of(client_command, "asked", 3)
    assert "moved racks" in json.dumps(entries[-1])


def group_of(*instances: str | None) -> Group:
    members = tuple(GroupMember(f"id-{number}", name, "c", "h", (), ()) for number, name in enumerate(instances))
    return Group("g", "Stable", "classic", "consumer", "range", 1, members)


@pytest.mark.parametrize(
    ("instances", "before", "after", "expected"),
    [
        ((), {}, {TIMEOUT: "60000"}, "no members now"),
        (("a",), {}, {"subscription.change": "rebalance"}, "no current member is affected"),
        (("a",), {TIMEOUT: "60000"}, {}, "would be removed in one rebalance: a-2 since 2026-11-27T08:29:21.280Z"),
        (("a",), {TIMEOUT: "60000"}, {TIMEOUT: "none"}, "would be removed in one rebalance: a-2 since 2026-11-27T08:29:21.280Z"),
        (("a",), {}, {"expansion.timeout.ms": "5000"}, "new members would wait up to 5.0 s for others"),
        (("w-1",), {}, {"instance.ids": "w-[1-3]"}, "2 instances of the list would be missing: w-2 and w-3"),
        (("w-1", "x"), {}, {"instance.ids": "w-1", "roster.strict": "true"}, "1 member would be removed in one rebalance, because it is not on the list: "),
        (("a", "b", "c"), {}, {"target.group.size": "2"}, "1 member of 3 would be standby"),
        (("a", "b"), {}, {"target.group.size": "2"}, "no current member is affected"),
        (("a", "b", "s"), {"target.group.size": "2"}, {"target.group.size": "1"}, "2 members of 3 would be standby, without partitions, after one rebalance"),
        (("a", "s"), {"target.group.size": "1"}, {"target.group.size": "2"}, "1 standby would become active in one rebalance: s"),
        (("a", "s"), {}, {TIMEOUT: "60000"}, "1 static member would keep its partitions for up to 1 min 0 s after the session ended, unless a standby takes"),
        (("a", "s"), {"target.group.size": "1"}, {}, "the standbys would become active in one rebalance: s since 2026-11-27T08:29:21Z, t since 2026-11-27T08:29:22Z"),
    ],
)
def test_the_effects_of_a_change_on_the_present_members(
    instances: tuple[str, ...], before: dict[str, str], after: dict[str, str], expected: str
) -> None:
    status = {"away": "a-2 since 1795768161280", "standby": "s since 1795768161000, t since 1795768162000"}
    assert expected in " / ".join(effects(group_of(*instances), before, after, status, False))


def test_the_command_explains_the_policies_that_affect_present_members() -> None:
    assert {*EFFECTS} == {rules for rules in ORDER if rules.explained}


def test_the_status_of_policies_has_iso_times_in_json() -> None:
    cut_off = "c since 1795768161000, a-very-long-na..."
    assert status_document(
        {
            "away": "a-2 since 1795768161280",
            "waiting": "x since 1, y for z since 1795768161000",
            "missing": "w-2, w-3",
            "standby": cut_off,
            "takeover": "b for a since 1795768161000",
        }
    ) == {
        "away": [{"member": "a-2", "since": "2026-11-27T08:29:21.280Z"}],
        "waiting": [{"member": "x", "since": "1970-01-01T00:00:00.001Z"}, {"member": "y for z", "since": "2026-11-27T08:29:21Z"}],
        "missing": ["w-2", "w-3"],
        "standby": [{"member": "c", "since": "2026-11-27T08:29:21Z"}, {"member": "a-very-long-na...", "since": None}],
        "takeover": [{"member": "b", "seat": "a", "since": "2026-11-27T08:29:21Z"}],
    }
    assert readable_status("standby", cut_off) == "c since 2026-11-27T08:29:21Z, a-very-long-na..."


def test_the_effect_of_a_shorter_strict_list_is_a_rebalance_only_without_enough_standbys(admin: Admin, bootstrap: str, client_command: Tenure) -> None:
    def removal_of(names: str) -> list[str]:
        return client_command("group", "policy", "set", "shorter", "--remove-instances", names, "--dry-run").out.splitlines()[:-1]

    assert client_command("group", "policy", "set", "shorter", "target.group.size=2", "roster.strict=true", "instance.ids=a,b,c").code == 0
    with group_members(bootstrap, "shorter", ["ruled"]) as members:
        members.settle({"a": {"ruled": [0]}, "b": {"ruled": [1]}}, static=["a", "b"])
        members.add_standby("c")
        refused = client_command("group", "policy", "set", "shorter", "--remove-instances", "a,b", "--dry-run")  # the list would be shorter than the target
        assert (refused.code, refused.out) == (1, "")
        assert removal_of("c") == ["1 member would be removed without a rebalance, because it is not on the list: c"]
        assert removal_of("a") == ["1 member would be removed without a rebalance, because it is not on the list: a", "1 standby would take the seat of a: c"]
        assert client_command("group", "policy", "set", "shorter", "--remove-instances", "a").code == 0
        assert members.heartbeat("b") == 0  # no rebalance
        assert members.rejoin("c") == assignment({"ruled": [0]})
        assert client_command("group", "policy", "set", "shorter", "target.group.size=1").code == 0
    group = group_of("a", "b", "s")
    strict = {"instance.ids": "s,x", "roster.strict": "true", "target.group.size": "2"}
    assert "2 members would be removed in one rebalance" in effects(group, {}, strict, {"standby": "s since 7"}, False)[1]
    assert "3 members would be removed in one rebalance" in effects(group, {}, strict | {"instance.ids": "x,y"}, {"standby": "s since 7"}, False)[1]


def test_an_away_member_is_shown_with_the_start_of_its_absence(admin: Admin, bootstrap: str, client_command: Tenure) -> None:
    client_command("group", "policy", "set", "absent", f"{TIMEOUT}=600000")
    with group_members(bootstrap, "absent", ["ruled"]) as members:
        members.settle({"a": {"ruled": [0, 1]}}, static=["a"], session_ms=150)
        wait_until(lambda: shown_policies(client_command, "absent")["status"])
        for command in ("describe", "members", "policy show"):
            assert re.search(r"^away: a since \d{4}-\d\d-\d\dT", client_command("group", *command.split(), "absent").out, re.MULTILINE)
        (described,) = json.loads(client_command("group", "describe", "absent", "--json").out)["groups"]
        (away,) = described["policy_status"]["away"]
        assert (away["member"], described["policy_status"].keys()) == ("a", {"away"})
        assert re.fullmatch(ISO_TIME, away["since"])
        assert json.loads(client_command("group", "members", "absent", "--json").out)["policy_status"] == {"away": [away]}
        assert shown_policies(client_command, "absent")["status"] == {"away": [away]}
        assert f": a since {away['since']}\n" in client_command("group", "policy", "unset", "absent", TIMEOUT, "--dry-run").out
        # A heartbeat ends the absence. On a slow machine the new session, 150 ms, may end before the command asks: then try again.
        wait_until(lambda: members.heartbeat("a") == 0 and shown_policies(client_command, "absent")["status"] == {})
        wait_until(lambda: members.heartbeat("a") == 0 and "away" not in client_command("group", "describe", "absent").out)


def test_standbys_and_the_take_over_of_a_seat_are_shown(admin: Admin, bootstrap: str, client_command: Tenure) -> None:
    client_command("group", "policy", "set", "manned", "target.group.size=1")
    with group_members(bootstrap, "manned", ["ruled"]) as members:
        members.settle({"a": {"ruled": [0, 1]}}, static=["a"])
        members.add_standby("b")
        members.add_standby("c")
        for command in ("describe", "members", "policy show"):
            assert re.search(r"^standby: b since \d{4}-\d\d-\d\dT\S+, c since ", client_command("group", *command.split(), "manned").out, re.MULTILINE)
        members.leave("a")
        for command in ("describe", "members", "policy show"):
            assert re.search(r"^takeover: b for a since \d{4}-\d\d-\d\dT", client_command("group", *command.split(), "manned").out, re.MULTILINE)
        assert members.must_rejoin("b")
        assert members.rejoin("b") == assignment({"ruled": [0, 1]})
        (described,) = json.loads(client_command("group", "describe", "manned", "--json").out)["groups"]
        assert described["policy_status"].keys() == {"standby"}
        wait_until(lambda: "b reads the partitions of the seat of a" in client_command("group", "history", "manned").out)
    output = client_command("group", "history", "manned").out
    assert "the standby b took the seat of a, without a rebalance" in output
    assert "c is a standby" in output
    kinds = [entry["kind"] for entry in json.loads(client_command("group", "history", "manned", "--json").out)["entries"]]
    assert kinds.count("rebalance") == 1
