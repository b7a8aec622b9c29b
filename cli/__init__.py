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

exit codes of log:
  0   everything that was read is sound
  64  the command line cannot be understood
  65  something is damaged, cannot be read or was written by a newer version
  66  there is nothing to read at the path
  74  reading failed
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
    add_log(commands)
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


def add_log(commands: argparse._SubParsersAction[Parser]) -> None:
    log = commands.add_parser(
        "log",
        help="show and check the logs on disk",
        description="Look into the logs of a data directory, also those that Apache Kafka wrote. Nothing is changed or locked; a broker may run on it.",
        allow_abbrev=False,
    )
    actions = log.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    dump = actions.add_parser(
        "dump",
        help="print records",
        description="Print the records of segments, of logs or of a whole data directory, in order: groups, offsets and notes in words, others as text or hex.",
        epilog="Times are UTC. Without --json, damage is one line on standard error and the exit code is 65; docs/logs.md explains both.",
        allow_abbrev=False,
    )
    dump.add_argument("paths", metavar="FILE|DIR", nargs="+", help="a segment (NNN.log), the folder of a log, or a data directory")
    dump.add_argument("--json", action="store_true", help="one JSON object per line")
    dump.add_argument("--batches", action="store_true", help="a line for each record batch too")
    dump.add_argument("--group", metavar="G", help="only what is about this group")
    dump.add_argument("--topic", metavar="T", help="only offsets committed for this topic, its own records, and what is kept about it")
    dump.add_argument("--kind", choices=("offsets", "groups", "notes", "topics", "records"), help="only records of this kind")
    dump.add_argument("--from-offset", metavar="N", type=whole_number, default=0, help="only records from this offset of their log on")
    dump.add_argument("--limit", metavar="N", type=whole_number, help="at most so many records")
    dump.add_argument("--log", metavar="NAME", help="read records as those of this log, for a segment that stands outside its folder")
    verify = actions.add_parser(
        "verify",
        help="check a data directory",
        description="Check a data directory without changing it: a line for each problem, what it means and how to go on, and a line of what is sound.",
        epilog="While a broker runs on the directory, the ends of its logs are still being written, and are not judged.",
        allow_abbrev=False,
    )
    verify.add_argument("directory", metavar="DIR", help="a data directory, or the folder of one log")
    verify.add_argument("--json", action="store_true", help="one JSON object per line")


def whole_number(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) >= 1 << 63:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


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
