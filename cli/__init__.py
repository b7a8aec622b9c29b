"""The `tenure` command. Each subcommand is imported when it is asked for, so that `tenure health` costs next to nothing."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

VERSION = "0.1.0"

EXIT_CODES = """\
exit codes of serve:
  0   stopped in order, by SIGTERM or SIGINT
  64  the command line cannot be understood
  65  the data directory holds what this version cannot serve
  69  an address cannot be listened on
  70  a defect of ours; the log has the traceback
  71  this system is not supported
  73  the data directory cannot be made or written
  74  reading or writing failed
  75  another process holds the data directory
  78  a setting is wrong

exit codes of health:
  0   ready
  1   not answering
  2   answering, but loading or suspended
  64  the command line cannot be understood
  78  a setting is wrong
"""
USAGE = 64
PLATFORM = 71
INTERRUPTED = 130


class Parser(argparse.ArgumentParser):
    """One line for what cannot be understood, and not with exit code 2, which says something else in `tenure health`."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"tenure: {message} (see {self.prog} --help)\n")


def build_parser() -> Parser:
    parser = Parser(
        prog="tenure",
        description="A Kafka-compatible broker whose heart is the consumer-group coordinator with static membership.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"tenure {VERSION}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    add_serve(commands)
    add_health(commands)
    return parser


def add_serve(commands: argparse._SubParsersAction[Parser]) -> None:
    serve = commands.add_parser(
        "serve",
        help="run a broker",
        description="Run a broker until SIGTERM or SIGINT. Settings have Kafka's names where Kafka has one; docs/configuration.md lists them.",
        epilog="What wins: --set and the other flags, then TENURE_... variables (TENURE_GROUP_MAX_SIZE=50), the file, the profile, the default.",
        allow_abbrev=False,
    )
    serve.add_argument("--config", metavar="FILE", help='a TOML file: "max.connections" = 100, or max_connections = 100')
    serve.add_argument("--listen", metavar="HOST:PORT", action="append", default=[], help="where to listen (127.0.0.1:9092); port 0: a free one")
    serve.add_argument("--advertise", metavar="HOST:PORT", action="append", default=[], help="what clients are told to connect to")
    serve.add_argument("--data", metavar="DIR", action="append", default=[], help="the data directory (./data)")
    serve.add_argument("--profile", metavar="NAME", help="a named set of settings; test: for integration tests, data goes with the process")
    serve.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], dest="settings", help="one setting; may be repeated")


def add_health(commands: argparse._SubParsersAction[Parser]) -> None:
    health = commands.add_parser(
        "health",
        help="say whether a broker is ready",
        description="Ask a broker whether it serves groups: exit code 0 when it is ready, 1 when it does not answer, 2 when it is not ready yet.",
        allow_abbrev=False,
    )
    health.add_argument("broker", metavar="HOST:PORT", nargs="?", help="default: the broker of the configuration (TENURE_..., --config)")
    health.add_argument("--wait", metavar="SECONDS", type=seconds, default=0.0, help="how long to try until it is ready")
    health.add_argument("--config", metavar="FILE", help="the configuration that the broker was started with")


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; what it returns is the exit code of the process."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    if sys.platform == "win32":
        print("tenure: Windows is not supported; run it in Docker or in WSL", file=sys.stderr)
        return PLATFORM
    if options.command is None:
        parser.print_help()
        return 0
    try:
        return int(import_module(f"cli.{options.command}").run(options))
    except KeyboardInterrupt:
        return INTERRUPTED
