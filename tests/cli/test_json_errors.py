"""With --json standard output is always JSON, and every error has the same format. All commands of the parser are tried."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cli
from cli.command_line import build_parser, subcommands
from cli.failure import KINDS
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsResponse
from tests.cli.conftest import CommandResult, Tenure
from tests.cli.fake_brokers import FakeBroker

pytestmark = pytest.mark.once

# Required options of commands. Tests fail for a new command with such options until it is listed here.
REQUIRED_OPTIONS = {
    "group remove-member": "--all",
    "group offsets reset": "--all-topics --to-earliest",
    "group offsets delete": "--topic t",
    "group rebalance": "--reason why",
    "topic alter": "--partitions 3",
    "topic delete-records": "--before 1",
    "produce": "--value v",
    "consume": "--limit 1 --from-beginning",
    "analyze run": "--offsets nosuch --out nosuch",
    "analyze ingest": "--offsets nosuch --out nosuch",
    "analyze build": "--out nosuch",
    "analyze advise": "--out nosuch --group g",
    "analyze status": "--out nosuch",
    "analyze whatif": "--out nosuch --group g",
    "analyze reconcile": "--out nosuch",
    "analyze optimize": "--out nosuch",
    "analyze rechunk": "--out nosuch --chunks 4",
    "store export": "--from nosuch --to nosuch",
    "store import": "--from nosuch --to nats://127.0.0.1",
}

# Commands whose positional arguments are not all names.
POSITIONAL = {
    "topic config show": ["nosuch"],
    "topic config set": ["nosuch", "retention.ms=1000"],
    "topic config unset": ["nosuch", "retention.ms"],
    "group policy set": ["nosuch", "registration.timeout.ms=1000"],
    "group policy unset": ["nosuch", "registration.timeout.ms"],
    "node drain": ["1"],
    "node undrain": ["1"],
}


def leaves(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    children = subcommands(parser)
    if not children:
        yield name, parser
    for word, child in children.items():
        yield from leaves(child, f"{name} {word}".strip())


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    return {option for action in parser._actions for option in action.option_strings}


COMMANDS = dict(leaves(build_parser()))
# `analyze report` writes a file of JSON: its --json has a value.
JSON_COMMANDS = [name for name, parser in COMMANDS.items() if "--json" in options_of(parser) and name != "analyze report"]
CLUSTER_COMMANDS = [name for name in JSON_COMMANDS if "--bootstrap" in options_of(COMMANDS[name])]


def line_of(name: str, word: str = "nosuch") -> list[str]:
    """A valid command line for the command, with `word` for every positional name."""
    positional = POSITIONAL.get(name) or [word for action in COMMANDS[name]._actions if not action.option_strings and action.nargs != "?"]
    return [*name.split(), *positional, *REQUIRED_OPTIONS.get(name, "").split(), "--json"]


def error_of(result: CommandResult, code: int | None = None) -> dict[str, Any]:
    """The error in the output: in the only JSON document, or in the last of several JSON lines."""
    assert result.code != 0 if code is None else result.code == code, result
    try:
        document = json.loads(result.out)
    except ValueError:
        *_, document = [json.loads(line) for line in result.out.splitlines()]
    error: dict[str, Any] = document["error"]
    assert set(error) == {"code", "message", "hint"}
    assert isinstance(error["code"], str)
    assert error["code"].replace("-", "").isalpha()
    assert error["message"]
    assert error["hint"] is None or error["hint"]
    return error


def test_commands_are_found() -> None:
    assert {"group offsets reset", "consume", "health", "log dump"} <= set(JSON_COMMANDS)
    assert len(CLUSTER_COMMANDS) >= 17


@pytest.mark.parametrize("name", CLUSTER_COMMANDS)
def test_a_missing_broker_is_a_json_error_at_once(tenure: Tenure, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("cli.client.patience.time.sleep", lambda seconds: pytest.fail(f"{name} waits for a broker that has never answered"))
    result = tenure(*line_of(name), "--bootstrap", "127.0.0.1:1")
    error = error_of(result, 1 if name == "health" else 69)
    assert error["code"] == "unreachable"
    assert error["hint"]
    assert error["message"] in result.err + result.out


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "analyze report"])
def test_an_invalid_command_line_is_a_json_error(tenure: Tenure, name: str) -> None:
    result = tenure(*name.split(), "--json", "--no-such-option")
    error = error_of(result, 64)
    assert error["code"] == "usage"
    assert error["hint"] == f"see tenure {name} --help"
    assert result.err == f"tenure: {error['message']}\n"


@pytest.mark.parametrize("line", ["--json", "--json nosuch", "group --json", "group nosuch --json", "--json --bootstrap", "--json --no-such-option"])
def test_a_missing_command_is_a_json_error(tenure: Tenure, line: str) -> None:
    assert error_of(tenure(*line.split()), 64)["code"] == "usage"


def test_json_after_two_dashes_is_no_option(tenure: Tenure) -> None:
    assert tenure("topic", "describe", "--bootstrap", "127.0.0.1:1", "--", "--json").out == ""


UNKNOWN = {"group": "unknown-group", "topic": "unknown-topic", "produce": "unknown-topic", "consume": "unknown-topic"}


def of_existing() -> list[str]:
    """Commands that need an existing group or topic. The policy commands do not: a group may have policies before it exists."""
    names = [name for name in CLUSTER_COMMANDS if name.split()[0] in UNKNOWN and not name.endswith((" list", " create"))]
    return [name for name in names if not name.startswith("group policy ") and name != "group rebalance"]


@pytest.mark.parametrize("name", of_existing())
def test_an_unknown_group_or_topic_is_a_json_error(client_command: Tenure, name: str) -> None:
    result = client_command(*line_of(name))
    if name == "group offsets reset":  # a new group, without commits, may be reset
        assert error_of(result, 66)["code"] in ("not-found", "unknown-group")
        return
    error = error_of(result, 66)
    assert error["code"] == UNKNOWN[name.split()[0]]
    assert "list lists all " in error["hint"]


@pytest.mark.parametrize("name", ["group describe", "group offsets show", "topic describe"])
def test_groups_that_exist_are_printed_with_the_error(client_command: Tenure, name: str) -> None:
    assert client_command("produce", "there", "--create", "--value", "v").code == 0
    assert client_command("consume", "there", "--group", "there", "--from-beginning", "--limit", "1").code == 0
    result = client_command(*name.split(), "there", "nosuch", "--json")
    assert error_of(result, 66)["message"].count("nosuch") == 1
    assert len(json.loads(result.out)[f"{name.split()[0]}s"]) == 1


def refuse(code: int) -> FakeBroker:
    """A broker that answers ApiVersions with this error code."""
    return FakeBroker({18: lambda request, version: ApiVersionsResponse(error_code=code)}, versions={18: (0, 3)})


@pytest.mark.parametrize("name", CLUSTER_COMMANDS)
@pytest.mark.parametrize("code", [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_an_error_reply_is_a_json_error(tenure: Tenure, name: str, code: int) -> None:
    with refuse(code) as broker:
        error_of(tenure(*line_of(name), "--bootstrap", broker.address, "--timeout", "0.3"))


@pytest.mark.parametrize("name", JSON_COMMANDS)
def test_a_defect_is_a_json_error(tenure: Tenure, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def broken(options: argparse.Namespace) -> int:
        raise ZeroDivisionError("division by zero")

    monkeypatch.delenv("TENURE_DEBUG", raising=False)
    monkeypatch.setattr(f"{COMMANDS[name].get_default('run')}.run", broken)
    error = error_of(tenure(*line_of(name)), 70)
    assert error["code"] == "defect"
    assert "TENURE_DEBUG=1" in error["hint"]


@pytest.mark.parametrize("name", JSON_COMMANDS)
def test_an_interrupt_is_a_json_error(tenure: Tenure, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def interrupted(options: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"{COMMANDS[name].get_default('run')}.run", interrupted)
    result = tenure(*line_of(name))
    assert error_of(result, cli.INTERRUPTED)["code"] == "interrupted"
    assert result.err == ""


@pytest.mark.parametrize("action", ["dump", "verify"])
def test_missing_logs_are_a_json_error(tenure: Tenure, tmp_path: Path, action: str) -> None:
    assert error_of(tenure("log", action, "--json", str(tmp_path / "no")), 66)["code"] == "not-found"


def test_an_error_of_the_cluster_has_kafkas_name(client_command: Tenure) -> None:
    error = error_of(client_command("topic", "create", "x", "--replication-factor", "3", "--json"), 1)
    assert error["code"] == "invalid-replication-factor"
    assert client_command("topic", "create", "twice").code == 0
    result = client_command("topic", "create", "once", "twice", "--json")
    assert error_of(result, 1)["code"] == "topic-already-exists"
    assert [entry.get("error", {}).get("code") for entry in json.loads(result.out)["topics"]] == [None, "topic-already-exists"]


def test_records_sent_before_an_unreadable_line_are_counted(client_command: Tenure) -> None:
    lines = '{"value": "a"}\nno json\n'
    result = client_command("produce", "before", "--create", "--json-lines", "--json", stdin=lines)
    assert error_of(result, 65)["code"] == "damaged"
    assert json.loads(result.out)["records"] == 1


def test_consumed_records_are_printed_before_the_error(client_command: Tenure) -> None:
    assert client_command("produce", "lines", "--create", "--value", "a", "--value", "b").code == 0
    result = client_command("consume", "lines", "--json", "--from-beginning", "--no-follow")
    assert [json.loads(line)["value"] for line in result.out.splitlines()] == ["a", "b"]
    failed = client_command("consume", "lines", "nosuch", "--json", "--from-beginning", "--no-follow")
    assert error_of(failed, 66)["code"] == "unknown-topic"


def test_the_last_json_line_of_a_failed_consumer_is_the_error(client_command: Tenure) -> None:
    failed = client_command("consume", "nosuch", "--json").out
    error = error_of(client_command("produce", "piped", "--create", "--json-lines", "--json", stdin=failed), 65)
    assert "line 1" in error["message"]
    assert "does not exist" in error["message"]


def test_every_json_error_kind_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
    assert all(f"`{word}`" in page for word in KINDS.values())
