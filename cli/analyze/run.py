"""`tenure analyze run`, `ingest` and `build`: read what is new, build tables from it, and write the report."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING

from cli import VERSION
from cli.analyze.opened import opened
from cli.analyze.report import check_target
from cli.failure import EXIT, Failure
from cli.records.interrupts import Interrupted, Interrupts
from cli.shown import Screen

if TYPE_CHECKING:
    from pipeline.inputs import Inputs
    from pipeline.progress import Progress
    from pipeline.runner import Runner
    from pipeline.warehouse import Warehouse

WITHOUT_SPARK = "none"


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    follows = getattr(options, "follow", False)
    if getattr(options, "report", None):
        check_target(options.report)
    with opened(options, create=options.action != "build") as warehouse, Interrupts() if follows else nullcontext() as interrupts:
        from pipeline.inputs import BadInput, NoAnswer, folders_of
        from pipeline.progress import standard
        from pipeline.runner import SparkFailed

        progress = standard(options.quiet)
        try:
            if options.action != "build":
                folders_of(inputs_of(options))  # problems with them are reported before Spark is started
            if interrupts is None:
                with warehouse.locked(), running(options, progress) as runner:
                    show(screen, turn(options, warehouse, runner, progress))
            else:
                with interrupts.waiting():
                    follow(options, warehouse, screen, progress)
        except Interrupted as interrupted:
            return 128 + interrupted.number
        except NoAnswer as error:
            raise Failure(EXIT.UNREACHABLE, str(error), hint="name a broker that runs: kafka://HOST:PORT") from None
        except BadInput as error:
            raise Failure(EXIT.DAMAGED, str(error)) from None
        except SparkFailed as error:
            raise Failure(EXIT.REFUSED, f"{error}; run it again: it begins where the last complete run ended", word="spark-failed") from error
    return EXIT.DONE


def turn(options: argparse.Namespace, warehouse: Warehouse, runner: Runner, progress: Progress) -> dict[str, object]:
    """The caller holds the lock."""
    said = ingest(options, warehouse, runner, progress) if options.action != "build" else {}
    if options.action != "ingest":
        said |= build(options, warehouse, runner, progress)
    if getattr(options, "report", None):
        said |= report(options, warehouse)
    return said


def follow(options: argparse.Namespace, warehouse: Warehouse, screen: Screen, progress: Progress) -> None:
    """Repeat until interrupted; unpublished input is read again by the next run.

    Between two turns other processes may work in the folder. Leftovers of a turn are removed by the next.
    """
    from pipeline.inputs import NoAnswer
    from pipeline.warehouse import WarehouseBusy

    with ExitStack() as stack:
        with warehouse.locked():
            runner = stack.enter_context(running(options, progress))
            show(screen, turn(options, warehouse, runner, progress), line=True)
        options.full = False
        while True:
            time.sleep(options.every)
            try:
                with warehouse.locked():
                    before = warehouse.current().run
                    said = turn(options, warehouse, runner, progress)
                    if warehouse.current().run > before:
                        show(screen, said, line=True)
            except (WarehouseBusy, NoAnswer) as error:
                screen.warn(f"{error}; in {options.every:g} s again")


def show(screen: Screen, said: dict[str, object], *, line: bool = False) -> None:
    """`line`: one of many inputs, each in one line."""
    if screen.json and not line:
        screen.document(said)
    elif screen.json:
        screen.json_line(said)
    elif line:
        screen.line(", ".join(f"{name}: {value}" for name, value in said.items()))
        screen.out.flush()
    else:
        for name, value in said.items():
            screen.line(f"{name}: {value}")


@contextmanager
def running(options: argparse.Namespace, progress: Progress) -> Iterator[Runner]:
    from pipeline.runner import OnSpark, Sequential

    if options.master == WITHOUT_SPARK:
        yield Sequential(progress)
        return
    from pipeline.session import session

    wrong = [text for text in options.conf if "=" not in text]
    if wrong:
        raise Failure(EXIT.USAGE, f"--conf {wrong[0]!r}: write NAME=VALUE")
    with session(options.master, dict(text.split("=", 1) for text in options.conf)) as spark:
        yield OnSpark(spark, progress)


def inputs_of(options: argparse.Namespace) -> Inputs:
    from pipeline.inputs import Inputs

    return Inputs.of(
        options.offsets, options.notes or [], cluster=options.cluster, on_corrupt=options.on_corrupt, until=until(options.until_offset)
    )


def ingest(options: argparse.Namespace, warehouse: Warehouse, runner: Runner, progress: Progress) -> dict[str, object]:
    from pipeline.ingest import ingest
    from pipeline.live_ends import note_ends
    from pipeline.samples import note_directories

    inputs = inputs_of(options)
    said = ingest(warehouse, runner, inputs, progress)
    note_directories(warehouse, inputs)
    note_ends(warehouse, inputs, progress)
    return said


def build(options: argparse.Namespace, warehouse: Warehouse, runner: Runner, progress: Progress) -> dict[str, object]:
    from pipeline.build import build

    return build(warehouse, runner, full=options.full)


def report(options: argparse.Namespace, warehouse: Warehouse) -> dict[str, object]:
    from pipeline.report import write_report

    written = write_report(warehouse, options.report, version=VERSION)
    return {"report": " ".join(map(str, written))}


def until(texts: list[str]) -> dict[int, int]:
    found = {}
    for text in texts:
        partition, _, offset = text.partition("=")
        if not (partition.isdigit() and offset.isdigit()):
            raise Failure(EXIT.USAGE, f"--until-offset {text!r}: write PARTITION=OFFSET")
        found[int(partition)] = int(offset)
    return found
