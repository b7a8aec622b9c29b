"""`python -m bench`: floor and broker in turn, the ratios as a table and as JSON."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

from bench import rows, table
from bench.kafka import kafka
from bench.load import LoadError
from bench.machine import Watch, choose_cores, describe
from bench.native import BuildError, Tools, tools
from bench.run import Run
from bench.servers import SETTINGS, ServerError
from protocol.wire import COMPILED

ROUNDS = 5
SECONDS = 1.0
PATIENCE = 30.0
OK, FAILED, CANNOT_RUN = 0, 1, 2


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="What the broker costs, as ratios to a server that does nothing.",
        epilog=f"Rows: {', '.join(rows.ALL_NAMES)}. Exit code: 0, 1 the broker failed (or, with --check, missed a target), 2 could not run.",
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"how often floor and broker take turns ({ROUNDS})")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"measured seconds of each turn ({SECONDS:g})")
    parser.add_argument(
        "--patience", type=float, default=PATIENCE, metavar="SECONDS",
        help=f"how long each row may wait for a calm machine and measure again what was disturbed ({PATIENCE:g})",
    )  # fmt: skip
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this row, or those whose name begins so; may be repeated")
    parser.add_argument("--json", metavar="FILE", help="the results as JSON as well; - for standard output, instead of the table")
    parser.add_argument("--check", action="store_true", help="a missed target is a failure")
    parser.add_argument("--kafka", action="store_true", help="a real Apache Kafka beside it, where Java is: some minutes more")
    given = parser.parse_args()
    if given.rounds < 1 or given.seconds <= 0:
        parser.error("--rounds and --seconds must be positive")
    try:
        given.only = rows.chosen(given.only)
    except ValueError as error:
        parser.error(str(error))
    return given


def main() -> int:
    given = arguments()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
    begin, watch, cores = time.monotonic(), Watch(), choose_cores()
    built: Tools | None = None
    try:
        built = tools()
    except BuildError as error:
        print(f"bench: {error}", file=sys.stderr)
        if sys.platform == "linux":
            return CANNOT_RUN
    run = Run(built, cores, given.rounds, given.seconds, given.patience, given.only)
    with ExitStack() as stack:
        if given.kafka:
            try:
                jars = kafka_jars()
                run.beside(jars, stack.enter_context(kafka(jars, cores.server)))
            except (ServerError, LoadError) as error:
                print(f"bench: no Kafka: {error}", file=sys.stderr)
                return CANNOT_RUN
        run.measure()
    report = {
        "machine": describe(),
        "cores": cores.note,
        "compiled": COMPILED,
        "settings": list(SETTINGS),
        "rounds": given.rounds,
        "seconds": given.seconds,
        "noise": {
            "load_before": watch.load,
            "steal": watch.steal(),
            "floor_spread": run.floor_spread(),
            "busy": run.busy(),
            "witness_worst": run.witnessed(),
        },
        "rows": run.results,
        "took_s": time.monotonic() - begin,
    }
    report["missed"] = table.missed(report)
    tell(report, given.json)
    failed = any(result["status"] == "failed" for result in run.results.values())
    return FAILED if failed or (given.check and report["missed"]) else OK


def leave(number: int, frame: object) -> NoReturn:
    """By exception, so that whatever was started is ended on the way out."""
    sys.exit(128 + number)


def kafka_jars() -> Path:
    """The jars that the oracle of the tests uses; fetched by name when they are not there."""
    from tests.oracle import find_jars

    jars = find_jars()
    if isinstance(jars, str):
        raise ServerError(jars)
    return jars


def tell(report: dict[str, Any], where: str | None) -> None:
    if where == "-":
        print(json.dumps(report, indent=1))
        return
    if where is not None:
        Path(where).write_text(json.dumps(report, indent=1) + "\n")
    print(table.text(report))


if __name__ == "__main__":
    sys.exit(main())
