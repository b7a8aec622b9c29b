"""Names, patterns and --all, and commands that repeat themselves."""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from cli import watching
from cli.failure import Exit, Failure
from cli.selection import matching, selected
from cli.shown import Screen
from cli.watching import fitting_lines, watched
from tests.cli.admin import Admin
from tests.cli.conftest import CommandResult, Tenure
from tests.cli.terminal import Terminal

NAMES = ("billing-1", "billing-2", "orders", "a*b", "ab")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("billing-*", ["billing-1", "billing-2"]),
        ("billing-?", ["billing-1", "billing-2"]),
        ("*", list(NAMES)),
        ("o*s", ["orders"]),
        ("[bo]*", []),
        ("Orders", []),
    ],
)
def test_a_pattern_matches_whole_names(pattern: str, expected: list[str]) -> None:
    assert matching(pattern, NAMES) == expected


def test_a_name_that_exists_is_no_pattern() -> None:
    assert selected(["a*b"], False, "group", lambda: NAMES) == ["a*b"]
    assert selected(["orders", "o*", "orders"], False, "group", lambda: NAMES) == ["orders"]
    assert selected([], True, "group", lambda: NAMES) == sorted(NAMES)


def test_names_alone_ask_nothing() -> None:
    def unasked() -> list[str]:
        raise AssertionError("the cluster was asked")

    assert selected(["b", "a", "b"], False, "group", unasked) == ["b", "a"]


def test_a_pattern_without_a_match_is_an_error() -> None:
    with pytest.raises(Failure, match=r"no topic matches 'x\*' \(tenure topic list lists all topics\)") as failed:
        selected(["orders", "x*"], False, "topic", lambda: NAMES)
    assert (failed.value.exit_code, failed.value.kind) == (Exit.MISSING, "unknown-topic")


# Of topics


def test_topics_are_selected_by_patterns(client_command: Tenure, name: str) -> None:
    for ending in ("-a", "-b"):
        client_command("topic", "create", name + ending)
    listed = json.loads(client_command("topic", "list", f"{name}-*", "--json").out)["topics"]
    assert [entry["name"] for entry in listed] == [f"{name}-a", f"{name}-b"]
    described = json.loads(client_command("topic", "describe", f"{name}-?", "--json").out)["topics"]
    assert [entry["name"] for entry in described] == [f"{name}-a", f"{name}-b"]
    assert client_command("topic", "describe", "--all").out.count(f"{name}-") >= 2
    assert client_command("topic", "list", f"{name}x*").code == 66
    refused = client_command("topic", "delete", f"{name}-*")
    assert (refused.code, refused.out) == (1, "")
    assert "a pattern or --all needs --yes" in refused.err
    assert client_command("topic", "delete", f"{name}-*", "--dry-run").out.count("would be deleted") == 2
    assert client_command("topic", "delete", f"{name}-*", "--yes").out.count(" deleted: ") == 2
    assert client_command("topic", "delete", f"{name}-*", "--yes", "--if-exists").out == "there are no topics to delete\n"


@pytest.mark.parametrize("line", ["topic describe", "topic delete", "topic describe t --all", "topic delete --all t"])
def test_names_or_all_are_needed(tenure: Tenure, line: str) -> None:
    result = tenure(*line.split())
    assert result.code == 64
    assert "--all" in result.err


def test_topics_are_sorted_and_filtered_by_state(client_command: Tenure, name: str) -> None:
    client_command("topic", "create", f"{name}-a", "--partitions", "2")
    client_command("topic", "create", f"{name}-b", "--partitions", "3")
    client_command("produce", f"{name}-a", "--value", "v")

    def names(*options: str) -> list[str]:
        return [entry["name"][-1] for entry in json.loads(client_command("topic", "list", f"{name}-*", "--json", *options).out)["topics"]]

    assert names() == names("--sort", "records") == names("--sort", "size") == ["a", "b"]
    assert names("--sort", "partitions") == ["b", "a"]
    assert names("--state", "ok") == ["a", "b"]
    assert names("--state", "under-replicated", "--state", "without-leader") == []
    assert client_command("topic", "list", f"{name}-*", "--state", "without-leader").out == "no topic is in state without-leader\n"


# Watching


class Stop(Exception):
    pass


def watch(monkeypatch: pytest.MonkeyPatch, show: Callable[[Screen], int], *, passes: int, as_json: bool = False) -> str:
    """The output in a pipe of so many passes."""
    out = io.StringIO()
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == passes:
            raise Stop

    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(time, "sleep", sleep)
    with pytest.raises(Stop):
        watched(argparse.Namespace(watch=True, every=2.0, json=as_json), show)
    return out.getvalue()


def test_in_a_pipe_each_pass_is_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    def show(screen: Screen) -> int:
        screen.line("a")
        screen.line("b")
        return 0

    assert watch(monkeypatch, show, passes=3) == "a\nb\n\na\nb\n\na\nb\n"


def test_with_json_each_pass_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def show(screen: Screen) -> int:
        screen.document({"a": 1})
        return 0

    assert watch(monkeypatch, show, passes=2, as_json=True) == '{"a": 1}\n{"a": 1}\n'


def test_only_the_first_failure_ends_watching(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shown: list[int] = []

    def show(screen: Screen) -> int:
        shown.append(1)
        if len(shown) == 2:
            raise Failure(Exit.UNREACHABLE, "the broker is gone")
        screen.document({"a": len(shown)})
        return 0

    first, second, third = map(json.loads, watch(monkeypatch, show, passes=3, as_json=True).splitlines())
    assert (first, third) == ({"a": 1}, {"a": 3})
    assert second["error"]["message"] == "the broker is gone"
    with pytest.raises(Failure):
        watched(argparse.Namespace(watch=True, every=2.0, json=False), lambda screen: show_failure())


def show_failure() -> int:
    raise Failure(Exit.MISSING, "there is no such group")


def test_what_does_not_fit_the_terminal_is_counted() -> None:
    lines = [str(number) for number in range(10)]
    assert fitting_lines(lines, 11) == lines
    assert fitting_lines(lines, 10) == [*lines[:8], "2 more lines"]
    assert watching.terminal_lines() > 0


def test_a_terminal_shows_each_pass_in_place_until_ctrl_c(bootstrap: str, client_command: Tenure, name: str) -> None:
    client_command("topic", "create", name)
    command = [sys.executable, "-P", "-m", "tenure", "topic", "list", name, "--watch", "--every", "0.1", "--bootstrap", bootstrap]
    with Terminal(command, {**os.environ, "TERM": "xterm"}) as terminal:
        text = terminal.until(rf"(?s)Ctrl-C ends.*{re.escape(name)}.*Ctrl-C ends.*{re.escape(name)}")
        assert text.count("\x1b[2J") == 1  # cleared once, then drawn over
        terminal.press(b"\x03")
        assert terminal.end() == 0


# Of groups


@pytest.fixture
def groups(client_command: Tenure, admin: Admin, name: str) -> str:
    """A topic of ten records, and the groups NAME-a, NAME-b and NAME-c, without members, with a lag of 2, 8 and 0."""
    admin.create_topic(name, (10,), {})
    for ending, offset in (("a", 8), ("b", 2), ("c", 10)):
        admin.commit(f"{name}-{ending}", {(name, 0): offset})
    return name


def endings(result: CommandResult) -> list[str]:
    assert result.code == 0, result.err
    return [entry["group"][-1] for entry in json.loads(result.out)["groups"]]


def test_groups_are_selected_filtered_and_sorted(client_command: Tenure, groups: str) -> None:
    def listed(*options: str) -> list[str]:
        return endings(client_command("group", "list", f"{groups}-*", "--json", *options))

    assert listed() == ["a", "b", "c"]
    assert listed("--sort", "lag") == ["b", "a", "c"]
    assert listed("--lag-over", "0") == ["a", "b"]
    assert listed("--lag-over", "2") == ["b"]
    assert listed("--state", "Stable") == []
    assert listed("--state", "Empty", "--sort", "state") == ["a", "b", "c"]
    for command in (("group", "describe"), ("group", "offsets", "show")):
        assert endings(client_command(*command, f"{groups}-*", "--json")) == ["a", "b", "c"]
        assert endings(client_command(*command, f"{groups}-?", "--lag-over", "2", "--json")) == ["b"]
        assert set(endings(client_command(*command, "--all", "--json"))) >= {"a", "b", "c"}
    assert endings(client_command("group", "describe", f"{groups}-*", "--state", "empty", "--json")) == ["a", "b", "c"]
    assert client_command("group", "describe", f"{groups}-*", "--state", "Stable").out == "no group is in state Stable\n"
    assert client_command("group", "describe", f"{groups}-c", "--lag-over", "0").out == "no partition has a lag of more than 0\n"
    rows = client_command("group", "offsets", "show", f"{groups}-*", "--sort", "lag").out.splitlines()[1:4]
    assert [row.split()[0][-1] for row in rows] == ["b", "a", "c"]


def test_the_lag_of_groups_is_a_column_when_it_is_asked_for(client_command: Tenure, groups: str) -> None:
    plain = client_command("group", "list", f"{groups}-*").out
    assert "LAG" not in plain
    table = [line.split() for line in client_command("group", "list", f"{groups}-*", "--sort", "lag").out.splitlines()]
    assert table[0].index("LAG") == 6
    assert [row[row.index("0") + 2] for row in table[1:]] == ["8", "2", "0"]


@pytest.mark.parametrize("line", ["group describe", "group delete", "group offsets show", "group describe g --all"])
def test_names_of_groups_or_all_are_needed(client_command: Tenure, line: str) -> None:
    result = client_command(*line.split())
    assert result.code == 64
    assert "--all" in result.err


def test_an_unknown_group_or_pattern_is_an_error(client_command: Tenure, groups: str) -> None:
    for command in (("list",), ("describe",), ("delete", "--yes"), ("offsets", "show")):
        result = client_command("group", *command, f"{groups}x*")
        assert (result.code, result.out) == (66, "")
        assert f"no group matches '{groups}x*'" in result.err
    assert client_command("group", "list", f"{groups}x").code == 66


def test_groups_are_deleted_by_a_pattern_only_with_yes(client_command: Tenure, groups: str) -> None:
    refused = client_command("group", "delete", f"{groups}-*")
    assert refused.code == 1
    assert "a pattern or --all needs --yes" in refused.err
    assert client_command("group", "delete", f"{groups}-*", "--dry-run").out.endswith("3 groups would be deleted\n")
    assert client_command("group", "delete", f"{groups}-*", "--state", "Stable", "--yes").out == "no group is in state Stable\n"
    deleted = json.loads(client_command("group", "delete", f"{groups}-*", "--state", "Empty", "--yes", "--json").out)
    assert [entry["deleted"] for entry in deleted["groups"]] == [True, True, True]
    assert client_command("group", "list", f"{groups}-*").code == 66


def test_groups_are_watched(bootstrap: str, groups: str) -> None:
    command = [sys.executable, "-P", "-m", "tenure", "group", "describe", f"{groups}-b", "--watch", "--every", "0.1", "--json", "--bootstrap", bootstrap]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        for _ in range(2):
            assert json.loads(process.stdout.readline())["groups"][0]["lag"] == 8
        process.send_signal(signal.SIGINT)
    assert process.returncode == 0
