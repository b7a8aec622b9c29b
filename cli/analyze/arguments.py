"""Arguments of `tenure analyze`."""

from __future__ import annotations

import argparse
import re
from typing import Any

from cli.arguments import add_command, add_family, add_security_options, whole_number

REQUIREMENTS_NOTE = (
    "Needs the packages of tenure[analyze], and runs on Spark where those of tenure[spark] are installed, with Java 17; "
    "docs/analyze.md explains every table and number."
)
SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
SECONDS_MIN, SECONDS_MAX = 0.001, 365 * SECONDS["d"]
EVERY_DEFAULT = 10.0
CHUNKS_MAX = 1024


def add(commands: Any) -> None:
    actions = add_family(
        commands,
        "analyze",
        help="explain rebalances, lag and timeouts",
        description="Read the logs of a group coordinator, Tenure's or Kafka's, and explain what happened to every consumer group. The logs are only read.",
    )
    _add_run(actions)
    _add_ingest(actions)
    _add_build(actions)
    _add_report(actions)
    _add_advise(actions)
    _add_status(actions)
    _add_whatif(actions)
    _add_reconcile(actions)
    _add_optimize(actions)
    _add_rechunk(actions)


def _command(actions: Any, name: str, **about: Any) -> argparse.ArgumentParser:
    """Add a command that works in the folder --out."""
    command = add_command(actions, name, run=f"cli.analyze.{about.pop('module', name)}", **about)
    command.add_argument("--out", metavar="DIR", required=True, help="where the tables are: a folder or an URL such as s3://bucket/analysis; the first `analyze run` or `ingest` creates it")
    command.add_argument("--storage-option", metavar="NAME=VALUE", type=setting, action="append", default=[], help="a setting for tables at an URL, as delta-rs names it: AWS_REGION=...")
    return command


def _add_run(actions: Any) -> None:
    run = _command(
        actions,
        "run",
        help="read logs, build the tables, write a report",
        description="Read the new records of the logs, build the tables from them, and write a report: one file that opens in any browser.",
        examples=(
            "tenure analyze run --offsets /var/lib/kafka/data --out analysis --report report.html",
            "tenure analyze run --offsets broker1 broker2 broker3 --out analysis --report report.html",
            "tenure analyze run --offsets kafka://127.0.0.1:9092 --out analysis --report report.html",
            "tenure analyze run --offsets kafka://127.0.0.1:9092 --out analysis --report report.html --follow",
            "tenure analyze run --offsets kafka://kafka.example:9093 --config client.properties --out analysis --report report.html",
        ),
        notes=REQUIREMENTS_NOTE,
    )
    _add_input_options(run)
    _add_following_options(run)
    _add_spark_options(run)
    _add_building_options(run)
    run.add_argument("--report", metavar="FILE", help="write the report to this HTML file")
    _add_output_options(run)


def _add_ingest(actions: Any) -> None:
    ingest = _command(
        actions,
        "ingest",
        module="run",
        help="read logs into the bronze tables",
        description="Read the new records of the logs. The next run continues where the last complete run ended, also after a kill.",
        examples=(
            "tenure analyze ingest --offsets /var/lib/kafka/data --out analysis",
            "tenure analyze ingest --offsets kafka://127.0.0.1:9092 --out analysis --follow",
        ),
        notes=REQUIREMENTS_NOTE,
    )
    _add_input_options(ingest)
    _add_following_options(ingest)
    _add_spark_options(ingest)
    _add_output_options(ingest)


def _add_build(actions: Any) -> None:
    build = _command(
        actions,
        "build",
        module="run",
        help="build the tables from ingested records",
        examples=("tenure analyze build --out analysis", "tenure analyze build --out analysis --full"),
        notes=REQUIREMENTS_NOTE,
    )
    _add_spark_options(build)
    _add_building_options(build)
    _add_output_options(build)


def _add_report(actions: Any) -> None:
    report = _command(
        actions,
        "report",
        help="write the report",
        examples=("tenure analyze report --out analysis --html report.html --json report.json",),
    )
    report.add_argument("--html", metavar="FILE", help="write the report to this HTML file, which needs no network; -: to standard output")
    report.add_argument("--json", metavar="FILE", dest="json_file", help="write the report for programs; -: to standard output; pipeline/report/report.schema.json is its schema")
    report.add_argument("--per-group", action="store_true", help="also write a page for each group")
    report.add_argument("--groups", metavar="GLOB", help="only these groups: 'billing-*'")
    _add_cluster_option(report)
    _add_output_options(report, json=False)


def _add_advise(actions: Any) -> None:
    advise = _command(
        actions,
        "advise",
        help="recommend a session timeout for a group",
        notes="The confidence is weak with fewer than 20 restarts, or if most of them are not certain.",
        examples=("tenure analyze advise --out analysis --group checkout", "tenure analyze advise --out analysis --group checkout --quantile 0.99 --max-detect 60s"),
    )
    advise.add_argument("--group", metavar="G", required=True, help="the group")
    _add_cluster_option(advise)
    advise.add_argument("--quantile", metavar="Q", type=share, default=0.95, help="the share of restarts to bridge; default: 0.95")
    advise.add_argument("--max-detect", metavar="TIME", type=duration, help="the longest time until a dead member is noticed")
    _add_output_options(advise)


def _add_status(actions: Any) -> None:
    status = _command(
        actions,
        "status",
        help="list stalled partitions, for monitoring",
        description="The status of every partition that a group commits offsets for, by Burrow's rules or by Tenure's.",
        examples=("tenure analyze status --out analysis", "tenure analyze status --out analysis --ruleset burrow --fail-on ERR"),
        notes="Exit code 2 if a partition has the status of --fail-on or a worse one. ERR is any of STOP, STALL, REWIND and LOST.",
    )
    status.add_argument("--group", metavar="G", help="only this group")
    _add_cluster_option(status)
    status.add_argument("--ruleset", choices=("tenure", "burrow"), default="tenure", help="default: tenure")
    status.add_argument("--fail-on", metavar="STATUS", choices=("WARN", "ERR"), help="WARN or ERR: exit code 2 if a partition has this status or a worse one")
    _add_output_options(status)


def _add_whatif(actions: Any) -> None:
    whatif = _command(
        actions,
        "whatif",
        help="replay a group's history with static members",
        description="Simulate the group with Tenure's coordinator, as if its members had been static or had another session timeout, and compare.",
        examples=("tenure analyze whatif --out analysis --group checkout --static --session-timeout 60s",),
    )
    whatif.add_argument("--group", metavar="G", required=True, help="the group")
    _add_cluster_option(whatif)
    whatif.add_argument("--static", action="store_true", help="as if every member had a group.instance.id")
    whatif.add_argument("--session-timeout", metavar="TIME", type=duration, help="as if session.timeout.ms had been this; default: each member keeps its own")
    _add_output_options(whatif)


def _add_reconcile(actions: Any) -> None:
    reconcile = _command(
        actions,
        "reconcile",
        help="check the tables against each other and against a recomputation",
        description="Count the rows of every layer against those of the layer before, and compute a sample of the groups again without Spark.",
        examples=("tenure analyze reconcile --out analysis",),
        notes="Exit code 2 if something differs.",
    )
    reconcile.add_argument("--sample", metavar="N", type=sample, default=20, help="number of groups to recompute; default: 20")
    _add_output_options(reconcile)


def _add_optimize(actions: Any) -> None:
    optimize = _command(
        actions,
        "optimize",
        module="upkeep",
        help="write many small files of the tables as few",
        description="Write the small files of each table together, and remove files and versions that were replaced. Rounds do so by themselves now and then.",
        examples=("tenure analyze optimize --out analysis",),
    )
    _add_output_options(optimize)


def _add_rechunk(actions: Any) -> None:
    rechunk = _command(
        actions,
        "rechunk",
        module="upkeep",
        help="divide the groups into another number of chunks",
        description="A chunk is the work of one task, and has files of its own. More chunks give a cluster more to do at once; fewer make fewer files.",
        examples=("tenure analyze rechunk --out analysis --chunks 64",),
        notes="The tables of groups are built anew from the stored records.",
    )
    rechunk.add_argument("--chunks", metavar="N", type=chunks, required=True, help="the number of chunks, 1 to 1024")
    _add_output_options(rechunk)


def _add_cluster_option(command: argparse.ArgumentParser) -> None:
    command.add_argument("--cluster", metavar="NAME", help="only this cluster, if the tables have several")


def _add_input_options(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("input")
    group.add_argument(
        "--offsets", metavar="DIR", nargs="+", required=True, help="data directories with __consumer_offsets, of one cluster, or kafka://HOST:PORT"
    )
    add_security_options(group, user=False)
    group.add_argument("--notes", metavar="DIR", nargs="+", help="data directories with __coordinator_notes, if not those of --offsets")
    group.add_argument("--cluster", metavar="NAME", help="the name of the cluster; default: its id in meta.properties")
    group.add_argument("--on-corrupt", choices=("quarantine", "fail"), default="quarantine", help="what to do with damaged batches; default: quarantine, and count them")
    group.add_argument("--until-offset", metavar="P=N", action="append", default=[], help="read partition P of __consumer_offsets only below offset N; may be repeated")
    group.add_argument(
        "--offsets-retention", metavar="TIME", type=duration, help="offsets.retention.minutes of the cluster; default: a live cluster is asked, for a directory 7d"
    )


def _add_following_options(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("following")
    mode = group.add_mutually_exclusive_group()
    mode.add_argument("--available-now", action="store_true", help="run once, over the records that exist (the default)")
    mode.add_argument("--follow", action="store_true", help="repeat over new records until interrupted (Ctrl-C, SIGTERM)")
    group.add_argument("--every", metavar="TIME", type=duration, help="with --follow: the pause between two runs; default: 10s")


def _add_building_options(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("tables")
    group.add_argument("--full", action="store_true", help="rebuild all tables from all records, not only from new ones")
    group.add_argument("--keep", metavar="TIME", type=duration, help="delete commits and rows of time series of older days: 90d; default: keep all")


def _add_spark_options(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("Spark")
    group.add_argument(
        "--master",
        metavar="URL",
        type=master,
        help="where Spark runs; default: local[*], this machine, or that of spark-submit; none, the default without PySpark: in this process",
    )
    group.add_argument("--remote", metavar="URL", type=remote, help="the address of a Spark Connect server, in place of --master: sc://HOST:PORT")
    group.add_argument("--conf", metavar="NAME=VALUE", type=setting, action="append", default=[], help="a setting of Spark's; may be repeated")


def _add_output_options(command: argparse.ArgumentParser, *, json: bool = True) -> None:
    group = command.add_argument_group("output")
    group.add_argument("--quiet", action="store_true", help="no progress on standard error")
    if json:
        group.add_argument("--json", action="store_true", help="print JSON")


# Types of arguments


def duration(text: str) -> float:
    """Seconds, from 500ms, 45s, 2m or 1h."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)(ms|s|m|h|d)?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: write 500ms, 45s, 2m or 1h")
    if not float(match[1]):
        raise argparse.ArgumentTypeError("it must be more than 0: write 500ms, 45s, 2m or 1h")
    seconds = float(match[1]) * SECONDS[match[2] or "s"]
    if not SECONDS_MIN <= seconds <= SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"{text} is not between 1ms and 365d")
    return seconds


def setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not a setting: write NAME=VALUE")
    return name, value


def remote(text: str) -> str:
    if re.fullmatch(r"sc://.+|local(\[[^\]]+\])?", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no address of Spark Connect: write sc://HOST:PORT")
    return text


def master(text: str) -> str:
    if re.fullmatch(r"none|yarn|local(-cluster)?(\[[^\]]+\])?|[a-z0-9]+://.+", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a master: write none, local[*], spark://HOST:PORT, yarn or k8s://HOST:PORT")
    return text


def chunks(text: str) -> int:
    number = whole_number(text)
    if not 1 <= number <= CHUNKS_MAX:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 to {CHUNKS_MAX}")
    return number


def sample(text: str) -> int:
    number = whole_number(text)
    if not number:
        raise argparse.ArgumentTypeError("a sample of 0 groups checks nothing; write a number above 0")
    return number


def share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share above 0 and up to 1")
    return value
