"""Arguments that several commands share."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

BOOTSTRAP = "TENURE_BOOTSTRAP"
CLIENT_CONFIG = "TENURE_CLIENT_CONFIG"
BOOTSTRAP_DEFAULT = "127.0.0.1:9092"
TIMEOUT_DEFAULT = 20.0  # Kafka needs 9 s until it notices a dead broker, and some more to replace it
TIMEOUT_HELP = f"how long to wait in all for what does not answer; default: {TIMEOUT_DEFAULT:g}"
KAFKA_PORT = 9092
LONG_MAX = (1 << 63) - 1

Address = tuple[str, int]


def add_cluster_options(parser: argparse.ArgumentParser, *, json_help: str = "print JSON", timeout_help: str = TIMEOUT_HELP) -> None:
    """Add the options for the cluster's address, the timeout and the output format."""
    group = parser.add_argument_group("cluster")
    group.add_argument(
        "--bootstrap",
        metavar="HOST:PORT[,...]",
        type=addresses,
        help=f"bootstrap servers; default: ${BOOTSTRAP}, else {BOOTSTRAP_DEFAULT}",
    )
    add_security_options(group)
    # No default here: `Cluster` has it, since `tenure consume` must know whether the option was given.
    group.add_argument("--timeout", metavar="SECONDS", type=positive_seconds, help=timeout_help)
    group.add_argument("--json", action="store_true", help=json_help)


def add_security_options(group: Any, *, config: Sequence[str] = ("--config", "--command-config"), user: bool = True) -> None:
    """Add the options for a secured cluster. `config`: the names of the option for the file."""
    group.add_argument(
        *config, metavar="FILE", dest="client_config", help=f"settings for TLS and the login, in Kafka's names or librdkafka's; default: ${CLIENT_CONFIG}; see docs/secured.md"
    )
    if user:
        group.add_argument("--user", metavar="NAME", help="log in as this user; asks for the password on the terminal")
        group.add_argument("--password-file", metavar="FILE", help="with --user: the file with the password, in one line")


def add_change_options(parser: argparse.ArgumentParser, *, asks: bool = True) -> None:
    """Add the options of commands that change the cluster."""
    group = parser.add_argument_group("change")
    group.add_argument("--dry-run", action="store_true", help="only show what would happen")
    group.add_argument("--yes", action="store_true", help="do not ask on a terminal" if asks else "accepted, as by every command; this one never asks")


class Help(argparse.RawDescriptionHelpFormatter):
    """Formats help texts: wraps prose, and keeps indented lines (examples) as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        import textwrap

        lines = (line if line.startswith(" ") else textwrap.fill(line, width) for line in text.splitlines())
        return "".join(f"{indent}{line}\n" for line in lines)


def add_family(commands: Any, name: str, *, help: str, description: str, action: str = "action") -> Any:
    """Add a command with actions, such as `group`, and return its actions for `add_command`. `action`: the option that holds the chosen action."""
    parser = commands.add_parser(name, help=help, description=description, formatter_class=Help, allow_abbrev=False)
    return parser.add_subparsers(dest=action, metavar="ACTION", title="actions", required=True)


def add_command(
    commands: Any,
    name: str,
    *,
    run: str,
    help: str,
    description: str | None = None,
    examples: Sequence[str] = (),
    notes: str | Callable[[], str] = "",
    for_output: bool = True,
) -> argparse.ArgumentParser:
    """Add one command. `run`: the module whose `run(options)` is called; `for_output`: the command fails if standard output is closed.

    `notes`: remarks at the end of its help, or what makes them when the help is shown.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help,
        description=description or f"{help[:1].upper()}{help[1:]}.",
        epilog=partial(example_epilog, *examples, notes=notes),
        formatter_class=Help,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run, for_output=for_output)
    return parser


def example_epilog(*examples: str, notes: str | Callable[[], str] = "") -> str | None:
    """The text below the options: example command lines as typed, then other remarks."""
    remarks = notes() if callable(notes) else notes
    parts = []
    if examples:
        parts.append("examples:\n" + "\n".join(f"  {example}" for example in examples))
    if remarks:
        parts.append(remarks.strip())
    return "\n\n".join(parts) or None


def bootstrap_of(options: argparse.Namespace, of_file: str = "") -> list[Address]:
    """The bootstrap addresses: from the command line, else from the file that it names, else from the environment, else from the file that the
    environment names, else the default. `of_file`: bootstrap.servers of the file. Raises ValueError for malformed ones.
    """
    addresses_given: list[Address] | None = options.bootstrap
    if addresses_given:
        return addresses_given
    sources = [(BOOTSTRAP, os.environ.get(BOOTSTRAP, "")), ("bootstrap.servers", of_file)]
    if getattr(options, "client_config", None):
        sources.reverse()
    for name, text in sources:
        if text.strip():
            try:
                return addresses(text)
            except argparse.ArgumentTypeError as error:
                raise ValueError(f"{name}={text}: {error}") from error
    return addresses(BOOTSTRAP_DEFAULT)


# Types of arguments


def addresses(text: str) -> list[Address]:
    """Parse HOST:PORT[,HOST:PORT...]: each address once, in the order given."""
    brokers = dict.fromkeys(address(part.strip()) for part in text.split(",") if part.strip())
    if not brokers:
        raise argparse.ArgumentTypeError("name at least one broker: HOST:PORT")
    return list(brokers)


def address(text: str) -> Address:
    """Parse HOST:PORT. Ignores a listener name before it (PLAINTEXT://); the default port is Kafka's."""
    from broker.settings.endpoints import check_host, packed_address, parse_endpoint

    scheme, separator, rest = text.partition("://")
    if separator:
        if scheme.upper() in ("HTTP", "HTTPS"):
            raise argparse.ArgumentTypeError(f"{text!r} is a web address; name a broker: HOST:PORT")
        text = rest
    try:
        if text.isdigit():
            raise ValueError("the host is missing: write HOST:PORT")
        if ":" not in text or packed_address(text.strip("[]")):
            host, port = text.strip("[]"), KAFKA_PORT
            check_host(host)
        else:
            host, port = parse_endpoint(text, lowest_port=1)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error
    if not host:
        raise argparse.ArgumentTypeError(f"{text!r}: the host is missing: write HOST:PORT")
    return host, port


def whole_number(text: str) -> int:
    return number_in(text, " of at least 0")


def one_partition(text: str) -> int:
    """The type of an option that is repeated for each partition."""
    if "," in text:
        raise argparse.ArgumentTypeError(f"{text!r} is several: repeat --partition for each")
    return whole_number(text)


def positive_number(text: str) -> int:
    value = number_in(text, " of at least 1")
    if not value:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return value


def number_in(text: str, range_text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number{range_text}")
    if too_large(text, LONG_MAX):
        raise argparse.ArgumentTypeError(f"{text} is too large: the maximum is {LONG_MAX}")
    return int(text)


def too_large(digits: str, maximum: int) -> bool:
    """Whether a number is above the maximum. Compares lengths first, since Python refuses to parse thousands of digits."""
    digits = digits.lstrip("0") or "0"
    return len(digits) > len(str(maximum)) or int(digits) > maximum


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1e6:
        number = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
        unit = "; write it without a unit" if number != text and number.replace(".", "", 1).isdigit() else ""
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds{unit}")
    return value


def positive_seconds(text: str) -> float:
    value = seconds(text)
    if not value:
        raise argparse.ArgumentTypeError("it must be more than 0 seconds")
    return value
