"""`python -m bench`: measure floor and broker alternately; print the ratios as a table or as JSON."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

from bench import instructions, rows, table
from bench.kafka import kafka
from bench.load import LoadError
from bench.machine import Watch, choose_cores, describe
from bench.native import ROOT, BuildError, Tools, tools
from bench.run import Run
from bench.servers import SETTINGS, ServerError, broker, environment
from protocol.wire import COMPILED

ROUNDS = 5
SECONDS = 1.0
PATIENCE = 30.0
OK, FAILED, CANNOT_RUN = 0, 1, 2


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="The cost of the broker, as ratios to a server that does nothing.",
        epilog=f"Rows: {', '.join(rows.ALL_NAMES)}. Exit code: 0, 1 the broker failed (or, with --check, missed a target), 2 could not run.",
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"number of rounds, each of which measures floor and broker ({ROUNDS})")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"seconds of each measurement ({SECONDS:g})")
    parser.add_argument(
        "--patience", type=float, default=PATIENCE, metavar="SECONDS",
        help=f"how long each row may wait for a calm machine and repeat disturbed measurements ({PATIENCE:g})",
    )  # fmt: skip
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this row, or all rows whose names begin with NAME; may be repeated")
    parser.add_argument("--json", metavar="FILE", help="the results as JSON as well; - for standard output, instead of the table")
    parser.add_argument("--check", action="store_true", help="a missed target is a failure")
    parser.add_argument("--nodes", type=int, default=1, metavar="N", help="measure only the cost and the gain of N nodes, compared with one broker")
    parser.add_argument("--store", choices=("nats",), help="measure only the cost of commits over NATS JetStream, compared with a directory")
    parser.add_argument("--compiled", action="store_true", help="measure also a compiled broker, which is built first in a copy under build/")
    parser.add_argument("--kafka", action="store_true", help="measure also Apache Kafka and a compiled broker, if Java is installed: takes many more minutes")
    parser.add_argument("--instructions", action="store_true", help="count instructions per request of the load rows, with valgrind: takes some more minutes")
    options = parser.parse_args()
    if options.rounds < 1 or options.seconds <= 0:
        parser.error("--rounds and --seconds must be positive")
    try:
        options.only = rows.chosen(options.only)
    except ValueError as error:
        parser.error(str(error))
    return options


def main() -> int:
    options = arguments()
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
    if options.nodes > 1:
        return measure_nodes(built, options) if built is not None else CANNOT_RUN
    if options.store:
        return measure_jetstream(built, options) if built is not None else CANNOT_RUN
    run = Run(built, cores, options.rounds, options.seconds, options.patience, options.only)
    with ExitStack() as stack:
        packages = compiled_copy() if options.compiled or options.kafka else None
        if packages is not None:
            run.add_compiled(packages, stack.enter_context(broker(cores.server, packages=packages)))
        if options.kafka:
            try:
                jars = kafka_jars()
                run.add_kafka(jars, stack.enter_context(kafka(jars, cores.server)))
            except (ServerError, LoadError) as error:
                print(f"bench: no Kafka: {error}", file=sys.stderr)
                return CANNOT_RUN
        run.measure()
    instruction_counts = count_instructions(options.only, packages) if options.instructions and built is not None else {}
    report = {
        "machine": describe(),
        "cores": cores.note,
        "compiled": COMPILED,
        "settings": list(SETTINGS),
        "rounds": options.rounds,
        "seconds": options.seconds,
        "noise": {
            "load_before": watch.load,
            "steal": watch.steal(),
            "floor_spread": run.floor_spread(),
            "busy": run.busy(),
            "witness_worst": run.witnessed(),
        },
        "kafka_laps": run.kafka_laps,
        "rows": run.results,
        "instructions": instruction_counts,
        "took_s": time.monotonic() - begin,
    }
    report["missed"] = table.missed_targets(report)
    print_report(report, options.json)
    failed = any(result["status"] == "failed" for result in run.results.values())
    return FAILED if failed or (options.check and report["missed"]) else OK


def measure_nodes(built: Tools, options: argparse.Namespace) -> int:
    from bench import nodes

    try:
        measured = nodes.measure(built, options.nodes, options.rounds, options.seconds)
    except (LoadError, AssertionError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return FAILED
    text, all_within = nodes.report(measured, options.nodes)
    print(text)
    return FAILED if options.check and not all_within else OK


def measure_jetstream(built: Tools, options: argparse.Namespace) -> int:
    from bench import jetstream

    try:
        measured = jetstream.measure(built, options.rounds, options.seconds)
    except (LoadError, AssertionError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return FAILED
    text, all_within = jetstream.report(measured)
    print(text)
    return FAILED if options.check and not all_within else OK


def leave(number: int, frame: object) -> NoReturn:
    """A signal handler: exit by an exception, so that contexts stop the processes that they started."""
    sys.exit(128 + number)


def kafka_jars() -> Path:
    """The Kafka jars that the oracle of the tests uses, downloaded if missing."""
    from tests.oracle import find_jars

    jars = find_jars()
    if isinstance(jars, str):
        raise ServerError(jars)
    return jars


def compiled_copy() -> Path | None:
    """A compiled copy of this tree, rebuilt if it is older. None, with a message, if it cannot be built."""
    if COMPILED:
        print("bench: this tree is compiled itself, so there is no second compiled column", file=sys.stderr)
        return None
    folder = ROOT / "build" / "compiled"
    building = [sys.executable, "-P", "-m", "project.compiled", "--copy", str(folder)]
    if subprocess.run(building, cwd=ROOT, env=environment(), stdout=sys.stderr, check=False).returncode:
        print("bench: there is no compiled column", file=sys.stderr)
        return None
    return folder


def count_instructions(only: set[str], packages: Path | None) -> dict[str, dict[str, float]]:
    if not instructions.available():
        print("bench: there is no valgrind, so instructions are not counted", file=sys.stderr)
        return {}
    builds = {"plain": ROOT} | ({"compiled": packages} if packages is not None else {})
    return instructions.count([name for name in instructions.COUNTED if name in only], builds, lambda line: print(f"bench: {line}", file=sys.stderr))


def print_report(report: dict[str, Any], path: str | None) -> None:
    if path == "-":
        print(json.dumps(report, indent=1))
        return
    if path is not None:
        Path(path).write_text(json.dumps(report, indent=1) + "\n")
    print(table.text(report))


if __name__ == "__main__":
    sys.exit(main())
