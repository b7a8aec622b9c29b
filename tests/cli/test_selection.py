"""Names, patterns and --all, and commands that repeat themselves."""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import sys
import time
from collections.abc import Callable

import pytest

from cli import watching
from cli.failure import Exit, Failure
from cli.selection import matching, selected
from cli.shown import Screen
from cli.watching import fitting_lines, watched
from tests.cli.conftest import Tenure
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
