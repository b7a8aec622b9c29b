"""The command as a process: on a terminal, with closed pipes, under Ctrl-C, and the cost of its start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.fake_brokers import FakeBroker
from tests.cli.terminal import Terminal
from tests.running import PACKAGES, environment, wait_until

pytestmark = pytest.mark.once

COMMAND = (sys.executable, "-P", "-m", "tenure")
SECONDS = 20


def run(*arguments: str, shell: str = "", stdout: int | None = subprocess.PIPE, **more: str) -> subprocess.CompletedProcess[str]:
    command: list[str] = [*COMMAND, *arguments]
    if shell:
        command = ["bash", "-c", shell, "bash", *command]
    return subprocess.run(command, env=environment(**more), stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=SECONDS, check=False)


def on_terminal(*arguments: str, **more: str) -> Terminal:
    settings = {name: value for name, value in environment(TERM="xterm").items() if name != "NO_COLOR"} | more
    return Terminal([*COMMAND, *arguments], settings)


def test_on_a_terminal_there_is_colour_and_in_a_pipe_none(bootstrap: str) -> None:
    with on_terminal("cluster", "--bootstrap", bootstrap) as terminal:
        assert "\x1b[32mcontroller\x1b[0m" in terminal.until("controller\x1b")
        assert terminal.end() == 0
    assert "\x1b" not in run("cluster", "--bootstrap", bootstrap).stdout


def test_no_color_in_the_environment_turns_colours_off(bootstrap: str) -> None:
    with on_terminal("cluster", "--bootstrap", bootstrap, NO_COLOR="1") as terminal:
        assert terminal.end() == 0
    assert "\x1b" not in terminal.text


def test_ctrl_c_ends_quietly() -> None:
    with FakeBroker({18: lambda request, version: None}) as broker, on_terminal("cluster", "--bootstrap", broker.address, "--timeout", "60") as terminal:
        wait_until(lambda: bool(broker.connections), SECONDS)
        terminal.press(b"\x03")
        assert terminal.end() == 130
    assert terminal.text in ("", "^C")


@pytest.mark.parametrize("arguments", [("cluster", "--versions", "--json"), ("--help",), ("completion", "bash"), ("cluster", "--help")])
def test_a_closed_pipe_ends_the_command_quietly(bootstrap: str, arguments: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)
    result = run(*arguments, stdout=write, TENURE_BOOTSTRAP=bootstrap)
    os.close(write)
    assert (result.returncode, result.stderr) == (141, "")


def test_a_disk_that_is_full_is_reported_in_one_line(bootstrap: str) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    result = run("cluster", "--bootstrap", bootstrap, stdout=full)
    os.close(full)
    assert (result.returncode, result.stderr) == (74, "tenure: standard output: No space left on device\n")


CLOSED = "tenure: standard output is closed, and this command only prints; >/dev/null runs it all the same\n"


@pytest.mark.parametrize("arguments", ["topic list", "topic delete x --dry-run", "consume x", "cluster --json", "completion bash", "--help", "--version", ""])
def test_printing_commands_fail_without_standard_output(bootstrap: str, arguments: str) -> None:
    """A script that closed standard output by mistake would otherwise read an empty list."""
    options = ("--bootstrap", bootstrap) if arguments.partition(" ")[0] in ("topic", "consume", "cluster") else ()
    result = run(*arguments.split(), *options, shell='"$@" >&-')
    assert (result.returncode, result.stderr) == (74, CLOSED)


@pytest.mark.parametrize("arguments", ["topic create closed.output --if-not-exists", "produce closed.output --create --value v", "health"])
def test_changing_commands_work_without_standard_output(bootstrap: str, arguments: str) -> None:
    result = run(*arguments.split(), "--bootstrap", bootstrap, shell='"$@" >&-')
    assert (result.returncode, result.stderr) == (0, "")


def test_the_environment_names_the_cluster(bootstrap: str) -> None:
    assert run("cluster", TENURE_BOOTSTRAP=f"127.0.0.1:1,{bootstrap}").returncode == 0
    wrong = run("cluster", TENURE_BOOTSTRAP="kafka:port")
    assert (wrong.returncode, wrong.stderr) == (64, "tenure: TENURE_BOOTSTRAP=kafka:port: 'kafka:port': the port must be 1 to 65535, not 'port'\n")


def test_a_defect_is_reported_in_one_line_and_a_traceback_only_on_request(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import cli.health\ncli.health.run = lambda options: 1 / 0\n")
    path = f"{tmp_path}{os.pathsep}{PACKAGES}"
    result = run("health", PYTHONPATH=path)
    assert result.returncode == 70
    assert result.stderr == "tenure: a defect of this command: ZeroDivisionError: division by zero (TENURE_DEBUG=1 shows where)\n"
    assert "Traceback" in run("health", PYTHONPATH=path, TENURE_DEBUG="1").stderr


def test_health_imports_no_more_than_it_needs() -> None:
    """Monitoring may run `tenure health` every second, so it must start fast."""
    code = "import sys, cli; cli.main(['health', '127.0.0.1:1']); print(*sys.modules)"
    printed = subprocess.run([sys.executable, "-P", "-c", code], env=environment(), stdout=subprocess.PIPE, text=True, timeout=SECONDS, check=True)
    imported = set(printed.stdout.splitlines()[-1].split())
    ours = {name for name in imported if name.partition(".")[0] in ("cli", "protocol", "broker", "coordinator", "storage", "history")}
    assert ours == {
        "broker.backends",
        "broker.backends.table",
        "broker.logging",
        "broker.logging.secrets",
        "cli",
        "cli.arguments",
        "cli.broker_commands",
        "cli.command_line",
        "cli.dial",
        "cli.health",
        "broker",
        "broker.settings",
        "broker.settings.endpoints",
    }
    of_argparse = {"dataclasses"} if sys.version_info[:2] == (3, 14) else set()  # in 3.14 argparse imports dataclasses for its colours
    assert not imported & {"asyncio", "json", "ssl", "difflib", "dataclasses", "logging", "uvloop"} - of_argparse


def test_sigterm_ends_the_command() -> None:
    with FakeBroker({18: lambda request, version: None}) as broker:
        process = subprocess.Popen([*COMMAND, "cluster", "--bootstrap", broker.address], env=environment(), stderr=subprocess.PIPE, text=True)
        wait_until(lambda: bool(broker.connections), SECONDS)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors) == (143, "")


@pytest.mark.parametrize(
    ("arguments", "code"), [("topic create closed.streams --if-not-exists", 0), ("consume closed.streams --no-follow", 74), ("topic creat", 64)]
)
def test_the_exit_code_is_right_with_every_stream_closed(bootstrap: str, arguments: str, code: int) -> None:
    assert run(*arguments.split(), "--bootstrap", bootstrap, shell='"$@" <&- >&- 2>&-').returncode == code
