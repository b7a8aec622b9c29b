"""Arguments of the command line, before any broker is contacted."""

from __future__ import annotations

import argparse
import os
import re

import pytest

from cli.arguments import address, addresses, bootstrap_of, positive_seconds
from cli.command_line import ARGUMENTS, build_parser, options_moved, subcommands
from tests.cli.conftest import Tenure


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kafka:9093", [("kafka", 9093)]),
        ("kafka", [("kafka", 9092)]),
        ("10.0.0.1", [("10.0.0.1", 9092)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[::1]", [("::1", 9092)]),
        ("::1", [("::1", 9092)]),
        ("PLAINTEXT://kafka:9093", [("kafka", 9093)]),
        (" a:1 , b:2,a:1,", [("a", 1), ("b", 2)]),
    ],
)
def test_broker_addresses_are_accepted_in_all_usual_forms(text: str, expected: list[tuple[str, int]]) -> None:
    assert addresses(text) == expected


@pytest.mark.parametrize("text", ["", ",", "kafka:", "kafka:x", "kafka:0", "kafka:99999", ":9092", "http://kafka:9092", "a b:1", "1.2.3:1", "a:1;b:2"])
def test_a_malformed_broker_address_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"\w"):
        addresses(text)


def test_the_command_line_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "TENURE_BOOTSTRAP", "env:1")
    assert bootstrap_of(argparse.Namespace(bootstrap=[("given", 2)])) == [("given", 2)]
    assert bootstrap_of(argparse.Namespace(bootstrap=None)) == [("env", 1)]
    monkeypatch.setitem(os.environ, "TENURE_BOOTSTRAP", " ")
    assert bootstrap_of(argparse.Namespace(bootstrap=None)) == [("127.0.0.1", 9092)]


@pytest.mark.parametrize("text", ["0", "-1", "nan", "soon", "1e9", "inf"])
def test_a_timeout_is_a_number_above_0(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="^it must be more than 0 seconds$" if text == "0" else "is not a number of seconds"):
        positive_seconds(text)


def test_a_single_address_is_parsed_like_a_list() -> None:
    assert address("kafka:1") == ("kafka", 1)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("--bootstrap a:1 cluster", "cluster --bootstrap a:1"),
        ("--json --timeout=3 group list x", "group list --json --timeout=3 x"),
        ("group --json offsets --bootstrap a:1 show g", "group offsets show --json --bootstrap a:1 g"),
        ("cluster --json", "cluster --json"),
        ("serve --set a=b", "serve --set a=b"),
    ],
)
def test_cluster_options_are_accepted_at_any_position(written: str, read: str) -> None:
    assert options_moved(build_parser(), written.split()) == read.split()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("grop list", "there is no command 'grop'; did you mean group? (see tenure --help)"),
        ("group lst", "there is no command 'lst'; did you mean list? (see tenure group --help)"),
        ("cluster --jsn", "there is no option --jsn; did you mean --json? (see tenure cluster --help)"),
        ("--bootstarp a:1 cluster", "there is no option --bootstarp; did you mean --bootstrap? (see tenure --help)"),
        ("cluster more", "'more' is one word too many: tenure cluster has no actions (see tenure cluster --help)"),
        ("cluster --bootstrap", "--bootstrap: a value is missing (see tenure cluster --help)"),
        ("--bootstrap", "--bootstrap: a value is missing (see tenure --help)"),
        ("produce t --key -x", "--key: a value is missing; one that begins with - needs =: --key=-x (see tenure produce --help)"),
        ("produce t --key --value v", "--key: a value is missing (see tenure produce --help)"),
        ("produce t --key --", "--key: a value is missing (see tenure produce --help)"),
        (
            "group offsets reset g --by-duration -1h --all-topics",
            "--by-duration: '-1h' is not a duration like 90s, 15m, 1h30m, 2d or PT1H30M; it has no sign, as it always reaches back from now "
            "(see tenure group offsets reset --help)",
        ),
        ("consume t --from -1h", "--from '-1h' is not a position; did you mean 1h? An age has no sign"),
        ("--json", "name a command (see tenure --help)"),
        ("log dump --kind offests x", "--kind cannot be 'offests'; did you mean offsets? (see tenure log dump --help)"),
        ("log", "ACTION is missing: dump, verify (see tenure log --help)"),
        ("consume t --from 1 --from-beginning", "--from and --from-beginning exclude each other (see tenure consume --help)"),
        ("group offsets reset g", "one of these is missing: --to-earliest, --to-latest, --to-offset, "),
        ("group members bad\udcff", r"'bad\xff' is not UTF-8; names must be"),
        (f"group members {'g' * 40_000}", "a string of 40000 bytes; at most 32767 are allowed"),
        ("group list --bootstrap-server x", "there is no option --bootstrap-server; did you mean --bootstrap? (see tenure group list --help)"),
        ("serve --port 1", "there is no option --port; did you mean --listen? (see tenure serve --help)"),
        ("cluster --port 1", "there is no option --port; did you mean --bootstrap? (see tenure cluster --help)"),
        ("consume --topic orders", "there is no option --topic: write TOPIC without it (see tenure consume --help)"),
        ("group describe --group g", "there is no option --group: write GROUP without it (see tenure group describe --help)"),
        ("offsets reset", "there is no command 'offsets'; did you mean tenure group offsets? (see tenure --help)"),
        ("alter t", "there is no command 'alter'; did you mean tenure topic alter? (see tenure --help)"),
        ("cluster --bootstrap 9092", "--bootstrap: '9092': the host is missing: write HOST:PORT (see tenure cluster --help)"),
        ("cluster --timeout soon", "--timeout: 'soon' is not a number of seconds (see tenure cluster --help)"),
        ("\x1b[31m", r"there is no command '\x1b[31m'; there is serve, health, "),
    ],
)
def test_a_mistyped_word_is_answered_with_a_suggestion(bootstrap: str, tenure: Tenure, line: str, message: str) -> None:
    result = tenure(*line.split(), *(("--bootstrap", bootstrap) if "members" in line else ()))
    assert result.code == 64
    assert result.out.count("\n") == ("--json" in line)
    assert result.err.startswith(f"tenure: {message}")
    assert result.err.count("\n") == 1


def test_the_help_names_every_command_and_action(tenure: Tenure) -> None:
    page = tenure("--help").out
    commands = subcommands(build_parser())
    assert list(commands) == list(ARGUMENTS)
    for name, parser in commands.items():
        assert re.search(rf"^  {name}\b", page, re.MULTILINE)
        for action in subcommands(parser):
            assert re.search(rf"^  {name}\b.*\n(?:               .*\n)*               (?:.*, )?{action}(?:,|$)", page, re.MULTILINE)


def test_every_command_and_action_has_help_with_an_example(tenure: Tenure) -> None:
    def leaves(parser: argparse.ArgumentParser, path: list[str]) -> list[list[str]]:
        below = subcommands(parser)
        return [leaf for name, further in below.items() for leaf in leaves(further, [*path, name])] if below else [path]

    for path in leaves(build_parser(), []):
        result = tenure(*path, "--help")
        assert result.code == 0
        assert f"\n  tenure {' '.join(path)}" in result.out or "tenure completion" in result.out, path
        prose = result.out.partition("\n\n")[2]  # without the usage, in which argparse does not wrap long alternatives
        assert max(map(len, prose.splitlines())) <= 140, path


@pytest.mark.parametrize(("line", "equivalent"), [("help", "--help"), ("help group", "group --help"), ("help topic list", "topic list --help")])
def test_help_is_also_a_command(tenure: Tenure, line: str, equivalent: str) -> None:
    assert tenure(*line.split()) == tenure(*equivalent.split())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("topic create t --partitions 99999999999999", "--partitions: 99999999999999 is too large: the maximum is 2147483647"),
        (f"topic create t --partitions {'9' * 5000}", "is too large: the maximum is 2147483647"),
        ("topic create t --partitions 2147483648", "the maximum is 2147483647"),
        ("topic create t --partitions 0", "'0' is not a number of at least 1"),
        ("topic create t --replication-factor 32768", "--replication-factor: 32768 is too large: the maximum is 32767"),
        ("consume t --limit 9223372036854775808", "--limit: 9223372036854775808 is too large: the maximum is 9223372036854775807"),
        (f"consume t --limit {'9' * 5000}", "is too large"),
        ("consume t --limit -1", "'-1' is not a whole number of at least 0"),
        ("group offsets reset g --shift-by x --all-topics", "--shift-by: 'x' is not a whole number, such as 100 or -100"),
        ("serve --nodes x", "--nodes: 'x' is not a whole number of at least 1"),
        ("serve --nodes 0", "--nodes: '0' is not a whole number of at least 1"),
        ("cluster --bootstrap h:99999", "--bootstrap: 'h:99999': the port must be 1 to 65535, not '99999'"),
        ("cluster --bootstrap h:0", "--bootstrap: 'h:0': the port must be 1 to 65535, not '0'"),
    ],
)
def test_a_number_that_is_too_large_is_answered_with_the_limit(tenure: Tenure, line: str, message: str) -> None:
    result = tenure(*line.split())
    assert (result.code, result.out) == (64, "")
    assert message in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize("line", ["group describe g\udcff", "consume t --partition \udcff", "log dump /nosuch\udcff", "topic list --bootstrap \udcff:1", "\udcff"])
def test_invalid_utf_8_is_shown_as_bytes(tenure: Tenure, bootstrap: str, line: str) -> None:
    result = tenure(*line.split(), *(("--bootstrap", bootstrap) if "describe" in line else ()))
    assert r"\xff" in result.err
    assert "udcff" not in result.err
