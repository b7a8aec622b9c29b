"""`tenure group history` on a Tenure broker: it derives its output from the broker's notes, records of __coordinator_notes, read by Fetch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.cli.admin import Admin
from tests.cli.conftest import Tenure
from tests.cli.group_history import entries_of
from tests.cli.group_members import GroupMembers, group_members
from tests.running import environment, wait_until

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def past_group(bootstrap: str, admin: Admin) -> str:
    """The name of a group that formed, grew, kept a seat through a restart, and lost all members."""
    admin.create_topic("moves", counts=(1, 1, 1, 1), begins={})
    with group_members(bootstrap, "lived", ["moves"]) as members:
        members.settle({"a": {"moves": [0, 1, 2, 3]}}, static=["a"])
        members.settle({"a": {"moves": [0, 1]}, "b": {"moves": [2, 3]}})
        members.restart("a")
        members.leave("b", reason="enough for today")
        members.settle({"a": {"moves": [0, 1, 2, 3]}})
        members.leave("a")
    return "lived"


def test_each_rebalance_is_shown_with_its_cause_and_the_moved_partitions(past_group: str, client_command: Tenure) -> None:
    formed, grown, returned, leaving, emptied = entries_of(client_command, past_group, 4)
    assert [entry["kind"] for entry in (formed, grown, returned, leaving, emptied)] == [
        "rebalance",
        "rebalance",
        "static_member_returned",
        "rebalance",
        "rebalance",
    ]
    assert (formed["cause"], formed["from_generation"], formed["to_generation"], formed["end"]) == ("new_member", 0, 1, "stable")
    assert [(move["partition"], move["from"], move["to"]) for move in formed["moved"]] == [(index, None, "a") for index in range(4)]
    assert (grown["cause_text"].endswith(" joined"), grown["members_before"], grown["members_after"]) == (True, 1, 2)
    b = grown["joined"][0]["member_id"]
    assert [(move["partition"], move["from"], move["to"]) for move in grown["moved"]] == [(2, "a", b), (3, "a", b)]
    assert (returned["instance_id"], returned["outcome"]) == ("a", "no_rebalance")
    assert (leaving["cause"], leaving["gone"][0]["how"], leaving["gone"][0]["reason"]) == ("member_left", "left", "enough for today")
    assert [(move["partition"], move["from"], move["to"]) for move in leaving["moved"]] == [(2, b, "a"), (3, b, "a")]
    assert (emptied["end"], emptied["members_after"], len(emptied["moved"])) == ("empty", 0, 4)
    assert emptied["ended"].endswith("Z")
    assert formed["took_ms"] >= 0


def test_the_history_is_printed_in_words(past_group: str, client_command: Tenure) -> None:
    entries_of(client_command, past_group, 4)
    done = client_command("group", "history", past_group)
    assert (done.code, done.err) == (0, "")
    output = done.out
    assert "why       a joined the empty group" in output
    assert "joined    a (a on 127.0.0.1)" in output
    assert "moved     moves 2,3: a -> b-" in output
    assert "2 partitions stayed" in output
    assert "stopped   every partition, for " in output
    assert "b-" in output
    assert ': "enough for today"' in output
    assert "and kept its seat: no rebalance" in output
    assert "end       no member remains" in output
    assert output.endswith("1 restart of static members caused no rebalance\n")
    assert "\x1b" not in output


def test_both_steps_of_a_cooperative_rebalance_are_recognized(bootstrap: str, client_command: Tenure) -> None:
    with group_members(bootstrap, "steps", ["moves"], protocol="cooperative-sticky") as members:
        members.settle({"a": {"moves": [0, 1, 2, 3]}})
        members.settle({"a": {"moves": [0, 1]}, "b": {}})
        members.settle({"a": {"moves": [0, 1]}, "b": {"moves": [2, 3]}}, begin="a")
        entries = entries_of(client_command, "steps", 3)
        assert [len(entry["moved"]) for entry in entries] == [4, 2, 2]
        output = client_command("group", "history", "steps").out
    assert "stopped   only the moved partitions (cooperative-sticky)" in output
    assert output.count("joined again, and partitions without an owner were assigned (cooperative-sticky)") == 1


def test_the_limit_keeps_the_newest_entries_and_counts_the_earlier_ones(past_group: str, client_command: Tenure) -> None:
    entries_of(client_command, past_group, 4)
    document = json.loads(client_command("group", "history", past_group, "--json", "--limit", "1").out)
    assert (document["earlier"], [entry["end"] for entry in document["entries"]]) == (4, ["empty"])
    done = client_command("group", "history", past_group, "--limit", "2")
    assert done.out.startswith("3 earlier entries are left out (--limit 0 shows all)\n")
    assert len(json.loads(client_command("group", "history", past_group, "--json", "--limit", "0").out)["entries"]) == 5


def test_since_omits_earlier_entries(past_group: str, client_command: Tenure) -> None:
    *before, emptied = entries_of(client_command, past_group, 4)
    recent = entries_of(client_command, past_group, 1, "--since", emptied["at"])
    assert recent == [entry for entry in [*before, emptied] if max(entry["at"], entry.get("ended", entry["at"])) >= emptied["at"]]
    done = client_command("group", "history", past_group, "--since", "2100-01-01")
    assert (done.code, done.out) == (0, f"group {past_group} has no history since 2100-01-01T00:00:00Z\n")
    assert len(entries_of(client_command, past_group, 4, "--since", "1h")) == 5


@pytest.mark.parametrize("text", ["yesterday", "12:00", "", "5"])
def test_an_invalid_time_is_refused(tenure: Tenure, text: str) -> None:
    done = tenure("group", "history", "g", "--since", text, "--bootstrap", "127.0.0.1:1")
    assert done.code == 64
    assert "how long ago" in done.err


def test_an_unknown_group_has_no_history(client_command: Tenure) -> None:
    done = client_command("group", "history", "never")
    assert (done.code, done.out) == (66, "")
    assert done.err == "tenure: there is no group never (tenure group list lists all groups)\n"


def test_a_group_that_only_commits_has_no_history_entries(admin: Admin, client_command: Tenure) -> None:
    admin.create_topic("quiet", counts=(1,), begins={})
    admin.commit("quiet", {("quiet", 0): 1})
    done = client_command("group", "history", "quiet")
    assert (done.code, done.out) == (0, "group quiet has no history\n")


def test_a_rebalance_under_way_is_shown_as_open(bootstrap: str, client_command: Tenure) -> None:
    with group_members(bootstrap, "open", ["moves"]) as members:
        members.settle({"a": {}, "b": {}})
        members.leave("b")
        output = wait_until(lambda: (now := client_command("group", "history", "open").out) and now * ("rebalance in progress" in now))
    assert "end       still in progress" in output


def follow(bootstrap: str, group: str, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-m", "tenure", "group", "history", group, "--follow", "--bootstrap", bootstrap, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_new_entries_are_followed_until_a_signal(bootstrap: str, number: signal.Signals) -> None:
    members: GroupMembers
    with group_members(bootstrap, f"followed.{number.name}", ["moves"]) as members:
        members.settle({"a": {"moves": [0]}}, static=["a"])
        process = follow(bootstrap, f"followed.{number.name}", "--json", "--limit", "1")
        try:
            assert process.stdout is not None
            first = json.loads(process.stdout.readline())
            assert (first["kind"], first["to_generation"]) == ("rebalance", 1)
            members.leave("a")
            second = json.loads(process.stdout.readline())
            assert (second["end"], second["gone"][0]["instance_id"]) == ("empty", "a")
            process.send_signal(number)
            assert process.wait(10) == 0
            assert process.stderr is not None
            assert process.stderr.read() == ""
        finally:
            process.kill()
            process.communicate()


def test_a_closed_pipe_ends_the_history_quietly(bootstrap: str, past_group: str) -> None:
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "tenure", "group", "history", past_group, "--bootstrap", bootstrap],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    os.close(write)
    os.close(read)
    _, stderr = process.communicate(timeout=20)
    assert (process.returncode, stderr) == (141, "")
