from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import cli
import cli.help
from broker.runtime.build import build
from broker.runtime.start import ExitCode

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> int:
    try:
        return cli.main(arguments)
    except SystemExit as end:
        return int(end.code or 0)


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"tenure {cli.VERSION} ({build()})\n"
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "tenure.__version__"}


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    page = capsys.readouterr().out
    assert "serve" in page
    assert len(page.splitlines()) <= 48  # one screen
    assert max(map(len, page.splitlines())) <= 100


def test_the_exit_codes_are_a_page_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("help", "exit-codes") == 0
    assert capsys.readouterr().out == cli.help.EXIT_CODES
    assert run("help", "exit-code") == 64
    assert "did you mean exit-codes?" in capsys.readouterr().err
    run()
    assert "tenure help exit-codes" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [["serv"], ["serve", "--lis", "x"], ["serve", "--listen"], ["serve", "x"], ["health", "--wait", "soon"], ["health", "--wait", "-1"]]
)
def test_a_usage_error_is_reported_in_one_line_with_exit_code_64(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments) == 64
    output = capsys.readouterr()
    assert output.out == ""
    assert re.fullmatch(r"tenure: .*--help\)\n", output.err)


def test_on_windows_the_alternative_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert run("serve") == ExitCode.PLATFORM
    assert capsys.readouterr().err == "tenure: Windows is not supported; run it in Docker or in WSL\n"


def test_an_interrupt_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("cli.health.run", interrupted)
    assert run("health") == 130
    assert capsys.readouterr().err == ""


def test_the_help_lists_every_exit_code() -> None:
    serve = cli.help.EXIT_CODES.partition("exit codes of health")[0]
    assert {int(code) for code in re.findall(r"^  (\d+)", serve, re.MULTILINE)} == set(ExitCode)
    assert (cli.USAGE, cli.PLATFORM) == (ExitCode.USAGE, ExitCode.PLATFORM)


def test_the_light_commands_import_nothing_heavy() -> None:
    code = (
        "import sys; import cli; sys.argv = ['tenure']; import cli.health; cli.health.parsed_address('h:1');"
        "heavy = {'asyncio', 'uvloop', 'dataclasses', 'tomllib', 'logging', 'broker.config', 'protocol'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-P", "-c", code], env={"PYTHONPATH": str(ROOT)}, check=True, stdout=subprocess.PIPE, text=True)
    assert run.stdout == "[]\n"
