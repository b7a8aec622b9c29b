"""Bronze beside a loop of plain Python over the same bytes, in one run: `python -m bench.pipeline_reading [--records N] [--spark]`.

Offset commits with a few group records, 14 records a batch, as coordinators write them. Rates are of CPU seconds, of all
processes where Spark works, so that a busy machine changes little; `bronze_spark_wall` is of wall seconds and cores.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pipeline.ingest import Inputs, ingest
from pipeline.progress import Progress
from pipeline.reading import read_split
from pipeline.runner import OnSpark, Runner, Sequential
from pipeline.splits import plan
from pipeline.warehouse import Warehouse
from protocol.batch import CONTROL, Record, build, iterate, records
from protocol.messages.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from protocol.records import read_record, with_version
from storage.segment import segment_name

BATCH_RECORDS: Final = 14
GROUPS: Final = 400
PLAIN_RECORDS: Final = 100_000  # of the loop: it is slow
START_MS: Final = 1_700_000_000_000
FILES: Final = 8


def write_logs(folder: Path, count: int) -> None:
    """So many records in FILES logs."""
    rng = random.Random(1)
    kinds = [
        (
            with_version(OffsetCommitKey(f"group-number-{number % GROUPS:04d}", f"topic-{rng.randrange(10)}", rng.randrange(20)), 1),
            with_version(OffsetCommitValue(rng.randrange(1 << 40), 3, "", START_MS + number), 3),
        )
        for number in range(20_000)
    ]
    for partition in range(FILES):
        log = folder / f"__consumer_offsets-{partition}"
        log.mkdir(parents=True)
        with (log / f"{segment_name(0)}.log").open("wb") as file:
            for base in range(0, count // FILES, BATCH_RECORDS):
                inside = [
                    Record(base + each, START_MS + base, *kinds[(base + each * 7 + partition) % len(kinds)]) for each in range(BATCH_RECORDS)
                ]
                file.write(build(inside, base_offset=base, leader_epoch=0))


def plain_loop(path: Path, most: int) -> int:
    """What a program would do that knows our codec and no numpy."""
    data = path.read_bytes()
    rows = []
    at = 0
    for header in iterate(data, 0, len(data)):
        if not header.attributes & CONTROL:
            for record in records(data, at):
                key = read_record(OffsetCommitKey, record.key or b"")
                value = read_record(OffsetCommitValue, record.value or b"")
                rows.append((record.offset, record.timestamp, key.group, key.topic, key.partition, value.offset, value.commit_timestamp))
        at += header.size
        if len(rows) >= most:
            break
    return len(rows)


def timed(work: Callable[[], int], clock: Callable[[], float]) -> tuple[int, float]:
    begin = clock()
    count = work()
    return count, clock() - begin


def cpu_of_all() -> float:
    """Seconds of CPU that this process and those below it have used: Spark's JVM, and its Python workers. Linux alone knows."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    tick = os.sysconf("SC_CLK_TCK")
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(fields[1])
            used[int(path.parent.name)] = sum(map(int, fields[11:15])) / tick
    mine = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return sum(used.get(pid, 0.0) for pid in mine)


def run(records_wanted: int, runner: Runner | None, cores: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as name:
        folder = Path(name) / "data"
        write_logs(folder, records_wanted)
        inputs = Inputs.of([str(folder)])
        found: dict[str, float] = {}

        def note(what: str, work: Callable[[], int], clock: Callable[[], float] = time.process_time, share: int = 1) -> None:
            count, seconds = timed(work, clock)
            found[what] = round(count / seconds / share / 1e6, 3)

        quiet = Progress()
        planned = plan(inputs, {})
        note("plain_loop", lambda: plain_loop(next(folder.rglob("*.log")), PLAIN_RECORDS))
        note("survey", lambda: plan(inputs, {}).records)
        note("decode", lambda: sum(batch.num_rows for split in planned.splits for batch in read_split(split)))

        def bronze(turn: int, where: Runner) -> int:
            warehouse = Warehouse.open(Path(name) / f"out-{turn}", create=True)
            with warehouse.locked():
                return int(str(ingest(warehouse, where, inputs, quiet)["records"]))

        note("bronze", lambda: bronze(0, Sequential(quiet)))
        if runner is not None:
            bronze(1, runner)  # so that it is warm
            note("bronze_spark_wall", lambda: bronze(2, runner), time.perf_counter, cores)
            note("bronze_spark_cpu", lambda: bronze(3, runner), cpu_of_all)
        found["bronze_to_loop"] = round(found["bronze"] / found["plain_loop"], 1)
        found["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--spark", metavar="MASTER", help="local[2], for instance")
    options = parser.parse_args()
    if options.spark is None:
        found = run(options.records, None, 1)
    else:
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = sys.executable
        cores = int(options.spark.removeprefix("local[").rstrip("]"))
        builder = SparkSession.builder.master(options.spark).config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
        spark = builder.config("spark.ui.showConsoleProgress", "false").config("spark.driver.host", "127.0.0.1").getOrCreate()
        found = run(options.records, OnSpark(spark, Progress()), cores)
        spark.stop()
    print("million records per second and core:")
    for name, value in found.items():
        print(f"  {name:<16} {value}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
