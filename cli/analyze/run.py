"""`tenure analyze run`, `ingest` and `build`: read new records, build the tables, and write the report."""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING

from cli import VERSION, Interrupted, code_of_interrupt
from cli.analyze.arguments import EVERY_DEFAULT
from cli.analyze.opened import open_tables
from cli.analyze.report import STANDARD_OUTPUT, check_target
from cli.client.security import config_path, exit_code_of, security_of
from cli.failure import Exit, Failure
from cli.records.interrupts import Interrupts
from cli.shown import Screen, counted

if TYPE_CHECKING:
    from pipeline.inputs import Folder, Inputs
    from pipeline.jobs import Engine, Steps
    from pipeline.progress import Progress
    from pipeline.tables import Tables

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
    inputs, folders = inputs_of(options) if options.action != "build" else (None, [])
    with open_tables(options, create=options.action != "build") as tables, Interrupts() if follows else nullcontext() as interrupts:
        from pipeline.inputs import BadInput, NoAnswer, NoSuchLog, NotLetIn
        from pipeline.jobs import Steps
        from pipeline.progress import to_standard_error
        from pipeline.session import SparkFailed
        from pipeline.wire_reading import check_clusters, check_limits

        progress = to_standard_error(options.quiet)
        keep = getattr(options, "keep", None)
        steps = Steps(options.action != "build", options.action != "ingest", getattr(options, "full", False), None if keep is None else round(keep * 1000))
        try:
            if inputs is not None:  # raises for wrong inputs before Spark is started
                check_clusters(inputs)
                check_limits(inputs, folders)
            with open_engine(options, progress) as engine:
                if interrupts is None:
                    summary = engine.round(tables, inputs, steps)
                    show(screen, summary | report(options, tables))
                    warn_of_other_types(screen, summary)
                else:
                    with interrupts.waiting():
                        follow(options, tables, engine, inputs, steps, screen)
        except Interrupted as interrupted:
            return code_of_interrupt(interrupted, options)
        except NoAnswer as error:
            raise Failure(Exit.UNREACHABLE, str(error), hint="name a broker that runs: kafka://HOST:PORT") from None
        except NotLetIn as error:
            raise Failure(exit_code_of(error.reason), str(error), hint=error.reason.remedy) from None
        except NoSuchLog as error:
            raise Failure(Exit.USAGE, f"--until-offset: {error}") from None
        except BadInput as error:
            raise Failure(Exit.DAMAGED, str(error)) from None
        except SparkFailed as error:
            raise Failure(Exit.REFUSED, f"{error}; run it again: it begins where the last complete run ended", kind="spark-failed") from error
    return Exit.DONE


def follow(options: argparse.Namespace, tables: Tables, engine: Engine, inputs: Inputs | None, steps: Steps, screen: Screen) -> None:
    """Repeat rounds until interrupted. A round removes the remains of an interrupted one, and reads its input again."""
    from pipeline.inputs import NoAnswer
    from pipeline.tables import TablesBusy

    every = options.every if options.every is not None else EVERY_DEFAULT
    followed = False

    def shown(summary: dict[str, object]) -> None:
        nonlocal followed
        followed = True
        show(screen, summary | report(options, tables), line=True)

    while True:
        try:
            engine.follow(tables, inputs, steps, every, shown)
        except (TablesBusy, NoAnswer) as error:
            if not followed:
                raise
            screen.warn(f"{error}; trying again in {every:g} s")
        steps = steps._replace(full=False)
        time.sleep(every)


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


def warn_of_other_types(screen: Screen, summary: Mapping[str, object]) -> None:
    """Say in one line which groups are in the tables only with their commits and lag."""
    from history.newer import PROPOSALS
    from history.words import list_names

    counts = {kind: number for kind in PROPOSALS if isinstance(number := summary.get(f"{kind}_groups_not_understood"), int)}
    if counts:
        groups = list_names(f"{counted(number, f'{kind} group')} ({PROPOSALS[kind]})" for kind, number in counts.items())
        screen.warn(f"only commits and lag are known of {groups}: their members and rebalances are in records that are not understood")


@contextmanager
def open_engine(options: argparse.Namespace, progress: Progress) -> Iterator[Engine]:
    from pipeline.jobs import PlainEngine

    if options.remote is None and (options.master == WITHOUT_SPARK or (options.master is None and not options.conf and find_spec("pyspark") is None)):
        yield PlainEngine(progress)
        return
    from pipeline.session import session

    with session(options.master, dict(options.conf), remote=options.remote) as spark:
        from pipeline.spark_engine import SparkEngine  # needs PySpark, whose lack `session` tells

        yield SparkEngine(spark, progress)


def inputs_of(options: argparse.Namespace) -> tuple[Inputs, list[Folder]]:
    """The inputs, and the folders of logs in their directories, which need none of the packages that an analysis needs. The file with the settings
    for secured clusters is read here too, for its notes and problems; only its path is passed on.
    """
    from pipeline.inputs import BadInput, Inputs, folders_of

    config = config_path(options)
    inputs = Inputs.of(
        options.offsets,
        options.notes or [],
        cluster=options.cluster,
        on_corrupt=options.on_corrupt,
        until=partition_limits(options.until_offset),
        offsets_retention_ms=None if options.offsets_retention is None else round(options.offsets_retention * 1_000),
        config=os.path.abspath(config) if config else "",
    )
    if inputs.brokers:
        security_of(options)
    try:
        return inputs, folders_of(inputs)
    except BadInput as error:
        raise Failure(Exit.DAMAGED, str(error)) from None


def report(options: argparse.Namespace, tables: Tables) -> dict[str, object]:
    """Write the report, if the command names a file for it."""
    if not getattr(options, "report", None):
        return {}
    from pipeline.report import write_report

    written = write_report(tables, options.report, version=VERSION)
    return {"report": " ".join(map(str, written))}


def partition_limits(texts: list[str]) -> dict[int, int]:
    limits = {}
    for text in texts:
        partition, _, offset = text.partition("=")
        if re.fullmatch(r"\d{1,10}=\d{1,19}", text, re.ASCII) is None:
            raise Failure(Exit.USAGE, f"--until-offset {text!r}: write PARTITION=OFFSET")
        limits[int(partition)] = int(offset)
    return limits
