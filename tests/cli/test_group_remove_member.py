"""tenure group remove-member and delete, on a broker of ours."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cli.arguments import addresses
from cli.client import Cluster
from cli.groups.described import Group, GroupMember, describe_one
from cli.groups.removal import predict
from cli.groups.remove_member import chosen, consequences, refusal, remove
from cli.shown import Screen
from tests.cli.admin import Admin
from tests.cli.conftest import Tenure
from tests.cli.group_history import entries_of
from tests.cli.group_members import assignment, group_members
from tests.cli.terminal import Terminal
from tests.running import environment

pytestmark = pytest.mark.once

FENCED, UNKNOWN = 82, 25


@pytest.fixture(scope="module")
def admin(admin: Admin) -> Admin:
    admin.create_topic("removed", counts=(1, 1, 1, 1), begins={})
    return admin


def members_of(client_command: Tenure, group: str) -> list[str]:
    described = json.loads(client_command("group", "members", group, "--json").out)
    return sorted(member["instance_id"] or member["member_id"] for member in described["members"])


def test_a_dry_run_of_a_removal_shows_its_effect_and_changes_nothing(admin: Admin, bootstrap: str, client_command: Tenure) -> None:
    with group_members(bootstrap, "dry", ["removed"]) as members:
        members.settle({"a": {"removed": [0, 1]}, "b": {"removed": [2, 3]}}, static=["a", "b"])
        done = client_command("group", "remove-member", "dry", "--instance", "b", "--dry-run")
        assert done.code == 0
        lines = done.out.splitlines()
        assert lines[0] == "leaving group dry (state Stable):"
        assert lines[2].split() == ["b", members.ids["b"], "b", "127.0.0.1", "removed", "2,3"]
        assert lines[3:] == [
            "a rebalance follows: the 1 member that stays will stop reading until it ends (range reassigns everything)",
            "2 partitions will move:",
            "  removed 2,3: from b to a",
            "a static member whose process still runs joins again with its instance id: stop it first",
            "dry run: nothing was changed",
        ]
        assert members_of(client_command, "dry") == ["a", "b"]
        assert members.heartbeat("a") == 0


def test_a_removal_that_standbys_absorb_is_predicted_without_a_rebalance(admin: Admin, bootstrap: str, client_command: Tenure) -> None:
    assert client_command("group", "policy", "set", "spared", "target.group.size=2").code == 0
    with group_members(bootstrap, "spared", ["removed"]) as members:
        members.settle({"a": {"removed": [0, 1]}, "b": {"removed": [2, 3]}}, static=["a", "b"])
        members.add_standby("c")
        members.add_standby("d")
        generation = members.generation
        removing = ("group", "remove-member", "spared", "--instance")
        rejoins = "a static member whose process still runs joins again with its instance id, as a standby: stop it first"
        no_rebalance = ["no rebalance: d is a standby", "no partitions move", rejoins]
        assert client_command(*removing, "d", "--dry-run").out.splitlines()[3:-1] == no_rebalance
        assert client_command(*removing, "d").out.splitlines()[3:] == [*no_rebalance, "removed d from group spared: it has 3 members now (state Stable)"]
        take_over = ["no rebalance: the standby c takes the seat of a", "2 partitions will move:", "  removed 0,1: from a to c", rejoins]
        assert client_command(*removing, "a", "--dry-run").out.splitlines()[3:-1] == take_over
        document = json.loads(client_command(*removing, "a", "--json").out)
        assert (document["rebalances"], document["all_partitions_stop"], document["state_after"]) == (False, False, "Stable")
        assert [(move["from"], move["to"]) for move in document["moves"]] == [("a", "c"), ("a", "c")]
        assert members.heartbeat("b") == 0  # no rebalance
        assert members.rejoin("c") == assignment({"removed": [0, 1]})
        assert members.generation == generation
        last = client_command(*removing, "c", "--dry-run").out.splitlines()[3:]
        assert last[0] == "a rebalance follows: the 1 member that stays will stop reading until it ends (range reassigns everything)"


def test_a_rebalance_is_predicted_where_no_standby_has_the_same_topics() -> None:
    before = Group("g", "Stable", "classic", "consumer", "range", 1, tuple(GroupMember(name, name, "c", "h", ("t",), ()) for name in "abs"))
    removal = predict(before, before.members[:1], {}, [before.members[2]._replace(topics=("u",))])
    assert consequences(before, removal)[0] == (
        "too few standbys have the same topics, so a rebalance follows: the 1 active member that stays will stop reading until it ends "
        "(range reassigns everything)"
    )
    removal = predict(before, before.members[:2], {}, [before.members[2]._replace(topics=("u",))])
    assert consequences(before, removal)[0] == "too few standbys have the same topics, so a rebalance follows"


def test_a_dynamic_member_that_a_standby_replaces_rejoins_as_a_standby() -> None:
    before = Group("g", "Stable", "classic", "consumer", "range", 1, tuple(GroupMember(name, None, "c", "h", ("t",), ()) for name in "abst"))
    removal = predict(before, before.members[:2], {}, before.members[2:])
    assert consequences(before, removal) == [
        "no rebalance: the standbys take over: s takes the seat of a and t takes the seat of b",
        "no partitions move",
        "without an instance id: a and b; a process that still runs joins again at once, as a standby",
    ]


def test_a_seat_is_removed_by_its_instance_id_with_the_reason(admin: Admin, bootstrap: str, client_command: Tenure) -> None:
    with group_members(bootstrap, "seat", ["removed"]) as members:
        members.settle({"a": {"removed": [0, 1]}, "b": {"removed": [2, 3]}}, static=["a", "b"])
        done = client_command("group", "remove-member", "seat", "--instance", "b", "--reason", "scaled in")
        assert (done.code, done.err) == (0, "")
        assert done.out.splitlines()[-1] == "removed b from group seat: it rebalances now"
        assert members.heartbeat("b") == UNKNOWN
        assert members_of(client_command, "seat") == ["a"]
        del members.ids["b"]
        members.settle({"a": {"removed": [0, 1, 2, 3]}})
    entries = entries_of(client_command, "seat", 2)
    assert (entries[-1]["cause"], entries[-1]["gone"][0]["reason"]) == ("admin_removed", "scaled in")


def test_one_member_is_removed_by_its_id_or_all_members_at_once(admin: Admin, bootstrap: str, client_command: Tenure) -> None:
    with group_members(bootstrap, "all", ["removed"]) as members:
        members.settle({"a": {"removed": [0]}, "b": {"removed": [1]}, "c": {}}, static=["a"])
        removal = client_command("group", "remove-member", "all", "--member", members.ids["b"], "--json")
        document = json.loads(removal.out)
        assert [(removed_member["member_id"], removed_member["error"]) for removed_member in document["removed"]] == [(members.ids["b"], None)]
        assert (document["rebalances"], document["members_left"], document["dry_run"]) == (True, 2, False)
        remaining_removal = client_command("group", "remove-member", "all", "--all")
        assert remaining_removal.out.splitlines()[-1] == "removed 2 members from group all: it is empty now"
        assert members_of(client_command, "all") == []
        repeated = client_command("group", "remove-member", "all", "--all")
        assert (repeated.code, repeated.out) == (0, "group all has no members: nothing was changed\n")


def test_an_unknown_member_stops_the_whole_removal(admin: Admin, bootstrap: str, client_command: Tenure) -> None:
    with group_members(bootstrap, "halves", ["removed"]) as members:
        members.settle({"b": {"removed": [1]}, "a": {"removed": [0]}}, static=["b", "a"])
        done = client_command("group", "remove-member", "halves", "--instance", "a", "--instance", "z", "--member", "y")
        assert (done.code, done.out) == (66, "")
        assert done.err == "tenure: group halves has no instance z and no member y; it has a and b; nothing was changed\n"
        assert members.heartbeat("a") == 0


def test_a_list_with_commas_names_several_instances(admin: Admin, bootstrap: str, client_command: Tenure) -> None:
    with group_members(bootstrap, "named-at-once", ["removed"]) as members:
        members.settle({"a": {"removed": [0]}, "b": {"removed": [1]}, "c": {"removed": [2, 3]}}, static=["a", "b", "c"])
        refused = client_command("group", "remove-member", "named-at-once", "--instance", "a,z, y")
        assert (refused.code, refused.out) == (66, "")
        assert refused.err == "tenure: group named-at-once has no instance z and no instance y; it has a, b and c; nothing was changed\n"
        dry = json.loads(client_command("group", "remove-member", "named-at-once", "--instance", "a, b", "--dry-run", "--json").out)
        assert [removed["instance_id"] for removed in dry["removed"]] == ["a", "b"]
        done = client_command("group", "remove-member", "named-at-once", "--instance", "a,b", "--instance", "b")
        assert (done.code, done.err) == (0, "")
        assert members_of(client_command, "named-at-once") == ["c"]


def test_a_member_whose_instance_id_has_commas_is_named_by_it() -> None:
    members = [SimpleNamespace(instance_id=name, member_id=f"{name}-1") for name in ("a", "b", "a,b")]
    options = SimpleNamespace(all=False, members=[])
    group: Any = SimpleNamespace(id="g", members=members)
    for listed, chosen_names in ((["a,b"], ["a,b"]), (["b,a"], ["b", "a"]), (["a,b", "b"], ["a,b", "b"]), (["a,"], ["a"])):
        options.instances = listed
        assert [member.instance_id for member in chosen(group, cast(Any, options))] == chosen_names


@pytest.mark.parametrize("words", [(), ("--all", "--instance", "a")])
def test_remove_member_requires_a_selection_of_members(tenure: Tenure, words: tuple[str, ...]) -> None:
    done = tenure("group", "remove-member", "g", *words, "--bootstrap", "127.0.0.1:1")
    assert done.code == 64
    assert "--instance ID" in done.err


def test_removal_from_a_missing_group_is_refused(client_command: Tenure) -> None:
    done = client_command("group", "remove-member", "nope", "--all")
    assert (done.code, done.err) == (66, "tenure: there is no group nope (tenure group list lists all groups)\n")


def test_a_running_dynamic_member_is_expected_to_rejoin(admin: Admin, bootstrap: str, client_command: Tenure) -> None:
    with group_members(bootstrap, "dynamic", ["removed"], protocol="cooperative-sticky") as members:
        members.settle({"a": {"removed": [0]}, "b": {"removed": [1]}, "c": {"removed": [2, 3]}})
        done = client_command("group", "remove-member", "dynamic", "--member", members.ids["c"], "--dry-run")
    assert "a rebalance follows: the 2 members that stay will keep their partitions and continue reading (cooperative-sticky)" in done.out
    assert "removed 2,3: from c" in done.out
    assert "to others, as the group's leader decides" in done.out
    assert "a process that still runs joins again at once" in done.out


# On a terminal


def run_on_a_terminal(answer: bytes, *words: str) -> tuple[int, str]:
    with Terminal([sys.executable, "-P", "-m", "tenure", *words], environment(TERM="xterm")) as terminal:
        terminal.press(answer)
        return terminal.end(), terminal.text


def test_a_removal_is_confirmed_on_a_terminal(admin: Admin, bootstrap: str) -> None:
    with group_members(bootstrap, "confirmed", ["removed"]) as members:
        members.settle({"a": {"removed": [0]}}, static=["a"])
        code, screen = run_on_a_terminal(b"n\n", "group", "remove-member", "confirmed", "--instance", "a", "--bootstrap", bootstrap)
        assert code == 1
        assert "Remove a from group confirmed? [y/N]" in screen
        assert "nothing was changed" in screen
        assert "\x1b[1mconfirmed\x1b[0m" in screen
        assert members.heartbeat("a") == 0
        code, screen = run_on_a_terminal(b"", "group", "remove-member", "confirmed", "--instance", "a", "--yes", "--bootstrap", bootstrap)
        assert (code, "[y/N]" in screen) == (0, False)
        assert members.heartbeat("a") == UNKNOWN


# delete


def test_a_dry_run_of_a_deletion_shows_lost_offsets_and_changes_nothing(admin: Admin, client_command: Tenure) -> None:
    admin.commit("lost", {("removed", 0): 1, ("removed", 1): 0})
    done = client_command("group", "delete", "lost", "--dry-run")
    assert done.code == 0
    assert [line.split() for line in done.out.splitlines()[1:4]] == [
        ["GROUP", "TOPIC", "PARTITION", "COMMITTED"],
        ["lost", "removed", "0", "1"],
        ["lost", "removed", "1", "0"],
    ]
    assert done.out.splitlines()[-1] == "dry run: nothing was changed, group lost would be deleted"
    assert admin.committed("lost") == {("removed", 0): 1, ("removed", 1): 0}


def test_no_group_is_deleted_if_any_named_group_cannot_be(admin: Admin, client_command: Tenure) -> None:
    admin.commit("gone-1", {("removed", 0): 1})
    admin.commit("gone-2", {("removed", 0): 1})
    done = client_command("group", "delete", "gone-1", "nope", "gone-2")
    assert (done.code, done.out) == (66, "nothing was deleted\n")
    assert done.err == "tenure: there is no group nope (tenure group list lists all groups)\n"
    assert admin.committed("gone-1") == {("removed", 0): 1}
    result = client_command("group", "delete", "gone-1", "nope", "gone-2", "--dry-run")
    assert (result.code, result.out) == (66, "dry run: nothing would be deleted\n")
    result = client_command("group", "delete", "gone-1", "nope", "--json")
    error = {
        "code": "unknown-group",
        "message": "there is no group nope (tenure group list lists all groups)",
        "hint": "tenure group list lists all groups",
    }
    offset = {"topic": "removed", "partition": 0, "committed_offset": 1}
    assert json.loads(result.out) == {
        "dry_run": False,
        "groups": [
            {"group": "gone-1", "error": None, "offsets": [offset], "deleted": False},
            {"group": "nope", "error": error, "offsets": [], "deleted": False},
        ],
        "error": error,
        "errors": [error],
    }
    done = client_command("group", "delete", "gone-1", "gone-2")
    assert (done.code, done.out.splitlines()[-1]) == (0, "deleted 2 groups")
    assert admin.committed("gone-1") == {}
    assert client_command("group", "delete", "gone-2").code == 66


def test_a_group_with_members_is_not_deleted_and_the_remedy_is_named(admin: Admin, bootstrap: str, client_command: Tenure) -> None:
    with group_members(bootstrap, "busy", ["removed"]) as members:
        members.settle({"a": {"removed": [0]}}, static=["a"])
        for words in ((), ("--dry-run",)):
            done = client_command("group", "delete", "busy", *words)
            assert (done.code, done.out) == (1, "")
            assert done.err == "tenure: group busy has 1 member: stop it first, or remove it (tenure group remove-member busy --all)\n"
    assert client_command("group", "remove-member", "busy", "--all").code == 0
    done = client_command("group", "delete", "busy", "--json")
    assert json.loads(done.out) == {"dry_run": False, "groups": [{"group": "busy", "error": None, "offsets": [], "deleted": True}]}
    assert client_command("group", "describe", "busy").code == 66


def test_removing_the_old_id_of_a_restarted_member_keeps_its_seat(admin: Admin, bootstrap: str, tenure: Tenure) -> None:
    """Between the description of the group and the removal, a static member's process rejoined under a new id."""
    with group_members(bootstrap, "raced", ["removed"]) as members, Cluster(addresses(bootstrap), 5) as cluster:
        members.settle({"a": {"removed": [0, 1]}, "b": {"removed": [2, 3]}}, static=["a", "b"])
        described_member = next(member for member in describe_one(cluster, "raced").members if member.instance_id == "b")
        members.restart("b")
        id = described_member.member_id
        assert remove(cluster, "raced", [described_member], {id}, "gone") == {id: FENCED}
        assert refusal(described_member, FENCED).line == f"member {id} does not exist any more; another process has joined as instance b and keeps the seat"
        assert members.heartbeat("b") == 0
        assert remove(cluster, "raced", [described_member], set(), "gone") == {}  # without known member ids, the removal is by instance id alone
        assert members.heartbeat("b") == UNKNOWN


def test_a_removal_reports_the_state_after_it(admin: Admin, bootstrap: str, client_command: Tenure, monkeypatch: pytest.MonkeyPatch) -> None:
    with group_members(bootstrap, "late", ["removed"]) as members:
        members.settle({"a": {"removed": [0, 1, 2, 3]}}, static=["a"])

        def confirm(*questions: object) -> bool:
            members.settle({"a": {"removed": [0, 1]}, "c": {"removed": [2, 3]}}, static=["c"])
            return True

        monkeypatch.setattr(Screen, "confirm", confirm)
        done = client_command("group", "remove-member", "late", "--all")
        assert done.out.splitlines()[-1] == "removed a from group late: it rebalances now, with c, which joined meanwhile"
        monkeypatch.undo()
        done = client_command("group", "remove-member", "late", "--all", "--json")
        result = json.loads(done.out)
        assert (result["members_left"], result["state_after"]) == (0, "Empty")
