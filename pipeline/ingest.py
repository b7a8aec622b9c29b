"""Ingestion: writes new records of the logs to bronze files, then publishes the files with the cursors.

After a crash the next run continues at the published cursors, so no record is lost or read twice.

Records of open transactions are read too, and stored apart (`PENDING`). A later run that finds the end of the transaction adds them to the
records, or drops them. Since they precede records that a build may have used, a build then computes the tables of their bucket anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.build import LATE
from pipeline.coverage import unreadable_coverage
from pipeline.inputs import FAIL, BadInput, Folder, Inputs, LogId, folders_of, replicas
from pipeline.progress import Progress
from pipeline.reading import ReadResult, SegmentReplaced, read_split
from pipeline.resuming import Cursor
from pipeline.rows import Coverage, Segment
from pipeline.runner import Runner
from pipeline.schema import in_order, joined, rows_of, table_of
from pipeline.splits import SPLIT_BYTES, SPLIT_RECORDS, Plan, Split, new_bytes, plan_log
from pipeline.warehouse import File, PublishedState, Warehouse
from pipeline.wire_reading import WireRead, WireSplit, plan_wire

__all__ = ["BadInput", "Inputs", "ingest"]

ATTEMPTS: Final = 10  # to plan and read, if a cleaner replaces segments meanwhile
LOCAL_SURVEY_BYTES: Final = 64 << 20  # smaller inputs are surveyed without a Spark job
FILE_BYTES: Final = 256 << 20  # of rows in memory
EXPLANATIONS: Final = {  # of counters
    "quarantined_bytes": "bytes are damaged and skipped: the table `segments` has their positions",
    "diverged": "batches differ between the replicas: those of the later leader are used",
    "undecided": "records are part of an open transaction: a later run reads them",
}


PENDING: Final = "pending"  # rows of open transactions, with a log in place of a bucket


class SurveyTask(NamedTuple):
    id: LogId
    folders: tuple[Folder, ...]
    cursor: Cursor | None
    on_corrupt: str
    bytes: int


class ReadTask(NamedTuple):
    """Splits of one log, in order; or one range of a live log."""

    warehouse: str
    run: int
    splits: tuple[Split, ...]
    wire: WireSplit | None = None

    @property
    def records(self) -> int:
        return self.wire.records if self.wire is not None else sum(split.records for split in self.splits)


class TaskResult(NamedTuple):
    """Unpublished files, and the results of the reads."""

    files: list[File]
    reads: list[ReadResult]  # of each split
    segments: Sequence[Segment] = ()
    coverage: Sequence[Coverage] = ()
    cursor: Cursor | None = None
    ended: Mapping[int, bool] = {}  # see `TransactionVerdicts.ended`
    error: str = ""  # an error of the input
    changed: bool = False  # a cleaner replaced a segment


class Decided(NamedTuple):
    """What becomes of the records of a log's open transactions of earlier runs."""

    files: list[File]  # of `records`, and of `PENDING` with those that still wait
    records: int  # committed
    aborted: int


def ingest(warehouse: Warehouse, runner: Runner, inputs: Inputs, progress: Progress) -> dict[str, object]:
    """Ingest new records; return a summary. The caller holds the lock. On BadInput nothing is published."""
    for _ in range(ATTEMPTS):
        try:
            return _ingest(warehouse, runner, inputs, progress)
        except SegmentReplaced as error:
            changed = error
    raise BadInput(f"{changed}: its segments are replaced faster than they can be read; copy the directory, or stop its broker")


def _ingest(warehouse: Warehouse, runner: Runner, inputs: Inputs, progress: Progress) -> dict[str, object]:
    current = warehouse.current()
    cursors = cursors_of(current)
    plan = survey_all(inputs, cursors, runner)
    wire = plan_wire(inputs, plan.cursors)
    run = current.run + 1
    folder = str(warehouse.folder)
    tasks = [ReadTask(folder, run, splits) for splits in _grouped_splits(plan.splits)]
    tasks += [ReadTask(folder, run, (), split) for split in wire]
    results = runner.run("reading", write_rows, tasks, lambda task: task.records)
    for result in results:
        if result.error:
            raise BadInput(result.error)
        if result.changed:
            raise SegmentReplaced(str(warehouse.folder))
    segments, coverage = _with_losses(plan, tasks, results, inputs.on_corrupt)
    for task, result in zip(tasks, results, strict=True):
        segments += result.segments
        coverage += result.coverage
        if task.wire is not None and result.cursor is not None:
            plan.cursors[task.wire.id] = result.cursor
            plan.ended[task.wire.id] = dict(result.ended)
    files = [file for result in results for file in result.files]
    late = set(current.build.get(LATE, ()))
    for id, ended in plan.ended.items():
        waited = current.files_of(PENDING, str(id))
        if ended and waited:
            decided = _decided(warehouse, run, id, waited, ended)
            current = replace(current, files=current.replacing(waited, ()))
            files += decided.files
            at = max(number for number, row in enumerate(segments) if row[:3] == id)  # the segment with the newest records
            segments[at] = segments[at]._replace(records=segments[at].records + decided.records, aborted=segments[at].aborted + decided.aborted)
            if decided.records:
                late.add(id.bucket)
    pending = sum(file.rows for file in [*current.files, *files] if file.table == PENDING)
    summary = _summary([file for file in files if file.table == "records"], segments, pending)
    for name, meaning in EXPLANATIONS.items():
        if summary[name]:
            progress.say(f"{summary[name]} {meaning}")
    known_coverage = set(rows_of(Coverage, warehouse.read("coverage"))) if plan.lost else set()
    for lost in plan.lost:
        progress.say(f"{lost.log}-{lost.partition} has no segment, but a checkpoint file names its records up to offset {lost.to_offset}: they are missing")
        if lost not in known_coverage:
            coverage.append(lost)
    if plan.cursors == cursors and not segments and not coverage:
        return summary
    files += _write_by_bucket(warehouse, run, "segments", segments) + _write_by_bucket(warehouse, run, "coverage", coverage)
    cursors_json = {str(id): cursor.as_json() for id, cursor in sorted(plan.cursors.items())}
    build = {**current.build, LATE: sorted(late)} if late else current.build
    warehouse.publish(replace(current, run=run, files=current.replacing((), files), cursors=cursors_json, build=build))
    return summary


def cursors_of(current: PublishedState) -> dict[LogId, Cursor]:
    return {LogId.from_text(name): Cursor.from_json(values) for name, values in current.cursors.items()}


# Planning


def survey_all(inputs: Inputs, cursors: Mapping[LogId, Cursor], runner: Runner) -> Plan:
    """Like `splits.plan`, but large inputs are surveyed in parallel by the runner."""
    tasks = []
    for id, folders in sorted(replicas(folders_of(inputs)).items()):
        cursor = cursors.get(id)
        size = sum(new_bytes(folder, cursor) for folder in folders)
        tasks.append(SurveyTask(id, tuple(folders), cursor, inputs.on_corrupt, size))
    large = sum(task.bytes for task in tasks) > LOCAL_SURVEY_BYTES
    parts = runner.run("surveying", survey_log, tasks, lambda task: task.bytes, "bytes") if large else [survey_log(task) for task in tasks]
    plan = Plan([], [], [], dict(cursors), {}, [])
    for part in parts:
        if isinstance(part, str):
            raise BadInput(part)
        plan.add(part)
    return plan


def survey_log(task: SurveyTask) -> Plan | str:
    """The plan, or the text of an error: Spark would add tracebacks of two languages to an exception."""
    try:
        return plan_log(task.id, task.folders, task.cursor, task.on_corrupt)
    except BadInput as error:
        return str(error)


def _grouped_splits(splits: Sequence[Split]) -> Iterator[tuple[Split, ...]]:
    """Group consecutive splits of one log into tasks of a useful size."""
    group: list[Split] = []
    for split in splits:
        size = sum(earlier.bytes for earlier in group) + split.bytes
        count = sum(earlier.records for earlier in group) + split.records
        if group and ((group[-1].id, group[-1].waits) != (split.id, split.waits) or size > SPLIT_BYTES or count > SPLIT_RECORDS):
            yield tuple(group)
            group = []
        group.append(split)
    if group:
        yield tuple(group)


# Reading


def write_rows(task: ReadTask) -> TaskResult:
    warehouse = Warehouse(Path(task.warehouse))
    files: list[File] = []
    try:
        if task.wire is not None:
            reading = WireRead(task.wire)
            _write(warehouse, task, task.wire.id, reading.rows(), files)
            files += _write_rows(warehouse, task.run, PENDING, str(task.wire.id), joined("records", [pa.Table.from_batches([rows]) for rows in reading.waiting]))
            return TaskResult(files, [], *reading.finish(), reading.ended)
        reads = [ReadResult() for _ in task.splits]
        rows = (batch for split, read in zip(task.splits, reads, strict=True) for batch in read_split(split, read))
        _write(warehouse, task, task.splits[0].id, rows, files, waits=task.splits[0].waits)
        return TaskResult(files, reads)
    except BadInput as error:
        return TaskResult([], [], error=str(error))
    except SegmentReplaced:
        return TaskResult([], [], changed=True)


def _write(warehouse: Warehouse, task: ReadTask, id: LogId, rows: Iterator[pa.RecordBatch], files: list[File], *, waits: bool = False) -> None:
    pending: list[pa.RecordBatch] = []
    size = 0

    def flush() -> None:
        if pending:
            table, bucket = (PENDING, str(id)) if waits else ("records", id.bucket)
            files.extend(_write_rows(warehouse, task.run, table, bucket, pa.Table.from_batches(pending)))
            pending.clear()

    for batch in rows:
        pending.append(batch)
        size += batch.nbytes
        if size >= FILE_BYTES:
            flush()
            size = 0
    flush()


def _decided(warehouse: Warehouse, run: int, id: LogId, waited: Iterable[File], ended: Mapping[int, bool]) -> Decided:
    """`ended`: for each producer whose transaction has ended whether it was committed."""
    rows = joined("records", map(warehouse.load, waited))

    def of(producers: Iterable[int]) -> pa.ChunkedArray:
        return pc.is_in(rows["producer_id"], pa.array(producers, pa.int64()))

    committed = rows.filter(of([producer for producer in ended if ended[producer]]))
    waiting = rows.filter(pc.invert(of(list(ended))))
    files = _write_rows(warehouse, run, "records", id.bucket, committed) + _write_rows(warehouse, run, PENDING, str(id), waiting)
    return Decided(files, len(committed), len(rows) - len(committed) - len(waiting))


def _write_rows(warehouse: Warehouse, run: int, table: str, bucket: str, rows: pa.Table) -> list[File]:
    return [warehouse.write(table, run, bucket, in_order("records", rows))] if len(rows) else []


# Publishing


def _with_losses(plan: Plan, tasks: Sequence[ReadTask], results: Sequence[TaskResult], on_corrupt: str) -> tuple[list[Segment], list[Coverage]]:
    """Segments and coverage with the losses found while reading: batches with a valid checksum and unreadable records."""
    segments = {(row[:3], row.path): row for row in plan.segments}
    coverage = list(plan.coverage)
    for task, result in zip(tasks, results, strict=True):
        for split, read in zip(task.splits, result.reads, strict=True):
            if not read.holes:
                continue
            if on_corrupt == FAIL:
                raise BadInput(
                    f"{split.path}: offset {read.holes[0].first}: unreadable batch; --on-corrupt=quarantine skips and counts it"
                )
            row = segments[split.id, split.path]
            lost = len(read.holes)
            segments[split.id, split.path] = row._replace(
                batches=row.batches - (0 if split.waits else lost),
                records=row.records - (0 if split.waits else split.records - read.records),
                damaged_batches=row.damaged_batches + lost,
                quarantined_bytes=row.quarantined_bytes + read.bytes,
            )
            coverage += unreadable_coverage(split.id, read.holes, coverage)
    return list(segments.values()), coverage


def _write_by_bucket(warehouse: Warehouse, run: int, table: str, rows: Sequence[Segment | Coverage]) -> list[File]:
    by_bucket: dict[str, list[tuple[object, ...]]] = {}
    for row in rows:
        by_bucket.setdefault(LogId(row.cluster, row.log, row.partition).bucket, []).append(row)
    return [warehouse.write(table, run, bucket, in_order(table, table_of(table, rows_of_bucket))) for bucket, rows_of_bucket in sorted(by_bucket.items())]


def _summary(files: Sequence[File], segments: Sequence[Segment], undecided: int) -> dict[str, object]:
    return {
        "records": sum(file.rows for file in files),
        "segments": len(segments),
        "aborted": sum(row.aborted for row in segments),
        "undecided": undecided,
        "torn_bytes": sum(row.torn_bytes for row in segments),
        "damaged_batches": sum(row.damaged_batches for row in segments),
        "quarantined_bytes": sum(row.quarantined_bytes for row in segments),
        "diverged": sum(row.diverged for row in segments),
    }
