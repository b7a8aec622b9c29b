"""The pipeline compared with a loop in plain Python over the same bytes: `python -m bench.pipeline [--spark MASTER]` prints JSON.

The input is offset commits of 2,000 groups in batches of 14 records in 50 partitions, a group record for each, and the end offsets of the topics
every minute. Each round reads and builds everything into a new folder; a warm-up round comes first. Rates are millions of records per wall second
and per second of processor time, of this process or, with Spark, also of its JVM and Python workers.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from coordinator import partition_of
from pipeline.demo.commits import EVERY_MS, START_MS, write_commits
from pipeline.jobs import Engine, Inputs, PlainEngine, Steps
from pipeline.progress import Progress
from pipeline.session import NoSpark, session
from pipeline.tables import Tables
from protocol.batch import CONTROL, Record, iterate_headers, records
from protocol.batch import build as build_batch
from protocol.messages.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from protocol.messages.coordinator_notes import EndOffsets, NoteHeader, NoteKey, PartitionEnds
from protocol.messages.kinds import NoteKind
from protocol.records import in_newest_version, read_record, write_note
from storage.segment import segment_name

RECORDS: Final = 1_000_000
ROUNDS: Final = 3
GROUPS: Final = 2_000
BATCH_RECORDS: Final = 14
PARTITIONS: Final = 50  # of __consumer_offsets, as Kafka's default
LOOP_RECORDS: Final = 100_000  # fewer than the input, since the plain loop is slow
TOPICS: Final = 50  # as write_commits uses
MINUTE_MS: Final = 60_000
QUIET: Final = Progress()


def write_logs(folder: Path, count: int, groups: int, partitions: int) -> None:
    write_commits(folder, count, groups, BATCH_RECORDS, partitions)
    period_ms = -(-count // (groups * BATCH_RECORDS)) * EVERY_MS
    for number in range(partitions):
        topics = [name for name in (f"topic-{each}" for each in range(TOPICS)) if partition_of(name, partitions) == number]
        log = folder / f"__coordinator_notes-{number}"
        log.mkdir()
        with (log / f"{segment_name(0)}.log").open("wb") as file:
            for minute, at_ms in enumerate(range(START_MS, START_MS + period_ms, MINUTE_MS)):
                notes = [(in_newest_version(NoteKey("")), _ends(topic, minute)) for topic in topics]
                base = minute * len(topics)
                inside = [Record(base + place, at_ms, key, value) for place, (key, value) in enumerate(notes)]
                file.write(build_batch(inside, base_offset=base, leader_epoch=0) if inside else b"")


def _ends(topic: str, minute: int) -> bytes:
    """A note with the end offsets of a topic, which grows a little faster than its groups commit."""
    end = (1 + minute * MINUTE_MS // EVERY_MS) * 102
    header = NoteHeader(NoteKind.END_OFFSETS, START_MS + minute * MINUTE_MS)
    return write_note(header, EndOffsets(topic, [PartitionEnds(number, 0, end) for number in range(BATCH_RECORDS)]))


def plain_loop(path: Path, records_max: int) -> int:
    """Decode the records as the pipeline does, but in plain Python: with our codec, without numpy."""
    data = path.read_bytes()
    rows = []
    at = 0
    for header in iterate_headers(data, 0, len(data)):
        if not header.attributes & CONTROL:
            for record in records(data, at):
                if len(record.key or b"") > 1 and (record.key or b"")[1] < 2:
                    key = read_record(OffsetCommitKey, record.key or b"")
                    value = read_record(OffsetCommitValue, record.value or b"")
                    rows.append((record.offset, record.timestamp, key.group, key.topic, key.partition, value.offset, value.commit_timestamp))
        at += header.size
        if len(rows) >= records_max:
            break
    return len(rows)


def cpu_of_all() -> float:
    """Seconds of processor time of this process and its descendants, also those that ended. Linux only."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    tick = os.sysconf("SC_CLK_TCK")
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(fields[1])
            used[int(path.parent.name)] = sum(map(int, fields[11:15])) / tick
    return sum(used.get(pid, 0.0) for pid in _descendants(parents))


def _descendants(parents: dict[int, int]) -> set[int]:
    descendants = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in descendants} - descendants:
        descendants |= more
    return descendants


def peak_mib() -> float:
    """The largest peak memory among this process and Spark's Python workers."""
    parents, peaks = {}, {}
    for path in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError, KeyError, ValueError):
            fields = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
            pid = int(path.parent.name)
            parents[pid] = int(fields["PPid"])
            if "java" not in fields["Name"]:
                peaks[pid] = int(fields["VmHWM"].split()[0]) / 1024
    return max(peaks.get(pid, 0.0) for pid in _descendants(parents))


@contextlib.contextmanager
def running(master: str | None) -> Iterator[Engine]:
    if master is None:
        yield PlainEngine(QUIET)
        return
    with session(master) as spark:
        from pipeline.spark_engine import SparkEngine

        yield SparkEngine(spark, QUIET)


def measure(count: int, groups: int, partitions: int, rounds: int, master: str | None) -> dict[str, Any]:
    result: dict[str, Any] = {"all": [], "all_cpu": [], "loop_cpu": []}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tenure-bench-")))
        write_logs(folder / "data", count, groups, partitions)
        inputs = Inputs.of([str(folder / "data")])
        engine = stack.enter_context(running(master))
        log = max((folder / "data").glob("__consumer_offsets-*/*.log"), key=lambda path: path.stat().st_size)
        for turn in range(rounds + 1):
            tables = Tables.open(folder / f"out-{turn}", create=True)
            record_count, wall, cpu = timed(lambda: int(str(engine.round(tables, inputs, Steps())["records"])))  # noqa: B023
            shutil.rmtree(tables.folder)
            looped, _, loop_cpu = timed(lambda: plain_loop(log, LOOP_RECORDS))
            if not turn and rounds:
                continue  # warm-up
            for name, number, seconds in (("all", record_count, wall), ("all_cpu", record_count, cpu), ("loop_cpu", looped, loop_cpu)):
                result[name].append(number / seconds / 1e6)
        result |= {"records": record_count, "peak_mib": peak_mib()}
    return result


def timed(work: Callable[[], int]) -> tuple[int, float, float]:
    wall, cpu = time.perf_counter(), cpu_of_all()
    count = work()
    return count, time.perf_counter() - wall, max(cpu_of_all() - cpu, 0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--groups", type=int, default=GROUPS)
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="0: a single round without warm-up")
    parser.add_argument("--spark", metavar="MASTER", help="local[1], for instance; without: in this process")
    options = parser.parse_args()
    try:
        result = measure(options.records, options.groups, options.partitions, options.rounds, options.spark)
    except NoSpark as error:
        result = {"lacking": str(error)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
