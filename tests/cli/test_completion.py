"""Completions by TAB: of the command itself, and in bash, zsh and fish if installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.completion_words import NAMES_SECONDS, complete
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from tenure.testing import Cluster, Process
from tests.cli.conftest import Tenure
from tests.cli.fake_brokers import FakeBroker
from tests.cli.terminal import Terminal
from tests.running import ROOT, Client, environment
from tests.support.controlled import port_of

pytestmark = pytest.mark.once  # runs shells, not Python

SECONDS = 20


def words(line: str) -> list[str]:
    *before, current = line.split(" ")
    completions = complete(before, current)
    assert completions.kind == "words"
    return [word for word, _ in completions.words]


@pytest.fixture(scope="module")
def named(process: Process) -> Iterator[str]:
    """The address of a separate cluster, whose topics and groups are known."""
    with Cluster.make(process.control, topics={"orders": 1, "orders.eu": 1, "payments": 1}) as kafka:
        with Client(port_of(kafka)) as client:
            for group in ("billing", "billing: late & odd", "shipping", "bill\x1b[31m"):
                topics = [OffsetCommitRequestTopic("orders", partitions=[OffsetCommitRequestPartition(0, 1)])]
                client.ask(OffsetCommitRequest(group, -1, topics=topics), 7)
        yield kafka.bootstrap


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("gr", ["group"]),
        ("group de", ["describe", "delete"]),
        ("--bootstrap a:1 gro", ["group"]),
        ("--timeout=3 --json gro", ["group"]),
        ("group --bootstrap a:1 off", ["offsets"]),
        ("group offsets ", ["show", "reset", "delete"]),
        ("completion ", ["bash", "zsh", "fish"]),
        ("log dump --kind o", ["offsets"]),
        ("log dump --kind=o", ["--kind=offsets"]),
        ("nothing ", []),
        ("serve --set x", []),
        ("serve --profile ", ["test"]),
        ("group list --state S", ["Stable"]),
        ("group list --type c", ["classic", "consumer"]),
        ("consume t --from ", ["earliest", "latest"]),
        ("serve --set num.p", ["num.partitions="]),
        ("serve --set num.partitions=", []),
        ("serve --set=num.p", ["--set=num.partitions="]),
        ("topic create t --set cleanup", ["cleanup.policy="]),
        ("topic config unset t retention", ["retention.bytes", "retention.ms"]),
        ("topic config set t retention.m", ["retention.ms="]),
        ("consume t --until ", ["end"]),
        ("cluster --vers", ["--versions"]),
        ("cluster --versions --vers", []),
        ("--boot", ["--bootstrap"]),
    ],
)
def test_commands_options_and_choices_are_those_of_the_command_line(line: str, expected: list[str]) -> None:
    assert words(line) == expected


def test_every_command_and_option_can_be_completed() -> None:
    commands = words("")
    assert commands == ["serve", "health", "log", "group", "topic", "produce", "consume", "analyze", "cluster", "node", "store", "completion"]
    for command in commands:
        below = words(f"{command} ") if command in ("group", "topic", "log", "analyze", "node", "store") else []
        for line in [f"{command} {name}" for name in below] or [command]:
            assert "--help" in words(f"{line} --") or words(f"{line} ")


def test_an_option_removes_completions_that_it_excludes() -> None:
    assert "--to-latest" in words("group offsets reset g --to")
    assert "--to-latest" not in words("group offsets reset g --to-earliest --to")
    assert "--topic" in words("group offsets reset g --topic t --to")


def test_the_shell_completes_files_and_folders() -> None:
    assert complete(["log", "dump"], "").kind == "files"
    assert complete(["serve", "--data"], "").kind == "folders"
    assert complete(["serve", "--config"], "x").kind == "files"
    assert complete(["store", "export", "--from"], "").kind == "folders"


def test_names_of_groups_and_topics_come_from_the_cluster(named: str) -> None:
    assert words(f"group --bootstrap {named} describe ship") == ["shipping"]
    assert words(f"group members --bootstrap {named} ship") == ["shipping"]
    assert words(f"topic delete --bootstrap={named} orders") == ["orders", "orders.eu"]
    assert words(f"topic delete --bootstrap={named} orders orders") == ["orders.eu"]
    assert words(f"consume pay --bootstrap {named} --group ship") == ["shipping"]
    assert words(f"topic create --bootstrap {named} ord") == []


def test_names_with_control_characters_are_not_completed(named: str) -> None:
    assert words(f"group --bootstrap {named} describe bill") == ["billing", "billing: late & odd"]


def test_completion_does_not_wait_for_a_silent_cluster() -> None:
    with FakeBroker({18: lambda request, version: None}) as silent:
        begin = time.monotonic()
        assert words(f"group --bootstrap {silent.address} describe x") == []
        assert time.monotonic() - begin < NAMES_SECONDS + 2
    assert words(f"group --bootstrap {silent.address} describe x") == []
    assert words("group --bootstrap a:b describe x") == []


def test_bash_completion_respects_word_breaks(tenure: Tenure, named: str) -> None:
    def completions(line: str) -> list[str]:
        result = tenure("completion", "bash", "--words", f":{line}")
        assert (result.code, result.err) == (0, "")
        return result.out.splitlines()

    assert "--kind" in completions("tenure log dump --")
    assert completions("tenure log dump --kind=o") == ["words", "offsets"]
    assert completions(f"tenure --bootstrap {named} group describe bill") == ["words", "billing", r"billing:\ late\ \&\ odd"]
    assert completions(f"tenure --bootstrap {named} group describe 'billing: l") == ["words", r"\ late\ \&\ odd"]
    assert completions("tenure log dump --kind  \"off") == ["words", "offsets"]


def test_zsh_and_fish_completions_have_descriptions(tenure: Tenure) -> None:
    for shell in ("zsh", "fish"):
        assert tenure("completion", shell, "--words", ":tenure", ":lo").out == "words\nlog\tshow and check the logs on disk\n"
        assert "--kind\tonly records of this kind\n" in tenure("completion", shell, "--words", ":tenure", ":log", ":dump", ":--").out


def test_completion_is_a_documented_command(tenure: Tenure) -> None:
    assert "~/.bashrc" in tenure("completion", "bash", "--help").out
    assert "--words" not in tenure("completion", "bash", "--help").out
    assert tenure("completion", "bash", "more").code == 64
    assert tenure("completion", "tcsh").err == "tenure: there is no value 'tcsh'; there is bash, zsh, fish (see tenure completion --help)\n"


# In the shells themselves

@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with a program `tenure`, and its completion scripts."""
    program = tmp_path / "tenure"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m tenure "$@"\n')
    program.chmod(0o755)
    for shell in ("bash", "zsh", "fish"):
        printed = subprocess.run([program, "completion", shell], env=environment(), capture_output=True, text=True, check=True, timeout=SECONDS)
        (tmp_path / f"tenure.{shell}").write_text(printed.stdout)
    return tmp_path


def shell(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not here: apt-get install {name}")
    return path


def settings(folder: Path, **more: str) -> dict[str, str]:
    plain = environment(PATH=f"{folder}{os.pathsep}{os.environ['PATH']}", TERM="dumb", HOME=str(folder), LC_ALL="C.UTF-8", PYTHONPATH=str(ROOT))
    return plain | more


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_the_script_is_understood_by_its_shell(installed: Path, name: str) -> None:
    checked = subprocess.run([shell(name), "-n", installed / f"tenure.{name}"], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_tab_completes_in_bash(installed: Path, named: str) -> None:
    with Terminal([shell("bash"), "--noprofile", "--norc", "-i"], settings(installed, PS1="ready> ")) as typing:
        typing.type(f"cd {installed}; source ./tenure.bash; export TENURE_BOOTSTRAP={named}; echo do''ne\n", r"done\r?\n")
        typing.type("tenure gr\t", "tenure group ")
        typing.type("offs\t", "offsets ")
        typing.type("sh\t", "show ")
        typing.type("ship\t", "shipping ")
        typing.type("--top\t", "--topic ")
        typing.type("pay\t", "payments ")
        assert "--kind=offsets" in typing.type("\x15tenure log dump --kind=off\t", "offsets ")
        typing.type("\x15tenure log dump tenure.f\t", r"tenure\.fish")
        typing.type("\x15tenure serve --set num.part\t", "itions=")
        typing.type("3\x01echo \x05\n", "--set num.partitions=3")
        typing.type("tenure group describe billing:\t", r"billing:\\ late\\ \\&\\ odd ")


def test_tab_completes_in_zsh(installed: Path, named: str) -> None:
    with Terminal([shell("zsh"), "-f", "-i"], settings(installed, PS1="ready> ")) as typing:
        start = f"cd {installed}; autoload -U compinit; compinit -u -D; source ./tenure.zsh; export TENURE_BOOTSTRAP={named}; echo do''ne\n"
        typing.type(start, r"done\r?\n")
        typing.type("tenure gr\t", "oup ")
        typing.type("mem\t", "bers ")
        typing.type("ship\t", "ping ")
        typing.type("--js\t", "on ")
        typing.type("\x15tenure log dump --\t\t", "--batches")
        typing.type("\x15tenure log dump --kind=off\t", "ets")
        typing.type("\x15tenure serve --set num.part\t", "itions=")
        typing.type("3\x01echo \x05\n", "(?m)^tenure serve --set num.partitions=3")
        listed = typing.type("\x15tenure lo\t\x15tenure group offsets \t\t", r"(?s)reset.*show|show.*reset")
        assert "committed offsets" in listed


def test_tab_completes_in_fish(installed: Path, named: str) -> None:
    def completions(line: str) -> list[str]:
        code = f"source {installed}/tenure.fish; complete -C '{line}'"
        command = [shell("fish"), "--no-config", "-c", code]
        run = subprocess.run(command, env=settings(installed, TENURE_BOOTSTRAP=named), capture_output=True, text=True, timeout=SECONDS, check=True)
        return run.stdout.splitlines()

    assert completions("tenure gr") == ["group\tlist, describe and administer consumer groups"]
    assert completions("tenure group members ship") == ["shipping"]
    assert completions("tenure log dump --kind=o") == ["--kind=offsets"]
    assert "--kind\tonly records of this kind" in completions("tenure log dump --")
    assert f"{installed}/tenure.bash" in completions(f"tenure log dump {installed}/tenure.b")
