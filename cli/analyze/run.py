"""`tenure analyze run`, `ingest` and `build`: read new records, build the tables, and write the report."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING

from cli import VERSION, Interrupted, code_of_interrupt
from cli.analyze.arguments import EVERY_DEFAULT
from cli.analyze.opened import open_warehouse
from cli.analyze.report import STANDARD_OUTPUT, check_target
from cli.failure import Exit, Failure
from cli.records.interrupts import Interrupts
from cli.shown import Screen

if TYPE_CHECKING:
    from pipeline.inputs import Inputs
    from pipeline.progress import Progress
    from pipeline.runner import Runner
    from pipeline.warehouse import Warehouse

WITHOUT_SPARK = "none"


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    follows = options.endless = getattr(options, "follow", False)
    if getattr(options, "every", None) is not None and not follows:
        raise Failure(Exit.USAGE, "--every is the pause between two runs of --follow; add --follow, or leave --every out")
    if getattr(options, "report", None):
        if options.report == STANDARD_OUTPUT:
            raise Failure(Exit.USAGE, "--report -: standard output has the summary of the run; name a file, or run `tenure analyze report --html -` after it")
        check_target(options.report)
    with open_warehouse(options, create=options.action != "build") as warehouse, Interrupts() if follows else nullcontext() as interrupts:
        from pipeline.inputs import BadInput, NoAnswer, NoSuchLog, folders_of
        from pipeline.progress import to_standard_error
        from pipeline.runner import SparkFailed
        from pipeline.wire_reading import check_limits

        progress = to_standard_error(options.quiet)
        try:
            if options.action != "build":
                inputs = inputs_of(options)  # raises for wrong inputs before Spark is started
                check_limits(inputs, folders_of(inputs))
            if interrupts is None:
                with warehouse.locked(), open_runner(options, progress) as runner:
                    show(screen, run_once(options, warehouse, runner, progress))
            else:
                with interrupts.waiting():
                    follow(options, warehouse, screen, progress)
        except Interrupted as interrupted:
            return code_of_interrupt(interrupted, options)
        except NoAnswer as error:
            raise Failure(Exit.UNREACHABLE, str(error), hint="name a broker that runs: kafka://HOST:PORT") from None
        except NoSuchLog as error:
            raise Failure(Exit.USAGE, f"--until-offset: {error}") from None
        except BadInput as error:
            raise Failure(Exit.DAMAGED, str(error)) from None
        except SparkFailed as error:
            raise Failure(Exit.REFUSED, f"{error}; run it again: it begins where the last complete run ended", kind="spark-failed") from error
    return Exit.DONE


def run_once(options: argparse.Namespace, warehouse: Warehouse, runner: Runner, progress: Progress) -> dict[str, object]:
    """Run the steps of the command: ingest, build and report, or some of these. The caller holds the lock of the warehouse."""
    summary = ingest(options, warehouse, runner, progress) if options.action != "build" else {}
    if options.action != "ingest":
        summary |= build(options, warehouse, runner, progress)
    if getattr(options, "report", None):
        summary |= report(options, warehouse)
    return summary


def follow(options: argparse.Namespace, warehouse: Warehouse, screen: Screen, progress: Progress) -> None:
    """Repeat the run until interrupted, and release the lock of the warehouse between two runs.

    A run removes the remains of an interrupted run, and reads its input again.
    """
    from pipeline.inputs import NoAnswer
    from pipeline.warehouse import WarehouseBusy

    every = options.every if options.every is not None else EVERY_DEFAULT
    with ExitStack() as stack:
        with warehouse.locked():
            runner = stack.enter_context(open_runner(options, progress))
            show(screen, run_once(options, warehouse, runner, progress), line=True)
        options.full = False
        while True:
            time.sleep(every)
            try:
                with warehouse.locked():
                    before = warehouse.current().run
                    summary = run_once(options, warehouse, runner, progress)
                    if warehouse.current().run > before:
                        show(screen, summary, line=True)
            except (WarehouseBusy, NoAnswer) as error:
                screen.warn(f"{error}; trying again in {every:g} s")


def show(screen: Screen, summary: dict[str, object], *, line: bool = False) -> None:
    """Print the summary of a run; `line`: in one line, for --follow."""
    if screen.json and not line:
        screen.document(summary)
    elif screen.json:
        screen.json_line(summary)
    elif line:
        screen.line(", ".join(f"{name}: {value}" for name, value in summary.items()))
        screen.out.flush()
    else:
        for name, value in summary.items():
            screen.line(f"{name}: {value}")


@contextmanager
def open_runner(options: argparse.Namespace, progress: Progress) -> Iterator[Runner]:
    from pipeline.runner import SequentialRunner, SparkRunner

    if options.master == WITHOUT_SPARK:
        yield SequentialRunner(progress)
        return
    from pipeline.session import session

    with session(options.master, dict(options.conf)) as spark:
        yield SparkRunner(spark, progress)


def inputs_of(options: argparse.Namespace) -> Inputs:
    from pipeline.inputs import Inputs

    return Inputs.of(
        options.offsets,
        options.notes or [],
        cluster=options.cluster,
        on_corrupt=options.on_corrupt,
        until=partition_limits(options.until_offset),
        offsets_retention_ms=None if options.offsets_retention is None else round(options.offsets_retention * 1_000),
    )


def ingest(options: argparse.Namespace, warehouse: Warehouse, runner: Runner, progress: Progress) -> dict[str, object]:
    from pipeline.ingest import ingest
    from pipeline.live_ends import store_live_ends
    from pipeline.retention import store_retention
    from pipeline.samples import record_directories

    inputs = inputs_of(options)
    summary = ingest(warehouse, runner, inputs, progress)
    record_directories(warehouse, inputs)
    store_live_ends(warehouse, inputs, progress)
    store_retention(warehouse, inputs, progress)
    return summary


def build(options: argparse.Namespace, warehouse: Warehouse, runner: Runner, progress: Progress) -> dict[str, object]:
    from pipeline.build import build

    return build(warehouse, runner, full=options.full)


def report(options: argparse.Namespace, warehouse: Warehouse) -> dict[str, object]:
    from pipeline.report import write_report

    written = write_report(warehouse, options.report, version=VERSION)
    return {"report": " ".join(map(str, written))}


def partition_limits(texts: list[str]) -> dict[int, int]:
    limits = {}
    for text in texts:
        partition, _, offset = text.partition("=")
        if re.fullmatch(r"\d{1,10}=\d{1,19}", text, re.ASCII) is None:
            raise Failure(Exit.USAGE, f"--until-offset {text!r}: write PARTITION=OFFSET")
        limits[int(partition)] = int(offset)
    return limits
